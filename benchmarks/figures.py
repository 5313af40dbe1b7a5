"""Plots of the report; each function writes one picture and returns its name."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent.parent / "docs" / "images"
OURS = "#c1272d"
OTHERS = ("#4c72b0", "#55a868", "#8172b3", "#937860", "#64b5cd", "#8c8c8c")


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


def small_n(data: pd.DataFrame) -> str:
    """KS against n, a panel per model."""
    models, methods = list(data["dataset"].unique()), sorted(data["method"].unique())
    palette = colours(methods)
    columns = min(3, len(models))
    rows = -(-len(models) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(3.2 * columns, 2.6 * rows), squeeze=False, sharex=True)
    panels = list(grid.ravel())
    for axes, model in zip(panels, models, strict=False):
        for method in methods:
            chosen = data[(data["dataset"] == model) & (data["method"] == method)]
            means = chosen.groupby("n")["ks"].mean()
            axes.plot(means.index, means, "o-", ms=3, color=palette[method], label=method)
        axes.set(title=model, xscale="log", yscale="log")
        sizes = sorted(data["n"].unique())
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        axes.yaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(mpl.ticker.FormatStrFormatter("%g"))
        axes.tick_params(axis="y", which="both", labelsize=7)
    for axes in panels[len(models) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("mean KS distance")
    for axes in grid[-1]:
        axes.set_xlabel("training rows")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    return _save(figure, "ks-small-n.png", panels)


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


def _save(figure: Figure, name: str, panels: list[Axes]) -> str:
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.set_layout_engine("constrained")
    figure.savefig(FOLDER / name, dpi=130)
    plt.close(figure)
    return name
