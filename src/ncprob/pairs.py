"""Pairs (x, y) from tensors, a Dataset or a DataLoader, as shuffled batches and as chunks in order.

x and y may be tensors or nested containers of tensors (dicts, tuples): whatever the encoders take.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

Batch = tuple[Any, Any]
Chunk = tuple[Any, Any, Tensor | None]


@runtime_checkable
class Pairs(Protocol):
    """What training and post-processing need from data."""

    def __len__(self) -> int: ...

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless shuffled batches; a function of (seed, step) alone, so a resumed run sees the same ones."""

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All pairs once, in order, with their weights."""

    def fingerprint(self) -> str:
        """A checksum that tells one data set from another."""


@runtime_checkable
class IndexedPairs(Pairs, Protocol):
    """Pairs of which any rows can be had, so that several processes can share a batch."""

    def rows(self, index: Tensor | slice) -> Batch:
        """Some of the pairs."""


@runtime_checkable
class MovingPairs(Pairs, Protocol):
    """Pairs that are too many for an accelerator, or not held in memory: only their batches move."""

    def to(self, device: torch.device | None) -> Pairs:
        """The same pairs with batches and chunks on `device`."""


def as_pairs(pairs: Any, device: torch.device | None = None) -> Pairs:
    """Wrap `(x, y)`, `(x, y, weights)`, a `Dataset` of pairs or a `DataLoader` of pairs; `TimeLaggedPairs` stay.

    Examples
    --------
    >>> len(as_pairs((torch.zeros(7, 2), torch.zeros(7, 1))))
    7
    """
    if isinstance(pairs, MovingPairs):
        return pairs.to(device)
    if isinstance(pairs, Pairs):
        return pairs
    if isinstance(pairs, DataLoader):
        if not hasattr(pairs.dataset, "__len__"):
            raise TypeError(
                "`pairs` must be a DataLoader whose Dataset has a length, which says how many pairs there are; "
                f"{type(pairs.dataset).__name__} has none. Define its `__len__`."
            )
        return LoaderPairs(pairs, device)
    if isinstance(pairs, Dataset):
        return DatasetPairs(pairs, device)
    if isinstance(pairs, tuple | list) and len(pairs) in (2, 3):
        weights = pairs[2] if len(pairs) == 3 else None
        return TensorPairs(pairs[0], pairs[1], weights, device)
    raise TypeError(
        "`pairs` must be (x, y), (x, y, weights), a Dataset or a DataLoader of pairs; "
        f"got {type(pairs).__name__}. Pass for example `(x, y)` with two tensors."
    )


class TensorPairs:
    """Pairs held in memory; batches are index selections, never copies of the whole."""

    def __init__(self, x: Any, y: Any, weights: Tensor | None = None, device: torch.device | None = None) -> None:
        x_rows, y_rows = _rows(x), _rows(y)
        if x_rows != y_rows:
            raise ValueError(f"`pairs` must hold as many x as y; got {x_rows} and {y_rows}. Pair them row by row.")
        _check_weights(weights, x_rows)
        self.x, self.y, self.weights = to_device(x, device), to_device(y, device), to_device(weights, device)
        self._n = x_rows

    def __len__(self) -> int:
        return self._n

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless shuffled batches of equal size."""
        for index in index_batches(len(self), batch_size, seed, start, self.weights, self._device()):
            yield self.rows(index)

    def _device(self) -> torch.device | None:
        """Where all pairs are, if that is one place; row numbers on the CPU serve any."""
        places = {getattr(part, "device", None) for part in tensors_of((self.x, self.y))}
        return places.pop() if len(places) == 1 else None

    def rows(self, index: Tensor | slice) -> Batch:
        """Some of the pairs."""
        return select(self.x, index), select(self.y, index)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All pairs once, in order."""
        for begin in range(0, len(self), size):
            rows = slice(begin, begin + size)
            weights = None if self.weights is None else self.weights[rows]
            yield select(self.x, rows), select(self.y, rows), weights

    def fingerprint(self) -> str:
        """SHA-256 over the bytes of all tensors."""
        digest = hashlib.sha256()
        for tensor in tensors_of((self.x, self.y, self.weights)):
            digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()


class DatasetPairs:
    """Pairs of a map-style `Dataset`; items are collated batch by batch."""

    def __init__(self, dataset: Dataset[Any], device: torch.device | None = None) -> None:
        self.dataset, self.device = dataset, device

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def rows(self, index: Tensor | slice) -> Batch:
        """Some of the pairs, collated."""
        numbers = range(len(self))[index] if isinstance(index, slice) else index.tolist()
        x, y = default_collate([self.dataset[i] for i in numbers])
        return to_device(x, self.device), to_device(y, self.device)

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless shuffled batches of equal size."""
        for index in index_batches(len(self), batch_size, seed, start):
            yield self.rows(index)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All pairs once, in order."""
        for begin in range(0, len(self), size):
            yield *self.rows(slice(begin, begin + size)), None

    def fingerprint(self) -> str:
        """Type and length: the items may be too many to read."""
        return f"{type(self.dataset).__name__}:{len(self)}"


class LoaderPairs:
    """Pairs of a `DataLoader`, which decides batch size and order itself (resumed runs may see another order)."""

    def __init__(self, loader: DataLoader[Any], device: torch.device | None = None) -> None:
        self.loader, self.device = loader, device

    def __len__(self) -> int:
        return len(self.loader.dataset)  # type: ignore[arg-type]

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless batches, as the loader gives them."""
        endless = itertools.chain.from_iterable(itertools.repeat(self.loader))
        for x, y in itertools.islice(endless, start, None):
            yield to_device(x, self.device), to_device(y, self.device)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All pairs once, in the loader's batches."""
        for x, y in self.loader:
            yield to_device(x, self.device), to_device(y, self.device), None

    def gives_batches(self) -> bool:
        """Whether an epoch has a batch, as far as the loader can tell: fewer rows than one may all be dropped."""
        try:
            return len(self.loader) > 0
        except TypeError:  # a batch sampler of the user's without a length
            return True

    def fingerprint(self) -> str:
        """Type and length: the items may be too many to read."""
        return f"{type(self.loader.dataset).__name__}:{len(self)}"


def index_batches(
    n: int,
    batch_size: int,
    seed: int,
    start: int,
    weights: Tensor | None = None,
    device: torch.device | None = None,
) -> Iterator[Tensor]:
    """Row numbers of endless batches; every epoch is a permutation that depends on (seed, epoch) alone.

    They move to `device` once an epoch, not once a batch, which would make every step wait.
    """
    size = min(batch_size, n)
    per_epoch = n // size
    epoch, first = divmod(start, per_epoch)
    for e in itertools.count(epoch):
        rows = to_device(_epoch(n, seed, e, weights), device)
        for b in range(first, per_epoch):
            yield rows[b * size : (b + 1) * size]
        first = 0


def index_parts(n: int, sizes: Iterable[int], seed: int, start: int, weights: Tensor | None = None) -> Iterator[Tensor]:
    """Row numbers of batches of given sizes, from number `start` on; one may go over many epochs of few rows.

    Examples
    --------
    >>> [len(rows) for rows in index_parts(3, [2, 0, 7], seed=0, start=0)]
    [2, 0, 7]
    """
    given = iter(sizes)
    epoch, first = divmod(sum(itertools.islice(given, start)), n)
    left = _epoch(n, seed, epoch, weights)[first:]
    for size in given:
        parts = [left]
        for _ in range(-(-max(0, size - len(left)) // n)):
            epoch += 1
            parts.append(_epoch(n, seed, epoch, weights))
        rows = torch.cat(parts)
        left = rows[size:]
        yield rows[:size]


def _epoch(n: int, seed: int, epoch: int, weights: Tensor | None) -> Tensor:
    """A permutation of n rows, or as many drawn by weight, in random order."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    rows = torch.randperm(n, generator=generator)
    return rows if weights is None else systematic_sample(weights, generator)[rows]


def systematic_sample(weights: Tensor, generator: torch.Generator, size: int | None = None) -> Tensor:
    """n rows (or `size`) drawn with probability ∝ weight; row i appears ⌊n w_i⌋ or ⌈n w_i⌉ times."""
    cumulative = weights.detach().cpu().double().cumsum(0)
    n = len(cumulative) if size is None else size
    offset = torch.rand((), generator=generator, dtype=torch.float64)
    points = (torch.arange(n, dtype=torch.float64) + offset) / n * cumulative[-1]
    return torch.searchsorted(cumulative, points, right=True).clamp(max=len(cumulative) - 1)


def map_tensors(function: Callable[[Tensor], Tensor], nested: Any) -> Any:
    """The same container with `function` of every tensor in it.

    Examples
    --------
    >>> map_tensors(torch.clone, {"a": torch.ones(2)})
    {'a': tensor([1., 1.])}
    """
    if isinstance(nested, Tensor):
        return function(nested)
    if isinstance(nested, dict):
        return {key: map_tensors(function, value) for key, value in nested.items()}
    if isinstance(nested, tuple | list):
        parts = [map_tensors(function, value) for value in nested]
        return type(nested)(*parts) if hasattr(nested, "_fields") else type(nested)(parts)
    if hasattr(nested, "to"):  # graph batches and other device-aware containers
        return function(nested)
    return nested


def tensors_of(nested: Any) -> list[Tensor]:
    """Every tensor in a container.

    Examples
    --------
    >>> len(tensors_of(({"a": torch.ones(2)}, [torch.ones(1), None])))
    2
    """
    found: list[Tensor] = []
    map_tensors(lambda t: found.append(t) or t, nested)  # type: ignore[func-returns-value]
    return found


def _rows(nested: Any) -> int:
    tensors = tensors_of(nested)
    if not tensors:
        raise TypeError(f"`pairs` must hold tensors; got {type(nested).__name__}. Convert with torch.as_tensor.")
    lengths = {len(tensor) for tensor in tensors}
    if len(lengths) > 1:
        raise ValueError(
            f"`pairs` must hold tensors of equal length; got lengths {sorted(lengths)}. Cut to equal rows."
        )
    return lengths.pop()


def _check_weights(weights: Any, n: int) -> None:
    if weights is None:
        return
    if not isinstance(weights, Tensor):
        raise TypeError(
            f"the weights in `pairs` must be a tensor; got {type(weights).__name__}. Convert with torch.as_tensor."
        )
    if weights.shape != (n,):
        raise ValueError(
            f"the weights in `pairs` must have shape ({n},), one per pair; got {tuple(weights.shape)}. "
            "Give every pair one weight."
        )
    if not (torch.isfinite(weights).all() and (weights >= 0).all() and (weights > 0).any()):
        raise ValueError(
            "the weights in `pairs` must be finite and not negative, with one positive; got others. "
            "Use 0 to leave a pair out."
        )


def select(nested: Any, rows: Tensor | slice) -> Any:
    """Rows of a tensor or of every tensor in a container."""
    return map_tensors(lambda t: t[rows], nested)


def to_device(nested: Any, device: torch.device | None) -> Any:
    """Move a tensor or every tensor in a container."""
    return nested if device is None else map_tensors(lambda t: t.to(device), nested)
