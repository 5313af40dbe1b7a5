"""Learning dynamics of the paper's method: losses, orthonormality gaps and singular values over epochs.

    python -m benchmarks.dynamics                   # writes benchmarks/results/dynamics.csv
    python -m benchmarks.dynamics --tasks GaussianPair

On the Laplace model with the settings of the paper's intervals, and on a Gaussian pair with correlation 0.8, whose true
singular values are its powers, with those of the density benchmark. A row every 25 epochs:

- `loss` on the training rows and `held_loss` on the validation rows, both with γ times the penalty;
- `left_gap` = ‖E[uuᵀ] − I‖²_F + 2‖E u‖² over the training rows, `right_gap` the same of v, which make the
  penalty;
- `operator1`, … : the singular values of the operator Σ σ_k u_k ⊗ v_k as trained, which the loss brings to the true
  ones; `sigma1`, … : those that whitening would give after that epoch; `learned1`, … : the σ_k, in decreasing order.

A command that was interrupted goes on with the fit that it had not finished when it is given again.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from benchmarks.experiments import TRUTH, Experiment, Rows, Truth, Unit, fitted, run_script
from benchmarks.methods.base import Method
from benchmarks.methods.ncp import Epoch
from benchmarks.suites import PAPER_OPTIONS
from benchmarks.tasks import Split
from ncprob.datasets import GaussianPair

LEADING = 6
SIGMAS = [f"sigma{k}" for k in range(1, LEADING + 1)]
OPERATOR = [f"operator{k}" for k in range(1, LEADING + 1)]
LEARNED = [f"learned{k}" for k in range(1, LEADING + 1)]
COLUMNS = ["epoch", "loss", "held_loss", "left_gap", "right_gap", *OPERATOR, *SIGMAS, *LEARNED]
EVERY = 25


def state_of(epoch: Epoch) -> dict[str, Any]:
    """Row of one epoch; the operator in training is left as it is."""
    moments = epoch.operator.moments(epoch.pairs)
    learned = epoch.operator.singular_values.detach().double()
    own = torch.linalg.svdvals(square_root(moments.left) * learned @ square_root(moments.right))
    whitened = copy.deepcopy(epoch.operator)
    whitened.whiten(moments)
    return {
        "epoch": epoch.number,
        "loss": epoch.loss,
        "held_loss": epoch.held_loss,
        "left_gap": gap(moments.left, moments.left_mean),
        "right_gap": gap(moments.right, moments.right_mean),
        **dict(zip(OPERATOR, own.tolist(), strict=False)),
        **dict(zip(SIGMAS, whitened.singular_values.tolist(), strict=False)),
        **dict(zip(LEARNED, learned.sort(descending=True).values.tolist(), strict=False)),
    }


def square_root(covariance: Tensor) -> Tensor:
    """Symmetric square root; eigenvalues below zero are rounding."""
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=0).sqrt() @ vectors.mT


def gap(covariance: Tensor, mean: Tensor) -> float:
    """‖E[uuᵀ] − I‖²_F + 2‖E u‖² from the covariance and mean of u (paper, eq. 10)."""
    second = covariance + torch.outer(mean, mean)
    identity = torch.eye(len(mean), dtype=second.dtype, device=second.device)
    return float((second - identity).square().sum() + 2 * mean.square().sum())


def curves(unit: Unit, split: Split, options: dict[str, Any]) -> tuple[Method, Rows]:
    """Rows of one training, or the values it should reach."""
    if unit.method == TRUTH:
        assert isinstance(split.simulator, GaussianPair)
        values = split.simulator.singular_values(LEADING).tolist()
        return Truth(split.simulator), [dict(zip(OPERATOR + SIGMAS, values * 2, strict=True))]
    rows: Rows = []

    def record(epoch: Epoch) -> None:
        if epoch.number % EVERY == 0 or epoch.number == 1:
            rows.append(state_of(epoch))

    return fitted(unit, split, options | {"callback": record}), rows


EXPERIMENT = Experiment(
    "dynamics",
    COLUMNS,
    {"Laplace": 50_000, "GaussianPair": 10_000},
    ("NCP-W",),
    curves,
    PAPER_OPTIONS,
    known=("GaussianPair",),
    choices=("NCP-W",),  # NCP and NCP-C are trained alike; others have no callback
)

if __name__ == "__main__":
    run_script(EXPERIMENT, __doc__)
