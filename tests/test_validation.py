"""Messages name the argument, what was expected, what came, and the remedy."""

import numpy as np
import pytest
import torch

from ncprob._validation import (
    as_float_tensor,
    check_choice,
    check_integer,
    check_number,
    check_probabilities,
)

OPTIONS = ("none", "centering", "whitening")


def test_good_values_pass():
    assert check_choice("none", "kind", OPTIONS) == "none"
    assert check_integer(np.int64(3), "rank", minimum=1) == 3
    assert check_number(np.float32(0.5), "gamma", minimum=0) == 0.5
    assert check_number(0, "gamma", minimum=0) == 0.0
    assert check_probabilities(0.5, "alpha").shape == ()
    assert check_probabilities(np.array([0.1, 0.9]), "alpha").tolist() == [0.1, 0.9]
    assert as_float_tensor([1, 2], "t").dtype == torch.float64


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "whitning",
            r"`kind` must be one of 'none', 'centering', 'whitening'; got 'whitning'\. Did you mean 'whitening'",
        ),
        ("zzz", "got 'zzz'. Choose one of these"),
        (None, "got None"),
        (3, "got 3"),
        (["none"], "got .'none'."),
    ],
)
def test_unknown_options(value, message):
    with pytest.raises(ValueError, match=message):
        check_choice(value, "kind", OPTIONS)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, "`rank` must be at least 1; got 0. Raise `rank`"),
        (-3, ValueError, "at least 1; got -3"),
        (2.0, TypeError, "`rank` must be an integer; got 2.0 of type float. Pass an int"),
        (True, TypeError, "got True of type bool"),
        ("2", TypeError, "got '2' of type str"),
        (None, TypeError, "got None"),
    ],
)
def test_bad_integers(value, error, message):
    with pytest.raises(error, match=message):
        check_integer(value, "rank", minimum=1)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (-1e-9, ValueError, r"`gamma` must lie in \[0, 1\]; got -1e-09\. Choose a value inside"),
        (1.5, ValueError, "got 1.5"),
        (float("nan"), ValueError, "got nan"),
        (False, TypeError, "`gamma` must be a number; got False of type bool. Pass a float"),
        ("0.1", TypeError, "got '0.1' of type str"),
    ],
)
def test_bad_numbers(value, error, message):
    with pytest.raises(error, match=message):
        check_number(value, "gamma", minimum=0, maximum=1)


def test_open_ends_exclude_the_bounds():
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\); got 0"):
        check_number(0, "rate", minimum=0, maximum=1, open_ends=True)
    with pytest.raises(ValueError, match=r"must lie in \(0, inf\); got inf"):
        check_number(float("inf"), "rate", minimum=0, open_ends=True)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, "`alpha` must lie strictly between 0 and 1; got 0. Write 90 % as 0.9"),
        (1, ValueError, "got 1"),
        (90, ValueError, "got 90"),
        ([0.5, -0.1], ValueError, "got -0.1"),
        ([0.5, float("nan")], ValueError, "`alpha` must not hold NaN; got 1 of them. Remove"),
        ([], ValueError, "at least one level; got none"),
        ([[0.5]], ValueError, r"a number or a list of numbers; got shape \(1, 1\)\. Flatten"),
        ("median", TypeError, "`alpha` must be numeric; got str. Pass a number"),
        (None, TypeError, "`alpha` must be numeric; got NoneType"),
        ([0.1, [0.2]], TypeError, "`alpha` must be numeric; got list"),
    ],
)
def test_bad_probabilities(value, error, message):
    with pytest.raises(error, match=message):
        check_probabilities(value, "alpha")
