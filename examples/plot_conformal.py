"""
Conformal: intervals that keep their promise
============================================

Last year's model meets this year's noise: it promises 90 % and delivers less. Rows of this year show by how much, and
correct every level at once. For any model and any law the calibrated interval covers at least as often as asked, on
average over calibration rows and new rows that are alike.
"""

import matplotlib.pyplot as plt
import numpy as np

from ncprob import NCPRegressor, metrics

rng = np.random.default_rng(0)


def draw(n, noise):
    x = rng.uniform(-2, 2, (n, 1))
    return x, np.sin(2 * x[:, 0]) + noise * (0.1 + 0.3 * np.abs(x[:, 0])) * rng.standard_t(4, n)


# %%
# The noise has nearly doubled since the fit. 300 new rows calibrate the old model; nothing is retrained.

X, y = draw(800, noise=0.6)
old = NCPRegressor(max_steps=200, random_state=0).fit(X, y)
X_cal, y_cal = draw(300, noise=1.0)
calibrated = old.conformalize(X_cal, y_cal)

X_new, y_new = draw(4000, noise=1.0)
coverages = np.linspace(0.1, 0.95, 18)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot([0, 1], [0, 1], "k--", linewidth=1, label="promised")
reached = {}
for name, model, color in (("old", old, "#d55e00"), ("calibrated", calibrated, "#2a5caa")):
    intervals = model.predict_interval(X_new, coverage=coverages, kind="central")
    inside = (intervals[:, 0] <= y_new[:, None]) & (y_new[:, None] <= intervals[:, 1])
    reached[name] = inside.mean(axis=0)
    left.plot(coverages, reached[name], "o-", markersize=4, color=color, label=name)
left.set(xlabel="coverage asked for", ylabel="share of new rows inside", title="All levels by one calibration")
left.legend(frameon=False)

grid = np.linspace(-2, 2, 150)[:, None]
right.plot(X_new[:600, 0], y_new[:600], ".", color="0.75", markersize=3)
for model, color in ((old, "#d55e00"), (calibrated, "#2a5caa")):
    right.plot(grid, model.predict_interval(grid, coverage=0.9, kind="central"), color=color)
right.set(xlabel="x", ylabel="y", ylim=(-4, 4), title="90 % intervals")

# %%
# The correction is one level for all x: calibrated intervals keep the shape that the model has learned.

for name, model in (("old", old), ("calibrated", calibrated)):
    interval = model.predict_interval(X_new, coverage=0.9)
    coverage, width = metrics.interval_coverage(y_new, interval), metrics.interval_width(interval)
    print(f"{name:10}  coverage {coverage:.3f}  mean width {width:.2f}")

# %%
# Given the calibration rows, the coverage on new rows varies like a Beta law; three of its standard deviations with
# 300 rows are about 0.05.

assert np.abs(reached["calibrated"] - coverages).max() < 0.1
