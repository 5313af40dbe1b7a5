"""Several processes give what one gives with the joined batch: losses, gradients, training, statistics."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import ranks_worker
import torch
import torch.distributed as dist
from helpers import gaussian_pairs, normal
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks_worker import UNEVEN, Killing, double_operator, loss_and_gradient, own_rows, trained
from torch.utils.data import DataLoader, TensorDataset

from ncprob import NCPRegressor
from ncprob.losses import LOSSES, best_operator, orthonormality_penalty
from ncprob.pairs import DatasetPairs, LoaderPairs, TensorPairs
from ncprob.partition import OwnPairs
from ncprob.ranks import ALONE, JoinedRows, Ranks, current_ranks, shares
from ncprob.statistics import PairMoments

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")

NAMES = [*LOSSES, "penalty"]


# ---------------------------------------------------------------- ranks as threads: quick, for many sizes


class ThreadRanks(Ranks):
    """Ranks of a gloo group between threads of this process."""

    device = torch.device("cpu")

    def _reduce(self, tensor):
        self.group.allreduce([tensor]).wait()

    def gathered(self, value):
        raise NotImplementedError


def on_threads(size, compute):
    """compute(ranks) of every rank."""
    store, results, errors = dist.HashStore(), [None] * size, []

    def work(rank):
        try:
            results[rank] = compute(ThreadRanks(dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=30))))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=4).filter(lambda sizes: sum(sizes) >= 8))
def test_loss_and_gradients_are_those_of_the_joined_batch(name, sizes):
    """Any division of the rows, ranks without rows included."""
    u, v = normal(sum(sizes), 3, seed=1), normal(sum(sizes), 3, seed=2)
    mix, s = normal(3, 3, seed=3), torch.tensor([0.9, 0.5, 0.7], dtype=torch.float64)

    def gradients(ranks, begin, end):
        weights, values = mix.clone().requires_grad_(), s.clone().requires_grad_()
        features = (u[begin:end] @ weights).tanh() + 0.5, v[begin:end] @ weights
        rows = ranks.rows(end - begin)
        loss = (
            orthonormality_penalty(*features, rows) if name == "penalty" else LOSSES[name](*features, values, rows)
        ) + values.square().sum()  # a term that no rank has rows of
        loss.backward()
        ranks.average_gradients([weights, values])
        return loss.detach(), weights.grad, values.grad

    expected = gradients(ALONE, 0, sum(sizes))
    ends = [sum(sizes[: rank + 1]) for rank in range(len(sizes))]
    for found in on_threads(len(sizes), lambda r: gradients(r, ends[r.rank] - sizes[r.rank], ends[r.rank])):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_a_parameter_without_gradient_on_all_ranks_keeps_none():
    def gradients(ranks):
        unused, used = torch.zeros(2, requires_grad=True), torch.zeros(3, requires_grad=True)
        frozen = torch.zeros(1)
        if ranks.rank == 1:
            used.grad = torch.full((3,), 4.0)
        ranks.average_gradients([unused, used, frozen])
        return unused.grad, used.grad.tolist()

    assert on_threads(2, gradients) == [(None, [2.0] * 3)] * 2


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.data())
def test_parts_of_a_joined_batch_are_those_of_its_rows(counts, data):
    n = sum(counts)
    begin = data.draw(st.integers(0, n))
    end = data.draw(st.integers(begin, n))
    rows, taken, offset = torch.arange(n), [], 0
    for rank, count in enumerate(counts):
        ranks = Ranks()
        ranks.rank, ranks.size = rank, len(counts)
        here, part = JoinedRows(ranks, tuple(counts)).part(begin, end)
        taken.append(rows[offset : offset + count][here])
        assert len(taken[-1]) == part.counts[rank]
        offset += count
    assert torch.equal(torch.cat(taken), rows[begin:end])


@given(st.integers(0, 1000), st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_shares_add_up_and_are_proportional(total, masses):
    parts = shares(total, masses)
    assert sum(parts) == total
    assert all(abs(part - total * mass / sum(masses)) < 1 + 1e-9 for part, mass in zip(parts, masses, strict=True))


@pytest.mark.parametrize("name", [*LOSSES])
def test_ranks_with_rows_of_another_law_give_the_loss_of_all_rows(name):
    """One rank has u = v near −1, the other near +1: Var(u) = 1.04, though 0.04 within each rank.

    L = s² Var(u)² − 2 s Var(u) = −0.37 with s = 0.2, and about −1 for the cross-fitted loss. Split by ranks, the first
    term (0.043) would be zero, and the fits of the last loss of no use. With 1,000 rows in a half the first term is off
    by 0.001; the share of rows with partners of the same sign, whose sign is squared away, does not matter.
    """
    noise = 0.2 * normal(2001, 1, seed=1)
    s = torch.tensor([0.2], dtype=torch.float64)

    def loss(ranks, u):
        return float(LOSSES[name](u, u, s, ranks.rows(len(u))))

    def of_rank(ranks):
        ranks.own = True
        return loss(ranks, noise[:900] - 1 if ranks.rank == 0 else noise[900:] + 1)

    joined = torch.cat([noise[:900] - 1, noise[900:] + 1])
    mixed = joined[torch.randperm(2001, generator=torch.Generator().manual_seed(0))]
    for found in on_threads(2, of_rank):
        assert found == pytest.approx(loss(ALONE, mixed), abs=0.01)


class PlannedRanks(Ranks):
    """One of two ranks, which knows what the other one gathers."""

    def __init__(self, rank, told):
        super().__init__()
        self.rank, self.size, self.told = rank, 2, told

    def gathered(self, value):
        self.told[self.rank] = value
        return self.told


def own_of_both(first, second):
    """Pairs of two ranks, each beside the other."""
    told = [None, None]
    for rank, pairs in enumerate((first, second)):
        with contextlib.suppress(TypeError):  # the other rank has told nothing yet
            OwnPairs(pairs, PlannedRanks(rank, told))
    return [OwnPairs(pairs, PlannedRanks(rank, told)) for rank, pairs in enumerate((first, second))]


def numbered(n, offset=0, weights=None):
    x = torch.arange(offset, offset + n, dtype=torch.float64)[:, None]
    return TensorPairs(x, x, weights)


@pytest.mark.parametrize("weight", [100.0, 1.0])
def test_ranks_give_to_batches_in_proportion_to_weight(weight):
    """Ten rows beside 1,000: 128 of 256 rows for weights of 100, else 2.53 on average.

    Shares are 2 or 3: the mean of 400 is off by 0.025 (one deviation). Rows repeat equally often, within one epoch.
    """
    few, many = own_of_both(numbered(10, weights=torch.full((10,), weight)), numbered(1000, 10))
    steps = [
        (x[:, 0], other[:, 0])
        for (x, _), (other, _) in itertools.islice(zip(few.batches(256, 0), many.batches(256, 0), strict=True), 400)
    ]
    assert {len(x) + len(other) for x, other in steps} == {256}
    due = 256 * 10 * weight / (10 * weight + 1000)
    assert np.mean([len(x) for x, _ in steps]) == pytest.approx(due, abs=0.13)
    counts = torch.cat([x for x, _ in steps]).long().bincount(minlength=10)
    assert counts.max() - counts.min() <= 1
    later = next(few.batches(256, 0, start=37))[0][:, 0]
    assert torch.equal(later, steps[37][0])


def test_a_rank_with_very_few_rows_gives_none_to_most_batches():
    """10 rows beside 100,000, batches of 256: one row in 39 batches; 1,000 batches give 25.6 ± 5 (Bernoulli)."""
    few, _ = own_of_both(numbered(10), numbered(100_000, 10))
    sizes = [len(x) for x, _ in itertools.islice(few.batches(256, 3), 1000)]
    assert set(sizes) == {0, 1}
    assert sum(sizes) == pytest.approx(25.6, abs=20)
    dataset, _ = own_of_both(DatasetPairs(TensorDataset(*gaussian_pairs(10))), numbered(100_000))
    assert {tuple(x.shape) for x, _ in itertools.islice(dataset.batches(256, 3), 100)} == {(0, 1), (1, 1)}


def test_loaders_must_keep_the_proportion_of_rows():
    def loader(n, size):
        return LoaderPairs(DataLoader(TensorDataset(*gaussian_pairs(n)), batch_size=size))

    first, _ = own_of_both(loader(40, 4), loader(400, 40))
    assert len(next(first.batches(44, 0))[0]) == 4
    with pytest.raises(ValueError, match=r"rank 0 has 0\.0909 of the rows and would give 0\.5"):
        own_of_both(loader(40, 4), loader(400, 4))
    with pytest.raises(ValueError, match="those of rank 1 do not"):
        own_of_both(loader(40, 4), numbered(40))


def test_chunks_without_weight_do_not_spoil_moments():
    u, v = normal(6, 2, seed=1), normal(6, 2, seed=2)
    weights = torch.tensor([0.0, 0.0, 1.0, 2.0, 1.0, 3.0])
    chunks = [(u[i : i + 2], v[i : i + 2], weights[i : i + 2]) for i in (0, 2, 4)]
    torch.testing.assert_close(PairMoments.accumulate(chunks).cross, PairMoments.of(u, v, weights).cross)


# ---------------------------------------------------------------- ranks as processes


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What three processes found, and the folder with the checkpoint of the run that lost one of them."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")  # workers of one test run share what was found
    base = tmp_path_factory.getbasetemp()
    folder = base / "ranks" if run is None else base.parent / f"ranks-{run}"
    try:
        folder.mkdir()
    except FileExistsError:
        for _ in range(1500):
            if (folder / "done").exists():
                break
            time.sleep(0.1)
    else:
        launch(folder)
        (folder / "done").touch()
    return folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def launch(folder):
    """Three processes, of which the last one kills itself."""
    (folder / "bad").mkdir()
    (folder / "bad" / "operator.safetensors").write_bytes(b"no checkpoint")
    common = dict(os.environ)
    common["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    running = [
        subprocess.Popen(
            [sys.executable, ranks_worker.__file__, str(folder)], env=common | {"RANK": str(rank)},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(3)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=120)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0, -9], errors


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_processes_give_the_loss_and_gradients_of_one(found, name, size):
    loss, gradient = loss_and_gradient(name, gaussian_pairs(sum(UNEVEN[size]), dtype=torch.float64))
    for rank in found[1]:
        assert rank[f"{name}-{size}"][0] == pytest.approx(loss, rel=1e-9)
        assert rank[f"{name}-{size}"][1] == pytest.approx(gradient, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "loss", "weighted"),
    [("train", "covariance", False), ("train-weighted", "u_statistic", True), ("train-cross", "cross_fitted", False)],
)
def test_training_on_three_processes_is_training_on_one(found, name, loss, weighted):
    """Batches of 50 are cut into 16, 17 and 17 rows; 16 steps of AdamW in float64 keep rounding below 1e-6."""
    alone = trained(loss, weighted, **({"max_steps": 8} if loss == "cross_fitted" else {}))
    for rank in found[1]:
        assert rank[name]["steps"] == alone["steps"]
        assert rank[name]["best"] == alone["best"]
        for key in ("weights", "loss", "validation", "values"):
            assert rank[name][key] == pytest.approx(alone[key], rel=1e-6, abs=1e-7)


def test_ranks_with_rows_of_their_own_agree(found):
    first, second = found[1]
    assert first["own"] == second["own"]
    assert first["own-values"] == second["own-values"]
    operator = double_operator()
    state = torch.tensor(first["own"], dtype=torch.float64).split([p.numel() for p in operator.state_dict().values()])
    for tensor, values in zip(operator.state_dict().values(), state, strict=True):
        tensor.copy_(values.view(tensor.shape))
    parts = [(*own_rows(rank), None)[:3] for rank in range(3)]
    weights = torch.cat([torch.ones(len(x)) if w is None else w for x, _, w in parts])
    joined = torch.cat([x for x, _, _ in parts]), torch.cat([y for _, y, _ in parts]), weights
    assert operator.postprocess(joined).singular_values.tolist() == pytest.approx(first["own-values"], rel=1e-6)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("few rows", "`pairs` has 2 rows, fewer than the 3 ranks: rank 2 would have none"),
        ("small batch", "`batch_size` is 2, fewer than the 3 ranks: rank 2"),
        ("differ", "those of rank 2 are not those of rank 0"),
        ("equal", "they are the same on all 3"),
        ("empty", "`pairs` of rank 1 holds no rows"),
        ("loader", "got a DataLoader"),
        ("uneven loaders", "rank 0 has 0.167 of the rows and would give 0.333"),
        ("no batch", "`pairs` of rank 1 must come in batches; the DataLoader gives none"),
        ("seed", "`random_state` must be the same on all ranks; rank 2 has 1 and rank 0 has 0"),
        ("validation", "`validation_pairs` must be the same on all ranks; rank 2 has False"),
        ("bad checkpoint", "no checkpoint of ours or is damaged"),
    ],
)
def test_bad_input_is_refused_on_every_rank(found, mistake, message):
    for rank in found[1]:
        assert rank["errors"][mistake].startswith("ValueError")
        assert message in rank["errors"][mistake]


def test_rows_that_are_not_finite_on_one_rank_stop_all(found):
    assert all("The loss was never finite" in rank["nan"] for rank in found[1])


def test_a_killed_rank_is_named_and_training_goes_on_from_its_checkpoint(found, tmp_path):
    """The survivors name rank 2; one process takes up what three began, and ends where one alone would have."""
    folder, ranks = found
    for number, rank in enumerate(ranks):
        assert rank["killed"].startswith(f"RuntimeError: Rank {number} of 3 cannot go on: rank 2 stopped")
        assert "goes on from the last checkpoint" in rank["killed"]
    shutil.copytree(folder / "run", tmp_path / "run")
    resumed = trained("covariance", checkpoint=tmp_path / "run", encoder=Killing)
    alone = trained("covariance", encoder=Killing)
    assert resumed["steps"] == alone["steps"]
    assert resumed["weights"] == pytest.approx(alone["weights"], rel=1e-6, abs=1e-7)


def test_a_device_without_memory_on_one_of_two_ranks_ends_both(found):
    """Halving its batches, as one process does, would leave the ranks with different ones."""
    first, second = (rank["memory"] for rank in found[1])
    assert first.startswith("RuntimeError: Rank 0 of 2 cannot go on: rank 1 stopped")
    assert second.startswith("OutOfMemoryError: Rank 1 of 2 ran out of memory while training the operator")
    assert "batches of 50 rows" in second
    assert "smaller `batch_size`" in second


def test_estimators_fit_alone_on_every_rank_of_torchrun(monkeypatch):
    """No group is formed, for which a rank that does not fit would be missed, and all ranks get the same model."""
    x, y = (tensor[:, 0].numpy() for tensor in gaussian_pairs(100))
    quick = {"coordinates": "raw", "max_steps": 20, "random_state": 0, "progress": False}
    expected = NCPRegressor(**quick).fit(x[:, None], y).predict(x[:, None])
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("ncprob.ranks._form_group", lambda device: pytest.fail("a group was formed"))
    found = NCPRegressor(**quick).fit(x[:, None], y).predict(x[:, None])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("WORLD_SIZE", "two", "from 1 on"),
        ("WORLD_SIZE", "0", "from 1 on"),
        ("RANK", "2", "from 0 to 1 with WORLD_SIZE 2"),
        ("RANK", "-1", "from 0 to 1 with WORLD_SIZE 2"),
        ("MASTER_PORT", "abc", "from 1 to 65535"),
        ("MASTER_PORT", "0", "from 1 to 65535"),
    ],
)
def test_variables_that_no_launcher_sets_are_refused_by_name(name, text, allowed, monkeypatch):
    usual = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for variable, value in (usual | {name: text}).items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"variable {name} .* whole number {allowed}; got '{text}'"):
        current_ranks(torch.device("cpu"))


def test_a_process_alone_needs_no_other_variables(monkeypatch):
    for variable, value in (("RANK", "7"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", ""), ("MASTER_PORT", "0")):
        monkeypatch.setenv(variable, value)
    assert current_ranks(torch.device("cpu")) is ALONE


@pytest.mark.slow
def test_torchrun_gives_what_one_process_gives():
    """`benchmarks.ranks` does not know of ranks: `train` finds those that torchrun started."""
    script = ["-m", "benchmarks.ranks", "--rows", "2000", "--steps", "30"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    root = Path(__file__).parent.parent
    told = [
        subprocess.run([sys.executable, *way, *script], cwd=root, capture_output=True, text=True, check=True).stdout
        for way in ([], launcher)
    ]
    values = [text.split("singular values ")[1].split(" (")[0] for text in told]
    assert told[1].startswith("2 process(es)")
    assert values[0] == values[1]


def test_best_operator_of_parts_is_that_of_the_whole():
    u, v = normal(20, 3, seed=4), normal(20, 3, seed=5)

    def fitted(ranks):
        rows = slice(0, 5) if ranks.rank == 0 else slice(5, 20)
        return best_operator(u[rows], v[rows], rows=ranks.rows(len(u[rows])))

    for operator in on_threads(2, fitted):
        torch.testing.assert_close(operator, best_operator(u, v))
