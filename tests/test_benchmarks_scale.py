"""Cost curves and the accelerator's benchmark: counts are exact, nothing is done twice, the report shows all."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks are run from the checkout, not installed

from benchmarks import accelerator, costs, figures, report, report_scale  # noqa: E402
from benchmarks.costs import Point  # noqa: E402
from benchmarks.records import Records  # noqa: E402
from ncprob.encoders import MLP  # noqa: E402


class TestExponent:
    @pytest.mark.parametrize("slope", [-0.5, 0.0, 1.0, 2.0])
    def test_a_power_law_is_found_exactly(self, slope):
        x = np.array([10.0, 100.0, 1000.0, 10_000.0])
        assert costs.exponent(x, 7 * x**slope) == pytest.approx((slope, 0.0), abs=1e-9)

    def test_standard_error_is_that_of_least_squares(self):
        from scipy import stats

        x, y = np.array([1.0, 2.0, 5.0, 9.0]), np.array([1.0, 2.5, 4.0, 11.0])
        known = stats.linregress(np.log(x), np.log(y))
        assert costs.exponent(x, y) == pytest.approx((known.slope, known.stderr))

    def test_two_points_have_no_error(self):
        slope, error = costs.exponent([1, 10], [1, 100])
        assert slope == pytest.approx(2)
        assert np.isnan(error)


class TestTask:
    @pytest.mark.parametrize(("p", "q"), [(1, 1), (2, 3), (10, 1)])
    def test_exact_quantiles_are_exact(self, p, q):
        X = costs.inputs(20_000, p, seed=0)
        y = costs.targets(X, q, seed=0).reshape(len(X), q, 1)
        below = (y <= costs.exact_quantiles(X, q)).mean(axis=0)
        # five standard errors of a share of 20,000 rows
        assert np.abs(below - costs.SCORE_LEVELS).max() < 5 * 0.5 / 20_000**0.5

    def test_one_component_is_a_vector(self):
        X = costs.inputs(5, 3, seed=0)
        assert costs.targets(X, 1, seed=0).shape == (5,)
        assert costs.targets(X, 2, seed=0).shape == (5, 2)

    def test_pinball_of_exact_quantiles_is_least(self):
        X = costs.inputs(5000, 3, seed=0)
        y, exact = costs.targets(X, 1, seed=0), costs.exact_quantiles(X, 1)
        assert costs.pinball(y, exact) < min(costs.pinball(y, exact + 0.1), costs.pinball(y, exact - 0.1))


def test_a_point_is_measured():
    facts = costs.measure(Point("rank", "ncprob raw", 4), {"max_steps": 5})
    assert facts["fit_seconds"] > 0
    assert facts["fit_mib"] >= facts["start_mib"] * 0.9 > 50
    assert facts["pinball"] > facts["pinball_exact"] > 0
    assert facts["settings"] == "coordinates raw; rank 4; steps 5"


def fake_runner(monkeypatch, path, too_long=10**9):
    """A runner whose points take no time; those beyond a value are stopped."""
    asked = []

    def run(self, point):
        asked.append(point)
        if point.value >= too_long:
            return {"error": "stopped after 1 s, the limit"}
        facts = {"fit_seconds": 1.0 * point.value, "predict_seconds": 2.0, "start_mib": 100.0, "cores": 2}
        return facts | {"fit_mib": 200.0 + point.value, "predict_mib": 300.0, "pinball": 0.1, "pinball_exact": 0.09}

    monkeypatch.setattr(costs.Runner, "_run", run)
    return lambda *more: costs.main(["--out", str(path), "--cores", "1", *more]), asked


class TestChains:
    def test_every_axis_has_its_methods_and_files_a_chain_of_their_own(self):
        chains = costs.chains(["n", "rank"], None, 10**7)
        assert [points[0].method for points in chains] == ["ncprob", "ncprob", "ncprob raw", *costs.RIVALS]
        assert [point.value for point in chains[1]] == [10**6, 10**7]
        assert all(point.by_files for point in chains[1])

    def test_what_is_done_is_not_done_again(self, monkeypatch, tmp_path):
        main, asked = fake_runner(monkeypatch, tmp_path / "costs.csv")
        assert main("--axis", "q") == 0
        assert [point.value for point in asked] == [1, 2, 4, 8, 16]
        main("--axis", "q", "p", "--methods", "ncprob", "--largest", "10")
        assert len(asked) == 7
        main("--axis", "q", "--redo")
        assert len(asked) == 12
        assert len(Records(tmp_path / "costs.csv", costs.COLUMNS).rows()) == 7

    def test_after_a_point_that_took_too_long_larger_ones_are_not_tried(self, monkeypatch, tmp_path):
        main, asked = fake_runner(monkeypatch, tmp_path / "costs.csv", too_long=4)
        main("--axis", "q")
        assert [point.value for point in asked] == [1, 2, 4]
        errors = [row["error"] for row in Records(tmp_path / "costs.csv", costs.COLUMNS).rows()]
        assert errors == [
            "", "", "stopped after 1 s, the limit",
            *["not tried: q = 4 was stopped after 1 s, the limit"] * 2,
        ]  # fmt: skip
        main("--axis", "q")  # a line that is there stays
        assert len(asked) == 3
        main("--axis", "q", "--retry")
        assert [point.value for point in asked[3:]] == [4]

    def test_a_process_that_takes_too_long_is_ended(self, tmp_path):
        out = tmp_path / "costs.csv"
        costs.main(["--out", str(out), "--axis", "q", "--largest", "1", "--cores", "1", "--limit", "0.05"])
        (row,) = Records(out, costs.COLUMNS).rows()
        assert row["error"] == "stopped after 0.05 s, the limit"
        assert row["machine"]

    def test_more_cores_than_there_are(self, capsys):
        with pytest.raises(ValueError, match="`--jobs` times `--cores` must be at most"):
            costs.slots(1000, 1000)
        with pytest.raises(SystemExit):
            costs.main(["--jobs", "1000", "--cores", "1000", "--out", "never.csv"])
        assert "`--jobs` times `--cores` must be at most" in capsys.readouterr().err


class TestAccelerator:
    def test_operations_and_bytes_are_counted(self):
        layer, x = torch.nn.Linear(3, 5, bias=False), torch.randn(7, 3)

        def step():
            with torch.no_grad():
                layer(x)

        flop, traffic = accelerator.counted(step)
        assert flop == 2 * 7 * 3 * 5
        assert traffic == 4 * (7 * 3 + 3 * 5 + 7 * 5)

    def test_features_of_bfloat16_encoders_are_float32_and_so_are_gradients(self):
        torch.manual_seed(0)
        plain = MLP(3, (16,), 4)
        x = torch.randn(9, 3)
        features = accelerator.Brain16(plain)(x)
        assert features.dtype == torch.float32
        assert not torch.equal(features, plain(x))
        torch.testing.assert_close(features, plain(x), rtol=0.05, atol=0.05)  # bfloat16 has 8 bits
        features.sum().backward()
        assert all(parameter.grad.dtype == torch.float32 for parameter in plain.parameters())

    def test_the_setting_of_torch_is_as_it_was(self):
        before = torch.get_float32_matmul_precision()
        with accelerator.precision("recorded tf32"):
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == before

    def test_lines_are_written_and_replaced(self, monkeypatch, tmp_path):
        monkeypatch.setattr(accelerator, "SIZES", (300,))
        monkeypatch.setattr(accelerator, "BATCHES", (64,))
        out = tmp_path / "accelerator.csv"
        for _ in range(2):
            assert accelerator.main(["--device", "cpu", "--parts", "train", "--steps", "20", "--out", str(out)]) == 0
        data = pd.read_csv(out)
        assert len(data) == 1
        assert data["steps_per_second"][0] > 0
        assert "20" in report_scale.accelerator(data)


def cost_data():
    rows = []
    for method, slope in (("ncprob", 1.0), ("ngboost", 2.0)):
        for value in (1000, 10_000, 100_000):
            row = {"axis": "n", "method": method, "value": value, "fit_seconds": 1e-3 * value**slope, "cores": 2}
            rows.append(
                row | {"fit_mib": 500 + value / 1000, "start_mib": 500.0, "machine": "a machine", "limit": 60.0}
            )
    rows.append(
        {"axis": "n", "method": "ngboost", "value": 10**6, "limit": 60.0, "error": "stopped after 60 s, the limit"}
    )
    return pd.DataFrame(rows)


def test_the_report_shows_figures_exponents_and_what_took_too_long(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    text = report_scale.costs(cost_data())
    assert "| training rows n | ncprob | 1,000 | 100,000 | fit | 1.00 ± 0.00 | 1.00 ± 0.00 |" in text
    assert "| training rows n | ngboost | 1,000 | 100,000 | fit | 2.00 ± 0.00 | 1.00 ± 0.00 |" in text
    assert "| 1,000,000 |  | more than 60 s |" in text
    assert (tmp_path / "costs.png").stat().st_size > 10_000


def test_a_page_with_several_tables_has_each_in_its_place(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    cost_data().to_csv(tmp_path / "costs.csv", index=False)
    end = report.MARKS[1]
    marks = [report.MARKS[0].replace("made", f"{name}, made") for name in ("costs", "accelerator")]
    page = f"a\n{marks[0]}\nold\n{end}\nb\n{marks[1]}\nkept\n{end}\nc\n"
    new = report.update_scale(page, tmp_path)
    assert "old" not in new
    assert new.startswith(f"a\n{marks[0]}\n`python -m benchmarks.costs`")
    assert new.endswith(f"\n{end}\nb\n{marks[1]}\nkept\n{end}\nc\n")


def test_latency_and_memory_are_told_as_measured():
    made = {"machine": "a machine", "threads": 1, "p99_ms": 2000.0, "rows_per_second": 100, "growth_mib": None}
    rows = [
        made | {"model": "default", "call": "predict", "rows": 1, "repeats": 300, "p50_ms": 2.0},
        made | {"model": "raw", "call": "predict", "rows": 100, "repeats": 50, "p50_ms": 1234.56},
        made | {"model": "default", "call": "predict", "rows": 1, "threads": 8, "repeats": 2000, "p50_ms": 5.0},
        made | {"model": "raw", "call": "predict", "rows": 3000, "repeats": 1, "p50_ms": 1500.0, "growth_mib": 7.0},
    ]
    text = report_scale.latency(pd.DataFrame(rows))
    assert "| raw | `predict` | 100 | 1,234.6 | 2,000.0 |" in text
    assert "| residual, with trees (default) | `predict`, from 8 threads at once | 1 | 5.0 | 2,000.0 |" in text
    assert "Calls: 300 of 1 row, 50 of 100 rows (2,000 from several threads)." in text
    assert "3,000 rows of `predict` took 1.5 s in raw coordinates and raised the peak of memory 7 MiB" in text
    assert "8 of them give 100 answers a second in default coordinates, one gives 100." in text
    sizes = {"rows": [10**5, 10**6], "inputs": 20, "read_seconds": [0.5, 2.0], "fit_seconds": [90.0, 100.0]}
    figures_of_memory = {"import_mib": 384, "peak_mib": [1500, 1400], "crps": 0.17064, "crps_exact": 0.1702}
    text = report_scale.memory(pd.DataFrame(sizes | figures_of_memory | {"machine": "a machine"}))
    assert "| 1,000,000 | 2.0 | 100 | 1,400 | 0.1706 |" in text
    assert "CRPS (exact law: 0.1702)" in text
