"""Gaussian mixtures against torch.distributions and scipy; quantiles invert the distribution function."""

import math

import numpy as np
import pytest
import torch
from helpers import generator, normal
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.distributions import Categorical, MixtureSameFamily, Normal

from ncprob import mixture
from ncprob.mixture import EDGE, MINIMUM_SCALE, WIDTH_OFFSET, log_density, normal_scores, quantiles, scale_of, width_of

fixed = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
SCORES = torch.linspace(-4.5, 4.5, 73, dtype=torch.float64)


@st.composite
def mixtures(draw):
    """Weights, means within ±3 and scales between 0.05 and 2, each (rows, components)."""
    rows, k, seed = (draw(st.integers(*ends)) for ends in ((1, 4), (1, 6), (0, 10**6)))
    uniform = torch.rand(3, rows, k, generator=generator(seed), dtype=torch.float64)
    weights = uniform[0] ** draw(st.sampled_from([1, 4])) + 1e-3
    return weights / weights.sum(dim=1, keepdim=True), 6 * uniform[1] - 3, 0.05 * 40 ** uniform[2]


def table(*rows):
    """One mixture from rows of weights, means, scales."""
    return tuple(torch.tensor([row], dtype=torch.float64) for row in rows)


GAPS = table([0.3, 0.3, 0.4], [-3.0, 0.0, 3.0], [0.05, 0.05, 0.05])
SPIKE = table([0.02, 0.98], [2.0, -1.0], [0.05, 2.0])


def cdf(weights, means, scales, points):
    """Exact distribution functions at points (rows, points)."""
    parts = [part[:, None, :].numpy() for part in (weights, means, scales)]
    return (parts[0] * stats.norm.cdf(points.numpy()[:, :, None], parts[1], parts[2])).sum(axis=2)


def as_outputs(logits, means, scales):
    """As a network gives mixtures (rows, k): logits, means and widths, (3, 1, k, rows)."""
    return torch.stack([logits, means, width_of(scales)]).mT[:, None]


def log_densities(logits, means, scales, points, barred=0.0):
    """Of mixtures (rows, k) at a point each."""
    return log_density(as_outputs(logits, means, scales), points[None], barred)[0]


@fixed
@given(mixtures(), st.integers(0, 10**6))
def test_log_density_is_that_of_torch(law, seed):
    weights, means, scales = law
    points = 4 * normal(len(weights), seed=seed)
    expected = MixtureSameFamily(Categorical(weights), Normal(means, scales)).log_prob(points)
    torch.testing.assert_close(log_densities(weights.log(), means, scales, points), expected)
    torch.testing.assert_close(
        log_densities(weights.log() + 7, means, scales, points), expected
    )  # logits: any constant


def test_log_density_far_out_does_not_underflow():
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    value = log_densities(zero, zero, one, torch.tensor([1e5], dtype=torch.float64))
    assert value.item() == pytest.approx(-0.5e10 - math.log(2 * math.pi) / 2)


def test_log_density_leaves_out_components_that_are_barred():
    means, scales = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([2.0, 1.0], dtype=torch.float64)
    points = torch.linspace(-9, 9, 7, dtype=torch.float64)
    barred = torch.tensor([0.0, -math.inf], dtype=torch.float64)[:, None]
    found = log_densities(torch.zeros(7, 2), means.expand(7, -1), scales.expand(7, -1), points, barred)
    torch.testing.assert_close(found, torch.as_tensor(stats.norm.logpdf(points, 1, 2)))


@pytest.mark.parametrize("barred", [0.0, torch.tensor([0.0, 0.0, -math.inf, 0.0])[:, None]])
def test_the_derivatives_of_the_log_density_are_those_of_differences(barred):
    """Two networks, two components of Y, rows of common points, and of points for each network."""
    outputs = normal(2, 3, 2, 4, 5, seed=1).requires_grad_()
    for points in (2 * normal(2, 5, seed=2), 2 * normal(2, 2, 5, seed=3)):
        assert torch.autograd.gradcheck(lambda outputs, z=points: log_density(outputs, z, barred), outputs)


def test_a_point_far_from_all_gaussians_pulls_the_nearest_and_moves_no_others():
    """30 deviations out r is 1 for the nearest: derivatives 30 by its mean and 30² − 1 by its scale."""
    ones = torch.ones(1, 2, dtype=torch.float64)
    outputs = as_outputs(0 * ones, torch.tensor([[0.0, -40.0]], dtype=torch.float64), ones).requires_grad_()
    log_density(outputs, torch.full((1, 1), 30.0, dtype=torch.float64)).sum().backward()
    by_logit, by_mean, by_width = outputs.grad[:, 0, :, 0]
    torch.testing.assert_close(by_logit, torch.tensor([0.5, -0.5], dtype=torch.float64))
    torch.testing.assert_close(by_mean, torch.tensor([30.0, 0.0], dtype=torch.float64))
    slope = torch.sigmoid(width_of(ones[0, 0]) + WIDTH_OFFSET).item()
    assert by_width[0].item() == pytest.approx(899 * slope)
    assert by_width[1].item() == pytest.approx(0, abs=1e-9)


@fixed
@given(st.floats(MINIMUM_SCALE + 1e-6, 1e3))
def test_widths_give_their_scales_back(scale):
    """Down to 10⁻⁶ above the least scale, below which a width is cut."""
    exact = torch.tensor(scale, dtype=torch.float64)
    torch.testing.assert_close(scale_of(width_of(exact)), exact, rtol=1e-9, atol=0)


def test_the_width_of_the_least_scale_is_cut():
    least = torch.tensor([MINIMUM_SCALE, 0.0], dtype=torch.float64)
    torch.testing.assert_close(scale_of(width_of(least)), torch.full_like(least, MINIMUM_SCALE + 1e-6))


def test_the_log_density_has_neither_second_derivatives_nor_one_by_the_point():
    outputs, z = normal(3, 1, 2, 4, seed=4).requires_grad_(), normal(1, 4, seed=5)
    (first,) = torch.autograd.grad(log_density(outputs, z).square().sum(), outputs, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
    with pytest.raises(NotImplementedError, match="`z` takes no gradient"):
        log_density(outputs, z.requires_grad_())


@pytest.mark.parametrize(("dtype", "reach", "atol"), [(torch.float64, 5.5, 1e-6), (torch.float32, 3.0, 1e-4)])
def test_scores_of_one_gaussian_are_standardised_points(dtype, reach, atol):
    """Rounding of F near one, 10⁻¹⁶ or 6·10⁻⁸, counts by 1/φ(reach): 10⁷ at 5.5, 220 at 3."""
    mean, scale = torch.tensor([[-2.0], [30.0]], dtype=dtype), torch.tensor([[0.1], [7.0]], dtype=dtype)
    standard = torch.linspace(-reach, reach, 101, dtype=dtype)
    scores = normal_scores(torch.ones(2, 1, dtype=dtype), mean, scale, mean + scale * standard)
    assert scores.dtype == torch.float64
    torch.testing.assert_close(scores, standard.double().expand(2, -1), atol=atol, rtol=1e-4)


def test_scores_are_cut_at_the_edge():
    one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    far = torch.tensor([[-1e300, -6.0, 6.0, 1e300]], dtype=torch.float64)
    assert normal_scores(one, zero, one, far).tolist() == [[-EDGE, -EDGE, EDGE, EDGE]]


@fixed
@given(mixtures())
def test_scores_are_normal_quantiles_of_the_cdf(law):
    points = torch.linspace(-4, 4, 33, dtype=torch.float64).expand(len(law[0]), -1)
    scores = normal_scores(*law, points)
    np.testing.assert_allclose(stats.norm.cdf(scores), cdf(*law, points), atol=2e-8)  # 2e-8 lies beyond the edge
    assert (scores.diff(dim=1) >= 0).all()


def error_in_probability(law, dtype):
    """Largest |F(q) − Φ(score)|; quantiles must increase with the score."""
    found = quantiles(*(part.to(dtype) for part in law), SCORES)
    assert found.shape == (len(law[0]), len(SCORES))
    assert (found.diff(dim=1) >= -1e-12).all()
    return np.abs(cdf(*law, found) - stats.norm.cdf(SCORES)).max()


precisions = st.sampled_from([torch.float64, torch.float32])


@fixed
@example(GAPS, torch.float64)
@example(GAPS, torch.float32)
@example(SPIKE, torch.float64)
@given(mixtures(), precisions)
def test_quantiles_invert_the_distribution_function_roughly(law, dtype):
    assert error_in_probability(law, dtype) < 0.03


@pytest.mark.parametrize("law", [table([0.5, 0.5], [-3.0, 3.0], [0.05, 0.05]), table([1.0], [2.0], [0.05])])
def test_quantiles_of_one_or_two_modes(law):
    assert error_in_probability(law, torch.float64) < 1e-3


@fixed
@given(mixtures())
def test_tails_keep_their_reach(law):
    """In the tails the score itself, not the probability, is met: to 0.05 at ±4.5, where 3·10⁻⁶ of the mass lies."""
    scores = normal_scores(*law, quantiles(*law, SCORES))
    tails = SCORES.abs() >= 3
    torch.testing.assert_close(scores[:, tails], SCORES[tails].expand(len(scores), -1), atol=0.05, rtol=0)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_quantiles_follow_shift_and_scale(factor, shift):
    weights, means, scales = SPIKE
    expected = factor * (quantiles(weights, means, scales, SCORES) + shift)
    found = quantiles(weights, factor * (means + shift), factor * scales, SCORES)
    torch.testing.assert_close(found, expected, atol=1e-6 * factor, rtol=1e-9)


@pytest.mark.parametrize("elements", [1, 1500])
def test_chunks_do_not_change_the_answers(elements, monkeypatch):
    uniform = torch.rand(3, 23, 3, generator=generator(0), dtype=torch.float64)
    weights = uniform[0] / uniform[0].sum(dim=1, keepdim=True)
    law = weights, uniform[1], 0.5 + uniform[2]
    whole = quantiles(*law, SCORES)
    monkeypatch.setattr(mixture, "CHUNK_ELEMENTS", elements)
    torch.testing.assert_close(quantiles(*law, SCORES), whole, atol=1e-10, rtol=0)


def test_a_row_alone_has_the_quantiles_it_has_among_others():
    """In single precision and of as many Gaussians as a pool has."""
    uniform = torch.rand(3, 7, 80, generator=generator(1))
    law = uniform[0] / uniform[0].sum(dim=1, keepdim=True), 6 * uniform[1] - 3, 0.05 + uniform[2]
    together = quantiles(*law, SCORES)
    for row in range(7):
        torch.testing.assert_close(
            quantiles(*(part[row : row + 1] for part in law), SCORES)[0], together[row], atol=1e-9, rtol=0
        )


def test_no_rows_no_quantiles():
    empty = torch.zeros(0, 3)
    assert quantiles(empty, empty, empty, SCORES).shape == (0, len(SCORES))


def test_many_light_components_far_away_still_count():
    """Sixty Gaussians of weight 9·10⁻⁵ at 10 hold 0.54 % of the mass: the 99.9 % quantile lies among them."""
    weights = torch.full((1, 61), 9e-5, dtype=torch.float64)
    weights[0, 0] = 1 - 60 * 9e-5
    means = torch.full((1, 61), 10.0, dtype=torch.float64)
    means[0, 0] = 0.0
    law = weights, means, torch.ones(1, 61, dtype=torch.float64)
    level = torch.tensor([0.999], dtype=torch.float64)
    found = quantiles(*law, torch.special.ndtri(level))
    np.testing.assert_allclose(cdf(*law, found), 0.999, atol=1e-3)
