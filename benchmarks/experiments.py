"""Experiments that end in curves: what `laws`, `bands` and `dynamics` have in common.

One unit of work is one fit of a method to a task; its rows enter the file together, and a unit whose rows are in the
file is not done again. The truth of a simulator is a method like the others. Splits and methods are those of the
runner, so a curve belongs to the scores of the same task, size, seed and method.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from numpy.typing import ArrayLike

from benchmarks import methods, tasks
from benchmarks.methods.base import Array, Method, threads
from benchmarks.one_run import machine
from benchmarks.records import RESULTS, Records
from benchmarks.suites import Options
from benchmarks.tasks import Split
from ncprob.datasets import Simulator

TRUTH = "truth"
FACTS = ["seconds", "settings", "version", "threads", "machine"]  # of a unit, in its first row


class Unit(NamedTuple):
    """One fit; these are also the first columns of the file."""

    dataset: str
    n: int
    seed: int
    method: str


class Truth(Method):
    """The exact law of a simulator, with the questions of a method."""

    settings = "exact"

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    def fit(self, X: Any, y: Array, seed: int, validation: tuple[Any, Array] | None = None) -> Self:
        """Nothing is to be learned."""
        return self

    def quantiles(self, X: Any, levels: ArrayLike) -> Array:
        """Exact quantiles, (rows, levels)."""
        return self.simulator.truth(X).quantile(levels)

    def cdf(self, X: Any, grid: ArrayLike) -> Array:
        """Exact distribution functions, (rows, grid)."""
        return self.simulator.truth(X).cdf(grid)

    def pdf(self, X: Any, grid: ArrayLike) -> Array:
        """Exact densities, (rows, grid)."""
        return self.simulator.truth(X).pdf(grid)

    def mean(self, X: Any) -> Array:
        """Exact means; not a number where there is none."""
        return self.simulator.truth(X).mean()


Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Experiment:
    """What one script runs.

    `sizes` gives the training rows of every task, `options` settings of a method on a task that differ from its usual
    ones, `curves` the rows of a unit and the method that gave them.
    """

    name: str
    columns: list[str]
    sizes: dict[str, int]
    methods: tuple[str, ...]
    curves: Callable[[Unit, Split, dict[str, Any]], tuple[Method, Rows]]
    options: Options = field(default_factory=dict)
    known: tuple[str, ...] | None = None  # tasks with a truth to draw; by default all
    choices: tuple[str, ...] | None = None  # methods that may be asked for; by default all

    def records(self, path: Path) -> Records:
        """The file of results."""
        return Records(path, [*Unit._fields, *self.columns, *FACTS], unit=len(Unit._fields))

    def units(self, names: list[str], sizes: dict[str, int], seed: int) -> list[Unit]:
        """The truth of every task, then its fits."""
        known = self.sizes if self.known is None else self.known
        return [
            Unit(task, n, seed, name)
            for task, n in sizes.items()
            for name in (TRUTH, *names)
            if name != TRUTH or task in known
        ]

    def run(self, unit: Unit, options: dict[str, Any]) -> Rows:
        """Rows of one unit; the first says how it was run."""
        start = time.perf_counter()
        settings = self.options.get((unit.method, unit.dataset), {}) | options
        model, rows = self.curves(unit, tasks.load(unit.dataset, unit.n, unit.seed), settings)
        facts = {"seconds": time.perf_counter() - start, "settings": model.settings, "version": model.version()}
        facts |= {"threads": threads(), "machine": machine()}
        return [unit._asdict() | row | (facts if i == 0 else {}) for i, row in enumerate(rows)]


def fitted(unit: Unit, split: Split, options: dict[str, Any]) -> Method:
    """The method of a unit, as the runner fits it."""
    if unit.method == TRUTH:
        assert split.simulator is not None
        return Truth(split.simulator)
    model = methods.make(unit.method, **options)
    return model.fit(split.X, split.y, unit.seed, validation=split.validation if model.wants_validation else None)


def execute(experiment: Experiment, units: list[Unit], records: Records, options: dict[str, dict[str, Any]]) -> int:
    """Run what the file does not hold yet; the number of units that failed, which leave no rows."""
    done: dict[tuple[str, ...], str] = {}  # the version is in the first row of a unit
    for row in records.rows():
        done.setdefault(tuple(row[name] for name in Unit._fields), row["version"])
    to_do = [unit for unit in units if tuple(map(str, unit)) not in done]
    print(f"{len(units)} units, {len(units) - len(to_do)} of them done before", flush=True)
    for unit in units:
        before, now = done.get(tuple(map(str, unit))), _version(unit.method)
        if before is not None and now is not None and before != now:
            print(f"{unit.dataset} {unit.method} is of version {before}, not {now}: --redo runs it again", flush=True)
    failures = 0
    for number, unit in enumerate(to_do, start=1):
        start = time.perf_counter()
        try:
            records.extend(experiment.run(unit, options.get(unit.method, {})))
            outcome = f"{time.perf_counter() - start:.1f} s"
        except ImportError as error:
            outcome = f"skipped: {error}"
        except Exception as error:  # a method that fails must not cost the others
            traceback.print_exc()
            failures, outcome = failures + 1, f"failed: {error}"
        print(f"{number}/{len(to_do)} {unit.dataset} {unit.method}: {outcome}", flush=True)
    return failures


def _version(method: str) -> str | None:
    """Version that the rows of a method would have now, if it is installed."""
    if method == TRUTH:
        return Truth.version()
    try:
        return methods.version(method)
    except ImportError:
        return None


def main(experiment: Experiment, description: str | None, arguments: list[str] | None = None) -> int:
    """Run an experiment from the command line; exit status 1 if a unit failed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks_help = f"by default {' '.join(experiment.sizes)}"
    parser.add_argument("--tasks", nargs="+", choices=experiment.sizes, metavar="TASK", help=tasks_help)
    choices = experiment.choices or methods.names()
    methods_help = f"by default {' '.join(experiment.methods)}; the truth is always added; one of {', '.join(choices)}"
    parser.add_argument("--methods", nargs="+", choices=choices, metavar="METHOD", help=methods_help)
    parser.add_argument("--n", type=int, help="training rows; by default " + str(experiment.sizes))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{experiment.name}.csv")
    parser.add_argument("--redo", action="store_true", help="run again what is in the file, and replace it")
    options_help = """JSON of options by method, for a quick trial: '{"NCP-W": {"max_steps": 30}}'"""
    parser.add_argument("--options", type=json.loads, default={}, help=options_help)
    chosen = parser.parse_args(arguments)
    sizes = {name: chosen.n or experiment.sizes[name] for name in chosen.tasks or experiment.sizes}
    units = experiment.units(chosen.methods or list(experiment.methods), sizes, chosen.seed)
    records = experiment.records(chosen.out)
    if chosen.redo:
        records.remove(lambda row: any(tuple(map(str, unit)) == tuple(row[k] for k in Unit._fields) for unit in units))
    torch.set_num_threads(threads())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hundreds of lines of rivals, about feature names and the like
        return int(execute(experiment, units, records, chosen.options) > 0)


def run_script(experiment: Experiment, description: str | None) -> None:
    """End the process with the exit status of `main`."""
    sys.exit(main(experiment, description))
