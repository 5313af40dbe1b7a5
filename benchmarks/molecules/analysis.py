"""What a forecast is judged by, and what it is compared with: counting, bins of Q, tICA and Markov state models.

A forecast of frame t + lag is made at frame t and judged at t + lag. NumPy only; sampling errors come from
blocks of neighbouring frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.cluster import MiniBatchKMeans

from benchmarks.molecules.frames import Frames
from benchmarks.molecules.structure import Array
from ncprob.resampling import block_sums, bootstrap

BLOCK = 500.0  # ps: a dozen times the slowest relaxation, so that blocks are nearly independent
BINS = 20  # of Q
LEVELS = (0.1, 0.9)
MICROSTATES = 100
COMPONENTS = 4  # of tICA, in which microstates are found


@dataclass(frozen=True)
class Forecast:
    """For every frame t of the test run but the last ones: what is expected at t + lag."""

    folded: Array  # P(folded at t + lag | x_t)
    mean: Array | None = None  # of the watched distance, nm
    low: Array | None = None  # 10 % quantile
    high: Array | None = None  # 90 % quantile


@dataclass(frozen=True)
class Truth:
    """What happened in the test run: states before and after, the distance after."""

    before: Array
    after: Array
    distance: Array
    block: int  # frames

    @classmethod
    def of(cls, frames: Frames) -> Truth:
        """Outcomes a lag after every frame."""
        lag = frames.lag
        block = max(1, round(BLOCK / frames.interval))
        return cls(frames.folded[:-lag], frames.folded[lag:], frames.distance[lag:], block)


def mean_of(values: Array, among: Array, block: int) -> tuple[float, float]:
    """Mean of `values` among the rows of a mask, and its standard error by a block bootstrap."""
    rows = np.stack([among, among * values], axis=1).astype(float)
    value = float(rows[:, 1].sum() / max(1.0, rows[:, 0].sum()))
    blocks = torch.arange(len(rows)) // block
    table = torch.cat([torch.ones(len(rows), 1, dtype=torch.float64), torch.as_tensor(rows)], dim=1)
    estimate = bootstrap(
        block_sums(table, blocks),
        lambda sums: sums[:, 0, 2] / sums[:, 0, 1],
        torch.tensor(value, dtype=torch.float64),
        confidence=0.9,
        n_resamples=500,
        seed=0,
        bounds=(-np.inf, np.inf),
    )
    return value, float(estimate.standard_error)


def judged(forecast: Forecast, test: Truth) -> dict[str, float]:
    """Transition probabilities, Brier score and coverage of the band, overall and by the state before.

    Transition probabilities are means of the forecast over the test frames of a state; their errors, and those of their
    gaps to counting at the same frames, are of the choice of these frames, not of training.
    """
    p, outcome = forecast.folded, test.after.astype(float)
    everywhere = np.ones(len(p), dtype=bool)
    brier, brier_error = mean_of((p - outcome) ** 2, everywhere, test.block)
    scores = {"brier": brier, "brier_se": brier_error}
    for name, among in (("p_fold_unfolded", ~test.before), ("p_fold_folded", test.before)):
        scores[name], error = mean_of(p, among, test.block)
        if len(np.unique(p[among])) > 1:  # a forecast that is constant has no such error
            scores[f"{name}_se"] = error
        scores[f"{name}_gap"], scores[f"{name}_gap_se"] = mean_of(p - outcome, among, test.block)
    if forecast.low is None or forecast.high is None:
        return scores
    inside = (test.distance >= forecast.low) & (test.distance <= forecast.high)
    places = {"coverage": everywhere, "coverage_unfolded": ~test.before, "coverage_folded": test.before}
    for name, among in places.items():
        scores[name], scores[f"{name}_se"] = mean_of(inside, among, test.block)
    return scores


def brier_beyond(forecast: Forecast, rival: Forecast, test: Truth) -> dict[str, float]:
    """Brier score minus that of a rival at the same frames, with the error of the difference; below zero is better."""
    outcome = test.after.astype(float)
    difference = (forecast.folded - outcome) ** 2 - (rival.folded - outcome) ** 2
    value, error = mean_of(difference, np.ones(len(outcome), dtype=bool), test.block)
    return {"brier_beyond": value, "brier_beyond_se": error}


def reliability(forecast: Forecast, test: Truth, n_bins: int = 10) -> list[dict[str, Any]]:
    """Forecast and frequency in bins of equal width of the forecast; a reliable forecast has them equal."""
    number = np.minimum((forecast.folded * n_bins).astype(int), n_bins - 1)
    rows = []
    for k in np.unique(number):
        among = number == k
        frequency, error = mean_of(test.after, among, test.block)
        rows.append(
            {
                "bin": int(k),
                "n": int(among.sum()),
                "forecast": float(forecast.folded[among].mean()),
                "frequency": frequency,
                "frequency_se": error,
            }
        )
    return rows


# ---------------------------------------------------------------- baselines, learned on the training run


def counted_in_cells(frames: Frames, cells: Array, n_cells: int, later: Array) -> Forecast:
    """Counting in cells: share of folded frames and quantiles of the distance a lag after a visit to each cell."""
    lag = frames.lag
    folded, distance = frames.folded[lag:], frames.distance[lag:]
    table = np.zeros((n_cells, 4))
    for cell in range(n_cells):
        among = cells == cell
        chosen = among if among.any() else np.ones_like(among)
        table[cell] = folded[chosen].mean(), distance[chosen].mean(), *np.quantile(distance[chosen], LEVELS)
    return Forecast(*table[later].T)


def baselines(train: Frames, test: Frames) -> dict[str, Forecast]:
    """Marginal, two-state and Q-bin forecasts."""
    lag = train.lag
    q, q_later = train.q[:-lag], test.q[: -test.lag]
    edges = np.quantile(q, np.linspace(0, 1, BINS + 1)[1:-1])
    cells = {
        "marginal": (np.zeros(len(q), int), np.zeros(len(q_later), int), 1),
        "two-state": (train.folded[:-lag].astype(int), test.folded[: -test.lag].astype(int), 2),
        "Q-bins": (np.searchsorted(edges, q), np.searchsorted(edges, q_later), BINS),
    }
    return {name: counted_in_cells(train, now, n, later) for name, (now, later, n) in cells.items()}


# ---------------------------------------------------------------- tICA and Markov state models


def contact_features(frames: Frames) -> Array:
    """Distances of all Cα two residues or more apart, in nm, and how closed each is: what tICA is given."""
    alpha = frames.positions[:, frames.calpha].astype(float)
    first, second = np.triu_indices(alpha.shape[1], 2)
    lengths = np.linalg.norm(alpha[:, first] - alpha[:, second], axis=-1)
    return np.concatenate([lengths, 1 / (1 + np.exp(30 * (lengths - 0.7)))], axis=1)


def tica(features: Array, lag: int) -> tuple[Array, Array, Array]:
    """Mean, directions and eigenvalues of time-lagged independent components (Molgedey & Schuster 1994).

    Covariances count every pair in both directions, as for a reversible process in equilibrium.
    """
    x, y = features[:-lag], features[lag:]
    mean = (x.mean(axis=0) + y.mean(axis=0)) / 2
    x, y = x - mean, y - mean
    instant, lagged = (x.T @ x + y.T @ y) / (2 * len(x)), (x.T @ y + y.T @ x) / (2 * len(x))
    scale, axes = np.linalg.eigh(instant)
    kept = scale > 1e-6 * scale.max()
    whiten = axes[:, kept] / np.sqrt(scale[kept])
    values, directions = np.linalg.eigh(whiten.T @ lagged @ whiten)
    order = np.argsort(values)[::-1]
    return mean, (whiten @ directions)[:, order], values[order]


def correlation(first: Array, second: Array) -> float:
    """Pearson's r."""
    return float(np.corrcoef(first, second)[0, 1])


def timescale(sigma: float, lag: float) -> float:
    """−lag / log σ, in the unit of `lag`; NaN where σ is not in (0, 1)."""
    return float(-lag / np.log(sigma)) if 0 < sigma < 1 else float("nan")


def references(train: Frames, test: Frames) -> dict[str, dict[str, float]]:
    """Leading values by tICA and by a Markov state model in its coordinates, learned on one run, tested on another."""
    lag, lag_later = train.lag, test.lag  # in frames; the time between these may differ
    time = lag * train.interval
    features, later = contact_features(train), contact_features(test)
    mean, directions, values = tica(features, lag)
    slow, slow_later = (features - mean) @ directions[:, :COMPONENTS], (later - mean) @ directions[:, :COMPONENTS]
    sigma = correlation(slow_later[:-lag_later, 0], slow_later[lag_later:, 0])
    found = {
        "tICA": {
            "sigma1_train": float(values[0]),
            "sigma1": sigma,
            "sigma2": correlation(slow_later[:-lag_later, 1], slow_later[lag_later:, 1]),
            "timescale": timescale(sigma, time),
        }
    }
    states = MiniBatchKMeans(MICROSTATES, random_state=0, n_init=1, batch_size=4096).fit(slow)
    learned = markov_values(states.predict(slow), lag, MICROSTATES)
    tested = markov_values(states.predict(slow_later), lag_later, MICROSTATES)
    found["MSM"] = {
        "sigma1_train": float(learned[0]),
        "sigma1": float(tested[0]),
        "sigma2": float(tested[1]),
        "timescale": timescale(float(tested[0]), time),
    }
    return found | deeptime_references((slow, slow_later), (features, later), (lag, lag_later), time)


def markov_values(chain: Array, lag: int, n_states: int) -> Array:
    """Eigenvalues after the first of the reversible transition matrix that counting in both directions gives."""
    counts = np.zeros((n_states, n_states))
    np.add.at(counts, (chain[:-lag], chain[lag:]), 1.0)
    counts = counts + counts.T
    visits = counts.sum(axis=1)
    visited = visits > 0
    symmetric = counts[np.ix_(visited, visited)] / np.sqrt(np.outer(visits[visited], visits[visited]))
    return np.sort(np.linalg.eigvalsh(symmetric))[::-1][1:]


def deeptime_references(
    slow: tuple[Array, Array], features: tuple[Array, Array], lags: tuple[int, int], time: float
) -> dict[str, dict[str, float]]:
    """The same by deeptime, if it is installed; of the training run and the test run."""
    try:
        from deeptime.clustering import KMeans
        from deeptime.decomposition import TICA
        from deeptime.markov import TransitionCountEstimator
        from deeptime.markov.msm import MaximumLikelihoodMSM
    except ImportError:
        return {}
    model = TICA(lagtime=lags[0], dim=COMPONENTS).fit(features[0]).fetch_model()
    projected = model.transform(features[1])
    sigma = correlation(projected[: -lags[1], 0], projected[lags[1] :, 0])
    found = {
        "tICA (deeptime)": {
            "sigma1_train": float(model.singular_values[0]),
            "sigma1": sigma,
            "timescale": timescale(sigma, time),
        }
    }
    clusters = KMeans(MICROSTATES, fixed_seed=1, max_iter=20).fit(slow[0][::5]).fetch_model()
    values = []
    for part, lag in zip(slow, lags, strict=True):
        counts = TransitionCountEstimator(lagtime=lag, count_mode="sliding").fit(clusters.transform(part)).fetch_model()
        msm = MaximumLikelihoodMSM(reversible=True).fit(counts.submodel_largest()).fetch_model()
        values.append(msm.eigenvalues(3)[1:])
    found["MSM (deeptime)"] = {
        "sigma1_train": float(values[0][0]),
        "sigma1": float(values[1][0]),
        "sigma2": float(values[1][1]),
        "timescale": timescale(float(values[1][0]), time),
    }
    return found
