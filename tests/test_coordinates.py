"""Conditional location and scale: robust, equivariant, and out of fold for the training rows."""

import numpy as np
import pytest
import torch
from helpers import normal

from ncprob import datasets
from ncprob.coordinates import FOLDS, LocationScale, fold_numbers, out_of_fold
from ncprob.encoders import MLP
from ncprob.optimization import Runtime, Schedule
from ncprob.preprocessing import NORMAL_IQR

CPU = torch.device("cpu")


def new_model(n_components=1, width=16, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LocationScale(lambda n: MLP(1, (width,), n), n_components)


def fit(model, x, y, weights=None, **settings):
    schedule = Schedule(**{"max_steps": 30, "batch_size": 64, "gradient_clip": 1e9, "validate_every": 100} | settings)
    model.fit(x, y, weights, schedule, Runtime(progress=False), gate_strength=0.0)
    return model


@pytest.mark.parametrize("simulator", [datasets.Laplace(), datasets.Cauchy()])
def test_median_and_interquartile_range_are_recovered(simulator):
    """Laplace and Cauchy noise whose scale grows with x; n = 6,000.

    A smooth fit with about ten free parameters per quartile has a mean error of about √(10/n) = 0.04 standard
    errors of one value, which for these laws is 1–1.6 scales: 0.05 scales for the median and 0.1 for the wider
    quartiles. Thresholds: twice as much.
    """
    x, y = simulator.sample(6000, random_state=0)
    inputs = torch.tensor((x - 2.5) / 1.5, dtype=torch.float32)
    model = fit(
        new_model(width=32), inputs, torch.tensor(y)[:, None],
        max_steps=500, batch_size=512, learning_rate=1e-2, gradient_clip=1.0,
    )  # fmt: skip
    points = np.linspace(0.5, 4.5, 17)[:, None]
    lower, median, upper = simulator.truth(points).quantile([0.25, 0.5, 0.75]).T
    location, scale = model(torch.tensor((points - 2.5) / 1.5, dtype=torch.float32))
    unit = (upper - lower) / NORMAL_IQR
    assert np.abs((location[:, 0].numpy() - median) / unit).mean() < 0.1
    assert np.abs(scale[:, 0].numpy() / unit - 1).mean() < 0.2


def test_a_training_row_is_answered_by_the_network_that_has_not_seen_it():
    """Shuffling y inside fold k must not change what the rows of fold k are told, to the last bit."""
    x, y = normal(90, 1, seed=1, dtype=torch.float32), normal(90, 1, seed=2)
    fold = fold_numbers(len(y))
    before = out_of_fold(fit(new_model(), x, y), x, len(y), CPU)
    for k in range(FOLDS):
        changed = y.clone()
        rows = (fold == k).nonzero()[:, 0]
        changed[rows] = y[rows.flip(0)]  # centre and scale of all y stay as they are
        model = fit(new_model(), x, changed)
        after = out_of_fold(model, x, len(y), CPU)
        for a, b in zip(after, before, strict=True):
            assert torch.equal(a[rows], b[rows])
            assert not torch.allclose(a[fold != k], b[fold != k])


def test_out_of_fold_picks_one_network_per_row():
    model, x = new_model(n_components=2), normal(10, 1, seed=3, dtype=torch.float32)
    location, scale = out_of_fold(model, x, 10, CPU)
    assert location.shape == scale.shape == (10, 2)
    for row in range(10):
        alone = model(x[row : row + 1], torch.tensor([row % FOLDS]))
        torch.testing.assert_close(location[row], alone[0][0])
        torch.testing.assert_close(scale[row], alone[1][0])


def test_new_rows_get_the_average_over_networks():
    model, x = new_model(n_components=2), normal(6, 1, seed=4, dtype=torch.float32)
    singles = [model(x, torch.full((6,), k)) for k in range(FOLDS)]
    for part in range(2):
        mean = torch.stack([single[part] for single in singles]).mean(dim=0)
        torch.testing.assert_close(model(x)[part], mean)


@pytest.mark.parametrize("chunk", [1, 4, 7, 100])
def test_out_of_fold_does_not_depend_on_the_chunk_size(chunk):
    model, x = new_model(), normal(20, 1, seed=5, dtype=torch.float32)
    whole = out_of_fold(model, x, 20, CPU)
    for a, b in zip(out_of_fold(model, x, 20, CPU, chunk=chunk), whole, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("n", [1, 3, 100])
def test_folds_are_of_equal_size(n):
    counts = fold_numbers(n).bincount(minlength=FOLDS)
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("factor", "shift"), [(2.0**40, 0.0), (2.0**-40, 0.0), (4.0, 1024.0)])
def test_answers_follow_shift_and_scale_of_y(factor, shift):
    x, y = normal(60, 1, seed=6, dtype=torch.float32), normal(60, 2, seed=7).round(decimals=3)
    location, scale = fit(new_model(2), x, y)(x)
    moved_location, moved_scale = fit(new_model(2), x, factor * y + shift)(x)
    torch.testing.assert_close(moved_location, factor * location + shift, rtol=1e-5, atol=1e-5 * factor)
    torch.testing.assert_close(moved_scale, factor * scale, rtol=1e-5, atol=0)


def test_scale_is_positive_and_quartiles_do_not_cross():
    model, x = new_model(), torch.linspace(-1e3, 1e3, 50)[:, None]
    lower, median, upper = model._quartiles(x)
    assert (lower < median).all()
    assert (median < upper).all()
    assert (model(x)[1] > 0).all()


def test_a_deterministic_relation_keeps_a_positive_scale():
    x = torch.linspace(-1, 1, 60)[:, None]
    _, scale = fit(new_model(), x, x.double() * 2, max_steps=60)(x)
    assert torch.isfinite(scale).all()
    assert (scale > 0).all()


def test_one_outlier_does_not_move_the_fit():
    x, y = normal(300, 1, seed=8, dtype=torch.float32), normal(300, 1, seed=9)
    spoiled = y.clone()
    spoiled[7] = 1e12
    settings = {"max_steps": 150, "learning_rate": 1e-2, "batch_size": 100}
    location, scale = fit(new_model(), x, y, **settings)(x)
    moved_location, moved_scale = fit(new_model(), x, spoiled, **settings)(x)
    # One row of 300 moves the rank of every quartile by 1/300, far below its sampling error of 0.07; the descent adds
    # its own noise.
    assert (moved_location - location).abs().median() < 0.15
    assert (moved_scale / scale - 1).abs().median() < 0.15


def test_pinball_loss_is_least_at_the_quartiles():
    model = new_model()
    y = normal(5000, 1, seed=10)
    ones = torch.zeros(5000, 1)

    def loss(median, width):
        for network in model.networks:
            for parameter in network.parameters():
                parameter.data.zero_()
            raw = np.log(np.expm1(width))
            network[-1].bias.data.copy_(torch.tensor([median, raw, raw]))
        return model.pinball(ones, y.float()).mean().item()

    quartile = 0.6745
    best = loss(0.0, quartile)
    for other in ((0.1, quartile), (-0.1, quartile), (0.0, quartile + 0.1), (0.0, quartile - 0.1)):
        assert loss(*other) > best


def test_weights_draw_rows_in_proportion():
    """Rows of weight zero do not teach: y of those rows may be anything of the same centre and scale."""
    x, y = normal(60, 1, seed=11, dtype=torch.float32), normal(60, 1, seed=12)
    weights = torch.ones(60)
    weights[:20] = 0
    changed = y.clone()
    changed[:20] = y[:20].flip(0)
    first = fit(new_model(), x, y, weights)(x)
    second = fit(new_model(), x, changed, weights)(x)
    assert torch.equal(first[0], second[0])
