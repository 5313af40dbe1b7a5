"""
For researchers: the spectrum of a Gaussian pair
================================================

Below the estimators lies the operator itself. For two normal variables with correlation ρ it is known to the last
detail (Mehler's formula): the singular values are ρ, ρ², ρ³, … and the singular functions are Hermite polynomials.
Two small networks find them from samples.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import ncprob
from ncprob import datasets
from ncprob.encoders import MLP

rho, rank = 0.8, 6
pair = datasets.GaussianPair(rho=rho)
x, y = (torch.tensor(a, dtype=torch.float32).reshape(-1, 1) for a in pair.sample(4000, random_state=0))

torch.manual_seed(0)
operator = ncprob.SpectralOperator(MLP(1, (64, 64), rank), MLP(1, (64, 64), rank), rank=rank)
history = ncprob.train(
    operator, (x, y), loss="covariance", gamma=1e-2, max_steps=800, learning_rate=3e-3, random_state=0, progress=False
)
operator.postprocess((x, y), kind="whitening")

# %%
# Learned values beside ρᵏ, and the first three functions of x beside the normalised Hermite polynomials. Signs are
# free, so they are matched.

values = operator.singular_values.detach().numpy()
grid = np.linspace(-2.2, 2.2, 200)
with torch.no_grad():
    features = operator.left_features(torch.tensor(grid, dtype=torch.float32)[:, None]).numpy()
hermite = np.column_stack([grid, (grid**2 - 1) / np.sqrt(2), (grid**3 - 3 * grid) / np.sqrt(6)])

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
place = np.arange(1, rank + 1)
left.bar(place, values, color="#2a5caa", alpha=0.6, label="learned")
left.plot(place, pair.singular_values(rank), "k_", markersize=22, label="exact, ρᵏ")
left.set(xlabel="k", ylabel="singular value")
left.legend(frameon=False)
for k, color in enumerate(("#2a5caa", "#d55e00", "#009e73")):
    sign = np.sign(features[:, k] @ hermite[:, k])
    right.plot(grid, sign * features[:, k], color=color, label=f"u{k + 1}")
    right.plot(grid, hermite[:, k], "--", color=color, linewidth=1)
right.set(xlabel="x", title="Singular functions; dashed: Hermite polynomials")
right.legend(frameon=False)

print("learned", values.round(3))
print("exact  ", pair.singular_values(rank).round(3))
assert np.abs(values[:2] - pair.singular_values(2)).max() < 0.1
