"""Pictures by content: what lies on the axes, not which bytes come out."""

import io
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.colors import to_rgba

from ncprob import NCPRegressor, datasets
from ncprob.dependence import Dependence
from ncprob.plotting import (
    finish,
    plot_bands,
    plot_calibration,
    plot_cdf,
    plot_density,
    plot_fan,
    plot_history,
    plot_joint,
    plot_pit,
    plot_spectrum,
)
from ncprob.profiles import Inputs

FAST = {"max_steps": 60, "hidden_sizes": (8,), "coordinates": "raw", "random_state": 0, "progress": False}
COVERAGES = (0.5, 0.9)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": rng.uniform(0, 10, n),
            "rooms": rng.integers(1, 4, n),
            "town": rng.choice(["p", "q", "q"], n),
            "garden": rng.random(n) < 0.3,
        }
    )


X = table()
Y = pd.Series(X["size"] + 5 * (X["town"] == "p") + np.random.default_rng(1).normal(size=len(X)), name="price")


@pytest.fixture(scope="module")
def model():
    return NCPRegressor(**FAST).fit(X, Y)


@pytest.fixture(scope="module")
def pair_model():
    both = pd.DataFrame({"price": Y, "rent": -Y})
    return NCPRegressor(**FAST).fit(X, both)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def outline(collection):
    """x, lowest y and highest y of a filled band."""
    corners = collection.get_paths()[0].vertices
    places = np.unique(corners[:, 0])
    return places, *(np.array([f(corners[corners[:, 0] == x, 1]) for x in places]) for f in (np.min, np.max))


# ---------------------------------------------------------------- bands


def test_bands_of_a_single_input_are_the_intervals():
    data, target = datasets.LinearGaussian().sample(200, random_state=0)
    model = NCPRegressor(**FAST).fit(data, target)
    grid = np.linspace(-1, 1, 15)
    ax = plot_bands(model, grid, coverages=COVERAGES)
    law = model.predict_distribution(grid[:, None])
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.column_stack([grid, law.median()]))
    lower, upper, inner = (outline(band) for band in ax.collections)  # rings of 90 %, then the 50 % interval
    wide, narrow = law.interval(0.9, kind="central"), law.interval(0.5, kind="central")
    np.testing.assert_allclose(np.column_stack([lower[1], upper[2]]), wide)
    np.testing.assert_allclose(np.column_stack([inner[1], inner[2]]), narrow)
    np.testing.assert_allclose(np.column_stack([lower[2], upper[1]]), narrow)
    assert legend(ax) == ["90% interval", "50% interval", "median"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")


def test_other_inputs_stay_at_the_typical_row(model):
    ax = plot_bands(model, X, feature="size", coverages=COVERAGES)
    x, median = ax.lines[0].get_data()
    assert x[0] == pytest.approx(np.quantile(X["size"], 0.01))
    rows = pd.DataFrame({"size": x, "rooms": X["rooms"].median(), "town": "q", "garden": False})
    np.testing.assert_allclose(median, model.predict_distribution(rows).median())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("size", "price")


def test_fixed_inputs_and_own_values(model):
    ax = plot_bands(model, X, feature="size", at={"town": "p", "garden": True}, values=[2, 4, 6])
    rows = pd.DataFrame({"size": [2.0, 4.0, 6.0], "rooms": X["rooms"].median(), "town": "p", "garden": True})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.predict_distribution(rows).median())


def test_averaged_bands_are_those_of_the_mixture(model):
    few = X.iloc[:20]
    ax = plot_bands(model, few, feature="size", at="average", values=[3.0, 7.0], coverages=[0.8])
    for place, low, high in zip(*outline(ax.collections[0]), strict=True):
        law = model.predict_distribution(few.assign(size=place))
        assert law.cdf(low).mean() == pytest.approx(0.1, abs=0.03)
        assert law.cdf(high).mean() == pytest.approx(0.9, abs=0.03)


def test_levels_are_told_one_by_one(model):
    ax = plot_bands(model, X, feature="town", coverages=COVERAGES)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["p", "q"]
    rows = pd.DataFrame({"size": X["size"].median(), "rooms": X["rooms"].median(), "town": ["p", "q"], "garden": False})
    wide = model.predict_distribution(rows).interval(0.9, kind="central")
    bars = ax.patches
    np.testing.assert_allclose([bar.get_y() for bar in bars[:2]], wide[:, 0])
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in bars[2:4]], wide[:, 1])
    for feature in ("rooms", "garden"):
        assert len(plot_bands(model, X, feature=feature).get_xticks()) == X[feature].nunique()


def test_any_library_and_arrays_with_names_of_the_model(model):
    expected = plot_bands(model, X, feature="size").lines[0].get_ydata()
    for other in (pl.from_pandas(X), pl.from_pandas(X).to_arrow()):
        np.testing.assert_allclose(plot_bands(model, other, feature=0).lines[0].get_ydata(), expected)
    numbers = X[["size", "rooms"]].astype(float)
    named = NCPRegressor(**FAST).fit(numbers, Y)
    with pytest.warns(UserWarning, match="valid feature names"):
        assert plot_bands(named, numbers.to_numpy(), feature="size").get_xlabel() == "size"


def test_bands_of_a_component(pair_model):
    ax = plot_bands(pair_model, X, feature="size", component=1)
    assert ax.get_ylabel() == "rent"
    assert ax.lines[0].get_ydata()[0] > ax.lines[0].get_ydata()[-1]


def test_bad_questions(model):
    with pytest.raises(ValueError, match="`feature` must be given for a table with 4 inputs"):
        plot_bands(model, X)
    with pytest.raises(ValueError, match="`feature` must be a name or position among the 4 inputs"):
        plot_bands(model, X, feature="sise")
    with pytest.raises(ValueError, match="`at` must be one of 'median', 'average'; got 'mean'"):
        plot_bands(model, X, feature="size", at="mean")
    with pytest.raises(ValueError, match="`coverages` must lie strictly between 0 and 1"):
        plot_bands(model, X, feature="size", coverages=[90])


def test_fan(model):
    law = model.predict_distribution(X[:30])
    time = pd.date_range("2024-01-01", periods=30)
    ax = plot_fan(law, Y[:30], time=time, coverages=COVERAGES)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), law.median())
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), Y[:30])
    assert legend(ax) == ["90% interval", "50% interval", "median", "observed"]
    assert ax.get_xlabel() == "time"
    assert plot_fan(law).get_xlabel() == "row"


def test_fan_of_a_component(pair_model):
    law = pair_model.predict_distribution(X[:5])
    ax = plot_fan(law, np.stack([Y[:5], -Y[:5]], axis=1), component=1)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), law.median()[:, 1])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), -Y[:5])


# ---------------------------------------------------------------- laws


def test_densities_and_distribution_functions(model):
    law = model.predict_distribution(X[:3])
    grid = np.linspace(0, 20, 50)
    ax = plot_density(law, grid, labels=["a", "b", "c"])
    np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], law.pdf(grid))
    assert legend(ax) == ["a", "b", "c"]
    assert len({line.get_color() for line in ax.lines}) == 3
    ax = plot_cdf(law)
    assert len(ax.lines) == 3
    for i, line in enumerate(ax.lines):
        points, heights = line.get_data()
        assert heights[0] <= 0.01
        assert heights[-1] >= 0.99
        np.testing.assert_array_equal(heights, law[i].cdf(points)[0])
    with pytest.raises(ValueError, match="`labels` must hold one name per member, 3; got 1"):
        plot_density(law, labels=["a"])


def test_density_of_a_component(pair_model):
    law = pair_model.predict_distribution(X[:1])
    points, heights = plot_density(law, component=1).lines[0].get_data()
    np.testing.assert_array_equal(heights, law.pdf(points)[0, 1])
    assert np.trapezoid(heights, points) == pytest.approx(1, abs=0.05)


def test_joint_regions_hold_their_mass():
    rng = np.random.default_rng(0)
    sides = rng.choice([-2.0, 2.0], 2000)
    Z = np.column_stack([sides, sides]) + 0.5 * rng.normal(size=(2000, 2))
    law = NCPRegressor(**FAST).fit(rng.normal(size=(2000, 1)), Z).predict_distribution([[0.0]])
    ax = plot_joint(law, y=Z[0], coverages=(0.5, 0.9))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("y0", "y1")
    assert legend(ax) == ["90% region", "50% region", "observed"]
    np.testing.assert_array_equal(ax.lines[0].get_xydata()[0], Z[0])
    outer, inner = (next(c for c in ax.collections[i::2] if len(c.get_paths())) for i in (0, 2))
    assert len(outer.get_paths()[0].to_polygons()) >= 2  # two modes, not one blob
    inside = [any(p.contains_point(z) for p in outer.get_paths() + inner.get_paths()) for z in Z]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.07)


def test_joint_needs_one_law_of_several_targets(model, pair_model):
    assert plot_joint(pair_model.predict_distribution(X[:1]), names=["price", "rent"]).get_ylabel() == "rent"
    for law in (pair_model.predict_distribution(X[:2]), model.predict_distribution(X[:1])):
        with pytest.raises(ValueError, match="`law` must be one law of several targets"):
            plot_joint(law)


# ---------------------------------------------------------------- checks


def bars(ax):
    return np.array([bar.get_height() for bar in ax.patches])


def test_pit_histogram_and_its_band():
    uniform = np.random.default_rng(0).uniform(size=2000)
    ax = plot_pit(uniform, bins=20)
    assert bars(ax).mean() == pytest.approx(1)
    _, low, high = outline(ax.collections[0])
    assert np.all((bars(ax) >= low[0]) & (bars(ax) <= high[0]))
    assert high[0] - 1 == pytest.approx(3.02 * np.sqrt(19 / 2000), rel=0.1)  # 5 % over 20 bars, two sides
    narrow = plot_pit(np.clip(0.5 + 0.3 * (uniform - 0.5), 0, 1), bins=20)
    assert (bars(narrow) > high[0]).any()
    assert "95% band of chance" in legend(ax)


def test_calibration_curve_and_its_band():
    uniform = np.random.default_rng(0).uniform(size=1000)
    ax = plot_calibration(uniform)
    nominal, actual = ax.lines[0].get_data()
    place, low, high = outline(ax.collections[0])
    assert np.all((actual >= np.interp(nominal, place, low)) & (actual <= np.interp(nominal, place, high)))
    index = list(nominal).index(0.9)
    assert actual[index] == pytest.approx(np.mean(np.abs(uniform - 0.5) <= 0.45))
    too_narrow = plot_calibration(np.where(uniform < 0.5, uniform**3, 1 - (1 - uniform) ** 3))
    assert too_narrow.lines[0].get_ydata()[index] < low[np.searchsorted(place, 0.9)]


@pytest.mark.parametrize("plot", [plot_pit, plot_calibration])
@pytest.mark.parametrize("pit", [[], [0.5, 1.5], np.full((3, 2), 0.5), [np.nan]])
def test_bad_pit(plot, pit):
    with pytest.raises(ValueError, match="`pit` must hold values of F"):
        plot(pit)


def test_spectrum(model):
    np.testing.assert_array_equal(bars(plot_spectrum(model)), model.singular_values_)
    ax = plot_spectrum(Dependence(0.3, 0.5, 1.6, (0.5, 0.2), 400))
    np.testing.assert_array_equal(bars(ax), [0.5, 0.2])
    assert ax.lines[0].get_ydata()[0] == 0.1  # 2/√400
    assert "no singular functions" in plot_spectrum([]).texts[0].get_text()


def test_history(model):
    ax = plot_history(model)
    np.testing.assert_array_equal(ax.lines[0].get_xydata().T, [model.history_.step, model.history_.loss])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), model.history_.validation_loss)
    assert plot_history(model.history_).get_xlabel() == "step"
    constant = NCPRegressor(**FAST)
    with pytest.warns(UserWarning, match="constant"):
        constant.fit(X, np.zeros(len(X)))
    assert "nothing was trained" in plot_history(constant).texts[0].get_text()


# ---------------------------------------------------------------- all of them


def all_plots(model, pair_model):
    law = model.predict_distribution(X[:4])
    return {
        "bands": lambda **k: plot_bands(model, X, feature="size", **k),
        "levels": lambda **k: plot_bands(model, X, feature="town", **k),
        "fan": lambda **k: plot_fan(law, Y[:4], **k),
        "density": lambda **k: plot_density(law, **k),
        "cdf": lambda **k: plot_cdf(law, **k),
        "joint": lambda **k: plot_joint(pair_model.predict_distribution(X[:1]), **k),
        "pit": lambda **k: plot_pit(model.predict_distribution(X).pit(Y), **k),
        "calibration": lambda **k: plot_calibration(model.predict_distribution(X).pit(Y), **k),
        "spectrum": lambda **k: plot_spectrum(model, **k),
        "history": lambda **k: plot_history(model, **k),
    }


def test_axes_of_ones_own_are_used_and_nothing_is_shown(model, pair_model, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_: pytest.fail("a plot must not show itself"))
    for plot in all_plots(model, pair_model).values():
        figure, ax = plt.subplots()
        assert plot(ax=ax) is ax
        assert ax.get_legend() is None
        named = len(ax.get_legend_handles_labels()[1])
        finish(ax)
        assert named < 2 or len(legend(ax)) == named
        figure.savefig(io.BytesIO())
        assert plot() is not ax


def test_without_matplotlib(model, pair_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for plot in all_plots(model, pair_model).values():
        with pytest.raises(ImportError, match=r"Plots need matplotlib: pip install 'ncprob\[plot\]'"):
            plot()


def test_names_are_not_formulas():
    data = pd.DataFrame({"$a_$b": X["size"], "$\\frac{$": X["town"].replace("p", "$^$")})
    strange = NCPRegressor(**FAST).fit(data, Y.rename("$_{$"))
    for feature in data.columns:
        ax = plot_bands(strange, data, feature=feature)
        assert ax.get_xlabel() == feature
        ax.figure.savefig(io.BytesIO())


def test_nested_bands_get_darker(model):
    ax = plot_bands(model, X, feature="size")
    alphas = [to_rgba(band.get_facecolor()[0])[3] for band in ax.collections]
    assert alphas == sorted(alphas)
    assert len(set(alphas)) == 3


def test_profiles_keep_the_kinds_of_columns():
    inputs = Inputs.of(X)
    assert inputs.typical()[2:] == ["q", False]
    again = inputs.rows([0, 1]).table()
    pd.testing.assert_frame_equal(again, X.iloc[:2].astype({"rooms": float}), check_dtype=False)
