"""Every metric against its definition by brute force, or against a closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ncprob import metrics

GRID = np.linspace(-12, 12, 2001)
UNEVEN_GRID = np.sort(np.concatenate([GRID, np.linspace(-1, 2, 700) + 1e-4]))


def normals(*parameters, function="pdf", grid=GRID):
    return np.stack([getattr(stats.norm(mean, scale), function)(grid) for mean, scale in parameters])


def crps_by_definition(y, atoms, weights):
    """E|A − y| − ½ E|A − A′| by a double sum."""
    mass = weights / weights.sum()
    return mass @ np.abs(atoms - y) - 0.5 * mass @ np.abs(atoms[:, None] - atoms) @ mass


def crps_of_a_normal(y, mean, scale):
    z = (y - mean) / scale
    return scale * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))


def test_ks_distance_of_shifted_normals():
    # sup |Φ(t) − Φ(t − d)| = 2Φ(d/2) − 1, at t = d/2
    cdf, other = normals((0, 1), (0, 1), function="cdf"), normals((1, 1), (0.5, 1), function="cdf")
    expected = 2 * stats.norm.cdf([0.5, 0.25]) - 1
    np.testing.assert_allclose(metrics.ks_distance(cdf, other, average=False), expected, atol=1e-5)
    assert metrics.ks_distance(cdf, other) == pytest.approx(expected.mean(), abs=1e-5)
    assert metrics.ks_distance(cdf, other, sample_weight=[3, 1]) == pytest.approx(expected @ [0.75, 0.25], abs=1e-5)
    assert metrics.ks_distance(cdf[0], other[0]) == pytest.approx(expected[0], abs=1e-5)


def test_ks_distance_paper_is_the_plain_one_for_valid_distribution_functions():
    cdf, other = normals((0, 1), (0, 2), function="cdf"), normals((1, 1), (0, 1), function="cdf")
    assert metrics.ks_distance_paper(cdf, other) == pytest.approx(metrics.ks_distance(cdf, other), abs=1e-8)


def test_ks_distance_paper_repairs_both_functions():
    # isotonic regression pools 0.6 and 0.4 into 0.5, then everything is divided by 0.8
    wiggly, straight = [0.0, 0.6, 0.4, 0.8], [0.0, 0.25, 0.25, 0.5]
    assert metrics.ks_distance_paper(wiggly, straight) == pytest.approx(0.5 / 0.8 - 0.25 / 0.5)
    assert metrics.ks_distance_paper(straight, wiggly) == pytest.approx(0.5 / 0.8 - 0.25 / 0.5)


def test_ks_distance_paper_of_a_law_outside_the_grid():
    assert metrics.ks_distance_paper([0.0, 0.0, 0.0], [0.0, 0.5, 1.0]) == 1.0


def test_pinball_loss_by_definition():
    y, quantiles, levels = np.array([0.0, 1.0, 2.0]), np.array([[-1.0, 3], [0.5, 1], [3, 4]]), [0.1, 0.8]
    expected = [
        np.mean([a * (v - q) if v >= q else (1 - a) * (q - v) for a, q in zip(levels, row, strict=True)])
        for v, row in zip(y, quantiles, strict=True)
    ]
    np.testing.assert_allclose(metrics.pinball_loss(y, quantiles, levels, average=False), expected)
    assert metrics.pinball_loss(y, quantiles, levels, sample_weight=[0, 1, 1]) == pytest.approx(np.mean(expected[1:]))


def test_pinball_loss_is_smallest_at_the_quantile():
    y = stats.expon.ppf((np.arange(5000) + 0.5) / 5000)
    candidates = np.linspace(0.5, 3, 251)
    losses = [metrics.pinball_loss(y, np.full(5000, c), 0.8) for c in candidates]
    assert candidates[np.argmin(losses)] == pytest.approx(stats.expon.ppf(0.8), abs=0.011)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), k=st.integers(1, 12), offset=st.sampled_from([0.0, 1e6]))
def test_crps_from_atoms_is_the_double_sum(data, k, offset):
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    y, atoms, weights = rng.normal(size=3), rng.normal(size=(3, k)).round(1), rng.exponential(size=(3, k))
    expected = [crps_by_definition(*row) for row in zip(y, atoms, weights, strict=True)]
    found = metrics.crps_from_atoms(y + offset, atoms + offset, weights, average=False)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_crps_from_atoms_shared_by_all_observations():
    rng = np.random.default_rng(0)
    y, atoms, weights = rng.normal(size=4), rng.normal(size=9), rng.random(9)
    expected = [crps_by_definition(value, atoms, weights) for value in y]
    np.testing.assert_allclose(metrics.crps_from_atoms(y, atoms, weights, average=False), expected)
    equal = [crps_by_definition(value, atoms, np.ones(9)) for value in y]
    assert metrics.crps_from_atoms(y, atoms) == pytest.approx(np.mean(equal))
    assert metrics.crps_from_atoms(y, atoms, sample_weight=[1, 0, 0, 0]) == pytest.approx(equal[0])


def test_crps_from_atoms_of_a_normal():
    y = np.array([-2.0, 0.3, 4.0])
    atoms = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000, 0.5, 2.0)
    found = metrics.crps_from_atoms(y, atoms, average=False)
    np.testing.assert_allclose(found, crps_of_a_normal(y, 0.5, 2.0), atol=1e-3)


def test_crps_from_quantiles_of_a_normal():
    y, levels = np.array([-2.0, 0.3, 4.0]), np.linspace(0.001, 0.999, 999)
    quantiles = np.tile(stats.norm.ppf(levels, 0.5, 2.0), (3, 1))
    found = metrics.crps_from_quantiles(y, quantiles, levels, average=False)
    np.testing.assert_allclose(found, crps_of_a_normal(y, 0.5, 2.0), atol=2e-3)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 30))
def test_crps_from_quantiles_at_midpoint_levels_is_that_of_equal_atoms(seed, k):
    rng = np.random.default_rng(seed)
    y, atoms = rng.normal(size=3), np.sort(rng.normal(size=(3, k)), axis=1)
    levels = (np.arange(k) + 0.5) / k
    found = metrics.crps_from_quantiles(y, atoms, levels, average=False)
    np.testing.assert_allclose(found, metrics.crps_from_atoms(y, atoms, average=False), atol=1e-12)


def test_crps_from_quantiles_takes_uneven_levels():
    levels = np.concatenate([np.linspace(0.0005, 0.1, 400), np.linspace(0.11, 0.9995, 600)])
    found = metrics.crps_from_quantiles([1.0], stats.norm.ppf(levels)[None, :], levels)
    assert found == pytest.approx(crps_of_a_normal(1.0, 0.0, 1.0), abs=2e-3)


def test_coverage_counts_the_closed_interval():
    interval = np.array([[0.0, 1.0]] * 5)
    y = [0.0, 0.5, 1.0, 1.1, -0.1]
    assert metrics.interval_coverage(y, interval) == pytest.approx(0.6)
    assert metrics.interval_coverage(y, interval, sample_weight=[1, 0, 0, 1, 0]) == pytest.approx(0.5)


def test_interval_width():
    interval = [[0.0, 1.0], [2.0, 5.0]]
    assert metrics.interval_width(interval) == 2.0
    assert metrics.interval_width(interval, sample_weight=[3, 1]) == 1.5
    np.testing.assert_array_equal(metrics.interval_width(interval, average=False), [1.0, 3.0])


def test_interval_score_by_definition():
    y, interval = [-1.0, 0.5, 3.0], [[0.0, 1.0]] * 3
    expected = [1 + 2 / 0.1 * 1, 1, 1 + 2 / 0.1 * 2]
    np.testing.assert_allclose(metrics.interval_score(y, interval, 0.9, average=False), expected)
    assert metrics.interval_score(y, interval, 0.9) == pytest.approx(np.mean(expected))


def test_interval_score_is_two_pinball_losses():
    rng = np.random.default_rng(1)
    y, interval = rng.normal(size=50), np.sort(rng.normal(size=(50, 2)), axis=1)
    pinball = metrics.pinball_loss(y, interval, [0.1, 0.9], average=False)
    np.testing.assert_allclose(metrics.interval_score(y, interval, 0.8, average=False), pinball * 2 * 2 / 0.2)


def test_pit_uniformity_tells_a_uniform_sample_from_another():
    rng = np.random.default_rng(0)
    # a uniform sample falls below this p-value once in a thousand seeds; the seed is fixed
    assert metrics.pit_uniformity(rng.random(2000)).pvalue > 1e-3
    assert metrics.pit_uniformity(rng.beta(2, 2, 2000)).pvalue < 1e-6
    assert metrics.pit_uniformity(np.full(10, 0.25)).statistic == pytest.approx(0.75)


@pytest.mark.parametrize("grid", [GRID, UNEVEN_GRID], ids=["even", "uneven"])
@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (1.0, 1.0), (-0.7, 1.6)])
def test_densities_of_two_normals_have_closed_forms(grid, mean, scale):
    p, q = normals((0, 1), (0, 1), grid=grid), normals((mean, scale), (0, 1), grid=grid)
    kl = np.log(scale) + (1 + mean**2) / (2 * scale**2) - 0.5
    overlap = np.sqrt(2 * scale / (1 + scale**2)) * np.exp(-(mean**2) / (4 * (1 + scale**2)))
    np.testing.assert_allclose(metrics.kl_divergence(p, q, grid, average=False), [kl, 0], atol=2e-5)
    np.testing.assert_allclose(metrics.hellinger(p, q, grid, average=False) ** 2, [1 - overlap, 0], atol=2e-5)
    assert metrics.kl_divergence(p, q, grid, sample_weight=[1, 3]) == pytest.approx(kl / 4, abs=2e-5)


@pytest.mark.parametrize("grid", [GRID, UNEVEN_GRID], ids=["even", "uneven"])
def test_total_variation_of_shifted_normals(grid):
    p, q = normals((0, 1), (0, 1), grid=grid), normals((1, 1), (3, 1), grid=grid)
    expected = 2 * stats.norm.cdf([0.5, 1.5]) - 1
    np.testing.assert_allclose(metrics.total_variation(p, q, grid, average=False), expected, atol=2e-5)


@pytest.mark.parametrize("grid", [GRID, UNEVEN_GRID], ids=["even", "uneven"])
@pytest.mark.parametrize("shift", [0.0, 0.3, 2.0])
def test_wasserstein_of_shifted_laws_is_the_shift(grid, shift):
    cdf, other = (
        normals((0, 1), (1, 2), function="cdf", grid=grid),
        normals((shift, 1), (1 - shift, 2), function="cdf", grid=grid),
    )
    np.testing.assert_allclose(metrics.wasserstein1(cdf, other, grid, average=False), shift, atol=1e-4)


def test_wasserstein_agrees_with_scipy_on_atoms():
    rng = np.random.default_rng(0)
    a, b, grid = rng.normal(size=30), rng.normal(1, 2, size=40), np.linspace(-8, 10, 20_001)
    cdf, other = (np.mean(sample[:, None] <= grid, axis=0) for sample in (a, b))
    assert metrics.wasserstein1(cdf, other, grid) == pytest.approx(stats.wasserstein_distance(a, b), abs=1e-3)


def test_jensen_shannon_is_half_of_two_divergences_from_the_middle():
    p, q = normals((0, 1), (0, 1)), normals((1, 2), (0, 1))
    middle = 0.5 * (p + q)
    expected = 0.5 * (
        metrics.kl_divergence(p, middle, GRID, average=False) + metrics.kl_divergence(q, middle, GRID, average=False)
    )
    np.testing.assert_allclose(metrics.jensen_shannon(p, q, GRID, average=False), expected, atol=1e-10)
    np.testing.assert_allclose(
        metrics.jensen_shannon(q, p, GRID, average=False), metrics.jensen_shannon(p, q, GRID, average=False)
    )


def test_distances_of_laws_that_share_nothing_reach_their_bounds():
    p, q = normals((-6, 0.1))[0], normals((6, 0.1))[0]
    assert metrics.jensen_shannon(p, q, GRID) == pytest.approx(np.log(2), abs=1e-6)
    assert metrics.total_variation(p, q, GRID) == pytest.approx(1.0, abs=1e-6)
    assert metrics.hellinger(p, q, GRID) == pytest.approx(1.0, abs=1e-6)
    assert metrics.kl_divergence(p, q, GRID) == np.inf


def test_refining_the_grid_does_not_change_the_answer():
    coarse, fine = np.linspace(-10, 10, 401), np.linspace(-10, 10, 4001)
    for metric in (metrics.hellinger, metrics.total_variation, metrics.kl_divergence, metrics.jensen_shannon):
        values = [metric(normals((0, 1), grid=g)[0], normals((1, 1.5), grid=g)[0], g) for g in (coarse, fine)]
        assert values[0] == pytest.approx(values[1], abs=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.ks_distance(np.ones((2, 3)), np.ones((2, 4))), r"same shape.*\(2, 3\) and \(2, 4\)"),
        (
            lambda: metrics.ks_distance(np.ones((2, 3)), np.ones((2, 3)), sample_weight=[1]),
            r"`sample_weight`",
        ),
        (lambda: metrics.hellinger([1.0, -1.0], [1.0, 1.0], [0, 1]), r"must not be negative; got -1. Clip"),
        (
            lambda: metrics.wasserstein1([0.0, 1.0], [0.0, 1.0], [1, 0]),
            r"`grid` must be an increasing vector of 2",
        ),
        (
            lambda: metrics.pinball_loss([0.0], [[0.0, 1.0]], [0.5]),
            r"`alpha` must hold 2 value\(s\) in \(0, 1\)",
        ),
        (lambda: metrics.pinball_loss([0.0], [0.0], 95), r"`alpha` must hold 1 value\(s\).*got 95"),
        (lambda: metrics.pinball_loss([0.0, 1.0], [0.0], 0.5), r"`quantiles` must be a matrix with 2 rows"),
        (lambda: metrics.crps_from_quantiles([0.0], [[1.0, 0.0]], [0.7, 0.2]), r"`levels` must increase"),
        (
            lambda: metrics.crps_from_atoms([0.0], [[0.0, 1.0]], [[-1.0, 2.0]]),
            r"`weights` must be non-negative",
        ),
        (lambda: metrics.crps_from_atoms([0.0], [[0.0, 1.0]], [[1.0]]), r"`weights`.*got shape \(1, 1\)"),
        (
            lambda: metrics.crps_from_atoms([0.0, 1.0], np.ones((3, 2))),
            r"`atoms` must be a matrix with 2 rows",
        ),
        (lambda: metrics.interval_coverage([0.0], [[0.0, 1.0, 2.0]]), r"`interval` must have shape \(n, 2\)"),
        (lambda: metrics.interval_width([[1.0, 0.0]]), r"lower end not above the upper one"),
        (lambda: metrics.interval_score([0.0], [[0.0, 1.0]], 90), r"`coverage` must lie in \(0, 1\); got 90"),
        (lambda: metrics.pit_uniformity([1.2]), r"`pit` must hold values in \[0, 1\]"),
    ],
)
def test_error_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_jensen_shannon_of_the_least_numbers_is_finite():
    p, q = np.array([1.0, 0.0, 0.0]), np.array([1.0, 5e-324, 0.0])
    assert metrics.jensen_shannon(p, q, [0.0, 1.0, 2.0]) == pytest.approx(0.0, abs=1e-12)
