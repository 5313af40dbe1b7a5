"""Tree ensembles as arrays, with scikit-learn as the truth."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

from ncprob import ensembles
from ncprob.ensembles import Tree, TreeEnsemble

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 4)).astype(np.float32)
Y = np.stack([np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2], X[:, 3] ** 2], axis=1) + 0.1 * RNG.normal(size=(600, 2))
FRESH = RNG.normal(size=(1000, 4)).astype(np.float32)


def forest(y=Y, seed=0, **settings):
    return ExtraTreesRegressor(30, random_state=seed, **settings).fit(X, y)


def boosting(seed=0, **settings):
    return HistGradientBoostingRegressor(max_iter=40, random_state=seed, **settings).fit(X, Y[:, 0])


@pytest.mark.parametrize("n_rows", [0, 1, 2, 7, 1000])
def test_a_forest_predicts_what_scikit_learn_predicts(n_rows):
    grown, x = forest(bootstrap=True), FRESH[:n_rows]
    expected = grown.predict(x) if n_rows else np.zeros((0, 2))
    np.testing.assert_allclose(TreeEnsemble.from_forests([grown])(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n_rows", [1, 1000])
def test_boosting_predicts_what_scikit_learn_predicts(n_rows):
    """Values have 24 bits: 40 of them, each off by 2⁻²⁴ of its size, add up to less than 1e-6."""
    models = [boosting(seed, max_leaf_nodes=leaves) for seed, leaves in ((0, 31), (1, 7))]
    expected = np.mean([model.predict(FRESH[:n_rows]) for model in models], axis=0)
    np.testing.assert_allclose(TreeEnsemble.from_boosting(models)(FRESH[:n_rows])[:, 0], expected, atol=1e-6)


def test_several_forests_are_averaged():
    grown = [forest(seed=seed, min_samples_leaf=5) for seed in (0, 1)]
    expected = np.mean([model.predict(FRESH) for model in grown], axis=0)
    np.testing.assert_allclose(TreeEnsemble.from_forests(grown)(FRESH), expected, rtol=1e-6, atol=1e-6)


def test_rows_on_a_threshold_go_where_scikit_learn_sends_them():
    """Thresholds are halfway between values in float64; rows are the float32 neighbours of every threshold."""
    grown = forest(Y[:, 0])
    thresholds = np.concatenate([tree.tree_.threshold[tree.tree_.feature == 0] for tree in grown.estimators_])
    near = thresholds.astype(np.float32)
    around = np.concatenate([near, np.nextafter(near, np.float32(9)), np.nextafter(near, np.float32(-9))])
    rows = np.tile(FRESH[:1], (len(around), 1))
    rows[:, 0] = around
    np.testing.assert_allclose(
        TreeEnsemble.from_forests([grown])(rows)[:, 0], grown.predict(rows), rtol=1e-6, atol=1e-6
    )
    model = boosting()
    limits = np.concatenate(
        [tree.nodes["num_threshold"][tree.nodes["feature_idx"] == 0] for (tree,) in model._predictors]
    )
    rows = np.tile(FRESH[:1], (len(limits), 1))
    rows[:, 0] = limits
    np.testing.assert_allclose(TreeEnsemble.from_boosting([model])(rows)[:, 0], model.predict(rows), atol=1e-6)


def test_trees_without_a_split():
    constant = forest(np.full(600, 3.0))
    assert np.all(TreeEnsemble.from_forests([constant])(FRESH) == 3.0)
    single = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=400).fit(X, Y[:, 0])
    np.testing.assert_allclose(TreeEnsemble.from_boosting([single])(FRESH)[:, 0], single.predict(FRESH), atol=1e-6)


def test_trees_with_and_without_a_split_together():
    stump = Tree(np.zeros(0, int), np.zeros(0), np.zeros((0, 2), int), np.array([[10.0]]))
    split = Tree(np.array([1]), np.array([0.5]), np.array([[-1, -2]]), np.array([[1.0], [2.0]]))
    ensemble = TreeEnsemble.from_trees([stump, split, stump, split], np.array([100.0]), divisor=2)
    x = np.array([[9.0, 0.5], [9.0, 0.6]])
    np.testing.assert_array_equal(ensemble(x), [[100 + (20 + 2) / 2], [100 + (20 + 4) / 2]])


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_any_size_and_threads_give_the_same(monkeypatch, threads):
    ensemble = TreeEnsemble.from_forests([forest()])
    whole = ensemble(FRESH)
    monkeypatch.setattr(ensembles, "LANES", 128)
    monkeypatch.setattr(ensembles, "ROWS", 37)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    np.testing.assert_allclose(ensemble(FRESH), whole, rtol=1e-13)


def test_rounding_down_is_exact():
    thresholds = RNG.normal(size=1000)
    rounded = ensembles._rounded_down(thresholds)
    assert rounded.dtype == np.float32
    assert np.all(rounded <= thresholds)
    assert np.all(np.nextafter(rounded, np.float32(np.inf)) > thresholds)
