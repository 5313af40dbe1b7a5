"""Small dense linear algebra: inverse square roots, truncated SVD and the sign convention."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def symmetric_inverse_sqrt(
    matrix: Float[Tensor, "d d"], *, ridge: float = 0.0, relative_threshold: float = 1e-10
) -> Float[Tensor, "d d"]:
    """Inverse square root of a symmetric positive semi-definite matrix.

    With C = Q diag(λ) Qᵀ the result is Q diag((λ + ridge·λ̄)^(-½)) Qᵀ, where λ̄ is the mean eigenvalue.
    Directions with λ ≤ relative_threshold · max λ carry no information and are mapped to zero
    (the pseudo-inverse), so that collapsed or collinear features cannot blow up the answer.

    Examples
    --------
    >>> c = torch.diag(torch.tensor([4.0, 1.0, 0.0]))
    >>> symmetric_inverse_sqrt(c).diagonal()
    tensor([0.5000, 1.0000, 0.0000])
    """
    eigenvalues, eigenvectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    largest = eigenvalues[-1].clamp(min=0)
    kept = eigenvalues > relative_threshold * largest
    shifted = eigenvalues + ridge * eigenvalues.clamp(min=0).mean()
    inverse_roots = torch.where(kept, shifted.clamp(min=torch.finfo(matrix.dtype).tiny).rsqrt(), 0.0)
    return (eigenvectors * inverse_roots) @ eigenvectors.mT


def ridge_solve(
    matrix: Float[Tensor, "d d"], right_side: Float[Tensor, "d k"], *, ridge: float
) -> Float[Tensor, "d k"]:
    """Solve (C + ridge·λ̄·I) Z = B for a symmetric positive semi-definite C, λ̄ its mean eigenvalue.

    Differentiable; used where gradients flow through the solution.

    Examples
    --------
    >>> ridge_solve(2 * torch.eye(2), torch.ones(2, 1), ridge=0.0).ravel()
    tensor([0.5000, 0.5000])
    """
    d = matrix.shape[-1]
    # The constant keeps a feature matrix that has collapsed to zero solvable.
    shift = ridge * matrix.diagonal().mean() + torch.finfo(matrix.dtype).eps
    identity = torch.eye(d, dtype=matrix.dtype, device=matrix.device)
    factor = torch.linalg.cholesky(matrix + shift * identity)
    return torch.cholesky_solve(right_side, factor)


def truncated_svd(
    matrix: Float[Tensor, "m n"], rank: int
) -> tuple[Float[Tensor, "m k"], Float[Tensor, " k"], Float[Tensor, "n k"]]:
    """Leading `rank` singular triplets P, σ, Q with M ≈ P diag(σ) Qᵀ, σ decreasing.

    Signs follow one convention, so that equal matrices give equal factors on every machine: the entry
    of largest modulus in each column of P is positive.

    Examples
    --------
    >>> p, s, q = truncated_svd(torch.tensor([[0.0, -2.0], [1.0, 0.0]]), rank=1)
    >>> p.ravel(), s, q.ravel()
    (tensor([1., 0.]), tensor([2.]), tensor([ 0., -1.]))
    """
    left, values, right_t = torch.linalg.svd(matrix, full_matrices=False)
    left, values, right = left[:, :rank], values[:rank], right_t[:rank].mT
    rows = left.abs().argmax(dim=0)
    signs = torch.sign(left.gather(0, rows[None, :]))
    return left * signs + 0.0, values, right * signs + 0.0
