"""Strength of dependence and the permutation test: exact tables, the Gaussian pair, power by kind of dependence."""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers import Table, gaussian_pairs, generator, normal
from torch import nn

from ncprob import dependence
from ncprob.dependence import (
    Dependence,
    HeldOutFeatures,
    IndependenceResult,
    dependence_from_features,
    fit_and_test,
    independence_test,
    learn_features,
    measure_dependence,
    permutation_test,
    split_and_learn,
)


def simulate(kind, n, seed):
    """Dependence of four kinds, none of it in the correlation but for the first, and none at all."""
    x, noise, angle = normal(3, n, seed=seed)
    if kind == "circular":
        turn = 2 * math.pi * torch.special.ndtr(angle)
        return turn.cos() + 0.2 * x, turn.sin() + 0.2 * noise
    y = {
        "independent": noise,
        "linear": 0.4 * x + noise,
        "quadratic": 0.5 * x**2 + noise,
        "heteroscedastic": (0.6 * x).exp() * noise,
    }
    return x, y[kind]


# ------------------------------------------------------------------ strength


def rows_of(counts):
    """Rows of a table whose empirical law is exactly counts/Σ counts."""
    x, y = torch.cartesian_prod(torch.arange(counts.shape[0]), torch.arange(counts.shape[1])).unbind(dim=1)
    repeats = counts.flatten()
    return x.repeat_interleave(repeats), y.repeat_interleave(repeats)


@pytest.mark.parametrize("seed", range(3))
def test_discrete_tables_are_exact(seed):
    counts = torch.randint(1, 2000, (3, 4), generator=generator(seed))
    table = Table(counts.double())
    u, values, v = table.svd(rank=2)
    x, y = rows_of(counts)
    answer = dependence_from_features(u[x], v[y], values)
    n = len(x)
    chi2 = float((table.joint * table.density_ratio()).sum() - 1)
    assert chi2 == pytest.approx(float(values.square().sum()))
    np.testing.assert_allclose(answer.singular_values, values, atol=1e-12)
    assert answer.maximal_correlation == pytest.approx(float(values[0]))
    assert answer.chi2 == pytest.approx(chi2)
    assert answer.effective_rank == pytest.approx(float(values.square().sum() ** 2 / values.pow(4).sum()), rel=1e-2)
    assert answer.n_rows == n


def test_strength_does_not_depend_on_signs_order_of_rows_or_units():
    u, v = normal(500, 3, seed=0), normal(500, 3, seed=1)
    v = 0.6 * u + 0.8 * v
    values = torch.tensor([0.6, 0.6, 0.6]).double()
    plain = dependence_from_features(u, v, values)
    order = torch.randperm(500, generator=generator(2))
    signs = torch.tensor([1.0, -1.0, -1.0]).double()
    for other in (
        dependence_from_features(u[order], v[order], values),
        dependence_from_features(u * signs, v * signs, values),
    ):
        np.testing.assert_allclose(other.singular_values, plain.singular_values, rtol=1e-9)
        assert other.chi2 == pytest.approx(plain.chi2)
    assert dependence_from_features(u + 7, 5 * v - 3, 0.1 * values).chi2 == pytest.approx(plain.chi2)


def test_negative_correlations_and_negative_chi2_are_cut_at_zero():
    u = normal(300, 2, seed=0)
    answer = dependence_from_features(u, -u, torch.tensor([0.9, 0.5]))
    assert answer.chi2 == answer.maximal_correlation == answer.effective_rank == 0
    assert answer.singular_values == (0, 0)


def test_no_model_overstates_a_table():
    """χ² and σ₁ from wrong functions are below those of the law (Cauchy & Schwarz)."""
    counts = torch.randint(1, 2000, (4, 4), generator=generator(7))
    table = Table(counts.double())
    _, values, _ = table.svd(rank=3)
    x, y = rows_of(counts)
    for seed in range(20):
        u, v, s = normal(4, 3, seed=seed), normal(4, 3, seed=100 + seed), normal(3, seed=200 + seed).abs()
        answer = dependence_from_features(u[x], v[y], s)
        assert answer.chi2 <= float(values.square().sum()) + 1e-12
        assert max(answer.singular_values) <= float(values[0]) + 1e-12


def test_constant_features_carry_no_dependence():
    answer = dependence_from_features(torch.ones(50, 1), normal(50, 1, seed=0), torch.ones(1))
    assert answer.maximal_correlation == answer.chi2 == 0


@pytest.mark.parametrize("rho", [0.3, 0.6])
def test_gaussian_pair(rho):
    """σ_k = ρ^k, so the maximal correlation is ρ (Gebelein 1941) and χ² = ρ²/(1 − ρ²)."""
    x, y = gaussian_pairs(6000, rho=rho, seed=1)
    answer = measure_dependence(x, y, random_state=0)
    assert answer.maximal_correlation == pytest.approx(rho, abs=3 * (1 - rho**2) / math.sqrt(3000) + 0.01)
    assert answer.chi2 == pytest.approx(rho**2 / (1 - rho**2), rel=0.25)
    assert answer.n_rows == 3000


def test_independence_gives_about_nothing():
    answer = measure_dependence(*simulate("independent", 3000, seed=4), random_state=0)
    assert answer.chi2 < 0.02
    assert answer.maximal_correlation < 3 / math.sqrt(1500)


def test_held_out_values_are_below_those_of_training():
    """On 60 rows the training values promise much where nothing is."""
    x, y = (part[:, None] for part in simulate("independent", 120, seed=5))
    features = split_and_learn(x.float(), y)
    assert features.dependence().maximal_correlation < float(features.singular_values[0])


# ------------------------------------------------------------------ permutation test


@pytest.mark.parametrize("weighted", [True, False])
def test_statistics_by_definition(weighted):
    u, v, s = normal(20, 3, seed=0), normal(20, 3, seed=1), torch.tensor([0.9, 0.5, 0.1]).double()
    covariances = (u - u.mean(0)).mT @ (v - v.mean(0)) / 20
    expected = covariances.diagonal() @ s if weighted else covariances.square().sum()
    result = permutation_test(u, v, s if weighted else None, n_permutations=9, random_state=0)
    assert result.statistic == pytest.approx(float(expected))


@pytest.mark.parametrize("weighted", [True, False])
def test_pvalue_counts_all_orders_of_four_rows(weighted):
    """With many random permutations of 4 rows p tends to the share of the 24 orders that reach the observed one."""
    u, v, s = normal(4, 2, seed=3), normal(4, 2, seed=4), torch.tensor([0.8, 0.3]).double()

    def statistic(rows):
        covariances = (u - u.mean(0)).mT @ (v - v.mean(0))[list(rows)] / 4
        return float(covariances.diagonal() @ s if weighted else covariances.square().sum())

    observed = statistic(range(4))
    exact = np.mean([statistic(rows) >= observed - 1e-12 for rows in itertools.permutations(range(4))])
    result = permutation_test(u, v, s if weighted else None, n_permutations=20000, random_state=0)
    assert result.pvalue == pytest.approx(exact, abs=0.015)


def test_pvalues_take_the_values_they_may():
    u, v = normal(30, 2, seed=0), normal(30, 2, seed=1)
    result = permutation_test(u, v, torch.ones(2), n_permutations=19, random_state=0)
    assert result.pvalue * 20 == pytest.approx(round(result.pvalue * 20))
    assert permutation_test(u, u, torch.ones(2), n_permutations=19, random_state=0).pvalue == 0.05
    assert permutation_test(u, -u, torch.ones(2), n_permutations=19, random_state=0).pvalue == 1


def test_chunks_do_not_change_the_answer(monkeypatch):
    u, v = normal(40, 2, seed=0), normal(40, 2, seed=1)
    whole = permutation_test(u, v, torch.ones(2), random_state=3)
    monkeypatch.setattr(dependence, "CHUNK_ELEMENTS", 7 * 40 * 2)
    assert permutation_test(u, v, torch.ones(2), random_state=3) == whole


def test_pvalues_are_uniform_for_any_fixed_features():
    """The test is valid whatever the features: here meaningless ones, heavy-tailed and collinear."""
    pvalues = []
    for seed in range(300):
        x, y = normal(30, 1, seed=seed), normal(30, 1, seed=1000 + seed)
        u, v = torch.cat([x**3, x], dim=1), torch.cat([y.exp(), y], dim=1)
        pvalues.append(permutation_test(u, v, torch.tensor([0.9, 0.2]), 99, seed).pvalue)
    share = np.mean(np.array(pvalues)[:, None] <= [0.05, 0.2, 0.5], axis=0)
    np.testing.assert_allclose(share, [0.05, 0.2, 0.5], atol=4 * 0.5 / math.sqrt(300))
    assert share[0] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_constant_target_gives_one():
    assert independence_test(normal(60, seed=0), torch.zeros(60), max_steps=20, random_state=0).pvalue == 1


# ------------------------------------------------------------------ learning and testing


@pytest.mark.parametrize("kind", ["linear", "quadratic", "circular", "heteroscedastic"])
def test_power(kind):
    assert independence_test(*simulate(kind, 500, seed=11), random_state=0).pvalue < 0.05


def test_no_power_where_there_is_nothing_to_find():
    assert independence_test(*simulate("independent", 500, seed=11), random_state=0).pvalue > 0.05


def test_one_useful_input_among_many():
    X = normal(800, 10, seed=1)
    y = X[:, 3].abs() + 0.5 * normal(800, seed=2)
    assert independence_test(X, y, random_state=0).pvalue < 0.05


def test_dependence_that_no_single_column_shows():
    """X is independent of each component of Y, not of both: Y₂ = sign(X) Y₁ on the unit circle of signs."""
    x, y1 = normal(2, 600, seed=3)
    y = torch.stack([y1, torch.sign(x * y1) * normal(600, seed=4).abs()], dim=1)
    assert independence_test(x, y, random_state=0).pvalue < 0.05
    assert independence_test(x, y[:, 1], random_state=0).pvalue > 0.05


def test_same_seed_same_answer_and_global_generator_untouched():
    x, y = simulate("linear", 100, seed=0)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = independence_test(x, y, max_steps=30, random_state=7)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert independence_test(x.numpy(), y.tolist(), max_steps=30, random_state=7) == first
    assert 0 < independence_test(x, y, max_steps=5).pvalue <= 1


def test_a_huge_outlier_does_not_hide_the_rest():
    x, y = simulate("linear", 500, seed=11)
    x[0], y[1] = 1e12, -1e12
    assert independence_test(x, y, random_state=0).pvalue < 0.05


def test_given_rows_and_encoder():
    """Features learned on given rows with an encoder of one's own; the encoder itself is not trained."""
    x, y = gaussian_pairs(400, rho=0.9, seed=0)
    encoder = nn.Linear(1, 3)
    weight = encoder.weight.detach().clone()
    features = learn_features(
        (x[:300], y[:300].double()), (x[300:], y[300:].double()), rank=3, x_encoder=encoder, max_steps=100
    )
    assert isinstance(features, HeldOutFeatures)
    assert features.left.shape == features.right.shape == (100, 3)
    assert torch.equal(encoder.weight, weight)
    assert features.test(99, random_state=0).pvalue == 0.01


def test_fit_and_test_returns_both():
    x, y = gaussian_pairs(200, rho=0.9, seed=0)
    strength, result = fit_and_test(x, y.double(), n_permutations=99, random_state=0, max_steps=100)
    assert isinstance(strength, Dependence)
    assert isinstance(result, IndependenceResult)
    assert strength.n_rows == 100
    assert "maximal correlation" in str(strength)
    assert "p = 0.01" in str(result)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": torch.zeros(30)}, "`X` and `y` must have as many rows; got 30 and 40"),
        ({"X": torch.zeros(40, 2, 2)}, r"`X` must have shape \(n,\) or \(n, p\)"),
        ({"y": torch.full((40,), math.nan)}, "`y` must not hold NaN"),
        ({"y": torch.full((40,), math.inf)}, "`y` must be finite; got 40 infinite"),
        ({"X": torch.zeros(5), "y": torch.zeros(5)}, "`X` must hold at least 20 rows; got 5"),
        ({"n_permutations": 0}, "`n_permutations` must be at least 1"),
        ({"test_fraction": 1.0}, "`test_fraction` must lie in"),
        ({"random_state": -1}, "`random_state` must be at least 0"),
    ],
)
def test_bad_rows(change, message):
    with pytest.raises(ValueError, match=message):
        independence_test(**({"X": normal(40, seed=0), "y": normal(40, seed=1), "max_steps": 5} | change))


def test_text_is_rejected():
    with pytest.raises(TypeError, match="`X` must be numeric"):
        independence_test(["a"] * 40, normal(40, seed=0))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((10, 2), (9, 2), (2,)), "`u_held` and `v_held` must be features of the same rows"),
        (((10, 2), (10, 3), (2,)), "`u_held` and `v_held` must be features of the same rows"),
        (((10, 2), (10, 2), (3,)), r"`singular_values` must have shape \(2,\)"),
        (((3, 2), (3, 2), (2,)), "`u_held` must hold at least 4 rows"),
    ],
)
def test_bad_features(shapes, message):
    features = [torch.ones(shape) for shape in shapes]
    for function in (dependence_from_features, permutation_test):
        with pytest.raises(ValueError, match=message):
            function(*features)
