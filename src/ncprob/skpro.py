"""skpro adapter (extra `skpro`): `NCPRegressor` as a regressor of skpro, its laws as skpro distributions.

skpro's pipelines, tuners, metrics and plots then take `ncprob` models beside those of other libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from ncprob.distribution import CHUNK_ELEMENTS, ConditionalDistribution
from ncprob.estimators import NCPRegressor
from ncprob.support import Support

try:
    import pandas as pd
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError as error:
    raise ImportError("`ncprob.skpro` needs skpro: pip install 'ncprob[skpro]'.") from error

PPF_BLOCK = 64  # members whose levels are asked together: every member answers the levels of all
NORM_LEVELS = 128  # quantiles of each law over which `pdfnorm` averages


class NCPDistribution(BaseDistribution):
    """Laws of y given n conditions as a skpro distribution of shape (n, number of targets).

    All answers come from the laws themselves, none from samples. `cdf` and `ppf` are those of the weighted atoms and
    `pdf` is their kernel density, see `ConditionalDistribution`. Methods of skpro act on each entry, except that
    `sample` draws the targets of a row from their joint law and `energy` adds over targets.

    Parameters
    ----------
    law : ConditionalDistribution
        The laws, one per row.
    components : sequence of int, optional
        Targets in use, as positions in y; by default all.
    index, columns : pandas.Index, optional
        Labels of rows and targets. Without both, one law of one target is a scalar distribution.

    Examples
    --------
    Two atoms, the second with probability 0.5 under the first condition and 0.75 under the second:

    >>> import torch
    >>> from ncprob import ConditionalDistribution
    >>> from ncprob.skpro import NCPDistribution
    >>> from ncprob.support import Support
    >>> support = Support(torch.tensor([0.0, 1.0]), torch.tensor([[-1.0], [1.0]]))
    >>> law = ConditionalDistribution(support, torch.tensor([[0.0], [0.5]]))
    >>> d = NCPDistribution(law, index=["a", "b"], columns=["y"])
    >>> d.mean()
          y
    a  0.50
    b  0.75
    >>> d.loc[["b"]].cdf(0.5)
          y
    b  0.25
    """

    _tags = {  # noqa: RUF012
        "authors": ["ncprob developers"],
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",  # atoms stand for a law with a density; scores by `log_pdf` need it
        "distr:paramtype": "nonparametric",
    }

    def __init__(
        self,
        law: ConditionalDistribution,
        components: Sequence[int] | None = None,
        index: Any = None,
        columns: Any = None,
    ) -> None:
        self.law, self.components = law, components
        q = law.support.n_components
        chosen = list(range(q)) if components is None else [int(k) for k in components]
        if len(set(chosen)) < len(chosen) or not all(0 <= k < q for k in chosen):
            raise ValueError(f"`components` must be distinct positions below {q}, the number of targets; got {chosen}.")
        shape = len(law), len(chosen)
        if index is not None or columns is not None or shape != (1, 1):
            index = pd.RangeIndex(shape[0]) if index is None else index
            columns = pd.RangeIndex(shape[1]) if columns is None else columns
            if (len(index), len(columns)) != shape:
                raise ValueError(
                    f"`index` and `columns` must have lengths {shape}, the numbers of laws and targets; "
                    f"got {(len(index), len(columns))}. Label every law and target once."
                )
        self._chosen = chosen
        super().__init__(index=index, columns=columns)

    # ---------------------------------------------------------------- plumbing

    def _by_target(self, answer: Any) -> NDArray[np.float64]:
        """An answer (n,) or (n, q) of the law as (n, q)."""
        return np.asarray(answer).reshape(len(self.law), self.law.support.n_components)

    def _entries(self, answer: Any) -> Any:
        """An answer of the law as a table (n, targets in use), or as a number for a scalar."""
        table = self._by_target(answer)[:, self._chosen]
        return table if self.ndim else table[0, 0]

    def _own_values(self, x: Any) -> NDArray[np.float64]:
        """Values for the targets in use as values for all targets; the others are not looked at."""
        values = np.zeros((len(self.law), self.law.support.n_components))
        values[:, self._chosen] = np.reshape(x, (len(self.law), len(self._chosen)))
        return values

    def _blocks(self, size: int) -> Iterator[slice]:
        return (slice(start, start + size) for start in range(0, max(1, len(self.law)), size))

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> NCPDistribution:
        if rowidx is not None and colidx is not None and np.isscalar(rowidx) and np.isscalar(colidx):
            return self._iat(rowidx, colidx)
        rows, columns = _positions(len(self.law), rowidx), _positions(len(self._chosen), colidx)
        return NCPDistribution(
            self.law[rows],
            components=[self._chosen[k] for k in columns],
            index=None if self.index is None else self.index.take(rows),
            columns=None if self.columns is None else self.columns.take(columns),
        )

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> NCPDistribution:
        if rowidx is None or colidx is None:
            raise ValueError("`iat` needs a row and a column; got one of them. Use `iloc` for whole rows or columns.")
        return NCPDistribution(self.law[int(rowidx)], components=[self._chosen[int(colidx)]])

    def _get_indexer_like_pandas(self, index: Any, keys: Any) -> Any:
        """Positions of labels; skpro would take an unknown label, found at −1, for the last row."""
        positions = super()._get_indexer_like_pandas(index, keys)
        if (np.asarray(positions) < 0).any():
            raise KeyError(f"some labels are not in {index!r}. Ask for rows and columns of this distribution.")
        return positions

    # ---------------------------------------------------------------- answers

    def _mean(self) -> Any:
        return self._entries(self.law.mean())

    def _var(self) -> Any:
        return self._entries(self.law.var())

    def _pdf(self, x: Any) -> Any:
        return np.exp(self._log_pdf(x))

    def _log_pdf(self, x: Any) -> Any:
        return -self._entries(self.law.log_score(self._own_values(x)))

    def _cdf(self, x: Any) -> Any:
        return self._entries(self.law.pit(self._own_values(x)))

    def _ppf(self, p: Any) -> Any:
        levels = np.reshape(np.asarray(p, dtype=np.float64), (len(self.law), len(self._chosen)))
        if not levels.size:
            return levels
        # The laws have ends: levels 0 and 1 give the first and the last atom. What is no probability gives NaN.
        inside = np.clip(np.nan_to_num(levels, nan=0.5), 1e-300, 1 - 2**-53)
        if len(np.unique(inside)) == 1:
            answer = self._entries(self.law.quantile(inside[0, 0]))
        else:
            answer = self._entries(self._own_quantiles(inside))
        valid = (levels >= 0) & (levels <= 1)
        return np.where(valid if self.ndim else valid[0, 0], answer, np.nan)

    def _own_quantiles(self, levels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Quantiles (n, q) of each entry at its own level; targets not in use get zeros."""
        q, used = self.law.support.n_components, len(self._chosen)
        answer = np.zeros((len(self.law), q))
        for rows in self._blocks(PPF_BLOCK):
            own = levels[rows]
            crossed = np.asarray(self.law[rows].quantile(own.ravel())).reshape(len(own), q, len(own), used)
            member = np.arange(len(own))
            for position, k in enumerate(self._chosen):
                answer[rows, k] = crossed[member, k, member, position]
        return answer

    def _energy_x(self, x: Any) -> Any:
        return self._added(self._distance(self._own_values(x)))

    def _energy_self(self) -> Any:
        # crps(m) = E|Y − m| − ½E|Y − Y'| for any m; at the median both parts are of the size of the answer.
        median = self._by_target(self.law.median())
        crps = self._by_target(self.law.crps(median))
        return self._added(np.maximum(0, 2 * (self._distance(median) - crps)))

    def _added(self, by_target: NDArray[np.float64]) -> Any:
        """Sum over the targets in use, (n,), or a number for a scalar."""
        total = by_target[:, self._chosen].sum(axis=1)
        return total if self.ndim else total[0]

    def _distance(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """E|Y − x|, (n, q), for one x per member and target."""
        m, q = len(self.law.support), self.law.support.n_components

        def block(rows: slice) -> NDArray[np.float64]:
            law = self.law[rows]
            atoms = np.asarray(law.atoms).reshape(-1, m, q)  # shared by the members, or their own
            return np.einsum("nm,nmq->nq", np.asarray(law.weights()), np.abs(atoms - x[rows, None]))

        return np.concatenate([block(rows) for rows in self._blocks(max(1, CHUNK_ELEMENTS // (m * q)))])

    def pdfnorm(self, a: float = 2) -> Any:
        """∫ p(y)^a dy = E[p(Y)^(a − 1)] of each entry, as the mean over quantiles of its law, not over draws."""
        n, q = len(self.law), self.law.support.n_components
        levels = (np.arange(NORM_LEVELS) + 0.5) / NORM_LEVELS
        points = np.asarray(self.law.quantile(levels)).reshape(n, q, NORM_LEVELS).swapaxes(1, 2)
        repeated = self.law[np.repeat(np.arange(n), NORM_LEVELS)]
        log_density = -np.asarray(repeated.log_score(points.reshape(-1, q))).reshape(points.shape)
        answer = self._entries(np.exp((a - 1) * log_density).mean(axis=1))
        return pd.DataFrame(answer, self.index, self.columns) if self.ndim else answer

    def sample(self, n_samples: int | None = None) -> Any:  # not `_sample`: skpro 2.10 does not ask it
        """Draws from the joint law of each row: one like `mean()`, or `n_samples` with their number as first level."""
        size = 1 if n_samples is None else n_samples
        # NumPy's global state, as in all of skpro, so that `np.random.seed` repeats a sample.
        draws = np.asarray(self.law.sample(size, random_state=check_random_state(None)))
        table = draws.reshape(len(self.law), size, self.law.support.n_components)[:, :, self._chosen]
        if n_samples is None:
            return pd.DataFrame(table[:, 0], self.index, self.columns) if self.ndim else table[0, 0, 0]
        if not self.ndim:
            return pd.DataFrame(table[0])
        return pd.DataFrame(np.concatenate(list(table.swapaxes(0, 1))), _repeated(self.index, size), self.columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings for the checks of skpro: laws of one target, one of two targets, both, and a scalar."""
        generator = torch.Generator().manual_seed(0)

        def laws(n: int, q: int) -> ConditionalDistribution:
            atoms = torch.randn((20, q), generator=generator, dtype=torch.float64)
            features = torch.rand((20, 2), generator=generator) - 0.5
            left = torch.rand((n, 2), generator=generator)
            return ConditionalDistribution(Support(atoms, features), left, export=torch.Tensor.numpy)

        return [
            {"law": laws(4, 1), "index": pd.Index([3, 1, 2, 7]), "columns": pd.Index(["y"])},
            {"law": laws(4, 2), "components": [1], "columns": pd.Index(["b"])},
            {"law": laws(3, 2), "columns": pd.Index(["a", "b"])},
            {"law": laws(1, 1)},
        ]


def _positions(n: int, wanted: Any) -> NDArray[np.int64]:
    """Positions below n that a number, a slice, a mask or a list of positions stands for."""
    return np.atleast_1d(np.arange(n)[slice(None) if wanted is None else wanted])


def _repeated(index: pd.Index, times: int) -> pd.MultiIndex:
    """`index` over and over, with the number of the repetition as first level."""
    n = len(index)
    again = index.take(np.tile(np.arange(n), times))
    levels = [again.get_level_values(i) for i in range(index.nlevels)]
    return pd.MultiIndex.from_arrays([np.repeat(np.arange(times), n), *levels], names=[None, *index.names])


def _string_columns(X: pd.DataFrame) -> pd.DataFrame:
    """X with columns called by strings: skpro takes names of any type, scikit-learn only strings."""
    return X.set_axis(X.columns.map(str), axis=1)


class NCPProbaRegressor(BaseProbaRegressor):
    """`NCPRegressor` as a probabilistic regressor of skpro, for one or several targets.

    `predict_proba` gives an `NCPDistribution`. Intervals are central, as skpro defines them; for the shortest ones ask
    `estimator_`, the fitted `NCPRegressor`, which answers everything else too.

    Parameters
    ----------
    estimator : NCPRegressor, optional
        The model to fit, with its settings; it is copied, not changed. By default `NCPRegressor()`.

    Attributes
    ----------
    estimator_ : NCPRegressor
        The fitted model.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from ncprob import NCPRegressor
    >>> from ncprob.skpro import NCPProbaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"x": rng.uniform(-1, 1, 300)})
    >>> y = pd.DataFrame({"y": X["x"] + 0.1 * rng.normal(size=300)})
    >>> model = NCPProbaRegressor(NCPRegressor(max_steps=100, coordinates="raw", random_state=0)).fit(X, y)
    >>> model.predict_proba(X.head(2)).shape
    (2, 1)
    >>> model.predict_quantiles(X.head(2), alpha=[0.1, 0.9]).columns.to_list()
    [('y', 0.1), ('y', 0.9)]
    """

    _tags = {  # noqa: RUF012
        "authors": ["ncprob developers"],
        "capability:multioutput": True,
        "capability:missing": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: NCPRegressor | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> NCPProbaRegressor:
        if self.estimator is not None and not isinstance(self.estimator, NCPRegressor):
            raise TypeError(
                f"`estimator` must be an NCPRegressor or None; got {type(self.estimator).__name__}. "
                "Put other steps around this regressor, for example with skpro's Pipeline."
            )
        self.estimator_ = NCPRegressor() if self.estimator is None else clone(self.estimator)
        self.estimator_.fit(_string_columns(X), y)
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._predict_proba(X).mean()

    def _predict_proba(self, X: pd.DataFrame) -> NCPDistribution:
        law = self.estimator_.predict_distribution(_string_columns(X))
        return NCPDistribution(law, index=X.index, columns=self._get_columns("predict"))

    def _predict_quantiles(self, X: pd.DataFrame, alpha: list[float]) -> pd.DataFrame:
        columns = self._get_columns("predict_quantiles", alpha=alpha)
        return self.estimator_.predict_quantiles(_string_columns(X), alpha).set_axis(columns, axis=1)

    def _predict_interval(self, X: pd.DataFrame, coverage: list[float]) -> pd.DataFrame:
        columns = self._get_columns("predict_interval", coverage=coverage)
        intervals = self.estimator_.predict_interval(_string_columns(X), coverage, kind="central")
        return intervals.set_axis(columns, axis=1)

    def _predict_var(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._predict_proba(X).var()

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings for the checks of skpro: small models in both coordinates."""
        quick: dict[str, Any] = {"max_steps": 20, "hidden_sizes": (8,), "rank": 4, "random_state": 0}
        return [
            {"estimator": NCPRegressor(coordinates="raw", **quick)},
            {"estimator": NCPRegressor(coordinates="residual", tree_inputs=False, **quick)},
        ]
