"""Plots of the report; each function writes one picture and returns its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from numpy.typing import NDArray

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent.parent / "docs" / "images"
OURS = "#c1272d"
OTHERS = ("#4c72b0", "#55a868", "#8172b3", "#937860", "#64b5cd", "#8c8c8c")
TRUTH = "truth"
TRUTH_STYLE: dict[str, Any] = {"color": "black", "ls": "--", "lw": 1.0, "label": TRUTH}


def colours(methods: list[str]) -> dict[str, str]:
    """One colour per method, the same in every plot of a page: red is ours."""
    rivals = [method for method in methods if method != "ncprob"]
    return {"ncprob": OURS} | {method: OTHERS[i % len(OTHERS)] for i, method in enumerate(rivals)}


def density(data: pd.DataFrame, paper: pd.DataFrame, n: int) -> str:
    """KS of every method, a panel per model, best on top; a tick is what the paper prints for the method."""
    models = [name for name in paper["dataset"].unique() if name in set(data["dataset"])]
    columns = min(3, len(models))
    rows = -(-len(models) // columns)
    tall = 1.1 + 0.17 * data["method"].nunique()
    figure, grid = plt.subplots(rows, columns, figsize=(3.6 * columns, tall * rows), squeeze=False)
    panels = list(grid.ravel())
    for axes, model in zip(panels, models, strict=False):
        means = data[data["dataset"] == model].groupby("method")["ks"].mean().sort_values(ascending=False)
        printed = paper[paper["dataset"] == model].set_index("method")["ks_mean"].reindex(means.index)
        shades = [OURS if name == "ncprob" else "#9bb3d4" for name in means.index]
        axes.barh(means.index, means, color=shades)
        axes.plot(printed, np.arange(len(means)), "|", ms=9, mew=2, color="black", label="printed in the paper")
        axes.set(title=model, xscale="log", xlabel="mean KS distance")
        axes.set_xlim(left=means.min() / 1.5)
        axes.margins(y=0.01)
        axes.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(mpl.ticker.NullFormatter())
        axes.tick_params(labelsize=7)
    for axes in panels[len(models) :]:
        axes.set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", frameon=False, fontsize=8)
    return _save(figure, f"ks-n{n}.png", panels)


def curves(data: pd.DataFrame) -> str:
    """KS against n with a band of one standard deviation over seeds, a panel per model."""
    models = list(data["dataset"].unique())
    sizes = data.groupby("method")["n"].nunique()
    methods = sorted(sizes[sizes > 2].index)
    palette = colours(methods)
    columns = min(3, len(models))
    rows = -(-len(models) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(3.4 * columns, 2.8 * rows), squeeze=False, sharex=True)
    panels = list(grid.ravel())
    for axes, model in zip(panels, models, strict=False):
        for method in methods:
            runs = data[(data["dataset"] == model) & (data["method"] == method)].groupby("n")["ks"]
            mean, deviation = runs.mean(), runs.std().fillna(0)
            axes.plot(mean.index, mean, "o-", ms=3, color=palette[method], label=method)
            low = np.maximum(mean - deviation, mean / 3)  # a band that reaches zero has no place on a log axis
            axes.fill_between(mean.index, low, mean + deviation, color=palette[method], alpha=0.15, lw=0)
        ours = data[(data["dataset"] == model) & (data["method"] == "ncprob")].groupby("n")["ks"].mean()
        if len(ours):
            axes.plot(ours.index, ours.iloc[0] * (ours.index / ours.index[0]) ** -0.5, "--", color="0.6", lw=1)
        axes.set(title=model, xscale="log", yscale="log")
        axes.yaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    for axes in panels[len(models) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("mean KS distance")
    for axes in grid[-1]:
        axes.set_xlabel("training rows")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False, fontsize=8)
    return _save(figure, "ks-curves.png", panels)


def crps_ratio(data: pd.DataFrame) -> str:
    """CRPS of every method over that of the best, per table."""
    means = data.pivot_table(index="dataset", columns="method", values="crps", sort=False)
    ratio = means.div(means.min(axis=1), axis=0)
    palette = colours(list(ratio.columns))
    figure, axes = plt.subplots(figsize=(9, 3.6))
    for i, method in enumerate(ratio):
        places = np.arange(len(ratio)) + (i - (ratio.shape[1] - 1) / 2) * 0.14
        axes.scatter(places, ratio[method], s=36, color=palette[str(method)], label=method, zorder=3)
    for edge in np.arange(len(ratio) - 1) + 0.5:
        axes.axvline(edge, color="0.9", lw=1)
    axes.axhspan(1.0, 1.02, color="0.92", zorder=0)
    axes.set_xticks(range(len(ratio)), ratio.index)
    axes.set_ylabel("CRPS / best CRPS")
    axes.set_title("1 is the best method of a table; the band is within 2 %", fontsize=9)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=ratio.shape[1], frameon=False)
    return _save(figure, "crps-ratio.png", [axes])


def laws(data: pd.DataFrame, kind: str) -> str:
    """`kind` is "pdf" or "cdf": a row per model, a column per condition, the truth dashed."""
    models = list(data["dataset"].unique())
    methods = [name for name in data["method"].unique() if name != TRUTH]
    palette = colours(methods)
    figure, grid = plt.subplots(len(models), 3, figsize=(9, 1.75 * len(models) + 0.6), squeeze=False)
    for row, model in zip(grid, models, strict=True):
        chosen = data[data["dataset"] == model]
        for axes, condition in zip(row, chosen["condition"].unique(), strict=False):
            here = dict(list(chosen[chosen["condition"] == condition].groupby("method")))
            for name in [name for name in methods if name in here]:
                axes.plot(here[name]["y"], here[name][kind], color=palette[name], lw=1.5, label=name)
            if TRUTH in here:
                axes.plot(here[TRUTH]["y"], here[TRUTH][kind], **TRUTH_STYLE)
                top = here[TRUTH][kind].max() * (1.5 if kind == "pdf" else 1.05)  # a spike may not flatten the rest
                axes.set_ylim(-0.03 * top, top)
            axes.set_title(condition, fontsize=8)
            axes.tick_params(labelsize=7)
        row[0].set_ylabel(model, fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("y", fontsize=8)
    what = {"pdf": "density", "cdf": "distribution function"}[kind]
    figure.suptitle(f"Conditional {what} of y given x, n = {data['n'].iloc[0]:,}", fontsize=10)
    _legend_below(figure, grid)
    return _save(figure, f"laws-{kind}.png", list(grid.ravel()))


def bands(data: pd.DataFrame) -> str:
    """A panel per model and method: band and mean over those of the truth; below it the exact coverage along x."""
    models = list(data["dataset"].unique())
    methods = [name for name in data["method"].unique() if name != TRUTH]
    palette, heights = colours(methods), [2.4, 1.0] * len(models)
    size = (2.5 * len(methods) + 0.5, 1.25 * sum(heights) + 0.4)
    figure, grid = plt.subplots(
        len(heights), len(methods), figsize=size, squeeze=False, sharex=True, sharey="row", height_ratios=heights
    )
    for i, model in enumerate(models):
        chosen = dict(list(data[data["dataset"] == model].groupby("method")))
        for j, name in enumerate(methods):
            panel, below = grid[2 * i : 2 * i + 2, j]
            if name in chosen:
                _band(panel, chosen[name], palette[name])
                _coverage(below, chosen[name], palette[name])
            if TRUTH in chosen:
                _true_band(panel, chosen[TRUTH])
            panel.set_title(f"{model}: {name}", fontsize=9)
        grid[2 * i, 0].set_ylabel("y")
        grid[2 * i + 1, 0].set_ylabel("coverage", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("x")
    proxies = [mpl.patches.Patch(color="0.6", alpha=0.4), mpl.lines.Line2D([], [], color="0.4", lw=1.5)]
    proxies.append(mpl.lines.Line2D([], [], **TRUTH_STYLE))
    labels = ["5 % to 95 % quantile", "mean where there is one; coverage", "truth; 0.9"]
    figure.legend(proxies, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return _save(figure, "bands.png", list(grid.ravel()))


def _band(axes: Axes, curve: pd.DataFrame, colour: str) -> None:
    axes.fill_between(curve["x"], curve["low"], curve["high"], color=colour, alpha=0.3, lw=0)
    axes.plot(curve["x"], curve["mean"], color=colour, lw=1.5)


def _coverage(axes: Axes, curve: pd.DataFrame, colour: str) -> None:
    """Coverage along x; where it leaves the panel its least value is written."""
    bottom, least = 0.5, curve["coverage"].min()
    axes.plot(curve["x"], curve["coverage"], color=colour, lw=1.5)
    axes.axhline(0.9, color="black", ls="--", lw=1)
    axes.set_ylim(bottom, 1.02)
    if least < bottom:
        axes.text(0.98, 0.06, f"least {least:.2f}", transform=axes.transAxes, ha="right", fontsize=7, color=colour)


def _true_band(axes: Axes, truth: pd.DataFrame) -> None:
    for column in ("low", "high", "mean"):
        axes.plot(truth["x"], truth[column], **TRUTH_STYLE)
    low, high = truth["low"].min(), truth["high"].max()
    axes.set_ylim(low - 0.4 * (high - low), high + 0.4 * (high - low))  # a band that explodes is cut


def dynamics(data: pd.DataFrame) -> str:
    """A row per model: losses, orthonormality gaps, leading singular values over epochs; dotted at the best epoch."""
    models = list(data["dataset"].unique())
    figure, grid = plt.subplots(len(models), 4, figsize=(13, 2.7 * len(models) + 0.3), squeeze=False)
    for row, model in zip(grid, models, strict=True):
        chosen = data[data["dataset"] == model]
        run, truth = chosen[chosen["method"] != TRUTH], chosen[chosen["method"] == TRUTH]
        _lines(row[0], run, {"loss": "training rows", "held_loss": "held-out rows"}, OTHERS)
        _lines(row[1], run, {"left_gap": "u, of x", "right_gap": "v, of y"}, OTHERS[2:])
        _spectrum(row[2], run, truth, "operator")
        _spectrum(row[3], run, truth, "sigma")
        labels = ("loss", "orthonormality gap", "singular values as trained", "singular values whitened")
        for axes, label in zip(row, labels, strict=True):
            axes.axvline(run["epoch"][run["held_loss"].idxmin()], color="0.5", ls=":", lw=1)
            axes.set_title(f"{model}, n = {chosen['n'].iloc[0]:,}", fontsize=9)
            axes.set_ylabel(label, fontsize=9)
        for axes in row[:2]:
            axes.legend(frameon=False, fontsize=7)
        row[3].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    return _save(figure, "dynamics.png", list(grid.ravel()))


def _spectrum(axes: Axes, run: pd.DataFrame, truth: pd.DataFrame, kind: str) -> None:
    names = {name: f"σ{name.removeprefix(kind)}" for name in run.columns if name.startswith(kind)}
    _lines(axes, run, names, mpl.colormaps["viridis"](np.linspace(0, 0.85, len(names))))
    for k, value in enumerate(truth[list(names)].to_numpy().ravel()):
        axes.axhline(value, **TRUTH_STYLE | {"lw": 0.8, "label": "_" * (k > 0) + TRUTH})
    axes.set_ylim(0, 1.02)


def _lines(axes: Axes, run: pd.DataFrame, names: dict[str, str], palette: Sequence[Any]) -> None:
    for colour, (column, label) in zip(palette, names.items(), strict=False):
        axes.plot(run["epoch"], run[column], color=colour, lw=1.5, label=label)


def costs(data: pd.DataFrame, axes: dict[str, str]) -> str:
    """Seconds above, peak of memory below, a column per size that grows; both scales logarithmic, alike in a row."""
    known = [axis for axis in axes if axis in set(data["axis"])]
    palette = colours(list(data["method"].unique()))
    size = (2.3 * len(known) + 0.8, 5.2)
    figure, grid = plt.subplots(2, len(known), figsize=size, squeeze=False, sharex="col", sharey="row")
    for column, axis in zip(grid.T, known, strict=True):
        call = "predict" if axis == "asked" else "fit"
        for panel, quantity in zip(column, (f"{call}_seconds", f"{call}_mib"), strict=True):
            for method, curve in data[data["axis"] == axis].groupby("method", sort=False):
                points = curve.sort_values("value")
                panel.plot(points["value"], points[quantity], "o-", ms=3, color=palette[str(method)], label=method)
            panel.set(xscale="log", yscale="log")
            panel.grid(axis="y", color="0.92")
            panel.tick_params(labelsize=7)
            panel.yaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
            panel.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
        column[0].set_title(call, fontsize=9)
        column[1].set_xlabel(axes[axis], fontsize=9)
    grid[0, 0].set_ylabel("seconds")
    grid[1, 0].set_ylabel("peak resident memory, MiB")
    _legend_below(figure, grid)
    return _save(figure, "costs.png", list(grid.ravel()))


def _legend_below(figure: Figure, grid: NDArray[Any]) -> None:
    """One legend for all panels, which have the same lines."""
    lines = {
        label: line for axes in grid.ravel() for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=len(lines), frameon=False, fontsize=8)


def _save(figure: Figure, name: str, panels: list[Axes]) -> str:
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.set_layout_engine("constrained")
    figure.savefig(FOLDER / name, dpi=130)
    plt.close(figure)
    return name
