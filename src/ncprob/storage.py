"""A directory that holds a state: `model.json` with the facts, a safetensors file with the tensors.

The tensor file is named by its content and the JSON file names it, so that one `os.replace` of the JSON file takes a
directory from the old model to the new one: a crash at any time leaves one of them, whole. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as tensor_bytes

from ncprob._files import clear_remains, partial_directory, remains_of, umask
from ncprob.state import State

FORMAT, SCHEMA = "ncprob model", 5
FACTS, TENSORS = "model.json", "tensors-{}.safetensors"
PARTIAL = ".partial-"
MAX_FACTS = 2**28  # bytes of JSON: far beyond the names and levels of any table


class MissingModel(FileNotFoundError, ValueError):
    """There is no model where one was looked for."""


# -------------------------------------------------------------------- writing


def write(state: State, header: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state with its header to the directory `path`; an older model there is replaced, anything else kept.

    Waits while another process of this machine replaces the model there.
    """
    check_target(path)
    target = Path(path).resolve()  # a link stays one
    files = _files(state, header)
    target.parent.mkdir(parents=True, exist_ok=True)
    clear_remains(target)
    if target.is_dir() or not _create(files, target):
        with _one_at_a_time(target):
            _replace(files, target)


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a place where no model can be written, before any work is done."""
    target = Path(path).resolve()
    if target.is_dir():
        if any(target.iterdir()) and not _is_model(target):
            raise ValueError(f"`path` {path} is a directory with other files in it. Choose a new or an empty one.")
    elif os.path.lexists(target):
        raise ValueError(f"`path` {path} is a file; a model is saved as a directory. Choose another name.")
    existing = next(folder for folder in (target, *target.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ValueError(f"`path` {path} cannot be written: {existing} is read-only or no directory. Choose another.")


def _is_model(directory: Path) -> bool:
    """Whether a directory holds a model of ours, of any schema, or the remains of one and nothing else."""
    ours = (FACTS, TENSORS.format("*"), f"{PARTIAL}*")
    remains = all(any(entry.match(pattern) for pattern in ours) for entry in directory.iterdir())
    try:
        facts = json.loads(_read_bytes(directory / FACTS, MAX_FACTS))
    except (OSError, ValueError, RecursionError):
        return remains
    return isinstance(facts, dict) and facts.get("format") == FORMAT


def _files(state: State, header: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Names and contents of the files, in the order in which they are written."""
    # Copies: safetensors takes neither views nor tensors that share memory.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.all_tensors()}
    content = tensor_bytes(tensors)
    digest = hashlib.sha256(content).hexdigest()
    facts = {
        "format": FORMAT,
        "schema": SCHEMA,
        **header,
        "tensors": {"file": TENSORS.format(digest[:16]), "sha256": digest, "bytes": len(content)},
        "state": state.all_facts(),
    }
    text = json.dumps({**facts, "sha256": _checksum(facts)}, indent=1, allow_nan=False, ensure_ascii=False)
    return [(facts["tensors"]["file"], content), (FACTS, text.encode())]


def _checksum(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _create(files: list[tuple[str, bytes]], target: Path) -> bool:
    """Write into a directory beside `target` and give it its name; False if another process has been faster."""
    beside = partial_directory(target)
    try:
        beside.chmod(0o777 & ~umask())
        for name, content in files:
            _write_file(beside / name, content)
        _sync_directory(beside)
        try:
            os.rename(beside, target)
        except OSError:
            if target.is_dir() and _is_model(target):
                return False
            raise
        _sync_directory(target.parent)
        return True
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Others of this machine that save here wait, for each would remove the tensors of the other."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # Windows and some file systems have no such locks
            import fcntl

            descriptor = os.open(directory, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            stack.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)  # a forked process may hold the descriptor too
        yield


def _replace(files: list[tuple[str, bytes]], target: Path) -> None:
    """Add the new tensors, point the JSON file to them, then remove what it does not name."""
    was_empty = not any(target.iterdir())
    try:
        for name, content in files:
            partial = target / f"{PARTIAL}{os.getpid()}-{name}"
            _write_file(partial, content)
            os.replace(partial, target / name)
            _sync_directory(target)
    except BaseException:
        if was_empty:
            for entry in target.iterdir():
                entry.unlink()
        raise
    finally:
        _remove_unnamed(target)


def _remove_unnamed(target: Path) -> None:
    """Remove partial files, and tensors of any model but the present one, new or old."""
    try:
        named = json.loads(_read_bytes(target / FACTS, MAX_FACTS))["tensors"]["file"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return  # the old one was damaged already, and writing the new one has failed
    for pattern in (TENSORS.format("*"), f"{PARTIAL}*"):
        for entry in target.glob(pattern):
            if entry.name != named:
                with contextlib.suppress(OSError):
                    entry.unlink()


def _write_file(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Make names durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# -------------------------------------------------------------------- reading


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], State]:
    """Header and state of the directory `path`, checked against their checksums."""
    target = _directory(path)
    for attempt in range(3):
        facts = _read_facts(target)
        try:
            content = _read_tensors(target, facts)
        except FileNotFoundError as error:
            if attempt < 2 and _read_facts(target) != facts:
                continue  # replaced while we read
            raise MissingModel(
                f"`path` {target} lacks the file {facts['tensors']['file']} of its tensors. "
                "Copy the whole directory, or save the model again."
            ) from error
        break
    return facts, guarded(target, lambda: _rebuild(facts, content))


def checksum(path: str | os.PathLike[str]) -> str:
    """What tells the model in the directory `path` from any other."""
    return str(_read_facts(_directory(path))["sha256"])


def _directory(path: str | os.PathLike[str]) -> Path:
    target = Path(path)
    if not target.exists() and remains_of(target.resolve()):
        raise MissingModel(
            f"`path` {target} does not exist: saving it has not ended, or was killed. Wait, or save the model again, "
            "which clears what is left."
        )
    if not target.exists():
        raise MissingModel(f"`path` {target} does not exist. Pass the directory given to `save`.")
    if not target.is_dir():
        raise ValueError(f"`path` {target} must be a directory written by `save`; it is a file. Pass its directory.")
    return target


def guarded(path: str | os.PathLike[str], build: Callable[[], Any]) -> Any:
    """build(), with any failure told as what it is: a file that holds something else than `save` wrote."""
    try:
        return build()
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, OverflowError, MemoryError, RecursionError,
            AssertionError, AttributeError, SafetensorError) as error:  # fmt: skip
        raise ValueError(
            f"`path` {Path(path)} holds a model that is damaged: {_one_line(error)}. Save it again, or restore a copy."
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")[:300] or type(error).__name__


def _read_facts(target: Path) -> dict[str, Any]:
    try:
        content = _read_bytes(target / FACTS, MAX_FACTS)
    except FileNotFoundError as error:
        raise MissingModel(
            f"`path` {target} holds no model: it has no {FACTS}. Pass a directory given to `save`."
        ) from error
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"`path` {target} holds a damaged {FACTS}: {_one_line(error)}. Save the model again, or restore a copy."
        ) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f"`path` {target} holds a {FACTS} that is not of ncprob. Pass a directory given to `save`.")
    _check_schema(facts, target)
    guarded(target, lambda: _check_facts(facts))
    return facts


def _check_schema(facts: dict[str, Any], target: Path) -> None:
    schema = facts.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise ValueError(
            f"`path` {target} was saved by a newer ncprob ({str(facts.get('version'))[:40]}, schema {schema}; this one "
            f"reads {SCHEMA}). Upgrade ncprob, or save the model with this version."
        )
    if type(schema) is int and 0 < schema < SCHEMA:
        raise ValueError(
            f"`path` {target} was saved by an older ncprob ({str(facts.get('version'))[:40]}, schema {schema}; this "
            f"one reads {SCHEMA}). Fit the model again, or use that version."
        )


def _check_facts(facts: dict[str, Any]) -> None:
    if facts.get("schema") != SCHEMA:
        raise ValueError(f"its schema is {facts.get('schema')!r}")
    rest = {name: value for name, value in facts.items() if name != "sha256"}
    if facts.get("sha256") != _checksum(rest):
        raise ValueError(f"the checksum of {FACTS} is wrong")
    tensors = facts.get("tensors")
    if not isinstance(tensors, dict) or type(tensors.get("file")) is not str or type(tensors.get("bytes")) is not int:
        raise ValueError("the file of its tensors is not named")
    if (
        tensors["file"] != TENSORS.format(str(tensors.get("sha256"))[:16])
        or Path(tensors["file"]).name != tensors["file"]
    ):
        raise ValueError("the file of its tensors is not named by its content")


def _read_tensors(target: Path, facts: dict[str, Any]) -> bytes:
    entry = facts["tensors"]
    file, size = target / entry["file"], entry["bytes"]
    found = file.stat().st_size
    if found != size:
        raise ValueError(
            f"`path` {target} holds a model that is damaged: {file.name} has {found} bytes instead of {size}. "
            "Save the model again, or restore a copy."
        )
    content = _read_bytes(file, size)
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise ValueError(
            f"`path` {target} holds a model that is damaged: the checksum of {file.name} is wrong. "
            "Save the model again, or restore a copy."
        )
    return content


def _read_bytes(path: Path, limit: int) -> bytes:
    with open(path, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"`path` {path} has more than {limit} bytes. Pass a directory given to `save`.")
    return content


def _rebuild(facts: dict[str, Any], content: bytes) -> State:
    tensors: dict[str, torch.Tensor] = load_tensors(content)
    return State.rebuild(facts.get("state"), tensors)
