"""Answers of networks whose law is a mixture of normal laws: exact distribution function, density and mean."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.methods.base import Array, FromCDF, row_chunks
from benchmarks.methods.neural import Neural


class GaussianMixtureNetwork(Neural, FromCDF):
    """p(y | x) = Σ_k w_k(x) N(y; m_k(x), s_k(x)²), fitted by maximum likelihood.

    With `x_noise` and `y_noise`, in standard deviations, normal noise is added anew to every batch, the regularisation
    of Rothfuss et al. 2019; the held-out rows have none.
    """

    x_noise: float = 0.0
    y_noise: float = 0.0

    @abstractmethod
    def _components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log w, m, s of standardised y, each broadcastable to (rows, components)."""

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        if self.x_noise:
            x = x + self.x_noise * torch.randn_like(x)
        if self.y_noise:
            y = y + self.y_noise * torch.randn_like(y)
        return self._held_out_loss(x, y)

    def _held_out_loss(self, x: Tensor, y: Tensor) -> Tensor:
        return -log_density(*self._components(x), y[:, None]).mean()

    def _noise_in_words(self) -> str:
        return f"noise {self.x_noise:g} sd on x and {self.y_noise:g} sd on y" if self.x_noise else "no noise"

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        super()._fit(X, y, seed, validation)
        self._grid = self.reading_grid(y, margin=2 * self._y_scale)

    @torch.no_grad()
    def _cdf(self, X: Array, grid: Array) -> Array:
        points, answer = self._y_inputs(grid)[:, None], np.empty((len(X), len(grid)))
        log_weights, means, scales = self._components(self._x_inputs(X))
        weights = log_weights.exp()
        if len(means) == 1:  # kernels that do not depend on x
            return np.clip((weights @ torch.special.ndtr((points - means) / scales).mT).cpu().numpy(), 0.0, 1.0)
        for row in range(len(X)):
            answer[row] = (torch.special.ndtr((points - means[row]) / scales[row]) @ weights[row]).cpu().numpy()
        return np.clip(answer, 0.0, 1.0)

    @torch.no_grad()
    def _pdf(self, X: Array, points: Array) -> Array:
        answer = np.empty(points.shape)
        for rows in row_chunks(len(X), 100 * points.shape[1]):
            logs = log_density(
                *(part[..., None, :] for part in self._components(self._x_inputs(X[rows]))),
                self._y_inputs(points[rows])[..., None],
            )
            answer[rows] = logs.exp().cpu().numpy() / self._y_scale
        return answer

    @torch.no_grad()
    def mean(self, X: Any) -> Array:
        """E[y | X] = Σ_k w_k(x) m_k(x)."""
        log_weights, means, _ = self._components(self._x_inputs(self.numbers(X)))
        return self._y_mean + self._y_scale * (log_weights.exp() * means).sum(dim=1).cpu().numpy()


def log_density(log_weights: Tensor, means: Tensor, scales: Tensor, y: Tensor) -> Tensor:
    """log Σ_k w_k N(y; m_k, s_k²) over the last axis."""
    logs = log_weights - 0.5 * ((y - means) / scales).square() - scales.log()
    return logs.logsumexp(dim=-1) - 0.5 * math.log(2 * math.pi)
