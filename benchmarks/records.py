"""The file of results: one line per run, appended whole, so that a killed benchmark can go on where it was."""

from __future__ import annotations

import csv
import fcntl
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

COLUMNS = ["method", "dataset", "n", "seed", "ks", "ks_paper", "crps", "fit_seconds", "predict_seconds", "peak_mb"]
COLUMNS += ["settings", "version"]
COLUMNS += ["pinball", "coverage90", "width90", "coverage_by_fifth", "ks_bulk", "hellinger", "kl", "js", "tv", "w1"]
COLUMNS += ["log_score", "mse_mean", "ks_by_point", "threads", "machine", "error"]

Row = dict[str, str]


class Records:
    """Rows of a CSV file with the columns `COLUMNS`; several runners may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as file:
            text = file.read()
            # A line without its end was cut off by a crash: that run is not in the file.
            whole = text[: text.rfind("\n") + 1] or _line(dict.fromkeys(COLUMNS), header=True)
            if next(csv.reader([whole.splitlines()[0]])) != COLUMNS:
                raise ValueError(f"{path} must begin with the columns {COLUMNS}. Choose another file with --out.")
            _rewrite(file, whole)

    def rows(self) -> list[Row]:
        """All rows, as text."""
        with self._locked() as file:
            return list(csv.DictReader(file))

    def append(self, values: dict[str, Any]) -> None:
        """Add one row."""
        with self._locked() as file:
            file.seek(0, io.SEEK_END)
            file.write(_line(values))

    def remove(self, unwanted: Callable[[Row], bool]) -> None:
        """Drop rows that are to be run again."""
        with self._locked() as file:
            kept = [row for row in csv.DictReader(file) if not unwanted(row)]
            _rewrite(file, _line(dict.fromkeys(COLUMNS), header=True) + "".join(map(_line, kept)))

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


def _line(values: dict[str, Any], header: bool = False) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    else:
        writer.writerow({name: _text(values.get(name)) for name in COLUMNS})
    return buffer.getvalue()


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return "" if value is None else " ".join(str(value).split())
