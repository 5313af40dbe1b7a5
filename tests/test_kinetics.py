"""Questions about time, beside chains and processes whose transition operators are known."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

import ncprob
from ncprob import Kinetics, NCPClassifier, NCPRegressor, SpectralOperator, TimeLaggedPairs, datasets
from ncprob.encoders import MLP
from ncprob.kinetics import implied_timescales
from tests.helpers import Lookup

EDGES = [-np.inf, -0.5, 0.0, 0.5, np.inf]
QUICK = {"n_resamples": 20}


def intervals(edges, unit=1.0):
    """States as callables on frames that are `unit` times the coordinate."""
    return [lambda z, a=a, b=b: (z[:, 0] > a * unit) & (z[:, 0] <= b * unit) for a, b in itertools.pairwise(edges)]


def learned(process, n_frames, n_trajectories, unit, rank=6, seed=0, max_steps=300):
    """A shared encoder trained by the library on trajectories of a process; `unit` scales them to order one."""
    pairs = TimeLaggedPairs(list(unit * process.trajectories(n_frames, n_trajectories, random_state=seed)), 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = MLP(1, (64, 64), rank)
        operator = SpectralOperator(encoder, encoder, rank)
    settings = {"max_steps": max_steps, "batch_size": 1024, "learning_rate": 1e-2, "device": "cpu", "progress": False}
    ncprob.train(operator, pairs, **settings)
    return operator.postprocess(pairs), pairs


@pytest.fixture(scope="module")
def prinz():
    """20,000 pairs; the coordinate in units of a quarter, so that it varies by about two."""
    process = datasets.PrinzPotential()
    return process, *learned(process, 101, 200, unit=4.0)


# ---------------------------------------------------------------- exact: chains on few states


class Chain:
    """A Markov chain with a one-hot encoder, whose features span every function of the state."""

    def __init__(self, matrix, n_frames=400, n_trajectories=20, seed=0):
        self.matrix, k = np.asarray(matrix), len(matrix)
        rng = np.random.default_rng(seed)
        self.stationary = np.linalg.matrix_power(self.matrix, 200)[0]
        states = np.empty((n_trajectories, n_frames), dtype=int)
        states[:, 0] = rng.choice(k, n_trajectories, p=self.stationary)
        for t in range(1, n_frames):
            edges = np.cumsum(self.matrix[states[:, t - 1]], axis=1)[:, :-1]
            states[:, t] = (rng.random((n_trajectories, 1)) > edges).sum(axis=1)
        self.pairs = TimeLaggedPairs(list(states), 1)
        encoder = Lookup(torch.eye(k))
        self.operator = SpectralOperator(encoder, encoder, k).postprocess(self.pairs)
        self.states = [lambda z, i=i: z[:, 0] == i for i in range(k)]
        counts = np.zeros((k, k))
        x, y = (part[:, 0].long().numpy() for part in self.pairs.tensors())
        np.add.at(counts, (x, y), 1)
        self.counts = counts


REVERSIBLE = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]
CYCLIC = [[0.6, 0.35, 0.05], [0.05, 0.6, 0.35], [0.35, 0.05, 0.6]]


@pytest.mark.parametrize("matrix", [REVERSIBLE, CYCLIC])
def test_features_of_all_states_give_the_counted_matrix(matrix):
    chain = Chain(matrix)
    kinetics = Kinetics(chain.operator, chain.pairs)
    counted = chain.counts / chain.counts.sum(axis=1, keepdims=True)
    found = kinetics.transition_matrix(chain.states, **QUICK)
    np.testing.assert_allclose(found.value, counted, atol=1e-4)  # float32
    np.testing.assert_allclose(kinetics.counted_matrix(chain.states, **QUICK).value, counted, atol=1e-12)
    # and the true one within four standard errors of 7,980 transitions, a third from each state
    np.testing.assert_allclose(counted, matrix, atol=4 * np.sqrt(0.25 / 2660))


def test_powers_of_a_reversible_chain():
    chain = Chain(REVERSIBLE)
    kinetics = Kinetics(chain.operator, chain.pairs, reversible=True)
    both = chain.counts + chain.counts.T
    symmetric = both / both.sum(axis=1, keepdims=True)
    x = torch.arange(3.0)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a reversible chain is not warned of
        for steps in (1, 2, 3, 5):
            power = np.linalg.matrix_power(symmetric, steps)
            # laws are carried by the y of the pairs, whose frequencies differ from symmetric ones by 1 in n
            np.testing.assert_allclose(kinetics.forecast(chain.states[0], x, steps=steps), power[:, 0], atol=2e-3)
            found = kinetics.transition_matrix(chain.states, steps=steps, **QUICK)
            np.testing.assert_allclose(found.value, power, atol=2e-3)
    # for a doubly stochastic matrix eigenvalues of the exact matrix are those of the process
    exact = np.sort(np.linalg.eigvalsh(REVERSIBLE))[::-1][1:]
    np.testing.assert_allclose(kinetics.values[:2], exact, atol=0.04)


@pytest.mark.parametrize("matrix", [REVERSIBLE, CYCLIC])
@pytest.mark.parametrize("reversible", [False, True])
def test_states_beside_features_that_cannot_tell_them_apart(matrix, reversible):
    """One feature, the same for two of three states: with the states beside it the answer is what is counted."""
    chain = Chain(matrix)
    coarse = Lookup(torch.tensor([[1.0], [0.0], [0.0]]))
    operator = SpectralOperator(coarse, coarse, 1).postprocess(chain.pairs)
    counts = chain.counts + chain.counts.T if reversible else chain.counts
    counted = counts / counts.sum(axis=1, keepdims=True)
    before = torch.get_rng_state()
    alone, beside = (Kinetics(operator, chain.pairs, reversible=reversible, states=s) for s in ((), chain.states[:2]))
    assert torch.equal(torch.get_rng_state(), before)
    # laws are carried by the y of the pairs, whose frequencies differ from symmetric ones by 1 in n
    found = beside.transition_matrix(chain.states, **QUICK)
    np.testing.assert_allclose(found.value, counted, atol=2e-3 if reversible else 1e-4)
    x = torch.arange(3.0)[:, None]
    forecast = torch.stack([beside.forecast(state, x) for state in chain.states], dim=1)
    np.testing.assert_allclose(forecast, counted, atol=2e-3 if reversible else 1e-4)
    assert np.abs(alone.transition_matrix(chain.states, **QUICK).value.numpy() - counted).max() > 0.1
    assert len(beside.values) == 3
    if reversible:
        both = np.sqrt(counts.sum(axis=1))
        exact = np.linalg.eigvalsh(counts / np.outer(both, both))
        exact = exact[np.argsort(-np.abs(exact))][1:]
        np.testing.assert_allclose(beside.values[:2], exact, atol=1e-5)


def test_all_states_and_none_change_nothing_more():
    """Indicators that add to one, one that is constant, features that span all: no direction is counted twice."""
    chain = Chain(REVERSIBLE, n_frames=100)
    plain = Kinetics(chain.operator, chain.pairs, reversible=True)
    everything = [*chain.states, lambda z: z[:, 0] > -1]
    wide = Kinetics(chain.operator, chain.pairs, reversible=True, states=everything)
    np.testing.assert_allclose(wide.values[:2], plain.values[:2], atol=1e-5)
    np.testing.assert_allclose(wide.values[2:], 0.0, atol=1e-6)
    x = torch.arange(3.0)[:, None]
    for state in chain.states:
        np.testing.assert_allclose(wide.forecast(state, x), plain.forecast(state, x), atol=1e-5)


def test_pairs_out_of_equilibrium_count_in_both_directions():
    """x always starts in the first state, so the means of x and y differ."""
    chain = Chain(REVERSIBLE, n_frames=2, n_trajectories=300)
    started = [z for z in chain.pairs._frames.view(-1, 2).numpy() if z[0] < 2]
    pairs = TimeLaggedPairs(started, 1)
    both = np.zeros((3, 3))
    np.add.at(both, tuple(np.array(started).astype(int).T), 1)
    both = both + both.T
    root = np.sqrt(both.sum(axis=1))
    exact = np.linalg.eigvalsh(both / np.outer(root, root))
    exact = exact[np.argsort(-np.abs(exact))][1:]
    found = Kinetics(chain.operator, pairs, reversible=True).values[:2]
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_with_all_features_the_error_is_that_of_counting():
    chain = Chain(CYCLIC, n_frames=100, n_trajectories=5)
    kinetics = Kinetics(chain.operator, chain.pairs)
    found, counted = kinetics.transition_matrix(chain.states), kinetics.counted_matrix(chain.states)
    np.testing.assert_allclose(found.standard_error, counted.standard_error, rtol=1e-3)
    np.testing.assert_allclose(found.low, counted.low, atol=1e-3)
    np.testing.assert_allclose(found.high, counted.high, atol=1e-3)
    assert (counted.standard_error > 0.01).all()


@pytest.mark.filterwarnings("ignore:the pairs are not reversible")  # one in a hundred, by the level of the test
@pytest.mark.parametrize(("reversible", "steps"), [(False, 1), (True, 1), (True, 3)])
def test_standard_errors_are_the_spread_over_data_sets(reversible, steps):
    chains = [Chain(REVERSIBLE, n_frames=100, n_trajectories=5, seed=seed) for seed in range(40)]
    made = [Kinetics(chain.operator, chain.pairs, reversible=reversible) for chain in chains]
    found = [k.transition_matrix(c.states, steps=steps, n_resamples=60) for k, c in zip(made, chains, strict=True)]
    spread = np.std([f.value.numpy() for f in found], axis=0)
    claimed = np.mean([f.standard_error.numpy() for f in found], axis=0)
    # the spread of 40 has an error of 11 %, nine of them of about 4 % together; the bootstrap is a little too small
    assert 0.8 < np.mean(claimed / spread) < 1.15
    exact = np.linalg.matrix_power(REVERSIBLE, steps)
    inside = [(f.low.numpy() <= exact) & (f.high.numpy() >= exact) for f in found]
    assert np.mean(inside) > 0.8  # of 0.9


def rotation(angle, n=4000, decay=0.8, seed=0):
    """x_{t+1} = decay · R(angle) x_t + noise in the plane: K = decay · R, so ‖K − Kᵀ‖ / ‖K + Kᵀ‖ = tan(angle)."""
    rng = np.random.default_rng(seed)
    turn = decay * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    x = np.zeros((n, 2))
    for t in range(1, n):
        x[t] = turn @ x[t - 1] + np.sqrt(1 - decay**2) * rng.standard_normal(2)
    pairs = TimeLaggedPairs(x, 1)
    encoder = nn.Identity()
    return SpectralOperator(encoder, encoder, 2), pairs


def test_asymmetry_of_a_rotation():
    operator, pairs = rotation(0.3)
    found = Kinetics(operator, pairs, reversible=True).reversibility()
    assert abs(found.asymmetry - np.tan(0.3)) < 0.05  # error of an angle: 1/√n times √(1 − 0.8²)/0.8
    assert found.p_value == 0.001
    assert found.rejected


def test_reversible_processes_are_not_rejected():
    made = [rotation(0.0, n=1000, seed=seed) for seed in range(20)]
    found = [Kinetics(*each, reversible=True).reversibility(n_reversals=199) for each in made]
    p_values = [each.p_value for each in found]
    # an unbiased square falls below zero if χ² with one degree of freedom is below 1: 14 ± 2 times of 20
    assert 8 <= sum(each.asymmetry == 0 for each in found) <= 19
    assert 0.3 < np.mean(p_values) < 0.7  # uniform: 0.5 ± 0.065
    assert np.min(p_values) > 0.005


def test_powers_of_what_is_not_reversible_are_warned_of():
    operator, pairs = rotation(0.3)
    kinetics = Kinetics(operator, pairs, reversible=True)
    with pytest.warns(UserWarning, match=r"not reversible \(asymmetry 0.29, p-value 0.001\)"):
        kinetics.forecast(lambda z: z[:, 0] > 0, torch.zeros(1, 2), steps=2)


# ---------------------------------------------------------------- truths: processes, learned by the library


def test_singular_values_of_ornstein_uhlenbeck():
    process = datasets.OrnsteinUhlenbeck()
    operator, pairs = learned(process, 201, 200, unit=1.0)
    kinetics = Kinetics(operator, pairs, reversible=True)
    exact = process.singular_values(3)
    # a correlation of 40,000 dependent pairs has an error of about √((1 − a²)(1 + a)/(1 − a)/n) = 0.008
    np.testing.assert_allclose(operator.singular_values[:3].numpy(), exact, atol=0.02)
    np.testing.assert_allclose(kinetics.values[:3].numpy(), exact, atol=0.02)
    times = kinetics.timescales(2, time_step=process.step * process.n_steps)
    assert (np.abs(times.value.numpy() - process.timescales(2)) < 4 * times.standard_error.numpy()).all()
    slow = kinetics.coordinates(torch.linspace(-2, 2, 9)[:, None], k=1)[:, 0].numpy()
    assert abs(np.corrcoef(slow, np.linspace(-2, 2, 9))[0, 1]) > 0.99  # the first Hermite polynomial
    again = kinetics.coordinates(np.linspace(-2, 2, 9)[:, None], k=1)[:, 0].numpy()  # arrays will do
    np.testing.assert_allclose(again, slow, atol=1e-6)
    np.testing.assert_allclose(kinetics.coordinates(k=2).square().mean(dim=0), 1.0, atol=0.01)


def test_prinz_singular_values_and_timescales(prinz):
    process, operator, pairs = prinz
    kinetics = Kinetics(operator, pairs, reversible=True)
    np.testing.assert_allclose(kinetics.values[:3].numpy(), process.singular_values(3), atol=0.02)
    times = kinetics.timescales(3, time_step=process.step * process.n_steps)
    # an upper bound of what is learned is not exact: four standard errors for the slowest two
    assert (np.abs(times.value.numpy() - process.timescales(3))[:2] < 4 * times.standard_error.numpy()[:2]).all()


def test_prinz_laws_at_points(prinz):
    process, operator, pairs = prinz
    kinetics, points = Kinetics(operator, pairs), np.array([-0.7, -0.15, 0.0, 0.2])
    x = torch.tensor(4 * points[:, None]).float()
    law, exact = kinetics.distribution(x), process.truth(points)
    forecast = kinetics.forecast(lambda z: z[:, 0] > 0, x)
    right = 1 - exact.cdf(0.0)  # 0.0026, 0.088, 0.507, 0.943
    near = np.array([(np.abs(pairs.tensors()[0][:, 0].numpy() / 4 - point) < 0.025).sum() for point in points])
    error = np.sqrt(right * (1 - right) / near)  # of counting in cells of 0.05 around the points: 0.011, 0.065, 0.008
    for found in (np.asarray(law.sf(0.0)), forecast.numpy()):
        assert found[0] < 0.015  # cut off at zero, noise only adds: a rare transition must stay rare
        assert (np.abs(found - right)[1:] < 2 * error[1:]).all()
    indicator = kinetics.distribution(x, observable=lambda z: (z[:, 0] > 0).double())
    np.testing.assert_allclose(forecast, indicator.mean(), rtol=1e-6)
    # 10 and 90 % quantiles away from the barrier, of a coordinate that ranges over two
    quantiles = law.quantile([0.1, 0.9])
    np.testing.assert_allclose(quantiles[[0, 3]] / 4, exact.quantile([0.1, 0.9])[[0, 3]], atol=0.05)
    observed = kinetics.distribution(x, observable=lambda z: z[:, 0] / 4)
    np.testing.assert_allclose(observed.quantile([0.1, 0.9]), quantiles / 4, rtol=1e-6)


def test_prinz_transition_matrix_beside_counting_and_the_exact_one(prinz):
    process, operator, pairs = prinz
    kinetics, states = Kinetics(operator, pairs), intervals(EDGES, 4.0)
    exact = process.transition_matrix(EDGES)
    found, counted = kinetics.transition_matrix(states), kinetics.counted_matrix(states)
    np.testing.assert_allclose(found.value.sum(axis=1), 1.0, atol=1e-9)
    # standard errors are at most 0.008; counting within four of them, the model within 0.02 more for its own bias
    assert counted.standard_error.max() < 0.01
    np.testing.assert_allclose(counted.value, exact, atol=0.03)
    np.testing.assert_allclose(found.value, exact, atol=0.03)
    np.testing.assert_allclose(found.value, counted.value, atol=0.03)
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()
    single = kinetics.transition_probability(states[0], states[1])
    # asked about one state only, all others are one: another repair of negative ratios, by a fraction of the error
    expected = [found.value[0, 1], found.low[0, 1], found.high[0, 1]]
    np.testing.assert_allclose([single.value, single.low, single.high], expected, atol=2e-3)


@pytest.mark.parametrize("steps", [2, 3])
def test_prinz_by_powers(prinz, steps):
    process, operator, pairs = prinz
    kinetics, later = Kinetics(operator, pairs, reversible=True), process.every(steps)
    found = kinetics.transition_matrix(intervals(EDGES, 4.0), steps=steps)
    np.testing.assert_allclose(found.value, later.transition_matrix(EDGES), atol=0.04)
    points = np.linspace(-0.95, 0.95, 20)
    forecast = kinetics.forecast(lambda z: z[:, 0] > 0, torch.tensor(4 * points[:, None]).float(), steps=[1, steps])
    exact = [1 - p.truth(points).cdf(0.0) for p in (process, later)]
    # largest on top of the barrier, where the truth rises from 0.1 to 0.9 over 0.2
    assert np.abs(forecast.numpy() - np.transpose(exact)).mean() < 0.03


def test_estimators_answer_the_same_questions():
    process = datasets.OrnsteinUhlenbeck()
    pairs = TimeLaggedPairs(list(process.trajectories(100, 20, random_state=0)), 1)
    X, y = pairs.arrays()
    model = NCPRegressor(max_steps=100, coordinates="residual", random_state=0).fit(X, y)
    kinetics, states = Kinetics(model, pairs), intervals([-np.inf, 0.0, np.inf])
    found = kinetics.transition_matrix(states, **QUICK)
    assert isinstance(found.value, np.ndarray)
    asked = model.given(X[:, 0] <= 0).prob(lambda z: z[:, 0] <= 0)
    np.testing.assert_allclose(found.value[0, 0], asked[0], atol=1e-9)
    # 1,980 pairs, half of them in each state: standard error of about 0.02
    np.testing.assert_allclose(found.value, process.transition_matrix([-np.inf, 0.0, np.inf]), atol=0.06)
    assert (found.standard_error < 0.03).all()
    rows = np.array([[-1.0], [0.5]])
    law = model.predict_distribution(rows)
    np.testing.assert_array_equal(kinetics.forecast((0.0, np.inf), rows), law.prob((0.0, np.inf)))
    np.testing.assert_array_equal(kinetics.distribution(rows).quantile(0.9), law.quantile(0.9))
    with pytest.raises(ValueError, match="needs a SpectralOperator"):
        kinetics.timescales()
    with pytest.raises(ValueError, match="`observable` needs a SpectralOperator"):
        kinetics.distribution(rows, observable=np.abs)
    with pytest.raises(ValueError, match="`reversible` needs a SpectralOperator"):
        Kinetics(model, pairs, reversible=True)
    with pytest.raises(ValueError, match="`states` needs a SpectralOperator"):
        Kinetics(model, pairs, states=states)
    with pytest.raises(ValueError, match="`steps` must be 1"):
        kinetics.forecast((0.0, np.inf), rows, steps=2)


def test_implied_timescales():
    np.testing.assert_allclose(implied_timescales(np.exp([-0.5, -2.0]), lag=3.0), [6.0, 1.5])
    odd = implied_timescales(torch.tensor([1.0, 0.0, -0.3]), lag=1.0)
    assert odd[0] == torch.inf
    assert odd[1:].isnan().all()


def test_frames_of_molecules():
    """Frames of shape (atoms, 3): laws of a distance, states by a distance."""
    rng = np.random.default_rng(0)
    pairs = TimeLaggedPairs([rng.normal(size=(100, 4, 3)), rng.normal(size=(80, 4, 3))], 2)
    encoder = nn.Sequential(nn.Flatten(), MLP(12, (8,), 3))
    kinetics = Kinetics(SpectralOperator(encoder, encoder, 3).postprocess(pairs), pairs)
    distance = lambda z: (z[:, 0] - z[:, 3]).norm(dim=1)  # noqa: E731
    x = pairs.tensors()[0][:5]
    assert kinetics.distribution(x, observable=distance).quantile([0.1, 0.9]).shape == (5, 2)
    matrix = kinetics.transition_matrix([lambda z: distance(z) < 2, lambda z: distance(z) >= 2], **QUICK)
    np.testing.assert_allclose(matrix.value.sum(axis=1), 1.0, atol=1e-9)
    with pytest.raises(ValueError, match=r"`observable` must give one number or vector per frame; it gave shape \(176"):
        kinetics.distribution(x)


def test_bad_arguments():
    chain = Chain(REVERSIBLE, n_frames=20, n_trajectories=2)
    kinetics = Kinetics(chain.operator, chain.pairs)
    reversible = Kinetics(chain.operator, chain.pairs, reversible=True)
    two = SpectralOperator(nn.Identity(), nn.Identity(), 1)
    for call, error, message in [
        (lambda: Kinetics(chain.operator, chain.pairs.tensors()), TypeError, "`pairs` must be TimeLaggedPairs"),
        (lambda: Kinetics(nn.Identity(), chain.pairs), TypeError, "`model` must be a SpectralOperator"),
        (lambda: Kinetics(two, chain.pairs), ValueError, "`model` must be whitened"),
        (lambda: Kinetics(two, chain.pairs, reversible=True), ValueError, "share one encoder; got two"),
        (
            lambda: Kinetics(chain.operator, chain.pairs, block_length=0),
            ValueError,
            "`block_length` must be at least 1",
        ),
        (lambda: kinetics.transition_matrix([lambda z: z[:, 0] > 99]), ValueError, "state 0 holds none"),
        (lambda: kinetics.transition_matrix(lambda z: z[:, 0] > 0), TypeError, "`states` must be a list"),
        (lambda: kinetics.transition_matrix([]), ValueError, "`states` must hold at least one set"),
        (
            lambda: Kinetics(chain.operator, chain.pairs, states=chain.states[0]),
            TypeError,
            "`states` must be a list",
        ),
        (lambda: Kinetics(chain.operator, chain.pairs, states=5), TypeError, "list of sets.*got int"),
        (lambda: Kinetics(chain.operator, chain.pairs, states=iter(chain.states)), TypeError, "got list_iterator"),
        (lambda: kinetics.transition_matrix((0.0, 1.0)), TypeError, r"got numbers, \(0.0, 1.0\)"),
        (lambda: kinetics.transition_matrix(np.zeros(2)), TypeError, "got ndarray"),
        (lambda: Kinetics(two, chain.pairs, states=chain.states), ValueError, "`model` must be whitened"),
        (lambda: Kinetics(chain.operator, chain.pairs, states=[3]), TypeError, "list of sets.*got numbers"),
        (
            lambda: kinetics.transition_matrix([lambda z: z[:, 0]]),
            ValueError,
            "`states` must return one boolean per row",
        ),
        (lambda: kinetics.transition_matrix(chain.states, confidence=90), ValueError, "`confidence` must lie in"),
        (lambda: kinetics.transition_matrix(chain.states, steps=2), ValueError, "`steps` must be 1 unless"),
        (
            lambda: kinetics.forecast(chain.states[0], torch.zeros(1, 1), steps=0),
            ValueError,
            "`steps` must be at least",
        ),
        (kinetics.reversibility, ValueError, "`reversibility` compares x and y in the same features"),
        (lambda: kinetics.timescales(0), ValueError, "`k` must be at least 1"),
        (lambda: kinetics.timescales(4), ValueError, "`k` must be at most 3, the rank"),
        (lambda: kinetics.coordinates(k=4), ValueError, "`k` must be at most 3, the rank"),
        (lambda: kinetics.timescales(confidence=90), ValueError, "`confidence` must lie in"),
        (lambda: kinetics.timescales(n_resamples=1), ValueError, "`n_resamples` must be at least 2"),
        (lambda: kinetics.forecast(chain.states[0], torch.zeros(1, 1), steps=[]), ValueError, "`steps` must hold"),
        (lambda: reversible.reversibility(n_reversals=0), ValueError, "`n_reversals` must be at least 1"),
        (lambda: Kinetics(NCPClassifier(), chain.pairs), TypeError, "`model` must be .* NCPRegressor; got NCPCl"),
        (lambda: Kinetics(NCPRegressor(), chain.pairs), NotFittedError, "not fitted yet"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e300])  # the last is infinite in float32
def test_frames_that_are_no_numbers_have_no_answer(bad):
    """Laws are repaired to be valid ones, so NaN features would give a plausible number."""
    operator, pairs = rotation(0.0, n=200)
    kinetics = Kinetics(operator.postprocess(pairs), pairs)
    x = np.array([[0.0, 0.0], [bad, 1.0]])
    for call in (kinetics.coordinates, kinetics.distribution, lambda x: kinetics.forecast(lambda z: z[:, 0] > 0, x)):
        with pytest.raises(ValueError, match="`x` must not contain NaN or infinity"):
            call(x)


@pytest.mark.parametrize("reversible", [False, True])
def test_answers_do_not_depend_on_the_mode_of_the_encoder(reversible):
    pairs = TimeLaggedPairs(list(datasets.DoubleWell().trajectories(60, 5, random_state=0)), 1)
    encoder = nn.Sequential(MLP(1, (8,), 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    operator = SpectralOperator(encoder, encoder, 3)
    encoder(pairs.tensors()[0])  # running statistics
    kept = {name: value.clone() for name, value in encoder[1].state_dict().items()}
    answers = []
    for mode in (False, True):
        operator.train(mode)
        made = Kinetics(operator.postprocess(pairs), pairs, reversible=reversible)
        x = torch.tensor([[-1.0], [0.5]])
        answers.append([made.values, made.forecast(lambda z: z[:, 0] > 0, x), made.coordinates(x)])
        assert operator.training == encoder[1].training == mode
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other)
    for name, value in encoder[1].state_dict().items():
        assert torch.equal(value, kept[name])


def test_reversibility_answers_what_it_is_asked():
    operator, pairs = rotation(0.3, n=1000)
    kinetics = Kinetics(operator, pairs, reversible=True)
    assert kinetics.reversibility(n_reversals=9).p_value == 0.1
    assert kinetics.reversibility(n_reversals=99).p_value == 0.01
    assert kinetics.reversibility(n_reversals=9).p_value == 0.1


def test_numbers_of_lags_may_be_of_numpy():
    chain = Chain(REVERSIBLE)
    kinetics, x = Kinetics(chain.operator, chain.pairs, reversible=True), torch.zeros(1, 1)
    expected = kinetics.forecast(chain.states[0], x, steps=2)
    assert kinetics.forecast(chain.states[0], x, steps=np.int64(2)) == expected
    assert kinetics.forecast(chain.states[0], x, steps=np.array([2]))[0] == expected


def test_errors_of_too_few_blocks_are_not_zero():
    chain = Chain(REVERSIBLE, n_frames=200, n_trajectories=1)
    whole = Kinetics(chain.operator, chain.pairs, block_length=10**6, reversible=True)
    for call in (whole.transition_matrix, whole.counted_matrix):
        with pytest.raises(ValueError, match="at least 2 blocks of neighbouring rows; got 1"):
            call(chain.states)
    for call in (whole.timescales, whole.reversibility):
        with pytest.raises(ValueError, match="at least 2 blocks"):
            call()
    with pytest.warns(UserWarning, match="only 4 blocks"):
        Kinetics(chain.operator, chain.pairs, block_length=50).transition_matrix(chain.states, **QUICK)


def test_a_state_of_one_block_has_no_known_error():
    x = np.zeros(200)
    x[50:55] = 1.0
    x[100:200:2] = 2.0
    pairs = TimeLaggedPairs(x, 1)
    encoder = Lookup(torch.eye(3))
    kinetics = Kinetics(SpectralOperator(encoder, encoder, 3).postprocess(pairs), pairs, block_length=10)
    states = [lambda z, i=i: z[:, 0] == i for i in range(3)]
    with pytest.warns(UserWarning, match="state 1 is visited in one block"):
        found = kinetics.counted_matrix(states, **QUICK)
    assert found.value[1, 1] == 0.8
    assert found.standard_error[1].isnan().all()
    assert found.low[1].isnan().all()
    assert (found.standard_error[0] > 0).any()
