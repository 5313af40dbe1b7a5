"""`NCPClassifier`, and `NCPRegressor` on targets that take few values."""

from math import sqrt

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from ncprob import Box, NCPClassifier, NCPRegressor
from ncprob.datasets import CircleDiscrete

FAST = {
    "rank": 4,
    "hidden_sizes": (16,),
    "max_steps": 40,
    "batch_size": 256,
    "learning_rate": 1e-2,
    "random_state": 0,
    "device": "cpu",
    "progress": False,
}
ACCURATE = {**FAST, "rank": "auto", "hidden_sizes": (32, 32), "max_steps": 200, "learning_rate": 5e-3}


def fast(**options):
    return NCPClassifier(**{**FAST, **options})


def table(n=200, n_classes=3, seed=0):
    """X (n, 2) and class numbers that rise with x₁."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    cuts = stats.norm.ppf(np.arange(1, n_classes) / n_classes)
    return X, np.searchsorted(cuts, X[:, 0] + 0.5 * rng.normal(size=n))


X, NUMBERS = table()
NEW = X[:7]
LABELS = {
    "int": np.array([-3, 0, 7])[NUMBERS],
    "str": np.array(["ash", "beech", "oak"])[NUMBERS],
    "object": np.array(["ash", "beech", "oak"], dtype=object)[NUMBERS],
    "float": np.array([0.0, 1.0, 2.0])[NUMBERS],
}


# ---------------------------------------------------------------- labels and shapes


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind(kind):
    y = LABELS[kind]
    model = fast().fit(X, y)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    proba = model.predict_proba(NEW)
    assert proba.shape == (7, 3)
    np.testing.assert_array_equal(model.predict(NEW), model.classes_[proba.argmax(axis=1)])
    assert model.predict(NEW).dtype == y.dtype
    np.testing.assert_array_equal(proba, fast().fit(X, NUMBERS).predict_proba(NEW))  # names do not matter


@pytest.mark.parametrize(
    "y", [NUMBERS > 0, NUMBERS > 1, np.where(NUMBERS > 0, "yes", "no")], ids=["bool", "rare", "str"]
)
def test_two_classes(y):
    model = fast().fit(X, y)
    assert model.predict_proba(NEW).shape == (7, 2)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.score(X, y) == accuracy_score(y, model.predict(X)) > 0.7


@pytest.mark.parametrize(
    "container",
    [list, pd.Series, lambda y: pd.Series(y).astype("category"), lambda y: pd.Series(y).astype("string"), pl.Series],
    ids=["list", "series", "category", "string", "polars"],
)
def test_containers_of_labels(container):
    expected = fast().fit(X, LABELS["str"])
    model = fast().fit(X, container(LABELS["str"]))
    assert model.classes_.tolist() == ["ash", "beech", "oak"]
    np.testing.assert_array_equal(model.predict_proba(NEW), expected.predict_proba(NEW))


def test_data_frames():
    frame = pd.DataFrame(X, columns=["a", "b"], index=np.arange(200) * 3)
    model = fast().fit(frame, pd.Series(LABELS["str"], index=frame.index, name="tree"))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.predict_proba(frame.iloc[:7]), fast().fit(X, LABELS["str"]).predict_proba(NEW))
    assert model.predict(frame.iloc[:7]).shape == (7,)


def test_probabilities_are_probabilities():
    model = fast().fit(X, LABELS["str"])
    far = np.concatenate([X, 100 * X])  # also where nothing was seen
    proba = model.predict_proba(far)
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(model.predict_log_proba(far), np.log(proba))


@pytest.mark.filterwarnings("error")
def test_log_of_probability_zero_is_minus_infinity_without_a_warning():
    simulator = CircleDiscrete(dimension=2)
    x, y = simulator.sample(400, random_state=0)
    model = fast(max_steps=100).fit(x, y)
    proba, logs = model.predict_proba(x), model.predict_log_proba(x)
    assert (proba == 0).any()  # most classes are impossible in most quarters; the ratio is cut off at zero
    np.testing.assert_array_equal(np.isneginf(logs), proba == 0)


def test_columns_follow_classes():
    # class 9 sits at large x₁ and class -5 at small
    model = fast(max_steps=100).fit(X, np.array([-5, 3, 9])[NUMBERS])
    low, high = model.predict_proba([[-2.5, 0.0], [2.5, 0.0]])
    assert low.argmax() == 0
    assert high.argmax() == 2
    assert model.predict([[-2.5, 0.0], [2.5, 0.0]]).tolist() == [-5, 9]


def test_the_distribution_is_over_class_numbers():
    model = fast().fit(X, LABELS["str"])
    law = model.predict_distribution(NEW)
    assert law.atoms.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(law.weights(), model.predict_proba(NEW))
    np.testing.assert_allclose(law.prob((0.5, 2.0)), model.predict_proba(NEW)[:, 1:].sum(axis=1), atol=1e-12)


# ---------------------------------------------------------------- calibration


CHANCES = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.05, 0.15, 0.8]])
STATES = np.arange(4.0)[:, None]


@pytest.fixture(scope="module")
def discrete():
    """X in {0, 1, 2, 3}, Y in {a, b, c} with known chances, 2,000 rows."""
    rng = np.random.default_rng(0)
    state = rng.integers(0, 4, 2000)
    number = (rng.random((2000, 1)) > CHANCES[state].cumsum(axis=1)).sum(axis=1)
    return NCPClassifier(**ACCURATE).fit(STATES[state], np.array(list("abc"))[number]), state, number


def test_chances_of_a_table(discrete):
    # 500 rows per state: a frequency has a standard error of at most 0.5/√500 = 0.022
    model, state, number = discrete
    proba = model.predict_proba(STATES)
    np.testing.assert_allclose(proba, CHANCES, atol=4 * 0.022)
    frequencies = np.stack([np.bincount(number[state == i], minlength=3) / (state == i).sum() for i in range(4)])
    np.testing.assert_allclose(proba, frequencies, atol=2 * 0.022)  # what training leaves out
    np.testing.assert_array_equal(model.predict(STATES), ["a", "b", "c", "c"])


def test_frequencies_given_a_set(discrete):
    # 1,000 rows in the set: 0.5/√1000 = 0.016
    model, state, number = discrete
    law = model.given(lambda x: x[:, 0] >= 2)
    assert len(law) == 1
    assert law.atoms.tolist() == [0, 1, 2]
    frequencies = np.bincount(number[state >= 2], minlength=3) / (state >= 2).sum()
    np.testing.assert_allclose(law.weights()[0], frequencies, atol=2 * 0.016)
    np.testing.assert_allclose(law.weights()[0], CHANCES[2:].mean(axis=0), atol=4 * 0.016)
    average = model.predict_proba(STATES[state[state >= 2]]).mean(axis=0)
    np.testing.assert_allclose(law.weights()[0], average, atol=0.022)  # 512 rows represent the set: 0.5/√512
    np.testing.assert_array_equal(law.weights(), model.given(Box(1.5, 3)).weights())


def test_inputs_given_a_class(discrete):
    # Bayes' rule: P(X = i | Y = c) = P(c | i) / Σ P(c | j); about 700 rows have class c
    model, _, _ = discrete
    cdf = model.given_target("c").cdf([0.0, 1.0, 2.0, 3.0])[0]
    posterior = CHANCES[:, 2] / CHANCES[:, 2].sum()
    np.testing.assert_allclose(cdf, posterior.cumsum(), atol=4 * 0.5 / sqrt(700))


def test_good_classifiers_have_no_warnings(discrete):
    diagnostics = discrete[0].diagnostics()
    assert diagnostics.warnings == []
    assert diagnostics.pit_pvalue > 0.01  # the PIT of classes is made uniform by randomisation
    assert diagnostics.coverage_90 >= 0.9 - 3 * sqrt(0.09 / 200)


def test_logistic_probabilities():
    # 2,000 rows, about a tenth near each x: standard error 0.5/√200 = 0.035, of which the mean absolute value is 0.8
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2))
    truth = 1 / (1 + np.exp(x[:, 1] - 2 * x[:, 0]))
    proba = NCPClassifier(**ACCURATE).fit(x, rng.random(2000) < truth).predict_proba(x)[:, 1]
    assert np.abs(proba - truth).mean() < 0.035
    # among rows that are told about p, a share of about p is true: 200 rows each
    for part in np.array_split(np.argsort(proba), 10):
        assert proba[part].mean() == pytest.approx(truth[part].mean(), abs=0.1)  # 3·0.035


def test_quarters_of_a_circle():
    # chances jump at the borders of quarters, where networks are smooth; inside them 500 rows each have a standard
    # error of 0.022 at chances of ½, and the operator has rank 3
    simulator = CircleDiscrete(dimension=2)
    x, y = simulator.sample(2000, random_state=0)
    model = NCPClassifier(**{**ACCURATE, "max_steps": 400}).fit(x, y.astype(int))
    assert model.classes_.tolist() == [1, 2, 3, 4, 5]
    middles = simulator.points(np.pi / 4 + np.pi / 2 * np.arange(4))
    np.testing.assert_allclose(model.predict_proba(middles), simulator.chances, atol=4 * 0.022)


def test_sample_weights_are_frequencies():
    # a class with weight two is as frequent as if its rows were there twice; half of 1,000 rows is class 1
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 1))
    y = rng.random(1000) < 0.5
    model = fast(rank="auto").fit(x, y, sample_weight=np.where(y, 3.0, 1.0))
    share = 3 * y.sum() / (3 * y.sum() + (~y).sum())
    assert model.given(lambda x: np.ones(len(x), bool)).weights()[0, 1] == pytest.approx(share, abs=0.02)
    assert model.predict_proba(x)[:, 1].mean() == pytest.approx(0.75, abs=4 * 0.5 / sqrt(1000))


def test_a_class_without_weight_is_never_predicted():
    model = fast().fit(X, LABELS["str"], sample_weight=np.where(NUMBERS == 1, 0.0, 1.0))
    assert model.classes_.tolist() == ["ash", "beech", "oak"]
    assert (model.predict_proba(X)[:, 1] == 0).all()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-12)


# ---------------------------------------------------------------- small and odd data


def test_one_class_warns_and_is_predicted():
    with pytest.warns(UserWarning, match="`y` is constant"):
        model = fast().fit(X, ["oak"] * 200)
    assert model.classes_.tolist() == ["oak"]
    np.testing.assert_array_equal(model.predict_proba(NEW), np.ones((7, 1)))
    assert (model.predict(NEW) == "oak").all()
    assert model.given(Box([0, 0], [1, 1])).mean() == 0


def test_few_rows_give_the_frequencies():
    with pytest.warns(UserWarning, match="`X` has only 10 rows"):
        model = fast().fit(X[:10], list("aabbbbbbcc"))
    np.testing.assert_allclose(model.predict_proba(NEW), np.tile([0.2, 0.6, 0.2], (7, 1)), atol=1e-12)


def test_a_class_of_one_row():
    y = np.where(np.arange(200) == 5, "rare", LABELS["str"])
    model = fast().fit(X, y)
    assert model.predict_proba(NEW).shape == (7, 4)


def test_held_out_rows_of_the_callers():
    held_x, held_numbers = table(50, seed=1)
    names = np.array(["ash", "beech", "oak"])
    model = fast().fit(X, LABELS["str"], validation_data=(held_x, names[held_numbers]))
    assert model.diagnostics().n_held_out == 50
    without = fast().fit(
        X, LABELS["str"], validation_data=(held_x[held_numbers > 0], names[held_numbers[held_numbers > 0]])
    )
    assert without.predict_proba(NEW).shape == (7, 3)


# ---------------------------------------------------------------- scikit-learn


def test_same_seed_same_answers():
    first, second, other = (fast(random_state=seed).fit(X, NUMBERS).predict_proba(NEW) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_clone_and_parameters():
    model = fast(gamma=0.5, max_steps=7)
    copy = clone(model.fit(X, NUMBERS))
    assert copy.get_params() == model.get_params()
    assert copy.get_params()["gamma"] == 0.5
    with pytest.raises(NotFittedError, match="not fitted yet"):
        copy.predict_proba(NEW)
    assert set(model.get_params()) == set(NCPRegressor().get_params())


EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "minibatches are drawn with probability proportional to the "
    "weights: equal to repeated rows in expectation, not to the bit",
    "check_methods_subset_invariance": "networks compute in float32, whose rounding depends on the size of the batch: "
    "answers agree to 1e-6, the check asks for 1e-7; on some machines they do",
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [NCPClassifier(**{**FAST, "max_steps": 60, "learning_rate": 2e-2})],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ---------------------------------------------------------------- bad input


def with_missing(value):
    labels = LABELS["object"].copy()
    labels[3] = value
    return labels


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (with_missing(None), "`y` must not contain missing labels"),
        (with_missing(np.nan), "`y` must not contain missing labels"),
        (with_missing(pd.NA), "`y` must not contain missing labels"),
        (with_missing(np.nan).tolist(), "`y` must not contain missing labels"),
        (pd.Series(with_missing(None)), "`y` must not contain missing labels"),
        (pd.Series(with_missing(None)).astype("string"), "`y` must not contain missing labels"),
        (pd.Series(with_missing(None)).astype("category"), "`y` must not contain missing labels"),
        (pl.Series(with_missing(None).tolist()), "`y` must not contain missing labels"),
        (np.where(NUMBERS == 1, np.nan, NUMBERS), "`y` must not contain NaN or infinity"),
        (np.where(NUMBERS == 1, np.inf, NUMBERS), "`y` must not contain NaN or infinity"),
        (X[:, 0], "Unknown label type: continuous"),
        (LABELS["str"][:50], r"`X` and `y` must have as many rows"),
        (
            np.column_stack([NUMBERS, NUMBERS]),
            r"`y` must hold one label per row, shape \(n,\); got \(200, 2\). Fit one",
        ),
        (None, "`y` must be given"),
    ],
)
def test_bad_labels_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        fast().fit(X, y)


@pytest.mark.parametrize(
    ("options", "held", "error", "message"),
    [
        (
            {"coordinates": "residual"},
            None,
            ValueError,
            "`coordinates` must be 'auto' or 'raw' for classes; got 'resid",
        ),
        ({}, (X, np.full(200, "elm")), ValueError, r"`validation_data` must hold classes seen in `y`; got \['elm'\]"),
        ({}, (X[:3], LABELS["str"][:3]), ValueError, "`validation_data` must hold at least 4 rows; got 3"),
        ({}, (X, with_missing(None)), ValueError, "`y` must not contain missing labels"),
        ({}, X, TypeError, r"`validation_data` must be a pair \(X, y\)"),
        ({"max_steps": 0}, None, ValueError, "`max_steps` must be at least 1"),
    ],
)
def test_bad_settings_are_named(options, held, error, message):
    with pytest.raises(error, match=message):
        fast(**options).fit(X, LABELS["str"], validation_data=held)


def test_a_failed_fit_leaves_the_fitted_model_as_it_was():
    model = fast().fit(X, LABELS["str"])
    before = model.predict_proba(NEW)
    for bad in ({"sample_weight": -np.ones(200)}, {"validation_data": (X, np.full(200, "elm"))}):
        with pytest.raises(ValueError, match="must"):
            model.fit(X, NUMBERS > 0, **bad)
    np.testing.assert_array_equal(model.predict_proba(NEW), before)
    assert model.classes_.tolist() == ["ash", "beech", "oak"]


# ---------------------------------------------------------------- numbers that take few values


def wine(n, seed=0):
    """Scores 3, …, 8: a rounded linear score with normal noise, and the exact chances given X."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    score = 5.6 + x[:, 0] - 0.5 * x[:, 1]
    edges = np.concatenate([[-np.inf], np.arange(3.5, 8), [np.inf]])
    chances = np.diff(stats.norm.cdf((edges - score[:, None]) / 0.7))
    return x, np.clip(np.round(score + 0.7 * rng.normal(size=n)), 3, 8), chances


@pytest.fixture(scope="module", params=["raw", "residual"])
def scores(request):
    x, y, chances = wine(2000)
    return NCPRegressor(**ACCURATE, coordinates=request.param).fit(x, y), x, y, chances


def test_steps_are_at_the_levels_only(scores):
    model, x, y, _ = scores
    law = model.predict_distribution(x[:20])
    assert np.isin(law.atoms, y).all()
    between = np.arange(2, 9)[:, None] + np.array([0, 1e-9, 0.5, 1 - 1e-9])
    cdf = law.cdf(between.ravel()).reshape(20, 7, 4)
    np.testing.assert_array_equal(cdf, np.broadcast_to(cdf[:, :, :1], cdf.shape))
    assert np.isin(law.quantile([0.05, 0.3, 0.5, 0.9]), np.arange(3, 9)).all()
    assert np.isin(law.sample(50, random_state=0), np.arange(3, 9)).all()


def test_chances_of_the_levels(scores):
    # a tenth of the rows near each x: 0.5/√200 = 0.035; the mean absolute error is smaller, the largest of 200·6 larger
    model, x, _, chances = scores
    law = model.predict_distribution(x[:200])
    proba = np.stack([law.prob((level - 0.5, level + 0.5)) for level in range(3, 9)], axis=1)
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-9)
    assert np.abs(proba - chances[:200]).mean() < 0.035
    assert np.quantile(np.abs(proba - chances[:200]), 0.99) < 4 * 0.035


def test_levels_asked_as_classes_or_as_numbers():
    # the same chances by both estimators, each within its error
    x, y, chances = wine(2000)
    proba = NCPClassifier(**ACCURATE).fit(x, y.astype(int)).predict_proba(x[:200])
    assert np.abs(proba - chances[:200, np.isin(np.arange(3, 9), y)]).mean() < 0.035


def test_regions_of_few_levels_are_points(scores):
    model, x, _, _ = scores
    law = model.predict_distribution(x[:5])
    for i, pieces in enumerate(law.highest_density_region(0.8)):
        assert np.isin(pieces, np.arange(3, 9)).all()
        assert (pieces[1:, 0] > pieces[:-1, 1]).all()
        inside = law.expectation(lambda y, p=pieces: ((y >= p[:, 0]) & (y <= p[:, 1])).any(axis=1))
        assert inside[i] >= 0.8 - 1e-8


def test_steps_do_not_look_miscalibrated(scores):
    assert scores[0].diagnostics().pit_pvalue > 0.01
