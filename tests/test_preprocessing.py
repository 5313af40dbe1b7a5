"""Scaling is equivariant and robust; normal scores are monotone, whatever the tails."""

import math

import pytest
import torch
from helpers import generator, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob.preprocessing import (
    MARGIN,
    MAX_CORE,
    MAX_KNOTS,
    InputScaler,
    NormalScores,
    SoftScale,
    robust_center_and_scale,
)

columns = st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=40)


def column(values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def cauchy(n, seed=0):
    return torch.tan(torch.pi * (torch.rand(n, 1, generator=generator(seed), dtype=torch.float64) - 0.5))


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 1.0, 1e12])
@pytest.mark.parametrize("shift", [0.0, -3.0, 1e3])
def test_center_and_scale_follow_shift_and_scale(factor, shift):
    x = normal(501, 2, seed=0)
    center, scale = robust_center_and_scale(x)
    moved_center, moved_scale = robust_center_and_scale(factor * (x + shift))
    torch.testing.assert_close(moved_center, factor * (center + shift), atol=0, rtol=1e-9)
    torch.testing.assert_close(moved_scale, factor * scale, atol=0, rtol=1e-9)


@pytest.mark.parametrize(("factor", "shift", "atol"), [(1e12, 0.0, 1e-6), (1e-12, 0.0, 1e-6), (1.0, 1e12, 1e-2)])
@pytest.mark.parametrize("kind", [InputScaler, SoftScale, NormalScores])
def test_scaled_values_do_not_see_shift_and_scale(kind, factor, shift, atol):
    """A shift of 10¹² leaves four digits of float64; values that become ties move by half a rank, ½/301."""
    x = normal(301, 2, seed=1)
    moved = factor * x + shift
    torch.testing.assert_close(kind.fit(moved)(moved), kind.fit(x)(x), atol=atol, rtol=0)


def test_scale_of_a_normal_sample_is_its_standard_deviation():
    """The IQR/1.349 of n normal values has standard error 1.17/√n: 0.012 for n = 10,000. Four of them; median
    1.25/√n."""
    center, scale = robust_center_and_scale(3 * normal(10_000, 1, seed=2) + 7)
    assert scale.item() == pytest.approx(3, abs=3 * 0.05)
    assert center.item() == pytest.approx(7, abs=3 * 0.05)


@pytest.mark.parametrize("outlier", [1e6, 1e15, 1e300])
def test_outliers_do_not_set_the_scale(outlier):
    """A tenth of the rows replaced by one value moves the quartiles to 28 and 83 %: the scale grows by 15 %."""
    x = normal(1001, 1, seed=3)
    clean_center, clean_scale = robust_center_and_scale(x)
    x[:100] = outlier
    center, scale = robust_center_and_scale(x)
    assert scale / clean_scale < 1.4
    assert (center - clean_center).abs() < 0.3
    for kind in (InputScaler, SoftScale):
        fitted = kind.fit(x)
        assert fitted(x)[100:].std() > 0.5  # ordinary rows keep their spread
        assert fitted.core <= MAX_CORE


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0] * 9, 1.0),  # constant: nothing to scale
        ([0.0] * 9 + [10.0], 3.0),  # no interquartile range: the standard deviation
        ([1e200] * 9 + [-1e200], 6e199),  # the same without overflow
        ([0.3] * 3 + [0.1 + 0.2] * 6 + [10.3], 3.0),  # quartiles one ulp apart: rounding is no spread
    ],
)
def test_degenerate_columns_have_a_positive_finite_scale(values, expected):
    _, scale = robust_center_and_scale(column(values))
    assert scale.item() == pytest.approx(expected)


def scaler(kind, center=0.0, scale=1.0, core=3.0, seen=(-1e301, 1e301)):
    """A scaler of one column from its numbers; a scale of Y has seen nearly everything unless told otherwise."""
    numbers = (center, scale, core, *(seen if kind is SoftScale else ()))
    return kind(*(torch.tensor([number], dtype=torch.float64) for number in numbers))


@settings(max_examples=60, deadline=None)
@given(columns, columns)
def test_scaled_inputs_are_bounded_and_monotone(values, queries):
    scaled = InputScaler.fit(column(values))(column(sorted(queries)))
    assert (scaled.abs() <= MAX_CORE + MARGIN).all()
    assert (scaled.diff(dim=0) >= 0).all()


@pytest.mark.parametrize("size", [1.0, 1e-200])
def test_inputs_are_linear_in_the_core_and_bounded_beyond(size):
    fitted = scaler(InputScaler, scale=size, core=3.0)
    z = torch.linspace(-3, 3, 61, dtype=torch.float64)[:, None]
    torch.testing.assert_close(fitted(size * z), z.float(), atol=1e-6, rtol=0)
    beyond = fitted(size * column([3.5, -5.0])).ravel().double()
    expected = torch.tensor([math.asinh(0.5), -math.asinh(2.0)], dtype=torch.float64)
    expected = 10 * torch.tanh(expected / 10) + torch.tensor([3.0, -3.0])
    torch.testing.assert_close(beyond, expected, atol=1e-6, rtol=0)
    extreme = fitted(column([-1e300, -1e9, 1e9, 1e300])).ravel()
    assert (extreme.sign() == torch.tensor([-1.0, -1.0, 1.0, 1.0])).all()
    assert ((extreme.abs() > 12.6) & (extreme.abs() <= 3 + MARGIN)).all()


def test_inputs_with_heavy_tails_keep_their_order_of_magnitude():
    """Each tenfold input beyond the core is at least half a unit further out, up to a thousand scales."""
    fitted = scaler(InputScaler, core=3.0)
    steps = fitted(column([3.0, 10.0, 100.0, 1000.0])).diff(dim=0)
    assert (steps > 0.5).all()


@pytest.mark.parametrize("kind", [InputScaler, SoftScale])
@pytest.mark.parametrize(
    ("law", "core"),
    [
        (lambda n: normal(n, 1, seed=6), 2.576),  # the 99 % point of |Z|
        (lambda n: torch.linspace(-1, 1, n, dtype=torch.float64)[:, None], 1.336),  # 0.99/(1/1.349)
        (cauchy, MAX_CORE),
        (lambda n: torch.ones(n, 1, dtype=torch.float64), 1.0),
        (lambda n: normal(n, 1, seed=7).clamp(-0.7, 0.7), 1.0),
    ],
    ids=["normal", "uniform", "heavy tails", "constant", "short tails"],
)
def test_the_core_holds_99_percent_of_the_rows_within_limits(kind, law, core):
    """The 99 % point of 20,001 rows has standard error √(0.01·0.99/n)/density = 0.025 for the normal law; four of
    them."""
    values = law(20_001)
    fitted = kind.fit(values)
    assert fitted.core.item() == pytest.approx(core, abs=0.1)
    z = (values - fitted.center) / fitted.scale
    inside = z.abs() <= fitted.core
    if core < MAX_CORE:
        assert inside.double().mean() >= 0.99 - 1e-4
    torch.testing.assert_close(fitted(values)[inside].double(), z[inside], atol=1e-6, rtol=0)


rounded = st.lists(st.floats(-1e300, 1e300).map(lambda value: round(value, 3)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(rounded, rounded)
def test_soft_scale_is_monotone_and_has_an_inverse(values, queries):
    """Digits are lost to the size of what is subtracted: centre and scale."""
    soft, y = SoftScale.fit(column(values)), column(sorted(queries))
    scaled = soft(y)
    assert torch.isfinite(scaled).all()
    assert (scaled.diff(dim=0) >= 0).all()
    rounding = 1e-12 * (y.abs() + soft.center.abs() + soft.scale)
    assert ((soft.inverse(scaled) - y).abs() <= rounding).all()
    torch.testing.assert_close(soft.inverse(scaled), soft.center + soft.from_center(scaled), rtol=0, atol=0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=20))
def test_soft_scale_is_the_inverse_of_its_inverse(values):
    soft, z = scaler(SoftScale, center=-2.0, scale=0.01, core=1.5), column(values)
    torch.testing.assert_close(soft(soft.inverse(z)), z, atol=1e-9, rtol=1e-9)


def test_soft_scale_is_logarithmic_in_the_tails():
    soft = scaler(SoftScale, center=1.0, scale=2.0, core=3.0)
    z = column([-3.0, -1.0, 0.0, 3.0])
    torch.testing.assert_close(soft(1 + 2 * z), z)
    beyond = column([0.5, 10.0, 1e6, 1e300])
    torch.testing.assert_close(soft(1 + 2 * (3 + beyond)), 3 + beyond.log1p())
    torch.testing.assert_close(soft(1 - 2 * (3 + beyond)), -3 - beyond.log1p())


def test_soft_scale_is_smooth_where_the_core_ends():
    """Value and slope go on: differences left and right of c are equal to second order."""
    soft, step = scaler(SoftScale, core=2.0), 1e-4
    left, right = soft(column([2 - step, 2.0, 2 + step])).diff(dim=0).ravel().tolist()
    assert left == pytest.approx(step, rel=1e-9)
    assert right == pytest.approx(step, rel=1e-4)


@pytest.mark.parametrize("side", [-1, 1])
def test_beyond_what_it_has_seen_soft_scale_is_nearly_straight(side):
    """From 10 on, in the logarithmic tail, where a unit of z is 8 scales: ten more are 10 · 8 · (e − 1)."""
    soft = scaler(SoftScale, center=5.0, scale=2.0, core=3.0, seen=(-10.0, 10.0))
    edge = 3 + math.log1p(7.0)
    z = side * column([edge, edge + 0.01, edge + 10])
    expected = 10 + 80 * torch.tensor([0.0, math.expm1(0.001), math.e - 1], dtype=torch.float64)
    torch.testing.assert_close(soft.inverse(z).ravel(), 5 + 2 * side * expected)
    torch.testing.assert_close(soft(soft.inverse(z)), z)


def test_a_light_tail_beyond_what_was_seen_stays_straight():
    """Values seen end inside the core: no logarithm is ever met, though it begins at 3 on the other side."""
    soft = scaler(SoftScale, core=3.0, seen=(-1.0, 50.0))
    assert soft(column([-1.5])).item() == pytest.approx(-1.5, rel=0.03)
    assert soft.inverse(column([-6.0])).item() == pytest.approx(-1 - 10 * math.expm1(0.5))


def test_what_was_seen_does_not_move_what_lies_inside():
    y = cauchy(500)
    soft = SoftScale.fit(y)
    everything = scaler(SoftScale, *(part.item() for part in (soft.center, soft.scale, soft.core)))
    assert torch.equal(soft(y), everything(y))


def test_spreads_keep_their_digits_far_from_zero():
    soft = scaler(SoftScale, center=1e15, scale=1e-3)
    z = column([-1.5, 0.25, 7.0])
    expected = 1e-3 * torch.tensor([-1.5, 0.25, 3 + math.expm1(4.0)], dtype=torch.float64)
    torch.testing.assert_close(soft.from_center(z).ravel(), expected, rtol=1e-12, atol=0)


def test_soft_scale_of_batches_acts_on_the_last_axis():
    y = normal(4, 5, 3, seed=8) * torch.tensor([1.0, 1e6, 1e-6])
    soft = SoftScale.fit(y.flatten(0, 1))
    torch.testing.assert_close(soft(y), soft(y.flatten(0, 1)).reshape(4, 5, 3))
    torch.testing.assert_close(soft.inverse(soft(y)), y, rtol=1e-9, atol=1e-12)


def test_heavy_tails_come_within_reach():
    y = cauchy(20_000) ** 3
    z = SoftScale.fit(y)(y)
    assert y.abs().max() > 1e9
    assert z.abs().max() < 40


@settings(max_examples=60, deadline=None)
@given(columns, columns)
def test_normal_scores_are_monotone_and_finite(values, queries):
    scores = NormalScores.fit(column(values))(column(sorted(values + queries)))
    assert torch.isfinite(scores).all()
    assert (scores.diff(dim=0) >= 0).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=60))
def test_ties_share_the_middle_of_their_ranks(values):
    y = column([float(value) for value in values])
    scores = NormalScores.fit(y)(y).ravel()
    for value in set(values):
        tied = y.ravel() == value
        below = (y < value).sum()
        level = (below + tied.sum() / 2) / len(y)
        expected = torch.special.ndtri(level.double())
        torch.testing.assert_close(scores[tied].double(), expected.expand(int(tied.sum())), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("n", [10, MAX_KNOTS, 5000])
@pytest.mark.parametrize("map_", [lambda t: t, torch.exp, lambda t: t**3, lambda t: torch.sign(t) * t.abs() ** 21])
def test_scores_of_a_sample_are_normal_whatever_its_law(n, map_):
    """Scores depend on ranks alone at the knots; between them they err by at most one step, and half a cell at
    the ends."""
    y = map_(normal(n, 1, seed=4))
    scores = NormalScores.fit(y)(y).ravel().double().sort().values
    levels = torch.special.ndtr(scores)
    ideal = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    torch.testing.assert_close(levels, ideal, atol=1e-6 if n <= MAX_KNOTS else 2 / MAX_KNOTS, rtol=0)


def test_heavy_tails_stay_within_the_reach_of_a_normal_sample():
    y = cauchy(20_000) ** 3
    assert y.abs().max() > 1e9
    scores = NormalScores.fit(y)(torch.cat([y, column([-1e308, 1e308])]))
    assert scores.abs().max() < 4
    assert scores[:-2].std().item() == pytest.approx(1, abs=0.01)


def test_columns_are_scaled_on_their_own():
    y = normal(50, 3, seed=5) * torch.tensor([1.0, 1e6, 1e-6])
    scores = NormalScores.fit(y)(y)
    for k in range(3):
        torch.testing.assert_close(scores[:, k : k + 1], NormalScores.fit(y[:, k : k + 1])(y[:, k : k + 1]))
