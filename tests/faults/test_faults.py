"""Faults: fits and saves that are killed at random moments, disks that are full, directories that are read-only.

Children are forked from this process, so that each starts at once and dies by a real signal. Run by `make test-faults`.
"""

import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch

from ncprob import NCPRegressor, load

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="faults are injected into forked processes"),
]

KILLS = 50
RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 2))
Y = X[:, 0] + 0.5 * RNG.normal(size=150)
NEW = RNG.normal(size=(20, 2))


@pytest.fixture
def folder():
    """A directory that other users may enter, too."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def fit(checkpoint_dir=None, seed=0):
    options = {"hidden_sizes": (16,), "tree_inputs": False, "max_steps": 400, "early_stopping": False}
    return NCPRegressor(**options, random_state=seed, checkpoint_dir=checkpoint_dir, progress=False).fit(X, Y)


def answers(model):
    return np.concatenate(
        [model.predict_quantiles(NEW), model.predict(NEW)[:, None], model.predict_interval(NEW)], axis=1
    )


def started(work):
    """A child that does `work` and exits with 0, or with 1 and the error in a file."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        torch.set_num_threads(1)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def finished(child):
    """Wait for a child; its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_after(child, seconds):
    """Whether the child was still at work when the signal came."""
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return finished(child) == -signal.SIGKILL


def test_a_fit_that_is_killed_again_and_again_ends_in_the_same_model(folder):
    expected = fit()
    start = time.perf_counter()
    fit()
    duration = time.perf_counter() - start
    moments, kills, fits = random.Random(0), 0, 0
    while kills < KILLS:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        shutil.rmtree(folder / "model", ignore_errors=True)
        for _ in range(8):
            child = started(lambda: fit(folder / "checkpoints").save(folder / "model"))
            if not killed_after(child, moments.uniform(0, duration / 2)):
                break
            kills += 1
        if not (folder / "model").exists():
            assert finished(started(lambda: fit(folder / "checkpoints").save(folder / "model"))) == 0
        model = load(folder / "model")
        np.testing.assert_array_equal(answers(model), answers(expected))
        assert model.history_.validation_loss == expected.history_.validation_loss
        assert not list((folder / "checkpoints").glob("*.partial"))
        fits += 1
    print(f"\n{kills} kills of {fits} fits, each resumed to the same model bit by bit")


def test_a_save_that_is_killed_leaves_the_old_or_the_new_model(folder):
    old, new = fit(seed=0), fit(seed=1)
    old_answers, new_answers = answers(old), answers(new)
    path, moments, seen = folder / "model", random.Random(1), []

    def save_in_turn():
        while True:
            new.save(path)
            old.save(path)

    old.save(path)
    for _ in range(KILLS):
        assert killed_after(started(save_in_turn), moments.uniform(0.0, 0.4))
        found = answers(load(path))
        is_old, is_new = (np.array_equal(found, whole) for whole in (old_answers, new_answers))
        assert is_old or is_new
        seen.append(is_old)
    old.save(path)
    assert len(list(path.iterdir())) == 2  # what the kills left behind is gone
    print(
        f"\n{KILLS} kills while saving: the old model {sum(seen)} times, the new one {KILLS - sum(seen)} times, whole"
    )


def limited(size):
    """Files of this process may not grow beyond `size` bytes, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_while_saving_leaves_the_old_model(folder):
    old, path = fit(), folder / "model"
    old.save(path)

    def save():
        limited(1000)
        with pytest.raises(OSError, match="File too large"):
            fit(seed=1).save(path)

    assert finished(started(save)) == 0
    np.testing.assert_array_equal(answers(load(path)), answers(old))
    assert len(list(path.iterdir())) == 2


def test_a_full_disk_while_fitting_keeps_the_last_checkpoint(folder):
    expected = answers(fit())

    def interrupted():
        limited(1000)
        with pytest.raises(OSError, match=r"`checkpoint_dir` could not be written at step .* go on from it"):
            fit(folder)

    child = started(lambda: fit(folder))
    while not list(folder.glob("*.safetensors")):
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    finished(child)
    before = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    assert finished(started(interrupted)) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    np.testing.assert_array_equal(answers(fit(folder)), expected)


def as_nobody():
    if os.getuid() == 0:
        os.setuid(65534)  # root may write anywhere


def test_a_read_only_directory_is_found_out_before_any_work(folder):
    model, path = fit(), folder / "model"
    model.save(path)
    path.chmod(0o555)
    for entry in path.iterdir():
        entry.chmod(0o444)

    def attempts():
        as_nobody()
        with pytest.raises(ValueError, match=r"cannot be written: .* read-only"):
            model.save(path)
        with pytest.raises(ValueError, match="`checkpoint_dir` cannot be written"):
            fit(path / "checkpoints")
        with pytest.raises(ValueError, match="`checkpoint_dir` cannot be written"):
            fit(path)
        np.testing.assert_array_equal(answers(load(path)), answers(model))  # reading needs no right to write

    assert finished(started(attempts)) == 0
    np.testing.assert_array_equal(answers(load(path)), answers(model))
    path.chmod(0o755)
