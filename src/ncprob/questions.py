"""Questions to a saved model: `ask` and `info`, which need no table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncprob import storage
from ncprob._validation import check_number, check_probabilities
from ncprob.distribution import ConditionalDistribution
from ncprob.estimators import NCPClassifier, NCPRegressor
from ncprob.expressions import Condition
from ncprob.frames import target_labels
from ncprob.persistence import load

DEFAULT_LEVELS = (0.05, 0.5, 0.95)
Say = Callable[[str], None]
Model = NCPRegressor | NCPClassifier


@dataclass(frozen=True)
class Wanted:
    """What to tell of a law."""

    mean: bool = False
    std: bool = False
    quantiles: Sequence[float] = ()
    intervals: Sequence[float] = ()
    cdf: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name, levels in (("--quantiles", self.quantiles), ("--interval", self.intervals)):
            if levels:
                check_probabilities(levels, name)
        for value in self.cdf:
            check_number(value, "--cdf")
        for name in ("quantiles", "intervals", "cdf"):  # each once; 0 and 0.0 are one question with one name
            object.__setattr__(self, name, tuple(dict.fromkeys(float(value) for value in getattr(self, name))))

    @property
    def nothing(self) -> bool:
        """Whether nothing was asked for."""
        return not (self.mean or self.std or self.quantiles or self.intervals or self.cdf)


def check_no_moments(wanted: Wanted) -> None:
    """Classes have probabilities only."""
    if not wanted.nothing:
        raise ValueError("classes have no mean, quantiles or intervals; the model gives their probabilities. Leave out "
                         "these options.")  # fmt: skip


# -------------------------------------------------------------------- ask


def ask(path: str, where: str | None, chances: Sequence[str], wanted: Wanted, say: Say, as_json: bool = False) -> None:
    """Tell of the law of the target given a condition on the inputs."""
    model = load(path)
    columns = model._training_columns()
    n = len(model._training_x)
    rows = np.ones(n, dtype=bool) if where is None else Condition.parse(where)(columns)
    if not rows.any():
        raise ValueError(f"--where {where!r} holds for none of the {n:,} training rows. Choose a wider condition.")
    law = model.given(rows)
    answers = {f"P({chance})": float(law.prob(_region(model, chance))[0]) for chance in chances}
    if isinstance(model, NCPClassifier):
        check_no_moments(wanted)
        if not chances:
            share = dict(zip(law.atoms.astype(int).tolist(), law.weights()[0].tolist(), strict=True))
            answers |= {f"P({label})": share.get(k, 0.0) for k, label in enumerate(model.classes_.tolist())}
    else:
        answers |= _law_answers(
            model, law, wanted if chances or not wanted.nothing else Wanted(True, True, DEFAULT_LEVELS)
        )
    given = {"where": where, "training_rows": int(rows.sum())}
    if as_json:
        say(json.dumps({**given, "answers": answers}, ensure_ascii=False))
        return
    say(f"given {where or 'nothing'} ({int(rows.sum()):,} of {n:,} training rows)")
    width = max(len(name) for name in answers)
    for name, value in answers.items():
        say(f"  {name:<{width}}  {_shown(value)}")


def _region(model: Model, text: str) -> Callable[[NDArray[np.float64]], NDArray[np.bool_]]:
    """A condition on the target as a set of values."""
    condition = Condition.parse(text)
    names = target_labels(model)
    if isinstance(model, NCPClassifier):
        return lambda y: condition({names[0]: model.classes_[y[:, 0].astype(int)]})
    return lambda y: condition({name: y[:, k] for k, name in enumerate(names)})


def _law_answers(model: NCPRegressor, law: ConditionalDistribution, wanted: Wanted) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    names = target_labels(model)
    prefix = [""] if len(names) == 1 else [f"{name} " for name in names]

    def add(what: str, values: NDArray[np.float64]) -> None:
        for k, row in enumerate(np.asarray(values).reshape(len(names), -1)):
            answers[f"{prefix[k]}{what}"] = row.tolist() if len(row) > 1 else float(row[0])

    if wanted.mean:
        add("mean", law.mean())
    if wanted.std:
        add("std", law.std())
    for level in wanted.quantiles:
        add(f"{level:g} quantile", law.quantile(level))
    for coverage in wanted.intervals:
        add(f"{coverage:.4g} interval", law.interval(coverage))
    return answers


def _shown(value: Any) -> str:
    return " … ".join(f"{part:.6g}" for part in value) if isinstance(value, list) else f"{value:.6g}"


# -------------------------------------------------------------------- info


def info(path: str, say: Say) -> None:
    """Tell what a saved model is."""
    header, _ = storage.read(path)
    model = load(path)
    size = sum(file.stat().st_size for file in Path(path).iterdir() if file.is_file())
    rows, p = len(model._training_x), model.n_features_in_
    lines: dict[str, str] = {
        "model": f"{type(model).__name__}, {_bytes(size)}, saved by ncprob {header.get('version', '?')}",
        "target": ", ".join(target_labels(model)),
        "inputs": ", ".join(_described(model)) if hasattr(model, "feature_names_in_") else f"{p} without names",
        "training": f"{rows:,} rows, {model.n_steps_} steps",
    }
    if isinstance(model, NCPClassifier):
        lines["classes"] = ", ".join(map(str, model.classes_.tolist()))
    values = ", ".join(f"{value:.3f}" for value in model.singular_values_[:8])
    lines["operator"] = f"{model.coordinates_} coordinates, rank {model.rank_}" + (f" ({values})" if values else "")
    if getattr(model, "_calibrator", None) is not None:
        lines["calibrated"] = f"on {len(model._calibrator)} rows, method {model._calibrator.method}"
    defaults = type(model)().get_params()
    changed = {name: value for name, value in model.get_params(deep=False).items() if value != defaults[name]}
    lines["settings"] = ", ".join(f"{name}={value!r}" for name, value in changed.items()) or "all at their defaults"
    width = max(map(len, lines))
    for name, text in lines.items():
        say(f"{name:<{width}}  {text}")
    for line in str(model.diagnostics()).splitlines():
        say(f"{'':<{width}}  {line}")


def _described(model: Model) -> list[str]:
    levels: Mapping[str, Sequence[str]] = model.categories_
    return [f"{name} ({len(levels[name])} levels)" if name in levels else str(name) for name in model.feature_names_in_]


def _bytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
