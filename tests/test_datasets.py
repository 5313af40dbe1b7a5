"""The simulators obey the laws of probability, and their samples obey the exact conditional law."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ncprob import datasets

# A KS test at this level rejects a correct simulator once in a thousand seeds; the seeds here are fixed.
SMALLEST_P_VALUE = 1e-3

CONTINUOUS = [name for name in datasets.names() if name != "CircleDiscrete"]
WITH_MOMENTS = [name for name in CONTINUOUS if name != "Cauchy"]


def build(name):
    return datasets.make(name, dimension=7) if name.startswith("Circle") else datasets.make(name)


def some_rows(name, n=12, seed=3):
    return build(name).sample(n, random_state=seed)[0]


def integrals(law, integrand, levels):
    """Integrate integrand(t) · pdf(t) between the first and last of the quantiles at `levels`, per condition.

    Gauss–Legendre panels end at quantiles, for spikes and kinks, and at even steps, for gaps between modes.
    """
    quantiles = law.quantile(levels)
    ends = np.clip(law.quantile([0.005, 0.995]), quantiles[:, :1], quantiles[:, -1:])
    knots = np.sort(np.hstack([quantiles, np.linspace(*ends.T, 400, axis=1)]), axis=1)
    nodes, weights = np.polynomial.legendre.leggauss(6)
    centre, radius = 0.5 * (knots[:, 1:] + knots[:, :-1]), 0.5 * np.diff(knots, axis=1)
    t = (centre[..., None] + radius[..., None] * nodes).reshape(len(law), -1)
    mass = (radius[..., None] * weights).reshape(len(law), -1)
    return np.sum(mass * law.pdf(t) * integrand(t), axis=1)


TAIL = np.logspace(-13, -2.5, 50)
ALL_LEVELS = np.concatenate([TAIL, np.linspace(0.005, 0.995, 101), 1 - TAIL[::-1]])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_density_integrates_to_one(name):
    law = build(name).truth(some_rows(name))
    np.testing.assert_allclose(integrals(law, np.ones_like, ALL_LEVELS), 1.0, atol=1e-8)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("level", [0.03, 0.45, 0.9])
def test_cdf_is_the_integral_of_the_density(name, level):
    law = build(name).truth(some_rows(name))
    levels = np.linspace(level, level + 0.08, 40)
    ends = law.cdf(law.quantile(levels[[0, -1]]))
    np.testing.assert_allclose(integrals(law, np.ones_like, levels), ends[:, 1] - ends[:, 0], atol=1e-9)


@pytest.mark.parametrize("name", WITH_MOMENTS)
def test_moments_are_integrals_of_the_law(name):
    law = build(name).truth(some_rows(name))
    mean = integrals(law, lambda t: t, ALL_LEVELS)
    variance = integrals(law, lambda t: (t - law.mean()[:, None]) ** 2, ALL_LEVELS)
    np.testing.assert_allclose(law.mean(), mean, atol=1e-6)
    np.testing.assert_allclose(law.var(), variance, rtol=1e-6)
    np.testing.assert_allclose(law.std() ** 2, law.var())


def test_cauchy_has_no_moments():
    law = datasets.Cauchy().truth([[1.0], [2.0]])
    assert np.isnan(law.mean()).all()
    assert np.isnan(law.var()).all()
    assert np.isnan(law.std()).all()


@pytest.mark.parametrize("name", CONTINUOUS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), q=st.floats(1e-6, 1 - 1e-6))
def test_quantile_inverts_the_cdf(name, seed, q):
    law = build(name).truth(some_rows(name, n=3, seed=seed))
    quantile = law.quantile(q)
    assert quantile.shape == (3,)
    np.testing.assert_allclose(law.cdf(quantile[:, None])[:, 0], q, atol=1e-10)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantile_at_zero_and_one_is_infinite(name):
    ends = build(name).truth(some_rows(name, n=2)).quantile([0.0, 1.0])
    np.testing.assert_array_equal(ends, [[-np.inf, np.inf]] * 2)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_sampled_pairs_follow_the_conditional_law(name):
    model = build(name)
    X, y = model.sample(4000, random_state=11)
    assert X.shape == (4000, model.n_features)
    assert y.shape == (4000,)
    pit = model.truth(X).cdf(y[:, None])[:, 0]
    assert stats.kstest(pit, "uniform").pvalue > SMALLEST_P_VALUE
    # also in each half of the inputs, where a wrong dependence on x could cancel out overall
    for half in (X[:, 0] < np.median(X[:, 0]), X[:, 0] >= np.median(X[:, 0])):
        assert stats.kstest(pit[half], "uniform").pvalue > SMALLEST_P_VALUE


@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_from_the_truth_follow_it(name):
    law = build(name).truth(some_rows(name, n=3))
    draws = law.sample(2000, random_state=5)
    assert draws.shape == (3, 2000)
    for pit in law.cdf(draws):
        assert stats.kstest(pit, "uniform").pvalue > SMALLEST_P_VALUE


MARGINALS = {
    "LinearGaussian": stats.uniform(-1, 2),
    "EconDensity": stats.halfnorm(),
    "SkewNormal": stats.norm(0, 0.5),
    "LGGMD": stats.uniform(-1, 2),
    "Laplace": stats.uniform(0, 5),
    "Cauchy": stats.uniform(0, 5),
    "GaussianPair": stats.norm(),
    "TwoRegimes": stats.uniform(-3, 6),
}


@pytest.mark.parametrize("name", MARGINALS)
def test_inputs_follow_their_marginal(name):
    X, _ = build(name).sample(4000, random_state=7)
    for column in X.T:
        assert stats.kstest(column, MARGINALS[name].cdf).pvalue > SMALLEST_P_VALUE


# Each expected law is written again here from the model's definition, with scipy's own distributions.
EXPECTED = {
    "LinearGaussian": (0.3, stats.norm(0.3, 0.1)),
    "EconDensity": (1.5, stats.norm(2.25, 2.5)),
    "SkewNormal": (0.7, stats.skewnorm(-4 + 4 / (1 + np.exp(-0.7)), 0.07, 0.05 + 0.1 * 0.49)),
    "Laplace": (2.0, stats.laplace(4.0, 2.0)),
    "Cauchy": (2.0, stats.cauchy(4.0, 3.0)),
    "GaussianPair": (-1.0, stats.norm(-0.8, 0.6)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_laws_agree_with_scipy(name):
    x, expected = EXPECTED[name]
    law = build(name).truth([[x]])
    t = expected.ppf(np.linspace(0.01, 0.99, 31))
    np.testing.assert_allclose(law.pdf(t)[0], expected.pdf(t), rtol=1e-9)
    np.testing.assert_allclose(law.cdf(t)[0], expected.cdf(t), atol=1e-9)


def test_arma_jump_follows_its_recursion():
    t = np.linspace(-0.6, 0.5, 50)
    centre = 0.1 * 0.1 + 0.9 * 0.2
    expected = 0.95 * stats.norm.cdf(t, centre, 0.05) + 0.05 * stats.norm.cdf(t, centre - 0.3, 0.1)
    np.testing.assert_allclose(datasets.ArmaJump().truth([[0.2]]).cdf(t)[0], expected, atol=1e-12)


def test_arma_jump_series_is_stationary():
    X, y = datasets.ArmaJump().sample(40_000, random_state=0)
    # stationary mean c − 0.05·3c/(1 − a) = −0.05; variance of a shock over 1 − a²
    shock_variance = 0.95 * 0.05**2 + 0.05 * 0.1**2 + 0.95 * 0.05 * 0.3**2
    assert np.mean(X) == pytest.approx(-0.05, abs=0.02)
    assert np.var(y) == pytest.approx(shock_variance / (1 - 0.81), rel=0.1)
    assert abs(np.corrcoef(X[:-1, 0], X[1:, 0])[0, 1]) < 0.03  # shuffled: neighbours are strangers


def test_gaussian_mixture_is_joint_over_marginal():
    model = datasets.GaussianMixture()
    x, t = 1.7, np.linspace(-5, 8, 40)
    x_density = stats.norm.pdf(x, model.x_means, np.sqrt(model.x_variances)) * model.weights
    y_density = stats.norm.pdf(t[:, None], model.y_means, np.sqrt(model.y_variances))
    expected = y_density @ x_density / x_density.sum()
    np.testing.assert_allclose(model.truth([[x]]).pdf(t)[0], expected, rtol=1e-10)


def test_gaussian_mixture_marginal():
    model = datasets.GaussianMixture()
    X, _ = model.sample(4000, random_state=2)
    cdf = stats.norm.cdf(X, model.x_means, np.sqrt(model.x_variances)) @ np.array(model.weights)
    assert stats.kstest(cdf, "uniform").pvalue > SMALLEST_P_VALUE


def test_lggmd_uses_three_inputs_only():
    x = np.random.default_rng(0).uniform(-1, 1, (2, 20))
    x[:, :3] = [[0.4, 0.3, 0.8], [0.4, 0.1, 0.8]]
    t = np.linspace(-1, 1, 60)
    split = 0.5 * stats.norm.cdf(t, -0.4, 0.25 * 0.7**2) + 0.5 * stats.norm.cdf(t, 0.6, 0.25 * 0.3**2)
    expected = np.stack([stats.norm.cdf(t, 0.1, 0.3), split])
    np.testing.assert_allclose(datasets.LGGMD().truth(x).cdf(t), expected, atol=1e-12)


@given(theta=st.floats(0.01, 6.27), dimension=st.integers(2, 40), seed=st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_circle_points_lie_on_a_circle_and_give_their_angle_back(theta, dimension, seed):
    model = datasets.CircleGaussian(dimension=dimension, seed=seed)
    x = model.points(theta)
    assert np.linalg.norm(x) == pytest.approx(1.0)
    np.testing.assert_allclose(model.angles(x), theta, atol=1e-10)
    law = model.truth(x)
    np.testing.assert_allclose(law.mean(), theta, atol=1e-10)
    np.testing.assert_allclose(law.var(), np.sin(theta / 2) ** 2, atol=1e-10)


def test_circle_angles_are_uniform_and_the_rotation_is_fixed_by_its_seed():
    model = datasets.CircleGaussian(dimension=10, seed=4)
    X, _ = model.sample(3000, random_state=1)
    assert stats.kstest(model.angles(X) / (2 * np.pi), "uniform").pvalue > SMALLEST_P_VALUE
    same, other = datasets.CircleGaussian(10, 4), datasets.CircleGaussian(10, 5)
    np.testing.assert_array_equal(model.points(1.0), same.points(1.0))
    assert not np.allclose(model.points(1.0), other.points(1.0))


def test_circle_discrete_frequencies():
    model = datasets.CircleDiscrete(dimension=5)
    X, y = model.sample(8000, random_state=3)
    quarter = (model.angles(X) // (np.pi / 2)).astype(int)
    for index, chances in enumerate([(0.2,) * 5, (0.5, 0.5, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 0.5, 0.5)]):
        labels = y[quarter == index]
        frequencies = np.array([np.mean(labels == label) for label in range(1, 6)])
        # five standard errors at about 2,000 draws
        np.testing.assert_allclose(frequencies, chances, atol=5 * np.sqrt(0.25 / len(labels)))
        assert np.all(frequencies[np.array(chances) == 0] == 0)


def test_discrete_law_questions():
    model = datasets.CircleDiscrete(dimension=5)
    law = model.truth(model.points([0.5, 2.0, 4.0, 6.0]))
    np.testing.assert_allclose(law.cdf([0.9, 1, 2.5, 5])[0], [0, 0.2, 0.4, 1.0])
    np.testing.assert_allclose(law.pdf([1, 1.5]), [[0.2, 0], [0.5, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(
        law.quantile([0.0, 0.5, 0.6, 1.0]), [[1, 3, 3, 5], [1, 1, 2, 2], [3] * 4, [4, 4, 5, 5]]
    )
    np.testing.assert_allclose(law.mean(), [3, 1.5, 3, 4.5])
    np.testing.assert_allclose(law.var(), [2, 0.25, 0, 0.25], atol=1e-12)
    np.testing.assert_array_equal(law.interval(0.5), [[1, 3], [1, 1], [3, 3], [4, 4]])
    np.testing.assert_allclose(law.prob(1, 3), [0.4, 0.5, 1.0, 0.0])
    assert set(np.unique(law.sample(50, random_state=0)[3])) == {4, 5}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_shortest_interval_covers_and_is_no_longer_than_the_central_one(name, coverage):
    law = build(name).truth(some_rows(name))
    shortest, central = law.interval(coverage), law.interval(coverage, kind="central")
    for interval in (shortest, central):
        ends = law.cdf(interval)
        np.testing.assert_allclose(ends[:, 1] - ends[:, 0], coverage, atol=1e-9)
    np.testing.assert_allclose(law.cdf(central)[:, 0], (1 - coverage) / 2, atol=1e-9)
    assert np.all(np.diff(shortest) <= np.diff(central) * (1 + 1e-12))


@pytest.mark.parametrize("name", ["SkewNormal", "ArmaJump", "GaussianMixture", "LGGMD", "TwoRegimes"])
def test_shortest_interval_is_the_shortest(name):
    law = build(name).truth(some_rows(name))
    tails = np.linspace(0, 0.2, 2001)
    widths = law.quantile(np.minimum(tails + 0.8, 1.0)) - law.quantile(tails)
    found = np.diff(law.interval(0.8))[:, 0]
    assert np.all(found <= widths.min(axis=1) * (1 + 1e-9))
    # an inner optimum has the same density at both ends
    ends = law.pdf(law.interval(0.8))
    np.testing.assert_allclose(ends[:, 0], ends[:, 1], rtol=1e-3)


def test_prob_is_a_difference_of_the_cdf():
    law = datasets.TwoRegimes().truth([[-1.0], [2.0]])
    np.testing.assert_allclose(law.prob(-np.inf, np.inf), 1.0)
    np.testing.assert_allclose(law.prob(-1.0, 0.5) + law.prob(0.5, 2.0), law.prob(-1.0, 2.0))


def test_shapes_of_answers():
    law = datasets.EconDensity().truth(np.ones((4, 1)))
    assert len(law) == 4
    for question in (law.pdf, law.cdf, law.quantile):
        assert question(0.5).shape == (4,)
        assert question([0.2, 0.5, 0.7]).shape == (4, 3)
        assert question(np.full((4, 2), 0.5)).shape == (4, 2)
    assert law.mean().shape == law.var().shape == law.std().shape == law.prob(0, 1).shape == (4,)
    assert law.interval(0.9).shape == (4, 2)
    assert law.sample(6, random_state=0).shape == (4, 6)


def test_one_input_may_come_as_a_scalar_or_vector():
    model = datasets.LinearGaussian()
    np.testing.assert_array_equal(model.truth(0.3).mean(), [0.3])
    np.testing.assert_array_equal(model.truth([0.3, 0.4]).mean(), [0.3, 0.4])


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.9])
def test_gaussian_pair_is_standard_with_its_correlation(rho):
    X, y = datasets.GaussianPair(rho).sample(20_000, random_state=0)
    # the standard error of a correlation is (1 − ρ²)/√n
    assert np.corrcoef(X[:, 0], y)[0, 1] == pytest.approx(rho, abs=5 * (1 - rho**2) / np.sqrt(20_000))
    assert stats.kstest(y, "norm").pvalue > SMALLEST_P_VALUE
    np.testing.assert_allclose(datasets.GaussianPair(rho).singular_values(3), [abs(rho) ** k for k in (1, 2, 3)])


def test_gaussian_pair_maps_hermite_polynomials_to_powers_of_rho():
    # E[He_k(Y) | X = x] = ρᵏ He_k(x), by Gauss–Hermite quadrature over the exact law
    rho, x = 0.6, np.array([-1.3, 0.2, 2.1])
    law = datasets.GaussianPair(rho).truth(x)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    y = law.mean()[:, None] + law.std()[:, None] * nodes
    for k, value in enumerate(datasets.GaussianPair(rho).singular_values(4), start=1):
        polynomial = np.polynomial.hermite_e.HermiteE.basis(k)
        expectation = polynomial(y) @ weights / weights.sum()
        np.testing.assert_allclose(expectation, value * polynomial(x), atol=1e-10)


def test_two_regimes_has_one_mode_left_and_two_right():
    t = np.linspace(-4, 4, 2001)
    pdf = datasets.TwoRegimes().truth([-2.0, -0.5, 1.5, 2.8]).pdf(t)
    modes = np.sum((pdf[:, 1:-1] > pdf[:, :-2]) & (pdf[:, 1:-1] > pdf[:, 2:]), axis=1)
    np.testing.assert_array_equal(modes, [1, 1, 2, 2])


@pytest.mark.parametrize("name", datasets.names())
def test_seeds_generators_and_none(name):
    model = build(name)
    first, again = model.sample(20, random_state=1), model.sample(20, random_state=np.random.default_rng(1))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], model.sample(20, random_state=2)[0])
    assert model.sample(1)[0].shape == (1, model.n_features)


def test_models_are_values():
    assert datasets.make("GaussianPair", rho=0.2) == datasets.GaussianPair(rho=0.2)
    with pytest.raises(AttributeError):
        datasets.GaussianPair().rho = 0.5


def test_conditioning_points_of_one_input_are_percentiles():
    X = np.arange(101.0)[:, None]
    points = datasets.LinearGaussian().conditioning_points(X)
    np.testing.assert_allclose(points[:, 0], np.arange(5, 100, 5))


def test_conditioning_points_of_lggmd_move_one_input_at_a_time():
    model = datasets.LGGMD()
    X, _ = model.sample(300, random_state=0)
    points = model.conditioning_points(X)
    moved = points != np.median(X, axis=0)
    assert points.shape == (57, 20)
    for column in range(3):
        block = slice(19 * column, 19 * (column + 1))
        np.testing.assert_allclose(points[block, column], np.percentile(X[:, column], np.arange(5, 100, 5)))
        assert not np.delete(moved[block], column, axis=1).any()


def test_conditioning_points_of_a_circle_are_its_angles():
    model = datasets.CircleGaussian(dimension=6)
    np.testing.assert_allclose(model.angles(model.conditioning_points(np.zeros((3, 6)))), [1, 1.57, 3.14, 5])


@pytest.mark.parametrize("name", datasets.names())
def test_conditioning_points_are_answered(name):
    model = build(name)
    points = model.conditioning_points(model.sample(100, random_state=0)[0])
    assert np.isfinite(model.truth(points).cdf([0.0, 1.0])).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: datasets.LinearGaussian().sample(0), r"`n` must be an integer of at least 1; got 0"),
        (lambda: datasets.LinearGaussian().sample(2.5), r"`n` must be an integer of at least 1; got 2.5"),
        (lambda: datasets.GaussianPair(1.0), r"`rho` must lie in \(-1, 1\); got 1.0. Pass"),
        (lambda: datasets.GaussianPair(float("nan")), r"`rho` must lie in \(-1, 1\); got nan"),
        (lambda: datasets.GaussianPair(0.5).singular_values(0), r"`k` must be an integer of at least 1"),
        (lambda: datasets.CircleGaussian(dimension=1), r"`dimension` must be at least 2 .* got 1. Raise"),
        (
            lambda: datasets.LGGMD().truth(np.zeros((3, 2))),
            r"`x` must have shape \(m, 20\).*got shape \(3, 2\)",
        ),
        (lambda: datasets.LGGMD().truth(np.zeros(20)), r"`x` must have shape \(m, 20\).*got shape \(20,\)"),
        (lambda: datasets.LinearGaussian().truth([[np.nan]]), r"`x` must be finite.*Drop or fill"),
        (lambda: datasets.Laplace().truth([[-1.0]]), r"`x` must lie in the support of X.*scale of -1"),
        (lambda: datasets.Laplace().truth(1.0).quantile(95), r"`q` must lie in \[0, 1\]; got 95"),
        (lambda: datasets.Laplace().truth(1.0).interval(90), r"`coverage` must lie in \(0, 1\); got 90"),
        (
            lambda: datasets.Laplace().truth(1.0).interval(0.9, "hpd"),
            r'`kind` must be "shortest" or "central"',
        ),
        (lambda: datasets.Laplace().truth(1.0).prob(2, 1), r"`low` must be at most `high`; got 2 and 1"),
        (lambda: datasets.Laplace().truth(1.0).sample(0), r"`size` must be an integer of at least 1"),
        (
            lambda: datasets.Laplace().truth(1.0).cdf(np.zeros((2, 2))),
            r"`t` must be .* with 1 rows.*\(2, 2\)",
        ),
        (lambda: datasets.conditioning_points(np.zeros(3)), r"`X` must be a matrix.*got shape \(3,\)"),
        (lambda: datasets.make("linear_gausian"), r"got 'linear_gausian'. Did you mean 'LinearGaussian'\?"),
        (lambda: datasets.make("zzz"), r"`name` must be one of LinearGaussian.*got 'zzz'. Pick"),
    ],
)
def test_error_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
