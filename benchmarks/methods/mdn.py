"""Mixture density network (Bishop 1994), written anew."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.methods.gaussian_mixture import GaussianMixtureNetwork
from benchmarks.methods.neural import TUNED, Training, perceptron

LEAST_SCALE = 1e-3  # standard deviations of y


class MDN(GaussianMixtureNetwork):
    """Weights, means and scales of 20 normal laws from a network with two hidden layers of 64 tanh units.

    Noise of 0.2 sd on x and 0.1 sd on y in training, as in Rothfuss et al. 2019; Kostic et al. 2024 name no level. With
    `tuned` there is no noise and training is that of all tuned networks.
    """

    def __init__(
        self,
        tuned: bool = False,
        max_steps: int = 5000,
        components: int = 20,
        hidden_sizes: tuple[int, ...] = (64, 64),
        x_noise: float = 0.2,
        y_noise: float = 0.1,
    ) -> None:
        self.x_noise, self.y_noise = (0.0, 0.0) if tuned else (x_noise, y_noise)
        self.components, self.hidden_sizes = components, tuple(hidden_sizes)
        self.training = replace(TUNED if tuned else Training(), max_steps=max_steps)

    def _network(self, X: Tensor, y: Tensor, seed: int) -> nn.Module:
        network = perceptron(X.shape[1], self.hidden_sizes, 3 * self.components, nn.Tanh)
        with torch.no_grad():  # means start spread over y: equal ones would stay together
            network[-1].bias[self.components : 2 * self.components] = torch.linspace(-2, 2, self.components)
        return network

    def _components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, means, scales = self.network(x).chunk(3, dim=1)
        return logits.log_softmax(dim=1), means, functional.softplus(scales) + LEAST_SCALE

    def _describe(self) -> str:
        sizes = "x".join(map(str, self.hidden_sizes))
        return f"{self.components} Gaussians, {sizes} tanh, {self._noise_in_words()}"
