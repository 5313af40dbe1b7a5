"""Training of an operator on pairs: loss, regulariser, validation loss."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ncprob._validation import check_choice, check_integer, check_number
from ncprob.encoders import evaluating, gate_penalty
from ncprob.losses import LOSSES, MINIMUM_PAIRS, WAITING, best_operator, orthonormality_penalty, u_statistic_loss
from ncprob.operator import SpectralOperator
from ncprob.optimization import History, Runtime, Schedule, minimize
from ncprob.pairs import Pairs, as_pairs
from ncprob.partition import RanksHold, check_alike, part_of, ranks_of
from ncprob.ranks import Ranks

REFERENCE_ROWS = 8192  # training rows on which the closed-form operator of the cross-fitted loss is fitted


def resolve_device(device: str | torch.device) -> torch.device:
    """`"auto"` is the accelerator if there is one, else the CPU.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"`device` must be 'auto', 'cpu', 'cuda' or a torch.device; got {device!r}. Use 'auto' to choose for you."
        ) from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("`device` is 'cuda', but torch sees no CUDA device here. Use 'auto' or 'cpu'.")
    return resolved


def train(
    operator: SpectralOperator,
    pairs: Any,
    *,
    loss: str = "covariance",
    gamma: float = 1e-3,
    validation_pairs: Any = None,
    max_steps: int = 2000,
    batch_size: int = 2048,
    learning_rate: float = 2e-3,
    weight_decay: float = 1e-2,
    gate_strength: float = 0.03,
    early_stopping: bool = True,
    patience: int = 10,
    validate_every: int = 50,
    gradient_clip: float = 1.0,
    device: str | torch.device = "auto",
    random_state: int = 0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    progress: bool | Literal["auto"] = "auto",
    ranks: RanksHold = "same",
) -> History:
    """Train an operator in place on pairs (x, y) and return the history.

    Minimises L + γR (Kostic et al. 2024, section 3) plus `gate_strength` times the L1 norm of input gates, if the
    encoders have any. With `validation_pairs` the best weights on them are kept; the validation score is the
    U-statistic of L on all validation pairs, so it involves no random split. Call `operator.postprocess` afterwards.

    Parameters
    ----------
    operator : SpectralOperator
        Trained in place; its post-processing is undone first.
    pairs : (x, y), (x, y, weights), TimeLaggedPairs, Dataset or DataLoader
        Training pairs; with weights, rows are drawn in proportion.
    loss : {"covariance", "u_statistic", "paired", "cross_fitted"}
        Estimate of L, see `ncprob.losses`. `"cross_fitted"` needs whitening afterwards: it does not use the singular
        values.
    gamma : float
        Weight of the orthonormality penalty.
    checkpoint_dir : path, optional
        Where to keep a checkpoint; a run that finds its own checkpoint there goes on from it.
    ranks : {"same", "own", "alone"}
        What `pairs` and `validation_pairs` are when several processes train together, under `torchrun` or in a
        `torch.distributed` group. `"same"`: all ranks pass the same pairs and each computes a part of every batch, so
        that the result is that of one process but for rounding. `"own"`: every rank passes pairs of its own, and gives
        to each batch in proportion to their weight, on average over batches: a rank with few rows gives none to some.
        DataLoaders decide their batches themselves and must do so in proportion, else they are refused. `"alone"`:
        this process trains by itself. `batch_size` counts the rows of all ranks, but for DataLoaders. Settings must be
        the same on all ranks. Losses and gradients are those of the joined batch, see `ncprob.ranks`.

    Examples
    --------
    >>> from ncprob.encoders import MLP
    >>> operator = SpectralOperator(MLP(1, (16,), 4), MLP(1, (16,), 4), rank=4)
    >>> x = torch.linspace(-1, 1, 200)[:, None]
    >>> history = train(operator, (x, x**2), max_steps=20, validate_every=10, device="cpu", progress=False)
    >>> history.step
    [10, 20]
    """
    schedule = Schedule(
        max_steps=max_steps,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        batch_size=batch_size,
        gradient_clip=gradient_clip,
        early_stopping=early_stopping,
        validate_every=validate_every,
        patience=patience,
    )
    check_integer(random_state, "random_state", minimum=0)
    checkpoint = None if checkpoint_dir is None else Path(checkpoint_dir) / "operator"
    facts = {"validation_pairs": validation_pairs, "checkpoint_dir": checkpoint_dir}  # whether there are any
    target = resolve_device(device)
    alike = {"ranks": ranks, "loss": loss, "gamma": gamma, "gate_strength": gate_strength, "random_state": random_state}
    alike |= {name: value is not None for name, value in facts.items()} | dataclasses.asdict(schedule)
    check_alike(alike, ranks_of(ranks, target))
    data, together = part_of(as_pairs(pairs, target), ranks, target, batch_size=batch_size)
    held_out = None
    if validation_pairs is not None:
        held_out, _ = part_of(as_pairs(validation_pairs, target), ranks, target, name="validation_pairs")
    operator.to(target)
    return train_operator(
        operator,
        data,
        loss=loss,
        gamma=gamma,
        gate_strength=gate_strength,
        validation_pairs=held_out,
        schedule=schedule,
        runtime=Runtime(
            seed=random_state, checkpoint=checkpoint, progress=progress, description="operator", ranks=together
        ),
    )


def train_operator(
    operator: SpectralOperator,
    pairs: Pairs,
    *,
    loss: str,
    gamma: float,
    gate_strength: float,
    validation_pairs: Pairs | None,
    schedule: Schedule,
    runtime: Runtime,
) -> History:
    """`train` with its settings already in order: operator and pairs on one device."""
    check_choice(loss, "loss", tuple(LOSSES))
    check_number(gamma, "gamma", minimum=0)
    check_number(gate_strength, "gate_strength", minimum=0)
    needed = MINIMUM_PAIRS[loss]
    check_integer(schedule.batch_size, "batch_size", minimum=needed)
    _check_size(pairs, "pairs", needed)
    if validation_pairs is not None:
        _check_size(validation_pairs, "validation_pairs", MINIMUM_PAIRS["u_statistic"])
    operator.postprocess(pairs, kind="none")
    estimate = LOSSES[loss]

    def objective(x: Any, y: Any) -> Tensor:
        u, v = operator.encode(x, y)
        rows = runtime.ranks.rows(len(u))
        if len(rows) < needed:  # a DataLoader decides its batches itself; a short last one would give NaN
            raise ValueError(
                f"`pairs` must come in batches of at least {needed} pairs for loss={loss!r}; got a batch of "
                f"{len(rows)}. Set `drop_last=True` in the DataLoader or change its batch size."
            )
        value = estimate(u, v, operator.trained_values, rows)  # post-processing is undone above
        if gamma > 0:
            value = value + gamma * orthonormality_penalty(u, v, rows)
        if gate_strength > 0:
            value = value + gate_strength * gate_penalty(operator)  # without gates a zero on the CPU, which may stay
        return value

    def score() -> float:
        assert validation_pairs is not None
        return _validation_loss(operator, pairs, validation_pairs, loss == "cross_fitted", runtime.ranks)

    records = runtime.record and type(operator) is SpectralOperator and loss not in WAITING
    return minimize(
        operator,
        objective,
        pairs,
        score=None if validation_pairs is None else score,
        schedule=schedule,
        runtime=dataclasses.replace(runtime, record=records),
        settings={
            "loss": loss,
            "gamma": gamma,
            "gate_strength": gate_strength,
            "validation": validation_pairs.fingerprint() if validation_pairs and runtime.checkpoint else None,
        },
    )


def _check_size(data: Pairs, name: str, needed: int) -> None:
    if len(data) < needed:
        raise ValueError(
            f"`{name}` must hold at least {needed} pairs; got {len(data)}. Pass more: unbiased estimates need them."
        )


@torch.no_grad()
def _validation_loss(
    operator: SpectralOperator, data: Pairs, held_out: Pairs, closed_form: bool, ranks: Ranks
) -> float:
    """U-statistic of L on all held-out pairs, for the learned values or for the closed-form operator."""
    values = operator.singular_values.double()
    with evaluating(operator):
        features = [operator.encode(x, y) for x, y, _ in held_out.chunks(REFERENCE_ROWS)]
        u, v = (torch.cat(parts).double() for parts in zip(*features, strict=True))
        if closed_form:
            x, y, _ = next(data.chunks(REFERENCE_ROWS))
            fit_u, fit_v = (part.double() for part in operator.encode(x, y))
            u = u @ best_operator(fit_u, fit_v, rows=ranks.rows(len(fit_u)))
            values = torch.ones_like(values)
    return float(u_statistic_loss(u, v, values, ranks.rows(len(u))))
