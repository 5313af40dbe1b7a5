"""Estimators to and from states: `save` and `load`.

Classes are found in an explicit registry, settings are plain values, and every array is checked before it is used.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ncprob import storage
from ncprob._version import __version__
from ncprob.diagnostics import HeldOutAnswers
from ncprob.encoders import encoder_from_state, encoder_state
from ncprob.guarantees import OperatorTerms
from ncprob.model import FittedModel
from ncprob.novelty import InputReach
from ncprob.optimization import History
from ncprob.preprocessing import TableEncoder
from ncprob.state import State, to_array
from ncprob.training import resolve_device

ENCODERS = ("x_encoder", "y_encoder")
PROBES = 16  # training rows that a model must answer to be taken as sound
HISTORY = ("step", "loss", "validation_loss", "learning_rate", "seconds")

REGISTRY: dict[str, type] = {}

Estimator = TypeVar("Estimator", bound=type)


def savable(cls: Estimator) -> Estimator:
    """Decorator of classes that `load` may build."""
    REGISTRY[cls.__name__] = cls
    return cls


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to the directory `path`; see `NCPRegressor.save`."""
    if REGISTRY.get(type(estimator).__name__) is not type(estimator):
        raise TypeError(
            f"only {' and '.join(REGISTRY)} can be saved; got {type(estimator).__name__}. "
            "Classes derived from them carry code, which is not saved."
        )
    storage.write(_state(estimator), {"version": __version__, "class": type(estimator).__name__}, path)


def load(
    path: str | os.PathLike[str],
    device: str | torch.device = "auto",
    *,
    x_encoder: nn.Module | None = None,
    y_encoder: nn.Module | None = None,
) -> Any:
    """Read a model written by `save`; on the same machine it answers every question as before, to the last bit.

    Nothing in the file is executed, so files of others can be opened.

    Parameters
    ----------
    path : path
        The directory given to `save`.
    device : {"auto", "cpu", "cuda"} or torch.device
        Where to compute; `"auto"` is where the model was fitted if this machine has such a device, else the CPU.
    x_encoder, y_encoder : torch.nn.Module, optional
        Modules with the architecture of the encoders that the model was fitted with, if these were your own. They are
        copied; their weights do not matter.

    Raises
    ------
    ValueError
        For a directory that holds no model, or one that is damaged or from a newer version.

    Examples
    --------
    >>> import tempfile
    >>> from ncprob import NCPClassifier
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> model = NCPClassifier(max_steps=50, random_state=0).fit(X, X[:, 0] > 0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     load(folder).predict([[0.5]])
    array([ True])
    """
    header, state = storage.read(path)
    name = header.get("class")
    if not isinstance(name, str) or name not in REGISTRY:
        raise ValueError(f"`path` {Path(path)} holds a {str(name)[:40]!r}, which ncprob does not know. Upgrade ncprob.")
    encoders = {"x_encoder": x_encoder, "y_encoder": y_encoder}
    _check_encoders(state, encoders)
    where = _choose_device(state, device)
    return storage.guarded(path, lambda: _restored(REGISTRY[name], state, where, encoders))


# -------------------------------------------------------------------- estimators to states


def _state(estimator: Any) -> State:
    """All that a fit left behind, and the settings."""
    history: History = estimator.history_
    facts = {
        "settings": _settings(estimator),
        "n_features": int(estimator.n_features_in_),
        "feature_names": plain_names(getattr(estimator, "feature_names_in_", [])),
        "categories": [[str(name), levels] for name, levels in estimator.categories_.items()],
        "device": str(estimator._device),
        "seed": estimator._seed,
        "best_step": history.best_step,
        "stopped_early": history.stopped_early,
        "recoveries": history.recoveries,
    }
    tensors = {
        "x": to_array(estimator._training_x),
        "y": estimator._training_y,
        "weights": estimator._training_weights,
        "held_out_loss": to_array([estimator._held_out_loss]),
        **{f"history.{name}": to_array(np.array(getattr(history, name), dtype=np.float64)) for name in HISTORY},
    }
    if estimator._terms is not None:
        tensors["terms"] = to_array(np.array(astuple(estimator._terms), dtype=np.float64))
    if estimator._answers is not None:
        answers = {field.name: getattr(estimator._answers, field.name) for field in fields(HeldOutAnswers)}
        tensors |= {f"answers.{name}": to_array(values) for name, values in answers.items()}
    parts = {"model": estimator._model.state(), "own": estimator._own_state()}
    if estimator._encoder is not None:
        parts["encoder"] = estimator._encoder.state()
        parts["reach"] = estimator._reach.state()
    parts |= {
        name: encoder_state(getattr(estimator, name)) for name in ENCODERS if getattr(estimator, name) is not None
    }
    return State(tensors, facts, parts)


def _settings(estimator: Any) -> dict[str, Any]:
    """Parameters as plain values. Generators cannot be kept, and checkpoints belong to one machine and one fit."""
    settings = {name: value for name, value in estimator.get_params(deep=False).items() if name not in ENCODERS}
    settings["checkpoint_dir"] = None
    if isinstance(settings["random_state"], np.random.RandomState):
        settings["random_state"] = None
    if isinstance(settings["device"], torch.device):
        settings["device"] = str(settings["device"])
    settings["hidden_sizes"] = [int(size) for size in settings["hidden_sizes"]]
    settings = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    odd = [name for name, value in settings.items() if not isinstance(value, str | int | float | bool | list | None)]
    if odd:
        raise TypeError(
            f"`{odd[0]}` must be a plain value to be saved; got {settings[odd[0]]!r}. Use set_params first."
        )
    return settings


def plain_names(names: Any) -> list[Any]:
    """Names of columns as JSON can hold them: tuples become lists."""
    plain = []
    for name in names:
        value = name.item() if isinstance(name, np.generic) else name
        if isinstance(value, tuple):
            value = plain_names(value)
        elif not isinstance(value, str | int | float | bool | None):
            raise TypeError(f"names of columns must be text or numbers to be saved; got {name!r}. Rename the column.")
        plain.append(value)
    return plain


def read_names(names: list[Any]) -> list[Any]:
    """Inverse of `plain_names`."""
    return [tuple(read_names(name)) if isinstance(name, list) else name for name in names]


# -------------------------------------------------------------------- states to estimators


def _check_encoders(state: State, encoders: dict[str, nn.Module | None]) -> None:
    """Encoders that are not ours must be given, and no others."""
    for name, module in encoders.items():
        part = state.parts.get(name)
        custom = part is not None and part.facts.get("kind") == "custom"
        if custom and not isinstance(module, nn.Module):
            raise ValueError(
                f"`{name}` must be given: the model was fitted with an encoder whose code is not saved. "
                f"Pass `{name}=` with a torch.nn.Module of the same architecture."
            )
        if module is not None and not custom:
            raise ValueError(f"`{name}` was given, but this model needs none. Leave it out.")
        if part is not None and custom:
            try:
                encoder_from_state(part, copy.deepcopy(module), name)
            except ValueError as error:
                raise ValueError(f"`{name}` must have the architecture of the encoder in `fit`: {error}.") from error


def _choose_device(state: State, wanted: str | torch.device) -> torch.device:
    if str(wanted) != "auto":
        return resolve_device(wanted)
    on_gpu = str(state.facts.get("device")).startswith("cuda")
    return torch.device("cuda" if on_gpu and torch.cuda.is_available() else "cpu")


def _restored(cls: Callable[..., Any], state: State, device: torch.device, encoders: dict[str, Any]) -> Any:
    """An estimator as it was when saved."""
    state = state.to(device)
    estimator = cls(**_read_settings(cls, state))
    if estimator.device != "auto":
        estimator.device = str(device)
    for name in ENCODERS:
        if name in state.parts:
            like = copy.deepcopy(encoders[name])
            setattr(estimator, name, encoder_from_state(state.part(name), like, name))
    _restore_columns(estimator, state)
    _restore_training(estimator, state, device)
    n_inputs = 0
    estimator._encoder, estimator._reach = None, None
    if "encoder" in state.parts:
        estimator._encoder = TableEncoder.from_state(state.part("encoder"), estimator.n_features_in_)
        n_inputs = estimator._encoder.n_inputs
        _check_levels(estimator)
        estimator._reach = _read_reach(estimator, state, device)
    estimator._model = FittedModel.from_state(state.part("model"), n_inputs, estimator.x_encoder, estimator.y_encoder)
    if estimator._model.support.n_components != estimator._training_y.shape[1]:
        raise ValueError("the model must have as many targets as the training rows")
    estimator._describe_model()
    estimator._restore_own(state.part("own"))
    # First answers show whether all parts fit together.
    law = estimator._law(estimator._training_x[:PROBES])
    if np.isnan(law.mean()).any() or not np.isfinite(law.quantile([0.05, 0.5, 0.95])).all():
        raise ValueError("its answers are no numbers")
    return estimator


def _read_settings(cls: Any, state: State) -> dict[str, Any]:
    settings = state.fact("settings", dict)
    expected = set(cls._get_param_names()) - set(ENCODERS)
    if set(settings) != expected:
        raise ValueError(f"its settings must be {sorted(expected)}; they are {sorted(map(str, settings))}")
    sizes = State(facts=settings).integers("hidden_sizes", minimum=1)
    for name, value in settings.items():
        if name != "hidden_sizes" and not isinstance(value, str | int | float | bool | None):
            raise ValueError(f"the setting {name!r} must be a plain value")
    return {**settings, "hidden_sizes": tuple(sizes)}


def _restore_columns(estimator: Any, state: State) -> None:
    estimator.n_features_in_ = state.integer("n_features", minimum=1)
    names = state.fact("feature_names", list)
    if names:
        if len(names) != estimator.n_features_in_ or any(type(name) is not str for name in names):
            raise ValueError("features must have a name each")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    categories = {}
    for pair in state.fact("categories", list):
        name, levels = pair
        if name not in names or type(levels) is not list or any(type(level) is not str for level in levels):
            raise ValueError("categories must be lists of text, of named columns")
        categories[name] = levels
    estimator.categories_ = categories


def _read_reach(estimator: Any, state: State, device: torch.device) -> InputReach:
    """Where the training inputs end; models saved before it was kept are measured again."""
    scaler, numeric = estimator._encoder.scaler, estimator._encoder.numeric
    if "reach" in state.parts:
        return InputReach.from_state(state.part("reach"), scaler)
    known = estimator._training_x[(estimator._training_weights > 0).cpu().numpy()]
    return InputReach.fit(scaler, torch.as_tensor(known[:, numeric]).to(device))


def _check_levels(estimator: Any) -> None:
    """Levels of text columns must be those that the encoder and the training rows count."""
    names = list(getattr(estimator, "feature_names_in_", []))
    counts = {names.index(name): len(levels) for name, levels in estimator.categories_.items()}
    if counts != estimator._encoder.levels:
        raise ValueError("text columns must have the levels that were seen in fit")
    for column, count in counts.items():
        if not np.isin(estimator._training_x[:, column], np.arange(count)).all():
            raise ValueError("training rows must have levels of the list")


def _restore_training(estimator: Any, state: State, device: torch.device) -> None:
    """Training rows, and what was found out while fitting."""
    x = state.tensors.get("x", torch.zeros(0))
    estimator._training_x = state.array("x", torch.float64, x.shape)
    n = len(estimator._training_x)
    y = state.tensor("y", torch.float64, (n, None))
    weights = state.tensor("weights", torch.float64, (n,))
    if x.ndim < 2 or n < 1 or x.shape[1] != estimator.n_features_in_ or y.shape[1] < 1:
        raise ValueError("training rows must have inputs and targets")
    if bool((weights < 0).any()) or not bool(weights.sum() > 0):
        raise ValueError("weights of training rows must not be negative")
    estimator._training_y, estimator._training_weights = y.to(device), weights.to(device)
    estimator._training_rows = None
    estimator._device, estimator._seed = device, state.integer("seed", minimum=0)
    estimator.history_ = _read_history(state)
    estimator.n_steps_ = estimator.history_.n_steps
    estimator._held_out_loss = float(state.tensor("held_out_loss", torch.float64, (1,), finite=False)[0])
    estimator._terms = _read_terms(state) if "terms" in state.tensors else None
    estimator._answers = _read_answers(state, y.shape[1]) if "answers.pit" in state.tensors else None


def _read_history(state: State) -> History:
    length = len(state.tensors.get("history.step", ()))
    columns = {
        name: state.array(f"history.{name}", torch.float64, (length,), finite=name == "step") for name in HISTORY
    }
    if not np.all((columns["step"] >= 0) & (columns["step"] < 2**53)):
        raise ValueError("steps of training must be counted")
    lists = {name: column.tolist() for name, column in columns.items()} | {"step": columns["step"].astype(int).tolist()}
    return History(
        **lists,
        best_step=state.integer("best_step", minimum=0),
        stopped_early=state.fact("stopped_early", bool),
        recoveries=state.integer("recoveries", minimum=0) if "recoveries" in state.facts else 0,
    )


def _read_terms(state: State) -> OperatorTerms:
    names = [field.name for field in fields(OperatorTerms)]
    values: NDArray[np.float64] = state.array("terms", torch.float64, (len(names),), finite=False)
    named: dict[str, Any] = dict(zip(names, values.tolist(), strict=True))
    return OperatorTerms(**named | {name: int(named[name]) for name in ("n", "rank", "n_held_out")})


def _read_answers(state: State, n_targets: int) -> HeldOutAnswers:
    pit = state.array("answers.pit", torch.float64, (None, n_targets))
    m = len(pit)
    return HeldOutAnswers(
        inputs=state.array("answers.inputs", torch.float64, (m, None)),
        pit=pit,
        covered=state.array("answers.covered", torch.bool, (m, n_targets)),
        repair=state.array("answers.repair", torch.float64, (m,), finite=False),
    )
