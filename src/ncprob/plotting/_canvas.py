"""Axes, colours and labels that all plots share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ncprob import frames

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOR = "#2a5caa"
ACCENT = "#d55e00"
NEUTRAL = "#666666"
PALETTE = (
    "#2a5caa",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#8a6d00",
    "#56b4e9",
    "#000000",
)  # told apart by the colour-blind
LEGEND_ENTRY = 0.92  # inches of a usual one
SHADES = (0.14, 0.3, 0.5)  # opacity of bands, from the widest to the narrowest


@contextmanager
def canvas(ax: Axes | None) -> Iterator[Axes]:
    """The given axes, or new ones that get a legend once something is drawn on them."""
    if ax is not None:
        yield ax
        return
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'ncprob[plot]'.") from error
    _, own = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
    yield own
    finish(own)


def finish(ax: Axes) -> Axes:
    """Take clutter away and put a legend above the picture, where it hides no data.

    Done by itself on axes that a plot makes; call it on axes of your own once all is drawn.
    """
    ax.spines[["top", "right"]].set_visible(False)
    count = len(ax.get_legend_handles_labels()[1])
    if count > 1:
        figure = ax.get_figure(root=True)
        width = ax.get_position().width * (6.0 if figure is None else figure.get_figwidth())
        lines = math.ceil(count / max(2, int(width / LEGEND_ENTRY)))
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=math.ceil(count / lines),
            frameon=False,
            fontsize="small",
            borderaxespad=0.2,
            columnspacing=0.9,
            handlelength=1.2,
            handletextpad=0.5,
        )
    return ax


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Labels from data: a column called "$a_$b" is not a formula."""
    axes.set_xlabel(shorten(x, 60), parse_math=False)
    axes.set_ylabel(shorten(y, 40), parse_math=False)


def shorten(text: str, most: int) -> str:
    """A text of at most so many characters; very long names would leave no room for the picture."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shades(count: int) -> list[float]:
    """Opacities of `count` nested bands, the widest first."""
    if count <= 1:
        return [SHADES[1]] * count
    low, high = SHADES[0], SHADES[-1]
    return [low + (high - low) * i / (count - 1) for i in range(count)]


def target_label(model: Any, component: int) -> str:
    """Name of a target; y where it has none."""
    return frames.target_labels(model)[component]
