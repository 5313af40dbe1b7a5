"""Formulas on weighted atoms against their definitions by brute force."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ncprob import weighted

# Weights that are multiples of 1/64 add up exactly, so brute force and library meet no rounding.
MASS = st.integers(0, 8)


@st.composite
def laws(draw, rows=2):
    """Sorted atoms (m,), often tied, and weights (rows, m) adding to one."""
    m = draw(st.integers(1, 25))
    values = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6).map(lambda value: round(value, 3)))
    atoms = np.sort(draw(st.lists(values, min_size=m, max_size=m)))
    masses = np.array(draw(st.lists(st.lists(MASS, min_size=m, max_size=m), min_size=rows, max_size=rows)), float)
    masses[:, draw(st.integers(0, m - 1))] += 1
    return torch.tensor(masses / masses.sum(axis=1, keepdims=True)), torch.tensor(atoms)


fixed = settings(max_examples=50, deadline=None, derandomize=True)
LEVELS = st.lists(st.floats(0.001, 0.999), min_size=1, max_size=5)


@fixed
@given(laws(), LEVELS)
def test_quantile_is_the_smallest_atom_that_reaches_the_level(law, levels):
    weights, atoms = law
    answer = weighted.quantiles(weights, atoms, torch.tensor(levels, dtype=torch.float64))
    for w, row in zip(weights.numpy(), answer.numpy(), strict=True):
        cumulative = np.cumsum(w)
        expected = [atoms.numpy()[np.argmax(cumulative >= level - 1e-10)] for level in levels]
        np.testing.assert_array_equal(row, expected)


@fixed
@given(laws(), st.floats(0.01, 0.99))
def test_shortest_interval_by_trying_all_pairs_of_atoms(law, coverage):
    weights, atoms = law
    for w, (low, high) in zip(
        weights.numpy(), weighted.shortest_interval(weights, atoms, coverage).tolist(), strict=True
    ):
        a = atoms.numpy()
        widths = [
            a[j] - a[i] for i in range(len(a)) for j in range(i, len(a)) if w[i : j + 1].sum() >= coverage - 1e-10
        ]
        assert high - low == min(widths)
        assert w[(a >= low) & (a <= high)].sum() >= coverage - 1e-10


@fixed
@given(laws(), st.floats(-1e6, 1e6))
def test_crps_by_definition(law, y):
    weights, atoms = law
    answer = weighted.crps(weights, atoms, torch.full((len(weights),), y, dtype=torch.float64))
    distances = (atoms[:, None] - atoms).abs()
    expected = weights @ (atoms - y).abs() - 0.5 * (weights @ distances * weights).sum(dim=1)
    np.testing.assert_allclose(answer, expected, rtol=1e-9, atol=1e-9 * float(atoms.abs().max() + abs(y) + 1))


@fixed
@given(laws())
def test_density_by_summing_the_kernel_over_atoms(law):
    weights, atoms = law
    points = torch.cat([atoms, atoms + 0.01, atoms - 0.3]).expand(len(weights), -1)
    h = weighted.bandwidth(weights, atoms)[:, :, None]
    triangles = (1 - (points[:, :, None] - atoms).abs() / h).clamp(min=0) / h
    spread, center, m = weighted._spread(atoms), atoms[len(atoms) // 2], len(atoms)
    cauchy = stats.cauchy.pdf(points.numpy(), loc=float(center), scale=spread)
    expected = (1 - 1 / (m + 1)) * (weights[:, None, :] * triangles).sum(dim=-1).numpy() + cauchy / (m + 1)
    peak = 1 / h[:, :, 0].numpy()
    # atoms of 10⁶ are known to 10⁻¹⁰, a bandwidth is at least 5·10⁻⁷
    np.testing.assert_allclose(weighted.density(weights, atoms, points).numpy() / peak, expected / peak, atol=1e-3)


@fixed
@given(laws())
def test_density_integrates_to_one(law):
    weights, atoms = law
    h, spread, m = weighted.bandwidth(weights, atoms), weighted._spread(atoms), len(atoms)
    for w, width in zip(weights, h[:, 0].tolist(), strict=True):
        # The kernel part is piecewise linear between these knots, so the trapezoidal rule is exact for it; the Cauchy
        # part has its own integral.
        knots = torch.cat([atoms + k * width for k in (-2, -1, 0, 1, 2)]).unique()
        cauchy = stats.cauchy.pdf(knots.numpy(), loc=float(atoms[m // 2]), scale=spread) / (m + 1)
        kernel = weighted.density(w[None], atoms, knots[None])[0].numpy() - cauchy
        assert np.trapezoid(kernel, knots.numpy()) + 1 / (m + 1) == pytest.approx(1, abs=1e-3)


def test_density_of_a_normal_sample():
    # Quantile atoms have no sampling error; the kernel's bias is h²f''/12 ≤ 0.4·h²/12, with h ≈ √6·0.9·2000^(−1/5).
    atoms = torch.tensor(stats.norm.ppf((np.arange(2000) + 0.5) / 2000))
    weights = torch.full((1, 2000), 1 / 2000, dtype=torch.float64)
    h = math.sqrt(6) * 0.9 * 2000**-0.2
    assert float(weighted.bandwidth(weights, atoms)) == pytest.approx(h, rel=0.02)
    grid = torch.linspace(-3, 3, 61, dtype=torch.float64)[None]
    np.testing.assert_allclose(
        weighted.density(weights, atoms, grid), stats.norm.pdf(grid), atol=0.4 * h**2 / 12 + 2e-3
    )


def test_separate_modes_stay_apart():
    # Two modes of width 0.05 at ±5: an ordinary bandwidth (σ = 5) would fill the gap between them.
    mode = 0.05 * stats.norm.ppf((np.arange(500) + 0.5) / 500)
    atoms = torch.tensor(np.concatenate([mode - 5, mode + 5]))
    weights = torch.full((1, 1000), 1e-3, dtype=torch.float64)
    valley, peak = weighted.density(weights, atoms, torch.tensor([[0.0, 5.0]], dtype=torch.float64))[0].tolist()
    assert peak == pytest.approx(0.5 * stats.norm.pdf(0) / 0.05, rel=0.15)
    assert valley < 1e-3


@pytest.mark.parametrize("reach", [1e3, 1e6, 1e9, 1e12, 1e15])
def test_one_far_atom_does_not_disturb_the_density_elsewhere(reach):
    atoms = torch.tensor(stats.norm.ppf((np.arange(200) + 0.5) / 200))
    far = torch.cat([torch.tensor([-reach], dtype=torch.float64), atoms])
    w, v = torch.full((1, 200), 1 / 200, dtype=torch.float64), torch.full((1, 201), 1 / 201, dtype=torch.float64)
    grid = torch.linspace(-3, 3, 13, dtype=torch.float64)[None]
    np.testing.assert_allclose(weighted.density(v, far, grid), weighted.density(w, atoms, grid), rtol=0.05, atol=1e-3)


def test_density_far_from_all_atoms_is_the_cauchy_share():
    atoms = torch.linspace(-1, 1, 101, dtype=torch.float64)
    w = torch.full((1, 101), 1 / 101, dtype=torch.float64)
    points = torch.tensor([[1e3, -1e6, 1e9, 1e100]], dtype=torch.float64)
    expected = stats.cauchy.pdf(points, scale=weighted._spread(atoms)) / 102
    np.testing.assert_allclose(weighted.density(w, atoms, points), expected, rtol=1e-6)
    assert weighted.density(w, atoms, torch.tensor([[math.inf, -math.inf]], dtype=torch.float64)).tolist() == [[0, 0]]


def test_padded_cumsum_ends_at_exactly_one():
    w = torch.full((1, 10), 0.1, dtype=torch.float64)  # ten tenths do not add to one in floating point
    cumulative = weighted.padded_cumsum(w)
    assert cumulative.shape == (1, 11)
    assert cumulative[0, 0] == 0
    assert cumulative[0, -1] == 1
    assert bool((cumulative.diff(dim=1) >= 0).all())


@st.composite
def cells(draw):
    """Edges (rows, cells + 1) in increasing order, often tied, and densities that differ from each other."""
    rows, n = draw(st.integers(1, 3)), draw(st.integers(1, 12))
    edges = [sorted(draw(st.lists(st.integers(0, 8), min_size=n + 1, max_size=n + 1))) for _ in range(rows)]
    ranks = [draw(st.permutations(range(n))) for _ in range(rows)]
    return torch.tensor(edges, dtype=torch.float64), torch.tensor(ranks, dtype=torch.float64)


@fixed
@given(cells(), st.floats(0.01, 0.99))
def test_densest_cells_by_joining_them_one_by_one(edges_and_density, level):
    edges, density = edges_and_density
    pieces, counts = weighted.densest_cells(edges, density, level)
    expected, lengths = [], []
    for edge, dense in zip(edges.tolist(), density.tolist(), strict=True):
        n = len(dense)
        n_wanted = next(k for k in range(1, n + 1) if k / n >= level - 1e-12)
        chosen = sorted(sorted(range(n), key=lambda j: -dense[j])[:n_wanted])
        own = [[edge[chosen[0]], edge[chosen[0] + 1]]]
        for j in chosen[1:]:
            if edge[j] <= own[-1][1]:
                own[-1][1] = edge[j + 1]
            else:
                own.append([edge[j], edge[j + 1]])
        expected += own
        lengths.append(len(own))
    assert counts.tolist() == lengths
    assert pieces.tolist() == expected


def test_crps_is_not_negative_and_keeps_its_digits_far_from_zero():
    weights = torch.rand(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = weights / weights.sum(dim=1, keepdim=True)
    atoms = torch.arange(5, dtype=torch.float64) / 1024
    y = atoms[2].expand(200)
    near, far = weighted.crps(weights, atoms, y), weighted.crps(weights, atoms + 2.0**30, y + 2.0**30)
    torch.testing.assert_close(far, near, rtol=1e-12, atol=0)
    sure = torch.zeros(1, 5, dtype=torch.float64)
    sure[0, 0], sure[0, 2] = 1e-17, 1.0
    assert float(weighted.crps(sure, 1e12 * atoms, 1e12 * y[:1])) >= 0
