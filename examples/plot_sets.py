"""
Sets of conditions, and the way back
====================================

"Given X = 1.37" is rarely the question. More often it is "given that X is above average", or backwards: "Y was high;
what may X have been?". Both are answered by the model that was fitted, without retraining.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from ncprob import Box, NCPRegressor, datasets

rho = 0.8
X, y = datasets.GaussianPair(rho=rho).sample(2000, random_state=0)
model = NCPRegressor(max_steps=1000, random_state=0).fit(X, y)

# %%
# A set is a ``Box``, any function that gives a mask, or a mask over the training rows. For a pair of normal variables
# all answers are known.

both = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]])
exact_both = both.cdf([-0.5, -1.0])  # P(X > 0.5, Y > 1), by symmetry
rows = {
    "P(Y > 1 | X > 0.5)": (model.given(Box(0.5, np.inf)).sf(1.0)[0], exact_both / stats.norm.sf(0.5)),
    "E[Y | X > 0.5]": (model.given(Box(0.5, np.inf)).mean()[0], rho * stats.norm.pdf(0.5) / stats.norm.sf(0.5)),
    "E[Y | |X| > 1]": (model.given(lambda x: np.abs(x[:, 0]) > 1).mean()[0], 0.0),
    "P(X > 0.5 | Y > 1)": (model.given_target((1, np.inf)).sf(0.5)[0], exact_both / stats.norm.sf(1)),
    "E[X | Y > 1]": (model.given_target((1, np.inf)).mean()[0], rho * stats.norm.pdf(1) / stats.norm.sf(1)),
}
print("question              learned   exact")
for question, (learned, exact) in rows.items():
    print(f"{question:20} {learned:8.3f} {exact:8.3f}")
    assert abs(learned - exact) < 0.12

# %%
# The laws behind these numbers: Y given a slab of X, and X given a high Y, which Bayes' rule gives as φ(x) Φ((ρx −
# 1)/√(1 − ρ²)) / P(Y > 1).

grid = np.linspace(-3.5, 3.5, 400)
spread = np.sqrt(1 - rho**2)
slab = model.given(Box(-1.5, -0.5))
exact_slab = (
    stats.norm.pdf(grid) * np.diff(stats.norm.cdf((np.array([[-1.5], [-0.5]]) - rho * grid) / spread), axis=0)[0]
)
exact_slab /= stats.norm.cdf(-0.5) - stats.norm.cdf(-1.5)
backwards = model.given_target((1, np.inf))
exact_backwards = stats.norm.pdf(grid) * stats.norm.cdf((rho * grid - 1) / spread) / stats.norm.sf(1)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
axes[0].plot(X[:, 0], y, ".", color="0.7", markersize=2)
axes[0].axvspan(-1.5, -0.5, color="#2a5caa", alpha=0.2, linewidth=0)
axes[0].axhspan(1, 3.6, color="#d55e00", alpha=0.2, linewidth=0)
axes[0].set(xlabel="x", ylabel="y", ylim=(-3.6, 3.6), title="One fit, two sets")
for ax, law, exact, color in ((axes[1], slab, exact_slab, "#2a5caa"), (axes[2], backwards, exact_backwards, "#d55e00")):
    ax.fill_between(grid, law.pdf(grid)[0], color=color, alpha=0.35, linewidth=0, label="learned")
    ax.plot(grid, exact, "k--", linewidth=1, label="exact")
    ax.legend(frameon=False, loc="upper left")
axes[1].set(xlabel="y", title="Y given −1.5 < X ≤ −0.5")
axes[2].set(xlabel="x", title="X given Y > 1")
