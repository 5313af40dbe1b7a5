"""A protein that folds: simulate it, learn its dynamics, ask for transition probabilities, compare with counting.

    python -m benchmarks.molecules all                           # what `make molecules` does: 10 minutes on 2 cores
    python -m benchmarks.molecules simulate backbone --ns 58 --seed 0
    python -m benchmarks.molecules frames molecules-output/backbone-0.dcd
    python -m benchmarks.molecules train schnet --train backbone-0.npz --test backbone-1.npz --epochs 100 --device cuda
    python -m benchmarks.molecules forecast schnet --train backbone-0.npz --test backbone-1.npz  # again, as trained
    python -m benchmarks.molecules speed schnet --train backbone-0.npz --steps 30
    python -m benchmarks.molecules report --train backbone-0.npz --test backbone-1.npz

Systems: `backbone` and `calpha` are structure-based models of chignolin (40 backbone atoms, 10 beads), `alanine` is
alanine dipeptide in implicit water. Simulations need OpenMM and DCD files need mdtraj (pip install -e '.[md]'); `train`
and `report` read .npz files and need neither. A simulation that was
interrupted goes on where it was; trainings begin anew.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.molecules import frames as frame_files
from benchmarks.molecules import simulate as simulation
from benchmarks.molecules.experiment import (
    RECIPES,
    Outcome,
    Settings,
    forecasted,
    load_encoder,
    save_encoder,
    trained,
)
from benchmarks.records import RESULTS, Records

OUT = Path("molecules-output")
TRAIN_SEED, TEST_SEED = 0, 1
SPEED = RESULTS / "molecules-speed.csv"
SPEEDS = ["method", "device", "steps_per_second", "steps", "seconds", "batch_size", "parameters", "version"]


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
        prog="python -m benchmarks.molecules", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    simulate = commands.add_parser("simulate", help="write a trajectory (DCD), its topology (PDB) and settings (JSON)")
    simulate.add_argument("system", choices=simulation.SYSTEMS)
    simulate.add_argument("--ns", type=float, default=58.0)
    simulate.add_argument("--seed", type=int, default=0)
    simulate.add_argument("--interval", type=float, default=2.0, help="ps between frames")
    simulate.add_argument(
        "--strength", type=float, help="kJ/mol of a contact; by default 4.5 for backbone, 3.5 for calpha"
    )
    _add_pdb(simulate)
    simulate.add_argument("--out", type=Path, default=OUT)
    simulate.set_defaults(command=_simulate)

    convert = commands.add_parser("frames", help="turn a trajectory of chignolin into one .npz file")
    convert.add_argument("trajectory", type=Path)
    convert.add_argument("--interval", type=float, help="ps between frames, if no JSON file beside says it")
    convert.add_argument("--every", type=int, default=1, help="keep every so many frames")
    _add_pdb(convert)
    convert.add_argument("--out", type=Path, help="by default the same name with .npz")
    convert.set_defaults(command=_frames)

    train = commands.add_parser("train", help="train an encoder, forecast the test run, write encoder and forecast")
    train.add_argument("encoder", choices=tuple(RECIPES))
    _add_runs(train)
    _add_training(train)
    train.set_defaults(command=_train)

    forecast = commands.add_parser("forecast", help="forecast the test run again with the encoder that `train` wrote")
    forecast.add_argument("encoder", choices=tuple(RECIPES))
    _add_runs(forecast)
    forecast.set_defaults(command=_forecast)

    speed = commands.add_parser("speed", help="time some steps of training, append a line to a CSV file")
    speed.add_argument("encoder", choices=tuple(RECIPES))
    speed.add_argument("--train", type=Path, default=OUT / f"backbone-{TRAIN_SEED}.npz")
    _add_training(speed)
    speed.add_argument("--out", type=Path, default=SPEED)
    speed.set_defaults(command=_speed)

    report = commands.add_parser("report", help="write benchmarks/results/NAME*.csv and the picture")
    _add_runs(report)
    report.add_argument("--name", default="molecules", help="of the tables, the picture and the place in the guide")
    report.set_defaults(command=_report)

    everything = commands.add_parser("all", help="all of the above")
    everything.add_argument("--ns", type=float, default=58.0)
    _add_pdb(everything)
    everything.add_argument("--out", type=Path, default=OUT)
    everything.set_defaults(command=_all)
    return parser


def _add_pdb(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pdb", type=Path, help="native structure, Protein Data Bank entry 5AWL")


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, help="by default what the encoder needs on a CPU")
    parser.add_argument("--epochs", type=float, help="passes over the training pairs, instead of --steps")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--gamma", type=float, default=1e-3)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train", type=Path, default=OUT / f"backbone-{TRAIN_SEED}.npz")
    parser.add_argument("--test", type=Path, default=OUT / f"backbone-{TEST_SEED}.npz")
    parser.add_argument("--out", type=Path, default=OUT)


def _simulate(options: argparse.Namespace) -> None:
    run_ = simulation.Run(options.system, options.ns, options.seed, options.interval, options.strength)
    print(f"wrote {simulation.simulate(run_, options.out, options.pdb)}")


def _frames(options: argparse.Namespace) -> None:
    out = options.out or options.trajectory.with_suffix(".npz")
    frame_files.load(options.trajectory, options.interval, options.pdb).thinned(options.every).save(out)
    print(f"wrote {out}")


def _settings(options: argparse.Namespace) -> Settings:
    names = ("steps", "epochs", "batch_size", "gamma", "learning_rate", "seed", "device")
    return Settings(options.encoder, **{name: getattr(options, name) for name in names})


def _encoder_file(options: argparse.Namespace) -> Path:
    return Path(options.out) / f"encoder-{options.encoder}.safetensors"


def _train(options: argparse.Namespace) -> None:
    train, test = frame_files.load(options.train), frame_files.load(options.test)
    operator, facts = trained(train, _settings(options))
    save_encoder(operator, facts, _encoder_file(options))
    _write_forecast(forecasted(operator, facts, train, test), options)


def _forecast(options: argparse.Namespace) -> None:
    path = _encoder_file(options)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there. Make it with `python -m benchmarks.molecules train`.")
    train, test = frame_files.load(options.train), frame_files.load(options.test)
    _write_forecast(forecasted(*load_encoder(path, train), train, test), options)


def _write_forecast(outcome: Outcome, options: argparse.Namespace) -> None:
    out = options.out / f"forecast-{options.encoder}.npz"
    outcome.save(out)
    for name, value in outcome.row.items():
        print(f"{name:22}{value:.5g}" if isinstance(value, float) else f"{name:22}{value}")
    print(f"wrote {out}", flush=True)


def _speed(options: argparse.Namespace) -> None:
    """The first steps prepare the device and are not counted."""
    train, settings = frame_files.load(options.train), _settings(options)
    trained(train, replace(settings, steps=5, epochs=None))
    _, facts = trained(train, settings)
    kept = Records(options.out, SPEEDS)
    kept.append({name: f"{facts[name]:.5g}" if isinstance(facts[name], float) else facts[name] for name in SPEEDS})
    print(f"{facts['method']}: {facts['steps_per_second']:.4g} steps a second, {facts['device']}")


def _report(options: argparse.Namespace) -> None:
    from benchmarks.molecules.report import write_report  # draws: needs matplotlib, which `train` does not

    train, test = frame_files.load(options.train), frame_files.load(options.test)
    print(write_report(train, test, options.out, options.name))


def _all(options: argparse.Namespace) -> None:
    """Two simulations side by side, one on each core; then two queues of trainings side by side; then the report."""
    out, seeds = options.out, (TRAIN_SEED, TEST_SEED)
    pdb = ["--pdb", str(options.pdb)] if options.pdb else []
    files = [out / f"backbone-{seed}" for seed in seeds]
    length = ["--ns", str(options.ns), "--out", str(out), *pdb]
    _side_by_side([[["simulate", "backbone", "--seed", str(seed), *length]] for seed in seeds])
    _side_by_side([[["frames", f"{stem}.dcd", *pdb]] for stem in files])
    runs = ["--train", f"{files[0]}.npz", "--test", f"{files[1]}.npz", "--out", str(out)]
    queues = (("schnet", "distances"), ("schnet-paper", "schnet-calpha"))
    _side_by_side([[["train", name, *runs, "--device", "cpu"] for name in queue] for queue in queues])
    if main(["report", *runs]):
        raise ValueError("The report could not be written; see above.")


def _side_by_side(queues: list[list[list[str]]]) -> None:
    """Run queues of commands of this module in parallel, each in a process with one thread."""
    program = [sys.executable, "-m", "benchmarks.molecules"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    waiting = [list(queue) for queue in queues]
    while any(waiting):
        running = [subprocess.Popen([*program, *queue.pop(0)], env=environment) for queue in waiting if queue]
        failed = [process.args for process in running if process.wait()]
        if failed:
            raise ValueError(f"A command failed; see above: {' '.join(map(str, failed[0]))}")


if __name__ == "__main__":
    sys.exit(main())
