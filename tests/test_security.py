"""Files and words of others are data: nothing in them is executed, and what is odd is refused by a ValueError."""

import ast
import gzip
import os
import random
from pathlib import Path

import numpy as np
import pytest
from fuzz_load import SLOWEST, damaged, fuzz
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncprob.expressions import Condition
from ncprob.tables import read_table, write_table

SOURCE = Path(__file__).parent.parent / "src" / "ncprob"
# Code in data, programs beside this one, other machines.
FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "subprocess",
    "pty",
    "ctypes",
    "code",
    "codeop",
    "socket",
    "ssl",
    "http",
    "urllib",
    "urllib3",
    "ftplib",
    "smtplib",
    "telnetlib",
    "xmlrpc",
    "requests",
    "httpx",
    "aiohttp",
    "webbrowser",
}
ALLOWED = {
    "__init__.py": ["importlib.import_module"],  # of modules of the package only
    "workers.py": ["socket"],  # to ask whether anybody listens at RAY_ADDRESS before Ray connects; nothing is sent
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "input", "breakpoint"}
FORBIDDEN_ATTRIBUTES = {
    "os.system",
    "os.popen",
    "os.execv",
    "os.spawnv",
    "torch.load",
    "torch.save",
    "torch.hub",
    "np.load",
    "np.save",
    "numpy.load",
    "numpy.save",
    "pd.read_pickle",
    "pandas.read_pickle",
    "importlib.import_module",
}


def findings(source):
    """Everything in a module that could execute data, start a program or reach another machine."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            yield node.module
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & FORBIDDEN_ATTRIBUTES
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            yield node.func.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            yield from [name] if name in FORBIDDEN_ATTRIBUTES else []


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_executed_unpickled_started_or_fetched(path):
    assert list(findings(path.read_text())) == ALLOWED.get(str(path.relative_to(SOURCE)), [])


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from urllib.request import urlopen",
        "x = eval('1')",
        "os.system('ls')",
        "torch.load(f)",
        "import subprocess as s",
        "from importlib import import_module",
        "from os import system as s",
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert list(findings(source))


def test_mutated_models_are_refused_or_answer():
    """A sample of what `make fuzz` does."""
    outcomes, slowest = fuzz(150, seed=2)
    assert sum(outcomes.values()) == 150
    assert outcomes["refused"] > 75
    assert set(outcomes) <= {"refused", "refused when asked", "answers"}
    assert slowest < SLOWEST


# `make fuzz` asks for 10,000 of each.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))
many = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
COLUMNS = {"rooms": np.array([1.0, 2.0, 3.0]), "kind": np.array(["flat", "house", "flat"], dtype=object)}
WORDS = [
    *[
        "rooms",
        "kind",
        "`rooms`",
        "and",
        "or",
        "not",
        "in",
        "(",
        ")",
        "[",
        "]",
        "<",
        ">=",
        "==",
        "!=",
        "1",
        "2.5",
        "1e400",
        "-",
        "+",
        "*",
        "/",
        "**",
        "'flat'",
        ",",
        ".",
        "__class__",
        "lambda",
    ],
    *[
        '"house"',
        "__import__('os')",
        ":",
        "if",
        "else",
        "for",
        "{",
        "}",
        "@",
        "is",
        "None",
        "True",
        ":=",
        "await",
        "f'{rooms}'",
        "\\",
        "0x10",
        "1_0",
        "kind[0]",
    ],
    *["rooms.mean()", "𝐫ooms", "9" * 400, "\n", "\x00"],
]


@many
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)))
def test_any_words_give_a_condition_or_a_value_error(text):
    try:
        found = Condition.parse(text)(COLUMNS)
    except ValueError:
        return
    assert found.shape == (3,)
    assert found.dtype == bool


CELLS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["1", "2.5", "", "NA", '"', '""', "a,b", "1e999", "\x00", "\r", "\n", "=1+1", "true"]),
)


def read_columns(path):
    table = read_table(str(path))
    for name in table.names:
        if not table.is_text(name):
            assert np.isfinite(table.numbers(name)).all()
        else:
            assert all(isinstance(value, str) for value in table.text(name))
    return table


@many
@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(st.lists(CELLS, max_size=4).map(",".join), max_size=6).map(
            lambda rows: "\n".join(rows).encode("utf-8", "surrogatepass")
        ),
    ),
    st.booleans(),
)
def test_any_bytes_give_a_table_or_a_value_error(tmp_path_factory, content, packed):
    path = tmp_path_factory.getbasetemp() / f"any.csv{'.gz' * packed}"
    path.write_bytes(gzip.compress(content) if packed else content)
    try:
        table = read_columns(path)
    except ValueError:
        return
    assert len(set(table.names)) == len(table.names)


@many
@given(st.binary(max_size=100))
def test_any_bytes_called_gz_or_parquet_give_a_value_error(tmp_path_factory, content):
    for ending in ("csv.gz", "parquet"):
        path = tmp_path_factory.getbasetemp() / f"any.{ending}"
        path.write_bytes(content)
        try:
            read_columns(path)
        except ValueError:
            continue


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Files of one good table, by ending."""
    columns = {
        "rooms": np.arange(20.0),
        "year": np.arange(1990, 2010),
        "kind": np.array(["flat", "house"] * 10, dtype=object),
    }
    files = {ending: tmp_path_factory.mktemp("good") / f"table.{ending}" for ending in ("csv", "csv.gz", "parquet")}
    for path in files.values():
        write_table(columns, str(path))
        assert read_columns(path).names == list(columns)
    return files


@many
@given(st.sampled_from(["csv", "csv.gz", "parquet"]), st.integers(0, 10**9))
def test_a_damaged_table_is_read_or_refused_by_a_value_error(tables, ending, seed):
    path = tables[ending].with_name(f"damaged.{ending}")
    path.write_bytes(damaged(tables[ending].read_bytes(), random.Random(seed)))
    try:
        read_columns(path)
    except ValueError:
        return
