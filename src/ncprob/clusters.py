"""Cluster-weighted models: mixtures of Gaussians of (X, Y) by EM, read as laws of Y given X."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

ROUNDS = 100
ROWS = 8_192  # EM sees at most so many; it only starts a training that sees all
TOLERANCE = 1e-6  # gain of the mean log likelihood in a round below which EM stops
LEAST_SPREAD = 1e-2  # of a cluster along an input, in units of the scaled input
RIDGE = 1e-3  # rows of prior weight in each regression


@dataclass(frozen=True)
class Clusters:
    """k clusters: X is N(centres, spreads²) with independent components, and Y given X is N(offset + slope·x, scale²).

    By Bayes' rule Y given X is a mixture whose log weights are quadratic in x (Gershenfeld, Schoner & Metois 1999,
    Nature 397): log w_k(x) = log share_k − Σ_j log spread_kj − Σ_j (x_j − centre_kj)²/(2 spread_kj²) + a constant.
    """

    shares: Float[Tensor, " k"]
    centres: Float[Tensor, "k inputs"]
    spreads: Float[Tensor, "k inputs"]
    offsets: Float[Tensor, " k"]
    slopes: Float[Tensor, "k inputs"]
    scales: Float[Tensor, " k"]

    def weight_terms(self) -> tuple[Tensor, Tensor, Tensor]:
        """log w_k(x) as constant (k,), coefficients of x and of x² − 1, both (k, inputs)."""
        precision = self.spreads.pow(-2)
        constant = self.shares.log() - self.spreads.log().sum(dim=1)
        constant = constant - ((self.centres.square() + 1) * precision).sum(dim=1) / 2
        return constant - constant.mean(), self.centres * precision, -precision / 2

    def log_joint(self, x: Float[Tensor, "n inputs"], z: Float[Tensor, " n"]) -> Float[Tensor, "n k"]:
        """log of share times density of each cluster at (x, z)."""
        constant = self.shares.log() - self.spreads.log().sum(dim=1) - self.scales.log()
        far = ((x[:, None] - self.centres) / self.spreads).square().sum(dim=2)
        off = ((z[:, None] - self.offsets - x @ self.slopes.mT) / self.scales).square()
        return constant - (far + off + (x.shape[1] + 1) * math.log(2 * math.pi)) / 2


def fit_clusters(
    x: Float[Tensor, "n inputs"], z: Float[Tensor, " n"], weights: Tensor | None, k: int, least_scale: float, seed: int
) -> Clusters:
    """EM from k-means clusters of (x, z).

    Examples
    --------
    Two clusters far apart along x, each with a line of its own:

    >>> x = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None] + 10 * (torch.arange(200) % 2)[:, None]
    >>> z = torch.where(x[:, 0] > 5, 3 * x[:, 0] - 30, -x[:, 0])
    >>> found = fit_clusters(x, z, None, k=2, least_scale=1e-3, seed=0)
    >>> found.slopes[:, 0].sort().values.round(decimals=2)
    tensor([-1.,  3.], dtype=torch.float64)
    """
    mass = torch.ones_like(z) if weights is None else weights
    rows = mass.nonzero()[:ROWS, 0]
    x, z, mass = (part[rows].double().cpu() for part in (x, z, mass))
    with threadpool_limits(1):  # so small a problem takes several times longer on cores that others share
        return _maximize_likelihood(x, z, mass, k, least_scale, seed)


def _maximize_likelihood(x: Tensor, z: Tensor, mass: Tensor, k: int, least_scale: float, seed: int) -> Clusters:
    belongs = _start(torch.cat([x, z[:, None]], dim=1).numpy(), mass.numpy(), k, seed)
    last = -math.inf
    for _ in range(ROUNDS):
        found = _maximize(x, z, belongs * mass[:, None], least_scale)
        joint = found.log_joint(x, z)
        total = joint.logsumexp(dim=1, keepdim=True)
        likelihood = float((total[:, 0] * mass).sum() / mass.sum())
        if likelihood < last + TOLERANCE:
            break
        last, belongs = likelihood, (joint - total).exp()
    return found


def _start(points: NDArray[np.float64], mass: NDArray[np.float64], k: int, seed: int) -> Float[Tensor, "n k"]:
    """Members of k-means clusters, of as many as there are distinct points."""
    distinct = len(np.unique(points, axis=0))
    labels = KMeans(min(k, distinct), n_init=3, random_state=seed).fit(points, sample_weight=mass).labels_
    return nn.functional.one_hot(torch.as_tensor(labels, dtype=torch.int64), k).double()


def _maximize(x: Tensor, z: Tensor, belongs: Float[Tensor, "n k"], least_scale: float) -> Clusters:
    """Clusters of given members: weighted means, spreads and regressions."""
    n_inputs = x.shape[1]
    mass = belongs.sum(dim=0).clamp(min=1e-9)
    joint = torch.cat([x, z[:, None]], dim=1)
    means = (belongs.mT @ joint) / mass[:, None]
    products = (joint[:, :, None] * joint[:, None, :]).flatten(1)  # of few inputs: all clusters by one matrix product
    seconds = (belongs.mT @ products).unflatten(1, joint.shape[1:] * 2) / mass[:, None, None]
    moments = seconds - means[:, :, None] * means[:, None, :]
    within, across, of_z = moments[:, :n_inputs, :n_inputs], moments[:, :n_inputs, -1], moments[:, -1, -1]
    prior = RIDGE / mass[:, None, None] * torch.eye(n_inputs, dtype=x.dtype)
    slopes = torch.linalg.solve(within + prior, across)
    left = of_z - 2 * (slopes * across).sum(dim=1) + torch.einsum("ki,kij,kj->k", slopes, within, slopes)
    centres = means[:, :n_inputs]
    return Clusters(
        shares=mass / mass.sum(),
        centres=centres,
        spreads=within.diagonal(dim1=1, dim2=2).clamp(min=LEAST_SPREAD**2).sqrt(),
        offsets=means[:, -1] - (slopes * centres).sum(dim=1),
        slopes=slopes,
        scales=left.clamp(min=least_scale**2).sqrt(),
    )
