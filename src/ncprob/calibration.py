"""Conformal calibration: prediction intervals whose coverage holds whatever the model got wrong.

Rows that the model has not seen are scored by how much an interval must grow to reach their y. Among n such
scores and that of a new row every order is equally likely, so the new score is at most the ⌈(n + 1)c⌉-th smallest
of them with probability at least c (Vovk, Gammerman & Shafer 2005). Only exchangeable rows are needed: no
assumption on the model or the law, and any n. The guarantee is marginal: it holds on average over X.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob import weighted
from ncprob._validation import as_float_tensor, check_choice, check_probabilities
from ncprob.distribution import ConditionalDistribution
from ncprob.preprocessing import robust_center_and_scale

Method = Literal["pit", "cqr"]
METHODS: tuple[str, ...] = get_args(Method)
KINDS = ("shortest", "central")

CELLS = 500  # shortest intervals begin and end at quantiles of levels k/500
SLACK = 1e-9  # in probability: far above rounding, far below the weight of an atom that matters
NARROWEST = 1e-3  # least width that scores are measured in, as a share of the spread of the atoms

Cumulative = Float[Tensor, "rows atoms"]
Atoms = Float[Tensor, "... atoms"]  # shared, or of each row


def conformal_quantile(
    scores: Float[Tensor, " n"],
    coverage: Float[Tensor, " k"],
    weights: Float[Tensor, " n"] | None = None,
    new_weights: Float[Tensor, " m"] | None = None,
) -> Float[Tensor, "m k"]:
    """The score that a new row stays below with probability at least `coverage`, +inf if n rows cannot tell.

    Without weights it is the ⌈(n + 1)c⌉-th smallest score. With weights w_i, the density ratios of new to
    calibration rows, it is the c-quantile of Σ w_i δ(score_i) + w_new δ(∞), normalised (Tibshirani et al. 2019,
    lemma 3).

    Examples
    --------
    >>> scores = torch.tensor([3.0, 1.0, 2.0, 4.0])
    >>> conformal_quantile(scores, torch.tensor([0.5, 0.8, 0.9], dtype=torch.float64))
    tensor([[3., 4., inf]])
    """
    weights = torch.ones_like(scores, dtype=torch.float64) if weights is None else weights.double()
    new = weights.new_ones(1) if new_weights is None else new_weights
    order = torch.argsort(scores)
    cumulative = weights[order].cumsum(0)
    wanted = coverage.double() * (cumulative[-1] + new)[:, None]
    index = torch.searchsorted(cumulative, wanted * (1 - weighted.ROUNDING))
    return torch.nn.functional.pad(scores[order], (0, 1), value=torch.inf)[index]


class ConformalCalibrator:
    """Turns the intervals of a model into intervals with finite-sample coverage, for any coverage asked later.

    Parameters
    ----------
    law : ConditionalDistribution
        Laws predicted at the calibration rows, which the model has not been fitted on.
    y_cal : array of shape (n,) or (n, q)
        Targets of these rows. The components of a vector are calibrated one by one.
    weights : array of shape (n,), optional
        Density ratios of new to calibration rows, relative to the weight of a new row (covariate shift, Tibshirani et
        al. 2019); a weight of 2 counts a row twice.
    method : {"pit", "cqr"}
        `"pit"` moves the level: the interval is one of the model's own, at the level that covers as often as asked
        (distributional conformal prediction, Chernozhukov, Wüthrich & Zhu 2021). Intervals of growing coverage are
        nested. `"cqr"` keeps the level and widens the model's interval on both sides by a share of its width
        (conformalised quantile regression, Romano, Patterson & Candès 2019, in the scaled form CQR-r of Sesia &
        Candès 2020).

    Notes
    -----
    Any nested family of sets can be calibrated (Gupta, Kuchibhotla & Ramdas 2022). The score of y under `"pit"` is
    the lowest level whose interval contains it,

    - central: max(1 − 2F(y), 2F(y−) − 1), which is 2|F(y) − ½| for a continuous law;
    - shortest: the lowest level from which on all shortest intervals contain y. Levels are multiples of 1/500, and
      so are those of the quantiles where intervals may end; an interval is cut to the part it shares with all
      larger ones, since shortest intervals alone need not be nested.

    A law on atoms ends somewhere. Beyond its last atom the score goes on as 1 + distance/(width of the law), and a
    level above 1 widens the whole range by that share. An interval is unbounded only if n is too small for the
    coverage, (n + 1)c > n.

    Examples
    --------
    A model that is too sure of itself: it says N(0, 1), the truth is N(0, 2²).

    >>> from ncprob.support import Support
    >>> levels = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    >>> law = ConditionalDistribution(Support(torch.special.ndtri(levels), torch.zeros(2000, 1)), torch.zeros(999, 1))
    >>> y = 2 * torch.randn(999, generator=torch.Generator().manual_seed(0))
    >>> law[:1].interval(0.8, kind="central").round(decimals=1)
    tensor([[-1.3000,  1.3000]], dtype=torch.float64)
    >>> ConformalCalibrator(law, y).interval(law[:1], 0.8, kind="central").round(decimals=1)
    tensor([[-2.6000,  2.6000]], dtype=torch.float64)
    """

    def __init__(self, law: ConditionalDistribution, y_cal: Any, weights: Any = None, method: str = "pit") -> None:
        self.method = check_choice(method, "method", METHODS)
        if len(law) == 0:
            raise ValueError("`law` must hold at least one calibration row; got none. Pass rows kept from training.")
        self._law = law
        self._y = law._own_values(y_cal)[..., 0]
        self._weights = None if weights is None else _check_weights(weights, len(law), "weights").to(self._y.device)
        self._scores: dict[tuple[str, float | None], Tensor] = {}

    def __len__(self) -> int:
        return len(self._law)

    def __repr__(self) -> str:
        return f"ConformalCalibrator({len(self)} rows, method={self.method!r})"

    def interval(
        self, law: ConditionalDistribution, coverage: Any, kind: str = "shortest", new_weights: Any = None
    ) -> Any:
        """Calibrated intervals of new rows, in the shapes of `ConditionalDistribution.interval`.

        Parameters
        ----------
        law : ConditionalDistribution
            Laws of the new rows, by the model that gave the calibration laws.
        coverage : float or sequence of float
            Probability to reach, on average over X.
        kind : {"shortest", "central"}
            Form of the model's interval.
        new_weights : array of shape (len(law),), optional
            Weights of the new rows on the scale of the calibration weights; 1 if not given.
        """
        check_choice(kind, "kind", KINDS)
        coverages = check_probabilities(coverage, "coverage").to(self._y.device)
        q = self._y.shape[1]
        if law.support.n_components != q:
            raise ValueError(
                f"`law` must have {q} component{'s' * (q > 1)}, as the calibration rows; got "
                f"{law.support.n_components}. Use laws of the same model."
            )
        new = None if new_weights is None else _check_weights(new_weights, len(law), "new_weights").to(self._y.device)
        thresholds = self._thresholds(coverages.reshape(-1), kind, new).expand(len(law), -1, -1)
        if self.method == "pit":
            answer = _nested_intervals(law, thresholds, kind)
        else:
            answer = self._widened(law, coverages.reshape(-1), thresholds, kind)
        return law._by_component(answer[..., 0] if coverages.ndim == 0 else answer)

    def threshold(self, coverage: Any, kind: str = "shortest") -> Tensor:
        """Conformal quantile of the scores, (q, k): an adjusted level for `"pit"`, a share of the width for `"cqr"`.

        An adjusted level close to the coverage says that the model was calibrated already.
        """
        check_choice(kind, "kind", KINDS)
        coverages = check_probabilities(coverage, "coverage").to(self._y.device)
        return self._thresholds(coverages.reshape(-1), kind, None)[0]

    def _thresholds(self, coverages: Tensor, kind: str, new_weights: Tensor | None) -> Tensor:
        """(m, q, k) with m = 1, or one per new row where these have weights."""

        def of(scores: Tensor, levels: Tensor) -> Tensor:
            columns = [conformal_quantile(column, levels, self._weights, new_weights) for column in scores.mT]
            return torch.stack(columns, dim=1)

        if self.method == "pit":
            return of(self._scores_of(kind), coverages)
        return torch.cat([of(self._scores_of(kind, float(level)), level[None]) for level in coverages], dim=-1)

    def _scores_of(self, kind: str, coverage: float | None = None) -> Tensor:
        """Scores (n, q) of the calibration rows, computed once for each question."""
        key = (kind, coverage)
        if key not in self._scores:
            self._scores[key] = (
                _nested_scores(self._law, self._y, kind)
                if coverage is None
                else _width_scores(self._law, self._y, coverage, kind)
            )
        return self._scores[key]

    def _widened(self, law: ConditionalDistribution, coverages: Tensor, shares: Tensor, kind: str) -> Tensor:
        """Intervals of the model with both ends moved out (in, if negative) by a share of the width; (n, q, 2, k)."""
        narrowest = _narrowest(law)
        parts = [
            _uncrossed(_widen(_model_interval(law, float(coverage), kind), shares[..., k], narrowest))
            for k, coverage in enumerate(coverages)
        ]
        return torch.stack(parts, dim=-1)


def _check_weights(weights: Any, n: int, name: str) -> Tensor:
    tensor = as_float_tensor(weights, name)
    if tensor.shape != (n,):
        raise ValueError(
            f"`{name}` must have shape ({n},), one weight per row; got {tuple(tensor.shape)}. Weigh every row."
        )
    if bool((tensor < 0).any()) or bool(torch.isinf(tensor).any()) or not bool((tensor > 0).any()):
        raise ValueError(f"`{name}` must be finite and not negative, with one positive; got others. Mend the weights.")
    return tensor


# -------------------------------------------------------------------- widening


def _narrowest(law: ConditionalDistribution) -> Float[Tensor, "n q"]:
    """Width below which intervals count as points, per member and component; positive even where Y is constant."""
    width = (NARROWEST * robust_center_and_scale(law.support.values)[1]).expand(len(law), -1)
    if law.transport is None:
        return width
    width = width * law.transport.slope(width[..., None] * 0)[..., 0]
    for k in range(width.shape[1]):
        levels = law._levels(k)
        if levels is not None:  # moved atoms are scores
            width[:, k] = NARROWEST * robust_center_and_scale(levels.values[:, None])[1]
    return width


def _widen(
    interval: Float[Tensor, "*shape 2"], share: Float[Tensor, "*shape"], narrowest: Tensor | float
) -> Float[Tensor, "*shape 2"]:
    """Move both ends out by `share` of the width; an infinite share gives the whole line."""
    low, high = interval.unbind(dim=-1)
    amount = share * (high - low).clamp(min=torch.as_tensor(narrowest, device=low.device))
    return torch.stack([low - amount, high + amount], dim=-1)


def _uncrossed(interval: Float[Tensor, "*shape 2"]) -> Float[Tensor, "*shape 2"]:
    """Intervals that shrank past a point become their middle."""
    low, high = interval.unbind(dim=-1)
    middle = (low + high) / 2
    crossed = low > high
    return torch.stack([torch.where(crossed, middle, low), torch.where(crossed, middle, high)], dim=-1)


def _model_interval(law: ConditionalDistribution, coverage: float, kind: str) -> Float[Tensor, "n q 2"]:
    """Intervals of the model before calibration."""
    level = torch.tensor(coverage, dtype=torch.float64, device=law.left.device)
    return law._shortest(level) if kind == "shortest" else law._central(level.reshape(1))[..., 0]


def _width_scores(law: ConditionalDistribution, y: Tensor, coverage: float, kind: str) -> Float[Tensor, "n q"]:
    """Share of its width by which the model's interval must grow to contain y; negative inside (CQR-r)."""
    low, high = _model_interval(law, coverage, kind).unbind(dim=-1)
    return torch.maximum(low - y, y - high) / torch.maximum(high - low, _narrowest(law))


# -------------------------------------------------------------------- nested families of intervals


def _nested_scores(law: ConditionalDistribution, y: Tensor, kind: str) -> Float[Tensor, "n q"]:
    """Lowest level whose interval contains y, above 1 beyond the last atom."""
    inner = _central_level if kind == "central" else _shortest_level
    narrowest = _narrowest(law)

    def component(w: Tensor, atoms: Tensor, k: int, rows: slice) -> Tensor:
        cumulative, own, atoms = _cumulative(w), y[rows, k], law._moved(atoms, k, rows)
        low, high = _range(cumulative, atoms).unbind(dim=-1)
        beyond = torch.maximum(low - own, own - high) / torch.maximum(high - low, narrowest[rows, k])
        return torch.where(beyond > 0, 1 + beyond, inner(cumulative, atoms, own))

    return law._per_component(component)


def _nested_intervals(law: ConditionalDistribution, levels: Tensor, kind: str) -> Float[Tensor, "n q 2 k"]:
    """Intervals at levels (n, q, k) of each member and component."""
    inner = _central_interval if kind == "central" else _shortest_interval
    narrowest = _narrowest(law)

    def component(w: Tensor, atoms: Tensor, k: int, rows: slice) -> Tensor:
        own = levels[rows, k]
        intervals = inner(_cumulative(w), law._moved(atoms, k, rows), own.clamp(max=1))
        return _widen(intervals, (own - 1).clamp(min=0), narrowest[rows, k, None]).mT

    return law._per_component(component)


def _cumulative(weights: Tensor) -> Cumulative:
    return weighted.padded_cumsum(weights)[:, 1:].contiguous()


def _quantiles(cumulative: Cumulative, atoms: Atoms, levels: Float[Tensor, "rows g"]) -> Float[Tensor, "rows g"]:
    """Smallest atom with cumulative weight ≥ level, for levels of each row's own."""
    levels = levels.clamp(SLACK, 1 - SLACK).contiguous()  # atoms without weight at both ends are left out
    return atoms.expand_as(cumulative).gather(1, torch.searchsorted(cumulative, levels))


def _range(cumulative: Cumulative, atoms: Atoms) -> Float[Tensor, "rows 2"]:
    """First and last atom that carry weight."""
    return _quantiles(cumulative, atoms, cumulative.new_tensor([0.0, 1.0]).expand(len(cumulative), 2))


def _central_level(cumulative: Cumulative, atoms: Atoms, y: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
    """max(0, 1 − 2F(y), 2F(y−) − 1): the first keeps the lower end below y, the second the upper end above."""
    padded = torch.nn.functional.pad(cumulative, (1, 0))
    upto, below = (
        padded.gather(1, torch.searchsorted(atoms, y[:, None].contiguous(), right=right))[:, 0]
        for right in (True, False)
    )
    return torch.maximum(1 - 2 * upto, 2 * below - 1).clamp(0, 1)


def _central_interval(
    cumulative: Cumulative, atoms: Atoms, levels: Float[Tensor, "rows k"]
) -> Float[Tensor, "rows k 2"]:
    """Quantiles at (1 ∓ level)/2; the slack keeps in a y of just this level, with F(y−) = (1 + level)/2."""
    tail = (1 - levels) / 2 - SLACK
    return torch.stack([_quantiles(cumulative, atoms, part) for part in (tail, 1 - tail)], dim=-1)


def _shortest_level(cumulative: Cumulative, atoms: Atoms, y: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
    """Lowest level of the nested shortest intervals that contain y, which lies between the first and last atom."""
    low, high = _nested_shortest(cumulative, atoms, fewest=1)
    inside = ((low <= y[:, None]) & (y[:, None] <= high)).sum(dim=1)
    return (CELLS + 1 - inside).clamp(max=CELLS).double() / CELLS


def _shortest_interval(
    cumulative: Cumulative, atoms: Atoms, levels: Float[Tensor, "rows k"]
) -> Float[Tensor, "rows k 2"]:
    counts = (levels * CELLS - 1e-6).ceil().clamp(min=1).long()
    bounds = _nested_shortest(cumulative, atoms, fewest=int(counts.min()) if counts.numel() else CELLS)
    return torch.stack([bound.gather(1, CELLS - counts) for bound in bounds], dim=-1)


def _nested_shortest(
    cumulative: Cumulative, atoms: Atoms, fewest: int
) -> tuple[Float[Tensor, "rows counts"], Float[Tensor, "rows counts"]]:
    """Ends of the shortest runs of CELLS, CELLS − 1, …, `fewest` cells, each cut to what it shares with all before.

    A cell holds a probability of 1/CELLS, so a run of k cells has at least k/CELLS. Where several modes leave
    nothing to share, the last interval that was not empty stays.
    """
    edges = torch.arange(CELLS, dtype=torch.float64, device=atoms.device).expand(len(cumulative), -1) / CELLS
    left = _quantiles(cumulative, atoms, edges + SLACK)
    right = _quantiles(cumulative, atoms, edges + 1 / CELLS - SLACK)
    runs = [_shortest_run(left, right, count) for count in range(CELLS, fewest - 1, -1)]
    low, high = (torch.cat(ends, dim=1) for ends in zip(*runs, strict=True))
    low, high = low.cummax(dim=1).values, high.cummin(dim=1).values
    last = (low <= high).sum(dim=1, keepdim=True) - 1
    index = torch.arange(low.shape[1], device=atoms.device).minimum(last)
    return low.gather(1, index), high.gather(1, index)


def _shortest_run(left: Tensor, right: Tensor, count: int) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows 1"]]:
    first = (right[:, count - 1 :] - left[:, : CELLS - count + 1]).argmin(dim=1, keepdim=True)
    return left.gather(1, first), right.gather(1, first + count - 1)
