"""Laws given sets: averages of pointwise laws, Bayes' rule, and closeness to exact truths."""

from itertools import pairwise
from math import inf, sqrt

import numpy as np
import pytest
import torch
from helpers import Table, affine
from scipy import stats
from sklearn.exceptions import NotFittedError

from ncprob import Box, ConditionalDistribution, NCPRegressor, conditioning
from ncprob.conditioning import TrainingRows
from ncprob.datasets import LinearGaussian, TwoRegimes
from ncprob.support import Support


def regressor(**options):
    defaults = {
        "coordinates": "raw",
        "hidden_sizes": (32, 32),
        "max_steps": 100,
        "batch_size": 256,
        "learning_rate": 5e-3,
        "random_state": 0,
        "device": "cpu",
        "progress": False,
    }
    return NCPRegressor(**{**defaults, **options})


def plane(n, seed=0):
    """X uniform on a square, y = x₁ + (noise that grows with x₂)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, X[:, 0] + np.exp(0.5 * X[:, 1]) * 0.5 * rng.normal(size=n)


@pytest.fixture(scope="module", params=["raw", "residual"])
def small(request):
    """Few rows: every law that enters an average is formed."""
    X, y = plane(480)
    return regressor(coordinates=request.param).fit(X, y), X, y


@pytest.fixture(scope="module", params=["raw", "residual"])
def large(request):
    """More rows than `REPRESENTATIVES`."""
    X, y = plane(1500)
    return regressor(coordinates=request.param).fit(X, y), X, y


def joining(model):
    """How far a distribution function may be from the average of the pointwise ones.

    In raw coordinates the atoms are shared: rounding only. In residual coordinates the atoms of all rows are joined in
    4096 − 2·128 bins of as many atoms each, and the densest bins weigh about five times the average.
    """
    return 1e-6 if model.coordinates_ == "raw" else 5 / 3840


SETS = {
    "box": Box([-0.5, -1.0], [0.5, 0.0]),
    "open box": Box([0.2, -inf], [inf, inf]),
    "callable": lambda x: (x**2).sum(axis=1) < 0.5,
    "mask": np.arange(480) % 7 == 0,
    "list": [i < 3 for i in range(480)],
    "one row": np.arange(480) == 17,
    "all": lambda x: np.ones(len(x), bool),
}


def rows_of(A, X):
    if isinstance(A, Box):
        return ((np.array(A.low) < X) & (np.array(A.high) >= X)).all(axis=1)
    return A(X) if callable(A) else np.array(A)


GRID = np.linspace(-3, 3, 61)


# ---------------------------------------------------------------- Y given X ∈ A


@pytest.mark.parametrize("A", SETS.values(), ids=SETS.keys())
def test_a_set_is_answered_as_the_average_of_its_rows(A, small):
    model, X, _ = small
    law, points = model.given(A), model.predict_distribution(X[rows_of(A, X)])
    tolerance = joining(model)
    assert len(law) == 1
    np.testing.assert_allclose(law.mean(), [points.mean().mean()], atol=1e-6)  # joined atoms keep their mean
    np.testing.assert_allclose(law.cdf(GRID)[0], points.cdf(GRID).mean(axis=0), atol=tolerance)
    for B in ((-0.5, 0.7), Box(0.3, inf)):
        np.testing.assert_allclose(law.prob(B), [points.prob(B).mean()], atol=2 * tolerance)
    np.testing.assert_allclose(
        law.prob(lambda y: np.cos(3 * y[:, 0]) > 0), [points.prob(lambda y: np.cos(3 * y[:, 0]) > 0).mean()], atol=0.01
    )


@pytest.mark.parametrize("n", [480, 3000])  # all laws, and those of representatives
def test_chances_of_levels_are_averaged_exactly(n):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 1))
    y = np.array([0.0, 1.0, 100.0])[np.searchsorted([-0.5, 0.5], X[:, 0] + 0.5 * rng.normal(size=n))]
    model = regressor(coordinates="residual", max_steps=20).fit(X, y)
    law, points = model.given(lambda x: x[:, 0] > -0.2), model.predict_distribution(X[X[:, 0] > -0.2])
    assert law.atoms.tolist() == [0.0, 1.0, 100.0]
    # representatives: one of every three of 1,800 rows along x, each within half a step of those that it stands for
    tolerance = 1e-9 if n == 480 else 0.002
    np.testing.assert_allclose(law.cdf([0.0, 1.0, 50.0])[0], points.cdf([0.0, 1.0, 50.0]).mean(axis=0), atol=tolerance)
    np.testing.assert_allclose(law.mean(), [points.mean().mean()], atol=100 * tolerance)
    some = X[:, 0] > 0.4
    back = model.given_target((0.5, 200.0)).prob(lambda x: x[:, 0] > 0.4)
    above = model.predict_distribution(X).prob((0.5, 200.0))
    np.testing.assert_allclose(back, [above[some].sum() / above.sum()], atol=1e-9)


def test_the_square_is_averaged_too(small):
    # joining replaces atoms by their mean, which loses the variance inside a bin: at most (range / 3840 bins)² and the
    # single atoms of the tails lose nothing
    model, X, _ = small
    A = SETS["box"]
    points = model.predict_distribution(X[rows_of(A, X)])
    second = points.moment(2).mean()
    np.testing.assert_allclose(model.given(A).moment(2), [second], rtol=1e-4)
    np.testing.assert_allclose(model.given(A).expectation(lambda y: y**2), [second], rtol=1e-4)
    np.testing.assert_allclose(model.given(A).var(), [second - points.mean().mean() ** 2], rtol=1e-3)


@pytest.mark.parametrize("A", [SETS["open box"], SETS["callable"], SETS["all"]], ids=["box", "callable", "all"])
def test_large_sets_are_averaged_over_representatives(A, large):
    # 512 systematic draws of the rows: at most the standard error of as many random ones, 0.5/√512 = 0.022, for a
    # probability, and std(E[y|x])/√512 < 0.7/√512 = 0.03 for the mean
    model, X, _ = large
    mask = rows_of(A, X)
    assert mask.sum() > conditioning.REPRESENTATIVES
    law, points = model.given(A), model.predict_distribution(X[mask])
    np.testing.assert_allclose(law.cdf(GRID)[0], points.cdf(GRID).mean(axis=0), atol=0.022)
    np.testing.assert_allclose(law.mean(), [points.mean().mean()], atol=0.03)


def test_one_set_described_in_three_ways(small):
    model, X, _ = small
    box = Box([-0.5, -inf], [0.5, 0.3])
    answers = [
        model.given(A).quantile([0.1, 0.5, 0.9])
        for A in (box, lambda x: (x[:, 0] > -0.5) & (x[:, 0] <= 0.5) & (x[:, 1] <= 0.3), rows_of(box, X))
    ]
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_a_partition_adds_up(small):
    # law of total probability: P(B) = Σ P(B | A_k) P(A_k)
    model, X, _ = small
    cuts = [-inf, -0.4, 0.1, 0.6, inf]
    parts = [Box([low, -inf], [high, inf]) for low, high in pairwise(cuts)]
    shares = [rows_of(part, X).mean() for part in parts]
    total = sum(share * model.given(part).cdf(GRID)[0] for share, part in zip(shares, parts, strict=True))
    np.testing.assert_allclose(model.given(SETS["all"]).cdf(GRID)[0], total, atol=2 * joining(model))


def test_the_law_given_a_set_answers_like_any_law(small):
    model, _, _ = small
    law = model.given(SETS["box"])
    quantiles = law.quantile([0.05, 0.5, 0.95])
    assert quantiles.shape == (1, 3)
    assert (np.diff(quantiles) > 0).all()
    assert (law.cdf(quantiles[0]) >= np.array([0.05, 0.5, 0.95]) - 1e-12).all()
    for kind in ("shortest", "central"):
        low, high = law.interval(0.8, kind=kind)[0]
        assert law.prob(lambda y, low=low, high=high: (y[:, 0] >= low) & (y[:, 0] <= high)) >= 0.8 - 1e-9
    assert np.ptp(law.interval(0.8)) <= np.ptp(law.interval(0.8, kind="central"))
    assert law.prob((-inf, 0.2)) + law.prob((0.2, inf)) == pytest.approx(1)
    np.testing.assert_allclose(law.expectation(lambda y: y), law.mean())
    assert law.sample(5, random_state=0).shape == (1, 5)
    assert isinstance(law.mean(), np.ndarray)


def test_the_whole_space_gives_the_marginal():
    # Features are centred on the training rows, so ratios average to one. What cutting off a negative mass n_i and
    # scaling to one changes is at most n_i in any probability: |F − F_n| ≤ mean n_i, with n_i = a/(1 − a) for a
    # repair of a.
    X, y = plane(480)
    model = regressor(coordinates="raw").fit(X, y)
    repair = model.predict_distribution(X).repair_amounts().numpy()
    empirical = (y[:, None] <= GRID).mean(axis=0)
    gap = np.abs(model.given(SETS["all"]).cdf(GRID)[0] - empirical).max()
    assert gap <= (repair / (1 - repair)).mean() + 1e-4
    assert gap < 0.03


def test_the_whole_space_in_residual_coordinates():
    # E[F(t|X)] of a calibrated model is the marginal; the empirical one of 1,500 rows is within 1.95/√1500 = 0.05 of
    # the truth (Kolmogorov, 0.1 %), and so is a model that errs as little
    X, y = plane(1500)
    law = regressor(coordinates="residual").fit(X, y).given(SETS["all"])
    assert np.abs(law.cdf(GRID)[0] - (y[:, None] <= GRID).mean(axis=0)).max() < 0.05


@pytest.fixture(scope="module")
def regimes():
    X, y = TwoRegimes().sample(2000, random_state=0)
    return regressor(coordinates="raw", max_steps=400).fit(X, y), X, y


@pytest.fixture(scope="module")
def line():
    X, y = LinearGaussian().sample(1500, random_state=0)
    return regressor(coordinates="residual", max_steps=300).fit(X, y), X, y


@pytest.mark.parametrize(
    ("data", "simulator", "sets"),
    [
        ("regimes", TwoRegimes(), [(-3, -1), (-1, 1.5), (1, 3), (-3, 3)]),
        ("line", LinearGaussian(), [(-1, -0.5), (-0.3, 0.3), (0.9, 1), (-1, 1)]),
    ],
)
def test_near_the_truth_given_a_set(data, simulator, sets, request):
    # X is uniform, so the law given A averages the exact laws over an even grid. The y of the n_A rows of A scatter by
    # Kolmogorov's 1.95/√n_A (0.1 %); an operator is allowed as much again. The marginal is 0.3 away on half the sets.
    model, X, _ = request.getfixturevalue(data)
    grid = np.linspace(-3.5, 3.5, 281)
    for low, high in sets:
        n_rows = rows_of(Box([low], [high]), X).sum()
        truth = simulator.truth(np.linspace(low, high, 2001)).cdf(grid).mean(axis=0)
        assert np.abs(model.given(Box(low, high)).cdf(grid)[0] - truth).max() < 2 * 1.95 / sqrt(n_rows)


# ---------------------------------------------------------------- X given Y ∈ B


@pytest.mark.parametrize("B", [(0.0, 1.0), (-inf, -0.5), Box(0.2, inf), lambda y: np.abs(y[:, 0]) > 0.7])
@pytest.mark.parametrize("A", [SETS["box"], SETS["open box"], SETS["callable"]], ids=["box", "open", "callable"])
def test_bayes_rule(A, B, small):
    model, X, _ = small
    tolerance = 2 * joining(model) if not callable(B) else max(2 * joining(model), 0.01 * (model.coordinates_ != "raw"))
    share_of_B = model.given(SETS["all"]).prob(B)[0]
    both = model.given(A).prob(B)[0] * rows_of(A, X).mean()
    assert model.given_target(B).prob(A)[0] * share_of_B == pytest.approx(both, abs=tolerance)


def test_the_law_of_a_vector_x(small):
    model, X, _ = small
    law = model.given_target((0.5, inf))
    assert len(law) == 1
    np.testing.assert_array_equal(np.sort(law.atoms, axis=0), np.sort(X, axis=0))
    posterior = model.predict_distribution(X).prob((0.5, inf))
    np.testing.assert_allclose(law.weights()[0], posterior / posterior.sum(), atol=1e-9)
    np.testing.assert_allclose(law.mean(), [posterior @ X / posterior.sum()], atol=1e-9)
    assert law.cov().shape == (1, 2, 2)
    assert law.quantile([0.1, 0.9]).shape == (1, 2, 2)
    assert law.interval(0.9).shape == (1, 2, 2)
    assert law.sample(4, random_state=0).shape == (1, 4, 2)
    assert law.mean()[0, 0] > 0.2  # y rises with x₁


def test_all_targets_say_nothing_of_x(small):
    model, X, _ = small
    law = model.given_target((-inf, inf))
    np.testing.assert_allclose(law.weights(), np.full((1, 480), 1 / 480), rtol=1e-9)
    np.testing.assert_allclose(law.mean(), [X.mean(axis=0)], atol=1e-9)


def test_functions_of_y_get_arrays_in_both_directions(small):
    model, X, _ = small

    def even(y):
        assert isinstance(y, np.ndarray)
        return np.floor(y[:, 0]).astype(int) % 2 == 0

    posterior = model.predict_distribution(X).prob(even)
    np.testing.assert_allclose(model.given_target(even).weights()[0], posterior / posterior.sum(), atol=1e-9)


@pytest.mark.parametrize("B", [(1.0, 3.0), (-0.5, 0.5), (-inf, -1.0)])
def test_near_the_truth_given_targets(B, regimes):
    # Bayes' rule with X uniform: the density of X given y ∈ B is P(B | x) over its mean. The x of the n_B rows with
    # y ∈ B scatter by 1.95/√n_B (Kolmogorov, 0.1 %); an operator is allowed as much again.
    model, X, y = regimes
    chosen = (y > B[0]) & (y <= B[1])
    x = np.linspace(-3, 3, 2001)
    density = TwoRegimes().truth(x).prob(*B)
    truth = np.cumsum(density) / density.sum()
    law = model.given_target(B)
    bound = 1.95 / sqrt(chosen.sum())
    assert np.abs(law.cdf(x)[0] - truth).max() < 2 * bound
    assert np.abs(law.cdf(x)[0] - (X[chosen] <= x).mean(axis=0)).max() < 2 * bound
    assert np.abs(truth - (x + 3) / 6).max() > 2 * bound  # the marginal of X would not pass


# ---------------------------------------------------------------- weights


@pytest.fixture(scope="module", params=["raw", "residual"])
def weighted(request):
    X, y = plane(400, seed=1)
    weights = np.random.default_rng(2).exponential(size=400)
    weights[:50] = 0
    return regressor(coordinates=request.param).fit(X, y, sample_weight=weights), X, weights


def test_rows_count_by_their_weights(weighted):
    model, X, weights = weighted
    A = Box([-0.5, -inf], [0.7, 0.5])
    mask = rows_of(A, X)
    share = weights[mask] / weights[mask].sum()
    points = model.predict_distribution(X[mask])
    law = model.given(A)
    np.testing.assert_allclose(law.mean(), [share @ points.mean()], atol=1e-6)
    np.testing.assert_allclose(law.cdf(GRID)[0], share @ points.cdf(GRID), atol=joining(model))
    posterior = weights * model.predict_distribution(X).prob((0, 1))
    np.testing.assert_allclose(model.given_target((0, 1)).weights()[0], posterior / posterior.sum(), atol=1e-9)


def test_rows_of_weight_zero_are_not_there(weighted):
    model, _, weights = weighted
    A = np.arange(400) < 100
    np.testing.assert_allclose(model.given(A).cdf(GRID), model.given(A & (weights > 0)).cdf(GRID), atol=joining(model))
    with pytest.raises(ValueError, match="`A` must contain at least one training row"):
        model.given(np.arange(400) < 50)


# ---------------------------------------------------------------- degenerate models


@pytest.mark.filterwarnings("ignore:`y` is constant", "ignore:`X` has only")
def test_models_that_know_only_the_marginal():
    X = np.linspace(0, 1, 30)[:, None]
    constant = regressor().fit(X, np.full(30, 2.5))
    assert constant.given(Box(0.2, 0.6)).mean() == 2.5
    np.testing.assert_allclose(constant.given_target((2, 3)).mean(), [X.mean()])
    few = regressor().fit(X[:10], np.arange(10.0))
    assert few.given(Box(0.0, 0.1)).mean() == pytest.approx(4.5)
    np.testing.assert_allclose(few.given(Box(0.0, 0.1)).cdf([1.0, 4.0]), [[0.2, 0.5]])


def test_a_model_of_rank_zero_gives_the_marginal():
    # held-out rows where y falls with x support no singular function of a y that rises
    X, y = LinearGaussian().sample(200, random_state=0)
    model = regressor().fit(X, y, validation_data=(X, -y))
    assert model.rank_ == 0
    np.testing.assert_allclose(model.given(Box(0, 1)).cdf(GRID)[0], (y[:, None] <= GRID).mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(model.given_target((0, 1)).mean(), [X.mean()], atol=1e-9)


def test_changing_the_arrays_after_fit_changes_nothing():
    X, y = plane(60)
    model = regressor(max_steps=5).fit(X, y)
    before = model.given(Box([0, -inf], [1, inf])).mean(), model.given_target((0, 1)).mean()
    X += 5
    y += 5
    np.testing.assert_array_equal(model.given(Box([0, -inf], [1, inf])).mean(), before[0])
    np.testing.assert_array_equal(model.given_target((0, 1)).mean(), before[1])


# ---------------------------------------------------------------- bad questions


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda m: m.given(Box([7, 7], [8, 8])), ValueError, "`A` must contain at least one training row; it conta"),
        (lambda m: m.given(np.zeros(480, bool)), ValueError, "`A` must contain at least one training row"),
        (lambda m: m.given(lambda x: x[:, 0] > 9), ValueError, "`A` must contain at least one training row"),
        (lambda m: m.given(Box(0, 1)), ValueError, "`A` must have 2 coordinates, as the data; got 1"),
        (lambda m: m.given(Box([0] * 3, [1] * 3)), ValueError, "`A` must have 2 coordinates, as the data; got 3"),
        (lambda m: m.given(np.ones(10, bool)), ValueError, r"boolean mask over the 480 training rows; .*\(10,\)"),
        (lambda m: m.given(np.ones((480, 1), bool)), ValueError, r"boolean mask over the 480 training rows"),
        (lambda m: m.given(np.ones(480)), ValueError, "boolean mask over the 480 .* dtype float64"),
        (lambda m: m.given([0, 4, 7]), ValueError, "boolean mask over the 480 .* got list with dtype int64"),
        (lambda m: m.given("x > 0"), ValueError, "`A` must be a Box, a callable or a boolean mask"),
        (lambda m: m.given(lambda x: x[:, 0]), ValueError, r"`A` must return one boolean per row, shape \(480,\)"),
        (lambda m: m.given(lambda x: x > 0), ValueError, r"`A` must return .* `.all\(axis=1\)`"),
        (lambda m: m.given_target((50, 60)), ValueError, "`B` must have positive probability; .* Choose a larger set"),
        (lambda m: m.given_target(lambda y: y[:, 0] > 1e9), ValueError, "`B` must have positive probability"),
        (lambda m: m.given_target(Box([0, 0], [1, 1])), ValueError, "`B` must have 1 coordinates, as the data; got 2"),
        (lambda m: m.given_target(lambda y: y[:, 0]), ValueError, "`B` must return one boolean per row"),
        (lambda m: m.given_target(0.5), TypeError, "`B` must be a .* got float"),
    ],
)
def test_bad_sets_are_named(ask, error, message, small):
    with pytest.raises(error, match=message):
        ask(small[0])


@pytest.mark.parametrize("ask", [lambda m: m.given(Box(0, 1)), lambda m: m.given_target((0, 1))])
def test_unfitted_models_say_so(ask):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ask(regressor())


# ---------------------------------------------------------------- exact tables


def table_rows(table, copies=1):
    """Training rows that are the states of a discrete law, each with its probability and its exact features."""
    u, s, v = table.svd(min(table.shape) - 1)
    support = Support(table.states()[1], v, table.q)
    weights = table.p.repeat(copies)
    return TrainingRows(ConditionalDistribution(support, (u * s).repeat(copies, 1)), weights)


@pytest.mark.parametrize("copies", [1, 200])  # one row per state, and more rows than representatives
def test_a_discrete_table_is_answered_exactly(copies):
    # all ratios are positive, so the answer does not depend on which rows represent A
    table = Table.random(4, 5, seed=0)
    rows, values = table_rows(table, copies), torch.arange(5.0, dtype=torch.float64)
    inside = torch.tensor([True, False, True, True])
    law = rows.given(inside.repeat(copies), export=None)
    truth = table.joint[inside].sum(dim=0) / table.p[inside].sum()
    np.testing.assert_allclose(law.weights()[0], truth, atol=1e-12)
    np.testing.assert_allclose(law.mean(), [truth @ values], atol=1e-12)
    states = table.states()[0].repeat(copies, 1)
    reverse = rows.reverse(states, (0.5, 3.0), export=None)
    posterior = table.joint[:, 1:4].sum(dim=1) / table.q[1:4].sum()
    np.testing.assert_allclose(reverse.cdf([0.0, 1.0, 2.0, 3.0])[0], posterior.cumsum(0), atol=1e-12)


@pytest.mark.parametrize("n", [5, 2000])  # fewer and more rows than representatives
def test_rows_without_features_give_the_marginal(n):
    laws = ConditionalDistribution(Support(torch.arange(4.0), torch.zeros(4, 0)), torch.zeros(n, 0))
    law = TrainingRows(laws, torch.ones(n, dtype=torch.float64)).given(torch.arange(n) > 2, None)
    assert law.weights().tolist() == [[0.25] * 4]


def test_pooled_atoms_are_moved_by_their_own_rows():
    # two rows: ½ at 0 and ½ at 1, moved to {10, 12} and to {-1, -0.5}; weights 3 to 1
    laws = ConditionalDistribution(
        Support(torch.tensor([0.0, 1.0]), torch.zeros(2, 1)),
        torch.zeros(2, 1),
        transport=affine([[10.0], [-1.0]], [[2.0], [0.5]]),
    )
    law = TrainingRows(laws, torch.tensor([3.0, 1.0], dtype=torch.float64)).given(torch.ones(2, dtype=torch.bool), None)
    assert law.atoms.tolist() == [-1, -0.5, 10, 12]
    np.testing.assert_allclose(law.weights(), [[0.125, 0.125, 0.375, 0.375]])


def test_representatives_have_equal_shares_of_the_weight(monkeypatch):
    monkeypatch.setattr(conditioning, "REPRESENTATIVES", 8)
    monkeypatch.setattr(conditioning, "LAW_ELEMENTS", 10)
    key = torch.tensor(np.random.default_rng(0).permutation(100).astype(float))
    omega = torch.where(key < 50, 3.0, 1.0).double() / 200
    chosen, share = conditioning._representatives(key, omega, 10)
    assert share.tolist() == [1 / 8] * 8
    assert key[chosen].tolist() == sorted(key[chosen].tolist())
    assert (key[chosen] < 50).sum() == 6  # three quarters of the weight
    everyone, shares = conditioning._representatives(key[:8], omega[:8], 10)
    assert everyone.tolist() == list(range(8))
    assert shares is not omega
    assert torch.equal(shares, omega[:8])


@pytest.mark.parametrize("vector", [False, True])
def test_located_laws_of_many_rows(vector, monkeypatch):
    # 3,000 rows y = location + scale·N(0, 1) of one or two components: a mixture with known moments. 512 systematic
    # rows have a standard error below std/√512 of the mean; location and scale spread by 1.5 in all.
    monkeypatch.setattr(conditioning, "POOLED_ATOMS", 2**15)  # 64 atoms a row
    rng, q = np.random.default_rng(0), 2 if vector else 1
    base = stats.norm.ppf((rng.permuted(np.tile(np.arange(500), (q, 1)), axis=1).T + 0.5) / 500)
    location, scale = rng.normal(size=(3000, q)), 0.5 + rng.random((3000, q))
    laws = ConditionalDistribution(
        Support(torch.tensor(base), torch.zeros(500, 1)),
        torch.zeros(3000, 1),
        transport=affine(location, scale),
    )
    law = TrainingRows(laws, torch.ones(3000, dtype=torch.float64)).given(torch.ones(3000, dtype=torch.bool), None)
    assert len(law.support) <= 2**15
    np.testing.assert_allclose(law.mean().reshape(1, q), [location.mean(axis=0)], atol=3 * 1.5 / sqrt(512))
    expected = location.var(axis=0) + (scale**2).mean(axis=0) * base.var(axis=0)
    np.testing.assert_allclose(law.var().reshape(1, q), [expected], rtol=3 * sqrt(2 / 512))
