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

from ncprob.coordinates import (
    COMPONENTS,
    FOLDS,
    SCORE_ROWS,
    Head,
    MixtureCoordinates,
    SideBySide,
    Variant,
    fold_numbers,
    variants,
)
from ncprob.dependence import HeldOutFeatures
from ncprob.diagnostics import HeldOutAnswers
from ncprob.distribution import ConditionalDistribution
from ncprob.encoders import MLP
from ncprob.guarantees import OperatorTerms, estimate_terms
from ncprob.model import FittedModel, by_rows, right_features
from ncprob.operator import SpectralOperator
from ncprob.optimization import History, Runtime, Schedule
from ncprob.pairs import TensorPairs, select, systematic_sample
from ncprob.preprocessing import NormalScores, OneHot, SoftScale, robust_center_and_scale
from ncprob.smoothing import smooth_atoms
from ncprob.support import Support
from ncprob.training import train_operator
from ncprob.trees import TreeInputs, worth_growing
from ncprob.truncation import choose_truncation

LOOSER_CLIP = 10_000  # rows beyond which gradients of the mixture are clipped in proportion more loosely
MINIMUM_ROWS = 16  # below, no network is trained: the marginal law is the answer
AUTO_WIDTH = 64
AUTO_GATE, AUTO_GATE_INPUTS = 0.03, 4
AUTO_GATE_TOTAL = 32  # inputs beyond which the penalties of all gates together grow no further
DEFAULT_RIDGE = 1e-3  # without held-out rows to choose it on
DISCRETE_LEVELS = 64  # targets with at most so many distinct values keep them: raw coordinates
POINT_MASS = 0.05  # and so do targets with so large a share of equal values
DOUBT = 2.0  # standard errors by which raw coordinates, or an operator beside the mixture, must be better to be taken

YInputs = NormalScores | OneHot


@dataclass(frozen=True)
class Sample:
    """Rows of encoded inputs x and targets y (n, q), float64, with optional weights.

    `fold` numbers rows that coordinates are learned on, so that each can be answered by networks that have not seen it.
    """

    x: Any
    y: Tensor
    weights: Tensor | None = None
    fold: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: Tensor | slice) -> Sample:
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[index]
        return Sample(select(self.x, index), self.y[index], weights, None if self.fold is None else self.fold[index])


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
    tree_inputs: bool | None
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
        if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] < AUTO_GATE_INPUTS:
            return 0.0
        return AUTO_GATE * min(1.0, AUTO_GATE_TOTAL / x.shape[1])

    def grows_trees(self, x: Any) -> bool:
        """Whether predictions of trees join the inputs; raw coordinates alone are the paper's, without."""
        if not isinstance(x, Tensor) or x.ndim != 2 or self.x_encoder is not None:
            return False
        if self.tree_inputs is None:
            return self.coordinates != "raw" and worth_growing(x)
        return self.tree_inputs

    def runtime(self, stage: str) -> Runtime:
        """Seed, checkpoint and progress of one stage."""
        path = None if self.checkpoint_dir is None else self.checkpoint_dir / stage
        return Runtime(seed=self.seed, checkpoint=path, progress=self.progress, description=stage, stop=self.stop)


@dataclass(frozen=True)
class Rows:
    """What a candidate is fitted with: rows to train and to judge on, and all rows that coordinates are learned on."""

    training: Sample
    held_out: Sample | None
    learning: Sample
    trees: TreeInputs | None
    integer: Tensor | None = None

    def without_trees(self) -> Rows:
        """The same rows with their own inputs only."""
        if self.trees is None:
            return self
        n_plain = self.learning.x.shape[1] - self.trees.n_columns

        def plain(sample: Sample) -> Sample:
            return replace(sample, x=sample.x[:, :n_plain])

        held_out = None if self.held_out is None else plain(self.held_out)
        return Rows(plain(self.training), held_out, plain(self.learning), None, self.integer)


@dataclass(frozen=True)
class Candidate:
    """A trained model with what it needs to be completed with more rows, and what it says of held-out rows."""

    model: FittedModel
    rows: Rows
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
    n = len(training)
    learning = _joined(training, held_out) if join and held_out is not None else training
    learning = replace(learning, fold=fold_numbers(len(learning), learning.y.device))
    trees, learning = _grow_trees(learning, recipe, n_judges=len(learning) - n)
    training = learning.rows(slice(0, n))
    if held_out is not None:
        held_out = learning.rows(slice(n, None)) if join else _with_trees(held_out, trees)
    judges = _by_weight(held_out, recipe.seed)
    rows = Rows(training, judges, learning, trees, _integer_components(learning.y))
    candidates = _fit_candidates(_plans(rows, recipe), recipe)
    if judges is None:
        return candidates[0]
    best = _choose(candidates, recipe)
    best = replace(best, terms=_operator_terms(best), answers=_held_out_answers(best))
    return _complete(best, recipe) if join else best


def _plans(rows: Rows, recipe: Recipe) -> list[tuple[str, str, Rows]]:
    """Name, coordinates and rows of every candidate, the preferred one first.

    Mixtures weigh the tree inputs themselves; an operator in raw coordinates is tried with and without them.
    """
    if recipe.coordinates != "auto":
        return [(recipe.coordinates, recipe.coordinates, rows)]
    plain = ("raw", "raw", rows.without_trees())
    if not _is_discrete(rows.training.y):
        return [("residual", "residual", rows), plain]
    return [plain] if rows.trees is None else [("raw-trees", "raw", rows), plain]


def _choose(candidates: list[Candidate], recipe: Recipe) -> Candidate:
    """The candidate with the lowest held-out CRPS; a richer one must be better beyond doubt.

    First come residual coordinates, the safer choice; an operator that adds nothing to their mixture is left out.
    """
    if candidates[0].model.residual is None:
        return (
            candidates[0]
            if len(candidates) == 1
            else min(candidates, key=lambda candidate: float(held_out_crps(candidate).mean()))
        )
    best = candidates[0]
    scores = held_out_crps(best)
    # Of several components the operator alone knows how they depend on each other given x; their CRPS do not show it,
    # and the held-out loss that chose its rank does.
    if best.base.shape[1] == 1 and recipe.rank is None and any(best.model.ranks):
        alone = replace(best, model=_without_operator(best.model))
        scores_alone = held_out_crps(alone)
        if not _clearly_lower(scores, scores_alone):
            best, scores = alone, scores_alone
    for candidate in candidates[1:]:
        others = held_out_crps(candidate)
        if _clearly_lower(others, scores):
            best, scores = candidate, others
    return best


def _clearly_lower(scores: Tensor, than: Tensor) -> bool:
    difference = than - scores
    return bool(difference.mean() > DOUBT * difference.std() / len(difference) ** 0.5)


def _without_operator(model: FittedModel) -> FittedModel:
    """The same coordinates and atoms, whatever x is."""
    support = model.support
    return replace(
        model,
        ranks=[0] * len(model.ranks),
        support=Support(support.values, support.features[:, :0], support.weights),
    )


def _grow_trees(sample: Sample, recipe: Recipe, n_judges: int = 0) -> tuple[TreeInputs | None, Sample]:
    """Trees, and the sample with their predictions among its inputs, each row by trees that have not seen it."""
    if not recipe.grows_trees(sample.x):
        return None, sample
    y = SoftScale.fit(sample.y)(sample.y)
    trees, columns = TreeInputs.fit(sample.x, y, sample.weights, recipe.seed, n_judges)
    return trees, replace(sample, x=torch.cat([sample.x, columns], dim=1))


def _with_trees(sample: Sample, trees: TreeInputs | None) -> Sample:
    return sample if trees is None else replace(sample, x=torch.cat([sample.x, trees(sample.x)], dim=1))


def _fit_candidates(plans: list[tuple[str, str, Rows]], recipe: Recipe) -> list[Candidate]:
    """Fit every candidate; side by side on a CPU with several cores, since one small network cannot use two."""
    if len(plans) == 1 or recipe.device.type != "cpu" or torch.get_num_threads() == 1:
        return [_fit_candidate(*plan, recipe) for plan in plans]
    stop = threading.Event()
    together = replace(recipe, stop=stop)
    with ThreadPoolExecutor(len(plans)) as pool:
        running = [pool.submit(_fit_candidate, *plan, together) for plan in plans]
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
    return replace(sample.rows(rows), weights=None)


def _judged(candidate: Candidate) -> tuple[Sample, ConditionalDistribution]:
    """Held-out rows and what the model says of them before they become atoms themselves."""
    sample = candidate.rows.held_out
    assert sample is not None
    return sample, candidate.model.laws(sample.x, len(sample), sample.fold)


def _held_out_answers(candidate: Candidate) -> HeldOutAnswers:
    """What diagnostics need of the held-out rows."""
    sample, law = _judged(candidate)
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


def _operator_terms(candidate: Candidate) -> OperatorTerms:
    """Terms of the guarantees, read on held-out rows; the worst member of an ensemble."""
    model, training = candidate.model, candidate.rows.training
    pairs = TensorPairs(training.x, candidate.y_inputs(candidate.base))
    members = []
    for operator, rank, held in zip(model.operators, model.ranks, candidate.held_out, strict=True):
        seen = _features(operator, rank, pairs)
        values = operator.singular_values.detach().double().cpu().numpy()
        if rank == 0:
            # The marginal law is an operator with one singular value of zero: nothing to learn, no error in it.
            members.append(
                OperatorTerms(len(training), 1, float(values.max()), 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)
            )
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
        return len(values) <= min(DISCRETE_LEVELS, len(column) // 4) or bool(
            counts.max() >= max(5, POINT_MASS * len(column))
        )

    return any(blurred(column) for column in y.mT)


def held_out_crps(candidate: Candidate) -> Tensor:
    """CRPS of every held-out row, averaged over components in units of their robust marginal scale."""
    sample, law = _judged(candidate)
    _, scale = robust_center_and_scale(sample.y)
    crps = law.crps(sample.y)
    return (crps.reshape(len(sample), -1) / scale).mean(dim=1)


def marginal_model(y: Tensor, weights: Tensor | None) -> FittedModel:
    """The model that knows nothing of X: every conditional law is the marginal one."""
    return FittedModel([], [], Support.compressed(y, torch.zeros(len(y), 1, device=y.device), weights))


def _fit_candidate(name: str, coordinates: str, rows: Rows, recipe: Recipe) -> Candidate:
    training, held_out = rows.training, rows.held_out
    residual = _fit_coordinates(rows, recipe) if coordinates == "residual" else None
    base = _base(residual, training, rows.integer, recipe.seed)
    held_base = None if held_out is None else _base(residual, held_out, rows.integer, recipe.seed)
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
    support = _support(operators, ranks, y_inputs, base, training.weights, smooth=residual is not None)
    model = FittedModel(operators, ranks, support, residual, rows.integer, rows.trees)
    seen = [] if held_pairs is None else [_features(op, k, held_pairs) for op, k in zip(operators, ranks, strict=True)]
    return Candidate(model, rows, history, base, y_inputs, ridges, sum(losses) / len(losses), seen)


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


def _complete(candidate: Candidate, recipe: Recipe) -> Candidate:
    """Statistics and atoms of training and held-out rows together."""
    model, sample = candidate.model, candidate.rows.learning
    base = _base(model.residual, sample, candidate.rows.integer, recipe.seed)
    pairs = TensorPairs(sample.x, candidate.y_inputs(base), sample.weights)
    for operator, ridge in zip(model.operators, candidate.ridges, strict=True):
        if recipe.postprocessing == "whitening":
            operator.whiten(operator.moments(pairs), ridge=ridge)
        else:
            operator.postprocess(pairs, kind=recipe.postprocessing)  # type: ignore[arg-type]
    smooth = model.residual is not None
    support = _support(model.operators, model.ranks, candidate.y_inputs, base, sample.weights, smooth)
    return replace(candidate, model=replace(model, support=support), base=base)


def _support(
    operators: list[SpectralOperator],
    ranks: list[int],
    y_inputs: YInputs,
    base: Tensor,
    weights: Tensor | None,
    smooth: bool,
) -> Support:
    """Atoms of the rows, or of a smooth law in their place if scores of scalar Y allow it, with right features."""
    smoothed = smooth_atoms(base[:, 0], weights) if smooth and base.shape[1] == 1 else None
    if smoothed is None:
        return Support.compressed(base, right_features(operators, ranks, y_inputs(base), len(base)), weights)
    atoms, mass = smoothed
    return Support(atoms, right_features(operators, ranks, y_inputs(atoms[:, None]), len(atoms)), mass)


def _base(coordinates: MixtureCoordinates | None, sample: Sample, integer: Tensor | None, seed: int) -> Tensor:
    """y in the coordinates of the operator; rows they were learned on are answered out of their fold."""
    if coordinates is None:
        return sample.y
    y, parts = _dequantized(sample.y, integer, seed), []
    for start in range(0, len(sample), SCORE_ROWS):  # a map is much larger than the one number that is kept of it
        part = slice(start, start + SCORE_ROWS)
        fold = None if sample.fold is None else sample.fold[part]
        parts.append(coordinates.transport(select(sample.x, part), fold).to_base(y[part, :, None])[:, :, 0])
    return torch.cat(parts)


def _dequantized(y: Tensor, integer: Tensor | None, seed: int) -> Tensor:
    """Integer components spread evenly over ±½, since integers have no density; answers are rounded back."""
    if integer is None:
        return y
    noise = torch.rand(y.shape, generator=torch.Generator().manual_seed(seed), dtype=y.dtype).to(y.device) - 0.5
    return torch.where(integer, y + noise, y)


def _fit_coordinates(rows: Rows, recipe: Recipe) -> MixtureCoordinates:
    sample, schedule = rows.learning, recipe.schedule
    n, q = sample.y.shape
    decay, gate = schedule.weight_decay, recipe.gate_strength(rows.learning.x)
    batch_size = min(schedule.batch_size, max(64, n // 32))
    with seeded(recipe.seed):
        if recipe.x_encoder is None:
            n_plain = None if rows.trees is None else sample.x.shape[1] - rows.trees.n_columns
            ways = variants(decay, gate, n, sample.x.shape[1], n_plain)
            halves = [max(16, size // 2) for size in recipe.hidden_sizes]  # many networks, averaged, may be small
            model = MixtureCoordinates.for_table(ways, q, sample.x.shape[1], halves)
        else:
            encoders = [copy.deepcopy(recipe.x_encoder) for _ in range(FOLDS)]
            heads = [Head(encoder, nn.LazyLinear(3 * COMPONENTS * q)) for encoder in encoders]
            model = MixtureCoordinates([Variant(3 * decay, gate)], q, SideBySide(heads))
        model = model.to(recipe.device)
        model.parameters_at(select(sample.x, slice(0, 2)))  # lazy layers take their shape
    model.fit(
        sample.x,
        _dequantized(sample.y, rows.integer, recipe.seed),
        sample.weights,
        # Many small networks: smaller batches and a higher rate than one operator needs, the higher the larger these.
        # Gradients are large where laws are narrow: clipping them steadies few rows and, with many, biases such laws.
        schedule=replace(
            schedule,
            learning_rate=1.6 * (batch_size / 64) ** 0.25 * schedule.learning_rate,
            batch_size=batch_size,
            gradient_clip=max(1.0, n / LOOSER_CLIP) * schedule.gradient_clip,
        ),
        runtime=recipe.runtime("mixture"),
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


def _joined(first: Sample, second: Sample) -> Sample:
    """Rows of both; weights only where both have them."""
    weights = None
    if first.weights is not None and second.weights is not None:
        weights = torch.cat([first.weights, second.weights])
    return Sample(_concatenate(first.x, second.x), torch.cat([first.y, second.y]), weights)


def _concatenate(first: Any, second: Any) -> Any:
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    if isinstance(first, dict):
        return {key: _concatenate(value, second[key]) for key, value in first.items()}
    return type(first)(_concatenate(a, b) for a, b in zip(first, second, strict=True))
