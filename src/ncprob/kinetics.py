"""Questions about time: transition probabilities, forecasts, timescales, slow coordinates, several lags.

A model of pairs (x_t, x_{t+lag}) is a model of the transition operator of the process. With sets A and B given by
callables, its answers are averages of the same conditional laws as all others (`ncprob.conditioning`):

    P(x_{t+lag} ∈ B | x_t ∈ A),    P(x_{t+lag} ∈ B | x_t = x),    t_k = −lag / log σ_k.

For a reversible process in equilibrium the operator is symmetric, and its powers are the operators of multiples of the
lag.

References
----------
.. [1] Noé, Nüske. A variational approach to modeling slow processes in stochastic dynamical systems. Multiscale
   Modeling & Simulation 11, 2013.
.. [2] Wu, Noé. Variational approach for learning Markov processes from time series data. J. Nonlinear Sci. 30, 2020.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ncprob._validation import check_integer, check_number
from ncprob.base import to_numpy
from ncprob.distribution import ConditionalDistribution
from ncprob.estimators import NCPRegressor
from ncprob.lagged import TimeLaggedPairs
from ncprob.lagged_laws import (
    EstimatorLaws,
    OperatorLaws,
    Spectrum,
    State,
    as_trained,
    by_chunks,
    symmetrised,
    with_states,
)
from ncprob.operator import SpectralOperator
from ncprob.resampling import FEWEST_BLOCKS, Estimate, block_sums, bootstrap, check_blocks

__all__ = ["Estimate", "Kinetics", "Reversibility", "implied_timescales"]

SIGNIFICANT = 0.01  # p-value and size of an asymmetry that powers of the operator must not overlook
NOTICEABLE = 0.05


def implied_timescales(values: Any, lag: float) -> Any:
    """t_k = −lag / log σ_k, the time in which the k-th coordinate forgets; NaN for values that are not positive.

    Examples
    --------
    >>> implied_timescales(torch.tensor([0.5, 0.25]), lag=2.0)
    tensor([2.8854, 1.4427], dtype=torch.float64)
    """
    sigma = torch.as_tensor(values).double()
    times = torch.where(sigma > 0, (lag / sigma.clamp(0, 1).log()).abs(), torch.nan)
    return times if isinstance(values, Tensor) else to_numpy(times)


@dataclass(frozen=True)
class Reversibility:
    """How far a process is from looking the same backwards in time.

    Attributes
    ----------
    asymmetry : float
        ‖K − Kᵀ‖ / ‖K + Kᵀ‖ of the operator among the learned features, free of the bias by noise; 0 if reversible.
    p_value : float
        Probability of so large an asymmetry if the process is reversible, by random reversals of blocks in time.
    """

    asymmetry: float
    p_value: float

    @property
    def rejected(self) -> bool:
        """Whether the process is clearly not reversible."""
        return self.p_value < SIGNIFICANT and self.asymmetry > NOTICEABLE


class Kinetics:
    """Questions about a process, asked of a model of its time-lagged pairs.

    Parameters
    ----------
    model : SpectralOperator or NCPRegressor
        Trained on pairs of the same lag. An operator must be post-processed (whitened) already, and answers with
        tensors; an estimator answers with arrays.
    pairs : TimeLaggedPairs
        Pairs over which sets are averaged and which carry the laws; usually the training pairs.
    reversible : bool
        For an operator whose x and y share one encoder: take the process as reversible and in equilibrium. Features are
        whitened anew with covariances that count every pair in both directions, ½(C_XX + C_YY) and ½(C_XY + C_YX)
        [2]_, so values are eigenvalues, left and right functions are the same, and several lags follow by powers.
        Asking about several lags warns if the pairs are clearly not reversible.
    states : sequence of callables, Boxes or (low, high] tuples
        For an operator: sets whose indicators join the learned functions in the closed-form part, so that forecasts
        agree on average over each of them with what is counted in the pairs, see Notes.
    block_length : int, optional
        Number of neighbouring pairs that are resampled together for sampling errors. By default four times the slowest
        timescale, and at least the lag, with ten blocks at least.
    chunk_size : int
        Number of frames encoded at a time.

    Notes
    -----
    For an operator, the ratio 1 + Σ_k σ_k u_k(x) v_k(y) is averaged over the y of each state before it is cut off at
    zero, so that rare transitions are not made frequent by noise of single points; asking `distribution` for the
    probability of a set cuts off at every point first. The two differ where the model errs.

    Learned functions hold the slow part of a set's indicator; its sharp edge, across which a process comes and goes, is
    outside of their span. With eigenfunctions u_k of a reversible process, the part that a rank of d leaves out of
    P(x_t ∈ A, x_{t+lag} ∈ A) is Σ_{k>d} σ_k ⟨u_k, 1_A⟩², so a model leaves sets a little too easily. `states` puts
    their indicators into the span; the rest of the answers hardly changes.

    Sampling errors come from a bootstrap over blocks of neighbouring pairs (`ncprob.resampling`). For an operator, the
    closed-form part is computed again for every resample: means, covariances and singular values within the learned
    features; the encoders stay. For an estimator, the error is that of counting transitions: the error of a model that
    smooths is smaller, so it is on the safe side.

    Examples
    --------
    >>> import ncprob
    >>> from ncprob.encoders import MLP
    >>> process = ncprob.datasets.DoubleWell()
    >>> pairs = ncprob.TimeLaggedPairs(list(process.trajectories(40, 50, random_state=0)), lag=1)
    >>> encoder = MLP(1, (32,), 4)
    >>> operator = ncprob.SpectralOperator(encoder, encoder, rank=4)
    >>> history = ncprob.train(operator, pairs, max_steps=100, device="cpu", progress=False)
    >>> kinetics = Kinetics(operator.postprocess(pairs), pairs, reversible=True)
    >>> left, right = (lambda x: x[:, 0] < 0), (lambda x: x[:, 0] >= 0)
    >>> matrix = kinetics.transition_matrix([left, right])
    >>> bool(abs(matrix.value[0, 1] - process.transition_matrix([-torch.inf, 0, torch.inf])[0, 1]) < 0.03)
    True
    >>> kinetics.forecast(right, torch.tensor([[-1.0], [1.0]]), steps=[1, 2, 3]).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        model: SpectralOperator | NCPRegressor,
        pairs: TimeLaggedPairs,
        *,
        reversible: bool = False,
        states: Sequence[State] = (),
        block_length: int | None = None,
        chunk_size: int = 4096,
    ) -> None:
        if not isinstance(pairs, TimeLaggedPairs):
            raise TypeError(
                f"`pairs` must be TimeLaggedPairs; got {type(pairs).__name__}. Make them from your trajectories."
            )
        _check_list(states)
        self.pairs, self.reversible = pairs, reversible
        self._chunk_size = check_integer(chunk_size, "chunk_size", minimum=1)
        self._model: OperatorLaws | EstimatorLaws
        if isinstance(model, SpectralOperator):
            if not reversible:
                as_trained(model)  # refuses what is not whitened
            wider = with_states(model, pairs, states, chunk_size) if states else model
            spectrum = symmetrised(wider, pairs, chunk_size) if reversible else as_trained(wider)
            self._model = OperatorLaws(spectrum, pairs, chunk_size)
        elif isinstance(model, NCPRegressor):
            check_is_fitted(model)
            if reversible:
                raise ValueError(
                    "`reversible` needs a SpectralOperator whose x and y share one encoder; got an estimator. Train an "
                    "operator with `ncprob.train`."
                )
            if states:
                raise ValueError(
                    "`states` needs a SpectralOperator; got an estimator. Leave `states` out, or train an operator "
                    "with `ncprob.train`."
                )
            self._model = EstimatorLaws(model, pairs)
        else:
            raise TypeError(
                f"`model` must be a SpectralOperator or an NCPRegressor; got {type(model).__name__}. Train one first."
            )
        self.block_length = self._default_length() if block_length is None else block_length
        check_integer(self.block_length, "block_length", minimum=1)
        self._tested: dict[tuple[int, int], Reversibility] = {}

    def _default_length(self) -> int:
        slowest = implied_timescales(self._model.values[:1].double(), float(self.pairs.lag))
        wanted = 4 * float(slowest[0]) if len(slowest) and math.isfinite(float(slowest[0])) else math.inf
        return max(1, int(min(max(wanted, self.pairs.lag), len(self.pairs) / FEWEST_BLOCKS)))

    # ---------------------------------------------------------------- sets

    def transition_probability(
        self,
        A: State,
        B: State,
        *,
        steps: int = 1,
        confidence: float = 0.9,
        n_resamples: int = 200,
        random_state: int = 0,
    ) -> Estimate:
        """P(x_{t + steps·lag} ∈ B | x_t ∈ A) with its sampling error.

        Parameters
        ----------
        A, B : callable, Box or (low, high] tuple
            Sets of frames; callables get x and y, tensors or for an estimator arrays, and give one boolean per row.
        steps : int
            Number of lags; more than one needs `reversible=True`.
        confidence : float
            Probability of the interval from `low` to `high`.
        n_resamples, random_state : int
            Resamples of the bootstrap, and their seed.
        """
        full = self._transitions([A], [B], steps, confidence, n_resamples, random_state)
        return Estimate(*(self._model.export(getattr(full, name)[0, 0]) for name in _FIELDS))

    def transition_matrix(
        self,
        states: Sequence[State],
        *,
        steps: int = 1,
        confidence: float = 0.9,
        n_resamples: int = 200,
        random_state: int = 0,
    ) -> Estimate:
        """P(x_{t + steps·lag} ∈ S_j | x_t ∈ S_i) for all pairs of states, shape (k, k), with sampling errors.

        Rows add to one if the states cover everything. Each state must be a function of x and of y alike.
        """
        full = self._transitions(states, states, steps, confidence, n_resamples, random_state)
        return Estimate(*(self._model.export(getattr(full, name)) for name in _FIELDS))

    def counted_matrix(
        self, states: Sequence[State], *, confidence: float = 0.9, n_resamples: int = 200, random_state: int = 0
    ) -> Estimate:
        """The same by counting transitions in the pairs, without the model: to compare with."""
        inside, after = self._indicators(states, "x"), self._indicators(states, "y")
        value = inside.mT @ after / inside.sum(dim=0)[:, None]
        full = self._errors(value, inside, after, None, confidence, n_resamples, random_state)
        return Estimate(*(self._model.export(getattr(full, name)) for name in _FIELDS))

    def _transitions(
        self, before: Sequence[State], after: Sequence[State], steps: int, confidence: float, n: int, seed: int
    ) -> Estimate:
        self._check_steps(steps)
        inside, reached = self._indicators(before, "x"), self._indicators(after, "y")
        value = torch.stack([self._model.given(mask > 0, after, reached, steps) for mask in inside.mT])
        return self._errors(value, inside, reached, steps, confidence, n, seed)

    def _errors(
        self, value: Tensor, inside: Tensor, reached: Tensor, steps: int | None, confidence: float, n: int, seed: int
    ) -> Estimate:
        """Bootstrap of the closed-form operator, or of counting if `steps` is None or there are no features."""
        left, right = self._model.features()
        widths = [1, left.shape[1], right.shape[1], inside.shape[1], reached.shape[1]]
        rows = torch.cat([inside.new_ones(len(inside), 1), left, right, inside, reached], dim=1)
        one, u, v, a, b = (torch.arange(sum(widths)).split(widths)[i] for i in range(5))

        def statistic(sums: Tensor) -> Tensor:
            moments = sums / sums[:, :1, :1]
            share = moments[:, one][:, :, a].mT
            if steps is None or len(u) == 0:
                return moments[:, a][:, :, b] / share
            means = moments[:, :1]
            central = moments - means.mT @ means
            core = _closed_form(
                central[:, u][:, :, u], central[:, v][:, :, v], central[:, u][:, :, v], steps, self.reversible
            )
            return means[:, :, b] + central[:, a][:, :, u] @ core @ central[:, v][:, :, b] / share

        sums = block_sums(rows, self.pairs.blocks(self.block_length))
        settings: dict[str, Any] = {"confidence": confidence, "n_resamples": n, "seed": seed}
        found = bootstrap(sums, statistic, value, bounds=(0.0, 1.0), **settings)
        return _unknown_errors(found, (sums[:, 0, a] > 0).sum(dim=0) < 2)

    def _indicators(self, states: Sequence[State], side: str) -> Tensor:
        """Which rows lie in which states, (n, k), float64; every state of x must be visited."""
        _check_list(states)
        if not states:
            raise ValueError("`states` must hold at least one set; got none. Pass a list of callables.")
        columns = torch.stack([self._model.inside(state, side) for state in states], dim=1).double()
        for number, visits in enumerate(columns.sum(dim=0).tolist()):
            if side == "x" and visits == 0:
                raise ValueError(
                    f"every state must hold at least one frame; state {number} holds none. Choose a larger set."
                )
        return columns

    def _check_steps(self, steps: int) -> None:
        check_integer(steps, "steps", minimum=1)
        if steps == 1:
            return
        if not self.reversible:
            raise ValueError(
                f"`steps` must be 1 unless the process is taken as reversible; got {steps}. Powers of the operator "
                "need one encoder for x and y and symmetric statistics. Use `Kinetics(operator, pairs, "
                "reversible=True)`, or learn pairs of the longer lag."
            )
        tested = self.reversibility()
        if tested.rejected:
            warnings.warn(
                f"the pairs are not reversible (asymmetry {tested.asymmetry:.2f}, p-value {tested.p_value:.3f}): "
                "powers of the symmetrised operator describe another process. Learn pairs of the longer lag instead.",
                stacklevel=3,
            )

    # ---------------------------------------------------------------- points

    def forecast(self, B: State, x: Any, *, steps: int | Sequence[int] = 1) -> Any:
        """P(x_{t + steps·lag} ∈ B | x_t = x_i) for every row of x, shape (n,); several numbers of lags, (n, k).

        Where is the process a lag later, or several: with B the products and x on the way this is what a committor
        says, but at given times rather than whenever B or its opposite is reached first.
        """
        single = isinstance(steps, numbers.Integral)
        several: list[Any] = [steps] if single else list(steps)  # type: ignore[arg-type]
        if not several:
            raise ValueError("`steps` must hold at least one number of lags; got none. Pass for example [1, 2].")
        for each in several:
            self._check_steps(each)
        columns = [self._model.forecast(B, x, int(each)) for each in several]
        return self._model.export(columns[0] if single else torch.stack(columns, dim=1))

    def distribution(
        self, x: Any, observable: Callable[[Any], Any] | None = None, *, steps: int = 1
    ) -> ConditionalDistribution:
        """The law of g(x_{t + steps·lag}) given x_t = x_i, for an `observable` g such as a distance.

        Mean, quantiles, intervals and all else follow, see `ncprob.ConditionalDistribution`.

        Parameters
        ----------
        x : frames, as the model takes them
            Conditions.
        observable : callable, optional
            Maps frames of y to one number or vector per row; by default the frames themselves.
        steps : int
            Number of lags; more than one needs `reversible=True`.
        """
        self._check_steps(steps)
        return self._model.distribution(x, observable, steps)

    # ---------------------------------------------------------------- spectrum

    @property
    def values(self) -> Any:
        """Singular values of the operator, or its eigenvalues if `reversible`, largest first."""
        return self._model.export(self._spectrum().values.double())

    def _spectrum(self) -> Spectrum:
        if isinstance(self._model, EstimatorLaws):
            raise ValueError(
                "the spectrum of the process needs a SpectralOperator; got an estimator. Train an operator with "
                "`ncprob.train`, or use `implied_timescales(model.singular_values_, lag)` if its coordinates are raw."
            )
        return self._model.spectrum

    def _check_number_of_values(self, k: int) -> None:
        most = len(self._spectrum().values)
        if check_integer(k, "k", minimum=1) > most:
            raise ValueError(f"`k` must be at most {most}, the rank of the operator; got {k}. Lower `k`.")

    def coordinates(self, x: Any = None, k: int = 2) -> Tensor:
        """Slow coordinates: the leading `k` (left) singular functions at frames x, or at the x of all pairs.

        They have mean 0 and variance 1 over the pairs and are what can be forecast best; signs are arbitrary.
        """
        self._check_number_of_values(k)
        left = self._spectrum().left
        if x is None:
            return self._model.features()[0][:, :k]
        return by_chunks(left, x, self._chunk_size)[:, :k]

    def timescales(
        self,
        k: int = 3,
        *,
        time_step: float = 1.0,
        confidence: float = 0.9,
        n_resamples: int = 200,
        random_state: int = 0,
    ) -> Estimate:
        """Implied timescales −lag / log σ of the leading `k` values with sampling errors, in units of `time_step`.

        Parameters
        ----------
        k : int
            How many.
        time_step : float
            Time between frames; 1 counts in frames.
        """
        self._check_number_of_values(k)
        check_number(time_step, "time_step", minimum=0, open_ends=True)
        lag = self.pairs.lag * time_step
        value = implied_timescales(self._spectrum().values.double().cpu()[:k], lag)
        left, right = self._model.features()
        r = left.shape[1]

        def statistic(sums: Tensor) -> Tensor:
            moments = sums / sums[:, :1, :1]
            central = (moments - moments[:, :1].mT @ moments[:, :1])[:, 1:, 1:]
            parts = central[:, :r, :r], central[:, r:, r:], central[:, :r, r:]
            return implied_timescales(_values(*parts, self.reversible)[:, :k], lag)

        rows = torch.cat([left.new_ones(len(left), 1), left, right], dim=1)
        sums = block_sums(rows, self.pairs.blocks(self.block_length))
        settings: dict[str, Any] = {"confidence": confidence, "n_resamples": n_resamples, "seed": random_state}
        return bootstrap(sums, statistic, value, bounds=(0.0, math.inf), **settings)

    def reversibility(self, n_reversals: int = 999, random_state: int = 0) -> Reversibility:
        """Whether the pairs look the same backwards in time, as far as the learned features can see.

        Running a block backwards changes the sign of its K_b − K_bᵀ and leaves K_b + K_bᵀ as it is. So under
        reversibility random signs of the blocks leave the law of Σ_{b≠c} ⟨K_b − K_bᵀ, K_c − K_cᵀ⟩ unchanged, which
        gives the p-value.
        """
        if not self.reversible:
            raise ValueError(
                "`reversibility` compares x and y in the same features. Use `Kinetics(operator, pairs, "
                "reversible=True)` with an operator that has one encoder for both."
            )
        check_integer(n_reversals, "n_reversals", minimum=1)
        if (n_reversals, random_state) not in self._tested:
            self._tested[n_reversals, random_state] = self._compared_backwards(n_reversals, random_state)
        return self._tested[n_reversals, random_state]

    def _compared_backwards(self, n_reversals: int, seed: int) -> Reversibility:
        left, right = self._model.features()
        r = left.shape[1]
        sums = block_sums(torch.cat([left, right], dim=1), self.pairs.blocks(self.block_length))[:, :r, r:]
        check_blocks(len(sums))
        odd, even = (sums - sums.mT).flatten(1), (sums + sums.mT).sum(dim=0)
        gram = odd @ odd.mT
        gram.fill_diagonal_(0)
        generator = torch.Generator().manual_seed(seed)
        signs = torch.randint(0, 2, (n_reversals, len(gram)), generator=generator).double() * 2 - 1
        observed, shuffled = gram.sum(), torch.einsum("ra,ab,rb->r", signs, gram, signs)
        p_value = (1 + int((shuffled >= observed).sum())) / (1 + n_reversals)
        asymmetry = float(observed.clamp(min=0).sqrt() / even.norm().clamp(min=1e-300))
        return Reversibility(asymmetry, p_value)


def _check_list(states: Any) -> None:
    listed = isinstance(states, list | tuple)
    if not listed or any(isinstance(state, numbers.Number) for state in states):
        raise TypeError(
            "`states` must be a list of sets, each a callable, a Box or a (low, high] tuple; got "
            f"{f'numbers, {states!r}' if listed else type(states).__name__}. Pass a list, also of one set."
        )


def _unknown_errors(found: Estimate, alone: Tensor) -> Estimate:
    """NaN instead of errors for rows of states that one block alone holds: resampling it changes nothing."""
    if not bool(alone.any()):
        return found
    warnings.warn(
        f"state {int(alone.nonzero()[0, 0])} is visited in one block of neighbouring frames only: its sampling errors "
        "are not known and are given as NaN. Lower `block_length`, choose larger sets or add data.",
        stacklevel=4,
    )
    known = [torch.where(alone[:, None], torch.nan, part) for part in (found.standard_error, found.low, found.high)]
    return Estimate(found.value, *known)


_FIELDS = ("value", "standard_error", "low", "high")


def _closed_form(left: Tensor, right: Tensor, cross: Tensor, steps: int, reversible: bool) -> Tensor:
    """C_X⁻¹ C_XY C_Y⁻¹, or its power with symmetric statistics, for stacks of covariances."""
    if not reversible:
        return _inverse(left) @ cross @ _inverse(right)
    root = _inverse((left + right) / 2, power=-0.5)
    symmetric = root @ (cross + cross.mT) @ root / 2
    return root @ torch.linalg.matrix_power(symmetric, steps) @ root


def _values(left: Tensor, right: Tensor, cross: Tensor, reversible: bool) -> Tensor:
    """Singular values, or eigenvalues with symmetric statistics, largest first."""
    if not reversible:
        return torch.linalg.svdvals(_inverse(left, -0.5) @ cross @ _inverse(right, -0.5))
    root = _inverse((left + right) / 2, power=-0.5)
    values = torch.linalg.eigvalsh(root @ (cross + cross.mT) @ root / 2)
    return values.gather(1, values.abs().argsort(dim=1, descending=True))


def _inverse(covariance: Tensor, power: float = -1.0) -> Tensor:
    """A negative power of each covariance of a stack; directions without variance are left out."""
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > 1e-6 * values[:, -1:]
    scale = torch.where(kept, values.clamp(min=1e-300) ** power, 0.0)
    return vectors * scale[:, None, :] @ vectors.mT
