"""
Heavy tails: no mean, no problem
================================

Under a Cauchy law one value in a hundred is enormous, and the mean does not exist: averages of more and more rows
never settle. Least squares is lost here. Quantiles exist, and a law made of observed values keeps its tails as
far out as there are rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from ncprob import NCPRegressor, datasets

simulator = datasets.Cauchy()  # Y given x is Cauchy with location x² and scale 1 + x
X, y = simulator.sample(2000, random_state=1)
print(f"largest |y|: {np.abs(y).max():,.0f}; median |y|: {np.median(np.abs(y)):.1f}")
model = NCPRegressor(max_steps=500, random_state=0).fit(X, y)

# %%
# Quantiles from 5 to 95 %, beside the exact ones.

grid = np.linspace(0.1, 4.9, 100)[:, None]
levels = [0.05, 0.25, 0.5, 0.75, 0.95]
learned, exact = model.predict_quantiles(grid, alpha=levels), simulator.truth(grid).quantile(levels)

# Least squares with the right formula, on eight data sets of the same law: one wild value bends the whole curve.
samples = [simulator.sample(2000, random_state=seed) for seed in range(8)]
least_squares = [
    LinearRegression().fit(np.hstack([a, a**2]), b).predict(np.hstack([grid, grid**2])) for a, b in samples
]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot(X[:, 0], y, ".", color="0.8", markersize=3)
left.plot(grid, learned, color="#2a5caa")
left.plot(grid, exact, "k--", linewidth=1)
left.plot(grid, np.transpose(least_squares), color="#d55e00", linewidth=0.7, alpha=0.8)
left.set(ylim=(-60, 90), xlabel="x", ylabel="y", title="Five quantiles (dashed: exact) and eight least squares fits")

# The tail itself, on logarithmic axes: a straight line of slope −1 is Cauchy's signature.
tail = np.geomspace(2, 300, 60)
at = [[3.0]]
right.loglog(tail, model.predict_distribution(at).sf(9 + tail)[0], color="#2a5caa", label="learned")
right.loglog(tail, 1 - simulator.truth(at).cdf(9 + tail)[0], "k--", label="exact")
right.set(xlabel="t", ylabel="P(Y > 9 + t)", title="The upper tail at x = 3")
right.legend(frameon=False)

# %%
# The law's ``mean()`` is a number, since a finite sample has one, but it means nothing here. Ask for what exists:
# medians, quantiles, probabilities.

error = np.abs(learned[:, 1:4] - exact[:, 1:4]) / (1 + grid)  # in units of the scale
print("mean error of the quartiles, in scales of the law:", error.mean(axis=0).round(3))
print(
    "P(Y > 50 | x = 3):",
    model.predict_distribution(at).sf(50.0).round(3),
    " exact",
    1 - simulator.truth(at).cdf([50.0])[0].round(3),
)
assert error.mean() < 0.25
