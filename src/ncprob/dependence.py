"""How strongly X and Y depend on each other, and a test of independence with an exact p-value.

Both look along the singular functions of the conditional expectation operator, which is zero if and only if X and Y
are independent. The functions are learned on some rows and looked at on others: on the rows they were learned from
every dependence appears stronger than it is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncprob._validation import as_float_tensor, as_generator, check_integer, check_number
from ncprob.encoders import MLP
from ncprob.operator import SpectralOperator
from ncprob.optimization import Runtime, Schedule
from ncprob.pairs import TensorPairs, select
from ncprob.preprocessing import InputScaler, NormalScores
from ncprob.statistics import covariance
from ncprob.training import resolve_device, train_operator

MINIMUM_ROWS = 20
MAX_RANK, ROWS_PER_FEATURE = 16, 8
HIDDEN_SIZES = (64,)
GATE_STRENGTH, GATE_INPUTS = 0.03, 4  # from four inputs on some may be useless
RIDGE = 1.0  # strong: a test wants few directions it can rely on, not many; best of 0.01 … 100 in power
CHUNK_ELEMENTS = 2**22


@dataclass(frozen=True)
class Dependence:
    """Strength of dependence, estimated on held-out rows.

    Attributes
    ----------
    chi2 : float
        χ² dependence Σσ_i² = E[r(X, Y)] − 1, r the density ratio; 0 for independence, without upper bound.
    maximal_correlation : float
        σ₁, the largest correlation of a function of X with a function of Y (Gebelein 1941; Rényi 1959), in [0, 1].
    effective_rank : float
        (Σσ²)² / Σσ⁴: how many singular functions carry the dependence. Values within two standard errors, 2/√n_rows,
        count as zero.
    singular_values : tuple of float
        Held-out correlations of the learned pairs of functions, in the order of training.
    n_rows : int
        Held-out rows; the standard error of a correlation near 0 is 1/√n_rows.

    Examples
    --------
    >>> print(Dependence(0.3302, 0.4981, 1.6, (0.4981, 0.24), 500))
    chi2 0.330, maximal correlation 0.498, effective rank 1.6 (500 held-out rows)
    """

    chi2: float
    maximal_correlation: float
    effective_rank: float
    singular_values: tuple[float, ...]
    n_rows: int

    def __str__(self) -> str:
        return (
            f"chi2 {self.chi2:.3f}, maximal correlation {self.maximal_correlation:.3f}, "
            f"effective rank {self.effective_rank:.1f} ({self.n_rows} held-out rows)"
        )


@dataclass(frozen=True)
class IndependenceResult:
    """Outcome of a permutation test.

    Examples
    --------
    >>> print(IndependenceResult(0.21, 0.001, 999))
    p = 0.001 (statistic 0.21, 999 permutations)
    """

    statistic: float
    pvalue: float
    n_permutations: int

    def __str__(self) -> str:
        return f"p = {self.pvalue:.3g} (statistic {self.statistic:.3g}, {self.n_permutations} permutations)"


@dataclass(frozen=True)
class HeldOutFeatures:
    """Features u(x_i), v(y_i) of rows that had no part in learning u, v and the singular values."""

    left: Float[Tensor, "rows rank"]
    right: Float[Tensor, "rows rank"]
    singular_values: Float[Tensor, " rank"]

    def dependence(self) -> Dependence:
        """See `dependence_from_features`."""
        return dependence_from_features(self.left, self.right, self.singular_values)

    def test(self, n_permutations: int = 999, random_state: int | torch.Generator | None = None) -> IndependenceResult:
        """See `permutation_test`."""
        return permutation_test(self.left, self.right, self.singular_values, n_permutations, random_state)


# -------------------------------------------------------------------- strength


def dependence_from_features(u_held: Tensor, v_held: Tensor, singular_values: Tensor) -> Dependence:
    """Strength of dependence from held-out features (rows, rank) and the singular values (rank,) of training.

    The i-th singular value is the held-out correlation of u_i(X) and v_i(Y), cut at 0. With g = Σ s_i u_i v_i
    centred, χ² is the largest −L of any multiple of g,

        max_c −L(c g) = (Σ_i s_i Cov(u_i, v_i))² / Σ_ij s_i s_j Cov(u_i, u_j) Cov(v_i, v_j),

    or 0 if g is larger on independent pairs. L ≥ −Σσ*² for every model (Kostic et al. 2024, Theorem 1) and no
    correlation exceeds σ*₁, so both err on the low side: a model that has learned little sees little dependence.

    Examples
    --------
    Y = X on two equally likely states: one pair of functions with σ = 1.

    >>> u = torch.tensor([[1.0], [-1.0]]).repeat(1000, 1)
    >>> print(dependence_from_features(u, u, torch.ones(1)))
    chi2 1.000, maximal correlation 1.000, effective rank 1.0 (2000 held-out rows)
    """
    u, v = _checked_features(u_held, v_held, singular_values)
    values = _correlations(u, v).clamp(min=0)
    return Dependence(
        chi2=_chi2(u, v, singular_values.double().to(u.device)),
        maximal_correlation=float(values[0]),
        effective_rank=_effective_rank(torch.where(values > 2 / len(u) ** 0.5, values, 0.0)),
        singular_values=tuple(values.tolist()),
        n_rows=len(u),
    )


def _chi2(u: Tensor, v: Tensor, s: Tensor) -> float:
    aligned = float(s @ covariance(u, v).diagonal())
    energy = float(s @ (covariance(u, u) * covariance(v, v)) @ s)
    return aligned**2 / energy if aligned > 0 and energy > 0 else 0.0


def _correlations(u: Tensor, v: Tensor) -> Float[Tensor, " rank"]:
    """Correlation of each column of u with that of v; 0 for a constant column."""
    u, v = u - u.mean(dim=0), v - v.mean(dim=0)
    norms = (u.square().sum(dim=0) * v.square().sum(dim=0)).sqrt()
    return torch.where(norms > 0, (u * v).sum(dim=0) / norms.clamp(min=torch.finfo(norms.dtype).tiny), 0.0)


def _effective_rank(values: Tensor) -> float:
    energies = values.square()
    total = float(energies.square().sum())
    return float(energies.sum()) ** 2 / total if total > 0 else 0.0


# -------------------------------------------------------------------- test


def permutation_test(
    u_held: Tensor,
    v_held: Tensor,
    singular_values: Tensor | None = None,
    n_permutations: int = 999,
    random_state: int | torch.Generator | None = None,
) -> IndependenceResult:
    """Test whether X and Y are independent, from features (rows, rank) learned on other rows.

    With singular values s the statistic is Σ_i s_i Cov(u_i, v_i), the mean held-out density ratio less 1: directions
    count as much as training trusted them. Without, it is Σ_ij Cov(u_i, v_j)², which looks along all pairs alike: for
    features that do not come in pairs, with less power where they do.

    If X and Y are independent, all pairings of the held-out x with the held-out y are equally likely given both sets
    and the features, so p = (1 + #{permuted ≥ observed}) / (1 + n_permutations) satisfies P(p ≤ α) ≤ α at any sample
    size, however badly the features were learned (Phipson & Smyth 2010).

    Examples
    --------
    >>> u = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    >>> permutation_test(u, u, torch.tensor([0.9, 0.5]), n_permutations=99, random_state=0).pvalue
    0.01
    """
    u, v = _checked_features(u_held, v_held, singular_values)
    check_integer(n_permutations, "n_permutations", minimum=1)
    weights = None if singular_values is None else singular_values.double().to(u.device)
    u, v = u - u.mean(dim=0), v - v.mean(dim=0)
    observed = _statistics(u, v[None], weights)
    permuted = torch.cat(
        [_statistics(u, v[rows], weights) for rows in _permutations(u, n_permutations, as_generator(random_state))]
    )
    # Sums in another order may differ by rounding; counting those as ties keeps the test valid.
    tolerance = 1e-12 * float(permuted.abs().max())
    exceeding = int((permuted >= observed - tolerance).sum())
    return IndependenceResult(float(observed), (1 + exceeding) / (1 + n_permutations), n_permutations)


def _statistics(u: Tensor, v: Float[Tensor, "b rows rank"], weights: Tensor | None) -> Float[Tensor, " b"]:
    if weights is not None:
        return torch.einsum("ai,bai->b", u * weights, v) / len(u)
    return (u.mT @ v / len(u)).square().sum(dim=(1, 2))


def _permutations(u: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Random orders of the rows, in chunks of bounded size."""
    m, d = u.shape
    step = max(1, CHUNK_ELEMENTS // (m * d))
    for start in range(0, count, step):
        keys = torch.rand((min(step, count - start), m), generator=generator, dtype=torch.float64)
        yield keys.argsort(dim=1).to(u.device)


def _checked_features(u: Tensor, v: Tensor, singular_values: Tensor | None) -> tuple[Tensor, Tensor]:
    if u.ndim != 2 or v.ndim != 2 or len(u) != len(v) or (singular_values is not None and u.shape != v.shape):
        raise ValueError(
            "`u_held` and `v_held` must be features of the same rows, shape (rows, rank); "
            f"got {tuple(u.shape)} and {tuple(v.shape)}. Encode x and y of the same pairs."
        )
    if singular_values is not None and singular_values.shape != u.shape[1:]:
        raise ValueError(
            f"`singular_values` must have shape ({u.shape[1]},), one per feature; got {tuple(singular_values.shape)}. "
            "Cut features and values to one rank."
        )
    if len(u) < 4:
        raise ValueError(f"`u_held` must hold at least 4 rows; got {len(u)}. Hold more rows out.")
    return u.double(), v.double()


# -------------------------------------------------------------------- learning the features


def learn_features(
    training: tuple[Any, Tensor],
    held_out: tuple[Any, Tensor],
    *,
    rank: int | None = None,
    hidden_sizes: Sequence[int] = HIDDEN_SIZES,
    x_encoder: nn.Module | None = None,
    max_steps: int = 150,
    seed: int = 0,
    device: torch.device | None = None,
) -> HeldOutFeatures:
    """Learn an operator of (X, Y), in raw coordinates, on one part of the rows and apply it to the other.

    Residual coordinates take away the very dependence that is asked for, so their operator cannot answer; this one is
    small (one hidden layer, rank at most 16) and strongly regularised, since a test needs few reliable directions.

    Parameters
    ----------
    training, held_out : (x, y)
        Encoded inputs x, of about unit scale, and targets y (rows, q); y meets the network as normal scores.
    rank : int, optional
        Number of features; by default one per eight training rows, at most 16.
    x_encoder : torch.nn.Module, optional
        Encoder of inputs that are not tables, with `rank` outputs; trained as a copy.
    """
    device = torch.device("cpu") if device is None else device
    (x, y), (x_held, y_held) = training, held_out
    scores = NormalScores.fit(y)
    pairs = TensorPairs(x, scores(y), device=device)
    width = rank or min(MAX_RANK, max(2, len(y) // ROWS_PER_FEATURE))
    operator = _new_operator(x, y.shape[1], width, hidden_sizes, x_encoder, seed).to(device)
    train_operator(
        operator,
        pairs,
        loss="covariance",
        gamma=1e-3,
        gate_strength=GATE_STRENGTH,
        validation_pairs=None,
        schedule=Schedule(max_steps=max_steps, learning_rate=5e-3, batch_size=512, early_stopping=False),
        runtime=Runtime(seed=seed, progress=False),
    )
    operator.postprocess(pairs, kind="whitening", ridge=RIDGE)
    return _apply(operator, TensorPairs(x_held, scores(y_held), device=device))


def _new_operator(
    x: Any, n_targets: int, width: int, hidden_sizes: Sequence[int], x_encoder: nn.Module | None, seed: int
) -> SpectralOperator:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left = copy.deepcopy(x_encoder) or MLP(x.shape[1], hidden_sizes, width, input_gate=x.shape[1] >= GATE_INPUTS)
        return SpectralOperator(left, MLP(n_targets, hidden_sizes, width), width)


@torch.no_grad()
def _apply(operator: SpectralOperator, pairs: TensorPairs) -> HeldOutFeatures:
    parts = [(operator.left_features(x), operator.right_features(y)) for x, y, _ in pairs.chunks(65536)]
    left, right = (torch.cat(part).double() for part in zip(*parts, strict=True))
    return HeldOutFeatures(left, right, operator.singular_values.detach().double())


def split_and_learn(
    x: Any, y: Tensor, *, test_fraction: float = 0.5, seed: int = 0, **settings: Any
) -> HeldOutFeatures:
    """`learn_features` on a random part of the rows, applied to the other `test_fraction` of them.

    Half and half: fewer rows to learn from give worse features, fewer to test on a larger standard error.
    """
    check_number(test_fraction, "test_fraction", minimum=0, maximum=1, open_ends=True)
    n = len(y)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    n_held = min(max(4, round(test_fraction * n)), n - 8)
    parts = [(select(x, rows.to(y.device)), y[rows.to(y.device)]) for rows in (order[n_held:], order[:n_held])]
    return learn_features(*parts, seed=seed, **settings)


def fit_and_test(
    x: Any,
    y: Tensor,
    *,
    n_permutations: int = 999,
    random_state: int | None = None,
    **settings: Any,
) -> tuple[Dependence, IndependenceResult]:
    """Strength of dependence and test of independence of tensors x and y (rows, q), from one split of the rows.

    `settings` go to `split_and_learn` and `learn_features`.

    Examples
    --------
    >>> x = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    >>> strength, result = fit_and_test(x, x**2, random_state=0)
    >>> strength.maximal_correlation > 0.9, result.pvalue
    (True, 0.001)
    """
    check_integer(n_permutations, "n_permutations", minimum=1)
    seed = _seed(random_state)
    features = split_and_learn(x, y, seed=seed, **settings)
    return features.dependence(), features.test(n_permutations, seed)


def _seed(random_state: int | None) -> int:
    if random_state is None:
        return int(torch.randint(2**31 - 1, (), generator=as_generator(None)))
    return check_integer(random_state, "random_state", minimum=0)


# -------------------------------------------------------------------- arrays


def independence_test(
    X: Any,
    y: Any,
    *,
    n_permutations: int = 999,
    test_fraction: float = 0.5,
    max_steps: int = 150,
    random_state: int | None = None,
    device: str | torch.device = "auto",
) -> IndependenceResult:
    """Test whether X and y are independent: learn singular functions on half of the rows, permute the other half.

    The p-value is exact at any sample size (see `permutation_test`); it sees any kind of dependence that the networks
    can learn: of the mean, of the spread, of the shape, in several columns together.

    Parameters
    ----------
    X, y : array of shape (n,) or (n, p)
        Paired rows, numeric and finite, at least 20.
    n_permutations : int
        The smallest possible p-value is 1/(1 + n_permutations).
    test_fraction : float
        Share of rows to test on; the others train.
    max_steps : int
        Steps of training.
    random_state : int, optional
        Seed of split, networks and permutations.

    Examples
    --------
    >>> x = torch.linspace(0, 6.28, 200)
    >>> independence_test(x.cos(), x.sin(), random_state=0).pvalue  # uncorrelated, but on a circle
    0.001
    """
    settings = {"test_fraction": test_fraction, "max_steps": max_steps, "device": resolve_device(device)}
    x, target = _check_rows(X, y)
    _, result = fit_and_test(x, target, n_permutations=n_permutations, random_state=random_state, **settings)
    return result


def measure_dependence(
    X: Any,
    y: Any,
    *,
    test_fraction: float = 0.5,
    max_steps: int = 150,
    random_state: int | None = None,
    device: str | torch.device = "auto",
) -> Dependence:
    """Strength of the dependence of X and y, measured on rows that had no part in learning it.

    Parameters are those of `independence_test`.

    Examples
    --------
    >>> x = torch.linspace(-1, 1, 400)
    >>> measure_dependence(x, x**2, random_state=0).maximal_correlation > 0.9
    True
    """
    x, target = _check_rows(X, y)
    seed = _seed(random_state)
    features = split_and_learn(
        x, target, test_fraction=test_fraction, seed=seed, max_steps=max_steps, device=resolve_device(device)
    )
    return features.dependence()


def _check_rows(X: Any, y: Any) -> tuple[Tensor, Tensor]:
    """X scaled and y as it is, both (n, columns)."""
    x, target = _as_table(X, "X"), _as_table(y, "y")
    if len(x) != len(target):
        raise ValueError(f"`X` and `y` must have as many rows; got {len(x)} and {len(target)}. Pair them row by row.")
    if len(x) < MINIMUM_ROWS:
        raise ValueError(f"`X` must hold at least {MINIMUM_ROWS} rows; got {len(x)}. Pass more data.")
    return InputScaler.fit(x)(x), target


def _as_table(value: Any, name: str) -> Tensor:
    table = as_float_tensor(value, name)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape (n,) or (n, p); got {tuple(table.shape)}. Reshape it.")
    if torch.isinf(table).any():
        raise ValueError(f"`{name}` must be finite; got {int(torch.isinf(table).sum())} infinite values. Remove them.")
    return table
