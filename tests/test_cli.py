"""The command line: answers as in Python, and one clear line for whatever is wrong."""

import gzip
import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ncprob import NCPClassifier, NCPRegressor, __version__, cli, commands, datasets, frames, load, questions, trees
from ncprob.base import COORDINATES
from ncprob.cli import app
from ncprob.report import writing
from ncprob.report.baselines import headline_scores
from ncprob.report.study import Study
from ncprob.tables import read_table

N = 150
FAST = ("--max-steps", "20", "--device", "cpu")


@pytest.fixture(autouse=True, scope="module")
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "N_TREES", 12)
        yield


def run(*words, text=None, status=0):
    """Output and errors of a command that must end with a status."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def refused(*words, text=None):
    """The one line that says what is wrong."""
    result = run(*words, text=text, status=2)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("Warning")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    assert result.stdout == ""
    return lines[0]


def homes(n=N, seed=0, header="id,rooms,year built,kind,price"):
    rng = np.random.default_rng(seed)
    rooms, year = rng.integers(2, 9, n), rng.integers(1950, 2020, n)
    kind = rng.choice(["flat", "house", "loft"], n)
    price = 5 * rooms + (kind == "house") * 4 + rng.normal(size=n)
    rows = zip(range(n), rooms, year, kind, price.round(2), strict=True)
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a table, a model of a number, and one of classes."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "homes.csv").write_text(homes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run("fit", "homes.csv", "--target", "price", "--drop", "id", "--out", "model/", *FAST, "--quiet")
        run("fit", "homes.csv", "--target", "kind", "--drop", "id", "--out", "classes", *FAST, "--quiet")
    return folder


@pytest.fixture(autouse=True)
def here(work, monkeypatch):
    monkeypatch.chdir(work)
    before = sorted(os.listdir(work))
    yield
    assert not [name for name in os.listdir(work) if "partial" in name]
    for name in set(os.listdir(work)) - set(before):
        path = work / name
        if path.is_file():
            path.unlink()


# ---------------------------------------------------------------- fit


def test_fit_prints_a_summary_and_saves_what_python_fits(work, tmp_path):
    result = run(
        "fit", "homes.csv", "--target", "price", "--drop", "id", "--out", tmp_path / "m", "--test", "homes.csv", *FAST
    )
    for part in ("price given 3 inputs, 1 of them text", "150 rows", "held-out rows", "90 % intervals cover", "CRPS"):
        assert part in result.stdout
    again, model = load(tmp_path / "m"), load("model")
    assert again.feature_names_in_.tolist() == ["rooms", "year built", "kind"]
    assert again.target_names_ == ["price"]
    assert again.random_state == 0
    table = {"rooms": [3.0, 5.0], "year built": [1990.0, 2000.0], "kind": ["flat", "loft"]}
    np.testing.assert_array_equal(again.predict(pa.table(table)), model.predict(pa.table(table)))
    assert again.predict(pa.table(table)).shape == (2,)


def test_fit_several_targets_weights_and_settings(tmp_path):
    words = ("--target", "price", "rooms", "--drop", "id", "--weights", "year built", "--coordinates", "raw")
    run("fit", "homes.csv", *words, "--rank", "3", "--seed", "7", "--out", tmp_path / "m", *FAST, "--quiet")
    model = load(tmp_path / "m")
    assert model.target_names_ == ["price", "rooms"]
    assert (model.rank, model.random_state, model.coordinates_) == (3, 7, "raw")
    weights = read_table("homes.csv").numbers("year built")
    np.testing.assert_allclose(model._training_weights, weights / weights.mean(), rtol=1e-12)
    assert model.feature_names_in_.tolist() == ["kind"]
    assert "price_mean" in run("predict", tmp_path / "m", "homes.csv", "--mean").stdout.splitlines()[0]


def test_fit_from_standard_input_and_parquet_and_gz(tmp_path, work):
    (work / "h.csv.gz").write_bytes(gzip.compress(homes().replace(",", ";").encode()))
    run("predict", "model", "h.csv.gz", "--keep", "*", "--out", "h.parquet", "--mean")
    words = ("--target", "price", "--drop", "id", "--out")
    run("fit", "-", *words, tmp_path / "a", *FAST, "--quiet", text=homes())
    run("fit", "h.csv.gz", *words, tmp_path / "b", *FAST, "--quiet")
    run("fit", "h.parquet", *words[:4], "price_mean", "--out", tmp_path / "c", *FAST, "--quiet")
    question = ("--where", "rooms > 4", "--mean", "--json")
    answers = [run("ask", tmp_path / name, *question).stdout for name in "abc"]
    assert answers[0] == answers[1]
    assert json.loads(answers[2])["answers"]["mean"] == pytest.approx(
        json.loads(answers[0])["answers"]["mean"], rel=0.1
    )


def test_one_row_to_score_on_has_no_r2(tmp_path, work):
    (work / "one.csv").write_text("\n".join(homes(60, seed=9).splitlines()[:2]))
    words = ("--target", "price", "--drop", "id", "--out", tmp_path / "m", "--test", "one.csv", *FAST)
    told = run("fit", "homes.csv", *words).stdout
    assert "one.csv (1 row): price CRPS" in told
    assert "R² needs two rows" in told
    assert "nan" not in told


def test_fit_from_many_files_is_that_of_python(tmp_path):
    (tmp_path / "parts").mkdir()
    for part in range(3):
        (tmp_path / "parts" / f"part-{part}.csv").write_text(homes(60, seed=part))
    (tmp_path / "later.csv").write_text(homes(60, seed=9))
    pattern, settings = str(tmp_path / "parts" / "part-*.csv"), ("--max-steps", "40", "--coordinates", "raw")
    words = ("--target", "price", "--drop", "id", "--out", tmp_path / "m", "--test", tmp_path / "later.csv")
    told = run("fit", tmp_path / "parts", *words, *settings).stdout
    assert "price given 3 inputs, 1 of them text" in told
    assert "3 files, fitted in" in told
    assert "later.csv (60 rows): price CRPS" in told
    expected = NCPRegressor(max_steps=40, coordinates="raw", random_state=0, progress=False)
    expected.fit_files(pattern, "price", drop=["id"])
    assert np.array_equal(load(tmp_path / "m").singular_values_, expected.singular_values_)
    assert "--text is for one file" in refused("fit", pattern, *words[:2], "--text", "rooms", "--out", tmp_path / "n")
    assert "names none" in refused("fit", tmp_path / "nothing-*.csv", *words[:2], "--out", tmp_path / "n")


def test_fit_takes_codes_as_text_and_leaves_out_missing(tmp_path, work):
    (work / "gaps.csv").write_text(homes() + "150,,1990,flat,3\n151,4,NA,flat,3\n152,4,1990,,3\n")
    words = ("fit", "gaps.csv", "--target", "price", "--drop", "id", "--out", tmp_path / "m", *FAST)
    assert "column 'rooms' has 1 missing values, first at line 152" in refused(*words)
    assert not (tmp_path / "m").exists()
    result = run(*words, "--drop-missing", "--text", "rooms")
    assert "Left out 3 of 153 rows" in result.stdout
    assert set(load(tmp_path / "m").categories_) == {"rooms", "kind"}


def test_fit_classifies_text_and_numbers_if_told(tmp_path):
    assert load("classes").classes_.tolist() == ["flat", "house", "loft"]
    words = ("fit", "homes.csv", "--target", "rooms", "--classify", "--drop", "id", "--out", tmp_path / "m", *FAST)
    assert "log loss" in run(*words, "--test", "homes.csv").stdout
    assert load(tmp_path / "m").classes_.tolist() == list(range(2, 9))


def test_fit_scores_a_table_as_the_report_does(tmp_path, work):
    (work / "later.csv").write_text(homes(60, seed=1).replace("loft", "castle"))
    words = ("--drop", "id", "--out", tmp_path / "m", "--test", "later.csv", *FAST)
    lines = run("fit", "homes.csv", "--target", "price", *words).stdout.splitlines()
    found, complaint = (line.removeprefix("later.csv (60 rows): ") for line in lines if line.startswith("later.csv"))
    assert "not seen in fit, such as ['castle']" in complaint
    model, table = load(tmp_path / "m"), read_table("later.csv")
    study = Study.of(model, frames.join_columns(commands.model_columns(model, table)), table.numbers("price"))
    scores = {name: own["CRPS"] for name, own in headline_scores(study)[0].items()}
    marginal, linear = scores["marginal quantiles"], scores["linear, normal errors"]
    told = f"price CRPS {scores['ncprob']:.4g} (marginal quantiles {marginal:.4g}; linear, normal errors {linear:.4g})"
    assert found.startswith(told)
    again = run("fit", "homes.csv", "--target", "price", "rooms", *words).stdout
    assert "price CRPS" in again
    assert "rooms CRPS" in again


def test_a_class_that_cannot_be_known_is_told_before_the_fit(tmp_path, work, monkeypatch):
    monkeypatch.setattr(NCPClassifier, "fit", lambda *_, **__: pytest.fail("fitted"))
    (work / "later.csv").write_text(homes(60).replace("loft", "castle"))
    words = ("fit", "homes.csv", "--target", "kind", "--out", tmp_path / "m", "--test", "later.csv")
    assert "later.csv has classes that the rows to fit do not have: ['castle']" in refused(*words)


def test_every_row_of_a_test_table_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("ncprob.report.study.MOST_ROWS", 3)
    words = ("--target", "kind", "--drop", "id", "--out", tmp_path / "m", "--test", "homes.csv", *FAST)
    line = next(line for line in run("fit", "homes.csv", *words).stdout.splitlines() if "accuracy" in line)
    model, table = load(tmp_path / "m"), read_table("homes.csv")
    hits = model.predict(frames.join_columns(commands.model_columns(model, table))) == table.text("kind")
    assert line.endswith(f"accuracy {hits.mean():.1%}")
    assert "(class shares 1." in line


BAD_FITS = {
    "no such target": (("--target", "prize"), homes(), "no column 'prize'. Did you mean 'price'"),
    "no such column to drop": (("--target", "price", "--drop", "idd"), homes(), "no column 'idd'"),
    "duplicate names": (
        ("--target", "price"),
        homes(header="id,rooms,rooms,kind,price"),
        "several columns named 'rooms'",
    ),
    "text among numbers": (
        ("--target", "price"),
        homes() + "9,x,2000,flat,3\n",
        "column 'rooms' holds numbers, but line 152",
    ),
    "text in the target": (("--target", "price"), homes() + "9,3,2000,flat,much\n", "column 'price' holds numbers"),
    "empty": (("--target", "price"), "", "is empty"),
    "header only": (("--target", "price"), "a,price\n", "no rows"),
    "one row": (("--target", "price"), "a,price\n1,2\n", "at least 2 rows"),
    "delimiter": (("--target", "price", "--delimiter", ";"), homes(), "choose another --delimiter"),
    "ragged": (("--target", "price"), "a,price\n1,2\n1,2,3\n", "line 3 has 3 values"),
    "missing target": (("--target", "price"), "a,price\n1,2\n1,\n", "column 'price' has 1 missing values"),
    "infinite": (("--target", "price"), "a,price\n1,2\n1,inf\n2,3\n", "holds numbers, but line 3 has 'inf'"),
    "only the target": (("--target", "price"), "price\n1\n2\n", "no column left as input"),
    "target twice": (("--target", "price", "price"), homes(), "names a column twice"),
    "two classes": (("--target", "price", "kind"), homes(), "one column for classes"),
    "coordinates": (("--target", "price", "--coordinates", "rwa"), homes(), "Did you mean 'raw'"),
    "steps": (("--target", "price", "--max-steps", "0"), homes(), "`max_steps` must be at least 1"),
    "weights": (("--target", "price", "--weights", "kind"), homes(), "column 'kind' must be numeric"),
}


@pytest.mark.parametrize("kind", BAD_FITS)
def test_bad_input_to_fit(kind, work, tmp_path):
    words, content, message = BAD_FITS[kind]
    (work / "bad.csv").write_text(content)
    assert message in refused("fit", "bad.csv", "--out", tmp_path / "m", *words)
    assert os.listdir(tmp_path) == []


def test_places_that_fit_refuses_before_any_work(work, tmp_path, monkeypatch):
    monkeypatch.setattr(NCPRegressor, "fit", lambda *_: pytest.fail("work was done"))
    words = ("fit", "homes.csv", "--target", "price", "--out")
    (tmp_path / "mine").write_text("x")
    assert "other files" in refused(*words, tmp_path)
    assert "is a file" in refused(*words, tmp_path / "mine")
    assert "cannot be written" in refused(*words, tmp_path / "mine" / "model")
    assert "names none" in refused("fit", tmp_path, "--target", "price", "--out", tmp_path / "m")
    assert "does not exist" in refused("fit", "none.csv", "--target", "price", "--out", tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        assert "read-only" in refused(*words, tmp_path / "m")
    assert os.listdir(tmp_path) == ["mine"]


# ---------------------------------------------------------------- predict


def test_predict_writes_what_python_predicts(work):
    words = ("--quantiles", "0.05", "0.5", "0.95", "--interval", "0.9", "--mean", "--std", "--keep", "id", "kind")
    run("predict", "model/", "homes.csv", *words, "--out", "predictions.csv")
    table, model = read_table("predictions.csv"), load("model")
    assert table.names == [
        "id", "kind", "price_mean", "price_std", "price_0.05", "price_0.5", "price_0.95",
        "price_0.9_lower", "price_0.9_upper",
    ]  # fmt: skip
    source = read_table("homes.csv")
    X = pa.table({n: source.text(n) if n == "kind" else source.numbers(n) for n in model.feature_names_in_})
    np.testing.assert_array_equal(table.numbers("price_mean"), model.predict(X))
    np.testing.assert_array_equal(table.numbers("price_0.95"), model.predict_quantiles(X)["price_0.95"].to_numpy())
    np.testing.assert_array_equal(
        table.numbers("price_0.9_lower"),
        model.predict_interval(X)["price_0.9_lower"].to_numpy(),
    )
    np.testing.assert_array_equal(table.numbers("id"), np.arange(N))


def test_options_may_stand_anywhere_and_values_be_repeated():
    expected = run("predict", "model", "homes.csv", "--quantiles", "0.1", "0.9").stdout
    for words in (
        ("--quantiles", "0.1", "0.9", "model", "homes.csv"),
        ("--quantiles", "0.1", "--quantiles", "0.9", "model", "homes.csv"),
        ("--quantiles=0.1", "--quantiles=0.9", "model", "homes.csv"),
        ("model", "--quantiles", "0.1", "0.9", "--", "homes.csv"),
    ):
        assert run("predict", *words).stdout == expected


def test_names_are_taken_once_the_file_is_there():
    params = types.SimpleNamespace
    target = params(opts=["--target"], param_type_name="option", is_flag=False, multiple=True)
    flag = params(opts=["--quiet"], param_type_name="option", is_flag=True, multiple=False)
    data = params(opts=["data"], param_type_name="argument")
    spread = cli._repeated
    assert spread(["d.csv", "--target", "a", "b", "--quiet"], [target, flag, data]) == [
        "d.csv", "--target", "a", "--target", "b", "--quiet",
    ]  # fmt: skip
    assert spread(["--target", "a", "d.csv"], [target, flag, data]) == ["--target", "a", "d.csv"]
    assert spread(["--quiet", "-", "--target"], [target, flag, data]) == ["--quiet", "-", "--target"]


def test_predict_in_pieces_gives_the_same(monkeypatch):
    whole = run("predict", "model", "homes.csv", "--mean").stdout.split()[1:]
    monkeypatch.setattr(commands, "CHUNK", 40)
    pieces = run("predict", "model", "homes.csv", "--mean").stdout.split()[1:]
    np.testing.assert_allclose([*map(float, pieces)], [*map(float, whole)], rtol=1e-4)


def test_predict_defaults_parquet_and_standard_output(work):
    lines = run("predict", "model", "-", text=homes(3)).stdout.splitlines()
    assert lines[0] == "price_mean,price_0.05,price_0.5,price_0.95"
    assert len(lines) == 4
    run("predict", "model", "homes.csv", "--mean", "--out", "p.parquet")
    assert pq.read_table("p.parquet").column_names == ["price_mean"]


def test_predict_many_files_to_a_directory(work, tmp_path):
    (tmp_path / "in").mkdir()
    rows = {name: read_table("homes.csv").values(name) for name in ("id", "rooms", "year built", "kind")}
    table = pa.table({n: pa.array(v if n == "kind" else v.astype(float)) for n, v in rows.items()})
    for part in range(2):
        pq.write_table(table.slice(75 * part, 75), tmp_path / "in" / f"{part}.parquet")
    words = (
        "predict", "model", tmp_path / "in" / "*.parquet", "--mean", "--cdf", "-1", "20", "--keep", "id",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert run(*words).stdout.startswith("150 rows in 2 files, in ")
    assert run(*words).stdout.startswith("150 rows in 2 files, 2 of them there before, in ")
    assert "another question" in refused(*words, "--std")
    found = pq.read_table(tmp_path / "out")
    assert found.column_names == ["id", "price_mean", "price_cdf_-1.0", "price_cdf_20.0"]
    run("predict", "model", "homes.csv", "--mean", "--cdf", "-1", "20", "--out", tmp_path / "one.csv")
    one = read_table(str(tmp_path / "one.csv"))
    for name in one.names:
        np.testing.assert_allclose(found[name].to_numpy(), one.numbers(name), rtol=1e-5, atol=1e-6)  # float32
    assert "--out must name a directory" in refused(*words[:-2])
    assert "--workers must be a number" in refused(*words, "--workers", "dask")
    assert "`workers` must be at least 1" in refused(*words, "--workers", "0")
    assert "--delimiter is for one csv file" in refused(*words, "--delimiter", ";")
    assert "--workers is for many files" in refused("predict", "model", "homes.csv", "--workers", "2")


def test_predict_classes(work):
    lines = run("predict", "classes", "homes.csv", "--keep", "id").stdout.splitlines()
    assert lines[0] == "id,kind_predicted,kind_flat,kind_house,kind_loft"
    assert sum(map(float, lines[1].split(",")[2:])) == pytest.approx(1)
    assert "classes have no mean" in refused("predict", "classes", "homes.csv", "--mean")


def without(column, n=5):
    lines = [line.split(",") for line in homes(n).splitlines()]
    i = lines[0].index(column)
    return "\n".join(",".join(line[:i] + line[i + 1 :]) for line in lines)


BAD_PREDICTIONS = {
    "lacks a column": (without("rooms"), "no column 'rooms'"),
    "lacks several": ("id\n1\n", "lacks 3 columns of the model: 'rooms', 'year built', 'kind'"),
    "text in a numeric column": (homes(3).replace("\n0,", "\n0,x"), "column 'rooms' must be numeric; line 2 has 'x"),
    "missing": (homes(3) + "9,,2000,flat,3\n", "column 'rooms' has 1 missing values, first at line 5"),
    "missing text": (homes(3) + "9,3,2000,,3\n", "column 'kind' has 1 missing values"),
    "empty": ("", "is empty"),
    "delimiter": (homes(3).replace(",", "#"), "lacks 3 columns"),
}


@pytest.mark.parametrize("kind", BAD_PREDICTIONS)
def test_bad_input_to_predict(kind, work):
    content, message = BAD_PREDICTIONS[kind]
    (work / "bad.csv").write_text(content)
    (work / "out.csv").write_text("old")
    assert message in refused("predict", "model", "bad.csv", "--out", "out.csv")
    assert (work / "out.csv").read_text() == "old"


def test_other_columns_and_levels_at_predict_time(work):
    (work / "more.csv").write_text(
        homes(4).replace("id", "extra", 1).replace("loft", "castle").replace("flat", "castle")
    )
    result = run("predict", "model", "more.csv", "--mean")
    assert "Warning: column 'kind' has levels that were not seen in fit" in result.stderr
    assert len(result.stdout.splitlines()) == 5


def test_bad_models_outputs_and_levels(work, tmp_path, monkeypatch):
    words = ("predict", "model", "homes.csv")
    assert "does not exist" in refused("predict", "nothing", "homes.csv")
    assert "holds no model" in refused("predict", tmp_path, "homes.csv")
    assert "must be a directory" in refused("predict", "homes.csv", "homes.csv")
    assert "is a directory" in refused(*words, "--out", tmp_path)
    assert "no directory" in refused(*words, "--out", tmp_path / "a" / "b.csv")
    assert "names none" in refused("predict", "model", tmp_path, "--out", tmp_path / "out")
    assert "no column 'idd'. Did you mean 'id'" in refused(*words, "--keep", "idd")
    assert "strictly between 0 and 1" in refused(*words, "--quantiles", "5", "0.5")
    assert "strictly between 0 and 1" in refused(*words, "--interval", "1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        assert "read-only" in refused(*words, "--out", "p.csv")

    def full(*_):
        raise OSError(28, "No space left on device", "p.csv")

    monkeypatch.setattr(os, "replace", full)
    assert "No space left on device" in refused(*words, "--out", "p.csv")
    assert not (work / "p.csv").exists()


def test_models_without_names(work, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    NCPRegressor(max_steps=20, coordinates="raw", random_state=0).fit(X, X).save(tmp_path / "m")
    lines = run("predict", tmp_path / "m", "-", "--mean", text="a,b\n1,2\n").stdout.splitlines()
    assert lines[0] == "y0_mean,y1_mean"
    assert "must have 2 columns" in refused("predict", tmp_path / "m", "-", text="a\n1\n")
    answers = json.loads(
        run("ask", tmp_path / "m", "--where", "x0 > 0", "--prob", "y0 > y1", "--mean", "--json").stdout
    )
    assert set(answers["answers"]) == {"P(y0 > y1)", "y0 mean", "y1 mean"}


# ---------------------------------------------------------------- ask


def test_ask_answers_what_python_answers():
    words = ("--where", "rooms > 6 and `year built` < 2000", "--prob", "price > 30", "--mean", "--std")
    found = json.loads(run("ask", "model/", *words, "--quantiles", "0.1", "0.9", "--interval", "0.9", "--json").stdout)
    model = load("model")
    mask = (model._training_x[:, 0] > 6) & (model._training_x[:, 1] < 2000)
    law = model.given(mask)
    assert found["training_rows"] == mask.sum()
    assert found["answers"] == {
        "P(price > 30)": pytest.approx(law.prob((30, np.inf))[0], abs=1e-12),
        "mean": law.mean()[0],
        "std": law.std()[0],
        "0.1 quantile": law.quantile(0.1)[0],
        "0.9 quantile": law.quantile(0.9)[0],
        "0.9 interval": law.interval(0.9)[0].tolist(),
    }


def test_ask_compares_text_by_its_labels():
    source = read_table("homes.csv")
    for label in ("flat", "house", "loft"):
        found = json.loads(run("ask", "model", "--where", f"kind == '{label}'", "--mean", "--json").stdout)
        assert found["training_rows"] == (source.text("kind") == label).sum()


def test_ask_in_words_and_about_everything():
    lines = run("ask", "model", "--prob", "price > 20", "--prob", "not price > 20").stdout.splitlines()
    assert lines[0] == "given nothing (150 of 150 training rows)"
    assert sum(float(line.split()[-1]) for line in lines[1:]) == pytest.approx(1, abs=1e-5)
    assert "0.95 quantile" in run("ask", "model", "--where", "rooms > 3").stdout


def test_ask_about_classes():
    found = json.loads(run("ask", "classes", "--where", "rooms > 3", "--json").stdout)["answers"]
    assert sum(found.values()) == pytest.approx(1)
    both = ("--prob", "kind in ('flat', 'loft')", "--prob", "kind == 'house'", "--json")
    assert sum(json.loads(run("ask", "classes", *both).stdout)["answers"].values()) == pytest.approx(1)
    assert "classes have no mean" in refused("ask", "classes", "--mean")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--where", "rooms > 99"), "holds for none of the 150 training rows"),
        (("--where", "room > 3"), "Did you mean 'rooms'"),
        (("--where", "rooms >"), "cannot be read at its end"),
        (("--where", "kind == 'hose'"), "Did you mean 'house'"),
        (("--where", "__import__('os').system('touch hacked')"), "not allowed"),
        (("--where", "price > 3"), "there is no column 'price'"),
        (("--prob", "rooms > 3"), "there is no column 'rooms'; known are price"),
        (("--prob", "price"), "must be a condition"),
        (("--quantiles", "2"), "strictly between 0 and 1"),
    ],
)
def test_bad_questions(words, message, work):
    assert message in refused("ask", "model", *words)
    assert not (work / "hacked").exists()


# ---------------------------------------------------------------- the rest


def test_info_tells_what_is_inside():
    text = run("info", "model/").stdout
    for part in (
        "NCPRegressor",
        "price",
        "rooms, year built, kind (3 levels)",
        "150 rows",
        "max_steps=20",
        "held-out rows",
    ):
        assert part in text
    assert "flat, house, loft" in run("info", "classes").stdout
    assert "does not exist" in refused("info", "nothing")


def test_benchmark_prints_distances():
    lines = run(
        "benchmark", "--task", "LinearGaussian", "Cauchy", "--rows", "200", "--max-steps", "20"
    ).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["LinearGaussian", "Cauchy"]
    assert 0 < float(lines[1].split()[1]) < 1
    assert "Did you mean 'Cauchy'" in run("benchmark", "--task", "cauchi", status=2).stderr


def test_report_of_numbers_and_classes(work):
    run("report", "model", "homes.csv", "--out", "r.html", "--title", "Homes")
    assert "<h1>Homes</h1>" in (work / "r.html").read_text()
    run("report", "classes", "homes.csv", "--out", "r.html")
    assert "accuracy" in (work / "r.html").read_text().lower()
    assert "no column 'price'" in refused("report", "model", "-", text=without("price"))


def test_report_without_its_libraries(monkeypatch, work):
    found = importlib.util.find_spec
    monkeypatch.setattr(writing, "find_spec", lambda name: None if name == "plotly" else found(name))
    assert "pip install 'ncprob[plot]'" in refused("report", "model", "homes.csv", "--out", "r.html")


def test_classes_are_those_of_the_model(tmp_path, work):
    digits = "x,k\n" + "".join(f"{i % 7},{'12A3'[i % 4]}\n" for i in range(80))
    fit = ("fit", "-", "--target", "k", "--out", "codes", "--max-steps", "10")
    assert "--text" in refused(*fit, text=digits)
    run(*fit, "--text", "k", text=digits)
    some = "x,k\n" + "".join(f"{i % 7},{i % 2 + 1}\n" for i in range(40))
    (work / "some.csv").write_text(some)
    run("report", "codes", "some.csv", "--out", "r.html")


def test_a_test_table_is_checked_before_the_fit(work, monkeypatch):
    monkeypatch.setattr(NCPRegressor, "fit", lambda *_, **__: pytest.fail("fitted"))
    (work / "t.csv").write_text(without("rooms"))
    words = ("fit", "homes.csv", "--target", "price", "--out", "new", "--test", "t.csv")
    assert "no column 'rooms'" in refused(*words)


def test_truth_values_written_by_pandas(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"flag": rng.random(N) < 0.5, "x": rng.random(N)})
    NCPRegressor(max_steps=20, coordinates="raw", random_state=0).fit(X, X["x"]).save(tmp_path / "m")
    lines = run("predict", tmp_path / "m", "-", "--mean", text=X.head(3).to_csv(index=False)).stdout.splitlines()
    assert len(lines) == 4


def test_the_module_is_the_command():
    def called(*words):
        command, checkout = [sys.executable, "-m", "ncprob", *words], Path(__file__).parent.parent
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True)

    assert called("--version").stdout == f"ncprob {__version__}\n"
    wrong = called("info", "nowhere")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == refused("info", "nowhere") + "\n"


def test_help_has_examples():
    for command in ("fit", "predict", "ask", "info", "report", "benchmark", "demo"):
        assert f"ncprob {command}" in run(command, "--help").stdout
    assert "ncprob fit data.csv" in run("--help").stdout
    assert run("--version").stdout == f"ncprob {__version__}\n"


def completed(line, monkeypatch):
    """What bash would offer at the end of a line."""
    monkeypatch.setenv("_NCPROB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    result = CliRunner().invoke(app, [], prog_name="ncprob")
    assert result.exit_code == 0, result.output
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ncprob ", ["fit", "predict", "ask", "info", "report", "benchmark", "demo"]),
        ("ncprob re", ["report"]),
        ("ncprob fit --drop", ["--drop", "--drop-missing"]),
        ("ncprob fit homes.csv --target price --coordinates ", list(COORDINATES)),
        ("ncprob fit homes.csv --coordinates=r", ["raw", "residual"]),
        ("ncprob fit homes.csv --device c", ["cpu", "cuda"]),
        ("ncprob benchmark --task Linear", ["LinearGaussian"]),
        ("ncprob benchmark --task LinearGaussian ", datasets.names()),
        ("ncprob benchmark --task LinearGaussian Ca", ["Cauchy"]),
        ("ncprob benchmark --task LinearGaussian --see", ["--seed"]),
        ("ncprob predict ", []),  # none of ours: bash offers files
        ("ncprob predict model homes.csv --quantiles 0.1 ", []),
    ],
)
def test_shell_completion(line, offered, monkeypatch):
    assert completed(line, monkeypatch) == offered


def test_shell_completion_is_shown_and_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    runner = CliRunner()
    shown = runner.invoke(app, ["--show-completion", "bash"], prog_name="ncprob")
    assert (shown.exit_code, "_NCPROB_COMPLETE=complete_bash" in shown.stdout) == (0, True)
    installed = runner.invoke(app, ["--install-completion", "bash"], prog_name="ncprob")
    assert installed.exit_code == 0, installed.output
    script = tmp_path / ".bash_completions" / "ncprob.sh"
    assert script.read_text().strip() == shown.stdout.strip()
    assert str(script) in (tmp_path / ".bashrc").read_text()


def test_wrong_use_is_told_in_one_line():
    assert "No such option" in refused("predict", "model", "homes.csv", "--quantile", "0.5")
    assert "Missing" in refused("fit", "homes.csv")
    assert "No such command" in refused("guess")
    assert "valid number" in refused("predict", "model", "homes.csv", "--quantiles", "0.x")
    assert "Usage" in CliRunner().invoke(app, []).output


@pytest.mark.parametrize("words", [("--debug", "info", "nothing"), ("info", "nothing", "--debug")])
def test_debug_shows_where_an_error_came_from(words):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        run(*words)


def test_mistakes_of_ours_are_not_hidden(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(questions, "info", broken)
    with pytest.raises(ZeroDivisionError):
        run("info", "model")
