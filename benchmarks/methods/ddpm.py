"""Denoising diffusion probabilistic model (Ho, Jain & Abbeel 2020) of one y given x, written anew."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.methods.base import Array, row_chunks
from benchmarks.methods.neural import Neural, Training, perceptron

FEW_ROWS = 100  # up to which a law gets all its draws
HELD_OUT_REPEATS = 10  # times and noises per held-out row, always the same: their loss decides when to stop
BATCH_OF_DRAWS = {"cpu": 2**12, "cuda": 2**18}  # fits the cache of a core, fills an accelerator


class DDPM(Neural):
    """The law is that of 1,000 draws per x, or 200 where more than 100 rows are asked for at a time.

    y is mixed with noise in 400 steps, β from 10⁻⁴ to 0.02 in equal steps, y_t = √ᾱ_t y + √(1 − ᾱ_t) ε; the network
    tells ε from y_t, t and x, and draws go back from t = 400 step by step. All rows share the noises of their draws,
    so that the law of a row does not depend on the others asked for. No density.

    The paper's network has 81 parameters for one input, as has one hidden layer of 16 units on (x, y_t, t). With
    `tuned` it has two of 128, sines of t and a layer more for x, and draws keep the estimate of y within the training
    range, as is usual.
    """

    def __init__(
        self,
        tuned: bool = False,
        max_steps: int = 10_000,
        diffusion_steps: int = 400,
        draws: int = 1000,
        draws_of_many_rows: int = 200,
    ) -> None:
        self.tuned, self.diffusion_steps = tuned, diffusion_steps
        self.draws, self.draws_of_many_rows = draws, draws_of_many_rows
        self.training = Training(max_steps=max_steps, patience=2000, decay=tuned)

    def _network(self, X: Tensor, y: Tensor, seed: int) -> nn.Module:
        beta = torch.linspace(1e-4, 0.02, self.diffusion_steps, dtype=torch.float64)
        self._alpha, self._signal = 1 - beta, torch.cumprod(1 - beta, dim=0)  # α_t, ᾱ_t
        self._range = (float(y.min()), float(y.max())) if self.tuned else (-math.inf, math.inf)
        self._seed, self._known = seed, {}
        self._signal_table = self._signal.to(self._device, torch.float32)
        return WideDenoiser(X.shape[1]) if self.tuned else SmallDenoiser(X.shape[1])

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        super()._fit(X, y, seed, validation)
        # Hundreds of steps per draw are the cost here, and draws need no more digits than single precision has.
        self.network.float()
        self._dtype = torch.float32

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self._denoising_error(x, y, None)

    def _held_out_loss(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = x.repeat(HELD_OUT_REPEATS, 1), y.repeat(HELD_OUT_REPEATS)
        return self._denoising_error(x, y, torch.Generator().manual_seed(0))

    def _denoising_error(self, x: Tensor, y: Tensor, generator: torch.Generator | None) -> Tensor:
        device = self._device if generator is None else "cpu"
        t = torch.randint(self.diffusion_steps, (len(y),), generator=generator, device=device).to(self._device)
        noise = torch.randn(len(y), 1, generator=generator, device=device).to(self._device)
        signal = self._signal_table[t, None]
        mixed = signal.sqrt() * y[:, None] + (1 - signal).sqrt() * noise
        found = self.network(self.network.of_x(x), mixed, (t[:, None] + 1) / self.diffusion_steps)
        return (found - noise).square().mean()

    @torch.no_grad()
    def _draw(self, X: Array, size: int, seed: int) -> Array:
        """`size` draws per row, (rows, size)."""
        generator = torch.Generator().manual_seed(seed)
        noises = torch.randn(self.diffusion_steps + 1, size, generator=generator).to(self._device)
        answer = np.empty((len(X), size))
        for rows in row_chunks(len(X), size, BATCH_OF_DRAWS[self._device.type]):
            answer[rows] = self._denoise(self._x_inputs(X[rows]), noises).double().cpu().numpy()
        return self._y_mean + self._y_scale * answer

    def _denoise(self, x: Tensor, noises: Tensor) -> Tensor:
        features = self.network.of_x(x)[:, None]
        y = noises[-1].expand(len(x), -1)[..., None]
        for step in reversed(range(self.diffusion_steps)):
            alpha, signal = float(self._alpha[step]), float(self._signal[step])
            before = float(self._signal[step - 1]) if step else 1.0
            time = torch.full((1, 1, 1), (step + 1) / self.diffusion_steps, device=self._device)
            noise = self.network(features, y, time)
            clean = ((y - math.sqrt(1 - signal) * noise) / math.sqrt(signal)).clamp(*self._range)
            # Mean and variance of y_{t−1} given y_t and y, with the estimate of y in place of y.
            y = (math.sqrt(before) * (1 - alpha) * clean + math.sqrt(alpha) * (1 - before) * y) / (1 - signal)
            y = y + math.sqrt((1 - before) * (1 - alpha) / (1 - signal)) * noises[step, :, None]
        return y[..., 0]

    def _law(self, X: Array) -> Array:
        """Draws of every row in increasing order; those of the last two questions are kept, as they are dear."""
        question = X.tobytes()
        if question not in self._known:
            size = self.draws if len(X) <= FEW_ROWS else self.draws_of_many_rows
            last = dict(list(self._known.items())[-1:])
            self._known = last | {question: np.sort(self._draw(X, size, self._seed), axis=1)}
        return self._known[question]

    def _quantiles(self, X: Array, levels: Array) -> Array:
        return np.quantile(self._law(X), levels, axis=1, method="inverted_cdf").T

    def _cdf(self, X: Array, grid: Array) -> Array:
        return np.stack([np.searchsorted(row, grid, side="right") / len(row) for row in self._law(X)])

    def mean(self, X: Any) -> Array:
        """Mean of the draws."""
        return self._law(self.numbers(X)).mean(axis=1)

    def sample(self, X: Any, size: int, seed: int) -> Array:
        """`size` draws per row, (rows, size)."""
        return self._draw(self.numbers(X), size, seed)

    def _describe(self) -> str:
        n_parameters = sum(parameter.numel() for parameter in self.network.parameters())
        return (
            f"network of {n_parameters} parameters, {self.diffusion_steps} steps, {self.draws} draws per x, "
            f"{self.draws_of_many_rows} where more than {FEW_ROWS} rows are asked for"
        )


class SmallDenoiser(nn.Module):
    """ε from x, y_t and t/T: one hidden layer of 16 GELU units."""

    def __init__(self, n_inputs: int, width: int = 16) -> None:
        super().__init__()
        self.of_x = nn.Linear(n_inputs, width)
        self.of_y, self.of_time = nn.Linear(1, width, bias=False), nn.Linear(1, width, bias=False)
        self.last = nn.Sequential(nn.GELU(), nn.Linear(width, 1))

    def forward(self, features: Tensor, y: Tensor, time: Tensor) -> Tensor:
        """`features` is `of_x(x)`, which is the same in all steps of a draw."""
        return self.last(features + self.of_y(y) + self.of_time(time))


class WideDenoiser(nn.Module):
    """ε from x, y_t and sines of t/T: two hidden layers of 128 SiLU units, and one of x alone."""

    def __init__(self, n_inputs: int, width: int = 128, n_frequencies: int = 8) -> None:
        super().__init__()
        self.of_x = perceptron(n_inputs, (width,), width, nn.SiLU)
        self.of_y = nn.Linear(1, width, bias=False)
        self.of_time = nn.Linear(2 * n_frequencies, width)
        self.last = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.register_buffer("frequencies", math.pi / 2 * 1.7 ** torch.arange(n_frequencies))

    def forward(self, features: Tensor, y: Tensor, time: Tensor) -> Tensor:
        """`features` is `of_x(x)`, which is the same in all steps of a draw."""
        angles = self.frequencies * time
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return self.last(features + self.of_y(y) + self.of_time(waves))
