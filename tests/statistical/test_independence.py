"""The independence test over many data sets: p-values uniform without dependence, small with it."""

import numpy as np
import pytest
from helpers import normal
from scipy import stats

from ncprob.dependence import independence_test, measure_dependence

pytestmark = pytest.mark.slow

REPETITIONS = 200


def pvalues(simulate, n, **settings):
    return np.array(
        [independence_test(*simulate(n, seed), random_state=seed, **settings).pvalue for seed in range(REPETITIONS)]
    )


def continuous(n, seed):
    return normal(n, 2, seed=2 * seed), normal(n, seed=2 * seed + 1)


def with_ties_and_heavy_tails(n, seed):
    numerator, denominator = normal(2, n, seed=2 * seed)
    return numerator / denominator, normal(n, seed=2 * seed + 1).round()


@pytest.mark.parametrize("simulate", [continuous, with_ties_and_heavy_tails])
def test_pvalues_are_uniform_under_independence(simulate):
    sample = pvalues(simulate, 300, max_steps=40, n_permutations=199)
    # p takes the values k/200; spreading each over its cell gives the continuous uniform law
    spread = sample - np.random.default_rng(0).uniform(0, 1 / 200, REPETITIONS)
    assert stats.kstest(spread, "uniform").pvalue > 0.01
    assert np.mean(sample <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / REPETITIONS)


def test_overfitting_costs_power_not_validity():
    """Twenty rows to learn from: the features are noise, the level holds."""
    sample = pvalues(continuous, 40, max_steps=80, n_permutations=99)
    assert np.mean(sample <= 0.1) <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / REPETITIONS)


def test_power_grows_with_the_rows():
    def weak(n, seed):
        x, noise = normal(2, n, seed=seed)
        return x, 0.25 * x**2 + noise

    small, large = (np.mean(pvalues(weak, n, max_steps=40, n_permutations=99) <= 0.05) for n in (80, 400))
    assert large > 0.6
    assert large > small + 0.2


def test_held_out_strength_of_independent_pairs_is_centred_at_zero():
    found = [measure_dependence(*continuous(300, seed), max_steps=100, random_state=seed) for seed in range(40)]
    assert np.mean([answer.maximal_correlation for answer in found]) < 0.06  # E max(0, N(0, 1/150)) = 0.033
    assert np.mean([answer.chi2 for answer in found]) < 0.01
