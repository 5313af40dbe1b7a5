"""Scorers: the losses of `ncprob.metrics`, negated, wherever scikit-learn takes `scoring=`."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ncprob import NCPRegressor, metrics
from ncprob.scoring import crps_scorer, make_interval_scorer, make_pinball_scorer

LEVELS = [0.1, 0.5, 0.9]
SCORERS = [crps_scorer, make_pinball_scorer(LEVELS), make_interval_scorer(0.8)]


def table(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, X[:, 0] + 0.2 * rng.normal(size=n)


def small(**settings):
    return NCPRegressor(
        **{
            "max_steps": 40,
            "hidden_sizes": (8,),
            "coordinates": "raw",
            "random_state": 0,
            "progress": False,
            **settings,
        }
    )


@pytest.fixture(scope="module")
def fitted():
    return small().fit(*table())


def test_scores_are_the_negated_losses(fitted):
    X, y = table(60, seed=1)
    law = fitted.predict_distribution(X)
    expected = [
        metrics.crps_from_atoms(y, law.atoms, law.weights()),
        metrics.pinball_loss(y, law.quantile(LEVELS), LEVELS),
        metrics.interval_score(y, law.interval(0.8, kind="central"), 0.8),
    ]
    assert [scorer(fitted, X, y) for scorer in SCORERS] == pytest.approx([-loss for loss in expected])


def test_weights_count_rows(fitted):
    X, y = table(30, seed=1)
    twice = np.r_[np.arange(30), np.arange(10)]
    for scorer in SCORERS:
        assert scorer(fitted, X[twice], y[twice]) == pytest.approx(
            scorer(fitted, X, y, sample_weight=np.r_[np.full(10, 2.0), np.ones(20)])
        )


def test_vector_targets_average_their_components():
    X, y = table()
    model = small().fit(X, np.stack([y, 10 * y], axis=1))
    law = model.predict_distribution(X)
    Y = np.stack([y, 10 * y], axis=1)
    quantiles = law.quantile(LEVELS)
    losses = [metrics.pinball_loss(Y[:, k], quantiles[:, k], LEVELS) for k in range(2)]
    assert make_pinball_scorer(LEVELS)(model, X, Y) == pytest.approx(-np.mean(losses))
    assert crps_scorer(model, X, Y) == pytest.approx(-law.crps(Y).mean())
    assert make_interval_scorer(0.8)(model, X, Y) < 0


def test_data_frames_and_calibrated_models(fitted):
    X, y = table(60, seed=1)
    frame, series = pd.DataFrame(X, columns=["a", "b"]), pd.Series(y, index=np.arange(100, 160))
    model = small().fit(frame, series)
    for scorer in SCORERS:
        assert scorer(model, frame, series) == pytest.approx(scorer(small().fit(X, y), X, y))
    calibrated, interval = fitted.conformalize(X, y), make_interval_scorer(0.8)
    expected = metrics.interval_score(y, calibrated.predict_interval(X, 0.8, kind="central"), 0.8)
    assert interval(calibrated, X, y) == pytest.approx(-expected)
    assert interval(calibrated, X, y) != interval(fitted, X, y)


@pytest.mark.parametrize("scorer", SCORERS, ids=str)
def test_a_search_finds_the_trained_model(scorer):
    """After one tiny step nothing is learned; every score must see that."""
    X, y = table(200)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small(learning_rate=2e-2)),
        {"ncpregressor__max_steps": [1, 150]},
        scoring=scorer,
        cv=2,
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_ == {"ncpregressor__max_steps": 150}
    assert (
        search.score(X, y) == pytest.approx(scorer(search, X, y)) == pytest.approx(scorer(search.best_estimator_, X, y))
    )
    assert scorer(search, X, y) < 0


def test_a_pipeline_transforms_before_it_is_scored():
    X, y = table()
    pipeline = make_pipeline(StandardScaler(), small()).fit(100 * X + 7, y)
    inside = pipeline[-1], pipeline[0].transform(100 * X + 7)
    for scorer in SCORERS:
        assert scorer(pipeline, 100 * X + 7, y) == scorer(*inside, y)
        assert scorer(make_pipeline(inside[0]), inside[1], y) == scorer(*inside, y)


def test_several_scorers_at_once_and_parallel_workers():
    X, y = table(80)
    result = cross_validate(small(max_steps=5), X, y, scoring=dict(zip("abc", SCORERS, strict=True)), cv=2)
    assert all(np.isfinite(result[f"test_{name}"]).all() for name in "abc")
    for scorer in SCORERS:
        assert repr(pickle.loads(pickle.dumps(scorer))) == repr(scorer)


def test_weights_arrive_by_metadata_routing():
    X, y = table(80)
    weights = np.where(y > 0, 1.0, 1e-9)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_interval_scorer(0.8).set_score_request(sample_weight=True)
        model = small(max_steps=5).set_fit_request(sample_weight=False)
        weighted = cross_val_score(model, X, y, scoring=scorer, cv=2, params={"sample_weight": weights})
    plain = cross_val_score(small(max_steps=5), X, y, scoring=scorer, cv=2)
    assert not np.allclose(weighted, plain)


def test_bad_calls():
    X, y = table(20)
    with pytest.raises(TypeError, match=r"`estimator` must be an NCPRegressor, .* got LinearRegression"):
        crps_scorer(LinearRegression().fit(X, y), X, y)
    with pytest.raises(ValueError, match="`alpha` must lie strictly between 0 and 1"):
        make_pinball_scorer(1.5)
    with pytest.raises(ValueError, match="`coverage` must lie in"):
        make_interval_scorer(1)
