"""Pictures of a report as SVG inside `data:` addresses: sharp at any width, and an image can run no script."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from ncprob.plotting import finish, plot_bands, plot_calibration, plot_pit, plot_spectrum
from ncprob.plotting._canvas import COLOR, NEUTRAL, shorten
from ncprob.report.findings import pit_values
from ncprob.report.strength import Strength
from ncprob.report.study import FloatArray, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (4.8, 3.4)
BARS = 12
BANDS = 4
MOST_TARGETS = 6


def picture(draw: Callable[[Axes], Any], alt: str) -> dict[str, str]:
    """Draw on new axes; address and description of the image."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    draw(axes)
    finish(axes)
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "ncprob"}):  # the same picture gives the same bytes
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return {"src": "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode(), "alt": alt}


def calibration_pictures(study: Study) -> list[dict[str, Any]]:
    """PIT histogram and calibration curve per target; reliability of the top class for a classifier."""
    if study.is_classifier:
        drawn = picture(lambda ax: _reliability(ax, study), "Share of right answers against the probability given")
        return [{"target": study.targets[0], "pictures": [drawn]}]
    found = []
    for target, pit in list(zip(study.targets, pit_values(study).T, strict=True))[:MOST_TARGETS]:
        pictures = [
            picture(partial(_draw_pit, pit), f"Histogram of F(y | x) for {target}"),
            picture(partial(_draw_curve, pit), f"Calibration curve of {target}"),
        ]
        found.append({"target": target, "pictures": pictures})
    return found


def _draw_pit(pit: FloatArray, ax: Axes) -> None:
    plot_pit(pit, ax=ax)


def _draw_curve(pit: FloatArray, ax: Axes) -> None:
    plot_calibration(pit, ax=ax)


def strength_picture(ranked: Sequence[Strength]) -> dict[str, str]:
    """Bars of the strongest inputs."""

    def draw(ax: Axes) -> None:
        shown = list(ranked[:BARS])[::-1]
        names = [shorten(s.name, 24) for s in shown]
        ax.barh(np.arange(len(shown)), [100 * s.increase for s in shown], color=COLOR, alpha=0.8)
        ax.set_yticks(np.arange(len(shown)), names, parse_math=False)
        ax.axvline(0, color=NEUTRAL, linewidth=0.8)
        ax.set_xlabel("loss gets worse by (%)")

    return picture(draw, "Strength of the inputs")


def spectrum_picture(dependence: Any) -> dict[str, str]:
    """Held-out singular values."""
    return picture(lambda ax: plot_spectrum(dependence, ax=ax), "Singular values of the dependence of y on X")


def band_pictures(study: Study, ranked: Sequence[Strength], tick: Callable[[str], None]) -> list[dict[str, str]]:
    """Bands along the strongest inputs, for every target."""
    table, found = study.training.table(), []
    for strength in ranked[:BANDS]:
        for k, target in enumerate(study.targets[:MOST_TARGETS]):

            def draw(ax: Axes, feature: int = strength.position, component: int = k) -> None:
                plot_bands(study.model, table, feature=feature, component=component, ax=ax)

            found.append(picture(draw, f"Median and intervals of {target} along {strength.name}"))
        tick(f"bands along {strength.name}")
    return found


def _reliability(ax: Axes, study: Study) -> None:
    """How often the most probable class was right, by its probability, with 95 % intervals (Clopper & Pearson)."""
    probabilities = study.probabilities(study.test)
    top, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == study.y[:, 0]
    edges = np.linspace(1 / probabilities.shape[1], 1 + 1e-9, 9)
    place = np.digitize(top, edges) - 1
    points = [_share(top[place == i], right[place == i]) for i in np.unique(place)]
    said, actual, low, high = np.array(points).T
    ax.errorbar(said, actual, np.stack([actual - low, high - actual]), fmt="o-", color=COLOR, capsize=2, label="model")
    ax.plot([0, 1], [0, 1], color=NEUTRAL, linestyle="--", linewidth=1, label="calibrated")
    start = float(edges[0]) - 0.02
    ax.set(xlabel="probability of the most probable class", ylabel="share of right answers", xlim=(start, 1.02))
    ax.set_ylim(min(start, float(low.min())), 1.02)


def _share(top: FloatArray, right: Any) -> tuple[float, float, float, float]:
    result = stats.binomtest(int(right.sum()), len(right)).proportion_ci(0.95)
    return float(top.mean()), float(right.mean()), float(result.low), float(result.high)
