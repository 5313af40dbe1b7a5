"""Conditional mixtures as coordinates: out of fold for the training rows, averaged for new ones, pooled by fit."""

import copy

import numpy as np
import pytest
import torch
from helpers import generator, normal
from scipy import stats
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

from ncprob import coordinates, datasets
from ncprob.coordinates import (
    COMPONENTS,
    FEW_INPUTS,
    FOLDS,
    KNOTS,
    MINIMUM_SHARE,
    OUTER_KNOTS,
    ROUNDS,
    Head,
    MixtureCoordinates,
    SideBySide,
    Variant,
    fold_numbers,
    variants,
)
from ncprob.encoders import MLP
from ncprob.optimization import Runtime, Schedule
from ncprob.preprocessing import MARGIN, MAX_CORE, InputScaler, SoftScale

PLAIN = Variant(0.01, 0.0)
LINEAR = Variant(0.01, 0.0, form="linear", components=2)
QUIET = Runtime(progress=False)


def new_model(ways=(PLAIN,), n_components=1, n_inputs=1, width=8, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MixtureCoordinates.for_table(list(ways), n_components, n_inputs, (width,))


def perturbed(model, seed=0):
    """Networks far from their start, so that mixtures depend on x and differ between folds and variants."""
    with torch.no_grad():
        for number, parameter in enumerate(model.networks.parameters()):
            parameter.add_(normal(*parameter.shape, seed=seed + number, dtype=torch.float32), alpha=0.4)
    return model


def fit(model, x, y, weights=None, runtime=QUIET, **settings):
    """Few steps in small batches: by default weights are scored once, at the end (2n / batch > 40 for n ≥ 90)."""
    chosen = {"max_steps": 40, "batch_size": 4, "learning_rate": 1e-2, "validate_every": 100}
    model.fit(x, y, weights, Schedule(**chosen | settings), runtime)
    return model


def same(first, second):
    return torch.equal(first.anchor, second.anchor) and torch.equal(first.offsets, second.offsets)


def probabilities(map_, values):
    """F(values | x) of the transported normal law, (members, components, points)."""
    return torch.special.ndtr(map_.to_base(values))


# ---------------------------------------------------------------- maps


def test_maps_are_increasing_and_finite_as_far_as_inputs_reach():
    model = perturbed(new_model(n_components=2))
    x = torch.linspace(-MAX_CORE - MARGIN, MAX_CORE + MARGIN, 50)[:, None]  # the bounds of `InputScaler`
    for map_ in (model.transport(x), model.transport(x, fold_numbers(50))):
        assert map_.offsets.shape == (50, 2, 2 * len(KNOTS) - 1 + 2 * len(OUTER_KNOTS))
        assert torch.isfinite(map_.offsets).all()
        assert torch.isfinite(map_.anchor).all()
        assert (map_.offsets.diff(dim=-1) > 0).all()
        assert (map_.knots.diff() > 0).all()


def test_a_map_is_the_inverse_of_the_mixture_of_its_fold():
    """Φ(to_base(y)) is the distribution function Σ_k w_k Φ((z − m_k)/s_k) at z = scaled y, to 0.01 in probability."""
    model, x = perturbed(new_model(n_components=2)), normal(6, 1, seed=1, dtype=torch.float32)
    y = normal(6, 2, 15, seed=2)  # untrained coordinates have centre 0, scale 1 and core 1
    log_weights, means, scales = (part.double() for part in model.parameters_at(x))
    z = model.scale(y.mT).mT
    for k in range(FOLDS):
        cdf = torch.special.ndtr((z[..., None] - means[k, :, :, None]) / scales[k, :, :, None])
        expected = (log_weights[k, :, :, None].exp() * cdf).sum(dim=-1)
        found = probabilities(model.transport(x, torch.full((6,), k)), y)
        torch.testing.assert_close(found, expected, atol=0.01, rtol=0)


def test_mass_does_not_leak_into_the_gap_between_two_modes():
    """The piece of the table that holds the gap spreads its mass over it: at most φ(0)/100 = 0.004 moves."""
    model = new_model()
    with torch.no_grad():  # two Gaussians of width 0.05 at ±1, whatever x
        model.networks.weights[-1].zero_()
        logits, means, widths = model.networks.biases[-1].zero_().unflatten(-1, (3, 1, -1)).unbind(dim=-3)
        logits[..., 2:] = -50
        means[..., 0], means[..., 1] = -1, 1
        widths[:] = torch.log(torch.expm1(torch.tensor(0.05 - 1e-3))) - 0.5
    model.scale = SoftScale(*torch.tensor([[0.0], [1.0], [100.0], [-100.0], [100.0]]))
    y = torch.linspace(-1.2, 1.2, 2000, dtype=torch.float64)
    exact = stats.norm.cdf(y, -1, 0.05) / 2 + stats.norm.cdf(y, 1, 0.05) / 2
    found = probabilities(model.transport(torch.zeros(1, 1)), y.reshape(1, 1, -1)).flatten()
    np.testing.assert_allclose(found, exact, atol=0.004)


def test_new_rows_get_the_average_of_the_distribution_functions_over_folds():
    model, x, y = perturbed(new_model()), normal(6, 1, seed=3, dtype=torch.float32), normal(6, 1, 25, seed=4)
    by_fold = torch.stack([probabilities(model.transport(x, torch.full((6,), k)), y) for k in range(FOLDS)])
    assert by_fold.std(dim=0).max() > 0.05
    torch.testing.assert_close(probabilities(model.transport(x), y), by_fold.mean(dim=0), atol=0.01, rtol=0)


def test_variants_are_averaged_by_their_shares():
    model = perturbed(new_model([PLAIN, LINEAR]))
    x, y = normal(6, 1, seed=5, dtype=torch.float32), normal(6, 1, 25, seed=6)
    parts = []
    for shares in ([1.0, 0.0], [0.0, 1.0], [0.3, 0.7]):
        model.shares.copy_(torch.tensor(shares))
        parts.append(probabilities(model.transport(x), y))
    assert (parts[0] - parts[1]).abs().max() > 0.05
    torch.testing.assert_close(parts[2], 0.3 * parts[0] + 0.7 * parts[1], atol=0.01, rtol=0)


def test_variants_of_small_share_are_left_out():
    model, x = perturbed(new_model([PLAIN, LINEAR])), normal(6, 1, seed=7, dtype=torch.float32)
    small = MINIMUM_SHARE / 2
    model.shares.copy_(torch.tensor([1 - small, small]))
    left_out = model.transport(x)
    model.shares.copy_(torch.tensor([1.0, 0.0]))
    assert same(left_out, model.transport(x))
    many = perturbed(new_model([PLAIN] * 12))  # twelfths are all small: the largest stay
    assert torch.isfinite(many.transport(x).offsets).all()


def test_training_rows_are_answered_row_by_row():
    model, x = perturbed(new_model([PLAIN, LINEAR], n_components=2)), normal(10, 1, seed=8, dtype=torch.float32)
    fold, y = fold_numbers(10), normal(10, 2, 9, seed=44)
    whole = probabilities(model.transport(x, fold), y)
    for row in range(10):
        alone = model.transport(x[row : row + 1], fold[row : row + 1])
        torch.testing.assert_close(probabilities(alone, y[row : row + 1])[0], whole[row], atol=1e-9, rtol=0)


def test_scores_are_those_of_the_maps_and_go_on_along_them_in_the_tails():
    model = perturbed(new_model([PLAIN, LINEAR], n_components=2))
    n = 2 * coordinates.TABLE_ROWS + 5  # several chunks
    x, fold = normal(n, 1, seed=9, dtype=torch.float32), fold_numbers(n)
    y = normal(n, 2, seed=45)
    y[::50] *= 1e3  # far beyond the last knot
    for numbers in (None, fold):
        expected, found = model.transport(x, numbers).to_base(y[:, :, None])[:, :, 0], model.scores(x, y, numbers)
        far = (found.abs() > KNOTS[-1]).any(dim=1)
        assert 0 < far.sum() < n / 5
        torch.testing.assert_close(found[far], expected[far], atol=1e-4, rtol=1e-6)  # float32 in batches of other sizes
        errors = (torch.special.ndtr(found) - torch.special.ndtr(expected))[~far]
        assert errors.abs().max() < 0.01  # that of the table
    order = torch.argsort(y[:, 0])
    along = model.scores(torch.zeros(n, 1), y[order])[:, 0]
    assert (along.diff() >= 0).all()


def test_no_rows_give_no_maps():
    assert new_model(n_components=2).transport(torch.zeros(0, 1)).anchor.shape == (0, 2)


# ---------------------------------------------------------------- variants


def test_variants_go_from_flexible_to_stiff():
    chosen = variants(0.01, 0.02, n_rows=1000, n_inputs=5)
    assert [round(v.weight_decay, 6) for v in chosen] == [0.03, 0.3, 1.0, 0.03, 0.03]
    assert [v.form for v in chosen] == ["network"] * 3 + ["quadratic", "linear"]
    assert all(v.gate == 0.02 and v.inputs is None for v in chosen)
    with_trees = variants(0.01, 0.02, n_rows=1000, n_inputs=5, n_plain=3)
    assert with_trees[:-1] == chosen
    assert with_trees[-1].inputs == 3


def test_with_few_inputs_classical_models_join():
    few = variants(0.01, 0.02, n_rows=1000, n_inputs=FEW_INPUTS)
    forms = [(v.form, v.components) for v in few[3:]]
    assert forms == [("clusters", 5), ("quadratic", 1), ("linear", 2), ("linear", 1)]
    assert all(v.components > 1 for v in variants(0.01, 0.02, n_rows=1000, n_inputs=FEW_INPUTS + 1))


def test_one_gaussian_begins_in_the_middle():
    model = new_model([Variant(0.01, 0.0, form="linear", components=1), PLAIN], n_inputs=2)
    weights, means, _ = model.parameters_at(torch.zeros(3, 2))
    assert float(means[:FOLDS, ..., 0].detach().abs().max()) == 0
    assert torch.equal(weights[:FOLDS].exp(), torch.tensor([1.0, 0, 0, 0, 0]).expand(FOLDS, 3, 1, 5))
    assert float(means[FOLDS:].detach().std()) > 1


def test_variants_that_cannot_pay_are_not_tried():
    assert [v.form for v in variants(0.01, 0.0, n_rows=1000, n_inputs=500)] == ["network"] * 3 + ["linear"]
    few = variants(0.01, 0.0, n_rows=100, n_inputs=9, n_plain=4)
    assert [(v.form, v.first, v.inputs) for v in few[-3:]] == [
        ("network", 4, None),
        ("linear", 4, None),
        ("network", 0, 4),
    ]
    many = variants(0.01, 0.0, n_rows=10**5, n_inputs=5)
    assert [round(v.weight_decay, 6) for v in many] == [0.03, 0.3, 0.03, 0.03]


@pytest.mark.parametrize(("seen", "others"), [({"inputs": 2}, slice(2, 4)), ({"first": 2}, slice(0, 2))])
def test_a_variant_of_few_inputs_ignores_the_others(seen, others):
    model = perturbed(new_model([Variant(0.01, 0.0, **seen), PLAIN], n_inputs=4))
    x = normal(5, 4, seed=9, dtype=torch.float32)
    moved = x.clone()
    moved[:, others] += 1
    for shares, ignores in (([1.0, 0.0], True), ([0.0, 1.0], False)):
        model.shares.copy_(torch.tensor(shares))
        assert same(model.transport(x), model.transport(moved)) == ignores


def test_a_linear_variant_has_parameters_linear_in_x():
    model = perturbed(new_model([PLAIN, LINEAR], n_inputs=2)).double()
    x, step = normal(5, 2, seed=10), normal(5, 2, seed=11)
    means = [model.parameters_at(point)[1] for point in (x - step, x, x + step)]
    bend = means[0] - 2 * means[1] + means[2]
    assert bend[FOLDS:].abs().max() < 1e-12
    assert bend[:FOLDS].abs().max() > 0.1


def test_parameters_of_a_row_do_not_depend_on_the_rows_beside_it():
    """Beyond the digits of single precision: else quantiles would be tabulated elsewhere and differ by their error."""
    model = perturbed(new_model([PLAIN, LINEAR], n_inputs=2))
    x = normal(120, 2, seed=13, dtype=torch.float32)
    together = model.parameters_at(x)
    for size in (1, 7, 50):
        for whole, part in zip(together, model.parameters_at(x[:size]), strict=True):
            torch.testing.assert_close(part, whole[:, :size], rtol=1e-12, atol=1e-12)


def test_what_is_trained_is_the_likelihood_of_the_mixture_that_answers():
    """Variants of one and two Gaussians among those of five; out of three rows, each with two components of y."""
    ways = [PLAIN, LINEAR, Variant(0.0, 0.0, form="linear", components=1)]
    model = perturbed(new_model(ways, n_components=2))
    x, z = normal(3, 1, seed=14, dtype=torch.float32), normal(3, 2, seed=15)
    log_weights, means, scales = model.parameters_at(x)
    law = MixtureSameFamily(Categorical(logits=log_weights), Normal(means, scales))
    torch.testing.assert_close(
        model.log_likelihoods(x, z.float()).double(), law.log_prob(z).sum(dim=2), rtol=1e-4, atol=1e-4
    )


def test_the_default_type_of_torch_does_not_enter():
    torch.set_default_dtype(torch.float64)
    try:
        model = new_model([PLAIN, LINEAR])
        model.networks.float()
        x = torch.zeros(2, 1, dtype=torch.float32)
        assert model.barred.dtype == model.log_likelihoods(x, x).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_tables_are_made_in_single_precision_which_takes_a_third_of_the_time():
    found = perturbed(new_model())._pooled(normal(3, 1, seed=16, dtype=torch.float32), None)
    assert {part.dtype for part in found} == {torch.float32}


def test_a_variant_has_as_many_gaussians_as_it_says():
    model = perturbed(new_model([PLAIN, LINEAR]))
    weights = model.parameters_at(normal(5, 1, seed=12, dtype=torch.float32))[0].exp()
    assert weights.shape == (2 * FOLDS, 5, 1, COMPONENTS)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2 * FOLDS, 5, 1).double())
    assert weights[:FOLDS].gt(0).all()
    assert weights[FOLDS:, ..., : LINEAR.components].gt(0).all()
    assert weights[FOLDS:, ..., LINEAR.components :].eq(0).all()


@pytest.mark.parametrize("n", [1, 3, 100])
def test_folds_are_of_equal_size(n):
    counts = fold_numbers(n).bincount(minlength=FOLDS)
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1


# ---------------------------------------------------------------- fitting


def test_a_training_row_is_answered_by_networks_that_have_not_seen_it():
    """y reversed inside fold k leaves the maps of its rows as they are, to the last bit; the scale of y stays."""
    x, y = normal(96, 1, seed=13, dtype=torch.float32), normal(96, 1, seed=14)
    fold = fold_numbers(96)
    before = fit(new_model(), x, y).transport(x, fold)
    for k in range(FOLDS):
        changed = y.clone()
        changed[fold == k] = y[fold == k].flip(0)
        after = fit(new_model(), x, changed).transport(x, fold)
        assert same(before[fold == k], after[fold == k])
        for other in range(FOLDS):
            assert same(before[fold == other], after[fold == other]) == (other == k)


def test_early_stopping_is_by_rows_that_a_network_has_not_seen():
    """y is noise: networks that overfit are best early, and their weights of that time are kept."""
    x, y = normal(64, 3, seed=15, dtype=torch.float32), normal(64, 1, seed=16)
    settings = {"batch_size": 64, "learning_rate": 3e-2, "max_steps": 200}
    stopped = new_model(n_inputs=3, width=32)
    schedule = Schedule(**settings, validate_every=5, early_stopping=False)
    history = stopped.fit(x, y, None, schedule, QUIET)
    last = fit(new_model(n_inputs=3, width=32), x, y, **settings | {"max_steps": 10})
    assert min(history.validation_loss) < history.validation_loss[-1] - 0.1

    def out_of_fold(model):
        rows, fold = torch.arange(64), fold_numbers(64)
        return model.log_likelihoods(x, model.scale(y).float())[fold, rows].mean().item()

    assert -out_of_fold(stopped) <= min(history.validation_loss) + 1e-5
    assert out_of_fold(stopped) > -history.validation_loss[-1] + 0.1
    assert abs(out_of_fold(last) - out_of_fold(stopped)) < 0.5


@pytest.mark.parametrize("simulator", [datasets.Laplace(), datasets.Cauchy(), datasets.LinearGaussian()])
def test_conditional_laws_are_recovered(simulator):
    """n = 4,000; the Kolmogorov distance to the truth at 17 points of the inner 80 % of x.

    An estimate by p free parameters has about the error of an empirical law of n/p rows, 0.87/√(n/p). A bend and a
    width in x and a shape in y are about six: 0.034. Short training adds about as much: 0.06 is asked of the mean. The
    marginal law is 0.3 and more away. Scores of the training rows, out of fold, are normal within twice
    the 5 % point of chance, 1.36/√n.
    """
    n = 4000
    x, y = simulator.sample(n, random_state=0)
    scaler, y = InputScaler.fit(torch.as_tensor(x)), torch.as_tensor(y)[:, None]
    inputs = scaler(torch.as_tensor(x))
    model = fit(
        new_model([PLAIN, LINEAR], width=24), inputs, y, max_steps=350, batch_size=256, learning_rate=2e-2,
    )  # fmt: skip
    points = np.linspace(*np.quantile(x, [0.1, 0.9]), 17)[:, None]
    levels = np.linspace(0.001, 0.999, 300)
    values = torch.as_tensor(simulator.truth(points).quantile(levels))[:, None]
    found = probabilities(model.transport(scaler(torch.as_tensor(points))), values)[:, 0].numpy()
    assert np.abs(found - levels).max(axis=1).mean() < 0.06
    scores = model.transport(inputs, fold_numbers(n)).to_base(y[:, :, None]).ravel()
    assert stats.kstest(scores.numpy(), "norm").statistic < 2 * 1.36 / n**0.5


def test_shares_prefer_the_variant_that_fits():
    """A parabola is beyond a linear map, and the second input beyond a variant that sees the first alone."""
    x = normal(400, 2, seed=17, dtype=torch.float32)
    noise = 0.2 * normal(400, 1, seed=18)
    settings = {"max_steps": 200, "batch_size": 100}
    first = Variant(0.01, 0.0, inputs=1)
    for ways, y, best in (
        ([PLAIN, LINEAR], x[:, :1].double() ** 2, 0),
        ([LINEAR, PLAIN], x[:, :1].double() ** 2, 1),
        ([first, PLAIN], x[:, 1:].double(), 1),
    ):
        shares = fit(new_model(ways, n_inputs=2, width=16), x, y + noise, **settings).shares
        assert shares.sum().item() == pytest.approx(1, abs=1e-12)
        assert shares[best] > 0.9


def test_shares_raise_the_likelihood_of_the_pool():
    """After T rounds EM is within KL(π*‖π₀)/T ≤ log(100)/T of the largest Σ_i log Σ_v π_v g_v(y_i | x_i) / n."""
    x, y = normal(120, 1, seed=21, dtype=torch.float32), normal(120, 1, seed=22)
    model = fit(new_model([PLAIN, LINEAR, Variant(3.0, 0.0)]), x, y)
    rows, fold = torch.arange(120), fold_numbers(120)
    by_fold = model.log_likelihoods(x, model.scale(y).float()).detach().double().unflatten(0, (3, FOLDS))
    likelihood = by_fold[:, fold, rows]

    def pooled(shares):
        return torch.logsumexp(likelihood + shares.log()[:, None], dim=0).mean()

    steps = torch.linspace(0.01, 0.99, 25, dtype=torch.float64)
    triples = [torch.stack([a, b, 1 - a - b]) for a in steps for b in steps if a + b < 1]
    best = max(pooled(shares) for shares in triples)
    assert pooled(model.shares) > best - np.log(100) / ROUNDS
    assert pooled(model.shares) > pooled(torch.full((3,), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize(("factor", "shift"), [(2.0**40, 0.0), (2.0**-40, 0.0), (4.0, 1024.0)])
def test_maps_follow_shift_and_scale_of_y(factor, shift):
    x, y = normal(96, 1, seed=23, dtype=torch.float32), normal(96, 2, seed=24).round(decimals=3)
    plain = fit(new_model(n_components=2), x, y).transport(x)
    moved = fit(new_model(n_components=2), x, factor * y + shift).transport(x)
    torch.testing.assert_close(moved.anchor, factor * plain.anchor + shift, rtol=1e-4, atol=1e-4 * factor)
    torch.testing.assert_close(moved.offsets, factor * plain.offsets, rtol=1e-3, atol=1e-4 * factor)


def test_components_of_y_have_maps_of_their_own():
    """One component is linear in x, the other a thousand times as large and quadratic: scores of both are normal."""
    n = 1000
    x = normal(n, 1, seed=25, dtype=torch.float32)
    noise = normal(n, 2, seed=26)
    y = torch.cat([x.double() + 0.3 * noise[:, :1], 1e3 * (x.double() ** 2 + 0.3 * noise[:, 1:])], dim=1)
    model = fit(new_model(n_components=2, width=16), x, y, max_steps=250, batch_size=128, learning_rate=2e-2)
    scores = model.transport(x, fold_numbers(n)).to_base(y[:, :, None])[:, :, 0]
    for k in range(2):
        assert stats.kstest(scores[:, k].numpy(), "norm").statistic < 2 * 1.36 / n**0.5
        assert abs(np.corrcoef(scores[:, k].numpy(), x[:, 0].numpy())[0, 1]) < 4 / n**0.5
    widths = model.transport(x).slope(torch.zeros(n, 2, 1, dtype=torch.float64))[:, :, 0]
    torch.testing.assert_close(widths.median(dim=0).values, torch.tensor([0.3, 300.0]).double(), rtol=0.25, atol=0)


def test_rows_of_weight_zero_teach_nothing():
    """y of those rows may be anything that leaves the marginal scale as it is."""
    x, y = normal(96, 1, seed=27, dtype=torch.float32), normal(96, 1, seed=28)
    weights = torch.ones(96, dtype=torch.float64)
    weights[:32] = 0
    changed = y.clone()
    changed[:32] = y[:32].flip(0)
    models = [fit(new_model([PLAIN, LINEAR]), x, target, weights) for target in (y, changed)]
    assert same(*(model.transport(x) for model in models))
    assert torch.equal(models[0].shares, models[1].shares)
    unweighted = [fit(new_model([PLAIN, LINEAR]), x, target).transport(x) for target in (y, changed)]
    assert not same(*unweighted)


def test_weights_shift_the_law():
    """Two groups of rows at ±1; one has three quarters of the weight: F(0 | x) is a quarter, known to 0.03."""
    n = 800
    x, side = normal(n, 1, seed=29, dtype=torch.float32), torch.rand(n, 1, generator=generator(30)) < 0.5
    y = torch.where(side, 1.0, -1.0) + 0.2 * normal(n, 1, seed=31)
    weights = torch.where(side[:, 0], 3.0, 1.0).double()
    model = fit(new_model(), x, y, weights, max_steps=200, batch_size=128, learning_rate=2e-2)
    below = probabilities(model.transport(x), torch.zeros(1, 1, 1, dtype=torch.float64)).mean().item()
    assert below == pytest.approx(0.25, abs=0.08)


def test_weights_may_be_float32():
    x, y = normal(96, 1, seed=32, dtype=torch.float32), normal(96, 1, seed=33)
    fit(new_model(), x, y, torch.ones(96))


def test_a_deterministic_relation_keeps_increasing_maps():
    x = torch.linspace(-1, 1, 96)[torch.randperm(96, generator=generator(34))][:, None]
    map_ = fit(new_model(), x, 2 * x.double(), max_steps=60).transport(x)
    assert torch.isfinite(map_.offsets).all()
    assert (map_.offsets.diff(dim=-1) > 0).all()


def test_one_outlier_does_not_move_the_maps():
    """One row of 400 moves ranks by 1/400; it lies 28 units out on the logarithmic scale and has a share of 1/400."""
    x, y = normal(400, 1, seed=35, dtype=torch.float32), normal(400, 1, seed=36)
    spoiled = y.clone()
    spoiled[7] = 1e12
    settings = {"max_steps": 150, "batch_size": 100}
    levels = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)[None, None]
    plain, moved = (fit(new_model(), x, target, **settings).transport(x).from_base(levels) for target in (y, spoiled))
    assert (moved - plain).abs().median() < 0.15


def test_the_fit_is_decided_by_its_seed():
    x, y = normal(96, 1, seed=37, dtype=torch.float32), normal(96, 1, seed=38)
    first, again, other = (
        fit(new_model(), x, y, runtime=Runtime(seed=seed, progress=False)).transport(x) for seed in (0, 0, 1)
    )
    assert same(first, again)
    assert not same(first, other)


def test_a_resumed_fit_is_the_same_to_the_last_bit(tmp_path):
    x, y = normal(96, 1, seed=39, dtype=torch.float32), normal(96, 1, seed=40)
    settings = {"max_steps": 40, "batch_size": 48}
    expected = fit(new_model([PLAIN, LINEAR]), x, y, **settings).transport(x)
    runtime = Runtime(progress=False, checkpoint=tmp_path / "mixture")

    class Interrupted(Exception):
        pass

    model = new_model([PLAIN, LINEAR])
    model.networks.register_forward_hook(counter(at=30, error=Interrupted))
    with pytest.raises(Interrupted):
        fit(model, x, y, runtime=runtime, **settings)
    assert (tmp_path / "mixture.safetensors").exists()
    assert same(fit(new_model([PLAIN, LINEAR]), x, y, runtime=runtime, **settings).transport(x), expected)


def counter(at, error):
    """A hook that raises at its call number `at`."""
    calls = []

    def hook(*_):
        calls.append(None)
        if len(calls) == at:
            raise error

    return hook


# ---------------------------------------------------------------- encoders of the user


def side_by_side(n_components=1, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        heads = [Head(MLP(1, (8,), 8), nn.Linear(8, 3 * COMPONENTS * n_components)) for _ in range(FOLDS)]
    return MixtureCoordinates([PLAIN], n_components, SideBySide(heads))


def test_side_by_side_stacks_the_outputs():
    model, x = side_by_side(), normal(6, 1, seed=41, dtype=torch.float32)
    outputs = model.networks(x)
    assert outputs.shape == (FOLDS, 6, 3 * COMPONENTS)
    for network, output in zip(model.networks.networks, outputs, strict=True):
        assert torch.equal(network(x), output)


def test_networks_of_the_user_learn_and_do_not_see_their_fold():
    x = normal(200, 1, seed=42, dtype=torch.float32)
    y = x.double() + 0.3 * normal(200, 1, seed=43)
    fold = fold_numbers(200)
    start = side_by_side()
    start.scale = SoftScale.fit(y)
    z = start.scale(y).float()

    def likelihood(model):
        return model.log_likelihoods(x, z)[fold, torch.arange(200)].mean().item()

    model = fit(side_by_side(), x, y, max_steps=90, gradient_clip=1e9)
    assert likelihood(model) > likelihood(start) + 0.3
    assert model.shares.tolist() == [1.0]
    # gradients are not clipped: networks of the user share one norm
    changed = y.clone()
    changed[fold == 1] = y[fold == 1].flip(0)
    after = fit(copy.deepcopy(side_by_side()), x, changed, max_steps=90, gradient_clip=1e9)
    assert same(model.transport(x, fold)[fold == 1], after.transport(x, fold)[fold == 1])
    assert not same(model.transport(x, fold)[fold == 2], after.transport(x, fold)[fold == 2])


def test_networks_that_have_diverged_still_give_increasing_finite_maps():
    """Means a thousand soft scales away would be e^1000 in units of y."""
    model = MixtureCoordinates.for_table([Variant(0.0, 0.0)], 1, 2, (8,))
    with torch.no_grad():
        model.networks.biases[-1].unflatten(-1, (3, 1, -1))[:, :, 1].fill_(1e3)
    offsets = model.transport(normal(5, 2, seed=0, dtype=torch.float32)).offsets
    assert torch.isfinite(offsets.square()).all()
    assert (offsets.diff(dim=-1) > 0).all()


def test_scores_under_networks_that_have_diverged_are_finite():
    """The middle of such a law lies at e^90, beside which all values of y are the same."""
    model = MixtureCoordinates.for_table([Variant(0.0, 0.0)], 1, 2, (8,))
    with torch.no_grad():
        means, widths = model.networks.biases[-1].unflatten(-1, (3, 1, -1))[:, :, 1:].unbind(2)
        means.fill_(90.0)
        widths.fill_(60.0)
    x, y = normal(5, 2, seed=0, dtype=torch.float32), torch.tensor([-1e150, -1e9, 0.0, 1e9, 1e150]).double()[:, None]
    assert torch.isfinite(model.scores(x, y)).all()
