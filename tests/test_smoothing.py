"""The smooth law of normal scores: closer to the truth than the atoms, and absent where it does not fit."""

import numpy as np
import pytest
import torch
from helpers import generator, normal
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ncprob.smoothing import MAX_CELLS, MIN_CELLS, smooth_atoms

fixed = settings(max_examples=40, deadline=None, derandomize=True)


def exact_scores(n):
    """Normal scores without sampling error."""
    return torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)


def distance(atoms, weights, law):
    """sup_t |F(t) − G(t)| of weighted atoms F and a continuous law G."""
    order = atoms.argsort()
    upto, exact = weights[order].cumsum(0).numpy(), law.cdf(atoms[order].numpy())
    return max(np.abs(upto - exact).max(), np.abs(upto - weights[order].numpy() - exact).max())


@pytest.mark.parametrize("n", [50, 500, 20_000])
def test_exact_normal_scores_give_back_the_normal_law(n):
    """All cosines of k ≤ 20 vanish on even points, so atoms are the normal quantiles of the middles of the cells."""
    atoms, weights = smooth_atoms(exact_scores(n))
    middles = weights.cumsum(0) - weights / 2
    torch.testing.assert_close(torch.special.ndtr(atoms), middles, atol=1e-9, rtol=0)
    assert float(weights @ atoms) == pytest.approx(0, abs=1e-9)
    assert float(weights @ atoms.square()) == pytest.approx(1, abs=0.01)


@fixed
@given(st.integers(20, 3000), st.floats(-0.5, 0.5), st.floats(0.7, 1.3), st.integers(0, 10**6))
def test_atoms_increase_and_weights_are_a_law(n, location, scale, seed):
    found = smooth_atoms(location + scale * normal(n, seed=seed))
    if found is None:
        return
    atoms, weights = found
    assert atoms.shape == weights.shape
    assert torch.isfinite(atoms).all()
    assert (atoms.diff() > 0).all()
    assert (weights > 0).all()
    assert weights.max() <= 1 / MIN_CELLS + 1e-12
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("law", "few", "many"),
    [
        (stats.norm(), 0.2, 0.2),
        (stats.norm(0.1, 1), 1.0, 0.9),
        (stats.norm(0, 0.9), 0.7, 0.7),
        (stats.skewnorm(2, loc=-0.8), 1.1, 0.9),
    ],
    ids=["normal", "moved", "narrow", "skew"],
)
@pytest.mark.parametrize("n", [500, 5000])
def test_the_smooth_law_is_closer_to_the_truth_than_the_atoms(law, few, many, n):
    """Kolmogorov distances over 20 samples; of the empirical law it is about 0.87/√n, ± 0.26/√20n.

    Of normal scores the coefficients are nothing but noise, and nearly all are zero. A law that is wrong by little more
    than the sampling error of few rows is the worst case: it may be left as it is.
    """
    smooth, empirical = [], []
    for seed in range(20):
        scores = torch.as_tensor(law.rvs(n, random_state=seed))
        found = smooth_atoms(scores)
        assert found is not None
        smooth.append(distance(*found, law))
        empirical.append(distance(scores, torch.full((n,), 1 / n, dtype=torch.float64), law))
    assert np.mean(empirical) == pytest.approx(0.87 / n**0.5, abs=3.3 * 0.26 / (20 * n) ** 0.5)
    assert np.mean(smooth) < (few if n == 500 else many) * np.mean(empirical)


@pytest.mark.parametrize("n", [300, 5000, 100_000])
def test_tails_reach_as_far_as_the_rows(n):
    """The outermost cell holds less than a quarter of a row, so its atom lies beyond the level 1 − 1/(4n)."""
    atoms, weights = smooth_atoms(exact_scores(n))
    assert max(weights[0], weights[-1]) <= max(1 / (4 * n), 1 / MAX_CELLS)
    if 4 * n > MIN_CELLS:
        assert atoms[-1] > stats.norm.ppf(1 - 1 / (4 * n))
        assert atoms[0] < stats.norm.ppf(1 / (4 * n))


@pytest.mark.parametrize(("n", "cells"), [(100, MIN_CELLS), (1024, 1024), (10_000, 3200), (10**6, MAX_CELLS)])
def test_steps_are_small_beside_the_sampling_error(n, cells):
    _, weights = smooth_atoms(exact_scores(n))
    assert float(weights.max()) == pytest.approx(1 / cells)


@pytest.mark.parametrize("n", [500, 5000])
def test_normal_scores_mostly_stay_normal(n):
    """Of 20 coefficients that are noise one is beyond √(2 ln 20) in 25 % of the samples: 50 ± 6 of 200."""
    middles = exact_scores(n)
    expected = smooth_atoms(middles)[0]
    changed = 0
    for seed in range(200):
        found = smooth_atoms(normal(n, seed=seed))
        changed += found is None or not torch.allclose(found[0], expected, atol=1e-6)
    assert changed < 70


def modes(n, width):
    return torch.cat([normal(n // 2, seed=0) * width - 1, normal(n // 2, seed=1) * width + 1])


@pytest.mark.parametrize(
    "scores",
    [
        torch.zeros(500),
        torch.cat([torch.zeros(200, dtype=torch.float64), normal(800, seed=2)]),
        modes(500, 0.02),
        normal(1000, seed=3).round(),
        torch.full((100,), 50.0),
    ],
    ids=["constant", "a fifth at zero", "two narrow modes", "integers", "constant far out"],
)
def test_no_smooth_law_for_point_masses_and_narrow_modes(scores):
    assert smooth_atoms(scores) is None


def test_wide_modes_are_fitted():
    """The test is about fit, not about being normal: a series of 20 cosines can follow two wide modes."""
    scores = modes(2000, 0.5)
    atoms, weights = smooth_atoms(scores)
    inside = float(weights[(atoms > -0.2) & (atoms < 0.2)].sum())
    assert inside == pytest.approx(float(((scores > -0.2) & (scores < 0.2)).double().mean()), abs=0.03)
    assert inside < 0.12  # a normal law has 0.16


def test_equal_weights_are_no_weights():
    scores = 0.2 + normal(400, seed=4)
    for found, expected in zip(smooth_atoms(scores, torch.full((400,), 3.0)), smooth_atoms(scores), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_rows_of_weight_zero_are_absent_and_order_does_not_matter():
    scores, weights = 0.2 + normal(400, seed=5), torch.rand(400, generator=generator(5), dtype=torch.float64)
    weights[::3] = 0
    scores[::6] = 1e6
    kept = weights > 0
    shuffled = torch.randperm(400, generator=generator(6))
    expected = smooth_atoms(scores[kept], weights[kept])
    for given_scores, given_weights in ((scores, weights), (scores[shuffled], 7 * weights[shuffled])):
        for found, wanted in zip(smooth_atoms(given_scores, given_weights), expected, strict=True):
            torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0)


def test_whole_weights_act_like_repeated_rows():
    """Coefficients are the same; repeated rows claim to be more rows, so they are shrunk less.

    A coefficient shrunk with a noise of at most v or with less differs by at most √(2 ln 20 · v), where the larger
    noise takes it to zero; v ≤ 2/(effective rows), and it counts by √2/(kπ) in F.
    """
    scores = 0.25 + 0.9 * normal(3000, seed=7)
    weights = 1 + (torch.arange(3000) % 3).double()
    weights[scores < 0] *= 2  # the weighted law is far from the plain one
    repeated = scores.repeat_interleave(weights.long())
    by_weight, by_row = smooth_atoms(scores, weights), smooth_atoms(repeated)
    plain = smooth_atoms(scores)
    grid = torch.linspace(-3, 3, 121, dtype=torch.float64)

    def cdf(law):
        return (law[1][:, None] * (law[0][:, None] <= grid)).sum(dim=0)

    effective = float(weights.sum() ** 2 / weights.square().sum())
    chance = 2**0.5 / np.pi * (2 * np.log(20) * 2 / effective) ** 0.5
    assert (cdf(by_weight) - cdf(by_row)).abs().max() < 2 * chance
    assert (cdf(by_weight) - cdf(plain)).abs().max() > 4 * chance


def test_few_heavy_rows_count_as_few():
    """A hundred of 10,000 rows carry all the weight: as much noise is shrunk as of a hundred rows."""
    scores, weights = normal(10_000, seed=8), torch.zeros(10_000, dtype=torch.float64)
    weights[:100] = 1.0
    alone = smooth_atoms(scores[:100])
    found = smooth_atoms(scores, weights)
    torch.testing.assert_close(found[0], alone[0], atol=1e-9, rtol=0)
    assert distance(*found, stats.norm()) < 0.1
