"""Calls that do not depend on each other: one after the other, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Literal, TypeVar

import torch

from ncprob._validation import check_integer

Workers = int | Literal["ray"]
Item = TypeVar("Item")
REACHABLE_WITHIN = 20.0  # seconds
IN_FLIGHT = 1000  # calls that Ray knows of at once: it keeps all of them in memory


def check_workers(workers: Any) -> None:
    """A number of processes, or the cluster.

    Examples
    --------
    >>> check_workers("dask")
    Traceback (most recent call last):
    ValueError: `workers` must be a number of processes or 'ray'; got 'dask'. Choose one of these.
    """
    if isinstance(workers, str):
        if workers != "ray":
            raise ValueError(f"`workers` must be a number of processes or 'ray'; got {workers!r}. Choose one of these.")
        connected_ray()
    else:
        check_integer(workers, "workers", minimum=1)


def share_out(
    function: Callable[[Item], Any], items: Sequence[Item], workers: Workers = 1
) -> Generator[tuple[Item, Any], None, None]:
    """(item, function(item)) for all items, as they are done; what a call raised stands in the place of its result.

    With several workers, `function` and items are pickled. Calls that have not begun are given up when the iterator is
    closed.

    Examples
    --------
    >>> [(item, str(result)) for item, result in share_out(lambda x: 1 / x, [2, 0])]
    [(2, '0.5'), (0, 'division by zero')]
    """
    if workers == "ray":
        return _on_ray(function, items)
    if workers == 1:
        return ((item, _tried(function, item)) for item in items)
    return _in_processes(function, items, workers)


def _tried(function: Callable[[Item], Any], item: Item) -> Any:
    try:
        return function(item)
    except Exception as error:
        return error


def _in_processes(
    function: Callable[[Item], Any], items: Sequence[Item], workers: int
) -> Generator[tuple[Item, Any], None, None]:
    # A forked process would inherit the locks of torch's threads without the threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(workers, max(1, len(items))), context, initializer=torch.set_num_threads, initargs=(1,)
    )
    try:
        futures: dict[Future[Any], Item] = {pool.submit(function, item): item for item in items}
        for future in as_completed(futures):
            result = _tried(lambda done: done.result(), future)
            if isinstance(result, BrokenProcessPool):
                result = ChildProcessError("a worker process ended without an answer: killed, or out of memory")
            yield futures[future], result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _on_ray(function: Callable[[Item], Any], items: Sequence[Item]) -> Generator[tuple[Item, Any], None, None]:
    ray = connected_ray()
    remote = ray.remote(_tried)
    waiting = iter(items)
    running = {remote.remote(function, item): item for item in itertools.islice(waiting, IN_FLIGHT)}
    try:
        while running:
            (done,), _ = ray.wait(list(running))
            item = running.pop(done)
            running |= {remote.remote(function, another): another for another in itertools.islice(waiting, 1)}
            yield item, _tried(ray.get, done)
    finally:
        for call in running:
            ray.cancel(call)


def connected_ray() -> Any:
    """The package ray, connected to the cluster that it finds, or to one of its own on this machine."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("Ray is needed for this: pip install 'ncprob[distributed]'") from error
    if not ray.is_initialized():
        _check_reachable(os.environ.get("RAY_ADDRESS", ""))
        ray.init()
    return ray


def _check_reachable(address: str) -> None:
    """Refuse a host and port where nobody listens: Ray itself tries for many minutes."""
    host, _, port = address.strip().rpartition("://")[2].rpartition(":")
    if not (host and port.isdecimal()):  # "", "auto", "local", or an address without a port, which Ray judges
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHABLE_WITHIN).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConnectionError(
            f"No Ray cluster answers at {address}, the address in RAY_ADDRESS ({error}). Start it there, or correct or "
            "unset the variable; without it Ray takes the cluster of this machine, or starts one."
        ) from error
