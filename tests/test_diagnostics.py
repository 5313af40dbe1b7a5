"""Figures on held-out rows: definitions, warnings when they should come and only then."""

from dataclasses import replace
from math import isnan, sqrt

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from ncprob import NCPRegressor
from ncprob.datasets import LinearGaussian
from ncprob.diagnostics import Diagnostics, HeldOutAnswers, calibration_curve, summarize, worst_slab_coverage


def regressor(**options):
    defaults = {
        "coordinates": "residual",
        "hidden_sizes": (32, 32),
        "max_steps": 200,
        "batch_size": 256,
        "learning_rate": 5e-3,
        "random_state": 0,
        "device": "cpu",
        "progress": False,
    }
    return NCPRegressor(**{**defaults, **options})


# ---------------------------------------------------------------- calibration curve


def test_a_uniform_pit_is_on_the_diagonal():
    curve = calibration_curve((np.arange(1000) + 0.5) / 1000)
    assert list(curve) == pytest.approx(np.arange(0.05, 1, 0.05))
    np.testing.assert_allclose(list(curve.values()), list(curve), atol=1e-3)


def test_the_curve_counts_central_intervals():
    pit = [0.1, 0.3, 0.5, 0.75, 0.99]
    assert calibration_curve(pit, levels=[0.01, 0.4, 0.5, 0.8, 0.97, 0.98]) == {
        0.01: 0.2,
        0.4: 0.4,
        0.5: 0.6,  # 0.75 is the end of the central half
        0.8: 0.8,  # and 0.1 of the central 80 %
        0.97: 0.8,
        0.98: 1.0,
    }


@pytest.mark.parametrize(("power", "sign"), [(0.2, -1), (5, -1)])
def test_a_skewed_pit_leaves_the_diagonal(power, sign):
    curve = calibration_curve(((np.arange(1000) + 0.5) / 1000) ** power)
    assert sign * (curve[0.5] - 0.5) > 0.1


def test_wide_and_narrow_laws_are_told_apart():
    uniform = (np.arange(1000) + 0.5) / 1000
    wide, narrow = 0.25 + 0.5 * uniform, np.where(uniform < 0.5, 0.3 * uniform, 1 - 0.3 * (1 - uniform))
    assert calibration_curve(wide)[0.5] == 1
    assert calibration_curve(narrow)[0.5] == 0


def test_components_are_pooled():
    pit = np.array([[0.5, 0.01], [0.5, 0.99]])
    assert calibration_curve(pit, levels=[0.9]) == {0.9: 0.5}


# ---------------------------------------------------------------- worst slab


def test_a_slab_without_coverage_is_found():
    # nothing is covered where x₁ + x₂ > 0.8, a fifth of the rows: every mean over other rows is above 0.2
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2))
    direction = (x[:, 0] + x[:, 1]) / sqrt(2)
    covered = direction < np.quantile(direction, 0.8)
    assert worst_slab_coverage(x, covered) < 0.2
    assert worst_slab_coverage(x, ~covered) < 0.05  # four fifths without coverage: easy to find


def test_a_slab_in_the_middle_is_found():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    assert worst_slab_coverage(x, np.abs(x[:, 1]) > 0.3) < 0.4  # 24 % of the rows; the best of 100 directions is near


def test_even_coverage_reads_as_it_is():
    # covered at random in 90 % of the rows: the slab is chosen on one half and read on the other, so no choice biases
    # it. A fifth of 2,000 rows: standard error √(0.09/400) = 0.015; four of them.
    rng = np.random.default_rng(0)
    values = [worst_slab_coverage(rng.normal(size=(4000, 5)), rng.random(4000) < 0.9) for _ in range(5)]
    np.testing.assert_allclose(values, 0.9, atol=4 * 0.015)


def test_the_mean_over_data_sets_is_not_biased():
    # 200 sets of 200 rows: slabs of at least 20 rows have a standard error of at most √(0.09/20) = 0.067, their mean
    # one of 0.067/√200 = 0.005; four of them. Reading on the rows that chose would give about 0.75.
    rng = np.random.default_rng(1)
    values = [
        worst_slab_coverage(rng.normal(size=(200, 2)), rng.random(200) < 0.9, n_directions=30) for _ in range(200)
    ]
    assert np.mean(values) == pytest.approx(0.9, abs=0.02)


def test_all_or_nothing():
    x = np.random.default_rng(0).normal(size=(100, 2))
    assert worst_slab_coverage(x, np.ones(100, bool)) == 1
    assert worst_slab_coverage(x, np.zeros(100, bool)) == 0


def test_few_rows_have_no_slab():
    x = np.zeros((39, 2))
    assert isnan(worst_slab_coverage(x, np.ones(39, bool)))
    assert not isnan(worst_slab_coverage(np.random.default_rng(0).normal(size=(40, 2)), np.ones(40, bool)))


def test_slabs_repeat_and_do_not_touch_global_state():
    rng = np.random.default_rng(0)
    x, covered = rng.normal(size=(300, 2)), rng.random(300) < 0.8
    assert worst_slab_coverage(x, covered) == worst_slab_coverage(x, covered)


# ---------------------------------------------------------------- summary and warnings


def answers(m=400, q=1, seed=0, **changes):
    """What a well calibrated model would have said."""
    rng = np.random.default_rng(seed)
    ideal = HeldOutAnswers(
        inputs=rng.normal(size=(m, 2)),
        pit=np.stack([rng.permutation((np.arange(m) + 0.5) / m) for _ in range(q)], axis=1),
        covered=np.stack([rng.permutation(np.arange(m) < round(0.9 * m)) for _ in range(q)], axis=1),
        repair=np.full(m, 0.02),
    )
    return replace(ideal, **changes)


def summary(held, spectrum=(0.8, 0.4), gaps=(0.1, 0.05), loss=-0.8):
    return summarize(held, np.array(spectrum), gaps, loss)


def test_figures_of_good_answers():
    figures = summary(answers())
    assert figures.warnings == []
    assert figures.n_held_out == 400
    assert figures.repair == pytest.approx(0.02)
    assert figures.coverage_90 == pytest.approx(0.9)
    assert figures.pit_pvalue > 0.99
    assert (figures.orthonormality_gap, figures.centering_gap, figures.held_out_loss) == (0.1, 0.05, -0.8)
    np.testing.assert_allclose(figures.pit_histogram, np.full(10, 0.1))
    np.testing.assert_allclose(list(figures.calibration.values()), list(figures.calibration), atol=0.01)
    assert str(figures).endswith("no warnings")


UNEVEN = np.random.default_rng(0).normal(size=(400, 2))
BAD = {
    "Only 30 held-out rows": answers(30),
    "not uniform": answers(pit=((np.arange(400) + 0.5) / 400)[:, None] ** 2),
    "90 % intervals cover 80.0%: use `conformalize`": answers(covered=(np.arange(400) % 5 > 0)[:, None]),
    "in one region of X": answers(inputs=UNEVEN, covered=(UNEVEN[:, :1] < np.quantile(UNEVEN[:, 0], 0.87))),
    "12% of the density ratio was negative": answers(repair=np.full(400, 0.12)),
}


@pytest.mark.parametrize(("words", "held"), BAD.items(), ids=BAD.keys())
def test_each_warning_comes_alone(words, held):
    figures = summary(held)
    assert len(figures.warnings) == 1
    assert words in figures.warnings[0]
    assert f"! {figures.warnings[0]}" in str(figures)
    assert "no warnings" not in str(figures)


def test_warnings_add_up():
    held = answers(30, pit=np.full((30, 1), 0.9), covered=np.zeros((30, 1), bool), repair=np.full(30, 0.5))
    assert len(summary(held).warnings) == 4  # too few rows for a slab


def test_coverage_is_judged_by_its_standard_error():
    # three standard errors of 100 rows are 0.09, of 10,000 rows 0.009
    def covering(m, share):
        return summary(answers(m, covered=np.random.default_rng(0).permutation(np.arange(m) < share * m)[:, None]))

    assert not any("conformalize" in warning for warning in covering(100, 0.82).warnings)
    assert any("conformalize" in warning for warning in covering(100, 0.80).warnings)
    assert any("conformalize" in warning for warning in covering(10_000, 0.88).warnings)
    assert not any("conformalize" in warning for warning in covering(10_000, 0.895).warnings)


def test_components_do_not_have_to_be_covered_together():
    # three independent components of coverage 0.9 are covered together in 73 % of the rows; that is no fault
    figures = summary(answers(4000, q=3))
    assert figures.coverage_90 == pytest.approx(0.9)
    assert figures.worst_slab_coverage_90 == pytest.approx(0.9, abs=0.04)
    assert figures.warnings == []


def test_one_bad_component_is_enough():
    # smallest p-value times the number of components
    good = answers(q=2)
    bad = replace(good, pit=good.pit * [1.0, 0.7])
    assert summary(good).warnings == []
    assert summary(bad).pit_pvalue < 1e-6
    three = replace(good, pit=np.column_stack([good.pit, 0.95 * good.pit[:, 0]]))
    alone = replace(good, pit=0.95 * good.pit[:, :1])
    assert summary(three).pit_pvalue == pytest.approx(min(1, 3 * summary(alone).pit_pvalue))


def test_text():
    lines = str(summary(answers(), spectrum=np.linspace(0.9, 0.1, 12))).splitlines()
    assert lines[0].split()[1:3] == ["0.900,", "0.827,"]
    assert lines[0].endswith(", …")
    assert "none (independent)" in str(summary(answers(), spectrum=()))
    for name in (
        "orthonormality gap",
        "centring gap",
        "held-out loss",
        "CDF repair",
        "PIT",
        "coverage",
        "held-out rows",
    ):
        assert any(line.startswith(name) or name in line for line in lines)


def test_without_held_out_rows_figures_are_unknown():
    figures = summary(None, gaps=(float("nan"), float("nan")), loss=float("nan"))
    assert isinstance(figures, Diagnostics)
    assert figures.n_held_out == 0
    assert all(isnan(value) for value in (figures.repair, figures.pit_pvalue, figures.coverage_90))
    assert np.isnan(figures.pit_histogram).all()
    assert figures.calibration == {}
    assert figures.warnings == ["No held-out rows: nothing here shows whether the model is right."]


# ---------------------------------------------------------------- of fitted models


@pytest.fixture(scope="module")
def line():
    return regressor(validation_fraction=0.2).fit(*LinearGaussian().sample(1500, random_state=0))


def test_a_good_fit_has_no_warnings(line):
    # 300 held-out rows: three standard errors of a coverage of 0.9 are 3·√(0.09/300) = 0.052
    figures = line.diagnostics()
    assert figures.n_held_out == 300
    assert figures.warnings == []
    assert figures.pit_pvalue > 0.01
    assert figures.coverage_90 == pytest.approx(0.9, abs=0.052)
    assert figures.repair < 0.1
    assert figures.calibration[0.5] == pytest.approx(0.5, abs=3 * 0.5 / sqrt(300))
    assert figures.pit_histogram.sum() == pytest.approx(1)
    np.testing.assert_array_equal(figures.spectrum, line.singular_values_)


def test_raw_coordinates_have_gaps_and_a_spectrum():
    # a good loss is −Σσ² < 0, and gaps of 100 held-out rows are not far above their noise floor 2√(d/m) + d/m
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 1))
    figures = regressor(coordinates="raw", rank=2).fit(X, X[:, 0] + rng.normal(size=1000)).diagnostics()
    rank = len(figures.spectrum)
    assert rank == 2
    assert -figures.spectrum @ figures.spectrum * 2 < figures.held_out_loss < 0
    assert 0 < figures.centering_gap < 4 * sqrt(rank / 100)
    assert 0 < figures.orthonormality_gap < 4 * (2 * sqrt(rank / 100) + rank / 100)
    assert 0 <= figures.repair < 0.2


def test_rows_of_the_callers():
    X, y = LinearGaussian().sample(300, random_state=0)
    model = regressor(max_steps=20).fit(X, y, validation_data=LinearGaussian().sample(70, random_state=1))
    assert model.diagnostics().n_held_out == 70


def test_a_wrong_model_is_found_out():
    # held-out rows that lie 1.5 standard deviations higher
    X, y = LinearGaussian().sample(400, random_state=0)
    shifted_x, shifted_y = LinearGaussian().sample(200, random_state=1)
    figures = regressor(max_steps=100).fit(X, y, validation_data=(shifted_x, shifted_y + 0.15)).diagnostics()
    assert any("not uniform" in warning for warning in figures.warnings)
    assert any("conformalize" in warning for warning in figures.warnings)


def test_vector_targets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    figures = regressor(max_steps=100).fit(X, X + rng.normal(size=(1000, 2))).diagnostics()
    assert figures.n_held_out == 100
    assert figures.coverage_90 == pytest.approx(0.9, abs=3 * sqrt(0.09 / 100))
    assert figures.pit_pvalue > 0.01


@pytest.mark.filterwarnings("ignore:`y` is constant", "ignore:`X` has only")
@pytest.mark.parametrize(
    ("X", "y"),
    [(np.arange(30.0)[:, None], np.full(30, 3.0)), (np.arange(10.0)[:, None], np.arange(10.0))],
    ids=["constant", "few"],
)
def test_models_without_training_have_unknown_figures(X, y):
    figures = regressor().fit(X, y).diagnostics()
    assert figures.n_held_out == 0
    assert len(figures.spectrum) == 0
    assert isnan(figures.coverage_90)
    assert isnan(figures.orthonormality_gap)
    assert isnan(figures.held_out_loss)
    assert "none (independent)" in str(figures)


def test_no_held_out_rows():
    figures = regressor(validation_fraction=0, max_steps=20).fit(*LinearGaussian().sample(100, 0)).diagnostics()
    assert figures.n_held_out == 0
    assert isnan(figures.pit_pvalue)
    assert len(figures.spectrum) > 0


def test_unfitted_models_say_so():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        regressor().diagnostics()


VERDICTS = {
    "yes, for inputs like those of the training rows": (answers(), {}),
    "with care": (answers(30), {}),
    "no, not its probabilities": (BAD["not uniform"], {}),
    "unknown": (None, {}),
    "not about X": (answers(), {"learned": False}),
}


@pytest.mark.parametrize(("words", "case"), VERDICTS.items(), ids=VERDICTS.keys())
def test_verdict_in_words(words, case):
    held, options = case
    figures = summarize(held, np.zeros(0), (0.1, 0.1), -0.5, **options)
    assert figures.verdict.startswith(words)
    assert figures.verdict in str(figures)


def test_sizes_are_judged():
    few = summarize(answers(), np.zeros(1), (0.1, 0.1), -0.5, n_rows=99, n_inputs=10)
    assert few.warnings == ["Only 99 rows for 10 inputs: what depends on several of them may be missed."]
    assert summarize(answers(), np.zeros(1), (0.1, 0.1), -0.5, n_rows=100, n_inputs=10).warnings == []
    marginal = regressor().fit(np.arange(10.0)[:, None], np.arange(10.0)).diagnostics()
    assert (marginal.n_rows, marginal.n_inputs, marginal.learned) == (10, 1, False)
    assert "those of the marginal distribution" in marginal.warnings[0]
