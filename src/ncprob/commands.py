"""Commands that read tables: `fit`, `predict` and `report`. Bad input is a `ValueError` with one clear line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ncprob import frames, storage
from ncprob._files import check_writable
from ncprob.bulk import predict_files
from ncprob.datafiles import find_files
from ncprob.estimators import NCPClassifier, NCPRegressor
from ncprob.persistence import load
from ncprob.predictions import CHUNK, Columns, answers, input_names
from ncprob.questions import Model, Say, Wanted
from ncprob.report import write_report
from ncprob.report.baselines import Scores, headline_scores
from ncprob.report.study import Study
from ncprob.tables import STANDARD, Table, read_table, write_table

# -------------------------------------------------------------------- fit


@dataclass(frozen=True)
class Roles:
    """Which columns of a table are what."""

    targets: Sequence[str]
    drop: Sequence[str] = ()
    weights: str | None = None
    text: Sequence[str] = ()
    classify: bool = False

    def features(self, table: Table) -> list[str]:
        """Columns that are inputs; every column that is named must exist."""
        special = [*self.targets, *self.drop, *([] if self.weights is None else [self.weights])]
        for name in [*special, *self.text]:
            table.values(name)
        chosen = [name for name in table.names if name not in special]
        if len(set(self.targets)) != len(self.targets) or set(self.targets) & set(self.drop):
            raise ValueError("--target names a column twice, or one that --drop names too. Name each once.")
        if not chosen:
            raise ValueError(f"{table.source} has no column left as input. Drop fewer columns.")
        return chosen


@dataclass(frozen=True)
class FitSettings:
    """Settings of a fit that are not about columns."""

    out: Path
    estimator: dict[str, Any] = field(default_factory=dict)
    delimiter: str | None = None
    drop_missing: bool = False
    test: str | None = None


def fit(data: str, roles: Roles, settings: FitSettings, say: Say) -> None:
    """Fit a model on a table, save it and say how good it is."""
    storage.check_target(settings.out)
    if many_files(data):
        _fit_files(data, roles, settings, say)
        return
    table = read_table(data, settings.delimiter)
    features = roles.features(table)
    as_text = {name for name in features if name in roles.text or table.is_text(name)}
    as_text |= {name for name in roles.targets if name in roles.text or table.is_text(name)}
    classify = roles.classify or not as_text.isdisjoint(roles.targets)
    if classify and len(roles.targets) > 1:
        raise ValueError("--target must name one column for classes. Fit one model for each.")
    if settings.drop_missing:
        table = _complete_rows(table, features, as_text, roles, say)

    def rows(table: Table) -> tuple[Any, Any]:
        return frames.join_columns(_columns(table, features, as_text)), _target(table, roles.targets, as_text, classify)

    X, y = rows(table)
    weights = None if roles.weights is None else table.numbers(roles.weights)
    test = None if settings.test is None else read_table(settings.test, settings.delimiter)
    judged = None if test is None else rows(test)
    if classify and test is not None and judged is not None:
        _check_classes(judged[1], y, test.source)
    model = (NCPClassifier if classify else NCPRegressor)(**settings.estimator)
    start = time.perf_counter()
    model.fit(X, y, sample_weight=weights)
    model.target_names_ = list(roles.targets)
    seconds = time.perf_counter() - start
    model.save(settings.out)
    say(f"{', '.join(roles.targets)} given {_counted(features, as_text)}")
    say(f"{_number(len(table), 'row')}, fitted in {seconds:.1f} s")
    for line in _held_out(model):
        say(line)
    if test is not None and judged is not None:
        for line in _scores(model, *judged):
            say(f"{test.source} ({_number(len(test), 'row')}): {line}")
    say(f"Saved to {settings.out}")


def many_files(data: str) -> bool:
    """Whether a name is a directory or a pattern rather than a file."""
    return Path(data).is_dir() or (not Path(data).exists() and any(mark in data for mark in "*?["))


def _fit_files(data: str, roles: Roles, settings: FitSettings, say: Say) -> None:
    """Fit a model on many files, which may be larger than memory together."""
    unused = {"--text": roles.text, "--classify": roles.classify, "--drop-missing": settings.drop_missing}
    unused["--delimiter"] = settings.delimiter is not None
    given = [name for name, value in unused.items() if value]
    if given:
        raise ValueError(f"{given[0]} is for one file; {data} names several. Leave it out, or join the files.")
    model, start = NCPRegressor(**settings.estimator), time.perf_counter()
    target = roles.targets[0] if len(roles.targets) == 1 else list(roles.targets)
    model.fit_files(data, target, weights=roles.weights, drop=list(roles.drop))
    model.save(settings.out)
    say(f"{', '.join(roles.targets)} given {_counted(list(model.feature_names_in_), set(model.categories_))}")
    say(f"{_number(len(find_files(data)), 'file')}, fitted in {time.perf_counter() - start:.1f} s")
    for line in _held_out(model):
        say(line)
    if settings.test is not None:
        test = read_table(settings.test, settings.delimiter)
        y = _target(test, roles.targets, set(), classify=False)
        for line in _scores(model, frames.join_columns(model_columns(model, test)), y):
            say(f"{test.source} ({_number(len(test), 'row')}): {line}")
    say(f"Saved to {settings.out}")


def _columns(table: Table, names: Sequence[str], as_text: set[str]) -> Columns:
    return {name: table.text(name) if name in as_text else table.numbers(name) for name in names}


def _target(table: Table, targets: Sequence[str], as_text: set[str], classify: bool) -> Any:
    if classify:
        return _labels(table, targets[0], targets[0] in as_text)
    numbers = [table.numbers(name) for name in targets]
    return numbers[0] if len(targets) == 1 else np.stack(numbers, axis=1)


def _labels(table: Table, name: str, text: bool) -> NDArray[Any]:
    """Classes as text, or as numbers; whole ones as such."""
    if text:
        return table.text(name).astype(str)
    numbers = table.numbers(name)
    return numbers.astype(np.int64) if np.all(numbers == np.round(numbers)) else numbers


def _complete_rows(table: Table, features: list[str], as_text: set[str], roles: Roles, say: Say) -> Table:
    used = [*features, *roles.targets, *([] if roles.weights is None else [roles.weights])]
    missing = np.any([table.missing(name, text=name in as_text) for name in used], axis=0)
    if missing.all():
        raise ValueError(f"{table.source} has missing values in every row. --drop the columns that have them.")
    if missing.any():
        say(f"Left out {int(missing.sum()):,} of {len(table):,} rows, which have missing values.")
    return table.keep(~missing)


def _counted(features: Sequence[str], as_text: set[str]) -> str:
    text = as_text & set(features)
    words = f", {len(text)} of them text" if text else ""
    return f"{_number(len(features), 'input')}{words}"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _held_out(model: Model) -> Iterator[str]:
    """How the model does on rows that were held out while fitting, and what speaks against it."""
    yield f"{model.coordinates_} coordinates, rank {model.rank_}, {model.n_steps_} steps"
    figures = model.diagnostics()
    if figures.n_held_out:
        yield (
            f"{figures.n_held_out} held-out rows: 90 % intervals cover {figures.coverage_90:.1%}, "
            f"F(y|x) uniform with p = {figures.pit_pvalue:.2f}, loss {figures.held_out_loss:.3f}"
        )
    yield from (f"! {warning}" for warning in figures.warnings)


def _check_classes(labels: NDArray[Any], known: NDArray[Any], source: str) -> None:
    """Classes that the model cannot know have no score: told before the fit."""
    unknown = np.setdiff1d(labels, known).tolist()
    if unknown:
        raise ValueError(f"{source} has classes that the rows to fit do not have: {unknown[:5]}. Leave out these rows.")


def _scores(model: Model, X: Any, y: NDArray[Any]) -> Iterator[str]:
    """Scores on a table of its own, beside those of the baselines of the report; one line per target."""
    study = Study.of(model, X, y, every_row=True)
    for target, found in zip(study.targets, headline_scores(study), strict=True):
        yield f"{target} {_told(found)}"
    yield from study.complaints


def _told(found: dict[str, Scores]) -> str:
    (_, own), *others = found.items()
    headline = next(iter(own))
    beside = "; ".join(f"{name} {scores[headline]:.4g}" for name, scores in others)
    return f"{headline} {own[headline]:.4g} ({beside}), {_rest(own)}"


def _rest(own: Scores) -> str:
    if "accuracy" in own:
        return f"accuracy {own['accuracy']:.1%}"
    explained = own["R² of the mean"]  # of one row there is no variance to explain
    words = "needs two rows" if np.isnan(explained) else f"{explained:.3f}"
    return f"90 % intervals cover {own['90 % coverage']:.1%}, R² {words}"


# -------------------------------------------------------------------- predict


def predict(
    path: str, data: str, wanted: Wanted, out: str = STANDARD, keep: Sequence[str] = (), delimiter: str | None = None
) -> None:
    """Write predictions for the rows of a table."""
    if out != STANDARD:
        check_writable(out)
    model = load(path)
    table = read_table(data, delimiter)
    kept: Columns = {name: table.values(name) for name in (table.names if list(keep) == ["*"] else keep)}
    columns = model_columns(model, table)
    parts = []
    for start in tqdm(range(0, len(table), CHUNK), desc="predicting", disable=None, leave=False):
        rows = slice(start, start + CHUNK)
        parts.append(answers(model, {name: column[rows] for name, column in columns.items()}, wanted))
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    write_table({**{name: column for name, column in kept.items() if name not in found}, **found}, out)


def predict_many(
    path: str,
    data: str,
    wanted: Wanted,
    out: str,
    keep: Sequence[str],
    delimiter: str | None,
    workers: str,
    say: Say,
) -> None:
    """Write predictions for many files to a directory."""
    if out == STANDARD:
        raise ValueError(f"--out must name a directory for the predictions, as {data} names several files. Name one.")
    if delimiter is not None:
        raise ValueError(f"--delimiter is for one csv file; {data} names several files. Leave it out.")
    if workers != "ray" and not workers.isdecimal():
        raise ValueError(f"--workers must be a number of processes or ray; got {workers!r}. Choose one of these.")
    shared = "ray" if workers == "ray" else int(workers)
    done = predict_files(path, data, out, **asdict(wanted), keep=keep, workers=shared)  # type: ignore[arg-type]
    before = f", {done.found} of them there before" if done.found else ""
    say(f"{_number(done.rows, 'row')} in {_number(len(done.parts), 'file')}{before}, in {out}")


def model_columns(model: Model, table: Table) -> Columns:
    """The columns of a table that a model was fitted on, in its order."""
    return _columns(table, input_names(model, table.source, table.names), set(model.categories_))


# -------------------------------------------------------------------- report


def report(path: str, data: str, out: str, title: str | None, delimiter: str | None) -> None:
    """Write a page about a model and how it does on a table."""
    check_writable(out)
    model = load(path)
    table = read_table(data, delimiter)
    X = frames.join_columns(model_columns(model, table))
    targets, classes = frames.target_labels(model), getattr(model, "classes_", np.zeros(0))
    as_text = set(targets) if classes.dtype.kind in "OSU" else set()
    y = _target(table, targets, as_text, isinstance(model, NCPClassifier))
    write_report(model, X, y.astype(bool) if classes.dtype.kind == "b" else y, out, title=title)
