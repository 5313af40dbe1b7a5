"""Alanine dipeptide (ACE-ALA-NME) in implicit water: Amber ff14SB with the native GBSAOBCForce of OpenMM.

OpenMM's `implicit/obc2.xml` builds a custom force that is several times slower; the native one with the same radii
gives the same energy. Hydrogens weigh 4 u, taken from the atoms they are bonded to, and bonds are rigid: steps of 4 fs.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

# Radii in nm and scale factors of Onufriev, Bashford & Case 2004 (doi:10.1002/prot.20033), sets mbondi2 and OBC2.
RADII = {"H": 0.12, "C": 0.17, "N": 0.155, "O": 0.15}
HYDROGEN_ON_NITROGEN = 0.13
SCALES = {"H": 0.85, "C": 0.72, "N": 0.79, "O": 0.85}
HYDROGEN_MASS = 4.0  # u

# Heavy atoms by internal coordinates: residue, name, (distance nm to, angle ° with, torsion ° about) earlier atoms.
GEOMETRY = [
    ("ACE", "CH3", None),
    ("ACE", "C", (0.152, 0)),
    ("ACE", "O", (0.123, 1, 121.0, 0)),
    ("ALA", "N", (0.134, 1, 116.0, 0, 180.0, 2)),
    ("ALA", "CA", (0.145, 3, 122.0, 1, 180.0, 0)),
    ("ALA", "C", (0.152, 4, 111.0, 3, -80.0, 1)),
    ("ALA", "O", (0.123, 5, 120.0, 4, -40.0, 3)),
    ("ALA", "CB", (0.153, 4, 110.0, 3, 158.0, 1)),
    ("NME", "N", (0.134, 5, 116.0, 4, 140.0, 3)),
    ("NME", "C", (0.145, 8, 122.0, 5, 180.0, 4)),
]


def build() -> tuple[Any, Any, Any]:
    """Topology, system and positions; the start is the β basin."""
    import openmm
    from openmm import app, unit

    topology, positions = _heavy_atoms()
    field = app.ForceField("amber14/protein.ff14SB.xml")
    modeller = app.Modeller(topology, positions * unit.nanometer)
    before = random.getstate()
    random.seed(0)  # hydrogens are placed by chance before they are relaxed
    modeller.addHydrogens(field, platform=openmm.Platform.getPlatformByName("Reference"))
    random.setstate(before)
    system = field.createSystem(
        modeller.topology,
        nonbondedMethod=app.NoCutoff,
        constraints=app.AllBonds,
        hydrogenMass=HYDROGEN_MASS * unit.amu,
        removeCMMotion=True,
    )
    system.addForce(_implicit_water(modeller.topology, system))
    return modeller.topology, system, modeller.positions


def _implicit_water(topology: Any, system: Any) -> Any:
    import openmm
    from openmm import unit

    water = openmm.GBSAOBCForce()
    water.setNonbondedMethod(openmm.GBSAOBCForce.NoCutoff)
    partners: dict[int, str] = {}
    for first, second in topology.bonds():
        partners[first.index], partners[second.index] = second.element.symbol, first.element.symbol
    charges = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    for atom in topology.atoms():
        symbol = atom.element.symbol
        on_nitrogen = symbol == "H" and partners[atom.index] == "N"
        charge = charges.getParticleParameters(atom.index)[0].value_in_unit(unit.elementary_charge)
        water.addParticle(charge, HYDROGEN_ON_NITROGEN if on_nitrogen else RADII[symbol], SCALES[symbol])
    return water


def _heavy_atoms() -> tuple[Any, Any]:
    from openmm import app

    topology = app.Topology()
    chain = topology.addChain()
    residues: dict[str, Any] = {}
    positions: list[np.ndarray] = []
    for residue, name, place in GEOMETRY:
        if residue not in residues:
            residues[residue] = topology.addResidue(residue, chain)
        topology.addAtom(name, app.Element.getBySymbol(name[0]), residues[residue])
        positions.append(_placed(positions, place))
    topology.createStandardBonds()
    return topology, np.array(positions)


def _placed(positions: list[np.ndarray], place: Any) -> np.ndarray:
    """Position of an atom from its distance, angle and torsion; the first three lie in a plane."""
    if place is None:
        return np.zeros(3)
    if len(place) == 2:
        return positions[place[1]] + np.array([place[0], 0.0, 0.0])
    if len(place) == 4:
        length, b, angle, a = place
        along = (positions[a] - positions[b]) / np.linalg.norm(positions[a] - positions[b])
        theta = np.radians(angle)
        return positions[b] + length * (np.cos(theta) * along + np.sin(theta) * np.array([0.0, 1.0, 0.0]))
    length, c, angle, b, torsion, a = place
    theta, phi = np.radians(angle), np.radians(torsion)
    axis = (positions[c] - positions[b]) / np.linalg.norm(positions[c] - positions[b])
    normal = np.cross(positions[b] - positions[a], axis)
    normal /= np.linalg.norm(normal)
    side = np.cross(normal, axis)
    step = -np.cos(theta) * axis + np.sin(theta) * (np.cos(phi) * side + np.sin(phi) * normal)
    return positions[c] + length * step
