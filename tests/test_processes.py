"""The processes in time obey their exact transition operators."""

import numpy as np
import pytest
from scipy import stats

from ncprob import datasets, processes
from ncprob.datasets import DoubleWell, OrnsteinUhlenbeck, PrinzPotential

SMALLEST_P_VALUE = 1e-3  # a correct simulator fails once in a thousand seeds; the seeds here are fixed
PROCESSES = [OrnsteinUhlenbeck(), OrnsteinUhlenbeck(theta=2.0, scheme="euler"), DoubleWell(), PrinzPotential()]
every_process = pytest.mark.parametrize("process", PROCESSES, ids=lambda p: f"{type(p).__name__}-{p.n_steps}")
TWO = [-np.inf, 0.0, np.inf]


def test_ornstein_uhlenbeck_has_powers_of_its_coefficient():
    exact, euler = OrnsteinUhlenbeck(theta=2.0), OrnsteinUhlenbeck(scheme="euler")
    np.testing.assert_allclose(exact.singular_values(4), np.exp(-np.arange(1.0, 5.0)))
    # deeptime's process with step 1e-3 and 500 steps
    np.testing.assert_allclose(euler.singular_values(3), [0.6064, 0.3677, 0.2230], atol=5e-5)
    np.testing.assert_allclose(exact.timescales(3), [1 / 2, 1 / 4, 1 / 6])


def test_prinz_agrees_with_the_reference():
    # The reference 0.9411 0.6706 0.4608 0.0161 and 0.0028 is of some 800 cells of width w: counting a step as if it
    # ended in the middle of its cell adds w²/12 to its variance 2h; as w → 0 it moves by up to 1.5 %, to the values
    # below. One and a half million runs of deeptime's simulator gave P(x' > 0 | x = −0.7) = 0.00266 ± 0.00004.
    prinz = PrinzPotential()
    np.testing.assert_allclose(prinz.singular_values(4), [0.9411, 0.6706, 0.4608, 0.0161], rtol=0.016)
    np.testing.assert_allclose(prinz.singular_values(4), [0.94202, 0.67398, 0.46359, 0.01634], atol=6e-6)
    np.testing.assert_allclose(1 - prinz.truth([[-0.7]]).cdf(0.0), 0.00266, atol=3 * 0.00004)


@pytest.mark.parametrize("process", [DoubleWell, PrinzPotential])
def test_the_grid_is_fine_enough(process, monkeypatch):
    coarse = process(n_steps=300)
    expected = coarse.singular_values(3), coarse.truth([[-0.7], [0.4]]).cdf([-0.5, 0.3])
    monkeypatch.setattr(processes, "SPACING", 0.3)
    fine = process(n_steps=300)
    assert len(fine.grid) > 1.5 * len(coarse.grid)
    np.testing.assert_allclose(fine.singular_values(3), expected[0], atol=1e-9)
    np.testing.assert_allclose(fine.truth([[-0.7], [0.4]]).cdf([-0.5, 0.3]), expected[1], atol=1e-9)


@pytest.mark.parametrize("process", [DoubleWell(step=1e-2, n_steps=20), PrinzPotential(step=1e-3, n_steps=50)])
def test_the_largest_steps_that_are_taken_are_right(process):
    """Simulated from the stationary law for some frames, the process stays in it and inside its bounds."""
    paths = process.trajectories(20, n_trajectories=1000, random_state=0)
    assert (np.abs(paths) < process.bounds[1]).all()
    assert stats.kstest(process.stationary().cdf(paths[:, -1])[0], "uniform").pvalue > SMALLEST_P_VALUE
    assert process.stationary_weights[[0, -1]].max() < 1e-9


def test_the_grid_operator_meets_the_closed_form():
    """A parabola in the place of two wells: an Ornstein–Uhlenbeck process by Euler's scheme."""

    class Parabola(DoubleWell):
        bounds = (-9.0, 9.0)

        def _force(self, x):
            return -x

    grid, closed = Parabola(step=1e-2, n_steps=30), OrnsteinUhlenbeck(step=1e-2, n_steps=30, scheme="euler")
    np.testing.assert_allclose(grid.singular_values(4), closed.singular_values(4), atol=1e-9)
    np.testing.assert_allclose(grid.transition_matrix(TWO), closed.transition_matrix(TWO), atol=1e-9)
    points, x = [-1.0, 0.0, 2.0], [[-1.5], [0.5]]
    np.testing.assert_allclose(grid.truth(x).cdf(points), closed.truth(x).cdf(points), atol=1e-10)
    np.testing.assert_allclose(grid.stationary().cdf(points), closed.stationary().cdf(points), atol=1e-10)


@every_process
def test_one_frame_then_one_frame_is_two_frames(process):
    """Chapman and Kolmogorov: the law over two frames is the average of the laws over one."""
    x = np.array([[-0.7], [0.3]])
    nodes = process.truth(x).quantile((np.arange(800) + 0.5) / 800)
    twice = np.array([process.truth(row).cdf([-0.5, 0.2]).mean(axis=0) for row in nodes])
    # the 800 quantiles are a midpoint rule: error below 1/800 for any monotone function
    np.testing.assert_allclose(process.every(2).truth(x).cdf([-0.5, 0.2]), twice, atol=2e-3)


@every_process
def test_transition_matrix_is_stochastic_stationary_and_reversible(process):
    edges = [-np.inf, -0.5, 0.0, 0.5, np.inf]
    matrix = process.transition_matrix(edges)
    mass = np.diff(process.stationary().cdf(edges)[0])
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-10)
    np.testing.assert_allclose(mass @ matrix, mass, atol=1e-8)
    # detailed balance: exact for the process, up to the step size for its chain
    np.testing.assert_allclose(mass[:, None] * matrix, (mass[:, None] * matrix).T, atol=2e-4)


@every_process
def test_trajectories_follow_the_law(process):
    paths = process.trajectories(2, n_trajectories=2000, random_state=0)
    assert paths.shape == (2000, 2)
    assert stats.kstest(process.stationary().cdf(paths[:, 0])[0], "uniform").pvalue > SMALLEST_P_VALUE
    pit = process.truth(paths[:, 0]).cdf(paths[:, 1:])[:, 0]
    assert stats.kstest(pit, "uniform").pvalue > SMALLEST_P_VALUE
    assert stats.kstest(pit[paths[:, 0] < 0], "uniform").pvalue > SMALLEST_P_VALUE


@every_process
def test_seeds_repeat_and_differ(process):
    first, again, other = (process.trajectories(4, n_trajectories=2, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.isclose(first, other).any()
    X, y = process.sample(3, random_state=0)
    assert X.shape == (3, 1)
    assert y.shape == (3,)


def test_they_are_made_by_name():
    assert datasets.make("DoubleWell", barrier=2.0) == DoubleWell(barrier=2.0)
    with pytest.raises(ValueError, match="Did you mean 'PrinzPotential'"):
        datasets.make("prinz_potentiel")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OrnsteinUhlenbeck(theta=-1.0), "`theta` must be positive"),
        (lambda: OrnsteinUhlenbeck(theta=1500.0, scheme="euler"), "smaller step"),
        (lambda: OrnsteinUhlenbeck(scheme="midpoint"), '`scheme` must be "exact" or "euler"'),
        (lambda: PrinzPotential(step=0.0), "`step` must be positive"),
        (lambda: PrinzPotential(n_steps=0), "`n_steps` must be an integer of at least 1"),
        (lambda: DoubleWell(barrier=0.0), "`barrier` must lie in"),
        (lambda: DoubleWell().transition_matrix([0.0]), "`edges` must be two or more increasing numbers"),
        (lambda: DoubleWell(step=0.1), "`step` must be so small that"),
        (lambda: DoubleWell(barrier=20.0, step=0.01), "`step` must be so small that"),
        (lambda: PrinzPotential(step=1e-2), "`step` must be so small that"),
        (lambda: DoubleWell().truth(3.0), r"`x` must lie in \[-2.6, 2.6\]"),
        (lambda: PrinzPotential().truth([0.0, -5.0]), r"`x` must lie in \[-1.5, 1.5\]"),
        (lambda: DoubleWell().transition_matrix([5, 6, 7]), "state 0, from 5 to 6, has no mass"),
        (lambda: OrnsteinUhlenbeck().transition_matrix([0, 20, 30]), "state 1, from 20 to 30, has no mass"),
        (lambda: DoubleWell().trajectories(0), "`n_frames` must be an integer of at least 1"),
        (lambda: DoubleWell().every(1.5), "`n_frames` must be an integer of at least 1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
