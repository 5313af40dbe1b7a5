"""Files that are either whole or not there."""

from __future__ import annotations

import contextlib
import glob
import os
import platform
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

STALE = 3600.0  # seconds after which nobody writes a file any more


def umask() -> int:
    """Permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse an output that could not be written, before any work is done."""
    target = Path(path)
    folder = target.absolute().parent
    if target.is_dir():
        raise ValueError(f"{path} is a directory; the output is a file. Name a file in it.")
    if not folder.is_dir():
        raise ValueError(f"{path} cannot be written: {folder} is no directory. Create it first.")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is no ordinary file. Name a file; for standard output leave the name out.")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise ValueError(f"{path} cannot be written: it is read-only. Choose another place.")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file beside `path` that takes its place once it is whole; after a failure nothing is left of it.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder, replacing(f"{folder}/a.txt") as partial:
    ...     _ = partial.write_text("whole")
    ...     os.path.exists(f"{folder}/a.txt")
    False
    """
    check_writable(path)
    target = Path(path).resolve()  # a link stays a link
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.{_writer()}.", suffix=".partial", dir=target.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o666 & ~umask())  # mkstemp makes private files
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _writer() -> str:
    """This machine and process."""
    return f"{zlib.crc32(platform.node().encode()):08x}-{os.getpid()}"


def partial_directory(path: Path) -> Path:
    """A new directory beside `path`, which is to get its name once it is whole; named as the files of `replacing`."""
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.{_writer()}.", suffix=".partial", dir=path.parent))


def remains_of(path: Path) -> list[Path]:
    """What is being written under another name beside `path`, or was when a process was killed."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.*.partial"))


def clear_remains(path: Path) -> None:
    """Remove what killed processes have left beside `path`; what others are writing now stays."""
    for remains in remains_of(path):
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            if time.time() - remains.stat().st_mtime > STALE or _is_gone(remains.name.split(".")[-3]):
                shutil.rmtree(remains) if remains.is_dir() else remains.unlink()


def _is_gone(writer: str) -> bool:
    """Whether a process of this machine has ended; of others nothing is known."""
    machine, _, number = writer.partition("-")
    if machine != _writer().partition("-")[0] or not number.isdigit() or os.name != "posix":
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
