"""Targets of several components: the joint law against closed forms, and shapes."""

from math import inf, sqrt

import numpy as np
import pytest
from scipy import stats

from ncprob import Box, NCPRegressor

SLOPES = np.array([[1.0, 0.5], [-0.5, 1.0]])
CHOLESKY = np.array([[1.0, 0.0], [0.6, 0.8]])
COVARIANCE = CHOLESKY @ CHOLESKY.T  # unit variances, correlation 0.6
NEW = np.array([[0.0, 0.0], [0.6, 0.0], [0.0, -0.6], [-0.5, 0.5]])
MEANS = NEW @ SLOPES.T

# A tenth of the 2,000 rows lie near each condition; tolerances are three standard errors of so many rows.
NEAR = 200


def regressor(**options):
    defaults = {
        "coordinates": "raw",
        "hidden_sizes": (32, 32),
        "max_steps": 200,
        "batch_size": 256,
        "learning_rate": 5e-3,
        "random_state": 0,
        "device": "cpu",
        "progress": False,
    }
    return NCPRegressor(**{**defaults, **options})


def gaussian(n, seed=0):
    """X uniform on a square, y = SLOPES x + CHOLESKY noise: N(SLOPES x, COVARIANCE) given x."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, X @ SLOPES.T + rng.normal(size=(n, 2)) @ CHOLESKY.T


@pytest.fixture(scope="module", params=["raw", "residual"])
def model(request):
    return regressor(coordinates=request.param).fit(*gaussian(2000))


def test_means(model):
    np.testing.assert_allclose(model.predict(NEW), MEANS, atol=3 / sqrt(NEAR))


def test_covariances(model):
    # the standard error of a (co)variance of unit variables is at most √(2/n)
    covariance = model.predict_cov(NEW)
    np.testing.assert_array_equal(covariance, covariance.swapaxes(1, 2))
    assert (np.linalg.eigvalsh(covariance) > 0).all()
    np.testing.assert_allclose(covariance, np.broadcast_to(COVARIANCE, (4, 2, 2)), atol=3 * sqrt(2 / NEAR))
    np.testing.assert_allclose(model.predict_var(NEW), np.diagonal(covariance, axis1=1, axis2=2), rtol=1e-9)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_quantiles_of_each_component(level, model):
    z = stats.norm.ppf(level)
    error = sqrt(level * (1 - level) / NEAR) / stats.norm.pdf(z)
    np.testing.assert_allclose(model.predict_quantiles(NEW, [level])[..., 0], MEANS + z, atol=3 * error)


def test_intervals_of_each_component(model):
    # ends are the 10 % and 90 % quantiles; those of the shortest interval scatter more than the central ones, but the
    # shortest is no wider and its coverage is that of n rows
    error = 3 * sqrt(0.1 * 0.9 / NEAR) / stats.norm.pdf(stats.norm.ppf(0.1))
    central = model.predict_interval(NEW, 0.8, kind="central")
    low, high = stats.norm.interval(0.8)
    np.testing.assert_allclose(central[..., 0], MEANS + low, atol=error)
    np.testing.assert_allclose(central[..., 1], MEANS + high, atol=error)
    shortest = model.predict_interval(NEW, 0.8)
    assert (np.diff(shortest) <= np.diff(central) + 1e-9).all()
    truth = np.diff(stats.norm.cdf(shortest - MEANS[..., None]))[..., 0]
    np.testing.assert_allclose(truth, 0.8, atol=3 * sqrt(0.8 * 0.2 / NEAR) + 0.05)  # chosen to look short: biased down


@pytest.mark.parametrize(
    ("low", "high"),
    [([-inf, -inf], [0.2, 0.1]), ([0.0, -inf], [2.0, 0.5]), ([-1, -1], [1, 1]), ([0.5, 0.5], [inf, inf])],
)
def test_probabilities_of_boxes(low, high, model):
    law = model.predict_distribution(NEW)
    truth = [stats.multivariate_normal(mean, COVARIANCE).cdf(high, lower_limit=low) for mean in MEANS]
    np.testing.assert_allclose(law.prob(Box(low, high)), truth, atol=3 * 0.5 / sqrt(NEAR))
    same = law.prob(lambda y: ((y > low) & (y <= high)).all(axis=1))
    np.testing.assert_allclose(law.prob(Box(low, high)), same, atol=1e-12)


def test_a_joint_box_is_not_a_product(model):
    # P(both above their means) = ¼ + arcsin(0.6)/2π = 0.352 (Sheppard 1899); a product of components would give ¼
    above = [model.predict_distribution(NEW[[i]]).prob(Box(MEANS[i], [inf, inf]))[0] for i in range(4)]
    np.testing.assert_allclose(above, 0.25 + np.arcsin(0.6) / (2 * np.pi), atol=3 * 0.5 / sqrt(NEAR))
    assert np.mean(above) > 0.3


def test_expectation_of_a_product(model):
    # Var(y₁y₂) ≤ E y₁² y₂² ≤ 2.5 for means below 0.9 and correlation 0.6
    product = model.expectation(lambda y: y[:, 0] * y[:, 1], NEW)
    np.testing.assert_allclose(product, MEANS.prod(axis=1) + 0.6, atol=3 * sqrt(2.5 / NEAR))
    mean, covariance = model.predict(NEW), model.predict_cov(NEW)
    np.testing.assert_allclose(product, mean.prod(axis=1) + covariance[:, 0, 1], rtol=1e-9, atol=1e-9)


def test_samples_have_the_covariance_of_the_law(model):
    # four standard errors of 20,000 draws: 4·√(2/20000) = 0.04 of the variances, up to 1.5
    law = model.predict_distribution(NEW)
    draws = law.sample(20_000, random_state=0)
    assert draws.shape == (4, 20_000, 2)
    sampled = np.stack([np.cov(member.T) for member in draws])
    np.testing.assert_allclose(sampled, law.cov(), atol=0.06)
    np.testing.assert_allclose(draws.mean(axis=1), law.mean(), atol=0.04)


def test_the_law_given_a_set(model):
    # X uniform: given A = (0, 1] × (-1, 1] the mean of y is SLOPES (½, 0), and the covariance COVARIANCE plus that of
    # SLOPES x, with Var(x) = (1/12, 1/3). Three standard errors of the 1,000 rows of A, and as much for the operator.
    law = model.given(Box([0, -1], [1, 1]))
    assert len(law) == 1
    np.testing.assert_allclose(law.mean(), [SLOPES @ [0.5, 0]], atol=2 * 3 * 1.3 / sqrt(1000))
    expected = COVARIANCE + SLOPES @ np.diag([1 / 12, 1 / 3]) @ SLOPES.T
    np.testing.assert_allclose(law.cov()[0], expected, atol=2 * 3 * sqrt(2 / 1000) * 1.4)


def test_the_law_of_x_given_a_box_of_targets(model):
    # large y₁ and y₂ come with large SLOPES x: by Bayes' rule E[x | both above 1] from an even grid of the square
    x = np.stack(np.meshgrid(*[np.linspace(-1, 1, 41)] * 2), axis=-1).reshape(-1, 2)
    mass = stats.multivariate_normal([0, 0], COVARIANCE).cdf(x @ SLOPES.T - 1)  # P(y > 1) by symmetry
    law = model.given_target(Box([1, 1], [inf, inf]))
    # about 0.13·2000 = 260 rows fall in the box; x has a spread below 0.58
    np.testing.assert_allclose(law.mean(), [mass @ x / mass.sum()], atol=3 * 0.58 / sqrt(260))


# ---------------------------------------------------------------- three components: shapes and laws


@pytest.fixture(scope="module", params=["raw", "residual"])
def three(request):
    X, y = gaussian(300)
    return regressor(coordinates=request.param, max_steps=60).fit(X, np.column_stack([y, X.sum(axis=1) + y[:, 0]]))


def test_shapes(three):
    law = three.predict_distribution(NEW)
    assert three.predict(NEW).shape == three.predict_var(NEW).shape == (4, 3)
    assert three.predict_cov(NEW).shape == (4, 3, 3)
    assert three.predict_quantiles(NEW, [0.2, 0.8]).shape == (4, 3, 2)
    assert three.predict_interval(NEW).shape == (4, 3, 2)
    assert three.predict_interval(NEW, [0.5, 0.8, 0.9]).shape == (4, 3, 2, 3)
    assert law.cdf(0.0).shape == law.pdf(0.0).shape == law.mode().shape == law.median().shape == (4, 3)
    assert law.cdf([0.0, 1.0]).shape == law.pdf([0.0, 1.0]).shape == (4, 3, 2)
    y = np.zeros((4, 3))
    assert law.pit(y).shape == law.crps(y).shape == law.log_score(y).shape == (4, 3)
    assert law.prob(Box([0] * 3, [1] * 3)).shape == (4,)
    assert law.expectation(lambda v: v.sum(axis=1)).shape == (4,)
    assert law.expectation(lambda v: v[:, :2]).shape == (4, 2)
    assert law.sample(6, random_state=0).shape == (4, 6, 3)
    assert np.isfinite(law.log_score(y)).all()


def test_answers_per_component_come_from_the_joint_law(three):
    law = three.predict_distribution(NEW)
    for k in range(3):
        bounds = np.full((2, 3), [[-inf], [inf]])
        bounds[1, k] = 0.3
        np.testing.assert_allclose(law.prob(Box(*bounds)), law.cdf(0.3)[:, k], atol=1e-9)
        np.testing.assert_allclose(law.expectation(lambda y, k=k: y[:, k]), law.mean()[:, k], atol=1e-9)
        np.testing.assert_allclose(law.expectation(lambda y, k=k: y[:, k] <= 0.3), law.cdf(0.3)[:, k], atol=1e-9)


def test_covariances_stay_positive_semidefinite_when_components_are_dependent():
    # the third component is a sum of the first two: the exact covariance is singular
    X, y = gaussian(300)
    law = regressor(max_steps=60).fit(X, np.column_stack([y, y.sum(axis=1)])).predict_distribution(NEW)
    eigenvalues = np.linalg.eigvalsh(law.cov())
    np.testing.assert_allclose(eigenvalues[:, 0], 0, atol=1e-9)
    assert (eigenvalues[:, 1:] > 0).all()
    draws = law.sample(50, random_state=0)
    np.testing.assert_allclose(draws[..., 0] + draws[..., 1], draws[..., 2], atol=1e-9)


@pytest.mark.parametrize("coordinates", ["raw", "residual"])
def test_units_of_each_component_do_not_matter(coordinates):
    # y enters the networks as ranks or in robust units; powers of two are exact in floating point
    X, y = gaussian(300)
    units, shift = np.array([1024.0, 1 / 64]), np.array([8.0, -0.25])
    # without trees: there a split may fall on the other side of a tie
    plain = regressor(coordinates=coordinates, max_steps=40, tree_inputs=False).fit(X, y)
    other = regressor(coordinates=coordinates, max_steps=40, tree_inputs=False).fit(X, y * units + shift)
    tolerance = 1e-2 * units  # rounding of shifted values, carried through training in float32
    assert (np.abs(other.predict(NEW) - (plain.predict(NEW) * units + shift)) < tolerance).all()
    assert (
        np.abs(other.predict_cov(NEW) - plain.predict_cov(NEW) * np.outer(units, units)) < 1e-2 * units[:, None] * units
    ).all()
    median = other.predict_distribution(NEW).cdf(8.0)[:, 0], plain.predict_distribution(NEW).cdf(0.0)[:, 0]
    np.testing.assert_allclose(*median, atol=1e-2)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.predict_distribution(NEW).prob((0, 1)), "`B` must have 3 coordinates, as the data; got 1"),
        (
            lambda m: m.predict_distribution(NEW).pit(np.zeros((4, 2))),
            r"`y` must hold one value per member, .*\(4, 3\)",
        ),
        (lambda m: m.predict_distribution(NEW).highest_density_region(0.9), "need scalar Y"),
        (lambda m: m.given_target(Box(0, 1)), "`B` must have 3 coordinates, as the data; got 1"),
    ],
)
def test_questions_of_the_wrong_dimension(ask, message, three):
    with pytest.raises(ValueError, match=message):
        ask(three)


def test_components_depend_on_each_other_as_x_says():
    """The operator that knows it must not be left out because CRPS of the components do not see it."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1000, 1))
    correlation = 0.9 * np.sign(x[:, 0])
    first = rng.normal(size=1000)
    second = correlation * first + np.sqrt(1 - correlation**2) * rng.normal(size=1000)
    model = NCPRegressor(coordinates="residual", max_steps=300, random_state=0, progress=False)
    cov = model.fit(x, np.column_stack([first, second])).predict_cov([[-0.5], [0.5]])
    found = cov[:, 0, 1] / np.sqrt(cov[:, 0, 0] * cov[:, 1, 1])
    assert found[0] < -0.5  # exact: −0.9; some ten standard errors of 500 rows are left for the short training
    assert found[1] > 0.5


# ---------------------------------------------------------------- levels beside other components


def hurdle(n, seed=0):
    """A flag, and an amount that is zero where the flag is: log-normal else."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    flag = X[:, 0] + rng.normal(size=n) > 0
    amount = np.where(flag, np.exp(X[:, 1] + 0.5 * rng.normal(size=n)), 0.0)
    return X, np.stack([flag, amount, X[:, 1] + rng.normal(size=n)], axis=1)


def test_what_ties_levels_to_other_components_is_kept():
    law = regressor(coordinates="auto", tree_inputs=False).fit(*hurdle(1500)).predict_distribution(NEW)
    np.testing.assert_allclose(law.prob(lambda y: (y[:, 0] > 0) == (y[:, 1] > 0)), 1)
    # a tenth of the rows near each condition: three standard errors of 150
    raised = law.prob(Box([0.5, -inf, -inf], [inf, inf, inf]))
    np.testing.assert_allclose(raised, stats.norm.cdf(NEW[:, 0]), atol=3 * 0.5 / sqrt(150))


def test_every_component_keeps_its_kind_in_residual_coordinates():
    X, y = hurdle(600)
    model = regressor(coordinates="residual", max_steps=30).fit(X, y)
    law = model.predict_distribution(NEW)
    draws = law.sample(100, random_state=0)
    assert np.isin(draws[..., 0], [0, 1]).all()
    assert np.isin(draws[..., 1], y[:, 1]).all()
    assert 0 < (draws[..., 1] == 0).mean() < 1
    assert not np.isin(draws[..., 2], y[:, 2]).any()  # a continuum has no levels
    np.testing.assert_allclose(law.mean()[:, 0], law.prob(Box([0.5, -inf, -inf], [inf, inf, inf])))
    np.testing.assert_allclose(model.given(Box([-1, -1], [1, 1])).prob(lambda y: np.isin(y[:, 0], [0, 1])), 1)
