"""The skpro adapter: skpro's own checks, and the same answers as the laws it carries."""

import importlib
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ncprob import NCPRegressor

QUICK = {"max_steps": 20, "hidden_sizes": (8,), "rank": 4, "random_state": 0}


@pytest.fixture(scope="module")
def adapter():
    pytest.importorskip("skpro", reason="skpro is an optional extra: pip install 'ncprob[skpro]'")
    return importlib.import_module("ncprob.skpro")


def data(n=120):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"], index=np.arange(n) + 10)
    noise = rng.normal(size=n)
    return X, pd.DataFrame({"y": X["a"] + noise, "z": -2 * (X["a"] + noise)}, index=X.index)


@pytest.fixture(scope="module", params=["raw", "residual", "vector"])
def fitted(request, adapter):
    X, y = data()
    coordinates = "raw" if request.param == "vector" else request.param
    estimator = NCPRegressor(coordinates=coordinates, tree_inputs=False, **QUICK)
    return adapter.NCPProbaRegressor(estimator).fit(X, y if request.param == "vector" else y[["y"]])


@pytest.fixture(scope="module")
def vector_law(adapter):
    X, y = data()
    return adapter.NCPProbaRegressor(NCPRegressor(coordinates="raw", **QUICK)).fit(X, y).predict_proba(X.head(5))


def by_target(law, answer):
    return np.reshape(answer, (len(law), law.support.n_components))


def test_import_without_skpro_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "skpro.distributions.base", None)  # None: the import fails as if not installed
    monkeypatch.delitem(sys.modules, "ncprob.skpro", raising=False)
    with pytest.raises(ImportError, match=r"needs skpro: pip install 'ncprob\[skpro\]'"):
        importlib.import_module("ncprob.skpro")


# ---------------------------------------------------------------- skpro's contract


@pytest.mark.filterwarnings("ignore")  # the checks fit 12 rows and constant targets on purpose
@pytest.mark.parametrize(("name", "at_least"), [("NCPProbaRegressor", 50), ("NCPDistribution", 150)])
def test_passes_the_checks_of_skpro(adapter, name, at_least):
    from skpro.utils import check_estimator

    results = check_estimator(getattr(adapter, name), raise_exceptions=True, verbose=False)
    assert len(results) >= at_least
    assert set(results.values()) == {"PASSED"}


def test_tuner_and_metric_of_skpro(adapter):
    from sklearn.model_selection import KFold
    from skpro.metrics import CRPS, LogLoss
    from skpro.model_selection import GridSearchCV

    X, y = data(60)
    model = adapter.NCPProbaRegressor(NCPRegressor(coordinates="raw", tree_inputs=False, **QUICK))
    grid = {"estimator__rank": [1, 2]}
    search = GridSearchCV(model, cv=KFold(2), param_grid=grid, scoring=CRPS(), backend="None", error_score="raise")
    search.fit(X, y[["y"]])
    assert search.best_params_["estimator__rank"] in (1, 2)
    law = search.predict_proba(X)
    np.testing.assert_allclose(CRPS()(y[["y"]], law), law.law.crps(y["y"].to_numpy()).mean())
    np.testing.assert_allclose(LogLoss()(y[["y"]], law), law.law.log_score(y["y"].to_numpy()).mean())


# ---------------------------------------------------------------- the distribution


def test_answers_are_those_of_the_law(fitted):
    X, _ = data()
    d = fitted.predict_proba(X)
    law = d.law
    x = d.sample()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # skpro warns where it falls back to an approximation
        answers = {name: getattr(d, name)() for name in ("mean", "var")}
        answers |= {name: getattr(d, name)(x) for name in ("cdf", "pdf", "log_pdf")}
    expected = {
        "mean": law.mean(),
        "var": law.var(),
        "cdf": law.pit(x.to_numpy()),
        "pdf": np.exp(-law.log_score(x.to_numpy())),
        "log_pdf": -law.log_score(x.to_numpy()),
    }
    for name, answer in answers.items():
        np.testing.assert_allclose(answer, by_target(law, expected[name]), err_msg=name)
        assert answer.index.equals(X.index)


def test_every_entry_has_its_own_level(fitted, adapter):
    X, _ = data()
    d = fitted.predict_proba(X)
    assert len(d) > adapter.PPF_BLOCK  # more than one block
    p = np.random.default_rng(1).uniform(size=d.shape)
    expected = [by_target(d.law[i], d.law[i].quantile(p[i, k]))[0, k] for i in range(len(d)) for k in range(d.shape[1])]
    np.testing.assert_array_equal(d.ppf(p).to_numpy().ravel(), expected)
    np.testing.assert_array_equal(d.ppf(0.3), by_target(d.law, d.law.quantile(0.3)))


def test_levels_at_the_ends_and_beyond(fitted):
    d = fitted.predict_proba(data()[0]).iloc[[0], [0]]
    low, high = d.ppf(0.0), d.ppf(1.0)
    draws = d.sample(300).to_numpy()
    assert low.iloc[0, 0] <= draws.min()
    assert high.iloc[0, 0] >= draws.max()
    assert d.cdf(high).iloc[0, 0] == pytest.approx(1)
    for level in (-0.1, 1.1, np.nan):
        assert np.isnan(d.ppf(level)).all(axis=None)


def test_energy_by_all_pairs_of_atoms(fitted):
    d = fitted.predict_proba(data()[0]).iloc[:3]
    x = d.mean()
    m, q = len(d.law.support), d.shape[1]
    for i in range(3):
        atoms, w = np.reshape(d.law[i].atoms, (m, q)), d.law[i].weights()[0]
        pairs = sum(w @ np.abs(atoms[:, None, k] - atoms[None, :, k]) @ w for k in range(q))
        np.testing.assert_allclose(d.energy().iloc[i, 0], pairs)
        np.testing.assert_allclose(d.energy(x).iloc[i, 0], (w @ np.abs(atoms - x.to_numpy()[i])).sum())


def test_norm_of_the_density(vector_law):
    """By a fine sum over the line; the average over quantiles reads the density where the atoms are, a little high."""
    grid = np.linspace(-30, 30, 20001)
    by_sum = np.square(vector_law.law.pdf(grid)).sum(axis=2) * (grid[1] - grid[0])
    np.testing.assert_allclose(vector_law.pdfnorm(), by_sum, rtol=0.1)
    np.testing.assert_allclose(vector_law.pdfnorm(a=1), 1)


def test_parts_answer_as_the_whole(vector_law):
    d, x = vector_law, vector_law.mean()
    part = d.loc[[12, 10], ["z"]]
    pd.testing.assert_frame_equal(part.mean(), d.mean().loc[[12, 10], ["z"]])
    pd.testing.assert_frame_equal(part.cdf(1.0), d.cdf(1.0).loc[[12, 10], ["z"]])
    pd.testing.assert_frame_equal(d.log_pdf(x.loc[[12, 10], ["z"]]), d.log_pdf(x).loc[[12, 10], ["z"]])
    entry = d.at[12, "z"]
    assert entry.shape == ()
    assert entry.ppf(0.2) == d.ppf(0.2).loc[12, "z"]
    assert entry.cdf(1.0) == pytest.approx(d.cdf(1.0).loc[12, "z"])
    assert entry.energy() == pytest.approx(d.iloc[[2], [1]].energy().iloc[0, 0])
    assert entry.energy() + d.at[12, "y"].energy() == pytest.approx(d.energy().loc[12, "energy"])
    assert d.iloc[1:3].shape == (2, 2)
    assert d.iloc[[]].ppf(0.5).shape == (0, 2)


def test_samples_are_joint_and_repeatable(vector_law):
    np.random.seed(3)  # noqa: NPY002
    draws = vector_law.sample(50)
    assert draws.index.equals(pd.concat([vector_law.mean()] * 50, keys=range(50)).index)
    np.testing.assert_allclose(draws["z"], -2 * draws["y"])
    assert draws.loc[0, "y"].nunique() > 1
    np.random.seed(3)  # noqa: NPY002
    pd.testing.assert_frame_equal(vector_law.sample(50), draws)
    means = vector_law.sample(4000).groupby(level=1).mean()
    spread = 5 * np.sqrt(vector_law.var() / 4000)  # narrow enough to tell the rows apart
    assert (np.abs(means - vector_law.mean()) < spread).all(axis=None)
    assert not (np.abs(means - vector_law.mean().to_numpy()[::-1]) < spread).all(axis=None)


def test_unknown_labels_and_wrong_lengths_are_refused(adapter, vector_law):
    with pytest.raises(KeyError, match="not in"):
        vector_law.cdf(vector_law.mean().set_axis(range(5), axis=0))
    with pytest.raises(ValueError, match=r"must have lengths \(5, 2\)"):
        adapter.NCPDistribution(vector_law.law, index=[1, 2])
    with pytest.raises(ValueError, match="`components` must be distinct positions below 2"):
        adapter.NCPDistribution(vector_law.law, components=[0, 2])


# ---------------------------------------------------------------- the regressor


def test_regressor_answers_as_its_model(fitted):
    X, _ = data()
    new, model = X.head(4), fitted.estimator_
    np.testing.assert_array_equal(fitted.predict(new), model.predict(new))
    np.testing.assert_array_equal(fitted.predict_var(new), model.predict_var(new))
    quantiles = fitted.predict_quantiles(new, alpha=[0.1, 0.9])
    pd.testing.assert_frame_equal(quantiles, fitted.predict_proba(new).quantile([0.1, 0.9]))
    intervals = fitted.predict_interval(new, coverage=[0.8, 0.5])
    names = list(fitted.predict(new).columns)
    assert intervals.columns.to_list() == [(n, c, s) for n in names for c in (0.8, 0.5) for s in ("lower", "upper")]
    for name in names:  # central, as skpro has it
        np.testing.assert_array_equal(intervals[name][0.8], quantiles[name])


@pytest.mark.parametrize(
    ("convert", "name"),
    [
        (lambda y: y["y"].to_numpy(), 0),
        (lambda y: y["y"], "y"),
        (lambda y: y[["y"]].to_numpy(), 0),
        (lambda y: pl.DataFrame({"y": y["y"].to_numpy()}), "y"),
    ],
    ids=["vector", "series", "array", "polars"],
)
def test_answers_are_like_the_target(adapter, convert, name):
    X, y = data(40)
    target = convert(y)
    if isinstance(target, pl.DataFrame):
        X = pl.from_pandas(X)
    model = adapter.NCPProbaRegressor(NCPRegressor(coordinates="raw", tree_inputs=False, **QUICK)).fit(X, target)
    assert type(model.predict(X)) is type(target)
    assert np.shape(model.predict(X)) == np.shape(target)
    assert list(model.predict_proba(X).columns) == [name]
    assert model.predict_quantiles(X, alpha=[0.5]).columns.to_list() == [(name, 0.5)]


def test_categories_and_names_of_any_type(adapter):
    X, y = data(40)
    X = X.assign(kind=pd.Categorical(np.where(X["a"] > 0, "high", "low"))).set_axis(["a", 1, 2], axis=1)
    model = adapter.NCPProbaRegressor(NCPRegressor(coordinates="raw", tree_inputs=False, **QUICK)).fit(X, y[["y"]])
    assert model.predict(X).shape == (40, 1)
    assert {name: set(levels) for name, levels in model.estimator_.categories_.items()} == {"2": {"high", "low"}}


def test_estimator_is_copied_and_checked(adapter):
    X, y = data(40)
    estimator = NCPRegressor(coordinates="raw", tree_inputs=False, **QUICK)
    model = adapter.NCPProbaRegressor(estimator).fit(X, y)
    assert not hasattr(estimator, "n_features_in_")
    assert model.get_params()["estimator__rank"] == 4
    with pytest.raises(TypeError, match="`estimator` must be an NCPRegressor or None; got str"):
        adapter.NCPProbaRegressor("raw").fit(X, y)
