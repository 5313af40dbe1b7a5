"""`TimeLaggedPairs`: pairs (x_t, x_{t+lag}) of trajectories and time series, from memory or from files.

Frames are kept once; a pair is a position in them, so training, validation and test blocks share the same memory and
batches are gathered when they are asked for. No pair joins two trajectories.
"""

from __future__ import annotations

import copy
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ncprob import frames
from ncprob._validation import check_integer, check_number
from ncprob.pairs import Batch, Chunk, index_batches, to_device
from ncprob.trajectory_files import FileReader

CHECKED_ELEMENTS = 2**24  # frames are checked some at a time
FEWEST_DIGITS = 256  # steps of float32 that the values of a column must span for networks to tell them apart
Columns = Sequence[Any] | str | int | None


class TimeLaggedPairs:
    """Pairs of what is seen at time t and what is seen `lag` frames later.

    x is the frame at t, with `n_past` earlier ones if asked for, and y is the frame at t + lag:

        x = (z_t, z_{t−1}, …, z_{t−n_past}),    y = z_{t+lag}.

    `ncprob.train` and `SpectralOperator.postprocess` take it as it is; `arrays()` gives `X, y` for the estimators.

    Parameters
    ----------
    trajectories : array, tensor, data frame, or a list of these
        One or several trajectories, frames along the first axis: (n_frames,), (n_frames, p), (n_frames, atoms, 3), …
        A single array of floats is kept, not copied. A list or tuple always means several trajectories.
    lag : int
        Number of frames between x and y, at least 1.
    inputs, targets : names or positions of columns, optional
        Columns that make up x and y; by default all. For data frames and arrays of shape (n_frames, p).
    n_past : int
        Number of earlier frames beside the present one in x. Columns of x are those of time t first, then those of
        t − 1, and so on; frames of other shapes are stacked along a new axis after the first.

    Examples
    --------
    >>> pairs = TimeLaggedPairs([np.arange(5.0), np.arange(100.0, 104.0)], lag=2)
    >>> X, y = pairs.arrays()
    >>> X[:, 0], y
    (array([  0.,   1.,   2., 100., 101.]), array([  2.,   3.,   4., 102., 103.]))

    Contiguous blocks with a gap of at least the lag between them:

    >>> train, validation, test = TimeLaggedPairs(np.arange(1000.0), lag=5).split((0.8, 0.1, 0.1))
    >>> len(train), len(validation), len(test)
    (795, 90, 90)
    >>> float(validation.arrays()[0].min() - train.arrays()[1].max())
    6.0
    """

    def __init__(
        self,
        trajectories: Any,
        lag: int,
        *,
        inputs: Columns = None,
        targets: Columns = None,
        n_past: int = 0,
    ) -> None:
        self.lag = check_integer(lag, "lag", minimum=1)
        self.n_past = check_integer(n_past, "n_past", minimum=0)
        parts = _as_list(trajectories)
        self._tables = list(parts) if frames.is_frame(parts[0]) else None
        arrays, self._names = _arrays_of(parts)
        self._set_frames(_joined(arrays), [len(array) for array in arrays])
        self._inputs = self._columns(inputs, "inputs")
        self._targets = self._columns(targets, "targets")

    @classmethod
    def from_files(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        lag: int,
        *,
        topology: Any = None,
        atoms: str | Sequence[int] | None = None,
        stride: int = 1,
        transform: Callable[[Any], Any] | None = None,
        chunk_size: int = 1000,
        n_past: int = 0,
    ) -> TimeLaggedPairs:
        """Pairs of trajectory files (DCD, XTC, TRR, PDB, …), read by mdtraj some frames at a time.

        Each file is one trajectory. Frames are float32 of shape (n_atoms, 3) in nanometres and go straight into the one
        array that is kept; files whose length is not in their header are read twice, to count frames first.

        Parameters
        ----------
        paths : path or list of paths
            Trajectory files.
        lag : int
            Number of frames (after `stride`) between x and y.
        topology : path or mdtraj.Topology, optional
            Needed for formats without names of atoms, such as DCD, XTC and TRR.
        atoms : str or list of int, optional
            A selection in mdtraj's language (`"name CA"`, `"backbone"`) or increasing atom
            numbers; by default all atoms.
        stride : int
            Keep every `stride`-th frame.
        transform : callable, optional
            Maps an `mdtraj.Trajectory` of some frames to an array (n_frames, …) that is kept instead of the positions,
            for example distances.
        chunk_size : int
            Number of frames read at a time.

        Examples
        --------
        >>> pairs = TimeLaggedPairs.from_files(
        ...     ["run1.dcd", "run2.dcd"], topology="protein.pdb", lag=20, atoms="name CA"
        ... )  # doctest: +SKIP
        """
        check_integer(lag, "lag", minimum=1)
        reader = FileReader(topology, atoms, stride, transform, chunk_size)
        names = [os.fspath(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
        if not names:
            raise ValueError("`paths` must hold at least one file; got none. Pass the files of your trajectories.")
        kept, lengths = reader.read(names)
        self = cls.__new__(cls)
        self.lag, self.n_past = lag, check_integer(n_past, "n_past", minimum=0)
        self._tables, self._names, self._inputs, self._targets = None, None, None, None
        self._set_frames(kept, lengths, names)
        return self

    def _set_frames(self, kept: Tensor, lengths: Sequence[int], names: Sequence[str] | None = None) -> None:
        labels = [f"trajectory {i}" if names is None else repr(names[i]) for i in range(len(lengths))]
        for label, length in zip(labels, lengths, strict=True):
            if length <= self.lag + self.n_past:
                past = f" and `n_past` = {self.n_past}" if self.n_past else ""
                raise ValueError(
                    f"`lag` = {self.lag}{past} must leave at least one pair in every trajectory; {label} has only "
                    f"{length} frames. Lower `lag` or leave this trajectory out."
                )
        self._frames = kept
        self._device: torch.device | None = None
        self._checked: list[bool] = []  # shared by blocks of `split`: whether rounding to float32 was looked at
        self._borders = torch.tensor([0, *np.cumsum(lengths).tolist()])
        _check_finite(kept, self._borders, labels)
        self._positions = self._inside([(int(a), int(b)) for a, b in self._borders.unfold(0, 2, 1)])

    def _inside(self, blocks: Sequence[tuple[int, int]]) -> Tensor:
        """Positions t of all pairs whose frames t − n_past, …, t + lag lie within one of the blocks [begin, end)."""
        runs = [torch.arange(begin + self.n_past, max(begin + self.n_past, end - self.lag)) for begin, end in blocks]
        return torch.cat(runs)

    def _columns(self, chosen: Columns, name: str) -> Tensor | None:
        if chosen is None:
            return None
        if self._frames.ndim != 2:
            raise ValueError(
                f"`{name}` chooses columns of tables; got frames of shape {tuple(self._frames.shape[1:])}. "
                f"Leave `{name}` out, or choose before."
            )
        wanted = [chosen] if isinstance(chosen, str | int) else list(chosen)
        known = list(range(self._frames.shape[1])) if self._names is None else self._names
        unknown = [column for column in wanted if column not in known]
        if unknown or not wanted:
            raise ValueError(
                f"`{name}` must be columns among {known[:8]}; got {unknown[:3] or 'none'}. Name columns that exist."
            )
        return torch.tensor([known.index(column) for column in wanted])

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        shape = tuple(self._frames.shape[1:])
        return f"TimeLaggedPairs({len(self)} pairs, lag {self.lag}, {self.n_trajectories} trajectories of {shape})"

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories that have pairs here."""
        return len(self.trajectory().unique())

    def trajectory(self) -> Tensor:
        """Number of the trajectory of each pair, shape (n_pairs,)."""
        return torch.searchsorted(self._borders, self._positions, right=True) - 1

    def time(self) -> Tensor:
        """Frame number of x in its trajectory for each pair, shape (n_pairs,); that of y is `lag` more."""
        return self._positions - self._borders[self.trajectory()]

    def blocks(self, length: int) -> Tensor:
        """Number of the block of each pair: contiguous stretches of at most `length` pairs of one trajectory.

        Examples
        --------
        >>> TimeLaggedPairs([np.zeros(6), np.zeros(4)], lag=1).blocks(3)
        tensor([0, 0, 0, 1, 1, 2, 2, 2])
        """
        check_integer(length, "length", minimum=1)
        begins = torch.ones(len(self), dtype=torch.bool)
        begins[1:] = self._positions.diff() > 1  # a new trajectory, since pairs within one are contiguous
        run = begins.cumsum(0) - 1
        within = torch.arange(len(self)) - begins.nonzero()[:, 0][run]
        return (begins | (within % length == 0)).cumsum(0) - 1

    def split(
        self,
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        *,
        gap: int | None = None,
        whole_trajectories: bool = False,
    ) -> tuple[TimeLaggedPairs, ...]:
        """Blocks in the order of time, for training, validation and test; they share the frames.

        Frames of neighbouring blocks are at least `gap` apart, and every pair lies within its block. Shuffled rows
        would put neighbours in time, which are nearly equal, on both sides of a split and flatter the model.

        Parameters
        ----------
        fractions : sequence of float
            Shares of the frames, in the order of time; one block for each.
        gap : int, optional
            Frames left out between blocks, at least the lag, which is the default.
        whole_trajectories : bool
            False cuts every trajectory in time; True gives whole trajectories to the blocks, the last ones to the last.
        """
        if not isinstance(fractions, Sequence) or isinstance(fractions, str):
            raise TypeError(
                f"`fractions` must be a tuple with one share per block; got {fractions!r}. Write 0.8 as (0.8, 0.2)."
            )
        shares = [check_number(share, "fractions", minimum=0, maximum=1, open_ends=True) for share in fractions]
        if not shares or sum(shares) > 1 + 1e-9:
            raise ValueError(f"`fractions` must add to at most 1; got {tuple(fractions)}. Lower some of them.")
        gap = self.lag if gap is None else check_integer(gap, "gap", minimum=0)
        if gap < self.lag:
            raise ValueError(f"`gap` must be at least the lag, {self.lag}; got {gap}. Raise it or leave it out.")
        edges = np.cumsum([0.0, *shares])
        cut = self._cut_trajectories(edges) if whole_trajectories else self._cut_time(edges, gap)
        parts = []
        for number, blocks in enumerate(cut):
            part = copy.copy(self)
            inside = self._inside(blocks)
            part._positions = inside[torch.isin(inside, self._positions)]
            if len(part) == 0:
                raise ValueError(
                    f"`fractions` must leave at least one pair in every block; block {number} has none. The "
                    f"trajectories are too short for lag {self.lag} and gap {gap}: pass fewer or larger fractions, a "
                    "smaller lag, or `whole_trajectories=True`."
                )
            parts.append(part)
        return tuple(parts)

    def _cut_time(self, edges: NDArray[np.float64], gap: int) -> list[list[tuple[int, int]]]:
        """Every trajectory in blocks [begin, end); what is already cut off stays away."""
        cut: list[list[tuple[int, int]]] = [[] for _ in edges[1:]]
        for number in self.trajectory().unique():
            own = self._positions[self.trajectory() == number]
            begin, end = int(own[0]) - self.n_past, int(own[-1]) + self.lag + 1
            at = np.floor(edges * (end - begin) + 1e-9).astype(int) + begin
            for i, blocks in enumerate(cut):
                blocks.append((int(at[i]) + (gap if i else 0), int(at[i + 1])))
        return cut

    def _cut_trajectories(self, edges: NDArray[np.float64]) -> list[list[tuple[int, int]]]:
        """Trajectories by the middle of their frames in all frames."""
        borders = self._borders.numpy()
        known = self.trajectory().unique().numpy()
        middle = np.cumsum(np.diff(borders)[known]) - np.diff(borders)[known] / 2
        block = np.searchsorted(edges, middle / np.diff(borders)[known].sum(), side="right") - 1
        cut: list[list[tuple[int, int]]] = [[] for _ in edges[1:]]
        for number, i in zip(known, block, strict=True):
            if i < len(cut):
                cut[i].append((int(borders[number]), int(borders[number + 1])))
        for number, blocks in enumerate(cut):
            if not blocks:
                raise ValueError(
                    f"`fractions` must leave at least one trajectory in every block; block {number} has none of the "
                    f"{len(known)}. Pass other fractions, or cut in time with `whole_trajectories=False`."
                )
        return cut

    # ---------------------------------------------------------------- what training and estimators take

    def to(self, device: torch.device | None) -> TimeLaggedPairs:
        """The same pairs, whose batches and chunks go to `device`; frames stay where they are."""
        moved = copy.copy(self)
        moved._device = device
        return moved

    def _x(self, positions: Tensor) -> Tensor:
        x = self._frames[positions] if self._inputs is None else self._frames[positions][:, self._inputs]
        if self.n_past == 0:
            return x
        now = copy.copy(self)
        now.n_past = 0
        past = [x, *(now._x(positions - j) for j in range(1, self.n_past + 1))]
        return torch.cat(past, dim=1) if x.ndim == 2 else torch.stack(past, dim=1)

    def _y(self, positions: Tensor) -> Tensor:
        y = self._frames[positions + self.lag]
        return y if self._targets is None else y[:, self._targets]

    def _pair(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Batch:
        """x and y at some positions; networks take float32."""
        x, y = self._x(positions).to(dtype), self._y(positions).to(dtype)
        return to_device(x, self._device), to_device(y, self._device)

    def _check_rounding(self) -> None:
        """Warn once if float32, which networks take, cannot tell the values of a column apart."""
        if self._checked or self._frames.dtype != torch.float64:
            return
        self._checked.append(True)
        ends = [part.flatten(1).aminmax(dim=0) for part in _parts(self._frames)]
        low, high = torch.stack([e.min for e in ends]).amin(dim=0), torch.stack([e.max for e in ends]).amax(dim=0)
        rounding = torch.finfo(torch.float32).eps * torch.maximum(low.abs(), high.abs())
        lost = ((high > low) & (high - low < FEWEST_DIGITS * rounding)).nonzero()[:, 0]
        if len(lost):
            at = int(lost[0])
            label = at if self._names is None else repr(self._names[at])
            warnings.warn(
                f"column {label} of `trajectories` varies by {float(high[at] - low[at]):.2g} around "
                f"{float(low[at]):.6g}, which float32, the type of batches, cannot resolve. Subtract its mean first.",
                stacklevel=3,
            )

    def batches(self, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless shuffled batches of equal size, float32."""
        self._check_rounding()
        for index in index_batches(len(self), batch_size, seed, start):
            yield self.rows(index)

    def rows(self, index: Tensor | slice) -> Batch:
        """Some of the pairs, float32."""
        return self._pair(self._positions[index])

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All pairs once, in order, float32."""
        self._check_rounding()
        for positions in self._positions.split(size):
            yield *self._pair(positions), None

    def fingerprint(self) -> str:
        """SHA-256 over frames, positions and settings."""
        digest = hashlib.sha256(str((self.lag, self.n_past, self._inputs, self._targets)).encode())
        digest.update(self._positions.numpy().data)
        for part in _parts(self._frames):
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()

    def tensors(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """All x and all y; for example y as atoms of `SpectralOperator.distribution`."""
        if dtype != torch.float64:
            self._check_rounding()
        return self._pair(self._positions, dtype)

    def arrays(self) -> tuple[Any, Any]:
        """X and y for the estimators: arrays, or for data frames, data frames of the same library.

        y of a single target has shape (n,), or is a series. In pandas both have the index of time t, when the forecast
        is made, so that they align with each other and with predictions. Rows are in the order of time, so do not let
        an estimator hold out random ones: pass a block of `split` as `validation_data`.

        Examples
        --------
        >>> import pandas
        >>> table = pandas.DataFrame({"load": [1.0, 2.0, 4.0, 7.0], "heat": [0.0, 1.0, 0.0, 1.0]})
        >>> X, y = TimeLaggedPairs(table, lag=1, targets="load", n_past=1).arrays()
        >>> X
           load  heat  load[t-1]  heat[t-1]
        1   2.0   1.0        1.0        0.0
        2   4.0   0.0        2.0        1.0
        >>> y.tolist()
        [4.0, 7.0]
        """
        X, y = self._x(self._positions).numpy(), self._y(self._positions).numpy()
        if self._tables is not None and self._names is not None:
            names = self._names if self._inputs is None else [self._names[i] for i in self._inputs]
            labels = [*names, *(f"{name}[t-{j}]" for j in range(1, self.n_past + 1) for name in names)]
            goals = self._names if self._targets is None else [self._names[i] for i in self._targets]
            origin = self._positions.numpy()
            return (
                frames.table_of_rows(self._tables, origin, labels, X),
                frames.table_of_rows(self._tables, origin, goals, y, single=True),
            )
        return X, y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def _as_list(trajectories: Any) -> list[Any]:
    parts = list(trajectories) if isinstance(trajectories, list | tuple) else [trajectories]
    if not parts:
        raise ValueError("`trajectories` must hold at least one trajectory; got an empty list. Pass arrays of frames.")
    if any(np.ndim(part) == 0 and not frames.is_frame(part) for part in parts):
        raise TypeError(
            "`trajectories` must be an array of frames or a list of such arrays; got a list of numbers or other "
            f"objects ({type(parts[0]).__name__}). Pass one trajectory as `np.asarray(values)`."
        )
    tables = [frames.is_frame(part) for part in parts]
    if any(tables) and not all(tables):
        raise TypeError(
            "`trajectories` must be all data frames or all arrays; got both. Turn the data frames into arrays, or the "
            "arrays into data frames with the same columns."
        )
    return parts


def _arrays_of(parts: list[Any]) -> tuple[list[NDArray[Any]], list[Any] | None]:
    """Trajectories as arrays of numbers of one shape, and the names of the columns of data frames."""
    names: list[Any] | None = None
    arrays: list[NDArray[Any]] = []
    for number, part in enumerate(parts):
        if frames.is_frame(part):
            columns, values = frames.numeric_columns(part, f"trajectory {number}")
            if number > 0 and columns != names:
                raise ValueError(
                    f"`trajectories` must have the same columns; trajectory {number} has {columns[:6]}, the first has "
                    f"{(names or [])[:6]}. Choose the same columns of all."
                )
            names = columns
        else:
            values = _floats(part, number)
        if arrays and values.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(
                f"`trajectories` must have frames of one shape; trajectory {number} has {values.shape[1:]}, the first "
                f"has {arrays[0].shape[1:]}. Choose the same atoms or columns of all."
            )
        if 0 in values.shape[1:]:
            raise ValueError(
                f"`trajectories` must have at least one column; trajectory {number} has frames of shape "
                f"{values.shape[1:]}. Pass columns of numbers."
            )
        arrays.append(values)
    return arrays, names


def _floats(part: Any, number: int) -> NDArray[Any]:
    if isinstance(part, Tensor):
        part = part.detach().cpu()
        part = part.float() if part.dtype == torch.bfloat16 else part  # which numpy does not know
    array = np.asarray(part)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"`trajectories` must hold real numbers; trajectory {number} has values of type {array.dtype}. "
            "Turn them into floats first."
        )
    array = array[:, None] if array.ndim == 1 else array
    if array.dtype in (np.float32, np.float64):
        return array
    small = array.dtype.kind == "f" and array.dtype.itemsize <= 4  # half precision, or bytes in another order
    return array.astype(np.float32 if small else np.float64)


def _joined(arrays: list[NDArray[Any]]) -> Tensor:
    """One tensor of all frames: the given array itself if there is only one."""
    if len(arrays) == 1:
        if any(stride < 0 for stride in arrays[0].strides):
            arrays = [np.ascontiguousarray(arrays[0])]  # torch takes no negative strides
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable")  # memory maps; frames are never written to
            return torch.from_numpy(arrays[0])
    return torch.from_numpy(np.concatenate(arrays))


def _parts(kept: Tensor) -> Sequence[Tensor]:
    """Some frames at a time."""
    return kept.split(max(1, CHECKED_ELEMENTS // max(1, kept[0].numel())))


def _check_finite(kept: Tensor, borders: Tensor, labels: Sequence[str]) -> None:
    begin = 0
    for part in _parts(kept):
        bad = ~torch.isfinite(part).flatten(1).all(dim=1)
        if bool(bad.any()):
            at = begin + int(bad.nonzero()[0, 0])
            number = int(torch.searchsorted(borders, at, right=True)) - 1
            raise ValueError(
                f"`trajectories` must not contain NaN or infinity; {labels[number]} does at frame "
                f"{at - int(borders[number])}. Cut the trajectory there, or fill in the values."
            )
        begin += len(part)
