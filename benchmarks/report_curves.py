"""Sections of the report on files of curves, which `laws`, `bands` and `dynamics` write."""

from __future__ import annotations

import pandas as pd

from benchmarks import figures
from benchmarks.markdown import table

Frame = pd.DataFrame


def one_fit_each(data: Frame) -> Frame:
    """Curves of the largest n and the first seed: a picture shows one fit of a method to a task."""
    groups = data.groupby("dataset")
    data = data[data["n"] == groups["n"].transform("max")]
    return data[data["seed"] == data.groupby("dataset")["seed"].transform("min")]


def beside_truth(data: Frame, keys: list[str]) -> Frame:
    """Rows of methods with the truth at the same place in columns that end in `_true`."""
    truth = data[data["method"] == figures.TRUTH]
    return data[data["method"] != figures.TRUTH].merge(truth, on=keys, suffixes=("", "_true"))


def laws(data: Frame) -> str:
    data = one_fit_each(data)
    pairs = beside_truth(data, ["dataset", "condition", "y"])
    pairs["distance"] = (pairs["cdf"] - pairs["cdf_true"]).abs()
    distance = pairs.groupby(["dataset", "condition", "method"], sort=False)["distance"].max()
    means = distance.groupby(["dataset", "method"], sort=False).mean().unstack("method")
    return f"""## Estimated and true laws

Densities and distribution functions at three x of each model, seed {data["seed"].iloc[0]}
(`python -m benchmarks.laws`).
Largest distance between the distribution functions drawn, mean over the three x:

{table(means.map("{:.4f}".format).reset_index())}

![Densities](images/{figures.laws(data, "pdf")})

![Distribution functions](images/{figures.laws(data, "cdf")})
"""


def bands(data: Frame) -> str:
    data = one_fit_each(data)
    rows = []
    pairs = beside_truth(data, ["dataset", "x"])
    for (dataset, method), group in pairs.groupby(["dataset", "method"], sort=False):
        error = (group["mean"] - group["mean_true"]).pow(2).mean()
        worst = group.loc[group["coverage"].idxmin()]
        rows.append(
            {
                "dataset": dataset,
                "method": method,
                "mean coverage": f"{group['coverage'].mean():.4f}",
                "least coverage": f"{worst['coverage']:.4f} at x = {worst['x']:.2f}",
                "mean distance from 0.9": f"{(group['coverage'] - 0.9).abs().mean():.4f}",
                "squared error of the mean": "" if pd.isna(error) else f"{error:.2g}",
            }
        )
    x = data["x"]
    return f"""## Bands along x

Quantiles at 5 and 95 % at {x.nunique()} x from {x.min():g} to {x.max():g}, n = {data["n"].max():,},
seed {data["seed"].iloc[0]} (`python -m benchmarks.bands`); coverage is exact. A Cauchy law has no mean.

{table(Frame(rows))}

![Bands](images/{figures.bands(data)})
"""


def dynamics(data: Frame) -> str:
    """State at the best epoch of every training; the picture shows how it got there."""
    data = one_fit_each(data)
    rows = []
    for (dataset, method), run in data.groupby(["dataset", "method"], sort=False):
        best = run.iloc[0] if method == figures.TRUTH else run.loc[run["held_loss"].idxmin()]
        for kind, label in (("operator", "as trained"), ("sigma", "whitened")):
            values = best.filter(regex=f"^{kind}[0-9]")
            facts = {"dataset": dataset, "singular values": label, "epoch": f"{best['epoch']:.0f}"}
            if method == figures.TRUTH:
                facts |= {"singular values": "truth", "epoch": ""}
            rows.append(facts | {f"σ{k}": f"{value:.4f}" for k, value in enumerate(values.astype(float), start=1)})
    return f"""## Learning dynamics of the paper's method

Losses with their penalty, the gaps ‖E[uuᵀ] − I‖² + 2‖E u‖² of both networks, and two kinds of singular values
(`python -m benchmarks.dynamics`): those of the operator as it is trained, and those that whitening would give after
the same epoch. The true ones of a Gaussian pair with correlation ρ are its powers. At the epoch in the file with the
least loss on held-out rows, where the picture is dotted:

{table(Frame(rows).drop_duplicates())}

![Learning dynamics](images/{figures.dynamics(data)})
"""
