"""Named sets of runs; `python -m benchmarks.runner --suite NAME` writes benchmarks/results/NAME.csv."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.tasks import TABLES

SIX_MODELS = ("LinearGaussian", "EconDensity", "ArmaJump", "SkewNormal", "GaussianMixture", "LGGMD")
TABULAR_RIVALS = ("quantile-forest", "ngboost", "catboost", "lightgbm")


@dataclass(frozen=True)
class Suite:
    """Tasks × sizes × seeds × methods; `jobs` is set where runs must not disturb each other."""

    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    jobs: int | None = None


SUITES = {
    "density-1e4": Suite(SIX_MODELS, ("ncprob",), tuple(range(10)), (10_000,)),
    "density-1e5": Suite(SIX_MODELS, ("ncprob",), tuple(range(10)), (100_000,)),
    "small-n": Suite(
        SIX_MODELS,
        ("ncprob", "quantile-forest", "NNKCDE", "NNKCDE-tuned", "CKDE"),
        tuple(range(5)),
        (200, 500, 1000, 2000),
    ),
    "real": Suite(tuple(TABLES), ("ncprob", *TABULAR_RIVALS), (0, 1, 2)),
    "heavy-tails": Suite(("Laplace", "Cauchy"), ("ncprob",), tuple(range(5)), (50_000,)),
    "circle": Suite(
        ("CircleGaussian-d100", "CircleGaussian-d200", "CircleGaussian-d500", "CircleGaussian-d1000"),
        ("ncprob",),
        (0, 1, 2),
        (100_000,),
    ),
    "ablation": Suite(
        ("LinearGaussian", "SkewNormal", "GaussianMixture", "LGGMD", "concrete", "wine_red"),
        (
            "ncprob",
            "without mixture",
            "without trees",
            "without gates",
            "without pool",
            "without smoothing",
            "without leaving the operator out",
        ),
        (0,),
        (2000,),
    ),
    # One after the other, on all cores: times are compared.
    "speed": Suite(SIX_MODELS, ("ncprob", "NCP-W"), (0,), (10_000,), jobs=1),
    "paper-recipe": Suite(SIX_MODELS, ("NCP", "NCP-C", "NCP-W"), (0, 1, 2), (10_000,)),
}
