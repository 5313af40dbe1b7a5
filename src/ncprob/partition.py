"""Pairs of which every rank takes a part: its rows of every batch, of every chunk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from ncprob._validation import check_choice
from ncprob.pairs import Batch, Chunk, IndexedPairs, LoaderPairs, Pairs, TensorPairs, index_batches
from ncprob.ranks import ALONE, Ranks, current_ranks, shares

RanksHold = Literal["same", "own", "alone"]


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
    check_choice(hold, "ranks", get_args(RanksHold))
    ranks = ALONE if hold == "alone" else current_ranks(device)
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
    """Pairs of this rank alone, beside those of others: each gives to a batch in proportion to its total weight."""

    def __init__(self, pairs: Pairs, ranks: Ranks, name: str = "pairs") -> None:
        self.pairs, self.ranks = pairs, ranks
        weights: Tensor | None = getattr(pairs, "weights", None)
        mass = float(len(pairs) if weights is None else weights.sum())
        known = ranks.gathered((len(pairs), mass, pairs.fingerprint()))
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
        self._length = sum(each[0] for each in known)
        self._identity = hashlib.sha256(repr([each[2] for each in known]).encode()).hexdigest()

    def __len__(self) -> int:
        return self._length

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Batches of this rank's pairs, of such sizes that those of all ranks add up to `batch_size`."""
        here = shares(min(batch_size, len(self)), self._masses)[self.ranks.rank]
        return self.pairs.batches(max(1, here), seed, start)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """The pairs of this rank."""
        return self.pairs.chunks(size)

    def fingerprint(self) -> str:
        """Of the pairs of all ranks."""
        return self._identity
