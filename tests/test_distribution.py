"""Laws that every conditional distribution obeys, and exact truths."""

from itertools import pairwise
from math import factorial, inf

import numpy as np
import pytest
import torch
from helpers import affine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from ncprob import Box, ConditionalDistribution, distribution, support
from ncprob.lattices import Integers, Lattice, Levels
from ncprob.support import Support

laws = settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
LEVELS = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.99])


def to_numpy(tensor):
    return tensor.numpy()


def atoms_of(kind, shape, rng):
    """Smooth, tied, heavy-tailed or constant atoms."""
    if kind == "ties":
        return rng.integers(-3, 4, shape).astype(float)
    if kind == "duplicates":
        return rng.normal(size=shape)[rng.integers(0, max(1, shape[0] // 3), shape[0])]
    if kind == "cauchy":
        return rng.standard_cauchy(shape)
    if kind == "constant":
        return np.full(shape, rng.normal())
    return rng.normal(size=shape)


def levels_near(location, rng):
    """A few levels of any scale, with edges where members lie."""
    count = rng.integers(1, 9)
    values = np.unique(rng.normal(size=count) * 10.0 ** rng.integers(-3, 4))
    edges = np.sort(rng.choice(location, count - 1) + rng.normal(size=count - 1))
    return Levels(torch.tensor(values), torch.tensor(edges))


@st.composite
def distributions(draw, components=(1,), located=(False, True)):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    q, m, n = draw(st.sampled_from(components)), draw(st.integers(1, 200)), draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["normal", "ties", "duplicates", "cauchy", "constant"]))
    strength = draw(st.sampled_from([0.0, 0.3, 3.0]))  # none, some, and so many negative ratios that most are cut
    d = 4
    weights = rng.integers(0, 3, m) + (np.arange(m) == 0) if draw(st.booleans()) else None
    support = Support(
        torch.tensor(atoms_of(kind, (m, q), rng)),
        torch.tensor(rng.normal(size=(m, d))),
        None if weights is None else torch.tensor(weights),
    )
    move = {}
    if draw(st.sampled_from(located)):
        location = rng.normal(size=(n, q)) * 10.0 ** rng.integers(-3, 4)
        move = {"transport": affine(location, np.exp(rng.normal(size=(n, q))))}
        kinds = [(None, Integers(), levels_near(location[:, k], rng))[draw(st.integers(0, 2))] for k in range(q)]
        if any(kinds):
            move["lattice"] = Lattice(tuple(kinds))
    left = torch.tensor(strength * rng.normal(size=(n, d)))
    return ConditionalDistribution(support, left, export=to_numpy, **move)


SCALAR = distributions()
VECTOR = distributions(components=(2, 3))
ANY = distributions(components=(1, 2, 3))


def member_atoms(d):
    """Atoms as (n, m, q), whatever the coordinates and dimension."""
    q = d.support.n_components
    atoms = d.atoms.reshape((-1, len(d.support), q))
    return np.broadcast_to(atoms, (len(d), *atoms.shape[1:]))


def magnitude(d):
    return np.abs(member_atoms(d)).max() + 1


def probes(d):
    """Points below, at, between and above the atoms."""
    values = np.unique(member_atoms(d))
    return np.concatenate([[-inf, values[0] - 1], values, values + 1e-3, [values[-1] + 1, inf]])


# ---------------------------------------------------------------- distribution functions


@laws
@given(SCALAR)
def test_cdf_is_monotone_from_zero_to_one(d):
    t = np.sort(probes(d))
    cdf = d.cdf(t)
    assert cdf.shape == (len(d), len(t))
    assert (np.diff(cdf, axis=1) >= 0).all()
    assert (cdf[:, :2] == 0).all()
    assert (cdf[:, -2:] == 1).all()


@laws
@given(SCALAR)
def test_cdf_adds_the_weights_of_the_atoms_below(d):
    t = probes(d)
    expected = np.einsum("nm,nmt->nt", d.weights(), member_atoms(d) <= t)
    np.testing.assert_allclose(d.cdf(t), expected, atol=1e-12)
    np.testing.assert_allclose(d.sf(t), 1 - expected, atol=1e-12)
    np.testing.assert_array_equal(d.sf(t), 1 - d.cdf(t))


@laws
@given(SCALAR)
def test_quantile_is_the_smallest_atom_that_reaches_the_level(d):
    quantiles, atoms = d.quantile(LEVELS), member_atoms(d)[:, :, 0]
    for i in range(len(d)):
        own, cdf = np.sort(atoms[i]), d[i].cdf(np.sort(atoms[i]))[0]
        np.testing.assert_array_equal(quantiles[i], own[[np.argmax(cdf >= p - 1e-12) for p in LEVELS]])


@laws
@given(SCALAR)
def test_cdf_and_quantile_are_consistent_both_ways(d):
    # slack 1e-12: quantile() forgives as much rounding in added-up weights
    quantiles = d.quantile(LEVELS)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    for i in range(len(d)):
        assert (d[i].cdf(quantiles[i])[0] >= LEVELS - 1e-12).all()
        atoms = member_atoms(d)[i, :, 0]
        levels = np.minimum(d[i].cdf(atoms)[0], 1 - 1e-9)
        reached = levels > 0
        assert (d[i].quantile([*levels[reached], 0.5])[0, :-1] <= atoms[reached]).all()


@laws
@given(ANY)
def test_median_is_the_middle_quantile(d):
    np.testing.assert_array_equal(d.median(), d.quantile(0.5))
    np.testing.assert_array_equal(d.median(), d.quantile([0.5])[..., 0])


@laws
@given(VECTOR)
def test_vector_answers_are_those_of_the_components(d):
    k = d.support.n_components - 1
    values, weights = member_atoms(d)[:, :, k], d.weights()
    t = np.quantile(values, [0.2, 0.8])
    for i in range(len(d)):
        one = ConditionalDistribution(
            Support(torch.tensor(values[i]), torch.zeros(values.shape[1], 1), torch.tensor(weights[i])),
            torch.zeros(1, 1),
            export=to_numpy,
        )
        np.testing.assert_allclose(d.mean()[i, k], one.mean()[0], rtol=1e-9, atol=1e-9 * magnitude(d))
        np.testing.assert_allclose(d.cdf(t)[i, k], one.cdf(t)[0], atol=1e-12)
        np.testing.assert_allclose(d.quantile([0.303, 0.707])[i, k], one.quantile([0.303, 0.707])[0], rtol=1e-9)
        width = np.ptp(d.interval(0.707)[i, k]), np.ptp(one.interval(0.707)[0])
        np.testing.assert_allclose(*width, rtol=1e-9, atol=1e-9 * magnitude(d))


# ---------------------------------------------------------------- atoms, weights and moments


@laws
@given(ANY)
def test_weights_are_probabilities_and_give_the_mean(d):
    weights = d.weights()
    assert weights.shape == (len(d), len(d.support))
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    mean = np.einsum("nm,nmq->nq", weights, member_atoms(d))
    np.testing.assert_allclose(d.mean().reshape(mean.shape), mean, rtol=1e-9, atol=1e-12 * magnitude(d))


def test_weights_follow_the_definition():
    rng = np.random.default_rng(0)
    y, v, s_u, omega = rng.normal(size=30), rng.normal(size=(30, 3)), rng.normal(size=(4, 3)), rng.random(30)
    d = ConditionalDistribution(Support(*(torch.tensor(a) for a in (y, v, omega))), torch.tensor(s_u), export=to_numpy)
    expected = omega * np.maximum(0, 1 + s_u @ v.T)
    np.testing.assert_array_equal(d.atoms, y)  # atoms keep the order in which they were given
    np.testing.assert_allclose(d.weights(), expected / expected.sum(axis=1, keepdims=True), rtol=1e-12)


@laws
@given(ANY)
def test_moments_agree_with_each_other(d):
    scale = magnitude(d)
    mean, var = d.mean(), d.var()
    assert (var >= 0).all()
    near = {"rtol": 1e-9, "atol": 1e-11 * scale**2}
    np.testing.assert_allclose(d.std() ** 2, var, **near)
    np.testing.assert_allclose(d.moment(0), np.ones_like(mean), rtol=1e-12)
    np.testing.assert_allclose(d.moment(1), mean, rtol=1e-9, atol=1e-12 * scale)
    np.testing.assert_allclose(d.moment(2) - mean**2, var, **near)
    np.testing.assert_allclose(d.moment(1, central=True), np.zeros_like(mean), atol=1e-12 * scale)
    np.testing.assert_allclose(d.moment(2, central=True), var, **near)
    third = d.moment(3) - 3 * mean * d.moment(2) + 2 * mean**3
    np.testing.assert_allclose(d.moment(3, central=True), third, rtol=1e-6, atol=1e-11 * scale**3)


@laws
@given(ANY)
def test_standardised_moments(d):
    spread = np.where(d.std() > 1e-6 * magnitude(d), d.std(), np.nan)  # a point mass has none
    compared = ~np.isnan(spread)
    skewness, kurtosis = d.moment(3, central=True) / spread**3, d.moment(4, central=True) / spread**4 - 3
    np.testing.assert_allclose(d.skewness()[compared], skewness[compared], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(d.kurtosis()[compared], kurtosis[compared], rtol=1e-6, atol=1e-9)


def test_a_point_mass_has_no_skewness():
    d = ConditionalDistribution(Support(torch.tensor([2.0]), torch.zeros(1, 1)), torch.zeros(1, 1))
    assert (d.skewness().item(), d.kurtosis().item(), d.var().item(), d.mode().item()) == (0, -3, 0, 2)


@laws
@given(ANY)
def test_covariance_is_symmetric_and_positive_semidefinite(d):
    q, cov = d.support.n_components, d.cov()
    assert cov.shape == (len(d), q, q)
    np.testing.assert_array_equal(cov, cov.transpose(0, 2, 1))
    slack = 1e-12 * (1 + np.abs(cov).max())
    assert (np.linalg.eigvalsh(cov) >= -slack).all()
    np.testing.assert_allclose(np.diagonal(cov, axis1=1, axis2=2), d.var().reshape(len(d), q), rtol=1e-9, atol=slack)


# ---------------------------------------------------------------- sets and functions


@laws
@given(SCALAR, st.floats(-3, 3), st.floats(0.1, 5))
def test_one_question_asked_four_ways(d, low, width):
    high = low + width
    answer = d.prob((low, high))
    assert answer.shape == (len(d),)
    assert ((answer >= 0) & (answer <= 1)).all()
    np.testing.assert_array_equal(answer, d.prob(Box(low, high)))
    np.testing.assert_allclose(answer, d.prob(lambda y: ((y > low) & (y <= high))[:, 0]), atol=1e-12)
    np.testing.assert_allclose(answer, d.cdf(high) - d.cdf(low), atol=1e-12)
    np.testing.assert_allclose(answer, d.expectation(lambda y: (y > low) & (y <= high)), atol=1e-12)


@laws
@given(SCALAR)
def test_bounds_on_atoms_count_alike_in_prob_and_cdf(d):
    low, high = d.quantile(0.2), d.quantile(0.8)
    for i in range(len(d)):
        if low[i] < high[i]:
            expected = (d[i].cdf(high[i]) - d[i].cdf(low[i]))[0]
            assert d[i].prob((low[i], high[i]))[0] == pytest.approx(expected, abs=1e-12)


@laws
@given(ANY, st.floats(-2, 2))
def test_a_set_and_its_complement_add_to_one(d, cut):
    inside = d.prob(lambda y: (y <= cut).all(axis=1))
    np.testing.assert_allclose(inside + d.prob(lambda y: (y > cut).any(axis=1)), 1, rtol=1e-12)
    q = d.support.n_components
    np.testing.assert_allclose(d.prob(Box([-inf] * q, [cut] * q)), inside, atol=1e-12)
    np.testing.assert_allclose(d.prob(Box([-inf] * q, [inf] * q)), 1, rtol=1e-12)


@laws
@given(ANY)
def test_expectations_are_means_and_moments(d):
    scale = magnitude(d)
    np.testing.assert_allclose(d.expectation(lambda y: y), d.mean(), rtol=1e-9, atol=1e-12 * scale)
    np.testing.assert_allclose(d.expectation(lambda y: y**2), d.moment(2), rtol=1e-9, atol=1e-12 * scale**2)
    np.testing.assert_allclose(d.expectation(lambda y: np.ones(len(y))), 1, rtol=1e-12)


@pytest.mark.parametrize("located", [False, True])
@pytest.mark.parametrize(
    ("f", "columns"),
    [
        (lambda y: y[:, 0], None),
        (lambda y: y, None),
        (lambda y: y > 0, None),
        (lambda y: np.hstack([y, y**2, y**3]), 3),
        (lambda y: np.stack([y, y**2], axis=1), 2),
        (lambda y: np.stack([y, y**2], axis=-1), 2),
        (lambda y: np.stack([y[:, 0], y[:, 0] ** 2], axis=1), 2),
        (lambda y: np.stack([y[:, 0], y[:, 0] ** 2], axis=1).tolist(), 2),
    ],
)
def test_forms_of_functions_of_scalar_y(f, columns, located):
    d = example(located=located)
    answer = d.expectation(f)
    assert answer.shape == ((4,) if columns is None else (4, columns))
    if columns:
        expected = np.stack([d.moment(k + 1) for k in range(columns)], axis=1)
        np.testing.assert_allclose(answer, expected, rtol=1e-9)


@pytest.mark.parametrize("located", [False, True])
def test_forms_of_functions_of_vector_y(located):
    d = example(q=3, located=located)
    np.testing.assert_allclose(d.expectation(lambda y: y.sum(axis=1)), d.mean().sum(axis=1))
    np.testing.assert_allclose(d.expectation(lambda y: y), d.mean())
    assert d.expectation(lambda y: y[:, :1]).shape == (4, 1)
    outer = d.expectation(lambda y: np.einsum("mi,mj->mij", y, y).reshape(len(y), 9)).reshape(4, 3, 3)
    centre = d.mean()[:, :, None] * d.mean()[:, None, :]
    np.testing.assert_allclose(outer - centre, d.cov(), atol=1e-9)


# ---------------------------------------------------------------- intervals, scores, density


@laws
@given(SCALAR, st.sampled_from([0.05, 0.5, 0.9, 0.99]))
def test_intervals_hold_their_coverage_and_the_shortest_is_shortest(d, coverage):
    shortest, central = d.interval(coverage), d.interval(coverage, kind="central")
    atoms, weights, slack = member_atoms(d)[:, :, 0], d.weights(), 1e-12 * magnitude(d)
    for name, ends in (("shortest", shortest), ("central", central)):
        inside = (atoms >= ends[:, :1]) & (atoms <= ends[:, 1:])
        assert ((weights * inside).sum(axis=1) >= coverage - 1e-11).all(), name
    assert (np.ptp(shortest, axis=1) <= np.ptp(central, axis=1) + slack).all()
    tail = (1 - coverage) / 2
    np.testing.assert_array_equal(central, d.quantile([tail, 1 - tail]))
    for i in range(len(d)):
        order = np.argsort(atoms[i])
        a, cumulative = atoms[i][order], np.concatenate([[0], np.cumsum(weights[i][order])])
        enough = cumulative[None, 1:] - cumulative[:-1, None] >= coverage - 1e-11
        widths = np.where(enough, a[None, :] - a[:, None], inf)
        assert np.ptp(shortest[i]) == pytest.approx(widths[np.triu_indices(len(a))].min(), abs=slack)


@laws
@given(ANY, st.floats(-5, 5))
def test_crps_by_definition(d, y):
    atoms, weights = member_atoms(d), d.weights()
    answer = d.crps(np.full((len(d), d.support.n_components), y)).reshape(len(d), -1)
    distance = np.einsum("nm,nmq->nq", weights, np.abs(atoms - y))
    spread = np.einsum("ni,nj,nijq->nq", weights, weights, np.abs(atoms[:, :, None] - atoms[:, None]))
    np.testing.assert_allclose(answer, distance - spread / 2, rtol=1e-9, atol=1e-11 * magnitude(d))
    assert (answer >= -1e-11 * magnitude(d)).all()


@laws
@given(SCALAR)
def test_density_integrates_to_one(d):
    # m atoms: a share of 1/(m + 1) is a Cauchy law, of which a window of ±10⁶ spreads holds all but 10⁻⁶.
    # Its kernel part has knots at atoms and bandwidths only: a grid that is dense around atoms and geometric in the
    # tails integrates both.
    for member in d:
        # Integers have the density of what is rounded to them.
        rounded = member.lattice == Lattice((Integers(),))
        law = ConditionalDistribution(member.support, member.left, transport=member.transport) if rounded else member
        a = np.unique(member_atoms(law))
        tails = np.geomspace(1e-4, 1e7 * max(1, np.ptp(a)), 3000)
        fine = (a[:, None] + np.linspace(-3, 3, 101) * float(member._export(bandwidth_of(member)))).ravel()
        grid = np.unique(np.concatenate([fine, a[0] - tails, a[-1] + tails, np.linspace(a[0], a[-1], 2001)]))
        total = np.trapezoid(member.pdf(grid)[0], grid)
        assert total == pytest.approx(1, abs=2e-2)


def bandwidth_of(member):
    masses = member.average_masses(torch.ones(1, dtype=torch.float64))
    if masses is not None:
        return distribution.weighted.bandwidth(masses[1][None], masses[0])[0, 0]
    scale = 1.0 if member.transport is None else member.transport.offsets[0, 0, 1]
    return distribution.weighted.bandwidth(member._weights(slice(None)), member.support.sorted_values(0))[0, 0] * scale


@laws
@given(ANY)
def test_log_density_is_finite_everywhere(d):
    t = np.array([-1e30, -1e6, -1.0, 0.0, 1.0, 1e6, 1e30])
    pdf, log_pdf = d.pdf(t), d.log_pdf(t)
    assert (pdf >= 0).all()
    assert np.isfinite(log_pdf).all()
    np.testing.assert_allclose(np.exp(log_pdf), pdf, rtol=1e-9)


@laws
@given(ANY, st.floats(-3, 3))
def test_scores_ask_each_member_at_its_own_value(d, y):
    q = d.support.n_components
    own = np.full((len(d), q), y)
    flat = own[:, 0] if q == 1 else own
    np.testing.assert_allclose(d.pit(flat), d.cdf(y), atol=1e-12)
    np.testing.assert_allclose(d.log_score(flat), -d.log_pdf(y), rtol=1e-9)


@laws
@given(SCALAR)
def test_mode_is_as_dense_as_any_quantile(d):
    mode = d.mode()
    for i in range(len(d)):
        peak = d[i].pdf(mode[i])[0]
        assert (d[i].pdf(d[i].quantile([0.1, 0.25, 0.5, 0.75, 0.9])[0])[0] <= peak * (1 + 1e-6)).all()


@laws
@given(distributions(components=(1, 2), located=(False,)), st.floats(-5, 5), st.floats(0.1, 10))
def test_location_and_scale_map_every_answer(d, m, s):
    n, q = len(d), d.support.n_components
    moved = ConditionalDistribution(
        d.support, d.left, transport=affine(torch.full((n, q), m), torch.full((n, q), s)), export=to_numpy
    )
    m, s = float(np.float32(m)), float(np.float32(s))
    near = {"rtol": 1e-9, "atol": 1e-9 * magnitude(d) * s}
    np.testing.assert_allclose(moved.mean(), m + s * d.mean(), **near)
    np.testing.assert_allclose(moved.std(), s * d.std(), rtol=1e-6, atol=1e-7 * magnitude(d) * s)
    np.testing.assert_allclose(
        moved.moment(3, central=True), s**3 * d.moment(3, central=True), rtol=1e-7, atol=1e-12
    )  # cubes may cancel
    np.testing.assert_allclose(moved.cov(), s**2 * d.cov(), rtol=1e-9, atol=1e-12 * (s * magnitude(d)) ** 2)
    np.testing.assert_allclose(moved.quantile(LEVELS), m + s * d.quantile(LEVELS), **near)
    np.testing.assert_allclose(moved.interval(0.8), m + s * d.interval(0.8), **near)
    np.testing.assert_allclose(moved.mode(), m + s * d.mode(), **near)
    t = np.array([-1.23456, 0.34567, 2.34567])
    np.testing.assert_allclose(moved.cdf(m + s * t), d.cdf(t), atol=1e-12)
    np.testing.assert_allclose(moved.pdf(m + s * t), d.pdf(t) / s, rtol=1e-6)
    own = np.full((n, q), 0.5)
    np.testing.assert_allclose(moved.crps(m + s * own), s * d.crps(own), **near)


# ---------------------------------------------------------------- members, chunks, shapes


def example(n=4, m=30, q=1, located=False, export=to_numpy, seed=0):
    rng = np.random.default_rng(seed)
    move = {"transport": affine(rng.normal(size=(n, q)), rng.uniform(1, 2, (n, q)))}
    support = Support(torch.tensor(rng.normal(size=(m, q))), torch.tensor(rng.normal(size=(m, 3))))
    left = torch.tensor(0.3 * rng.normal(size=(n, 3)))
    return ConditionalDistribution(support, left, export=export, **(move if located else {}))


def all_answers(d, y):
    """Every answer, by name."""
    return {
        "weights": d.weights(),
        "mean": d.mean(),
        "var": d.var(),
        "cov": d.cov(),
        "moment": d.moment(3),
        "skewness": d.skewness(),
        "kurtosis": d.kurtosis(),
        "cdf": d.cdf([-1.0, 0.2, 1.0]),
        "pdf": d.pdf([-1.0, 0.2, 1.0]),
        "quantile": d.quantile([0.1, 0.6]),
        "shortest": d.interval(0.7),
        "central": d.interval([0.5, 0.7], kind="central"),
        "mode": d.mode(),
        "prob": d.prob(lambda values: (values > 0).all(axis=1)),
        "expectation": d.expectation(lambda values: values**2),
        "pit": d.pit(y),
        "crps": d.crps(y),
        "log_score": d.log_score(y),
    }


@pytest.mark.parametrize("located", [False, True])
@pytest.mark.parametrize("q", [1, 2])
def test_a_member_answers_as_its_row_of_the_batch(q, located):
    d, y = example(q=q, located=located), np.full((4, q), 0.3)
    batch = all_answers(d, y)
    for i, member in enumerate(d):
        for name, answer in all_answers(member, y[[i]]).items():
            np.testing.assert_allclose(answer[0], batch[name][i], rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("located", [False, True])
@pytest.mark.parametrize("q", [1, 2])
def test_chunks_do_not_change_answers(q, located, monkeypatch):
    d, y = example(n=7, q=q, located=located), np.full((7, q), 0.3)
    whole, draws = all_answers(d, y), d.sample(5, random_state=0)
    for limit in (1, 100):  # one row at a time; a few rows with a shorter last chunk
        monkeypatch.setattr(distribution, "CHUNK_ELEMENTS", limit)
        for name, answer in all_answers(d, y).items():
            np.testing.assert_allclose(answer, whole[name], rtol=1e-10, atol=1e-12, err_msg=name)
        np.testing.assert_array_equal(d.sample(5, random_state=0), draws)


@pytest.mark.parametrize("located", [False, True])
def test_indexing_works_as_on_a_list(located):
    d = example(located=located)
    mean = d.mean()
    assert len(d) == 4
    assert [float(member.mean()[0]) for member in d] == pytest.approx(mean.tolist())
    for index in (0, 3, -1, -4, np.int64(2)):
        assert d[index].mean() == pytest.approx(mean[[index]])
    for index in (slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(-2, None), slice(3, 0, -2)):
        np.testing.assert_allclose(d[index].mean(), mean[index])
    for index in ([2, 0], np.array([True, False, True, False])):
        np.testing.assert_allclose(d[index].mean(), mean[index])
    assert "4 members, 30 atoms, 1 component" in repr(d)


@pytest.mark.parametrize("index", [4, -5, np.int64(9)])
def test_an_index_out_of_range(index):
    with pytest.raises(IndexError, match=f"index {index} is out of range for 4 members"):
        example()[index]


def test_an_empty_slice_gives_empty_answers():
    d = example()[2:2]
    assert len(d) == 0
    assert d.mean().shape == (0,)
    assert d.quantile([0.1, 0.9]).shape == (0, 2)
    assert d.interval(0.9).shape == (0, 2)
    assert example()[4:0:1].cdf(0.0).shape == (0,)


@pytest.mark.parametrize("located", [False, True])
@pytest.mark.parametrize(("q", "shape"), [(1, (4,)), (3, (4, 3))])
def test_shapes(q, shape, located):
    d = example(q=q, located=located)
    y = np.zeros(shape)
    for name in ("mean", "var", "std", "skewness", "kurtosis", "mode", "median"):
        assert getattr(d, name)().shape == shape, name
    for name in ("pit", "crps", "log_score"):
        assert getattr(d, name)(y).shape == shape, name
    for name in ("cdf", "sf", "pdf", "log_pdf", "quantile"):
        method = getattr(d, name)
        assert method(0.5).shape == shape, name
        assert method([0.5]).shape == (*shape, 1), name
        assert method(np.linspace(0.1, 0.9, 5)).shape == (*shape, 5), name
    for kind in ("shortest", "central"):
        assert d.interval(0.9, kind=kind).shape == (*shape, 2)
        assert d.interval([0.5, 0.8, 0.9], kind=kind).shape == (*shape, 2, 3)
        np.testing.assert_array_equal(d.interval([0.5, 0.8], kind=kind)[..., 1], d.interval(0.8, kind=kind))
    assert d.cov().shape == (4, q, q)
    assert d.weights().shape == (4, 30)
    assert d.atoms.shape == ((4,) if located else ()) + (30,) + ((3,) if q == 3 else ())
    assert d.prob(lambda values: values[:, 0] > 0).shape == (4,)
    assert d.sample(6).shape == (4, 6, *shape[1:])


def test_a_row_of_points_per_member():
    d = example()
    t = np.linspace(-1, 1, 12).reshape(4, 3)
    for name in ("cdf", "pdf"):
        expected = np.stack([getattr(d[i], name)(t[i])[0] for i in range(4)])
        np.testing.assert_allclose(getattr(d, name)(t), expected)


@pytest.mark.parametrize("located", [False, True])
def test_points_per_member_and_component(located):
    d = example(q=2, located=located)
    t = np.linspace(-2, 2, 24).reshape(4, 2, 3)
    for name in ("cdf", "sf", "pdf", "log_pdf"):
        asked = getattr(d, name)
        expected = np.stack([[getattr(d[i], name)(t[i, k])[0, k] for k in range(2)] for i in range(4)])
        np.testing.assert_allclose(asked(t), expected)
        with pytest.raises(ValueError, match=r"shape \(n, 2, g\); got shape \(4, 3, 2\) for 4 members"):
            asked(t.reshape(4, 3, 2))


def test_answers_are_tensors_without_export():
    assert isinstance(example(export=None).quantile(0.5), torch.Tensor)


def test_a_ratio_that_is_nowhere_positive_falls_back_to_the_marginal():
    support = Support(torch.arange(4.0), torch.ones(4, 1), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    d = ConditionalDistribution(support, torch.tensor([[-5.0], [0.0]]))
    np.testing.assert_allclose(d.weights(), [[0.1, 0.2, 0.3, 0.4]] * 2)


# ---------------------------------------------------------------- samples


def test_samples_have_the_frequencies_of_the_weights():
    d = example(m=12)
    draws, weights = d.sample(20_000, random_state=1), d.weights()
    for i in range(len(d)):
        counts = (draws[i][:, None] == d.atoms).sum(axis=0)
        assert counts.sum() == 20_000
        positive = weights[i] > 0
        # Pearson's test; four members at level 10⁻⁴ fail together once in 2,500 seeds
        assert stats.chisquare(counts[positive], 20_000 * weights[i][positive]).pvalue > 1e-4
        assert counts[~positive].sum() == 0


def test_vector_samples_are_joint():
    d = example(q=2, m=5, located=True)
    draws = d.sample(2000, random_state=0)
    for i in range(len(d)):
        assert len(np.unique(draws[i], axis=0)) <= 5  # rows are atoms, not mixed components
        error = np.sqrt(d.var()[i] / 2000)
        assert (np.abs(draws[i].mean(axis=0) - d.mean()[i]) < 4.5 * error).all()  # 4.5 standard errors


def test_samples_follow_the_random_state():
    d = example()
    np.testing.assert_array_equal(d.sample(50, random_state=3), d.sample(50, random_state=3))
    assert (d.sample(50, random_state=3) != d.sample(50, random_state=4)).any()
    assert (d.sample(50) != d.sample(50)).any()
    generator = torch.Generator().manual_seed(3)
    np.testing.assert_array_equal(d.sample(50, random_state=generator), d.sample(50, random_state=3))
    before = torch.random.get_rng_state()
    d.sample(5)
    assert torch.equal(before, torch.random.get_rng_state())


# ---------------------------------------------------------------- exact truths


def test_a_table_with_exact_features_gives_exact_answers():
    # joint probabilities of X in {0, 1, 2} and Y in {-1, 0, 2, 5}
    joint = np.array([[4, 2, 1, 1], [1, 5, 1, 3], [2, 2, 8, 2]]) / 32
    values, p_x, p_y = np.array([-1.0, 0, 2, 5]), joint.sum(axis=1), joint.sum(axis=0)
    root = np.sqrt(np.outer(p_x, p_y))
    left, s, right = np.linalg.svd(joint / root - root)
    u, v = left[:, :2] / np.sqrt(p_x)[:, None], right[:2].T / np.sqrt(p_y)[:, None]
    d = ConditionalDistribution(
        Support(*(torch.tensor(a) for a in (values, v, p_y))), torch.tensor(u * s[:2]), export=to_numpy
    )
    truth = joint / p_x[:, None]
    np.testing.assert_allclose(d.weights(), truth, atol=1e-14)
    np.testing.assert_allclose(d.mean(), truth @ values, atol=1e-13)
    np.testing.assert_allclose(d.var(), truth @ values**2 - (truth @ values) ** 2, atol=1e-12)
    np.testing.assert_allclose(d.cdf(values), np.cumsum(truth, axis=1), atol=1e-14)
    np.testing.assert_allclose(d.prob((-1, 2)), truth[:, 1:3].sum(axis=1), atol=1e-14)
    np.testing.assert_array_equal(d.quantile([0.5, 0.6, 0.95]), [[-1, 0, 5], [0, 0, 5], [2, 2, 5]])
    np.testing.assert_array_equal(d.interval(0.7), [[-1, 0], [-1, 2], [0, 2]])


def hermite(x, order):
    """Orthonormal Hermite polynomials of degree 1, …, order."""
    columns = [
        np.polynomial.hermite_e.hermeval(x, np.eye(order + 1)[k]) / factorial(k) ** 0.5 for k in range(order + 1)
    ]
    return np.stack(columns[1:], axis=1)


def test_gaussian_pair_by_mehlers_expansion():
    # For correlation ρ the ratio is 1 + Σ ρᵏ h_k(x) h_k(y) (Mehler 1866): E[Y|x] = ρx and Var(Y|x) = 1 − ρ². Atoms at
    # 20,000 random points: weights r with E r² ≤ 1/(1 − ρ²)·exp(ρ²x²…) ≤ 5 for |x| ≤ 1.2 make a standard error of
    # √(5·Var/20000) ≈ 0.013 in the mean and √(5·2·Var²/20000) ≈ 0.015 in the variance; four of them are allowed.
    # Degree 20 leaves out less than ρ²¹ = 2·10⁻⁵.
    rho, x = 0.6, np.array([-1.2, -0.5, 0.0, 0.7, 1.2])
    y = np.random.default_rng(0).normal(size=20_000)
    left = hermite(x, 20) * rho ** np.arange(1, 21)
    d = ConditionalDistribution(Support(torch.tensor(y), torch.tensor(hermite(y, 20))), torch.tensor(left))
    np.testing.assert_allclose(d.mean(), rho * x, atol=0.05)
    np.testing.assert_allclose(d.var(), 1 - rho**2, atol=0.06)
    truth = stats.norm(rho * x[:, None], (1 - rho**2) ** 0.5).cdf(np.linspace(-3, 3, 61))
    np.testing.assert_allclose(d.cdf(np.linspace(-3, 3, 61)), truth, atol=0.03)  # 4·√(5·¼/20000)


# ---------------------------------------------------------------- many atoms joined


def test_joined_atoms_keep_mean_and_move_the_cdf_by_one_bin(monkeypatch):
    monkeypatch.setattr(support, "MAX_ATOMS", 300)
    monkeypatch.setattr(support, "TAIL_ATOMS", 20)
    rng = np.random.default_rng(0)
    y, v = torch.tensor(rng.standard_cauchy(5000)), torch.tensor(rng.normal(size=(5000, 2)))
    left = torch.zeros(1, 2, dtype=torch.float64)
    full, few = (ConditionalDistribution(make(y, v), left) for make in (Support, Support.compressed))
    assert len(few.support) == pytest.approx(300, abs=3)  # neighbours of a bin border may fall either way
    assert few.mean() == pytest.approx(float(full.mean()), rel=1e-9)
    t = torch.sort(y).values
    assert (few.cdf(t) - full.cdf(t)).abs().max() <= 1 / 260 + 1 / 5000  # 260 bins between the tails, and one atom
    np.testing.assert_array_equal(few.support.values[:20, 0], t[:20])
    np.testing.assert_array_equal(few.support.values[-20:, 0], t[-20:])


def test_joined_atoms_drop_rows_of_weight_zero_and_join_ties():
    y, v = torch.tensor([1.0, 2.0, 2.0, 9.0]), torch.tensor([[1.0], [2.0], [4.0], [7.0]])
    support = Support.compressed(y, v, torch.tensor([1.0, 1.0, 3.0, 0.0]))
    assert support.values[:, 0].tolist() == [1, 2]
    assert support.features[:, 0].tolist() == [1, 3.5]
    assert support.weights.tolist() == pytest.approx([0.2, 0.8])


def test_joined_ties_keep_their_value_to_the_last_bit():
    rng = np.random.default_rng(0)
    y, weights = torch.tensor(rng.integers(0, 4, 1000) / 10), torch.tensor(rng.random(1000))
    support = Support.compressed(y, torch.zeros(1000, 1), weights)
    assert support.values[:, 0].tolist() == [0.0, 0.1, 0.2, 0.3]


# ---------------------------------------------------------------- highest-density regions


@laws
@given(SCALAR, st.floats(0.02, 0.98))
def test_highest_density_regions_are_disjoint_and_hold_their_coverage(d, coverage):
    for i, pieces in enumerate(d.highest_density_region(coverage)):
        assert pieces.shape[1] == 2
        assert (pieces[:, 0] <= pieces[:, 1]).all()
        assert (pieces[1:, 0] > pieces[:-1, 1]).all()
        atoms = member_atoms(d)[i]
        inside = ((atoms >= pieces[:, 0]) & (atoms <= pieces[:, 1])).any(axis=1)
        assert d.weights()[i] @ inside >= coverage - 1e-8  # cells end at atoms; the first starts at level 1e-9


@laws
@given(SCALAR)
def test_highest_density_regions_are_nested(d):
    levels = (0.1, 0.5, 0.8, 0.95)
    regions = [d.highest_density_region(level) for level in levels]
    for small, large in pairwise(regions):
        for inner, outer in zip(small, large, strict=True):
            holds = (inner[:, None, 0] >= outer[:, 0]) & (inner[:, None, 1] <= outer[:, 1])
            assert holds.any(axis=1).all()


def law_of(atoms, **move):
    atoms = torch.as_tensor(atoms, dtype=torch.float64)
    return ConditionalDistribution(Support(atoms, torch.zeros(len(atoms), 1)), torch.zeros(1, 1), **move)


def normal_quantiles(n, location=0.0, scale=1.0):
    return stats.norm.ppf((np.arange(n) + 0.5) / n, location, scale)


def test_one_mode_gives_one_piece_close_to_the_shortest_interval():
    # a cell of probability 1/512 is 1/(512·φ(1.645)) = 0.019 wide at the ends of a 90 % interval; two of them are
    # allowed
    d = law_of(normal_quantiles(4000))
    (pieces,) = d.highest_density_region(0.9)
    assert len(pieces) == 1
    np.testing.assert_allclose(pieces, d.interval(0.9), atol=0.04)
    np.testing.assert_allclose(pieces, [stats.norm.interval(0.9)], atol=0.04)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_two_modes_give_two_pieces(coverage):
    modes = stats.norm([-3, 3], 0.5)
    d = law_of(np.concatenate([normal_quantiles(2000, -3, 0.5), normal_quantiles(2000, 3, 0.5)]))
    (pieces,) = d.highest_density_region(coverage)
    assert len(pieces) == 2
    mass = sum(float(d.prob((low, high))) for low, high in pieces.tolist())
    assert coverage - 4 / 512 <= mass <= coverage + 5 / 512  # (low, high] leaves out the atom at low
    length = float((pieces[:, 1] - pieces[:, 0]).sum())
    assert length < float(d.interval(coverage)[0, 1] - d.interval(coverage)[0, 0])
    # by symmetry each piece is the shortest interval of its mode; at its ends a cell is 2·0.5/(512·φ(z)) wide
    z = stats.norm.ppf((1 + coverage) / 2)
    expected = np.stack(modes.interval(coverage), axis=1)
    np.testing.assert_allclose(pieces, expected, atol=2 / (512 * stats.norm.pdf(z)) + 0.02)


@laws
@given(st.integers(0, 10_000), st.floats(-100, 100), st.floats(0.01, 100))
def test_highest_density_regions_move_with_location_and_scale(seed, m, s):
    atoms = np.random.default_rng(seed).normal(size=300)
    move = {"transport": affine([[m]], [[s]])}
    (base,), (moved,) = law_of(atoms).highest_density_region(0.7), law_of(atoms, **move).highest_density_region(0.7)
    assert len(moved) == len(base)
    np.testing.assert_allclose(moved, m + s * base, rtol=1e-5, atol=1e-5)


def test_heavy_atoms_are_single_pieces():
    d = law_of(np.repeat([0.0, 1.0, 2.0, 7.0], [40, 30, 20, 10]))
    (pieces,) = d.highest_density_region(0.8)
    assert pieces.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_regions_of_a_batch_are_those_of_its_members():
    d = example()
    for i, pieces in enumerate(d.highest_density_region(0.6)):
        np.testing.assert_allclose(pieces, d[i].highest_density_region(0.6)[0], rtol=1e-9)


def test_regions_need_scalar_y():
    with pytest.raises(ValueError, match=r"Highest-density regions need scalar Y; .* Ask `prob`"):
        example(q=2).highest_density_region(0.9)


# ---------------------------------------------------------------- mixtures of members


@laws
@given(ANY, st.integers(0, 1000))
def test_average_weights_are_those_of_the_mixture(d, seed):
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(d)))
    in_order = ConditionalDistribution(d.support, d.left).average_weights(torch.tensor(shares)).numpy()
    order = d.support.public_order
    np.testing.assert_allclose(in_order if order is None else in_order[order], shares @ d.weights(), atol=1e-12)


@settings(laws, max_examples=200)
@given(ANY, st.sampled_from([1, 7, 50, 200]))
def test_located_atoms_are_few_and_keep_the_law(d, per_member):
    values, weights = d.located_atoms(per_member)
    n_atoms, q = len(d.support), d.support.n_components
    assert values.shape == (len(d), min(per_member, n_atoms), q)
    assert weights.shape == values.shape[:2]
    np.testing.assert_allclose(weights.sum(dim=1), 1, rtol=1e-9)
    mean = (weights[:, :, None] * values).sum(dim=1).numpy()
    if n_atoms <= per_member:  # all of them
        in_order = d.weights()
        np.testing.assert_allclose(np.sort(weights, axis=1), np.sort(in_order, axis=1), atol=1e-12)
    kinds = (None,) * q if d.lattice is None else d.lattice.components
    if n_atoms <= per_member or kinds == (None,):  # runs are replaced by their mean
        np.testing.assert_allclose(mean, d.mean().reshape(mean.shape), rtol=1e-9, atol=1e-9 * magnitude(d))
    elif kinds == (Integers(),):  # and by the integer closest to it
        np.testing.assert_allclose(mean, d.mean()[:, None], atol=0.5 + 1e-9)
        assert torch.equal(values, values.round())
    else:
        drawn, atoms = values.numpy(), member_atoms(d)
        assert all(np.isin(drawn[i, :, k], atoms[i, :, k]).all() for i in range(len(d)) for k in range(q))
        if q == 1:  # sorted atoms, drawn at even steps
            t = probes(d)
            np.testing.assert_allclose((drawn <= t).mean(axis=1), d.cdf(t), atol=1 / per_member + 1e-9)


def test_drawn_vector_atoms_differ_between_members_so_that_errors_cancel():
    # 400 members with one law, 8 atoms each: 3,200 distinct draws of 500 atoms. Drawn alike, the mean would be off by
    # 1/√8 = 0.35; drawn in turn, by less than 3/√3200 = 0.05.
    atoms = torch.tensor(np.random.default_rng(0).normal(size=(500, 2)))
    zeros = torch.zeros(400, 2)
    d = ConditionalDistribution(Support(atoms, torch.zeros(500, 1)), zeros[:, :1], transport=affine(zeros, 1 + zeros))
    values, weights = d.located_atoms(8)
    np.testing.assert_allclose((weights[:, :, None] * values).sum(dim=1).mean(dim=0), atoms.mean(dim=0), atol=0.05)


@laws
@given(ANY)
def test_repair_by_definition(d):
    ratio = 1 + d.left.numpy() @ d.support.features.numpy().T
    omega = d.support.weights.numpy()
    kept, lost = np.maximum(ratio, 0) @ omega, np.maximum(-ratio, 0) @ omega
    repair = d.repair_amounts().numpy()
    assert (repair >= 0).all()
    np.testing.assert_allclose(repair[kept > 0], (lost / np.where(kept > 0, kept, 1))[kept > 0], rtol=1e-9, atol=1e-12)


def test_valid_ratios_need_no_repair():
    support = Support(torch.tensor([0.0, 1.0]), torch.tensor([[-1.0], [1.0]]))
    d = ConditionalDistribution(support, torch.tensor([[0.5], [3.0]]))
    assert d.repair_amounts().tolist() == [0, 0.5]  # ratios 0.5, 1.5 and −2, 4


@laws
@given(SCALAR)
def test_probability_is_prob_as_a_tensor(d):
    for region in ((-1.0, 0.5), Box(0.0, inf), lambda y: y[:, 0] > 0.3):
        answer = d.probability(region)
        assert isinstance(answer, torch.Tensor)
        np.testing.assert_array_equal(answer.numpy(), d.prob(region))


# ---------------------------------------------------------------- bad questions


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda d: d.quantile(0), ValueError, "`q` must lie strictly between 0 and 1; got 0. Write 90 % as 0.9"),
        (lambda d: d.quantile(1.0), ValueError, "`q` must lie strictly between 0 and 1; got 1"),
        (lambda d: d.quantile([0.5, -0.1]), ValueError, "got -0.1"),
        (lambda d: d.interval(90), ValueError, "`coverage` must lie strictly between 0 and 1; got 90"),
        (lambda d: d.interval(0.9, kind="centre"), ValueError, "`kind` must be one of .* Did you mean 'central'"),
        (lambda d: d.highest_density_region(90), ValueError, r"`coverage` must lie in \(0, 1\); got 90"),
        (lambda d: d.highest_density_region([0.5, 0.9]), TypeError, "`coverage` must be a number; got"),
        (lambda d: d.cdf(float("nan")), ValueError, "`t` must not hold NaN"),
        (lambda d: d.cdf("zero"), TypeError, "`t` must be numeric; got str"),
        (lambda d: d.cdf(np.zeros((3, 2))), ValueError, r"`t` must be .* got shape \(3, 2\) for 4 members. Ask"),
        (lambda d: d.moment(-1), ValueError, "`k` must be at least 0; got -1"),
        (lambda d: d.moment(1.5), TypeError, "`k` must be an integer; got 1.5"),
        (lambda d: d.sample(0), ValueError, "`size` must be at least 1; got 0"),
        (lambda d: d.pit([1.0, 2.0]), ValueError, r"`y` must hold one value per member, shape \(4,\); got \(2,\)."),
        (lambda d: d.crps([1.0, 2.0, np.nan, 0.0]), ValueError, "`y` must not hold NaN"),
        (lambda d: d.prob((1, 0)), ValueError, "`low` must be below `high`.* Swap"),
        (lambda d: d.prob(Box([0, 0], [1, 1])), ValueError, "`B` must have 1 coordinates, as the data; got 2"),
        (lambda d: d.prob(0.5), TypeError, "`B` must be a .* got float"),
        (lambda d: d.prob(lambda y: y[:, 0]), ValueError, "`B` must return one boolean per row"),
        (lambda d: d.expectation(lambda y: y * np.nan), ValueError, "`f` must not return NaN on the atoms of Y. Restr"),
        (lambda d: d.expectation(lambda y: 1.0), ValueError, r"`f` must map an array of shape .* it returned shape"),
        (lambda d: d.expectation(lambda y: y.mean(axis=0)), ValueError, r"it returned shape \(1,\). Vectorise it"),
        (lambda d: d.expectation(lambda y: y[:3]), ValueError, "Vectorise it over rows"),
    ],
)
@pytest.mark.parametrize("located", [False, True])
def test_bad_questions_are_named(ask, error, message, located):
    with pytest.raises(error, match=message):
        ask(example(located=located))


@pytest.mark.parametrize("weighted_rows", [False, True], ids=["plain", "weighted"])
def test_joining_leaves_point_masses_alone(weighted_rows):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(20_000) < 0.37, 0.0, rng.normal(size=20_000))
    y = np.where(rng.random(20_000) < 0.2, y.round(1), y)  # and values heaped on a grid
    omega = rng.random(20_000) if weighted_rows else np.ones(20_000)
    few = ConditionalDistribution(
        Support.compressed(torch.tensor(y), torch.zeros(20_000, 1), torch.tensor(omega)), torch.zeros(1, 1)
    )
    omega = omega / omega.sum()
    for t in (-0.5, -1e-9, 0.0, 0.1, 0.5):
        # A bin holds 1/3840 of the mass; 0 and the multiples of 0.1 near it are heavier, so they stand alone.
        assert few.cdf(t).item() == pytest.approx(omega[y <= t].sum(), abs=1 / 3840 + 1e-4)
    assert few.prob(lambda v: v[:, 0] == 0).item() == pytest.approx(omega[y == 0].sum(), abs=1e-9)


def test_values_without_weight_are_no_atoms():
    y, omega = torch.arange(10_000.0), torch.zeros(10_000)
    omega[::100] = 1
    law = ConditionalDistribution(Support.compressed(y, torch.zeros(10_000, 1), omega), torch.zeros(1, 1))
    np.testing.assert_array_equal(law.support.values[:, 0], y[::100])


def test_moved_integer_atoms_stay_integers_and_every_answer_agrees():
    rng = np.random.default_rng(0)
    support = Support(torch.tensor(rng.normal(size=300)), torch.tensor(rng.normal(size=(300, 2))))
    d = ConditionalDistribution(
        support,
        torch.tensor(0.3 * rng.normal(size=(4, 2))),
        transport=affine([[3.2], [10.0], [-2.5], [100.0]], [[0.7], [3.0], [1.5], [20.0]]),
        lattice=Lattice((Integers(),)),
        export=to_numpy,
    )
    atoms, w = d.atoms, d.weights()
    np.testing.assert_array_equal(atoms, atoms.round())
    np.testing.assert_allclose(d.mean(), (w * atoms).sum(axis=1))
    np.testing.assert_allclose(d.var(), (w * (atoms - d.mean()[:, None]) ** 2).sum(axis=1))
    np.testing.assert_allclose(d.cov()[:, 0, 0], d.var())
    np.testing.assert_array_equal(d.cdf([3.0, 9.4]), np.stack([d.cdf(3.7), d.cdf(9.0)], axis=1))  # steps at integers
    np.testing.assert_allclose(d.prob(lambda y: y[:, 0] % 1 == 0), 1)
    np.testing.assert_allclose(d.expectation(lambda y: y), d.mean())
    q = d.quantile([0.1, 0.5, 0.9])
    np.testing.assert_array_equal(q, q.round())
    y = np.array([3.0, 12.0, -4.0, 90.0])
    spread = np.abs(atoms[:, :, None] - atoms[:, None, :])
    brute = (w * np.abs(atoms - y[:, None])).sum(1) - 0.5 * np.einsum("ni,nij,nj->n", w, spread, w)
    np.testing.assert_allclose(d.crps(y), brute)


@laws
@given(distributions(components=(1, 2), located=(True,)), st.integers(0, 1000))
def test_levels_answer_like_atoms_of_their_chances(d, seed):
    levels = None if d.lattice is None else d.lattice.levels(0)
    if levels is None:
        assert d.support.n_components > 1 or d.average_masses(torch.ones(len(d))) is None
        return
    for member in d:
        masses = member.expectation(lambda y: np.equal.outer(y[:, 0], levels.values.numpy()))[0]
        support = Support(levels.values, torch.zeros(len(levels.values), 1), torch.tensor(masses))
        law = ConditionalDistribution(support, torch.zeros(1, 1), export=to_numpy)
        t = np.random.default_rng(seed).choice(levels.values.numpy(), 5) + np.array([-0.1, -1e-9, 0, 0, 0.1])
        first = slice(None) if d.support.n_components == 1 else 0
        for ask in ("cdf", "pdf", "quantile"):
            points = LEVELS if ask == "quantile" else t
            own = getattr(member, ask)(points)[0][first]
            np.testing.assert_allclose(own, getattr(law, ask)(points)[0], rtol=1e-6, atol=1e-12)
    if d.support.n_components == 1:
        shares = np.random.default_rng(seed).dirichlet(np.ones(len(d)))
        values, together = d.average_masses(torch.tensor(shares))
        expected = [shares @ d.prob(lambda y, v=v: y[:, 0] == v) for v in values.numpy()]
        np.testing.assert_allclose(together, expected, atol=1e-12)


def on_levels(kinds, location=0.0):
    """One law whose normal scores are 500 quantiles of N(0, 1) in every component."""
    scores = torch.tensor(normal_quantiles(500))[:, None].repeat(1, len(kinds))
    move = affine(torch.full((1, len(kinds)), location, dtype=torch.float64), torch.ones(1, len(kinds)))
    return ConditionalDistribution(
        Support(scores, torch.zeros(500, 1)), torch.zeros(1, 1), transport=move, lattice=Lattice(kinds), export=to_numpy
    )


def test_the_densest_levels_make_the_region():
    edges = torch.special.ndtri(torch.tensor([0.2, 0.7], dtype=torch.float64))
    law = on_levels((Levels(torch.tensor([0.0, 100.0, 101.0], dtype=torch.float64), edges),))
    np.testing.assert_array_equal(law.highest_density_region(0.45)[0], [[100, 100]])
    np.testing.assert_array_equal(law.highest_density_region(0.75)[0], [[100, 100], [101, 101]])


def test_a_continuum_beside_levels_keeps_its_digits():
    # floats near 10¹⁵ are an eighth apart, so values rounded to them have errors of up to 1/16
    levels = Levels(torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor([1e15], dtype=torch.float64))
    law = on_levels((None, levels), location=1e15)
    np.testing.assert_allclose(law.std()[0, 0], np.std(normal_quantiles(500)), rtol=1e-9)
    np.testing.assert_allclose(law.std()[0, 1], 0.5, rtol=0.1)


def test_density_of_the_spread_part_survives_a_point_mass():
    rng = np.random.default_rng(0)
    y = np.concatenate([np.zeros(3000), rng.normal(3, 1, 7000)])
    law = ConditionalDistribution(Support.compressed(torch.tensor(y), torch.zeros(10_000, 1)), torch.zeros(1, 1))
    t = np.linspace(2.5, 4, 16)
    # 7,000 points and a bandwidth of 0.15 standard deviations: about 1,000 points in each window, 4/√1000 ≈ 0.13.
    np.testing.assert_allclose(law.pdf(t)[0], 0.7 * stats.norm(3, 1).pdf(t), rtol=0.15)


def test_infinite_values_of_f_count_only_where_there_is_mass():
    support = Support(torch.tensor([0.0, 1.0]), torch.tensor([[-1.0], [1.0]]))
    d = ConditionalDistribution(support, torch.tensor([[1.0], [0.0]]), export=to_numpy)  # all mass at 1; half and half
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(d.expectation(lambda y: 1 / y), [1.0, np.inf])


def test_a_value_as_heavy_as_a_bin_stands_alone():
    # 20,000 values in 3,840 bins: 5.2 in each; seven equal ones are a bin and a third, wherever a border may fall
    rng = np.random.default_rng(0)
    ties = rng.normal(size=60)
    y = np.concatenate([np.repeat(ties, 7), rng.normal(size=20_000 - 420)])
    few = Support.compressed(torch.tensor(y), torch.zeros(20_000, 1))
    assert np.isin(ties, few.values[:, 0].numpy()).all()


def test_every_public_question_has_an_example():
    public = {name: member for name, member in vars(ConditionalDistribution).items() if not name.startswith("_")}
    assert len(public) > 20
    examples = {
        name: "".join(line for line in (member.__doc__ or "").splitlines() if line.strip().startswith(">>>"))
        for name, member in public.items()
    }
    assert [name for name, text in examples.items() if f".{name}" not in text] == []


def test_a_point_mass_far_from_zero_has_no_variance_and_huge_values_no_nan():
    thirds = Support(torch.full((3,), 1e140, dtype=torch.float64) / 3, torch.zeros(3, 1))
    law = ConditionalDistribution(thirds, torch.zeros(2, 1))
    assert (law.var() == 0).all()
    assert (law.skewness() == 0).all()
    assert (law.cov() == 0).all()
    # 10¹⁵⁰ has a square, its cube is infinite: moments are scaled first, and mass zero counts nothing
    wide = Support(torch.tensor([-1e150, 0.0, 1e150], dtype=torch.float64), torch.tensor([[-1.0], [0.0], [1.0]]))
    law = ConditionalDistribution(wide, torch.tensor([[0.0], [1.0]]))  # thirds, and 0, ⅓, ⅔
    torch.testing.assert_close(law.kurtosis(), torch.full((2,), -1.5, dtype=torch.float64))
    for answer in (law.var(), law.skewness(), law.moment(4, central=True), law[1].moment(3)):
        assert not answer.isnan().any()


@laws
@given(ANY, st.integers(0, 1000))
def test_mixtures_of_members_are_averages_of_their_weights_chunk_by_chunk(d, seed):
    shares = torch.as_tensor(np.random.default_rng(seed).dirichlet(np.ones(len(d))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "CHUNK_ELEMENTS", len(d.support))  # one member at a time
        found = d.average_weights(shares)
    order = d.support.public_order
    found = found if order is None else found[order]
    np.testing.assert_allclose(found.numpy(), shares.numpy() @ d.weights(), atol=1e-12)


def test_as_many_atoms_as_asked_for_are_the_atoms_themselves():
    rng = np.random.default_rng(0)
    support = Support(torch.tensor(rng.normal(size=(6, 2))), torch.tensor(rng.normal(size=(6, 1))))
    law = ConditionalDistribution(support, torch.tensor([[0.3], [-0.2]]).double())
    values, weights = law.located_atoms(6)
    assert torch.equal(values, support.values.expand(2, 6, 2))
    assert torch.equal(weights, law.weights())
