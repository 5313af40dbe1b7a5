"""All experiments of Kostic et al. 2024 with the rivals of today, one suite after the other.

    python -m benchmarks.paper --quick             # two hours at most; results in paper-quick/
    python -m benchmarks.paper                     # everything, hours to days; results in benchmarks/results/
    python -m benchmarks.paper --quick --dry-run   # only says what remains

What is in the result files is not run again: stopped, it goes on there. When `--hours` are over, runs under way end
without a line and what remains is told. The report is written at the end, and after an interruption by
`python -m benchmarks.report --results FOLDER --page FILE`.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import torch

from benchmarks import bands, dynamics, experiments, laws, report
from benchmarks.records import CHECKOUT, RESULTS, Records
from benchmarks.runner import DEFAULT_TIMEOUT, Run, Workers, cores, execute, missing, planned, stop_on_termination
from benchmarks.suites import PAPER, QUICK, SUITES

QUICK_RESULTS = CHECKOUT / "paper-quick"
CURVES = {"laws": laws.EXPERIMENT, "bands": bands.EXPERIMENT, "dynamics": dynamics.EXPERIMENT}
QUICK_CURVES = {
    "laws": ["--methods", "ncprob", "NF-tuned"],
    "bands": ["--methods", "ncprob", "CCP", "--n", "5000"],
    "dynamics": ["--tasks", "GaussianPair", "--options", '{"NCP-W": {"max_steps": 400}}'],
}
QUICK_HOURS = 2.0
PROCESSES_OF_AN_ACCELERATOR = 6  # small networks of the paper leave most of one idle


def plans(quick: bool, only: list[str] | None) -> dict[str, list[Run]]:
    """Runs of every suite."""
    suites = QUICK if quick else {name: SUITES[name] for name in PAPER}
    return {name: planned(suite) for name, suite in suites.items() if only is None or name in only}


def remaining(runs: dict[str, list[Run]], folder: Path) -> dict[str, int]:
    """How many runs of every suite are not in its file."""
    files = {name: folder / f"{name}.csv" for name in runs}
    done = {name: Records(file).rows() if file.exists() else [] for name, file in files.items()}
    return {name: len(missing(planned_runs, done[name])) for name, planned_runs in runs.items()}


def overview(runs: dict[str, list[Run]], left: dict[str, int]) -> str:
    """A line per suite: how many runs it has and how many remain."""
    lines = [f"{name:<18}{len(planned_runs):>7}{left[name]:>9}" for name, planned_runs in runs.items()]
    return "\n".join([f"{'suite':<18}{'runs':>7}{'remain':>9}", *lines])


def duration(text: str) -> float:
    """A number of hours that is not negative.

    Examples
    --------
    >>> duration("1.5")
    1.5
    """
    hours = float(text)
    if not hours >= 0:
        raise argparse.ArgumentTypeError(f"must be a number of hours, zero or more; got {text}")
    return hours


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; exit status 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three seeds and smaller runs")
    parser.add_argument("--only", nargs="+", choices=[*PAPER, *CURVES], help="some of the suites")
    parser.add_argument("--jobs", type=int, help="processes at a time; by default one per core, six on an accelerator")
    parser.add_argument("--results", type=Path, help="folder of the result files")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, help="seconds per run")
    hours_help = f"time after which runs are ended; by default {QUICK_HOURS:g} with --quick, else as long as it takes"
    parser.add_argument("--hours", type=duration, help=hours_help)
    parser.add_argument("--dry-run", action="store_true", help="say what remains, and run nothing")
    options = parser.parse_args(arguments)
    folder = options.results or (QUICK_RESULTS if options.quick else RESULTS)
    suites = plans(options.quick, options.only)
    print(overview(suites, remaining(suites, folder)))
    if options.dry_run:
        return 0
    jobs = options.jobs or (min(cores(), PROCESSES_OF_AN_ACCELERATOR) if torch.cuda.is_available() else cores())
    usual = QUICK_HOURS if options.quick else math.inf
    hours = usual if options.hours is None else options.hours
    until = time.monotonic() + 3600 * hours
    stop_on_termination()
    failures, put_off = 0, []
    for name, experiment in CURVES.items():  # first: minutes, and in this process, so that one goes on to its end
        if options.only is not None and name not in options.only:
            continue
        if time.monotonic() >= until:
            put_off.append(name)
            continue
        print(f"\n{name}")
        more = QUICK_CURVES[name] if options.quick else []
        failures += experiments.main(experiment, None, ["--out", str(folder / f"{name}.csv"), *more])
    for name, runs in suites.items():
        print(f"\n{name}")
        workers = Workers(jobs, options.timeout, {}, threads=1, until=until)
        failures += execute(runs, Records(folder / f"{name}.csv"), workers)
    page = report.PAGE if folder == RESULTS else folder / "report.md"
    note = "Reduced runs: fewer epochs, trees and rows than in the paper, as the settings in the files say."
    report.main(["--results", str(folder), "--page", str(page), "--note", note if options.quick else ""])
    left = remaining(suites, folder)
    if time.monotonic() >= until and (put_off or any(left.values())):
        print(f"\n{hours:g} hours are over. The same command goes on from here:")
        print("\n".join([*(f"{name:<18}not begun" for name in put_off), overview(suites, left)]))
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
