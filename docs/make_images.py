"""Draw the pictures of docs/plots.md: python docs/make_images.py."""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from ncprob import NCPRegressor, datasets, plotting

IMAGES = Path(__file__).parent / "images"


def sheet(name: str, columns: int, *plots) -> None:
    """Several plots side by side, each a function of its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns if columns > 1 else 6.0, 3.4), layout="constrained")
    for ax, plot in zip(np.atleast_1d(figure.subplots(1, columns)), plots, strict=True):
        plot(ax)
        plotting.finish(ax)
    figure.savefig(IMAGES / f"plots-{name}.png", dpi=80, metadata={"Software": None})


def main() -> None:
    """The examples of the page, in its order."""
    matplotlib.use("Agg")
    rng = np.random.default_rng(0)

    X, y = datasets.TwoRegimes().sample(3000, random_state=0)
    law = NCPRegressor(random_state=0).fit(X, y).predict_distribution([[-2.0], [0.8], [2.2]])
    labels = ["x = −2", "x = 0.8", "x = 2.2"]
    sheet(
        "laws",
        2,
        lambda ax: plotting.plot_density(law, labels=labels, ax=ax),
        lambda ax: plotting.plot_cdf(law, labels=labels, ax=ax),
    )

    size, age, town = rng.uniform(40, 160, 2000), rng.uniform(0, 80, 2000), rng.choice(["east", "west"], 2000)
    houses = pd.DataFrame({"size": size, "age": age, "town": town})
    mean = 3 * size * (1 - 0.004 * age) * (1 + 0.3 * (town == "east"))
    price = pd.Series(mean + (10 + 0.5 * size) * rng.normal(size=2000), name="price")
    model = NCPRegressor(random_state=0).fit(houses, price)
    sheet(
        "bands",
        3,
        lambda ax: plotting.plot_bands(model, houses, feature="size", ax=ax),
        lambda ax: plotting.plot_bands(model, houses, feature="size", at="average", ax=ax),
        lambda ax: plotting.plot_bands(model, houses, feature="town", ax=ax),
    )

    day = np.arange(400)
    demand = 20 + 8 * np.sin(2 * np.pi * day / 7) + (2 + 2 * (day % 7 > 4)) * rng.normal(size=400)
    week = np.column_stack([np.sin(2 * np.pi * day / 7), np.cos(2 * np.pi * day / 7)])
    fan = NCPRegressor(random_state=0).fit(week[:360], demand[:360]).predict_distribution(week[360:])
    sheet("fan", 1, lambda ax: plotting.plot_fan(fan, demand[360:], time=day[360:], ax=ax))

    x, side = rng.uniform(-1, 1, (2000, 1)), rng.choice([-1, 1], 2000)
    pair = np.column_stack([x[:, 0] + side, 2 * side * x[:, 0]]) + 0.3 * rng.normal(size=(2000, 2))
    joint = NCPRegressor(coordinates="raw", random_state=0).fit(x, pair).predict_distribution([[0.7]])
    sheet("joint", 1, lambda ax: plotting.plot_joint(joint, ax=ax))

    raw = NCPRegressor(coordinates="raw", random_state=0).fit(X, y)
    X_new, y_new = datasets.TwoRegimes().sample(1000, random_state=1)
    pit = raw.predict_distribution(X_new).pit(y_new)
    sheet(
        "checks",
        4,
        lambda ax: plotting.plot_pit(pit, ax=ax),
        lambda ax: plotting.plot_calibration(pit, ax=ax),
        lambda ax: plotting.plot_spectrum(raw.dependence(), ax=ax),
        lambda ax: plotting.plot_history(raw, ax=ax),
    )


if __name__ == "__main__":
    main()
