"""How a model is fitted: candidates in raw and residual coordinates, compared on held-out rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ncprob.candidates import Candidate, Plan, complete, fit_candidates
from ncprob.coordinates import fold_numbers
from ncprob.judging import choose, held_out_answers, operator_terms, promises
from ncprob.lattices import Lattice, lattice_of
from ncprob.model import FittedModel
from ncprob.networks import check_encoders
from ncprob.preprocessing import SoftScale
from ncprob.recipe import Recipe
from ncprob.samples import Rows, RowStream, Sample, drawn_by_weight, joined
from ncprob.support import Support
from ncprob.trees import TreeInputs

MINIMUM_ROWS = 16  # below, no network is trained: the marginal law is the answer


def fit_model(
    training: Sample, held_out: Sample | None, recipe: Recipe, *, join: bool, stream: RowStream | None = None
) -> Candidate:
    """Fit the preferred candidate and those that promise more, keep the best on held-out rows, and complete it.

    With `join` the held-out rows, once they have chosen, also serve as atoms and in the statistics of whitening. With a
    `stream` networks train on its rows, and all that is known in memory scales, judges, whitens and serves as atoms.
    """
    check_encoders(training, recipe)
    n = len(training)
    learning = joined(training, held_out) if join and held_out is not None else training
    learning = replace(learning, fold=fold_numbers(len(learning), learning.y.device))
    lattice = lattice_of(learning.y, learning.weights)
    trees, learning = _grow_trees(learning, lattice, recipe, n_judges=len(learning) - n)
    training = learning.rows(slice(0, n))
    if held_out is not None:
        held_out = learning.rows(slice(n, None)) if join else _with_trees(held_out, trees)
    judges = drawn_by_weight(held_out, recipe.seed)
    stream = None if stream is None else replace(stream, trees=trees)
    rows = Rows(training, judges, learning, trees, lattice, stream)
    plans = _plans(rows, recipe)
    if judges is None:
        return fit_candidates(plans[:1])[0]
    first, *pilots = fit_candidates([plans[0], *map(_pilot, plans[1:])])
    others = [plan for plan, pilot in zip(plans[1:], pilots, strict=True) if promises(pilot, first)]
    best = choose([first, *fit_candidates(others)], recipe)
    best = replace(best, terms=operator_terms(best), answers=held_out_answers(best))
    return complete(best, recipe) if join else best


def _plans(rows: Rows, recipe: Recipe) -> list[Plan]:
    """What to fit, the preferred coordinates first.

    Mixtures weigh the tree inputs themselves; an operator in raw coordinates is tried without them. Where a component
    of several takes levels only, raw coordinates alone are tried: levels are spread each by itself, so what ties
    components together (one is zero where another is) would be kept only as far as the operator learns it.
    """
    if recipe.coordinates != "auto":
        return [Plan(recipe.coordinates, recipe.coordinates, rows, recipe)]
    plain = Plan("raw", "raw", rows.without_trees(), recipe)
    if rows.lattice is None or not rows.lattice.has_levels or len(rows.lattice.components) == 1:
        return [Plan("residual", "residual", rows, recipe), plain]
    return [plain] if rows.trees is None else [Plan("raw-trees", "raw", rows, recipe), plain]


def _pilot(plan: Plan) -> Plan:
    """The same at an eighth of the cost, to see whether it is worth the whole."""
    schedule = plan.recipe.schedule
    batch_size = min(schedule.batch_size, max(16, schedule.batch_size // 2))
    short = replace(schedule, max_steps=-(-schedule.max_steps // 4), batch_size=batch_size)
    return replace(plan, name=f"{plan.name}-pilot", recipe=replace(plan.recipe, schedule=short))


def _grow_trees(
    sample: Sample, lattice: Lattice | None, recipe: Recipe, n_judges: int = 0
) -> tuple[TreeInputs | None, Sample]:
    """Trees, and the sample with their predictions among its inputs, each row by trees that have not seen it."""
    if not recipe.grows_trees(sample.x):
        return None, sample
    y = sample.y if lattice is None else lattice.middles(sample.y)
    trees, columns = TreeInputs.fit(sample.x, SoftScale.fit(y)(y), sample.weights, recipe.seed, n_judges)
    return trees, replace(sample, x=torch.cat([sample.x, columns], dim=1))


def _with_trees(sample: Sample, trees: TreeInputs | None) -> Sample:
    return sample if trees is None else replace(sample, x=torch.cat([sample.x, trees(sample.x)], dim=1))


def marginal_model(y: Tensor, weights: Tensor | None) -> FittedModel:
    """The model that knows nothing of X: every conditional law is the marginal one."""
    return FittedModel([], [], Support.compressed(y, torch.zeros(len(y), 1, device=y.device), weights))
