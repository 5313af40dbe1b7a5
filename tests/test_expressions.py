"""Conditions in words: what they mean, and that nothing else gets through."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncprob.expressions import Condition

ROOMS = np.array([3.0, 5.0, 7.0, 9.0])
AGE = np.array([10.0, 30.0, 0.0, 20.0])
KIND = np.array(["flat", "house", "flat", "it's"], dtype=object)
COLUMNS = {"rooms": ROOMS, "age": AGE, "kind": KIND, "year built": 2020 - AGE, "naïve": ROOMS, "class": AGE}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rooms > 6", ROOMS > 6),
        ("rooms > 6 and age < 20", (ROOMS > 6) & (AGE < 20)),
        ("rooms > 6 or age == 30 and rooms < 4", (ROOMS > 6) | ((AGE == 30) & (ROOMS < 4))),
        ("(rooms > 6 or age == 30) and rooms < 6", ((ROOMS > 6) | (AGE == 30)) & (ROOMS < 6)),
        ("not rooms > 6", ROOMS <= 6),
        ("3 < rooms <= 7 != 5", (ROOMS > 3) & (ROOMS <= 7)),
        ("rooms * 2 - age / 10 + 1 >= 10", ROOMS * 2 - AGE / 10 + 1 >= 10),
        ("-rooms < -6", ROOMS > 6),
        ("rooms != 3", ROOMS != 3),
        ("kind == 'flat'", KIND == "flat"),
        ('kind != "flat"', KIND != "flat"),
        ("'flat' == kind", KIND == "flat"),
        ('kind == "it\'s"', KIND == "it's"),
        ("kind in ('flat', 'house')", np.isin(KIND.astype(str), ["flat", "house"])),
        ("kind not in ['flat']", KIND != "flat"),
        ("rooms in (3, 9)", np.isin(ROOMS, [3, 9])),
        ("`year built` >= 2000", AGE <= 20),
        ("`class` > 5 and `rooms` > 5", (AGE > 5) & (ROOMS > 5)),
        ("naïve > 4", ROOMS > 4),
        ("rooms > 1e1 / 2", ROOMS > 5),
        ("rooms / age > 1", ROOMS / np.where(AGE == 0, 1e-300, AGE) > 1),
        ("1 < 2", np.ones(4, dtype=bool)),
    ],
)
def test_meaning(text, expected):
    found = Condition.parse(text)(COLUMNS)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "not allowed at .__import__"),
        ("rooms.real > 1", "not allowed at 'rooms.real"),
        ("rooms[0] > 1", "not allowed"),
        ("(lambda: 1)() > 1", "not allowed"),
        ("[r for r in rooms] > 1", "not allowed"),
        ("rooms ** 9 > 1", "not allowed at 'rooms \\*\\* 9"),
        ("rooms // 2 > 1", "not allowed"),
        ("rooms > 1 if age > 1 else 2", "not allowed"),
        ("rooms > (x := 3)", "not allowed"),
        ("rooms & age", "not allowed"),
        ("~rooms > 1", "not allowed"),
        ("rooms is 3", "not allowed"),
        ("f'{rooms}' == kind", "not allowed"),
        ("rooms > True", "not allowed at 'True'"),
        ("rooms > 1j", "not allowed"),
        ("rooms == None", "not allowed"),
        ("rooms > ", "cannot be read at its end"),
        ("rooms 3", r"cannot be read at '3' \(character 7\)"),
        ("rooms = 3", "Use == to compare"),
        ("rooms > 3; age", "cannot be read"),
        ("rooms >\n3 and\nage", "cannot be read"),
        ("", "1 to 10000 characters"),
        ("rooms" * 5000, "1 to 10000 characters"),
        ("rooms", "must be a condition; it is a number"),
        ("kind", "it is a text"),
        ("rooms + (age > 3)", "a number is expected, but there is a condition at 'age > 3"),
        ("rooms and age", "a condition is expected, but there is a number at 'rooms and"),
        ("kind > 'a'", "text has no order"),
        ("kind == 3", "a text is compared with a number"),
        ("`year built` > 'a'", "a number is compared with a text at .`year built`"),
        ("kind + 'a' == 'b'", "a number is expected, but there is a text"),
        ("kind == 'hose'", "no value 'hose' in this column at \"'hose'\".*Did you mean 'house'"),
        ("kind in ('flat', 'hose')", "Did you mean 'house'"),
        ("kind in 'flat'", "a list is expected"),
        ("room > 3", "there is no column 'room'.*Did you mean 'rooms'"),
        ("`a b` > 3", "there is no column 'a b'"),
        (f"rooms > {10**400}", "too large"),
        ("naïve > 3 and `year built` > 'a'", r"at .`year built` > 'a'. \(character 15\)"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Condition.parse(text)(COLUMNS)


@pytest.mark.parametrize("text", ["(" * 300 + "rooms", "not " * 2400 + "rooms > 1", "-" * 9000 + "1 < rooms"])
def test_deep_conditions_end_in_an_error(text):
    with pytest.raises(ValueError, match=r"cannot be read|levels|Write it shorter"):
        Condition.parse(text)(COLUMNS)


@given(st.text(alphabet="roms age kind`'\"()[]<>=!+-*/.0123456789andornt:;,_{}@#%^&|~\\", max_size=40))
def test_any_text_gives_a_condition_or_a_value_error(text):
    try:
        found = Condition.parse(text)(COLUMNS)
    except ValueError:
        return
    assert found.shape == (4,)


def numbers(depth):
    """Text of a number and its value in every row."""
    leaves = st.one_of(
        st.sampled_from([("rooms", ROOMS), ("age", AGE), ("`year built`", 2020 - AGE)]),
        st.integers(0, 20).map(lambda k: (str(k), np.full(4, float(k)))),
    )
    if depth == 0:
        return leaves
    joined = st.tuples(st.sampled_from("+-*"), numbers(depth - 1), numbers(depth - 1)).map(
        lambda o: (
            f"({o[1][0]} {o[0]} {o[2][0]})",
            {"+": np.add, "-": np.subtract, "*": np.multiply}[o[0]](o[1][1], o[2][1]),
        )
    )
    return st.one_of(leaves, joined)


ORDERS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def conditions(depth):
    """Text of a condition and the rows that meet it."""
    compared = st.tuples(st.sampled_from(sorted(ORDERS)), numbers(2), numbers(2)).map(
        lambda c: (f"{c[1][0]} {c[0]} {c[2][0]}", ORDERS[c[0]](c[1][1], c[2][1]))
    )
    named = st.sampled_from(["flat", "house"]).map(lambda kind: (f"kind == '{kind}'", kind == KIND))
    if depth == 0:
        return st.one_of(compared, named)
    inner = conditions(depth - 1)
    return st.one_of(
        compared,
        inner.map(lambda c: (f"not ({c[0]})", ~c[1])),
        st.tuples(inner, inner).map(lambda c: (f"({c[0][0]}) and ({c[1][0]})", c[0][1] & c[1][1])),
        st.tuples(inner, inner).map(lambda c: (f"({c[0][0]}) or ({c[1][0]})", c[0][1] | c[1][1])),
    )


@given(conditions(3))
def test_any_condition_means_what_it_says(condition):
    text, expected = condition
    np.testing.assert_array_equal(Condition.parse(text)(COLUMNS), expected)


def test_odd_letters():
    with pytest.raises(ValueError, match="the letter ʘ is not allowed"):
        Condition.parse("ʘ9 > 1")
    assert Condition.parse("\u00b5 > 1")({"\u00b5": np.array([1.0, 2.0])}).tolist() == [False, True]
