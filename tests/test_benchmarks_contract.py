"""Every method of the benchmark keeps one contract; the runner loses nothing; the report runs on what there is."""

import csv
import itertools
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks are run from the checkout, not installed

from benchmarks import methods, one_run, paper, report, runner, tasks  # noqa: E402
from benchmarks.children import Children, Failed  # noqa: E402
from benchmarks.experiments import Truth  # noqa: E402
from benchmarks.methods.ablation import REPLACED  # noqa: E402
from benchmarks.methods.base import with_tails  # noqa: E402
from benchmarks.records import COLUMNS, Records  # noqa: E402
from benchmarks.scores import LEVELS, distance_scores, divergences, point_scores, quantile_scores  # noqa: E402
from benchmarks.suites import QUICK as QUICK_SUITES  # noqa: E402
from benchmarks.suites import SIX_MODELS, SUITES, Suite  # noqa: E402
from ncprob import datasets  # noqa: E402

# Small enough for a test; the benchmark itself uses none of these.
QUICK = {
    "ncprob": {"max_steps": 40},
    "NCP": {"max_steps": 40, "rank": 8},
    "NCP-C": {"max_steps": 40, "rank": 8},
    "NCP-W": {"max_steps": 40, "rank": 8},
    "quantile-forest": {"n_estimators": 20},
    "ngboost": {"n_estimators": 40},
    "catboost": {"iterations": 40},
    "lightgbm": {"n_estimators": 20},
    "FC": {"n_estimators": 2},
    "FC-joint": {"n_estimators": 20},
    "RFCDE": {"n_estimators": 20},
    "LCDE": {"n_trees": 40},
    "RFSCP": {"n_estimators": 20},
    "CQR": {"n_estimators": 20},
    "CCP": {"n_calibration": 20, "n_points": 4},
    "NF": {"max_steps": 100},
    "NF-spline": {"max_steps": 100},
    "NF-tuned": {"max_steps": 100},
    "DDPM": {"max_steps": 1000, "draws": 500},
    "DDPM-tuned": {"max_steps": 200, "draws": 500},
    "MDN": {"max_steps": 100},
    "MDN-tuned": {"max_steps": 100},
    "KMN": {"max_steps": 100},
    "KMN-tuned": {"max_steps": 100},
    "without trees": {"max_steps": 100},
    "without pool": {"max_steps": 100},
}
PACKAGES = {name: name.replace("-", "_") for name in ("quantile-forest", "ngboost", "catboost", "lightgbm")}
PACKAGES |= {"RFSCP": "mapie", "CQR": "mapie", "CCP": "conditionalconformal"}
PACKAGES |= {"NF": "normflows", "NF-spline": "normflows", "NF-tuned": "zuko"}
FIRST_COLUMNS = ["method", "dataset", "n", "seed", "ks", "ks_paper", "crps", "fit_seconds", "predict_seconds"]
FIRST_COLUMNS += ["peak_mb", "settings", "version"]


def fitted(name, X, y):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return methods.make(name, **QUICK.get(name, {})).fit(X, y, seed=0)


@pytest.fixture(scope="module")
def sample():
    return datasets.make("EconDensity").sample(300, random_state=0)


# Ablations differ from the default in one setting or one replaced part each: one of either kind.
ABLATIONS = [name for name in methods.names() if name.startswith("without")]
CONTRACTED = [name for name in methods.names() if name not in ABLATIONS] + ["without trees", "without pool"]


@pytest.mark.parametrize("name", CONTRACTED)
class TestContract:
    def test_laws_are_valid(self, name, sample):
        X, y = sample
        model = fitted(name, X, y)
        levels, grid = np.array([0.05, 0.25, 0.5, 0.75, 0.95]), np.linspace(y.min(), y.max(), 50)
        quantiles, cdf = model.quantiles(X[:20], levels), model.cdf(X[:20], grid)
        assert quantiles.shape == (20, 5)
        assert cdf.shape == (20, 50)
        assert np.all(np.diff(quantiles, axis=1) >= 0)
        assert np.all((cdf >= 0) & (cdf <= 1))
        assert np.all(np.diff(cdf, axis=1) >= -1e-12)
        assert model.settings
        assert model.version()

    def test_densities_integrate_to_the_distribution_function(self, name, sample):
        X, y = sample
        model, grid = fitted(name, X, y), np.linspace(y.min() - 2 * y.std(), y.max() + 2 * y.std(), 2001)
        density = model.pdf(X[:5], grid)
        assert density.shape == (5, 2001)
        assert np.all(density >= 0)
        mass = np.trapezoid(density, grid, axis=1)
        # The paper's density, r times a kernel estimate, cut at zero, is no density: its mass is only near one.
        assert mass == pytest.approx(np.ones(5), abs=0.5 if name.startswith("NCP") else 0.03)
        logs = model.log_density(X[:5], y[:5])
        if logs is not None:
            at = [np.interp(y[i], grid, density[i]) for i in range(5)]
            assert np.exp(logs) == pytest.approx(at, rel=0.05, abs=0.05 * density.max())

    def test_mean_and_draws_follow_the_law(self, name, sample):
        X, y = sample
        model = fitted(name, X, y)
        draws = model.sample(X[:5], 2000, seed=1)
        assert draws.shape == (5, 2000)
        median, middle = np.median(draws, axis=1), model.quantiles(X[:5], [0.4, 0.6])
        # The median of 2,000 draws has a standard error of 0.011 in probability: nine of them to 0.4 and 0.6.
        assert np.all((median >= middle[:, 0]) & (median <= middle[:, 1]))
        if name != "CCP":  # its mean is its regression, not that of the law drawn through its three quantiles
            assert np.all(np.abs(model.mean(X[:5]) - draws.mean(axis=1)) < 0.5 * y.std())

    def test_quantiles_invert_the_distribution_function(self, name, sample):
        X, y = sample
        model, levels = fitted(name, X, y), np.array([0.1, 0.5, 0.9])
        for row, quantiles in zip(X[:5], model.quantiles(X[:5], levels), strict=True):
            step = 1e-6 * y.std()
            below, upto = model.cdf(row[None], np.stack([quantiles - step, quantiles + step]).ravel()).reshape(2, -1)
            assert np.all(below <= levels + 0.01)
            assert np.all(upto >= levels - 0.01)

    def test_the_seed_decides(self, name, sample):
        X, y = sample
        first, second = (fitted(name, X, y).quantiles(X[:5], LEVELS) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_text_columns_and_a_constant_one(self, name, sample):
        X, y = sample
        frame = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 0] > 0.5, "high", "low"), "same": 1.0})
        assert np.all(np.isfinite(fitted(name, frame, y).quantiles(frame[:5], [0.1, 0.9])))


def test_unknown_names_are_named():
    with pytest.raises(ValueError, match="must be one of"):
        methods.make("quantil-forest")
    with pytest.raises(ValueError, match="must be one of"):
        tasks.check_name("LinearGausian")


def test_a_missing_package_names_the_extra(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'catboost'", name="catboost")

    monkeypatch.setattr(methods, "import_module", missing)
    with pytest.raises(ImportError, match=r"'catboost'.*\[benchmarks\]"):
        methods.make("catboost")


def test_tails_go_on_in_a_straight_line():
    knots, levels = with_tails(np.array([[3.0, 1.0, 2.0]]), np.array([0.25, 0.5, 0.75]))
    np.testing.assert_allclose(knots, [[0.0, 1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_allclose(levels, [0.0, 0.25, 0.5, 0.75, 1.0])


def test_true_quantiles_have_exact_coverage():
    split = tasks.load("Laplace", 100, seed=0)
    scores = quantile_scores(split.simulator.truth(split.X_test).quantile(LEVELS), split)
    assert scores["coverage90"] == pytest.approx(0.9, abs=1e-6)
    assert [float(share) for share in scores["coverage_by_fifth"].split()] == pytest.approx([0.9] * 5, abs=1e-4)


def test_divergences_of_two_normal_laws_are_those_of_the_books():
    grid = np.linspace(-9, 10, 4001)
    found = divergences(stats.norm.cdf(grid)[None], stats.norm.pdf((grid[1:] + grid[:-1]) / 2, 1)[None], grid)
    assert found["hellinger"] == pytest.approx(np.sqrt(1 - np.exp(-1 / 8)), rel=1e-4)
    assert found["kl"] == pytest.approx(0.5, rel=1e-3)
    assert found["tv"] == pytest.approx(2 * stats.norm.cdf(0.5) - 1, rel=1e-4)
    assert 0 < found["js"] < np.log(2)


def test_a_law_with_a_gap_has_a_large_but_finite_divergence():
    grid = np.linspace(-4, 4, 101)
    spike = np.zeros((1, 100))
    spike[0, 50] = 1 / 0.08
    assert 5 < divergences(stats.norm.cdf(grid)[None], spike, grid)["kl"] < 20


def test_the_exact_law_of_a_discrete_target_is_at_no_distance():
    split = tasks.load("CircleDiscrete-d3", 200, seed=0)
    scores = distance_scores(Truth(split.simulator), split)
    assert max(scores[name] for name in ("ks", "hellinger", "js", "tv", "w1")) < 1e-6
    assert "log_score" not in point_scores(Truth(split.simulator), split)


def test_a_density_of_too_large_a_mass_is_no_better():
    grid = np.linspace(-9, 9, 401)
    density = stats.norm.pdf((grid[1:] + grid[:-1]) / 2)[None]
    once, thrice = (divergences(stats.norm.cdf(grid)[None], factor * density, grid) for factor in (1, 3))
    assert thrice == pytest.approx(once, abs=1e-6)


def test_circle_takes_a_dimension():
    assert tasks.load("CircleGaussian-d7", 20, seed=0).X.shape == (20, 7)


def test_useless_inputs_leave_the_law_alone():
    """The same rows with other values in the added columns have the same truth, and points vary the model's own."""
    split, plain = (tasks.load(name, 50, seed=0) for name in ("SkewNormal+3", "SkewNormal"))
    assert split.X.shape == (50, 4)
    np.testing.assert_array_equal(split.X[:, :1], plain.X)
    moved = split.X + np.arange(4)
    np.testing.assert_array_equal(split.simulator.truth(moved).mean(), plain.simulator.truth(plain.X).mean())
    points = split.simulator.conditioning_points(split.X)
    np.testing.assert_array_equal(points[:, :1], plain.simulator.conditioning_points(plain.X))
    assert np.ptp(points[:, 1:], axis=0).max() == 0


def test_a_missing_data_folder_is_explained(monkeypatch, tmp_path):
    monkeypatch.setenv("NCPROB_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="NCPROB_DATA"):
        tasks.load("concrete", None, seed=0)


class TestTables:
    @pytest.fixture(autouse=True)
    def folder(self, monkeypatch, tmp_path):
        rng = np.random.default_rng(0)
        energy = pd.DataFrame(rng.normal(size=(40, 3)), columns=["area", "heating_load", "cooling_load"])
        energy.to_csv(tmp_path / "energy.csv.gz", index=False)
        splits = pd.DataFrame({"dataset": "energy", "split": [0, 0, 1], "test_row": [3, 5, 7]})
        splits.to_parquet(tmp_path / "hl_splits.parquet")
        student = pd.DataFrame({"Extracurricular Activities": ["Yes", "No"] * 20, "Performance Index": range(40)})
        student.to_csv(tmp_path / "student_performance.csv.gz", index=False)
        monkeypatch.setenv("NCPROB_DATA", str(tmp_path))
        self.energy = energy

    def test_known_splits_are_used_and_the_other_target_is_no_input(self):
        split = tasks.load("energy", None, seed=0)
        assert list(split.X.columns) == ["area"]
        np.testing.assert_allclose(split.y_test, self.energy["heating_load"][[3, 5]])
        assert len(split.y) == 38

    def test_a_split_that_does_not_exist_is_an_error(self):
        with pytest.raises(ValueError, match="below 2"):
            tasks.load("energy", None, seed=2)

    def test_other_tables_are_split_by_seed(self):
        first, second, again = (tasks.load("student", None, seed=s).y_test for s in (0, 1, 0))
        assert len(first) == 4
        np.testing.assert_array_equal(first, again)
        assert set(first) != set(second)


def quick_arguments(out, *more):
    return ["--tasks", "LinearGaussian", "--methods", "CKDE", "--n", "100", "--out", str(out), "--threads", "1", *more]


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class TestRunner:
    @pytest.fixture(autouse=True)
    def in_this_process(self, monkeypatch):
        """Answers without a process per run: starting one costs seconds, and one test below does it for real."""
        self.asked = []

        def answer(workers, run):
            self.asked.append(run.seed)
            return run._asdict() | one_run.run(run.method, run.dataset, run.n, run.seed) | {"threads": 1}

        monkeypatch.setattr(runner.Workers, "run", answer)
        monkeypatch.setattr(signal, "signal", lambda *_: None)

    def test_columns_and_scores(self, tmp_path):
        assert runner.main(quick_arguments(tmp_path / "r.csv")) == 0
        assert COLUMNS[: len(FIRST_COLUMNS)] == FIRST_COLUMNS
        (row,) = rows_of(tmp_path / "r.csv")
        assert list(row) == COLUMNS
        assert (row["method"], row["dataset"], row["n"], row["error"]) == ("CKDE", "LinearGaussian", "100", "")
        assert 0 < float(row["ks"]) < 1
        assert float(row["crps"]) > 0

    def test_what_is_done_is_not_done_again(self, tmp_path):
        runner.main(quick_arguments(tmp_path / "r.csv", "--seeds", "0-1"))
        runner.main(quick_arguments(tmp_path / "r.csv", "--seeds", "0-2"))
        assert self.asked == [0, 1, 2]

    def test_redo_replaces(self, tmp_path):
        runner.main(quick_arguments(tmp_path / "r.csv", "--seeds", "0-1"))
        runner.main(quick_arguments(tmp_path / "r.csv", "--seeds", "1", "--redo"))
        assert self.asked == [0, 1, 1]
        assert [row["seed"] for row in rows_of(tmp_path / "r.csv")] == ["0", "1"]

    def test_a_line_cut_off_is_run_again(self, tmp_path):
        path = tmp_path / "r.csv"
        runner.main(quick_arguments(path, "--seeds", "0-1"))
        path.write_text(path.read_text()[:-20])
        runner.main(quick_arguments(path, "--seeds", "0-1"))
        assert self.asked == [0, 1, 1]
        assert [row["seed"] for row in rows_of(path)] == ["0", "1"]

    def test_a_foreign_file_is_left_alone(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("a,b\n1,2\n")
        with pytest.raises(ValueError, match="must begin with the columns"):
            runner.main(quick_arguments(path))
        assert path.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("late", [False, True])
def test_a_missing_package_is_named_and_skipped(monkeypatch, capsys, late):
    """Packages are found missing when the adapter is imported, or only by their version where it imports them late."""

    class Late(methods.method_class("CKDE")):
        package = "nowhere-to-be-found"

    def adapter(name):
        if not late:
            raise ModuleNotFoundError("No module", name="nowhere-to-be-found")
        return type("module", (), {"CatBoost": Late})

    known = methods.import_module
    monkeypatch.setattr(
        methods, "import_module", lambda name: adapter(name) if name.endswith("catboost") else known(name)
    )
    runs = runner.planned(Suite(("LinearGaussian",), ("CKDE", "catboost"), (0,), (100,)))
    assert [run.method for run in runs] == ["CKDE"]
    assert "skipped: Method 'catboost' needs the package 'nowhere-to-be-found'" in capsys.readouterr().out


def test_options_of_a_suite_reach_the_run_of_its_method_and_task():
    suite = Suite(("Laplace", "Cauchy"), ("CKDE",), (0,), (100,), options={("CKDE", "Cauchy"): {"nonsense": 1}})
    assert [run.options for run in runner.planned(suite)] == [{}, {"nonsense": 1}]


class TestPaper:
    def test_every_method_of_the_paper_has_a_place(self):
        printed = set(pd.read_csv(report.PAPER / "ks_n1e4.csv")["method"])
        assert printed <= set(SUITES["density-1e4"].methods)

    def test_quick_is_every_method_on_every_model_with_three_seeds(self):
        quick = QUICK_SUITES["density-1e4"]
        assert quick.methods == SUITES["density-1e4"].methods
        assert (quick.tasks, quick.seeds, quick.sizes) == (SIX_MODELS, (0, 1, 2), (10_000,))

    def test_a_dry_run_counts_and_writes_nothing(self, tmp_path, capsys):
        assert paper.main(["--quick", "--only", "density-1e4", "--dry-run", "--results", str(tmp_path / "new")]) == 0
        name, runs, left = capsys.readouterr().out.splitlines()[-1].split()
        assert (name, runs) == ("density-1e4", left)
        assert not (tmp_path / "new").exists()

    def test_it_goes_on_where_it_was_and_writes_a_report(self, tmp_path, monkeypatch, capsys):
        small = Suite(("LinearGaussian",), ("CKDE", "NNKCDE"), (0, 1), (100,))
        monkeypatch.setattr(paper, "QUICK", {"density-1e4": small})
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        done = Records(tmp_path / "density-1e4.csv")
        done.append(suite_row("CKDE", "LinearGaussian", 100, 0) | {"version": methods.version("CKDE")})
        assert paper.main(["--quick", "--results", str(tmp_path), "--jobs", "1", "--only", "density-1e4"]) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[1].split() == ["density-1e4", "4", "3"]
        assert "hours are over" not in out
        assert len(rows_of(tmp_path / "density-1e4.csv")) == 4
        page = (tmp_path / "report.md").read_text()
        assert "NNKCDE" in page
        assert "Reduced runs" in page

    def test_when_its_time_is_over_it_says_what_remains(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(paper, "QUICK", {"density-1e4": Suite(("LinearGaussian",), ("CKDE",), (0, 1), (100,))})
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        arguments = ["--quick", "--results", str(tmp_path), "--jobs", "1", "--only", "density-1e4"]
        assert paper.main([*arguments, "--hours", "0"]) == 0
        out = capsys.readouterr().out
        assert "0 hours are over" in out
        assert out.splitlines()[-1].split() == ["density-1e4", "2", "2"]
        assert rows_of(tmp_path / "density-1e4.csv") == []
        for seed in (0, 1):
            row = suite_row("CKDE", "LinearGaussian", 100, seed) | {"version": methods.version("CKDE")}
            Records(tmp_path / "density-1e4.csv").append(row)
        assert paper.main([*arguments, "--hours", "0"]) == 0
        assert "hours are over" not in capsys.readouterr().out  # nothing remains

    @pytest.mark.parametrize(("way", "hours"), [(["--quick"], 2.0), (["--quick", "--hours", "0.5"], 0.5), ([], np.inf)])
    def test_it_has_two_hours_if_quick_and_no_limit_else(self, tmp_path, monkeypatch, way, hours):
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr(paper, "report", SimpleNamespace(main=lambda _: None, PAGE=report.PAGE))
        given = []
        monkeypatch.setattr(paper, "execute", lambda runs, records, workers: given.append(workers.until) or 0)
        start = time.monotonic()
        assert paper.main([*way, "--only", "density-1e4", "--results", str(tmp_path)]) == 0
        assert given == [pytest.approx(start + 3600 * hours, abs=60)]

    @pytest.mark.parametrize("hours", ["nan", "-1"])
    def test_hours_that_are_none_are_refused(self, hours, capsys):
        with pytest.raises(SystemExit):
            paper.main(["--quick", "--hours", hours])
        assert "must be a number of hours, zero or more" in capsys.readouterr().err

    def test_no_process_and_no_curve_starts_when_the_time_is_over(self, tmp_path, monkeypatch):
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr(paper.experiments, "main", lambda *_: pytest.fail("a curve was begun"))
        monkeypatch.setattr(Children, "run", lambda *_: pytest.fail("a process was started"))
        monkeypatch.setattr(paper, "QUICK", {"density-1e4": Suite(("LinearGaussian",), ("CKDE",), (0,), (100,))})
        assert paper.main(["--quick", "--hours", "0", "--results", str(tmp_path)]) == 0

    def test_a_run_that_is_cut_off_by_the_hours_leaves_no_line_and_one_that_reaches_its_own_limit_does(self):
        run = runner.Run("ncprob", "LinearGaussian", 1000, 0, "1", {})
        cut_off = runner.Workers(1, timeout=60.0, options={}, threads=1, until=time.monotonic() + 0.2)
        assert cut_off.run(run) is None
        limited = runner.Workers(1, timeout=0.2, options={}, threads=1).run(run)
        assert "stopped after 0.2 s" in limited["error"]

    def test_curves_are_part_of_it(self, tmp_path, monkeypatch):
        asked = {}
        monkeypatch.setattr(paper, "QUICK", {})
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr(
            paper.experiments, "main", lambda experiment, _, arguments: asked.update({experiment.name: arguments}) or 0
        )
        assert paper.main(["--quick", "--results", str(tmp_path)]) == 0
        assert set(asked) == {"laws", "bands", "dynamics"}
        assert asked["laws"][:2] == ["--out", str(tmp_path / "laws.csv")]

    def test_quick_networks_of_intervals_are_the_papers(self):
        for key, options in QUICK_SUITES["heavy-tails"].options.items():
            usual = SUITES["heavy-tails"].options[key]
            assert {name for name in usual if usual[name] != options[name]} == {"max_steps"}


def test_other_results_leave_the_page_beside_the_code_and_the_readme_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(report, "BESIDE", tmp_path / "beside.md")
    monkeypatch.setattr(report, "README", tmp_path / "readme.md")
    Records(tmp_path / "results" / "real.csv").append(suite_row("ncprob", "concrete", 900, 0))
    report.main(["--results", str(tmp_path / "results"), "--page", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").exists()
    assert not (tmp_path / "beside.md").exists()
    assert not (tmp_path / "readme.md").exists()


def test_tables_that_come_with_a_package_need_no_folder(monkeypatch):
    monkeypatch.setenv("NCPROB_DATA", "nowhere")
    split, other = tasks.load("diabetes", None, 0), tasks.load("diabetes", None, 1)
    assert split.X.shape == (398, 10)  # 442 rows, a tenth of them to test
    assert split.X_test.shape == (44, 10)
    assert "target" not in split.X
    assert not np.array_equal(split.y_test, other.y_test)


def test_a_table_of_a_package_that_is_missing_is_told(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(tasks, "import_module", missing)
    with pytest.raises(ImportError, match=r"ccard comes with statsmodels: pip install '\.\[benchmarks\]'"):
        tasks.load("ccard", None, 0)


def test_seeds_are_parsed():
    assert runner.parse_seeds("0-2,7") == (0, 1, 2, 7)


def test_a_failed_run_leaves_its_error_and_the_others_go_on(tmp_path):
    out = tmp_path / "r.csv"
    assert runner.main(quick_arguments(out, "--seeds", "0-1", "--options", json.dumps({"nonsense": 1}))) == 1
    failed = rows_of(out)
    assert [row["seed"] for row in failed] == ["0", "1"]
    assert all("TypeError" in row["error"] and row["ks"] == "" for row in failed)
    assert runner.main(quick_arguments(out, "--seeds", "0", "--retry")) == 0
    left, retried = rows_of(out)
    assert (left["seed"], retried["seed"], retried["error"]) == ("1", "0", "")
    assert float(retried["peak_mb"]) > 50


def test_a_run_that_takes_too_long_is_stopped(tmp_path):
    assert runner.main(quick_arguments(tmp_path / "r.csv", "--timeout", "0.2")) == 1
    assert "limit" in rows_of(tmp_path / "r.csv")[0]["error"]


def test_a_process_that_is_killed_from_outside_is_told_from_one_of_a_benchmark_that_was_stopped():
    def run(statement):
        return children.run(["timeit", "-n", "1", "-r", "1", statement], threads=1, limit=60)

    children = Children()
    with pytest.raises(Failed, match="killed by SIGKILL: no message"):
        run("import os; os.kill(os.getpid(), 9)")
    start = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, "import time; time.sleep(50)")
        time.sleep(0.5)
        children.stop()
        assert waiting.result() is None
    assert run("pass") is None  # none is started any more
    assert time.monotonic() - start < 30


def test_a_killed_benchmark_goes_on(tmp_path):
    out = tmp_path / "r.csv"
    command = [sys.executable, "-m", "benchmarks.runner", *quick_arguments(out, "--seeds", "0-50")]
    with subprocess.Popen(command, cwd=tasks.CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and not (out.exists() and rows_of(out)):
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
    before = rows_of(out)
    assert 1 <= len(before) < 51
    assert all(row["error"] == "" for row in before)
    assert runner.main(quick_arguments(out, "--seeds", f"0-{len(before)}")) == 0
    assert len(rows_of(out)) == len(before) + 1


def suite_row(method, dataset, n, seed):
    rng = np.random.default_rng([seed, n, len(method)])
    return {
        "method": method, "dataset": dataset, "n": n, "seed": seed, "ks": rng.uniform(0.01, 0.1),
        "ks_paper": 0.02, "crps": rng.uniform(1, 2), "fit_seconds": 1.5, "predict_seconds": 0.1, "peak_mb": 300,
        "settings": "default", "version": "0", "pinball": 0.4, "coverage90": 0.9, "width90": 1.0,
        "coverage_by_fifth": "0.9 0.91 0.89 0.9 0.9", "ks_bulk": 0.03, "threads": 1, "hellinger": 0.1, "kl": 0.1,
        "js": 0.01, "tv": 0.1, "w1": 0.02, "mse_mean": 0.01, "ks_by_point": "0.01 0.02 0.03 0.04", "machine": "2 cores",
    }  # fmt: skip


def test_the_report_runs_on_any_suite(tmp_path):
    files = {
        "density-1e4": ("LinearGaussian", 10_000),
        "density-1e5": ("LGGMD", 100_000),
        "small-n": ("ArmaJump", 200),
        "real": ("concrete", 900),
        "fresh": ("ccard", 65),
        "heavy-tails": ("Cauchy", 50_000),
        "student": ("student-paper", 8000),
        "circle": ("CircleGaussian-d100", 100_000),
        "circle-discrete": ("CircleDiscrete-d100", 100_000),
        "speed": ("LinearGaussian", 10_000),
        "something-else": ("Laplace", 100),
    }
    for name, (dataset, n) in files.items():
        records = Records(tmp_path / "results" / f"{name}.csv")
        for method in ("ncprob", "NCP-W"):
            for seed in range(2):
                records.append(suite_row(method, dataset, n, seed))
        records.append({"method": "ncprob", "dataset": dataset, "n": n, "seed": 9, "error": "went wrong"})
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    report.main(["--results", str(tmp_path / "results"), "--page", str(page)])
    text = page.read_text()
    assert text.count("\n## ") == len(files) + 1  # all sizes of the density benchmark together
    assert "nan" not in text.lower().replace("ncp-nan", "")
    pictures = {path.name for path in (page.parent / "images").iterdir()}
    assert pictures == {"ks-n10000.png", "ks-n100000.png", "ks-curves.png", "crps-ratio.png"}
    assert all(f"images/{name}" in text for name in pictures)


def test_methods_are_compared_on_the_same_seeds():
    rows = [suite_row("ncprob", "concrete", 900, seed) for seed in (0, 1)] + [suite_row("CKDE", "concrete", 900, 0)]
    kept = report.on_common_seeds(pd.DataFrame(rows), ["dataset"])
    assert sorted(zip(kept["method"], kept["seed"], strict=True)) == [("CKDE", 0), ("ncprob", 0)]


def test_tables_go_by_their_suite_however_runs_came(tmp_path):
    """Runs that are done again stand last in the file."""
    records = Records(tmp_path / "results" / "small-n.csv")
    names = ("CKDE", "NNKCDE", "quantile-forest", "ncprob"), ("LGGMD", "LinearGaussian"), (2000, 200)
    for method, dataset, n in itertools.product(*names):
        records.append(suite_row(method, dataset, n, 0))
    report.main(["--results", str(tmp_path / "results"), "--page", str(tmp_path / "page.md")])
    lines = (tmp_path / "page.md").read_text().splitlines()
    head = lines.index("| dataset | n | ncprob | quantile-forest | NNKCDE | CKDE |")
    rows = [line.split(" | ")[:2] for line in lines[head + 2 : head + 6]]
    assert rows == [["| LinearGaussian", "200"], ["| LinearGaussian", "2000"], ["| LGGMD", "200"], ["| LGGMD", "2000"]]


def test_no_result_is_no_section(tmp_path):
    (tmp_path / "results").mkdir()
    Records(tmp_path / "results" / "real.csv")
    report.main(["--results", str(tmp_path / "results"), "--page", str(tmp_path / "page.md")])
    assert "## " not in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("ingredient", REPLACED)
def test_an_ingredient_is_replaced_where_the_fit_uses_it(ingredient, monkeypatch, sample):
    called = []
    module, name, replacement = REPLACED[ingredient]
    spy = lambda *given, **named: called.append(1) or replacement(*given, **named)  # noqa: E731
    monkeypatch.setitem(REPLACED, ingredient, (module, name, spy))
    methods.make(f"without {ingredient}", max_steps=5, coordinates="residual").fit(*sample, seed=0)
    assert called
