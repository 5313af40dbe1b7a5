"""Post-processing finds the singular value decomposition; on discrete tables every answer is exact."""

import jaxtyping
import pytest
import torch
from helpers import Lookup, Table, gaussian_pairs, halved, indicator_operator, normal, seeded_operator, small_operator
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ncprob import ConditionalDistribution, SpectralOperator
from ncprob.encoders import MLP
from ncprob.state import State
from ncprob.statistics import PairMoments


@pytest.fixture
def unchecked(monkeypatch):
    """Without the type checks of the tests, as users run it."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


seeds = st.integers(0, 2**32 - 1)


class Constant(nn.Module):
    """Features that have collapsed to one value, or to one value and rounding."""

    def __init__(self, slope=0.0):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return (0.1 + self.slope * x).expand(-1, 2)


class Duplicated(nn.Module):
    """The same feature twice, and one more."""

    def forward(self, x):
        return torch.cat([x, x, x**2], dim=1)


class DictEncoder(nn.Module):
    def forward(self, x):
        return x["a"] * x["b"]


@pytest.fixture
def pairs():
    return gaussian_pairs(400, seed=1, dtype=torch.float64)


@pytest.fixture
def operator():
    return small_operator(seed=2).double()


def population_covariances(operator, x, y):
    u, v = operator.left_features(x), operator.right_features(y)
    du, dv = u - u.mean(dim=0), v - v.mean(dim=0)
    return u.mean(dim=0), v.mean(dim=0), du.mT @ du / len(u), dv.mT @ dv / len(u), du.mT @ dv / len(u)


def close(actual, expected, atol=1e-8):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0, check_dtype=False)


# ---------------------------------------------------------------- post-processing


def test_whitened_features_are_orthonormal_and_aligned(operator, pairs):
    operator.postprocess(pairs, kind="whitening")
    left_mean, right_mean, left, right, cross = population_covariances(operator, *pairs)
    for mean in (left_mean, right_mean):
        close(mean, torch.zeros(3))
    for covariance in (left, right):
        close(covariance, torch.eye(3))
    values = operator.singular_values
    close(cross, values.diag())
    assert (values.diff() <= 0).all()
    assert values[0] <= 1
    assert values[-1] >= 0
    assert operator.postprocessing == "whitening"


def test_whitening_works_in_float32():
    pairs, operator = gaussian_pairs(400, seed=1), small_operator(seed=2)
    operator.postprocess(pairs)
    *_, left, right, cross = population_covariances(operator, *pairs)
    # Random features of a small network are nearly collinear (condition number about 10²–10³ after the root), which
    # multiplies the rounding of 10⁻⁷.
    close(left, torch.eye(3), atol=1e-3)
    close(right, torch.eye(3), atol=1e-3)
    close(cross, operator.singular_values.diag(), atol=1e-3)


def test_centering_makes_means_zero_and_changes_nothing_else(operator, pairs):
    plain = operator.left_features(pairs[0])
    operator.postprocess(pairs, kind="centering")
    left_mean, right_mean, *_ = population_covariances(operator, *pairs)
    close(left_mean, torch.zeros(3))
    close(right_mean, torch.zeros(3))
    close(operator.left_features(pairs[0]), plain - plain.mean(dim=0))
    close(operator.singular_values, torch.exp(-operator.log_values_root.square()))


def test_none_restores_the_trained_features(operator, pairs):
    x, y = pairs
    before = operator.left_features(x), operator.right_features(y), operator.singular_values
    operator.postprocess(pairs, kind="whitening")
    assert not torch.allclose(operator.left_features(x), before[0])
    operator.postprocess(pairs, kind="none")
    after = operator.left_features(x), operator.right_features(y), operator.singular_values
    for a, b in zip(after, before, strict=True):
        assert torch.equal(a, b)
    assert operator.postprocessing == "none"


def test_postprocessing_twice_is_postprocessing_once(operator, pairs):
    once = operator.postprocess(pairs).density_ratio(*pairs)
    close(operator.postprocess(pairs).density_ratio(*pairs), once)


@pytest.mark.parametrize("chunk_size", [1, 7, 133])
def test_statistics_do_not_depend_on_the_chunk_size(operator, pairs, chunk_size):
    whole = operator.postprocess(pairs).density_ratio(*pairs)
    close(operator.postprocess(pairs, chunk_size=chunk_size).density_ratio(*pairs), whole)


def test_weights_count_like_repeated_rows(operator, pairs):
    counts = torch.arange(len(pairs[0])) % 3
    x, y = pairs
    weighted = operator.postprocess((x, y, counts.double())).density_ratio(x, y)
    repeated = tuple(part.repeat_interleave(counts, dim=0) for part in pairs)
    close(operator.postprocess(repeated).density_ratio(x, y), weighted, 1e-6)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_whitening_undoes_an_invertible_remix(seed):
    x, y = gaussian_pairs(100, seed=3, dtype=torch.float64)
    plain = small_operator(seed=4).double()
    mixing = [
        torch.linalg.qr(normal(3, 3, seed=seed + k))[0] @ torch.diag(torch.tensor([2.0, 0.7, 1.3]).double())
        for k in range(2)
    ]
    layers = [nn.Linear(3, 3, dtype=torch.float64) for _ in mixing]
    with torch.no_grad():
        for layer, matrix in zip(layers, mixing, strict=True):
            layer.weight.copy_(matrix)
    remixed = seeded_operator(
        nn.Sequential(plain.x_encoder, layers[0]), nn.Sequential(plain.y_encoder, layers[1]), 3, seed=5
    ).double()  # other learned values, which are one more remix
    assert not torch.allclose(remixed.density_ratio(x, y), plain.density_ratio(x, y))
    expected = plain.postprocess((x, y), relative_threshold=1e-12)
    remixed.postprocess((x, y), relative_threshold=1e-12)
    close(remixed.density_ratio(x, y), expected.density_ratio(x, y), atol=1e-6)
    close(remixed.singular_values, expected.singular_values, atol=1e-6)


@pytest.mark.parametrize("ulps", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_features_say_independent(dtype, ulps):
    pairs = gaussian_pairs(50, dtype=dtype)
    slope = 0.1 * ulps * torch.finfo(dtype).eps
    operator = seeded_operator(Constant(slope), Constant(slope), 2, seed=0).to(dtype).postprocess(pairs)
    assert torch.equal(operator.density_ratio(*pairs), torch.ones(50, 50, dtype=dtype))


@pytest.mark.parametrize("kind", ["centering", "whitening"])
@pytest.mark.parametrize("encoders", [(Duplicated(), Duplicated()), (Duplicated(), MLP(1, (8,), 3))])
def test_duplicated_features_are_harmless(kind, encoders):
    pairs = gaussian_pairs(200)
    operator = seeded_operator(*encoders, 3, seed=0).postprocess(pairs, kind=kind)
    ratio = operator.density_ratio(*pairs)
    assert torch.isfinite(ratio).all()
    assert torch.isfinite(operator.singular_values).all()
    if kind == "whitening":
        assert operator.singular_values[-1] < 1e-5  # two directions, not three
        assert ratio.abs().max() < 100


@pytest.mark.parametrize("ulps", [0, 1])
@pytest.mark.parametrize("side", [0, 1])
def test_one_collapsed_side_says_independent(side, ulps):
    pairs = gaussian_pairs(50)
    encoders = [Constant(0.1 * ulps * torch.finfo(torch.float32).eps), MLP(1, (8,), 2)]
    operator = seeded_operator(encoders[side], encoders[1 - side], 2, seed=0).postprocess(pairs)
    assert torch.equal(operator.density_ratio(*pairs), torch.ones(50, 50))


def test_features_of_half_precision_become_float32():
    operator, (x, y) = halved(small_operator()), gaussian_pairs(50)
    assert operator.x_encoder(x).dtype == torch.bfloat16
    u, v = operator.encode(x, y)
    assert (u.dtype, v.dtype) == (torch.float32, torch.float32)
    plain = small_operator().encode(x, y)[0]
    torch.testing.assert_close(u, plain, rtol=0.05, atol=0.05)  # bfloat16 has 8 bits
    assert operator.double().left_features(x.double()).dtype == torch.float64


@pytest.mark.parametrize("kind", ["none", "centering", "whitening"])
def test_state_dict_carries_the_postprocessing(kind):
    pairs, fresh = gaussian_pairs(300), small_operator(seed=7)
    operator = small_operator(seed=6).postprocess(pairs, kind=kind)
    assert not torch.allclose(fresh.density_ratio(*pairs), operator.density_ratio(*pairs))
    fresh.load_state_dict(operator.state_dict())
    assert torch.equal(fresh.density_ratio(*pairs), operator.density_ratio(*pairs))
    assert fresh.postprocessing == kind


def test_moments_of_a_dataset_are_those_of_its_tensors(operator, pairs):
    ratio = operator.postprocess(pairs).density_ratio(*pairs)
    dataset = torch.utils.data.TensorDataset(*pairs)
    for source in (dataset, torch.utils.data.DataLoader(dataset, batch_size=30)):
        close(operator.postprocess(source).density_ratio(*pairs), ratio)


# ---------------------------------------------------------------- exact tables


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 2e-5), (torch.float64, 1e-9)])
@pytest.mark.parametrize("shape", [(3, 4), (4, 4), (5, 2)])
def test_whitened_indicators_are_the_svd_of_the_table(shape, dtype, atol):
    table = Table.random(*shape, seed=8)
    operator = indicator_operator(table, dtype).postprocess(table.weighted_pairs(dtype))
    expected = torch.zeros(max(shape), dtype=torch.float64)
    expected[: min(shape)] = table.svd(min(shape))[1]
    close(operator.singular_values, expected, atol)
    x, y = table.states(dtype)
    scale = table.density_ratio().max().item()
    close(operator.density_ratio(x, y), table.density_ratio(), atol * scale)


@pytest.mark.parametrize("shape", [(3, 4), (4, 4)])
def test_distribution_gives_the_exact_conditional_law(shape):
    table = Table.random(*shape, seed=9)
    operator = indicator_operator(table).postprocess(table.weighted_pairs())
    x, y = table.states()
    law = operator.distribution(x, y, atom_weights=table.q)
    conditional = table.conditional()
    close(law.weights(), conditional, 1e-9)
    close(law.mean(), conditional @ y[:, 0], 1e-9)
    close(law.cdf(y[:, 0]), conditional.cumsum(dim=1), 1e-9)


def test_features_of_the_exact_svd_need_no_postprocessing():
    table = Table.random(3, 3, seed=10)
    u, values, v = table.svd(2)
    operator = seeded_operator(Lookup(u), Lookup(v), 2, seed=0).double()
    with torch.no_grad():
        operator.log_values_root.copy_((-values.log()).sqrt())
    close(operator.density_ratio(*table.states()), table.density_ratio(), 1e-10)


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([(3, 4), (4, 4), (5, 3)]), st.integers(0, 4), st.data())
def test_truncation_error_is_bounded_by_the_next_singular_value(seed, shape, rank, data):
    """Lemma 1 of Kostic et al. 2024, for the probability of a set B given a set A."""
    table = Table.random(*shape, seed=seed)
    a, b = (torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any))) for n in shape)
    operator = indicator_operator(table).postprocess(table.weighted_pairs(), relative_threshold=1e-13)
    x, y = table.states()
    left = ((table.p * a)[:, None] * operator.left_features(x)).sum(dim=0)
    right = ((table.q * b)[:, None] * operator.right_features(y)).sum(dim=0)
    values = operator.singular_values
    p_a, p_b = (table.p * a).sum(), (table.q * b).sum()
    answer = p_b + (values * left * right)[:rank].sum() / p_a
    truth = table.joint[a][:, b].sum() / p_a
    next_value = values[rank] if rank < len(values) else 0.0
    assert (truth - answer).abs() <= next_value * (p_b / p_a).sqrt() + 1e-7


# ---------------------------------------------------------------- answers and bad input


def test_an_operator_called_on_x_gives_a_distribution(operator, pairs):
    x, y = pairs
    operator.postprocess(pairs)
    law = operator(x[:5], y)
    assert isinstance(law, ConditionalDistribution)
    assert len(law) == 5
    close(law.weights(), operator.distribution(x[:5], y).weights())
    close(operator.expectation(lambda t: t.square(), x[:5], y).ravel(), law.moment(2), 1e-9)


def test_density_ratio_is_one_plus_the_weighted_products(operator, pairs):
    x, y = pairs[0][:4], pairs[1][:6]
    u, v = operator.encode(x, pairs[1][:4])[0], operator.encode(pairs[0][:6], y)[1]
    expected = 1 + torch.einsum("ik,k,jk->ij", u, torch.exp(-(operator.log_values_root**2)), v)
    close(operator.density_ratio(x, y), expected)


def test_learned_values_lie_in_the_unit_interval():
    values = SpectralOperator(Constant(), Constant(), rank=100).singular_values
    assert ((values > 0) & (values <= 1)).all()
    assert values.requires_grad


def test_encoders_may_be_shared_and_take_dictionaries():
    encoder = DictEncoder()
    x = {"a": torch.ones(6, 2), "b": normal(6, 2, seed=11, dtype=torch.float32)}
    operator = SpectralOperator(encoder, encoder, 2).postprocess((x, x))
    close(operator.singular_values, torch.ones(2), 1e-4)  # Y = X


@pytest.mark.parametrize("rank", [0, -1])
def test_rank_must_be_positive(rank):
    with pytest.raises(ValueError, match="`rank` must be at least 1"):
        SpectralOperator(Constant(), Constant(), rank)


@pytest.mark.usefixtures("unchecked")
def test_rank_must_be_an_integer():
    with pytest.raises(TypeError, match="`rank` must be an integer"):
        SpectralOperator(Constant(), Constant(), 2.0)


@pytest.mark.parametrize(("widths", "name"), [((4, 3), "x_encoder"), ((3, 5), "y_encoder")])
def test_feature_width_must_be_the_rank(widths, name):
    operator = SpectralOperator(MLP(1, (), widths[0]), MLP(1, (), widths[1]), rank=3)
    with pytest.raises(ValueError, match=f"`{name}` must give features of shape"):
        operator.postprocess(gaussian_pairs(10))


@pytest.mark.usefixtures("unchecked")
def test_unknown_postprocessing_is_a_value_error(operator, pairs):
    with pytest.raises(ValueError, match=r"`kind` must be one of .* Did you mean 'whitening'"):
        operator.postprocess(pairs, kind="whitning")


def test_features_after_training_do_not_depend_on_the_mode():
    """Whitening and features see running statistics, and do not change them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoders = [torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.BatchNorm1d(2)) for _ in range(2)]
    operator = SpectralOperator(*encoders, rank=2)
    x, y = gaussian_pairs(100)
    operator.eval().postprocess((x, y))
    expected = operator.left_features(x[:5]), operator.right_features(y[:5]), operator.singular_values.clone()
    operator.train().postprocess((x, y))
    found = operator.left_features(x[:5]), operator.right_features(y[:5]), operator.singular_values
    torch.testing.assert_close(found, expected)
    assert operator.x_encoder[1].training
    assert int(operator.x_encoder[1].num_batches_tracked) == 0


# ---------------------------------------------------------------- details of whitening, and states


def uncorrelated_moments(cross):
    """Two features of variances 4 and 1 on each side."""
    variances, none = torch.diag(torch.tensor([4.0, 1.0]).double()), torch.zeros(2).double()
    return PairMoments(torch.tensor(10.0).double(), none, none, variances, variances, cross.double())


def two_features(values):
    operator = SpectralOperator(nn.Identity(), nn.Identity(), rank=2).double()
    operator.log_values_root.data = (-torch.tensor(values).double().log()).sqrt()
    return operator


def test_ridge_is_relative_to_the_features_scaled_by_their_values():
    """√s scales the features first: 4·s₁ and 1·s₂ are the variances that a ridge is relative to."""
    operator, cross = two_features([0.25, 0.81]), torch.diag(torch.tensor([2.0, 0.5]))
    operator.whiten(uncorrelated_moments(cross), ridge=0.1)
    variances = torch.tensor([1.0, 0.81]).double()
    shifted = variances + 0.1 * variances.mean()
    expected = torch.tensor([0.25 * 2.0, 0.81 * 0.5]).double() / shifted
    close(operator.singular_values, expected)
    scales = (torch.tensor([0.25, 0.81]).double() / shifted).sqrt()
    close(operator.left_map.abs(), torch.diag(scales))
    operator.whiten(uncorrelated_moments(cross))  # without a ridge the plain correlations, whatever the values are
    close(operator.singular_values, torch.tensor([0.5, 0.5]))


def test_moments_that_no_pairs_have_give_values_of_at_most_one():
    operator = two_features([0.5, 0.5])
    operator.whiten(uncorrelated_moments(torch.diag(torch.tensor([12.0, 0.7]))))
    close(operator.singular_values, torch.tensor([1.0, 0.7]))


def test_what_is_constant_but_for_rounding_has_no_covariance():
    """Rounding of a feature is relative to its mean: 8 units in the last place are noise, more are not."""
    operator, eps = two_features([0.5, 0.5]), torch.finfo(torch.float64).eps
    for mean in (100.0, 1e-3, -7.0):
        spread = eps * abs(mean) * torch.tensor([7.0, 9.0]).double()
        covariance = torch.outer(spread, spread)
        found = operator._without_constants(covariance, torch.full((2,), mean).double())
        assert found[0].abs().sum() == found[:, 0].abs().sum() == 0
        assert found[1, 1] == covariance[1, 1]


@pytest.mark.parametrize("kind", ["none", "centering", "whitening"])
def test_a_state_gives_the_same_operator_and_is_read_with_checks(kind):
    x, y = gaussian_pairs(60, seed=3)
    operator = small_operator(seed=2)
    operator.postprocess((x, y), kind=kind)
    state = operator.state()
    own = {"log_values_root", "left_mean", "right_mean", "left_map", "right_map", "whitened_values", "_kind"}
    assert set(state.tensors) == own  # those of the encoders are in their parts
    assert set(SpectralOperator(nn.BatchNorm1d(2), nn.BatchNorm1d(2), rank=2).state().tensors) == own
    again = SpectralOperator.from_state(state)
    assert again.postprocessing == kind
    assert torch.equal(again.density_ratio(x, y), operator.density_ratio(x, y))
    for wrong in (-1, 3):
        tensors = state.tensors | {"_kind": torch.tensor(wrong)}
        with pytest.raises(ValueError, match=f"post-processing {wrong} is none of"):
            SpectralOperator.from_state(State(tensors, state.facts, state.parts))
