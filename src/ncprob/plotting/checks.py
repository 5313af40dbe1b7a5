"""Is the model to be trusted? Calibration, spectrum, training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ncprob._validation import check_integer, check_number
from ncprob.diagnostics import calibration_curve
from ncprob.plotting._canvas import ACCENT, COLOR, NEUTRAL, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_LEVELS = tuple(np.round(np.linspace(0.01, 0.99, 99), 2).tolist())


def plot_pit(pit: ArrayLike, *, bins: int = 10, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Histogram of F(y | x), uniform for a calibrated model, with the band that chance explains.

    A hump in the middle says that laws are too wide, a valley that they are too narrow, a slope that they are shifted.
    With probability `level` or more, all bars of a calibrated model lie within the band (binomial, Bonferroni).

    Parameters
    ----------
    pit : array of shape (n,)
        `model.predict_distribution(X).pit(y)` on rows that had no part in `fit`; one component at a time.
    bins : int
        Number of bars.
    level : float
        Probability of the band.
    ax : Axes, optional
        Axes to draw on.

    Examples
    --------
    >>> ax = plot_pit(np.linspace(0.005, 0.995, 100), bins=5)
    >>> [round(float(bar.get_height()), 2) for bar in ax.patches]
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    values = _checked_pit(pit)
    bins = check_integer(bins, "bins", minimum=2)
    tail = (1 - check_number(level, "level", minimum=0, maximum=1, open_ends=True)) / 2 / bins
    low, high = (float(stats.binom.ppf(p, len(values), 1 / bins)) * bins / len(values) for p in (tail, 1 - tail))
    heights, edges = np.histogram(values, bins=bins, range=(0, 1), density=True)
    with canvas(ax) as axes:
        axes.bar(edges[:-1], heights, 1 / bins, align="edge", color=COLOR, alpha=0.5, edgecolor="white", label="model")
        axes.fill_between([0, 1], low, high, color=NEUTRAL, alpha=0.2, linewidth=0, label=f"{level:.0%} band of chance")
        axes.axhline(1, color=NEUTRAL, linestyle="--", linewidth=1, label="calibrated")
        axes.set(
            xlabel="F(y | x)", ylabel="density", xlim=(0, 1), ylim=(0, max(1.4, 1.15 * heights.max(), 1.15 * high))
        )
        return axes


def plot_calibration(pit: ArrayLike, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Coverage of central intervals against their nominal coverage; on the diagonal for a calibrated model.

    Below it intervals are too narrow. With probability `level` or more, the whole curve of a calibrated model lies
    within the band (Dvoretzky, Kiefer & Wolfowitz 1956; Massart 1990).

    Parameters
    ----------
    pit : array of shape (n,)
        As in `plot_pit`.
    level : float
        Probability of the band.
    ax : Axes, optional
        Axes to draw on.

    Examples
    --------
    >>> ax = plot_calibration(np.linspace(0.005, 0.995, 100))
    >>> bool(np.abs(np.subtract(*ax.lines[0].get_data())).max() < 0.011)
    True
    """
    values = _checked_pit(pit)
    check_number(level, "level", minimum=0, maximum=1, open_ends=True)
    curve = calibration_curve(values, CURVE_LEVELS)
    nominal, actual = np.array(list(curve)), np.array(list(curve.values()))
    gap = np.sqrt(np.log(2 / (1 - level)) / (2 * len(values)))
    with canvas(ax) as axes:
        axes.plot(nominal, actual, color=COLOR, label="model")
        axes.plot([0, 1], [0, 1], color=NEUTRAL, linestyle="--", linewidth=1, label="calibrated")
        ends = np.clip(nominal - gap, 0, 1), np.clip(nominal + gap, 0, 1)
        axes.fill_between(nominal, *ends, color=NEUTRAL, alpha=0.2, linewidth=0, label=f"{level:.0%} band of chance")
        axes.set(xlabel="nominal coverage", ylabel="actual coverage", xlim=(0, 1), ylim=(0, 1))
        return axes


def plot_spectrum(source: Any, *, ax: Axes | None = None) -> Axes:
    """Singular values: how strongly y depends on X along each pair of singular functions.

    Parameters
    ----------
    source : NCPRegressor, NCPClassifier, Dependence or sequence of float
        A fitted model shows the values it uses, `model.dependence()` those on held-out rows with two standard errors.
    ax : Axes, optional
        Axes to draw on.

    Examples
    --------
    >>> [float(bar.get_height()) for bar in plot_spectrum([0.8, 0.5]).patches]
    [0.8, 0.5]
    """
    values = getattr(source, "singular_values_", getattr(source, "singular_values", source))
    heights = np.asarray(values, dtype=float).ravel()
    noise = 2 / np.sqrt(source.n_rows) if hasattr(source, "n_rows") else None
    with canvas(ax) as axes:
        axes.bar(np.arange(1, len(heights) + 1), heights, 0.7, color=COLOR, alpha=0.8, label="singular values")
        if noise is not None:
            axes.axhline(noise, color=ACCENT, linestyle="--", linewidth=1, label="two standard errors")
        if not len(heights):
            axes.text(0.5, 0.5, "no singular functions in use", ha="center", transform=axes.transAxes)
        axes.locator_params(axis="x", integer=True)
        axes.set(
            xlabel="singular function", ylabel="singular value", ylim=(0, 1), xlim=(0.4, max(len(heights), 4) + 0.6)
        )
        return axes


def plot_history(source: Any, *, ax: Axes | None = None) -> Axes:
    """Training and held-out loss over the steps of training, with the step whose weights were kept.

    Parameters
    ----------
    source : NCPRegressor, NCPClassifier or History
        A fitted model, or what `ncprob.train` returns.
    ax : Axes, optional
        Axes to draw on.

    Examples
    --------
    >>> from ncprob import NCPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1))
    >>> model = NCPRegressor(max_steps=150, coordinates="raw", random_state=0).fit(X, X[:, 0])
    >>> [line.get_label() for line in plot_history(model).lines]
    ['training', 'held out', 'kept']
    """
    history = getattr(source, "history_", source)
    with canvas(ax) as axes:
        if not history.step:
            axes.text(0.5, 0.5, "nothing was trained", ha="center", transform=axes.transAxes)
        else:
            axes.plot(history.step, history.loss, color=NEUTRAL, label="training")
            axes.plot(history.step, history.validation_loss, color=COLOR, label="held out")
            axes.axvline(history.best_step, color=ACCENT, linestyle=":", label="kept")
        axes.set(xlabel="step", ylabel="loss")
        return axes


def _checked_pit(pit: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(pit, dtype=float)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1 or not values.size or not np.all((values >= 0) & (values <= 1)):
        raise ValueError(
            f"`pit` must hold values of F(y | x) in [0, 1], shape (n,); got shape {values.shape}. "
            "Pass `law.pit(y)`, of vector y one column."
        )
    return values
