"""The block bootstrap finds the error of a mean of dependent rows."""

import numpy as np
import pytest
import torch

from ncprob import datasets
from ncprob.resampling import MAX_BLOCKS, block_sums, bootstrap


def mean(sums):
    return sums[:, 0, 1] / sums[:, 0, 0]


def error_of_the_mean(series, length, n_resamples=400):
    rows = torch.stack([torch.ones(len(series)).double(), torch.as_tensor(series)], dim=1)
    sums = block_sums(rows, torch.arange(len(series)) // length)
    settings = {"confidence": 0.9, "n_resamples": n_resamples, "seed": 0, "bounds": (-9.0, 9.0)}
    return bootstrap(sums, mean, torch.as_tensor(series).mean(), **settings)


def test_error_of_the_mean_of_a_dependent_series():
    """Var(mean) = (1 + a)/(1 − a)/n of an autoregression; single rows would give 1/n, half the error."""
    process = datasets.OrnsteinUhlenbeck()
    n, a = 8000, process.coefficient
    exact = np.sqrt((1 + a) / (1 - a) / n)
    series = process.trajectories(n, 12, random_state=0)
    errors = [float(error_of_the_mean(x, 40).standard_error) for x in series]
    # 200 blocks and 400 resamples: 6 % each, 2 % for the mean of 12 series; blocks of 40 lose 1/40 of the covariance
    assert abs(np.mean(errors) / exact - 1) < 0.08
    shuffled = [np.random.default_rng(0).permutation(x) for x in series]
    assert np.mean([float(error_of_the_mean(x, 40).standard_error) for x in shuffled]) < 0.6 * exact


def test_intervals_cover():
    process = datasets.OrnsteinUhlenbeck()
    estimates = [error_of_the_mean(x, 20, 100) for x in process.trajectories(2000, 200, random_state=1)]
    covered = np.mean([float(e.low) <= 0 <= float(e.high) for e in estimates])
    assert abs(covered - 0.9) < 0.07  # three standard errors of 200 trials


def test_sums_do_not_depend_on_blocks_and_many_blocks_are_joined():
    rows = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    few, many = block_sums(rows, torch.arange(2000) // 500), block_sums(rows, torch.arange(2000))
    assert len(few) == 4
    assert len(many) == MAX_BLOCKS
    torch.testing.assert_close(few.sum(dim=0), many.sum(dim=0))


@pytest.mark.filterwarnings("ignore:sampling errors come from only 3 blocks")
def test_resamples_without_an_answer_do_not_count():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    ratio = lambda sums: sums[:, 1, 1] / sums[:, 1, 1]  # noqa: E731 NaN where the last row is not drawn
    found = bootstrap(
        block_sums(rows, torch.arange(3)),
        ratio,
        torch.tensor(1.0),
        confidence=0.9,
        n_resamples=50,
        seed=0,
        bounds=(0, 1),
    )
    assert float(found.standard_error) == 0.0
    assert float(found.low) == float(found.high) == 1.0
