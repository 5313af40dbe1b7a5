"""Work over threads: order, settings of each thread, errors."""

import threading

import pytest
import torch

from ncprob.threads import one_thread, over_threads


@pytest.fixture(params=[1, 2, 4])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_whatever_the_number_of_threads(threads):
    assert list(over_threads(lambda n: n * n, range(50))) == [n * n for n in range(50)]
    assert list(over_threads(lambda n: n, [])) == []


def test_every_item_is_computed_on_one_core_and_settings_stay(threads):
    with torch.no_grad():
        seen = list(over_threads(lambda _: (torch.get_num_threads(), torch.is_grad_enabled()), range(6)))
    assert seen == [(1, False)] * 6
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_several_threads_are_used(threads):
    meeting = threading.Barrier(threads, timeout=30)  # passes only if so many compute at the same time
    assert len(list(over_threads(lambda _: meeting.wait(), range(threads)))) == threads


def test_an_error_reaches_the_caller_and_leaves_the_settings(threads):
    def fail(n):
        raise ValueError(f"item {n}")

    with pytest.raises(ValueError, match="item 0"):
        list(over_threads(fail, range(3)))
    assert torch.get_num_threads() == threads


def test_one_thread_only_when_asked(threads):
    with one_thread(when=False):
        assert torch.get_num_threads() == threads
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
