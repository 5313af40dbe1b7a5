"""The scripts of examples/ run, are listed, and agree with the truth as far as they say so."""

import ast
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("plot_*.py"))
QUICK = ("plot_newsvendor.py", "plot_sets.py")
named = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run source code of an example; the number of figures it made."""
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    plt.close("all")

    def execute(source: str, optimize: int) -> int:
        exec(compile(source, "example", "exec", optimize=optimize), {"__name__": "__main__"})
        return len(plt.get_fignums())

    yield execute
    plt.close("all")


@named
def test_it_has_a_title_a_story_and_a_figure(script):
    tree = ast.parse(script.read_text())
    title, line, empty, *story = (ast.get_docstring(tree) or "").splitlines()
    assert title
    assert line == "=" * len(title), "the title must be underlined to its length"
    assert not empty
    assert len(" ".join(story)) > 100
    # Figures are closed after each cell, so whatever is drawn later would be lost.
    cells = [cell for cell in script.read_text().split("\n# %%\n") if "plt.subplots(" in cell]
    assert len(cells) == 1


def test_all_are_listed():
    listed = re.findall(r"\((plot_\w+\.py)\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == [script.name for script in SCRIPTS]
    assert len(listed) >= 10


@pytest.mark.parametrize("name", QUICK)
def test_quick_ones_run_with_hardly_any_training(name, run):
    source, count = re.subn(r"max_steps=\d+", "max_steps=20", (FOLDER / name).read_text())
    assert count == 1
    assert run(source, optimize=1) == 1  # without its assertions: they are about a trained model


@pytest.mark.slow
@named
def test_it_runs_and_meets_the_truth(script, run):
    assert run(script.read_text(), optimize=0) == 1
