"""Work over threads: each computes on one core, and operations of torch inside it share no work.

Operations of microseconds gain nothing from threads inside them; on cores that other work shares these wait for each
other in a busy loop, and that takes many times as long as one thread does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def one_thread(when: bool = True) -> Iterator[None]:
    """Operations of torch in this thread use one core inside the block, if `when`."""
    before = torch.get_num_threads()
    if when:
        torch.set_num_threads(1)  # of this thread alone
    try:
        yield
    finally:
        torch.set_num_threads(before)


def over_threads(compute: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """compute(item) of every item, in order, on as many threads as torch may use here, each on one core.

    Results do not depend on the number of threads. It pays where `compute` gives up the interpreter's lock, as
    operations of torch and NumPy do.

    Examples
    --------
    >>> list(over_threads(lambda n: n * n, [1, 2, 3]))
    [1, 4, 9]
    """
    n_threads = min(torch.get_num_threads(), len(items))
    gradients = torch.is_grad_enabled()

    def alone(item: Item) -> Result:
        with one_thread(), torch.set_grad_enabled(gradients):  # both are settings of a thread
            return compute(item)

    if n_threads <= 1:
        yield from map(alone, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield from pool.map(alone, items)
