"""A demonstration on simulated data: answers of a fitted model beside the exact truth, and a picture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ncprob.datasets import TwoRegimes
from ncprob.estimators import NCPRegressor
from ncprob.metrics import ks_distance
from ncprob.plotting import plot_bands, plot_density
from ncprob.sets import Box

N_ROWS = 6000
POINTS = (-2.0, 0.8, 2.2)  # one branch, the split, two branches
REGION = (1.5, 2.5)
THRESHOLD = 1.5


def run(out: Path, random_state: int = 0) -> Path | None:
    """Fit, print a table of answers beside the truth, write a picture to `out`; the picture's path, if it was made."""
    console = Console(markup=False)  # brackets of extras and of paths are text
    simulator = TwoRegimes()
    X, y = simulator.sample(N_ROWS, random_state=random_state)
    console.print(f"Simulated {N_ROWS:,} rows: noise that depends on x, and two branches for x > 0. Fitting …")
    start = time.perf_counter()
    model = NCPRegressor(random_state=random_state).fit(X, y)
    console.print(
        f"Fitted in {time.perf_counter() - start:.1f} s "
        f"({model.n_steps_} steps, {model.coordinates_} coordinates, rank {model.rank_}).\n"
    )
    console.print(_pointwise_table(model, simulator))
    console.print(_set_table(model, simulator))
    grid = np.linspace(y.min(), y.max(), 1000)
    x = simulator.conditioning_points(X)
    ks = ks_distance(model.predict_distribution(x).cdf(grid), simulator.truth(x).cdf(grid))
    console.print(f"Mean Kolmogorov–Smirnov distance to the exact conditional laws: {ks:.3f}")
    picture = _draw(model, simulator, X, y, out)
    if picture is None:
        console.print("No picture: matplotlib is missing. Install it with: pip install 'ncprob[plot]'")
    else:
        console.print(f"Picture: {picture}")
    return picture


def _pointwise_table(model: NCPRegressor, simulator: TwoRegimes) -> Table:
    x = np.array(POINTS)[:, None]
    table = Table(title="Y given X = x")
    for name in ("x", "", "mean", "5 %", "50 %", "95 %", "90 % shortest interval"):
        table.add_column(name, justify="right")
    laws: dict[str, Any] = {"model": model.predict_distribution(x), "exact": simulator.truth(x)}
    for i, point in enumerate(POINTS):
        for name, law in laws.items():
            numbers = [law.mean()[i], *law.quantile([0.05, 0.5, 0.95])[i]]
            low, high = law.interval(0.9)[i]
            cells = [f"{number:.2f}" for number in numbers]
            table.add_row(f"{point:g}" if name == "model" else "", name, *cells, f"{low:.2f} … {high:.2f}")
        table.add_section()
    return table


def _set_table(model: NCPRegressor, simulator: TwoRegimes) -> Table:
    low, high = REGION
    law = model.given(Box(low, high))
    fine = np.linspace(low, high, 2001)[:, None]  # X is uniform, so the exact law given the set is a plain average
    truth = simulator.truth(fine)
    exact_prob = 1 - truth.cdf(THRESHOLD).mean()
    table = Table(title=f"Y given X in ({low:g}, {high:g}]")
    for name in ("question", "model", "exact"):
        table.add_column(name, justify="right")
    table.add_row("mean", f"{law.mean()[0]:.3f}", f"{truth.mean().mean():.3f}")
    table.add_row(f"P(Y > {THRESHOLD:g})", f"{law.sf(THRESHOLD)[0]:.3f}", f"{exact_prob:.3f}")
    return table


def _draw(
    model: NCPRegressor, simulator: TwoRegimes, X: NDArray[np.float64], y: NDArray[np.float64], out: Path
) -> Path | None:
    """Data with bands on the left, three conditional densities beside the exact ones on the right."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(11, 5), layout="constrained")
    grid = figure.subplot_mosaic([["bands", "0"], ["bands", "1"], ["bands", "2"]], width_ratios=[1.5, 1])
    bands = grid["bands"]
    bands.scatter(X[:, 0], y, s=3, color="#999999", alpha=0.35, linewidths=0, label="data")
    plot_bands(model, np.linspace(-3, 3, 200), ax=bands)
    bands.legend(loc="lower left", frameon=False)
    values = np.linspace(y.min(), y.max(), 600)
    for i, point in enumerate(POINTS):
        ax = grid[str(i)]
        law, truth = model.predict_distribution([[point]]), simulator.truth([[point]])
        ax.fill_between(values, truth.pdf(values)[0], color="#cccccc", linewidth=0, label="exact")
        plot_density(law, values, labels=["ncprob"], ax=ax)
        ax.set(title=f"density of Y given X = {point:g}", ylabel="", xlabel="y" if i == 2 else "")
        bands.axvline(point, color="#aa5c2a", linewidth=0.8, linestyle=":")
    grid["0"].legend(frameon=False)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "demo.png"
    figure.savefig(path, dpi=110)
    return path
