"""Encoders: plain networks that map inputs to features. Nothing here knows about NCP."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class InputGate(nn.Module):
    """One learned multiplier per input, x ↦ g ⊙ x, with an L1 penalty that closes useless gates.

    Examples
    --------
    >>> gate = InputGate(3)
    >>> gate(torch.ones(2, 3)).shape, gate.penalty().item()
    (torch.Size([2, 3]), 3.0)
    """

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.gates = nn.Parameter(torch.ones(n_inputs))

    def forward(self, inputs: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch inputs"]:
        """Scale every input by its gate."""
        return inputs * self.gates

    def penalty(self) -> Float[Tensor, ""]:
        """Σ_j |g_j|."""
        return self.gates.abs().sum()


class MLP(nn.Sequential):
    """Multi-layer perceptron with GELU activations (paper, appendix A.1), optionally behind an `InputGate`.

    Examples
    --------
    >>> MLP(3, (64, 64), 16)(torch.zeros(5, 3)).shape
    torch.Size([5, 16])
    """

    def __init__(self, n_inputs: int, hidden_sizes: Sequence[int], n_outputs: int, *, input_gate: bool = False) -> None:
        layers: list[nn.Module] = [InputGate(n_inputs)] if input_gate else []
        width = n_inputs
        for size in hidden_sizes:
            layers += [nn.Linear(width, size), nn.GELU()]
            width = size
        layers.append(nn.Linear(width, n_outputs))
        super().__init__(*layers)


def gate_penalty(module: nn.Module) -> Float[Tensor, ""]:
    """Sum of the penalties of all input gates inside `module` (zero without gates).

    Examples
    --------
    >>> gate_penalty(MLP(2, (8,), 4)).item(), gate_penalty(MLP(2, (8,), 4, input_gate=True)).item()
    (0.0, 2.0)
    """
    penalties = [part.penalty() for part in module.modules() if isinstance(part, InputGate)]
    return torch.stack(penalties).sum() if penalties else torch.zeros(())
