"""Named sets of runs; `python -m benchmarks.runner --suite NAME` writes benchmarks/results/NAME.csv."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.tasks import TABLES

SIX_MODELS = ("LinearGaussian", "EconDensity", "ArmaJump", "SkewNormal", "GaussianMixture", "LGGMD")
NCP = ("NCP", "NCP-C", "NCP-W")
# The methods of the paper's density benchmark in its order, then those of them with settings that do them justice.
PAPER_RIVALS = ("DDPM", "NF", "KMN", "MDN", "LSCDE", "CKDE", "NNKCDE", "RFCDE", "FC", "LCDE")
TUNED_RIVALS = ("DDPM-tuned", "NF-tuned", "KMN-tuned", "MDN-tuned", "LSCDE-tuned", "NNKCDE-tuned", "FC-joint")
TABULAR_RIVALS = ("quantile-forest", "ngboost", "catboost", "lightgbm")
OTHER_SIZES = (100, 200, 500, 1000, 2000, 5000, 20_000, 50_000)  # beside 10⁴ and 10⁵
DIMENSIONS = (100, 200, 500, 1000)

Options = dict[tuple[str, str], dict[str, Any]]

# Networks of the paper that are not those of its density benchmark, by method and task (appendix C.2).
INTERVALS: dict[str, Any] = {"rank": 500, "gamma": 1e-2, "max_steps": 5000, "patience": 100}
STUDENT: dict[str, Any] = {"rank": 50, "gamma": 1e-2, "hidden_sizes": (32, 32), "max_steps": 50_000}
PAPER_OPTIONS: Options = {
    ("NCP-W", "Laplace"): INTERVALS | {"hidden_sizes": (128, 128)},
    ("NCP-W", "Cauchy"): INTERVALS | {"hidden_sizes": (258,) * 5},
    ("NCP-C", "student-paper"): STUDENT,
    ("NCP-W", "student-paper"): STUDENT,
    ("NF-spline", "student-paper"): {"hidden_size": 32},
}


@dataclass(frozen=True)
class Suite:
    """Tasks × sizes × seeds × methods; `jobs` is set where runs must not disturb each other.

    `options` are settings of a method on a task that differ from its usual ones.
    """

    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    jobs: int | None = None
    options: Options = field(default_factory=dict)


def _circles(kind: str) -> tuple[str, ...]:
    return tuple(f"Circle{kind}-d{dimension}" for dimension in DIMENSIONS)


SUITES = {
    "density-1e4": Suite(
        SIX_MODELS, ("ncprob", *NCP, *PAPER_RIVALS, *TUNED_RIVALS, *TABULAR_RIVALS), tuple(range(10)), (10_000,)
    ),
    "density-1e5": Suite(
        SIX_MODELS,
        ("ncprob", "NCP-W", "NF", "FC", "MDN", "CKDE", "NNKCDE", "quantile-forest"),
        tuple(range(10)),
        (100_000,),
    ),
    "density-curve": Suite(SIX_MODELS, ("ncprob", "NCP-W", "NF", "CKDE", "NNKCDE"), tuple(range(10)), OTHER_SIZES),
    "small-n": Suite(
        SIX_MODELS,
        ("ncprob", "quantile-forest", "NNKCDE", "NNKCDE-tuned", "CKDE"),
        tuple(range(10)),
        (200, 500, 1000, 2000),
    ),
    "many-inputs": Suite(
        tuple(f"{model}+100" for model in ("LinearGaussian", "SkewNormal", "GaussianMixture", "LGGMD")),
        ("ncprob", *TABULAR_RIVALS, "NNKCDE-tuned"),
        tuple(range(10)),
        (300, 1000),
    ),
    "real": Suite(
        tuple(name for name, table in TABLES.items() if not table.package and name != "student-paper"),
        ("ncprob", *TABULAR_RIVALS),
        tuple(range(5)),  # so many splits of protein are known
    ),
    "fresh": Suite(
        tuple(name for name, table in TABLES.items() if table.package), ("ncprob", *TABULAR_RIVALS), tuple(range(10))
    ),
    "heavy-tails": Suite(
        ("Laplace", "Cauchy"),
        ("ncprob", "NCP-W", "NF-spline", "CCP"),
        tuple(range(10)),
        (50_000,),
        options=PAPER_OPTIONS,
    ),
    "student": Suite(
        ("student-paper",),
        ("ncprob", "NCP-C", "NCP-W", "NF-spline", "RFSCP", "CQR"),
        tuple(range(10)),
        options=PAPER_OPTIONS,
    ),
    "circle": Suite(_circles("Gaussian"), ("ncprob", "NCP-W", "NF"), tuple(range(10)), (100_000,)),
    "circle-discrete": Suite(_circles("Discrete"), ("ncprob", "NCP-W", "NF"), tuple(range(10)), (100_000,)),
    "ablation": Suite(
        ("LinearGaussian", "SkewNormal", "GaussianMixture", "LGGMD", "concrete", "wine_red"),
        (
            "ncprob",
            "without mixture",
            "without trees",
            "without gates",
            "without clusters",
            "without normal laws",
            "without pool",
            "without smoothing",
            "without leaving the operator out",
        ),
        (0,),
        (2000,),
    ),
    # One after the other, on all cores: times are compared.
    "speed": Suite(SIX_MODELS, ("ncprob", "NCP-W"), (0,), (10_000,), jobs=1),
}

PAPER = (
    "density-1e4", "density-1e5", "density-curve", "small-n", "many-inputs", "heavy-tails", "student", "circle",
    "circle-discrete", "real", "fresh", "ablation",
)  # fmt: skip

# For two hours on two cores: three seeds, smaller high-dimensional and interval runs, fewer epochs for the paper's own
# method, whose full batches take hours without an accelerator, and fewer trees; "settings" in the result file says so.
QUICK_OPTIONS: Options = {
    (method, task): options
    for task in SIX_MODELS
    for method, options in {
        **{name: {"max_steps": 400} for name in NCP},
        "FC": {"n_estimators": 30},
        "FC-joint": {"n_estimators": 300},
        "catboost": {"iterations": 300},
    }.items()
}
QUICK = {
    "density-1e4": replace(SUITES["density-1e4"], seeds=(0, 1, 2), options=QUICK_OPTIONS),
    "heavy-tails": replace(
        SUITES["heavy-tails"],
        seeds=(0,),
        sizes=(5000,),
        options={key: options | {"max_steps": 100} for key, options in PAPER_OPTIONS.items() if key[0] == "NCP-W"},
    ),
    "student": replace(SUITES["student"], seeds=(0,), methods=("ncprob", "RFSCP", "CQR")),
    "circle": replace(
        SUITES["circle"], tasks=("CircleGaussian-d100",), methods=("ncprob", "NF"), seeds=(0,), sizes=(10_000,)
    ),
    "circle-discrete": replace(
        SUITES["circle-discrete"], tasks=("CircleDiscrete-d100",), methods=("ncprob", "NF"), seeds=(0,), sizes=(10_000,)
    ),
}
