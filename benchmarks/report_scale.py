"""Sections of the report on cost curves and on an accelerator, from the files of `costs` and `accelerator`."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from benchmarks import figures
from benchmarks.costs import exponent
from benchmarks.markdown import successes, table

Frame = pd.DataFrame

FULL_STEPS = 1000  # of a run whose loss is shown
LARGE_END = 3  # points from which exponents are taken
AXES = {"n": "training rows n", "p": "inputs p", "q": "targets q", "rank": "rank", "asked": "rows asked about"}


def costs(data: Frame) -> str:
    """Section on cost curves."""
    return f"## Cost curves\n\n{cost_curves(data)}"


def cost_curves(data: Frame) -> str:
    """Figures, exponents and the picture, without a heading."""
    good = successes(data)
    machines = "; ".join(good["machine"].unique())
    cores = ", ".join(f"{int(each)}" for each in sorted(good["cores"].unique()))
    points = [_points(data[data["axis"] == axis], axis) for axis in AXES if axis in set(data["axis"])]
    return f"""`python -m benchmarks.costs`, {cores} cores per point, each point in a process of its own; {machines}.
One size grows, the others are n = 1,000, p = 10, q = 1, 1,000 rows asked for three quantiles. ncprob has its defaults,
but for the curve over the rank (raw coordinates, 500 steps); from n = 10⁶ on it reads files (`fit_files`). Rivals are
as in the benchmarks of this project. A point that took longer than the limit is shown as such.

![Cost curves](images/{figures.costs(good, AXES)})

{(chr(10) * 2).join(points)}

Exponents at the large end: slope of the logarithm of time or memory over the last {LARGE_END} points, ± its standard
error; memory is what the peak adds to the process before the call. Times of fits include early stopping, which may come
later or sooner for larger data; where memory hardly grows its slope says little.

{table(exponents(good))}
"""


def _points(data: Frame, axis: str) -> str:
    what = "predict" if axis == "asked" else "fit"
    cells = data.pivot(index="value", columns="method", values=f"{what}_seconds").astype(object)
    for row in data.itertuples():
        cells.loc[row.value, row.method] = _cell(row, what)
    cells = cells[list(data["method"].unique())].fillna("").reset_index(names=AXES[axis])
    cells[AXES[axis]] = [f"{value:,}" for value in cells[AXES[axis]]]
    label = "Seconds of `predict_quantiles`" if what == "predict" else "Seconds of the fit"
    return f"{label} and peak of resident memory in MiB, against {AXES[axis]}:\n\n{table(cells)}"


def _cell(row: object, what: str) -> str:
    error = getattr(row, "error", None)
    if isinstance(error, str):
        limit = getattr(row, "limit", float("nan"))
        return (
            f"more than {limit:g} s"
            if error.startswith("stopped")
            else "not tried"
            if "not tried" in error
            else "failed"
        )
    return f"{_digits(getattr(row, f'{what}_seconds'))} s, {getattr(row, f'{what}_mib'):,.0f}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def exponents(good: Frame) -> Frame:
    """Slopes of time and memory of every curve with enough points."""
    rows = []
    for (axis, method), curve in good.groupby(["axis", "method"], sort=False):
        end = curve.sort_values("value").tail(LARGE_END)
        if len(end) < LARGE_END:
            continue
        what, before = ("predict", "ask_mib") if axis == "asked" else ("fit", "start_mib")
        facts = {"against": AXES[str(axis)], "method": method, "from": f"{end['value'].min():,}"}
        facts |= {"to": f"{end['value'].max():,}", "call": what}
        facts["time"] = _slope(end["value"], end[f"{what}_seconds"])
        facts["memory"] = _slope(end["value"], (end[f"{what}_mib"] - end[before]).clip(lower=1))
        rows.append(facts)
    return Frame(rows)


def _slope(x: pd.Series, y: pd.Series) -> str:
    slope, error = exponent(x, y)
    return f"{slope:.2f} ± {error:.2f}"


def accelerator(data: Frame) -> str:
    """Tables of training on an accelerator beside a CPU, without a heading."""
    machines = "; ".join(f"{device}: {group['machine'].iloc[0]}" for device, group in data.groupby("device"))
    text = [f"`python -m benchmarks.accelerator`, rank 100, 20 inputs, two hidden layers of 64. {machines}."]
    makers = {
        "train": _train,
        "floor": _floor,
        "agree": _agree,
        "ensemble": _ensemble,
        "fit": _fit,
        "predict": _predict,
    }
    text += [make(data) for name, make in makers.items() if name in set(data["part"])]
    return "\n\n".join(text) + "\n"


def _train(data: Frame) -> str:
    data = data[(data["part"] == "train") & data["steps_per_second"].notna()]
    labels = data["device"].where(data["device"] == "cpu", data["setting"])
    keys = [data["n"].rename("rows"), data["batch"], labels.rename("steps")]
    order = ["cpu", *dict.fromkeys(labels[labels != "cpu"])]

    def cells(values: pd.Series, show: Callable[[float], str]) -> str:
        wide = values.groupby(keys).first().unstack("steps").reindex(columns=order)
        shown = wide.map(lambda value: "" if pd.isna(value) else show(value)).reset_index()
        return table(shown.assign(**{name: shown[name].map("{:,}".format) for name in ("rows", "batch")}))

    return f"""Steps per second of the whole loop, validation included:

{cells(data["steps_per_second"], _digits)}

Held-out loss after 1,000 steps, where the CPU did as many (minus the sum of squared singular values; lower is better):

{cells(data["held_out_loss"].where(data["steps"] >= FULL_STEPS), "{:.4f}".format)}

Memory of the device in MiB, beside the rows:

{cells(data["peak_mib"], _digits)}"""


def _floor(data: Frame) -> str:
    floor, loop = data[data["part"] == "floor"], data[(data["part"] == "train") & data["steps_per_second"].notna()]
    rows = []
    for run in floor[floor["setting"] == "one step"].itertuples():
        facts = {"device": run.device, "batch": f"{run.batch:,}", "GFLOP": f"{run.gflop:.3g}"}
        facts |= {"MB": _digits(run.mbyte), "kernels": f"{run.kernels:.0f}"}
        facts |= {"arithmetic, ms": f"{run.arithmetic_ms:.2g}", "memory traffic, ms": f"{run.traffic_ms:.2g}"}
        facts |= {"launches, ms": f"{run.launch_ms:.2g}"}
        same = loop[(loop["device"] == run.device) & (loop["batch"] == run.batch)]
        best = same[same["setting"].isin(["recorded", "one by one"])]["steps_per_second"].max()
        rows.append(facts | {"in the loop, ms": "" if pd.isna(best) else _digits(1000 / best)})
    peaks = floor[floor["setting"] != "one step"]
    known = "; ".join(f"{r.device}, {r.setting}: {_digits(r.value)} {r.note}" for r in peaks.itertuples())
    return f"""What a step is made of, and what the device needs at least for each part, by what it does in the long run
({known}). Traffic counts what every operation reads and writes, launches the kernels inside a recording:

{table(Frame(rows))}"""


def _agree(data: Frame) -> str:
    data = data[(data["part"] == "agree") & (data["device"] == "cuda")]
    rows = [
        {
            "steps": r.setting,
            "held-out loss": f"{r.held_out_loss:.6f}",
            "relative difference from the CPU": f"{r.value:.1e}",
        }
        for r in data.itertuples()
    ]
    return f"The same run on both, from the same weights on the same batches:\n\n{table(Frame(rows))}" if rows else ""


def _ensemble(data: Frame) -> str:
    cells = (
        data[data["part"] == "ensemble"].pivot_table(index=["device", "n"], columns="setting", values="seconds") * 1000
    )
    cells["ratio"] = cells["one by one"] / cells["batched"]
    shown = cells.map(_digits).reset_index().rename(columns={"n": "networks"})
    return f"Networks together, milliseconds forward and backward on 1,024 rows:\n\n{table(shown)}"


def _fit(data: Frame) -> str:
    rows = []
    for run in data[data["part"] == "fit"].itertuples():
        facts = {"device": run.device, "coordinates, steps": run.setting, "seconds": _digits(run.seconds)}
        rows.append(facts | {"rows/s predicted": _digits(run.value)})
    return f"""`NCPRegressor(rank=100, tree_inputs=False).fit`, 10⁵ rows, 1,000 steps; the first fit starts the device:

{table(Frame(rows))}"""


def _predict(data: Frame) -> str:
    rows = [
        {"device": r.device, "coordinates": r.setting, "rows": f"{r.n:,}", "seconds": _digits(r.seconds),
         "rows/s": _digits(r.value), "memory": r.note.split("; ")[-1]}
        for r in data[data["part"] == "predict"].itertuples()
    ]  # fmt: skip
    return f"`predict_quantiles` of many rows:\n\n{table(Frame(rows))}"


def latency(data: Frame) -> str:
    """Milliseconds of answers, and what many rows cost."""
    coordinates = data["model"].map({"default": "residual, with trees (default)", "raw": "raw"})
    many = data["growth_mib"].notna()
    call = "`" + data["call"] + "`" + data["threads"].map(lambda n: "" if n == 1 else f", from {n} threads at once")
    rows = data["rows"].map("{:,}".format)
    cells = Frame({"coordinates": coordinates, "call": call, "rows": rows})
    for name in ("p50", "p99"):
        cells[f"{name}, ms"] = data[f"{name}_ms"].map("{:,.1f}".format)
    lines = [
        f"{row.rows:,} rows of `{row.call}` took {row.p50_ms / 1000:,.1f} s in {coordinates[row.Index].split(',')[0]} "
        f"coordinates and raised the peak of memory {row.growth_mib:,.0f} MiB above that of 10,000 rows."
        for row in data[many].itertuples()
    ]
    threads = data[data["threads"] > 1].iloc[0]
    alone = data[(data["call"] == "predict") & (data["rows"] == 1) & (data["threads"] == 1)].iloc[0]
    lines.append(
        f"Threads share Python's interpreter lock: {threads.threads} of them give {threads.rows_per_second:,.0f} "
        f"answers a second in default coordinates, one gives {alone.rows_per_second:,.0f}."
    )
    return f"""`python -m benchmarks.latency`, 8 inputs; {"; ".join(data["machine"].unique())}. Calls: {_calls(data)}.

{table(cells[~many])}

{chr(10).join(lines)}"""


def _calls(data: Frame) -> str:
    """How often what was asked, of which p99 of a few is nearly the maximum."""
    alone = data[(data["threads"] == 1) & data["growth_mib"].isna()].drop_duplicates("rows")
    words = [f"{row.repeats:,} of {row.rows:,} row{'s' * (row.rows > 1)}" for row in alone.itertuples()]
    return ", ".join(words) + f" ({data.loc[data['threads'] > 1, 'repeats'].iloc[0]:,} from several threads)"


def memory(data: Frame) -> str:
    """Peak memory of fits from files against their rows."""
    cells = Frame({"rows": data["rows"].map("{:,}".format)})
    cells["reading, s"] = data["read_seconds"].map("{:,.1f}".format)
    cells["fitting, s"] = data["fit_seconds"].map("{:,.0f}".format)
    cells["peak resident, MiB"] = data["peak_mib"].map("{:,.0f}".format)
    cells[f"CRPS (exact law: {data['crps_exact'].mean():.4f})"] = data["crps"].map("{:.4f}".format)
    return f"""`python -m benchmarks.memory`, {data["inputs"].iloc[0]} inputs, files sorted by the most important one, {
        data["import_mib"].mean():,.0f} MiB of the peak are the libraries; {"; ".join(data["machine"].unique())}.

{table(cells)}"""
