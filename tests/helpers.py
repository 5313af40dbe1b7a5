"""Discrete joint laws with exact answers, and small encoders, shared by several test modules."""

import itertools

import torch
from torch import nn

from ncprob import SpectralOperator
from ncprob.encoders import MLP
from ncprob.transport import Transport


def generator(seed):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed, dtype=torch.float64):
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


def affine(location, scale):
    """y = location + scale·b per member and component."""
    location, scale = torch.as_tensor(location).double(), torch.as_tensor(scale).double()
    return Transport(torch.tensor([-1.0, 1.0], dtype=torch.float64), location, torch.stack([-scale, scale], dim=-1))


class Table:
    """A joint law P(X = i, Y = j) on finitely many states; features are matrices with one row per state."""

    def __init__(self, joint):
        self.joint = joint / joint.sum()
        self.p, self.q = self.joint.sum(dim=1), self.joint.sum(dim=0)

    @classmethod
    def random(cls, n_x, n_y, seed):
        """Positive entries of very different size, so that the dependence is strong."""
        return cls(normal(n_x, n_y, seed=seed).mul(1.5).exp())

    @property
    def shape(self):
        return tuple(self.joint.shape)

    def density_ratio(self):
        return self.joint / torch.outer(self.p, self.q)

    def conditional(self):
        """P(Y = j | X = i)."""
        return self.joint / self.p[:, None]

    def svd(self, rank):
        """Singular functions u (n_x, rank), v (n_y, rank) and values of the deflated operator."""
        roots = self.p.sqrt(), self.q.sqrt()
        deflated = (self.joint - torch.outer(self.p, self.q)) / torch.outer(*roots)
        left, values, right_t = torch.linalg.svd(deflated, full_matrices=False)
        return left[:, :rank] / roots[0][:, None], values[:rank], right_t[:rank].mT / roots[1][:, None]

    def covariances(self, u, v):
        """Var(u), Var(v), Cov(u, v)."""
        u, v = u - self.p @ u, v - self.q @ v
        return u.mT @ (self.p[:, None] * u), v.mT @ (self.q[:, None] * v), u.mT @ self.joint @ v

    def energy(self, u, v):
        """tr(Var(u) Var(v))."""
        left, right, _ = self.covariances(u, v)
        return torch.trace(left @ right)

    def loss(self, u, v, s):
        """tr(S^½ Var(u) S Var(v) S^½) − 2 tr(S Cov(u, v)), term by term."""
        left, right, cross = self.covariances(u, v)
        root, values = s.sqrt().diag(), s.diag()
        return torch.trace(root @ left @ values @ right @ root) - 2 * torch.trace(values @ cross)

    def penalty(self, u, v):
        """‖E[uuᵀ] − I‖²_F + 2‖E u‖², and the same for v."""
        gaps = 0.0
        for weights, features in ((self.p, u), (self.q, v)):
            second = features.mT @ (weights[:, None] * features)
            gaps = gaps + (second - torch.eye(len(second))).square().sum() + 2 * (weights @ features).square().sum()
        return gaps

    def batches(self, n):
        """All sequences of n outcomes: states of x and of y, (sequences, n), and their probabilities."""
        n_x, n_y = self.shape
        outcomes = torch.tensor(list(itertools.product(range(n_x * n_y), repeat=n)))
        return outcomes // n_y, outcomes % n_y, self.joint.flatten()[outcomes].prod(dim=1)

    def expectation(self, statistic, u, v, n):
        """E[statistic(u(X), v(Y))] over batches of n independent pairs, by enumeration."""
        x, y, probabilities = self.batches(n)
        return probabilities @ torch.func.vmap(statistic, chunk_size=8192)(u[x], v[y])

    def sample(self, n, seed):
        """States of n independent pairs."""
        outcomes = torch.multinomial(self.joint.flatten(), n, replacement=True, generator=generator(seed))
        return outcomes // self.shape[1], outcomes % self.shape[1]

    def weighted_pairs(self, dtype=torch.float64):
        """Every pair of states once, as columns, weighted by its probability."""
        n_x, n_y = self.shape
        x, y = torch.cartesian_prod(torch.arange(n_x), torch.arange(n_y)).to(dtype).split(1, dim=1)
        return x, y, self.joint.flatten()

    def states(self, dtype=torch.float64):
        """All states of x and of y, as columns."""
        return tuple(torch.arange(n, dtype=dtype)[:, None] for n in self.shape)


class Lookup(nn.Module):
    """The features of state i are row i of a matrix; inputs are columns of states."""

    def __init__(self, rows):
        super().__init__()
        self.register_buffer("rows", rows)

    def forward(self, states):
        return self.rows[states[:, 0].long()]


def indicator_operator(table, dtype=torch.float64):
    """An operator whose features are the indicators of the states: they span every function of x and of y."""
    rank = max(table.shape)
    x_encoder, y_encoder = (Lookup(torch.eye(n, rank)) for n in table.shape)
    return seeded_operator(x_encoder, y_encoder, rank, seed=0).to(dtype)


def seeded_operator(x_encoder, y_encoder, rank, seed):
    """An operator with singular values from a seed; the global generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SpectralOperator(x_encoder, y_encoder, rank)


def small_operator(rank=3, seed=0, n_x=1, n_y=1, width=8, input_gate=False):
    """Two small networks with weights from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        x_encoder = MLP(n_x, (width,), rank, input_gate=input_gate)
        return SpectralOperator(x_encoder, MLP(n_y, (width,), rank), rank)


def gaussian_pairs(n, rho=0.8, seed=0, dtype=torch.float32):
    """X and Y standard normal with correlation ρ; the operator has singular values ρ, ρ², ρ³, …"""
    x, noise = normal(2, n, 1, seed=seed)
    return x.to(dtype), (rho * x + (1 - rho**2) ** 0.5 * noise).to(dtype)


class HalfPrecision(nn.Module):
    """An encoder that computes in bfloat16."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.encoder(x)


def halved(operator):
    operator.x_encoder, operator.y_encoder = HalfPrecision(operator.x_encoder), HalfPrecision(operator.y_encoder)
    return operator
