"""
Beside a quantile forest
========================

A quantile regression forest also answers with weighted training rows: its weights count shared leaves. It is quick,
robust and needs no tuning, a strong choice on large, rough tables. Here a smooth law with two modes shows what leaves
cost: steps, and a blur across each leaf.
"""

import matplotlib.pyplot as plt
import numpy as np

from ncprob import NCPRegressor, datasets, metrics

try:
    from quantile_forest import RandomForestQuantileRegressor
except ImportError:  # an optional rival: everything below works without it
    RandomForestQuantileRegressor = None

simulator = datasets.TwoRegimes()
X, y = simulator.sample(1500, random_state=0)
levels = np.arange(0.01, 1.0, 0.01)
points = np.linspace(-2.8, 2.8, 100)[:, None]
exact = simulator.truth(points).quantile(levels)
model = NCPRegressor(max_steps=500, random_state=0).fit(X, y)
answers = {"ncprob": lambda x: model.predict_quantiles(x, alpha=levels)}
if RandomForestQuantileRegressor is None:
    print("quantile-forest is not installed: pip install quantile-forest")
else:
    forest = RandomForestQuantileRegressor(n_estimators=200, min_samples_leaf=10, random_state=0).fit(X, y)
    answers["quantile-forest"] = lambda x: forest.predict(x, quantiles=list(levels))

# %%
# Every tenth quantile along x. Dashed: exact.

figure, axes = plt.subplots(
    1, len(answers), figsize=(5 * len(answers), 3.8), layout="constrained", sharey=True, squeeze=False
)
for ax, (name, answer) in zip(axes[0], answers.items(), strict=True):
    quantiles = answer(points)
    ax.plot(points, quantiles[:, 9::10], color="#2a5caa", linewidth=1)
    ax.plot(points, exact[:, 9::10], "k--", linewidth=0.6)
    ax.set(title=name, xlabel="x")
axes[0, 0].set_ylabel("quantiles 10, 20, …, 90 %")

# %%
# The distance between laws is the mean error of a quantile (Wasserstein's W₁); CRPS is the score on new rows, lower
# is better.

X_new, y_new = simulator.sample(2000, random_state=1)
answers["exact law"] = lambda x: simulator.truth(x).quantile(levels)
for name, answer in answers.items():
    error = np.abs(answer(points) - exact).mean()
    crps = metrics.crps_from_quantiles(y_new, answer(X_new), levels)
    print(f"{name:16} mean error of a quantile {error:.3f}, CRPS {crps:.4f}")

# %%
# One problem, one seed: a picture, not a ranking. On the table called protein of the `benchmarks
# <../benchmarks.html>`_ the forest is ahead of all boosting methods.
