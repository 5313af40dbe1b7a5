"""Structure-based (Gō) model of a protein in OpenMM: the native structure is the minimum of the energy.

    E = Σ_bonds ½ k_b (r − r⁰)² + Σ_angles ½ k_a (θ − θ⁰)² + Σ_torsions k_t [1 − cos(φ − φ⁰)]
        − Σ_contacts ε w_c exp(−(r − r⁰)²/(2 s²)) + Σ_others ε_r (ρ/r)¹²,

with the native values marked by ⁰, s = 0.3 Å, and w_c the number of atom contacts between two residues (side chains
included), so that a contact has the strength ε on average; it acts between Cα. After Clementi, Nymeyer & Onuchic 2000
(doi:10.1006/jmbi.2000.3693), with Gaussian wells as in Lammert, Schug & Onuchic 2009 (doi:10.1002/prot.22511).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.molecules.structure import BACKBONE, Array, Structure, native_contacts

WELL_WIDTH = 0.03  # nm
STRENGTH = {"backbone": 4.5, "calpha": 3.5}  # kJ/mol, ε: folded some 80 % of the time at 300 K
BOND_STIFFNESS = 40_000.0  # kJ/mol/nm²: the fastest vibration has a period of some 80 fs, slow enough for 10 fs steps
ANGLE_STIFFNESS = 200.0  # kJ/mol/rad²
TORSION_STIFFNESS = 1.35  # kJ/mol; chosen for some 80 % of folded frames and 250 foldings in 58 ns
PLANAR_STIFFNESS = 20.0  # kJ/mol, peptide bonds and carbonyl oxygens
REPULSION = 1.0  # kJ/mol, ε_r
RADII = {"backbone": 0.3, "calpha": 0.4}  # nm, ρ
MASSES = {"N": 14.007, "C": 12.011, "O": 15.999}
RESIDUE_MASS = 110.0  # u, mean of amino acids: mass of a bead


@dataclass(frozen=True)
class GoModel:
    """Particles, native values and who is bonded to whom."""

    structure: Structure
    bonds: tuple[tuple[int, int], ...]
    angles: tuple[tuple[int, int, int], ...]
    torsions: tuple[tuple[int, int, int, int], ...]
    planar: tuple[tuple[int, int, int, int], ...]
    contacts: Array  # (contacts, 2), particles
    contact_distances: Array
    contact_weights: Array  # mean one
    radius: float  # nm, of the repulsion

    @property
    def masses(self) -> list[float]:
        """Masses of the particles in u."""
        beads = set(self.structure.names) == {"CA"}
        return [RESIDUE_MASS if beads else MASSES[element] for element in self.structure.elements]


def go_model(native: Structure, kind: str) -> GoModel:
    """The model with backbone heavy atoms, `"backbone"`, or with one bead per residue, `"calpha"`."""
    structure = native.select(BACKBONE if kind == "backbone" else ("CA",))
    known = native_contacts(native)
    pairs = np.array([[structure.index(int(r), "CA") for r in pair] for pair in known.pairs])
    weights = known.counts / known.counts.mean()
    chain, planar = _backbone(structure) if kind == "backbone" else (_chain(len(structure.names)), ())
    angles = _paths(chain, 3)
    torsions = tuple(path for path in _paths(chain, 4) if not _is_planar(structure, path))
    planar += tuple(path for path in _paths(chain, 4) if _is_planar(structure, path))
    return GoModel(structure, chain, angles, torsions, planar, pairs, known.distances, weights, RADII[kind])


def _chain(n: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, i + 1) for i in range(n - 1))


def _backbone(structure: Structure) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int, int, int], ...]]:
    """Bonds of the backbone, and the improper torsions that keep the oxygens in the planes of their peptide bonds."""
    bonds, improper = [], []
    n_residues = int(structure.residues.max()) + 1
    for r in range(n_residues):
        n, ca, c, o = (structure.index(r, name) for name in BACKBONE)
        bonds += [(n, ca), (ca, c), (c, o)]
        if r + 1 < n_residues:
            after = structure.index(r + 1, "N")
            bonds.append((c, after))
            improper.append((ca, after, c, o))
    return tuple(bonds), tuple(improper)


def _paths(bonds: tuple[tuple[int, int], ...], length: int) -> tuple[Any, ...]:
    """Chains of bonded particles, each once."""
    neighbours: dict[int, set[int]] = {}
    for a, b in bonds:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    paths = [(a,) for a in neighbours]
    for _ in range(length - 1):
        paths = [(*path, b) for path in paths for b in sorted(neighbours[path[-1]]) if b not in path]
    return tuple(sorted(path for path in paths if path[0] < path[-1]))


def _is_planar(structure: Structure, path: tuple[int, ...]) -> bool:
    """Whether the torsion turns about a peptide bond C–N."""
    return {structure.names[path[1]], structure.names[path[2]]} == {"C", "N"}


def torsion(positions: Array, path: tuple[int, ...]) -> float:
    """Dihedral angle of four points in rad, with OpenMM's sign."""
    a, b, c, d = positions[list(path)]
    axis = (c - b) / np.linalg.norm(c - b)
    first, second = np.cross(b - a, axis), np.cross(axis, d - c)
    return float(np.arctan2(np.cross(first, second) @ axis, first @ second))


def bend(positions: Array, path: tuple[int, ...]) -> float:
    """Angle of three points in rad."""
    a, b, c = positions[list(path)]
    cosine = (a - b) @ (c - b) / (np.linalg.norm(a - b) * np.linalg.norm(c - b))
    return float(np.arccos(np.clip(cosine, -1, 1)))


def build_system(model: GoModel, strength: float) -> Any:
    """The OpenMM `System` of a model."""
    import openmm

    x = model.structure.positions
    system = openmm.System()
    for mass in model.masses:
        system.addParticle(mass)
    bonds, angles = openmm.HarmonicBondForce(), openmm.HarmonicAngleForce()
    for i, j in model.bonds:
        bonds.addBond(i, j, float(np.linalg.norm(x[i] - x[j])), BOND_STIFFNESS)
    for path in model.angles:
        angles.addAngle(*path, bend(x, path), ANGLE_STIFFNESS)
    # k [1 − cos(φ − φ⁰)] is OpenMM's k [1 + cos(nφ − phase)] with n = 1 and phase φ⁰ + π.
    torsions = openmm.PeriodicTorsionForce()
    for paths, stiffness in ((model.torsions, TORSION_STIFFNESS), (model.planar, PLANAR_STIFFNESS)):
        for path in paths:
            torsions.addTorsion(*path, 1, torsion(x, path) + np.pi, stiffness)
    forces = [bonds, angles, torsions, _wells(model, strength), _repulsion(model)]
    for force in forces:
        system.addForce(force)
    return system


def _wells(model: GoModel, strength: float) -> Any:
    import openmm

    wells = openmm.CustomBondForce("-depth*exp(-(r-native)^2/(2*width^2))")
    wells.addGlobalParameter("width", WELL_WIDTH)
    wells.addPerBondParameter("depth")
    wells.addPerBondParameter("native")
    for (i, j), weight, length in zip(model.contacts, model.contact_weights, model.contact_distances, strict=True):
        wells.addBond(int(i), int(j), [strength * float(weight), float(length)])
    return wells


def _repulsion(model: GoModel) -> Any:
    """(ρ/r)¹² between particles more than three bonds apart that are no contact; ρ is at most the native distance."""
    import openmm

    x, n = model.structure.positions, len(model.structure.names)
    bonded = {frozenset(pair) for length in (2, 3, 4) for pair in ((p[0], p[-1]) for p in _paths(model.bonds, length))}
    contacts = {frozenset(map(int, pair)) for pair in model.contacts}
    repulsion = openmm.CustomBondForce("strength*(radius/r)^12")
    repulsion.addGlobalParameter("strength", REPULSION)
    repulsion.addPerBondParameter("radius")
    for i, j in combinations(range(n), 2):
        if frozenset((i, j)) not in bonded | contacts:
            repulsion.addBond(i, j, [min(model.radius, float(np.linalg.norm(x[i] - x[j])))])
    return repulsion
