"""Pairs from tensors, data sets and loaders: every row once, batches a function of (seed, step) alone."""

import itertools
from typing import NamedTuple

import pytest
import torch
from helpers import generator
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ncprob.pairs import DatasetPairs, LoaderPairs, TensorPairs, as_pairs, select, to_device

seeds = st.integers(0, 2**20)


class Both(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class DictData(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return {"a": torch.tensor([float(i)]), "b": torch.tensor([2.0 * i, 0.0])}, torch.tensor([3.0 * i])


def column(n):
    return torch.arange(n, dtype=torch.float32)[:, None]


def numbered(n, weights=None):
    return TensorPairs(column(n), 10 * column(n), weights)


def take(pairs, count, batch_size, seed=0, start=0):
    return [x[:, 0].long().tolist() for x, _ in itertools.islice(pairs.batches(batch_size, seed, start), count)]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), seeds)
def test_an_epoch_holds_every_row_at_most_once(n, batch_size, seed):
    size = min(n, batch_size)
    epoch = list(itertools.chain(*take(numbered(n), n // size, batch_size, seed)))
    assert len(epoch) == len(set(epoch)) == n - n % size


@pytest.mark.parametrize("batch_size", [4, 12, 100])
def test_an_epoch_of_whole_batches_holds_every_row_once(batch_size):
    per_epoch = max(1, 12 // batch_size)
    for epoch in range(3):
        rows = itertools.chain(*take(numbered(12), per_epoch, batch_size, start=epoch * per_epoch))
        assert sorted(rows) == list(range(12))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), seeds, st.integers(0, 20), st.booleans())
def test_batches_depend_on_seed_and_step_alone(n, batch_size, seed, start, is_weighted):
    weights = torch.rand(n, generator=generator(seed)) + 0.01 if is_weighted else None
    pairs = numbered(n, weights)
    assert take(pairs, 3, batch_size, seed, start) == take(pairs, start + 3, batch_size, seed)[start:]


def test_seeds_and_epochs_give_different_orders():
    first, second = take(numbered(50), 2, 50)
    assert first != second
    assert take(numbered(50), 1, 50, seed=1)[0] != first


def test_x_and_y_stay_together():
    for x, y in itertools.islice(numbered(20).batches(7, seed=0), 5):
        torch.testing.assert_close(y, 10 * x)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=20).filter(lambda w: sum(w) > 1e-3), seeds)
def test_weighted_rows_appear_in_proportion(weights, seed):
    share = torch.tensor(weights, dtype=torch.float64)
    n = len(share)
    expected = n * share / share.sum()
    counts = torch.tensor(take(numbered(n, share), 1, n, seed)[0]).bincount(minlength=n)
    assert (counts >= (expected - 1e-9).floor()).all()
    assert (counts <= (expected + 1e-9).ceil()).all()


def test_weighted_rows_are_unbiased():
    """A count varies by at most ½ about its mean, so 400 epochs give a standard error of 0.025. Four of them."""
    weights = torch.tensor([0.1, 0.5, 1.3, 2.1])
    rows = torch.tensor(take(numbered(4, weights), 400, 4)).flatten()
    torch.testing.assert_close(rows.bincount() / 400, weights, atol=0.1, rtol=0)


@pytest.mark.parametrize("size", [1, 3, 10, 99])
def test_chunks_hold_all_pairs_in_order(size):
    weights = torch.arange(10) + 1.0
    sources = [
        numbered(10, weights),
        DatasetPairs(TensorDataset(column(10), 10 * column(10))),
        LoaderPairs(DataLoader(TensorDataset(column(10), 10 * column(10)), batch_size=3)),
    ]
    for pairs in sources:
        x, y, w = zip(*pairs.chunks(size), strict=True)
        torch.testing.assert_close(torch.cat(x), column(10))
        torch.testing.assert_close(torch.cat(y), 10 * column(10))
        if pairs is sources[0]:
            torch.testing.assert_close(torch.cat(w), weights)
        else:
            assert set(w) == {None}


def test_a_dataset_gives_the_batches_of_its_tensors():
    dataset = as_pairs(TensorDataset(column(11), 10 * column(11)))
    assert take(dataset, 6, 4, seed=3) == take(numbered(11), 6, 4, seed=3)


def test_a_loader_is_repeated_without_end():
    pairs = as_pairs(DataLoader(TensorDataset(column(6), column(6)), batch_size=4))
    assert take(pairs, 5, batch_size=99) == [[0, 1, 2, 3], [4, 5]] * 2 + [[0, 1, 2, 3]]
    assert take(pairs, 2, batch_size=99, start=3) == [[4, 5], [0, 1, 2, 3]]


def test_items_may_be_dictionaries():
    pairs = as_pairs(DictData())
    assert len(pairs) == 10
    x, y = next(pairs.batches(5, seed=0))
    torch.testing.assert_close(x["b"][:, :1], 2 * x["a"])
    torch.testing.assert_close(y, 3 * x["a"])


@pytest.mark.parametrize("make", [lambda a, b: {"a": a, "b": b}, lambda a, b: (a, b), lambda a, b: [a, b], Both])
def test_inputs_may_be_containers(make):
    pairs = as_pairs((make(column(8), -column(8)), column(8)))
    for nested, y in ((*next(pairs.batches(3, seed=0)),), next(pairs.chunks(3))[:2]):
        assert type(nested) is type(make(column(1), column(1)))
        a, b = nested.values() if isinstance(nested, dict) else nested
        torch.testing.assert_close(a, y)
        torch.testing.assert_close(b, -y)


def test_select_and_move_reach_into_containers():
    nested = {"a": column(4), "b": (column(4), [column(4)])}
    for part in (select(nested, torch.tensor([2])), to_device(select(nested, slice(2, 3)), torch.device("cpu"))):
        assert part["a"].item() == part["b"][0].item() == part["b"][1][0].item() == 2


def test_pairs_stay_pairs():
    pairs = numbered(5)
    assert as_pairs(pairs) is pairs


def test_fingerprint_tells_data_apart():
    x, y = column(6), column(6)
    same = TensorPairs(x.clone(), y.clone()).fingerprint()
    assert TensorPairs(x, y).fingerprint() == same
    changed = x.clone()
    changed[3] += 1e-5
    others = [
        TensorPairs(changed, y),
        TensorPairs(x, y, torch.ones(6)),
        TensorPairs(x.double(), y),
        TensorPairs(x[:, 0], y),
        TensorPairs(x[:5], y[:5]),
    ]
    assert len({same, *(pairs.fingerprint() for pairs in others)}) == 6


@pytest.mark.parametrize(
    "wrong", [torch.zeros(4, 1), 5, "pairs", {"x": torch.zeros(4, 1)}, (torch.zeros(4),), None, ([1, 2], [3, 4])]
)
def test_what_is_not_pairs_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="`pairs` must"):
        as_pairs(wrong)


@pytest.mark.parametrize(
    ("x", "y"),
    [(column(5), column(4)), ({"a": column(5), "b": column(3)}, column(5)), (column(3), (column(3), column(2)))],
)
def test_unequal_lengths_are_a_value_error(x, y):
    with pytest.raises(ValueError, match="`pairs` must hold"):
        as_pairs((x, y))


@pytest.mark.parametrize(
    "weights",
    [torch.ones(4), torch.ones(6), torch.ones(5, 1), -torch.ones(5), torch.zeros(5), torch.full((5,), torch.nan)],
)
def test_bad_weights_are_a_value_error(weights):
    with pytest.raises(ValueError, match="weights in `pairs` must"):
        as_pairs((column(5), column(5), weights))


def test_weights_must_be_a_tensor():
    with pytest.raises(TypeError, match="weights in `pairs` must be a tensor"):
        as_pairs((column(2), column(2), [1.0, 2.0]))
