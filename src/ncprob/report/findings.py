"""The numbers and words of a report, gathered from a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncprob.metrics import interval_coverage, pit_uniformity
from ncprob.profiles import Inputs, is_discrete, is_number
from ncprob.report.baselines import ModelForecast, Scores, class_shares, headline_scores
from ncprob.report.study import FloatArray, Study, by_component

COVERAGES = (0.5, 0.8, 0.9, 0.95)
GROUPS = 5
LISTED_INPUTS = 40
HIGHER_IS_BETTER = ("R² of the mean", "accuracy")
NO_ORDER = ("90 % coverage", "90 % width")  # neither is better by itself

Rows = list[dict[str, Any]]


def number(value: float) -> str:
    """Four significant digits.

    Examples
    --------
    >>> number(12345.678), number(0.00012345), number(2.0)
    ('12,346', '0.0001234', '2')
    """
    if not np.isfinite(value):
        return "–"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


# -------------------------------------------------------------------- data


def describe_inputs(training: Inputs) -> Rows:
    """Kind and values of the inputs in the training rows."""
    rows = []
    for name, column in list(zip(training.names, training.columns, strict=True))[:LISTED_INPUTS]:
        if is_number(column):
            ends = " · ".join(number(v) for v in np.quantile(column, [0, 0.5, 1]))
            rows.append({"name": name, "kind": "number", "values": ends})
        else:
            values, counts = np.unique(column, return_counts=True)
            top = [f"{values[i]} {counts[i] / len(column):.0%}" for i in np.argsort(-counts, kind="stable")[:4]]
            more = f", and {len(values) - 4} more" if len(values) > 4 else ""
            kind = "yes or no" if column.dtype.kind == "b" else "text"
            rows.append({"name": name, "kind": kind, "values": ", ".join(top) + more})
    return rows


def describe_targets(study: Study) -> Rows:
    """The targets in the training rows."""
    if study.is_classifier:
        shares = class_shares(study)
        told = [f"{label} {share:.0%}" for label, share in zip(study.model.classes_, shares, strict=True)]
        return [{"name": study.targets[0], "kind": f"{len(told)} classes", "values": ", ".join(told[:8])}]
    rows = []
    for name, column in zip(study.targets, study.y_training.T, strict=True):
        ends = " · ".join(number(v) for v in np.quantile(column, [0, 0.5, 1]))
        rows.append({"name": name, "kind": "number", "values": ends})
    return rows


# -------------------------------------------------------------------- scores


def score_tables(study: Study) -> Rows:
    """Per target: names of the forecasts, and per score one value each with the best marked."""
    return [_score_table(*part) for part in zip(study.targets, headline_scores(study), strict=True)]


def _score_table(target: str, found: dict[str, Scores]) -> dict[str, Any]:
    names = list(found)
    rows = []
    for score in found[names[0]]:
        values = np.array([found[name][score] for name in names])
        best = None
        if score not in NO_ORDER and np.isfinite(values).all():
            best = int(values.argmax() if score in HIGHER_IS_BETTER else values.argmin())
        shown = [_shown(score, value) for value in values]
        rows.append({"score": score, "values": shown, "best": best})
    headline = next(iter(found[names[0]]))
    rivals = min(found[name][headline] for name in names[1:])
    return {
        "target": target,
        "forecasts": names,
        "rows": rows,
        "headline": headline,
        "gain": 1 - found[names[0]][headline] / rivals if rivals > 0 else 0.0,
    }


def _shown(score: str, value: float) -> str:
    if score in ("90 % coverage", "accuracy"):
        return f"{value:.1%}"
    return f"{value:.3f}" if score.startswith("R²") and np.isfinite(value) else number(value)


# -------------------------------------------------------------------- calibration


def groups(column: NDArray[Any]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Fifths of a number, or the most frequent values, as (label, mask)."""
    if is_discrete(column):
        values, counts = np.unique(column, return_counts=True)
        for value in np.sort(values[np.argsort(-counts, kind="stable")[:GROUPS]]):
            yield number(value) if is_number(column) else str(value), column == value
        return
    edges = np.quantile(column, np.linspace(0, 1, GROUPS + 1))
    place = np.clip(np.searchsorted(edges, column, side="right") - 1, 0, GROUPS - 1)
    for i in range(GROUPS):
        yield f"{number(edges[i])} to {number(edges[i + 1])}", place == i


def coverage_tables(study: Study, strongest: int) -> Rows:
    """Per target: coverage of central intervals over all rows and per part of the strongest input."""
    forecast = ModelForecast(study)
    intervals = {coverage: forecast.interval(coverage) for coverage in COVERAGES}
    parts = [("all rows", np.ones(len(study.y), dtype=bool)), *groups(study.test.columns[strongest])]
    tables = []
    for k, target in enumerate(study.targets):
        rows = [
            {"label": label, "count": int(mask.sum()), "cells": _coverage_cells(study.y[mask, k], intervals, mask, k)}
            for label, mask in parts
            if mask.any()
        ]
        tables.append({"target": target, "rows": rows})
    return tables


def _coverage_cells(y: FloatArray, intervals: dict[float, FloatArray], mask: NDArray[np.bool_], k: int) -> Rows:
    """Coverage, and whether it is further from what was promised than three standard errors."""
    cells = []
    for nominal, interval in intervals.items():
        actual = interval_coverage(y, interval[mask, k])
        off = abs(actual - nominal) > 3 * np.sqrt(nominal * (1 - nominal) / len(y))
        cells.append({"text": f"{actual:.1%}", "off": bool(off)})
    return cells


def pit_values(study: Study) -> FloatArray:
    """F(y | x) of the test rows, (n, q)."""
    return by_component(study.test_laws.pit(study.y), study.y.shape[1])


# -------------------------------------------------------------------- words


def warnings_in_words(study: Study, tables: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader should know before believing the figures; empty if nothing stands out."""
    found = list(study.complaints)
    seen = _share_seen(study)
    if seen > 0.1:
        found.append(
            f"{seen:.0%} of these rows were among the training rows: the figures below flatter the model. "
            "Report on rows it has not seen."
        )
    if len(study.y) < 100:
        found.append(f"Only {len(study.y)} rows: the figures below are rough.")
    for table in tables:
        if table["gain"] <= 0:
            found.append(
                f"{table['target']}: a simple baseline has a {table['headline']} at least as low as the model's. "
                "X may say little about it, or the model needs more data."
            )
    if not study.is_classifier:
        found += list(_calibration_words(study))
    return found + [f"On the rows held out in fit: {words}" for words in study.model.diagnostics().warnings]


def _calibration_words(study: Study) -> Iterator[str]:
    interval = ModelForecast(study).interval(0.9)
    for k, (target, pit) in enumerate(zip(study.targets, pit_values(study).T, strict=True)):
        pvalue = pit_uniformity(pit).pvalue
        if pvalue < 0.01:
            yield f"{target}: F(y | x) is not uniform on these rows (p = {pvalue:.2g}): the laws are miscalibrated."
        actual = interval_coverage(study.y[:, k], interval[:, k])
        if abs(actual - 0.9) > 3 * np.sqrt(0.09 / len(study.y)):
            remedy = "use `conformalize`" if actual < 0.9 else "intervals are wider than needed"
            yield f"{target}: 90 % intervals cover {actual:.1%} of these rows; {remedy}."


def _share_seen(study: Study) -> float:
    """Share of the test rows that are also training rows, x and y alike."""
    known = set(zip(*study.training.columns, *study.y_training.T, strict=True))
    return float(np.mean([row in known for row in zip(*study.test.columns, *study.y.T, strict=True)]))
