"""
Decisions: how many to order?
=============================

A baker buys for 1 and sells for 3; what is left in the evening is lost. The best order is not the mean of tomorrow's
demand but its quantile at (3 − 1)/3, and the profit to expect is one expectation under the law. Demand is a count,
and the law keeps its steps.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from ncprob import NCPRegressor, metrics, plotting

cost, price = 1.0, 3.0
rng = np.random.default_rng(0)
day = np.arange(1460)
week = 2 * np.pi * day / 7
temperature = 12 + 9 * np.sin(2 * np.pi * day / 365) + rng.normal(0, 3, len(day))
rate = np.exp(2.9 + 0.45 * np.sin(week) + 0.02 * (temperature - 12))  # Poisson demand, so the exact law is known
demand = rng.poisson(rate)
X = np.column_stack([np.sin(week), np.cos(week), temperature])

model = NCPRegressor(max_steps=300, tree_inputs=False, random_state=0).fit(X[:1400], demand[:1400])
law = model.predict_distribution(X[1400:])

# %%
# A fan chart of the last sixty days, which the model has not seen, and the profit to expect tomorrow from every
# order.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained", width_ratios=(2, 1))
plotting.plot_fan(law, demand[1400:], time=day[1400:], ax=left)
left.set(xlabel="day", ylabel="loaves")
plotting.finish(left)

orders = np.arange(5, 45)
expected = law[0].expectation(lambda d: price * np.minimum(d, orders) - cost * orders)[0]
exact_law = stats.poisson(rate[1400])
counts = np.arange(200)[:, None]
exact = exact_law.pmf(counts[:, 0]) @ (price * np.minimum(counts, orders) - cost * orders)
right.plot(orders, expected, color="#2a5caa", label="learned")
right.plot(orders, exact, "k--", linewidth=1, label="exact")
best = orders[expected.argmax()]
right.axvline(best, color="#d55e00", linewidth=1, label=f"order {best}")
right.set(xlabel="loaves ordered", ylabel="expected profit")
plotting.finish(right)

# %%
# The quantile gives the same order without the search. Over sixty days, beside ordering the mean:

fractile = (price - cost) / price
print("order by profit:", best, " by the quantile:", law[0].quantile(fractile), " exact:", exact_law.ppf(fractile))


def profit(order):
    return np.mean(price * np.minimum(demand[1400:], order) - cost * order)


exact_order = stats.poisson(rate[1400:]).ppf(fractile)
for name, order in (
    ("quantile", law.quantile(fractile)),
    ("mean", law.mean().round()),
    ("exact quantile", exact_order),
):
    print(f"mean profit a day, ordering the {name}: {profit(order):.2f}")
print(f"80 % intervals held {metrics.interval_coverage(demand[1400:], law.interval(0.8)):.0%} of the days")
assert abs(best - exact_law.ppf(fractile)) <= 4
