"""
Housing: will it fit the budget?
================================

A buyer with 350 (thousand) does not ask for the expected price. The question is "how likely is a flat like this at no
more than 350?", or "what should I be ready to pay, nine times out of ten?". A table with a text column goes in as it
is.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from ncprob import NCPRegressor, plotting

# %%
# A simulated market whose law is known: prices are lognormal around a typical price, and old houses vary more.

rng = np.random.default_rng(0)
n = 1500
houses = pd.DataFrame(
    {"size": rng.uniform(40, 160, n), "age": rng.uniform(0, 80, n), "town": rng.choice(["east", "west", "old town"], n)}
)


def exact(table: pd.DataFrame):
    """The law of the price, as a frozen scipy distribution with one member per row."""
    typical = (
        3.2
        * table["size"]
        * (1 - 0.004 * table["age"])
        * table["town"].map({"east": 1.3, "west": 1.0, "old town": 1.6})
    )
    return stats.lognorm(s=0.08 + 0.003 * table["age"], scale=typical)


price = pd.Series(exact(houses).rvs(random_state=rng), name="price")
model = NCPRegressor(max_steps=300, tree_inputs=False, random_state=0).fit(houses, price)

# %%
# Answers for a short list come back as a labelled table.

viewings = pd.DataFrame(
    {"size": [70, 90, 110], "age": [5, 40, 75], "town": ["old town", "east", "west"]}, index=["A", "B", "C"]
)
print(model.predict_quantiles(viewings, alpha=(0.1, 0.5, 0.9)).round(0))

law, truth = model.predict_distribution(viewings), exact(viewings)
answers = pd.DataFrame({"P(price ≤ 350)": law.cdf(350.0), "exact": truth.cdf(350.0)}, index=viewings.index)
print(answers.round(2))
assert np.abs(answers["P(price ≤ 350)"] - answers["exact"]).max() < 0.15

# %%
# How the law moves with the size, for a house that is otherwise typical, and what is known about each viewing.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
plotting.plot_bands(model, houses, feature="size", at={"town": "east", "age": 40}, ax=left)
left.axhline(350, color="k", linestyle=":", linewidth=1)
left.set_title("East, 40 years old; dotted: the budget", loc="left", pad=32)
grid = np.linspace(150, 700, 400)
plotting.plot_density(law, grid, labels=list(viewings.index), ax=right)
right.plot(grid, truth.pdf(grid[:, None]), "k--", linewidth=1)
right.axvline(350, color="k", linestyle=":", linewidth=1)
right.set_xlabel("price")
right.set_title("Three viewings; dashed: exact", loc="left", pad=32)
for ax in (left, right):
    plotting.finish(ax)

# %%
# And the other way round: what do houses look like that cost at most 200? The law of X given the price, from the same
# fit.

cheap = model.given_target((0, 200))
size, age = cheap.mean()[0][:2]
print(f"houses up to 200: {size:.0f} m² and {age:.0f} years on average; in the data:",
      houses.loc[price <= 200, ["size", "age"]].mean().round(0).to_dict())  # fmt: skip
