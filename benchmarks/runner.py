"""Run tasks × sizes × seeds × methods, one line of a CSV file per run.

    python -m benchmarks.runner --suite real
    python -m benchmarks.runner --tasks LinearGaussian LGGMD --methods ncprob CKDE --n 1000 10000 --seeds 0-4 \\
        --out benchmarks/results/mine.csv

Every run has a process of its own, so that its peak memory is its own and a crash costs one run. Runs whose method,
data set, size, seed and version are in the file already are skipped: a benchmark that was interrupted goes on when the
same command is given again. Public tables are looked for in NCPROB_DATA, by default ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tqdm import tqdm

from benchmarks import methods, tasks
from benchmarks.children import Children, Failed, TookTooLong
from benchmarks.records import RESULTS, Records, Row
from benchmarks.suites import SUITES, Suite

DEFAULT_TIMEOUT = 4 * 3600.0


class Run(NamedTuple):
    """One line of the file to come; `n` is None for a table, whose size is fixed."""

    method: str
    dataset: str
    n: int | None
    seed: int
    version: str
    options: dict[str, Any] = {}  # noqa: RUF012 — never changed

    def is_in(self, row: Row) -> bool:
        """Whether a row of the file is this run."""
        mine = (self.method, self.dataset, str(self.seed), self.version)
        same = mine == (row["method"], row["dataset"], row["seed"], row["version"])
        return same and (self.n is None or str(self.n) == row["n"])

    def facts(self) -> dict[str, Any]:
        """What the file says of the run itself; the method puts its options into words."""
        return {name: value for name, value in self._asdict().items() if name != "options"}


@dataclass
class Workers:
    """Runs processes, and ends those under way when the benchmark is interrupted or its time is over.

    `until`, on the clock of `time.monotonic`, is when that is; runs that it cuts off leave no line.
    """

    jobs: int
    timeout: float
    options: dict[str, Any]
    threads: int = 0  # of each process; 0 shares the cores evenly
    until: float = math.inf
    children: Children = field(default_factory=Children)

    def __post_init__(self) -> None:
        self.threads = self.threads or max(1, cores() // self.jobs)

    def run(self, run: Run) -> dict[str, Any] | None:
        """Scores of one run, or the text of its error; None if the benchmark was stopped or its time is over."""
        left = self.until - time.monotonic()
        if left <= 0:
            return None
        request = {"method": run.method, "dataset": run.dataset, "n": run.n, "seed": run.seed}
        request["options"] = run.options | self.options
        facts = run.facts() | {"threads": self.threads}
        try:
            limit = min(self.timeout, left)
            found = self.children.run(["benchmarks.one_run", json.dumps(request)], self.threads, limit)
        except TookTooLong as error:
            return facts | {"error": str(error)} if limit == self.timeout else None
        except Failed as error:
            return facts | {"error": str(error)}
        return None if found is None else facts | found

    def stop(self) -> None:
        """End all processes under way; their runs leave no line."""
        self.children.stop()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def planned(suite: Suite) -> list[Run]:
    """All runs of a suite; methods innermost, so that what is compared runs close in time.

    A method whose package is missing is left out, and a line says so.
    """
    versions = {}
    for name in suite.methods:
        try:
            versions[name] = methods.version(name)
        except ImportError as error:
            print(f"skipped: {error}")
    runs = []
    for task in suite.tasks:
        sizes: Iterable[int | None] = (None,) if tasks.is_table(task) else suite.sizes
        for n in sizes:
            for seed in suite.seeds:
                runs += [
                    Run(name, task, n, seed, version, suite.options.get((name, task), {}))
                    for name, version in versions.items()
                ]
    return runs


def missing(runs: list[Run], done: list[Row]) -> list[Run]:
    """Runs that are not among the rows of a file."""
    return [run for run in runs if not any(run.is_in(row) for row in done)]


def execute(runs: list[Run], records: Records, workers: Workers) -> int:
    """Run what the file does not hold yet; the number of runs that failed."""
    to_do = missing(runs, records.rows())
    print(f"{len(runs)} runs, {len(runs) - len(to_do)} of them done before; {workers.threads} thread(s) each")
    failures = 0
    pool = ThreadPoolExecutor(workers.jobs)
    bar = tqdm(total=len(to_do), unit="run")
    try:
        for future in as_completed([pool.submit(workers.run, run) for run in to_do]):
            row = future.result()
            if row is not None:
                records.append(row)
                failures += bool(row.get("error"))
                bar.update()
                bar.set_postfix_str(_headline(row))
    finally:
        workers.stop()
        pool.shutdown(cancel_futures=True)
        bar.close()
    return failures


def _headline(row: dict[str, Any]) -> str:
    score = row.get("error") or next((f"{k} {row[k]:.4g}" for k in ("ks", "crps") if k in row), "")
    return f"{row['method']} {row['dataset']} {row['seed']}: {score}"[:100]


def summary(rows: list[Row]) -> str:
    """Means over seeds, one line per method, data set and size."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["n"], row["method"]), []).append(row)
    columns = ("ks", "crps", "coverage90", "fit_seconds", "predict_seconds", "peak_mb")
    lines = [f"{'dataset':<22}{'n':>8}  {'method':<16}{'runs':>5}" + "".join(f"{name:>16}" for name in columns)]
    for (dataset, n, method), group in sorted(groups.items()):
        means = "".join(f"{_mean(group, name):>16}" for name in columns)
        failed = sum(bool(row["error"]) for row in group)
        lines.append(f"{dataset:<22}{n:>8}  {method:<16}{len(group):>5}{means}" + (f"  {failed} failed" * bool(failed)))
    return "\n".join(lines)


def _mean(group: list[Row], column: str) -> str:
    values = [float(row[column]) for row in group if row[column]]
    return f"{sum(values) / len(values):.4g}" if values else "-"


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0-4` or `0,3,5` or both.

    Examples
    --------
    >>> parse_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return tuple(seeds)


def parse_arguments(arguments: list[str] | None) -> tuple[Suite, argparse.Namespace]:
    """The suite asked for, with what the other options change in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, help="a named set of runs; the options below change it")
    parser.add_argument("--tasks", nargs="+", type=tasks.check_name, metavar="TASK", help=", ".join(tasks.names()))
    parser.add_argument("--methods", nargs="+", choices=methods.names(), metavar="METHOD", help=str(methods.names()))
    parser.add_argument("--n", nargs="+", type=int, help="training rows of simulated tasks")
    parser.add_argument("--seeds", type=parse_seeds, help="for example 0-9; for tables the number of the split")
    parser.add_argument("--jobs", type=int, help="processes at a time; they share the cores")
    parser.add_argument("--threads", type=int, default=0, help="threads of each process; by default cores / jobs")
    parser.add_argument("--out", type=Path, help="file of results; by default benchmarks/results/SUITE.csv")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, help="seconds per run")
    parser.add_argument("--redo", action="store_true", help="run again what is in the file, and replace it")
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON of options for the methods, for tests")
    options = parser.parse_args(arguments)
    if options.suite is None and (options.tasks is None or options.methods is None or options.out is None):
        parser.error("give --suite, or --tasks, --methods and --out")
    suite = SUITES[options.suite] if options.suite else Suite((), (), (0,), (10_000,))
    asked = {"tasks": options.tasks, "methods": options.methods, "sizes": options.n, "seeds": options.seeds}
    asked["jobs"] = options.jobs
    suite = replace(suite, **{name: value for name, value in asked.items() if value is not None})
    options.out = options.out or RESULTS / f"{options.suite}.csv"
    return suite, options


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; exit status 1 if a run failed."""
    suite, options = parse_arguments(arguments)
    runs, records = planned(suite), Records(options.out)
    if options.redo or options.retry:
        records.remove(lambda row: any(run.is_in(row) for run in runs) and (options.redo or bool(row["error"])))
    stop_on_termination()
    failures = execute(runs, records, Workers(suite.jobs or 1, options.timeout, options.options, options.threads))
    print(summary([row for row in records.rows() if any(run.is_in(row) for run in runs)]))
    return int(failures > 0)


def stop_on_termination() -> None:
    """A polite kill ends the benchmark as Ctrl-C does: processes under way are stopped, lines are whole."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
