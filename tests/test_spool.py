"""Samples of a long stream are uniform, disjoint and of bounded size; batches from disk are in random order."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob.spool import Reservoir, SpoolPairs


def filled(folder, n, sample_rows, spool_rows, seed=0, batch=100, columns=None):
    """A reservoir of the numbers 0, 1, …, n − 1, and of functions of them."""
    columns = columns or [lambda k: k]
    reservoir = Reservoir(folder, len(columns), sample_rows, spool_rows, seed)
    for start in range(0, n, batch):
        numbers = np.arange(start, min(n, start + batch), dtype=np.float64)
        reservoir.add(np.column_stack([column(numbers) for column in columns]))
    return reservoir.finish()


def on_disk(spool):
    return np.concatenate([spool.bucket(k) for k in range(len(spool.counts))])[:, 2]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 600), st.integers(1, 100), st.integers(1, 100), st.integers(1, 90), st.integers(0, 9))
def test_samples_are_disjoint_and_bounded(tmp_path_factory, n, sample_rows, spool_rows, batch, seed):
    sample, spool = filled(tmp_path_factory.mktemp("spool"), n, sample_rows, spool_rows, seed, batch)
    kept = sample[:, 0]
    assert np.all(np.diff(kept) > 0)  # in the order of the stream, none twice
    if n <= 2 * sample_rows:
        assert len(kept) == n
        assert spool is None
        return
    rows = on_disk(spool)
    assert len(kept) == sample_rows
    assert len(rows) == len(spool) <= 2 * spool_rows
    assert len(np.unique(np.concatenate([kept, rows]))) == len(kept) + len(rows)
    if n - sample_rows <= spool_rows:
        assert len(rows) == n - sample_rows


def test_every_row_has_the_same_chance(tmp_path):
    """Over 200 seeds a row of 300 is in a sample of 30 with probability 0.1: counts of 20 ± 4.2. Five deviations.

    The largest of 300 normal deviations is beyond four once in fifty such tests, and beyond five once in 6,000.
    """
    in_memory, spooled = np.zeros(300), np.zeros(300)
    for seed in range(200):
        folder = tmp_path / str(seed)
        folder.mkdir()
        sample, spool = filled(folder, 300, 30, 40, seed, batch=75)
        in_memory[sample[:, 0].astype(int)] += 1
        spooled[on_disk(spool).astype(int)] += 1
    for counts in (in_memory, spooled):
        share = counts.mean() / 200
        assert np.abs(counts - counts.mean()).max() < 5 * np.sqrt(200 * share * (1 - share))


def pair(columns, numbers):
    return columns[:, :1], numbers


@pytest.fixture
def sorted_spool(tmp_path, monkeypatch):
    monkeypatch.setattr("ncprob.spool.BUCKET_BYTES", 4096)  # several buckets
    return filled(tmp_path, 2000, 100, 5000, columns=[lambda k: k, lambda k: 1.0 + (k >= 1000)])[1]


def test_an_epoch_visits_every_row_once_in_random_order(sorted_spool):
    pairs = SpoolPairs(sorted_spool, pair)
    assert len(sorted_spool.counts) > 3
    assert len(pairs) == 1900
    batches = [x[:, 0] for x, _ in itertools.islice(pairs.batches(100, seed=1), 38)]
    for epoch in (batches[:19], batches[19:]):
        assert len(torch.cat(epoch).unique()) == 1900
        # A mean of 100 of 1,900 numbers with deviation 577 has one of 56; the stream itself was sorted.
        assert all(abs(float(batch.mean()) - 1000) < 5 * 56 for batch in epoch)
    assert not torch.equal(batches[0], batches[19])


@pytest.mark.parametrize("start", [0, 7, 18, 19, 45])
@pytest.mark.parametrize("weights", [None, 1])
def test_batches_are_a_function_of_seed_and_step(sorted_spool, start, weights):
    pairs = SpoolPairs(sorted_spool, pair, weights)
    whole = list(itertools.islice(pairs.batches(100, seed=3), start, start + 3))
    resumed = list(itertools.islice(pairs.batches(100, seed=3, start=start), 3))
    for (x, numbers), (again, same) in zip(whole, resumed, strict=True):
        assert torch.equal(x, again)
        assert torch.equal(numbers, same)
    assert not torch.equal(whole[0][0], next(pairs.batches(100, seed=4, start=start))[0])


def test_weights_draw_rows_in_proportion(sorted_spool):
    """Rows from 1,000 on weigh twice as much: two thirds of an epoch of 1,900, up to rounding in every bucket."""
    pairs = SpoolPairs(sorted_spool, pair, weights=1)
    drawn = torch.cat([x[:, 0] for x, _ in itertools.islice(pairs.batches(100, seed=0), 19)])
    heavy = int((on_disk(sorted_spool) >= 1000).sum())
    expected = 2 * heavy / (2 * heavy + 1900 - heavy)
    assert float((drawn >= 1000).double().mean()) == pytest.approx(expected, abs=2 * len(sorted_spool.counts) / 1900)
    weights = torch.cat([weights for _, _, weights in pairs.chunks(64)])
    assert weights.sum() == 2 * heavy + 1900 - heavy


def test_chunks_hold_every_row_once_with_its_own_number(sorted_spool):
    pairs = SpoolPairs(sorted_spool, pair)
    chunks = list(pairs.chunks(64))
    assert len(torch.cat([x for x, _, _ in chunks]).unique()) == 1900
    numbers = {float(x): int(k) for x, number, _ in chunks for x, k in zip(x[:, 0], number, strict=True)}
    x, number = next(pairs.batches(500, seed=0))
    assert all(numbers[float(a)] == int(k) for a, k in zip(x[:, 0], number, strict=True))
    folds = torch.bincount(torch.cat([number for _, number, _ in chunks]) % 4, minlength=4)
    assert (folds - 475).abs().max() < 5 * 19  # binomial with 1,900 rows and ¼


def test_levels_get_their_final_numbers_in_memory_and_on_disk(tmp_path):
    reservoir = Reservoir(tmp_path, 1, 10, 20, seed=0)
    reservoir.add(np.tile([[0.0], [1.0]], (200, 1)))
    sample, spool = reservoir.finish({0: np.array([7.0, 8.0])})
    assert set(sample[:, 0]) == set(on_disk(spool)) == {7.0, 8.0}


def test_fingerprints_tell_rows_apart(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    first, same, other = (filled(f, 500, 10, 20, seed)[1] for f, seed in zip(folders, (0, 0, 1), strict=True))
    assert first.fingerprint() == same.fingerprint() != other.fingerprint()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_told_with_its_directory(tmp_path):
    reservoir = Reservoir(tmp_path, 1, sample_rows=10, spool_rows=5000, seed=0)
    (tmp_path / "bucket-0").symlink_to("/dev/full")
    with pytest.raises(OSError, match=rf"{tmp_path}.* bytes are needed.*TMPDIR"):
        reservoir.add(np.zeros((5000, 1)))
