"""The report by content: its numbers are those of the model, its page is whole, alone and safe."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, log_loss, r2_score

from ncprob import NCPClassifier, NCPRegressor, metrics
from ncprob.report import baselines, findings, panel, strength, write_report, writing
from ncprob.report.study import Study

FAST = {
    "max_steps": 150,
    "hidden_sizes": (16,),
    "learning_rate": 1e-2,
    "coordinates": "raw",
    "random_state": 0,
    "progress": False,
}
NASTY = "<img src=x onerror=alert(1)>&\"'</script><script>alert(1)</script>"
SECTIONS = ["warnings", "scores", "explore", "calibration", "inputs", "dependence", "data"]


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.uniform(0, 10, n),
            "noise": rng.normal(size=n),
            "town": rng.choice(["p", "q", "r"], n),
            "garden": rng.random(n) < 0.4,
        }
    )
    y = X["size"] + 6 * (X["town"] == "p") + (0.3 + 0.1 * X["size"]) * rng.normal(size=n)
    return X, y.rename("price")


X, Y = table(600)
NEW, NEW_Y = table(400, seed=1)


@pytest.fixture(scope="module")
def model():
    return NCPRegressor(**FAST).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return NCPClassifier(**FAST).fit(X, labels(Y))


def labels(y):
    return np.where(y > 8, "dear", np.where(y > 4, "middle", "cheap"))


@pytest.fixture(scope="module")
def study(model):
    return Study.of(model, NEW, NEW_Y)


class Page(HTMLParser):
    """Tags with attributes, and the text of each section."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.sections, self.scripts, self.titles = [], {}, [], []
        self._section, self._raw = None, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "section":
            self._section = attributes["id"]
            self.sections[self._section] = ""
        if tag in ("script", "style", "title", "h1"):
            self._raw = tag
            (self.scripts if tag == "script" else self.titles).append("")

    def handle_endtag(self, tag):
        self._section = None if tag == "section" else self._section
        self._raw = None if tag == self._raw else self._raw

    def handle_data(self, data):
        if self._raw == "script":
            self.scripts[-1] += data
        elif self._raw in ("h1", "title"):
            self.titles[-1] += data
        elif self._section:
            self.sections[self._section] += data


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert write_report(model, NEW, NEW_Y, path, title="Prices") == path
    return path.read_text()


# ---------------------------------------------------------------- the page


def test_sections_and_their_words(page):
    parsed = Page(page)
    assert list(parsed.sections) == SECTIONS
    assert parsed.titles.count("Prices") == 2
    for words in ("CRPS", "pinball loss", "90 % coverage", "marginal quantiles", "linear, normal errors", "price"):
        assert words in parsed.sections["scores"]
    assert "by the strongest input, size" in " ".join(parsed.sections["calibration"].split())
    assert "maximal correlation" in parsed.sections["dependence"]
    assert "600 training rows, 400 rows for this report" in " ".join(parsed.sections["data"].split())
    assert "yes or no" in parsed.sections["data"]
    pictures = [attributes["alt"] for tag, attributes in parsed.tags if tag == "img"]
    assert len(pictures) == 2 + 1 + 4 + 1  # calibration, strength, bands, spectrum
    assert "Median and intervals of price along size" in pictures


def test_nothing_is_loaded_from_elsewhere(page):
    parsed = Page(page)
    for tag, attributes in parsed.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            address = attributes.get(name) or "#"
            assert address.startswith(("#", "data:")), (tag, name, address[:80])
    style = re.search(r"<style>(.*?)</style>", page, flags=re.S)[1]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"https?:", policy)


def test_names_levels_and_titles_are_escaped(tmp_path):
    nasty_X = X.rename(columns={"size": NASTY}).replace({"town": {"p": NASTY + "p"}})
    nasty_model = NCPRegressor(**{**FAST, "max_steps": 20}).fit(nasty_X, Y.rename(NASTY + "y"))
    text = write_report(nasty_model, nasty_X[:100], Y[:100], tmp_path / "r.html", title=NASTY).read_text()
    parsed = Page(text)
    assert list(parsed.sections) == SECTIONS
    assert NASTY in parsed.titles
    assert not [a for tag, a in parsed.tags if tag == "img" and "onerror" in a]
    assert len(parsed.scripts) == 3
    assert NASTY in parsed.sections["data"]
    data = json.loads(parsed.scripts[1])
    assert "</" not in parsed.scripts[1]
    assert NASTY in data["names"]
    assert data["targets"] == [NASTY + "y"]


def test_classifier_page(classifier, tmp_path):
    parsed = Page(write_report(classifier, NEW, labels(NEW_Y), tmp_path / "r.html").read_text())
    assert list(parsed.sections) == SECTIONS
    probabilities = classifier.predict_proba(NEW)
    truth = labels(NEW_Y)
    numbers = findings.score_tables(Study.of(classifier, NEW, truth))[0]
    assert numbers["forecasts"] == ["ncprob", "class shares", "logistic regression"]
    shown = {row["score"]: row["values"][0] for row in numbers["rows"]}
    assert float(shown["log loss"]) == pytest.approx(log_loss(truth, probabilities), rel=1e-3)
    assert shown["accuracy"] == f"{accuracy_score(truth, classifier.predict(NEW)):.1%}"
    data = json.loads(parsed.scripts[1])
    assert data["classes"] == ["cheap", "dear", "middle"]
    assert np.allclose(np.sum(data["grid"][0], axis=1), 100, atol=0.05)


def test_vector_targets_get_their_own_tables(tmp_path):
    both = pd.DataFrame({"price": Y, "rent": -Y})
    fitted = NCPRegressor(**FAST).fit(X, both)
    new = pd.DataFrame({"price": NEW_Y, "rent": -NEW_Y})
    parsed = Page(write_report(fitted, NEW, new, tmp_path / "r.html").read_text())
    assert parsed.titles[0] == "Report: price, rent"
    assert "price: CRPS" in parsed.sections["scores"]
    assert "rent: CRPS" in parsed.sections["scores"]
    data = json.loads(parsed.scripts[1])
    assert data["targets"] == ["price", "rent"]
    law = fitted.predict_distribution(NEW[:1])
    stored = [data["test"][k][0] for k in range(2)]
    np.testing.assert_allclose([part["mean"] for part in stored], law.mean()[0], rtol=1e-3)
    np.testing.assert_allclose([part["q"][50] for part in stored], law.median()[0], rtol=1e-3)
    for k, part in enumerate(stored):  # every law of every target on a grid of its own
        points, density = curve(part)
        np.testing.assert_allclose(density, law.pdf(points)[0, k], atol=2e-3 * part["peak"])
        reach = part["q"][-1] - part["q"][0]
        assert part["low"] == pytest.approx(part["q"][0] - 0.05 * reach, abs=2e-3)
        assert part["high"] == pytest.approx(part["q"][-1] + 0.05 * reach, abs=2e-3)


@pytest.mark.parametrize(
    "convert",
    [
        lambda t: t[["size", "noise"]].to_numpy(),
        lambda t: t[["size"]],
        lambda t: t[["size", "noise"]].set_axis([0, 1], axis=1),
        pl.from_pandas,
        lambda t: pl.from_pandas(t).to_arrow(),
    ],
    ids=["array", "one input", "numbered", "polars", "pyarrow"],
)
def test_any_kind_of_table(convert, tmp_path):
    fitted = NCPRegressor(**{**FAST, "max_steps": 20}).fit(convert(X), Y.to_numpy())
    parsed = Page(write_report(fitted, convert(NEW), NEW_Y.to_numpy(), tmp_path / "r.html").read_text())
    assert list(parsed.sections) == SECTIONS
    assert parsed.titles[0] == "Report: y"


@pytest.mark.filterwarnings("ignore:`y` is constant", "ignore:`X` has only")
@pytest.mark.parametrize("y", [np.zeros(12), np.arange(12.0)], ids=["constant", "few rows"])
def test_models_that_learned_nothing(y, tmp_path):
    few = X[:12]
    parsed = Page(write_report(NCPRegressor(**FAST).fit(few, y), few[:5], y[:5], tmp_path / "r.html").read_text())
    assert list(parsed.sections) == SECTIONS
    assert "Too few training rows" in parsed.sections["dependence"]


# ---------------------------------------------------------------- scores


def test_scores_of_the_model(study, model):
    law = model.predict_distribution(NEW)
    found = baselines.scores(baselines.ModelForecast(study), study.y)[0]
    assert found["CRPS"] == pytest.approx(law.crps(NEW_Y).mean(), rel=0.01)
    assert found["R² of the mean"] == pytest.approx(r2_score(NEW_Y, model.predict(NEW)))
    interval = model.predict_interval(NEW, 0.9, kind="central").to_numpy()
    assert found["90 % coverage"] == metrics.interval_coverage(NEW_Y, interval)
    assert found["90 % width"] == pytest.approx(metrics.interval_width(interval))
    assert found["MAE of the median"] == pytest.approx(np.abs(NEW_Y - law.median()).mean())


def test_marginal_baseline_is_the_training_y(study):
    forecast = baselines.MarginalForecast(study)
    np.testing.assert_allclose(forecast.mean, Y.mean())
    np.testing.assert_array_equal(forecast.quantile([0.25])[:, 0, 0], np.quantile(Y, 0.25, method="inverted_cdf"))
    exact = metrics.crps_from_atoms(NEW_Y, Y)
    assert baselines.scores(forecast, study.y)[0]["CRPS"] == pytest.approx(exact, rel=0.01)


def test_linear_baseline_is_least_squares(study):
    def design(data):
        return pd.get_dummies(data, columns=["town"], drop_first=True).astype(float)

    linear = LinearRegression().fit(design(X), Y)
    forecast = baselines.LinearForecast(study)
    np.testing.assert_allclose(forecast.mean[:, 0], linear.predict(design(NEW)))
    deviation = np.sqrt(np.sum((Y - linear.predict(design(X))) ** 2) / (len(Y) - 6))
    width = np.diff(forecast.interval(0.6826895)[:, 0], axis=1)
    np.testing.assert_allclose(width, 2 * deviation, rtol=1e-6)


def test_weights_of_training_rows_count_in_the_baselines():
    weights = np.where(Y.median() < Y, 1.0, 0.0)
    heavy = Study.of(NCPRegressor(**{**FAST, "max_steps": 20}).fit(X, Y, sample_weight=weights), NEW, NEW_Y)
    kept = weights > 0
    marginal = baselines.MarginalForecast(heavy)
    assert marginal.mean[0, 0] == pytest.approx(Y[kept].mean())
    assert marginal.quantile([0.5])[0, 0, 0] == np.quantile(Y[kept], 0.5, method="inverted_cdf")
    design = pd.get_dummies(X, columns=["town"], drop_first=True).astype(float)
    slope = LinearRegression().fit(design[kept], Y[kept])
    new = pd.get_dummies(NEW, columns=["town"], drop_first=True).astype(float)
    np.testing.assert_allclose(baselines.LinearForecast(heavy).mean[:, 0], slope.predict(new))


def test_the_best_of_a_line_is_marked_and_the_gain_told():
    ours = {"CRPS": 1.5, "90 % width": 4.0, "R² of the mean": 0.9}
    other = {"CRPS": 2.0, "90 % width": 3.0, "R² of the mean": 0.8}
    found = findings._score_table("price", {"ncprob": ours, "a": other, "b": {**other, "CRPS": 3.0}})
    assert [row["best"] for row in found["rows"]] == [0, None, 0]
    assert [row["values"][0] for row in found["rows"]] == ["1.5", "4", "0.900"]
    assert found["gain"] == pytest.approx(0.25)


def test_coverage_over_all_rows_and_by_fifths(study, model):
    tables = findings.coverage_tables(study, 0)
    rows = tables[0]["rows"]
    assert [row["count"] for row in rows] == [400, 80, 80, 80, 80, 80]
    interval = model.predict_interval(NEW, 0.8, kind="central").to_numpy()
    assert rows[0]["cells"][1]["text"] == f"{metrics.interval_coverage(NEW_Y, interval):.1%}"
    lowest = (NEW["size"] <= np.quantile(NEW["size"], 0.2)).to_numpy()
    expected = metrics.interval_coverage(NEW_Y[lowest], interval[lowest])
    assert rows[1]["cells"][1]["text"] == f"{expected:.1%}"
    towns = findings.coverage_tables(study, 2)[0]["rows"]
    assert [row["label"] for row in towns] == ["all rows", "p", "q", "r"]


def test_calibrated_intervals_are_reported(model):
    calibrated = model.conformalize(NEW[:200], NEW_Y[:200] + 30)  # shifted: intervals must grow by a lot
    wide = baselines.ModelForecast(Study.of(calibrated, NEW, NEW_Y)).interval(0.9)[:, 0]
    expected = calibrated.predict_interval(NEW, 0.9, kind="central").to_numpy()
    np.testing.assert_array_equal(wide, expected)
    assert np.diff(wide).mean() > 30


# ---------------------------------------------------------------- strength and panel


def test_strong_inputs_come_first(study):
    ranked = strength.strengths(study, lambda _: None)
    assert [s.name for s in ranked[:2]] == ["size", "town"] or [s.name for s in ranked[:2]] == ["town", "size"]
    assert ranked[0].increase > 0.5
    assert abs(next(s.increase for s in ranked if s.name == "noise")) < 0.15


def curve(law):
    return np.linspace(law["low"], law["high"], len(law["d"])), np.array(law["d"]) * law["peak"] / 1000


def test_panel_holds_the_laws_of_its_grid(study, model):
    ranked = [strength.Strength(0, "size", 1.0), strength.Strength(2, "town", 0.5), strength.Strength(1, "noise", -0.1)]
    data = panel.panel_data(study, ranked)
    assert [part["name"] for part in data["inputs"]] == ["size", "town"]
    sizes = [len(part["labels"]) for part in data["inputs"]]
    assert len(data["grid"][0]) == np.prod(sizes) == len(data["counts"])
    assert sum(data["counts"]) == len(X)
    assert {part["name"] for part in data["fixed"]} == {"noise", "garden"}
    i, j = 11, 2
    low, high = np.quantile(X["size"], [0.01, 0.99])
    typical = np.quantile(X["noise"], 0.5, method="inverted_cdf")
    place = np.linspace(low, high, sizes[0])[i]
    row = pd.DataFrame({"size": [place], "noise": typical, "town": data["inputs"][1]["labels"][j], "garden": False})
    law, stored = model.predict_distribution(row), data["grid"][0][i * sizes[1] + j]
    np.testing.assert_allclose(stored["q"], law.quantile(data["levels"])[0], atol=2e-3)
    points, density = curve(stored)
    np.testing.assert_allclose(density, law.pdf(points)[0], atol=2e-3 * stored["peak"] + 1e-3)
    assert data["inputs"][1]["labels"][data["inputs"][1]["start"]] == X["town"].mode()[0]


def test_panel_shows_test_rows_as_they_are(study, model):
    data = panel.panel_data(study, [strength.Strength(0, "size", 1.0)])
    number = data["rows"][7]["number"] - 1
    assert data["observed"][7] == [NEW_Y[number]]
    assert data["rows"][7]["values"][2] == NEW["town"][number]
    expected = model.predict_distribution(NEW[number : number + 1]).quantile(data["levels"])[0]
    np.testing.assert_allclose(data["test"][0][7]["q"], expected, atol=2e-3)


# ---------------------------------------------------------------- warnings


def words(model, X, y):
    study = Study.of(model, X, y)
    return " ".join(findings.warnings_in_words(study, findings.score_tables(study)))


def test_warnings_in_words(model):
    assert "100% of these rows were among the training rows" in words(model, X, Y)
    assert "training rows" not in words(model, NEW, NEW_Y)
    assert "Only 30 rows" in words(model, NEW[:30], NEW_Y[:30])
    shifted = words(model, NEW, NEW_Y + 3)
    assert "price: F(y | x) is not uniform on these rows" in shifted
    assert "use `conformalize`" in shifted
    assert "not seen in fit, such as ['z']" in words(model, NEW.assign(town="z"), NEW_Y)
    rng = np.random.default_rng(0)
    clueless = NCPRegressor(**{**FAST, "max_steps": 300}).fit(X[:60], rng.normal(size=60))
    assert "a simple baseline has a CRPS at least as low" in words(clueless, NEW, rng.normal(size=400))


# ---------------------------------------------------------------- files and bad input


def test_an_interrupted_report_writes_nothing(model, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "panel_data", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_report(model, NEW[:50], NEW_Y[:50], tmp_path / "r.html")
    assert os.listdir(tmp_path) == []


def test_bad_calls(model, tmp_path):
    path = tmp_path / "r.html"
    with pytest.raises(TypeError, match="`model` must be an NCPRegressor or NCPClassifier; got LinearRegression"):
        write_report(LinearRegression(), NEW, NEW_Y, path)
    with pytest.raises(ValueError, match="feature names should match"):
        write_report(model, NEW.rename(columns={"size": "width"}), NEW_Y, path)
    with pytest.raises(ValueError, match=r"`y` must have 1 column\(s\), as in fit; got 2"):
        write_report(model, NEW, np.zeros((len(NEW), 2)), path)
    with pytest.raises(ValueError, match="must have as many rows"):
        write_report(model, NEW, NEW_Y[:5], path)
    with pytest.raises(ValueError, match="is a directory"):
        write_report(model, NEW, NEW_Y, tmp_path)
    with pytest.raises(ValueError, match="is no directory"):
        write_report(model, NEW, NEW_Y, tmp_path / "no" / "r.html")
    assert os.listdir(tmp_path) == []


def test_unknown_classes(classifier, tmp_path):
    with pytest.raises(ValueError, match=r"`y` must hold classes seen in fit; got \['huge'\] besides"):
        write_report(classifier, NEW, np.full(len(NEW), "huge"), tmp_path / "r.html")


def test_missing_tools_are_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "find_spec", lambda name: None if name == "plotly" else object())
    with pytest.raises(ImportError, match=r"Reports need plotly: pip install 'ncprob\[plot\]'"):
        write_report(model, NEW, NEW_Y, tmp_path / "r.html")


def test_heavy_libraries_are_imported_late():
    code = (
        "import sys, ncprob.report, ncprob.plotting; print([m for m in ('plotly', 'matplotlib') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_many_rows_are_taken_evenly(model, monkeypatch):
    monkeypatch.setattr("ncprob.report.study.MOST_ROWS", 50)
    part = Study.of(model, NEW, NEW_Y)
    assert len(part.y) == len(part.test) == 50
    assert part.rows_given == 400
    np.testing.assert_array_equal(part.y[:, 0], NEW_Y.to_numpy()[part.kept])
    assert part.kept[0] == 0
    assert part.kept[-1] == 399


def test_progress(model, tmp_path, capfd):
    write_report(model, NEW[:60], NEW_Y[:60], tmp_path / "r.html", progress=True)
    assert "report" in capfd.readouterr().err
    write_report(model, NEW[:60], NEW_Y[:60], tmp_path / "r.html", progress=False)
    assert capfd.readouterr().err == ""
