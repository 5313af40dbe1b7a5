"""Checks of arrays, shapes and values, with their messages. No mathematics.

Every message names the argument, what was expected, what came, and the remedy.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_choice(value: Any, name: str, options: Sequence[str]) -> str:
    """`value` must be one of `options`.

    Examples
    --------
    >>> check_choice("centring", "kind", ("none", "centering", "whitening"))
    Traceback (most recent call last):
    ValueError: `kind` must be one of 'none', 'centering', 'whitening'; got 'centring'. Did you mean 'centering'?
    """
    if isinstance(value, str) and value in options:
        return value
    listed = ", ".join(repr(option) for option in options)
    close = difflib.get_close_matches(str(value), options, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else " Choose one of these."
    raise ValueError(f"`{name}` must be one of {listed}; got {value!r}.{hint}")


def check_integer(value: Any, name: str, minimum: int) -> int:
    """`value` must be an integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"`{name}` must be an integer; got {value!r} of type {type(value).__name__}. Pass an int.")
    if value < minimum:
        raise ValueError(f"`{name}` must be at least {minimum}; got {value}. Raise `{name}`.")
    return int(value)


def check_number(
    value: Any, name: str, *, minimum: float = -math.inf, maximum: float = math.inf, open_ends: bool = False
) -> float:
    """`value` must be a real number between `minimum` and `maximum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{name}` must be a number; got {value!r} of type {type(value).__name__}. Pass a float.")
    number = float(value)
    inside = minimum < number < maximum if open_ends else minimum <= number <= maximum
    if not inside:
        left, right = ("(", ")") if open_ends else ("[", "]")
        raise ValueError(
            f"`{name}` must lie in {left}{minimum:g}, {maximum:g}{right}; got {number:g}. Choose a value inside."
        )
    return number


def check_probabilities(value: Any, name: str) -> Tensor:
    """Probability levels strictly inside (0, 1), as a float64 tensor of zero or one dimension."""
    levels = as_float_tensor(value, name)
    if levels.ndim > 1:
        raise ValueError(
            f"`{name}` must be a number or a list of numbers; got shape {tuple(levels.shape)}. Flatten it first."
        )
    if levels.numel() == 0:
        raise ValueError(f"`{name}` must hold at least one level; got none. Pass for example 0.9.")
    bad = ~((levels > 0) & (levels < 1))
    if bad.any():
        first = levels[bad][0].item() if levels.ndim else levels.item()
        raise ValueError(f"`{name}` must lie strictly between 0 and 1; got {first:g}. Write 90 % as 0.9.")
    return levels


def as_float_tensor(value: Any, name: str) -> Tensor:
    """A float64 tensor without NaN."""
    try:
        if value is None:
            raise TypeError("None is not a number")
        # A copy, since torch takes neither series with an index nor read-only arrays; what is asked about is small.
        array = value if isinstance(value, Tensor) else np.array(value, dtype=np.float64)
        tensor = torch.as_tensor(array, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"`{name}` must be numeric; got {type(value).__name__}. Pass a number, a list or an array of numbers."
        ) from error
    if torch.isnan(tensor).any():
        raise ValueError(f"`{name}` must not hold NaN; got {int(torch.isnan(tensor).sum())} of them. Remove them.")
    return tensor


def as_generator(random_state: Any) -> torch.Generator:
    """A torch generator from None, a seed, a numpy generator or a torch generator.

    Examples
    --------
    >>> as_generator(3).initial_seed()
    3
    """
    if isinstance(random_state, torch.Generator):
        return random_state
    generator = torch.Generator()
    if random_state is None:
        generator.seed()
        return generator
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**31))
    elif isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31 - 1))
    return generator.manual_seed(check_integer(random_state, "random_state", minimum=0))
