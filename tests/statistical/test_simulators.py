"""Fitted models over seeds: calibrated on every simulator, and the marginal law where there is nothing to learn."""

import inspect

import numpy as np
import pytest
from scipy import stats

from ncprob import NCPRegressor, datasets

pytestmark = pytest.mark.slow

ROWS, NEW_ROWS, SEEDS = 800, 2000, 2
CLASSES = {name: getattr(datasets, name) for name in datasets.__all__}
SIMULATORS = [
    name
    for name, kind in CLASSES.items()
    if inspect.isclass(kind) and issubclass(kind, datasets.Simulator) and not inspect.isabstract(kind)
]


def quick(seed):
    return NCPRegressor(
        max_steps=300, hidden_sizes=(32, 32), tree_inputs=False, early_stopping=True, random_state=seed, progress=False
    )


def randomized_pit(law, y, seed):
    """F(y−) + U (F(y) − F(y−)), uniform for laws with steps too."""
    upto, before = law.pit(y), law.pit(np.nextafter(y, -np.inf))
    return before + np.random.default_rng(seed).uniform(size=upto.shape) * (upto - before)


@pytest.mark.parametrize("name", SIMULATORS)
def test_pit_is_uniform_and_intervals_cover(name):
    distances, coverages, far = [], [], []
    for seed in range(SEEDS):
        simulator = CLASSES[name]()
        X, y = simulator.sample(ROWS, random_state=seed)
        X_new, y_new = simulator.sample(NEW_ROWS, random_state=1000 + seed)
        model = quick(seed).fit(X, y)
        law = model.predict_distribution(X_new)
        distances.append(stats.kstest(randomized_pit(law, y_new, seed).ravel(), "uniform").statistic)
        low, high = np.moveaxis(law.interval([0.5, 0.9], "central"), -2, 0)
        coverages.append(((y_new[:, None] >= low) & (y_new[:, None] <= high)).mean(axis=0))
        far.append(np.mean(model.novelty(X_new) > 1.5))
    # Even with the exact conditional shape, 800 rows know the law of the scores, and 2,000 new ones show it, up to
    # √(1/800 + 1/2000) = 0.042 times the Kolmogorov law: 1.36 at 95 %, 1.63 at 99 %.
    assert max(distances) < 1.63 * 0.042, distances
    # a coverage of ½ errs by at most √(¼)·0.042 = 0.021 per standard error, of 0.9 by 0.013; discrete laws over-cover
    assert np.mean(coverages, axis=0)[0] > 0.5 - 3 * 0.021
    assert np.mean(coverages, axis=0)[1] > 0.9 - 3 * 0.013
    if name != "CircleDiscrete":
        assert np.mean(coverages, axis=0)[0] < 0.5 + 3 * 0.021
        assert np.mean(coverages, axis=0)[1] < 0.9 + 3 * 0.013
    assert np.mean(far) < 0.02  # rows of the same kind are not far outside: at most a few of 800 reach the edge


@pytest.mark.parametrize("p", [1, 10])
def test_pure_noise_gives_the_marginal_back(p):
    """Over seeds: laws at new x differ from the marginal by less than the rows can tell, on average."""
    n, gaps, spreads = 400, [], []
    grid = np.linspace(-2.5, 2.5, 51)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y, X_new = rng.normal(size=(n, p)), rng.normal(size=n), rng.normal(size=(300, p))
        law = quick(seed).fit(X, y).predict_distribution(X_new)
        marginal = (y[:, None] <= grid).mean(axis=0)
        gaps.append(np.abs(law.cdf(grid) - marginal).max(axis=1).mean())
        spreads.append(law.mean().std())
    # 40 held-out rows cannot exclude a law that differs by 0.87/√40 = 0.14; a method that invents nothing stays at half
    assert np.mean(gaps) < 0.07, gaps
    # a line fitted to noise by least squares would spread by √(p/n) = 0.05 and 0.16
    assert np.mean(spreads) < 0.16, spreads
