"""Laws of a trained model at time-lagged pairs: of an operator, as trained or symmetrised, or of an estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ncprob.base import NCPEstimator, to_numpy
from ncprob.conditioning import TrainingRows
from ncprob.distribution import ConditionalDistribution, Export
from ncprob.encoders import evaluating
from ncprob.lagged import TimeLaggedPairs
from ncprob.linalg import symmetric_inverse_sqrt
from ncprob.operator import SpectralOperator
from ncprob.pairs import to_device
from ncprob.sets import Box, membership
from ncprob.support import Support

State = Callable[[Any], Any] | Box | tuple[Any, Any]


@dataclass(frozen=True)
class Spectrum:
    """Left and right functions with their values, largest first: r = 1 + Σ_k values_k left_k(x) right_k(y)."""

    values: Tensor
    left: Callable[[Any], Tensor]
    right: Callable[[Any], Tensor]


def as_trained(operator: SpectralOperator) -> Spectrum:
    """Singular functions and values that whitening found."""
    if operator.postprocessing != "whitening":
        raise ValueError(
            f"`model` must be whitened, its post-processing is {operator.postprocessing!r}. "
            "Call `model.postprocess(pairs)` first."
        )
    return Spectrum(operator.singular_values.detach(), operator.left_features, operator.right_features)


@torch.no_grad()
def symmetrised(operator: SpectralOperator, pairs: TimeLaggedPairs, chunk_size: int) -> Spectrum:
    """Eigenfunctions of the operator among the features, every pair counted in both directions."""
    if operator.x_encoder is not operator.y_encoder:
        raise ValueError(
            "`reversible` needs an operator whose x and y share one encoder; got two. Build it as "
            "`SpectralOperator(encoder, encoder, rank)`."
        )
    moments = operator.moments(pairs, chunk_size)
    mean = (moments.left_mean + moments.right_mean) / 2
    apart = torch.outer(moments.left_mean - mean, moments.left_mean - mean)  # both means are as far from the common one
    whiten = symmetric_inverse_sqrt((moments.left + moments.right) / 2 + apart, relative_threshold=1e-6)
    cross = moments.cross - apart
    values, vectors = torch.linalg.eigh(whiten @ (cross + cross.mT) @ whiten / 2)
    order = values.abs().argsort(descending=True)
    mix, centre = (whiten @ vectors[:, order]).float(), mean.float()

    def features(x: Any) -> Tensor:
        with evaluating(operator.x_encoder):
            return (operator.x_encoder(to_device(x, centre.device)) - centre) @ mix

    return Spectrum(values[order].clamp(-1, 1), features, features)


class BesideStates(nn.Module):
    """Functions that an operator has learned on one side, beside indicators of states."""

    def __init__(self, operator: SpectralOperator, side: str, states: Sequence[State]) -> None:
        super().__init__()
        self.operator, self.side, self.states = operator, side, tuple(states)

    def forward(self, frames: Any) -> Tensor:
        """Features, shape (frames, rank + states)."""
        learned = self.operator.left_features(frames) if self.side == "x" else self.operator.right_features(frames)
        inside = [membership(state, frames, "states", lambda t: t) for state in self.states]
        return torch.cat([learned, torch.stack(inside, dim=1).to(learned)], dim=1)


@torch.no_grad()
def with_states(
    operator: SpectralOperator, pairs: TimeLaggedPairs, states: Sequence[State], chunk_size: int
) -> SpectralOperator:
    """The best operator in the span of the learned functions and the indicators of `states`, in closed form."""
    left = BesideStates(operator, "x", states)
    # A shared encoder stays shared: then functions of x serve for y as well.
    right = left if operator.x_encoder is operator.y_encoder else BesideStates(operator, "y", states)
    with torch.random.fork_rng(devices=[]):  # questions do not move the random numbers of whoever asks
        wider = SpectralOperator(left, right, operator.rank + len(left.states)).to(operator.left_mean.device)
    nn.init.zeros_(wider.log_values_root)  # whitening starts from these features as they are
    return wider.postprocess(pairs, chunk_size=chunk_size)


def by_chunks(function: Callable[[Any], Tensor], x: Any, size: int) -> Tensor:
    """Concatenate function(part) over parts of frames, float32 as networks take them, without gradients."""
    frames = torch.as_tensor(x).float()
    if not bool(torch.isfinite(frames).all()):  # laws are repaired to be valid ones, so NaN would look like an answer
        raise ValueError("`x` must not contain NaN or infinity; it does. Leave such frames out, or fill in the values.")
    with torch.no_grad():
        return torch.cat([function(part) for part in frames.split(size)])


class OperatorLaws:
    """Laws of a spectral operator, carried by the y of the pairs."""

    export: Export = staticmethod(lambda answer: answer)

    def __init__(self, spectrum: Spectrum, pairs: TimeLaggedPairs, chunk_size: int) -> None:
        self.spectrum, self.pairs, self.chunk_size = spectrum, pairs, chunk_size
        self.values = spectrum.values
        with torch.no_grad():
            parts = [(spectrum.left(x), spectrum.right(y)) for x, y, _ in pairs.chunks(chunk_size)]
        self._left, self._right = (torch.cat(side) for side in zip(*parts, strict=True))

    def features(self) -> tuple[Tensor, Tensor]:
        """Left and right functions at the pairs."""
        return self._left.double().cpu(), self._right.double().cpu()

    def inside(self, state: State, side: str) -> Tensor:
        """Mask over the x or the y of the pairs."""
        chunks = self.pairs.chunks(self.chunk_size)
        masks = [membership(state, x if side == "x" else y, "states", lambda t: t) for x, y, _ in chunks]
        return torch.cat(masks).cpu()

    def _laws(self, support: Support, left: Tensor, steps: int) -> ConditionalDistribution:
        return ConditionalDistribution(support, left * self.values.to(left.dtype) ** steps)

    def _patterns(self, reached: Tensor) -> Support:
        """One atom for all y in the same states, with its mean features.

        The ratio of a set is the mean of the ratios of its points; taken before negative ratios are cut off, noise of
        single points cancels. Cutting off first would make rare transitions look more frequent.
        """
        patterns, group = reached.to(self._right.device).unique(dim=0, return_inverse=True)
        counts = group.bincount()
        total = patterns.new_zeros(len(patterns), self._right.shape[1])
        total.index_add_(0, group, self._right.to(patterns.dtype))
        return Support(patterns, (total / counts[:, None]).to(self._right.dtype), counts.to(patterns.dtype))

    def given(self, mask: Tensor, states: Sequence[State], reached: Tensor, steps: int) -> Tensor:
        """Probabilities of the states given x among the rows of `mask`: means of their indicators."""
        laws = self._laws(self._patterns(reached), self._left, steps)
        rows = TrainingRows(laws, torch.ones(len(mask), dtype=torch.float64, device=self._left.device))
        return rows.given(mask.to(self._left.device), None).mean().reshape(-1).cpu()

    def forecast(self, state: State, x: Any, steps: int) -> Tensor:
        """Probability of the state for every row of x."""
        support = self._patterns(self.inside(state, "y").double()[:, None])
        return self._laws(support, by_chunks(self.spectrum.left, x, self.chunk_size), steps).mean()

    def distribution(self, x: Any, observable: Callable[[Any], Any] | None, steps: int) -> ConditionalDistribution:
        """Law of an observable of y for every row of x."""
        function = observable or (lambda y: y)
        values = torch.cat([torch.as_tensor(function(y)) for _, y, _ in self.pairs.chunks(self.chunk_size)])
        if values.ndim > 2 or len(values) != len(self.pairs):
            raise ValueError(
                "`observable` must give one number or vector per frame; it gave shape "
                f"{tuple(values.shape)} for {len(self.pairs)} frames. Reduce it, for example to a distance."
            )
        support = Support.compressed(values.double().to(self._right.device), self._right)
        return self._laws(support, by_chunks(self.spectrum.left, x, self.chunk_size), steps)


class EstimatorLaws:
    """Laws of an estimator fitted on `pairs.arrays()`."""

    export: Export = staticmethod(to_numpy)

    def __init__(self, model: NCPEstimator, pairs: TimeLaggedPairs) -> None:
        self.model = model
        self._X = pairs.arrays()[0]
        self._points = dict(zip("xy", pairs.tensors(torch.float64), strict=True))
        self._rows: TrainingRows | None = None
        self.values = torch.as_tensor(model.singular_values_)

    def features(self) -> tuple[Tensor, Tensor]:
        """None that sets could be expanded in."""
        nothing = torch.zeros(len(self._points["x"]), 0, dtype=torch.float64)
        return nothing, nothing

    def inside(self, state: State, side: str) -> Tensor:
        """Mask over the x or the y of the pairs."""
        return membership(state, self._points[side], "states", to_numpy)

    def given(self, mask: Tensor, states: Sequence[State], reached: Tensor, steps: int) -> Tensor:
        """Probabilities of the states given x among the rows of `mask`."""
        if self._rows is None:
            laws = self.model.predict_distribution(self._X)
            self._rows = TrainingRows(laws, torch.ones(len(laws), dtype=torch.float64, device=laws.left.device))
        law = self._rows.given(mask.to(self._rows.weights.device), to_numpy)
        return torch.cat([law.probability(state) for state in states]).cpu()

    def forecast(self, state: State, x: Any, steps: int) -> Tensor:
        """Probability of the state for every row of x."""
        return self.model.predict_distribution(x).probability(state)

    def distribution(self, x: Any, observable: Callable[[Any], Any] | None, steps: int) -> ConditionalDistribution:
        """Law of y for every row of x."""
        if observable is not None:
            raise ValueError(
                "`observable` needs a SpectralOperator; an estimator has the law of y only. Fit it on the observable "
                "as y, or ask for `distribution(x).expectation(f)`."
            )
        return self.model.predict_distribution(x)
