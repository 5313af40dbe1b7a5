"""Neural Conditional Probability as in the paper: the same networks, optimiser and post-processing, nothing added."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import isotonic_regression
from torch import Tensor

from benchmarks.methods.base import Array, Tabular, accelerator, gaussian, hold_out, row_chunks
from ncprob.encoders import MLP
from ncprob.losses import covariance_loss, orthonormality_penalty, u_statistic_loss
from ncprob.operator import SpectralOperator


class Epoch(NamedTuple):
    """What a callback is told after every epoch.

    `loss` is that of the training rows before the step, `held_loss` that of the validation rows after it; `pairs` are
    the training rows as the networks take them.
    """

    number: int
    loss: float
    held_loss: float
    operator: SpectralOperator
    pairs: tuple[Tensor, Tensor]


class PaperNCP(Tabular):
    """NCP, NCP-C or NCP-W of Kostic et al. 2024, appendix C.1.

    X and Y standardised; both networks with two hidden layers of 64 GELU units; rank 100, γ = 10⁻³; Adam at 10⁻³ on
    the full batch, split anew into two random halves in every epoch; at most 10⁴ epochs, stopped after 1,000 without
    progress of the loss on 1,000 extra rows (a tenth of the rows where there are none). The distribution function is
    that of the training y weighted by r(x, y), made monotone by isotonic regression and divided by its last value; the
    density is r(x, y) times a kernel estimate of the marginal density (Scott's bandwidth), cut at zero.

    Parameters
    ----------
    postprocessing : {"none", "centering", "whitening"}
        What is done with the trained features.
    max_steps, rank, hidden_sizes, gamma, learning_rate, patience
        As above.
    callback : callable, optional
        Called with an `Epoch` after every epoch; it must leave the operator as it is.
    """

    wants_validation = True

    def __init__(
        self,
        postprocessing: str = "whitening",
        max_steps: int = 10_000,
        rank: int = 100,
        hidden_sizes: tuple[int, ...] = (64, 64),
        gamma: float = 1e-3,
        learning_rate: float = 1e-3,
        patience: int = 1000,
        callback: Callable[[Epoch], None] | None = None,
    ) -> None:
        self.postprocessing, self.max_steps, self.rank = postprocessing, max_steps, rank
        self.hidden_sizes, self.gamma, self.learning_rate, self.patience = hidden_sizes, gamma, learning_rate, patience
        self.callback = callback

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        if validation is None:
            X, y, *held = hold_out(X, y, seed)
        else:
            held = list(validation)
        self._x_mean, self._x_scale = X.mean(axis=0), X.std(axis=0)
        self._x_scale[self._x_scale == 0] = 1.0
        self._y_mean, self._y_scale = y.mean(), y.std() or 1.0
        torch.manual_seed(seed)
        self._device = accelerator()
        pairs, held_pairs = self._pairs(X, y), self._pairs(held[0], held[1])
        x_encoder, y_encoder = (MLP(width, self.hidden_sizes, self.rank) for width in (X.shape[1], 1))
        self.operator = SpectralOperator(x_encoder, y_encoder, self.rank).to(self._device)
        self._train(pairs, held_pairs)
        self.operator.postprocess(pairs, kind=self.postprocessing)  # type: ignore[arg-type]
        self._atoms = np.sort(y)
        with torch.no_grad():
            self._right = self.operator.right_features(self._y_inputs(self._atoms))

    def _train(self, pairs: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor]) -> None:
        optimizer = torch.optim.Adam(self.operator.parameters(), lr=self.learning_rate)
        best, best_step, best_state = float("inf"), 0, copy.deepcopy(self.operator.state_dict())
        for step in range(1, self.max_steps + 1):
            order = torch.randperm(len(pairs[0])).to(self._device)
            u, v = self.operator.encode(pairs[0][order], pairs[1][order])
            loss = covariance_loss(u, v, self.operator.singular_values) + self.gamma * orthonormality_penalty(u, v)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            score = self._score(held)
            if self.callback is not None:
                self.callback(Epoch(step, float(loss.detach()), score, self.operator, pairs))
            if score < best:
                best, best_step, best_state = score, step, copy.deepcopy(self.operator.state_dict())
            if step - best_step >= self.patience:
                break
        self.operator.load_state_dict(best_state)
        self.settings = (
            f"paper; {self.postprocessing}, {'x'.join(map(str, self.hidden_sizes))} GELU, rank {self.rank}, "
            f"gamma {self.gamma:g}, Adam {self.learning_rate:g}, full batch, best epoch {best_step} of {step}"
        )

    @torch.no_grad()
    def _score(self, held: tuple[Tensor, Tensor]) -> float:
        u, v = self.operator.encode(*held)
        return float(u_statistic_loss(u, v, self.operator.singular_values) + self.gamma * orthonormality_penalty(u, v))

    def _x_inputs(self, X: Array) -> Tensor:
        return torch.as_tensor((X - self._x_mean) / self._x_scale, dtype=torch.float32, device=self._device)

    def _y_inputs(self, y: Array) -> Tensor:
        standard = (y - self._y_mean) / self._y_scale
        return torch.as_tensor(standard, dtype=torch.float32, device=self._device)[:, None]

    def _pairs(self, X: Array, y: Array) -> tuple[Tensor, Tensor]:
        return self._x_inputs(X), self._y_inputs(y)

    @torch.no_grad()
    def _ratios(self, X: Array, right: Tensor) -> Array:
        """r(x_i, y_j) = 1 + Σ_k σ_k u_k(x_i) v_k(y_j)."""
        left = self.operator.left_features(self._x_inputs(X)) * self.operator.singular_values
        return 1 + (left @ right.mT).double().cpu().numpy()

    def _at_atoms(self, X: Array) -> Array:
        """P(Y ≤ y_j | x_i) at the sorted training y."""
        ratio = self._ratios(X, self._right)
        cdf = np.stack([isotonic_regression(row).x for row in np.cumsum(ratio, axis=1) / len(self._atoms)])
        marginal = np.arange(1, len(self._atoms) + 1) / len(self._atoms)
        last = cdf[:, -1:]
        # Without centring the total mass is not one and may even be negative: then only the marginal law is left.
        return np.clip(np.where(last > 1e-6, cdf / np.maximum(last, 1e-6), marginal), 0.0, 1.0)

    def _quantiles(self, X: Array, levels: Array) -> Array:
        answer = np.empty((len(X), len(levels)))
        for rows in row_chunks(len(X), len(self._atoms)):
            for target, cdf in zip(answer[rows], self._at_atoms(X[rows]), strict=True):
                target[:] = self._atoms[np.minimum(np.searchsorted(cdf, levels), len(cdf) - 1)]
        return answer

    def _cdf(self, X: Array, grid: Array) -> Array:
        below = np.searchsorted(self._atoms, grid, side="right")
        parts = [self._at_atoms(X[rows]) for rows in row_chunks(len(X), len(self._atoms))]
        return np.concatenate([np.pad(part, ((0, 0), (1, 0)))[:, below] for part in parts])

    def mean(self, X: Any) -> Array:
        """E[y | X] = Σ_j y_j r(x, y_j)/n, the formula of the paper, not repaired."""
        numbers = self.numbers(X)
        parts = [self._ratios(numbers[rows], self._right) for rows in row_chunks(len(numbers), len(self._atoms))]
        return np.concatenate([part @ self._atoms / len(self._atoms) for part in parts])

    @torch.no_grad()
    def _pdf(self, X: Array, points: Array) -> Array:
        marginal, bandwidth = np.zeros(points.shape), self._atoms.std() * len(self._atoms) ** -0.2
        answer = np.empty(points.shape)
        for i, at in enumerate(points):
            if i == 0 or not np.array_equal(at, points[i - 1]):
                right = self.operator.right_features(self._y_inputs(at))
                marginal = gaussian(at[:, None] - self._atoms, bandwidth).mean(axis=1)
            answer[i] = np.maximum(self._ratios(X[i : i + 1], right)[0], 0.0) * marginal
        return answer
