"""Linear algebra obeys its defining equations, also on singular matrices."""

import pytest
import torch
from helpers import normal
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob.linalg import ridge_solve, symmetric_inverse_sqrt, truncated_svd

seeds = st.integers(0, 2**32 - 1)


def semidefinite(size, rank, seed):
    factor = normal(size, rank, seed=seed)
    return factor @ factor.mT


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 6))
def test_inverse_root_turns_a_matrix_into_the_identity(seed, size):
    matrix = semidefinite(size, 2 * size + 4, seed)
    root = symmetric_inverse_sqrt(matrix)
    torch.testing.assert_close(root @ matrix @ root, torch.eye(size, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(root, root.mT)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 4))
def test_inverse_root_of_a_singular_matrix_is_the_pseudo_inverse(seed, rank):
    matrix = semidefinite(5, rank, seed)
    root = symmetric_inverse_sqrt(matrix)
    projection = root @ matrix @ root
    torch.testing.assert_close(projection @ projection, projection, atol=1e-6, rtol=0)
    assert torch.trace(projection).item() == pytest.approx(rank)


def test_inverse_root_adds_the_ridge_in_units_of_the_mean_eigenvalue():
    root = symmetric_inverse_sqrt(torch.diag(torch.tensor([1.0, 3.0])), ridge=0.5)
    torch.testing.assert_close(root, torch.diag(torch.tensor([2.0, 4.0]).rsqrt()))


def test_zero_matrix_has_inverse_root_zero():
    assert symmetric_inverse_sqrt(torch.zeros(3, 3)).abs().max() == 0


@settings(max_examples=30, deadline=None)
@given(seeds, st.floats(0.01, 10))
def test_ridge_solve_solves_its_equation(seed, ridge):
    matrix, right_side = semidefinite(4, 3, seed), normal(4, 2, seed=seed + 1)
    solution = ridge_solve(matrix, right_side, ridge=ridge)
    shifted = matrix + ridge * torch.linalg.eigvalsh(matrix).mean() * torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(shifted @ solution, right_side, atol=1e-9, rtol=1e-9)


def test_ridge_solve_survives_collapsed_features():
    assert torch.isfinite(ridge_solve(torch.zeros(3, 3), torch.zeros(3, 2), ridge=1e-3)).all()


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 6), st.integers(1, 6))
def test_svd_rebuilds_the_matrix_from_orthonormal_factors(seed, m, n):
    matrix = normal(m, n, seed=seed)
    rank = min(m, n)
    left, values, right = truncated_svd(matrix, rank)
    torch.testing.assert_close((left * values) @ right.mT, matrix, atol=1e-10, rtol=0)
    for factor in (left, right):
        torch.testing.assert_close(factor.mT @ factor, torch.eye(rank, dtype=torch.float64), atol=1e-10, rtol=0)
    assert (values.diff() <= 0).all()


def test_truncation_error_is_the_next_singular_value():
    matrix = normal(6, 5, seed=1)
    left, values, right = truncated_svd(matrix, 2)
    error = torch.linalg.matrix_norm(matrix - (left * values) @ right.mT, ord=2)
    assert error.item() == pytest.approx(torch.linalg.svdvals(matrix)[2].item())


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_signs_follow_the_convention(seed):
    matrix = normal(5, 4, seed=seed)
    left, _, right = truncated_svd(matrix, 4)
    assert (left.gather(0, left.abs().argmax(dim=0)[None]) > 0).all()
    flipped_left, _, flipped_right = truncated_svd(-matrix, 4)
    torch.testing.assert_close(flipped_left, left, atol=1e-9, rtol=0)
    torch.testing.assert_close(flipped_right, -right, atol=1e-9, rtol=0)
