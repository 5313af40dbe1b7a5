"""Threads and processes: the same answers everywhere, no fit disturbs another, global settings stay as they were."""

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from ncprob import NCPClassifier, NCPRegressor, load

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 2))
Y = X[:, 0] + 0.5 * RNG.normal(size=100)
NEW = RNG.normal(size=(60, 2))
OPTIONS = {"hidden_sizes": (8,), "max_steps": 15, "progress": False}


def regressor(seed=0, **options):
    return NCPRegressor(**OPTIONS | {"tree_inputs": False, "random_state": seed} | options)


@pytest.fixture(scope="module")
def model():
    """With trees, a mixture and an operator: every part that answers."""
    return regressor(coordinates="residual", rank=4, tree_inputs=True).fit(X, Y)


def answers(model):
    law = model.predict_distribution(NEW)
    parts = [
        law.mean()[:, None],
        law.quantile([0.1, 0.9]),
        law.interval(0.8),
        law.cdf([0.0]),
        model.novelty(NEW)[:, None],
    ]
    return np.concatenate([*parts, np.broadcast_to(model.given(X[:, 0] > 0).mean(), (60, 1))], axis=1)


def test_eight_threads_give_one_answer(model):
    expected = answers(model)
    start = threading.Barrier(8)

    def ask(_):
        start.wait()
        return [answers(model) for _ in range(3)]

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(ask, range(8)):
            for answer in found:
                np.testing.assert_array_equal(answer, expected)


def test_the_first_question_about_a_set_may_come_from_many_threads(model, tmp_path):
    model.save(tmp_path / "model")
    fresh, start = load(tmp_path / "model"), threading.Barrier(8)  # laws of training rows are not formed yet

    def ask(_):
        start.wait()
        return fresh.given(X[:, 0] > 0).mean(), fresh.given_target((0.0, np.inf)).mean()

    expected = model.given(X[:, 0] > 0).mean(), model.given_target((0.0, np.inf)).mean()
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(ask, range(8)):
            np.testing.assert_array_equal(answer[0], expected[0])
            np.testing.assert_array_equal(answer[1], expected[1])


def ask_in_forks(saved, out):
    """Answers of four forked processes, each (60, columns), to the file `out`; run by a process without threads."""
    torch.set_num_threads(1)
    model = load(saved)
    answers(model)  # a parent that has answered before
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(4)]
    children = [context.Process(target=lambda pipe: pipe.send(answers(model)), args=(ours,)) for _, ours in pipes]
    for child in children:
        child.start()
    np.save(out, [theirs.recv() for theirs, _ in pipes])
    for child in children:
        child.join()
        assert child.exitcode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forked processes are asked")
def test_four_forked_processes_give_one_answer(model, tmp_path):
    """As servers do that load a model and then fork. Libraries of torch hang in forks of a process that has used
    threads, as the one that runs the tests has: the parent is a process of its own."""
    model.save(tmp_path / "model")
    command = "import sys; from test_concurrency import ask_in_forks; ask_in_forks(*sys.argv[1:])"
    arguments = [sys.executable, "-c", command, str(tmp_path / "model"), str(tmp_path / "answers.npy")]
    subprocess.run(arguments, cwd=Path(__file__).parent, check=True, timeout=300)
    for found in np.load(tmp_path / "answers.npy"):
        np.testing.assert_array_equal(found, answers(model))


@pytest.mark.parametrize("coordinates", ["raw", "residual"])
def test_fits_in_parallel_threads_are_those_of_each_alone(coordinates):
    alone = [regressor(seed, coordinates=coordinates).fit(X, Y).predict(NEW) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(lambda seed: regressor(seed, coordinates=coordinates).fit(X, Y).predict(NEW), range(4))
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, other)


def global_state():
    return {
        "torch generator": torch.random.get_rng_state().numpy().tobytes(),
        "numpy generator": repr(np.random.get_state()),  # noqa: NPY002 (that it is not touched)
        "threads": torch.get_num_threads(),
        "default type": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "anomalies": torch.is_anomaly_enabled(),
        "numpy errors": np.geterr(),
    }


@pytest.mark.parametrize("threads", [1, 2])
def test_global_settings_are_left_as_they_were_found(threads, tmp_path):
    before_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        before = global_state()
        model = regressor(tree_inputs=True, coordinates="auto").fit(X, Y)
        model.conformalize(X, Y).predict_interval(NEW)
        NCPClassifier(**OPTIONS, random_state=0).fit(X, Y > 0).predict_proba(NEW)
        answers(model)
        model.predict_distribution(NEW).sample(3, random_state=0)
        model.save(tmp_path / "model")
        answers(load(tmp_path / "model"))
        str(model.diagnostics())
        after = global_state()
        assert before == after
    finally:
        torch.set_num_threads(before_threads)


@pytest.mark.parametrize("coordinates", ["raw", "auto"])  # in this thread, and in threads of its own
def test_a_fit_that_fails_leaves_the_threads_as_they_were(monkeypatch, coordinates):
    before = torch.get_num_threads()

    def broken(*_, **__):
        raise RuntimeError("broken")

    monkeypatch.setattr("ncprob.optimization._Run.update", broken)
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="broken"):
            regressor(coordinates=coordinates).fit(X, Y)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_fits_under_no_grad_still_learn():
    expected = regressor(coordinates="raw").fit(X, Y).predict(NEW)
    with torch.no_grad():
        np.testing.assert_array_equal(regressor(coordinates="raw").fit(X, Y).predict(NEW), expected)


@pytest.mark.parametrize("coordinates", ["raw", "residual"])
def test_the_default_type_of_torch_does_not_matter(coordinates, tmp_path):
    torch.set_default_dtype(torch.float64)
    try:
        model = regressor(coordinates=coordinates, rank=4).fit(X, Y)
        model.save(tmp_path / "model")
        np.testing.assert_array_equal(answers(load(tmp_path / "model")), answers(model))
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(answers(load(tmp_path / "model")), answers(model))
