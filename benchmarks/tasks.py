"""Benchmark tasks by name: simulated models with exact truth, and public tables with fixed splits.

A task gives a `Split` for a seed. Simulated tasks follow the protocol of Kostic et al. 2024: n training rows, 1,000
validation rows for methods that ask for them, 1,000 fresh test rows. `CircleGaussian-d500` is the circle in 500
dimensions, `SkewNormal+100` the model with 100 standard normal inputs beside its own that have nothing to do with y.
Tables are split as in Hernández-Lobato & Adams 2015 (`hl_splits.parquet`, split number = seed) where that
file knows them, else at random into 90 % and 10 %. Some tables come with scikit-learn and statsmodels: the recipe of
the default was chosen without them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from benchmarks.records import CHECKOUT
from ncprob import datasets

Array = NDArray[np.float64]

TEST_ROWS = VALIDATION_ROWS = 1000
TEST_FRACTION = 0.1


@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to be judged on; `simulator` knows the truth of simulated ones."""

    X: Any
    y: Array
    X_test: Any
    y_test: Array
    simulator: datasets.Simulator | None = None
    validation: tuple[Any, Array] | None = None


@dataclass(frozen=True)
class Table:
    """A public table: file, target, columns that must not serve as inputs (or the only ones that may).

    With a `package` it comes with that one, and `file` is its name there. `student-paper` is split as in Kostic et al.
    2024: 8,000 rows to learn from, 1,000 for validation, 1,000 to test.
    """

    file: str
    target: str
    drop: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    validation_rows: int = 0  # taken off the training rows for methods that ask for them
    package: str = ""


TABLES = {
    "concrete": Table("concrete.csv.gz", "compressive_strength"),
    "energy": Table("energy.csv.gz", "heating_load", drop=("cooling_load",)),
    "kin8nm": Table("kin8nm.parquet", "y"),
    "power": Table("power.csv.gz", "PE"),
    "wine_red": Table("wine_red.csv.gz", "quality"),
    "bike_hourly": Table("bike_hourly.csv.gz", "cnt", drop=("instant", "dteday", "casual", "registered")),
    "photoz": Table("photoz_sdss_mgs.csv.gz", "zs", features=("u", "g", "r", "i", "z", "u-g", "g-r", "r-i", "i-z")),
    "student": Table("student_performance.csv.gz", "Performance Index"),
    "student-paper": Table("student_performance.csv.gz", "Performance Index", validation_rows=1000),
    "protein": Table("protein.parquet", "RMSD"),
    "diabetes": Table("diabetes", "target", package="scikit-learn"),
    "engel": Table("engel", "foodexp", package="statsmodels"),
    "fair": Table("fair", "affairs", package="statsmodels"),
    "anes96": Table("anes96", "income", package="statsmodels"),
    "randhie": Table("randhie", "mdvis", package="statsmodels"),
    "star98": Table("star98", "NABOVE", drop=("NBELOW",), package="statsmodels"),
    "ccard": Table("ccard", "AVGEXP", package="statsmodels"),
}


def data_folder() -> Path:
    """Folder of the tables: the environment variable NCPROB_DATA, or `../shared/data` beside the checkout."""
    folder = Path(os.environ.get("NCPROB_DATA", CHECKOUT.parent / "shared" / "data"))
    if not folder.is_dir():
        raise FileNotFoundError(
            f"The folder of the public tables must exist; {folder} does not. Set NCPROB_DATA to the folder that holds "
            f"{', '.join(table.file for table in TABLES.values() if not table.package)}."
        )
    return folder


def names() -> list[str]:
    """All tasks; the circle also takes a dimension (`CircleGaussian-d500`), simulated ones useless inputs (`+100`)."""
    return [*datasets.names(), *TABLES]


def is_table(name: str) -> bool:
    """Whether the task is a public table, whose size is fixed."""
    return name in TABLES


def check_name(name: str) -> str:
    """Return `name` if a task of that name exists."""
    if not is_table(name):
        _simulator(name)
    return name


def load(name: str, n: int | None, seed: int) -> Split:
    """The split of a task for a seed; `n` training rows if simulated."""
    if is_table(name):
        return _table_split(name, seed)
    if n is None:
        raise ValueError(f"`n` must be given for the simulated task {name}; got None. Pass `--n 10000`.")
    return _simulated_split(name, n, seed)


class WithUselessInputs(datasets.Simulator):
    """A model with `extra` standard normal inputs after its own that y does not depend on."""

    def __init__(self, model: datasets.Simulator, extra: int) -> None:
        self.model, self.extra = model, extra

    @property
    def n_features(self) -> int:
        return self.model.n_features + self.extra

    def conditioning_points(self, X: Any) -> Array:
        """Points of the model itself, the other inputs at their medians."""
        points = self.model.conditioning_points(X[:, : self.model.n_features])
        return np.hstack([points, np.tile(np.median(X[:, self.model.n_features :], axis=0), (len(points), 1))])

    def _sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        X, y = self.model.sample(n, rng)
        return np.hstack([X, rng.normal(size=(n, self.extra))]), y

    def _truth(self, x: Array) -> datasets.ConditionalLaw:
        return self.model.truth(x[:, : self.model.n_features])


def _simulator(name: str) -> datasets.Simulator:
    base, dimension, extra = re.fullmatch(r"(.+?)(?:-d(\d+))?(?:\+(\d+))?", name, re.DOTALL).groups()  # type: ignore[union-attr]
    if base not in datasets.names():
        raise ValueError(f"A task must be one of {', '.join(names())}; got {name!r}. Check the spelling.")
    model = datasets.make(base) if dimension is None else datasets.make(base, dimension=int(dimension))
    return model if extra is None else WithUselessInputs(model, int(extra))


def _simulated_split(name: str, n: int, seed: int) -> Split:
    simulator = _simulator(name)
    X, y = simulator.sample(n, random_state=seed)
    X_test, y_test = simulator.sample(TEST_ROWS, random_state=10_000 + seed)
    validation = simulator.sample(VALIDATION_ROWS, random_state=20_000 + seed)
    return Split(X, y, X_test, y_test, simulator, validation)


def _table_split(name: str, seed: int) -> Split:
    table = TABLES[name]
    data = _from_package(table) if table.package else _read(data_folder() / table.file)
    chosen = list(table.features) or [c for c in data.columns if c not in (table.target, *table.drop)]
    X, y = data[chosen], data[table.target].to_numpy(float)
    test = np.zeros(len(y), dtype=bool)
    test[_shuffled(len(y), seed) if table.package else _test_rows(name, len(y), seed)] = True
    learn = np.flatnonzero(~test)
    held = np.random.default_rng(seed).permutation(learn)[: table.validation_rows]
    learn = np.setdiff1d(learn, held)
    validation = (X.iloc[held].reset_index(drop=True), y[held]) if table.validation_rows else None
    return Split(
        X.iloc[learn].reset_index(drop=True), y[learn], X[test].reset_index(drop=True), y[test], validation=validation
    )


def _from_package(table: Table) -> pd.DataFrame:
    if table.package == "scikit-learn":
        data: pd.DataFrame = load_diabetes(as_frame=True).frame
        return data
    try:
        return import_module(f"statsmodels.datasets.{table.file}").load_pandas().data
    except ImportError as error:
        raise ImportError(f"The table {table.file} comes with statsmodels: pip install '.[benchmarks]'.") from error


def _read(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise FileNotFoundError(f"{path.name} must be in {path.parent}; it is not. Set NCPROB_DATA to its folder.")
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def _shuffled(n_rows: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(n_rows)[: round(TEST_FRACTION * n_rows)]


def _test_rows(name: str, n_rows: int, seed: int) -> NDArray[np.int64]:
    known = _read(data_folder() / "hl_splits.parquet")
    known = known[known["dataset"] == name]
    if known.empty:
        return _shuffled(n_rows, seed)
    rows = known.loc[known["split"] == seed, "test_row"].to_numpy(np.int64)
    if len(rows) == 0:
        raise ValueError(f"The seed of {name} must be below {known['split'].max() + 1}, its splits; got {seed}.")
    return rows
