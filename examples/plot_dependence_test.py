"""
Dependence that correlation cannot see
======================================

Correlation looks for straight lines. The singular values of the conditional expectation operator vanish only under
independence, so a test built on them sees any shape, and its p-value is exact: it is a permutation test on rows that
had no part in the learning.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from ncprob.dependence import independence_test, measure_dependence

rng = np.random.default_rng(0)
n = 500
angle, x = rng.uniform(0, 2 * np.pi, n), rng.normal(size=n)
pairs = {
    "independent": (x, rng.normal(size=n)),
    "line": (x, 0.4 * x + rng.normal(size=n)),
    "circle": (np.cos(angle) + 0.15 * rng.normal(size=n), np.sin(angle) + 0.15 * rng.normal(size=n)),
    "only the spread": (x, np.exp(0.7 * x) * rng.normal(size=n)),
}

# %%
# One panel per shape: Pearson's p-value beside that of the operator.

figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
p_values = {}
for ax, (name, (a, b)) in zip(axes, pairs.items(), strict=True):
    p_values[name] = independence_test(a[:, None], b, n_permutations=199, random_state=0).pvalue
    ax.plot(a, b, ".", markersize=3, color="#2a5caa")
    ax.set(
        xlabel="x",
        ylabel="y",
        title=f"{name}\nPearson p = {stats.pearsonr(a, b).pvalue:.3f}\noperator p = {p_values[name]:.3f}",
    )

# With 199 permutations the smallest p-value is 1/200.
assert max(p_values[name] for name in ("line", "circle", "only the spread")) < 0.05

# %%
# How strong is it? For a Gaussian pair with correlation ρ the maximal correlation is ρ and the χ² dependence ρ²/(1 −
# ρ²). Estimates from held-out rows err on the low side.

rho = 0.7
b = rho * x + np.sqrt(1 - rho**2) * rng.normal(size=n)
found = measure_dependence(x[:, None], b, random_state=0)
print(f"maximal correlation {found.maximal_correlation:.2f}, exact {rho}")
print(f"χ² dependence {found.chi2:.2f}, exact {rho**2 / (1 - rho**2):.2f}")
assert abs(found.maximal_correlation - rho) < 0.2

# %%
# For a straight line in few rows distance correlation is the more powerful test: it needs no rows for learning. The
# `benchmarks <../benchmarks.html>`_ show both.
