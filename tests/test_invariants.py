"""What holds for every fitted model whatever the data: random tables of odd columns, few rows, tiny fits."""

import os
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ncprob import Box, NCPClassifier, NCPRegressor

LEVELS = [0.01, 0.1, 0.5, 0.9, 0.99]

# Columns as they come: spread, constant, counts, heavy tails, mostly zero, tiny, huge, far from zero, beyond squares.
COLUMNS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, rng.choice([0.0, 1.0, -3e7, 1e-30, 1e140])),
    "levels": lambda rng, n: rng.integers(0, 3, n).astype(float),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, rng.normal(size=n)),
    "huge": lambda rng, n: 1e12 * rng.normal(size=n),
    "tiny": lambda rng, n: 1e-12 * rng.normal(size=n),
    "far": lambda rng, n: 1e9 + 1e-3 * rng.normal(size=n),
    "log-normal": lambda rng, n: np.exp(40 * rng.normal(size=n)),
}


@st.composite
def tables(draw, columns=(1, 2, 5, 40), rows=(2, 3, 15, 16, 17, 30, 90)):
    """X, y and weights; X with columns of any kind, some of them multiples of each other, some rows repeated."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, p, q = draw(st.sampled_from(rows)), draw(st.sampled_from(columns)), draw(st.sampled_from([None, 1, 2]))
    kinds = st.sampled_from(sorted(COLUMNS))
    few = draw(st.lists(kinds, min_size=1, max_size=4))
    X = np.column_stack([COLUMNS[few[k % len(few)]](rng, n) for k in range(p)])
    y = np.column_stack([COLUMNS[draw(kinds)](rng, n) for _ in range(q or 1)])
    if p > 1 and draw(st.booleans()):
        X[:, 1] = -2 * X[:, 0]  # collinear
    if draw(st.booleans()):
        rows_again = rng.integers(0, max(1, n // 3), n)
        X, y = X[rows_again], y[rows_again] if draw(st.booleans()) else y
    weights = rng.choice([0.0, 1.0, 2.0, 1e-9, 1e9], n) if draw(st.booleans()) else None
    if weights is not None and not weights.any():
        weights = None
    return X, y[:, 0] if q is None else y, weights


@st.composite
def ways_to_fit(draw):
    """Settings of a tiny fit, a learning rate far too high and a rank that no data supports among them."""
    loss = draw(st.sampled_from(["covariance", "u_statistic", "paired", "cross_fitted"]))
    kinds = ["whitening"] if loss == "cross_fitted" else ["whitening", "centering", "none"]
    return {
        "coordinates": draw(st.sampled_from(["raw", "residual", "auto"])),
        "loss": loss,
        "postprocessing": draw(st.sampled_from(kinds)),
        "rank": draw(st.sampled_from(["auto", 1, 100])),
        "learning_rate": draw(st.sampled_from([3e-3, 1.0])),
        "max_steps": draw(st.sampled_from([1, 12])),
    }


def quick(kind=NCPRegressor, **options):
    chosen = {"hidden_sizes": (8,), "tree_inputs": False, "random_state": 0, "progress": False, "max_steps": 5}
    return kind(**chosen | options)


def fitted(model, X, y, weights=None):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`y` is constant|`X` has only")
        return model.fit(X, y, sample_weight=weights)


# Each example is a fit: none is repeated to make it smaller. `make fuzz` asks for more.
FITS = int(os.environ.get("FUZZ_FITS", "25"))
few_examples = settings(
    max_examples=FITS,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def assert_answers_are_laws(model, X, y):
    law = model.predict_distribution(X)
    n, q = len(X), 1 if y.ndim == 1 else y.shape[1]

    quantiles = law.quantile(LEVELS).reshape(n, q, -1)
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles, axis=2) >= 0).all()
    for kind in ("shortest", "central"):
        interval = law.interval(0.9, kind).reshape(n, q, 2)
        assert np.isfinite(interval).all()
        assert (interval[..., 0] <= interval[..., 1]).all()
    assert np.isfinite(law.mean()).all()
    assert (law.var() >= 0).all()  # not NaN
    assert (law.crps(y) >= 0).all()
    for answer in (law.skewness(), law.kurtosis(), law.log_score(y), law.mode(), law.sample(2, random_state=0)):
        assert not np.isnan(answer).any()
    pit = law.pit(y)
    assert ((pit >= 0) & (pit <= 1)).all()
    mass = law.weights()
    assert (mass >= 0).all()
    np.testing.assert_allclose(mass.sum(axis=1), 1, rtol=1e-12)
    cov = law.cov()
    np.testing.assert_array_equal(cov, np.swapaxes(cov, 1, 2))
    largest = np.abs(cov).max(axis=(1, 2), keepdims=True)
    eigenvalues = np.linalg.eigvalsh(cov / np.where(largest > 0, largest, 1.0))
    assert (eigenvalues >= -1e-9).all()
    assert "held-out rows" in str(model.diagnostics())


@few_examples
@given(tables(), ways_to_fit())
def test_every_answer_is_a_number_and_a_law(data, options):
    X, y, weights = data
    assert_answers_are_laws(fitted(quick(**options), X, y, weights), X, y)


@settings(few_examples, max_examples=FITS // 3)
@given(tables(columns=(1, 200), rows=(2, 16, 600, 5000)), ways_to_fit())
def test_every_answer_of_wide_and_long_tables_too(data, options):
    X, y, weights = data
    model = fitted(quick(**options), X, y, weights)
    rows = slice(0, len(X), max(1, len(X) // 100))
    assert_answers_are_laws(model, X[rows], y[rows])


@few_examples
@given(tables(rows=(16, 30)), st.sampled_from(["raw", "residual", "auto"]))
def test_two_ways_to_ask_give_one_answer(data, coordinates):
    X, y, weights = data
    model = fitted(quick(coordinates=coordinates), X, y, weights)
    law = model.predict_distribution(X)
    shape = (len(X), -1)
    np.testing.assert_array_equal(model.predict(X).reshape(shape), law.mean().reshape(shape))
    np.testing.assert_array_equal(
        model.predict_quantiles(X, LEVELS).reshape(shape), law.quantile(LEVELS).reshape(shape)
    )
    np.testing.assert_array_equal(model.predict_interval(X, 0.8).reshape(shape), law.interval(0.8).reshape(shape))
    variance = np.diagonal(model.predict_cov(X), axis1=1, axis2=2)
    np.testing.assert_allclose(variance, model.predict_var(X).reshape(shape), rtol=1e-9)
    values = y.reshape(shape)
    cuts = np.median(values, axis=0)
    low, everything = np.full(len(cuts), -np.inf), np.full(len(cuts), np.inf)
    below = law.prob(Box(low, cuts))
    np.testing.assert_allclose(below, law.prob(lambda v: (v <= cuts).all(axis=1)), atol=1e-9)
    np.testing.assert_allclose(below, 1 - law.prob(lambda v: (v > cuts).any(axis=1)), atol=1e-9)
    assert (law.prob(Box(low, everything)) > 1 - 1e-9).all()
    if y.ndim == 1:
        np.testing.assert_allclose(below, law.cdf(cuts[0]), atol=1e-9)
        np.testing.assert_allclose(law.cdf(cuts[0]) + law.sf(cuts[0]), 1, atol=1e-9)
        reached = law.cdf(law.quantile(LEVELS))
        assert (reached >= np.array(LEVELS) - 1e-9).all()
    np.testing.assert_allclose(law.std() ** 2, law.var(), rtol=1e-9)
    np.testing.assert_allclose(law.moment(2, central=True), law.var(), rtol=1e-9)
    np.testing.assert_array_equal(law.median(), law.quantile(0.5))
    np.testing.assert_allclose(law[3:5].prob(Box(low, cuts)), below[3:5], atol=1e-6)
    size = np.abs(law.mean()).reshape(shape) + np.sqrt(law.var()).reshape(shape)  # of the sums whose rounding differs
    assert (np.abs(law[3].mean().ravel() - law.mean().reshape(shape)[3]) <= 1e-6 * size[3]).all()  # float32 ratios
    expected = model.expectation(lambda v: v, X).reshape(shape)
    assert (np.abs(expected - law.mean().reshape(shape)) <= 1e-9 * size).all()
    np.testing.assert_array_equal(law.expectation(lambda v: v).reshape(shape), expected)
    # A set of inputs, and one of targets, in every form.
    edge = np.median(X[:, 0])
    inside = X[:, 0] <= edge
    in_box = Box(np.full(X.shape[1], -np.inf), [edge, *[np.inf] * (X.shape[1] - 1)])
    known = inside.any() and (weights is None or weights[inside].any())
    for ask in (inside, lambda x: x[:, 0] <= edge, in_box) if known else ():
        np.testing.assert_array_equal(model.given(ask).mean(), model.given(inside).mean())
    if (model.given(lambda x: x[:, 0] == x[:, 0]).prob(Box(low, cuts)) > 1e-9).all():
        in_cuts, by_mask = model.given_target(Box(low, cuts)), model.given_target(lambda v: (v <= cuts).all(axis=1))
        assert (np.abs(by_mask.mean() - in_cuts.mean()) <= 1e-9 * np.abs(X).max(axis=0)).all()
    # The law given all of X is the average of the laws at the training rows, by weight.
    share = np.ones(len(X)) if weights is None else weights
    mean = (share / share.sum()) @ law.mean().reshape(shape)
    spread = np.abs(law.atoms).max() + np.abs(values).max()
    np.testing.assert_allclose(model.given(lambda x: x[:, 0] == x[:, 0]).mean().ravel(), mean, atol=1e-6 * spread)


@few_examples
@given(tables(rows=(2, 16, 30)), st.randoms(use_true_random=False))
def test_rows_asked_in_another_order_or_alone_are_answered_alike(data, random):
    X, y, weights = data
    model = fitted(quick(coordinates="auto"), X, y, weights)
    order = list(range(len(X)))
    random.shuffle(order)
    whole = model.predict_distribution(X)
    weights, mean = whole.weights(), whole.mean()
    reach = np.abs(whole.quantile([1e-6, 1 - 1e-6])).max()
    for rows in (order, [0]):
        law = model.predict_distribution(X[rows])
        np.testing.assert_allclose(law.weights(), weights[rows], atol=1e-5)
        np.testing.assert_allclose(law.mean(), mean[rows], rtol=0.2, atol=1e-4 * reach)  # tails grow like exp


FORMS = {
    "float16": lambda values: values.astype(np.float16),
    "float32": lambda values: values.astype(np.float32),
    "int8": lambda values: values.astype(np.int8),
    "int64": lambda values: values.astype(np.int64),
    "big end first": lambda values: values.astype(">f8"),
    "columns first": np.asfortranarray,
    "backwards": lambda values: values[::-1].copy()[::-1],
    "every other": lambda values: np.repeat(values, 2, axis=0)[::2],
    "read only": lambda values: np.frombuffer(values.tobytes()).reshape(values.shape),
    "lists": lambda values: values.tolist(),
    "pandas": lambda values: pd.DataFrame(values) if values.ndim == 2 else pd.Series(values),
    "polars": lambda values: pl.DataFrame(values) if values.ndim == 2 else pl.Series(values),
    "pandas float32": lambda values: (pd.DataFrame if values.ndim == 2 else pd.Series)(values.astype(np.float32)),
}


@few_examples
@given(tables(columns=(1, 2, 5), rows=(2, 16, 30)), st.sampled_from(sorted(FORMS)), st.sampled_from(sorted(FORMS)))
def test_the_same_numbers_in_any_type_order_or_container_give_the_same_bits(data, form_x, form_y):
    X, y, weights = data
    X, y = (np.round(np.clip(values, -100, 100)) for values in (X, y))
    expected = fitted(quick(), X, y, weights).predict_quantiles(X)
    model = fitted(quick(), FORMS[form_x](X), FORMS[form_y](y), weights)
    found = np.asarray(model.predict_quantiles(FORMS[form_x](X)))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def line(n=120, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


X, Y = line()


@pytest.mark.parametrize(("power", "coordinates"), [(-40, "raw"), (40, "residual"), (-40, "auto")])
def test_units_that_are_powers_of_two_change_no_bit(power, coordinates):
    """2^±40 ≈ 10^±12; other factors round, see `test_units_do_not_matter`."""
    factor = 2.0**power
    model = quick(coordinates=coordinates).fit(X, Y)
    by_y, by_x = quick(coordinates=coordinates).fit(X, factor * Y), quick(coordinates=coordinates).fit(factor * X, Y)
    np.testing.assert_array_equal(by_y.predict_quantiles(X), factor * model.predict_quantiles(X))
    np.testing.assert_array_equal(by_y.predict(X), factor * model.predict(X))
    np.testing.assert_array_equal(by_y.predict_var(X), factor**2 * model.predict_var(X))
    np.testing.assert_array_equal(by_y.predict_interval(X), factor * model.predict_interval(X))
    np.testing.assert_array_equal(by_x.predict_quantiles(factor * X), model.predict_quantiles(X))
    grid = [-1.0, 0.0, 1.0]
    law, moved = model.predict_distribution(X), by_y.predict_distribution(X)
    np.testing.assert_array_equal(moved.cdf([factor * t for t in grid]), law.cdf(grid))
    np.testing.assert_allclose(factor * moved.pdf([factor * t for t in grid]), law.pdf(grid), rtol=1e-9)


@few_examples
@given(tables(columns=(1, 2, 5), rows=(2, 16, 30)), ways_to_fit(), st.sampled_from([-40, 40]), st.booleans())
def test_units_of_any_table_change_no_bit(data, options, power, of_x):
    X, y, weights = data
    if np.abs(X if of_x else y).max() > 1e130:
        power = -40  # values beyond 10¹⁵⁰ are refused
    factor = 2.0**power
    options |= {"learning_rate": 3e-3}  # what has diverged is cut off at 10¹⁵⁰, in any unit
    model = fitted(quick(**options), X, y, weights)
    if of_x:
        moved = fitted(quick(**options), factor * X, y, weights)
        np.testing.assert_array_equal(moved.predict_quantiles(factor * X), model.predict_quantiles(X))
    else:
        moved = fitted(quick(**options), X, factor * y, weights)
        np.testing.assert_array_equal(moved.predict_quantiles(X), factor * model.predict_quantiles(X))
        np.testing.assert_array_equal(moved.predict(X), factor * model.predict(X))


def test_units_of_the_inputs_do_not_matter_to_trees_and_classes():
    x, y, factors = X[:40], Y[:40], (1, 2.0**-40)
    with_trees = [quick(tree_inputs=True, coordinates="residual").fit(f * x, y).predict(f * x) for f in factors]
    np.testing.assert_array_equal(*with_trees)
    classes = [quick(NCPClassifier).fit(f * x, y > 0).predict_proba(f * x) for f in factors]
    np.testing.assert_array_equal(*classes)


@pytest.mark.parametrize("shift", [1e6, -1e6])
@pytest.mark.parametrize("coordinates", ["raw", "residual"])
def test_a_shift_of_y_shifts_the_answers_and_one_of_x_does_not(shift, coordinates):
    """At 10⁶ float64 has 10 digits behind the point; the float32 networks amplify what is lost."""
    model = quick(coordinates=coordinates).fit(X, Y)
    moved, elsewhere = (quick(coordinates=coordinates).fit(*data) for data in ((X, Y + shift), (X + shift, Y)))
    np.testing.assert_allclose(moved.predict(X) - shift, model.predict(X), atol=1e-3)
    np.testing.assert_allclose(moved.predict_var(X), model.predict_var(X), rtol=1e-2)
    np.testing.assert_allclose(elsewhere.predict(X + shift), model.predict(X), atol=1e-3)


@pytest.mark.parametrize("power", [-40, 40])
@pytest.mark.parametrize("coordinates", ["raw", "residual"])
def test_only_ratios_of_weights_count(power, coordinates):
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
    model = quick(coordinates=coordinates).fit(X, Y, sample_weight=weights)
    again = quick(coordinates=coordinates).fit(X, Y, sample_weight=2.0**power * weights)
    np.testing.assert_array_equal(again.predict_quantiles(X), model.predict_quantiles(X))


@pytest.mark.parametrize("n", [2, 5, 15])
def test_the_marginal_of_few_rows_sees_neither_order_nor_copies(n):
    x, y = X[:n], np.round(Y[:n], 1)
    law = fitted(quick(), x, y).predict_distribution(x[:1])
    grid = np.linspace(-3, 3, 61)
    np.testing.assert_allclose(law.cdf(grid)[0], (y[:, None] <= grid).mean(axis=0), atol=1e-12)
    backwards = fitted(quick(), x[::-1], y[::-1]).predict_distribution(x[:1])
    np.testing.assert_allclose(backwards.cdf(grid), law.cdf(grid), atol=1e-12)
    if 2 * n <= 15:
        twice = fitted(quick(), np.tile(x, (2, 1)), np.tile(y, 2)).predict_distribution(x[:1])
        np.testing.assert_allclose(twice.cdf(grid), law.cdf(grid), atol=1e-12)


def learned(X, y, columns=slice(None), **options):
    model = quick(coordinates="residual", max_steps=100, hidden_sizes=(16,), **options).fit(X[:, columns], y)
    return model.predict(line(200, seed=1)[0][:, columns])


def test_order_of_rows_and_columns_and_a_second_copy_hardly_matter():
    """Other splits and starting weights: answers differ by the error of one fit, which the truth shows."""
    X, y = line(400)
    truth = line(200, seed=1)[0][:, 0]
    order = np.random.default_rng(2).permutation(400)
    variants = [
        learned(X, y),
        learned(X[order], y[order]),
        learned(X, y, columns=[2, 0, 1]),
        learned(np.tile(X, (2, 1)), np.tile(y, 2)),
    ]
    # noise 0.5: a fit of 20 degrees of freedom errs by 0.5·√(20/400) ≈ 0.11, two of them differ by 0.16
    for answers in variants:
        assert np.sqrt(np.mean((answers - truth) ** 2)) < 0.25
        assert np.sqrt(np.mean((answers - variants[0]) ** 2)) < 0.25


def test_two_hundred_columns_and_many_rows():
    X, y = line(600, p=200)
    model = quick(coordinates="auto", max_steps=20).fit(X, y)
    assert np.isfinite(model.predict_quantiles(X)).all()
    X, y = line(5000, p=1)
    assert quick(coordinates="raw", max_steps=60).fit(X, y).score(X, y) > 0.3


@few_examples
@given(tables(rows=(2, 16, 40)), st.integers(1, 4))
def test_class_probabilities_are_probabilities(data, n_classes):
    X, _, weights = data
    labels = np.arange(len(X)) % n_classes
    model = fitted(quick(NCPClassifier), X, labels, weights)
    shares = model.predict_proba(X)
    assert shares.shape == (len(X), len(model.classes_))
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), model.classes_[shares.argmax(axis=1)])


@pytest.mark.parametrize("name", ["X", "y"])
def test_values_without_a_variance_are_refused(name):
    data = {"X": X.copy(), "y": Y.copy()}
    data[name].flat[5] = -1e200
    with pytest.raises(ValueError, match=rf"`{name}` must not exceed 1e\+150 in size.* reaches 1e\+200. Rescale it"):
        quick().fit(**data)
    quick(coordinates="raw").fit(X, Y).predict(1e200 * X)  # a question may reach as far as it likes


class Logarithms(torch.nn.Module):
    """An encoder that knows positive inputs only."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.last(x.log())


def test_an_encoder_that_gives_no_numbers_is_named_and_answers_are_not_made_up():
    model = quick(x_encoder=Logarithms(), rank=4, coordinates="raw").fit(np.exp(X), Y)
    assert np.isfinite(model.predict(np.exp(X))).all()
    odd = np.exp(X[:4])
    odd[2, 1] = -1.0
    with pytest.raises(ValueError, match=r"`x_encoder` must give finite features; .* row 2 of X"):
        model.predict(odd)
