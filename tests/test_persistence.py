"""Saved models answer as before, to the last bit; writing is atomic; whatever a file holds, loading it is safe."""

import copy
import dataclasses
import hashlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as tensor_bytes
from sklearn.base import clone
from torch import nn

import ncprob
from ncprob import NCPClassifier, NCPRegressor, load, storage, trees
from ncprob._files import partial_directory
from ncprob.encoders import MLP
from ncprob.state import State

RNG = np.random.default_rng(0)
N = 160
X = RNG.normal(size=(N, 3))
Y = X[:, 0] + 0.5 * np.abs(X[:, 1]) * RNG.normal(size=N)
FRESH = RNG.normal(size=(25, 3))
FAST = {"max_steps": 25, "random_state": 0, "progress": False, "device": "cpu", "hidden_sizes": (16,)}


@pytest.fixture(autouse=True, scope="module")
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "N_TREES", 15)
        yield


def same(first, second):
    """Equal to the last bit, NaN included."""
    if dataclasses.is_dataclass(first):
        return all(same(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(first))
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, pd.DataFrame):
        return first.equals(second)
    a, b = np.asarray(first), np.asarray(second)
    return (
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        if a.dtype != object
        else a.tolist() == b.tolist()
    )


ATTRIBUTES = ("singular_values_", "rank_", "coordinates_", "n_features_in_", "n_steps_", "history_", "categories_")


def answers(model, fresh, questions):
    """Everything a model can be asked."""
    law = model.predict_distribution(fresh)
    found = {name: getattr(model, name) for name in ATTRIBUTES}
    found |= {
        "atoms": law.atoms,
        "weights": law.weights(),
        "mean": law.mean(),
        "samples": law.sample(3, random_state=1),
    }
    found["given"] = model.given(lambda x: x.reshape(len(x), -1)[:, 0] > 0).mean()
    found["diagnostics"] = model.diagnostics()
    found["predict"] = model.predict(fresh)
    for name, ask in questions.items():
        found[name] = ask(model, fresh)
    return found


REGRESSION = {
    "quantiles": lambda m, x: m.predict_quantiles(x),
    "shortest": lambda m, x: m.predict_interval(x, coverage=(0.5, 0.9)),
    "central": lambda m, x: m.predict_interval(x, kind="central"),
    "cov": lambda m, x: m.predict_cov(x),
    "target": lambda m, x: m.given_target(lambda y: y[:, 0] > 0).mean(),
    "pdf": lambda m, x: m.predict_distribution(x).pdf(0.3),
    "crps": lambda m, x: m.predict_distribution(x).crps(np.zeros(m.predict(x).shape)),
}
TRUST = {
    "dependence": lambda m, x: m.dependence(),
    "test": lambda m, x: m.independence_test(n_permutations=19),
    "guarantees": lambda m, x: str(m.guarantees()),
}
CLASSES = {
    "proba": lambda m, x: m.predict_proba(x),
    "target": lambda m, x: m.given_target(m.classes_[0]).mean(),
    "classes": lambda m, x: m.classes_,
}


def check_round_trip(model, fresh, questions, folder, **load_settings):
    model.save(folder / "model")
    again = load(folder / "model", **load_settings)
    assert type(again) is type(model)
    before, after = answers(model, fresh, questions), answers(again, fresh, questions)
    for name in before:
        assert same(before[name], after[name]), name
    kept = {k: v for k, v in model.get_params().items() if k not in ("x_encoder", "y_encoder", "checkpoint_dir")}
    assert {k: again.get_params()[k] for k in kept} == kept
    return again


def regressor(**settings):
    return NCPRegressor(**FAST | settings)


@pytest.fixture(scope="module")
def fitted():
    return regressor(coordinates="residual").fit(X, Y)


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize("coordinates", ["raw", "residual", "auto"])
@pytest.mark.parametrize("tree_inputs", [True, False])
def test_regressor(coordinates, tree_inputs, tmp_path):
    model = regressor(coordinates=coordinates, tree_inputs=tree_inputs).fit(X, Y)
    assert (model._model.trees is not None) == tree_inputs or coordinates == "auto"
    check_round_trip(model, FRESH, REGRESSION | TRUST, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"postprocessing": "centering", "coordinates": "raw"},
        {"postprocessing": "none", "coordinates": "raw", "ensemble_size": 2, "rank": 5},
        {"loss": "cross_fitted", "coordinates": "raw", "validation_fraction": 0.0},
        {"input_gate": 0.05, "hidden_sizes": (8, 8), "rank": 4, "coordinates": "residual"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_settings_of_all_kinds(settings, tmp_path):
    check_round_trip(regressor(**settings).fit(X, Y), FRESH, REGRESSION, tmp_path)


@pytest.mark.parametrize("coordinates", ["raw", "residual"])
def test_vector_target_with_weights(coordinates, tmp_path):
    y = np.stack([Y, X[:, 2] + RNG.normal(size=N)], axis=1)
    weights = np.where(np.arange(N) % 5 == 0, 0.0, RNG.uniform(0.5, 2, N))
    model = regressor(coordinates=coordinates).fit(X, y, sample_weight=weights)
    check_round_trip(model, FRESH, REGRESSION | {"dependence": TRUST["dependence"]}, tmp_path)


def test_one_column_target_keeps_its_axis(tmp_path):
    again = check_round_trip(regressor(coordinates="raw").fit(X, Y[:, None]), FRESH, REGRESSION, tmp_path)
    assert again.predict(FRESH).shape == (25, 1)


def test_levels_integers_and_a_continuum(tmp_path):
    zeros = np.where(X[:, 0] > 0.3, Y, 0.0)
    check_round_trip(regressor(coordinates="residual").fit(X, zeros), FRESH, REGRESSION, tmp_path)
    targets = np.column_stack([X[:, 0].round(), np.arange(len(X)), Y])
    again = check_round_trip(regressor(coordinates="residual").fit(X, targets), FRESH, REGRESSION, tmp_path)
    assert [type(kind).__name__ for kind in again._model.lattice.components] == ["Levels", "Integers", "NoneType"]


def test_counts_keep_their_steps(tmp_path):
    counts = RNG.poisson(np.exp(0.5 * X[:, 0] + 3)).astype(float)
    check_round_trip(regressor(coordinates="residual").fit(X, counts), FRESH, REGRESSION, tmp_path)


@pytest.mark.parametrize(
    "labels",
    [
        np.where(X[:, 0] > 0, "right", "left"),
        np.where(X[:, 0] > 0, "right", "left").astype(object),
        (X[:, 0] > 0).astype(np.int32) * 7,
        X[:, 0] > 0,
        np.round(X[:, 0]).clip(-1, 1).astype(np.float32),
    ],
    ids=["text", "object", "int", "bool", "float"],
)
def test_classifier(labels, tmp_path):
    model = NCPClassifier(**FAST).fit(X, labels)
    again = check_round_trip(model, FRESH, CLASSES, tmp_path)
    assert again.classes_.dtype == model.classes_.dtype


@pytest.mark.parametrize("method", ["pit", "cqr"])
@pytest.mark.parametrize("weighted", [False, True])
def test_conformalized(fitted, method, weighted, tmp_path):
    weights = RNG.uniform(0.5, 2, 60) if weighted else None
    x, y = RNG.normal(size=(60, 3)), RNG.normal(size=60)
    calibrated = fitted.conformalize(x, y, sample_weight=weights, method=method)
    again = check_round_trip(calibrated, FRESH, REGRESSION, tmp_path)
    assert not same(again.predict_interval(FRESH), fitted.predict_interval(FRESH))
    again.save(tmp_path / "twice")
    assert same(load(tmp_path / "twice").predict_interval(FRESH), calibrated.predict_interval(FRESH))


def frame(n, rng):
    size = rng.uniform(20, 200, n)
    return pd.DataFrame({"size of flat": size, "kind": rng.choice(["flat", "house", "Ätna'\"☂"], n)})


def test_data_frame_with_names_and_categories(tmp_path):
    table = frame(N, RNG)
    price = pd.Series(table["size of flat"] * (1 + (table["kind"] == "house")) + RNG.normal(size=N), name="price")
    model = regressor(coordinates="residual").fit(table, price)
    again = check_round_trip(model, frame(9, RNG), REGRESSION, tmp_path)
    assert again.feature_names_in_.tolist() == ["size of flat", "kind"]
    assert again.target_names_ == ["price"]
    assert again.predict_quantiles(frame(2, RNG)).columns.tolist()[0] == ("price", 0.05)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame(3, RNG).rename(columns={"kind": "sort"}))


def test_targets_named_by_tuples_and_numbers(tmp_path):
    y = pd.DataFrame({("a", 1): Y, ("b", 2): -Y})
    model = regressor(coordinates="raw").fit(X, y)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").target_names_ == model.target_names_ == [("a", 1), ("b", 2)]


def test_constant_target_and_few_rows(tmp_path):
    for x, y in ((X, np.full(N, 3.0)), (X[:5], Y[:5])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = regressor().fit(x, y)
        check_round_trip(model, FRESH, REGRESSION, tmp_path)


def test_settings_that_are_not_plain(tmp_path):
    model = regressor(
        coordinates="raw",
        rank=np.int64(3),
        gamma=np.float32(0.01),
        hidden_sizes=[np.int64(8)],
        device=torch.device("cpu"),
    )
    model.set_params(random_state=np.random.RandomState(0)).fit(X, Y).save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.rank, again.hidden_sizes, again.device, again.random_state) == (3, (8,), "cpu", None)
    assert same(again.predict(FRESH), model.predict(FRESH))
    again.set_params(random_state=1).fit(X, Y)  # all settings are still settings


def test_checkpoint_folders_are_left_behind(tmp_path):
    model = regressor(coordinates="raw", checkpoint_dir=tmp_path / "steps").fit(X, Y)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").checkpoint_dir is None


def test_copies_of_other_kinds_still_work(fitted, tmp_path):
    for again in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert same(again.predict(FRESH), fitted.predict(FRESH))
    clone(fitted).fit(X, Y)
    again = pickle.loads(pickle.dumps(_loaded(fitted, tmp_path)))
    assert same(again.predict_quantiles(FRESH), fitted.predict_quantiles(FRESH))


def _loaded(model, folder):
    model.save(folder / "copy")
    return load(folder / "copy")


def test_a_loaded_model_saves_the_same_bytes(saved, tmp_path):
    load(saved).save(tmp_path / "again")
    for file in saved.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_loading_leaves_random_numbers_alone(saved):
    before = torch.get_rng_state()
    load(saved)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_from_a_gpu_loads_on_the_cpu(saved):
    rewrite(saved, lambda facts, tensors: facts["state"]["facts"].update(device="cuda:3"))
    rewrite(saved, lambda facts, tensors: facts["state"]["facts"]["settings"].update(device="cuda"))
    if not torch.cuda.is_available():
        model = load(saved)
        assert model._device == torch.device("cpu")
        assert model.device == "cpu"
        with pytest.raises(ValueError, match="CUDA"):
            load(saved, device="cuda")
    assert load(saved, device="cpu")._device == torch.device("cpu")


# ---------------------------------------------------------------- encoders of the user


class Image(nn.Module):
    def __init__(self, outputs=4, width=6):
        super().__init__()
        self.register_buffer("shift", torch.ones(1), persistent=False)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(9, width), nn.BatchNorm1d(width), nn.Linear(width, outputs))

    def forward(self, x):
        return self.layers(x - self.shift)


IMAGES = RNG.normal(size=(N, 3, 3))


@pytest.mark.parametrize("coordinates", ["raw", "residual"])
def test_own_encoders(coordinates, tmp_path):
    model = regressor(coordinates=coordinates, rank=4, x_encoder=Image(), y_encoder=nn.Linear(1, 4))
    model.fit(IMAGES, IMAGES[:, 0, 0] + 0.1 * Y)
    fresh = Image()
    before = copy.deepcopy(fresh.state_dict())
    modules = {"x_encoder": fresh, "y_encoder": nn.Linear(1, 4)}
    again = check_round_trip(model, IMAGES[:9], REGRESSION | TRUST, tmp_path, **modules)
    assert all(torch.equal(before[name], value) for name, value in fresh.state_dict().items())  # a copy was filled
    again.fit(IMAGES, Y)


def test_own_encoders_must_be_given_and_fit(tmp_path):
    model = regressor(coordinates="raw", rank=4, x_encoder=Image()).fit(IMAGES, Y)
    model.save(tmp_path / "model")
    for wrong, message in [
        ({}, "`x_encoder` must be given"),
        ({"x_encoder": Image(width=7)}, "`x_encoder` must have the architecture"),
        ({"x_encoder": nn.Linear(9, 4)}, "`x_encoder` must have the architecture"),
        ({"x_encoder": Image(), "y_encoder": nn.Linear(1, 4)}, "`y_encoder` was given"),
    ]:
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "model", **wrong)


def test_encoders_of_ours_need_not_be_given(tmp_path):
    model = regressor(coordinates="raw", rank=4, x_encoder=MLP(3, (8,), 4)).fit(X, Y)
    check_round_trip(model, FRESH, REGRESSION | TRUST, tmp_path)


def test_one_encoder_for_both_sides(tmp_path):
    x = RNG.normal(size=(N, 1))
    shared, new = (nn.Sequential(nn.Linear(1, 6), nn.GELU(), nn.Linear(6, 4)) for _ in range(2))
    model = regressor(coordinates="raw", rank=4, x_encoder=shared, y_encoder=shared).fit(x, x[:, 0] + 0.1 * Y)
    check_round_trip(model, x[:5], REGRESSION, tmp_path, x_encoder=new, y_encoder=new)


# ---------------------------------------------------------------- what cannot be saved


def test_only_fitted_models_of_known_classes_are_saved(fitted, tmp_path):
    class Derived(NCPRegressor):
        pass

    with pytest.raises(ValueError, match="not fitted"):
        regressor().save(tmp_path / "model")
    derived = Derived(**FAST | {"coordinates": "raw"}).fit(X, Y)
    with pytest.raises(TypeError, match="Derived"):
        derived.save(tmp_path / "model")
    dates = np.where(X[:, 0] > 0, np.datetime64("2020-01-01"), np.datetime64("2021-01-01"))
    odd = NCPClassifier(**FAST).fit(X, X[:, 0] > 0)
    odd.classes_ = np.unique(dates)
    with pytest.raises(TypeError, match="classes must be numbers or text"):
        odd.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- writing


def test_other_peoples_files_are_not_overwritten(fitted, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("more work")
    for name in ("folder", "file"):
        with pytest.raises(ValueError, match="Choose"):
            fitted.save(tmp_path / name)
    (tmp_path / "folder" / "model.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="other files"):
        fitted.save(tmp_path / "folder")
    assert (tmp_path / "folder" / "thesis.txt").read_text() == "years of work"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_empty_and_missing_folders_are_filled(fitted, tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b", str(tmp_path / "text")):
        fitted.save(path)
        assert same(load(path).predict(FRESH), fitted.predict(FRESH))
    assert len(list((tmp_path / "empty").iterdir())) == 2


def test_damaged_models_are_replaced_and_links_stay(saved, fitted, tmp_path):
    (saved / "model.json").write_text("{")
    fitted.save(saved)
    assert len(list(saved.iterdir())) == 2
    (tmp_path / "link").symlink_to(saved)
    other = other_model()
    other.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert same(load(saved).predict(FRESH), other.predict(FRESH))


def other_model():
    return regressor(coordinates="raw", tree_inputs=False).fit(X, -Y)


def test_a_model_is_replaced_without_remains(saved, tmp_path):
    other = other_model()
    (saved / "notes.txt").write_text("mine")
    (saved / f"{storage.PARTIAL}1-model.json").write_text("left by a crash")
    other.save(saved)
    assert same(load(saved).predict(FRESH), other.predict(FRESH))
    assert len(list(saved.iterdir())) == 3
    assert (saved / "notes.txt").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    other.save(saved)  # the same once more
    assert same(load(saved).predict(FRESH), other.predict(FRESH))


class Crash(BaseException):
    """A failure that nothing catches."""


def crash_points(monkeypatch):
    """Calls to the system while a model is saved, each of which may be the last."""
    calls, watched_at = [], [0]
    for owner, name in [
        (storage.os, "fsync"),
        (storage.os, "replace"),
        (storage.os, "rename"),
        (storage.Path, "rmdir"),
    ]:
        plain = getattr(owner, name)

        def watched(*args, _plain=plain, **kwargs):
            calls.append(None)
            if len(calls) == watched_at[0]:
                raise Crash
            return _plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)
    return watched_at


@pytest.mark.parametrize("target", ["new", "old", "empty"])
def test_a_failure_leaves_the_old_or_the_new_model_whole(fitted, tmp_path, monkeypatch, target):
    old, path = other_model(), tmp_path / "model"
    counts = []
    for at in range(1, 30):
        shutil.rmtree(path, ignore_errors=True)
        if target == "old":
            old.save(path)
        elif target == "empty":
            path.mkdir()
        with monkeypatch.context() as patch:
            crash_points(patch)[0] = at
            try:
                fitted.save(path)
                crashed = False
            except Crash:
                crashed = True
        counts.append(crashed)
        if (path / "model.json").exists():
            expected = [old, fitted] if crashed else [fitted]
            assert any(same(load(path).predict(FRESH), model.predict(FRESH)) for model in expected)
            assert len(list(path.iterdir())) <= 3  # at worst the tensors of the model that was replaced
        else:
            assert crashed
            assert target != "old"
            assert not path.exists() or not any(path.iterdir())
        assert {p.name for p in tmp_path.iterdir()} <= {"model"}
        if not crashed:
            break
    assert counts.count(True) >= 4
    assert counts[-1] is False


def test_a_full_disk_leaves_the_old_model(saved, fitted, monkeypatch):
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    plain, other = storage._write_file, other_model()

    def full(path, content):
        plain(path, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "_write_file", full)
    with pytest.raises(OSError, match="No space left"):
        other.save(saved)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before


@pytest.mark.parametrize("there", [True, False])
def test_processes_that_save_to_one_place_leave_one_of_their_models(there, tmp_path):
    # Each would remove the tensors of the other between its tensor file and its JSON file.
    writer = """
import pathlib, sys, time, torch
from ncprob import storage
from ncprob.state import State
pathlib.Path(sys.argv[3] + sys.argv[2]).touch()
while len(list(pathlib.Path(sys.argv[3]).parent.glob("ready*"))) < 3:
    time.sleep(0.001)
for k in range(40):
    storage.write(State({"number": torch.tensor([float(sys.argv[2]) + k])}), {}, sys.argv[1])
"""
    path, ready = tmp_path / "models" / "one", str(tmp_path / "ready")
    if there:
        storage.write(State({"number": torch.zeros(1)}), {}, path)
    started = [subprocess.Popen([sys.executable, "-c", writer, str(path), str(100 * i), ready]) for i in range(3)]
    assert [process.wait(timeout=120) for process in started] == [0, 0, 0]
    assert float(storage.read(path)[1].tensors["number"]) in {39.0, 139.0, 239.0}
    assert len(list(path.iterdir())) == 2
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("theirs", ["a model", "something else"])
def test_a_place_that_another_process_takes_meanwhile(theirs, tmp_path, monkeypatch):
    path, rename = tmp_path / "model", os.rename

    def taken_first(source, target):
        monkeypatch.setattr(os, "rename", rename)
        if theirs == "a model":
            storage.write(State({"number": torch.zeros(1)}), {}, path)
        else:
            path.mkdir()
            (path / "notes.txt").write_text("mine")
        rename(source, target)

    monkeypatch.setattr(os, "rename", taken_first)
    if theirs == "a model":
        storage.write(State({"number": torch.ones(1)}), {}, path)
        assert float(storage.read(path)[1].tensors["number"]) == 1
    else:
        with pytest.raises(OSError, match=r"not empty|exists"):
            storage.write(State({"number": torch.ones(1)}), {}, path)
        assert (path / "notes.txt").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_that_is_replaced_while_it_is_read(saved, monkeypatch):
    other, plain = other_model(), storage._read_tensors

    def replaced_first(target, facts):
        monkeypatch.setattr(storage, "_read_tensors", plain)
        other.save(saved)
        return plain(target, facts)

    monkeypatch.setattr(storage, "_read_tensors", replaced_first)
    assert same(load(saved).predict(FRESH), other.predict(FRESH))


# ---------------------------------------------------------------- bad files


def rewrite(path, change):
    """Change facts or tensors of a saved model and make all checksums right again."""
    facts = json.loads((path / "model.json").read_text())
    old = path / facts["tensors"]["file"]
    tensors = load_file(old)
    change(facts, tensors)
    content = tensor_bytes({name: tensor.contiguous() for name, tensor in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    old.unlink()
    facts["tensors"] = {"file": storage.TENSORS.format(digest[:16]), "sha256": digest, "bytes": len(content)}
    facts.pop("sha256")
    (path / facts["tensors"]["file"]).write_bytes(content)
    (path / "model.json").write_text(json.dumps({**facts, "sha256": storage._checksum(facts)}))


def tensor_file(path):
    return next(path.glob("*.safetensors"))


def truncate(file):
    file.write_bytes(file.read_bytes()[:-100])


BAD = {
    "newer": (lambda p: _set(p, schema=99, version="9.0"), r"newer ncprob \(9.0, schema 99.*Upgrade"),
    "older": (lambda p: _set(p, schema=1, version="0.0"), r"older ncprob \(0.0, schema 1.*Fit the model again"),
    "no schema": (lambda p: _set(p, schema=0), "schema is 0"),
    "class": (lambda p: rewrite(p, lambda f, t: f.update({"class": "os.system"})), "does not know"),
    "truncated": (lambda p: truncate(tensor_file(p)), "bytes instead of.*Save the model again"),
    "truncated facts": (lambda p: truncate(p / "model.json"), "damaged model.json"),
    "checksum": (lambda p: flip(tensor_file(p)), "checksum of tensors-.* is wrong"),
    "checksum of facts": (lambda p: _set(p, version="0"), "checksum of model.json is wrong"),
    "foreign": (lambda p: (p / "model.json").write_text('{"a": 1}'), "not of ncprob"),
    "list": (lambda p: (p / "model.json").write_text("[1]"), "not of ncprob"),
    "pickle": (lambda p: (p / "model.json").write_bytes(pickle.dumps([1])), "damaged model.json"),
    "deep": (lambda p: (p / "model.json").write_text("[" * 100_000), "damaged model.json"),
    "no tensors": (lambda p: tensor_file(p).unlink(), "lacks the file"),
    "no facts": (lambda p: (p / "model.json").unlink(), "holds no model"),
    "elsewhere": (lambda p: _set(p, tensors={"file": "../x", "sha256": "", "bytes": 1}), "damaged"),
}


def _set(path, **values):
    facts = json.loads((path / "model.json").read_text())
    (path / "model.json").write_text(json.dumps(facts | values))


def flip(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", BAD)
def test_bad_files_are_refused_by_name_with_a_remedy(saved, damage):
    act, message = BAD[damage]
    act(saved)
    with pytest.raises(ValueError, match=message) as caught:
        load(saved)
    assert str(saved) in str(caught.value)
    assert str(caught.value).endswith(".")


def test_missing_and_plain_files(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="must be a directory"):
        load(saved / "model.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no model"):
        load(tmp_path / "empty")


def at(name, value, where=0):
    """Set one entry of the tensor whose name ends so."""

    def change(facts, tensors):
        (full,) = [key for key in tensors if key.endswith(name)]
        tensors[full] = tensors[full].clone()
        tensors[full].view(-1)[where] = value

    return change


def removed(name):
    return lambda facts, tensors: tensors.pop(next(key for key in tensors if key.endswith(name)))


def shorter(name):
    def change(facts, tensors):
        full = next(key for key in tensors if key.endswith(name))
        tensors[full] = tensors[full][:-1]

    return change


def part(facts, *names):
    state = facts["state"]
    for name in names:
        state = state["parts"][name]
    return state["facts"]


HOSTILE = {
    "loop": at("trees/ensembles/0/children", 0, where=0),
    "child beyond": at("trees/ensembles/0/children", 10**6),
    "leaf beyond": at("trees/ensembles/0/children", -(10**6)),
    "root beyond": at("trees/ensembles/1/roots", 10**6),
    "feature beyond": at("trees/ensembles/0/feature", 3),
    "feature before": at("trees/ensembles/0/feature", -1),
    "leaf value": at("trees/ensembles/0/values", float("nan")),
    "unsorted atoms": at("support/values", 1e9),
    "negative weights": at("support/weights", -1.0),
    "order": at("support/public_order", 10**9),
    "infinite atoms": at("support/values", float("inf")),
    "scale": at("encoder/scaler/scale", 0.0),
    "shares": at("residual/shares", -1.0),
    "kind": at("operators/0/_kind", 7),
    "overflow": at("residual/networks/biases.1", 1e38, where=slice(None)),
    "weight of a network": at("residual/networks/weights.0", float("nan")),
    "steps": at("history.step", 1e300),
    "training x": at("/x", float("nan")),
    "fewer targets": shorter("/y"),
    "no atoms": removed("support/values"),
    "no weights of a network": removed("networks/weights.0"),
    "short threshold": shorter("trees/ensembles/0/threshold"),
    "divisor": lambda f, t: part(f, "model", "trees", "ensembles", "0").update(divisor=0),
    "huge network": lambda f, t: part(f, "model", "residual", "networks").update(hidden_sizes=[10**9]),
    "huge rank": lambda f, t: part(f, "model", "operators", "0").update(rank=10**9),
    "ranks": lambda f, t: part(f, "model").update(ranks=[10**6]),
    "rank is text": lambda f, t: part(f, "model").update(ranks=["1"]),
    "variants": lambda f, t: part(f, "model", "residual").update(variants=[]),
    "variant": lambda f, t: part(f, "model", "residual")["variants"][0].update(components=99),
    "columns": lambda f, t: part(f, "encoder").update(columns=2),
    "categorical": lambda f, t: part(f, "encoder").update(categorical=[[0, 10**12]]),
    "names": lambda f, t: f["state"]["facts"].update(feature_names=["a"]),
    "settings": lambda f, t: f["state"]["facts"]["settings"].update(__class__="x"),
    "setting": lambda f, t: f["state"]["facts"]["settings"].update(rank={"a": 1}),
    "seed": lambda f, t: f["state"]["facts"].update(seed=-1),
    "no facts": lambda f, t: f.update(state={}),
    "targets": lambda f, t: part(f, "own").update(target_names=["a", "b"]),
    "calibration": lambda f, t: part(f, "own").update(calibration="pit"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_files_with_right_checksums_and_wrong_contents_are_refused(saved, attack):
    rewrite(saved, HOSTILE[attack])
    with pytest.raises(ValueError, match="damaged"):
        load(saved)


def test_a_rewritten_file_without_changes_loads(saved, fitted):
    rewrite(saved, lambda facts, tensors: None)
    assert same(load(saved).predict(FRESH), fitted.predict(FRESH))


def mutated(content, rng):
    """Some bytes changed, removed or repeated."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 3])):
        i = rng.randrange(len(content))
        kind = rng.randrange(3)
        if kind == 0:
            content[i] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del content[i : i + rng.choice([1, 100])]
        else:
            content[i:i] = content[i : i + rng.choice([1, 8])]
    return bytes(content)


def test_mutated_bytes_are_refused(tmp_path):
    """A change is found by a checksum, unless it says the same in other words (white space between facts)."""
    path, rng = tmp_path / "model", random.Random(0)
    model = NCPClassifier(**FAST | {"tree_inputs": False}).fit(X, X[:, 0] > 0)
    model.save(path)
    files = {file: file.read_bytes() for file in path.iterdir()}
    expected, refused = model.predict_proba(FRESH), 0
    for round_ in range(300):
        file = list(files)[round_ % 2]
        file.write_bytes(mutated(files[file], rng))
        try:
            assert same(load(path).predict_proba(FRESH), expected)
        except ValueError:
            refused += 1
        file.write_bytes(files[file])
    assert refused > 250


def test_mutated_facts_with_right_checksums_are_refused_or_harmless(saved):
    """Numbers and words among the facts changed at random: a ValueError, or a model that answers."""
    rng, text = random.Random(1), (saved / "model.json").read_text()
    for _ in range(100):
        facts = json.loads(text)
        mutate_fact(facts["state"], rng)
        facts.pop("sha256")
        (saved / "model.json").write_text(json.dumps({**facts, "sha256": storage._checksum(facts)}))
        try:
            model = load(saved)
        except ValueError:
            continue
        assert np.isfinite(model.predict(FRESH)).all()


def mutate_fact(tree, rng):
    """Replace one entry, somewhere, by something else."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = rng.choice(list(keys))
        if isinstance(tree[key], dict | list) and tree[key] and rng.random() < 0.9:
            tree = tree[key]
            continue
        tree[key] = rng.choice([None, -1, 0, 2, 10**15, 1e300, "x", [], {}, [[]], True, tree[key]])
        return


def test_load_is_public():
    assert ncprob.load is load
    assert "load" in ncprob.__all__


def test_the_model_file_of_another_library_is_kept(tmp_path):
    (tmp_path / "model.json").write_text('{"learner": {}}')
    with pytest.raises(ValueError, match="other files in it"):
        storage.check_target(tmp_path)


def test_an_empty_directory_keeps_its_permissions_and_stays_empty_after_a_failure(tmp_path, monkeypatch):
    model = NCPRegressor(max_steps=5, coordinates="raw", random_state=0, progress=False)
    x = np.random.default_rng(0).normal(size=(40, 1))
    model.fit(x, x[:, 0])
    target = tmp_path / "m"
    target.mkdir(mode=0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            model.save(target)
    assert list(target.iterdir()) == []
    model.save(target)
    assert target.stat().st_mode & 0o777 == 0o700
    np.testing.assert_array_equal(load(target).predict(x), model.predict(x))


def test_levels_that_do_not_fit_the_rows_are_refused(tmp_path):
    x = pd.DataFrame({"kind": ["a", "b", "c", "a"] * 10, "size": np.linspace(0, 1, 40)})
    model = NCPRegressor(max_steps=5, coordinates="raw", random_state=0, progress=False).fit(x, x["size"])
    model.categories_["kind"].pop()
    model.save(tmp_path / "m")
    with pytest.raises(ValueError, match="levels that were seen in fit"):
        load(tmp_path / "m")


def test_what_a_killed_save_to_a_new_place_leaves_is_told_and_cleared(fitted, tmp_path, monkeypatch):
    target = tmp_path / "m [1]"  # marks that a pattern could take for its own
    child = os.fork()
    if not child:
        monkeypatch.setattr(os, "rename", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        fitted.save(target)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    [remains] = tmp_path.iterdir()
    assert remains.name.startswith(".m [1].")
    with pytest.raises(ValueError, match=r"m \[1\] does not exist: saving it has not ended, or was killed"):
        load(target)
    fitted.save(tmp_path / "m 1")  # of another model: nothing to clear
    assert remains.exists()
    fitted.save(target)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m 1", "m [1]"]
    assert np.array_equal(load(target).predict(FRESH), fitted.predict(FRESH))


def test_what_another_process_is_saving_now_stays(fitted, tmp_path):
    beside = partial_directory(tmp_path / "m")  # by this process, which lives
    fitted.save(tmp_path / "m")
    assert beside.is_dir()
    os.utime(beside, (0, 0))  # nobody saves for so long
    fitted.save(tmp_path / "m")
    assert not beside.exists()


def test_a_fresh_process_needs_nothing_but_load(tmp_path):
    NCPRegressor(**FAST, coordinates="raw", tree_inputs=False).fit(X, Y).save(tmp_path / "model")
    code = "import sys; from ncprob import load; print(type(load(sys.argv[1])).__name__)"
    answer = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True)
    assert answer.stdout.strip() == "NCPRegressor", answer.stderr
