"""Scripts that end in curves: what is in the file is not done again, the truth is exact, the report draws them all."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks are run from the checkout, not installed

from benchmarks import bands, dynamics, experiments, laws, methods, report, tasks  # noqa: E402
from benchmarks.methods.ncp import Epoch  # noqa: E402
from benchmarks.records import Records  # noqa: E402
from ncprob import datasets  # noqa: E402
from ncprob.losses import orthonormality_penalty  # noqa: E402
from ncprob.operator import SpectralOperator  # noqa: E402
from ncprob.statistics import PairMoments  # noqa: E402

NCP_QUICK = '{"NCP-W": {"max_steps": 60, "rank": 8, "hidden_sizes": [16]}}'


def run(script, path, *more):
    return experiments.main(script.EXPERIMENT, script.__doc__, ["--out", str(path), *more])


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class TestLaws:
    arguments = ("--tasks", "LinearGaussian", "--methods", "CKDE", "--n", "100")

    def test_columns_and_rows(self, tmp_path):
        assert run(laws, tmp_path / "laws.csv", *self.arguments) == 0
        rows = rows_of(tmp_path / "laws.csv")
        assert {"dataset", "n", "seed", "condition", "method", "y", "pdf", "cdf", "version"} <= set(rows[0])
        assert len(rows) == 2 * 3 * laws.POINTS
        assert [row["method"] for row in rows if row["seconds"]] == ["truth", "CKDE"]

    def test_the_truth_is_that_of_the_simulator(self, tmp_path):
        run(laws, tmp_path / "laws.csv", *self.arguments)
        data = pd.read_csv(tmp_path / "laws.csv").query("method == 'truth'")
        split = tasks.load("LinearGaussian", 100, seed=0)
        x = np.percentile(split.X, [10, 50, 90])
        assert list(data["condition"].unique()) == [f"x = {value:.2f}" for value in x]
        for value, (_, curve) in zip(x, data.groupby("condition", sort=False), strict=True):
            np.testing.assert_allclose(curve["cdf"], stats.norm.cdf(curve["y"], value, 0.1), atol=5e-4)
            np.testing.assert_allclose(curve["pdf"], stats.norm.pdf(curve["y"], value, 0.1), atol=5e-3)

    def test_both_regimes_of_lggmd_are_shown(self):
        split = tasks.load("LGGMD", 1000, seed=0)
        second = np.array([x[0, 1] for _, x in laws.conditions(split)])
        assert list(second > 0.2) == [False, True, False]

    def test_what_is_done_is_not_done_again(self, tmp_path, monkeypatch):
        asked, fitted = [], laws.fitted
        monkeypatch.setattr(laws, "fitted", lambda unit, *rest: asked.append(unit.method) or fitted(unit, *rest))
        run(laws, tmp_path / "laws.csv", *self.arguments)
        run(laws, tmp_path / "laws.csv", *self.arguments)
        assert asked == ["truth", "CKDE"]
        run(laws, tmp_path / "laws.csv", *self.arguments, "--redo")
        assert asked == ["truth", "CKDE"] * 2
        assert len(rows_of(tmp_path / "laws.csv")) == 2 * 3 * laws.POINTS

    def test_what_is_of_another_version_is_told(self, tmp_path, monkeypatch, capsys):
        run(laws, tmp_path / "laws.csv", *self.arguments)
        capsys.readouterr()
        run(laws, tmp_path / "laws.csv", *self.arguments)
        assert "--redo" not in capsys.readouterr().out
        monkeypatch.setattr("ncprob.__version__", "77.0")
        run(laws, tmp_path / "laws.csv", *self.arguments)
        told = [line for line in capsys.readouterr().out.splitlines() if "--redo" in line]
        assert len(told) == 2
        assert all("not 77.0: --redo runs it again" in line for line in told)

    def test_a_unit_that_was_cut_off_is_done_again(self, tmp_path):
        path = tmp_path / "laws.csv"
        run(laws, path, *self.arguments)
        before = path.read_text()
        path.write_text(before[: len(before) * 3 // 4])
        run(laws, path, *self.arguments)
        shown = ["method", "condition", "y", "pdf", "cdf"]
        again = [[row[name] for name in shown] for row in rows_of(path)]
        assert again == [[row[name] for name in shown] for row in csv.DictReader(before.splitlines())]


class TestCutOff:
    @pytest.mark.parametrize(("cut", "left"), [("b,2,", ["a"]), ("b", ["a"]), ("c,1,1", ["a", "b", "b"])])
    def test_only_the_run_under_way_is_dropped(self, tmp_path, cut, left):
        path = tmp_path / "r.csv"
        path.write_text("name,k,value\na,1,1\nb,2,1\nb,2,2\n" + cut)
        assert [row["name"] for row in Records(path, ["name", "k", "value"], unit=2).rows()] == left

    def test_a_cut_header_is_written_anew(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("name,k\na")
        assert Records(path, ["name", "k"], unit=1).rows() == []
        assert path.read_text() == "name,k\n"


def test_a_method_that_fails_leaves_no_rows_and_the_others_go_on(tmp_path, capsys):
    out, options = tmp_path / "laws.csv", '{"CKDE": {"nonsense": 1}}'
    arguments = ("--tasks", "LinearGaussian", "--methods", "CKDE", "NNKCDE", "--n", "100")
    assert run(laws, out, *arguments, "--options", options) == 1
    assert {row["method"] for row in rows_of(out)} == {"truth", "NNKCDE"}
    assert "CKDE: failed" in capsys.readouterr().out


def test_a_missing_package_is_named_and_skipped(tmp_path, capsys, monkeypatch):
    def missing(name, **options):
        raise ImportError("Method 'CKDE' needs the package 'something'")

    monkeypatch.setattr(methods, "make", missing)
    assert run(laws, tmp_path / "laws.csv", *TestLaws.arguments) == 0
    assert "CKDE: skipped: Method 'CKDE' needs" in capsys.readouterr().out


def test_bands_of_the_truth_cover_as_they_should_and_only_laplace_has_a_mean(tmp_path):
    run(bands, tmp_path / "bands.csv", "--methods", "CKDE", "--n", "200")
    data = pd.read_csv(tmp_path / "bands.csv")
    assert list(data["x"].unique()[[0, -1]]) == [0.05, 5.0]
    assert len(data) == 2 * 2 * 100
    truth = data[data["method"] == "truth"]
    np.testing.assert_allclose(truth["coverage"], 0.9, atol=1e-4)
    laplace, cauchy = (truth[truth["dataset"] == name] for name in ("Laplace", "Cauchy"))
    np.testing.assert_allclose(laplace["mean"], laplace["x"] ** 2, rtol=1e-3)
    np.testing.assert_allclose(cauchy["high"], stats.cauchy.ppf(0.95, cauchy["x"] ** 2, 1 + cauchy["x"]), rtol=1e-3)
    assert data[data["dataset"] == "Cauchy"]["mean"].isna().all()
    assert data[data["dataset"] == "Laplace"]["mean"].notna().all()


class TestDynamics:
    def test_rows_and_truth(self, tmp_path):
        run(dynamics, tmp_path / "d.csv", "--tasks", "GaussianPair", "--n", "200", "--options", NCP_QUICK)
        data = pd.read_csv(tmp_path / "d.csv")
        truth, training = data[data["method"] == "truth"], data[data["method"] == "NCP-W"]
        np.testing.assert_allclose(truth[dynamics.SIGMAS].to_numpy()[0], 0.8 ** np.arange(1, 7), rtol=1e-4)
        assert list(training["epoch"]) == [1, 25, 50]
        numbers = training[dynamics.COLUMNS].to_numpy()
        assert np.all(np.isfinite(numbers))
        for names in (dynamics.SIGMAS, dynamics.OPERATOR):
            assert np.all(np.diff(training[names], axis=1) <= 0)

    def test_looking_does_not_change_the_training(self):
        X, y = datasets.make("GaussianPair").sample(100, random_state=0)
        options = {"max_steps": 30, "rank": 8, "hidden_sizes": (16,)}
        seen = []
        watched = methods.make("NCP-W", callback=lambda epoch: seen.append(dynamics.state_of(epoch)), **options)
        plain = methods.make("NCP-W", **options)
        first, second = (model.fit(X, y, seed=0).cdf(X[:5], y[:5]) for model in (watched, plain))
        np.testing.assert_array_equal(first, second)
        assert [row["epoch"] for row in seen] == list(range(1, 31))

    def test_the_operator_of_true_features_has_the_true_values(self):
        torch.manual_seed(0)
        operator = SpectralOperator(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1), rank=1)
        with torch.no_grad():
            for encoder in (operator.x_encoder, operator.y_encoder):
                encoder.weight.fill_(1.0)
                encoder.bias.zero_()
            operator.log_values_root.fill_(np.sqrt(-np.log(0.8)))
        x, y = (torch.as_tensor(part, dtype=torch.float32) for part in datasets.GaussianPair().sample(50_000, 0))
        row = dynamics.state_of(Epoch(1, 0.0, 0.0, operator, (x, y[:, None])))
        assert row["operator1"] == pytest.approx(0.8, abs=0.02)
        assert row["sigma1"] == pytest.approx(0.8, abs=0.01)
        assert row["left_gap"] == pytest.approx(0.0, abs=0.01)
        assert operator.postprocessing == "none"

    def test_the_gaps_make_the_penalty(self):
        features = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
        moments = PairMoments.of(features, 2 * features)
        gaps = dynamics.gap(moments.left, moments.left_mean) + dynamics.gap(moments.right, moments.right_mean)
        assert gaps == pytest.approx(float(orthonormality_penalty(features, 2 * features)), rel=0.01)


def test_the_report_draws_the_sections(tmp_path):
    Unit = experiments.Unit
    y, x = np.linspace(-1, 1, 5), np.linspace(0.05, 5, 4)
    curves = {
        laws: (
            [Unit(task, 10_000, 0, method) for task in ("LinearGaussian", "LGGMD") for method in ("truth", "ncprob")],
            [{"condition": f"x = {c}", "y": t, "pdf": 0.5, "cdf": (1 + t) / 2} for c in range(3) for t in y],
        ),
        bands: (
            [Unit(task, 50_000, 0, method) for task in ("Laplace", "Cauchy") for method in ("truth", "ncprob", "CCP")],
            [{"x": t, "low": -t, "high": t, "coverage": 0.9 - 0.1 * t, "mean": 0.0} for t in x],
        ),
        dynamics: (
            [Unit("GaussianPair", 10_000, 0, "NCP-W")],
            [dict.fromkeys(dynamics.COLUMNS, 0.5) | {"epoch": epoch} for epoch in (1, 25)],
        ),
    }
    for script, (units, rows) in curves.items():
        records = script.EXPERIMENT.records(tmp_path / "results" / f"{script.EXPERIMENT.name}.csv")
        records.extend(unit._asdict() | row for unit in units for row in rows)
    report.main(["--results", str(tmp_path / "results"), "--page", str(tmp_path / "page.md")])
    text = (tmp_path / "page.md").read_text()
    assert text.count("\n## ") == 3
    assert "nan" not in text.lower()
    assert "| LGGMD | 0.0000 |" in text  # the method equals the truth
    assert "0.4000 at x = 5.00" in text
    pictures = {path.name for path in (tmp_path / "images").iterdir()}
    assert pictures == {"laws-pdf.png", "laws-cdf.png", "bands.png", "dynamics.png"}
    assert all(f"images/{name}" in text for name in pictures)


def test_a_file_without_rows_is_no_section(tmp_path):
    for script in (laws, bands, dynamics):
        script.EXPERIMENT.records(tmp_path / "results" / f"{script.EXPERIMENT.name}.csv")
    report.main(["--results", str(tmp_path / "results"), "--page", str(tmp_path / "page.md")])
    assert "## " not in (tmp_path / "page.md").read_text()
