"""Imports point one way: every module may import only from the layers before it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ncprob

SOURCE = Path(__file__).parent.parent / "src" / "ncprob"

# Lowest first; modules of one line do not import each other unless listed in WITHIN_LAYER.
LAYERS = [
    ["_version", "_validation", "_files", "state", "expressions", "ranks", "threads"],
    [
        "workers",
        "_laws",
        "linalg",
        "statistics",
        "encoders",
        "pairs",
        "preprocessing",
        "resampling",
        "weighted",
        "sets",
        "support",
        "ensembles",
        "sparse",
        "tables",
        "trajectory_files",
    ],
    [
        "transport",
        "lattices",
        "mixture",
        "clusters",
        "molecules",
        "smoothing",
        "trees",
        "_simulator",
        "novelty",
        "partition",
        "spool",
        "datafiles",
    ],
    ["losses", "distribution", "recording", "processes", "metrics", "guarantees", "samples"],
    ["optimization"],
    ["operator", "conditioning", "datasets", "diagnostics", "recipe"],
    ["training", "truncation"],
    ["coordinates", "dependence"],
    ["model", "networks"],
    ["storage", "candidates"],
    ["judging"],
    ["fitting", "frames", "persistence"],
    ["base", "calibration", "lagged", "profiles"],
    ["estimators", "lagged_laws"],
    ["kinetics", "plotting", "scoring", "skpro"],
    ["report", "demo", "benchmark", "questions"],
    ["predictions"],
    ["bulk", "cluster"],
    ["commands"],
    ["cli"],
    ["__init__"],
    ["__main__"],
]
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}

# Formulas and simulators know nothing of models, data frames or the command line.
NO_TORCH = {
    "datasets",
    "diagnostics",
    "metrics",
    "guarantees",
    "_laws",
    "_simulator",
    "processes",
    "frames",
    "cli",
    "plotting",
    "scoring",
    "report",
    "demo",
    "commands",
    "benchmark",
    "tables",
    "expressions",
    "questions",
    "predictions",
    "bulk",
}


def source_of(module: str) -> str:
    """Text of a module, or of all files of a package, which counts as one module."""
    single = SOURCE / f"{module}.py"
    return single.read_text() if single.exists() else "\n".join(p.read_text() for p in (SOURCE / module).glob("*.py"))


def imports_of(module: str) -> set[str]:
    """Modules of the package and top-level packages that a module imports, at any depth of nesting."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source_of(module))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "ncprob":
            found |= {f"ncprob.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


MODULES = sorted(
    [path.stem for path in SOURCE.glob("*.py")] + [path.parent.name for path in SOURCE.glob("*/__init__.py")]
)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    assert module in LAYER_OF, f"give {module} a place in LAYERS"
    for name in imports_of(module):
        if name.startswith("ncprob.") and name.removeprefix("ncprob.") in LAYER_OF:
            below = name.removeprefix("ncprob.")
            assert LAYER_OF[below] < LAYER_OF[module], f"{module} must not import {below}"


@pytest.mark.parametrize("module", sorted(NO_TORCH & set(MODULES)))
def test_no_torch_outside_the_tensor_modules(module):
    assert not any(name.split(".")[0] == "torch" for name in imports_of(module))


# skpro speaks pandas: its adapter is a border of its own.
@pytest.mark.parametrize("module", sorted(set(MODULES) - {"frames", "skpro"}))
def test_data_frames_stay_at_the_border(module):
    assert not any(name.split(".")[0] in {"pandas", "polars", "narwhals"} for name in imports_of(module))


def test_init_only_re_exports():
    """What types see, what is imported when asked for, and what `*` gives are the same names."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    choice = next(node for node in tree.body if isinstance(node, ast.If))
    assert all(isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign | ast.If) for node in tree.body)
    assert all(isinstance(node, ast.ImportFrom) for node in choice.body)
    seen = {alias.name: node.module for node in choice.body for alias in node.names}
    homes = {name: f"ncprob.{home}" for name, home in ncprob._HOMES.items()}
    assert {name: home for name, home in seen.items() if home != "ncprob"} == homes
    assert {*seen, "__version__"} == set(ncprob.__all__)


@pytest.mark.parametrize("name", ncprob.__all__)
def test_public_names_are_there_when_asked_for(name):
    assert name in dir(ncprob)
    assert getattr(ncprob, name) is getattr(ncprob, name)


def test_modules_are_attributes_and_mistakes_are_told():
    assert ncprob.guarantees.__name__ == "ncprob.guarantees"
    for wrong in ("NCPRegresor", "_hidden", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"module 'ncprob' has no attribute '{wrong}'"):
            getattr(ncprob, wrong)
    scope = {}
    exec("from ncprob import *", scope)
    assert set(ncprob.__all__) <= set(scope)


def test_the_command_line_starts_without_torch():
    """Help and shell completion must not wait seconds for what they do not use."""
    pytest.importorskip("typer", reason="the command line is an extra")
    code = "import sys, ncprob.cli; print([m for m in ('torch', 'numpy', 'sklearn', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_singular_values_are_defined_once():
    definitions = [module for module in MODULES if "torch.exp(-" in source_of(module).replace(" ", "")]
    assert definitions == ["operator"]
