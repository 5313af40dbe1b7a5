"""
A time series: will the river flood in three days?
==================================================

A forecast of a river's level is a number; a warning needs a probability. Here a table of daily levels and rain becomes
pairs of "what is known today" and "the level in three days", split in the order of time. One fit then gives the band of
the coming level and the chance of a flood on every day of the last year, and both can be checked.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ncprob import NCPRegressor, TimeLaggedPairs

# %%
# Ten years of days. Wet and dry spells follow each other, the river rises with the rain and falls by a sixth each
# day. Since the rules are known, the exact chance of a flood is too: by letting many rivers run on from the same day.


def next_day(level, wet, rng):
    wet = rng.random(level.shape) < np.where(wet, 0.7, 0.1)
    rain = np.where(wet, rng.exponential(0.8, level.shape), 0.0)
    return (level * 5 / 6 + rain) * np.exp(rng.normal(0, 0.05, level.shape)), wet, rain


rng = np.random.default_rng(0)
n_days, ahead, flood = 10 * 365, 3, 2.5
levels, wets, rains = np.ones(n_days), np.zeros(n_days, dtype=bool), np.zeros(n_days)
for t in range(1, n_days):
    levels[t], wets[t], rains[t] = (part[0] for part in next_day(levels[t - 1 : t], wets[t - 1 : t], rng))
table = pd.DataFrame({"level": levels, "rain": rains}, index=pd.date_range("2013-01-01", periods=n_days, name="day"))

# %%
# Three days ahead, from level and rain of today and of the day before. Neighbouring days are alike, so nothing may be
# held out at random: training, validation and test are blocks in time with a gap between them, and the validation block
# is handed to `fit`.

pairs = TimeLaggedPairs(table, lag=ahead, targets="level", n_past=1)
train, validation, test = pairs.split((0.75, 0.15, 0.1))
model = NCPRegressor(max_steps=300, tree_inputs=False, random_state=0)
model.fit(*train.arrays(), validation_data=validation.arrays())

X, y = test.arrays()
law = model.predict_distribution(X)
low, high = law.quantile([0.1, 0.9]).T
chance = law.sf(flood)

# %%
# The exact chance: 2,000 rivers from each day of the test block.

today = test.time().numpy()
paths = np.repeat(levels[today][:, None], 2000, axis=1), np.repeat(wets[today][:, None], 2000, axis=1)
for _ in range(ahead):
    paths = next_day(*paths, rng)[:2]
exact = (paths[0] > flood).mean(axis=1)

figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 5.4), sharex=True, layout="constrained", height_ratios=(3, 2))
shown = slice(0, 200)
day = y.index[shown] + pd.Timedelta(days=ahead)  # rows are named by the day of the forecast
top.fill_between(
    day, low[shown], high[shown], color="#2a5caa", alpha=0.3, linewidth=0, label="80 % band, 3 days before"
)
top.plot(day, y[shown], "k.", markersize=3, label="level")
top.axhline(flood, color="#d55e00", linewidth=1, label="flood")
top.set(ylim=(-0.2, 6.5), ylabel="level, m", title="Days that the model has not seen")
top.legend(frameon=False, ncols=3, loc="upper left")
bottom.plot(day, chance[shown], color="#2a5caa", label="learned")
bottom.plot(day, exact[shown], "k--", linewidth=1, label="exact")
bottom.set(ylabel="chance of flood in 3 days")
bottom.legend(frameon=False, loc="upper right")

# %%
# Check it on the test block: how often the level falls into the band, overall and when the river is high, and the Brier
# score of the warning beside those of the long-run share of floods and of "as today".

covered = (low <= y) & (y <= high)
is_high = X["level"] > 2
flooded = (y > flood).to_numpy(dtype=float)
share = (table["level"].iloc[: len(train)] > flood).mean()
briers = {"model": chance, "exact": exact, "share": share, "as today": (X["level"] > flood).to_numpy(dtype=float)}
print(f"80 % band covers {covered.mean():.1%} of {len(y)} days")
print(f"… and {covered[is_high].mean():.1%} of the {is_high.sum()} days after a level above 2 m")
print("Brier score:", {name: round(float(np.mean((p - flooded) ** 2)), 4) for name, p in briers.items()})
print(f"mean distance from the exact chance: {np.abs(chance - exact).mean():.3f}")
assert abs(covered.mean() - 0.8) < 0.07
assert np.abs(chance - exact).mean() < 0.04
