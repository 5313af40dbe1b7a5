"""Networks of a fit: sized by its settings, started from its seed, and the mixtures among them trained."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ncprob.coordinates import COMPONENTS, FOLDS, Head, MixtureCoordinates, SideBySide, Variant, variants
from ncprob.encoders import MLP
from ncprob.lattices import Lattice, spread
from ncprob.operator import SpectralOperator
from ncprob.pairs import Pairs, TensorPairs, select
from ncprob.preprocessing import NormalScores, OneHot
from ncprob.recipe import AUTO_WIDTH, Recipe
from ncprob.samples import Rows, RowStream, Sample

LOOSER_CLIP = 10_000  # rows beyond which gradients of the mixture are clipped in proportion more loosely


def fit_coordinates(rows: Rows, recipe: Recipe) -> MixtureCoordinates:
    """Mixtures of Gaussians given x, trained out of fold on all rows that coordinates are learned on."""
    sample, schedule = rows.learning, recipe.schedule
    n, q = sample.y.shape
    decay, gate = schedule.weight_decay, recipe.gate_strength(rows.learning.x)
    batch_size = min(schedule.batch_size, max(64, n // 32))
    with seeded(recipe.seed):
        if recipe.x_encoder is None:
            n_plain = None if rows.trees is None else sample.x.shape[1] - rows.trees.n_columns
            ways = variants(decay, gate, n, sample.x.shape[1], n_plain)
            halves = [max(16, size // 2) for size in recipe.hidden_sizes]  # many networks, averaged, may be small
            model = MixtureCoordinates.for_table(ways, q, sample.x.shape[1], halves)
        else:
            encoders = [copy.deepcopy(recipe.x_encoder) for _ in range(FOLDS)]
            heads = [Head(encoder, nn.LazyLinear(3 * COMPONENTS * q)) for encoder in encoders]
            model = MixtureCoordinates([Variant(3 * decay, gate)], q, SideBySide(heads))
        model = model.to(recipe.device)
        model.networks.float()  # as the inputs are, whatever torch's default type is
        model.parameters_at(select(sample.x, slice(0, 2)))  # lazy layers take their shape
    model.fit(
        sample.x,
        spread(sample.y, rows.lattice, recipe.seed),
        sample.weights,
        # Many small networks: smaller batches and a higher rate than one operator needs, the higher the larger these.
        # Gradients are large where laws are narrow: clipping them steadies few rows and, with many, biases such laws.
        schedule=replace(
            schedule,
            learning_rate=1.6 * (batch_size / 64) ** 0.25 * schedule.learning_rate,
            batch_size=batch_size,
            gradient_clip=max(1.0, n / LOOSER_CLIP) * schedule.gradient_clip,
        ),
        runtime=recipe.runtime("mixture"),
        stream=None if rows.stream is None else partial(_stream, rows.stream, rows.lattice, recipe.seed),
    )
    return model


def _stream(stream: RowStream, lattice: Lattice | None, seed: int, target: Callable[[Tensor, Tensor], Any]) -> Pairs:
    def of(sample: Sample) -> Any:
        assert sample.fold is not None
        return target(spread(sample.y, lattice, seed), sample.fold)

    return stream.pairs(of, FOLDS)


def new_operator(pairs: TensorPairs, width: int, recipe: Recipe, seed: int) -> SpectralOperator:
    """An operator to be trained, with the user's encoders, copied, where there are any."""
    hidden, gate = recipe.hidden_sizes, recipe.gate_strength(pairs.x) > 0
    with seeded(seed):
        x_encoder, y_encoder = copy.deepcopy((recipe.x_encoder, recipe.y_encoder))  # at once: they may be one module
        if x_encoder is None:
            x_encoder = MLP(pairs.x.shape[1], hidden, width, input_gate=gate)
        if y_encoder is None:
            y_encoder = MLP(pairs.y.shape[1], hidden, width)
        return SpectralOperator(x_encoder, y_encoder, width).to(recipe.device).float()


def check_encoders(training: Sample, recipe: Recipe) -> None:
    """Encoders of the user must give as many features as the rank: found out before any work is done."""
    if recipe.x_encoder is not None or recipe.y_encoder is not None:
        y_inputs = NormalScores.fit(training.y) if recipe.n_classes is None else OneHot(recipe.n_classes)
        few = TensorPairs(select(training.x, slice(0, 4)), y_inputs(training.y[:4]))
        with torch.no_grad():
            new_operator(few, recipe.rank or AUTO_WIDTH, recipe, recipe.seed).encode(few.x, few.y)


_seeding = threading.Lock()  # torch has one global generator


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch inside a block and leave the global generator as it was."""
    with _seeding, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
