"""Native structures: atoms of a PDB file, native contacts, fraction of native contacts. Plain NumPy, lengths in nm."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CHECKOUT = Path(__file__).resolve().parents[2]
CHIGNOLIN = "chignolin_5awl.pdb"
BACKBONE = ("N", "CA", "C", "O")
CONTACT_DISTANCE = 0.45  # nm, between heavy atoms of two residues, side chains included
CONTACT_SEPARATION = 3  # residues along the chain
FORMED, SHARPNESS = 1.2, 50.0  # of Q: multiple of the native distance at which a contact opens, and 1/nm
FOLDED = 0.35  # Q above which the protein counts as folded: between the modes; the valley of these runs is near 0.28


@dataclass(frozen=True)
class Structure:
    """Heavy atoms in the order of the file."""

    names: tuple[str, ...]
    residue_names: tuple[str, ...]
    residues: Array  # index of the residue of every atom, from 0
    positions: Array  # (atoms, 3), nm

    def select(self, names: tuple[str, ...]) -> Structure:
        """The atoms of these names."""
        kept = [i for i, name in enumerate(self.names) if name in names]
        return Structure(
            tuple(self.names[i] for i in kept),
            tuple(self.residue_names[i] for i in kept),
            self.residues[kept],
            self.positions[kept],
        )

    @property
    def elements(self) -> tuple[str, ...]:
        """Chemical elements; the atoms of proteins are named by them."""
        return tuple(name[0] for name in self.names)

    def fingerprint(self) -> str:
        """SHA-256 over atoms and positions."""
        digest = hashlib.sha256(repr((self.names, self.residue_names, self.residues.tolist())).encode())
        digest.update(np.ascontiguousarray(self.positions, dtype="<f8").tobytes())
        return digest.hexdigest()

    def index(self, residue: int, name: str) -> int:
        """Position of an atom in the list; residues count from 0."""
        return next(i for i, r in enumerate(self.residues) if r == residue and self.names[i] == name)


@dataclass(frozen=True)
class Contacts:
    """Native contacts of residues: pairs, how many atom contacts each has, distance of the Cα in nm."""

    pairs: Array  # (contacts, 2), residues from 0
    counts: Array
    distances: Array


def chignolin_path(path: str | os.PathLike[str] | None = None) -> Path:
    """The PDB file with the native coordinates: the given one, or the one in the folder of the data."""
    folder = Path(os.environ.get("NCPROB_DATA", CHECKOUT.parent / "shared" / "data"))
    found = Path(path) if path is not None else folder / CHIGNOLIN
    if not found.is_file():
        raise FileNotFoundError(
            f"The native structure must be a PDB file; {found} is not there. Give the path of the Protein Data Bank "
            f"entry 5AWL with --pdb, or set NCPROB_DATA to the folder that holds {CHIGNOLIN}."
        )
    return found


def read_pdb(path: Path) -> Structure:
    """Heavy atoms of the first model of a PDB file, the first of alternative places."""
    names, residue_names, numbers, positions = [], [], [], []
    for line in path.read_text().splitlines():
        if line.startswith("ENDMDL"):
            break
        if not line.startswith("ATOM") or line[16] not in " A" or line[12:16].strip()[0] in "H0123456789":
            continue
        names.append(line[12:16].strip())
        residue_names.append(line[17:20].strip())
        numbers.append(line[21:27])
        positions.append([float(line[k : k + 8]) / 10 for k in (30, 38, 46)])
    if not names:
        raise ValueError(f"{path} must hold ATOM records; it has none. Give a PDB file of a protein.")
    order = {number: index for index, number in enumerate(dict.fromkeys(numbers))}
    residues = np.array([order[number] for number in numbers])
    return Structure(tuple(names), tuple(residue_names), residues, np.array(positions))


def native_contacts(structure: Structure) -> Contacts:
    """Residues at least `CONTACT_SEPARATION` apart with heavy atoms closer than `CONTACT_DISTANCE`."""
    distances = np.linalg.norm(structure.positions[:, None] - structure.positions[None], axis=-1)
    alpha = {int(r): structure.index(int(r), "CA") for r in np.unique(structure.residues)}
    pairs, counts, lengths = [], [], []
    for i in alpha:
        for j in range(i + CONTACT_SEPARATION, len(alpha)):
            close = distances[np.ix_(structure.residues == i, structure.residues == j)] < CONTACT_DISTANCE
            if close.any():
                pairs.append((i, j))
                counts.append(int(close.sum()))
                lengths.append(distances[alpha[i], alpha[j]])
    if not pairs:
        raise ValueError(
            f"The native structure must have residues in contact, heavy atoms within {CONTACT_DISTANCE:g} nm; it has "
            "none. Give the structure of a folded protein."
        )
    return Contacts(np.array(pairs), np.array(counts), np.array(lengths))


def fraction_native(alpha_positions: Array, contacts: Contacts) -> Array:
    """Q from positions of the Cα (frames, residues, 3) in nm: share of the native atom contacts that are formed.

    Smooth in the distances, Q = Σ_c w_c / (1 + exp(50/nm (r_c − 1.2 r_c⁰))), after Best, Hummer & Eaton 2013
    (doi:10.1073/pnas.1311599110); w_c is the share of a pair of residues in all atom contacts.
    """
    first, second = contacts.pairs.T
    lengths = np.linalg.norm(alpha_positions[:, first] - alpha_positions[:, second], axis=-1)
    formed = 1 / (1 + np.exp(np.clip(SHARPNESS * (lengths - FORMED * contacts.distances), -50, 50)))
    return formed @ (contacts.counts / contacts.counts.sum())


def events(q: Array, low: float = 0.2, high: float = 0.6) -> tuple[int, int]:
    """Foldings and unfoldings: passages of Q from below `low` to above `high`, and back."""
    sides = np.where(q > high, 1, np.where(q < low, -1, 0))
    turns = np.diff(sides[sides != 0])
    return int((turns > 0).sum()), int((turns < 0).sum())
