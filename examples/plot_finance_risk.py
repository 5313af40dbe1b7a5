"""
Finance: value at risk and expected shortfall
=============================================

How much can be lost tomorrow? Not "on average": on the worst day in a hundred (value at risk), and how bad such days
are on average (expected shortfall). Both are functions of the law of tomorrow's return given what is known tonight,
so one fit gives both, at every level.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from ncprob import NCPRegressor

# %%
# Daily returns in percent with volatility that clusters and rises after losses, and Student's t shocks with 5 degrees
# of freedom: the law of tomorrow's return is known exactly.

rng = np.random.default_rng(0)
freedom, days = 5, 2500
shocks = rng.standard_t(freedom, days) / np.sqrt(freedom / (freedom - 2))
volatility, returns = np.ones(days), np.zeros(days)
for t in range(1, days):
    fear = 0.03 if returns[t - 1] > 0 else 0.16
    volatility[t] = np.sqrt(0.04 + 0.88 * volatility[t - 1] ** 2 + fear * returns[t - 1] ** 2)
    returns[t] = 0.03 + volatility[t] * shocks[t]

# Tonight we know today's return and a volatility index; its logarithm, since volatility is a scale.
X = np.column_stack([returns[:-1], np.log(volatility[:-1])])
y, exact_scale = returns[1:], volatility[1:]
train, test = slice(0, 2000), slice(2000, None)
model = NCPRegressor(max_steps=300, tree_inputs=False, random_state=0).fit(X[train], y[train])
law = model.predict_distribution(X[test])

# %%
# Value at risk is a quantile; expected shortfall follows from it by one more expectation, ES = q − E[(q − Y)₊] / α.

alpha = 0.025
var = law.quantile(alpha)
shortfall = np.array(
    [part.expectation(lambda r, q=q: np.maximum(q - r, 0))[0] for part, q in zip(law, var, strict=True)]
)
expected_shortfall = var - shortfall / alpha

unit = np.sqrt((freedom - 2) / freedom) * exact_scale[test]
q = stats.t.ppf(alpha, freedom)
exact_var = 0.03 + unit * q
exact_es = 0.03 - unit * stats.t.pdf(q, freedom) * (freedom + q**2) / ((freedom - 1) * alpha)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained", width_ratios=(2, 1))
day = np.arange(len(var))
left.plot(day, y[test], ".", color="0.6", markersize=3, label="return")
left.plot(day, var, color="#2a5caa", linewidth=1, label="value at risk, 2.5 %")
left.plot(day, expected_shortfall, color="#d55e00", linewidth=1, label="expected shortfall")
left.plot(day[y[test] < var], y[test][y[test] < var], "kx", markersize=5, label="worse than value at risk")
left.set(xlabel="day", ylabel="return, %", title="Nights to come, none of them seen in training")
left.legend(frameon=False, ncols=2, fontsize="small", loc="lower left")
right.plot(exact_var, var, ".", markersize=3, color="#2a5caa", label="value at risk")
right.plot(exact_es, expected_shortfall, ".", markersize=3, color="#d55e00", label="expected shortfall")
ends = [exact_es.min(), exact_var.max()]
right.plot(ends, ends, "k--", linewidth=1)
right.set(xlabel="exact", ylabel="learned", title="Beside the truth")
right.legend(frameon=False, fontsize="small")

# %%
# After the wildest days few training nights were alike: there the value at risk comes out a little too small and the
# expected shortfall, a mean over the far tail, too deep. (With plain volatility instead of its logarithm the spike was
# about twice as deep.) The further out a question lies, the fewer rows its answer rests on.

wild = X[test][:, 1] > np.log(2)
print(f"training nights with a volatility above 2: {np.sum(X[train][:, 1] > np.log(2))} of 2000")
print(f"learned/exact there: value at risk {np.mean((var / exact_var)[wild]):.2f}, "
      f"expected shortfall {np.mean((expected_shortfall / exact_es)[wild]):.2f}")  # fmt: skip

# %%
# The back test that a regulator would run: count the days below the value at risk.

print(f"days below value at risk: {np.mean(y[test] < var):.1%} (asked: {alpha:.1%})")
print(f"mean relative error: value at risk {np.mean(np.abs(var / exact_var - 1)):.1%}, "
      f"expected shortfall {np.mean(np.abs(expected_shortfall / exact_es - 1)):.1%}")  # fmt: skip
assert np.mean(np.abs(var / exact_var - 1)) < 0.25
