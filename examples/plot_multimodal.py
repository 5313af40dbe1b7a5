"""
The mean that never happens
===========================

A road forks: to the left of zero there is one branch, to the right two. A regression answers with the middle of the
fork, where no value ever lies. The law of Y given X = x shows both branches, how likely each is, and a region with a
gap where there is nothing.
"""

import matplotlib.pyplot as plt
import numpy as np

from ncprob import NCPRegressor, datasets, metrics, plotting

simulator = datasets.TwoRegimes()
X, y = simulator.sample(1500, random_state=0)
model = NCPRegressor(max_steps=500, random_state=0).fit(X, y)

# %%
# One fit, three conditions. Dashed: the exact densities, which the simulator knows.

points = np.array([[-2.0], [0.8], [2.2]])
law, truth = model.predict_distribution(points), simulator.truth(points)
grid = np.linspace(-2.5, 3.2, 500)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot(X[:, 0], y, ".", color="0.75", markersize=2)
plotting.plot_bands(model, np.linspace(-3, 3, 150), ax=left)
left.set_title("Bands span the empty gap", loc="left", pad=32)
plotting.plot_density(law, grid, labels=["x = −2", "x = 0.8", "x = 2.2"], ax=right)
right.plot(grid, truth.pdf(grid).T, "k--", linewidth=1)
right.set_title("Densities show it; dashed: exact", loc="left", pad=32)
for ax in (left, right):
    plotting.finish(ax)

# %%
# At x = 2.2 the mean lies between the branches. The shortest 90 % interval must cover the gap; the highest-density
# region comes in two pieces.

fork = law[2]
print("mean                      ", fork.mean().round(2), " exact", truth.mean()[2].round(2))
print("density there             ", fork.pdf(fork.mean()).ravel().round(3))
print("shortest 90 % interval    ", fork.interval(0.9).round(2))
print("90 % highest-density region", fork.highest_density_region(0.9)[0].round(2).tolist())
print("P(Y > 0.8)                ", fork.sf(0.8).round(2), " exact", (1 - truth.cdf([0.8])[2]).round(2))

# %%
# How close are the laws? The Kolmogorov–Smirnov distance is the largest error of any probability P(Y ≤ t), here
# averaged over 19 values of x.

x = simulator.conditioning_points(X)
distance = metrics.ks_distance(model.predict_distribution(x).cdf(grid), simulator.truth(x).cdf(grid))
print(f"mean Kolmogorov–Smirnov distance to the exact laws: {distance:.3f}")
assert distance < 0.1
