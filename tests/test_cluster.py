"""A local Ray with two workers trains what two processes of `torchrun` train, and predicts what one process does."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from helpers import gaussian_pairs
from pyarrow import parquet
from ranks_worker import KILLED_AT, QUICK, Killing, double_operator, flat, held_out_pairs, training_pairs
from safetensors import safe_open

from ncprob import NCPClassifier, NCPRegressor, load, predict_files, storage, train
from ncprob.cluster import _Worker, predict_dataset, train_on_ray
from ncprob.predictions import asked
from ncprob.workers import share_out

# ---------------------------------------------------------------- refused before Ray is asked


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"workers": 0}, ValueError, "`workers` must be at least 1"),
        ({"restarts": -1}, ValueError, "`restarts` must be at least 0"),
        ({"ranks": "alone"}, ValueError, "`ranks` must be one of 'same', 'own'"),
        ({"ranks": "own"}, TypeError, "must be a callable for ranks='own'; got tuple"),
        ({"postprocessing": "whiten"}, ValueError, "Did you mean 'whitening'"),
        ({"max_step": 3}, TypeError, "max_step"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_started(settings, error, message):
    with pytest.raises(error, match=message):
        train_on_ray(double_operator(), gaussian_pairs(20), **settings)


def test_only_operators_are_trained():
    with pytest.raises(TypeError, match="must be a SpectralOperator; got Linear"):
        train_on_ray(torch.nn.Linear(1, 1), gaussian_pairs(20))


def test_without_ray_the_extra_is_named(monkeypatch, model):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'ncprob\[distributed\]'"):
        train_on_ray(double_operator(), gaussian_pairs(20))
    with pytest.raises(ImportError, match=r"pip install 'ncprob\[distributed\]'"):
        predict_dataset(model, None)


QUICK_FIT = {"coordinates": "raw", "max_steps": 20, "random_state": 0, "progress": False}
RTOL = 1e-5  # networks run in float32, and their matrix products round differently for other numbers of rows


def homes(n):
    rng = np.random.default_rng(0)
    return pa.table({"id": np.arange(n), "kind": rng.choice(["flat", "house"], n), "rooms": rng.uniform(1, 6, n)})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    table = homes(200)
    price = table["rooms"].to_numpy() + np.random.default_rng(1).normal(size=200)
    NCPRegressor(**QUICK_FIT).fit(table.select(["rooms", "kind"]), price).save(path)
    return path


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"workers": 0}, ValueError, "`workers` must be at least 1"),
        ({"batch_size": None}, TypeError, "`batch_size` must be an integer"),
        ({"threads": 0.5}, TypeError, "`threads` must be an integer"),
        ({"intervals": 90}, ValueError, "`intervals` must"),
        ({"model": torch.nn.Linear(1, 1)}, TypeError, "a saved model or a fitted estimator; got Linear"),
        ({"model": NCPRegressor()}, ValueError, "not fitted yet"),
        ({"model": "nowhere"}, ValueError, "nowhere does not exist"),
        ({"model": "classes", "mean": True}, ValueError, "classes have no mean"),
    ],
)
def test_bad_questions_are_refused_before_ray_is_asked(settings, error, message, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    if settings.get("model") == "classes":
        settings = settings | {"model": NCPClassifier(**QUICK_FIT).fit([[0.0], [1.0]] * 20, [0, 1] * 20)}
    with pytest.raises(error, match=message):
        predict_dataset(**{"model": model, "dataset": None} | settings)


def test_a_worker_answers_a_batch_with_its_threads_and_names_what_it_cannot_use(model, tmp_path):
    table, wanted = homes(50), asked(mean=True, std=False, quantiles=(), intervals=[0.9], cdf=3)
    (tmp_path / "in").mkdir()
    parquet.write_table(table, tmp_path / "in" / "all.parquet")
    question = {"mean": True, "intervals": 0.9, "cdf": 3.0, "keep": ["id", "rooms"]}
    (part,) = predict_files(model, tmp_path / "in", tmp_path / "out", **question).parts
    before = torch.get_num_threads()
    try:
        worker = _Worker((str(model), storage.checksum(model)), wanted, ("id", "rooms"), before + 1)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
    pieces = pa.concat_tables([table.slice(0, 20), table.slice(20)])  # a batch may come in several
    assert worker(pieces) == parquet.read_table(part).replace_schema_metadata()
    for column, values, error, message in (
        ("rooms", [1.0, np.inf] * 25, ValueError, "a batch of the dataset: column 'rooms' has a value .* row 2"),
        ("kind", ["flat", None] * 25, ValueError, "a batch of the dataset: column 'kind' has missing values"),
        ("rooms", ["two"] * 50, TypeError, "column 'rooms' must hold numbers, as when the model was fitted"),
    ):
        with pytest.raises(error, match=message):
            worker(table.set_column(table.column_names.index(column), column, pa.array(values)))
    with pytest.raises(ValueError, match="a batch of the dataset has no column 'rooms'"):
        worker(table.drop_columns(["rooms"]))


# ---------------------------------------------------------------- on Ray


@pytest.fixture(scope="module")
def ray():
    """A cluster of this machine, whose workers find the tests; two CPUs for these, one for Ray Data to read."""
    module = pytest.importorskip("ray", reason="needs ray, of the extra `distributed`")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        module.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield module
        module.shutdown()


def alone(**settings):
    operator, pairs = double_operator(), training_pairs(weighted=True)
    history = train(operator, pairs, validation_pairs=held_out_pairs(), **QUICK | settings)
    return operator, history, pairs


@pytest.mark.slow
def test_ray_trains_what_one_process_trains(ray):
    """As torchrun does (`test_ranks`): 16 steps of AdamW in float64 keep rounding below 1e-6; whitening included."""
    expected, one, pairs = alone()
    expected.postprocess(pairs)
    operator = double_operator()
    history = train_on_ray(
        operator, pairs, validation_pairs=held_out_pairs(), workers=2, postprocessing="whitening", **QUICK
    )
    assert (history.n_steps, history.best_step) == (one.n_steps, one.best_step)
    assert history.validation_loss == pytest.approx(one.validation_loss, rel=1e-6)
    assert flat(operator) == pytest.approx(flat(expected), rel=1e-6, abs=1e-7)
    assert operator.postprocessing == "whitening"
    assert not operator.training


def rows_of(rank, size):
    x, y = gaussian_pairs(120, dtype=torch.float64)
    return (x[:80], y[:80]) if rank == 0 else (x[80:], y[80:])


@pytest.mark.slow
def test_workers_may_have_rows_of_their_own_and_what_they_refuse_is_raised(ray):
    operator, start = double_operator(), flat(double_operator())
    train_on_ray(operator, rows_of, ranks="own", postprocessing="whitening", **QUICK)
    joined = double_operator()
    joined.load_state_dict(operator.state_dict())
    whitened = joined.postprocess(gaussian_pairs(120, dtype=torch.float64)).singular_values
    assert operator.singular_values.tolist() == pytest.approx(whitened.tolist(), rel=1e-6)
    assert flat(operator) != start
    with pytest.raises(ValueError, match="they are the same on all 2"):
        train_on_ray(double_operator(), lambda rank, size: rows_of(0, size), ranks="own", **QUICK)


class KillingOnce(Killing):
    """Kills the process of rank 1, until a file says that it has been done."""

    def __init__(self, encoder, sign):
        super().__init__(encoder)
        self.sign = sign

    def forward(self, x):
        now = self.training and self.calls + 1 == KILLED_AT and torch.distributed.is_initialized()
        if now and torch.distributed.get_rank() == 1 and not Path(self.sign).exists():
            Path(self.sign).touch()
            os.environ["RANK"] = "2"  # the one that Killing means
        return super().forward(x)


@pytest.mark.slow
def test_a_dead_worker_is_named_and_training_goes_on_from_the_checkpoint(ray, tmp_path):
    def fresh():
        operator = double_operator()
        operator.x_encoder = KillingOnce(operator.x_encoder, str(tmp_path / "killed"))
        return operator

    pairs, settings = training_pairs(weighted=True), {"validation_pairs": held_out_pairs(), **QUICK}
    with pytest.raises(RuntimeError, match=r"Rank 1 of 2 ended on Ray: .*with `checkpoint_dir` training goes on"):
        train_on_ray(fresh(), pairs, checkpoint_dir=tmp_path / "run", **settings)
    with safe_open(tmp_path / "run" / "operator.safetensors", framework="pt") as file:
        before = json.loads(file.metadata()["ncprob"])["history"]
    assert before["step"] == [4, 8]
    resumed = fresh()
    history = train_on_ray(resumed, pairs, checkpoint_dir=tmp_path / "run", **settings)
    assert history.n_steps == 16
    assert history.seconds[:2] == before["seconds"]  # not done again
    (tmp_path / "killed").unlink()
    restarted = fresh()
    train_on_ray(restarted, pairs, checkpoint_dir=tmp_path / "run2", restarts=1, **settings)
    assert (tmp_path / "killed").exists()
    expected = flat(alone()[0])
    for operator in (resumed, restarted):
        assert flat(operator) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.slow
def test_ray_predicts_files_as_one_process_does(ray, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=100)
    table = pa.table({"x": x})
    model = NCPRegressor(coordinates="raw", max_steps=20, random_state=0, progress=False)
    model.fit(table, x + rng.normal(size=100)).save(tmp_path / "model")
    (tmp_path / "in").mkdir()
    for part in range(3):
        parquet.write_table(table.slice(30 * part, 30), tmp_path / "in" / f"{part}.parquet")
    broken = tmp_path / "in" / "1.parquet"
    asked = {"mean": True, "intervals": [0.9], "workers": "ray"}
    parquet.write_table(pa.table({"x": [1.0, np.nan]}), broken)
    with pytest.raises(ValueError, match=r"1\.parquet: column 'x' has a value that cannot be used .* row 2"):
        predict_files(tmp_path / "model", tmp_path / "in", tmp_path / "out", **asked)
    parquet.write_table(table.slice(30, 30), broken)
    done = predict_files(tmp_path / "model", tmp_path / "in", tmp_path / "out", **asked)
    assert (done.found, done.rows) == (2, 90)
    here = predict_files(tmp_path / "model", tmp_path / "in", tmp_path / "here", **asked | {"workers": 1})
    for there, part in zip(done.parts, here.parts, strict=True):
        assert parquet.read_table(there).replace_schema_metadata() == parquet.read_table(part).replace_schema_metadata()


def written(dataset, folder):
    """Rows of a dataset as its Parquet files have them; Ray gives them in no order."""
    dataset.write_parquet(str(folder))
    return parquet.read_table(folder).sort_by("id")


@pytest.mark.slow
def test_ray_data_answers_as_files_are_answered(ray, model, tmp_path):
    import ray.data

    table, question = homes(3000), {"mean": True, "intervals": [0.9], "cdf": [3.0], "keep": ["id", "kind"]}
    (tmp_path / "in").mkdir()
    parquet.write_table(table.slice(0, 1700), tmp_path / "in" / "0.parquet")
    parquet.write_table(table.slice(1700), tmp_path / "in" / "1.parquet")
    done = predict_files(model, tmp_path / "in", tmp_path / "here", **question)
    expected = pa.concat_tables([parquet.read_table(part) for part in done.parts])
    rows = ray.data.read_parquet(str(tmp_path / "in")).repartition(8)
    for number, given in enumerate((model, load(model))):
        found = written(predict_dataset(given, rows, batch_size=200, **question), tmp_path / f"out{number}")
        assert found.schema.equals(expected.schema)
        assert found.select(["id", "kind"]) == expected.select(["id", "kind"])
        for name in found.column_names[2:]:
            np.testing.assert_allclose(found[name], expected[name], rtol=RTOL, atol=RTOL)
    # More workers than CPUs: some wait, and reading goes on.
    frame = ray.data.from_pandas(table.to_pandas())
    found = written(predict_dataset(model, frame, keep="*", workers=5), tmp_path / "all")
    assert sorted(found.column_names) == ["id", "kind", "rooms", "y_0.05", "y_0.5", "y_0.95", "y_mean"]
    assert found["rooms"] == table["rooms"]


@pytest.mark.slow
def test_what_ray_data_cannot_give_is_named(ray, model):
    import ray.data

    table = homes(100)
    rows = ray.data.from_arrow(table)
    with pytest.raises(TypeError, match=r"`dataset` must be a ray\.data\.Dataset; got Table"):
        predict_dataset(model, table)
    with pytest.raises(ValueError, match="the dataset has no column 'rooms'"):
        predict_dataset(model, rows.drop_columns(["rooms"]).materialize())
    with pytest.raises(ValueError, match="the dataset has no column 'ident'"):
        predict_dataset(model, rows, keep="ident")
    with pytest.raises(TypeError, match="the dataset: column 'rooms' must hold numbers"):
        predict_dataset(model, ray.data.from_arrow(table.set_column(2, "rooms", pa.array(["two"] * 100))))
    with pytest.warns(UserWarning, match="the Ray cluster has 3 CPUs and 4 are needed"):
        predict_dataset(model, rows, threads=3)
    unknown = rows.map_batches(lambda batch: {"room": batch["rooms"]})  # what it gives, Ray knows when it has run
    with pytest.raises(ray.exceptions.RayTaskError, match="a batch of the dataset lacks 2 columns of the model: 'roo"):
        predict_dataset(model, unknown).materialize()


def negative(number):
    if number < 0:
        raise ValueError("negative")
    return -number


@pytest.mark.slow
def test_calls_on_ray_are_all_made_though_few_are_in_flight(ray, monkeypatch):
    monkeypatch.setattr("ncprob.workers.IN_FLIGHT", 2)
    found = dict(share_out(negative, [1, 2, 3, -4, 5], "ray"))
    assert str(found.pop(-4)) == "negative"
    assert found == {1: -1, 2: -2, 3: -3, 5: -5}
