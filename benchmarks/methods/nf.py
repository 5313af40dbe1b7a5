"""Normalizing flows (Rezende & Mohamed 2015; Papamakarios et al. 2017; Durkan et al. 2019) with normflows and zuko."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.methods.base import Array, row_chunks
from benchmarks.methods.neural import TUNED, Neural, Training

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Flow(Neural):
    """y = T(z; x) with z standard normal and T increasing, so P(Y ≤ y | x) = Φ(T⁻¹(y; x)) without any integration."""

    @abstractmethod
    def _to_normal(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """z = T⁻¹(y; x) and log dz/dy, (rows, points) as y."""

    @abstractmethod
    def _from_normal(self, x: Tensor, z: Tensor) -> Tensor:
        """y = T(z; x), (rows, points) as z."""

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        z, log_slope = self._to_normal(x, y[:, None])
        return (0.5 * z.square() + HALF_LOG_TWO_PI - log_slope).mean()

    @torch.no_grad()
    def _quantiles(self, X: Array, levels: Array) -> Array:
        z = torch.special.ndtri(torch.as_tensor(levels, dtype=self._dtype, device=self._device))
        parts = []
        for rows in self._chunks(X, len(levels)):
            x = self._x_inputs(X[rows])
            parts.append(self._from_normal(x, z.expand(len(x), -1)).cpu().numpy())
        return self._y_mean + self._y_scale * np.concatenate(parts)

    @torch.no_grad()
    def _cdf(self, X: Array, grid: Array) -> Array:
        y, parts = self._y_inputs(grid), []
        for rows in self._chunks(X, len(grid)):
            x = self._x_inputs(X[rows])
            z, _ = self._to_normal(x, y.expand(len(x), -1))
            parts.append(torch.special.ndtr(z).cpu().numpy())
        return np.concatenate(parts)

    @torch.no_grad()
    def _pdf(self, X: Array, points: Array) -> Array:
        answer = np.empty(points.shape)
        for rows in self._chunks(X, points.shape[1]):
            z, log_slope = self._to_normal(self._x_inputs(X[rows]), self._y_inputs(points[rows]))
            answer[rows] = (log_slope - 0.5 * z.square() - HALF_LOG_TWO_PI).exp().cpu().numpy() / self._y_scale
        return answer

    @staticmethod
    def _chunks(X: Array, n_points: int) -> list[slice]:
        return row_chunks(len(X), n_points * max(128, X.shape[1]))


class PaperFlow(Flow):
    """The flows of Kostic et al. 2024, from normflows: two autoregressive flows, each followed by an LU permutation.

    `kind="affine"`, two hidden layers of 64, is that of the density benchmark. With one y an affine flow of a normal
    law is a normal law: mean and scale depend on x, the shape does not. `kind="spline"`, two blocks of 128, is that of
    the intervals. Trained as the paper's NCP, Adam at 10⁻³ and at most 10⁴ steps, but on batches of 1,000.
    """

    package = "normflows"

    def __init__(self, kind: str = "affine", max_steps: int = 10_000, hidden_size: int = 64) -> None:
        self.kind, self.hidden_size = kind, hidden_size
        self.training = Training(max_steps=max_steps, batch_size=1000)

    def _network(self, X: Tensor, y: Tensor, seed: int) -> nn.Module:
        import normflows

        layers: list[nn.Module] = []
        for _ in range(2):
            if self.kind == "affine":
                layers.append(normflows.flows.MaskedAffineAutoregressive(1, self.hidden_size, X.shape[1], num_blocks=2))
            else:
                layers.append(normflows.flows.AutoregressiveRationalQuadraticSpline(1, 2, self.hidden_size, X.shape[1]))
            layers.append(normflows.flows.LULinearPermute(1))
        return normflows.ConditionalNormalizingFlow(normflows.distributions.DiagGaussian(1), layers)

    def _to_normal(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        base = self.network.q0
        z, log_slope = self.network.inverse_and_log_det(y.reshape(-1, 1), x.repeat_interleave(y.shape[1], dim=0))
        standard = (z - base.loc) / base.log_scale.exp()
        return standard.reshape(y.shape), log_slope.reshape(y.shape) - base.log_scale

    def _from_normal(self, x: Tensor, z: Tensor) -> Tensor:
        base = self.network.q0
        start = base.loc + base.log_scale.exp() * z.reshape(-1, 1)
        return self.network(start, x.repeat_interleave(z.shape[1], dim=0)).reshape(z.shape)

    def _describe(self) -> str:
        return f"normflows, 2 {self.kind} autoregressive flows of 2x{self.hidden_size} with LU permutations"


class TunedFlow(Flow):
    """Neural spline flow from zuko: an affine map and a rational-quadratic spline of y, with parameters from x.

    With one y an autoregressive flow is an element-wise one, whose networks need to be asked once per row.
    """

    package = "zuko"

    def __init__(self, max_steps: int = 5000, hidden_sizes: tuple[int, ...] = (64, 64), bins: int = 8) -> None:
        self.hidden_sizes, self.bins = tuple(hidden_sizes), bins
        self.training = replace(TUNED, max_steps=max_steps)

    def _network(self, X: Tensor, y: Tensor, seed: int) -> nn.Module:
        from zuko.flows.gaussianization import ElementWiseTransform
        from zuko.transforms import MonotonicRQSTransform

        width, shapes = X.shape[1], [(self.bins,), (self.bins,), (self.bins - 1,)]
        options = {"hidden_features": self.hidden_sizes, "activation": nn.SiLU}
        spline = ElementWiseTransform(1, width, univariate=MonotonicRQSTransform, shapes=shapes, **options)
        return nn.ModuleList([ElementWiseTransform(1, width, **options), spline])

    def _to_normal(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z, total = y[..., None], torch.zeros_like(y)
        for layer in self.network:
            z, log_slope = layer(x[:, None]).call_and_ladj(z)
            total = total + log_slope
        return z[..., 0], total

    def _from_normal(self, x: Tensor, z: Tensor) -> Tensor:
        y = z[..., None]
        for layer in reversed(self.network):
            y = layer(x[:, None]).inv(y)
        return y[..., 0]

    def _describe(self) -> str:
        sizes = "x".join(map(str, self.hidden_sizes))
        return f"zuko, affine map and rational-quadratic spline of {self.bins} bins, {sizes} SiLU"
