"""Tables in files: csv, also compressed or from standard input, and parquet. Columns are read when asked for."""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncprob._files import replacing

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a", "?"})
TRUTH = {"true": 1.0, "false": 0.0}
DELIMITERS = ",;\t|"
MOSTLY = 0.5  # a column of which so many values are numbers is one of numbers, with mistakes in it
STANDARD = "-"
BLOCK = 2**20  # bytes unpacked at once
MOST_UNPACKED, MOST_TIMES = 2**28, 100  # bytes, and times the packed size: text in numbers packs 3 to 20 times


class Table:
    """Columns by name, as they stand in a file; text is turned into numbers when a column is asked for.

    Examples
    --------
    >>> table = Table("homes.csv", {"rooms": ["3", "4"], "kind": ["flat", "house"]}, [2, 3])
    >>> table.numbers("rooms")
    array([3., 4.])
    >>> table.is_text("kind")
    True
    """

    def __init__(self, source: str, columns: Mapping[str, Sequence[Any] | NDArray[Any]], lines: Sequence[int]) -> None:
        self.source, self.lines = source, lines
        self._columns = {name: np.asarray(values, dtype=object) for name, values in columns.items()}

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def names(self) -> list[str]:
        """Names of the columns, in the order of the file."""
        return list(self._columns)

    def values(self, name: str) -> NDArray[Any]:
        """A column as it stands in the file."""
        if name not in self._columns:
            raise no_column(self.source, name, self.names)
        return self._columns[name]

    def missing(self, name: str, *, text: bool = False) -> NDArray[np.bool_]:
        """Which rows have no value in a column; words such as NA count as none among numbers only."""
        absent = _is_absent if text else _is_missing
        return np.fromiter((absent(value) for value in self.values(name)), dtype=bool, count=len(self))

    def keep(self, rows: NDArray[np.bool_]) -> Table:
        """The table with some of its rows."""
        columns = {name: values[rows] for name, values in self._columns.items()}
        return Table(self.source, columns, np.asarray(self.lines)[rows].tolist())

    def is_text(self, name: str) -> bool:
        """Whether a column holds text; a column of numbers with some text in it is refused."""
        values = self.values(name)
        wrong = [i for i, value in enumerate(values) if not _is_missing(value) and _number(value) is None]
        if not wrong:
            return False
        present = len(self) - int(self.missing(name).sum())
        if present - len(wrong) > MOSTLY * present:
            raise ValueError(
                f"{self.source}: column {name!r} holds numbers, but line {self.lines[wrong[0]]} has "
                f"{values[wrong[0]]!r} ({len(wrong)} such values). Mend them, or take it as text by --text {name!r}."
            )
        return True

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column of numbers, without missing values."""
        self._check_present(name, self.missing(name))
        values = self.values(name)
        found = [_number(value) for value in values]
        if None in found:  # truth values count as numbers where numbers are asked for
            found = [TRUTH.get(str(value).lower(), number) for value, number in zip(values, found, strict=True)]
        if None in found:
            first = found.index(None)
            raise ValueError(
                f"{self.source}: column {name!r} must be numeric; line {self.lines[first]} has {values[first]!r}. "
                "Mend it, or leave the row out."
            )
        return np.array(found, dtype=np.float64)

    def text(self, name: str) -> NDArray[Any]:
        """A column as text, without missing values."""
        self._check_present(name, self.missing(name, text=True))
        return np.array([str(value) for value in self.values(name)], dtype=object)

    def _check_present(self, name: str, missing: NDArray[np.bool_]) -> None:
        if missing.any():
            raise ValueError(
                f"{self.source}: column {name!r} has {int(missing.sum())} missing values, first at line "
                f"{self.lines[int(missing.argmax())]}. Fill them, or leave out the rows (--drop-missing when fitting)."
            )


def no_column(source: str, name: str, present: Sequence[str]) -> ValueError:
    """The error of a column that a table does not have."""
    close = difflib.get_close_matches(name, present, n=1)
    listed = ", ".join(present[:12]) + (", …" if len(present) > 12 else "")
    hint = f"Did you mean {close[0]!r}?" if close else f"Its columns are {listed}."
    if len(present) == 1 and any(mark in present[0] for mark in DELIMITERS):
        hint = f"Its only column is {present[0][:60]!r}: choose another --delimiter."
    return ValueError(f"{source} has no column {name!r}. {hint}")


def _is_absent(value: Any) -> bool:
    return value is None or value == "" or value != value


def _is_missing(value: Any) -> bool:
    return _is_absent(value) or (isinstance(value, str) and value.lower() in MISSING)


def _number(value: Any) -> float | None:
    """A finite number, if it is one."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) and (not isinstance(value, str) or "_" not in value) else None


# -------------------------------------------------------------------- reading


def read_table(path: str, delimiter: str | None = None) -> Table:
    """Read a csv or parquet file; "-" is csv from standard input."""
    if path != STANDARD and Path(path).is_dir():
        raise ValueError(f"{path} is a directory; a table in a csv or parquet file is expected. Name the file.")
    if path != STANDARD and not Path(path).exists():
        raise ValueError(f"{path} does not exist. Check the name of the file.")
    if path.lower().endswith((".parquet", ".pq")):
        return _read_parquet(path)
    return _read_csv(path, delimiter)


def _read_csv(path: str, delimiter: str | None) -> Table:
    source = "standard input" if path == STANDARD else path
    text = _decoded(_content(path, source), source)
    if not text.strip():
        raise ValueError(f"{source} is empty. A header line and rows are expected.")
    if delimiter is not None and len(delimiter) != 1:
        delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter.lower(), delimiter)
        if len(delimiter) != 1:
            raise ValueError(f"--delimiter must be one character; got {delimiter!r}. Write for example ';' or tab.")
    csv.field_size_limit(2**24)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or delimiter_of(text), strict=True)
        lines: list[int] = []
        rows: list[list[str]] = []
        for row in reader:
            cells = [cell.strip() for cell in row]
            blank = not cells or (cells == [""] and (not rows or len(rows[0]) > 1))
            if not blank:  # an empty cell of a single column is a row, though
                rows.append(cells)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{source} cannot be read as csv: {error}. Check its quotes and --delimiter.") from error
    if not rows:
        raise ValueError(f"{source} is empty. A header line and rows are expected.")
    return _checked(source, rows[0], rows[1:], lines[1:])


def _content(path: str, source: str) -> bytes:
    content = sys.stdin.buffer.read() if path == STANDARD else Path(path).read_bytes()
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return _unpacked(content, source)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{source} is a damaged gz file: {error}. Get it again.") from error


def _unpacked(content: bytes, source: str) -> bytes:
    """Content of a gz file, which may be some 1,000 times its size: too much is refused before it fills the memory."""
    size, blocks = 0, []
    with gzip.open(io.BytesIO(content)) as file:
        while block := file.read(BLOCK):
            size += len(block)
            _check_unpacked(size, len(content), source)
            blocks.append(block)
    return b"".join(blocks)


def _check_unpacked(size: int, packed: int, source: str) -> None:
    limit = max(MOST_UNPACKED, MOST_TIMES * packed)
    if size > limit:
        raise ValueError(
            f"{source} unpacks to more than {limit / 2**20:,.0f} MiB, over {MOST_TIMES} times its size; tables do not. "
            "If you trust it, write it as plain csv, or fit it by `fit_files`, which reads it block by block."
        )


def _decoded(content: bytes, source: str) -> str:
    if b"\x00" in content:
        raise ValueError(f"{source} is not a text file. A csv or parquet file is expected.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")  # what older programs write


def delimiter_of(text: str) -> str:
    """The delimiter that the header line has most of.

    Examples
    --------
    >>> delimiter_of("rooms;kind\\n3,5;flat")
    ';'
    """
    header = text.lstrip().split("\n", 1)[0]
    return max(DELIMITERS, key=header.count)


def _checked(source: str, header: list[str], rows: list[list[str]], lines: list[int]) -> Table:
    _check_names(source, header)
    if not rows:
        raise ValueError(f"{source} has a header line but no rows. Add rows.")
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(header):
            raise ValueError(
                f"{source}: line {line} has {len(row)} values, but the header names {len(header)} columns. "
                "Mend the line, or choose another --delimiter."
            )
    return Table(source, {name: [row[i] for row in rows] for i, name in enumerate(header)}, lines)


def _check_names(source: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{source} has several columns named {', '.join(map(repr, twice))}. Give each its own name.")
    if "" in names:
        raise ValueError(f"{source}: column {names.index('') + 1} has no name. Add it to the header line.")


def _read_parquet(path: str) -> Table:
    pyarrow, parquet = _arrow("read")
    try:
        facts = parquet.read_metadata(path)
        declared = sum(facts.row_group(k).total_byte_size for k in range(facts.num_row_groups))
        size = max(declared, 8 * facts.num_rows * facts.num_columns)  # equal values are packed to almost nothing
        _check_unpacked(size, Path(path).stat().st_size, path)
        found = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as parquet: {_first_line(error)}. Get or write it again.") from error
    _check_names(path, found.column_names)
    if found.num_rows == 0:
        raise ValueError(f"{path} has no rows. Add rows.")
    columns = {name: found.column(name).to_pylist() for name in found.column_names}
    return Table(path, columns, range(1, found.num_rows + 1))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _arrow(verb: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(f"to {verb} parquet, pyarrow is needed: pip install pyarrow. Or use csv.") from error
    return pyarrow, parquet


# -------------------------------------------------------------------- writing


def write_table(columns: Mapping[str, NDArray[Any]], path: str) -> None:
    """Write columns as csv, csv.gz or parquet, by the ending of the name, whole or not at all; "-" is standard out."""
    if path == STANDARD:
        _write_csv(columns, sys.stdout)
        return
    with replacing(path) as partial:
        if path.lower().endswith((".parquet", ".pq")):
            pyarrow, parquet = _arrow("write")
            parquet.write_table(
                pyarrow.table({name: pyarrow.array(v.tolist()) for name, v in columns.items()}), partial
            )
            return
        opened: Callable[..., Any] = gzip.open if path.lower().endswith(".gz") else open
        with opened(partial, "wt", encoding="utf-8", newline="") as file:
            _write_csv(columns, file)


def _write_csv(columns: Mapping[str, NDArray[Any]], file: Any) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
