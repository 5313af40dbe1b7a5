"""Conditions on columns written as text, such as `rooms > 6 and age < 20`; parsed, never executed.

Python's parser gives the tree; only comparisons, `and`, `or`, `not`, `in`, + − * /, names, numbers and quoted text are
let through. Names that are not plain words stand in back quotes: `` `year built` >= 1990 ``.
"""

from __future__ import annotations

import ast
import difflib
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 10_000  # characters
ALLOWED = "comparisons, and, or, not, in, + - * /, names, numbers and quoted text"
MARK = "ʘ"  # begins the stand-ins of back-quoted names: a letter that no column name is likely to begin with

ORDER: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
EQUALITY: dict[type, Callable[[Any, Any], Any]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
SYMBOLS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


@dataclass(frozen=True)
class Value:
    """A column, a constant or the result of an operation: a `number`, `text` or a `condition`."""

    kind: str
    data: Any


@dataclass(frozen=True)
class Condition:
    """A condition on columns, read from text.

    Examples
    --------
    >>> columns = {"rooms": np.array([5.0, 7.0, 8.0]), "kind of home": np.array(["flat", "house", "flat"])}
    >>> Condition.parse("6 < rooms <= 8 and `kind of home` == 'flat'")(columns)
    array([False, False,  True])
    >>> Condition.parse("room > 6")(columns)
    Traceback (most recent call last):
    ValueError: 'room > 6': there is no column 'room'; known are rooms, kind of home. Did you mean 'rooms'?
    """

    text: str
    tree: ast.expr
    quoted: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition; what is not allowed in it is refused with its place."""
        if MARK in text:
            raise ValueError(f"{text.strip()[:60]!r}: the letter {MARK} is not allowed. Leave it out.")
        plain, quoted = _without_back_quotes(text.strip())
        if not plain or len(plain) > LONGEST:
            raise ValueError(
                f'a condition must have 1 to {LONGEST} characters; got {len(plain)}. Write for example "rooms > 6".'
            )
        try:
            tree = ast.parse(plain, mode="eval").body
        except SyntaxError as error:
            raise ValueError(_syntax_message(text.strip(), error)) from error
        except (ValueError, MemoryError, RecursionError) as error:
            raise ValueError(f"{text.strip()[:60]!r}: cannot be read ({error}). Write it shorter.") from error
        return cls(text.strip(), tree, quoted)

    def __call__(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Which rows meet the condition."""
        try:
            with np.errstate(all="ignore"):
                value = _Evaluation(self, columns).value(self.tree)
        except RecursionError as error:
            raise ValueError(f"{self.text[:60]!r}: has too many levels. Write it shorter.") from error
        if value.kind != "condition":
            raise ValueError(
                f'{self.text!r}: must be a condition; it is a {value.kind}. Compare it, as in "rooms > 6".'
            )
        rows = next((len(column) for column in columns.values()), 0)
        return np.broadcast_to(np.asarray(value.data, dtype=bool), (rows,)).copy()


def _without_back_quotes(text: str) -> tuple[str, tuple[str, ...]]:
    """Names in back quotes replaced by stand-ins of the same length, so that places stay what they are."""
    quoted: list[str] = []

    def stand_in(match: re.Match[str]) -> str:
        found = match.group()
        if not found.startswith("`"):
            return found
        quoted.append(found[1:-1])
        return f"{MARK}{len(quoted) - 1}".ljust(len(found), "_")

    return re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", stand_in, text), tuple(quoted)


def _syntax_message(text: str, error: SyntaxError) -> str:
    place = error.offset - 1 if error.offset else len(text)
    where = f"{text[place : place + 20]!r} (character {place + 1})" if place < len(text) else "its end"
    single = re.search(r"(?<![<>=!])=(?!=)", text)
    hint = " Use == to compare." if single else f" Use {ALLOWED}; put other names of columns in `back quotes`."
    return f"{text!r}: cannot be read at {where}.{hint}"


class _Evaluation:
    """One walk over the tree of a condition."""

    def __init__(self, condition: Condition, columns: Mapping[str, NDArray[Any]]) -> None:
        self.condition, self.columns = condition, columns

    def fail(self, node: ast.AST, problem: str, remedy: str) -> ValueError:
        """An error that names the place."""
        text = self.condition.text
        # The parser counts bytes of the text with stand-ins, whose mark takes two of them.
        plain, _ = _without_back_quotes(text)
        start = len(plain.encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
        return ValueError(f"{text!r}: {problem} at {text[start : start + 20]!r} (character {start + 1}). {remedy}")

    def value(self, node: ast.expr) -> Value:
        """The value of a node of any allowed kind."""
        if isinstance(node, ast.BoolOp):
            return self.joined(node)
        if isinstance(node, ast.Compare):
            return self.compared(node)
        if isinstance(node, ast.UnaryOp):
            return self.unary(node)
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            left, right = (self.of_kind(side, "number") for side in (node.left, node.right))
            return Value("number", ARITHMETIC[type(node.op)](left, right))
        if isinstance(node, ast.Name):
            return self.column(node)
        if isinstance(node, ast.Constant):
            return self.constant(node)
        raise self.fail(node, "this is not allowed", f"Use {ALLOWED}.")

    def of_kind(self, node: ast.expr, kind: str) -> Any:
        """Data of a node that must be of a kind."""
        value = self.value(node)
        if value.kind != kind:
            raise self.fail(node, f"a {kind} is expected, but there is a {value.kind}", "Mend this part.")
        return value.data

    def joined(self, node: ast.BoolOp) -> Value:
        join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
        parts = [self.of_kind(part, "condition") for part in node.values]
        result = parts[0]
        for part in parts[1:]:
            result = join(result, part)
        return Value("condition", result)

    def unary(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Value("condition", np.logical_not(self.of_kind(node.operand, "condition")))
        if isinstance(node.op, ast.USub | ast.UAdd):
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            return Value("number", sign * self.of_kind(node.operand, "number"))
        raise self.fail(node, "this is not allowed", f"Use {ALLOWED}.")

    def compared(self, node: ast.Compare) -> Value:
        """Comparisons, chained ones as conditions that hold together."""
        result: Any = np.True_
        sides = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, sides[:-1], sides[1:], strict=True):
            result = result & (self.member(op, left, right) if isinstance(op, ast.In | ast.NotIn) else
                               self.pair(op, left, right))  # fmt: skip
        return Value("condition", result)

    def pair(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Any:
        first, second = self.value(left), self.value(right)
        if first.kind != second.kind or first.kind == "condition":
            raise self.fail(left, f"a {first.kind} is compared with a {second.kind}", "Compare what is alike.")
        if type(op) in EQUALITY:
            self.check_labels(first, right, second)
            self.check_labels(second, left, first)
            return EQUALITY[type(op)](first.data, second.data)
        if type(op) not in ORDER:
            raise self.fail(left, "this comparison is not allowed", f"Use {ALLOWED}.")
        if first.kind == "text":
            raise self.fail(left, f"text has no order, so {SYMBOLS[type(op)]} says nothing", "Use ==, != or in.")
        return ORDER[type(op)](first.data, second.data)

    def member(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Any:
        if not isinstance(right, ast.List | ast.Tuple | ast.Set):
            raise self.fail(right, "a list is expected", "Write for example: kind in ('flat', 'house').")
        found = np.False_ | np.zeros((), dtype=bool)
        for entry in right.elts:
            found = found | self.pair(ast.Eq(), left, entry)
        return found if isinstance(op, ast.In) else np.logical_not(found)

    def check_labels(self, column: Value, node: ast.expr, other: Value) -> None:
        """A label that a column never has is a slip of the pen."""
        if column.kind != "text" or not isinstance(column.data, np.ndarray) or not isinstance(other.data, str):
            return
        labels = np.unique(column.data).tolist()
        if other.data not in labels:
            close = difflib.get_close_matches(other.data, labels, n=1)
            remedy = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(map(repr, labels[:5]))}."
            raise self.fail(node, f"there is no value {other.data!r} in this column", remedy)

    def column(self, node: ast.Name) -> Value:
        name = node.id
        if name.startswith(MARK):
            name = self.condition.quoted[int(name[1:].rstrip("_"))]
        if name not in self.columns:  # Python's parser writes names in their normal form
            name = {unicodedata.normalize("NFKC", known): known for known in self.columns}.get(name, name)
        if name not in self.columns:
            known = list(self.columns)
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "Put text in quotes and odd names in `back quotes`."
            listed = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
            raise ValueError(f"{self.condition.text!r}: there is no column {name!r}; known are {listed}. {hint}")
        data = np.asarray(self.columns[name])
        return Value("number", data) if data.dtype.kind in "biuf" else Value("text", data.astype(str))

    def constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, str):
            return Value("text", node.value)
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            try:
                return Value("number", np.float64(node.value))
            except OverflowError as error:
                raise self.fail(node, "this number is too large", "Write a smaller one.") from error
        raise self.fail(node, "this is not allowed", f"Use {ALLOWED}.")
