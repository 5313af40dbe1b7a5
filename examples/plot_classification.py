"""
Classes: probabilities that mean what they say
==============================================

A classifier's label hides how sure it is. ``NCPClassifier`` learns class probabilities with the same operator; here
three overlapping clusters have exact ones, by Bayes' rule, so we can see whether "70 %" is right seven times in ten.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from ncprob import Box, NCPClassifier

rng = np.random.default_rng(0)
names = np.array(["calm", "rain", "storm"])
clusters = [
    stats.multivariate_normal(mean, cov)
    for mean, cov in (
        ([0, 0], [[1, 0.3], [0.3, 0.6]]),
        ([2, 0.5], [[0.6, -0.3], [-0.3, 0.8]]),
        ([1, 2.5], [[1.2, 0.5], [0.5, 0.5]]),
    )
]


def exact(x):
    """P(class | x) for classes that are equally frequent."""
    joint = np.stack([cluster.pdf(x) for cluster in clusters], axis=-1)
    return joint / joint.sum(axis=-1, keepdims=True)


def draw(n):
    label = rng.integers(3, size=n)
    return np.array([clusters[k].rvs(random_state=rng) for k in label]), names[label]


X, y = draw(1500)
model = NCPClassifier(max_steps=400, random_state=0).fit(X, y)

# %%
# Probabilities of one class over the plane, beside the exact ones; the contours are at 10, 50 and 90 %. Where there are
# no rows, as in the upper left, nothing can be learned.

mesh = np.stack(np.meshgrid(np.linspace(-3, 5, 90), np.linspace(-3, 5, 90)), axis=-1)
learned = model.predict_proba(mesh.reshape(-1, 2)).reshape(90, 90, 3)
figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
for ax, probability, title in ((axes[0], learned, "P(rain), learned"), (axes[1], exact(mesh), "P(rain), exact")):
    picture = ax.contourf(mesh[..., 0], mesh[..., 1], probability[..., 1], levels=np.linspace(0, 1, 11), cmap="Blues")
    ax.contour(mesh[..., 0], mesh[..., 1], probability[..., 1], levels=[0.1, 0.5, 0.9], colors="k", linewidths=0.7)
    ax.set(title=title, xlabel="pressure", ylabel="humidity")
figure.colorbar(picture, ax=axes[:2].tolist(), shrink=0.9)

# Reliability: among rows with a predicted probability near p, how often was it that class?
X_new, y_new = draw(3000)
predicted = model.predict_proba(X_new)
for k, name in enumerate(model.classes_):
    bins = np.digitize(predicted[:, k], np.linspace(0, 1, 11)[1:-1])
    filled = [b for b in range(10) if (bins == b).sum() > 30]
    axes[2].plot(
        [predicted[bins == b, k].mean() for b in filled],
        [(y_new == name)[bins == b].mean() for b in filled],
        "o-",
        markersize=4,
        label=name,
    )
axes[2].plot([0, 1], [0, 1], "k--", linewidth=1)
axes[2].set(xlabel="said", ylabel="happened", title="3,000 new rows")
axes[2].legend(frameon=False)

# %%
# The best accuracy that any rule can have is that of the exact probabilities.

error = np.abs(predicted - exact(X_new)).mean()
best = np.mean(names[exact(X_new).argmax(axis=1)] == y_new)
print(
    f"accuracy {model.score(X_new, y_new):.3f}, best possible {best:.3f}; mean error of the probabilities {error:.3f}"
)
high = model.given(Box([2, -np.inf], [np.inf, np.inf]))  # pressure above 2, any humidity
chances = [high.prob((k - 0.5, k + 0.5))[0].round(2).item() for k in range(3)]
print("given a pressure above 2:", dict(zip(model.classes_.tolist(), chances, strict=True)))
assert error < 0.08
