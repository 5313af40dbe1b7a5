"""How a model is fitted: candidates in raw and residual coordinates, compared on held-out rows."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ncprob.coordinates import LocationScale, out_of_fold
from ncprob.dependence import HeldOutFeatures
from ncprob.diagnostics import HeldOutAnswers
from ncprob.distribution import ConditionalDistribution
from ncprob.encoders import MLP
from ncprob.guarantees import OperatorTerms, estimate_terms
from ncprob.model import FittedModel, by_rows, right_features
from ncprob.operator import SpectralOperator
from ncprob.optimization import History, Runtime, Schedule
from ncprob.pairs import TensorPairs, select, systematic_sample
from ncprob.preprocessing import NormalScores, OneHot, robust_center_and_scale
from ncprob.support import Support
from ncprob.training import train_operator
from ncprob.truncation import choose_truncation

MINIMUM_ROWS = 16  # below, no network is trained: the marginal law is the answer
AUTO_WIDTH = 64
AUTO_GATE, AUTO_GATE_INPUTS = 0.03, 4
DEFAULT_RIDGE = 1e-3  # without held-out rows to choose it on
DISCRETE_LEVELS = 64  # targets with at most so many distinct values keep them: raw coordinates
POINT_MASS = 0.05  # and so do targets with so large a share of equal values

YInputs = NormalScores | OneHot


@dataclass(frozen=True)
class Sample:
    """Rows of encoded inputs x and targets y (n, q), float64, with optional weights."""

    x: Any
    y: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Recipe:
    """Settings of a fit, already validated; see `ncprob.NCPRegressor` for their meaning."""

    rank: int | None
    hidden_sizes: Sequence[int]
    coordinates: str
    loss: str
    gamma: float
    postprocessing: str
    ensemble_size: int
    input_gate: float | None
    schedule: Schedule
    device: torch.device
    seed: int
    n_classes: int | None = None
    x_encoder: nn.Module | None = None
    y_encoder: nn.Module | None = None
    checkpoint_dir: Path | None = None
    progress: bool | Literal["auto"] = "auto"
    stop: threading.Event | None = None

    def gate_strength(self, x: Any) -> float:
        """Strength of the input gates; by default only where there are enough inputs for some to be useless."""
        if self.input_gate is not None:
            return self.input_gate
        return AUTO_GATE if isinstance(x, Tensor) and x.ndim == 2 and x.shape[1] >= AUTO_GATE_INPUTS else 0.0

    def runtime(self, stage: str) -> Runtime:
        """Seed, checkpoint and progress of one stage."""
        path = None if self.checkpoint_dir is None else self.checkpoint_dir / stage
        return Runtime(seed=self.seed, checkpoint=path, progress=self.progress, description=stage, stop=self.stop)


@dataclass(frozen=True)
class Candidate:
    """A trained model with what it needs to be completed with more rows, and what it says of held-out rows."""

    model: FittedModel
    history: History
    base: Tensor
    y_inputs: YInputs
    ridges: list[float]
    held_out_loss: float
    held_out: list[HeldOutFeatures]
    terms: OperatorTerms | None = None
    answers: HeldOutAnswers | None = None


def fit_model(training: Sample, held_out: Sample | None, recipe: Recipe, *, join: bool) -> Candidate:
    """Fit all candidates, keep the one with the lowest held-out CRPS, and complete it.

    With `join` the held-out rows, once they have chosen, also serve as atoms and in the statistics of whitening.
    """
    _check_encoders(training, recipe)
    names = [recipe.coordinates]
    if recipe.coordinates == "auto":
        names = ["raw"] if _is_discrete(training.y) else ["raw", "residual"]
    judges = _by_weight(held_out, recipe.seed)
    candidates = _fit_candidates(names, training, judges, recipe)
    if judges is None or held_out is None:
        return candidates[0]
    best = candidates[0]
    if len(candidates) > 1:
        best = min(candidates, key=lambda candidate: held_out_crps(candidate.model, judges))
    best = replace(best, terms=_operator_terms(best, training), answers=_held_out_answers(best.model, judges))
    return _complete(best, training, held_out, recipe) if join else best


def _fit_candidates(names: list[str], training: Sample, held_out: Sample | None, recipe: Recipe) -> list[Candidate]:
    """Fit every candidate; side by side on a CPU with several cores, since one small network cannot use two."""
    if len(names) == 1 or recipe.device.type != "cpu" or torch.get_num_threads() == 1:
        return [_fit_candidate(name, training, held_out, recipe) for name in names]
    stop = threading.Event()
    together = replace(recipe, stop=stop)
    with ThreadPoolExecutor(len(names)) as pool:
        running = [pool.submit(_fit_candidate, name, training, held_out, together) for name in names]
        try:
            return [candidate.result() for candidate in running]
        except BaseException:
            stop.set()
            raise


def _check_encoders(training: Sample, recipe: Recipe) -> None:
    """Encoders of the user must give as many features as the rank: found out before any work is done."""
    if recipe.x_encoder is not None or recipe.y_encoder is not None:
        y_inputs = NormalScores.fit(training.y) if recipe.n_classes is None else OneHot(recipe.n_classes)
        few = TensorPairs(select(training.x, slice(0, 4)), y_inputs(training.y[:4]))
        with torch.no_grad():
            _new_operator(few, recipe.rank or AUTO_WIDTH, recipe, recipe.seed).encode(few.x, few.y)


def _by_weight(sample: Sample | None, seed: int) -> Sample | None:
    """Rows drawn in proportion to their weights, to judge without weights; none if no row has any."""
    if sample is None or sample.weights is None:
        return sample
    if not bool(sample.weights.sum() > 0):
        return None
    rows = systematic_sample(sample.weights, torch.Generator().manual_seed(seed)).to(sample.y.device)
    return Sample(select(sample.x, rows), sample.y[rows])


def _held_out_answers(model: FittedModel, sample: Sample) -> HeldOutAnswers:
    """What the model says of held-out rows before they become atoms themselves."""
    law = model.distribution(sample.x, len(sample))
    m = len(sample)
    low, high = law.interval(0.9).reshape(m, -1, 2).unbind(dim=-1)
    inputs = sample.x if isinstance(sample.x, Tensor) else torch.zeros(m, 1)
    return HeldOutAnswers(
        inputs=inputs.reshape(m, -1).double().cpu().numpy(),
        pit=_randomized_pit(law, sample.y).reshape(m, -1).cpu().numpy(),
        covered=((sample.y >= low) & (sample.y <= high)).cpu().numpy(),
        repair=law.repair_amounts().cpu().numpy(),
    )


def _randomized_pit(law: ConditionalDistribution, y: Tensor) -> Tensor:
    """F(y−) + U·(F(y) − F(y−)), U uniform: without U the PIT of a law with steps would not be uniform."""
    upto, before = law.pit(y), law.pit(torch.nextafter(y, y.new_tensor(-torch.inf)))
    uniform = torch.rand(upto.shape, generator=torch.Generator().manual_seed(0), dtype=upto.dtype).to(upto.device)
    return before + uniform * (upto - before)


def _operator_terms(candidate: Candidate, training: Sample) -> OperatorTerms:
    """Terms of the guarantees, read on held-out rows; the worst member of an ensemble."""
    model = candidate.model
    pairs = TensorPairs(training.x, candidate.y_inputs(candidate.base))
    members = []
    for operator, rank, held in zip(model.operators, model.ranks, candidate.held_out, strict=True):
        seen = _features(operator, rank, pairs)
        values = operator.singular_values.detach().double().cpu().numpy()
        if (
            rank == 0
        ):  # the marginal law is an operator with one singular value of zero: nothing to learn, no error in it
            members.append(OperatorTerms(len(training), 1, float(values.max()), 0, 0, 0, 0, 0, 1, 1, 0, 0))
            continue
        members.append(
            estimate_terms(
                held.left.cpu().numpy(),
                held.right.cpu().numpy(),
                values[:rank],
                n_train=len(training),
                sigma_next=float(values[rank:].max() if rank < len(values) else values.min()),
                training=(seen.left.cpu().numpy(), seen.right.cpu().numpy()),
            )
        )
    return OperatorTerms.worst(members)


def _integer_components(y: Tensor) -> Tensor | None:
    """Mask of the components that take integer values only, if any does."""
    integer = (y == y.round()).all(dim=0)
    return integer if bool(integer.any()) else None


def _is_discrete(y: Tensor) -> bool:
    """Whether any component takes few distinct values or has a point mass; residual coordinates would blur them."""

    def blurred(column: Tensor) -> bool:
        values, counts = column.unique(return_counts=True)
        return len(values) <= min(DISCRETE_LEVELS, len(column) // 4) or bool(counts.max() >= POINT_MASS * len(column))

    return any(blurred(column) for column in y.mT)


def held_out_crps(model: FittedModel, sample: Sample) -> float:
    """Mean CRPS, components in units of their robust marginal scale."""
    _, scale = robust_center_and_scale(sample.y)
    crps = model.distribution(sample.x, len(sample)).crps(sample.y)
    return float((crps.reshape(len(sample), -1) / scale).mean())


def marginal_model(y: Tensor, weights: Tensor | None) -> FittedModel:
    """The model that knows nothing of X: every conditional law is the marginal one."""
    return FittedModel([], [], Support.compressed(y, torch.zeros(len(y), 1, device=y.device), weights))


def _fit_candidate(name: str, training: Sample, held_out: Sample | None, recipe: Recipe) -> Candidate:
    location_scale = _fit_location_scale(training, recipe) if name == "residual" else None
    base = _base(location_scale, training, seen=True)
    held_base = None if held_out is None else _base(location_scale, held_out, seen=False)
    y_inputs = NormalScores.fit(base) if recipe.n_classes is None else OneHot(recipe.n_classes)
    width = recipe.rank or min(AUTO_WIDTH, max(4, len(training) // 8))
    operators, ridges, ranks, losses = [], [], [], []
    history = History()
    pairs = TensorPairs(training.x, y_inputs(base), training.weights)
    held_pairs = (
        None
        if held_out is None or held_base is None
        else TensorPairs(held_out.x, y_inputs(held_base), held_out.weights)
    )
    for member in range(recipe.ensemble_size):
        operator = _new_operator(pairs, width, recipe, seed=recipe.seed + member)
        part = train_operator(
            operator,
            pairs,
            loss=recipe.loss,
            gamma=recipe.gamma,
            validation_pairs=held_pairs,
            gate_strength=recipe.gate_strength(training.x),
            schedule=recipe.schedule,
            runtime=replace(recipe.runtime(f"{name}-{member}"), seed=recipe.seed + member),
        )
        history = part if member == 0 else history
        ridge, rank, loss = _postprocess(operator, pairs, held_pairs, recipe)
        operators.append(operator)
        ridges.append(ridge)
        ranks.append(rank)
        losses.append(loss)
    features = right_features(operators, ranks, y_inputs(base), len(base))
    support = Support.compressed(base, features, training.weights)
    model = FittedModel(operators, ranks, support, location_scale, _integer_components(training.y))
    seen = [] if held_pairs is None else [_features(op, k, held_pairs) for op, k in zip(operators, ranks, strict=True)]
    return Candidate(model, history, base, y_inputs, ridges, sum(losses) / len(losses), seen)


@torch.no_grad()
def _features(operator: SpectralOperator, rank: int, pairs: TensorPairs) -> HeldOutFeatures:
    left = by_rows(operator.left_features, pairs.x, len(pairs))[:, :rank]
    right = by_rows(operator.right_features, pairs.y, len(pairs))[:, :rank]
    return HeldOutFeatures(left.double(), right.double(), operator.singular_values[:rank].detach().double())


def _postprocess(
    operator: SpectralOperator, pairs: TensorPairs, held_pairs: TensorPairs | None, recipe: Recipe
) -> tuple[float, int, float]:
    """Post-process with the training rows; ridge, rank and held-out loss."""
    if recipe.postprocessing != "whitening":
        operator.postprocess(pairs, kind=recipe.postprocessing)  # type: ignore[arg-type]
        return 0.0, operator.rank, float("nan")
    moments = operator.moments(pairs)
    if held_pairs is None:
        operator.whiten(moments, ridge=DEFAULT_RIDGE)
        return DEFAULT_RIDGE, operator.rank, float("nan")
    choice = choose_truncation(operator, moments, operator.moments(held_pairs), recipe.rank)
    operator.whiten(moments, ridge=choice.ridge)
    return choice.ridge, choice.rank, choice.loss


def _complete(candidate: Candidate, training: Sample, held_out: Sample, recipe: Recipe) -> Candidate:
    """Statistics and atoms of training and held-out rows together."""
    model = candidate.model
    base = torch.cat([candidate.base, _base(model.location_scale, held_out, seen=False)])
    x = _concatenate(training.x, held_out.x)
    weights = None
    if training.weights is not None and held_out.weights is not None:
        weights = torch.cat([training.weights, held_out.weights])
    inputs = candidate.y_inputs(base)
    pairs = TensorPairs(x, inputs, weights)
    for operator, ridge in zip(model.operators, candidate.ridges, strict=True):
        if recipe.postprocessing == "whitening":
            operator.whiten(operator.moments(pairs), ridge=ridge)
        else:
            operator.postprocess(pairs, kind=recipe.postprocessing)  # type: ignore[arg-type]
    features = right_features(model.operators, model.ranks, inputs, len(base))
    return replace(candidate, model=replace(model, support=Support.compressed(base, features, weights)), base=base)


def _base(location_scale: LocationScale | None, sample: Sample, seen: bool) -> Tensor:
    """y in the coordinates of the operator; rows the location network has `seen` are taken out of fold."""
    if location_scale is None:
        return sample.y
    if seen:
        location, scale = out_of_fold(location_scale, sample.x, len(sample), sample.y.device)
    else:
        location, scale = location_scale(sample.x)
    return (sample.y - location) / scale


def _fit_location_scale(training: Sample, recipe: Recipe) -> LocationScale:
    def network(n_outputs: int) -> nn.Module:
        if recipe.x_encoder is None:
            return MLP(
                training.x.shape[1], recipe.hidden_sizes, n_outputs, input_gate=recipe.gate_strength(training.x) > 0
            )
        return nn.Sequential(copy.deepcopy(recipe.x_encoder), nn.GELU(), nn.LazyLinear(n_outputs))

    with seeded(recipe.seed):
        model = LocationScale(network, training.y.shape[1]).to(recipe.device)
        model(select(training.x, slice(0, 2)))  # lazy layers take their shape
    model.fit(
        training.x,
        training.y,
        training.weights,
        # Quartiles are easier to learn than an operator.
        schedule=replace(recipe.schedule, max_steps=max(1, recipe.schedule.max_steps // 2)),
        runtime=recipe.runtime("location"),
        gate_strength=recipe.gate_strength(training.x),
    )
    return model


def _new_operator(pairs: TensorPairs, width: int, recipe: Recipe, seed: int) -> SpectralOperator:
    hidden, gate = recipe.hidden_sizes, recipe.gate_strength(pairs.x) > 0
    with seeded(seed):
        x_encoder, y_encoder = copy.deepcopy((recipe.x_encoder, recipe.y_encoder))  # at once: they may be one module
        if x_encoder is None:
            x_encoder = MLP(pairs.x.shape[1], hidden, width, input_gate=gate)
        if y_encoder is None:
            y_encoder = MLP(pairs.y.shape[1], hidden, width)
        return SpectralOperator(x_encoder, y_encoder, width).to(recipe.device)


_seeding = threading.Lock()  # torch has one global generator


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch inside a block and leave the global generator as it was."""
    with _seeding, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _concatenate(first: Any, second: Any) -> Any:
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    if isinstance(first, dict):
        return {key: _concatenate(value, second[key]) for key, value in first.items()}
    return type(first)(_concatenate(a, b) for a, b in zip(first, second, strict=True))
