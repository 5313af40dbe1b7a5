"""The file of results: the lines of a run are appended together, so that a killed benchmark can go on where it was."""

from __future__ import annotations

import csv
import fcntl
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

CHECKOUT = Path(__file__).resolve().parent.parent
RESULTS = CHECKOUT / "benchmarks" / "results"
COLUMNS = ["method", "dataset", "n", "seed", "ks", "ks_paper", "crps", "fit_seconds", "predict_seconds", "peak_mb"]
COLUMNS += ["settings", "version"]
COLUMNS += ["pinball", "coverage90", "width90", "coverage_by_fifth", "ks_bulk", "hellinger", "kl", "js", "tv", "w1"]
COLUMNS += ["log_score", "mse_mean", "ks_by_point", "threads", "machine", "error"]

Row = dict[str, str]


class Records:
    """Rows of a CSV file with the given columns; several runners may share it.

    Rows that agree in their first `unit` columns belong to one run; with 0 every row is a run.
    """

    def __init__(self, path: Path, columns: Sequence[str] = COLUMNS, unit: int = 0) -> None:
        self.path, self.columns = path, list(columns)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as file:
            whole = _without_the_last_if_cut(file.read(), unit) or self._header()
            if _fields(whole.splitlines()[0]) != self.columns:
                raise ValueError(f"{path} must begin with the columns {self.columns}. Choose another file with --out.")
            _rewrite(file, whole)

    def rows(self) -> list[Row]:
        """All rows, as text."""
        with self._locked() as file:
            return list(csv.DictReader(file))

    def append(self, values: dict[str, Any]) -> None:
        """Add one row."""
        self.extend([values])

    def extend(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add the rows of a run, in one piece."""
        with self._locked() as file:
            file.seek(0, io.SEEK_END)
            file.write("".join(map(self._line, rows)))

    def remove(self, unwanted: Callable[[Row], bool]) -> None:
        """Drop rows that are to be run again."""
        with self._locked() as file:
            kept = [row for row in csv.DictReader(file) if not unwanted(row)]
            _rewrite(file, self._header() + "".join(map(self._line, kept)))

    def _header(self) -> str:
        return self._line(dict(zip(self.columns, self.columns, strict=True)))

    def _line(self, values: dict[str, Any]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerow(_text(values.get(name)) for name in self.columns)
        return buffer.getvalue()

    @contextmanager
    def _locked(self) -> Iterator[TextIO]:
        self.path.touch()
        with self.path.open("r+", newline="") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _rewrite(file: TextIO, text: str) -> None:
    file.seek(0)
    file.write(text)
    file.truncate()


def _fields(line: str) -> list[str]:
    return next(csv.reader([line]))


def _without_the_last_if_cut(text: str, unit: int) -> str:
    """A line without its end was cut off by a crash: its run, with the lines before that belong to it, is not there."""
    end = text.rfind("\n") + 1
    lines, cut = text[:end].splitlines(keepends=True), text[end:]
    if not cut or not unit or not lines:
        return text[:end]
    known = _fields(cut)
    run = (known if len(known) > unit else _fields(lines[-1]))[:unit]
    return "".join(line for line in lines if _fields(line)[:unit] != run)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return "" if value is None else " ".join(str(value).split())
