"""Train an operator with a shared encoder on one run, forecast another run a lag ahead, judge the forecast.

Needs what the library needs and nothing else, so that it runs where an accelerator is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import ncprob
from benchmarks.molecules.analysis import LEVELS, Forecast, Truth, correlation, judged, timescale
from benchmarks.molecules.frames import Frames
from benchmarks.molecules.structure import FOLDED, Array
from ncprob import SpectralOperator, TimeLaggedPairs
from ncprob._files import replacing
from ncprob.kinetics import Kinetics
from ncprob.molecules import DistanceEncoder, SchNet, bonded_pairs
from ncprob.training import resolve_device

VALIDATION = 0.1  # share of the training run, its end, that chooses the weights
RANK = 8


class OnAtoms(nn.Module):
    """An encoder that sees some of the atoms."""

    atoms: Tensor

    def __init__(self, encoder: nn.Module, atoms: Array) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("atoms", torch.as_tensor(atoms), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """Features of the chosen atoms."""
        return self.encoder(positions[:, self.atoms])


def distances(frames: Frames) -> nn.Module:
    """Perceptron on the distances of the Cα."""
    return OnAtoms(DistanceEncoder(len(frames.calpha), RANK), frames.calpha)


def schnet(frames: Frames) -> nn.Module:
    """All atoms, each with its own embedding, 12 Å; atoms joined by three bonds or fewer do not see each other."""
    excluded = bonded_pairs([(int(i), int(j)) for i, j in frames.bonds])
    return SchNet(range(len(frames.names)), RANK, width=32, n_interactions=2, cutoff=1.2, excluded=excluded)


def schnet_calpha(frames: Frames) -> nn.Module:
    """The same on the Cα alone."""
    encoder = SchNet(range(len(frames.calpha)), RANK, width=32, n_interactions=2, cutoff=1.2)
    return OnAtoms(encoder, frames.calpha)


def schnet_paper(frames: Frames) -> nn.Module:
    """As in Kostic et al. 2024: elements only, 3 × 64, 20 Gaussians up to 5 Å, a linear map of the mean."""
    elements = [str(name)[0] for name in frames.names]
    return SchNet(
        elements, RANK, width=64, n_interactions=3, cutoff=0.5, n_radial=20, readout_sizes=(), standardize=False
    )


@dataclass(frozen=True)
class Recipe:
    """An encoder and how long it is trained on a CPU."""

    encoder: Callable[[Frames], nn.Module]
    steps: int
    learning_rate: float
    weight_decay: float = 1e-2


RECIPES = {
    "schnet": Recipe(schnet, 400, 5e-3),
    "schnet-calpha": Recipe(schnet_calpha, 600, 3e-3),
    "distances": Recipe(distances, 600, 2e-3),
    "schnet-paper": Recipe(schnet_paper, 200, 1e-3, 0.0),
}


@dataclass(frozen=True)
class Settings:
    """One training; `epochs` or `steps` replace the length of the recipe."""

    name: str
    steps: int | None = None
    epochs: float | None = None
    batch_size: int = 256
    gamma: float = 1e-3
    learning_rate: float | None = None
    seed: int = 0
    device: str = "auto"
    progress: bool = True

    def __post_init__(self) -> None:
        if self.name not in RECIPES:
            raise ValueError(f"The encoder must be one of {', '.join(RECIPES)}; got {self.name!r}.")

    def n_steps(self, n_pairs: int) -> int:
        """Steps to do."""
        if self.epochs is not None:
            return max(1, round(self.epochs * n_pairs / self.batch_size))
        return RECIPES[self.name].steps if self.steps is None else self.steps


@dataclass(frozen=True)
class Outcome:
    """A trained encoder's forecast of the test run with its scores."""

    forecast: Forecast
    with_state: Array  # P(folded at t + lag | x_t) if the state itself joins the learned functions
    row: dict[str, Any]
    train: str  # fingerprints of the runs
    test: str

    def save(self, path: Path) -> None:
        """Write forecast and scores to one .npz file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("wb") as file:
            facts = {"row": json.dumps(self.row), "train": self.train, "test": self.test}
            state = np.asarray(self.with_state, np.float32)
            np.savez_compressed(file, **_columns(self.forecast), with_state=state, **facts)

    @classmethod
    def load(cls, path: Path) -> Outcome:
        """What `save` wrote."""
        with np.load(path, allow_pickle=False) as kept:
            if "with_state" not in kept:
                raise ValueError(f"{path} was written by an older version. Make it again with `train`.")
            forecast = Forecast(*(kept[name] for name in ("folded", "mean", "low", "high")))
            train, test = str(kept["train"]), str(kept["test"])
            return cls(forecast, kept["with_state"], json.loads(str(kept["row"])), train, test)


def _columns(forecast: Forecast) -> dict[str, Any]:
    return {name: np.asarray(column, np.float32) for name, column in vars(forecast).items()}


def save_encoder(operator: SpectralOperator, facts: dict[str, Any], path: Path) -> None:
    """Write a trained encoder with the facts of its training to one .safetensors file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.cpu().contiguous() for name, tensor in operator.x_encoder.state_dict().items()}
    with replacing(path) as partial:
        save_file(weights, partial, metadata={"facts": json.dumps(facts)})


def load_encoder(path: Path, frames: Frames) -> tuple[SpectralOperator, dict[str, Any]]:
    """What `save_encoder` wrote, for frames of the same molecule."""
    try:
        with safe_open(path, framework="pt") as kept:
            facts = json.loads(kept.metadata()["facts"])
            weights = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118, not a dict
        encoder = RECIPES[facts["method"]].encoder(frames)
        encoder.load_state_dict(weights)
    except (SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged, or no encoder of the molecule of --train. Make it again with `train`."
        ) from error
    return SpectralOperator(encoder, encoder, RANK), facts


def trained(frames: Frames, settings: Settings) -> tuple[SpectralOperator, dict[str, Any]]:
    """The operator after training, and facts about the training."""
    recipe = RECIPES[settings.name]
    device = resolve_device(settings.device)
    learning, held_out = TimeLaggedPairs(frames.positions, frames.lag).split((1 - VALIDATION, VALIDATION))
    torch.manual_seed(settings.seed)
    encoder = recipe.encoder(frames)
    operator = SpectralOperator(encoder, encoder, RANK)
    threads: set[int] = set()  # small networks are trained on fewer than there are
    hook = encoder.register_forward_pre_hook(lambda *_: threads.add(torch.get_num_threads()))
    steps = settings.n_steps(len(learning))
    rate = recipe.learning_rate if settings.learning_rate is None else settings.learning_rate
    start = time.perf_counter()
    history = ncprob.train(
        operator,
        learning,
        validation_pairs=held_out,
        gamma=settings.gamma,
        max_steps=steps,
        batch_size=settings.batch_size,
        learning_rate=rate,
        weight_decay=recipe.weight_decay,
        early_stopping=False,
        validate_every=max(25, steps // 50),
        device=device,
        random_state=settings.seed,
        progress=settings.progress,
    )
    seconds = time.perf_counter() - start
    hook.remove()
    cpu = f"cpu, {max(threads)} thread{'s' if max(threads) > 1 else ''}"
    return operator, {
        "method": settings.name,
        "frames": frames.fingerprint(),
        "validation": {"step": history.step, "loss": history.validation_loss},
        "steps": steps,
        "best_step": history.best_step,
        "seconds": seconds,
        "steps_per_second": steps / seconds,
        "batch_size": settings.batch_size,
        "learning_rate": rate,
        "gamma": settings.gamma,
        "parameters": sum(p.numel() for p in operator.parameters()),
        "seed": settings.seed,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "version": ncprob.__version__,
    }


class Columns(nn.Module):
    """The features among the columns of `observed`: an encoder for what is already encoded."""

    def forward(self, table: Tensor) -> Tensor:
        """The first columns."""
        return table[:, :RANK]


@torch.no_grad()
def observed(operator: SpectralOperator, frames: Frames, chunk_size: int = 4096) -> Tensor:
    """Features of every frame, encoded once, beside Q and the watched distance: a time series of a few columns."""
    parts = torch.as_tensor(frames.positions).split(chunk_size)
    features = torch.cat([operator.left_features(part).cpu() for part in parts])
    seen = torch.as_tensor(np.stack([frames.q, frames.distance], axis=1)).float()
    return torch.cat([features, seen], dim=1)


def is_folded(table: Tensor) -> Tensor:
    """The folded state, from the columns of `observed`."""
    return table[:, RANK] > FOLDED


def watched_distance(table: Tensor) -> Tensor:
    """The watched distance in nm, from the columns of `observed`."""
    return table[:, RANK + 1]


def run(train: Frames, test: Frames, settings: Settings) -> Outcome:
    """Train on one run, forecast and judge on the other."""
    return forecasted(*trained(train, settings), train, test)


def forecasted(operator: SpectralOperator, facts: dict[str, Any], train: Frames, test: Frames) -> Outcome:
    """Forecast one run with an encoder that was trained on the other, and judge."""
    if facts["frames"] != train.fingerprint():
        raise ValueError(f"The encoder {facts['method']} was trained on another run than --train. Give that one.")
    pairs = TimeLaggedPairs(observed(operator, train), train.lag)
    columns = Columns()
    encoded = SpectralOperator(columns, columns, RANK).postprocess(pairs)
    kinetics = Kinetics(encoded, pairs, reversible=True)  # positions of Langevin dynamics in equilibrium are reversible
    wider = Kinetics(encoded, pairs, reversible=True, states=[is_folded])
    x, y = TimeLaggedPairs(observed(operator, test), test.lag).tensors()
    laws = kinetics.distribution(x, watched_distance)
    low, high = laws.quantile(list(LEVELS)).mT
    forecast = Forecast(*(column.numpy() for column in (kinetics.forecast(is_folded, x), laws.mean(), low, high)))
    before, after = kinetics.coordinates(x).numpy(), kinetics.coordinates(y).numpy()
    sigma = correlation(before[:, 0], after[:, 0])
    row = {
        "sigma1_train": float(kinetics.values[0]),
        "sigma1": sigma,
        "sigma2": correlation(before[:, 1], after[:, 1]),
        "timescale": timescale(sigma, test.lag * test.interval),
        "timescale_se": float(kinetics.timescales(1, time_step=train.interval).standard_error[0]),
        "irreversibility_p": kinetics.reversibility().p_value,
    }
    known = {name: value for name, value in facts.items() if name not in ("frames", "validation")}
    scores = known | row | judged(forecast, Truth.of(test))
    with_state = wider.forecast(is_folded, x).numpy()
    return Outcome(forecast, with_state, scores, train.fingerprint(), test.fingerprint())
