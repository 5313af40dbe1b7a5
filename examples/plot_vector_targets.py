"""
Two targets: the joint law
==========================

Two rivers flood a town if both are high. Each alone is no danger, so two separate forecasts cannot tell: it is their
joint law given the rain upstream that matters, and its dependence changes with the rain.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import multivariate_normal

from ncprob import Box, NCPRegressor, plotting

# %%
# Levels of two rivers given the rain x ∈ (0, 1): little rain falls here or there, a storm falls on both.

rng = np.random.default_rng(0)


def correlation(x):
    return 1.8 * x - 0.9


X = rng.uniform(0, 1, (2000, 1))
rho = correlation(X[:, 0])
noise = rng.normal(size=(2000, 2))
noise[:, 1] = rho * noise[:, 0] + np.sqrt(1 - rho**2) * noise[:, 1]
Y = X * [2.0, 1.5] + 0.6 * noise

# %%
# The operator learns how the targets vary together given rain.

model = NCPRegressor(coordinates="residual", max_steps=600, random_state=0).fit(X, Y)

# %%
# The smallest regions that hold 50, 80 and 95 %: from a slope down to a slope up.

rain = np.array([[0.1], [0.5], [0.9]])
law = model.predict_distribution(rain)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained", sharex=True, sharey=True)
mesh = np.stack(np.meshgrid(np.linspace(-2, 4, 100), np.linspace(-2, 4, 100)), axis=-1)
for ax, part, x in zip(axes, law, rain[:, 0], strict=True):
    plotting.plot_joint(part, names=["first river", "second river"], ax=ax)
    exact = multivariate_normal(x * np.array([2.0, 1.5]), 0.36 * np.array([[1, correlation(x)], [correlation(x), 1]]))
    peak = exact.pdf(exact.mean)
    ax.contour(
        *np.moveaxis(mesh, -1, 0), exact.pdf(mesh), levels=peak * np.array([0.05, 0.2, 0.5]), colors="k", linewidths=0.7
    )
    ax.set_title(f"rain {x}", loc="left", pad=32)
    plotting.finish(ax)
for ax in axes:
    ax.set(xlim=(-1.8, 3.8), ylim=(-1.8, 3.6))

# %%
# The chance of a flood, both above 1.5, beside the truth and beside what two independent forecasts would say.

flood = Box([1.5, 1.5], [np.inf, np.inf])
probability = law.prob(flood)
separate = law.sf(1.5).prod(axis=1)
print("rain   joint law   exact   two separate forecasts")
for x, p, s in zip(rain[:, 0], probability, separate, strict=True):
    exact = multivariate_normal(
        -x * np.array([2.0, 1.5]), 0.36 * np.array([[1, correlation(x)], [correlation(x), 1]])
    ).cdf([-1.5, -1.5])
    print(f"{x:4.1f} {p:11.3f} {exact:7.3f} {s:14.3f}")
    assert abs(p - exact) < 0.12
print(
    "\ncorrelations:",
    [round(float(c[0, 1] / np.sqrt(c[0, 0] * c[1, 1])), 2) for c in law.cov()],
    "exact",
    correlation(rain[:, 0]).round(2),
)
