"""`SpectralOperator`: two encoders and singular values that model the density ratio of (X, Y).

    r(x, y) = dρ/d(μ×ν) ≈ 1 + Σ_i s_i u_i(x) v_i(y)        (Kostic et al. 2024, section 3)

Calling the operator on x gives a `ConditionalDistribution` over given atoms of Y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncprob._validation import check_choice, check_integer
from ncprob.distribution import ConditionalDistribution
from ncprob.encoders import encoder_from_state, encoder_state, evaluating
from ncprob.linalg import symmetric_inverse_sqrt, truncated_svd
from ncprob.pairs import as_pairs, to_device
from ncprob.partition import RanksHold, part_of
from ncprob.state import State, fill_module
from ncprob.statistics import PairMoments
from ncprob.support import Support

PostProcessing = Literal["none", "centering", "whitening"]
POSTPROCESSINGS: tuple[str, ...] = get_args(PostProcessing)
HALF = (torch.bfloat16, torch.float16)


class SpectralOperator(nn.Module):
    """The conditional expectation operator, truncated at `rank` singular triplets.

    Parameters
    ----------
    x_encoder, y_encoder : torch.nn.Module
        Map a batch of any inputs (tensor, dict of tensors, graphs) to features of shape (batch, rank). They may
        be the same module.
    rank : int
        Number of features, d in the paper.

    Notes
    -----
    The learned singular values are s_i = exp(−w_i²) with w ~ N(0, 1/d²) at the start (paper, appendix A.1).
    `postprocess` replaces features and values by affine images of them; the stored arrays keep their shapes, so a
    saved model always loads.

    Examples
    --------
    >>> from ncprob.encoders import MLP
    >>> operator = SpectralOperator(MLP(2, (16,), 8), MLP(1, (16,), 8), rank=8)
    >>> x, y = torch.randn(100, 2), torch.randn(100, 1)
    >>> operator.postprocess((x, y), kind="whitening").density_ratio(x[:5], y).shape
    torch.Size([5, 100])
    """

    left_mean: Tensor
    right_mean: Tensor
    left_map: Tensor
    right_map: Tensor
    whitened_values: Tensor
    _kind: Tensor

    def __init__(self, x_encoder: nn.Module, y_encoder: nn.Module, rank: int) -> None:
        super().__init__()
        for name, encoder in (("x_encoder", x_encoder), ("y_encoder", y_encoder)):
            if not isinstance(encoder, nn.Module):
                raise TypeError(f"`{name}` must be a torch.nn.Module; got {type(encoder).__name__}. Wrap it in one.")
        self.rank = check_integer(rank, "rank", minimum=1)
        self.x_encoder, self.y_encoder = x_encoder, y_encoder
        self.log_values_root = nn.Parameter(torch.randn(rank) / rank)  # w
        self.register_buffer("left_mean", torch.zeros(rank))
        self.register_buffer("right_mean", torch.zeros(rank))
        self.register_buffer("left_map", torch.eye(rank))
        self.register_buffer("right_map", torch.eye(rank))
        self.register_buffer("whitened_values", torch.zeros(rank))
        self.register_buffer("_kind", torch.zeros((), dtype=torch.int64))

    def state(self) -> State:
        """What `from_state` needs."""
        own = dict(self.named_parameters(recurse=False)) | dict(self.named_buffers(recurse=False))
        parts = {"x_encoder": encoder_state(self.x_encoder), "y_encoder": encoder_state(self.y_encoder)}
        return State(own, {"rank": self.rank}, parts)

    @classmethod
    def from_state(
        cls, state: State, x_encoder: nn.Module | None = None, y_encoder: nn.Module | None = None
    ) -> SpectralOperator:
        """The same operator; encoders that are not ours are filled in place."""
        left = encoder_from_state(state.part("x_encoder"), x_encoder, "x_encoder")
        right = encoder_from_state(state.part("y_encoder"), y_encoder, "y_encoder")
        with torch.device("meta"):
            operator = cls(nn.Identity(), nn.Identity(), state.integer("rank", minimum=1)).float()
        fill_module(operator, state.tensors)
        operator.x_encoder, operator.y_encoder = left, right
        if not 0 <= int(operator._kind) < len(POSTPROCESSINGS):
            raise ValueError(f"post-processing {int(operator._kind)} is none of {POSTPROCESSINGS}")
        return operator

    @property
    def postprocessing(self) -> str:
        """The post-processing in force: `"none"`, `"centering"` or `"whitening"`."""
        return POSTPROCESSINGS[int(self._kind)]

    @property
    def singular_values(self) -> Float[Tensor, " rank"]:
        """σ_θ = exp(−w²), or the values found by whitening."""
        return self.whitened_values if self.postprocessing == "whitening" else self.trained_values

    @property
    def trained_values(self) -> Float[Tensor, " rank"]:
        """σ_θ = exp(−w²), whatever the post-processing: to ask an accelerator for it would make every step wait."""
        return torch.exp(-self.log_values_root.square())

    def encode(self, x: Any, y: Any) -> tuple[Float[Tensor, "batch rank"], Float[Tensor, "batch rank"]]:
        """Plain features of pairs, as the losses take them, in the mode that the encoders are in."""
        return self._encoded(self.x_encoder, x, "x_encoder"), self._encoded(self.y_encoder, y, "y_encoder")

    def left_features(self, x: Any) -> Float[Tensor, "batch rank"]:
        """u(x), post-processed; encoders answer in evaluation mode, whatever mode they are in."""
        with evaluating(self.x_encoder):
            return (self._encoded(self.x_encoder, x, "x_encoder") - self.left_mean) @ self.left_map

    def right_features(self, y: Any) -> Float[Tensor, "batch rank"]:
        """v(y), post-processed; encoders answer in evaluation mode, whatever mode they are in."""
        with evaluating(self.y_encoder):
            return (self._encoded(self.y_encoder, y, "y_encoder") - self.right_mean) @ self.right_map

    def _encoded(self, encoder: nn.Module, inputs: Any, name: str) -> Tensor:
        """Features of inputs from any device, with their shape checked."""
        features = encoder(to_device(inputs, self.left_mean.device))
        if features.ndim != 2 or features.shape[1] != self.rank:
            raise ValueError(
                f"`{name}` must give features of shape (batch, {self.rank}), the rank; got {tuple(features.shape)}. "
                f"Change the last layer of `{name}` or `rank`."
            )
        if features.dtype in HALF:  # whatever an encoder computes in, covariances of so few digits are worth nothing
            features = features.to(self.left_mean.dtype)
        return features

    @torch.no_grad()
    def postprocess(
        self,
        pairs: Any,
        kind: PostProcessing = "whitening",
        *,
        ridge: float = 0.0,
        relative_threshold: float = 1e-6,
        chunk_size: int = 8192,
        ranks: RanksHold = "alone",
    ) -> SpectralOperator:
        """Centre or whiten the features with statistics of all `pairs`, accumulated in float64 in chunks.

        Whitening (paper, Algorithm 2): centre, scale by √s, then C_X^{-½} C_XY C_Y^{-½} = P Σ Qᵀ gives new features
        C_X^{-½} P and C_Y^{-½} Q with identity covariances, and Σ as singular values in decreasing order. The result
        does not change when the features are remixed by an invertible matrix.

        Parameters
        ----------
        pairs : (x, y), (x, y, weights), TimeLaggedPairs, Dataset or DataLoader
            The whole training set.
        kind : {"none", "centering", "whitening"}
            What to do; `"none"` restores the trained features.
        ridge, relative_threshold : float
            Guard against collapsed features, see `ncprob.linalg.symmetric_inverse_sqrt`.
        ranks : {"alone", "same", "own"}
            With several processes: `"alone"` takes the statistics of `pairs` here; `"same"` shares the work if all
            ranks pass the same pairs; `"own"` joins the statistics of pairs that each rank has for itself. The last two
            must be called on all ranks and give all the same result.
        """
        check_choice(kind, "kind", POSTPROCESSINGS)
        if kind == "none":
            self._reset_postprocessing()
        elif kind == "centering":
            self.center(self.moments(pairs, chunk_size, ranks))
        else:
            self.whiten(self.moments(pairs, chunk_size, ranks), ridge=ridge, relative_threshold=relative_threshold)
        return self

    @torch.no_grad()
    def moments(self, pairs: Any, chunk_size: int = 8192, ranks: RanksHold = "alone") -> PairMoments:
        """Means and covariances of the plain features over all `pairs`, in float64; `ranks` as in `postprocess`.

        Encoders are in evaluation mode meanwhile.
        """
        device = self.left_mean.device
        data, together = part_of(as_pairs(pairs, device), ranks, device)
        chunks = ((*self.encode(x, y), weights) for x, y, weights in data.chunks(chunk_size))
        with evaluating(self.x_encoder, self.y_encoder):
            return PairMoments.accumulate(chunks, together).to(device)

    def _reset_postprocessing(self) -> None:
        self._kind.zero_()
        self.left_mean.zero_()
        self.right_mean.zero_()
        identity = torch.eye(self.rank, device=self.left_map.device)
        self.left_map.copy_(identity)
        self.right_map.copy_(identity)

    def center(self, moments: PairMoments) -> None:
        """Subtract the means of the features."""
        self._reset_postprocessing()
        self.left_mean.copy_(moments.left_mean)
        self.right_mean.copy_(moments.right_mean)
        self._kind.fill_(POSTPROCESSINGS.index("centering"))

    @torch.no_grad()
    def whiten(self, moments: PairMoments, *, ridge: float = 0.0, relative_threshold: float = 1e-6) -> None:
        """Whiten with given moments of the plain features; see `postprocess`."""
        self.center(moments)
        root = self.singular_values.double().sqrt()
        scale = torch.outer(root, root)
        guard = {"ridge": ridge, "relative_threshold": relative_threshold}
        left = self._without_constants(moments.left, moments.left_mean)
        right = self._without_constants(moments.right, moments.right_mean)
        left_inverse = symmetric_inverse_sqrt(scale * left, **guard)
        right_inverse = symmetric_inverse_sqrt(scale * right, **guard)
        p, values, q = truncated_svd(left_inverse @ (scale * moments.cross) @ right_inverse, self.rank)
        self.left_map.copy_(root[:, None] * (left_inverse @ p))
        self.right_map.copy_(root[:, None] * (right_inverse @ q))
        self.whitened_values.copy_(values.clamp(0, 1))
        self._kind.fill_(POSTPROCESSINGS.index("whitening"))

    def _without_constants(
        self, covariance: Float[Tensor, "rank rank"], mean: Float[Tensor, " rank"]
    ) -> Float[Tensor, "rank rank"]:
        """Covariance without features that are constant but for rounding, which whitening would blow up."""
        rounding = 8 * torch.finfo(self.left_mean.dtype).eps * mean
        varies = covariance.diagonal() > rounding.square()
        return covariance * torch.outer(varies, varies)

    def density_ratio(self, x: Any, y: Any) -> Float[Tensor, "x_batch y_batch"]:
        """r(x_i, y_j) = 1 + Σ_k s_k u_k(x_i) v_k(y_j) for all i, j; may be negative where the model errs."""
        return 1 + (self.left_features(x) * self.singular_values) @ self.right_features(y).mT

    @torch.no_grad()
    def distribution(self, x: Any, y_atoms: Tensor, atom_weights: Tensor | None = None) -> ConditionalDistribution:
        """The law of Y given X = x_i for every i, carried by `y_atoms` (usually the training Y)."""
        atoms = to_device(y_atoms[:, None] if y_atoms.ndim == 1 else y_atoms, self.left_mean.device)
        support = Support(atoms, self.right_features(atoms), to_device(atom_weights, self.left_mean.device))
        return ConditionalDistribution(support, self.left_features(x) * self.singular_values)

    __call__: Callable[..., ConditionalDistribution]

    def forward(self, x: Any, y_atoms: Tensor) -> ConditionalDistribution:
        """Same as `distribution`: an operator called on x returns a conditional distribution."""
        return self.distribution(x, y_atoms)

    def expectation(self, f: Callable[[Tensor], Tensor], x: Any, y_atoms: Tensor) -> Tensor:
        """E[f(Y) | X = x_i] for a vectorised `f`: (m, q) → (m,) or (m, k)."""
        return self.distribution(x, y_atoms).expectation(f)
