"""Tables in many files, Parquet or csv, read batch by batch. A mistake is told with the name of its file."""

from __future__ import annotations

import csv
import glob
import gzip
import os
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncprob.preprocessing import LARGEST
from ncprob.tables import delimiter_of

BATCH_ROWS = 2**16
CSV_BLOCK = 2**23  # bytes
PARQUET = (".parquet", ".pq")
ENDINGS = (*PARQUET, ".csv", ".csv.gz")
NAMED = (*ENDINGS, ".tsv", ".tsv.gz", ".txt", ".txt.gz")  # also read, if named one by one or by a pattern
MAX_COLUMNS = 2**16  # of a csv file: each takes pyarrow some 10 kB
MAX_LEVELS = 100_000  # distinct values of a text column: more are names of rows, not categories
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+(\.\d{3})*,\d+\s*")


def find_files(paths: Any) -> list[Path]:
    """Files of a list of paths, a directory or a glob, in sorted order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.csv", "a.csv", "notes.txt"):
    ...         _ = Path(folder, name).write_text("x,y")
    ...     [file.name for file in find_files(f"{folder}/*.csv")], len(find_files(folder))
    (['a.csv', 'b.csv'], 2)
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(given, list | tuple) or not all(isinstance(each, str | os.PathLike) for each in given):
        what = type(paths).__name__
        raise TypeError(f"`paths` must be a path, a pattern, a directory or a list of these; got {what}. Name files.")
    found: list[Path] = []
    for each in given:
        path = Path(each)
        if path.is_dir():
            some = sorted(file for file in path.iterdir() if _is_table(file))
        elif path.exists():
            some = [path]
        else:
            some = [Path(name) for name in sorted(glob.glob(str(each), recursive=True))]
            # "**" looks into folders; another pattern may name some beside the files, but not such as hold a table.
            some = [file for file in some if not file.is_dir() or (_is_table(file) and "**" not in str(each))]
        folder = next((file for file in some if file.is_dir()), None)
        if folder is not None:
            raise ValueError(
                f"`paths` must name Parquet or csv files; {folder} is a directory. Name it, or use the pattern "
                f"'{folder.parent}/**/*{folder.suffix}' for the files of all."
            )
        if not some:
            nested = path.is_dir() and any(inner.is_dir() for inner in path.iterdir())
            remedy = f"For folders inside it use the pattern '{each}/**/*.parquet'" if nested else "Check the name"
            raise ValueError(f"`paths` must name Parquet or csv files; {each} names none. {remedy}.")
        other = [file for file in some if not file.name.lower().endswith(NAMED)]
        if other:
            raise ValueError(
                f"`paths` must name Parquet or csv files ({', '.join(ENDINGS)}); {other[0]} has another ending. "
                "Convert it, or leave it out."
            )
        found += some
    twice = [path for path, count in Counter(path.resolve() for path in found).items() if count > 1]
    if twice or not found:
        what = f"{twice[0]} comes twice" if twice else "there are none"
        raise ValueError(f"`paths` must name files, each once; {what}. Name the files, or one pattern.")
    return found


def _is_table(file: Path) -> bool:
    return file.name.lower().endswith(ENDINGS)


@dataclass(frozen=True)
class Roles:
    """Which columns are what; columns that are not named are inputs."""

    targets: Sequence[str]
    weights: str | None = None
    drop: Sequence[str] = ()

    @property
    def special(self) -> list[str]:
        """All that are no inputs."""
        return [*self.targets, *self.drop, *([] if self.weights is None else [self.weights])]


@dataclass
class FileTable:
    """The files of a table, all with the same columns: inputs, then targets, then weights.

    Text is numbered as its values come; `levels` counts them once all rows have been read.
    """

    files: list[Path]
    roles: Roles
    inputs: list[str]
    text: list[str]
    levels: dict[str, Counter[str]] = field(default_factory=dict)

    @classmethod
    def open(cls, paths: Any, roles: Roles) -> FileTable:
        """Look at the columns of all files, before any row is read."""
        files = find_files(paths)
        if not roles.targets:
            raise ValueError("`target` must name at least one column; got none. Name the column to learn the law of.")
        if len(set(roles.special)) != len(roles.special):
            raise ValueError("`target`, `weights` and `drop` must name different columns; one is named twice.")
        kinds = [_kinds(file) for file in files]
        full = [number for number, file in enumerate(files) if not _is_empty(file)]
        if not full:
            raise ValueError(f"`paths` must name files with rows; {files[0]} and all others have none.")
        like, first = files[full[0]], kinds[full[0]]
        filled = [files[number] for number in full]
        for file, found in zip(files, kinds, strict=True):
            for name in roles.special:
                if name not in found:
                    raise ValueError(f"{file} has no column {name!r}; its columns are {_listed(found)}. Mend the file.")
            if set(found) != set(first):
                odd = sorted(set(found) ^ set(first))
                raise ValueError(
                    f"{file} must have the columns of {like}; only one of them has {_listed(odd)}. "
                    "Write both with the same columns, or name files that belong together."
                )
            wrong = [name for name in found if name not in roles.drop and found[name] != first[name]]
            if wrong and file in filled:  # without rows there are no kinds
                raise ValueError(
                    f"{file} must have columns of the same kind as {like}; {wrong[0]!r} holds {found[wrong[0]]} "
                    f"there and {first[wrong[0]]} here. Write it alike in all files."
                )
        used = [name for name in first if name not in roles.drop]
        bad = [name for name in used if first[name] not in ("numbers", "text")]
        if bad:
            raise TypeError(
                f"{like}: column {bad[0]!r} holds {first[bad[0]]}; numbers or text are expected. Convert or `drop` it."
            )
        inputs = [name for name in used if name not in roles.special]
        text = [name for name in inputs if first[name] == "text"]
        numeric = [*roles.targets, *([] if roles.weights is None else [roles.weights])]
        texts = [name for name in numeric if first[name] == "text"]
        if texts:
            raise TypeError(
                f"{like}: column {texts[0]!r} must hold numbers; it holds text. Write numbers with "
                "a decimal point; fit classes by `fit`."
            )
        if not inputs:
            raise ValueError(f"{like} has no column left as input. Drop fewer columns.")
        return cls(filled, roles, inputs, text, {name: Counter() for name in text})

    @property
    def columns(self) -> list[str]:
        """Columns of the arrays that `read` gives."""
        weights = [] if self.roles.weights is None else [self.roles.weights]
        return [*self.inputs, *self.roles.targets, *weights]

    def read(self) -> Iterator[NDArray[np.float64]]:
        """Rows of all files, some at a time, checked."""
        codes: dict[str, dict[str, int]] = {name: {} for name in self.text}
        for file in self.files:
            line = 0
            for batch in _batches(file, self.columns, set(self.text)):
                parts = [self._column(file, name, batch.column(name), line, codes) for name in self.columns]
                line += batch.num_rows
                if batch.num_rows:
                    yield np.column_stack(parts)
        for name, levels in self.levels.items():
            if 2 * sum(DECIMAL_COMMA.fullmatch(level) is not None for level in levels) > len(levels):
                warnings.warn(
                    f"column {name!r} is text, most of it numbers with a decimal comma such as {next(iter(levels))!r}; "
                    "every value counts as a category. Write numbers with a decimal point.",
                    stacklevel=3,
                )

    def _column(
        self, file: Path, name: str, values: Any, line: int, codes: dict[str, dict[str, int]]
    ) -> NDArray[np.float64]:
        import pyarrow

        if name not in codes:
            return _numbers(file, name, values, line, weights=name == self.roles.weights)
        _check_present(file, name, values, line)
        known, values = codes[name], values.cast(pyarrow.string()).dictionary_encode()
        words = values.dictionary.to_pylist()
        number = np.array([known.setdefault(word, len(known)) for word in words], dtype=np.float64)
        if len(known) > MAX_LEVELS:
            raise ValueError(
                f"{file}: column {name!r} has more than {MAX_LEVELS:,} different texts; categories are expected. "
                "`drop` it, or write numbers with a decimal point."
            )
        index = values.indices.to_numpy(zero_copy_only=False)
        counts = np.bincount(index, minlength=len(words))
        self.levels[name].update({word: int(count) for word, count in zip(words, counts, strict=True)})
        return number[index]


def schema_of(file: Path) -> Any:
    """Columns of a Parquet file with their types, each named once."""
    pyarrow = _arrow()
    try:
        schema = pyarrow.parquet.read_schema(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise unreadable(file, error) from error
    _check_names(file, schema.names)
    return schema


def kind_of(type_: Any) -> str:
    """What a column of a type holds: numbers, text, nothing, or the name of the type."""
    types = _arrow().types
    if types.is_dictionary(type_):
        return kind_of(type_.value_type)
    if types.is_string(type_) or types.is_large_string(type_):
        return "text"
    numeric = types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_) or types.is_decimal(type_)
    return "numbers" if numeric else "nothing" if types.is_null(type_) else str(type_)


def read_inputs(
    file: Path, inputs: Sequence[str], text: Collection[str], also: Sequence[str] = (), rows: int = BATCH_ROWS
) -> Iterator[tuple[dict[str, NDArray[Any]], Any]]:
    """Inputs of a Parquet file as arrays, checked, `rows` at a time; beside them the record batch, which has `also`."""
    line = 0
    for batch in _batches(file, list(dict.fromkeys([*inputs, *also])), set(text), rows):
        yield input_arrays(file, batch, inputs, text, line), batch
        line += batch.num_rows


def input_arrays(
    source: Path | str, batch: Any, inputs: Sequence[str], text: Collection[str], line: int = 0
) -> dict[str, NDArray[Any]]:
    """Inputs of a record batch or table as arrays, checked; `line` rows of the source came before."""
    read = {name: _words if name in text else _numbers for name in inputs}
    return {name: read[name](source, name, batch.column(name), line) for name in inputs}


def _check_present(file: Path | str, name: str, values: Any, line: int) -> None:
    if values.null_count:
        first = line + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) + 1
        raise ValueError(
            f"{file}: column {name!r} has missing values, first in row {first}. Fill or leave out these rows."
        )


def _words(file: Path | str, name: str, values: Any, line: int) -> NDArray[Any]:
    """A column as text; codes may be numbers."""
    _check_present(file, name, values, line)
    return np.array([str(value) for value in values.to_pylist()], dtype=object)


def _numbers(file: Path | str, name: str, values: Any, line: int, weights: bool = False) -> NDArray[np.float64]:
    """A column of numbers; values that cannot be used are told with their row."""
    import pyarrow

    _check_present(file, name, values, line)
    column = values.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)  # integers beyond 2⁵³ round
    bad = ~np.isfinite(column)
    if weights:
        bad |= column < 0
    if bad.any():
        what = "weights must be finite and not negative" if weights else "NaN or infinity"
        raise ValueError(
            f"{file}: column {name!r} has a value that cannot be used ({what}), first in row "
            f"{line + int(bad.argmax()) + 1}. Mend or leave out these rows."
        )
    large = np.abs(column) > LARGEST
    if large.any() and not weights:  # as in `fit`
        first = line + int(large.argmax()) + 1
        raise ValueError(
            f"{file}: column {name!r} must not exceed {LARGEST:g} in size, or its variance is no number; it does "
            f"in row {first}. Rescale it, for example to other units or logarithms."
        )
    return column


def unreadable(file: Path, error: BaseException) -> ValueError:
    """The error of a file that is damaged or no table."""
    return ValueError(f"{file} cannot be read: {_first_line(error)}. Get or write it again.")


def _check_names(file: Path, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{file} has several columns named {twice[0]!r}. Give each its own name.")


def _listed(names: Any) -> str:
    names = list(names)
    return ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("for tables in many files pyarrow is needed: pip install 'ncprob[files]'") from error
    return pyarrow


def _kinds(file: Path) -> dict[str, str]:
    """Columns of a file and what they hold: numbers, text or another type."""
    schema = schema_of(file) if file.name.lower().endswith(PARQUET) else _csv_schema(file)
    return {name: kind_of(schema.field(name).type) for name in schema.names}


def _csv_schema(file: Path) -> Any:
    pyarrow = _arrow()
    try:
        if _is_empty(file):  # which pyarrow refuses in some forms
            schema = pyarrow.schema([(name, pyarrow.null()) for name in _header(file)[0]])
        else:
            with _open_csv(file, None) as reader:
                schema = reader.schema
    except (pyarrow.ArrowException, OSError, EOFError, zlib.error) as error:
        raise unreadable(file, error) from error
    _check_names(file, schema.names)
    return schema


def _is_empty(file: Path) -> bool:
    """Whether a file that can be read has columns and no rows."""
    if file.name.lower().endswith(PARQUET):
        return bool(_arrow().parquet.read_metadata(file).num_rows == 0)
    with _text(file) as text:
        if not text.readline(CSV_BLOCK).strip():
            return False
        while block := text.read(CSV_BLOCK):  # not by lines: a packed file may hold one that fills the memory
            if block.strip():
                return False
    return True


def _batches(file: Path, columns: list[str], text: set[str], rows: int = BATCH_ROWS) -> Iterator[Any]:
    """Record batches of a file; whatever goes wrong on the way names it."""
    pyarrow = _arrow()
    try:
        if file.name.lower().endswith(PARQUET):
            with pyarrow.parquet.ParquetFile(file, page_checksum_verification=True) as parquet:
                yield from parquet.iter_batches(rows, columns=columns, use_threads=False)
        else:
            with _open_csv(file, None) as beginning:
                truths = {f.name for f in beginning.schema if pyarrow.types.is_boolean(f.type)}
            # Whole numbers in the first block may be followed by others: all are read as floats.
            types = {name: pyarrow.bool_() if name in truths else pyarrow.float64() for name in columns}
            with _open_csv(file, types | dict.fromkeys(text, pyarrow.string())) as reader:
                yield from reader
    except (pyarrow.ArrowException, OSError, EOFError, zlib.error) as error:
        raise unreadable(file, error) from error


def _text(file: Path) -> Any:
    opened = gzip.open if file.name.lower().endswith(".gz") else open
    return opened(file, "rt", encoding="utf-8-sig", errors="replace")


def _header(file: Path) -> tuple[list[str], str]:
    """Names of the columns of a csv file and its delimiter, in bounded memory whatever the file unpacks to."""
    with _text(file) as text:
        line = text.readline(CSV_BLOCK)
    delimiter = delimiter_of(line)
    if len(line) == CSV_BLOCK or line.count(delimiter) >= MAX_COLUMNS:
        raise ValueError(
            f"{file} must have a header line that names at most {MAX_COLUMNS:,} columns; its first line is longer. "
            "Check that it is a csv file, or write it as Parquet."
        )
    return next(csv.reader([line], delimiter=delimiter), []), delimiter


def _open_csv(file: Path, types: dict[str, Any] | None) -> Any:
    """A csv file, with types as found in its first block or as given; in its own delimiter."""
    arrow_csv = _arrow().csv
    delimiter = _header(file)[1]
    convert = arrow_csv.ConvertOptions(
        column_types=types, include_columns=None if types is None else list(types), strings_can_be_null=True,
        true_values=["true", "True", "TRUE"], false_values=["false", "False", "FALSE"],
    )  # fmt: skip
    return arrow_csv.open_csv(
        file,
        read_options=arrow_csv.ReadOptions(block_size=CSV_BLOCK, use_threads=False),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
        convert_options=convert,
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
