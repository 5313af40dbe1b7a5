"""Clusters of (X, Y): Bayes' rule, EM, and the mixtures that begin as them."""

import warnings

import numpy as np
import pytest
import torch
from helpers import normal

from ncprob import datasets
from ncprob.clusters import Clusters, fit_clusters
from ncprob.coordinates import (
    COMPONENTS,
    FEW_INPUTS,
    FOLDS,
    MixtureCoordinates,
    Variant,
    fold_numbers,
    variants,
)
from ncprob.mixture import MINIMUM_SCALE
from ncprob.pairs import TensorPairs

TWO = Clusters(
    shares=torch.tensor([0.3, 0.7]).double(),
    centres=torch.tensor([[-1.0, 0.5], [1.0, 0.0]]).double(),
    spreads=torch.tensor([[0.5, 1.0], [0.8, 0.3]]).double(),
    offsets=torch.tensor([0.0, 1.0]).double(),
    slopes=torch.tensor([[1.0, 0.0], [-0.5, 2.0]]).double(),
    scales=torch.tensor([0.2, 0.4]).double(),
)


def sample(n, seed=0, law=TWO):
    """Rows of a cluster-weighted model."""
    generator = torch.Generator().manual_seed(seed)
    which = torch.multinomial(law.shares, n, replacement=True, generator=generator)
    x = law.centres[which] + law.spreads[which] * torch.randn(n, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    return x, law.offsets[which] + (law.slopes[which] * x).sum(dim=1) + law.scales[which] * noise


def test_weights_given_x_are_those_of_bayes_rule():
    x = normal(50, 2, seed=1)
    constant, by_x, by_square = TWO.weight_terms()
    found = torch.softmax(constant + x @ by_x.mT + (x.square() - 1) @ by_square.mT, dim=1)
    laws = [torch.distributions.Normal(TWO.centres[k], TWO.spreads[k]) for k in range(2)]
    joint = torch.stack([TWO.shares[k].log() + laws[k].log_prob(x).sum(dim=1) for k in range(2)], dim=1)
    torch.testing.assert_close(found, joint.softmax(dim=1))


def test_the_joint_density_is_that_of_its_parts():
    x, z = sample(20)
    for k in range(2):
        law = torch.distributions.Normal(TWO.centres[k], TWO.spreads[k])
        line = torch.distributions.Normal(TWO.offsets[k] + x @ TWO.slopes[k], TWO.scales[k])
        expected = TWO.shares[k].log() + law.log_prob(x).sum(dim=1) + line.log_prob(z)
        torch.testing.assert_close(TWO.log_joint(x, z)[:, k], expected)


def test_em_finds_the_model_it_was_drawn_from():
    found = fit_clusters(*sample(8000), None, k=2, least_scale=1e-3, seed=0)
    order = found.centres[:, 0].argsort()
    # 2,400 rows or more in a cluster: standard errors below 0.01 for shares and scales, below 0.02 for centres and
    # 0.03 for slopes (the narrow second input); three of them.
    torch.testing.assert_close(found.shares[order], TWO.shares, atol=0.03, rtol=0)
    torch.testing.assert_close(found.centres[order], TWO.centres, atol=0.06, rtol=0)
    torch.testing.assert_close(found.scales[order], TWO.scales, atol=0.03, rtol=0)
    torch.testing.assert_close(found.slopes[order], TWO.slopes, atol=0.09, rtol=0)


def test_weights_count_as_repetitions_and_rows_without_weight_not_at_all():
    x, z = sample(400)
    weights = (torch.arange(400) % 3).double()
    found = fit_clusters(x, z, weights, k=2, least_scale=1e-3, seed=0)
    repeated = torch.repeat_interleave(torch.arange(400), weights.long())
    same = fit_clusters(x[repeated], z[repeated], None, k=2, least_scale=1e-3, seed=0)
    order, other = found.centres[:, 0].argsort(), same.centres[:, 0].argsort()
    torch.testing.assert_close(found.slopes[order], same.slopes[other], atol=1e-3, rtol=0)
    torch.testing.assert_close(found.shares[order], same.shares[other], atol=1e-3, rtol=0)


@pytest.mark.parametrize("distinct", [1, 3])
def test_few_distinct_rows_are_no_trouble(distinct):
    x = (torch.arange(20) % distinct).double()[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit_clusters(x, x[:, 0], None, k=5, least_scale=1e-3, seed=0)
    assert all(torch.isfinite(part).all() for part in vars(found).values())
    assert torch.isfinite(torch.cat([part.flatten() for part in found.weight_terms()])).all()


def started(x, z, n_components=1):
    model = MixtureCoordinates.for_table([Variant(0.1, 0.0), Variant(0.0, 0.0, form="clusters")], n_components, 2, (8,))
    model._start_from_clusters(TensorPairs(x.float(), {"z": z, "fold": fold_numbers(len(z))}, None), seed=0)
    return model


def test_a_mixture_begins_as_the_clusters_of_the_rows_it_learns_from():
    x, z = sample(800)
    model = started(x, z[:, None])
    log_weights, means, scales = (part[FOLDS:, :, 0].double() for part in model.parameters_at(x[:50].float()))
    for k in range(FOLDS):
        seen = fold_numbers(800) != k
        found = fit_clusters(x[seen].float(), z[seen], None, COMPONENTS, MINIMUM_SCALE, seed=0)
        constant, by_x, by_square = found.weight_terms()
        weights = torch.softmax(constant + x[:50] @ by_x.mT + (x[:50].square() - 1) @ by_square.mT, dim=1)
        torch.testing.assert_close(log_weights[k].exp(), weights, atol=1e-3, rtol=0)
        torch.testing.assert_close(means[k], found.offsets + x[:50] @ found.slopes.mT, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(scales[k], found.scales.expand(50, -1), atol=1e-4, rtol=1e-3)


def test_a_row_leaves_no_trace_in_the_start_of_its_own_fold():
    x, z = sample(200)
    moved = z.clone()
    moved[1] += 5.0  # a row of fold 1
    first, second = started(x, z[:, None]), started(x, moved[:, None])
    bias, other = (model.networks.biases[-1][FOLDS:, 0] for model in (first, second))
    assert torch.equal(bias[1], other[1])
    assert not torch.equal(bias[0], other[0])


def test_components_of_y_have_clusters_of_their_own():
    x, z = sample(400)
    both, alone = started(x, torch.stack([z, -z], dim=1), n_components=2), started(x, z[:, None])
    means = both.parameters_at(x[:20].float())[1][FOLDS:]
    torch.testing.assert_close(means[:, :, 0], alone.parameters_at(x[:20].float())[1][FOLDS:, :, 0])
    assert not torch.allclose(means[:, :, 0], means[:, :, 1])


def test_clusters_are_tried_with_few_inputs_only():
    def forms(n_inputs):
        return [variant.form for variant in variants(0.01, 0.0, n_rows=1000, n_inputs=n_inputs)]

    assert "clusters" in forms(FEW_INPUTS)
    assert "clusters" not in forms(FEW_INPUTS + 1)


def test_a_joint_mixture_of_gaussians_is_learned_as_one():
    """Where (X, Y) is a mixture of Gaussians the clusters have the largest share of the pool."""
    from ncprob import NCPRegressor

    simulator = datasets.make("GaussianMixture")
    X, y = simulator.sample(1000, random_state=0)
    model = NCPRegressor(random_state=0, progress=False, coordinates="residual", max_steps=300).fit(X, y)
    residual = model._model.residual
    forms = np.array([variant.form for variant in residual.variants])
    assert forms[int(residual.shares.argmax())] == "clusters"
