"""What regressor and classifier share: settings, fitting, laws given points and sets."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from tqdm.auto import tqdm

from ncprob import frames, persistence
from ncprob._validation import check_choice, check_integer, check_number
from ncprob.conditioning import TrainingRows
from ncprob.dependence import MINIMUM_ROWS as DEPENDENCE_ROWS
from ncprob.dependence import Dependence, HeldOutFeatures, IndependenceResult, split_and_learn
from ncprob.diagnostics import Diagnostics, summarize
from ncprob.distribution import ConditionalDistribution
from ncprob.fitting import MINIMUM_ROWS, fit_model, marginal_model
from ncprob.guarantees import GuaranteeReport, report, target_moments
from ncprob.losses import LOSSES
from ncprob.novelty import FAR, FEW_ROWS, MANY, InputReach
from ncprob.operator import POSTPROCESSINGS
from ncprob.optimization import History, Schedule
from ncprob.preprocessing import TableEncoder
from ncprob.recipe import Recipe
from ncprob.samples import RowStream, Sample
from ncprob.sets import Box, membership
from ncprob.spool import Spool
from ncprob.state import State
from ncprob.training import resolve_device

COORDINATES = ("raw", "residual", "auto")
PREDICT_ROWS = 8192


def to_numpy(tensor: Tensor) -> NDArray[np.float64]:
    """An array on the CPU."""
    return tensor.detach().cpu().numpy()


class NCPEstimator(BaseEstimator):
    """Settings and fitting of every estimator; see `ncprob.NCPRegressor` for the parameters."""

    def __init__(
        self,
        *,
        rank: int | str = "auto",
        hidden_sizes: Sequence[int] = (64, 64),
        coordinates: str = "auto",
        loss: str = "covariance",
        gamma: float = 1e-3,
        postprocessing: str = "whitening",
        ensemble_size: int = 1,
        batch_size: int = 1024,
        max_steps: int = 2000,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        input_gate: float | str = "auto",
        tree_inputs: bool | str = "auto",
        validation_fraction: float = 0.1,
        early_stopping: bool = True,
        x_encoder: nn.Module | None = None,
        y_encoder: nn.Module | None = None,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        progress: bool | Literal["auto"] = "auto",
    ) -> None:
        self.rank = rank
        self.hidden_sizes = hidden_sizes
        self.coordinates = coordinates
        self.loss = loss
        self.gamma = gamma
        self.postprocessing = postprocessing
        self.ensemble_size = ensemble_size
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.input_gate = input_gate
        self.tree_inputs = tree_inputs
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.x_encoder = x_encoder
        self.y_encoder = y_encoder
        self.device = device
        self.random_state = random_state
        self.checkpoint_dir = checkpoint_dir
        self.progress = progress

    # ---------------------------------------------------------------- fitting

    def _learn(
        self,
        x: NDArray[np.float64],
        target: NDArray[np.float64],
        weights: NDArray[np.float64] | None,
        held: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
        recipe: Recipe,
        spool: Spool | None = None,
    ) -> None:
        """Fit on checked arrays and keep what later questions need; with a `spool` networks train on its rows."""
        self._device, self._seed = recipe.device, recipe.seed
        if weights is not None:  # their ratios count, not their unit
            weights = weights / weights.max()
            weights = weights / weights[weights > 0].mean()
        counted = slice(None) if weights is None else weights > 0
        names = list(getattr(self, "feature_names_in_", []))
        levels = {names.index(name): len(known) for name, known in self.categories_.items()}
        known = torch.as_tensor(x[counted]).to(self._device)
        self._encoder = TableEncoder.fit(known, levels) if self.x_encoder is None else None
        self._reach: InputReach | None = None
        if self._encoder is not None:
            self._reach = InputReach.fit(self._encoder.scaler, known[:, self._encoder.numeric])
        sample = self._sample(x, target, weights)
        stream = None if spool is None else self._stream(spool, sample.y.shape[1], weights is not None)
        self._fit(sample, None if held is None else self._sample(*held, None), recipe, stream)
        # Copies: the caller may go on to change the arrays in place.
        self._training_x, self._training_y = x.copy(), sample.y.clone()
        self._training_weights = sample.y.new_ones(len(sample)) if sample.weights is None else sample.weights
        self._training_rows: TrainingRows | None = None

    def _sample(self, x: NDArray[Any], y: NDArray[Any], weights: NDArray[Any] | None) -> Sample:
        target = torch.as_tensor(y, dtype=torch.float64).reshape(len(y), -1).to(self._device)
        rows = None if weights is None else torch.as_tensor(weights, dtype=torch.float64).to(self._device)
        return Sample(self._encode(x), target, rows)

    def _stream(self, spool: Spool, n_targets: int, weighted: bool) -> RowStream:
        """Rows on disk, whose columns are inputs, targets, weights."""
        end = spool.width - 2 - weighted
        begin = end - n_targets

        def split(columns: Tensor) -> tuple[Tensor, Tensor]:
            x = columns[:, :begin]
            return x.float() if self._encoder is None else self._encoder(x), columns[:, begin:end]

        return RowStream(spool, split, end if weighted else None, self._device)

    def _encode(self, x: NDArray[Any]) -> Tensor:
        raw = torch.as_tensor(x).to(self._device)
        return raw.float() if self._encoder is None else self._encoder(raw)

    def _fit(self, sample: Sample, held_out: Sample | None, recipe: Recipe, stream: RowStream | None = None) -> None:
        if sample.weights is not None:  # a row without weight is as good as absent
            sample = sample.rows(sample.weights.nonzero()[:, 0])
        n = len(sample)
        self.history_, self.n_steps_ = History(), 0
        self._held_out_loss, self._terms, self._answers = float("nan"), None, None
        if bool((sample.y == sample.y[0]).all()):
            warnings.warn(
                "`y` is constant: the distribution is a point mass at its value, whatever X is.", stacklevel=3
            )
            self._model = marginal_model(sample.y[:1], None)
        elif n < MINIMUM_ROWS:
            warnings.warn(
                f"`X` has only {n} rows: at least {MINIMUM_ROWS} are needed to learn how y depends on X. "
                "The answers are those of the marginal distribution.",
                stacklevel=3,
            )
            self._model = marginal_model(sample.y, sample.weights)
        else:
            training, held, join = self._split(sample, held_out, recipe.seed)
            if held is None and recipe.coordinates == "auto":
                raise ValueError(
                    "`coordinates` 'auto' is chosen on held-out rows, but `validation_fraction` is 0. "
                    "Choose 'raw' or 'residual', or hold rows out."
                )
            fitted = fit_model(training, held, recipe, join=join, stream=stream)
            self._model, self.history_ = fitted.model, fitted.history
            self.n_steps_, self._held_out_loss = fitted.history.n_steps, fitted.held_out_loss
            self._terms, self._answers = fitted.terms, fitted.answers
        self._describe_model()

    def _describe_model(self) -> None:
        """Public attributes that follow from the model."""
        self.coordinates_ = self._model.coordinates
        ranks = self._model.ranks
        self.rank_ = ranks[0] if ranks else 0
        values = [op.singular_values[: self.rank_] for op in self._model.operators[:1]]
        self.singular_values_ = to_numpy(values[0].double()) if values else np.zeros(0)

    def _split(self, sample: Sample, held_out: Sample | None, seed: int) -> tuple[Sample, Sample | None, bool]:
        """Shuffled training rows, held-out rows, and whether these come from the same table."""
        order = torch.randperm(len(sample), generator=torch.Generator().manual_seed(seed)).to(self._device)
        if held_out is not None:
            return sample.rows(order), held_out, False
        if self.validation_fraction == 0:
            return sample.rows(order), None, False
        n_held = min(max(round(self.validation_fraction * len(sample)), 4), len(sample) // 2)
        return sample.rows(order[n_held:]), sample.rows(order[:n_held]), True

    def _recipe(self) -> Recipe:
        """All settings, checked before any work is done."""
        for name in ("rank", "input_gate"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise TypeError(f"`{name}` must be a number or 'auto'; got {value!r}. Pass one of these.")
        rank = None if self.rank == "auto" else check_integer(self.rank, "rank", minimum=1)
        if isinstance(self.hidden_sizes, str) or not isinstance(self.hidden_sizes, Iterable):
            raise TypeError(
                f"`hidden_sizes` must be a sequence of integers; got {self.hidden_sizes!r}. Pass for example (64, 64)."
            )
        hidden = tuple(check_integer(size, "hidden_sizes", minimum=1) for size in self.hidden_sizes)
        check_choice(self.coordinates, "coordinates", COORDINATES)
        check_choice(self.loss, "loss", tuple(LOSSES))
        check_choice(self.postprocessing, "postprocessing", POSTPROCESSINGS)
        check_number(self.validation_fraction, "validation_fraction", minimum=0, maximum=0.9)
        if self.loss == "cross_fitted" and self.postprocessing != "whitening":
            raise ValueError(
                "`loss` 'cross_fitted' does not train singular values, so `postprocessing` must be 'whitening'; "
                f"got {self.postprocessing!r}. Use whitening or another loss."
            )
        if rank is None and (self.x_encoder is not None or self.y_encoder is not None):
            raise ValueError(
                "`rank` must be the number of outputs of your encoders; got 'auto'. Pass it as an integer."
            )
        if self.checkpoint_dir is not None and self.random_state is None:
            raise ValueError(
                "`random_state` must be given with `checkpoint_dir`: a fit can only be resumed with the same seed; "
                "got None. Pass an integer."
            )
        if self.tree_inputs != "auto" and not isinstance(self.tree_inputs, bool | np.bool_):
            raise TypeError(
                f"`tree_inputs` must be True, False or 'auto'; got {self.tree_inputs!r}. Pass one of these."
            )
        if self.x_encoder is not None and self.tree_inputs != "auto" and self.tree_inputs:
            raise ValueError(
                "`tree_inputs` must be 'auto' or False with an `x_encoder` of your own, since its inputs need not be a "
                "table; got True. Leave out one of the two."
            )
        if not isinstance(self.early_stopping, bool | np.bool_):
            raise TypeError(f"`early_stopping` must be True or False; got {self.early_stopping!r}. Pass a bool.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return Recipe(
            rank=rank,
            hidden_sizes=hidden,
            coordinates=self.coordinates,
            loss=self.loss,
            gamma=check_number(self.gamma, "gamma", minimum=0),
            postprocessing=self.postprocessing,
            ensemble_size=check_integer(self.ensemble_size, "ensemble_size", minimum=1),
            input_gate=None if self.input_gate == "auto" else check_number(self.input_gate, "input_gate", minimum=0),
            tree_inputs=None if self.tree_inputs == "auto" else bool(self.tree_inputs),
            schedule=Schedule(
                max_steps=self.max_steps,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                batch_size=self.batch_size,
                early_stopping=self.early_stopping,
            ),
            device=resolve_device(self.device),
            seed=seed,
            x_encoder=self.x_encoder,
            y_encoder=self.y_encoder,
            checkpoint_dir=None if self.checkpoint_dir is None else Path(self.checkpoint_dir),
            progress=self.progress,
        )

    # ---------------------------------------------------------------- answers

    def predict_distribution(self, X: Any) -> ConditionalDistribution:
        """The law of y given each row of X; warns where many rows lie far outside the training inputs (`novelty`)."""
        x = self._checked(X, "X")
        self._warn_if_far(x, depth=3)
        return self._law(x)

    def _warn_if_far(self, x: NDArray[np.float64], depth: int) -> None:
        """Warn `depth` calls above where many rows are far outside; few training rows cannot tell."""
        learned = self._reach is not None and bool(self._model.operators)
        if not learned or len(x) == 0 or len(self._training_weights) < FEW_ROWS:
            return
        if (self._novelty(x) > FAR).mean() > MANY:
            warnings.warn(
                f"more than {MANY:.0%} of the rows of `X` lie far outside the training inputs: their answers are "
                f"extrapolations. `novelty(X)` tells which (scores above {FAR:g}).",
                stacklevel=depth,
            )

    def novelty(self, X: Any) -> NDArray[np.float64]:
        """How far each row of X lies from the training inputs: below 1 inside, far outside beyond 1.5.

        The larger of two ratios, 1 at the edge of 99.9 % of the training rows: distance from the median of a column,
        and Mahalanobis distance of the scaled inputs, which sees values that do not occur together. Categories do not
        count. Where X is far outside, no training row says anything about y. See `ncprob.novelty.InputReach`.

        Returns
        -------
        array of shape (n,)

        Examples
        --------
        >>> from ncprob import NCPRegressor
        >>> X = np.random.default_rng(0).normal(size=(400, 2))
        >>> model = NCPRegressor(max_steps=20, coordinates="raw", random_state=0).fit(X, X[:, 0])
        >>> model.novelty([[0.0, 0.0], [20.0, 0.0]]) > 1.5
        array([False,  True])
        """
        x = self._checked(X, "X")
        if self._reach is None:
            raise ValueError(
                "`novelty` needs a table; this model has an `x_encoder` of its own. Compare features of the encoder."
            )
        return self._novelty(x)

    def _novelty(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        assert self._reach is not None
        assert self._encoder is not None
        starts = range(0, max(1, len(x)), PREDICT_ROWS)
        rows = (torch.as_tensor(x[i : i + PREDICT_ROWS, self._encoder.numeric]).to(self._device) for i in starts)
        return np.concatenate([to_numpy(self._reach.novelty(part)) for part in rows])

    def _ask(self, X: Any, question: Callable[[ConditionalDistribution], NDArray[Any]]) -> NDArray[Any]:
        """What the laws of all rows say, `PREDICT_ROWS` at a time: laws are much larger than answers."""
        x = self._checked(X, "X")
        self._warn_if_far(x, depth=4)
        starts = range(0, max(1, len(x)), PREDICT_ROWS)
        if len(starts) == 1:
            return question(self._law(x))
        disable = None if self.progress == "auto" else not self.progress
        parts = tqdm(starts, desc="predicting", disable=disable, leave=False)
        return np.concatenate([question(self._law(x[start : start + PREDICT_ROWS])) for start in parts])

    def _checked(self, X: Any, name: str) -> NDArray[np.float64]:
        """X as an array like that of `fit`."""
        check_is_fitted(self)
        return frames.check_features(self, X, reset=False, tabular=self.x_encoder is None, name=name)

    def _law(self, x: NDArray[np.float64]) -> ConditionalDistribution:
        return self._model.distribution(self._encode(x), len(x), export=to_numpy)

    def given(self, A: Any) -> ConditionalDistribution:
        """The law of y given X ∈ A, as a distribution with one member.

        It is the average of the laws at the training rows inside A (Kostic et al. 2024, eq. 14).

        Parameters
        ----------
        A : Box, callable or boolean array
            A `Box` in the space of X, a callable on the training X array giving a boolean mask, or such a mask itself.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (400, 1))
        >>> from ncprob import Box, NCPRegressor
        >>> model = NCPRegressor(max_steps=100, coordinates="raw", random_state=0).fit(X, 2 * X[:, 0])
        >>> bool(model.given(Box(0.0, 1.0)).mean()[0] > 0.5)
        True
        """
        check_is_fitted(self)
        return self._training().given(self._rows_in(A).to(self._device), to_numpy)

    def _training(self) -> TrainingRows:
        """Laws of the training rows, formed when a set is first asked about."""
        if self._training_rows is None:
            self._training_rows = TrainingRows(self._law(self._training_x), self._training_weights)
        return self._training_rows

    def _training_columns(self) -> dict[str, NDArray[Any]]:
        """Columns of the training table by name, text and categories by their levels."""
        x = self._training_x
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(x.shape[1])])
        columns: dict[str, NDArray[Any]] = dict(zip(names, x.T, strict=True))
        for name, levels in self.categories_.items():
            columns[name] = np.array(levels)[columns[name].astype(int)]
        return columns

    def _rows_in(self, A: Any) -> Tensor:
        """Mask of the training rows inside A, which must not be empty."""
        x = self._training_x
        if isinstance(A, Box) or callable(A):
            points = torch.as_tensor(x if callable(A) else x.reshape(len(x), -1))
            mask = membership(A, points, "A", to_numpy)
        else:
            mask = torch.as_tensor(frames.check_mask(A, len(x)))
        if not bool((self._training_weights.cpu()[mask] > 0).any()):
            raise ValueError("`A` must contain at least one training row; it contains none. Choose a larger set.")
        return mask

    def given_target(self, B: Any) -> ConditionalDistribution:
        """The law of X given y ∈ B, as a distribution with one member over the training X; no retraining.

        By Bayes' rule each training row weighs P(y ∈ B | x_i): the adjoint of the conditional expectation operator.

        Parameters
        ----------
        B : (low, high] tuple, Box or callable
            A set of y values, as in `ConditionalDistribution.prob`.
        """
        check_is_fitted(self)
        points = torch.as_tensor(self._training_x).reshape(len(self._training_x), -1).to(self._device)
        return self._training().reverse(points, B, to_numpy)

    def guarantees(
        self, delta: float = 0.05, A: Any = None, B: Any = None, constant: float = 1.0, **options: Any
    ) -> GuaranteeReport:
        """The paper's bounds on the error of P(y ∈ B | X ∈ A), evaluated for this model; see `ncprob.guarantees`.

        Parameters
        ----------
        delta : float
            The bounds hold with probability 1 − delta.
        A : Box, callable or boolean array, optional
            A set of X as in `given`; by default a set of probability ½.
        B : (low, high] tuple, Box or callable, optional
            A set of y as in `ConditionalDistribution.prob`; by default a set of probability ½.
        constant : float
            The absolute constant C of the paper, which it leaves open.
        **options
            `hidden_constant`, `features="subgaussian"`, `levels`, `as_printed`: see `ncprob.guarantees.report`.
        """
        check_is_fitted(self)
        if self._terms is None:
            raise ValueError(
                "`guarantees` needs a trained operator and held-out rows; this model has none. "
                "Fit with `validation_fraction` > 0 on at least 16 rows of a y that varies."
            )
        weights = self._training_weights / self._training_weights.sum()
        prob_A = 0.5 if A is None else float(weights[self._rows_in(A).to(self._device)].sum())
        prob_B = 0.5 if B is None else float(weights[membership(B, self._training_y, "B", to_numpy)].sum())
        raw = self.coordinates_ == "raw"
        scores = "the operator is that of normal scores of y under the mixture; B and levels refer to sets of these."
        notes = () if raw else (scores,)
        moments = target_moments(to_numpy(self._training_y)) if raw else None
        return report(self._terms, prob_A, prob_B, delta, constant=constant, target=moments, notes=notes, **options)

    def dependence(self) -> Dependence:
        """χ² dependence Σσ², maximal correlation σ₁ and effective rank of (X, y), measured on held-out rows.

        A small operator of (X, y) is learned on half of the training rows and read on the other half: the rows that
        chose weights and rank of this model would flatter it, and a residual model has taken most dependence away.
        """
        check_is_fitted(self)
        return self._split_features(self._seed).dependence()

    def independence_test(self, n_permutations: int = 999, random_state: int | None = None) -> IndependenceResult:
        """Test of independence of X and y on the training rows, with an exact p-value.

        Singular functions are learned on half of the rows and the other half is permuted
        (see `ncprob.dependence.permutation_test`).
        """
        check_is_fitted(self)
        check_integer(n_permutations, "n_permutations", minimum=1)
        seed = self._seed if random_state is None else check_integer(random_state, "random_state", minimum=0)
        return self._split_features(seed).test(n_permutations, seed)

    def _split_features(self, seed: int) -> HeldOutFeatures:
        if len(self._training_y) < DEPENDENCE_ROWS:
            raise ValueError(f"At least {DEPENDENCE_ROWS} rows are needed to measure dependence. Fit on more rows.")
        settings: dict[str, Any] = {} if self.x_encoder is None else {"x_encoder": self.x_encoder, "rank": self.rank}
        x = self._encode(self._training_x)
        return split_and_learn(x, self._training_y, seed=seed, device=self._device, **settings)

    def diagnostics(self) -> Diagnostics:
        """Gaps, spectrum, calibration and coverage on held-out rows; print it for a verdict in words."""
        check_is_fitted(self)
        terms = self._terms
        gaps = (float("nan"), float("nan"))
        if terms is not None:
            gaps = (
                max(terms.left_gram_gap, terms.right_gram_gap),
                max(terms.left_mean_norm, terms.right_mean_norm),
            )
        n_rows = int((self._training_weights > 0).sum())
        learned = bool(self._model.operators)
        return summarize(
            self._answers, self.singular_values_, gaps, self._held_out_loss, n_rows, self.n_features_in_, learned
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    # ---------------------------------------------------------------- saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to the directory `path`, to be read by `ncprob.load`; a model there is replaced.

        Arrays go to a safetensors file and facts to a JSON file, nothing is pickled. A crash leaves either the old or
        the new model, whole. Weights of encoders of your own are kept, their code is not.

        Examples
        --------
        >>> import tempfile
        >>> from ncprob import NCPRegressor, load
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> model = NCPRegressor(max_steps=50, coordinates="raw", random_state=0).fit(X, X[:, 0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(folder)
        ...     again = load(folder)
        >>> bool((again.predict(X) == model.predict(X)).all())
        True
        """
        check_is_fitted(self)
        persistence.save(self, path)

    def _own_state(self) -> State:
        """What `fit` of this class learned beside what all estimators have."""
        return State()

    def _restore_own(self, state: State) -> None:
        """Inverse of `_own_state`, checked."""
