"""A protein that folds: simulate it, learn its dynamics, ask for transition probabilities, compare with counting.

    python -m benchmarks.molecules all                           # what `make molecules` does: some 10 minutes on 2 cores
    python -m benchmarks.molecules simulate backbone --ns 58 --seed 0 --out molecules-output
    python -m benchmarks.molecules frames molecules-output/backbone-0.dcd --out molecules-output/backbone-0.npz
    python -m benchmarks.molecules train schnet --train backbone-0.npz --test backbone-1.npz --device cuda --epochs 100
    python -m benchmarks.molecules report molecules-output

Systems: `backbone` and `calpha` are structure-based models of chignolin (40 backbone atoms, 10 beads), `alanine` is
alanine dipeptide in implicit water. Simulations need OpenMM, DCD files need mdtraj (pip install -e '.[md]'); `train`
and `report` read .npz files and need neither.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.molecules import simulate as simulation


def main(arguments: list[str] | None = None) -> int:
    """Run a command; wrong input gives one line and status 2."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (ValueError, FileNotFoundError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.molecules",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    run = commands.add_parser("simulate", help="write a trajectory (DCD) and its topology (PDB); resumes")
    run.add_argument("system", choices=simulation.SYSTEMS)
    run.add_argument("--ns", type=float, default=58.0)
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--interval", type=float, default=2.0, help="ps between frames")
    run.add_argument("--strength", type=float, default=simulation.go_model.STRENGTH, help="kJ/mol of a native contact")
    run.add_argument("--pdb", type=Path, help="native structure, Protein Data Bank entry 5AWL")
    run.add_argument("--out", type=Path, default=Path("molecules-output"))
    run.set_defaults(command=_simulate)
    return parser


def _simulate(options: argparse.Namespace) -> None:
    run = simulation.Run(options.system, options.ns, options.seed, options.interval, options.strength)
    print(f"wrote {simulation.simulate(run, options.out, options.pdb)}")


if __name__ == "__main__":
    sys.exit(main())
