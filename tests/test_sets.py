"""Boxes and masks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob import Box
from ncprob.sets import membership

INF = float("inf")
POINTS = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.5, 2.0], [-1.0, 0.5]], dtype=torch.float64)


def mask_of(region, points=POINTS):
    return membership(region, points, "B", lambda tensor: tensor.numpy()).tolist()


def test_boxes_are_open_below_and_closed_above():
    assert Box(0, 1).contains(torch.tensor([[0.0], [0.5], [1.0], [1.5]])).tolist() == [False, True, True, False]


def test_infinite_sides_are_open():
    assert Box([-INF, 0], [INF, INF]).contains(POINTS).tolist() == [False, True, True, True]
    assert Box(-INF, INF).contains(torch.tensor([[1e300]])).tolist() == [True]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.floats(-5, 5))
def test_neighbouring_boxes_share_no_point_and_cover_the_line(values, cut):
    points = torch.tensor(values, dtype=torch.float64)[:, None]
    assert bool((Box(-INF, cut).contains(points) ^ Box(cut, INF).contains(points)).all())


def test_three_ways_to_name_a_set():
    expected = [False, True, False, False]
    assert mask_of(Box([0, 0], [1, 1])) == expected
    assert mask_of(([0, 0], [1, 1])) == expected
    assert mask_of(lambda y: ((y > 0) & (y <= 1)).all(axis=1)) == expected
    assert mask_of(lambda y: y[:, :1] > 0.7) == expected  # one column of booleans will do


def test_dimension():
    assert Box(0, 1).dimension == 1
    assert Box([0, 0, 0], [1, 1, 1]).dimension == 3


@pytest.mark.parametrize(
    ("low", "high", "error", "message"),
    [
        (1, 0, ValueError, r"`low` must be below `high` in every coordinate; got (.*) and (.*)\. Swap"),
        (1, 1, ValueError, "`low` must be below `high`"),
        ([0, 2], [1, 1], ValueError, "`low` must be below `high`"),
        ([0, 0], [1], ValueError, r"one length; got shapes \(2,\) and \(1,\)\. Give one bound per coordinate"),
        ([[0]], [[1]], ValueError, "numbers or lists of one length"),
        (float("nan"), 1, ValueError, "`low` must not hold NaN"),
        ("a", 1, TypeError, "`low` must be numeric; got str"),
        (0, None, TypeError, "`high` must be numeric"),
    ],
)
def test_bad_boxes_are_rejected_when_made(low, high, error, message):
    with pytest.raises(error, match=message):
        Box(low, high)


@pytest.mark.parametrize(
    ("region", "error", "message"),
    [
        (Box(0, 1), ValueError, "`B` must have 2 coordinates, as the data; got 1. Give one bound per coordinate"),
        ((0, 1), ValueError, "`B` must have 2 coordinates"),
        ([0, 1], TypeError, r"`B` must be a \(low, high\) tuple, a Box or a callable .* got list"),
        ("y > 0", TypeError, "got str"),
        (lambda y: y > 0, ValueError, r"one boolean per row, shape \(4,\); got torch.bool of shape \(4, 2\)\. Reduce"),
        (lambda y: y[:, 0], ValueError, r"one boolean per row.*got torch.float64"),
        (lambda y: y[:2, 0] > 0, ValueError, r"of shape \(2,\)"),
    ],
)
def test_bad_sets_are_rejected(region, error, message):
    with pytest.raises(error, match=message):
        mask_of(region)
