"""scikit-learn's own contract of an estimator, and its tools around it."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ncprob import NCPClassifier, NCPRegressor

FAST = NCPRegressor(
    coordinates="residual",
    hidden_sizes=(16,),
    rank=4,
    max_steps=60,
    learning_rate=2e-2,
    random_state=0,
    device="cpu",
    progress=False,
)

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "minibatches are drawn with probability proportional to the "
    "weights: equal to repeated rows in expectation, not to the bit",
    "check_methods_subset_invariance": "networks compute in float32, whose rounding depends on the size of the batch: "
    "answers agree to 1e-6, the check asks for 1e-7",
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([FAST], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ---------------------------------------------------------------- tools of scikit-learn


def frame(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"size": rng.uniform(-1, 1, n), "town": rng.choice(["p", "q"], n)}, index=np.arange(n) + 1000)
    return X, pd.Series(X["size"] + (X["town"] == "p") + 0.1 * rng.normal(size=n), name="price")


def numeric(n=240, seed=0):
    X, y = frame(n, seed)
    return np.column_stack([X["size"], X["town"] == "p"]).astype(float), y.to_numpy()


def test_pipeline_with_columns_of_both_kinds():
    X, y = frame()
    columns = make_column_transformer((StandardScaler(), ["size"]), (OneHotEncoder(sparse_output=False), ["town"]))
    pipeline = make_pipeline(columns, clone(FAST)).fit(X, y)
    assert pipeline.score(X, y) > 0.8
    assert pipeline[:-1].get_feature_names_out().tolist() == [
        "standardscaler__size",
        "onehotencoder__town_p",
        "onehotencoder__town_q",
    ]
    named = make_pipeline(clone(columns), clone(FAST)).set_output(transform="pandas").fit(X, y)
    assert named[-1].feature_names_in_.tolist() == pipeline[:-1].get_feature_names_out().tolist()
    np.testing.assert_allclose(named.predict(X), pipeline.predict(X))


def test_grid_search_by_the_mean_and_by_data_frames():
    X, y = frame()
    search = GridSearchCV(clone(FAST), {"max_steps": [1, 60]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_ == {"max_steps": 60}
    assert search.best_estimator_.predict_quantiles(X).index.equals(X.index)


def test_cross_val_predict():
    X, y = numeric()
    predicted = cross_val_predict(clone(FAST), X, y, cv=3)
    assert np.corrcoef(predicted, y)[0, 1] > 0.9
    pairs = cross_val_predict(clone(FAST), X, np.stack([y, -y], axis=1), cv=2)
    assert pairs.shape == (len(y), 2)
    labels = np.where(y > 0.5, "high", "low")
    classifier = NCPClassifier(**{**FAST.get_params(), "coordinates": "raw"})
    probabilities = cross_val_predict(classifier, X, labels, cv=2, method="predict_proba")
    assert ((probabilities[:, 0] > 0.5) == (labels == "high")).mean() > 0.85


def test_transformed_target():
    X, y = numeric()
    model = TransformedTargetRegressor(clone(FAST), func=np.log, inverse_func=np.exp).fit(X, np.exp(y))
    expected = clone(FAST).fit(X, y).predict(X)
    np.testing.assert_allclose(model.predict(X), np.exp(expected), rtol=1e-5)


class Recorder(NCPRegressor):
    """Keeps the weights that reached `fit`."""

    def fit(self, X, y, sample_weight=None, validation_data=None):
        self.weights_seen_ = sample_weight
        return super().fit(X, y, sample_weight, validation_data)


def test_weights_are_routed_to_fit():
    X, y = numeric()
    weights = np.linspace(1, 2, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        model = Recorder(**FAST.get_params()).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        routed = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        routed.fit(X, y, sample_weight=weights)
        result = cross_validate(model, X, y, cv=2, params={"sample_weight": weights}, return_estimator=True)
    np.testing.assert_array_equal(routed[-1].weights_seen_, weights)
    assert all(len(fold.weights_seen_) == len(y) / 2 for fold in result["estimator"])


def test_html_repr_names_the_settings():
    page = clone(FAST)._repr_html_()
    assert "NCPRegressor" in page
    assert "max_steps" in page
    assert "fitted" in clone(FAST).fit(*numeric(40))._repr_html_()


def test_feature_names_are_checked():
    X, y = frame()
    model = clone(FAST).fit(X, y)
    assert model.feature_names_in_.tolist() == ["size", "town"]
    assert model.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X.rename(columns={"size": "width"}))
