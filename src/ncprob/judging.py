"""What held-out rows say of candidates: which one to take, and how far to trust it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ncprob.candidates import Candidate, features_of
from ncprob.diagnostics import HeldOutAnswers
from ncprob.distribution import ConditionalDistribution
from ncprob.guarantees import OperatorTerms, estimate_terms
from ncprob.model import FittedModel
from ncprob.pairs import TensorPairs
from ncprob.preprocessing import robust_center_and_scale
from ncprob.recipe import Recipe
from ncprob.samples import Sample
from ncprob.support import Support

DOUBT = 2.0  # standard errors by which raw coordinates, or an operator beside the mixture, must be better to be taken
# Share of the CRPS by which raw coordinates must be better too. Their laws are coarser in ways that the CRPS hardly
# sees: many rows can prove a gain of 0.2 % in one corner of x where the density is worse everywhere else.
MATERIAL = 0.01


def promises(pilot: Candidate, other: Candidate) -> bool:
    """Whether a candidate that was trained for a short time is worth the whole: it must be better than another already.

    Where the mixture leaves something to raw coordinates, a pilot shows it; more training gains where laws are narrow,
    and there the mixture is far ahead (docs/lab-notes.md has the figures).
    """
    return bool(held_out_crps(pilot).mean() < held_out_crps(other).mean())


def choose(candidates: list[Candidate], recipe: Recipe) -> Candidate:
    """The candidate with the lowest held-out CRPS; a richer one must be better beyond doubt.

    First come residual coordinates, the safer choice; an operator that adds nothing to their mixture is left out, and
    raw coordinates must be better by more than `MATERIAL`, unless Y takes few values: such laws have no density.
    """
    best = candidates[0]
    if best.model.residual is None and len(candidates) == 1:  # else Y has several components
        return best
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
        better = bool(others.mean() < scores.mean())
        lattice = best.rows.lattice
        if best.model.residual is not None and (lattice is None or not lattice.has_few_values):
            better = _clearly_lower(others, scores) and bool(others.mean() < (1 - MATERIAL) * scores.mean())
        if better:
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


def held_out_crps(candidate: Candidate) -> Tensor:
    """CRPS of every held-out row, averaged over components in units of their robust marginal scale."""
    sample, law = _judged(candidate)
    _, scale = robust_center_and_scale(sample.y)
    crps = law.crps(sample.y)
    return (crps.reshape(len(sample), -1) / scale).mean(dim=1)


def _judged(candidate: Candidate) -> tuple[Sample, ConditionalDistribution]:
    """Held-out rows and what the model says of them before they become atoms themselves."""
    sample = candidate.rows.held_out
    assert sample is not None
    return sample, candidate.model.laws(sample.x, len(sample), sample.fold)


def held_out_answers(candidate: Candidate) -> HeldOutAnswers:
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


def operator_terms(candidate: Candidate) -> OperatorTerms:
    """Terms of the guarantees, read on held-out rows; the worst member of an ensemble."""
    model, training = candidate.model, candidate.rows.training
    pairs = TensorPairs(training.x, candidate.y_inputs(candidate.base))
    members = []
    for operator, rank, held in zip(model.operators, model.ranks, candidate.held_out, strict=True):
        seen = features_of(operator, rank, pairs)
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
