"""Tables and picture of the experiment, from the forecasts that `train` has written."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.molecules import analysis
from benchmarks.molecules.analysis import Forecast, Truth
from benchmarks.molecules.experiment import RECIPES, Outcome
from benchmarks.molecules.frames import Frames
from benchmarks.molecules.structure import FOLDED, Array, events
from benchmarks.records import RESULTS

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images"
SHOWN = "schnet"  # the forecast in the picture
RIVAL = "Q-bins"  # the baseline that is hardest to beat
FEWEST = 50  # frames in a bin of the picture
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "molecules.md"
NAME = "molecules"
HEADS = {
    "method": "method",
    "sigma1": "σ₁ on the test run",
    "timescale": "timescale, ps",
    "p_fold_unfolded": "P(folded later \\| unfolded)",
    "p_fold_unfolded_gap": "… minus counting",
    "p_fold_folded": "P(folded later \\| folded)",
    "p_fold_folded_gap": "… minus counting",
    "brier": "Brier",
    "brier_beyond": f"Brier beyond {RIVAL}",
    "coverage": "in the 80 % band",
    "coverage_unfolded": "from unfolded",
    "coverage_folded": "from folded",
    "steps": "steps",
    "steps_per_second": "steps a second",
}
DIFFERENCES = {"p_fold_unfolded_gap": 3, "p_fold_folded_gap": 4, "brier_beyond": 4}  # with their errors, in digits
SCORES = ["method", "sigma1", "sigma1_train", "sigma2", "timescale", "timescale_se", "p_fold_unfolded", "p_fold_folded"]
SCORES += ["p_fold_unfolded_se", "p_fold_folded_se", "p_fold_unfolded_gap", "p_fold_unfolded_gap_se"]
SCORES += ["p_fold_folded_gap", "p_fold_folded_gap_se", "brier", "brier_se", "brier_beyond", "brier_beyond_se"]
SCORES += ["coverage", "coverage_se"]
SCORES += ["coverage_unfolded", "coverage_unfolded_se", "coverage_folded", "coverage_folded_se", "irreversibility_p"]
SCORES += ["steps", "best_step", "seconds", "steps_per_second", "batch_size", "learning_rate", "gamma", "parameters"]
SCORES += ["seed", "device", "version"]
RELIABILITY = ["method", "bin", "n", "forecast", "frequency", "frequency_se"]
SIMULATIONS = ["run", "frames", "ns", "folded", "foldings", "unfoldings", "valley", "valley_depth"]
SIMULATIONS += ["p_fold_unfolded", "p_fold_folded"]


def marks(name: str) -> tuple[str, str]:
    """Lines of the guide between which a table stands."""
    return f"<!-- made by `python -m benchmarks.molecules report --name {name}` -->", "<!-- end -->"


def write_report(
    train: Frames,
    test: Frames,
    folder: Path,
    name: str = NAME,
    *,
    results: Path = RESULTS,
    pictures: Path = PICTURES,
    guide: Path = GUIDE,
) -> str:
    """Write NAME*.csv, the picture and the table of the guide; returns the main table as text."""
    files = {recipe: folder / f"forecast-{recipe}.npz" for recipe in RECIPES}
    outcomes = {recipe: Outcome.load(path) for recipe, path in files.items() if path.exists()}
    place_in_guide(guide, name)
    if not outcomes:
        raise FileNotFoundError(
            f"There is no forecast in {folder}. Make one with `python -m benchmarks.molecules train {SHOWN}`."
        )
    _check_runs(outcomes, train.fingerprint(), test.fingerprint())
    happened = Truth.of(test)
    plain = analysis.baselines(train, test)
    rows = [counted(happened)]
    rows += [{"method": method} | values for method, values in analysis.references(train, test).items()]
    forecasts = plain | {method: outcome.forecast for method, outcome in outcomes.items()}
    forecasts |= {f"{method} + state": Forecast(outcome.with_state) for method, outcome in outcomes.items()}
    for method, forecast in forecasts.items():
        known = outcomes[method].row if method in outcomes else {"method": method}
        beyond = {} if method == RIVAL else analysis.brier_beyond(forecast, plain[RIVAL], happened)
        rows.append(known | analysis.judged(forecast, happened) | beyond)
    bins = [{"method": method} | line for method, f in forecasts.items() for line in analysis.reliability(f, happened)]
    runs = [{"run": run} | simulated(frames) for run, frames in (("train", train), ("test", test))]
    results.mkdir(parents=True, exist_ok=True)
    write_csv(results / f"{name}.csv", SCORES, rows)
    write_csv(results / f"{name}-reliability.csv", RELIABILITY, bins)
    write_csv(results / f"{name}-simulation.csv", SIMULATIONS, runs)
    shown = SHOWN if SHOWN in outcomes else next(iter(outcomes))
    draw(test, outcomes[shown].forecast, bins, shown, pictures / f"{name}.png")
    update_guide(guide, name, as_markdown(rows))
    return as_text(rows)


def _check_runs(outcomes: dict[str, Outcome], train: str, test: str) -> None:
    """Refuse forecasts of other runs: they would be judged beside frames that they never saw."""
    for name, outcome in outcomes.items():
        if (outcome.train, outcome.test) != (train, test):
            raise ValueError(
                f"The forecast of {name} was made from other runs than --train and --test. Make it again with "
                f"`python -m benchmarks.molecules train {name}`, or give the runs that it was made from."
            )


def counted(test: Truth) -> dict[str, Any]:
    """Transition probabilities of the test run by counting, with their errors."""
    row: dict[str, Any] = {"method": "counting, test run"}
    for name, among in (("p_fold_unfolded", ~test.before), ("p_fold_folded", test.before)):
        row[name], row[f"{name}_se"] = analysis.mean_of(test.after, among, test.block)
    return row


def simulated(frames: Frames) -> dict[str, Any]:
    """How often a run folds, and where Q has its valley between the two modes."""
    foldings, unfoldings = events(frames.q)
    place, depth = valley(frames.q)
    test = Truth.of(frames)
    return {
        "frames": len(frames),
        "ns": len(frames) * frames.interval / 1000,
        "folded": float(frames.folded.mean()),
        "foldings": foldings,
        "unfoldings": unfoldings,
        "valley": place,
        "valley_depth": depth,
        "p_fold_unfolded": float(test.after[~test.before].mean()),
        "p_fold_folded": float(test.after[test.before].mean()),
    }


def valley(q: Array, width: float = 0.1) -> tuple[float, float]:
    """Q between the modes around which fewest frames lie, and their share of those around the smaller mode."""
    centres = np.linspace(width / 2, 1 - width / 2, 37)
    frames = np.array([(np.abs(q - centre) <= width / 2).mean() for centre in centres])
    low, high = frames[centres < 0.3].argmax(), (frames * (centres > 0.5)).argmax()
    lowest = low + frames[low : high + 1].argmin()
    return float(centres[lowest]), float(frames[lowest] / min(frames[low], frames[high]))


def write_csv(path: Path, columns: list[str], rows: Iterable[dict[str, Any]]) -> None:
    """Numbers with five digits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            values = (row.get(name, "") for name in columns)
            writer.writerow([f"{value:.5g}" if isinstance(value, float) else value for value in values])


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """The table of the guide."""
    lines = ["| " + " | ".join(HEADS.values()) + " |", "|" + "---|" * len(HEADS)]
    for row in rows:
        cells = [str(row["method"])]
        for name in list(HEADS)[1:]:
            value, error = row.get(name), row.get(f"{name}_se")
            text = "" if value is None else f"{100 * value:.1f} %" if "coverage" in name else f"{value:.3g}"
            text = f"{value:.3f}" if value is not None and ("p_" in name or name == "sigma1") else text
            text = f"{value:.4f}" if value is not None and name.startswith("brier") else text
            text = f"{value:,}" if isinstance(value, int) else text
            if value is not None and name in DIFFERENCES:
                text = f"{value:+.{DIFFERENCES[name]}f} ± {error:.{DIFFERENCES[name]}f}"
            elif error is not None and name.startswith("p_") and "brier" not in row:  # counting
                text = f"{text} ± {error:.3f}"
            cells.append(text)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def place_in_guide(path: Path, name: str) -> tuple[int, int]:
    """Where the table begins and ends; a name that the guide does not have is refused."""
    text, (first, last) = path.read_text(), marks(name)
    if first not in text:
        raise ValueError(f"--name must be one that {path} has a place for, after {first!r}; got {name!r}.")
    begin = text.index(first) + len(first)
    return begin, text.index(last, begin)


def update_guide(path: Path, name: str, table: str) -> None:
    """Put the table between its marks."""
    text, (begin, end) = path.read_text(), place_in_guide(path, name)
    path.write_text(f"{text[:begin]}\n{table}\n{text[end:]}")


def as_text(rows: list[dict[str, Any]]) -> str:
    """The scores that matter, one line per method."""
    names = ["sigma1", "timescale", "p_fold_unfolded", "p_fold_folded", "brier", "coverage", "coverage_unfolded"]
    names += ["coverage_folded", "steps", "seconds"]
    lines = [f"{'method':26}" + "".join(f"{name:>19}" for name in names)]
    for row in rows:
        cells = (row.get(name) for name in names)
        lines.append(f"{row['method']:26}" + "".join(f"{'' if c is None else format(c, '.4g'):>19}" for c in cells))
    return "\n".join(lines)


def draw(test: Frames, forecast: Forecast, bins: list[dict[str, Any]], name: str, path: Path) -> None:
    """The paper's figure (distance over time, mean and quantiles, states shaded), with reliability and Q beside it."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    assert forecast.mean is not None
    lag, ps = test.lag, test.interval
    n = len(forecast.folded)
    start = busiest_window(test.folded, width := min(n, round(1500 / ps)))
    shown = slice(start, start + width)
    time = (np.arange(n) + lag)[shown] * ps / 1000
    figure = plt.figure(figsize=(11, 6), layout="constrained")
    above, below = figure.add_gridspec(2, 1, height_ratios=(3, 2))
    axes = figure.add_subplot(above)
    left, right = (figure.add_subplot(place) for place in below.subgridspec(1, 2))
    folded = test.folded[lag:][shown]
    whole = axes.get_xaxis_transform()
    axes.fill_between(time, 0, 1, where=folded, transform=whole, color="#dbe7f4", lw=0, label="folded")
    axes.plot(time, test.distance[lag:][shown] * 10, color="#4c72b0", lw=0.8, label="simulation")
    axes.plot(time, forecast.mean[shown] * 10, color="#dd8452", lw=1.2, label="forecast 20 ps before: mean")
    for edge, label in ((forecast.low, "10 % and 90 % quantiles"), (forecast.high, None)):
        axes.plot(time, np.asarray(edge)[shown] * 10, color="0.35", lw=0.7, label=label)
    axes.set(xlabel="time (ns)", ylabel="distance Cα 2–9 (Å)", xlim=(time[0], time[-1]), title=f"Test run, {name}")
    axes.legend(frameon=False, ncols=4, loc="upper center", fontsize=8)
    axes.margins(y=0.15)
    colours = {"two-state": "#8c8c8c", "Q-bins": "#55a868", name: "#c1272d"}
    left.plot([0, 1], [0, 1], "k--", lw=0.8)
    for method, colour in colours.items():
        lines = [line for line in bins if line["method"] == method and line["n"] >= FEWEST]
        x, y = [line["forecast"] for line in lines], [line["frequency"] for line in lines]
        left.errorbar(x, y, [line["frequency_se"] for line in lines], fmt="o-", ms=4, color=colour, label=method)
    left.set(xlabel="forecast probability to be folded after 20 ps", ylabel="frequency", title="Reliability")
    left.legend(frameon=False, fontsize=8)
    right.hist(test.q, 60, range=(0, 1), density=True, color="#9bb3d4")
    right.axvline(FOLDED, color="black", ls="--", lw=1)
    right.set(xlabel="fraction of native contacts Q; dashed: folded above", ylabel="density", title="Two states")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def busiest_window(folded: Array, width: int) -> int:
    """Start of the first window whose share of folded frames is closest to one half: both states are seen there."""
    share = np.convolve(folded.astype(float), np.ones(width) / width, mode="valid")
    return int(np.abs(share - 0.5).argmin())
