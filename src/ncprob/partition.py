"""Pairs of which every rank takes a part: its rows of every batch, of every chunk."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ncprob._validation import check_choice
from ncprob.pairs import Batch, Chunk, IndexedPairs, LoaderPairs, Pairs, TensorPairs, index_batches, index_parts, select
from ncprob.ranks import ALONE, Ranks, current_ranks

RanksHold = Literal["same", "own", "alone"]
UNEVEN = 0.05  # by how much the share of a rank in batches that it decides itself may differ from that of its rows


def ranks_of(hold: str, device: torch.device) -> Ranks:
    """The ranks that train together."""
    check_choice(hold, "ranks", get_args(RanksHold))
    ranks = ALONE if hold == "alone" else current_ranks(device)
    return Ranks(ranks.group, own=True) if hold == "own" and ranks.size > 1 else ranks


def check_alike(settings: dict[str, Any], ranks: Ranks) -> None:
    """Refuse settings that differ between ranks: each would train something else, or wait for the others for ever.

    Examples
    --------
    >>> check_alike({"gamma": 1e-3}, ALONE)
    """
    known = ranks.gathered({name: repr(value) for name, value in settings.items()})
    for rank, each in enumerate(known):
        for name, value in each.items():
            if value != known[0][name]:
                raise ValueError(
                    f"`{name}` must be the same on all ranks; rank {rank} has {value} and rank 0 has {known[0][name]}. "
                    "Pass the same, or ranks='alone' to train by itself."
                )


def part_of(
    pairs: Pairs, hold: str, device: torch.device, *, batch_size: int | None = None, name: str = "pairs"
) -> tuple[Pairs, Ranks]:
    """What this rank computes of `pairs`, and the ranks that compute the rest; all pairs, if it is alone.

    Examples
    --------
    >>> pairs = TensorPairs(torch.zeros(8, 1), torch.zeros(8, 1))
    >>> part, ranks = part_of(pairs, "same", torch.device("cpu"))
    >>> part is pairs, ranks.size
    (True, 1)
    """
    ranks = ranks_of(hold, device)
    _check_batches(pairs, ranks, name)
    if ranks.size == 1:
        return pairs, ranks
    part = SamePairs(pairs, ranks, name) if hold == "same" else OwnPairs(pairs, ranks, name)
    rows = len(part) if batch_size is None else min(batch_size, len(part))
    if rows < ranks.size:
        what = f"`batch_size` is {rows}" if rows == batch_size else f"`{name}` has {rows} rows"
        raise ValueError(
            f"{what}, fewer than the {ranks.size} ranks: rank {ranks.size - 1} would have none. "
            "Start fewer processes, or pass more rows."
        )
    return part, ranks


def _check_batches(pairs: Pairs, ranks: Ranks, name: str) -> None:
    """Refuse DataLoaders without a batch, which would be waited for for ever."""
    gives = ranks.gathered(not isinstance(pairs, LoaderPairs) or pairs.gives_batches())
    if not all(gives):
        whose = "" if ranks.size == 1 else f" of rank {gives.index(False)}"
        raise ValueError(
            f"`{name}`{whose} must come in batches; the DataLoader gives none: it has fewer rows than its batch size, "
            "and `drop_last`. Make its batches smaller, or give it more rows."
        )


class SamePairs:
    """Pairs that all ranks hold: batches are those of one process, cut into as many parts as there are ranks."""

    def __init__(self, pairs: Pairs, ranks: Ranks, name: str = "pairs") -> None:
        if not isinstance(pairs, IndexedPairs):
            what = "a DataLoader" if isinstance(pairs, LoaderPairs) else type(pairs).__name__
            raise ValueError(
                f"`{name}` must be tensors or a Dataset for ranks='same'; got {what}, which decides its batches "
                "itself. Give every rank rows of its own (for example by a DistributedSampler) and pass ranks='own'."
            )
        self.pairs, self.ranks = pairs, ranks
        known = ranks.gathered((len(pairs), pairs.fingerprint()))
        other = [rank for rank, each in enumerate(known) if each != known[0]]
        if other:
            raise ValueError(
                f"`{name}` must be the same on all ranks for ranks='same'; those of rank {other[0]} are not those of "
                "rank 0. Load the same rows, or pass ranks='own' if every rank has rows of its own."
            )

    def __len__(self) -> int:
        return len(self.pairs)

    def _cut(self, n: int) -> slice:
        rank, size = self.ranks.rank, self.ranks.size
        return slice(rank * n // size, (rank + 1) * n // size)

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """This rank's rows of the batches that one process would have."""
        weights = getattr(self.pairs, "weights", None)
        for index in index_batches(len(self), batch_size, seed, start, weights):
            yield self.pairs.rows(index[self._cut(len(index))])

    def chunks(self, size: int) -> Iterator[Chunk]:
        """This rank's rows of every chunk."""
        weights: Tensor | None = getattr(self.pairs, "weights", None)
        for begin in range(0, len(self), size):
            cut = self._cut(min(size, len(self) - begin))
            rows = slice(begin + cut.start, begin + cut.stop)
            if rows.stop > rows.start:
                yield *self.pairs.rows(rows), None if weights is None else weights[rows]

    def fingerprint(self) -> str:
        """That of the pairs: a run may go on with another number of ranks."""
        return self.pairs.fingerprint()


class OwnPairs:
    """Pairs of this rank alone, beside those of others: each gives to a batch in proportion to its total weight.

    Shares of a batch are whole numbers with the right mean, drawn alike on all ranks; a rank with few rows gives none
    to some batches, and one with few rows of much weight gives the same ones several times. Pairs that decide their
    batches themselves (a DataLoader) must do so in proportion, else they are refused.
    """

    def __init__(self, pairs: Pairs, ranks: Ranks, name: str = "pairs") -> None:
        self.pairs, self.ranks = pairs, ranks
        weights: Tensor | None = getattr(pairs, "weights", None)
        mass = float(_held(pairs) if weights is None else weights.sum())
        known = ranks.gathered((len(pairs), mass, pairs.fingerprint(), _own_batches(pairs)))
        empty = [rank for rank, each in enumerate(known) if each[0] == 0]
        if empty:
            raise ValueError(f"`{name}` of rank {empty[0]} holds no rows. Start fewer processes, or give it some.")
        first = known[0][2]
        if isinstance(pairs, TensorPairs) and all(each[2] == first for each in known):
            raise ValueError(
                f"`{name}` must differ between ranks for ranks='own', and they are the same on all {ranks.size}: rows "
                "would count twice. Give every rank its part, or pass ranks='same'."
            )
        self._masses = [each[1] for each in known]
        _check_proportion(name, self._masses, [each[3] for each in known])
        self._length = sum(each[0] for each in known)
        self._identity = hashlib.sha256(repr([each[2] for each in known]).encode()).hexdigest()

    def __len__(self) -> int:
        return self._length

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Batches of this rank's pairs, of such sizes that those of all ranks add up to `batch_size`."""
        if not isinstance(self.pairs, IndexedPairs):
            yield from self.pairs.batches(max(1, batch_size // self.ranks.size), seed, start)  # a loader decides itself
            return
        total, weights = min(batch_size, len(self)), getattr(self.pairs, "weights", None)
        sizes = (random_shares(total, self._masses, seed, step)[self.ranks.rank] for step in itertools.count())
        for index in index_parts(len(self.pairs), sizes, seed, start, weights):
            # Not all Datasets can be asked for no rows.
            yield self.pairs.rows(index) if len(index) else select(self.pairs.rows(slice(0, 1)), slice(0, 0))

    def chunks(self, size: int) -> Iterator[Chunk]:
        """The pairs of this rank."""
        return self.pairs.chunks(size)

    def fingerprint(self) -> str:
        """Of the pairs of all ranks."""
        return self._identity


def random_shares(total: int, masses: list[float], seed: int, step: int) -> list[int]:
    """`total` divided into whole parts, those of masses on average: exact shares, rounded by one common random number.

    Examples
    --------
    >>> [random_shares(4, [1.0, 7.0], seed=0, step=step) for step in range(3)]
    [[1, 3], [0, 4], [1, 3]]
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)
    offset = float(torch.rand((), generator=generator, dtype=torch.float64))
    ends = [total * part / sum(masses) for part in itertools.accumulate(masses)]
    whole = [0, *(math.floor(end + offset) for end in ends[:-1]), total]
    return [high - low for low, high in itertools.pairwise(whole)]


def _held(pairs: Pairs) -> int:
    """Rows of an epoch: a DataLoader may take only some of its Dataset."""
    return len(pairs.loader.sampler) if isinstance(pairs, LoaderPairs) else len(pairs)  # type: ignore[arg-type]


def _own_batches(pairs: Pairs) -> float | None:
    """Rows of the batches of pairs that decide these themselves; NaN if unknown."""
    if isinstance(pairs, IndexedPairs):
        return None
    if not isinstance(pairs, LoaderPairs):
        return math.nan
    sampler = pairs.loader.batch_sampler
    return float(getattr(sampler, "batch_size", None) or math.nan)


def _check_proportion(name: str, masses: list[float], sizes: list[float | None]) -> None:
    """Refuse batches of a given size that do not keep the proportion of the ranks."""
    fixed = [rank for rank, size in enumerate(sizes) if size is not None]
    if not fixed:
        return
    what = f"`{name}` of rank {fixed[0]} come in batches that they decide themselves (a DataLoader)"
    if len(fixed) < len(sizes):
        other = next(rank for rank, size in enumerate(sizes) if size is None)
        raise ValueError(f"{what}, those of rank {other} do not. Pass tensors or a Dataset on all ranks.")
    known = [math.nan if size is None else size for size in sizes]
    if all(map(math.isnan, known)):  # nothing is said about sizes: then rows must be as many
        known = [1.0] * len(known)
    for rank, (mass, size) in enumerate(zip(masses, known, strict=True)):
        share, due = size / sum(known), mass / sum(masses)
        if not abs(share - due) <= UNEVEN * due:
            raise ValueError(
                f"{what}, and not in proportion to rows: rank {rank} has {due:.3g} of the rows and would give "
                f"{share:.3g} of every batch. Set batch sizes in proportion, or pass a Dataset."
            )
