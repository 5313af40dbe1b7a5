"""Calls here, in processes or on Ray: every item once, with its result or what it raised."""

import os
import sys

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
