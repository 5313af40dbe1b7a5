"""Many files in, many files out: the same answers however rows are divided, and nothing done twice or mixed."""

import itertools
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from ncprob import NCPClassifier, NCPRegressor, bulk, load, predict_files
from ncprob.bulk import predict_part

QUICK = {"coordinates": "raw", "max_steps": 20, "random_state": 0, "progress": False, "hidden_sizes": (8,)}
RTOL = 1e-5  # networks run in float32, and their matrix products round differently for other numbers of rows
ASKED = {"mean": True, "std": True, "quantiles": [0.1, 0.9], "intervals": [0.8], "cdf": [-0.5, 1.0], "keep": ["id"]}


def homes(n, seed=0):
    rng = np.random.default_rng(seed)
    rooms, kind = rng.uniform(1, 6, n), rng.choice(["flat", "house"], n)
    return pa.table({"id": np.arange(n) + 1000 * seed, "rooms": rooms, "kind": kind})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    table = homes(200)
    price = table["rooms"].to_numpy() + np.random.default_rng(9).normal(size=200)
    NCPRegressor(**QUICK).fit(table.select(["rooms", "kind"]), price).save(path)
    return path


@pytest.fixture
def files(tmp_path):
    """Three parts; the last has no rows."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, n in enumerate((30, 20, 0)):
        parquet.write_table(homes(n, number), folder / f"{number}.parquet", write_page_checksum=True)
    return folder


def read(path):
    return parquet.read_table(path).replace_schema_metadata()


def times(done):
    return [part.stat().st_mtime_ns for part in done.parts]


def damage(path):
    """Change a byte of the first page, whose checksum tells."""
    content = bytearray(path.read_bytes())
    content[20] ^= 0xFF
    path.write_bytes(content)


# ---------------------------------------------------------------- the answers


def test_parts_hold_what_python_answers(model, files, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk, "CHUNK", 7)  # parts of a part
    done = predict_files(model, files, tmp_path / "out", **ASKED)
    assert [part.name for part in done.parts] == ["0.parquet", "1.parquet", "2.parquet"]
    assert (done.found, done.rows) == (0, 50)
    estimator, table = load(model), homes(30)
    X = table.select(["rooms", "kind"])
    law, found = estimator.predict_distribution(X), read(done.parts[0])
    ends = estimator.predict_interval(X, coverage=[0.8])
    expected = {
        "id": table["id"],
        "y_mean": law.mean(),
        "y_std": law.std(),
        "y_0.1": law.quantile(0.1),
        "y_0.9": law.quantile(0.9),
        "y_0.8_lower": ends.column(0),
        "y_0.8_upper": ends.column(1),
        "y_cdf_-0.5": law.cdf(-0.5),
        "y_cdf_1.0": law.cdf(1.0),
    }
    assert found.column_names == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].to_numpy(), np.asarray(values), rtol=RTOL)


def test_a_part_without_rows_has_the_columns_of_others(model, files, tmp_path):
    done = predict_files(model, files, tmp_path / "out", keep=["*"])
    schemas = [read(part).schema for part in done.parts]
    assert schemas[2] == schemas[0]
    assert schemas[0].names == ["id", "rooms", "kind", "y_mean", "y_0.05", "y_0.5", "y_0.95"]
    assert len(read(done.parts[2])) == 0


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 40), max_size=4))
def test_answers_do_not_depend_on_how_rows_are_divided(model, tmp_path_factory, cuts):
    folder, table = tmp_path_factory.mktemp("cut"), homes(40)
    (folder / "in").mkdir()
    ends = [0, *sorted(cuts), 40]
    for number, (begin, end) in enumerate(itertools.pairwise(ends)):
        parquet.write_table(table.slice(begin, end - begin), folder / "in" / f"{number}.parquet")
    done = predict_files(model, folder / "in", folder / "out", mean=True, cdf=[3.0])
    found = pa.concat_tables([read(part) for part in done.parts])
    law = load(model).predict_distribution(table.select(["rooms", "kind"]))
    np.testing.assert_allclose(found["y_mean"].to_numpy(), law.mean(), rtol=RTOL)
    np.testing.assert_allclose(found["y_cdf_3.0"].to_numpy(), law.cdf(3.0), atol=RTOL)


def test_processes_give_the_same(model, files, tmp_path):
    one = predict_files(model, files, tmp_path / "one", **ASKED)
    (files / "3.parquet").write_bytes((files / "0.parquet").read_bytes())
    damage(files / "3.parquet")
    with pytest.raises(ValueError, match=r"3\.parquet cannot be read"):
        predict_files(model, files, tmp_path / "two", **ASKED, workers=2)
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [part.name for part in one.parts]
    assert [read(tmp_path / "two" / part.name) for part in one.parts] == [read(part) for part in one.parts]


def test_classes_several_targets_and_arrays_without_names(tmp_path):
    x = np.random.default_rng(0).normal(size=(120, 2))
    (tmp_path / "in").mkdir()
    parquet.write_table(pa.table({"a": x[:9, 0], "b": x[:9, 1]}), tmp_path / "in" / "p.parquet")
    parquet.write_table(pa.table({"a": x[:0, 0], "b": x[:0, 1]}), tmp_path / "in" / "q.parquet")
    classes = NCPClassifier(**QUICK).fit(x, np.where(x[:, 0] > 0, "up", "down"))
    both = NCPRegressor(**QUICK).fit(x, x + 0.1)
    for estimator, names in (
        (classes, ["y_predicted", "y_down", "y_up"]),
        (both, ["y0_mean", "y1_mean", "y0_cdf_0.0", "y1_cdf_0.0"]),
    ):
        kind = type(estimator).__name__
        estimator.save(tmp_path / kind)
        asked = {} if estimator is classes else {"mean": True, "cdf": [0.0]}
        done = predict_files(tmp_path / kind, tmp_path / "in", tmp_path / f"{kind}-out", **asked)
        found, empty = (read(part) for part in done.parts)
        assert found.column_names == names
        assert found.schema == empty.schema
    assert read(tmp_path / "NCPClassifier-out" / "p.parquet")["y_predicted"].to_pylist() == list(classes.predict(x[:9]))
    law = both.predict_distribution(x[:9])
    np.testing.assert_allclose(found["y1_cdf_0.0"].to_numpy(), np.asarray(law.cdf(0.0))[:, 1], rtol=RTOL)


@pytest.mark.parametrize(
    ("asked", "alike"),
    [
        ({"cdf": [0]}, {"cdf": [0.0]}),
        ({"cdf": np.array([1, 2])}, {"cdf": [1.0, 2.0]}),
        ({"quantiles": np.array([0.5], dtype=np.float32)}, {"quantiles": 0.5}),
        ({"intervals": 0.9, "keep": "id"}, {"intervals": [0.9, 0.9], "keep": ["id"]}),
    ],
)
def test_the_same_question_has_the_same_columns_however_it_is_written(model, files, tmp_path, asked, alike):
    first = predict_files(model, files / "0.parquet", tmp_path / "out", **asked)
    both = predict_files(model, files, tmp_path / "out", **alike)
    assert both.found == 1
    assert read(first.parts[0]).schema == read(both.parts[1]).schema


def test_files_may_come_while_they_are_listed(model, files, tmp_path, monkeypatch):
    listed = bulk.find_files

    def coming(paths):
        found = listed(paths)
        parquet.write_table(homes(3), files / "late.parquet")
        return found

    monkeypatch.setattr(bulk, "find_files", coming)
    assert predict_files(model, files, tmp_path / "out", mean=True).rows in (50, 53)


def test_laws_are_not_computed_where_quantiles_are_all(model, files, tmp_path, monkeypatch):
    expected = predict_files(model, files / "0.parquet", tmp_path / "both", mean=True, quantiles=0.3)
    asked = []
    law = NCPRegressor.predict_distribution
    monkeypatch.setattr(NCPRegressor, "predict_distribution", lambda self, X: asked.append(len(X)) or law(self, X))
    done = predict_files(model, files / "0.parquet", tmp_path / "one", quantiles=0.3)
    assert read(done.parts[0])["y_0.3"] == read(expected.parts[0])["y_0.3"]
    assert not asked
    predict_files(model, files / "0.parquet", tmp_path / "law", mean=True, std=True, cdf=0.0)
    assert len(asked) == 1


def test_folders_of_a_pattern_are_kept(model, files, tmp_path):
    (files / "late").mkdir()
    shutil.copy(files / "0.parquet", files / "late" / "0.parquet")
    done = predict_files(model, f"{files}/**/*.parquet", tmp_path / "out", mean=True)
    found = sorted(str(part.relative_to(tmp_path / "out")) for part in done.parts)
    assert found == ["0.parquet", "1.parquet", "2.parquet", os.path.join("late", "0.parquet")]


# ---------------------------------------------------------------- again


def test_finished_parts_are_kept_and_changed_inputs_predicted_anew(model, files, tmp_path):
    first = predict_files(model, files, tmp_path / "out", mean=True)
    before = times(first)
    parquet.write_table(homes(25, 7), files / "1.parquet")
    first.parts[2].write_bytes(first.parts[2].read_bytes()[:-9])  # a disk that lost the end
    again = predict_files(model, files, tmp_path / "out", mean=True)
    assert (again.found, again.rows) == (1, 55)
    assert [now == then for now, then in zip(times(again), before, strict=True)] == [True, False, False]
    done = predict_files(model, files, tmp_path / "out", mean=True, workers=2)
    assert (done.found, done.rows) == (3, 55)
    assert times(done) == times(again)


def test_a_run_that_was_stopped_goes_on(model, files, tmp_path, monkeypatch):
    done = []

    def stopped(part):
        if done:
            raise KeyboardInterrupt
        done.append(part)
        return predict_part(part)

    monkeypatch.setattr(bulk, "predict_part", stopped)
    with pytest.raises(KeyboardInterrupt):
        predict_files(model, files, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.parquet"]
    monkeypatch.undo()
    assert predict_files(model, files, tmp_path / "out").found == 1
    expected = predict_files(model, files, tmp_path / "whole")
    assert [read(tmp_path / "out" / part.name) for part in expected.parts] == [read(part) for part in expected.parts]


def test_what_a_killed_writer_left_is_removed(model, files, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    remains = out / ".0.parquet.00000000-1.abc.partial"
    remains.write_bytes(b"half")
    os.utime(remains, (0, 0))
    predict_files(model, files, out, mean=True)
    assert not remains.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": True, "std": True}, "another question"),
        ({"mean": True, "cdf": [0.0]}, "another question"),
        ({"mean": True, "keep": ["id"]}, "another choice of `keep`"),
    ],
)
def test_another_question_is_not_mixed_in(model, files, tmp_path, change, message):
    before = times(predict_files(model, files, tmp_path / "out", mean=True))
    parquet.write_table(homes(5), files / "new.parquet")
    with pytest.raises(ValueError, match=message):
        predict_files(model, files, tmp_path / "out", **change)
    assert times(predict_files(model, files, tmp_path / "out", mean=True))[:3] == before


def test_another_model_is_not_mixed_in(model, files, tmp_path):
    predict_files(model, files / "0.parquet", tmp_path / "out", mean=True)
    other = load(model)
    other.target_names_ = ["y2"]
    other.save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"another model .*0\.parquet"):
        predict_files(tmp_path / "other", files / "1.parquet", tmp_path / "out", mean=True)
    assert predict_files(model, files / "1.parquet", tmp_path / "out", mean=True).found == 0


def test_a_model_replaced_meanwhile_stops_at_once(model, files, tmp_path, monkeypatch):
    answers = iter(["a", "a", "b"])  # when asked, when columns are checked, when the first part is predicted
    monkeypatch.setattr(bulk.storage, "checksum", lambda path: next(answers))
    monkeypatch.setattr(bulk, "loaded", bulk.loaded.__wrapped__)
    with pytest.raises(RuntimeError, match=r"0\.parquet was not predicted: the model .* was replaced meanwhile"):
        predict_files(model, files, tmp_path / "out", mean=True)


def test_a_full_disk_stops_at_once(model, files, tmp_path, monkeypatch):
    tried = []

    def full(part):
        tried.append(part)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bulk, "predict_part", full)
    with pytest.raises(OSError, match=r"0\.parquet was not predicted: .*No space left.*call again to go on"):
        predict_files(model, files, tmp_path / "out")
    assert len(tried) == 1


# ---------------------------------------------------------------- bad input


def test_a_damaged_part_does_not_stop_the_others(model, files, tmp_path):
    damage(files / "0.parquet")
    with pytest.raises(ValueError, match=r"0\.parquet cannot be read.*Finished parts are kept"):
        predict_files(model, files, tmp_path / "out", mean=True, keep=["id"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1.parquet", "2.parquet"]
    parquet.write_table(homes(30), files / "0.parquet")
    assert predict_files(model, files, tmp_path / "out", mean=True, keep=["id"]).found == 2


def test_values_that_cannot_be_used_are_told_with_file_and_row(model, files, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk, "CHUNK", 3)
    table = homes(20, 1)
    for number, bad in ((0, np.nan), (1, None)):
        rooms = table["rooms"].to_pylist()
        rooms[4] = bad
        parquet.write_table(table.set_column(1, "rooms", pa.array(rooms)), files / f"{number}.parquet")
    with pytest.raises(ValueError, match=r"0\.parquet: column 'rooms' .*row 5.*Also at fault: .*1\.parquet\."):
        predict_files(model, files, tmp_path / "out", mean=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["2.parquet"]


def broken(kind, files):
    table = homes(4)
    if kind == "footer":
        (files / "1.parquet").write_bytes(b"PAR1 not at all")
        return
    table = {
        "column": lambda: table.rename_columns(["id", "room", "kind"]),
        "columns": lambda: table.select(["id"]),
        "text": lambda: table.set_column(1, "rooms", table["kind"]),
        "date": lambda: table.set_column(2, "kind", pa.array([0] * 4, pa.date32())),
        "kept": lambda: table.set_column(0, "id", table["kind"]),
    }[kind]()
    parquet.write_table(table, files / "1.parquet")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("footer", r"1\.parquet cannot be read"),
        ("column", r"1\.parquet has no column 'rooms'. Did you mean 'room'"),
        ("columns", r"1\.parquet lacks 2 columns of the model: 'rooms', 'kind'"),
        ("text", r"1\.parquet: column 'rooms' must hold numbers.*it holds text"),
        ("date", r"1\.parquet: column 'kind' must hold text.*it holds date32"),
        ("kept", r"1\.parquet must have the columns to keep as .*0\.parquet has them.*'id' is of type string here"),
    ],
)
def test_columns_are_checked_before_any_work(model, files, tmp_path, kind, message):
    broken(kind, files)
    with pytest.raises((ValueError, TypeError), match=message):
        predict_files(model, files, tmp_path / "out", mean=True, keep=["id"])
    assert not (tmp_path / "out").exists()


def test_places_that_cannot_be_meant(model, files, tmp_path):
    with pytest.raises(ValueError, match="`out` must not hold the files"):
        predict_files(model, files, files)
    (tmp_path / "other").mkdir()
    parquet.write_table(homes(3), tmp_path / "other" / "foreign.parquet")
    with pytest.raises(ValueError, match=r"must hold predictions only; .*foreign\.parquet is none"):
        predict_files(model, files / "0.parquet", tmp_path / "other")
    shutil.copy(files / "0.parquet", tmp_path / "other")
    with pytest.raises(ValueError, match="different names"):
        predict_files(model, [files, tmp_path / "other"], tmp_path / "out")
    (tmp_path / "a.csv").write_text("rooms,kind\n1,flat\n")
    with pytest.raises(ValueError, match=r"must name Parquet files; .*a\.csv"):
        predict_files(model, tmp_path / "a.csv", tmp_path / "out")
    with pytest.raises(ValueError, match="cannot be a directory"):
        predict_files(model, files, tmp_path / "a.csv")
    with pytest.raises(ValueError, match="names none"):
        predict_files(model, tmp_path / "*.pq", tmp_path / "out")


def test_classes_have_no_mean_which_is_told_before_any_work(files, tmp_path):
    table = homes(60)
    NCPClassifier(**QUICK).fit(table.select(["rooms", "kind"]), np.arange(60) % 2).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"classes have no mean.*Leave out these options\.$"):
        predict_files(tmp_path / "model", files, tmp_path / "out", mean=True)
    assert not (tmp_path / "out").exists()


def test_arguments_are_checked(model, files, tmp_path):
    with pytest.raises(TypeError, match="`save` it first"):
        predict_files(load(model), files, tmp_path / "out")
    with pytest.raises(ValueError, match="does not exist"):
        predict_files(tmp_path / "none", files, tmp_path / "out")
    with pytest.raises(ValueError, match="`quantiles` must lie strictly between 0 and 1"):
        predict_files(model, files, tmp_path / "out", quantiles=[5])
    with pytest.raises(ValueError, match="`cdf` must not hold NaN"):
        predict_files(model, files, tmp_path / "out", cdf=[np.nan])
    with pytest.raises(TypeError, match="`workers` must be an integer"):
        predict_files(model, files, tmp_path / "out", workers=1.5)
    with pytest.raises(ValueError, match=r"has no column 'ids'\. Did you mean 'id'"):
        predict_files(model, files, tmp_path / "out", keep=["ids"])
    assert not (tmp_path / "out").exists()
