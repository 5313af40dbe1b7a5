"""The losses are unbiased, bounded by the spectrum of the operator, and differentiable."""

import contextlib
import itertools

import pytest
import torch
from helpers import Table, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob.losses import LOSSES, MINIMUM_PAIRS, best_operator, orthonormality_penalty, u_statistic_loss

seeds = st.integers(0, 2**32 - 1)
ONE_OPERATOR = ["covariance", "u_statistic", "paired"]  # estimates for the given singular values
VALUES = torch.tensor([0.9, 0.4, 0.7], dtype=torch.float64)


@pytest.mark.parametrize("n", [4, 5])
@pytest.mark.parametrize("name", ONE_OPERATOR)
def test_loss_is_unbiased(name, n):
    table = Table.random(2, 2, seed=n)
    u, v = normal(2, 3, seed=1), normal(2, 3, seed=2)
    mean = table.expectation(lambda a, b: LOSSES[name](a, b, VALUES), u, v, n)
    assert mean.item() == pytest.approx(table.loss(u, v, VALUES).item(), abs=1e-10)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_penalty_is_unbiased(n):
    table = Table.random(2, 2, seed=n)
    u, v = normal(2, 3, seed=3), normal(2, 3, seed=4)
    mean = table.expectation(orthonormality_penalty, u, v, n)
    assert mean.item() == pytest.approx(table.penalty(u, v).item(), abs=1e-10)


def test_cross_fitted_loss_is_unbiased_for_the_fitted_operators():
    """E of the loss is the mean of L(uW, v) over the operators W that four pairs can give."""
    table = Table.random(2, 2, seed=5)
    u, v, ones = normal(2, 2, seed=5), normal(2, 2, seed=6), torch.ones(2, dtype=torch.float64)
    mean = table.expectation(lambda a, b: LOSSES["cross_fitted"](a, b, ones), u, v, 8)
    x, y, probabilities = table.batches(4)
    fitted = torch.func.vmap(best_operator)(u[x], v[y])
    losses = torch.stack([table.loss(u @ operator, v, ones) for operator in fitted])
    assert mean.item() == pytest.approx((probabilities @ losses).item(), abs=1e-8)


@pytest.mark.parametrize("n", [8, 11])
def test_cross_fitted_loss_scores_each_half_with_the_operator_of_the_other(n):
    u, v, ones = normal(n, 2, seed=7), normal(n, 2, seed=8), torch.ones(2, dtype=torch.float64)
    m = n // 2
    first, second = slice(0, m), slice(m, 2 * m)
    scores = [
        u_statistic_loss(u[score] @ best_operator(u[fit], v[fit]), v[score], ones)
        for fit, score in ((first, second), (second, first))
    ]
    torch.testing.assert_close(LOSSES["cross_fitted"](u, v, 0.3 * ones), sum(scores) / 2)


def test_cross_fitted_loss_reaches_the_optimum_of_full_features():
    """With indicator features the best operator is the truth.

    Over 40 samples of 20,000 pairs the loss had mean −0.3986 (optimum −0.3985) and standard deviation 0.005. Threshold:
    four standard deviations.
    """
    table = Table.random(3, 4, seed=9)
    x, y = table.sample(20_000, seed=0)
    loss = LOSSES["cross_fitted"](torch.eye(4)[:3][x], torch.eye(4)[y], torch.ones(4))
    optimum = -table.svd(2)[1].square().sum()
    assert optimum < -0.2
    assert loss.item() == pytest.approx(optimum.item(), abs=0.02)


@settings(max_examples=100, deadline=None)
@given(seeds, st.sampled_from([(3, 4), (4, 4), (2, 5)]), st.integers(1, 4), st.floats(0.01, 10))
def test_loss_is_bounded_by_the_spectrum(seed, shape, rank, size):
    table = Table.random(*shape, seed=seed)
    u, v = (size * normal(n, rank, seed=seed + k) for k, n in enumerate(shape, start=1))
    s = torch.rand(rank, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert table.loss(u, v, s) >= -table.svd(rank)[1].square().sum() - 1e-10


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([(3, 4), (4, 4)]), st.integers(1, 2))
def test_bound_is_reached_at_the_svd(seed, shape, rank):
    table = Table.random(*shape, seed=seed)
    u, values, v = table.svd(rank)
    assert table.loss(u, v, values).item() == pytest.approx(-values.square().sum().item(), abs=1e-10)
    assert table.penalty(u, v).item() == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("name", ONE_OPERATOR)
def test_loss_of_a_large_sample_reaches_the_bound_at_the_svd(name):
    """Over 40 samples the standard deviation is 0.01, for `paired` 0.025; 0.001 for the penalty. Four of them."""
    table = Table.random(3, 4, seed=10)
    u, values, v = table.svd(2)
    x, y = table.sample(40_000, seed=1)
    assert LOSSES[name](u[x], v[y], values).item() == pytest.approx(-values.square().sum().item(), abs=0.1)
    assert orthonormality_penalty(u[x], v[y]).item() == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize("name", list(LOSSES))
def test_loss_has_the_right_gradient(name):
    u, v = (normal(10, 3, seed=k).requires_grad_() for k in (11, 12))
    s = VALUES.clone().requires_grad_()
    assert torch.autograd.gradcheck(LOSSES[name], (u, v, s))


def test_penalty_has_the_right_gradient():
    u, v = (normal(6, 3, seed=k).requires_grad_() for k in (13, 14))
    assert torch.autograd.gradcheck(orthonormality_penalty, (u, v))


def test_u_statistic_loss_is_the_average_over_distinct_rows():
    u, v, n = normal(6, 3, seed=15), normal(6, 3, seed=16), 6
    energy = [((u[i] - u[k]) @ (VALUES * (v[j] - v[m]))) ** 2 / 4 for i, j, k, m in itertools.permutations(range(n), 4)]
    aligned = [(u[i] - u[k]) @ (VALUES * (v[i] - v[k])) / 2 for i, k in itertools.permutations(range(n), 2)]
    expected = torch.stack(energy).mean() - 2 * torch.stack(aligned).mean()
    torch.testing.assert_close(u_statistic_loss(u, v, VALUES), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", list(LOSSES))
def test_loss_does_not_see_shifts_of_the_features(name):
    u, v = normal(12, 3, seed=17), normal(12, 3, seed=18)
    shifted = LOSSES[name](u + 30, v - torch.tensor([1.0, 50.0, 7.0]), VALUES)
    torch.testing.assert_close(shifted, LOSSES[name](u, v, VALUES), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("name", list(LOSSES))
def test_loss_is_finite_from_the_stated_number_of_pairs(name):
    n = MINIMUM_PAIRS[name]
    u, v = normal(n, 3, seed=19), normal(n, 3, seed=20)
    assert torch.isfinite(LOSSES[name](u, v, VALUES))
    with contextlib.suppress(ZeroDivisionError):  # one fewer is too few
        assert not torch.isfinite(LOSSES[name](u[:-1], v[:-1], VALUES))


@pytest.mark.parametrize("name", list(LOSSES))
def test_collapsed_features_have_loss_zero_and_finite_gradients(name):
    u, v = (torch.full((10, 3), 0.5, requires_grad=True) for _ in range(2))
    loss = LOSSES[name](u, v, torch.ones(3))
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert torch.isfinite(u.grad).all()
    assert torch.isfinite(v.grad).all()


def test_u_statistic_varies_least():
    """All three estimate one number; averaging over all choices of rows cannot add variance (Rao and Blackwell)."""
    table = Table.random(2, 2, seed=21)
    u, v = normal(2, 3, seed=21), normal(2, 3, seed=22)

    def second_moment(name):
        return table.expectation(lambda a, b: LOSSES[name](a, b, VALUES).square(), u, v, 4)

    assert second_moment("u_statistic") <= min(second_moment("covariance"), second_moment("paired")) + 1e-12
