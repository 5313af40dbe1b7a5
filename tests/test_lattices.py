"""Spreading targets over a continuum loses nothing: laws of the spread, and of what comes back."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ncprob import lattices
from ncprob.lattices import Integers, Lattice, Levels, lattice_of, spread
from ncprob.state import State

laws = settings(max_examples=60, deadline=None, derandomize=True)
reals = st.floats(-1e150, 1e150, allow_nan=False)
shares = st.floats(0, 1 - 2**-53)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@st.composite
def weighted_targets(draw):
    """Targets of any size and closeness, some of them neighbouring floats, and weights of any size."""
    pool = draw(st.lists(reals, min_size=1, max_size=12))
    pool += [math.nextafter(v, math.inf) for v in pool[:3]] + [math.nextafter(v, -math.inf) for v in pool[:2]]
    y = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=40))
    mass = st.sampled_from([0.0, 1e-300, 1e-12, 1.0, 1.0, 7.0, 1e12])
    weights = draw(st.none() | st.lists(mass, min_size=len(y), max_size=len(y)))
    if weights is not None and max(weights) == 0:
        weights[0] = 1.0
    return tensor(y), None if weights is None else tensor(weights)


# ---------------------------------------------------------------- levels


@laws
@given(weighted_targets(), st.lists(shares, min_size=40, max_size=40))
def test_a_level_comes_back_wherever_it_was_spread(data, share):
    y, weights = data
    levels = Levels.fit(y, weights)
    seen = y if weights is None else y[weights > 0]
    assert torch.equal(levels.values, seen.unique())
    scores = levels.spread(seen, tensor(share[: len(seen)]))
    assert bool(scores.isfinite().all())
    assert torch.equal(levels.values_at(scores), seen)
    assert torch.equal(levels.values_at(levels.middles(seen)), seen)


@laws
@given(weighted_targets(), st.lists(shares, min_size=40, max_size=40))
def test_scores_rise_with_the_levels_and_with_the_share(data, share):
    levels = Levels.fit(*data)
    assert bool((levels.edges.diff() > 0).all())
    low, high = (levels.spread(levels.values, torch.full_like(levels.values, end)) for end in (0.0, 1.0))
    assert bool((low < high).all())
    assert bool((high[:-1] < levels.edges).all())
    assert bool((levels.edges < low[1:]).all())


@laws
@given(weighted_targets())
def test_a_standard_normal_law_of_scores_has_the_shares_of_the_rows(data):
    y, weights = data
    levels = Levels.fit(y, weights)
    mass = torch.ones_like(y) if weights is None else weights
    expected = np.array([float(mass[y == value].sum() / mass.sum()) for value in levels.values])
    found = np.diff(stats.norm.cdf([-np.inf, *levels.edges, np.inf]))
    np.testing.assert_allclose(found, expected, atol=2e-8)  # shares are at least 1e-9, of up to 17 levels
    assert (found > 0).all()


def test_scores_are_even_over_the_middle_of_the_share_of_a_level():
    levels = Levels.fit(tensor([0.0, 0, 0, 1, 1, 1, 1, 1, 2, 2]))
    share = torch.linspace(0, 1, 11, dtype=torch.float64)
    kept = 1 - lattices.GAP
    expected = stats.norm.ppf(0.3 + 0.5 * (0.5 + kept * (share.numpy() - 0.5)))  # of the level 1, from 0.3 to 0.8
    np.testing.assert_allclose(levels.spread(torch.ones(11, dtype=torch.float64), share), expected, rtol=1e-9)
    np.testing.assert_allclose(levels.middles(tensor([1.0])), stats.norm.ppf([0.55]))


def test_values_not_seen_take_the_closest_level():
    levels = Levels.fit(tensor([0.0, 1.0, 10.0]))
    others = tensor([-1e150, 0.4, 0.6, 5.4, 5.6, 1e150])
    assert levels.values_at(levels.middles(others)).tolist() == [0.0, 0.0, 1.0, 1.0, 10.0, 10.0]


def test_scores_beyond_all_seen_give_the_outermost_levels():
    levels = Levels.fit(tensor([2.0, 3.0]))
    assert levels.values_at(tensor([-math.inf, -50.0, 50.0, math.inf])).tolist() == [2.0, 2.0, 3.0, 3.0]
    assert Levels.fit(tensor([4.0, 4.0])).values_at(tensor([-math.inf, 0.0, 50.0])).tolist() == [4.0] * 3


def test_more_values_than_a_support_keeps_are_joined_but_not_the_point_mass():
    rng = np.random.default_rng(0)
    y = tensor(np.concatenate([np.zeros(3_000), rng.exponential(size=7_000)]))
    levels = Levels.fit(y)
    assert len(levels.values) < 4_200
    assert levels.values[0] == 0
    assert torch.special.ndtr(levels.edges[0]).item() == pytest.approx(0.3)
    back = levels.values_at(levels.middles(y))
    assert bool((back[:3_000] == 0).all())
    assert bool((back[3_000:] > 0).all())
    assert float((back - y).abs().mean()) < 1e-3  # a bin holds 1/3,840 of the mass, on average about 1/1,000 wide


# ---------------------------------------------------------------- integers and mixtures of kinds


@laws
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30), st.floats(1e-9, 1 - 1e-9))
def test_an_integer_comes_back_wherever_it_was_spread(values, share):
    y = tensor([float(v) for v in values])
    moved = Integers().spread(y, torch.full_like(y, share))
    # a float64 near 2⁴⁰ has 2⁻¹² to spare: shares closer than that to 0 or 1 may round to the edge
    if 2**-12 < share < 1 - 2**-12:
        assert torch.equal(Integers().values_at(moved), y)
    assert bool(((moved - y).abs() <= 0.5).all())


def mixed(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return tensor(np.stack([rng.normal(size=n), rng.integers(0, 300, n), rng.integers(0, 2, n)], axis=1))


def test_every_component_is_spread_in_its_own_way():
    y = mixed()
    lattice = lattice_of(y)
    assert [type(kind) for kind in lattice.components] == [type(None), Integers, Levels]
    assert lattice.discrete(y.device).tolist() == [False, True, True]
    assert (lattice.levels(0), lattice.levels(1)) == (None, None)
    assert lattice.levels(2) is lattice.components[2]
    moved = lattice.spread(y, seed=0)
    assert torch.equal(moved[:, 0], y[:, 0])
    assert (len(moved[:, 1].unique()), len(moved[:, 2].unique())) == (200, 200)
    assert torch.equal(lattice.values_at(moved.mT), y.mT)
    assert torch.equal(lattice.values_at(moved.mT[None, :, :, None].flatten(2)), y.mT[None])
    for k in range(3):
        assert torch.equal(lattice.component_at(k, moved[:, k]), y[:, k])
    middles = lattice.middles(y)
    assert torch.equal(middles[:, :2], y[:, :2])
    assert len(middles[:, 2].unique()) == 2


def test_components_are_spread_independently():
    y = tensor(np.tile(np.arange(1000)[:, None] * 3.0, 2))
    noise = Lattice((Integers(), Integers())).spread(y, seed=0) - y
    # the correlation of 1,000 independent pairs has a standard error of 0.032
    assert abs(float(torch.corrcoef(noise.mT)[0, 1])) < 4 * 0.032


def test_spreading_follows_the_seed_and_leaves_a_continuum_alone():
    y = mixed()
    lattice = lattice_of(y)
    assert torch.equal(spread(y, lattice, 3), spread(y, lattice, 3))
    assert not torch.equal(spread(y, lattice, 3), spread(y, lattice, 4))
    assert spread(y, None, 3) is y


# ---------------------------------------------------------------- which lattice


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.linspace(0, 1, 500), type(None)),
        (np.arange(500), Integers),
        (np.arange(500) % 7, Levels),
        (np.arange(500) % 7 / 10, Levels),  # few, and no integers
        (np.full(500, 3.0), Levels),
        (np.where(np.arange(500) % 10 == 0, 0.0, np.linspace(1, 2, 500)), Levels),  # a tenth of the rows is zero
        (np.where(np.arange(500) % 50 == 0, 0.0, np.linspace(1, 2, 500)), type(None)),  # a fiftieth
        (np.where(np.arange(500) % 3 == 0, 0, np.arange(500)), Levels),  # counts, a third of them zero
        (stats.poisson.ppf((np.arange(500) + 0.5) / 500, 20), Integers),  # counts: others may come
        (stats.poisson.ppf((np.arange(500) + 0.5) / 500, 2), Levels),
        (100 * stats.poisson.ppf((np.arange(500) + 0.5) / 500, 20), Levels),  # prices
        (np.arange(16), Integers),  # few rows: 16 values are not few for 16 rows
        (np.repeat(np.arange(4.0), 4), Levels),
    ],
)
def test_few_values_and_point_masses_are_levels_unless_they_are_counts(values, kind):
    lattice = lattice_of(tensor(values)[:, None])
    assert (type(None) if lattice is None else type(lattice.components[0])) is kind


def test_levels_have_the_shares_of_the_weights():
    y = tensor([[0.0], [0.0], [0.0], [1.0], [2.0]])
    lattice = lattice_of(y.repeat(5, 1), tensor([1.0, 1, 1, 9, 0]).repeat(5))
    assert lattice.levels(0).values.tolist() == [0.0, 1.0]
    assert lattice.levels(0).edges.item() == pytest.approx(stats.norm.ppf(0.25))


# ---------------------------------------------------------------- saving


def test_the_state_is_the_whole():
    y = mixed()
    lattice = lattice_of(y)
    again = Lattice.from_state(lattice.state(), 3)
    assert [type(kind) for kind in again.components] == [type(kind) for kind in lattice.components]
    assert torch.equal(again.spread(y, 0), lattice.spread(y, 0))


def level_state(values, edges):
    state = Levels(tensor(values), tensor(edges)).state()
    return State(facts={"kinds": ["Levels"]}, parts={"0": state})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (level_state([0.0, 1.0], [0.0, 1.0]), "'edges' must be"),
        (level_state([], []), "must have values that increase"),
        (level_state([1.0, 1.0], [0.0]), "must have values that increase"),
        (level_state([2.0, 1.0], [0.0]), "must have values that increase"),
        (level_state([1.0, 2.0, 3.0], [1.0, 0.0]), "as their scores do"),
        (level_state([1.0, math.nan], [0.0]), "must be finite"),
        (level_state([1.0, 2.0], [math.inf]), "must be finite"),
        (State(facts={"kinds": ["Levels"]}), "part '0' is missing"),
        (State(facts={"kinds": ["Levels"]}, parts={"0": State()}), "tensor 'values' is missing"),
        (State(facts={"kinds": ["Integers", None]}, parts={"0": State(), "1": State()}), "must have 1 components"),
        (State(facts={"kinds": [["Levels"]]}, parts={"0": State()}), "lie on Integers, Levels or neither"),
        (State(facts={"kinds": "Levels"}), "must be of type list"),
    ],
)
def test_states_that_are_no_lattices_are_refused(state, message):
    with pytest.raises(ValueError, match=message):
        Lattice.from_state(state, 1)
