"""Write docs/benchmarks.md, benchmarks/report.md and their plots from the result files, nothing that is not in them.

python -m benchmarks.report
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from benchmarks import figures
from benchmarks.markdown import PAPER, Frame, failures, in_order, number_range, spread, successes, table
from benchmarks.records import RESULTS
from benchmarks.report_curves import bands, dynamics, laws
from benchmarks.report_density import curves, density, density_runs, headline
from benchmarks.report_scale import accelerator, cost_curves, costs, latency, memory
from benchmarks.suites import SUITES

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BESIDE = Path(__file__).parent / "report.md"
README = Path(__file__).parent.parent / "README.md"
SCALE = Path(__file__).parent.parent / "docs" / "scale.md"
MARKS = ("<!-- made by `make paper-report` -->", "<!-- end -->")


def update_readme(text: str, made: str, name: str = "") -> str:
    """The text with what is between the two marks replaced; a page with several has a name in the first mark."""
    begin = MARKS[0].replace("made", f"{name}, made") if name else MARKS[0]
    before, rest = text.split(begin)
    after = rest.split(MARKS[1], 1)[1]
    return f"{before}{begin}\n{made}\n{MARKS[1]}{after}"


def update_scale(text: str, results: Path) -> str:
    """The page on scale with tables of the files that are there."""
    for name, make in (("costs", cost_curves), ("accelerator", accelerator), ("latency", latency), ("memory", memory)):
        if (results / f"{name}.csv").exists():
            text = update_readme(text, make(pd.read_csv(results / f"{name}.csv")), name)
    return text


def on_common_seeds(data: Frame, keys: list[str]) -> Frame:
    """Runs on the seeds that every method of the group has: while a file grows, means would be of different data."""
    methods = data.groupby(keys)["method"].transform("nunique")
    present = data.groupby([*keys, "seed"])["method"].transform("nunique")
    return data[present == methods]


def ks_cells(good: Frame) -> Frame:
    """Mean KS distance of every method by task and size; the best in bold."""
    means = good.pivot_table(index=["dataset", "n"], columns="method", values="ks", sort=False)
    best = means.eq(means.min(axis=1), axis=0)
    cells = means.map(lambda v: "" if pd.isna(v) else f"{v:.4f}").where(~best, means.map(lambda v: f"**{v:.4f}**"))
    return cells.reset_index()


def many_inputs(data: Frame) -> str:
    good = on_common_seeds(successes(data), ["dataset", "n"])
    return f"""## Many useless inputs

Mean KS distance over {number_range(good.groupby(["dataset", "n", "method"])["seed"].nunique())} seed(s); best in bold.
100 standard normal inputs stand beside those of the model and have nothing to do with y; settings as in
"Small samples".

{table(ks_cells(good))}
{failures(data)}"""


def small_n(data: Frame) -> str:
    good = on_common_seeds(successes(data), ["dataset", "n"])
    average = good.pivot_table(index="n", columns="method", values="ks").round(4).reset_index()
    return f"""## Small samples

Mean KS distance over {number_range(good.groupby(["dataset", "n", "method"])["seed"].nunique())} seed(s); best in bold.
NNKCDE and CKDE have the paper's settings, NNKCDE-tuned chooses neighbours and bandwidth, the forest its leaf size.

{table(ks_cells(good))}

Averaged over the models that are in the file:

{table(average)}

The curves are in the first picture of this page.
{failures(data)}"""


def real(data: Frame) -> str:
    good = on_common_seeds(successes(data), ["dataset"])
    machines = good.groupby("method")["machine"].unique().map(lambda names: ", ".join(map(str, names)))
    return f"""## Public tables

{_of_tables(good)}

{_ratios_to_the_best(good, ("crps", "pinball"))}

![CRPS over the best](images/{figures.crps_ratio(good)})

Coverage of the raw central 90 % interval:

{_means(good, "coverage90", 3)}

Its width in standard deviations of y:

{_means(good, "width90", 3)}

Logarithmic score, −log density of y, where the method has a density and y is not discrete:

{_means(good, "log_score", 3)}

Seconds of fitting, {_threads(good)}. They compare on one machine only:
{"; ".join(f"{name} on {where}" for name, where in machines.items())}.

{_means(good, "fit_seconds", 1)}
{failures(data)}"""


def fresh(data: Frame) -> str:
    good = on_common_seeds(successes(data), ["dataset"])
    return f"""## Tables that the recipe was not chosen on

They come with scikit-learn (diabetes) and statsmodels. {_of_tables(good)}
On one other split of ccard, half of it, a fault of the default was seen and mended before these runs ([lab
notes](lab-notes.md)).

{_ratios_to_the_best(good, ("crps",))}

Coverage of the raw central 90 % interval; anes96, randhie and star98 have integer targets, two
thirds of fair are zero:

{_means(good, "coverage90", 3)}

Seconds of fitting, {_threads(good)}:

{_means(good, "fit_seconds", 1)}
{failures(data)}"""


def _of_tables(good: Frame) -> str:
    splits = number_range(good.groupby(["dataset", "method"])["seed"].nunique())
    return f"""{good["dataset"].nunique()} table(s), {splits} split(s), the same for every method of a table.
CRPS is twice the mean pinball loss over the levels 0.005, …, 0.995; the pinball loss is
the mean over 0.05, …, 0.95; both in units of y. Best in bold."""


def _ratios_to_the_best(good: Frame, scores: tuple[str, ...]) -> str:
    parts = []
    for score in scores:
        means = good.pivot_table(index="dataset", columns="method", values=score, sort=False)
        ratio = means.div(means.min(axis=1), axis=0)
        rank = means.rank(axis=1)
        cells = means.copy().astype(object)
        for name in means:
            cells[name] = [
                "" if pd.isna(m) else f"{'**' * (r == 1)}{m:.4g}{'**' * (r == 1)} ({q:.3f}, {k:.0f})"
                for m, r, q, k in zip(means[name], rank[name], ratio[name], rank[name], strict=True)
            ]
        parts.append(f"Mean {score} (ratio to the best, rank):\n\n{table(cells.reset_index())}")
    return "\n\n".join(parts)


def _means(good: Frame, score: str, digits: int) -> str:
    means = good.pivot_table(index="dataset", columns="method", values=score, sort=False)
    return table(means.map(lambda value: _number(value, digits)).reset_index())


def _threads(data: Frame) -> str:
    return f"threads per run: {', '.join(map(str, sorted(data['threads'].astype(int).unique())))}"


def heavy_tails(data: Frame) -> str:
    good = successes(data)
    rows = []
    for (dataset, method), group in good.groupby(["dataset", "method"], sort=False):
        fifths = group["coverage_by_fifth"].str.split(expand=True).astype(float).mean()
        facts = {"dataset": dataset, "method": method, "seeds": len(group), "KS": spread(group["ks"])}
        facts["KS on quantiles of y"] = spread(group["ks_bulk"])
        facts["MSE of the mean"] = "" if group["mse_mean"].isna().all() else f"{group['mse_mean'].mean():.3g}"
        facts["coverage"] = f"{group['coverage90'].mean():.4f}"
        rows.append(facts | {f"fifth {i + 1} of x": f"{value:.4f}" for i, value in enumerate(fifths)})
    return f"""## Intervals under heavy tails

n = {good["n"].max():,}; exact coverage of the central 90 % interval, NCP-W with the paper's settings for intervals. The
paper reports a mean squared error of the mean on Laplace of 0.0083 for NCP, 0.038 for normalizing flows and 0.0036 for
CCP, whose polynomial regression is well specified, and on Cauchy a coverage of 88, 99 and 79 %. Equally spaced y, as
the protocol asks, hardly meet the mass of a Cauchy law: the distance on quantiles of y is the one that tells. CCP knows
three quantiles only: its distances are those of straight lines between them.

{table(Frame(rows))}
{failures(data)}"""


def student(data: Frame) -> str:
    good = successes(data)
    groups = good.groupby("method", sort=False)
    ours = Frame(
        {
            "splits": groups["seed"].nunique(),
            "coverage, %": groups["coverage90"].apply(lambda values: spread(100 * values, 2)),
            "width / sd": groups["width90"].apply(lambda values: spread(values, 3)),
            "CRPS": groups["crps"].mean().round(3),
            "seconds": groups["fit_seconds"].mean().round(1),
        }
    )
    paper = pd.read_csv(PAPER / "student_intervals.csv").set_index("method").rename(index={"NF": "NF-spline"})
    printed = paper.reindex(ours.index)
    ours["paper: coverage, %"] = _plus_minus(printed, "coverage", "_pct", 2)
    ours["paper: width / sd"] = _plus_minus(printed, "width", "", 2)
    return f"""## Student Performance

90 % intervals, 8,000 rows to learn from, 1,000 for validation or calibration (ncprob leaves them aside), 1,000 to test.
The target is an integer: an interval that ends at integers covers a little more than asked. CQR and RFSCP are
calibrated on the validation rows; for CRPS their few quantiles are interpolated.

{table(ours.reset_index())}
{failures(data)}"""


def _plus_minus(frame: Frame, name: str, unit: str, digits: int) -> list[str]:
    pairs = zip(frame[f"{name}_mean{unit}"], frame[f"{name}_std{unit}"], strict=True)
    return ["" if pd.isna(mean) else f"{mean:.{digits}f} ± {std:.{digits}f}" for mean, std in pairs]


def ablation(data: Frame) -> str:
    """Score without an ingredient over the score of the default: above 1 the ingredient helps."""
    data = on_common_seeds(successes(data), ["dataset", "n"])
    score = data["ks"].fillna(data["crps"])
    means = data.assign(score=score).pivot_table(index="method", columns="dataset", values="score", sort=False)
    ratios = (means / means.loc["ncprob"]).drop(index="ncprob").map(lambda value: f"{value:.2f}")
    seeds = data["seed"].nunique()
    text = (
        "Error without an ingredient divided by the error of the default (KS distance on simulated data with "
        f"n = {int(data['n'].min()):,} or more, CRPS on tables; {seeds} seed{'s' * (seeds > 1)}): above 1 the "
        "ingredient helps, below it hurts there."
    )
    return f"## What each ingredient brings\n\n{text}\n\n{table(ratios.reset_index().rename(columns={'method': ''}))}\n"


ANGLES = ("1", "1.57", "3.14", "5")


def circle(data: Frame) -> str:
    paper = pd.read_csv(PAPER / "high_dimension_ks.csv")
    known = paper.groupby("dimension").apply(
        lambda rows: ", ".join(f"{value:.3f}" for value in rows.sort_values("theta")["ks_mean"]), include_groups=False
    )
    text = "; ".join(f"d = {dimension}: {values}" for dimension, values in known.items())
    return f"""## Circle in many dimensions

Y is normal given the angle θ of a circle hidden in R^d, n = {successes(data)["n"].max():,}. The paper's KS at θ = 1,
1.57, 3.14 and 5: {text}. Up to six runs shared the
accelerator: seconds compare methods and dimensions only.

{_by_angle(data)}
{failures(data)}"""


def circle_discrete(data: Frame) -> str:
    return f"""## Circle with a discrete target

The same inputs, Y in 1, …, 5 with chances that depend on the quarter of θ, n = {successes(data)["n"].max():,}. The
angles 1.57 and 3.14 lie 0.0008 and 0.0016 before a border of quarters, where the chances jump: no method that is
continuous in x can be right there, and their KS says how soon it turns.

{_by_angle(data)}
{failures(data)}"""


def _by_angle(data: Frame) -> str:
    """KS at the four angles and on average, and seconds, which compare on the same machine only."""
    good = successes(data)
    rows = []
    for (method, dataset), group in good.groupby(["method", "dataset"], sort=False):
        facts = {"method": method, "dataset": dataset, "seeds": len(group), "mean KS": spread(group["ks"])}
        at = group["ks_by_point"].dropna().astype(str).str.split(expand=True).astype(float).mean()
        facts |= {f"θ = {angle}": f"{at[i]:.4f}" if len(at) else "" for i, angle in enumerate(ANGLES)}
        rows.append(facts | {"fit seconds": f"{group['fit_seconds'].mean():.1f}", "on": group["machine"].iloc[0]})
    return table(Frame(rows))


def speed(data: Frame) -> str:
    good = successes(data)
    means = good.pivot_table(index=["dataset", "n"], columns="method", values=["fit_seconds", "ks"], sort=False)
    rows = Frame(index=means.index)
    for method in good["method"].unique():
        rows[f"{method}: seconds"] = means["fit_seconds"][method].map(lambda value: _number(value, 1))
        rows[f"{method}: KS"] = means["ks"][method].map(lambda value: _number(value, 4))
    if {"ncprob", "NCP-W"} <= set(good["method"]):
        ratio = means["fit_seconds"]["NCP-W"] / means["fit_seconds"]["ncprob"]
        rows["times faster"] = ratio.map(lambda value: _number(value, 1))
    return f"""## Time beside the paper's recipe

One run after the other, {_threads(good)}. NCP-W stops after 1,000 epochs without progress, which can be early.

{table(rows.reset_index())}
{failures(data)}"""


def _number(value: float, digits: int) -> str:
    return "" if pd.isna(value) else f"{value:.{digits}f}"


def other(name: str, data: Frame) -> str:
    """A file of the runner that has no section of its own."""
    groups = successes(data).groupby(["dataset", "n", "method"], sort=False)
    means = groups[["ks", "crps", "coverage90", "fit_seconds"]].mean().round(4)
    means.insert(0, "seeds", groups.size())
    return f"## {name}\n\nMeans over seeds.\n\n{table(means.reset_index())}\n{failures(data)}"


def answers(data: Frame) -> str:
    columns = ["question", "coordinates", "n_train", "n_test", "rank", "seconds", "extra_mb", "threads"]
    return f"""## Time and memory of answers

One call each (`python -m benchmarks.answers`); memory is the growth of the peak during the call.

{table(data[columns])}
"""


def calibration(data: Frame) -> str:
    means = data.groupby(["dataset", "method"], sort=False)[["coverage", "width", "interval_score", "seconds"]].mean()
    means = means.round({"coverage": 3, "width": 3, "interval_score": 3, "seconds": 1}).reset_index()
    return f"""## Conformal intervals

90 % intervals, mean over {data.seed.nunique()} splits (`python -m benchmarks.calibration`). Width and interval score
(lower is better) are in standard deviations of y; seconds include the fit and were taken beside other work.

{table(means)}
"""


def independence(data: Frame) -> str:
    power = data.pivot_table(index=["dependence", "n"], columns="method", values="power", sort=False).reset_index()
    return f"""## Power of the independence test

Share of {data.repetitions.max()} data sets in which independence is rejected at level 5 %
(`python -m benchmarks.independence_power`).

{table(power.round(3))}
"""


SECTIONS: dict[str, Callable[[Frame], str]] = {
    "density-1e4": lambda data: density(data, 10_000),
    "density-1e5": lambda data: density(data, 100_000),
    "small-n": small_n,
    "many-inputs": many_inputs,
    "real": real,
    "fresh": fresh,
    "laws": laws,
    "heavy-tails": heavy_tails,
    "bands": bands,
    "student": student,
    "circle": circle,
    "circle-discrete": circle_discrete,
    "ablation": ablation,
    "speed": speed,
    "costs": costs,
    "answers": answers,
    "calibration": calibration,
    "dynamics": dynamics,
    "independence_power": independence,
}


def sections(results: Path) -> list[str]:
    """One section per result file, in the order above and then others of the runner; empty files give none."""
    files = {path.stem: path for path in sorted(results.glob("*.csv"))}
    names = [name for name in SECTIONS if name in files] + [name for name in files if name not in SECTIONS]
    runs = density_runs(files)
    tried = pd.read_csv(files["density-curve"]) if "density-curve" in files else Frame()
    written = [curves(runs, tried)] if runs["n"].nunique() > 2 else []
    for name in names:
        if name == "density-curve":
            continue
        data = pd.read_csv(files[name])
        if data.empty or ("error" in data and successes(data).empty):
            continue
        if name in SUITES:
            data = in_order(data, SUITES[name].tasks, SUITES[name].methods)
        if name in SECTIONS:
            written.append(SECTIONS[name](data))
        elif "error" in data:
            written.append(other(name, data))
    return written


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE, help="plots go to the folder `images` beside it")
    parser.add_argument("--note", default="", help="a line for the head of the page")
    options = parser.parse_args(arguments)
    figures.FOLDER = options.page.parent / "images"
    head = f"""# Benchmarks

Made by `python -m benchmarks.report` from result files, which `python -m benchmarks.paper` and
`python -m benchmarks.runner --suite NAME` write. Where a rival wins, the table shows it. {options.note}
"""
    text = "\n".join([head, *sections(options.results)])
    options.page.write_text(text)
    print(f"wrote {options.page.name}")
    if options.page == PAGE and options.results == RESULTS:
        # The same beside the code, for who reads there; and the headline.
        BESIDE.write_text(re.sub(r"\]\((images/|reproduction)", r"](../docs/\1", text))
        README.write_text(update_readme(README.read_text(), headline(pd.read_csv(RESULTS / "density-1e4.csv"))))
        SCALE.write_text(update_scale(SCALE.read_text(), RESULTS))
        print(f"wrote {BESIDE.name} and the tables of {README.name} and {SCALE.name}")


if __name__ == "__main__":
    main()
