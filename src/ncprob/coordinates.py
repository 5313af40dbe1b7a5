"""Coordinates of Y in which the operator is learned.

Raw: Y itself (the paper). Residual: Y' = (Y − m(X)) / s(X) with a robust conditional location m and scale s; narrow
conditional laws need a high rank in raw coordinates and almost none in residual ones. Answers map back by
q_Y = m + s·q_{Y'} and F_Y(t | x) = F_{Y'}((t − m)/s | x).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncprob.encoders import gate_penalty
from ncprob.optimization import History, Runtime, Schedule, minimize
from ncprob.pairs import TensorPairs, select
from ncprob.preprocessing import NORMAL_IQR, robust_center_and_scale

FOLDS = 3
MINIMUM_SCALE = 1e-3  # of the marginal scale: keeps a deterministic relation Y = m(X) finite


class LocationScale(nn.Module):
    """Quartile networks, one per fold, giving a conditional median and a scale (interquartile range / 1.349).

    Every network is trained without the rows of its fold, by the pinball loss at 25, 50 and 75 % (Koenker &
    Bassett 1978), which heavy tails do not disturb. A training row gets its answer from the network that has
    not seen it, so residuals of training rows are as large as those of new rows; a new row gets the average
    over networks.

    Parameters
    ----------
    make_network : callable
        Builds a network with the given number of outputs: three per component of Y.
    n_components : int
        Components of Y.
    """

    center: Tensor
    spread: Tensor

    def __init__(self, make_network: Callable[[int], nn.Module], n_components: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(make_network(3 * n_components) for _ in range(FOLDS))
        self.n_components = n_components
        self.register_buffer("center", torch.zeros(n_components, dtype=torch.float64))
        self.register_buffer("spread", torch.ones(n_components, dtype=torch.float64))

    def _quartiles(self, x: Any) -> tuple[Tensor, Tensor, Tensor]:
        """25, 50, 75 % points in standard units, each (folds, rows, components)."""
        outputs = torch.stack([network(x) for network in self.networks])
        median, below, above = outputs.unflatten(-1, (3, self.n_components)).unbind(dim=-2)
        widths = nn.functional.softplus(torch.stack([below, above])) + MINIMUM_SCALE
        return median - widths[0], median, median + widths[1]

    def pinball(self, x: Any, standard_y: Float[Tensor, "rows components"]) -> Float[Tensor, "folds rows"]:
        """Pinball loss of the three quartiles, summed, per fold and row."""
        total = torch.zeros((), device=standard_y.device)
        for level, quartile in zip((0.25, 0.5, 0.75), self._quartiles(x), strict=True):
            error = standard_y - quartile
            total = total + torch.maximum(level * error, (level - 1) * error)
        return total.sum(dim=-1)

    @torch.no_grad()
    def forward(self, x: Any, fold: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Location and scale in units of Y, float64: out of fold where `fold` is given, else averaged."""
        lower, median, upper = (part.double() for part in self._quartiles(x))
        parts = torch.stack([median, (upper - lower) / NORMAL_IQR])
        if fold is None:
            location, scale = parts.mean(dim=1)
        else:
            location, scale = parts[:, fold, torch.arange(len(fold), device=fold.device)]
        return self.center + self.spread * location, self.spread * scale

    def fit(
        self,
        x: Any,
        y: Float[Tensor, "rows components"],
        weights: Tensor | None,
        schedule: Schedule,
        runtime: Runtime,
        gate_strength: float,
    ) -> History:
        """Train all folds at once; the score is the out-of-fold pinball loss, so no row is set aside."""
        center, spread = robust_center_and_scale(y)
        self.center.copy_(center)
        self.spread.copy_(spread)
        fold = fold_numbers(len(y), y.device)
        data = TensorPairs(x, {"y": ((y - center) / spread).float(), "fold": fold}, weights)
        folds = torch.arange(FOLDS, device=y.device)[:, None]

        def objective(x: Any, target: dict[str, Tensor]) -> Tensor:
            seen = (folds != target["fold"]).float()
            loss = (self.pinball(x, target["y"]) * seen).sum() / seen.sum()
            return loss * FOLDS + gate_strength * gate_penalty(self).to(loss.device)

        @torch.no_grad()
        def score() -> float:
            total = 0.0
            for part, target, _ in data.chunks(65536):
                unseen = (folds == target["fold"]).float()
                total += float((self.pinball(part, target["y"]).double() * unseen).sum())
            return total / len(data)

        return minimize(
            self,
            objective,
            data,
            score=score,
            schedule=schedule,
            runtime=runtime,
            settings={"gate": gate_strength},
        )


def fold_numbers(n: int, device: torch.device | None = None) -> Tensor:
    """Fold of every row: rows are taken as exchangeable (the caller shuffles), so folds simply alternate."""
    return torch.arange(n, device=device) % FOLDS


def out_of_fold(
    model: LocationScale, x: Any, n: int, device: torch.device, chunk: int = 65536
) -> tuple[Tensor, Tensor]:
    """Location and scale of the training rows, each from the network that has not seen it."""
    fold = fold_numbers(n, device)
    parts = [model(select(x, slice(b, b + chunk)), fold[b : b + chunk]) for b in range(0, n, chunk)]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
