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
    """KS of our methods beside the best of the paper and its NCP-W, per model."""
    models = [name for name in paper["dataset"].unique() if name in set(data["dataset"])]
    bars = {f"here: {name}": group.groupby("dataset")["ks"].mean() for name, group in data.groupby("method")}
    bars["paper: NCP-W"] = paper[paper["method"] == "NCP-W"].set_index("dataset")["ks_mean"]
    bars["paper: best of its methods"] = paper.groupby("dataset")["ks_mean"].min()
    figure, axes = plt.subplots(figsize=(9, 3.6))
    palette = iter(OTHERS)
    for i, (name, values) in enumerate(bars.items()):
        places = np.arange(len(models)) + (i - (len(bars) - 1) / 2) * 0.8 / len(bars)
        colour = OURS if name == "here: ncprob" else next(palette)
        axes.bar(places, values.reindex(models), 0.8 / len(bars), label=name, color=colour)
    axes.set_xticks(range(len(models)), models)
    axes.set_ylabel("mean KS distance")
    axes.set_title(f"n = {n:,}")
    axes.legend(frameon=False, fontsize=8)
    return _save(figure, f"ks-n{n}.png", [axes])


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
