"""Tables in files: what is read, what is refused, and that outputs are whole or absent."""

import gzip
import io
import os
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
