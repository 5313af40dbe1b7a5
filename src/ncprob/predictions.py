"""Columns of answers for rows of a table: what `ncprob predict`, `predict_files` and `predict_dataset` give."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncprob import frames, storage
from ncprob._validation import as_float_tensor, check_probabilities
from ncprob.datafiles import kind_of
from ncprob.estimators import NCPClassifier, NCPRegressor
from ncprob.persistence import load
from ncprob.questions import DEFAULT_LEVELS, Model, Wanted, check_no_moments
from ncprob.tables import no_column

CHUNK = 16384  # rows predicted at once: bounds memory
Columns = dict[str, NDArray[Any]]


@functools.lru_cache(maxsize=1)
def loaded(path: str, checksum: str) -> Model:
    """A saved model as it was when it was asked, read once by every process."""
    if storage.checksum(path) != checksum:
        raise RuntimeError(f"the model {path} was replaced meanwhile")
    model: Model = load(path)
    return model


# -------------------------------------------------------------------- what is asked, and of which columns


def asked(mean: bool, std: bool, quantiles: Any, intervals: Any, cdf: Any) -> Wanted:
    """A question from Python: of everything one number or several."""
    given = {"quantiles": quantiles, "intervals": intervals, "cdf": cdf}
    levels = {name: as_float_tensor(value, name).reshape(-1).tolist() for name, value in given.items()}
    for name in ("quantiles", "intervals"):
        if levels[name]:
            check_probabilities(levels[name], name)
    return Wanted(bool(mean), bool(std), **levels)


def check_question(model: Model, wanted: Wanted) -> None:
    """Refuse what the model cannot answer, whatever the rows."""
    if isinstance(model, NCPClassifier):
        check_no_moments(wanted)


def input_names(model: Model, source: str, present: Sequence[str]) -> list[str]:
    """The columns that a model was fitted on, in its order, which `source` must have; others are not looked at."""
    names = list(getattr(model, "feature_names_in_", []))
    if not names:
        if len(present) != model.n_features_in_:
            raise ValueError(
                f"{source} must have {model.n_features_in_} columns, as many as X in fit, which had no names; "
                f"it has {len(present)}. Leave out the others."
            )
        return list(present)
    absent = [name for name in names if name not in present]
    if len(absent) > 1:
        listed = ", ".join(map(repr, absent[:5])) + (", …" if len(absent) > 5 else "")
        raise ValueError(f"{source} lacks {len(absent)} columns of the model: {listed}. Add them.")
    if absent:
        raise no_column(source, absent[0], present)
    return names


def check_columns(model: Model, source: str, types: Mapping[str, Any]) -> list[str]:
    """The inputs among columns of arrow types, which must hold text or numbers as they did in fit."""
    names = input_names(model, source, list(types))
    for name in names:
        kind = kind_of(types[name])
        if kind not in ("numbers", "text", "nothing") or (kind == "text" and name not in model.categories_):
            raise TypeError(
                f"{source}: column {name!r} must hold {'text' if name in model.categories_ else 'numbers'}, as "
                f"when the model was fitted; it holds {kind}. Convert it."
            )
    return names


def kept_names(source: str, present: Sequence[str], keep: Sequence[str]) -> list[str]:
    """Columns to give beside the answers; `"*"` are all."""
    if list(keep) == ["*"]:
        return list(present)
    absent = [name for name in keep if name not in present]
    if absent:
        raise no_column(source, absent[0], present)
    return list(keep)


# -------------------------------------------------------------------- answers


def answers(model: Model, columns: Columns, wanted: Wanted) -> Columns:
    """Answers for rows of inputs, by the names of their columns."""
    check_question(model, wanted)
    X = frames.join_columns(columns)
    return _class_answers(model, X) if isinstance(model, NCPClassifier) else _law_answers(model, X, wanted)


def answer_table(model: Model, columns: Columns, wanted: Wanted, kept: Mapping[str, Any]) -> Any:
    """An arrow table of answers, beside columns that are kept."""
    return _joined(kept, answers(model, columns, wanted))


def empty_answer_table(model: Model, wanted: Wanted, kept: Mapping[str, Any]) -> Any:
    """The same without rows, from the types of what is kept; answers have the types of those for a training row."""
    import pyarrow

    example = {name: column[:1] for name, column in model._training_columns().items()}
    nothing = {name: pyarrow.nulls(1, type_) for name, type_ in kept.items()}
    return _joined(nothing, answers(model, example, wanted)).slice(0, 0)


def _joined(kept: Mapping[str, Any], found: Columns) -> Any:
    import pyarrow

    beside = {name: column for name, column in kept.items() if name not in found}
    return pyarrow.table(beside | {name: pyarrow.array(column) for name, column in found.items()})


def _law_answers(model: NCPRegressor, X: Any, wanted: Wanted) -> Columns:
    """Mean and quantiles unless something else is asked for."""
    law = functools.cache(lambda: model.predict_distribution(X))  # quantiles and intervals do without
    found: Columns = {}
    if wanted.mean or wanted.nothing:
        found |= _named(model, ["mean"], law().mean())
    if wanted.std:
        found |= _named(model, ["std"], law().std())
    levels = wanted.quantiles or (DEFAULT_LEVELS if wanted.nothing else ())
    if levels:
        found |= _named(model, levels, model.predict_quantiles(X, alpha=list(levels)))
    if wanted.intervals:
        ends = [f"{coverage}_{end}" for coverage in wanted.intervals for end in ("lower", "upper")]
        found |= _named(model, ends, model.predict_interval(X, coverage=list(wanted.intervals)))
    if wanted.cdf:
        found |= _named(model, [f"cdf_{value}" for value in wanted.cdf], law().cdf(np.array(wanted.cdf)))
    return found


def _named(model: NCPRegressor, what: Sequence[Any], answer: Any) -> Columns:
    """Columns of an answer, which has all of `what` for the first target, then for the second, …"""
    names = [f"{target}_{each}" for target in frames.target_labels(model) for each in what]
    return dict(zip(names, np.asarray(answer).reshape(len(answer), -1).T, strict=True))


def _class_answers(model: NCPClassifier, X: Any) -> Columns:
    chances, name = model.predict_proba(X), frames.target_labels(model)[0]
    labels = model.classes_[chances.argmax(axis=1)]
    return {f"{name}_predicted": labels} | {f"{name}_{label}": chances[:, k] for k, label in enumerate(model.classes_)}
