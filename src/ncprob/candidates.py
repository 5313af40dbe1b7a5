"""A candidate: coordinates and operators trained on some rows, with the atoms that carry its answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ncprob.coordinates import FOLDS, MixtureCoordinates
from ncprob.dependence import HeldOutFeatures
from ncprob.diagnostics import HeldOutAnswers
from ncprob.guarantees import OperatorTerms
from ncprob.lattices import Lattice, spread
from ncprob.model import FittedModel, by_rows, right_features
from ncprob.networks import fit_coordinates, new_operator
from ncprob.operator import SpectralOperator
from ncprob.optimization import History
from ncprob.pairs import Pairs, TensorPairs
from ncprob.preprocessing import NormalScores, OneHot
from ncprob.recipe import AUTO_WIDTH, Recipe
from ncprob.samples import Rows, Sample
from ncprob.smoothing import smooth_atoms
from ncprob.support import Support
from ncprob.training import train_operator
from ncprob.truncation import choose_truncation

RESIDUAL_WIDTH = 16  # functions of each side to learn in residual coordinates of scalar Y
DEFAULT_RIDGE = 1e-3  # without held-out rows to choose it on

YInputs = NormalScores | OneHot


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


@dataclass(frozen=True)
class Plan:
    """What to fit: a name, which progress and checkpoints show, coordinates of Y, rows and settings."""

    name: str
    coordinates: str
    rows: Rows
    recipe: Recipe


def fit_candidates(plans: list[Plan]) -> list[Candidate]:
    """Fit every candidate; side by side on a CPU with several cores, since one small network cannot use two."""
    if len(plans) <= 1 or plans[0].recipe.device.type != "cpu" or torch.get_num_threads() == 1:
        return [_fit_candidate(plan) for plan in plans]
    stop = threading.Event()
    together = [replace(plan, recipe=replace(plan.recipe, stop=stop)) for plan in plans]
    with ThreadPoolExecutor(len(plans)) as pool:
        running = [pool.submit(_fit_candidate, plan) for plan in together]
        try:
            return [candidate.result() for candidate in running]
        except BaseException:
            stop.set()
            raise


def _fit_candidate(plan: Plan) -> Candidate:
    rows, recipe = plan.rows, plan.recipe
    training, held_out = rows.training, rows.held_out
    residual = fit_coordinates(rows, recipe) if plan.coordinates == "residual" else None
    base = _base(residual, training, rows.lattice, recipe.seed)
    held_base = None if held_out is None else _base(residual, held_out, rows.lattice, recipe.seed)
    y_inputs = NormalScores.fit(base) if recipe.n_classes is None else OneHot(recipe.n_classes)
    width = recipe.rank or min(AUTO_WIDTH, max(4, len(training) // 8))
    schedule = recipe.schedule
    if recipe.rank is None and residual is not None and base.shape[1] == 1:
        # Of one component the mixture leaves little to the operator, mostly nothing: that is soon seen.
        width, schedule = min(width, RESIDUAL_WIDTH), replace(schedule, patience=max(1, schedule.patience // 2))
    operators, ridges, ranks, losses = [], [], [], []
    history = History()
    pairs = TensorPairs(training.x, y_inputs(base), training.weights)
    held_pairs = (
        None
        if held_out is None or held_base is None
        else TensorPairs(held_out.x, y_inputs(held_base), held_out.weights)
    )
    trained_on: Pairs = pairs
    if rows.stream is not None:
        trained_on = rows.stream.pairs(lambda s: y_inputs(_base(residual, s, rows.lattice, recipe.seed)), FOLDS)
    for member in range(recipe.ensemble_size):
        operator = new_operator(pairs, width, recipe, seed=recipe.seed + member)
        part = train_operator(
            operator,
            trained_on,
            loss=recipe.loss,
            gamma=recipe.gamma,
            validation_pairs=held_pairs,
            gate_strength=recipe.gate_strength(training.x),
            schedule=schedule,
            runtime=replace(recipe.runtime(f"{plan.name}-{member}"), seed=recipe.seed + member),
        )
        history = part if member == 0 else history
        ridge, rank, loss = _postprocess(operator, pairs, held_pairs, recipe)
        operators.append(operator)
        ridges.append(ridge)
        ranks.append(rank)
        losses.append(loss)
    support = _support(operators, ranks, y_inputs, base, training.weights, smooth=residual is not None)
    lattice = None if residual is None else rows.lattice
    model = FittedModel(operators, ranks, support, residual, lattice, rows.trees)
    seen = []
    if held_pairs is not None:
        seen = [features_of(op, k, held_pairs) for op, k in zip(operators, ranks, strict=True)]
    return Candidate(model, rows, history, base, y_inputs, ridges, sum(losses) / len(losses), seen)


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


def complete(candidate: Candidate, recipe: Recipe) -> Candidate:
    """Statistics and atoms of training and held-out rows together."""
    model, sample = candidate.model, candidate.rows.learning
    base = _base(model.residual, sample, candidate.rows.lattice, recipe.seed)
    pairs = TensorPairs(sample.x, candidate.y_inputs(base), sample.weights)
    for operator, ridge in zip(model.operators, candidate.ridges, strict=True):
        if recipe.postprocessing == "whitening":
            operator.whiten(operator.moments(pairs), ridge=ridge)
        else:
            operator.postprocess(pairs, kind=recipe.postprocessing)  # type: ignore[arg-type]
    smooth = model.residual is not None
    support = _support(model.operators, model.ranks, candidate.y_inputs, base, sample.weights, smooth)
    return replace(candidate, model=replace(model, support=support), base=base)


@torch.no_grad()
def features_of(operator: SpectralOperator, rank: int, pairs: TensorPairs) -> HeldOutFeatures:
    """Left and right singular functions in use, at the rows of `pairs`."""
    left = by_rows(operator.left_features, pairs.x, len(pairs))[:, :rank]
    right = by_rows(operator.right_features, pairs.y, len(pairs))[:, :rank]
    return HeldOutFeatures(left.double(), right.double(), operator.singular_values[:rank].detach().double())


def _base(coordinates: MixtureCoordinates | None, sample: Sample, lattice: Lattice | None, seed: int) -> Tensor:
    """y in the coordinates of the operator; rows they were learned on are answered out of their fold."""
    if coordinates is None:
        return sample.y
    return coordinates.scores(sample.x, spread(sample.y, lattice, seed), sample.fold)


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
