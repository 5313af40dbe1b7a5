"""Simulations by OpenMM that write DCD and PDB files, show progress and go on where they were stopped."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.molecules import alanine, go_model
from benchmarks.molecules.structure import chignolin_path, read_pdb
from ncprob._files import replacing

SYSTEMS = ("backbone", "calpha", "alanine")
TEMPERATURE = 300.0  # K
FRICTION = 1.0  # 1/ps
STEP = {"backbone": 0.01, "calpha": 0.01, "alanine": 0.004}  # ps
PART = 500  # frames between checkpoints
DCD_HEADER = 276  # bytes before the first frame, as OpenMM writes them
DCD_COUNTS = (8, 20)  # where the header says how many frames there are, and the number of the last step


@dataclass(frozen=True)
class Run:
    """One simulation; its files are named by system and seed."""

    system: str
    ns: float
    seed: int
    interval: float = 2.0  # ps between frames
    strength: float | None = None  # kJ/mol of a native contact; None is the default of the system

    def __post_init__(self) -> None:
        if self.system not in SYSTEMS:
            raise ValueError(f"The system must be one of {', '.join(SYSTEMS)}; got {self.system!r}.")
        if self.ns <= 0 or self.interval <= 0:
            raise ValueError(f"--ns and --interval must be positive; got {self.ns:g} and {self.interval:g}.")

    @property
    def name(self) -> str:
        """Stem of the files."""
        return f"{self.system}-{self.seed}"

    @property
    def n_frames(self) -> int:
        """Frames to write."""
        return max(1, round(self.ns * 1000 / self.interval))

    @property
    def steps_per_frame(self) -> int:
        """Steps of the integrator between two frames."""
        return max(1, round(self.interval / STEP[self.system]))


def simulate(run: Run, folder: Path, pdb: str | os.PathLike[str] | None = None, progress: bool = True) -> Path:
    """Run until all frames are written to `folder`/NAME.dcd, beside the topology NAME.pdb; returns the DCD file."""
    openmm = import_openmm()
    topology, system, positions, native = _prepared(run, pdb)
    trajectory, checkpoint = folder / f"{run.name}.dcd", folder / f"{run.name}.checkpoint"
    facts = _identity(run, native)
    _check_files(run, facts, trajectory, checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(trajectory.with_suffix(".json")) as partial:
        partial.write_text(json.dumps(facts) + "\n")
    _write_topology(topology, positions, folder / f"{run.name}.pdb")
    integrator = openmm.LangevinMiddleIntegrator(TEMPERATURE, FRICTION, STEP[run.system])
    integrator.setRandomNumberSeed(run.seed + 1)  # zero would mean a seed by chance
    # For systems this small the Reference platform is the fastest by far.
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(positions)
    done = _resume(run, context, trajectory, checkpoint)
    if done == 0:
        if run.system == "alanine":  # native structures are at rest already
            openmm.LocalEnergyMinimizer.minimize(context, maxIterations=1000)
        context.setVelocitiesToTemperature(TEMPERATURE, run.seed + 1)
    with tqdm(total=run.n_frames, initial=done, desc=run.name, unit="frame", disable=not progress) as bar:
        while done < run.n_frames:
            part = min(PART, run.n_frames - done)
            _append(run, context, topology, trajectory, part, first=done == 0, bar=bar)
            done += part
            _save(facts, context, checkpoint, done)
    return trajectory


def import_openmm() -> Any:
    """OpenMM, or an error that names the extra."""
    try:
        import openmm
    except ImportError as error:
        raise ImportError("Simulations need OpenMM, which is not installed: pip install 'ncprob[md]'.") from error
    return openmm


def _prepared(run: Run, pdb: str | os.PathLike[str] | None) -> tuple[Any, Any, Any, str | None]:
    """Topology, system and start of a run, and the fingerprint of its native structure."""
    if run.system == "alanine":
        return *alanine.build(), None
    native = read_pdb(chignolin_path(pdb))
    model = go_model.go_model(native, run.system)
    strength = go_model.STRENGTH[run.system] if run.strength is None else run.strength
    return _topology(model), go_model.build_system(model, strength), model.structure.positions, native.fingerprint()


def _topology(model: go_model.GoModel) -> Any:
    from openmm import app

    topology = app.Topology()
    chain = topology.addChain()
    residues: dict[int, Any] = {}
    atoms = []
    structure = model.structure
    for name, residue_name, residue in zip(structure.names, structure.residue_names, structure.residues, strict=True):
        if residue not in residues:
            residues[residue] = topology.addResidue(residue_name, chain)
        atoms.append(topology.addAtom(name, app.Element.getBySymbol(name[0]), residues[residue]))
    for i, j in model.bonds:
        topology.addBond(atoms[i], atoms[j])
    return topology


def _write_topology(topology: Any, positions: Any, path: Path) -> None:
    from openmm import app, unit

    with_unit = positions if unit.is_quantity(positions) else np.asarray(positions) * unit.nanometer
    with replacing(path) as partial, partial.open("w") as file:
        app.PDBFile.writeFile(topology, with_unit, file)


def _append(run: Run, context: Any, topology: Any, path: Path, n: int, *, first: bool, bar: Any) -> None:
    """n further frames; the file is whole again when this returns."""
    from openmm import app, unit

    integrator = context.getIntegrator()
    step = STEP[run.system] * unit.picosecond
    with path.open("wb" if first else "r+b") as file:
        dcd = app.DCDFile(file, topology, step, 0, run.steps_per_frame, append=not first)
        for _ in range(n):
            integrator.step(run.steps_per_frame)
            dcd.writeModel(context.getState(positions=True).getPositions(asNumpy=True))
            bar.update()


def _save(facts: dict[str, Any], context: Any, path: Path, done: int) -> None:
    """State of the integrator and its random numbers, after a line that says whose they are."""
    with replacing(path) as partial:
        partial.write_bytes(json.dumps({"run": facts, "frames": done}).encode() + b"\n" + context.createCheckpoint())


def _resume(run: Run, context: Any, trajectory: Path, checkpoint: Path) -> int:
    """Frames already there; a file that is ahead of its checkpoint loses what came after it."""
    if not (trajectory.exists() and checkpoint.exists()):
        return 0
    line, _, state = checkpoint.read_bytes().partition(b"\n")
    done = int(json.loads(line)["frames"])
    context.loadCheckpoint(state)
    cut_dcd(trajectory, done, context.getSystem().getNumParticles(), run.steps_per_frame)
    return done


def _check_files(run: Run, facts: dict[str, Any], trajectory: Path, checkpoint: Path) -> None:
    """Refuse files of another simulation, and a run shorter than what is there, before anything is written."""
    beside = trajectory.with_suffix(".json")
    known = [(beside, json.loads(beside.read_text()))] if beside.exists() else []
    if checkpoint.exists():
        kept = json.loads(checkpoint.read_bytes().partition(b"\n")[0])
        known.append((checkpoint, kept["run"]))
        if trajectory.exists() and kept["frames"] > run.n_frames:
            raise ValueError(
                f"--ns must be at least {kept['frames'] * run.interval / 1000:g}, the length of {trajectory}; got "
                f"{run.ns:g}. Ask for as much, or choose another folder with --out."
            )
    for path, found in known:
        if found != facts:
            raise ValueError(f"{path} belongs to another simulation, {found}. Remove it or choose a folder with --out.")


def _identity(run: Run, native: str | None) -> dict[str, Any]:
    """What must agree to go on; a longer run may follow a shorter one."""
    return {key: value for key, value in asdict(run).items() if key != "ns"} | {"native": native}


def cut_dcd(path: Path, n_frames: int, n_atoms: int, steps_per_frame: int) -> None:
    """Keep the first frames of a DCD file without a box: three records of coordinates a frame."""
    size = DCD_HEADER + n_frames * 3 * (4 * n_atoms + 8)
    if path.stat().st_size < size:
        raise ValueError(f"{path} must hold {n_frames} frames, as its checkpoint says; it is shorter. Remove both.")
    with path.open("r+b") as file:
        file.truncate(size)
        for place, value in zip(DCD_COUNTS, (n_frames, n_frames * steps_per_frame), strict=True):
            file.seek(place)
            file.write(struct.pack("<i", value))
