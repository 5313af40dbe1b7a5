"""Single laws: density, distribution function, joint density of two targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from ncprob.plotting._canvas import ACCENT, COLOR, PALETTE, canvas, name_axes, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

POINTS = 400
ENDS = (0.002, 0.998)
MOST_LEGEND = 10
CELLS = 160
NORMAL_QUARTER = 2 * 0.3186  # width of the shortest interval with a quarter of the mass of N(0, 1)


def plot_density(
    law: Any,
    y: ArrayLike | None = None,
    *,
    labels: Sequence[str] | None = None,
    component: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Density of every member of a conditional distribution.

    Parameters
    ----------
    law : ConditionalDistribution
        Laws at the x of your choice: `model.predict_distribution(X)`.
    y : array, optional
        Values to draw at; by default the range where the laws have their mass.
    labels : sequence of str, optional
        Names of the members.
    component : int
        Which target, for vector y.
    ax : Axes, optional
        Axes to draw on.

    Examples
    --------
    >>> from ncprob import datasets
    >>> ax = plot_density(datasets.LinearGaussian().truth([[0.0], [0.5]]), np.linspace(-1, 1, 50), labels=["a", "b"])
    >>> len(ax.lines)
    2
    """
    return _curves(law, "pdf", "density", y, labels, component, ax)


def plot_cdf(
    law: Any,
    y: ArrayLike | None = None,
    *,
    labels: Sequence[str] | None = None,
    component: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Distribution function P(Y ≤ y) of every member; parameters as in `plot_density`.

    Examples
    --------
    >>> from ncprob import datasets
    >>> plot_cdf(datasets.LinearGaussian().truth([[0.0], [0.5]])).get_ylabel()
    'P(Y ≤ y)'
    """
    return _curves(law, "cdf", "P(Y ≤ y)", y, labels, component, ax)


def _curves(
    law: Any,
    question: str,
    ylabel: str,
    y: ArrayLike | None,
    labels: Sequence[str] | None,
    component: int,
    ax: Axes | None,
) -> Axes:
    points = _range(law, component) if y is None else np.asarray(y, dtype=float)
    names = [f"condition {i}" for i in range(len(law))] if labels is None else list(labels)
    if len(names) != len(law):
        raise ValueError(f"`labels` must hold one name per member, {len(law)}; got {len(names)}. Name every law.")
    answer = getattr(law, question)(points)
    curves = answer if answer.ndim == 2 else answer[:, component]
    with canvas(ax) as axes:
        for i, (curve, name) in enumerate(zip(curves, names, strict=True)):
            told = name if labels is not None or len(names) <= MOST_LEGEND else None
            axes.plot(points, curve, color=PALETTE[i % len(PALETTE)], label=told)
            if question == "pdf" and len(names) <= 3:
                axes.fill_between(points, curve, color=PALETTE[i], alpha=0.1, linewidth=0)
        axes.set(xlabel="y", ylabel=ylabel)
        if question == "pdf":
            axes.set_ylim(bottom=0)
        return axes


def _range(law: Any, component: int) -> FloatArray:
    """Even points over the mass of all members, with some room at both ends."""
    ends = np.asarray(law.quantile(list(ENDS)))
    ends = ends if ends.ndim == 2 else ends[:, component]
    low, high = float(ends.min()), float(ends.max())
    room = 0.05 * (high - low) or 0.5
    return np.linspace(low - room, high + room, POINTS)


def plot_joint(
    law: Any,
    *,
    components: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
    coverages: Sequence[float] = (0.5, 0.8, 0.95),
    y: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Joint density of two targets under one law: its smallest regions of the given probabilities.

    The weighted atoms of the law are binned and smoothed by a Gaussian kernel.

    Parameters
    ----------
    law : ConditionalDistribution
        One member, of vector y: `model.predict_distribution(X)[0]`.
    components : (int, int)
        The two targets.
    names : sequence of str, optional
        Names of all targets, `model.target_names_`.
    coverages : sequence of float
        Probabilities of the regions, drawn from light to dark.
    y : array of shape (q,), optional
        An observed value to mark.
    ax : Axes, optional
        Axes to draw on.

    Examples
    --------
    >>> from ncprob import NCPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1))
    >>> Y = X + rng.normal(size=(300, 2))
    >>> model = NCPRegressor(max_steps=50, coordinates="raw", random_state=0).fit(X, Y)
    >>> plot_joint(model.predict_distribution([[0.0]])).get_xlabel()
    'y0'
    """
    atoms, weights = np.asarray(law.atoms, dtype=float), np.asarray(law.weights())
    atoms = atoms[0] if atoms.ndim == 3 else atoms
    if len(law) != 1 or atoms.ndim != 2:
        raise ValueError(
            f"`law` must be one law of several targets; got {len(law)} members of {np.shape(law.atoms)[-1]} "
            "target(s) or atoms. Pick one with `law[0]`, of a model fitted on a table y."
        )
    pair = atoms[:, list(components)]
    local = np.diff(law.interval(0.25)[0, list(components)], axis=1)[:, 0] / NORMAL_QUARTER
    density, edges = _smooth_density(pair, weights[0], local)
    thresholds = _region_thresholds(density, sorted(coverages, reverse=True))
    titles = [f"y{k}" if names is None or not isinstance(names[k], str) else names[k] for k in components]
    centres = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    with canvas(ax) as axes:
        for i, (coverage, threshold) in enumerate(zip(sorted(coverages, reverse=True), thresholds, strict=True)):
            upper = thresholds[i + 1] if i + 1 < len(thresholds) else density.max() * 1.01
            shade = shades(len(thresholds))[i]
            axes.contourf(*centres, density.T, levels=[threshold, upper], colors=[COLOR], alpha=shade)
            axes.fill_between([], [], color=COLOR, alpha=shade, linewidth=0, label=f"{coverage:.0%} region")
        if y is not None:
            axes.plot(*np.asarray(y, dtype=float)[list(components)], "x", color=ACCENT, label="observed")
        inside = density >= thresholds[0]
        limits = [_around(centre[inside.any(axis=1 - k)]) for k, centre in enumerate(centres)]
        axes.set(xlim=limits[0], ylim=limits[1])
        name_axes(axes, *titles)
        return axes


def _around(values: FloatArray) -> tuple[float, float]:
    """Ends of the values with some room."""
    room = 0.1 * (values[-1] - values[0])
    return float(values[0] - room), float(values[-1] + room)


def _smooth_density(pair: FloatArray, weights: FloatArray, local: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
    """Probabilities of the cells of a grid after smoothing, and the edges of the cells on both axes.

    `local` are scales of the densest parts: the deviation of a law with two modes would blur them into one.
    """
    effective = 1 / np.sum(weights**2)
    centre = weights @ pair
    spread = np.sqrt(weights @ (pair - centre) ** 2)
    spread = np.where(spread > 0, spread, 1.0)
    bandwidth = np.where(local > 0, np.minimum(local, spread), spread) * effective ** (
        -1 / 6
    )  # Scott's rule in two dimensions
    kept = np.abs(pair - centre) < 5 * spread  # far atoms would leave nothing of the picture
    bounds = [
        (pair[kept[:, k], k].min() - 3 * bandwidth[k], pair[kept[:, k], k].max() + 3 * bandwidth[k]) for k in (0, 1)
    ]
    counts, *edges = np.histogram2d(pair[:, 0], pair[:, 1], bins=CELLS, range=bounds, weights=weights)
    widths = [edge[1] - edge[0] for edge in edges]
    return ndimage.gaussian_filter(counts, [b / w for b, w in zip(bandwidth, widths, strict=True)]), list(edges)


def _region_thresholds(density: FloatArray, coverages: Sequence[float]) -> list[float]:
    """Densities above which a share of the mass lies, one per coverage; they increase as coverages fall."""
    ordered = np.sort(density.ravel())[::-1]
    cumulative = np.cumsum(ordered) / ordered.sum()
    return [float(ordered[np.searchsorted(cumulative, coverage)]) for coverage in coverages]
