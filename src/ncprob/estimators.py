"""scikit-learn estimators: the border between arrays or data frames and torch."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from tqdm.auto import tqdm

from ncprob import frames
from ncprob._validation import check_integer, check_probabilities
from ncprob.base import NCPEstimator
from ncprob.calibration import ConformalCalibrator
from ncprob.datafiles import FileTable, Roles
from ncprob.distribution import ConditionalDistribution
from ncprob.persistence import load as load  # public here: it knows the classes once this module is imported
from ncprob.persistence import plain_names, read_names, savable
from ncprob.spool import Reservoir
from ncprob.state import State, to_array

SAMPLE_ROWS = 2**18  # rows of many that are kept in memory
MINIMUM_SAMPLE = 64


@savable
class NCPRegressor(RegressorMixin, NCPEstimator):
    """Learn the conditional distribution of y given X once, then ask it anything.

    Neural Conditional Probability (Kostic et al. 2024) learns the leading singular functions of the conditional
    expectation operator: the density ratio r(x, y) ≈ 1 + Σ_i s_i u_i(x) v_i(y). Every conditional statistic
    follows from it without retraining or sampling.

    Parameters
    ----------
    rank : int or "auto"
        Number of singular functions. `"auto"` learns 64, of scalar y in residual coordinates 16, and keeps as many as
        held-out rows support; in residual coordinates none, if the mixture leaves nothing to explain.
    hidden_sizes : sequence of int
        Hidden layers of both networks.
    coordinates : {"auto", "raw", "residual"}
        `"raw"` is the paper; `"residual"` first learns a conditional mixture of Gaussians and then the law of y's
        normal score under it, see `ncprob.coordinates`; `"auto"` keeps the residual ones unless raw ones, which get a
        short trial first, have a clearly lower held-out CRPS (`coordinates_`). Where one of several targets takes few
        values or has a point mass, `"auto"` is `"raw"`: it keeps what ties such a target to the others.
    loss : {"covariance", "u_statistic", "paired", "cross_fitted"}
        Estimate of the training loss, see `ncprob.losses`.
    gamma : float
        Weight of the orthonormality penalty.
    postprocessing : {"whitening", "centering", "none"}
        What is done with the trained features, see `SpectralOperator.postprocess`.
    ensemble_size : int
        Number of operators whose density ratios are averaged.
    batch_size, max_steps, learning_rate, weight_decay
        Training by AdamW with warm-up and cosine schedule.
    input_gate : float or "auto"
        Strength of an L1 penalty on one learned multiplier per input; closes useless inputs. 0 turns gates
        off, `"auto"` uses 0.03 from four inputs on.
    tree_inputs : bool or "auto"
        Whether out-of-sample predictions of a forest and of gradient boosting join the inputs, see `ncprob.trees`.
        `"auto"` lets them, unless coordinates are `"raw"`, there is one input only, the table is too large, or X has an
        `x_encoder` of its own, beside which True is refused.
    validation_fraction : float
        Share of rows held out to stop training and to choose rank, ridge and coordinates; they still serve as atoms.
    early_stopping : bool
        Stop when the held-out loss no longer falls. The best weights are kept in any case.
    x_encoder, y_encoder : torch.nn.Module, optional
        Encoders of your own with `rank` outputs, for inputs that are not tables. A given `x_encoder` gets X as float32,
        unscaled; `y_encoder` gets normal scores of the (coordinates of) y, shape (batch, q).
    device : {"auto", "cpu", "cuda"} or torch.device
        Where to compute; `"auto"` takes an accelerator if there is one.
    random_state : int, RandomState or None
        One seed for everything; two CPU runs with it are bit-identical.
    checkpoint_dir : path, optional
        Keep checkpoints there; a fit that was interrupted goes on from them.
    progress : bool or "auto"
        Progress bars; `"auto"` shows them on a terminal only.

    Attributes
    ----------
    singular_values_ : ndarray of shape (rank_,)
        Strength of dependence along each pair of singular functions; decreasing after whitening.
    rank_ : int
        Number of singular functions in use (of the first operator).
    coordinates_ : str
        Coordinates in use.
    history_ : History
        Losses, learning rates and times of training.
    n_steps_ : int
        Steps of training.
    categories_ : dict
        Levels of the text and categorical columns of X, most frequent first; sets A see a level as its number in it.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (500, 1))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=500)
    >>> model = NCPRegressor(max_steps=200, coordinates="residual", random_state=0).fit(X, y)
    >>> model.predict([[0.5]]).round(1)
    array([0.5])
    >>> model.predict_quantiles([[0.0], [0.5]], alpha=(0.05, 0.5, 0.95)).shape
    (2, 3)
    >>> law = model.predict_distribution([[0.0]])
    >>> bool(0.3 < law.prob((0.0, 1.0))[0] < 0.7)
    True
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        validation_data: tuple[Any, Any] | None = None,
    ) -> NCPRegressor:
        """Learn the conditional distribution of y given X.

        Parameters
        ----------
        X : array or data frame of shape (n, p)
            Inputs, numeric and finite; text and categorical columns of a data frame enter as indicators of levels.
            Missing values are refused: impute them first, for example with `SimpleImputer` in a `Pipeline`.
        y : array, series or data frame of shape (n,) or (n, q)
            Targets, numeric and finite.
        sample_weight : array of shape (n,), optional
            Weights of the rows, not negative.
        validation_data : (X, y), optional
            Rows to hold out instead of a random `validation_fraction`.
        """
        recipe = self._recipe()
        x = frames.check_features(self, X, reset=True, tabular=self.x_encoder is None)
        target = frames.check_target(y, len(x))
        weights = None if sample_weight is None else frames.check_weights(sample_weight, len(x))
        held = None
        if validation_data is not None:
            held = frames.check_validation_data(self, validation_data, target.shape, self.x_encoder is None)
        self.target_names_ = frames.target_names(y)
        self._vector_target = target.ndim == 2
        self._calibrator: ConformalCalibrator | None = None
        self._learn(x, target, weights, held, recipe)
        return self

    def fit_files(
        self,
        paths: Any,
        target: str | Sequence[str],
        *,
        weights: str | None = None,
        drop: str | Sequence[str] = (),
        sample_rows: int = SAMPLE_ROWS,
    ) -> NCPRegressor:
        """Learn from files that together are larger than memory, in one pass over them.

        Networks train on rows drawn from all files in random order, as many as training can visit (`max_steps` times
        `batch_size`, up to twice as many), which wait in a temporary directory (`TMPDIR`). A uniform sample of
        `sample_rows` other rows scales, judges, whitens and serves as atoms and training rows of `given`: by the
        inequality of Dvoretzky, Kiefer & Wolfowitz (1956; Massart 1990) its distribution functions are off by at most
        √(log(2/δ)/2m) with probability 1 − δ, 0.0027 for m = 2¹⁸ rows and δ = 0.05. Tables of up to twice that many
        rows are fitted in memory, as by `fit`.

        Parameters
        ----------
        paths : path, glob, directory or list of these
            Parquet or csv files with the same columns; text columns are categories.
        target : str or list of str
            Column or columns to learn the law of; all others are inputs.
        weights : str, optional
            Column with weights of the rows.
        drop : str or list of str
            Columns to leave out.
        sample_rows : int
            Rows to keep in memory.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> x = np.linspace(-1, 1, 300)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part in range(3):
        ...         lines = [f"{a},{a + 0.1 * np.sin(99 * a)}" for a in x[part::3]]
        ...         _ = pathlib.Path(folder, f"{part}.csv").write_text("\\n".join(["a,b", *lines]))
        ...     model = NCPRegressor(max_steps=60, coordinates="raw", random_state=0)
        ...     model = model.fit_files(f"{folder}/*.csv", target="b")
        >>> model.feature_names_in_.tolist(), model.target_names_
        (['a'], ['b'])
        """
        recipe = self._recipe()
        if self.x_encoder is not None:
            raise ValueError("`fit_files` reads tables; with an `x_encoder` of your own use `fit` or `ncprob.train`.")
        check_integer(sample_rows, "sample_rows", minimum=MINIMUM_SAMPLE)
        for name, value in {"target": target, "drop": drop}.items():
            if not isinstance(value, str | list | tuple) or not all(isinstance(each, str) for each in value):
                what = type(value).__name__
                raise TypeError(f"`{name}` must be the name of a column or a list of names; got {what}.")
        targets = [target] if isinstance(target, str) else list(target)
        dropped = (drop,) if isinstance(drop, str) else tuple(drop)
        table = FileTable.open(paths, Roles(targets, weights, dropped))
        visits = recipe.schedule.max_steps * recipe.schedule.batch_size
        with tempfile.TemporaryDirectory(prefix="ncprob-") as folder:
            reservoir = Reservoir(Path(folder), len(table.columns), sample_rows, visits, recipe.seed)
            disable = None if self.progress == "auto" else not self.progress
            with tqdm(desc="reading", unit=" rows", unit_scale=True, disable=disable, leave=False) as bar:
                for rows in table.read():
                    reservoir.add(rows)
                    bar.update(len(rows))
            self._describe_columns(table)
            sample, spool = reservoir.finish(self._level_maps(table))
            if len(sample) < 2:
                raise ValueError(f"`paths` must hold at least 2 rows; found {len(sample)}. Name files with more.")
            x, y, mass = np.split(sample, [len(table.inputs), len(table.inputs) + len(targets)], axis=1)
            self.target_names_, self._vector_target, self._calibrator = targets, not isinstance(target, str), None
            if weights is not None and not mass.any():
                raise ValueError(f"`weights`: column {weights!r} is zero in all rows in memory. Name another column.")
            known = None if weights is None else frames.check_weights(mass[:, 0], len(sample))
            self._learn(x.copy(), y.copy() if self._vector_target else y[:, 0].copy(), known, None, recipe, spool)
        return self

    def _describe_columns(self, table: FileTable) -> None:
        """Names and levels of the inputs, as `fit` learns them from a data frame."""
        self.n_features_in_ = len(table.inputs)
        self.feature_names_in_ = np.array(table.inputs, dtype=object)
        self.categories_ = {name: frames.by_frequency(counts) for name, counts in table.levels.items()}

    def _level_maps(self, table: FileTable) -> dict[int, NDArray[np.float64]]:
        """For every text column, the final number of each level by the number it had while reading."""
        maps = {}
        for name, counts in table.levels.items():  # in the order in which levels were first seen
            final = {level: float(number) for number, level in enumerate(self.categories_[name])}
            maps[table.inputs.index(name)] = np.array([final[level] for level in counts])
        return maps

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Conditional mean E[y | X], shape (n,) or (n, q)."""
        return self._shaped(self._ask(X, lambda law: law.mean()))

    def predict_var(self, X: Any) -> NDArray[np.float64]:
        """Conditional variance, shape (n,) or (n, q)."""
        return self._shaped(self._ask(X, lambda law: law.var()))

    def predict_cov(self, X: Any) -> NDArray[np.float64]:
        """Conditional covariance, shape (n, q, q)."""
        return self._ask(X, lambda law: law.cov())

    def predict_quantiles(self, X: Any, alpha: float | Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
        """Conditional quantiles: (n, k) for scalar y, (n, q, k) else, k the number of levels in `alpha`.

        For a data frame X the result is a data frame with the labels `(variable, alpha)`.
        """
        levels = check_probabilities(alpha, "alpha").reshape(-1).tolist()
        answer = self._shaped(self._ask(X, lambda law: law.quantile(levels)), extra=1)
        return frames.label(answer, X, [self.target_names_, levels])

    def predict_interval(self, X: Any, coverage: float | Sequence[float] = 0.9, kind: str = "shortest") -> Any:
        """Prediction intervals [low, high]: (n, 2) for scalar y, (n, q, 2) else; several coverages add an axis (…, k).

        For a data frame X the result is a data frame with the labels `(variable, coverage, "lower"/"upper")`.
        """
        levels = check_probabilities(coverage, "coverage")

        def interval(law: ConditionalDistribution) -> NDArray[np.float64]:
            calibrator = self._calibrator
            return law.interval(levels, kind) if calibrator is None else calibrator.interval(law, levels, kind)

        answer = self._shaped(self._ask(X, interval), extra=1 + levels.ndim)
        if not frames.is_frame(X):
            return answer
        by_level = np.moveaxis(answer.reshape(len(answer), len(self.target_names_), 2, -1), 3, 2)
        return frames.label(by_level, X, [self.target_names_, levels.reshape(-1).tolist(), ["lower", "upper"]])

    def conformalize(
        self, X_cal: Any, y_cal: Any, sample_weight: ArrayLike | None = None, method: str = "pit"
    ) -> NCPRegressor:
        """A copy whose `predict_interval` covers with finite-sample probability, for any coverage asked later.

        Parameters
        ----------
        X_cal, y_cal : arrays or data frames
            Rows that had no part in `fit`, exchangeable with the rows to come.
        sample_weight : array of shape (n,), optional
            Density ratios of new to calibration rows, for covariate shift.
        method : {"pit", "cqr"}
            Move the level of the interval or widen it; see `ncprob.calibration.ConformalCalibrator`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.uniform(size=(600, 1)), rng.normal(size=600)
        >>> model = NCPRegressor(max_steps=60, coordinates="raw", random_state=0).fit(X[:400], y[:400])
        >>> calibrated = model.conformalize(X[400:], y[400:])
        >>> calibrated.predict_interval([[0.5]], coverage=0.9).shape
        (1, 2)
        """
        x = self._checked(X_cal, "X_cal")
        law = self._law(x)
        target = frames.check_target(y_cal, len(law), "y_cal")
        if target.reshape(len(target), -1).shape[1] != len(self.target_names_):
            raise ValueError(
                f"`y_cal` must have {len(self.target_names_)} column(s), as `y` in fit; got shape {target.shape}. "
                "Pass the same targets."
            )
        weights = None if sample_weight is None else frames.check_weights(sample_weight, len(target))
        calibrated = copy.copy(self)
        calibrated._calibrator = ConformalCalibrator(law, target, weights, method)
        calibrated._calibration_rows = (x.copy(), target.copy(), weights)
        return calibrated

    def expectation(self, f: Callable[[NDArray[np.float64]], ArrayLike], X: Any) -> NDArray[np.float64]:
        """E[f(y) | X] for a vectorised `f`: (m, q) → (m,) or (m, k)."""
        return self._ask(X, lambda law: law.expectation(f))

    def _own_state(self) -> State:
        facts = {"target_names": plain_names(self.target_names_), "vector_target": self._vector_target}
        if self._calibrator is None:
            return State(facts=facts)
        x, target, weights = self._calibration_rows
        tensors = {"calibration.x": to_array(x), "calibration.y": to_array(target)}
        if weights is not None:
            tensors["calibration.weights"] = to_array(weights)
        return State(tensors, {**facts, "calibration": self._calibrator.method})

    def _restore_own(self, state: State) -> None:
        self.target_names_ = read_names(state.fact("target_names", list))
        self._vector_target, self._calibrator = state.fact("vector_target", bool), None
        q = self._training_y.shape[1]
        if len(self.target_names_) != q or (q > 1 and not self._vector_target):
            raise ValueError("targets must have a name each")
        if "calibration" not in state.facts:
            return
        # Laws are formed again rather than stored: they are much larger than the rows.
        n = len(state.tensors.get("calibration.x", ()))
        x = state.array("calibration.x", torch.float64, (n, *self._training_x.shape[1:]))
        target = state.array("calibration.y", torch.float64, (n, q)[: state.tensors["calibration.y"].ndim])
        given = "calibration.weights" in state.tensors
        weights = state.array("calibration.weights", torch.float64, (n,)) if given else None
        self._calibrator = ConformalCalibrator(self._law(x), target, weights, state.fact("calibration", str))
        self._calibration_rows = (x, target, weights)

    def _shaped(self, answer: NDArray[np.float64], extra: int = 0) -> NDArray[np.float64]:
        """Give answers for a one-column table y their component axis back."""
        return answer[:, None] if self._vector_target and answer.ndim == 1 + extra else answer

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


@savable
class NCPClassifier(ClassifierMixin, NCPEstimator):
    """Class probabilities by the same operator: P(Y = c | x) ∝ P(Y = c) max(0, 1 + Σ_i s_i u_i(x) v_i(c)).

    Parameters are those of `NCPRegressor`; classes have no residuals, so `coordinates` must be "auto" or "raw".
    Distributions (`predict_distribution`, `given`) are over class numbers 0, …, n_classes − 1, the positions
    in `classes_`.

    Attributes
    ----------
    classes_ : ndarray
        The classes, sorted.
    target_names_ : list
        Name of the target, 0 if it had none.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> model = NCPClassifier(max_steps=100, random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]])
    array(['right', 'left'], dtype='<U5')
    >>> model.predict_proba([[2.0, 0.0]]).sum().round(6)
    np.float64(1.0)
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        validation_data: tuple[Any, Any] | None = None,
    ) -> NCPClassifier:
        """Learn the class probabilities given X; `y` holds labels of any kind, one per row."""
        recipe = self._recipe()
        if recipe.coordinates == "residual":
            raise ValueError("`coordinates` must be 'auto' or 'raw' for classes; got 'residual'. Use NCPRegressor.")
        tabular = self.x_encoder is None
        x = frames.check_features(self, X, reset=True, tabular=tabular)
        labels = frames.check_labels(y, len(x))
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        weights = None if sample_weight is None else frames.check_weights(sample_weight, len(x))
        held = None
        if validation_data is not None:
            held_x, held_labels = frames.check_pair(validation_data)
            held_x = frames.check_features(self, held_x, reset=False, tabular=tabular)
            held = held_x, _class_numbers(frames.check_labels(held_labels, len(held_x)), classes)
            frames.check_held_out_length(held_x)
        self.classes_, self.target_names_ = classes, frames.target_names(y)[:1]
        one_hot = replace(recipe, n_classes=len(classes), coordinates="raw")
        self._learn(x, numbers.astype(np.float64), weights, held, one_hot)
        return self

    def given_target(self, B: Any) -> ConditionalDistribution:
        """The law of X given y ∈ B, B a label or a list of labels.

        Examples
        --------
        >>> X = np.linspace(-1, 1, 200)[:, None]
        >>> model = NCPClassifier(max_steps=60, random_state=0).fit(X, np.where(X[:, 0] > 0, "right", "left"))
        >>> bool(model.given_target("right").mean()[0] > 0)
        True
        """
        check_is_fitted(self)
        labels = np.atleast_1d(np.asarray(B))
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(f"`B` must hold labels seen in `y`; got {unknown.tolist()}. Choose among {self.classes_}.")
        numbers = np.flatnonzero(np.isin(self.classes_, labels))
        return super().given_target(lambda y: np.isin(y[:, 0], numbers))

    def _own_state(self) -> State:
        kind = self.classes_.dtype
        if kind.kind not in "biufUO" or (kind.kind == "O" and not all(isinstance(c, str) for c in self.classes_)):
            raise TypeError(
                f"classes must be numbers or text to be saved; got {kind} values such as {self.classes_[0]!r}. "
                "Turn the labels into text before `fit`."
            )
        names = plain_names(self.target_names_)
        return State(facts={"classes": self.classes_.tolist(), "dtype": kind.str, "target_names": names})

    def _restore_own(self, state: State) -> None:
        classes, kind = state.fact("classes", list), np.dtype(state.fact("dtype", str))
        plain = all(isinstance(label, str | int | float | bool) for label in classes)
        if kind.kind not in "biufUO" or kind.itemsize > 2**16 or not plain:
            raise ValueError("classes must be numbers or text")
        self.classes_ = np.array(classes, dtype=kind)
        self.target_names_ = read_names(state.fact("target_names", list))
        numbers = self._model.support.values
        if len(self.target_names_) != 1:
            raise ValueError("the target must have a name")
        if len(classes) == 0 or not bool(((numbers >= 0) & (numbers < len(classes)) & (numbers % 1 == 0)).all()):
            raise ValueError("atoms must be numbers of classes")

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, shape (n, n_classes); rows add to one."""

        def chances(law: ConditionalDistribution) -> NDArray[np.float64]:
            answer = np.zeros((len(law), len(self.classes_)))
            answer[:, law.atoms.astype(int)] = law.weights()
            return answer

        return self._ask(X, chances)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithm of `predict_proba`; −inf for a class of probability zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every row."""
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]


def _class_numbers(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.float64]:
    """Positions of labels in `classes`."""
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(f"`validation_data` must hold classes seen in `y`; got {unknown.tolist()} besides. Drop them.")
    return np.searchsorted(classes, labels).astype(np.float64)
