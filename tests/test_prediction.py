"""Predictions of many rows: some at a time, from several threads, always the same."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from ncprob import NCPClassifier, NCPRegressor, base
from ncprob.model import FittedModel

QUICK = {"max_steps": 40, "hidden_sizes": (16,), "random_state": 0, "progress": False, "device": "cpu"}
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (120, 2))
Y = np.column_stack([X[:, 0] + 0.3 * rng.normal(size=120), X[:, 1] * rng.normal(size=120)])


@pytest.fixture(scope="module")
def models():
    """Residual scalar, raw vector, calibrated, classes."""
    scalar = NCPRegressor(coordinates="residual", **QUICK).fit(X, Y[:, 0])
    vector = NCPRegressor(coordinates="raw", **QUICK).fit(X, Y)
    classes = NCPClassifier(**QUICK).fit(X, np.where(Y[:, 0] > 0, "high", "low"))
    return {"scalar": scalar, "vector": vector, "calibrated": scalar.conformalize(X, Y[:, 0]), "classes": classes}


QUESTIONS = {
    "predict": lambda model, X: model.predict(X),
    "var": lambda model, X: model.predict_var(X),
    "cov": lambda model, X: model.predict_cov(X),
    "quantiles": lambda model, X: model.predict_quantiles(X, alpha=(0.1, 0.9)),
    "interval": lambda model, X: model.predict_interval(X, coverage=(0.5, 0.9)),
    "expectation": lambda model, X: model.expectation(lambda y: y[:, 0] ** 2, X),
    "frame": lambda model, X: model.predict_quantiles(pd.DataFrame(X)).to_numpy(),
}


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["scalar", "vector", "calibrated"])
def test_some_rows_at_a_time_give_the_same(models, monkeypatch, name, question):
    ask, model = QUESTIONS[question], models[name]
    expected, sizes, laws = ask(model, X), [], FittedModel.distribution
    monkeypatch.setattr(base, "PREDICT_ROWS", 50)
    monkeypatch.setattr(FittedModel, "distribution", lambda self, x, n, **k: sizes.append(n) or laws(self, x, n, **k))
    np.testing.assert_allclose(ask(model, X), expected, rtol=1e-5, atol=1e-6)
    assert sizes == [50, 50, 20]


@pytest.mark.parametrize("question", ["predict", "var", "quantiles", "interval"])
def test_a_row_alone_is_answered_as_among_others(models, question):
    ask, model = QUESTIONS[question], models["scalar"]
    together = ask(model, X)
    for row in (0, 57, 119):
        np.testing.assert_allclose(ask(model, X[row : row + 1])[0], together[row], rtol=1e-6, atol=1e-9)


def test_classes_some_rows_at_a_time(models, monkeypatch):
    expected = models["classes"].predict_proba(X)
    monkeypatch.setattr(base, "PREDICT_ROWS", 50)
    np.testing.assert_allclose(models["classes"].predict_proba(X), expected, rtol=1e-5, atol=1e-6)


def test_progress_is_shown_if_asked_for_and_more_than_one_part(models, monkeypatch, capsys):
    model = NCPRegressor(**QUICK | {"progress": True, "coordinates": "raw", "max_steps": 5}).fit(X, Y[:, 0])
    capsys.readouterr()
    model.predict(X)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(base, "PREDICT_ROWS", 50)
    model.predict(X)
    assert "predicting" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["scalar", "vector", "calibrated", "classes"])
def test_eight_threads_get_the_answers_of_one(models, name):
    model = models[name]
    ask = model.predict_proba if name == "classes" else model.predict_interval
    expected = [ask(X[i : i + 3]) for i in range(0, 120, 3)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: ask(X[i : i + 3]), range(0, 120, 3)))
    assert all(np.array_equal(one, other) for one, other in zip(expected, answers, strict=True))


def test_sets_may_be_asked_from_threads(models):
    model = NCPRegressor(coordinates="raw", **QUICK).fit(X, Y[:, 0])
    low = [k / 10 - 1 for k in range(10)]
    with ThreadPoolExecutor(8) as pool:  # laws of the training rows are formed by the first to ask
        answers = list(pool.map(lambda a: model.given(lambda x: x[:, 0] > a).mean()[0], low))
    assert answers == [model.given(lambda x, a=a: x[:, 0] > a).mean()[0] for a in low]
