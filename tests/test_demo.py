"""The demonstration: answers beside the exact truth, and a picture."""

import re
import sys
from functools import partial

import numpy as np
import pytest

from ncprob import NCPRegressor, demo
from ncprob.datasets import TwoRegimes


@pytest.fixture(autouse=True)
def small(monkeypatch):
    quick = {"max_steps": 60, "hidden_sizes": (16,), "coordinates": "raw", "tree_inputs": False, "progress": False}
    monkeypatch.setattr(demo, "N_ROWS", 400)
    monkeypatch.setattr(demo, "NCPRegressor", partial(NCPRegressor, **quick))


def test_the_exact_answers_are_those_of_the_simulator(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = demo.run(tmp_path / "out")
    assert picture == tmp_path / "out" / "demo.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
    told = capsys.readouterr().out
    exact = [line for line in told.splitlines() if re.search(r"\bexact\b\s*│", line)][-len(demo.POINTS) :]
    means = [float(re.findall(r"-?\d+\.\d\d", line)[0]) for line in exact]
    np.testing.assert_allclose(means, TwoRegimes().truth(np.array(demo.POINTS)[:, None]).mean(), atol=0.0051)
    assert "Mean Kolmogorov–Smirnov distance" in told
    assert f"P(Y > {demo.THRESHOLD:g})" in told


def test_without_matplotlib_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert demo.run(tmp_path / "out") is None
    assert "pip install 'ncprob[plot]'" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
