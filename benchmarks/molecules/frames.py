"""Frames of a simulation with what is asked about them: from DCD and PDB files by mdtraj, or from one .npz file.

An .npz file holds all that training needs, so that a machine with an accelerator needs neither OpenMM nor mdtraj.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.molecules.structure import (
    FOLDED,
    Array,
    Contacts,
    Structure,
    chignolin_path,
    fraction_native,
    native_contacts,
    read_pdb,
)
from ncprob._files import replacing

LAG = 20.0  # ps between a frame and the one that is forecast
WATCHED = (1, 8)  # the distance that is forecast: Cα of residues 2 and 9


@dataclass(frozen=True)
class Frames:
    """Positions in nm, the atoms, the time between frames in ps and the contacts of the native structure."""

    positions: Array  # (frames, atoms, 3), float32
    names: Array
    residues: Array
    bonds: Array  # (bonds, 2)
    interval: float
    contacts: Contacts

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def lag(self) -> int:
        """`LAG` in frames."""
        return max(1, round(LAG / self.interval))

    @property
    def calpha(self) -> Array:
        """Numbers of the Cα atoms."""
        return np.flatnonzero(self.names == "CA")

    @cached_property
    def q(self) -> Array:
        """Fraction of native contacts of every frame."""
        return fraction_native(self.positions[:, self.calpha], self.contacts)

    @property
    def folded(self) -> Array:
        """Whether each frame is in the folded state."""
        return self.q > FOLDED

    @cached_property
    def distance(self) -> Array:
        """The watched distance of every frame in nm."""
        first, second = self.calpha[list(WATCHED)]
        return np.linalg.norm(self.positions[:, first] - self.positions[:, second], axis=-1)

    def thinned(self, every: int) -> Frames:
        """Every so many frames; the lag must stay a multiple of the time between them."""
        interval = self.interval * every
        if every < 1 or abs(LAG / interval - round(LAG / interval)) > 1e-9:
            raise ValueError(
                f"--every must divide the {self.lag} frames of {self.interval:g} ps in the lag of {LAG:g} ps; got "
                f"{every}. Choose another number."
            )
        return replace(self, positions=self.positions[::every], interval=interval)

    def fingerprint(self) -> str:
        """SHA-256 over positions, atoms, interval and contacts: what ties a forecast to its runs."""
        digest = hashlib.sha256(repr((self.names.tolist(), self.residues.tolist(), self.interval)).encode())
        digest.update(np.ascontiguousarray(self.positions, dtype="<f4").tobytes())
        for part in (self.bonds, self.contacts.pairs, self.contacts.counts):
            digest.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
        digest.update(np.ascontiguousarray(self.contacts.distances, dtype="<f8").tobytes())
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """Write one .npz file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(
                file,
                positions=self.positions.astype(np.float32),
                names=self.names,
                residues=self.residues,
                bonds=self.bonds,
                interval=self.interval,
                contact_pairs=self.contacts.pairs,
                contact_counts=self.contacts.counts,
                contact_distances=self.contacts.distances,
            )


def load(path: Path, interval: float | None = None, pdb: str | os.PathLike[str] | None = None) -> Frames:
    """Frames of an .npz file, or of a trajectory file with its topology in a PDB file of the same name.

    The interval and the native structure of a trajectory are those that `simulate` wrote beside it, in a JSON file.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"The trajectory {path} is not there. Make it with `python -m benchmarks.molecules simulate`."
        )
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as kept:
            fields = {name: kept[name] for name in ("positions", "names", "residues", "bonds")}
            contacts = Contacts(*(kept[f"contact_{name}"] for name in ("pairs", "counts", "distances")))
            return Frames(**fields, interval=float(kept["interval"]), contacts=contacts)
    return _read_trajectory(path, interval, pdb)


def _read_trajectory(path: Path, interval: float | None, pdb: str | os.PathLike[str] | None) -> Frames:
    mdtraj, native = _import_mdtraj(), read_pdb(chignolin_path(pdb))
    interval = _checked_interval(path, interval, native)
    trajectory = mdtraj.load(str(path), top=str(path.with_suffix(".pdb")))
    atoms = list(trajectory.topology.atoms)
    return Frames(
        trajectory.xyz,
        np.array([atom.name for atom in atoms]),
        np.array([atom.residue.index for atom in atoms]),
        np.array([(first.index, second.index) for first, second in trajectory.topology.bonds]),
        interval,
        native_contacts(native),
    )


def _checked_interval(path: Path, interval: float | None, native: Structure) -> float:
    """ps between frames, as written beside the trajectory; a structure or an interval that disagrees is refused."""
    beside = path.with_suffix(".json")
    if not beside.is_file():
        if interval is None:
            raise ValueError(f"There is no {beside} to say how far apart frames are: say it with --interval, in ps.")
        return interval
    facts = json.loads(beside.read_text())
    if interval is not None and interval != facts["interval"]:
        raise ValueError(
            f"--interval must be {facts['interval']:g} ps, with which {path} was simulated; got {interval:g}. "
            "Leave it out."
        )
    if facts["native"] != native.fingerprint():
        raise ValueError(f"{path} was simulated from another native structure. Give the same one with --pdb.")
    return float(facts["interval"])


def _import_mdtraj() -> Any:
    try:
        import mdtraj
    except ImportError as error:
        raise ImportError("Trajectory files need mdtraj, which is not installed: pip install 'ncprob[md]'.") from error
    return mdtraj
