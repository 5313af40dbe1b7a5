"""Inputs far from the training rows are told from those that are only new."""

import warnings

import numpy as np
import pytest
import torch
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st

from ncprob import NCPClassifier, NCPRegressor, load
from ncprob.novelty import FAR, InputReach
from ncprob.preprocessing import InputScaler
from ncprob.state import State


def reach_of(x):
    return InputReach.fit(InputScaler.fit(x), x)


def cauchy(*shape, seed):
    top, bottom = normal(2, *shape, seed=seed)
    return top / bottom


@pytest.mark.parametrize("law", [normal, cauchy])
@pytest.mark.parametrize(("n", "p"), [(100, 1), (100, 50), (1000, 5), (60, 100)])
def test_new_rows_of_the_same_kind_are_not_far(law, n, p):
    """Heavy tails and more columns than rows included: of 30 to 500 judging rows about one lies beyond the edge."""
    shares = [
        float((reach_of(law(n, p, seed=k)).novelty(law(500, p, seed=100 + k)) > FAR).double().mean()) for k in range(5)
    ]
    assert np.mean(shares) < 2.5 / (n / 2)


@pytest.mark.parametrize("p", [1, 5, 50])
def test_one_column_far_out_is_enough(p):
    reach, new = reach_of(normal(500, p, seed=0)), normal(20, p, seed=1)
    new[:, p // 2] = 20.0
    assert (reach.novelty(new) > FAR).all()


def test_a_combination_that_does_not_occur_is_seen():
    x = normal(500, 1, seed=0)
    reach = reach_of(torch.cat([x, x + 0.1 * normal(500, 1, seed=1)], dim=1))
    apart, together = torch.tensor([[1.5, -1.5]]).double(), torch.tensor([[1.5, 1.5]]).double()
    assert reach.novelty(apart) > 5
    assert reach.novelty(together) < 1


def test_each_side_of_a_skewed_column_has_its_own_edge():
    reach = reach_of(normal(500, 1, seed=0).exp())  # between 0.05 and 20
    below, above = reach.novelty(torch.tensor([[-5.0], [12.0]]).double())
    assert below > FAR
    assert above < FAR


def test_one_absurd_row_does_not_hide_the_edge():
    for row in range(10):  # of either half
        x = normal(500, 2, seed=0)
        x[row, 0] = 1e9
        assert reach_of(x).novelty(torch.tensor([[0.0, 40.0]]).double()) > FAR


@given(st.integers(2, 40), st.integers(0, 3), st.integers(0, 1000))
def test_scores_are_finite_positive_and_grow_outwards(n, p, seed):
    x = normal(n, p, seed=seed)
    if p > 1:
        x[:, 1] = 3.0
    reach = reach_of(x)
    direction = normal(1, p, seed=seed + 1).sign()
    away = [float(reach.novelty(x.median(dim=0).values + size * direction)) for size in (1e1, 1e3, 1e200)]
    assert np.isfinite(away).all()
    assert (np.diff(away) >= 0).all()
    assert float(reach.novelty(x).min()) >= 0


def test_scores_do_not_see_units():
    x, new = normal(200, 3, seed=0), normal(50, 3, seed=1)
    torch.testing.assert_close(
        reach_of(1e-12 * x + 1e-9).novelty(1e-12 * new + 1e-9), reach_of(x).novelty(new), rtol=1e-4, atol=1e-4
    )


X = np.random.default_rng(0).normal(size=(120, 2))
OPTIONS = {"max_steps": 5, "tree_inputs": False, "random_state": 0, "hidden_sizes": (8,), "progress": False}


@pytest.fixture(scope="module")
def model():
    return NCPRegressor(**OPTIONS).fit(X, X[:, 0] + X[:, 1] ** 2)


@pytest.mark.parametrize(
    "ask", ["predict", "predict_quantiles", "predict_interval", "predict_var", "predict_distribution"]
)
def test_questions_about_far_rows_are_warned_of(model, ask):
    with pytest.warns(
        UserWarning, match=r"rows of `X` lie far outside the training inputs.*`novelty\(X\)` tells which"
    ):
        getattr(model, ask)(X + 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(model, ask)(X)
        getattr(model, ask)(np.vstack([X[:90], X[:10] + 50]))  # a few


def test_novelty_of_estimators(model, tmp_path):
    scores = model.novelty(X)
    assert scores.shape == (120,)
    assert np.mean(scores <= 1) > 0.95
    assert (model.novelty(X + 50) > FAR).all()
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").novelty(X + 3), model.novelty(X + 3))
    with pytest.warns(UserWarning, match="far outside"):
        NCPClassifier(**OPTIONS).fit(X, X[:, 0] > 0).predict_proba(X - 50)


def test_few_training_rows_cannot_tell():
    """From below 100 rows an edge is so uncertain that of skewed inputs many new rows would seem far."""
    few = NCPRegressor(**OPTIONS).fit(X[:90], X[:90, 0])
    assert (few.novelty(X + 50) > FAR).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few.predict(X + 50)


def test_the_warning_points_at_the_caller(model):
    for ask in (model.predict, model.predict_distribution):
        with pytest.warns(UserWarning, match="far outside") as caught:
            ask(X + 50)
        assert caught[0].filename == __file__


def test_answers_that_do_not_depend_on_x_are_not_extrapolated():
    """A constant y has no operator, however many rows there are."""
    with pytest.warns(UserWarning, match="`y` is constant"):
        constant = NCPRegressor(**OPTIONS).fit(X, np.full(len(X), 3.0))
    assert (constant.novelty(X + 50) > FAR).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (constant.predict(X + 50) == 3.0).all()


def test_models_with_encoders_of_the_user_have_no_score():
    encoder = torch.nn.Linear(2, 4)
    own = NCPRegressor(**OPTIONS, x_encoder=encoder, rank=4, coordinates="raw").fit(X, X[:, 0])
    own.predict(X + 50)
    with pytest.raises(ValueError, match="`novelty` needs a table"):
        own.novelty(X)


def test_of_a_constant_column_distances_are_in_units_of_its_scale():
    x = torch.full((10, 1), 3.0, dtype=torch.float64)
    reach = reach_of(x)
    assert reach.radii.tolist() == [1.0, 1.0]  # no row of training is away from the others
    new = x[:3] + reach.edge[1, 0] * torch.tensor([[0.0], [2.0], [-5.0]]).double()
    torch.testing.assert_close(reach.distances(new)[0], torch.tensor([0.0, 2.0, 5.0]).double())


def test_the_edge_is_at_all_but_one_in_a_thousand_rows_and_one_row_at_least():
    """Of the half of the rows that judges, 10, 500 and 4,000, so many lie beyond 1."""
    for n, outside in ((20, 1), (1000, 1), (8000, 4)):
        x = normal(n, 2, seed=n)
        judging = x[torch.randperm(n, generator=torch.Generator().manual_seed(0))][1::2]
        distances = reach_of(x).distances(judging)
        assert ((distances > 1 + 1e-12).sum(dim=1) == outside).all()


def test_the_half_that_judges_sets_the_edge():
    """Rows that learn reach to 2, rows that judge to 1: this is the edge. One row alone is its own."""
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    x = torch.tensor([1.0, -1.0] * 10).double()[:, None]
    x[order[::2]] = torch.tensor([2.0, -2.0] * 5).double()[:, None]
    reach = reach_of(x)
    offsets = torch.tensor([[1.0], [-1.0], [3.0]]).double() - reach.scaler.center
    expected = torch.where(offsets < 0, -offsets / reach.edge[0], offsets / reach.edge[1])[:, 0]
    assert float(reach.radii[0]) < 1
    torch.testing.assert_close(reach.distances(offsets + reach.scaler.center)[0], expected / reach.radii[0])
    assert reach_of(normal(1, 2, seed=0)).novelty(normal(3, 2, seed=1)).isfinite().all()


def test_distances_together_are_those_of_mahalanobis():
    """By the definition, on the half of the rows that learns; skewed columns, whose means are not zero."""
    x, new = normal(60, 3, seed=0).exp() * torch.tensor([1.0, 50.0, 1e-4]), normal(9, 3, seed=1)
    reach = reach_of(x)
    half = x[torch.randperm(60, generator=torch.Generator().manual_seed(0))][::2]
    z = reach.scaler(half).double().numpy()
    covariance = np.cov(z.T, bias=True)
    ridge = 1e-3 * np.trace(covariance) / 3 + np.finfo(np.float32).eps
    offset = reach.scaler(new).double().numpy() - z.mean(axis=0)
    expected = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(covariance + ridge * np.eye(3)), offset)
    np.testing.assert_allclose((reach.distances(new)[1] * reach.radii[1]) ** 2, expected, rtol=1e-6)


def test_far_is_some_five_standard_deviations_of_normal_inputs():
    """The edge of 500 judging rows is at 2.9 ± 0.2, and far is 1.5 times that: 4.4 ± 0.3."""
    reach = reach_of(normal(1000, 1, seed=0))
    near, far = reach.novelty(torch.tensor([[3.5], [5.5]]).double())
    assert near < FAR < far


def test_a_hundred_training_rows_are_enough_for_a_warning():
    model = NCPRegressor(**OPTIONS).fit(X[:100], X[:100, 0])
    with pytest.warns(UserWarning, match="far outside"):
        model.predict(X + 50)


def test_a_saved_reach_is_read_with_checks():
    x = 1e-3 * normal(50, 2, seed=0)  # edges far below 1 are as good as others
    reach = reach_of(x)
    state = reach.state()
    again = InputReach.from_state(state, reach.scaler)
    assert torch.equal(again.distances(x), reach.distances(x))
    small = InputReach.from_state(State(state.tensors | {"radii": torch.tensor([0.5, 0.25]).double()}), reach.scaler)
    torch.testing.assert_close(small.distances(x)[1] * 0.25, reach.distances(x)[1] * reach.radii[1])
    for name in ("edge", "radii"):
        for place in (0, -1):
            wrong = state.tensors[name].clone()
            wrong[place] = 0.0
            with pytest.raises(ValueError, match="positive reach"):
                InputReach.from_state(State(state.tensors | {name: wrong}), reach.scaler)
