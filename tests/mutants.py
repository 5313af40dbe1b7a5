"""Mutants: one operator, number or comparison of a module is changed, and its tests must fail.

`make mutants` tries a sample of all possible changes; `SEED=7 make mutants` another one. A mutant that survives is a
line that no test protects, unless it computes the same, which `EQUIVALENT` says with the reason. A mutant runs in a
process forked from one that has imported torch already, on a copy of the package: nothing in the checkout is touched.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas  # noqa: F401  what takes seconds to import is imported once, before any fork
import pytest
import scipy.stats  # noqa: F401
import sklearn.ensemble  # noqa: F401
import torch

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ncprob"
TESTS = {  # modules and the tests that belong to them
    "losses": ["test_losses.py"],
    "operator": ["test_operator.py"],
    "distribution": ["test_distribution.py"],
    "calibration": ["test_calibration.py"],
    "novelty": ["test_novelty.py"],
}
SLOWEST = 300.0  # seconds; a mutant that takes longer hangs, which is noticed

# Mutants that compute the same as the original, or what no test can tell: (module, function, change): why.
CHUNKS = "rows are taken in chunks of any size, with the same sums"
CENTRED = "deviations from the mean add to zero"
WIDER = "2 * self.support.n_components → 3 * self.support.n_components"
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("operator", "SpectralOperator.postprocess", "8192 → 8193"): CHUNKS,
    ("operator", "SpectralOperator.moments", "8192 → 8193"): CHUNKS,
    (
        "operator",
        "SpectralOperator._without_constants",
        "covariance.diagonal() > rounding.square() → covariance.diagonal() >= rounding.square()",
    ): "a feature that is zero has no covariance to remove",
    ("distribution", "", "2 ** 20 → 2 * 20"): CHUNKS,
    ("distribution", "ConditionalDistribution.repair_amounts", "width=3 → width=4"): CHUNKS,
    ("distribution", "ConditionalDistribution._central_moment", WIDER): CHUNKS,
    ("distribution", "ConditionalDistribution._standardized_moment", WIDER): CHUNKS,
    (
        "distribution",
        "ConditionalDistribution.located_atoms",
        "torch.where(weights > 0, firsts / weights.clamp(min=1e-300), 0.0) → "
        "torch.where(weights >= 0, firsts / weights.clamp(min=1e-300), 0.0)",
    ): "what has no weight has a sum of zero",
    ("calibration", "_nested_shortest", "strict=True → strict=False"): "`strict` of lists that have one length",
    ("calibration", "_nested_scores.component", "dim=-1 → dim=1"): "the last of two axes",
    ("calibration", "_central_level", "upto, 2 * below - 1).clamp(0, 1) → upto, 2 * below - 1).clamp(0, 2)"): (
        "neither side exceeds 1 but by rounding"
    ),
    ("novelty", "InputReach.fit", "(z - mean).mT @ (z - mean) → (z - mean).mT @ (z + mean)"): CENTRED,
    ("novelty", "InputReach.fit", "(z - mean).mT → (z + mean).mT"): CENTRED,
    ("novelty", "", "20000 → 20001"): "a sample of rows of any size",
    (
        "novelty",
        "InputReach.distances",
        "torch.where(offset < 0, -offset / self.edge[0], offset / self.edge[1]) → "
        "torch.where(offset <= 0, -offset / self.edge[0], offset / self.edge[1])",
    ): "the median has distance 0 from itself on either side",
}

COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARISONS |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div}
OPERATORS |= {ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult}
PAIRS = [("min", "max"), ("minimum", "maximum"), ("cummin", "cummax"), ("argmin", "argmax"), ("floor", "ceil")]
PAIRS += [("any", "all"), ("amin", "amax"), ("sum", "mean"), ("log", "exp"), ("sqrt", "square")]
NAMES = dict(PAIRS) | {second: first for first, second in PAIRS}


@dataclass(frozen=True)
class Mutant:
    """One change of a module."""

    module: str
    function: str
    line: int
    change: str
    source: str

    @property
    def reason(self) -> str | None:
        """Why it may survive, if it may."""
        return EQUIVALENT.get((self.module, self.function, self.change))

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line} {self.function}: {self.change}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may be changed to."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in COMPARISONS:
        new.ops[0] = COMPARISONS[type(new.ops[0])]()
        yield new
    elif isinstance(new, ast.BinOp) and type(new.op) in OPERATORS:
        new.op = OPERATORS[type(new.op)]()
        yield new
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not | ast.USub):
        yield new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        yield ast.Constant(not new.value)
    elif isinstance(new, ast.Constant) and isinstance(new.value, int | float):
        yield ast.Constant(new.value + 1)
    elif isinstance(new, ast.IfExp):
        new.body, new.orelse = new.orelse, new.body
        yield new
    elif isinstance(new, ast.If):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield new
    elif isinstance(new, ast.Attribute) and new.attr in NAMES:
        new.attr = NAMES[new.attr]
        yield new
    elif isinstance(new, ast.keyword) and new.arg in ("min", "max"):
        new.arg = NAMES[new.arg]
        yield new


def places(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str, int | None, ast.AST, str]]:
    """Parent, field, index and child of all that runs: no types, texts, decorators or messages of errors."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise | ast.ImportFrom):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            typed = (
                isinstance(child, ast.Subscript) and isinstance(child.slice, ast.Tuple) and "Tensor" in ast.dump(child)
            )
            if not isinstance(child, ast.AST) or typed:
                continue
            yield node, field, index, child, function
            yield from places(child, function)


def text_of(node: ast.AST) -> str:
    """A node in one line; of a statement its condition."""
    return " ".join((ast.unparse(node.test) if isinstance(node, ast.If) else ast.unparse(node)).split())


def told(before: str, after: str) -> str:
    """What differs, with what stands around it."""
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    start = max(0, same - 30)
    return f"{before[start : start + 80]} → {after[start : start + 80]}"


def mutants_of(module: str) -> list[Mutant]:
    """All mutants of a module."""
    text = (SOURCE / f"{module}.py").read_text()
    tree = ast.parse(text)
    found = []
    for parent, field, index, child, function in list(places(tree)):
        around = child if isinstance(child, ast.stmt) or not isinstance(parent, ast.expr | ast.keyword) else parent
        before = text_of(around)
        for new in changes(child):
            ast.copy_location(new, child)
            _put(parent, field, index, new)
            after = text_of(new if around is child else parent)
            source = ast.unparse(ast.fix_missing_locations(tree))
            _put(parent, field, index, child)
            line = getattr(child, "lineno", getattr(getattr(child, "value", None), "lineno", 0))
            found.append(Mutant(module, function, line, told(before, after), source))
    return found


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def survives(mutant: Mutant, package: Path) -> bool:
    """Whether the tests of its module pass with a mutant in the place of the module."""
    path = package / f"{mutant.module}.py"
    original = path.read_text()
    path.write_text(mutant.source)
    try:
        return _passes(TESTS[mutant.module], package.parent)
    finally:
        path.write_text(original)


def _passes(tests: list[str], source: Path) -> bool:
    """Whether tests pass in a child that imports the package from `source`; one that hangs is killed."""
    child = os.fork()
    if not child:
        _run_tests(tests, source)
    end = time.monotonic() + SLOWEST
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run_tests(tests: list[str], source: Path) -> None:
    status = 1
    with contextlib.suppress(BaseException):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.path.insert(0, str(source))
        words = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow", "--rootdir", str(ROOT)]
        status = int(pytest.main([*words, *(str(ROOT / "tests" / name) for name in tests)]))
    os._exit(status)


def main(arguments: list[str] | None = None) -> int:
    """Try a sample of mutants; exit status 1 if one survives that should not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", choices=[[], *TESTS], help=f"by default {' '.join(TESTS)}")
    parser.add_argument("--count", type=int, default=40, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", help="only mutants whose description holds this text")
    chosen = parser.parse_args(arguments)
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    unexpected = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/examples"
        package = Path(folder) / "src" / "ncprob"
        shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(package, quiet=2)
        for module in chosen.modules or TESTS:
            (package / "__pycache__" / f"{module}.{sys.implementation.cache_tag}.pyc").unlink()
            if not _passes(TESTS[module], package.parent):
                raise SystemExit(f"the tests of {module} fail without a mutant. Mend them first.")
            every = mutants_of(module)
            sample = random.Random(f"{module} {chosen.seed}").sample(every, min(chosen.count, len(every)))
            sample = [mutant for mutant in sample if chosen.match in str(mutant)]
            alive = [mutant for mutant in sample if mutant.reason is None and survives(mutant, package)]
            same = [mutant for mutant in sample if mutant.reason is not None]
            killed = len(sample) - len(alive) - len(same)
            print(
                f"{module}: {killed} of {len(sample)} killed, {len(same)} equivalent ({len(every)} possible)",
                flush=True,
            )
            for mutant in same:
                print(f"  equivalent {mutant}: {mutant.reason}", flush=True)
            for mutant in alive:
                print(f"  SURVIVES   {mutant}", flush=True)
            unexpected += len(alive)
    return int(unexpected > 0)


if __name__ == "__main__":
    sys.exit(main())
