"""One optimisation loop: AdamW, schedule, early stopping, checkpoint and resume. Knows nothing of operators."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm.auto import tqdm

from ncprob._files import check_writable, clear_remains, replacing
from ncprob._validation import check_integer, check_number
from ncprob.pairs import Pairs
from ncprob.ranks import ALONE, Ranks
from ncprob.recording import RecordedStep, is_recordable
from ncprob.threads import one_thread

CHECKPOINT_FORMAT = 3
SMALL_NETWORK = 200_000  # parameters
SMALLEST_BATCH = 8  # rows; a device without memory for more is of no use
EXPLOSION = 100.0  # a score so far above the best, in units of the best or of one, is no fluctuation


@dataclass
class History:
    """What training saw, one entry per validation; without validation data `validation_loss` repeats the loss."""

    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best_step: int = 0
    stopped_early: bool = False
    recoveries: int = 0  # how often a network went back to its best weights

    def append(self, step: int, loss: float, validation_loss: float, learning_rate: float, seconds: float) -> None:
        """Add one line."""
        self.step.append(step)
        self.loss.append(loss)
        self.validation_loss.append(validation_loss)
        self.learning_rate.append(learning_rate)
        self.seconds.append(seconds)

    @property
    def n_steps(self) -> int:
        """Steps done."""
        return self.step[-1] if self.step else 0


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train; shared by everything that is trained by `minimize`.

    The learning rate rises linearly during `warmup_fraction` of the steps and then falls along a half cosine
    (Loshchilov & Hutter 2017). Every `validate_every` steps the validation score decides about the best weights; after
    `patience` validations without improvement training stops, if `early_stopping`.
    """

    max_steps: int = 2000
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    batch_size: int = 2048
    warmup_fraction: float = 0.05
    gradient_clip: float = 1.0
    early_stopping: bool = True
    validate_every: int = 50
    patience: int = 10

    def __post_init__(self) -> None:
        check_integer(self.max_steps, "max_steps", minimum=1)
        check_integer(self.batch_size, "batch_size", minimum=4)
        check_integer(self.validate_every, "validate_every", minimum=1)
        check_integer(self.patience, "patience", minimum=1)
        check_number(self.learning_rate, "learning_rate", minimum=0, open_ends=True)
        check_number(self.weight_decay, "weight_decay", minimum=0)
        check_number(self.gradient_clip, "gradient_clip", minimum=0, open_ends=True)
        check_number(self.warmup_fraction, "warmup_fraction", minimum=0, maximum=1)

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from zero.

        Examples
        --------
        >>> schedule = Schedule(max_steps=100, learning_rate=1.0, warmup_fraction=0.1)
        >>> schedule.rate(0), schedule.rate(10), round(schedule.rate(99), 4)
        (0.1, 1.0, 0.0003)
        """
        warmup = max(1, round(self.warmup_fraction * self.max_steps))
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        progress = (step - warmup) / max(1, self.max_steps - warmup)
        return self.learning_rate * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class Population:
    """Independent networks trained as one: the first axis of every parameter counts them.

    Each has a weight decay of its own, its gradient is clipped by itself, and its best weights are kept by its own
    score, so that training together gives what training one by one would. Parameters named in `exempt` do not decay.
    """

    weight_decay: Float[Tensor, " networks"]
    exempt: tuple[str, ...] = ()

    def norms(self, gradients: list[Tensor]) -> Float[Tensor, " networks"]:
        """Norm of the gradient of every network."""
        parts = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
        return torch.linalg.vector_norm(torch.stack(parts), dim=0)


@dataclass(frozen=True)
class Runtime:
    """Where and how a run happens; nothing here changes the result on one machine."""

    seed: int = 0
    checkpoint: Path | None = None
    progress: bool | Literal["auto"] = "auto"
    description: str = "training"
    stop: threading.Event | None = None  # set by another thread to end the run
    ranks: Ranks = ALONE  # processes that train together
    record: bool = True  # steps of plain networks on an accelerator, to replay them

    def __post_init__(self) -> None:
        if self.progress != "auto" and not isinstance(self.progress, bool):
            raise ValueError(f"`progress` must be True, False or 'auto'; got {self.progress!r}. Choose one of these.")


def minimize(
    model: nn.Module,
    objective: Callable[[Any, Any], Tensor],
    data: Pairs,
    *,
    score: Callable[[], float | Tensor] | None,
    schedule: Schedule,
    runtime: Runtime,
    settings: dict[str, Any],
    population: Population | None = None,
) -> History:
    """Minimise objective(x, y) over batches of `data` with AdamW; keep the weights with the lowest `score()`.

    With a `population`, `score()` gives one value per network and each keeps its own best weights.

    Everything random is a function of (seed, step), so a resumed run repeats an uninterrupted one bit by bit
    on the same CPU. A gradient that is not finite counts as zero and sends its network back to the best weights at
    half the learning rate when next validated; so does a score that is not finite or has exploded. Other networks of a
    population go on undisturbed.

    On several ranks (`runtime.ranks`) all begin with the weights of the first, which alone writes checkpoints and shows
    progress; gradients are averaged, and the first rank's score decides for all.
    """
    # The caller may have turned gradients off, or autocast on, which keeps casts of weights and so of old ones.
    kind = next(model.parameters()).device.type
    # Two threads are no faster for small networks, and many times slower when other work shares the cores.
    small = sum(parameter.numel() for parameter in model.parameters()) < SMALL_NETWORK
    with one_thread(when=small), torch.enable_grad(), torch.autocast(kind, enabled=False, cache_enabled=False):
        return _minimize(model, objective, data, score, _Run(model, schedule, data, runtime, settings, population))


def _minimize(
    model: nn.Module,
    objective: Callable[[Any, Any], Tensor],
    data: Pairs,
    score: Callable[[], float | Tensor] | None,
    run: _Run,
) -> History:
    schedule, runtime = run.schedule, run.runtime
    run.resume()
    batches = data.batches(run.batch_size, runtime.seed, start=run.step)
    disable = None if runtime.progress == "auto" else not runtime.progress
    disable = True if runtime.ranks.rank > 0 else disable
    model.train()
    with tqdm(
        total=schedule.max_steps, initial=run.step, desc=runtime.description, disable=disable, leave=False
    ) as bar:
        while run.step < schedule.max_steps and not run.history.stopped_early:
            if runtime.stop is not None and runtime.stop.is_set():
                raise RuntimeError("Training was stopped, because the fit it belongs to has failed or was interrupted.")
            try:
                run.advance(objective, *next(batches))
            except torch.OutOfMemoryError as error:
                run.halve_batches(error)
                batches = data.batches(run.batch_size, runtime.seed, start=run.step)
                continue
            bar.update()
            if run.step % schedule.validate_every == 0 or run.step == schedule.max_steps:
                run.validate(score)
                bar.set_postfix(loss=f"{run.history.validation_loss[-1]:.4f}")
                run.save()
    if not any(math.isfinite(value) for value in run.history.validation_loss):
        raise ValueError(
            f"The loss was never finite while training the {runtime.description}. "
            "Look for NaN or huge values in the inputs, or lower `learning_rate`."
        )
    model.load_state_dict(run.best)
    model.eval()
    return run.history


class _Run:
    """State of one minimisation: weights, optimiser, best weights, history."""

    def __init__(
        self,
        model: nn.Module,
        schedule: Schedule,
        data: Pairs,
        runtime: Runtime,
        settings: dict[str, Any],
        population: Population | None,
    ) -> None:
        self.model, self.schedule, self.runtime, self.population = model, schedule, runtime, population
        runtime.ranks.agree(model.state_dict().values())
        device = next(model.parameters()).device
        records = runtime.record and runtime.ranks.size == 1 and is_recordable(model)
        decay = schedule.weight_decay if population is None else 0.0  # a population decays by itself
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=schedule.learning_rate, weight_decay=decay, fused=True, capturable=records
        )
        size = 1 if population is None else len(population.weight_decay)
        self.step, self.device = 0, device
        self._slow_down(torch.ones(size, dtype=torch.float64))
        # What steps write stays in place and on the device: a step that asks for it would wait, a recorded one cannot.
        # The optimiser reads its rate as float32, whatever torch's default type is.
        self._rate: float | Tensor = torch.zeros((), dtype=torch.float32, device=device) if records else 0.0
        self._failed = torch.zeros(size, dtype=torch.bool, device=device)  # networks with a gradient that was no number
        self._loss_sum, self._loss_count = torch.zeros((), dtype=torch.float64, device=device), 0
        self._recorded = RecordedStep(device) if records else None
        self.batch_size = schedule.batch_size
        self.best_score = torch.full((size,), math.inf, dtype=torch.float64)
        self.best = _copy_state(model)
        self.history = History()
        self.identity = self._identity(data, settings) if runtime.checkpoint else ""
        self._seconds_before, self._started = 0.0, time.perf_counter()

    @property
    def _path(self) -> Path | None:
        stage = self.runtime.checkpoint
        return None if stage is None else stage.with_name(f"{stage.name}.safetensors")

    def _identity(self, data: Pairs, settings: dict[str, Any]) -> str:
        """Checksum of everything that decides the result: settings, start weights, data."""
        digest = hashlib.sha256(
            json.dumps([settings, dataclasses.asdict(self.schedule), self.runtime.seed], sort_keys=True).encode()
        )
        digest.update(data.fingerprint().encode())
        for name, tensor in self.best.items():
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def advance(self, objective: Callable[[Any, Any], Tensor], x: Any, y: Any) -> None:
        """One step on a batch."""
        self._set_rate()
        if self._recorded is None:
            self.update(objective(x, y))
        else:
            self._recorded(lambda x, y: self.update(objective(x, y)), x, y)
        self._loss_count += 1
        self.step += 1

    def _set_rate(self) -> None:
        rate = self.schedule.rate(self.step)
        if self.population is None:
            rate *= float(self.slowdown)
        if isinstance(self._rate, Tensor):
            self._rate.fill_(rate)
        else:
            self._rate = rate
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate

    def update(self, loss: Tensor) -> None:
        """One AdamW step with clipped gradients; nothing here waits for the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.runtime.ranks.average_gradients(self.model.parameters())
        self._clip_gradients()
        with self._slowed():
            self.optimizer.step()
            self._decay()
        self._loss_sum += loss.detach()

    def halve_batches(self, error: torch.OutOfMemoryError) -> None:
        """Go on with smaller batches where the device has no memory for these.

        Several ranks do not: the others wait for this one's part of the batch, and end when this one does.
        """
        ranks = self.runtime.ranks
        if ranks.size > 1:
            raise torch.OutOfMemoryError(
                f"Rank {ranks.rank} of {ranks.size} ran out of memory while training the {self.runtime.description} "
                f"with its part of batches of {self.batch_size} rows; ranks cannot change that by themselves. Start "
                "all again with a smaller `batch_size`, or more of them."
            ) from error
        if self.batch_size < 2 * SMALLEST_BATCH:
            raise error
        self.batch_size //= 2
        self.optimizer.zero_grad(set_to_none=True)
        self._forget_recording()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(
            f"the device ran out of memory while training the {self.runtime.description}; batches of {self.batch_size} "
            "rows from here on. Set a smaller `batch_size` to avoid it.",
            stacklevel=2,
        )

    def _forget_recording(self) -> None:
        """What is recorded no longer holds: the memory of the optimiser moves, or networks are slowed down."""
        if self._recorded is not None:
            self._recorded.forget()

    def _clip_gradients(self) -> None:
        """Clip the gradient of every network by itself; one that is no number counts as zero and is remembered."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        if self.population is None:
            norms = nn.utils.clip_grad_norm_(self.model.parameters(), self.schedule.gradient_clip).reshape(1)
        else:
            norms = self.population.norms(gradients)
            factor = (self.schedule.gradient_clip / norms).clamp(max=1)
            for gradient in gradients:
                gradient.mul_(_along_networks(factor, gradient))
        failed = ~norms.isfinite()
        if self.device.type == "cpu" and not bool(failed.any()):
            return  # elsewhere to ask would be to wait
        self._failed |= failed
        for gradient in gradients:
            gradient.masked_fill_(failed[0] if self.population is None else _along_networks(failed, gradient), 0.0)

    def _slow_down(self, slowdown: Tensor) -> None:
        """Share of the step size that each network takes; also kept on the device, if any is not one."""
        self.slowdown = slowdown
        self._shares = None if bool((slowdown == 1).all()) else slowdown.to(self.device)

    @contextmanager
    def _slowed(self) -> Iterator[None]:
        """Let networks of a population that have recovered make only a part of the step inside the block."""
        if self.population is None or self._shares is None:
            yield
            return
        before = [parameter.detach().clone() for parameter in self.model.parameters()]
        yield
        with torch.no_grad():
            for parameter, old in zip(self.model.parameters(), before, strict=True):
                share = _along_networks(self._shares.to(parameter), parameter)
                parameter.copy_(torch.where(share == 1, parameter, old + share * (parameter - old)))

    @torch.no_grad()
    def _decay(self) -> None:
        if self.population is None:
            return
        factor = (1 - self._rate * self.population.weight_decay).clamp(min=0)
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and name not in self.population.exempt:
                parameter.mul_(_along_networks(factor, parameter))

    def validate(self, score: Callable[[], float | Tensor] | None) -> None:
        """Score the weights, keep them if best, decide about stopping."""
        train_loss = float(self._loss_sum) / self._loss_count
        self._loss_sum.zero_()
        self._loss_count = 0
        values = torch.as_tensor(train_loss if score is None else score(), dtype=torch.float64).reshape(-1).cpu()
        # Rounding may differ between ranks; what they decide must not.
        train_loss, values = self.runtime.ranks.from_first(lambda: (train_loss, values))
        value = float(values[values.isfinite()].mean())  # nan if there is none
        failed = self._failed.clone().cpu()  # itself is cleared below
        if score is not None or self.population is None:  # the common loss of a population does not tell whose it was
            failed = failed | ~values.isfinite()
        better = ~failed if score is None else values.isfinite()
        if score is not None:  # else the last weights count: a training loss that falls proves nothing
            better &= values < self.best_score
            failed = failed | (values > self.best_score + EXPLOSION * self.best_score.abs().clamp(min=1))
        if self.population is None and not math.isfinite(train_loss):
            failed = torch.ones_like(failed)
        self._keep(better, values)  # before any way back: what a batch has spoiled the score may not show
        self._recover(failed)
        rate = self.schedule.rate(self.step - 1) * float(self.slowdown.mean())
        seconds = self._seconds_before + time.perf_counter() - self._started
        self.history.append(self.step, train_loss, value, rate, seconds)
        waited = (self.step - self.history.best_step) / self.schedule.validate_every
        if score is not None and self.schedule.early_stopping and waited >= self.schedule.patience:
            self.history.stopped_early = True

    def _keep(self, better: Tensor, values: Tensor) -> None:
        """Take the present weights, or those of the networks that are better now, as the best."""
        if not bool(better.any()):
            return
        self.best_score = torch.where(better, values, self.best_score)
        self.history.best_step = self.step
        if bool(better.all()):
            self.best = _copy_state(self.model)
            return
        for name, value in self.model.named_parameters():
            self.best[name] = torch.where(
                _along_networks(better.to(value.device), value), value.detach(), self.best[name]
            )

    @torch.no_grad()
    def _recover(self, failed: Tensor) -> None:
        """Take networks that failed back to their best weights, at half the step size and without momentum."""
        self._failed.zero_()
        if not bool(failed.any()):
            return
        self._forget_recording()
        self._slow_down(torch.where(failed, self.slowdown / 2, self.slowdown))
        self.history.recoveries += int(failed.sum())
        if self.population is None:
            self.model.load_state_dict(self.best)
            self.optimizer.state.clear()
            return
        for name, parameter in self.model.named_parameters():
            back = _along_networks(failed.to(parameter.device), parameter)
            parameter.copy_(torch.where(back, self.best[name], parameter))
            # Mean squares stay: the count of steps is common to all, and beside it fresh ones would be far too small.
            momentum = self.optimizer.state.get(parameter, {}).get("exp_avg")
            if momentum is not None:
                momentum.masked_fill_(back, 0.0)

    # ---------------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Write the whole state to one file, atomically."""
        path = self._path
        if path is None or self.runtime.ranks.rank > 0:
            return
        tensors = {f"model.{k}": v for k, v in _copy_state(self.model).items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items()}
        facts = {
            "format": CHECKPOINT_FORMAT,
            "identity": self.identity,
            "step": self.step,
            "slowdown": self.slowdown.tolist(),
            "batch_size": self.batch_size,
            "best_score": self.best_score.tolist(),
            "history": dataclasses.asdict(self.history),
        }
        contiguous = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
        try:
            with replacing(path) as partial:
                save_file(contiguous, partial, metadata={"ncprob": json.dumps(facts)})
        except (OSError, ValueError, SafetensorError) as error:
            raise OSError(
                f"`checkpoint_dir` could not be written at step {self.step} ({path.name}): {error}. The checkpoint "
                "before is whole: make room or mend the directory, then fit again as before to go on from it."
            ) from error

    def _prepare(self, path: Path) -> None:
        """Find out before any work is done whether checkpoints can be written; clear what a killed run has left."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            check_writable(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"`checkpoint_dir` cannot be written: {error}. Choose another directory.") from error
        clear_remains(path)

    def resume(self) -> None:
        """Take up the checkpoint, if there is one; the first rank reads it for all."""
        path = self._path
        if path is None:
            return
        found = self.runtime.ranks.from_first(lambda: self._found(path))
        if found is not None:
            self._restore(*found)

    def _found(self, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        self._prepare(path)
        return self._read(path) if path.exists() else None

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads((file.metadata() or {})["ncprob"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
        except Exception as error:
            raise ValueError(
                f"`checkpoint_dir` holds a file that is no checkpoint of ours or is damaged: {path.name}. "
                "Remove it or choose another directory."
            ) from error
        if facts.get("format") != CHECKPOINT_FORMAT:
            raise ValueError(
                f"`checkpoint_dir` holds a checkpoint written by another version of ncprob ({path.name}), which this "
                "one cannot go on from. Remove it or choose another directory."
            )
        if facts.get("identity") != self.identity:
            raise ValueError(
                f"`checkpoint_dir` holds the checkpoint of another fit ({path.name}): settings, data or "
                "starting weights differ. "
                "Remove it or choose another directory."
            )
        return facts, tensors

    def _restore(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.step = facts["step"]
        self._slow_down(torch.tensor(facts["slowdown"], dtype=torch.float64))
        self.batch_size = facts["batch_size"]
        self.best_score = torch.tensor(facts["best_score"], dtype=torch.float64)
        self.history = History(**facts["history"])
        self._seconds_before = self.history.seconds[-1] if self.history.seconds else 0.0
        self.model.load_state_dict(_with_prefix(tensors, "model."))
        self.best = _copy_state(self.model)
        self.best = {key: value.to(self.best[key].device) for key, value in _with_prefix(tensors, "best.").items()}
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _with_prefix(tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": state})


def _along_networks(factor: Tensor, like: Tensor) -> Tensor:
    """One number per network, shaped to scale a parameter whose first axis counts the networks."""
    return factor.reshape(-1, *(1,) * (like.ndim - 1))


def _copy_state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
