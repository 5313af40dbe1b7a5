"""Write docs/benchmarks.md from the result files, and nothing that is not in them.

python -m benchmarks.report
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def table(frame: pd.DataFrame) -> str:
    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + "---|" * len(frame.columns)]
    lines += ["| " + " | ".join(str(value) for value in row) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines)


def fits() -> str:
    data = pd.read_csv(RESULTS / "fits.csv")
    grouped = data.groupby(["dataset", "n"], sort=False)
    summary = grouped.agg(
        seeds=("seed", "size"),
        KS=("ks", "mean"),
        KS_paper_variant=("ks_paper", "mean"),
        fit_seconds=("fit_seconds", "mean"),
        settings=("settings", "first"),
    )
    summary = summary.round({"KS": 4, "KS_paper_variant": 4, "fit_seconds": 1}).reset_index()
    return f"""## The default fit

Mean Kolmogorov–Smirnov distance to the exact conditional laws (`python -m benchmarks.fits`); settings of the first
seed.

{table(summary)}
"""


def answers() -> str:
    data = pd.read_csv(RESULTS / "answers.csv")
    columns = ["question", "coordinates", "n_train", "n_test", "rank", "seconds", "extra_mb", "threads"]
    return f"""## Time and memory of answers

One call each (`python -m benchmarks.answers`); memory is the growth of the peak during the call.

{table(data[columns])}
"""


def calibration() -> str:
    data = pd.read_csv(RESULTS / "calibration.csv")
    means = data.groupby(["dataset", "method"], sort=False)[["coverage", "width", "interval_score", "seconds"]].mean()
    means = means.round({"coverage": 3, "width": 3, "interval_score": 3, "seconds": 1}).reset_index()
    return f"""## Conformal intervals

90 % intervals, mean over {data.seed.nunique()} splits (`python -m benchmarks.calibration`). Width and interval score
(lower is better) are in standard deviations of y; seconds include the fit, on two cores that were shared at times.

{table(means)}
"""


def independence() -> str:
    data = pd.read_csv(RESULTS / "independence_power.csv")
    power = data.pivot_table(index=["dependence", "n"], columns="method", values="power", sort=False).reset_index()
    return f"""## Power of the independence test

Share of {data.repetitions.max()} data sets in which independence is rejected at level 5 %
(`python -m benchmarks.independence_power`).

{table(power.round(3))}
"""


def main() -> None:
    sections = [section() for section in (fits, answers, calibration, independence)]
    head = "# Benchmarks\n\nMade by `python -m benchmarks.report` from `benchmarks/results/*.csv`."
    head += " Where a rival wins, the table shows it.\n"
    PAGE.write_text("\n".join([head, *sections]))
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
