"""Conformal calibration against its definitions: ranks, nested sets, and laws whose answer is known."""

import math

import numpy as np
import pytest
import torch
from helpers import affine, generator, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob.calibration import CELLS, KINDS, METHODS, ConformalCalibrator, _narrowest, _uncrossed, conformal_quantile
from ncprob.distribution import ConditionalDistribution
from ncprob.lattices import Lattice, Levels
from ncprob.support import Support

fixed = settings(max_examples=40, deadline=None, derandomize=True)
COVERAGES = [0.05, 0.3, 0.5, 0.8, 0.9, 0.95]
METHOD_AND_KIND = [(method, kind) for method in METHODS for kind in KINDS]


def gaussian_law(n, n_atoms=1000, sd=1.0):
    """n members, all N(0, sd²)."""
    levels = (torch.arange(n_atoms, dtype=torch.float64) + 0.5) / n_atoms
    return ConditionalDistribution(
        Support(sd * torch.special.ndtri(levels), torch.zeros(n_atoms, 1)), torch.zeros(n, 1)
    )


def tilted_law(n, seed, n_atoms=300, q=1, located=False):
    """Members that differ: weights tilted by one random feature, optionally moved and scaled."""
    atoms = normal(n_atoms, q, seed=seed)
    left = 0.8 * torch.rand(n, 1, generator=generator(seed + 1), dtype=torch.float64)
    features = torch.sin(2 * atoms[:, :1])
    moved = affine(normal(n, q, seed=seed + 2), normal(n, q, seed=seed + 3).exp()) if located else None
    return ConditionalDistribution(Support(atoms, features), left, transport=moved)


def law_on_levels(n, values=(0.0, 1.0, 5.0), **options):
    """The same, moved, with a few levels in place of a continuum."""
    law = tilted_law(n, located=True, **options)
    levels = Levels(torch.tensor(values, dtype=torch.float64), torch.linspace(-0.5, 0.5, len(values) - 1).double())
    return ConditionalDistribution(law.support, law.left, transport=law.transport, lattice=Lattice((levels,)))


def contains(interval, y):
    return (interval[..., 0] <= y) & (y <= interval[..., 1])


# ------------------------------------------------------------------ the conformal quantile


@fixed
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 99))
def test_conformal_quantile_is_the_order_statistic(scores, percent):
    n = len(scores)
    rank = math.ceil((n + 1) * percent / 100 - 1e-9)
    expected = sorted(scores)[rank - 1] if rank <= n else math.inf
    answer = conformal_quantile(torch.tensor(scores).double(), torch.tensor([percent / 100], dtype=torch.float64))
    assert answer.tolist() == [[expected]]


@fixed
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=20), st.floats(0.01, 0.99))
def test_an_integer_weight_is_a_repeated_row(rows, coverage):
    scores, weights = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    level = torch.tensor([coverage], dtype=torch.float64)
    repeated = scores.repeat_interleave(weights.long())
    if len(repeated):
        assert torch.equal(conformal_quantile(scores, level, weights), conformal_quantile(repeated, level))


def test_every_rank_of_a_new_score_is_covered_as_often_as_it_must_be():
    """Leave each of n + 1 distinct scores out in turn: at least c (n + 1) of them lie below their quantile."""
    scores = normal(25, seed=0)
    for coverage in (0.1, 0.5, 0.77, 0.9, 0.96):
        level = torch.tensor([coverage], dtype=torch.float64)
        held = [
            float(scores[i]) <= conformal_quantile(torch.cat([scores[:i], scores[i + 1 :]]), level).item()
            for i in range(25)
        ]
        assert coverage <= np.mean(held) <= coverage + 1 / 25 + 1e-12


# ------------------------------------------------------------------ coverage as an identity of ranks


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
@pytest.mark.parametrize("located", [False, True])
def test_leave_one_out_coverage_holds_exactly(method, kind, located):
    """Over all choices of the row left out, the share covered is at least c: the rank argument without chance."""
    n, coverages = 25, [0.3, 0.8, 0.9]
    law = tilted_law(n, seed=3, located=located)
    y = 1.5 * normal(n, seed=9) if not located else law.transport.anchor[:, 0] + 2 * normal(n, seed=9)  # a wrong model
    covered = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        answer = ConformalCalibrator(law[others], y[others], method=method).interval(law[i], coverages, kind)[0]
        covered.append(((answer[0] <= y[i]) & (y[i] <= answer[1])).tolist())
    share = np.mean(covered, axis=0)
    assert (share >= coverages).all()
    assert (share[1:] <= np.array(coverages[1:]) + 0.1).all()  # and not much more, where no ties blur it


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
@pytest.mark.parametrize("last", [5.0, 7.0])  # a level, and none
def test_leave_one_out_coverage_holds_on_levels_and_ends_are_levels(method, kind, last):
    law = law_on_levels(25, seed=3)
    y = torch.tensor([0.0, 1.0, 5.0, 0.0, last], dtype=torch.float64).repeat(5)
    covered = []
    for i in range(25):
        others = [j for j in range(25) if j != i]
        answer = ConformalCalibrator(law[others], y[others], method=method).interval(law[i], 0.8, kind)[0]
        covered.append(bool(contains(answer, y[i])))
        if method == "pit" and last == 5.0:
            assert set(answer.tolist()) <= {0.0, 1.0, 5.0}
    assert np.mean(covered) >= 0.8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_pit_interval_at_the_threshold_contains_the_scores_below(kind, seed):
    """Calibration rows whose score is at most the threshold lie in their own interval, ties and gaps included."""
    law = tilted_law(60, seed=seed, n_atoms=40)  # few atoms: many ties
    y = law.support.values[torch.randint(40, (60,), generator=generator(seed)), 0]
    y[::3] += 0.3  # also between atoms, and beyond the last
    calibrator = ConformalCalibrator(law, y)
    for coverage in COVERAGES:
        scores = calibrator._scores_of(kind)[:, 0]
        inside = contains(calibrator.interval(law, coverage, kind), y)
        assert bool(inside[scores <= calibrator.threshold(coverage, kind).item()].all())
        assert inside.double().mean() >= coverage


def test_central_score_of_a_continuous_law_is_twice_the_distance_of_the_pit_from_a_half():
    law = gaussian_law(200, n_atoms=4000)
    y = normal(200, seed=1).clamp(-3, 3)
    scores = ConformalCalibrator(law, y)._scores_of("central")[:, 0]
    np.testing.assert_allclose(scores, 2 * (law.pit(y) - 0.5).abs(), atol=1e-9)


def test_scores_of_atoms_count_their_own_mass():
    """Central: max(0, 1 − 2F(y), 2F(y−) − 1). Shortest: all intervals have the heaviest atom, the one of 1/500 too."""
    four = ConditionalDistribution(Support(torch.arange(4.0).double(), torch.zeros(4, 1)), torch.zeros(4, 1))
    assert ConformalCalibrator(four, range(4))._scores_of("central")[:, 0].tolist() == [0.5, 0.0, 0.0, 0.5]
    heavy = Support(torch.tensor([0.0, *[1.0] * 8, 2.0]).double(), torch.zeros(10, 1))
    law = ConditionalDistribution(heavy, torch.zeros(1, 1))
    assert ConformalCalibrator(law, [1.0])._scores_of("shortest").tolist() == [[1 / CELLS]]


def test_score_beyond_the_last_atom_is_the_distance_in_widths():
    law = ConditionalDistribution(Support(torch.tensor([0.0, 1.0, 4.0]), torch.zeros(3, 1)), torch.zeros(2, 1))
    for kind in KINDS:
        scores = ConformalCalibrator(law, [6.0, -1.0])._scores_of(kind)
        np.testing.assert_allclose(scores[:, 0], [1.5, 1.25])


# ------------------------------------------------------------------ nested, finite, unbounded


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("located", [False, True])
def test_pit_intervals_are_nested_in_coverage(kind, located):
    law = tilted_law(80, seed=5, located=located)
    y = 3 * normal(80, seed=6)  # far too wide for the model: levels above 1 occur
    answer = ConformalCalibrator(law, y).interval(law, [c / 100 for c in range(2, 100, 3)], kind)
    assert bool((answer[:, 0].diff(dim=1) <= 0).all())
    assert bool((answer[:, 1].diff(dim=1) >= 0).all())
    assert bool((answer[:, 0] <= answer[:, 1]).all())


def test_shortest_intervals_of_two_modes_are_nested():
    atoms = torch.cat([normal(400, seed=0) * 0.2, 5 + normal(500, seed=1) * 0.3])
    law = ConditionalDistribution(Support(atoms, torch.zeros(900, 1)), torch.zeros(300, 1))
    y = atoms[torch.randint(900, (300,), generator=generator(2))]
    answer = ConformalCalibrator(law, y).interval(law[:1], [0.1, 0.2, 0.4, 0.5, 0.6, 0.9], "shortest")[0]
    assert bool((answer[0].diff() <= 0).all())
    assert bool((answer[1].diff() >= 0).all())
    assert bool((answer[0] <= answer[1]).all())


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
def test_unbounded_exactly_when_too_few_rows(method, kind):
    for n, coverage, bounded in [(9, 0.9, True), (8, 0.9, False), (19, 0.95, True), (18, 0.95, False)]:
        law = gaussian_law(n)
        answer = ConformalCalibrator(law, 5 * normal(n, seed=n), method=method).interval(law[:2], coverage, kind)
        assert bool(torch.isfinite(answer).all()) == bounded
        if not bounded:
            assert answer.tolist() == [[-math.inf, math.inf]] * 2


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
def test_a_calibrated_law_changes_little_and_a_narrow_one_gets_its_width(method, kind):
    n = 4000
    y = normal(n, seed=4)
    for sd in (1.0, 0.5):  # the model says N(0, sd²), the truth is N(0, 1)
        law = gaussian_law(n, sd=sd)
        answer = ConformalCalibrator(law, y, method=method).interval(law[:1], [0.5, 0.9], kind)[0]
        np.testing.assert_allclose(answer, [[-0.674, -1.645], [0.674, 1.645]], atol=0.13)


def test_pit_thresholds_of_a_calibrated_law_are_the_coverages():
    law = tilted_law(3000, seed=8, n_atoms=2000)
    y = law.sample(1, random_state=0)[:, 0]
    for kind in KINDS:
        thresholds = ConformalCalibrator(law, y).threshold(COVERAGES[1:], kind)[0]
        np.testing.assert_allclose(thresholds, COVERAGES[1:], atol=0.04)


# ------------------------------------------------------------------ weights


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
def test_weights_equal_repeated_rows(method, kind):
    law, y = tilted_law(50, seed=1), normal(50, seed=2)
    counts = torch.randint(0, 4, (50,), generator=generator(3))
    repeated = torch.arange(50).repeat_interleave(counts)
    weighted = ConformalCalibrator(law, y, counts, method=method).interval(law, [0.5, 0.9], kind)
    plain = ConformalCalibrator(law[repeated], y[repeated], method=method).interval(law, [0.5, 0.9], kind)
    assert torch.equal(weighted, plain)


def test_weight_of_the_new_row_moves_its_own_interval_only():
    law, y = gaussian_law(99), normal(99, seed=2)
    calibrator = ConformalCalibrator(law, y, weights=torch.ones(99))
    plain = calibrator.interval(law[:3], 0.8)
    shifted = calibrator.interval(law[:3], 0.8, new_weights=[1.0, 15.0, 1000.0])
    assert torch.equal(shifted[0], plain[0])
    assert shifted[1, 1] > plain[1, 1]
    assert shifted[2].tolist() == [-math.inf, math.inf]


def test_weights_that_undo_a_covariate_shift_give_the_shifted_scores():
    """Two kinds of rows, narrow and wide; weighting the wide ones only is calibrating on them alone."""
    law = gaussian_law(400)
    wide = torch.arange(400) % 2 == 1
    y = normal(400, seed=7) * torch.where(wide, 3.0, 0.1)
    weighted = ConformalCalibrator(law, y, weights=wide.double()).interval(law[:1], 0.9, "central")
    alone = ConformalCalibrator(law[wide], y[wide]).interval(law[:1], 0.9, "central")
    assert torch.equal(weighted, alone)


# ------------------------------------------------------------------ shapes and borders


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("coverage", [0.8, [0.8], [0.3, 0.8]])
def test_shapes_are_those_of_the_law(method, kind, q, coverage):
    law = tilted_law(30, seed=0, q=q, located=True)
    y = normal(30, q, seed=1)
    calibrator = ConformalCalibrator(law, y[:, 0] if q == 1 else y, method=method)
    assert calibrator.interval(law[:7], coverage, kind).shape == law[:7].interval(coverage, kind).shape


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
def test_components_are_calibrated_one_by_one(method, kind):
    law = tilted_law(60, seed=2, q=2)
    y = normal(60, 2, seed=3)
    both = ConformalCalibrator(law, y, method=method).interval(law[:5], [0.5, 0.9], kind)
    for k in range(2):
        single = ConditionalDistribution(Support(law.support.values[:, k], law.support.features), law.left)
        alone = ConformalCalibrator(single, y[:, k], method=method).interval(single[:5], [0.5, 0.9], kind)
        np.testing.assert_allclose(both[:, k], alone, atol=1e-12)


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
def test_location_and_scale_carry_over(method, kind):
    """Moving every law and its y moves the calibrated interval."""
    law, y = tilted_law(50, seed=4), normal(50, seed=5)
    location, scale = normal(50, 1, seed=6), normal(50, 1, seed=7).exp()
    moved = ConditionalDistribution(law.support, law.left, transport=affine(location, scale))
    plain = ConformalCalibrator(law, y, method=method).interval(law, 0.8, kind)
    carried = ConformalCalibrator(moved, location[:, 0] + scale[:, 0] * y, method=method).interval(moved, 0.8, kind)
    np.testing.assert_allclose(carried, location + scale * plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("method", "kind"), METHOD_AND_KIND)
def test_point_mass(method, kind):
    law = ConditionalDistribution(Support(torch.tensor([2.0]), torch.zeros(1, 1)), torch.zeros(20, 1))
    exact = ConformalCalibrator(law, torch.full((20,), 2.0), method=method).interval(law[:1], 0.9, kind)
    assert exact.tolist() == [[2.0, 2.0]]
    wrong = ConformalCalibrator(law, torch.full((20,), 2.5), method=method).interval(law[:1], 0.9, kind)
    np.testing.assert_allclose(wrong, [[1.5, 2.5]])


def test_answers_go_through_export():
    law = tilted_law(30, seed=0)
    exported = ConditionalDistribution(law.support, law.left, export=lambda tensor: tensor.numpy())
    answer = ConformalCalibrator(exported, normal(30, seed=1).numpy()).interval(exported, 0.5)
    assert isinstance(answer, np.ndarray)


def test_an_empty_batch_gives_an_empty_answer():
    law = tilted_law(30, seed=0)
    for method, kind in METHOD_AND_KIND:
        assert ConformalCalibrator(law, normal(30, seed=1), method=method).interval(law[:0], 0.5, kind).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "pitt"}, "`method` must be one of 'pit', 'cqr'.*Did you mean 'pit'"),
        ({"y_cal": [0.0, 1.0]}, "`y` must hold one value per member"),
        ({"y_cal": [math.nan] * 5}, "`y` must not hold NaN"),
        ({"weights": [1.0]}, r"`weights` must have shape \(5,\)"),
        ({"weights": [0.0] * 5}, "`weights` must be finite and not negative"),
        ({"weights": [1.0, 1, 1, 1, -1]}, "`weights` must be finite and not negative"),
    ],
)
def test_bad_calibration_data(change, message):
    arguments = {"law": gaussian_law(5), "y_cal": torch.zeros(5)} | change
    with pytest.raises(ValueError, match=message):
        ConformalCalibrator(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coverage": 1.0}, "`coverage` must lie strictly between 0 and 1"),
        ({"kind": "shortes"}, "Did you mean 'shortest'"),
        ({"law": tilted_law(3, seed=0, q=2)}, "`law` must have 1 component, as the calibration rows; got 2"),
        ({"new_weights": [1.0, 2.0]}, r"`new_weights` must have shape \(5,\)"),
    ],
)
def test_bad_questions(change, message):
    calibrator = ConformalCalibrator(gaussian_law(5), torch.zeros(5))
    with pytest.raises(ValueError, match=message):
        calibrator.interval(**({"law": gaussian_law(5), "coverage": 0.5} | change))


def test_no_calibration_rows():
    with pytest.raises(ValueError, match="at least one calibration row"):
        ConformalCalibrator(gaussian_law(0), torch.zeros(0))


# ---------------------------------------------------------------- parts


def test_an_interval_that_shrank_past_a_point_is_its_middle():
    interval = torch.tensor([[3.0, 1.0], [1.0, 3.0], [2.0, 2.0]])
    assert _uncrossed(interval).tolist() == [[2.0, 2.0], [1.0, 3.0], [2.0, 2.0]]


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_the_narrowest_width_is_a_thousandth_of_the_spread_in_any_unit(unit):
    """Atoms at levels of N(0, 1): IQR/1.349 is one, but for their steps."""
    found = _narrowest(gaussian_law(3, n_atoms=2000, sd=unit))
    torch.testing.assert_close(found, torch.full((3, 1), 1e-3 * unit).double(), rtol=2e-3, atol=0)


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_the_narrowest_width_on_levels_is_that_of_the_levels(unit):
    """However wide their scores are: the interquartile range of 0, 1, 2, 3, 4 is 2."""
    found = _narrowest(law_on_levels(3, values=[k * unit for k in range(5)], seed=0))
    torch.testing.assert_close(found, torch.full((3, 1), 1e-3 * unit * 2 / 1.3489795).double())
