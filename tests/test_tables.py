"""Tables in files: what is read, what is refused, and that outputs are whole or absent."""

import gzip
import io
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ncprob import tables
from ncprob._files import check_writable, replacing
from ncprob.tables import read_table, write_table

CSV = "rooms,kind,price\n3,flat,10.5\n4,house,20\n"


def written(tmp_path, content, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.mark.parametrize("content", [CSV, CSV.replace(",", ";"), CSV.replace(",", "\t"), CSV.replace("\n", "\r\n")])
@pytest.mark.parametrize("packed", [False, True])
def test_csv_of_many_kinds(tmp_path, content, packed):
    data = gzip.compress(content.encode()) if packed else ("\ufeff" + content).encode()
    table = read_table(written(tmp_path, data, "table.csv.gz" if packed else "table.csv"))
    assert table.names == ["rooms", "kind", "price"]
    np.testing.assert_array_equal(table.numbers("price"), [10.5, 20])
    assert table.text("kind").tolist() == ["flat", "house"]
    assert [table.is_text(name) for name in table.names] == [False, True, False]


def test_quotes_blank_lines_and_spaces(tmp_path):
    table = read_table(written(tmp_path, 'a, "b, c"\n\n1,"x, ""y""\nz"\n 2 , w \n'.replace(', "b', ',"b')))
    assert table.names == ["a", "b, c"]
    assert table.values("b, c").tolist() == ['x, "y"\nz', "w"]
    assert list(table.lines) == [4, 5]
    np.testing.assert_array_equal(table.numbers("a"), [1, 2])


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(CSV.encode()))))
    assert read_table("-").source == "standard input"


def test_latin_1(tmp_path):
    assert read_table(written(tmp_path, "straße\n1\n".encode("latin-1"))).names == ["straße"]


def test_parquet(tmp_path):
    path = str(tmp_path / "t.parquet")
    columns = {"a": [1, 2], "b": ["x", "y"], "c": pa.array(["u", "v"]).dictionary_encode(), "d": [True, False]}
    pq.write_table(pa.table(columns), path)
    table = read_table(path)
    np.testing.assert_array_equal(table.numbers("a"), [1, 2])
    assert table.text("c").tolist() == ["u", "v"]
    np.testing.assert_array_equal(table.numbers("d"), [1, 0])


BAD = {
    "empty": ("", "is empty"),
    "blank": ("\n \n", "is empty"),
    "header": ("a,b\n", "no rows"),
    "twice": ("a,b,a\n1,2,3\n", "several columns named 'a'"),
    "nameless": ("a,,b\n1,2,3\n", "column 2 has no name"),
    "ragged": ("a,b\n1,2\n1,2,3\n", "line 3 has 3 values, but the header names 2"),
    "binary": (b"a,b\n\x00\x01", "not a text file"),
    "quotes": ('a,b\n1,"2\n', "cannot be read as csv"),
    "gz": (gzip.compress(CSV.encode())[:-12], "damaged gz"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files(tmp_path, kind):
    content, message = BAD[kind]
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=message) as caught:
        read_table(path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_places(tmp_path):
    with pytest.raises(ValueError, match="is a directory"):
        read_table(str(tmp_path))
    with pytest.raises(ValueError, match="does not exist"):
        read_table(str(tmp_path / "nothing.csv"))
    with pytest.raises(ValueError, match="cannot be read as parquet"):
        read_table(written(tmp_path, CSV, "table.parquet"))
    with pytest.raises(ValueError, match="one character"):
        read_table(written(tmp_path, CSV), delimiter="::")


def test_wrong_delimiter_is_named(tmp_path):
    table = read_table(written(tmp_path, CSV.replace(",", ";")), delimiter=",")
    with pytest.raises(ValueError, match="choose another --delimiter"):
        table.values("price")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        read_table(written(tmp_path, CSV, "table.parquet"))


def test_text_among_numbers_and_missing_values(tmp_path):
    table = read_table(written(tmp_path, "a,b,c\n1,x,1\n2,,NA\noops,NA,3\n4,y,4\n"))
    with pytest.raises(ValueError, match="column 'a' holds numbers, but line 4 has 'oops'"):
        table.is_text("a")
    with pytest.raises(ValueError, match="column 'a' must be numeric; line 4"):
        table.numbers("a")
    with pytest.raises(ValueError, match="column 'c' has 1 missing values, first at line 3"):
        table.numbers("c")
    with pytest.raises(ValueError, match="column 'b' has 1 missing values, first at line 3"):
        table.text("b")
    assert not table.is_text("c")
    kept = table.keep(~(table.missing("b", text=True) | table.missing("c")))
    assert kept.text("b").tolist() == ["x", "NA", "y"]  # a word like any other among words
    assert kept.lines == [2, 4, 5]
    with pytest.raises(ValueError, match="no column 'd'"):
        table.numbers("d")


@pytest.mark.parametrize("value", ["inf", "1_000", "0x10", "1,5"])
def test_what_is_no_number(tmp_path, value):
    assert read_table(written(tmp_path, f"a;b\n{value};1\n{value};2\n")).is_text("a")


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_what_is_written_is_read(tmp_path, name):
    columns = {"id": np.array(["a,b", 'c"'], dtype=object), "x": np.array([0.1, 1 / 3]), "k": np.array([1, 2])}
    write_table(columns, str(tmp_path / name))
    table = read_table(str(tmp_path / name))
    assert table.names == ["id", "x", "k"]
    assert table.text("id").tolist() == ["a,b", 'c"']
    np.testing.assert_array_equal(table.numbers("x"), columns["x"])  # to the last bit
    assert os.listdir(tmp_path) == [name]


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "_write_csv", fail)
    with pytest.raises(OSError, match="No space"):
        write_table({"a": np.ones(2)}, str(path))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_outputs_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="is a directory"):
        check_writable(tmp_path)
    with pytest.raises(ValueError, match="is no directory"):
        check_writable(tmp_path / "a" / "b.csv")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="read-only"), replacing(tmp_path / "b.csv"):
        pass


def test_an_empty_cell_of_a_single_column_is_a_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('x\n1\n""\n3\n')
    table = read_table(str(path))
    assert len(table) == 3
    with pytest.raises(ValueError, match="1 missing values, first at line 3"):
        table.numbers("x")


def test_rows_of_empty_cells_are_rows_and_blank_lines_are_not(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n\n,\n  \n3,4\n")
    assert read_table(str(path)).values("x").tolist() == ["1", "", "3"]


def test_a_damaged_gz_body_is_told(tmp_path):
    content = bytearray(gzip.compress(b"x,y\n" + b"1,2\n" * 1000))
    content[20:30] = b"\xff" * 10
    path = tmp_path / "a.csv.gz"
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="damaged gz file"):
        read_table(str(path))


def test_a_file_of_commas_has_no_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",,,\n,,,\n")
    with pytest.raises(ValueError, match="several columns named ''"):
        read_table(str(path))


def test_links_stay_links_and_devices_are_refused(tmp_path):
    (tmp_path / "old.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "old.csv")
    write_table({"a": np.ones(1)}, str(tmp_path / "link.csv"))
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "old.csv").read_text() == "a\n1.0\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="no ordinary file"):
        write_table({"a": np.ones(1)}, str(tmp_path / "pipe"))


# ---------------------------------------------------------------- small files that unpack to large ones


def packed(folder, text, size, name="bomb.csv.gz"):
    """A gz file that unpacks to `size` bytes of a repeated text: members that follow each other are one file."""
    (folder / name).write_bytes(gzip.compress(text * (2**24 // len(text))) * (size // 2**24))
    return folder / name


def peak_of(code, *paths):
    """Largest memory of a process of its own beyond its imports, in MiB, and what it said of each path."""
    program = (
        "import resource, sys\n"
        "from ncprob import datafiles, tables\n"
        "import pyarrow.csv, pyarrow.parquet\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "before = peak()\n"
        "for path in sys.argv[1:]:\n"
        f"    try:\n        {code}\n    except ValueError as error:\n        print(peak() - before, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True, check=True, timeout=60
    )
    told = [line.partition(" ") for line in done.stdout.splitlines()]
    return float(told[-1][0]), [message for _, _, message in told]


def test_a_gz_bomb_is_refused_in_bounded_memory(tmp_path):
    """1 GiB in 1 MB; the limit of 256 MiB is what may be held at once, with the interpreter's own noise."""
    path = packed(tmp_path, b"0,", 2**30)
    assert path.stat().st_size < 2**21
    grown, [message] = peak_of("tables.read_table(path)", path)
    assert "unpacks to more than 256 MiB, over 100 times its size" in message
    assert grown < 300


def test_gz_bombs_among_many_files_are_refused_in_bounded_memory(tmp_path):
    """Reading goes by blocks of 8 MiB; a line or a header that does not end is refused after one of them."""
    names = {"line.csv.gz": b"0,", "blank.csv.gz": b"\n", "word.csv.gz": b"0"}
    paths = [packed(tmp_path, text, 2**29, name) for name, text in names.items()]
    grown, messages = peak_of("datafiles.FileTable.open(path, datafiles.Roles(['y']))", *paths)
    assert [name in message for name, message in zip(names, messages, strict=True)] == [True] * 3
    assert grown < 150


def test_ordinary_packed_tables_have_no_limit(tmp_path, monkeypatch):
    """Beyond the size that is always allowed, 100 times the packed one is."""
    monkeypatch.setattr(tables, "MOST_UNPACKED", 1000)
    rows = "\n".join(["x,y", *(f"{k},{k * k}" for k in range(5000))])
    assert len(read_table(written(tmp_path, gzip.compress(rows.encode()), "a.csv.gz"))) == 5000
    same = "\n".join(["x,y", *["1,2"] * 50_000])
    with pytest.raises(ValueError, match="over 100 times its size"):
        read_table(written(tmp_path, gzip.compress(same.encode()), "b.csv.gz"))
    assert len(read_table(written(tmp_path, same, "b.csv"))) == 50_000


def test_a_parquet_bomb_is_refused_by_what_it_declares(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MOST_UNPACKED", 10_000)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.zeros(200_000)}), path)
    with pytest.raises(ValueError, match="over 100 times its size"):
        read_table(str(path))
    pq.write_table(pa.table({"x": np.random.default_rng(0).normal(size=5000)}), path)
    assert len(read_table(str(path))) == 5000
