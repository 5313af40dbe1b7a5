"""Uniform samples of a stream of rows that is too long for memory: a small one in memory, a large one on disk.

Every row gets a uniform random key. Rows with the m smallest keys are a uniform sample without replacement, and so are
those with the next smallest keys; a sample shrinks by lowering its highest key, so the length of the stream need not be
known. Rows on disk lie in random buckets of bounded size: reading these in random order, each shuffled, is a uniform
random order, however the stream was ordered.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ncprob.pairs import Batch, Chunk, systematic_sample
from ncprob.ranks import shares

BUCKET_BYTES = 2**25
MAX_BUCKETS = 256
KEY, NUMBER = 0, 1  # columns before those of the rows
Table = NDArray[np.float64]


class Spool:
    """Rows on disk in buckets; each row is its key, its number in the stream, then its columns."""

    def __init__(self, folder: Path, width: int, capacity: int, seed: int) -> None:
        self.folder, self.width, self.capacity = folder, width, capacity
        n_buckets = min(MAX_BUCKETS, max(1, -(-2 * capacity * 8 * width // BUCKET_BYTES)))
        self._paths = [folder / f"bucket-{number}" for number in range(n_buckets)]
        self._random = np.random.default_rng([seed, 1])
        self.counts = [0] * n_buckets
        self.below = 1.0  # keys of rows that are kept

    def __len__(self) -> int:
        return sum(self.counts)

    def add(self, rows: Table, above: float) -> None:
        """Put rows into random buckets; all rows that are kept have keys of at least `above`."""
        rows = rows[rows[:, KEY] < self.below]
        bucket = self._random.integers(len(self._paths), size=len(rows))
        for number, path in enumerate(self._paths):
            part = rows[bucket == number]
            if len(part):
                with self._writing(), path.open("ab") as file:
                    part.tofile(file)
                self.counts[number] += len(part)
        while len(self) > 2 * self.capacity:
            self.below = (self.below + above) / 2
            for number, path in enumerate(self._paths):
                part = self.bucket(number)
                part = part[part[:, KEY] < self.below]
                with self._writing():
                    part.tofile(path)
                self.counts[number] = len(part)

    def bucket(self, number: int) -> Table:
        """Rows of one bucket."""
        if self.counts[number] == 0:
            return np.zeros((0, self.width))
        return np.fromfile(self._paths[number]).reshape(-1, self.width)

    def renumber(self, maps: Mapping[int, Table]) -> None:
        """Replace whole numbers in some columns, see `renumbered`."""
        for number, path in enumerate(self._paths if maps else []):
            with self._writing():
                renumbered(self.bucket(number), maps).tofile(path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Tell what to do when the disk is full."""
        try:
            yield
        except OSError as error:
            needed = 8 * self.width * (2 * self.capacity + 2**17)  # rows that come at once are added before any leave
            raise OSError(
                f"rows for training could not be written to the temporary directory {self.folder} ({error}); up to "
                f"{needed:,} bytes are needed. Make room there, or name another directory by the variable TMPDIR."
            ) from error

    def fingerprint(self) -> str:
        """SHA-256 over all rows."""
        digest = hashlib.sha256()
        for number in range(len(self.counts)):
            digest.update(self.bucket(number).data)
        return digest.hexdigest()


class Reservoir:
    """A uniform sample of a stream in memory, and another one, of other rows, on disk.

    Up to 2 · `sample_rows` rows are all kept in memory; of more, `sample_rows` are, and between `spool_rows` and
    2 · `spool_rows` of the others go to files in `folder`, or all others, if there are fewer.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reservoir = Reservoir(Path(folder), n_columns=1, sample_rows=10, spool_rows=50, seed=0)
    ...     for start in range(0, 1000, 100):
    ...         reservoir.add(np.arange(start, start + 100.0)[:, None])
    ...     sample, spool = reservoir.finish()
    >>> sample.shape, 50 <= len(spool) <= 100
    ((10, 1), True)
    """

    def __init__(self, folder: Path, n_columns: int, sample_rows: int, spool_rows: int, seed: int) -> None:
        self.sample_rows, self.n_seen = sample_rows, 0
        self.spool = Spool(folder, 2 + n_columns, spool_rows, seed)
        self._random = np.random.default_rng([seed, 0])
        self._kept: list[Table] = []
        self._n_kept, self._below = 0, 1.0

    def add(self, rows: Table) -> None:
        """The next rows of the stream."""
        numbers = np.arange(self.n_seen, self.n_seen + len(rows), dtype=np.float64)
        keyed = np.column_stack([self._random.random(len(rows)), numbers, rows])
        self.n_seen += len(rows)
        kept = keyed[:, KEY] < self._below
        self._kept.append(keyed[kept])
        self._n_kept += int(kept.sum())
        if self._below < 1:
            self.spool.add(keyed[~kept], self._below)
        if self._n_kept > 2 * self.sample_rows:
            self._shrink()

    def _shrink(self) -> None:
        """Keep `sample_rows` rows in memory; the others go to disk."""
        rows = np.concatenate(self._kept)
        order = np.argpartition(rows[:, KEY], self.sample_rows)
        self._below = float(rows[order[self.sample_rows], KEY])
        self.spool.add(rows[order[self.sample_rows :]], self._below)
        self._kept, self._n_kept = [rows[order[: self.sample_rows]]], self.sample_rows

    def finish(self, maps: Mapping[int, Table] | None = None) -> tuple[Table, Spool | None]:
        """The rows in memory, in the order of the stream, and those on disk, if not all are in memory.

        `maps` are those of `renumbered`: levels of text have their final numbers only now.
        """
        if self._below < 1 and self._n_kept > self.sample_rows:
            self._shrink()
        rows = np.concatenate(self._kept) if self._kept else np.zeros((0, self.spool.width))
        rows = renumbered(rows[np.argsort(rows[:, NUMBER])], maps or {})
        self.spool.renumber(maps or {})
        return rows[:, 2:], self.spool if self._below < 1 else None


def renumbered(rows: Table, maps: Mapping[int, Table]) -> Table:
    """Rows with whole numbers k in some columns replaced by the k-th entry of their map, in place."""
    for column, values in maps.items():
        rows[:, 2 + column] = values[rows[:, 2 + column].astype(np.int64)]
    return rows


class SpoolPairs:
    """Pairs (x, y) made of rows on disk, batch by batch.

    `make` turns columns (rows, columns) and random integers (rows,), fixed for each row, into a pair; `weights` is the
    column of weights, if there is one: rows are then drawn in proportion to it.
    """

    def __init__(
        self, spool: Spool, make: Callable[[Tensor, Tensor], Batch], weights: int | None = None, device: Any = None
    ) -> None:
        self.spool, self.make, self.device = spool, make, device
        self._weights = None if weights is None else 2 + weights
        self._drawn = list(spool.counts)
        if self._weights is not None:
            masses = [float(spool.bucket(number)[:, self._weights].sum()) for number in range(len(spool.counts))]
            self._drawn = shares(len(spool), masses)

    def __len__(self) -> int:
        return len(self.spool)

    def _pair(self, rows: Table) -> Batch:
        # Keys are multiples of 2⁻⁵³, the last bits of which say nothing about which rows were kept.
        numbers = torch.as_tensor((rows[:, KEY] * 2.0**53) % 2**20).long()
        return self.make(torch.as_tensor(rows[:, 2:]).to(self.device), numbers.to(self.device))

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless shuffled batches of equal size."""
        size = min(batch_size, len(self))
        epoch, first = divmod(start, len(self) // size)
        for number in itertools.count(epoch):
            left: Table | None = None
            for rows in self._epoch(seed, number, skip=first * size):
                left = rows if left is None else np.concatenate([left, rows])
                whole = len(left) // size * size
                for begin in range(0, whole, size):
                    yield self._pair(left[begin : begin + size])
                left = left[whole:].copy()
            first = 0

    def _epoch(self, seed: int, epoch: int, skip: int) -> Iterator[Table]:
        """All rows in an order that is a function of (seed, epoch), without the first `skip`."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self.spool.counts)).tolist()
        for number in order:
            drawn = self._drawn[number]
            if skip < drawn:
                rows = self.spool.bucket(number)
                yield rows[self._shuffled(rows, drawn, [seed, epoch, number])[skip:]]
            skip = max(0, skip - drawn)

    def _shuffled(self, rows: Table, drawn: int, seed: list[int]) -> NDArray[Any]:
        random = np.random.default_rng(seed)
        if self._weights is None:
            return random.permutation(len(rows))
        generator = torch.Generator().manual_seed(int(random.integers(2**63)))
        index = systematic_sample(torch.as_tensor(rows[:, self._weights]), generator, drawn).numpy()
        return random.permutation(index)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All pairs once, with their weights."""
        for number in range(len(self.spool.counts)):
            rows = self.spool.bucket(number)
            for begin in range(0, len(rows), size):
                part = rows[begin : begin + size]
                weights = None if self._weights is None else torch.as_tensor(part[:, self._weights]).to(self.device)
                yield *self._pair(part), weights

    def fingerprint(self) -> str:
        """That of the rows."""
        return self.spool.fingerprint()
