"""Gaussian mixtures, many at once: read from networks, density, distribution function, quantiles. Formulas only."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Components = Float[Tensor, "rows components"]
Points = Float[Tensor, "rows points"]

MINIMUM_SCALE = 1e-3  # of the marginal scale: keeps a deterministic relation Y = m(X) finite
WIDTH_OFFSET = 0.5
LEAST_LOG = -60.0  # beside zero: lost in any sum, while exponentials of less than −87 take ten times as long on a CPU
EDGE = 5.5  # normal scores beyond are not looked for: 2e-8 of the mass
COARSE, MIDDLE, FINE = 33, 65, 128  # points at which a distribution function is evaluated to invert it
NEAR = 1e-3  # normal scores
SMALL = 1e-12  # instead of zero in a denominator
CHUNK_ELEMENTS = 2**20  # 4 MiB: larger temporaries leave the cache


def scale_of(width: Tensor) -> Tensor:
    """Scale of a Gaussian from a number of any sign: softplus(width + ½) + `MINIMUM_SCALE`.

    Examples
    --------
    >>> scale_of(torch.tensor([-50.0, 0.0, 50.0]))
    tensor([1.0000e-03, 9.7508e-01, 5.0501e+01])
    """
    return nn.functional.softplus(width + WIDTH_OFFSET) + MINIMUM_SCALE


def width_of(scale: Tensor) -> Tensor:
    """The number with that scale; far down where the scale is no larger than `MINIMUM_SCALE`.

    Examples
    --------
    >>> [round(scale, 3) for scale in scale_of(width_of(torch.tensor([0.0, 0.5, 2.0]))).tolist()]
    [0.001, 0.5, 2.0]
    """
    above = (scale - MINIMUM_SCALE).clamp(min=1e-6)
    return above + torch.log(-torch.expm1(-above)) - WIDTH_OFFSET


def log_density(
    outputs: Float[Tensor, "*networks 3 q k rows"], z: Float[Tensor, "*#networks q rows"], barred: Tensor | float = 0.0
) -> Float[Tensor, "*networks q rows"]:
    """log Σ_k w_k φ((z − m_k)/s_k)/s_k of mixtures as networks give them: logits of w, means, widths of s.

    `barred`, of a shape that can be added to the logits (*networks, q, k, rows), is −∞ for Gaussians that are not to be
    used. Differentiable once, in `outputs` alone, by formulas: with r_k the probability of Gaussian k given z and
    u_k = (z − m_k)/s_k, the derivatives by logit, mean and scale are r_k − w_k, r_k u_k/s_k and r_k (u_k² − 1)/s_k
    (Bishop 1994). Twice as fast as letting torch derive them, above all with rows last.

    Examples
    --------
    >>> standard = torch.stack([torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), width_of(torch.ones(1, 1, 1))])
    >>> log_density(standard, torch.zeros(1, 1))  # −½ log 2π
    tensor([[-0.9189]])
    """
    return _LogDensity.apply(outputs, z, barred)


class _LogDensity(torch.autograd.Function):
    """Temporaries are written over as soon as they are not needed: memory traffic is what this costs."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, z: Tensor, barred: Tensor | float) -> Tensor:
        if ctx.needs_input_grad[1]:
            raise NotImplementedError("`z` takes no gradient here; got one that requires it. Detach it.")
        logits, means, widths = outputs.unbind(dim=-4)
        logits = logits + barred
        scales = scale_of(widths)
        inverse = scales.reciprocal()
        u = (z.unsqueeze(-2) - means).mul_(inverse)
        joint = torch.addcmul(logits, u, u, value=-0.5).sub_(scales.log_())
        highest, highest_logit = joint.amax(dim=-2, keepdim=True), logits.amax(dim=-2, keepdim=True)
        given = joint.sub_(highest).clamp_(min=LEAST_LOG).exp_()
        prior = logits.sub_(highest_logit).clamp_(min=LEAST_LOG).exp_()
        total, total_prior = given.sum(dim=-2, keepdim=True), prior.sum(dim=-2, keepdim=True)
        density = highest + total.log() - highest_logit - total_prior.log()
        if ctx.needs_input_grad[0]:
            gradient = torch.empty_like(outputs)
            by_logit, by_mean, by_width = gradient.unbind(dim=-4)
            given.div_(total)
            torch.sub(given, prior.div_(total_prior), out=by_logit)
            inverse.mul_(given)
            torch.mul(inverse, u, out=by_mean)
            torch.addcmul(inverse.neg_(), by_mean, u, out=by_width)
            by_width.mul_(torch.sigmoid(widths + WIDTH_OFFSET))  # the derivative of softplus
            ctx.save_for_backward(gradient)
        return density.squeeze(-2) - math.log(2 * math.pi) / 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * above.unsqueeze(-2).unsqueeze(-4), None, None


def normal_scores(weights: Components, means: Components, scales: Components, z: Points) -> Points:
    """Φ⁻¹(F(z)) of each mixture at its own points, float64, cut at ±`EDGE`.

    Examples
    --------
    >>> one = torch.ones(1, 1)
    >>> normal_scores(one, one, 2 * one, torch.tensor([[1.0, 3.0]]))  # N(1, 2²) at its mean and one deviation above
    tensor([[0.0000, 1.0000]], dtype=torch.float64)
    """
    standard = (z[:, :, None] - means[:, None, :]) * (1 / (scales * math.sqrt(2)))[:, None, :]
    # No matrix product: of a single row it rounds otherwise, and where quantiles are looked for hangs on last digits.
    cdf = (torch.erf(standard) * weights[:, None, :]).sum(dim=2).double() / 2 + 0.5
    return torch.special.ndtri(cdf.clamp(1e-12, 1 - 1e-12)).clamp(-EDGE, EDGE)


def quantiles(
    weights: Components, means: Components, scales: Components, scores: Float[Tensor, " levels"]
) -> Float[Tensor, "rows levels"]:
    """z with F(z) = Φ(score), for all rows and increasing scores inside ±`EDGE`; in chunks of bounded size.

    F is evaluated on an even grid that covers all components, then at even normal scores, then where the density still
    bends between neighbours; the inverse is an increasing cubic through all points seen. The error in probability is
    about 1e-4 for smooth laws, at most about 0.015 beside modes a hundred times narrower than the range, and more
    beside modes narrower than a thousandth of it.

    Examples
    --------
    >>> one = torch.ones(1, 1)
    >>> quantiles(one, one, 2 * one, torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)).round(decimals=3) + 0.0
    tensor([[-1.,  1.,  3.]], dtype=torch.float64)
    """
    width = FINE * weights.shape[1]
    step = max(1, CHUNK_ELEMENTS // width)
    parts = [slice(start, start + step) for start in range(0, max(1, len(weights)), step)]
    return torch.cat([_quantiles(weights[rows], means[rows], scales[rows], scores) for rows in parts])


def _quantiles(weights: Components, means: Components, scales: Components, scores: Tensor) -> Tensor:
    counted = weights > 1e-6 / weights.shape[1]  # together they would be one millionth of the mass
    low = torch.where(counted, means - EDGE * scales, torch.inf).amin(dim=1, keepdim=True)
    high = torch.where(counted, means + EDGE * scales, -torch.inf).amax(dim=1, keepdim=True)
    points = low + (high - low) * torch.linspace(0, 1, COARSE, dtype=low.dtype, device=low.device)
    values = normal_scores(weights, means, scales, points)
    for place in (_even_scores, _where_it_bends):
        more = place(points, values).to(means.dtype)
        found = normal_scores(weights, means, scales, more)
        points, order = torch.cat([points, more], dim=1).sort(dim=1)
        values = torch.cat([values, found], dim=1).gather(1, order).cummax(dim=1).values
    return _inverse(points, values, scores, _slopes(points.double(), values))


def _even_scores(points: Tensor, values: Tensor) -> Tensor:
    """`MIDDLE` points per row at which even normal scores seem to lie."""
    return _inverse(points, values, torch.linspace(-EDGE, EDGE, MIDDLE, dtype=values.dtype, device=values.device))


def _where_it_bends(points: Tensor, values: Tensor) -> Tensor:
    """`FINE` points per row, dense where linear interpolation of F errs most.

    On a piece of width h its error is h²|F″|/8 and |F″| about the change of the density from piece to piece, over h.
    Points spread by the root of the error make it even (de Boor 1973); a share is kept for an even spread over pieces.
    """
    width = points.double().diff(dim=1).clamp(min=SMALL)
    density = torch.special.ndtr(values).diff(dim=1) / width
    change = nn.functional.pad(density.diff(dim=1).abs(), (1, 1))
    wanted = (torch.maximum(change[:, 1:], change[:, :-1]) * width).sqrt()
    wanted = wanted / wanted.sum(dim=1, keepdim=True).clamp(min=SMALL) + 0.5 / wanted.shape[1]
    mass = nn.functional.pad(wanted.cumsum(dim=1), (1, 0))
    even = torch.linspace(0, 1, FINE, dtype=mass.dtype, device=mass.device)
    return _inverse(points, mass / mass[:, -1:], even)


def _slopes(points: Tensor, values: Tensor) -> Tensor:
    """d point / d value at the points that keep a cubic through them increasing (Fritsch & Butland 1984)."""
    steps = values.diff(dim=1).clamp(min=SMALL)
    secants = points.diff(dim=1) / steps
    before, after = steps[:, :-1], steps[:, 1:]
    low, high = secants[:, :-1].clamp(min=SMALL), secants[:, 1:].clamp(min=SMALL)
    # Between points that nearly coincide a secant is rounding: the other side tells the slope.
    low, high = torch.where(before > NEAR, low, high), torch.where(after > NEAR, high, low)
    inner = 3 * (before + after) / ((2 * after + before) / low + (after + 2 * before) / high)
    return torch.cat([secants[:, :1], inner, secants[:, -1:]], dim=1)


def _inverse(points: Tensor, values: Tensor, wanted: Tensor, slopes: Tensor | None = None) -> Tensor:
    """Where increasing values (rows, n) at sorted points reach the wanted levels: linear between them, or cubic."""
    levels = wanted.expand(len(values), -1).contiguous()
    right = torch.searchsorted(values.contiguous(), levels).clamp(1, values.shape[1] - 1)
    low, high = values.gather(1, right - 1), values.gather(1, right)
    step = (high - low).clamp(min=SMALL)
    share = ((levels - low) / step).clamp(0, 1)
    points = points.double()
    first, last = points.gather(1, right - 1), points.gather(1, right)
    if slopes is None:
        return torch.lerp(first, last, share)
    rise, rest = last - first, 1 - share
    bend = rest * (slopes.gather(1, right - 1) * step - rise) - share * (slopes.gather(1, right) * step - rise)
    return first + share * (rise + rest * bend)
