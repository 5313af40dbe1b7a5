"""Kernel mixture network (Ambrogioni, Güçlü, van Gerven & Maris 2017), written anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn

from benchmarks.methods.gaussian_mixture import GaussianMixtureNetwork
from benchmarks.methods.neural import TUNED, Training, perceptron

SCALES = (1.0, 0.25)  # of a tuned network, in Silverman bandwidths, to begin with


class KMN(GaussianMixtureNetwork):
    """Weights of 50 normal kernels from a network with two hidden layers of 64 tanh units.

    Centres by k-means of y, the least and the largest y among them; bandwidth by Silverman's rule, 1.06 sd n^(−1/5).
    Noise of 0.2 sd on x and 0.1 sd on y in training, as in Rothfuss et al. 2019; Kostic et al. 2024 name no level. With
    `tuned` there is no noise, every centre has a wide and a narrow kernel whose bandwidths are learned too, and
    training is that of all tuned networks.
    """

    def __init__(
        self,
        tuned: bool = False,
        max_steps: int = 5000,
        centres: int = 50,
        hidden_sizes: tuple[int, ...] = (64, 64),
        x_noise: float = 0.2,
        y_noise: float = 0.1,
    ) -> None:
        self.tuned, self.centres, self.hidden_sizes = tuned, centres, tuple(hidden_sizes)
        self.x_noise, self.y_noise = (0.0, 0.0) if tuned else (x_noise, y_noise)
        self.training = replace(TUNED if tuned else Training(), max_steps=max_steps)

    def _network(self, X: Tensor, y: Tensor, seed: int) -> nn.Module:
        scales = 1.06 * len(y) ** -0.2 * torch.tensor(SCALES if self.tuned else (1.0,))
        centres = kernel_centres(y.cpu().numpy(), self.centres, seed)
        weights = perceptron(X.shape[1], self.hidden_sizes, len(centres) * len(scales), nn.Tanh)
        network = nn.ModuleDict({"weights": weights})
        network.register_buffer("centres", torch.as_tensor(centres, dtype=torch.float32).repeat(len(scales)))
        network.register_parameter("log_scales", nn.Parameter(scales.log(), requires_grad=self.tuned))
        return network

    def _components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        centres, log_scales = self.network.centres, self.network.log_scales
        scales = log_scales.exp().repeat_interleave(len(centres) // len(log_scales))
        return self.network["weights"](x).log_softmax(dim=1), centres[None], scales[None]

    def _describe(self) -> str:
        scales = ", ".join(f"{scale:.3g}" for scale in self.network.log_scales.exp().tolist())
        sizes = "x".join(map(str, self.hidden_sizes))
        kernels = f"{self.centres} centres, bandwidth {scales} sd ({'learned' if self.tuned else 'Silverman'})"
        return f"{kernels}, {sizes} tanh, {self._noise_in_words()}"


def kernel_centres(y: np.ndarray, size: int, seed: int) -> np.ndarray:
    """k-means centres and both ends of y; all values of y where these are fewer."""
    values = np.unique(y)
    if len(values) <= size:
        return values
    inner = KMeans(size - 2, random_state=seed).fit(y[:, None]).cluster_centers_[:, 0]
    return np.array([values[0], *np.sort(inner), values[-1]])
