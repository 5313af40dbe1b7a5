"""Increasing maps: inverse of each other, monotone, the same alone or among others, and exact far from zero."""

import pytest
import torch
from helpers import affine, generator, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob.preprocessing import LARGEST
from ncprob.transport import Transport

fixed = settings(max_examples=50, deadline=None, derandomize=True)


def increasing(*shape, least, seed):
    """Strictly increasing along the last axis, with gaps between `least` and 100 times as much."""
    gaps = least * 100 ** torch.rand(*shape, generator=generator(seed), dtype=torch.float64)
    return gaps.cumsum(dim=-1) - gaps.sum(dim=-1, keepdim=True) / 2


@st.composite
def maps(draw):
    """Maps of n members and q components with k knots."""
    n, q, k, seed = (draw(st.integers(*ends)) for ends in ((1, 4), (1, 3), (2, 12), (0, 10**6)))
    anchor = 100 * normal(n, q, seed=seed)
    return Transport(increasing(k, least=0.05, seed=seed + 1), anchor, increasing(n, q, k, least=0.1, seed=seed + 2))


def points_around(map_, n_points=40, rows=1, reach=3.0):
    """Increasing points from far below the first knot to far above the last one, the knots among them."""
    low, high = map_.knots[0], map_.knots[-1]
    width = high - low
    even = torch.linspace(float(low - reach * width), float(high + reach * width), n_points, dtype=torch.float64)
    points = torch.cat([even, map_.knots]).sort().values
    return points.expand(rows, map_.anchor.shape[1], -1)


@fixed
@given(maps())
def test_from_base_and_to_base_are_inverse(map_):
    base = points_around(map_, rows=len(map_.anchor))
    # y ≤ 10⁴ is rounded to 10⁻¹²; the flattest piece has slope 0.1/5
    torch.testing.assert_close(map_.to_base(map_.from_base(base)), base, atol=1e-8, rtol=0)
    values = map_.from_base(base)
    torch.testing.assert_close(map_.from_base(map_.to_base(values)), values, atol=1e-8, rtol=1e-12)


@fixed
@given(maps())
def test_both_directions_are_increasing(map_):
    values = map_.from_base(points_around(map_, rows=len(map_.anchor)).unique(dim=-1))
    assert (values.diff(dim=-1) > 0).all()
    assert (map_.to_base(values).diff(dim=-1) > 0).all()


@fixed
@given(maps())
def test_the_table_is_met_at_the_knots_and_straight_between_them(map_):
    n, q = map_.anchor.shape
    knots = map_.knots.expand(n, q, -1)
    torch.testing.assert_close(map_.offsets_at(knots), map_.offsets)
    torch.testing.assert_close(map_.from_base(knots), map_.anchor[..., None] + map_.offsets)
    middles = (knots[..., 1:] + knots[..., :-1]) / 2
    torch.testing.assert_close(map_.offsets_at(middles), (map_.offsets[..., 1:] + map_.offsets[..., :-1]) / 2)


@fixed
@given(maps())
def test_beyond_the_outer_knots_the_last_piece_goes_on(map_):
    n, q = map_.anchor.shape
    step = torch.tensor([0.5, 7.0], dtype=torch.float64)
    slopes = map_.offsets.diff(dim=-1) / map_.knots.diff()
    below = map_.offsets_at((map_.knots[0] - step).expand(n, q, -1))
    above = map_.offsets_at((map_.knots[-1] + step).expand(n, q, -1))
    torch.testing.assert_close(below, map_.offsets[..., :1] - slopes[..., :1] * step)
    torch.testing.assert_close(above, map_.offsets[..., -1:] + slopes[..., -1:] * step)


@fixed
@given(maps(), st.integers(1, 30))
def test_shared_points_and_own_points_give_the_same_bits(map_, n_points):
    shared = points_around(map_, n_points)
    own = shared.expand(len(map_.anchor), -1, -1)
    assert torch.equal(map_.from_base(shared), map_.from_base(own))
    assert torch.equal(map_.offsets_at(shared), map_.offsets_at(own))
    for j in range(shared.shape[2]):  # a point alone or among others
        assert torch.equal(map_.from_base(shared[..., j : j + 1]), map_.from_base(own)[..., j : j + 1])
    values = map_.from_base(own)[:1]
    assert torch.equal(map_.to_base(values), map_.to_base(values.expand(len(own), -1, -1)))


@fixed
@given(maps())
def test_rows_and_components_are_the_maps_they_name(map_):
    base = points_around(map_, rows=len(map_.anchor))
    values, slopes = map_.from_base(base), map_.slope(base)
    for rows in ([0], slice(None, None, 2), torch.arange(len(base)).flip(0), torch.arange(len(base)) % 2 == 0):
        assert torch.equal(map_[rows].from_base(base[rows]), values[rows])
        assert torch.equal(map_[rows].to_base(values[rows]), map_.to_base(values)[rows])
    for k in range(base.shape[1]):
        one = slice(k, k + 1)
        assert torch.equal(map_.component(k).from_base(base[:, one]), values[:, one])
        assert torch.equal(map_.component(k).to_base(values[:, one]), map_.to_base(values)[:, one])
        assert torch.equal(map_.component(k).slope(base[:, one]), slopes[:, one])


def test_affine_map_by_its_formula():
    location, scale = normal(4, 2, seed=0), normal(4, 2, seed=1).exp()
    map_, base = affine(location, scale), normal(4, 2, 9, seed=2).mul(5)
    torch.testing.assert_close(map_.from_base(base), location[..., None] + scale[..., None] * base)
    torch.testing.assert_close(map_.to_base(base), (base - location[..., None]) / scale[..., None])
    torch.testing.assert_close(map_.slope(base), scale[..., None].expand_as(base), rtol=1e-15, atol=0)


@fixed
@given(st.integers(2, 20), st.integers(0, 10**6))
def test_slope_integrates_to_the_increment_on_even_knots(k, seed):
    """Central differences and the trapezoidal rule telescope: d₀/2 + Σ (dᵢ₋₁ + dᵢ)/2 + d₋₁/2 = Σ dᵢ."""
    knots = torch.linspace(-2, 3, k, dtype=torch.float64)
    map_ = Transport(knots, normal(3, 2, seed=seed), increasing(3, 2, k, least=0.1, seed=seed))
    slopes = map_.slope(knots.expand(3, 2, -1))
    assert (slopes > 0).all()
    torch.testing.assert_close(
        torch.trapezoid(slopes, knots), map_.offsets[..., -1] - map_.offsets[..., 0], rtol=1e-12, atol=0
    )


def test_slope_is_the_derivative_of_a_smooth_map():
    """h = exp on 200 uneven knots over ±3: a difference over one step errs by at most the step times h''."""
    knots = increasing(200, least=0.01, seed=0)
    knots = 3 * knots / knots.abs().max()
    map_ = Transport(knots, torch.zeros(1, 1, dtype=torch.float64), knots.exp()[None, None])
    base = torch.linspace(-2.9, 2.9, 301, dtype=torch.float64)[None, None]
    torch.testing.assert_close(map_.slope(base), base.exp(), rtol=float(knots.diff().max()), atol=0)
    integral = torch.trapezoid(map_.slope(base), base)
    assert integral.item() == pytest.approx((base[..., -1].exp() - base[..., 0].exp()).item(), rel=0.01)


def test_slope_is_continuous_and_constant_beyond_the_outer_knots():
    map_ = Transport(
        torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64),
        torch.zeros(1, 1, dtype=torch.float64),
        torch.tensor([[[-3.0, 0.0, 1.0]]], dtype=torch.float64),
    )
    base = torch.tensor([[[-9.0, -1.0, -0.5, 0.0, 1.0, 2.0, 9.0]]], dtype=torch.float64)
    middle = 4 / 3  # (1 + 3)/(2 + 1)
    expected = [3, 3, (3 + middle) / 2, middle, (middle + 0.5) / 2, 0.5, 0.5]
    torch.testing.assert_close(map_.slope(base)[0, 0], torch.tensor(expected, dtype=torch.float64))


def test_offsets_keep_their_digits_far_from_zero():
    """At 10¹⁵ values of float64 lie 1/8 apart; spreads of 10⁻³ live in the offsets alone."""
    location, scale = torch.tensor([[[1e15]], [[1e-3]]], dtype=torch.float64)
    map_ = affine(location, scale)
    base = torch.tensor([[[-2.0, 0.5, 3.0]]], dtype=torch.float64)
    torch.testing.assert_close(map_.offsets_at(base), 1e-3 * base, rtol=1e-12, atol=0)
    torch.testing.assert_close(map_.slope(base), torch.full_like(base, 1e-3), rtol=1e-12, atol=0)
    assert map_.from_base(base).eq(1e15).all()


@pytest.mark.parametrize("members", [1, 2])
def test_atoms_however_far_out_have_values_whose_squares_are_numbers(members):
    map_ = affine(torch.zeros(2, 1, 1, dtype=torch.float64)[:, 0], torch.full((2, 1), 1e140, dtype=torch.float64))
    base = torch.tensor([-1e15, 0.0, 2.0, 1e15], dtype=torch.float64).expand(members, 1, -1)
    expected = torch.tensor([-LARGEST, 0.0, 2e140, LARGEST], dtype=torch.float64)
    torch.testing.assert_close(map_.from_base(base), expected.expand(2, 1, -1))


def test_where_an_outer_piece_is_flat_values_are_before_or_behind_it():
    """Offsets of values that lie close together are equal where the anchor is 10⁴⁰: 0/0 is no score."""
    for flat, side in (([-1e40, -1e40, 0.0, 1.0], -1), ([-1.0, 0.0, 1e40, 1e40], 1)):
        map_ = Transport(
            torch.arange(4.0, dtype=torch.float64),
            torch.tensor([[1e40]], dtype=torch.float64),
            torch.tensor([[flat]], dtype=torch.float64),
        )
        at, beyond = map_.to_base(1e40 * (1 + side * torch.tensor([[[1.0, 1.5]]], dtype=torch.float64)))[0, 0]
        assert at in ((0.0,) if side < 0 else (2.0,))
        assert side * beyond > 1e100
