"""Encoders: plain networks that map inputs to features. Nothing here knows about NCP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ncprob.state import State, fill_module


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Modules in evaluation mode; afterwards every part is back in the mode it was in.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(1, 1), nn.Dropout().eval())
    >>> with evaluating(network):
    ...     network.training
    False
    >>> network.training, network[1].training
    (True, False)
    """
    training = [part for module in modules for part in module.modules() if part.training]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


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
        self.settings = _settings(n_inputs, hidden_sizes, n_outputs, input_gate)

    def state(self) -> State:
        """What `from_state` needs."""
        return State(self.state_dict(), self.settings)

    @classmethod
    def from_state(cls, state: State) -> MLP:
        """The same network."""
        with torch.device("meta"):  # takes its shape without memory, whatever the state says
            network = cls(**_read_settings(state)).float()  # whatever torch's default type is
        fill_module(network, state.tensors)
        return network


class ParallelMLP(nn.Module):
    """Several perceptrons of one shape trained together by batched matrix products, each beside a linear map.

    Network m computes A_m x' + f_m(x') with x' = g_m ⊙ mask_m ⊙ x: gates g as in `InputGate`, a mask of the inputs that
    the network may see. Where `linear_only` f_m is a constant; where `squares` there is a further linear map of
    g_m ⊙ mask_m ⊙ (x² − 1). All parameters have a leading axis of networks.

    Examples
    --------
    >>> networks = ParallelMLP(4, 3, (16, 16), 2)
    >>> networks(torch.zeros(5, 3)).shape
    torch.Size([4, 5, 2])
    """

    mask: Tensor
    curved: Tensor
    squared: Tensor

    def __init__(
        self,
        n_networks: int,
        n_inputs: int,
        hidden_sizes: Sequence[int],
        n_outputs: int,
        *,
        input_gate: bool = False,
        mask: Float[Tensor, "networks inputs"] | None = None,
        linear_only: Bool[Tensor, " networks"] | None = None,
        squares: Bool[Tensor, " networks"] | None = None,
    ) -> None:
        super().__init__()
        widths = [n_inputs, *hidden_sizes, n_outputs]
        shapes = list(pairwise(widths))
        self.weights = nn.ParameterList(_uniform(n_networks, a, b, fan_in=a) for a, b in shapes)
        self.biases = nn.ParameterList(_uniform(n_networks, 1, b, fan_in=a) for a, b in shapes)
        self.linear = nn.Parameter(torch.zeros(n_networks, n_inputs, n_outputs))
        self.gates = nn.Parameter(torch.ones(n_networks, 1, n_inputs), requires_grad=input_gate)
        self.register_buffer("mask", torch.ones(n_networks, 1, n_inputs) if mask is None else mask[:, None, :].float())
        straight = torch.zeros(n_networks, dtype=torch.bool) if linear_only is None else linear_only
        self.register_buffer("curved", (~straight).float()[:, None, None])
        self.settings = {"n_networks": n_networks, **_settings(n_inputs, hidden_sizes, n_outputs, input_gate)}
        self._numbers: Tensor | None = None
        self.square: nn.Parameter | None = None
        if squares is not None:
            self.square = nn.Parameter(torch.zeros(n_networks, n_inputs, n_outputs))
            self.register_buffer("squared", squares.float()[:, None, None])

    def state(self) -> State:
        """What `from_state` needs."""
        return State(self.state_dict(), self.settings | {"squares": self.square is not None})

    @classmethod
    def from_state(cls, state: State) -> ParallelMLP:
        """The same networks."""
        with torch.device("meta"):
            n_networks = state.integer("n_networks", minimum=1)
            squares = torch.zeros(n_networks, dtype=torch.bool) if state.fact("squares", bool) else None
            networks = cls(n_networks, **_read_settings(state), squares=squares).float()
        fill_module(networks, state.tensors)
        return networks

    def forward(self, inputs: Float[Tensor, "*networks batch inputs"]) -> Float[Tensor, "networks batch outputs"]:
        """Outputs of all networks, for one batch or a batch of each network's own, in the precision of the inputs.

        Rows come last in memory: what is then done with the outputs of each row goes along whole vectors.
        """
        precision = inputs.dtype
        opened = (self.gates * self.mask).mT  # on the weights: networks × batch × inputs would be large
        maps, terms = opened * self.linear, inputs
        if self.square is not None:
            maps = torch.cat([maps, opened * self.square * self.squared], dim=-2)
            terms = torch.cat([inputs, inputs.square() - 1], dim=-1)
        outputs = _mapped(terms, maps.to(precision), self.biases[-1].to(precision))
        curved = self._curved_networks()
        layers = (opened * self.weights[0], *self.weights[1:])
        weights = [weight.index_select(0, curved).to(precision) for weight in layers]
        biases = [bias.index_select(0, curved).to(precision) for bias in self.biases[:-1]]
        hidden = inputs[curved] if inputs.ndim == 3 else inputs
        for weight, bias in zip(weights[:-1], biases, strict=True):
            hidden = nn.functional.gelu(_mapped(hidden, weight, bias)).mT
        return outputs.index_add(0, curved, torch.matmul(weights[-1].mT, hidden.mT)).mT

    def _curved_networks(self) -> Int[Tensor, " curved"]:
        """Numbers of the networks that have a curved part: the others, often most, need no hidden layers."""
        if self._numbers is None or self._numbers.device != self.curved.device:
            self._numbers = self.curved.flatten().nonzero()[:, 0]  # kept: to ask a device every time would take longer
        return self._numbers

    def penalties(self) -> Float[Tensor, " networks"]:
        """Σ_j |g_mj| over the inputs that each network sees."""
        return (self.gates * self.mask).abs().sum(dim=(1, 2))


def _mapped(
    inputs: Float[Tensor, "*networks batch inputs"],
    weights: Float[Tensor, "networks inputs outputs"],
    biases: Float[Tensor, "networks 1 outputs"],
) -> Float[Tensor, "networks outputs batch"]:
    """Linear maps of a common batch, in one matrix product, or of a batch each."""
    if inputs.ndim == 3:
        return torch.baddbmm(biases.mT, weights.mT, inputs.mT)
    rows = weights.mT.flatten(0, 1)
    return torch.addmm(biases.reshape(-1, 1), rows, inputs.mT).unflatten(0, (len(weights), -1))


def encoder_state(encoder: nn.Module) -> State:
    """What `encoder_from_state` needs: of an encoder that is not ours its weights alone, since code is not saved."""
    if type(encoder) is MLP:
        return State(facts={"kind": "MLP"}, parts={"network": encoder.state()})
    return State(encoder.state_dict(), {"kind": "custom"})


def encoder_from_state(state: State, like: nn.Module | None, name: str) -> nn.Module:
    """The encoder; one that is not ours takes the architecture of `like`, which is filled in place."""
    kind = state.fact("kind", str)
    if kind == "MLP":
        return MLP.from_state(state.part("network"))
    if kind != "custom" or like is None:
        raise ValueError(f"there is no {name} to fill with weights of kind {kind!r}")
    device = next((tensor.device for tensor in state.tensors.values()), None)
    return fill_module(like, state.tensors).to(device)  # with all that it keeps beside its weights


def _settings(n_inputs: int, hidden_sizes: Sequence[int], n_outputs: int, input_gate: bool) -> dict[str, Any]:
    """Sizes of a network, as `_read_settings` takes them."""
    sizes = {"n_inputs": int(n_inputs), "hidden_sizes": [int(s) for s in hidden_sizes], "n_outputs": int(n_outputs)}
    return {**sizes, "input_gate": bool(input_gate)}


def _read_settings(state: State) -> dict[str, Any]:
    return {
        "n_inputs": state.integer("n_inputs", minimum=0),
        "hidden_sizes": state.integers("hidden_sizes", minimum=1),
        "n_outputs": state.integer("n_outputs", minimum=1),
        "input_gate": state.fact("input_gate", bool),
    }


def _uniform(*shape: int, fan_in: int) -> nn.Parameter:
    """Entries uniform on ±1/√fan_in, as torch initialises linear layers."""
    return nn.Parameter((2 * torch.rand(*shape) - 1) / max(1, fan_in) ** 0.5)


def gate_penalty(module: nn.Module) -> Float[Tensor, ""]:
    """Sum of the penalties of all input gates inside `module` (zero without gates).

    Examples
    --------
    >>> gate_penalty(MLP(2, (8,), 4)).item(), gate_penalty(MLP(2, (8,), 4, input_gate=True)).item()
    (0.0, 2.0)
    """
    penalties = [part.penalty() for part in module.modules() if isinstance(part, InputGate)]
    return torch.stack(penalties).sum() if penalties else torch.zeros(())
