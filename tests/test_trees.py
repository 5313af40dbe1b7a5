"""Predictions of trees as inputs: out of sample for the training rows, the same given the seed."""

import numpy as np
import pytest
import torch
from helpers import generator, normal

from ncprob import trees
from ncprob.trees import FEW_LEVELS, MAX_BOOSTED, MAX_CELLS, MINIMUM_ROWS, MOMENTS, TreeInputs, worth_growing

N = 300
BOOSTED_FOLDS = 10  # of small tables; rows alternate


@pytest.fixture(autouse=True)
def fewer_trees(monkeypatch):
    monkeypatch.setattr(trees, "N_TREES", 60)


def uniform(n, p=3, seed=0):
    return torch.rand(n, p, generator=generator(seed))


def correlation(a, b):
    return float(np.corrcoef(a.numpy(), b.numpy())[0, 1])


def test_columns_of_training_rows_do_not_know_their_own_noise():
    """y is independent of x: a column out of sample correlates with y within 4/√n of zero, one in sample strongly."""
    x, y = uniform(800), normal(800, 1, seed=1)
    grown, unseen = TreeInputs.fit(x, y, None, seed=0)
    seen = grown(x)
    for column in (0, -1):  # forest and boosting
        assert abs(correlation(unseen[:, column], y[:, 0])) < 4 / 800**0.5
        assert correlation(seen[:, column], y[:, 0]) > 0.4
    fresh = grown(uniform(800, seed=2))
    assert unseen[:, 0].std() == pytest.approx(fresh[:, 0].std(), rel=0.25)  # spread as for new rows


def test_the_forest_column_of_a_row_does_not_see_its_y():
    """The largest y, made larger, keeps all ranks: out-of-bag columns of its row stay the same to the last bit."""
    x, y = uniform(N), normal(N, 1, seed=3)
    row = int(y.argmax())
    changed = y.clone()
    changed[row] += 5
    (_, before), (_, after) = (TreeInputs.fit(x, target, None, seed=0) for target in (y, changed))
    assert torch.equal(before[row, :-1], after[row, :-1])
    assert not torch.equal(before[:, 0], after[:, 0])  # others hear of it


def test_the_boosted_column_of_a_row_sees_its_y_by_early_stopping_alone():
    """The model of a fold is grown on other rows; its own rows decide only after which tree it stops."""
    x, y = uniform(N), normal(N, 1, seed=4) + 3 * uniform(N)[:, :1]
    fold = torch.arange(N) % BOOSTED_FOLDS
    changed = y.clone()
    changed[fold == 2] = normal(int((fold == 2).sum()), 1, seed=5)
    (old, before), (new, after) = (
        trees._boosting(x.numpy(), target[:, 0].numpy(), None, 0, n_judges=0) for target in (y, changed)
    )
    models = [old[2], new[2]]
    longest = max(models, key=lambda model: model.n_iter_)
    stages = list(longest.staged_predict(x[fold == 2].numpy()))
    for model, columns, target in zip(models, (before, after), (y, changed), strict=True):
        expected = stages[model.n_iter_ - 1] - float(y[fold != 2].mean()) + float(target.mean())
        np.testing.assert_allclose(columns[fold == 2], expected, atol=1e-6)
    assert not np.array_equal(before[fold == 3], after[fold == 3])


def test_a_jump_and_an_interaction_are_found():
    """y = 1{x₁ > ½} xor 1{x₂ > ½}, no marginal effect: a constant errs by ½; n rows leave a border of about 1/√n."""
    x = uniform(1000, p=2, seed=6)
    y = ((x[:, :1] > 0.5) ^ (x[:, 1:] > 0.5)).double()
    grown, unseen = TreeInputs.fit(x, y, None, seed=0)
    fresh = uniform(500, p=2, seed=7)
    truth = ((fresh[:, 0] > 0.5) ^ (fresh[:, 1] > 0.5)).float()
    for column in (0, -1):
        assert (unseen[:, column] - y[:, 0]).abs().mean() < 0.1
        assert (grown(fresh)[:, column] - truth).abs().mean() < 0.1


def test_few_levels_have_their_shares_predicted():
    """Three classes with shares (x, (1 − x)/2, (1 − x)/2); shares add to one in every row."""
    x = uniform(1500, p=2, seed=8)
    chances = torch.stack([x[:, 0], (1 - x[:, 0]) / 2, (1 - x[:, 0]) / 2], dim=1)
    y = torch.multinomial(chances, 1, generator=generator(9)).double() - 1
    grown, unseen = TreeInputs.fit(x, y, None, seed=0)
    assert unseen.shape[1] == 1 + MOMENTS + 3 + 1
    for columns in (unseen[:, 1 + MOMENTS : -1], grown(x)[:, 1 + MOMENTS : -1]):
        torch.testing.assert_close(columns.sum(dim=1), torch.ones(1500), atol=1e-5, rtol=0)
        assert (columns >= 0).all()
    bins = (3 * x[:, 0]).long()
    for third in range(3):  # 500 rows: shares are known to 0.02, the forest smooths over the border
        found = unseen[bins == third, 1 + MOMENTS : -1].mean(dim=0)
        torch.testing.assert_close(found, chances[bins == third].mean(dim=0), atol=0.08, rtol=0)


@pytest.mark.parametrize(("levels", "extra"), [(FEW_LEVELS, FEW_LEVELS), (FEW_LEVELS + 1, 0)])
def test_number_of_columns(levels, extra):
    x, y = uniform(4 * levels, seed=10), (torch.arange(4 * levels) % levels).double()[:, None]
    assert TreeInputs.fit(x, y, None, seed=0)[1].shape[1] == 1 + MOMENTS + extra + 1 + 1  # forest, boosting, line


def test_vector_targets_have_columns_each_and_only_some_are_boosted():
    q = MAX_BOOSTED + 1
    grown, unseen = TreeInputs.fit(uniform(80), normal(80, q, seed=11), None, seed=0)
    assert unseen.shape[1] == grown.n_columns == q * (1 + MOMENTS) + 2 * MAX_BOOSTED  # boosting and a line
    assert grown(uniform(5)).shape == (5, grown.n_columns)


def test_targets_of_the_forest_are_orthonormal_functions_of_the_rank():
    """Cosines of even ranks have mean zero and mean square one, whatever the law of y."""
    y = normal(500, 1, seed=12).exp().pow(5).numpy()
    targets = trees._forest_targets(y)
    np.testing.assert_array_equal(targets[:, 0], y[:, 0])
    np.testing.assert_allclose(targets[:, 1:].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(targets[:, 1:].T @ targets[:, 1:] / 500, np.eye(MOMENTS), atol=1e-12)


def test_tied_targets_share_their_rank():
    targets = trees._forest_targets(np.array([[1.0], [0.0], [1.0], [2.0]]))
    rank = np.array([0.5, 0.125, 0.5, 0.875])
    np.testing.assert_allclose(targets[:, 1], np.sqrt(2) * np.cos(np.pi * rank), atol=1e-12)
    np.testing.assert_array_equal(targets[:, 1 + MOMENTS :], [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])


def test_the_seed_decides_everything():
    x, y = uniform(N), normal(N, 1, seed=13)
    (first, a), (again, b), (_, other) = (TreeInputs.fit(x, y, None, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, other)
    assert torch.equal(first(x), again(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_have_the_type_of_the_inputs_and_no_rows_give_none(dtype):
    grown, unseen = TreeInputs.fit(uniform(80).to(dtype), normal(80, 1, seed=14), None, seed=0)
    assert unseen.dtype == dtype
    assert grown(torch.zeros(0, 3, dtype=dtype)).shape == (0, grown.n_columns)
    assert grown(uniform(1).to(dtype)).dtype == dtype
    assert torch.isfinite(unseen).all()


def test_rows_of_weight_zero_teach_nothing():
    """Half of the rows say the opposite, with weight zero: predictions follow the others."""
    x = uniform(600, p=2, seed=15)
    y = torch.where(x[:, :1] > 0.5, 1.0, -1.0).double()
    weights = (torch.rand(600, generator=generator(16)) < 0.5).double()
    y[weights == 0] *= -1
    grown, unseen = TreeInputs.fit(x, y, weights, seed=0)
    fresh = uniform(300, p=2, seed=17)
    truth = torch.where(fresh[:, 0] > 0.5, 1.0, -1.0)
    for column in (0, -1):
        assert (grown(fresh)[:, column] - truth).abs().mean() < 0.15
        assert (unseen[weights > 0, column] - y[weights > 0, 0]).abs().mean() < 0.2


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
def test_heavy_rows_are_answered_out_of_sample_too():
    """One row in twenty weighs ten times as much as the others; y ≈ 5 everywhere, so no column of y may be near 0."""
    x = uniform(N, p=2, seed=18)
    y = 5 + x[:, :1].double()
    weights = torch.ones(N, dtype=torch.float64)
    weights[::20] = 10
    _, unseen = TreeInputs.fit(x, y, weights, seed=0)
    assert (unseen[:, 0] - y[:, 0]).abs().max() < 1


@pytest.mark.parametrize(
    ("n_rows", "n_inputs", "worth"),
    [
        (MINIMUM_ROWS, 2, True),
        (MINIMUM_ROWS - 1, 2, False),
        (10_000, 1, False),  # nothing can interact
        (MAX_CELLS // 10, 10, True),
        (MAX_CELLS // 10 + 1, 10, False),
    ],
)
def test_trees_are_grown_where_they_are_worth_it(n_rows, n_inputs, worth):
    assert worth_growing(torch.arange(n_rows, dtype=torch.float32)[:, None].expand(-1, n_inputs)) is worth


def test_no_trees_where_most_rows_are_equal():
    """The mean of the others of a cell falls as the row's own y rises: its column would tell its y."""
    cells = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3).repeat(20, 1)
    assert not worth_growing(cells)
    noise = normal(160, 1, seed=8)
    _, columns = TreeInputs.fit(cells, noise, None, seed=0)
    own = torch.stack([(noise[:, 0] - noise[cells.eq(c).all(dim=1), 0].mean()) for c in cells])  # (rows, rows)
    inside = own.diagonal()
    forest = columns[:, 0].double() - columns[:, 0].double().mean()
    assert torch.corrcoef(torch.stack([inside, forest]))[0, 1] < -0.1  # why they are left out


def test_boosted_columns_do_not_tell_the_mean_of_their_fold():
    """Pure noise: the baseline of a model is the mean of the other folds, lower where its own fold is higher."""
    x, y = uniform(200), normal(200, 1, seed=9)
    fold = torch.arange(200) % 10
    y = y + fold[:, None].double()  # folds that differ
    _, columns = TreeInputs.fit(x, y, None, seed=0)
    means = torch.stack([columns[fold == k, -1].mean() for k in range(10)])
    # left in, baselines would fall by 1/9 from fold to fold: a slope of −0.11; without, noise of 1/√200 each
    slope = torch.linalg.lstsq(torch.stack([torch.arange(10.0), torch.ones(10)], dim=1), means[:, None]).solution[0, 0]
    assert abs(float(slope)) < 0.05


def test_judges_have_columns_of_trees_that_have_seen_none_of_them():
    """They are those of a forest of the other rows alone."""
    x, y = uniform(200, 2, seed=21), normal(200, 1, seed=22)
    wanted = trees._forest_targets(y.numpy())
    blind, _ = trees._forest(x[:160].numpy(), wanted[:160], None, seed=0)
    _, columns = TreeInputs.fit(x, y, None, seed=0, n_judges=40)
    torch.testing.assert_close(columns[160:, : blind.n_outputs].double(), torch.tensor(blind(x[160:].numpy())))


def test_a_tree_of_many_rows_has_so_many_leaves_and_no_more(monkeypatch):
    """Else memory would grow with the rows: here, with leaves of 5 rows, a tree would have 35."""
    monkeypatch.setattr(trees, "LARGE", 100)
    monkeypatch.setattr(trees, "MAX_LEAVES", 10)
    x = uniform(500, 2, seed=20)
    grown, _ = TreeInputs.fit(x, x[:, :1].double(), None, seed=0)
    assert len(grown.ensembles[0].values) <= 10 * trees.N_TREES


def test_fewer_rows_than_folds():
    x = torch.rand(12, 2, generator=torch.Generator().manual_seed(0))
    trees, columns = TreeInputs.fit(x, x[:, :1].double(), None, seed=0, n_judges=6)
    assert torch.isfinite(columns).all()
    assert columns.shape == trees(x).shape
