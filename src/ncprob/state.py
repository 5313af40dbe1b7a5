"""What a part of a model is rebuilt from: tensors and plain facts, nothing that could be executed.

Every part that is saved has `state()` and a class method `from_state(...)`. A state that comes from a file may hold
anything, so it is read through checks of type, shape and range; each failure is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Shape = Sequence[int | None]


@dataclass(frozen=True)
class State:
    """Named tensors, facts (what JSON can hold), and states of parts.

    Examples
    --------
    >>> inner = State({"weights": torch.ones(2)}, {"rank": 2})
    >>> outer = State(parts={"operator": inner})
    >>> again = State.rebuild(outer.all_facts(), dict(outer.all_tensors()))
    >>> again.part("operator").integer("rank", minimum=1)
    2
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, State] = field(default_factory=dict)

    # ---------------------------------------------------------------- as one table of tensors and one tree of facts

    def all_tensors(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Tensors of all parts, named by the way to them."""
        for name, tensor in self.tensors.items():
            yield f"{prefix}/{name}", tensor
        for name, part in self.parts.items():
            yield from part.all_tensors(f"{prefix}/{name}")

    def all_facts(self) -> dict[str, Any]:
        """Facts of all parts, nested as these are."""
        return {"facts": self.facts, "parts": {name: part.all_facts() for name, part in self.parts.items()}}

    @classmethod
    def rebuild(cls, nested: Any, tensors: Mapping[str, Tensor], prefix: str = "") -> State:
        """Inverse of `all_facts` and `all_tensors`."""
        well_formed = isinstance(nested, dict) and all(isinstance(nested.get(key), dict) for key in ("facts", "parts"))
        if not well_formed:
            raise ValueError(f"the entry of {prefix or '/'} must hold facts and parts")
        parts = {name: cls.rebuild(part, tensors, f"{prefix}/{name}") for name, part in nested["parts"].items()}
        others = tuple(f"{prefix}/{name}/" for name in parts)
        own = {
            name.removeprefix(f"{prefix}/"): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"{prefix}/") and not name.startswith(others)
        }
        return cls(own, nested["facts"], parts)

    def to(self, device: torch.device) -> State:
        """The same with all tensors on a device."""
        tensors = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        return State(tensors, self.facts, {name: part.to(device) for name, part in self.parts.items()})

    # ---------------------------------------------------------------- checked reading

    def part(self, name: str) -> State:
        """The state of a part."""
        if name not in self.parts:
            raise ValueError(f"the part {name!r} is missing")
        return self.parts[name]

    def sequence(self, name: str) -> list[State]:
        """States of parts that were saved by `numbered`."""
        group = self.part(name)
        return [group.part(str(i)) for i in range(len(group.parts))]

    def tensor(self, name: str, dtype: torch.dtype, shape: Shape, *, finite: bool = True) -> Tensor:
        """A tensor of given type and shape (None: any length)."""
        if name not in self.tensors:
            raise ValueError(f"the tensor {name!r} is missing")
        found = self.tensors[name]
        fits = found.ndim == len(shape) and all(
            wanted in (None, size) for wanted, size in zip(shape, found.shape, strict=False)
        )
        if found.dtype != dtype or not fits:
            wanted = tuple("any" if size is None else size for size in shape)
            raise ValueError(
                f"the tensor {name!r} must be {dtype} of shape {wanted}; it is {found.dtype} of {tuple(found.shape)}"
            )
        if finite and not bool(torch.isfinite(found).all()):
            raise ValueError(f"the tensor {name!r} must be finite")
        return found

    def array(self, name: str, dtype: torch.dtype, shape: Shape, *, finite: bool = True) -> NDArray[Any]:
        """`tensor` as a NumPy array."""
        return self.tensor(name, dtype, shape, finite=finite).cpu().numpy()

    def fact(self, name: str, *kinds: type) -> Any:
        """A fact of one of the given types; a bool is no number here."""
        if name not in self.facts:
            raise ValueError(f"the fact {name!r} is missing")
        value = self.facts[name]
        if type(value) not in kinds:
            raise ValueError(
                f"the fact {name!r} must be of type {' or '.join(k.__name__ for k in kinds)}; got {value!r}"
            )
        return value

    def choice(self, name: str, choices: Sequence[str]) -> Any:
        """A word, one of the given ones."""
        value = self.fact(name, str)
        if value not in choices:
            raise ValueError(f"the fact {name!r} must be one of {', '.join(choices)}; got {value!r}")
        return value

    def integer(self, name: str, minimum: int, maximum: int = 2**31) -> int:
        """A whole number in a range."""
        return _inside(self.fact(name, int), name, minimum, maximum)

    def integers(self, name: str, minimum: int, maximum: int = 2**31) -> list[int]:
        """A list of whole numbers in a range."""
        values = self.fact(name, list)
        if any(type(value) is not int for value in values):
            raise ValueError(f"the fact {name!r} must be a list of whole numbers; got {values!r}")
        return [_inside(value, name, minimum, maximum) for value in values]


def numbered(states: Sequence[State]) -> State:
    """Several states as parts of one."""
    return State(parts={str(i): state for i, state in enumerate(states)})


def _inside(value: int, name: str, minimum: int, maximum: int) -> int:
    if not minimum <= value <= maximum:
        raise ValueError(f"the fact {name!r} must lie in [{minimum}, {maximum}]; got {value}")
    return value


def fill_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The module with these tensors in place of its own (it may be on the meta device), ready to answer."""
    own = module.state_dict()
    for name, tensor in tensors.items():
        if name in own and own[name].dtype != tensor.dtype:
            raise ValueError(f"the tensor {name!r} must be {own[name].dtype}; it is {tensor.dtype}")
    try:
        module.load_state_dict(dict(tensors), strict=True, assign=True)
    except RuntimeError as error:
        detail = " ".join(str(error).split())
        raise ValueError(f"the weights do not fit {type(module).__name__}: {detail}") from error
    return module.eval()


def to_array(values: Any) -> Tensor:
    """A tensor from a NumPy array, on the CPU."""
    return torch.as_tensor(np.ascontiguousarray(values))
