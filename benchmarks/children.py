"""Processes of a benchmark: each runs a module, prints its facts as the last line, and is ended at its limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from benchmarks.records import CHECKOUT

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class TookTooLong(Exception):
    """A process was ended at its limit."""


class Failed(Exception):
    """A process ended by itself, or was killed from outside, before it had printed its facts."""


class Children:
    """Processes under way, which can be ended all at once."""

    def __init__(self) -> None:
        self._alive: set[subprocess.Popen[str]] = set()
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether they were ended, and none is to be started any more."""
        return self._stopped.is_set()

    def run(
        self, command: list[str], threads: int, limit: float, environment: Mapping[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Facts that `python -m` with `command` prints, within `limit` seconds; None if all were stopped meanwhile."""
        if self.stopped:
            return None
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=os.environ | dict.fromkeys(THREADS, str(threads)) | dict(environment or {}),
        )
        self._alive.add(process)
        if self.stopped:  # between the question above and now
            process.kill()
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise TookTooLong(f"stopped after {limit:g} s, the limit") from error
        finally:
            self._alive.discard(process)
        if self.stopped:
            return None
        if process.returncode:
            raise Failed(_last_words(process.returncode, errors))
        facts: dict[str, Any] = json.loads(output.splitlines()[-1])
        return facts

    def stop(self) -> None:
        """End all that are under way; `run` gives None for them."""
        self._stopped.set()
        for process in list(self._alive):
            process.kill()


def _last_words(status: int, errors: str) -> str:
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "no message")
    return f"killed by {signal.Signals(-status).name}: {last}" if status < 0 else last
