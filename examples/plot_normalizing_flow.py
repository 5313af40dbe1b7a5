"""
Beside a normalizing flow
=========================

A conditional flow learns an increasing map z(y; x) that makes Y normal; its density follows by the change of
variables. It is smooth, fast to sample and strong where laws have one bulk. Sharp gaps and separate modes need steep
maps. Here is a small one in plain torch: a sum of sigmoids with weights from a network (Huang et al. 2018), trained
by maximum likelihood.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

from ncprob import NCPRegressor, datasets, metrics, plotting

simulator = datasets.TwoRegimes()
X, y = simulator.sample(1500, random_state=0)


class Flow(nn.Module):
    """z(y; x) = b + a y + Σ_k w_k tanh(c_k y + d_k) with a, w_k, c_k > 0 from a network of x."""

    def __init__(self, units=8):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2 + 3 * units)
        )

    def forward(self, x, y):
        parameters = self.network(x)
        shift, slope = parameters[:, :1], softplus(parameters[:, 1:2])
        weight, steepness, place = parameters[:, 2:].chunk(3, dim=1)
        weight, steepness = softplus(weight), softplus(steepness)
        bend = torch.tanh(steepness[:, None] * y[..., None] + place[:, None])
        z = shift + slope * y + (weight[:, None] * bend).sum(-1)
        return z, slope + (weight[:, None] * steepness[:, None] * (1 - bend**2)).sum(-1)


torch.manual_seed(0)
flow, normal = Flow(), torch.distributions.Normal(0.0, 1.0)
x_rows, y_rows = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]
optimizer = torch.optim.AdamW(flow.parameters(), lr=3e-3, weight_decay=0.01)
for _ in range(600):
    batch = torch.randint(len(y), (256,))
    z, derivative = flow(x_rows[batch], y_rows[batch])
    loss = -(normal.log_prob(z) + derivative.log()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

model = NCPRegressor(max_steps=500, random_state=0).fit(X, y)

# %%
# Both beside the truth: one bulk, the split, two branches.

points, grid = np.array([[-2.0], [0.8], [2.2]]), np.linspace(-2.5, 3.2, 400)


def flow_law(points):
    """Density and distribution function of the flow on the grid."""
    with torch.no_grad():
        z, derivative = flow(
            torch.tensor(points, dtype=torch.float32), torch.tensor(grid, dtype=torch.float32).expand(len(points), -1)
        )
        return (normal.log_prob(z).exp() * derivative).numpy(), normal.cdf(z).numpy()


figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
law, truth = model.predict_distribution(points), simulator.truth(points)
for i, ax in enumerate(axes):
    ax.plot(grid, law.pdf(grid)[i], color="#2a5caa", label="ncprob")
    ax.plot(grid, flow_law(points)[0][i], color="#d55e00", label="flow")
    ax.plot(grid, truth.pdf(grid)[i], "k--", linewidth=1, label="exact")
    ax.set_xlabel(f"y given x = {points[i, 0]}")
    plotting.finish(ax)

# %%
# Distance to the exact laws over 19 values of x. One problem, one seed and a small flow: a picture, not a ranking;
# the `benchmarks <../benchmarks.html>`_ have more.

x = simulator.conditioning_points(X)
exact = simulator.truth(x).cdf(grid)
print(f"Kolmogorov–Smirnov distance: ncprob {metrics.ks_distance(model.predict_distribution(x).cdf(grid), exact):.3f}, "
      f"flow {metrics.ks_distance(flow_law(x)[1], exact):.3f}")  # fmt: skip
