"""Held-out losses of truncated operators are exact on tables; the choice follows them."""

import pytest
import torch
from helpers import Table, gaussian_pairs, indicator_operator, small_operator
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob.losses import u_statistic_loss
from ncprob.truncation import RIDGES, choose_truncation, held_out_losses

seeds = st.integers(0, 2**32 - 1)


def fitted(table):
    operator = indicator_operator(table)
    moments = operator.moments(table.weighted_pairs())
    operator.whiten(moments, relative_threshold=1e-13)
    return operator, moments


@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from([(3, 4), (4, 4)]))
def test_loss_on_the_own_law_is_minus_the_energy_of_the_spectrum(seed, shape):
    table = Table.random(*shape, seed=seed)
    operator, moments = fitted(table)
    losses = held_out_losses(operator, moments)
    expected = torch.zeros(max(shape) + 1, dtype=torch.float64)
    energy = table.svd(min(shape))[1].square().cumsum(0)
    expected[1 : len(energy) + 1] = -energy
    expected[len(energy) + 1 :] = -energy[-1]
    torch.testing.assert_close(losses, expected, atol=1e-7, rtol=0)


def test_loss_on_another_law_is_the_loss_of_the_losses_module():
    """L of the truncated operator on a second table, where features are neither centred nor orthonormal.

    Moments are about the training means, as the operator uses them: E[u]E[v] enters the energy, not the alignment.
    """
    first, second = Table.random(3, 4, seed=1), Table.random(3, 4, seed=2)
    operator, _ = fitted(first)
    x, y = second.states()
    u, v, s = operator.left_features(x), operator.right_features(y), operator.singular_values
    losses = held_out_losses(operator, operator.moments(second.weighted_pairs()))
    for k in range(operator.rank + 1):
        ratio = (u[:, :k] * s[:k]) @ v[:, :k].mT
        energy = torch.einsum("i,j,ij->", second.p, second.q, ratio.square())
        alignment = ((second.joint - torch.outer(second.p, second.q)) * ratio).sum()
        assert losses[k].item() == pytest.approx((energy - 2 * alignment).item(), abs=1e-9)


def test_held_out_loss_agrees_with_the_u_statistic_on_a_large_sample():
    """The product of moments differs from the U-statistic by O(d²/n); n = 5,000 and d = 3 give about 0.002·ΣΣ s²."""
    pairs, held_out = gaussian_pairs(2000, seed=1), gaussian_pairs(5000, seed=2)
    operator = small_operator().postprocess(pairs, ridge=1e-3)
    losses = held_out_losses(operator, operator.moments(held_out))
    u, v = operator.left_features(held_out[0]), operator.right_features(held_out[1])
    expected = u_statistic_loss(u.double(), v.double(), operator.singular_values.double())
    assert losses[-1].item() == pytest.approx(expected.item(), abs=0.01)


def test_choice_on_the_own_law_keeps_all_that_is_there():
    table = Table.random(4, 4, seed=3)
    operator, moments = fitted(table)
    choice = choose_truncation(operator, moments, moments)
    assert choice.ridge == 0
    assert choice.rank >= 3
    assert choice.loss == pytest.approx(-table.svd(3)[1].square().sum().item(), abs=1e-7)


def test_choice_has_the_lowest_loss_of_all():
    table, other = Table.random(4, 4, seed=4), Table.random(4, 4, seed=5)
    operator, moments = fitted(table)
    held_out = operator.moments(other.weighted_pairs())
    choice = choose_truncation(operator, moments, held_out)
    for ridge in RIDGES:
        operator.whiten(moments, ridge=ridge)
        assert held_out_losses(operator, held_out).min().item() >= choice.loss - 1e-12
    operator.whiten(moments, ridge=choice.ridge)
    assert held_out_losses(operator, held_out)[choice.rank].item() == pytest.approx(choice.loss)


def test_independent_held_out_data_choose_rank_zero():
    table = Table.random(4, 4, seed=6)
    operator, moments = fitted(table)
    independent = Table(torch.outer(table.p, table.q))
    choice = choose_truncation(operator, moments, operator.moments(independent.weighted_pairs()))
    assert (choice.rank, choice.loss) == (0, 0.0)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_fixed_rank_is_kept(rank):
    table = Table.random(4, 4, seed=7)
    operator, moments = fitted(table)
    choice = choose_truncation(operator, moments, moments, rank=rank)
    assert choice.rank == rank
    assert choice.loss == pytest.approx(-table.svd(4)[1][:rank].square().sum().item(), abs=1e-7)
