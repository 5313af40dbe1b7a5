"""Calls here, in processes or on Ray: every item once, with its result or what it raised."""

import os
import re
import socket
import sys
from types import SimpleNamespace

import pytest

from ncprob.workers import check_workers, connected_ray, share_out


def halved(number):
    if number == 0:
        os._exit(3)  # as a killed process
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number / 2


def test_one_after_the_other_and_lazily():
    seen = []
    calls = share_out(lambda item: seen.append(item) or item, [1, 2, 3])
    assert next(calls) == (1, 1)
    calls.close()
    assert seen == [1]


def test_errors_stand_in_the_place_of_results():
    found = dict(share_out(halved, [4, -1, 2]))
    assert (found[4], found[2], str(found[-1])) == (2.0, 1.0, "-1 is negative")


def test_a_process_that_dies_is_told():
    """Results of processes are tested with `predict_files`."""
    ((item, error),) = share_out(halved, [0], 2)
    assert item == 0
    assert isinstance(error, ChildProcessError)
    assert "ended without an answer" in str(error)
    assert list(share_out(halved, [], 2)) == []


@pytest.mark.parametrize(
    ("workers", "error", "message"),
    [(0, ValueError, "at least 1"), (True, TypeError, "integer"), ("dask", ValueError, "'ray'; got 'dask'")],
)
def test_bad_workers_are_refused(workers, error, message):
    with pytest.raises(error, match=message):
        check_workers(workers)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for call in (connected_ray, lambda: check_workers("ray"), lambda: list(share_out(halved, [1], "ray"))):
        with pytest.raises(ImportError, match=r"pip install 'ncprob\[distributed\]'"):
            call()


def test_an_address_of_ray_where_nobody_listens_is_told_at_once(monkeypatch):
    asked = []
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=lambda: asked.append(1)))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for address in (f" 127.0.0.1:{port} ", f"ray://127.0.0.1:{port}", "ray://host", "auto", ""):
            monkeypatch.setenv("RAY_ADDRESS", address)
            connected_ray()
    assert len(asked) == 5
    for address in (
        f"127.0.0.1:{port}",
        f"ray://127.0.0.1:{port}",
        "127.0.0.1:99999",
        "a..b:6379",
    ):  # the server has gone
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConnectionError, match=f"answers at {re.escape(address)}, the address in RAY_ADDRESS"):
            connected_ray()
    assert len(asked) == 5
