"""Moments: unbiased batch forms against enumeration, chunked accumulation against one pass."""

import itertools

import pytest
import torch
from helpers import Table, normal
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ncprob.statistics import PairMoments, centered, covariance, cross_energy


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor any operation gives."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        parts = result if isinstance(result, tuple | list) else (result,)
        self.elements = max(self.elements, *(part.numel() for part in parts if isinstance(part, torch.Tensor)))
        return result


@pytest.mark.parametrize("n", [4, 5])
def test_covariance_and_cross_energy_are_unbiased(n):
    table = Table.random(2, 2, seed=n)
    u, v = normal(2, 3, seed=1), normal(2, 3, seed=2)
    torch.testing.assert_close(
        table.expectation(cross_energy, u, v, n)[None], table.energy(u, v)[None], atol=1e-10, rtol=1e-10
    )
    x, y, probabilities = table.batches(n)
    means = torch.einsum("b,bij->ij", probabilities, torch.func.vmap(covariance)(u[x], v[y]))
    torch.testing.assert_close(means, table.covariances(u, v)[2], atol=1e-10, rtol=1e-10)


def test_cross_energy_is_the_average_over_distinct_rows():
    u, v = normal(6, 3, seed=3), normal(6, 3, seed=4)
    terms = [((u[i] - u[k]) @ (v[j] - v[m])) ** 2 / 4 for i, j, k, m in itertools.permutations(range(6), 4)]
    torch.testing.assert_close(cross_energy(u, v), torch.stack(terms).mean(), atol=1e-10, rtol=1e-10)


@settings(max_examples=20, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_shifts_change_no_second_moment(left_shift, right_shift):
    u, v = normal(8, 2, seed=7), normal(8, 2, seed=8)
    for statistic in (cross_energy, covariance):
        torch.testing.assert_close(statistic(u + left_shift, v + right_shift), statistic(u, v), atol=1e-8, rtol=1e-8)


def test_cross_energy_forms_no_square_matrix_of_the_batch():
    n, rank = 1000, 4
    with LargestTensor() as seen:
        cross_energy(normal(n, rank, seed=9), normal(n, rank, seed=10))
    assert 0 < seen.elements <= n * rank


def test_centered_features_have_mean_zero():
    assert centered(normal(9, 2, seed=11) + 5).mean(dim=0).abs().max() < 1e-14


FIELDS = ("weight", "left_mean", "right_mean", "left", "right", "cross")


def assert_same_moments(first, second):
    for name in FIELDS:
        torch.testing.assert_close(getattr(first, name), getattr(second, name), atol=1e-10, rtol=1e-10)


def test_moments_are_the_population_moments():
    u, v = normal(50, 3, seed=12) + 4, normal(50, 3, seed=13)
    moments = PairMoments.of(u, v)
    torch.testing.assert_close(moments.left_mean, u.mean(dim=0))
    torch.testing.assert_close(moments.left, torch.cov(u.mT, correction=0))
    torch.testing.assert_close(moments.right, torch.cov(v.mT, correction=0))
    torch.testing.assert_close(moments.cross, covariance(u, v) * 49 / 50)


def test_weighted_moments_are_moments_of_repeated_rows():
    u, v, counts = normal(20, 2, seed=14), normal(20, 2, seed=15), torch.arange(20) % 4
    repeated = (part.repeat_interleave(counts, dim=0) for part in (u, v))
    assert_same_moments(PairMoments.of(u, v, counts.double()), PairMoments.of(*repeated))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 29), max_size=5, unique=True), st.booleans())
def test_chunks_change_nothing(cuts, is_weighted):
    u, v = normal(30, 2, seed=16) + 100, normal(30, 2, seed=17)
    weights = torch.rand(30, generator=torch.Generator().manual_seed(0)) + 0.1 if is_weighted else None
    edges = [0, *sorted(cuts), 30]
    chunks = [(u[a:b], v[a:b], None if weights is None else weights[a:b]) for a, b in itertools.pairwise(edges)]
    assert_same_moments(PairMoments.accumulate(chunks), PairMoments.of(u, v, weights))


def test_moments_of_float32_features_are_accumulated_in_float64():
    u = torch.full((10_000, 1), 1e4) + torch.tensor([[-1.0], [1.0]]).repeat(5000, 1)
    moments = PairMoments.of(u, u)
    assert moments.left.dtype == torch.float64
    assert moments.left.item() == pytest.approx(1.0, rel=1e-9)


def test_no_pairs_is_an_error():
    with pytest.raises(ValueError, match="`pairs` must hold at least one pair"):
        PairMoments.accumulate([])
