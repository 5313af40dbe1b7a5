"""Pieces that all sections of the report are made of: tables, means over seeds, runs that failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

PAPER = Path(__file__).parent / "paper_tables"

Frame = pd.DataFrame


def table(frame: pd.DataFrame) -> str:
    """The frame with its columns as head; the index is left out."""
    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + "---|" * len(frame.columns)]
    lines += ["| " + " | ".join(str(value) for value in row) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines)


def in_order(data: Frame, tasks: Sequence[str], methods: Sequence[str]) -> Frame:
    """Runs by task, size and method, in the order of the names given, others last.

    They are appended to a file as they come, and tables go by their order.

    Examples
    --------
    >>> runs = Frame({"dataset": ["y", "x", "x"], "n": 9, "method": ["b", "c", "b"]})
    >>> in_order(runs, tasks=["x", "y"], methods=["b"])[["dataset", "method"]].agg("".join, axis=1).tolist()
    ['xb', 'xc', 'yb']
    """
    keys = data[["dataset", "n", "method"]].copy()
    for column, names in (("dataset", tasks), ("method", methods)):
        keys[column] = keys[column].map({name: place for place, name in enumerate(names)})
    return data.loc[keys.sort_values(["dataset", "n", "method"], kind="stable").index]


def successes(data: Frame) -> Frame:
    """Rows of runs that gave an answer; failures are counted by `failures`."""
    return data[data["error"].isna()]


def failures(data: Frame) -> str:
    failed = data[data["error"].notna()]
    lines = [f"- {r.method} on {r.dataset}, seed {r.seed}: {r.error}" for r in failed.itertuples()]
    return "\n".join(["", "Runs that failed and are not in the means:", "", *lines, ""]) if lines else ""


def spread(values: pd.Series, digits: int = 4) -> str:
    """Mean ± standard deviation over seeds; a single seed has none."""
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std():.{digits}f}"


def in_bold(cells: Frame, values: Frame) -> Frame:
    """Text cells with the lowest value of every column in bold."""
    best = values == values.min()
    return cells.where(~best, "**" + cells.astype(str) + "**")


def number_range(counts: pd.Series) -> str:
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
