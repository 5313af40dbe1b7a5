"""The steps of a fit: candidates, their choice, and completion with held-out rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from ncprob import NCPRegressor, candidates, fitting, judging, networks, optimization, samples, trees
from ncprob.candidates import Plan
from ncprob.datasets import TwoRegimes
from ncprob.fitting import fit_model, marginal_model
from ncprob.judging import held_out_crps
from ncprob.lattices import lattice_of
from ncprob.optimization import Schedule
from ncprob.recipe import Recipe
from ncprob.samples import Rows, Sample
from ncprob.training import train_operator

FAST = Recipe(
    rank=4,
    hidden_sizes=(16,),
    coordinates="raw",
    loss="covariance",
    gamma=1e-3,
    postprocessing="whitening",
    ensemble_size=1,
    input_gate=0.0,
    tree_inputs=None,
    schedule=Schedule(max_steps=60, learning_rate=1e-2, batch_size=256),
    device=torch.device("cpu"),
    seed=0,
    progress=False,
)


def line(n, seed, noise=0.1, weights=None):
    """x uniform on (−1, 1), y = x + noise."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(n, 1, generator=generator) - 1
    y = x.double() + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return Sample(x, y, weights)


TRAINING, HELD_OUT = line(400, seed=0), line(100, seed=1)


@pytest.mark.parametrize("coordinates", ["raw", "residual"])
@pytest.mark.parametrize("join", [True, False])
def test_held_out_rows_become_atoms_only_if_joined(coordinates, join):
    fitted = fit_model(TRAINING, HELD_OUT, replace(FAST, coordinates=coordinates), join=join)
    assert fitted.model.coordinates == coordinates
    assert len(fitted.base) == (500 if join else 400)
    if coordinates == "raw":  # residual ones have the atoms of a smooth law
        assert len(fitted.model.support) == (500 if join else 400)


def crps(model):
    """Mean over the held-out rows."""
    return float(model.distribution(HELD_OUT.x, len(HELD_OUT)).crps(HELD_OUT.y).mean())


def test_auto_leaves_residual_coordinates_only_for_clearly_better_ones(monkeypatch):
    both = {
        name: fit_model(TRAINING, HELD_OUT, replace(FAST, coordinates=name), join=False) for name in ("raw", "residual")
    }
    chosen = fit_model(TRAINING, HELD_OUT, replace(FAST, coordinates="auto"), join=False)
    assert chosen.model.coordinates == "residual"
    assert crps(chosen.model) == crps(both["residual"].model)
    scores = held_out_crps(both["residual"])
    for gain, coordinates in ((0.5, "raw"), (0.005, "residual")):  # proved beyond doubt both; but half a per cent
        monkeypatch.setattr(
            judging, "held_out_crps",
            lambda candidate, gain=gain: (
                (1 - gain) * scores if candidate.model.residual is None else held_out_crps(candidate)
            ),
        )  # fmt: skip
        fitted = fit_model(TRAINING, HELD_OUT, replace(FAST, coordinates="auto"), join=False)
        assert fitted.model.coordinates == coordinates


def grades(n, seed):
    """Three levels that depend on x."""
    sample = line(n, seed, noise=0.5)
    return replace(sample, y=sample.y.round().clamp(-1, 1))


def test_few_levels_take_the_coordinates_with_the_lower_mean(monkeypatch):
    scores = torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    zeros = replace(TRAINING, y=TRAINING.y.clamp(min=0))  # a density above zero
    for target, gain, coordinates in (
        (grades(300, 0), 0.001, "raw"),  # no density to lose: the slightest gain decides
        (grades(300, 0), -0.001, "residual"),
        (zeros, 0.001, "residual"),
        (zeros, 0.02, "raw"),
    ):
        monkeypatch.setattr(
            judging, "held_out_crps", lambda c, gain=gain: (1 - gain * (c.model.residual is None)) * scores
        )
        fitted = fit_model(target, grades(100, 1), replace(FAST, coordinates="auto"), join=False)
        assert fitted.model.coordinates == coordinates


@pytest.mark.parametrize(("factor", "whole"), [(0.999, True), (1.001, False)])
def test_raw_coordinates_are_fitted_in_full_only_where_their_pilot_promises_something(
    factor, whole, monkeypatch, tmp_path
):
    scores = torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr(
        judging,
        "held_out_crps",
        lambda c: (factor if c.model.residual is None else 1.0) * scores,
    )
    fit_model(TRAINING, HELD_OUT, replace(FAST, coordinates="auto", checkpoint_dir=tmp_path), join=False)
    stages = {file.stem for file in tmp_path.iterdir()}
    assert stages == {"mixture", "residual-0", "raw-pilot-0"} | ({"raw-0"} if whole else set())


@pytest.mark.parametrize(("batch_size", "of_pilot"), [(2048, 1024), (20, 16), (8, 8)])
def test_a_pilot_takes_a_quarter_of_the_steps_and_half_of_the_rows(batch_size, of_pilot):
    recipe = replace(FAST, schedule=replace(FAST.schedule, max_steps=61, batch_size=batch_size))
    plan = Plan("raw", "raw", Rows(TRAINING, None, TRAINING, None), recipe)
    pilot = fitting._pilot(plan)
    expected = replace(recipe, schedule=replace(recipe.schedule, max_steps=16, batch_size=of_pilot))
    assert pilot == Plan("raw-pilot", "raw", plan.rows, expected)


def test_levels_beside_other_components_are_learned_in_raw_coordinates(monkeypatch):
    monkeypatch.setattr(trees, "N_TREES", 30)
    x, both = TRAINING.x, torch.cat([TRAINING.y, TRAINING.y.round()], dim=1)
    auto = replace(FAST, coordinates="auto")
    for y, tried in ((both, ["raw"]), (both[:, :1], ["residual", "raw"]), (both[:, 1:], ["residual", "raw"])):
        rows = Rows(Sample(x, y), None, Sample(x, y), None, lattice_of(y))
        assert [plan.coordinates for plan in fitting._plans(rows, auto)] == tried
    forest = replace(auto, tree_inputs=True)
    plans = fitting._plans(rows_with_trees(x, both, forest), forest)
    assert [(plan.name, plan.rows.training.x.shape[1] > 1) for plan in plans] == [("raw-trees", True), ("raw", False)]


def test_of_two_raw_candidates_the_one_with_the_lower_mean_is_taken(monkeypatch):
    y = torch.cat([TRAINING.y, TRAINING.y.round()], dim=1)
    first, second = (
        replace(fitted, rows=replace(fitted.rows, lattice=lattice_of(y)))
        for fitted in (fit_model(TRAINING, HELD_OUT, replace(FAST, seed=seed), join=False) for seed in (0, 1))
    )
    scores = torch.ones(100, dtype=torch.float64)
    for factor, better in ((1.001, first), (0.999, second)):
        monkeypatch.setattr(
            judging, "held_out_crps", lambda c, factor=factor: (factor if c is second else 1.0) * scores
        )
        assert judging.choose([first, second], FAST) is better


def test_clearly_lower_is_two_standard_errors():
    scores = torch.tensor([0.0, 2.0] * 50)  # standard deviation 1, so 0.1 of the mean of 100
    assert not judging._clearly_lower(torch.zeros(100), scores - 0.81)
    assert judging._clearly_lower(torch.zeros(100), scores - 0.79)


def test_an_operator_that_adds_nothing_to_the_mixture_is_left_out():
    # y given x is normal with constant variance: the mixture says it all
    fitted = fit_model(TRAINING, HELD_OUT, replace(FAST, coordinates="residual", rank=None), join=True)
    assert fitted.model.ranks == [0]
    kept = fit_model(TRAINING, HELD_OUT, replace(FAST, coordinates="residual", rank=4), join=True)
    assert kept.model.ranks == [4]  # who asks for a rank gets it


def test_integers_are_spread_before_and_rounded_after():
    sample = line(300, seed=3, noise=0.3)
    counts = Sample(sample.x, (20 * sample.y).round())
    fitted = fit_model(counts, None, replace(FAST, coordinates="residual"), join=False)
    assert len(fitted.base.unique()) == 300  # no ties
    draws = fitted.model.distribution(counts.x[:5], 5).sample(50)
    assert torch.equal(draws, draws.round())


def test_trees_join_the_inputs_and_raw_coordinates_are_tried_without_them():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(400, 3, generator=generator)
    y = (2 * x[:, :1] + x[:, 1:2]).double()
    for target in (y, y.floor()):  # a continuum, three levels
        few = replace(FAST, coordinates="auto", tree_inputs=True)
        plans = fitting._plans(rows_with_trees(x, target, few), few)
        assert [plan.coordinates for plan in plans] == ["residual", "raw"]
        assert [plan.rows.training.x.shape[1] > 3 for plan in plans] == [True, False]
    levels = y.floor()
    model = fit_model(Sample(x[:300], levels[:300]), Sample(x[300:], levels[300:]), few, join=True).model
    law = model.distribution(x[:7], 7)
    assert torch.equal(law.quantile([0.1, 0.9]), law.quantile([0.1, 0.9]).round())


def test_trees_see_the_order_of_levels_and_their_shares_only(monkeypatch):
    monkeypatch.setattr(trees, "N_TREES", 30)
    few, sample = replace(FAST, coordinates="auto", tree_inputs=True), grades(100, 0)
    far = replace(sample, y=torch.where(sample.y == 1, 1e6, sample.y))
    first, second = (rows_with_trees(s.x, s.y, few).training.x for s in (sample, far))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("coordinates", "components", "width", "patience"),
    [("residual", 1, 16, 5), ("raw", 1, 50, 10), ("residual", 2, 50, 10)],  # 400 rows for 8 at least a function
)
def test_an_operator_beside_a_mixture_of_one_component_is_small(coordinates, components, width, patience, monkeypatch):
    seen = []
    monkeypatch.setattr(
        candidates,
        "train_operator",
        lambda operator, *args, schedule, **rest: (
            seen.append((operator.rank, schedule.patience)),
            train_operator(operator, *args, schedule=schedule, **rest),
        )[1],
    )
    sample = replace(TRAINING, y=TRAINING.y.repeat(1, components))
    fit_model(sample, None, replace(FAST, rank=None, coordinates=coordinates), join=False)
    assert seen == [(width, patience)]


def rows_with_trees(x, y, recipe):
    lattice = lattice_of(y)
    trees, sample = fitting._grow_trees(Sample(x, y), lattice, recipe)
    return Rows(sample, None, sample, trees, lattice)


def test_an_ensemble_averages_density_ratios():
    fitted = fit_model(TRAINING, HELD_OUT, replace(FAST, ensemble_size=2), join=False)
    model = fitted.model
    assert len(model.operators) == len(model.ranks) == 2
    x, order = HELD_OUT.x[:5], torch.argsort(TRAINING.y[:, 0], stable=True)
    inputs = fitted.y_inputs(TRAINING.y)[order]
    ratios = [operator.density_ratio(x, inputs) for operator in model.operators]
    together = 1 + model.left(x, 5) @ model.support.features.mT
    assert not torch.allclose(*ratios, atol=1e-3)  # members start from different seeds
    torch.testing.assert_close(together, (ratios[0] + ratios[1]) / 2, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("postprocessing", ["none", "centering", "whitening"])
@pytest.mark.parametrize("held_out", [HELD_OUT, None])
def test_every_postprocessing_works_with_and_without_held_out_rows(postprocessing, held_out):
    fitted = fit_model(TRAINING, held_out, replace(FAST, postprocessing=postprocessing), join=True)
    assert fitted.model.operators[0].postprocessing == postprocessing
    # the line explains all but noise of 0.1 in a spread of 0.58: knowing x must help
    assert crps(fitted.model) < 0.8 * crps(marginal_model(TRAINING.y, None))


def test_whitening_uses_training_and_held_out_rows_together():
    fitted = fit_model(TRAINING, HELD_OUT, FAST, join=True)
    operator, ridge = fitted.model.operators[0], fitted.ridges[0]
    x, y = torch.cat([TRAINING.x, HELD_OUT.x]), torch.cat([TRAINING.y, HELD_OUT.y])
    with torch.no_grad():
        left, right = operator.left_features(x).double(), operator.right_features(fitted.y_inputs(y)).double()
    torch.testing.assert_close(left.mean(dim=0), torch.zeros(4).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(right.mean(dim=0), torch.zeros(4).double(), atol=1e-5, rtol=0)
    covariance = left.mT @ left / len(x)
    torch.testing.assert_close(covariance, covariance.diagonal().diag(), atol=1e-2, rtol=0)
    assert covariance[0, 0] == pytest.approx(1, abs=0.02 + ridge)  # a ridge shrinks it a little


def test_the_marginal_model_knows_nothing_of_x():
    weights = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)
    model = marginal_model(torch.tensor([[1.0], [5.0], [2.0]], dtype=torch.float64), weights)
    d = model.distribution(torch.zeros(2, 7), 2)
    assert model.coordinates == "raw"
    np.testing.assert_allclose(d.mean(), [1.75, 1.75])
    assert 5.0 not in d.atoms


def test_weights_of_training_and_held_out_rows_reach_the_atoms():
    training, held = (line(n, seed, weights=torch.arange(n).double()) for n, seed in ((100, 0), (40, 1)))
    model = fit_model(training, held, FAST, join=True).model
    expected = torch.cat([training.weights, held.weights])
    order = torch.argsort(torch.cat([training.y, held.y])[:, 0])
    kept = expected[order][expected[order] > 0]
    torch.testing.assert_close(model.support.weights, kept / kept.sum())


def test_nested_inputs_are_concatenated():
    first = {"a": torch.zeros(2, 1), "b": (torch.zeros(2), torch.ones(2))}
    joined = samples._concatenate(first, first)
    assert joined["a"].shape == (4, 1)
    assert joined["b"][1].shape == (4,)


def test_custom_encoders_are_copied_not_trained_in_place():
    encoder = nn.Linear(1, 4)
    before = encoder.weight.detach().clone()
    fit_model(TRAINING, HELD_OUT, replace(FAST, x_encoder=encoder), join=True)
    assert torch.equal(encoder.weight, before)


def test_a_seeded_block_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    with networks.seeded(3):
        first = torch.rand(2)
    with networks.seeded(3):
        assert torch.equal(first, torch.rand(2))
    assert torch.equal(before, torch.random.get_rng_state())


def test_candidates_side_by_side_and_one_by_one_are_the_same_to_the_bit():
    X, y = TwoRegimes().sample(300, random_state=0)

    def answers(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return NCPRegressor(max_steps=60, random_state=0, device="cpu").fit(X, y).predict_quantiles(X[:20])
        finally:
            torch.set_num_threads(before)

    np.testing.assert_array_equal(answers(1), answers(2))


def test_a_failing_candidate_stops_the_other(monkeypatch):
    steps = []

    def update(run, loss):
        steps.append(run.runtime.description)
        if run.runtime.description.startswith("raw") and len(steps) > 5:
            raise KeyboardInterrupt
        run.step, run._loss_count = run.step + 1, 1

    monkeypatch.setattr(optimization._Run, "update", update)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    X, y = TwoRegimes().sample(300, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        NCPRegressor(max_steps=10**9, random_state=0, device="cpu").fit(X, y)  # would never end by itself


def test_few_rows_of_a_skew_target_do_not_make_powers_of_ten():
    """A wide law at an input far from all rows: of y up to 10 it had a mean of 10⁸ while tails were logarithmic."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(32, 3))
    y = np.exp(1.2 * rng.normal(size=32) + 0.8 * X[:, 0])
    model = NCPRegressor(random_state=0, progress=False, device="cpu").fit(X, y)
    far = np.vstack([3 * np.eye(3), -3 * np.eye(3), np.full((1, 3), 8.0)])
    assert np.abs(model.predict_quantiles(far, alpha=(0.005, 0.995))).max() < 100 * y.max()
    assert np.abs(model.predict(far)).max() < 10 * y.max()
