"""Sections of the report on conditional distributions with a known truth, all methods beside the paper's figures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks import figures
from benchmarks.markdown import PAPER, Frame, failures, in_bold, number_range, spread, successes, table
from benchmarks.scores import FLOOR
from benchmarks.suites import SIX_MODELS, SUITES

LEAST_SEEDS = 3  # of a method in the headline
DENSITY_FILES = ("density-1e4", "density-1e5", "small-n", "density-curve")


def density_runs(files: dict[str, Path]) -> Frame:
    """All runs of the density benchmark, whichever suite they are of."""
    known = [successes(pd.read_csv(files[name])) for name in DENSITY_FILES if name in files]
    runs = pd.concat(known) if known else Frame(columns=["method", "dataset", "n", "seed"])
    return runs.drop_duplicates(["method", "dataset", "n", "seed"])


def density(data: Frame, n: int) -> str:
    """KS of every method measured here with the paper's figure in brackets, and how far the two agree."""
    data = successes(data)
    paper = pd.read_csv(PAPER / f"ks_n1e{len(str(n)) - 1}.csv")
    models = [name for name in SIX_MODELS if name in set(data["dataset"])]
    order = [name for name in SUITES[f"density-1e{len(str(n)) - 1}"].methods if name in set(data["method"])]
    means = data.pivot_table(index="method", columns="dataset", values="ks").reindex(order)[models]
    spreads = data.groupby(["method", "dataset"])["ks"].apply(spread).unstack().reindex(order)[models].fillna("")
    printed = paper.pivot(index="method", columns="dataset", values="ks_mean").reindex(order)[models]
    beside = printed.map(lambda value: "" if pd.isna(value) else f" (paper {value:.3f})")
    cells = in_bold(spreads, means) + beside
    seeds = data.groupby(["method", "dataset"])["seed"].nunique().groupby("method")
    cells.insert(0, "seeds", seeds.apply(number_range).reindex(order))
    variant = (data["ks_paper"] - data["ks"]).abs().max()
    return f"""## Conditional distributions, n = {n:,}

Kolmogorov–Smirnov distance to the exact conditional laws, mean ± standard deviation over seeds, and in brackets what
Kostic et al. 2024 print for the same method (ten seeds). Best of every column in bold; names with a suffix are rivals
with settings of our choice (see `benchmarks/methods`). The paper's variant of the distance, which repairs both
distribution functions first, differs by at most {variant:.4f} in any run.

{table(cells.reset_index())}

![KS at n = {n:,}](images/{figures.density(data, paper, n)})

{_other_distances(data, order)}{_agreement(data, paper)}"""


def _other_distances(data: Frame, order: list[str]) -> str:
    """Mean over the six models of the divergences, for methods that have all of them."""
    columns = {
        "hellinger": "Hellinger", "kl": "KL(truth, method)", "js": "Jensen–Shannon", "tv": "total variation",
        "w1": "Wasserstein-1 / sd",
    }  # fmt: skip
    known = data.dropna(subset=list(columns))
    by_model = known.groupby(["method", "dataset"])[list(columns)].mean()
    complete = by_model.groupby("method").size() == by_model.groupby("dataset").ngroups
    means = by_model.groupby("method").mean()[complete].reindex([name for name in order if complete.get(name, False)])
    if "ncprob" not in means.index:  # a table without ours would name a best one among the others
        return ""
    cells = in_bold(means.map(lambda value: f"{value:.3g}"), means).rename(columns=columns)
    absent = [name for name in order if name not in means.index]
    left_out = f" Not measured on all models: {', '.join(absent)}." if absent else ""
    return f"""Other distances, averaged over the models, of the densities on 999 cells; the divergence of Kullback and
Leibler has a floor of {FLOOR:g} per cell, for laws with gaps. DDPM and the methods that give quantiles have no density:
theirs is that of their draws or steps in the cells, and rough.{left_out}

{table(cells.reset_index())}

"""


def _agreement(data: Frame, paper: Frame) -> str:
    """(here − paper) in units of the standard error of the difference, from both spreads over seeds."""
    here = data.groupby(["method", "dataset"])["ks_paper"].agg(["mean", "std", "count"])
    printed = paper.set_index(["method", "dataset"])
    both = here.join(printed, how="inner")
    both = both[both["count"] > 1]
    if both.empty:
        return ""
    # The paper's mean is of ten seeds and printed with three digits.
    error = (both["std"] ** 2 / both["count"] + both["ks_std"] ** 2 / 10 + 0.0005**2 / 3) ** 0.5
    shifts = ((both["mean"] - both["ks_mean"]) / error).unstack()
    models = [name for name in SIX_MODELS if name in shifts]
    order = [name for name in paper["method"].unique() if name in shifts.index]
    cells = shifts.map(lambda shift: "" if pd.isna(shift) else f"{shift:+.1f}{' ✓' * (abs(shift) <= 2)}")
    return f"""Do we meet the paper's figures? Difference (here − paper) in standard errors of the difference; a tick
where it is at most two. With few seeds here a standard error is itself uncertain by half and more. What lies behind the
larger ones is in [reproduction](reproduction.md).

{table(cells.loc[order, models].reset_index())}

"""


def curves(data: Frame, tried: Frame) -> str:
    """KS against n, from all files of the density benchmark together; runs `tried` for the curves may have failed."""
    return f"""## Error against the number of rows

Mean KS distance with a band of one standard deviation over seeds, from all result files of the density benchmark;
dashed: n^(−1/2), the rate of a parametric model.

![KS against n](images/{figures.curves(data)})

{_means_over_models(data)}{failures(tried) if len(tried) else ""}"""


def _means_over_models(data: Frame) -> str:
    """One row a method that ran on every model at three sizes or more; nothing where there is no such method."""
    by_model = data.groupby(["n", "method", "dataset"])["ks"].mean().groupby(["n", "method"])
    means = by_model.mean()[by_model.size() == data["dataset"].nunique()].unstack("n")
    means = means[means.notna().sum(axis=1) > 2]
    if means.empty:
        return ""
    seeds = number_range(data[data["method"].isin(means.index)].groupby(["n", "method", "dataset"])["seed"].nunique())
    cells = in_bold(means.map(lambda value: "" if pd.isna(value) else f"{value:.4f}"), means)
    cells.columns = [f"n = {n:,}" for n in means]
    return f"""Averaged over the models, {seeds} seed(s) each; best in bold:

{table(cells.reset_index())}

"""


def headline(data: Frame) -> str:
    """The table of the README: ours, the best rival measured here and the best figure printed in the paper."""
    good = successes(data)
    seeds = good.groupby("method")["seed"].agg(set)
    common = set.intersection(*seeds[seeds.map(len) >= LEAST_SEEDS])
    good = good[good["method"].isin(seeds.index[seeds.map(len) >= LEAST_SEEDS]) & good["seed"].isin(common)]
    means = good.pivot_table(index="dataset", columns="method", values="ks").reindex(SIX_MODELS)
    rivals = means.drop(columns=["ncprob", *[name for name in means if name.startswith("NCP")]])
    paper = pd.read_csv(PAPER / "ks_n1e4.csv").pivot(index="dataset", columns="method", values="ks_mean")
    paper = paper.loc[means.index]
    rows = Frame(
        {
            "ncprob, no settings": [
                f"**{ours:.4f}**" if ours == best else f"{ours:.4f}"
                for ours, best in zip(means["ncprob"], means.min(axis=1), strict=True)
            ],
            "paper's method, run here (NCP-W)": [f"{value:.4f}" for value in means["NCP-W"]],
            f"best of {rivals.shape[1]} rivals and tunings, run here": _named_best(rivals),
            "best of all in the paper": _named_best(paper, 3),
        },
        index=means.index.rename("mean KS, n = 10⁴"),
    )
    return f"{table(rows.reset_index())}\n\nMeans over {len(common)} seed(s), the same for all but the last column."


def _named_best(values: Frame, digits: int = 4) -> list[str]:
    return [f"{low:.{digits}f} ({name})" for low, name in zip(values.min(axis=1), values.idxmin(axis=1), strict=True)]
