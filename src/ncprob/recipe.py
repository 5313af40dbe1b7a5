"""Settings of a fit, and what those left open become for given inputs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ncprob.optimization import Runtime, Schedule
from ncprob.trees import worth_growing

AUTO_WIDTH = 64
AUTO_GATE, AUTO_GATE_INPUTS = 0.03, 4
AUTO_GATE_TOTAL = 32  # inputs beyond which the penalties of all gates together grow no further


@dataclass(frozen=True)
class Recipe:
    """Settings of a fit, already validated; see `ncprob.NCPRegressor` for their meaning."""

    rank: int | None
    hidden_sizes: Sequence[int]
    coordinates: str
    loss: str
    gamma: float
    postprocessing: str
    ensemble_size: int
    input_gate: float | None
    tree_inputs: bool | None
    schedule: Schedule
    device: torch.device
    seed: int
    n_classes: int | None = None
    x_encoder: nn.Module | None = None
    y_encoder: nn.Module | None = None
    checkpoint_dir: Path | None = None
    progress: bool | Literal["auto"] = "auto"
    stop: threading.Event | None = None

    def gate_strength(self, x: Any) -> float:
        """Strength of the input gates; by default only where there are enough inputs for some to be useless."""
        if self.input_gate is not None:
            return self.input_gate
        if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] < AUTO_GATE_INPUTS:
            return 0.0
        return AUTO_GATE * min(1.0, AUTO_GATE_TOTAL / x.shape[1])

    def grows_trees(self, x: Any) -> bool:
        """Whether predictions of trees join the inputs; raw coordinates alone are the paper's, without."""
        if not isinstance(x, Tensor) or x.ndim != 2 or self.x_encoder is not None:
            return False
        if self.tree_inputs is None:
            return self.coordinates != "raw" and worth_growing(x)
        return self.tree_inputs

    def runtime(self, stage: str) -> Runtime:
        """Seed, checkpoint and progress of one stage."""
        path = None if self.checkpoint_dir is None else self.checkpoint_dir / stage
        return Runtime(seed=self.seed, checkpoint=path, progress=self.progress, description=stage, stop=self.stop)
