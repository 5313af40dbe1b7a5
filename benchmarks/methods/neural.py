"""What rivals made of a neural network share: standardised data and one training loop."""

from __future__ import annotations

import copy
import itertools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.methods.base import Array, Tabular, accelerator, hold_out

CHECK_EVERY = 25  # steps between two looks at the held-out loss


@dataclass(frozen=True)
class Training:
    """Adam on random batches; the weights with the least held-out loss are kept."""

    max_steps: int = 5000
    batch_size: int = 512
    learning_rate: float = 1e-3
    patience: int = 1000  # steps without progress of the held-out loss
    decay: bool = False  # learning rate to zero along a cosine
    cuts: int = 0  # times that, out of patience, training goes on from the best weights at a third of the rate
    weight_decay: float = 0.0

    def __str__(self) -> str:
        cuts = f", {self.cuts} cuts of the rate to a third" if self.cuts else ""
        shrinkage = f", weight decay {self.weight_decay:g}" if self.weight_decay else ""
        return (
            f"Adam {self.learning_rate:g}{' with cosine decay' if self.decay else ''}{shrinkage}, "
            f"batches of {self.batch_size}, patience {self.patience}{cuts}"
        )


# From a handful of plans tried on LinearGaussian and LGGMD (n = 10⁴, seeds 0, 1): best for the spline flow and for the
# mixture density network on LGGMD; a rate of 1e-3 is a little better for both mixture networks on LinearGaussian.
TUNED = Training(batch_size=2048, learning_rate=3e-3, patience=200, cuts=3, weight_decay=0.1)


class Neural(Tabular):
    """A method with one network, trained on standardised X and y.

    The held-out rows are the paper's 1,000 extra ones where the task has them, else a tenth of the training rows.
    """

    wants_validation = True
    training: Training

    @abstractmethod
    def _network(self, X: Tensor, y: Tensor, seed: int) -> nn.Module:
        """The untrained network for these standardised training rows."""

    @abstractmethod
    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of a batch of training rows."""

    def _held_out_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss that decides when to stop."""
        return self._loss(x, y)

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        X, y, *held = hold_out(X, y, seed) if validation is None else (X, y, *validation)
        self._x_mean, self._x_scale = X.mean(axis=0), X.std(axis=0)
        self._x_scale[self._x_scale == 0] = 1.0
        self._y_mean, self._y_scale = float(y.mean()), float(y.std()) or 1.0
        torch.manual_seed(seed)
        self._device, self._dtype = accelerator(), torch.float32
        rows, held_rows = self._pairs(X, y), self._pairs(held[0], held[1])
        self.network = self._network(*rows, seed).to(self._device)
        best_step, last_step = self._train(rows, held_rows, np.random.default_rng(seed))
        # Answers in double precision: distribution functions stay monotone to the last digit that counts.
        self._dtype = torch.float64
        self.network.double().eval()
        self.settings = f"{self._describe()}; {self.training}, best step {best_step} of {last_step}"

    @abstractmethod
    def _describe(self) -> str:
        """The network in words."""

    def _train(
        self, rows: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], rng: np.random.Generator
    ) -> tuple[int, int]:
        """Train in place; returns the step of the least held-out loss and the last one."""
        plan = self.training
        optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay, fused=True
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.max_steps) if plan.decay else None
        best, best_step, best_state = float("inf"), 0, copy.deepcopy(self.network.state_dict())
        waiting_since, cuts = 0, 0
        batches = _batches(len(rows[0]), plan.batch_size, rng, self._device)
        for step in range(1, plan.max_steps + 1):
            batch = next(batches)
            optimizer.zero_grad()
            self._loss(rows[0][batch], rows[1][batch]).backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
            optimizer.step()
            if schedule is not None:
                schedule.step()
            if step % CHECK_EVERY == 0 or step == plan.max_steps:
                with torch.no_grad():
                    score = float(self._held_out_loss(*held))
                if score < best:
                    best, best_step, best_state = score, step, copy.deepcopy(self.network.state_dict())
                    waiting_since = step
                elif step - waiting_since >= plan.patience:
                    if cuts == plan.cuts:
                        break
                    self.network.load_state_dict(best_state)
                    for group in optimizer.param_groups:
                        group["lr"] /= 3
                    waiting_since, cuts = step, cuts + 1
        self.network.load_state_dict(best_state)
        return best_step, step

    def _x_inputs(self, X: Array) -> Tensor:
        return torch.as_tensor((X - self._x_mean) / self._x_scale, dtype=self._dtype, device=self._device)

    def _y_inputs(self, y: Array) -> Tensor:
        return torch.as_tensor((y - self._y_mean) / self._y_scale, dtype=self._dtype, device=self._device)

    def _pairs(self, X: Array, y: Array) -> tuple[Tensor, Tensor]:
        return self._x_inputs(X), self._y_inputs(y)


def perceptron(n_inputs: int, hidden_sizes: tuple[int, ...], n_outputs: int, activation: type[nn.Module]) -> nn.Module:
    """Linear layers with `activation` in between."""
    widths = (n_inputs, *hidden_sizes)
    hidden = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), activation())]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], n_outputs))


def _batches(n_rows: int, size: int, rng: np.random.Generator, device: torch.device) -> Iterator[Tensor]:
    """Batches of row numbers without end; every row once per pass, a short rest is left out."""
    size = min(size, n_rows)
    while True:
        order = torch.as_tensor(rng.permutation(n_rows), device=device)
        yield from order[: n_rows - n_rows % size].split(size)
