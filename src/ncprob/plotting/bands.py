"""Nested intervals of y: along an input, and over the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ncprob import frames
from ncprob._validation import check_choice, check_probabilities
from ncprob.plotting._canvas import ACCENT, COLOR, canvas, name_axes, shades, shorten, target_label
from ncprob.profiles import Inputs, as_values, grid_of, is_discrete, is_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

COVERAGES = (0.5, 0.8, 0.95)
GRID = 80
AVERAGED_ROWS, AVERAGED_GRID = 100, 30  # 3,000 laws at most for one averaged picture
POOL = np.linspace(0.005, 0.995, 100)  # a law stands for this many of its quantiles where laws are pooled


def plot_bands(
    model: Any,
    x: Any,
    *,
    feature: str | int | None = None,
    at: str | Mapping[Any, Any] = "median",
    values: ArrayLike | None = None,
    component: int = 0,
    coverages: Sequence[float] = COVERAGES,
    ax: Axes | None = None,
) -> Axes:
    """Median and central intervals of y along one input.

    Parameters
    ----------
    model : NCPRegressor
        A fitted model.
    x : array of shape (m,), or a table of shape (n, p)
        Values of the only input; or data, from which the range of `feature` and what is typical are taken.
    feature : str or int, optional
        Name or position of the input along the axis; not needed if there is one only.
    at : {"median", "average"} or mapping
        The other inputs: at their median (most frequent value for text), or averaged over up to 100 rows of `x`,
        which shows the mixture of their laws; a mapping from inputs to values fixes these, and the rest at the median.
    values : array, optional
        Where along the input to look, instead of an even grid over the middle 98 % of `x`.
    component : int
        Which target, for vector y.
    coverages : sequence of float
        Nested intervals, drawn from light to dark.
    ax : Axes, optional
        Axes to draw on.

    Examples
    --------
    >>> from ncprob import NCPRegressor, datasets
    >>> X, y = datasets.LinearGaussian().sample(300, random_state=0)
    >>> model = NCPRegressor(max_steps=50, coordinates="residual", random_state=0).fit(X, y)
    >>> plot_bands(model, np.linspace(-1, 1, 20)).get_xlabel()
    'x'
    >>> plot_bands(model, X, feature=0).get_xlabel()
    'x0'
    """
    levels, told_apart = _levels(coverages), False
    if not frames.is_frame(x) and np.ndim(x) == 1:
        grid: NDArray[Any] = np.asarray(x, dtype=float)
        name, quantiles = _only_name(model), _quantiles(model, grid[:, None], levels, component)
    else:
        inputs = Inputs.of(x, getattr(model, "feature_names_in_", None))
        position = inputs.index_of(_the_feature(inputs, feature))
        column = inputs.columns[position]
        averaged = isinstance(at, str) and check_choice(at, "at", ("median", "average")) == "average"
        size = AVERAGED_GRID if averaged else GRID
        grid = grid_of(column, size) if values is None else as_values(values, column)
        name = inputs.names[position]
        if averaged:
            quantiles = _averaged(model, inputs, position, grid, levels, component)
        else:
            fixed = {} if isinstance(at, str) else {inputs.index_of(key): value for key, value in at.items()}
            table = inputs.at_typical({position: grid}, fixed).table()
            quantiles = _quantiles(model, table, levels, component)
        told_apart = not is_number(column) or (is_discrete(column) and values is None)
    with canvas(ax) as axes:
        (_draw_levels if told_apart else _draw)(axes, grid, quantiles, coverages)
        name_axes(axes, name, target_label(model, component))
        return axes


def plot_fan(
    law: Any,
    y: ArrayLike | None = None,
    *,
    time: ArrayLike | None = None,
    component: int = 0,
    coverages: Sequence[float] = COVERAGES,
    ax: Axes | None = None,
) -> Axes:
    """Fan chart: quantile bands of consecutive laws, with what was observed.

    Parameters
    ----------
    law : ConditionalDistribution
        One law per row, in the order to show: `model.predict_distribution(X)`.
    y : array of shape (n,) or (n, q), optional
        Observed values.
    time : array of shape (n,), optional
        Places of the rows on the axis (numbers or dates); 0, 1, … by default.
    component, coverages, ax
        As in `plot_bands`.

    Examples
    --------
    >>> from ncprob import datasets
    >>> simulator = datasets.LinearGaussian()
    >>> X, y = simulator.sample(30, random_state=0)
    >>> len(plot_fan(simulator.truth(X), y).lines)  # the median and the observations
    2
    """
    place = np.arange(len(law)) if time is None else np.asarray(time)
    quantiles = _component(law.quantile(_levels(coverages)), component)
    with canvas(ax) as axes:
        _draw(axes, place, quantiles, coverages)
        if y is not None:
            observed = np.asarray(y, dtype=float).reshape(len(place), -1)
            shown = observed[:, component if observed.shape[1] > 1 else 0]
            axes.plot(place, shown, ".", color=ACCENT, markersize=4, label="observed")
        axes.set(xlabel="row" if time is None else "time", ylabel="y")
        return axes


# -------------------------------------------------------------------- numbers


def _levels(coverages: Sequence[float]) -> list[float]:
    """Levels of all ends, the widest interval outside and the median in the middle."""
    widest_first = np.sort(check_probabilities(coverages, "coverages").reshape(-1).numpy())[::-1]
    tails = (1 - widest_first) / 2
    return [*tails.tolist(), 0.5, *(1 - tails[::-1]).tolist()]


def _component(answer: FloatArray, component: int) -> FloatArray:
    """(n, k) of one target from (n, k) or (n, q, k)."""
    return answer if answer.ndim == 2 else answer[:, component]


def _quantiles(model: Any, table: Any, levels: Sequence[float], component: int) -> FloatArray:
    return _component(model.predict_distribution(table).quantile(levels), component)


def _averaged(
    model: Any, inputs: Inputs, position: int, grid: NDArray[Any], levels: Sequence[float], component: int
) -> FloatArray:
    """Quantiles of the mixture, per value of the grid, of the laws at rows of data that have this value."""
    chosen = np.unique(np.linspace(0, len(inputs) - 1, min(AVERAGED_ROWS, len(inputs))).astype(int))
    table = inputs.rows(chosen).with_each(position, grid).table()
    pooled = _quantiles(model, table, POOL.tolist(), component).reshape(len(grid), -1)
    return np.quantile(pooled, levels, axis=1).T


def _the_feature(inputs: Inputs, feature: str | int | None) -> str | int:
    if feature is not None:
        return feature
    if len(inputs.names) == 1:
        return 0
    raise ValueError(
        f"`feature` must be given for a table with {len(inputs.names)} inputs; got None. "
        f"Choose one of {inputs.names[:8]}."
    )


def _only_name(model: Any) -> str:
    names = getattr(model, "feature_names_in_", None)
    return "x" if names is None else str(names[0])


# -------------------------------------------------------------------- drawing


def _rings(
    quantiles: FloatArray, coverages: Sequence[float]
) -> Iterator[tuple[FloatArray, FloatArray, dict[str, Any]]]:
    """Pieces (low, high, style) between neighbouring quantiles: no colour lies over another, so the legend is true."""
    count = len(coverages)
    for i, (coverage, shade) in enumerate(zip(sorted(coverages, reverse=True), shades(count), strict=True)):
        style = {"color": COLOR, "alpha": shade, "linewidth": 0}
        inner, outer = (-i - 1, None) if i == count - 1 else (i + 1, -i - 2)
        yield quantiles[:, i], quantiles[:, inner], {**style, "label": f"{coverage:.0%} interval"}
        if outer is not None:
            yield quantiles[:, outer], quantiles[:, -i - 1], style


def _draw(axes: Axes, place: NDArray[Any], quantiles: FloatArray, coverages: Sequence[float]) -> None:
    for low, high, style in _rings(quantiles, coverages):
        axes.fill_between(place, low, high, **style)
    axes.plot(place, quantiles[:, len(coverages)], color=COLOR, label="median")


def _draw_levels(axes: Axes, grid: NDArray[Any], quantiles: FloatArray, coverages: Sequence[float]) -> None:
    """The same for values that are told one by one: a column for each."""
    place, middle = np.arange(len(grid)), quantiles[:, len(coverages)]
    axes.use_sticky_edges = False  # bars stand on no ground here
    for low, high, style in _rings(quantiles, coverages):
        axes.bar(place, high - low, 0.6, low, **style)
    axes.hlines(middle, place - 0.3, place + 0.3, color=COLOR, label="median")
    names = [f"{value:g}" if isinstance(value, float) else shorten(str(value), 20) for value in grid.tolist()]
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right"} if max(map(len, names)) > 8 else {}
    axes.set_xticks(place, names, parse_math=False, **slanted)
