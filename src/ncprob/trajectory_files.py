"""Frames of molecular trajectory files, read by mdtraj some at a time into one array."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ncprob._validation import check_integer

WHOLE = (".pdb", ".pdb.gz", ".cif", ".gro")  # mdtraj reads these at once
BROKEN = (OSError, EOFError, RuntimeError, AssertionError)  # what mdtraj raises for files that are cut off
NAMED = (*WHOLE, ".h5", ".hdf5", ".lh5")  # formats with names of atoms


class FileReader:
    """Positions of chosen atoms from trajectory files, some frames at a time."""

    def __init__(
        self,
        topology: Any,
        atoms: str | Sequence[int] | None,
        stride: int,
        transform: Callable[[Any], Any] | None,
        chunk_size: int,
    ) -> None:
        try:
            import mdtraj
        except ImportError as error:
            raise ImportError(
                "reading trajectory files needs mdtraj. Install it with: pip install 'ncprob[md]'"
            ) from error
        self.mdtraj = mdtraj
        self.stride = check_integer(stride, "stride", minimum=1)
        self.chunk_size = check_integer(chunk_size, "chunk_size", minimum=1)
        self.transform, self.atoms = transform, atoms
        self.topology = self._read_topology(os.fspath(topology)) if _is_path(topology) else topology

    def _read_topology(self, path: str) -> Any:
        if not os.path.exists(path):
            raise FileNotFoundError(f"`topology` must be a file; there is no {path!r}. Mend the path.")
        try:
            return self.mdtraj.load_topology(path)
        except (OSError, ValueError, TypeError, IndexError) as error:
            raise ValueError(
                f"`topology` must be a file with the names of the atoms; {path!r} could not be read: {error}. Pass a "
                "PDB file."
            ) from error

    def read(self, paths: Sequence[str]) -> tuple[Tensor, list[int]]:
        """All frames in one tensor, and the number of frames of every file."""
        for path in paths:
            if not os.path.exists(path):
                raise FileNotFoundError(f"`paths` must be trajectory files; there is no {path!r}. Mend the path.")
        lengths = [self._count(path) for path in paths]
        kept: Tensor | None = None
        begin = 0
        for path, length in zip(paths, lengths, strict=True):
            end = begin + length
            for frames_of_chunk in self._chunks(path):
                part = torch.as_tensor(np.asarray(frames_of_chunk, dtype=np.float32))
                part = part[:, None] if part.ndim == 1 else part
                if kept is None:
                    kept = torch.empty(sum(lengths), *part.shape[1:], dtype=torch.float32)
                if part.shape[1:] != kept.shape[1:]:
                    raise ValueError(
                        f"`paths` must hold trajectories of the same atoms; {path!r} has frames of shape "
                        f"{tuple(part.shape[1:])}, the first file has {tuple(kept.shape[1:])}. Choose the same `atoms`."
                    )
                if begin + len(part) <= end:
                    kept[begin : begin + len(part)] = part
                begin += len(part)
            if begin != end:
                raise ValueError(
                    f"{path!r} must hold {length} frames, as it says itself; {length + begin - end} could be read. It "
                    "is not whole: write or copy it again."
                )
        if kept is None:
            raise ValueError(f"`paths` must hold trajectories; there is no frame in {paths[0]!r}. Mend the file.")
        return kept, lengths

    def _count(self, path: str) -> int:
        """Number of frames after `stride`."""
        try:
            with self.mdtraj.open(path) as file:
                total = len(file)
        except (TypeError, NotImplementedError, AttributeError):  # formats without an index
            return sum(len(chunk) for chunk in self._raw_chunks(path))
        except BROKEN as error:
            raise ValueError(
                f"`paths` must be trajectory files that mdtraj reads; {path!r} could not be opened: {error}. Use its "
                "usual extension, such as .dcd or .xtc, and see that the file is whole."
            ) from error
        return -(-max(total, _frames_of_dcd(path)) // self.stride)

    def _raw_chunks(self, path: str) -> Iterator[Any]:
        named = path.lower().endswith(NAMED)
        settings: dict[str, Any] = {} if named else {"top": self.topology}
        if not named and self.topology is None:
            raise ValueError(
                f"`topology` must be given for {path!r}: its format has no names of atoms. "
                "Pass a PDB file of the same molecule."
            )
        try:
            if path.lower().endswith(WHOLE):
                yield self.mdtraj.load(path, stride=self.stride)
            else:
                yield from self.mdtraj.iterload(path, chunk=self.chunk_size, stride=self.stride, **settings)
        except ValueError as error:
            raise ValueError(
                f"`topology` must have the atoms of the files; {path!r} could not be read with it: {error}. "
                "Pass the topology that the trajectory was written with."
            ) from error
        except BROKEN as error:
            raise ValueError(
                f"{path!r} could not be read to its end: {error}. It is not whole: write or copy it again."
            ) from error

    def _chunks(self, path: str) -> Iterator[Any]:
        chosen: NDArray[Any] | None = None
        for chunk in self._raw_chunks(path):
            if self.atoms is not None and chosen is None:
                chosen = self._chosen(chunk.topology)
            part = chunk if chosen is None else chunk.atom_slice(chosen)
            rows = part.xyz if self.transform is None else self.transform(part)
            if len(rows) != len(part):
                raise ValueError(
                    f"`transform` must give one row per frame; it gave {len(rows)} rows for {len(part)} frames. "
                    "Give an array whose first axis counts the frames."
                )
            yield rows

    def _chosen(self, topology: Any) -> NDArray[Any]:
        if not isinstance(self.atoms, str):
            chosen = np.asarray(self.atoms)
            good = chosen.ndim == 1 and chosen.size > 0 and chosen.dtype.kind in "iu"
            if not good or chosen[0] < 0 or chosen[-1] >= topology.n_atoms or (np.diff(chosen) <= 0).any():
                raise ValueError(
                    "`atoms` must be a selection such as 'name CA', or increasing numbers from 0 to "
                    f"{topology.n_atoms - 1}, since mdtraj keeps atoms in the order of the file; got {self.atoms!r}. "
                    "Sort them, or turn a mask into numbers with `np.flatnonzero(mask)`."
                )
            return chosen
        try:
            chosen = topology.select(self.atoms)
        except Exception as error:
            raise ValueError(
                f"`atoms` must be a selection in mdtraj's language; got {self.atoms!r}: {error}. Try 'name CA'."
            ) from error
        if len(chosen) == 0:
            raise ValueError(f"`atoms` must choose at least one atom; {self.atoms!r} chooses none. Try 'name CA'.")
        return chosen


def _frames_of_dcd(path: str) -> int:
    """Frames that the header of a DCD file tells of, which mdtraj does not look at; 0 if it does not tell."""
    if not path.lower().endswith(".dcd"):
        return 0
    with open(path, "rb") as file:
        head = file.read(12)
    order = "<" if head[:4] == struct.pack("<i", 84) else ">"  # the header is a record of 84 bytes
    return max(0, int(struct.unpack(f"{order}i", head[8:])[0])) if head[4:8] == b"CORD" else 0


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)
