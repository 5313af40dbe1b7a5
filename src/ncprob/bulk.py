"""Predictions for many files: a directory of Parquet files in, a directory of Parquet files out, restartable.

Every part that is written says in its metadata which model, which question and which input file it is of. So finished
parts are recognised without a list of them, and several machines can write to one directory.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tqdm.auto import tqdm

from ncprob import storage
from ncprob._files import clear_remains, replacing
from ncprob.datafiles import PARQUET, find_files, read_inputs, schema_of
from ncprob.predictions import (
    CHUNK,
    answer_table,
    asked,
    check_columns,
    check_question,
    empty_answer_table,
    input_names,
    kept_names,
    loaded,
)
from ncprob.questions import Model, Wanted
from ncprob.workers import Workers, check_workers, share_out

MARK = b"ncprob"  # key of the metadata of a part
MAGIC = "*?["


@dataclass(frozen=True)
class PredictedFiles:
    """What `predict_files` leaves: parts in the order of files, how many of them were there before, rows of all."""

    parts: list[Path]
    found: int
    rows: int


@dataclass(frozen=True)
class Question:
    """A saved model and what is asked of it; both decide whether a part that is there is one of ours."""

    model: str
    checksum: str
    wanted: Wanted
    keep: tuple[str, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """As the metadata of a part tell it."""
        return {"model": self.checksum, "wanted": _plain(asdict(self.wanted)), "keep": list(self.keep)}


@dataclass(frozen=True)
class Part:
    """One file and where its predictions go."""

    file: Path
    target: Path
    question: Question = field(repr=False)


def predict_files(
    model: str | os.PathLike[str],
    paths: Any,
    out: str | os.PathLike[str],
    *,
    mean: bool = False,
    std: bool = False,
    quantiles: float | Sequence[float] = (),
    intervals: float | Sequence[float] = (),
    cdf: float | Sequence[float] = (),
    keep: str | Sequence[str] = (),
    workers: Workers = 1,
    progress: bool | Literal["auto"] = "auto",
) -> PredictedFiles:
    """Predict the rows of many Parquet files; one part is written for each, with the rows in the same order.

    Parts appear whole or not at all. Called again with the same arguments, finished parts are kept, and predicted anew
    only if their input file has changed (size or time). A directory with parts of another model or another question is
    refused. A file that is damaged or has values that cannot be used does not stop the others: it is named in the error
    at the end.

    Parameters
    ----------
    model : path
        Directory of a saved model; with `workers="ray"` one that all machines see, like `paths` and `out`.
    paths : path, pattern, directory or list of these
        Parquet files with the columns of the model; others are not looked at.
    out : path
        Directory for the parts, created if need be. They are named like their files; of a pattern with folders, like
        `"in/**/*.parquet"`, the folders are kept.
    mean, std : bool
        Conditional mean and standard deviation. For a model of classes probabilities are written, and nothing can be
        asked; without a question the mean and the 5, 50 and 95 % quantiles are.
    quantiles, intervals : float or sequence of float
        Levels of quantiles, coverages of shortest intervals.
    cdf : float or sequence of float
        Values t at which to give P(Y ≤ t | X).
    keep : str or sequence of str
        Columns of the files to write beside the answers; `"*"` for all. They must have the same types in all files.
    workers : int or "ray"
        Files are shared out over so many processes of this machine, or over a Ray cluster (extra `distributed`), one
        CPU each. The answers do not depend on it.

    Returns
    -------
    PredictedFiles
        With `parts`, `found` (how many were there before) and `rows`.

    Examples
    --------
    >>> import tempfile, numpy as np, pyarrow
    >>> from pyarrow import parquet
    >>> from ncprob import NCPRegressor
    >>> x = np.linspace(-1, 1, 100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pyarrow.table({"x": x})
    ...     model = NCPRegressor(coordinates="raw", max_steps=20, random_state=0, progress=False)
    ...     model.fit(table, x**2).save(f"{folder}/model")
    ...     os.mkdir(f"{folder}/in")
    ...     parquet.write_table(table, f"{folder}/in/a.parquet")
    ...     done = predict_files(f"{folder}/model", f"{folder}/in", f"{folder}/out", intervals=[0.9], progress=False)
    ...     done.rows, parquet.read_schema(done.parts[0]).names
    (100, ['y_0.9_lower', 'y_0.9_upper'])
    """
    wanted = asked(mean, std, quantiles, intervals, cdf)
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    check_workers(workers)
    if not isinstance(model, str | os.PathLike):
        raise TypeError(f"`model` must be the directory of a saved model; got {type(model).__name__}. `save` it first.")
    question = Question(os.fspath(Path(model).resolve()), storage.checksum(model), wanted, kept)
    place = Path(out).absolute()  # workers may have other working directories
    parts = _planned(paths, place, question)
    finished = _finished(parts, place, question)
    left = [part for part in parts if part not in finished]
    if left:
        opened = loaded(question.model, question.checksum)
        check_question(opened, wanted)
        _check_parts(opened, parts, question)
        _make(place)
    rows = _predict_all(left, len(finished), workers, None if progress == "auto" else not progress)
    return PredictedFiles([part.target for part in parts], len(finished), rows + sum(finished.values()))


# -------------------------------------------------------------------- which parts, and which are there


def _planned(paths: Any, out: Path, question: Question) -> list[Part]:
    """One part for every file."""
    find_files(paths)  # all of them at once: none may come twice
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    parts = [
        Part(file.absolute(), out / file.relative_to(_root(each)), question)
        for each in given
        for file in find_files(each)
    ]
    targets: dict[Path, Path] = {}
    for part in parts:
        if not part.file.name.lower().endswith(PARQUET):
            raise ValueError(f"`paths` must name Parquet files; {part.file} is none. Convert it, or leave it out.")
        if out.resolve() in part.file.resolve().parents:
            raise ValueError(f"`out` must not hold the files to predict; {part.file} is in it. Choose another.")
        twin = targets.setdefault(part.target, part.file)
        if twin is not part.file:
            raise ValueError(
                f"`paths` must name files of different names, as parts are named like them; {twin} and {part.file} "
                "are not. Name one pattern or directory above both."
            )
    return parts


def _root(path: str | os.PathLike[str]) -> Path:
    """The folder below which names are kept: a directory itself, that of a file, the part of a pattern before marks."""
    given = Path(path)
    if given.is_dir():
        return given
    if given.exists():
        return given.parent
    marked = next(n for n, piece in enumerate(given.parts) if any(mark in piece for mark in MAGIC))
    return Path(*given.parts[:marked])


def _finished(parts: list[Part], out: Path, question: Question) -> dict[Part, int]:
    """Parts that are there, with their rows; other predictions in the same directory are refused."""
    planned = {part.target: part for part in parts}
    finished: dict[Part, int] = {}
    for there in sorted(file for file in out.rglob("*") if file.name.lower().endswith(PARQUET)):
        part = planned.get(there)
        told = _told(there)
        if told is None and part is not None:
            continue  # damaged since: written anew
        if told is None or "ncprob" not in told:
            raise ValueError(f"`out` must hold predictions only; {there} is none. Choose another directory.")
        _check_same(there, told["ncprob"], question)
        if part is not None and told["ncprob"].get("file") == _stamp(part.file):
            finished[part] = told["rows"]
    return finished


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"`out` {out} cannot be a directory ({error.strerror}). Choose another.") from error


def _told(part: Path) -> dict[str, Any] | None:
    """What a Parquet file says of itself, and its rows; None if it cannot be read."""
    import pyarrow
    from pyarrow import parquet

    try:
        found = parquet.read_metadata(part)
    except (pyarrow.ArrowException, OSError):
        return None
    own = (found.metadata or {}).get(MARK)
    with contextlib.suppress(ValueError):
        facts = None if own is None else json.loads(own)
        if isinstance(facts, dict):
            return {"rows": found.num_rows, "ncprob": facts}
    return {"rows": found.num_rows}


def _check_same(there: Path, facts: dict[str, Any], question: Question) -> None:
    names = {"model": "model", "wanted": "question", "keep": "choice of `keep`"}
    for name, value in question.facts.items():
        if facts.get(name) != value:
            raise ValueError(
                f"`out` holds predictions of another {names[name]} ({there}), which would be mixed with these. "
                "Choose another directory, or remove them."
            )


def _stamp(file: Path) -> dict[str, Any]:
    """What tells whether a file is still the same."""
    facts = file.stat()
    return {"name": file.name, "bytes": facts.st_size, "changed": facts.st_mtime_ns}


def _plain(facts: dict[str, Any]) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(facts))


# -------------------------------------------------------------------- columns, before any row is read


def _check_parts(model: Model, parts: list[Part], question: Question) -> None:
    first: dict[str, Any] = {}
    for part in parts:
        types = _types(part.file)
        check_columns(model, str(part.file), types)
        kept = {name: types[name] for name in kept_names(str(part.file), list(types), question.keep)}
        first = first or kept
        odd = [name for name in {**first, **kept} if first.get(name) != kept.get(name)]
        if odd:
            raise ValueError(
                f"{part.file} must have the columns to keep as {parts[0].file} has them, or parts would not fit "
                f"together; {odd[0]!r} is {_type(kept, odd[0])} here and {_type(first, odd[0])} there. Write it alike."
            )


def _types(file: Path) -> dict[str, Any]:
    schema = schema_of(file)
    return dict(zip(schema.names, schema.types, strict=True))


def _type(types: dict[str, Any], name: str) -> str:
    return f"of type {types[name]}" if name in types else "missing"


# -------------------------------------------------------------------- prediction


def _predict_all(left: list[Part], finished: int, workers: Workers, disable: bool | None) -> int:
    """Predict all parts; those whose file is at fault are told at the end, any other error at once."""
    rows, faults = 0, []
    with (
        contextlib.closing(share_out(predict_part, left, workers)) as results,
        tqdm(total=finished + len(left), initial=finished, desc="files", disable=disable, leave=False) as bar,
    ):
        for part, result in results:
            if isinstance(result, ValueError | TypeError):
                faults.append((part, result))
            elif isinstance(result, BaseException):
                kind = OSError if isinstance(result, OSError) else RuntimeError  # full disks, lost processes; the rest
                raise kind(
                    f"{part.file} was not predicted: {' '.join(str(result).split()) or type(result).__name__}. "
                    "Finished parts are kept: call again to go on."
                ) from result
            else:
                rows += result
            bar.update()
            bar.set_postfix(rows=f"{rows:,}")
    if faults:
        faults.sort(key=lambda fault: left.index(fault[0]))
        more = f" and {len(faults) - 2} more" if len(faults) > 2 else ""
        others = f" Also at fault: {faults[1][0].file}{more}." if len(faults) > 1 else ""
        raise ValueError(f"{faults[0][1]}{others} Finished parts are kept: mend the files and call again.") from faults[
            0
        ][1]
    return rows


def predict_part(part: Part) -> int:
    """Predict one file; gives the number of its rows."""
    from pyarrow import parquet

    question, stamp = part.question, _stamp(part.file)
    model = loaded(question.model, question.checksum)
    facts = json.dumps({**question.facts, "file": stamp})
    part.target.parent.mkdir(parents=True, exist_ok=True)
    clear_remains(part.target)
    rows = 0
    with replacing(part.target) as partial, contextlib.ExitStack() as stack:
        writer: Any = None
        for table in _tables(model, part):
            if writer is None:
                schema = table.schema.with_metadata({MARK: facts})
                writer = stack.enter_context(parquet.ParquetWriter(partial, schema, write_page_checksum=True))
            writer.write_table(table.replace_schema_metadata(schema.metadata))
            rows += table.num_rows
    return rows


def _tables(model: Model, part: Part) -> Iterator[Any]:
    """Kept columns and answers, some rows at a time; a file without rows gives one table without rows."""
    types, wanted = _types(part.file), part.question.wanted
    inputs = input_names(model, str(part.file), list(types))
    kept = kept_names(str(part.file), list(types), part.question.keep)
    empty = True
    for columns, batch in read_inputs(part.file, inputs, set(model.categories_), kept, CHUNK):
        if batch.num_rows:
            yield answer_table(model, columns, wanted, {name: batch.column(name) for name in kept})
            empty = False
    if empty:
        yield empty_answer_table(model, wanted, {name: types[name] for name in kept})
