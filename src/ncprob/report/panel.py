"""Laws computed beforehand for the interactive panel: a page has no server to ask.

A full grid over the strongest inputs, the others at their typical value, and some of the test rows as they are.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncprob.profiles import Inputs, grid_of, is_number
from ncprob.report.findings import number
from ncprob.report.strength import Strength
from ncprob.report.study import FloatArray, Study, by_component

GRID_SIZES = {1: 41, 2: 15, 3: 9}  # values per input for one, two or three inputs: at most 729 laws
MOST_COMPONENTS = 4
TEST_ROWS = 40
LEVELS = [0.005, *np.round(np.linspace(0.01, 0.99, 99), 2).tolist(), 0.995]
DENSITY_POINTS = 121


def panel_data(study: Study, ranked: Sequence[Strength]) -> dict[str, Any]:
    """Everything the panel shows, ready for JSON."""
    typical = study.training.typical()
    most = 2 if study.y.shape[1] > 1 else 3
    varied = [strength.position for strength in ranked if strength.increase > 0][:most] or [ranked[0].position]
    size = GRID_SIZES[len(varied)]
    values = [grid_of(study.training.columns[i], size, most=size) for i in varied]
    mesh = np.meshgrid(*[np.arange(len(v)) for v in values], indexing="ij")
    points = study.training.at_typical({i: v[m.ravel()] for i, v, m in zip(varied, values, mesh, strict=True)})
    shown = np.unique(np.linspace(0, len(study.test) - 1, min(TEST_ROWS, len(study.test))).astype(int))
    rows = study.test.rows(shown)
    observed = study.y[shown]
    return {
        "kind": "classes" if study.is_classifier else "numbers",
        "targets": study.targets[:MOST_COMPONENTS],
        "inputs": [
            {
                "name": study.test.names[i],
                "labels": [_label(value) for value in v],
                "ordered": is_number(study.training.columns[i]),
                "start": max(0, int(_nearest(np.array([typical[i]]), v)[0])),
            }
            for i, v in zip(varied, values, strict=True)
        ],
        "fixed": [
            {"name": name, "value": _label(value)}
            for i, (name, value) in enumerate(zip(study.test.names, typical, strict=True))
            if i not in varied
        ],
        "counts": _rows_per_cell(study.training, varied, values).ravel().tolist(),
        "rows": [
            {"number": int(i) + 1, "values": [_label(column[j]) for column in rows.columns]}
            for j, i in enumerate(shown)
        ],
        "names": study.test.names,
        "observed": observed[:, :MOST_COMPONENTS].tolist(),
        **(_class_laws(study, points, rows) if study.is_classifier else _number_laws(study, points, rows)),
    }


def _label(value: Any) -> str:
    return number(float(value)) if isinstance(value, float | np.floating) else str(value)


def _rows_per_cell(training: Inputs, varied: Sequence[int], values: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Training rows nearest to each point of the grid in the varied inputs; levels off the grid count nowhere."""
    counts = np.zeros([len(v) for v in values], dtype=np.int64)
    places = [_nearest(training.columns[i], v) for i, v in zip(varied, values, strict=True)]
    inside = np.all([place >= 0 for place in places], axis=0)
    np.add.at(counts, tuple(place[inside] for place in places), 1)
    return counts


def _nearest(column: NDArray[Any], values: NDArray[Any]) -> NDArray[np.int64]:
    """Places of the nearest values, −1 for text that is not among them."""
    if is_number(column):
        return np.searchsorted((values[1:] + values[:-1]) / 2, column)
    place = np.searchsorted(values, column).clip(0, len(values) - 1)
    return np.where(values[place] == column, place, -1)


def _class_laws(study: Study, points: Inputs, rows: Inputs) -> dict[str, Any]:
    """Probabilities in per cent."""
    return {
        "classes": [str(label) for label in study.model.classes_],
        "grid": [np.round(100 * study.probabilities(points), 2).tolist()],
        "test": [np.round(100 * study.probabilities(rows), 2).tolist()],
    }


def _number_laws(study: Study, points: Inputs, rows: Inputs) -> dict[str, Any]:
    q = study.y.shape[1]
    grid, test = (_encoded(study.laws(inputs), q)[:MOST_COMPONENTS] for inputs in (points, rows))
    ranges = [_usual_range([law["q"] for law in both]) for both in map(operator.add, grid, test)]
    return {"levels": LEVELS, "grid": grid, "test": test, "range": ranges}


def _usual_range(quantiles: list[list[float]]) -> list[float]:
    """Where nearly all laws lie: one law with a heavy tail must not squeeze the others into a corner."""
    ends = np.array(quantiles)[:, [0, -1]]
    return [float(np.quantile(ends[:, 0], 0.05)), float(np.quantile(ends[:, 1], 0.95))]


def _encoded(law: Any, q: int) -> list[list[dict[str, Any]]]:
    """Per target and member: quantiles, mean, and density on a grid of their own."""
    quantiles, means = by_component(law.quantile(LEVELS), q), by_component(law.mean(), q)
    low, high = quantiles[..., 0], quantiles[..., -1]
    room = np.where(high > low, 0.05 * (high - low), 0.5)
    grids = np.linspace(low - room, high + room, DENSITY_POINTS, axis=-1)
    densities = by_component(law.pdf(grids), q)
    return [_told(quantiles[:, k], means[:, k], grids[:, k], densities[:, k]) for k in range(q)]


def _told(quantiles: FloatArray, means: FloatArray, grids: FloatArray, densities: FloatArray) -> list[dict[str, Any]]:
    """Laws of one target; numbers cut to what a screen can show."""
    peaks = densities.max(axis=1)
    spread = float(np.median(quantiles[:, -1] - quantiles[:, 0])) or 1.0
    digits = 4 - math.floor(math.log10(spread))
    return [
        {
            "q": np.round(quantiles[i], digits).tolist(),
            "mean": round(float(means[i]), digits),
            "low": round(float(grids[i, 0]), digits),
            "high": round(float(grids[i, -1]), digits),
            "peak": float(f"{peaks[i]:.4g}"),
            "d": np.round(1000 * densities[i] / peaks[i]).astype(int).tolist(),  # in thousandths of the peak
        }
        for i in range(len(quantiles))
    ]
