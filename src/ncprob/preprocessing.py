"""Robust scaling of inputs and targets before they meet a network. Outliers must not set the scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncprob.state import State

NORMAL_IQR = 1.3489795  # interquartile range of the standard normal law
MAX_CORE = 5.0  # robust standard deviations
MARGIN = 10.0  # beyond the core of an input, that outliers come to
MAX_LEVELS = 32
MAX_KNOTS = 1024
STRAIGHTER = 10.0  # than a logarithm: how the scale of Y goes on beyond what it has seen
LARGEST = 1e150  # size of a target whose square is still a number


def robust_center_and_scale(
    values: Float[Tensor, "rows columns"],
) -> tuple[Float[Tensor, " columns"], Float[Tensor, " columns"]]:
    """Median and IQR/1.349 of every column; where the IQR is zero the standard deviation, else one.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [1e9, 5.0]], dtype=torch.float64)
    >>> center, scale = robust_center_and_scale(x)
    >>> center.tolist(), scale[1].item()
    ([1.0, 5.0], 1.0)
    """
    columns = values.double().mT.contiguous()
    q1, center, q3 = (_order_statistic(columns, fraction) for fraction in (0.25, 0.5, 0.75))
    iqr = (q3 - q1) / NORMAL_IQR
    # Dividing by the largest modulus first keeps squares of huge values finite.
    centered = columns - center[:, None]
    size = centered.abs().amax(dim=1)
    spread = centered.div_(torch.where(size > 0, size, 1.0)[:, None]).std(dim=1, correction=0) * size
    # An IQR of a few ulps is rounding, not spread; comparing it with the spread would let outliers decide.
    rounding = 16 * torch.finfo(columns.dtype).eps * torch.maximum(q1.abs(), q3.abs())
    scale = torch.where(iqr > rounding, iqr, spread)
    return center, torch.where(scale > 0, scale, 1.0)


def _order_statistic(columns: Float[Tensor, "columns rows"], fraction: float) -> Float[Tensor, " columns"]:
    """The value at or below which a fraction of each column lies; selection is far faster than sorting."""
    return columns.kthvalue(int(fraction * (columns.shape[1] - 1)) + 1, dim=1).values


def _center_scale_core(values: Float[Tensor, "rows columns"]) -> tuple[Tensor, Tensor, Tensor]:
    """Robust centre and scale, and how many scales from the centre 99 % of the rows lie, at least 1 and at most 5."""
    center, scale = robust_center_and_scale(values)
    sizes = ((values.double() - center) / scale).abs().mT.contiguous()
    return center, scale, _order_statistic(sizes, 0.99).clamp(1, MAX_CORE)


def _scale_state(scale: InputScaler | SoftScale) -> State:
    return State({"center": scale.center, "scale": scale.scale, "core": scale.core})


def _read_scale(state: State, n_columns: int) -> list[Tensor]:
    parts = [state.tensor(name, torch.float64, (n_columns,)) for name in ("center", "scale", "core")]
    if not all(bool((part > 0).all()) for part in parts[1:]):
        raise ValueError("scales must be positive")
    return parts


@dataclass(frozen=True)
class InputScaler:
    """Columns of X: robust standardisation, linear for 99 % of the rows, nearly logarithmic beyond, and bounded.

    Beyond the core |z| ≤ c the map goes on as c + k tanh(asinh(|z| − c)/k), k = 10: what is linear in x stays so,
    incomes and populations keep their order of magnitude, and outliers cannot dominate a network (the aim of the smooth
    clip of Holzmüller, Grinsztajn & Steinwart 2024).
    """

    center: Float[Tensor, " columns"]
    scale: Float[Tensor, " columns"]
    core: Float[Tensor, " columns"]

    @classmethod
    def fit(cls, x: Float[Tensor, "rows columns"]) -> InputScaler:
        """Learn centre, scale and core of every column.

        Examples
        --------
        >>> scaler = InputScaler.fit(torch.arange(101.0)[:, None])
        >>> scaler(torch.tensor([[50.0], [80.0], [110.0], [1e9]])).ravel().round(decimals=2)
        tensor([ 0.0000,  0.8100,  1.6200, 10.8000])
        """
        return cls(*_center_scale_core(x))

    def state(self) -> State:
        """What `from_state` needs."""
        return _scale_state(self)

    @classmethod
    def from_state(cls, state: State, n_columns: int) -> InputScaler:
        """A scaler of `n_columns` columns."""
        return cls(*_read_scale(state, n_columns))

    def __call__(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        """Scaled inputs, float32."""
        z = (x.double() - self.center) / self.scale
        beyond = z.abs() - self.core
        outside = z.sign() * (self.core + MARGIN * torch.tanh(beyond.clamp(min=0).asinh() / MARGIN))
        return torch.where(beyond > 0, outside, z).float()


@dataclass(frozen=True)
class TableEncoder:
    """Columns of X for a network: numbers scaled by `InputScaler`, level numbers as indicators.

    Levels are numbered from the most frequent one; the first 31 have an indicator each, rarer ones share one, and a
    negative number has none.
    """

    scaler: InputScaler
    numeric: list[int]
    levels: dict[int, int]

    @classmethod
    def fit(cls, x: Float[Tensor, "rows columns"], levels: dict[int, int]) -> TableEncoder:
        """Learn the scales; `levels` counts the levels of each categorical column.

        Examples
        --------
        >>> x = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 0.0]])
        >>> TableEncoder.fit(x, {1: 2})(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        tensor([[0., 0., 1.],
                [0., 0., 0.]])
        """
        numeric = [column for column in range(x.shape[1]) if column not in levels]
        return cls(InputScaler.fit(x[:, numeric]), numeric, levels)

    @property
    def n_inputs(self) -> int:
        """Columns that a network sees."""
        return len(self.numeric) + sum(min(count, MAX_LEVELS) for count in self.levels.values())

    def state(self) -> State:
        """What `from_state` needs."""
        facts = {"columns": len(self.numeric) + len(self.levels), "categorical": [list(p) for p in self.levels.items()]}
        return State(facts=facts, parts={"scaler": self.scaler.state()})

    @classmethod
    def from_state(cls, state: State, n_columns: int) -> TableEncoder:
        """An encoder of tables with `n_columns` columns."""
        state.integer("columns", n_columns, n_columns)
        pairs = [State(facts={"pair": pair}).integers("pair", minimum=0) for pair in state.fact("categorical", list)]
        levels = {column: count for column, count in pairs if column < n_columns}
        if len(levels) != len(pairs):
            raise ValueError("categorical columns must be columns of X, each named once")
        numeric = [column for column in range(n_columns) if column not in levels]
        return cls(InputScaler.from_state(state.part("scaler"), len(numeric)), numeric, levels)

    def __call__(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows inputs"]:
        """Inputs of a network, float32."""
        parts = [self.scaler(x[:, self.numeric])]
        for column, count in self.levels.items():
            numbers = x[:, column, None].clamp(max=MAX_LEVELS - 1)
            parts.append((numbers == torch.arange(min(count, MAX_LEVELS), device=x.device)).float())
        return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class SoftScale:
    """Columns of Y: robust standardisation, linear for 99 % of the rows and logarithmic in the tails that were seen.

    Beyond the core |z| ≤ c the map goes on as c + log(1 + |z| − c). Unlike ranks it is smooth and has an inverse,
    so smooth laws stay smooth; unlike plain scaling it keeps the tails of a Cauchy law within reach of a network.
    A logarithm that went on beyond the values seen would turn a wide law of few rows into powers of ten: from `low`
    and `high`, in scales from the centre, the map goes on as k log(1 + ·/k) along its slope there, with k = 10.
    """

    center: Float[Tensor, " columns"]
    scale: Float[Tensor, " columns"]
    core: Float[Tensor, " columns"]
    low: Float[Tensor, " columns"]
    high: Float[Tensor, " columns"]

    @classmethod
    def fit(cls, y: Float[Tensor, "rows columns"]) -> SoftScale:
        """Learn centre, scale, core and extremes of every column."""
        center, scale, core = _center_scale_core(y)
        low, high = torch.aminmax((y.double() - center) / scale, dim=0)
        return cls(center, scale, core, low, high)

    @classmethod
    def of_nothing(cls, n_columns: int) -> SoftScale:
        """The scale of a standard column, until there are rows."""
        one = torch.ones(n_columns, dtype=torch.float64)
        return cls(0 * one, one, one, -one, one)

    def state(self) -> State:
        """What `from_state` needs."""
        state = _scale_state(self)
        return State(state.tensors | {"low": self.low, "high": self.high})

    @classmethod
    def from_state(cls, state: State, n_columns: int) -> SoftScale:
        """A scale of `n_columns` columns."""
        low, high = (state.tensor(name, torch.float64, (n_columns,)) for name in ("low", "high"))
        if not bool((low <= high).all()):
            raise ValueError("the least value of a scale must not be above the largest")
        center, scale, core = _read_scale(state, n_columns)
        return cls(center, scale, core, low, high)

    def __call__(self, y: Float[Tensor, "... columns"]) -> Float[Tensor, "... columns"]:
        """Scaled values, float64.

        Examples
        --------
        >>> soft = SoftScale(*torch.tensor([[1.0], [2.0], [3.0], [-1.0], [1e6]]))
        >>> z = soft(torch.tensor([[-1e6], [1.0], [1.2], [2e6]]))
        >>> z.ravel().round(decimals=2).tolist(), soft.inverse(z).ravel().round(decimals=2).tolist()
        ([-109.2, 0.0, 0.1, 16.82], [-1000000.0, 1.0, 1.2, 2000000.0])
        """
        scaled = (y.double() - self.center) / self.scale
        seen = scaled.clamp(self.low, self.high)
        beyond = scaled - seen
        return self._soft(seen) + beyond.sign() * STRAIGHTER * torch.log1p(
            beyond.abs() / (STRAIGHTER * self._stretch(seen))
        )

    def _soft(self, scaled: Tensor) -> Tensor:
        """The map inside of what was seen."""
        beyond = (scaled.abs() - self.core).clamp(min=0)
        return torch.where(beyond > 0, scaled.sign() * (self.core + beyond.log1p()), scaled)

    def _stretch(self, scaled: Tensor) -> Tensor:
        """Scales per unit of the map, the inverse of its slope."""
        return 1 + (scaled.abs() - self.core).clamp(min=0)

    def reach(self) -> Float[Tensor, " columns"]:
        """Largest |z| whose value of Y has a square that is still a number, on either side.

        Examples
        --------
        >>> soft = SoftScale(*torch.tensor([[0.0], [1.0], [3.0], [-1.0], [1.0]], dtype=torch.float64))
        >>> soft.reach().round().tolist()  # 1 + 10 log 10¹⁴⁹
        [3432.0]
        """
        ends = torch.stack([self(self.center - LARGEST), self(self.center + LARGEST)])
        return ends.abs().amin(dim=0)

    def inverse(self, z: Float[Tensor, "... columns"]) -> Float[Tensor, "... columns"]:
        """Values of Y."""
        return self.center + self.from_center(z)

    def from_center(self, z: Float[Tensor, "... columns"]) -> Float[Tensor, "... columns"]:
        """Values of Y less the centre, which keeps the digits of spreads far from zero."""
        seen = z.clamp(self._soft(self.low), self._soft(self.high))
        beyond = (seen.abs() - self.core).clamp(min=0)
        scaled = torch.where(beyond > 0, seen.sign() * (self.core + beyond.expm1()), seen)
        further = (z - seen).abs().div(STRAIGHTER).clamp(max=700)  # e^700 is still finite
        return self.scale * (scaled + (z - seen).sign() * STRAIGHTER * self._stretch(scaled) * further.expm1())


@dataclass(frozen=True)
class NormalScores:
    """Columns of Y mapped to normal scores Φ⁻¹(F̂(y)), interpolated between at most 1,024 knots.

    Right features are functions of Y, so any increasing map of Y may stand in for Y at the input of the
    network; this one makes every marginal normal, however heavy its tails (Cauchy included).
    """

    knots: Float[Tensor, "knots columns"]

    @classmethod
    def fit(cls, y: Float[Tensor, "rows columns"]) -> NormalScores:
        """Keep evenly spaced order statistics of every column."""
        ordered = y.double().sort(dim=0).values
        index = torch.linspace(0, len(ordered) - 1, min(len(ordered), MAX_KNOTS), dtype=torch.float64).round().long()
        return cls(ordered[index])

    def __call__(self, y: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        """Normal scores, float32; ties share the middle of their ranks.

        Examples
        --------
        >>> scores = NormalScores.fit(torch.tensor([[0.0], [1.0], [1000.0]]))
        >>> scores(torch.tensor([[1.0], [1e9]])).ravel().round(decimals=2) + 0.0
        tensor([0.0000, 0.9700])
        """
        columns = [self._ranks(values, knots) for values, knots in zip(y.double().mT, self.knots.mT, strict=True)]
        m = len(self.knots)
        levels = (torch.stack(columns, dim=1) + 0.5) / m  # ranks 0 … m − 1 to the middle of their cells
        return torch.special.ndtri(levels).float()

    @staticmethod
    def _ranks(values: Tensor, knots: Tensor) -> Tensor:
        values, knots = values.contiguous(), knots.contiguous()
        last = len(knots) - 1
        below = torch.searchsorted(knots, values)  # knots strictly below
        upto = torch.searchsorted(knots, values, right=True)  # knots below or equal
        middle = (below + upto - 1) / 2  # exact hits: the middle of the tied ranks
        left, right = (upto - 1).clamp(0, last), upto.clamp(0, last)
        gap = knots[right] - knots[left]
        fraction = torch.where(gap > 0, (values - knots[left]) / torch.where(gap > 0, gap, 1.0), 0.0)
        return torch.where(upto > below, middle, (left + fraction).clamp(0, last))


@dataclass(frozen=True)
class OneHot:
    """Class numbers as indicator columns, the natural inputs of features on a finite set."""

    n_classes: int

    def __call__(self, y: Float[Tensor, "rows 1"]) -> Float[Tensor, "rows classes"]:
        """Indicators, float32.

        Examples
        --------
        >>> OneHot(3)(torch.tensor([[0.0], [2.0]]))
        tensor([[1., 0., 0.],
                [0., 0., 1.]])
        """
        return torch.nn.functional.one_hot(y[:, 0].long(), self.n_classes).float()
