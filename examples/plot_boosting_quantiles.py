"""
Beside gradient boosting, one model per quantile
================================================

Quantile boosting fits one model for every level. The models do not know of each other, so quantiles may cross, and a
level that was not asked for needs another fit. A law learned once has all levels, in order.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from ncprob import NCPRegressor, datasets, metrics

simulator = datasets.EconDensity()  # Y given x is normal with mean x² and standard deviation 1 + x
X, y = simulator.sample(1500, random_state=0)
levels = np.arange(0.05, 1.0, 0.05)

start = time.perf_counter()
boosted = [
    HistGradientBoostingRegressor(
        loss="quantile", quantile=level, max_iter=60, learning_rate=0.1, max_leaf_nodes=8
    ).fit(X, y)
    for level in levels
]
print(f"boosting: {len(levels)} fits, {time.perf_counter() - start:.1f} s")
start = time.perf_counter()
model = NCPRegressor(max_steps=300, random_state=0).fit(X, y)
print(f"ncprob: 1 fit, {time.perf_counter() - start:.1f} s")

# %%
# The same levels from both, beside the exact ones.

grid = np.linspace(0.02, 2.4, 120)[:, None]
answers = {
    f"boosting, {len(levels)} models": np.column_stack([part.predict(grid) for part in boosted]),
    "ncprob, 1 model": model.predict_quantiles(grid, alpha=levels),
}
exact = simulator.truth(grid).quantile(levels)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
for ax, (name, quantiles) in zip(axes, answers.items(), strict=True):
    ax.plot(X[:, 0], y, ".", color="0.85", markersize=2)
    ax.plot(grid, quantiles[:, ::3], color="#2a5caa", linewidth=1)
    ax.plot(grid, exact[:, ::3], "k--", linewidth=0.7)
    ax.set(title=name, xlabel="x", xlim=(0, 2.4), ylim=(-6, 14))
axes[0].set_ylabel("y; dashed: exact quantiles")

# %%
# Crossings, and the mean error of a quantile.

for name, quantiles in answers.items():
    crossed = np.mean((np.diff(quantiles, axis=1) < 0).any(axis=1))
    print(f"{name:20} crossing at {crossed:4.0%} of the points, mean error {np.abs(quantiles - exact).mean():.2f}")
assert (np.diff(answers["ncprob, 1 model"], axis=1) >= 0).all()

# %%
# With many rows, many inputs and two or three levels that are known beforehand, boosting is hard to beat for its
# price.

X_new, y_new = simulator.sample(2000, random_state=1)
scores = {
    "boosting": metrics.pinball_loss(y_new, np.column_stack([part.predict(X_new) for part in boosted]), levels),
    "ncprob": metrics.pinball_loss(y_new, model.predict_quantiles(X_new, alpha=levels), levels),
    "exact law": metrics.pinball_loss(y_new, simulator.truth(X_new).quantile(levels), levels),
}
print("pinball loss on new rows:", {name: round(float(score), 3) for name, score in scores.items()})
