"""Pictures of conditional laws with matplotlib. Axes are returned; nothing is shown by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOR = "#2a5caa"


def _axes(ax: Axes | None) -> Axes:
    """The given axes, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'ncprob[plot]'.") from error
    return plt.subplots()[1]


def plot_bands(
    model: Any, x: ArrayLike, *, coverages: Sequence[float] = (0.5, 0.8, 0.95), ax: Axes | None = None
) -> Axes:
    """Median and central intervals of y along a single input.

    Parameters
    ----------
    model : NCPRegressor
        Fitted on one input and a scalar target.
    x : array of shape (m,)
        Increasing values of the input.
    coverages : sequence of float
        Nested intervals, drawn from light to dark.

    Examples
    --------
    >>> from ncprob import NCPRegressor, datasets
    >>> X, y = datasets.LinearGaussian().sample(300, random_state=0)
    >>> model = NCPRegressor(max_steps=50, coordinates="residual", random_state=0).fit(X, y)
    >>> plot_bands(model, np.linspace(-1, 1, 20)).get_xlabel()
    'x'
    """
    ax = _axes(ax)
    points = np.asarray(x, dtype=float)
    law = model.predict_distribution(points[:, None])
    for coverage in sorted(coverages, reverse=True):
        low, high = law.interval(coverage, kind="central").T
        ax.fill_between(points, low, high, color=COLOR, alpha=0.18, linewidth=0, label=f"{coverage:.0%} interval")
    ax.plot(points, law.median(), color=COLOR, label="median")
    ax.set(xlabel="x", ylabel="y")
    return ax


def plot_density(law: Any, y: ArrayLike, *, labels: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Density of every member of a conditional distribution over the values `y`.

    Examples
    --------
    >>> from ncprob import datasets
    >>> ax = plot_density(datasets.LinearGaussian().truth([[0.0], [0.5]]), np.linspace(-1, 1, 50), labels=["a", "b"])
    >>> len(ax.lines)
    2
    """
    ax = _axes(ax)
    points = np.asarray(y, dtype=float)
    names = labels if labels is not None else [f"condition {i}" for i in range(len(law))]
    for density, name in zip(law.pdf(points), names, strict=True):
        ax.plot(points, density, label=name)
    ax.set(xlabel="y", ylabel="density")
    return ax
