"""Coverage of calibrated intervals over many calibration sets, with models that are wrong on purpose."""

import math

import numpy as np
import pytest
import torch
from helpers import affine, generator, normal

from ncprob import NCPRegressor
from ncprob.calibration import KINDS, METHODS, ConformalCalibrator
from ncprob.distribution import ConditionalDistribution
from ncprob.support import Support

pytestmark = pytest.mark.slow

REPETITIONS, NEW_ROWS = 200, 100
COVERAGES = [0.5, 0.8, 0.9]


def wrong_law(x):
    """Says N(x/2, 0.7²) where the truth is x + (½ + |x|)·noise with heavy tails."""
    levels = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    support = Support(torch.special.ndtri(levels), torch.zeros(200, 1))
    return ConditionalDistribution(
        support, torch.zeros(len(x), 1), transport=affine(x[:, None] / 2, torch.full((len(x), 1), 0.7))
    )


def draw(n, seed):
    x, noise, denominator = normal(3, n, seed=seed)
    return x, x + (0.5 + x.abs()) * noise / denominator.abs().clamp(min=0.3)


def covered(interval, y):
    return ((interval[:, 0] <= y[:, None]) & (y[:, None] <= interval[:, 1])).double().mean(dim=0)


def check(shares, coverages, n):
    """The mean over calibration sets lies between c and c + 1/(n + 1), up to three standard errors."""
    mean, error = np.mean(shares, axis=0), 3 * np.std(shares, axis=0, ddof=1) / math.sqrt(len(shares))
    assert (mean >= np.array(coverages) - error).all(), mean
    return mean, error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [20, 60])
def test_marginal_coverage(method, kind, n):
    shares = []
    for repetition in range(REPETITIONS):
        (x, y), (x_new, y_new) = draw(n, seed=2 * repetition), draw(NEW_ROWS, seed=2 * repetition + 1)
        calibrator = ConformalCalibrator(wrong_law(x), y, method=method)
        shares.append(covered(calibrator.interval(wrong_law(x_new), COVERAGES, kind), y_new).numpy())
    mean, error = check(shares, COVERAGES, n)
    grid = 1 / 100 if (method, kind) == ("pit", "shortest") else 0  # levels come in steps: ties
    assert (mean <= np.array(COVERAGES) + 1 / (n + 1) + error + grid).all(), mean


@pytest.mark.parametrize("kind", KINDS)
def test_coverage_under_covariate_shift_needs_the_weights(kind):
    """New rows have x ~ N(1, 1) instead of N(0, 1): density ratio exp(x − ½)."""
    plain, weighted = [], []
    for repetition in range(REPETITIONS):
        x, y = draw(100, seed=2 * repetition)
        shift = normal(NEW_ROWS, seed=2 * repetition + 1) + 1
        _, noise, denominator = normal(3, NEW_ROWS, seed=10**6 + repetition)
        y_new = shift + (0.5 + shift.abs()) * noise / denominator.abs().clamp(min=0.3)
        law = wrong_law(shift)
        unaware = ConformalCalibrator(wrong_law(x), y)
        aware = ConformalCalibrator(wrong_law(x), y, weights=(x - 0.5).exp())
        plain.append(covered(unaware.interval(law, [0.8], kind), y_new).numpy())
        weighted.append(covered(aware.interval(law, [0.8], kind, new_weights=(shift - 0.5).exp()), y_new).numpy())
    assert np.mean(plain) < 0.75
    check(weighted, [0.8], 100)


@pytest.mark.parametrize("method", METHODS)
def test_coverage_of_a_fitted_model(method):
    """One model of 300 rows, calibrated 200 times on 50 others."""
    x, y = draw(300 + 20000, seed=0)
    model = NCPRegressor(coordinates="raw", max_steps=300, random_state=0).fit(x[:300, None].numpy(), y[:300].numpy())
    law = model.predict_distribution(x[300:, None].numpy())
    law = ConditionalDistribution(law.support, law.left, transport=law.transport)  # tensors out
    shares = []
    for repetition in range(REPETITIONS):
        rows = torch.randperm(20000, generator=generator(repetition))[: 50 + NEW_ROWS]
        calibrator = ConformalCalibrator(law[rows[:50]], y[300 + rows[:50]], method=method)
        interval = calibrator.interval(law[rows[50:]], COVERAGES, "central")
        shares.append(covered(interval, y[300 + rows[50:]]).numpy())
    check(shares, COVERAGES, 50)
