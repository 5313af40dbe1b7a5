"""The code in README and docs runs. Training is cut short: what is tested is that every call works."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import ncprob

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_of(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S))


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.name)
def test_code_blocks_run(page, monkeypatch, tmp_path):
    if page.name == "skpro.md":
        pytest.importorskip("skpro", reason="skpro is an optional extra")
    monkeypatch.chdir(tmp_path)  # pages may write files
    monkeypatch.setitem(ncprob.base.NCPEstimator.__init__.__kwdefaults__, "max_steps", 60)
    names = {}
    exec(compile(code_of(page), page.name, "exec"), names)
    plt.close("all")
    if page.name == "time-series.md":  # what is shown there as learned must be right
        exact = names["process"].transition_matrix([-np.inf, 0, np.inf])
        assert (names["matrix"].low.numpy() < exact).all()
        assert (exact < names["matrix"].high.numpy()).all()
        assert names["times"].low[0] < names["process"].timescales(1)[0] < names["times"].high[0]


def test_links_between_pages_exist():
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_modules_named_in_the_readme_are_there_after_import():
    code = "import ncprob; print(ncprob.plotting.plot_bands, ncprob.report.write_report, ncprob.scoring.crps_scorer)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "module", ["", "cluster", "datasets", "guarantees", "kinetics", "metrics", "molecules", "plotting", "report"]
)
def test_public_names_are_in_the_reference(module):
    public = importlib.import_module(f"ncprob.{module}".rstrip(".")).__all__
    listed = (ROOT / "docs" / "api" / f"{module or 'index'}.rst").read_text()
    assert [name for name in public if name != "__version__" and not re.search(rf"\b{name}\b", listed)] == []
