"""`guarantees` of a fitted model: the sets it is asked about, its numbers and its conditions."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from ncprob import Box, NCPClassifier, NCPRegressor
from ncprob.guarantees import GuaranteeReport, report, target_moments

FAST = {
    "rank": 3,
    "hidden_sizes": (16,),
    "max_steps": 60,
    "batch_size": 256,
    "learning_rate": 1e-2,
    "random_state": 0,
    "device": "cpu",
    "progress": False,
}


def data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.normal(size=n)


X, Y = data()


@pytest.fixture(scope="module", params=["raw", "residual"])
def model(request):
    return NCPRegressor(coordinates=request.param, **FAST).fit(X, Y)


def test_all_numbers_are_finite(model):
    guarantees = model.guarantees()
    assert isinstance(guarantees, GuaranteeReport)
    assert all(np.isfinite(value) and value >= 0 for value in guarantees.to_dict().values())
    assert np.isfinite([guarantees.epsilon, guarantees.epsilon_bar, guarantees.psi]).all()
    assert (guarantees.prob_A, guarantees.prob_B, guarantees.delta) == (0.5, 0.5, 0.05)
    assert guarantees.terms.rank == 3
    assert guarantees.terms.n_held_out == 40
    assert guarantees.terms.n == 360
    assert "P(B|A)" in str(guarantees)


@pytest.mark.parametrize(
    ("A", "inside"),
    [
        (Box([0, -np.inf], [np.inf, np.inf]), X[:, 0] > 0),
        (lambda x: (x**2).sum(axis=1) < 1, (X**2).sum(axis=1) < 1),
        (X[:, 1] > 1, X[:, 1] > 1),
    ],
    ids=["box", "callable", "mask"],
)
@pytest.mark.parametrize(
    ("B", "holds"),
    [
        ((0.0, 1.0), (Y > 0) & (Y <= 1)),
        (Box(0.5, np.inf), Y > 0.5),
        (lambda y: np.abs(y[:, 0]).astype(int) == 0, np.abs(Y) < 1),
    ],
    ids=["tuple", "box", "callable"],
)
def test_sets_enter_by_their_frequencies(A, inside, B, holds, model):
    guarantees = model.guarantees(A=A, B=B)
    assert guarantees.prob_A == pytest.approx(inside.mean(), abs=1e-12)
    assert guarantees.prob_B == pytest.approx(holds.mean(), abs=1e-12)
    same = report(guarantees.terms, inside.mean(), holds.mean())
    assert guarantees["probability"].value == pytest.approx(same["probability"].value, rel=1e-9)


def test_frequencies_are_weighted():
    weights = np.random.default_rng(1).exponential(size=400)
    guarantees = (
        NCPRegressor(coordinates="raw", **FAST)
        .fit(X, Y, sample_weight=weights)
        .guarantees(A=X[:, 0] > 0, B=(0.0, np.inf))
    )
    assert guarantees.prob_A == pytest.approx(weights[X[:, 0] > 0].sum() / weights.sum())
    assert guarantees.prob_B == pytest.approx(weights[Y > 0].sum() / weights.sum())


def test_more_certainty_costs_larger_bounds(model):
    reports = [model.guarantees(delta=delta).to_dict() for delta in (0.2, 0.05, 0.001)]
    for key in set(reports[0]) - {"approximation"}:  # which holds for sure
        assert reports[0][key] < reports[1][key] < reports[2][key]
    assert reports[0]["approximation"] == reports[2]["approximation"]


def test_rare_sets_have_larger_relative_bounds(model):
    frequent, rare = (model.guarantees(A=X[:, 0] > cut)["relative"].value for cut in (0.0, 1.5))
    assert rare > frequent


def test_the_constant_scales_the_rate(model):
    small, large = (model.guarantees(constant=constant) for constant in (1.0, 2.0))
    assert large.epsilon == pytest.approx(2 * small.epsilon)
    assert large["probability"].value > small["probability"].value


def test_moments_of_the_target_are_known_in_raw_coordinates_only(model):
    guarantees = model.guarantees()
    raw = model.coordinates_ == "raw"
    assert ("mean" in guarantees.to_dict()) == raw
    assert any("normal scores" in note for note in guarantees.notes) != raw
    if raw:
        same = report(guarantees.terms, target=target_moments(Y[:, None]))
        assert guarantees["mean"].value == pytest.approx(same["mean"].value, rel=1e-9)


def test_an_ensemble_is_as_good_as_its_worst_member():
    one = NCPRegressor(coordinates="raw", **FAST).fit(X, Y).guarantees()
    two = NCPRegressor(coordinates="raw", ensemble_size=2, **FAST).fit(X, Y).guarantees()
    assert two.terms.operator_gap >= one.terms.operator_gap
    assert two["probability"].value >= one["probability"].value


def test_classifiers_have_guarantees_too():
    guarantees = NCPClassifier(**{**FAST, "rank": 1}).fit(X, Y > 0).guarantees(A=X[:, 0] > 0, B=(0.5, 1.5))
    assert guarantees.prob_B == pytest.approx((Y > 0).mean())
    assert np.isfinite(guarantees["probability"].value)


@pytest.mark.filterwarnings("ignore:`y` is constant", "ignore:`X` has only")
@pytest.mark.parametrize(
    ("options", "rows", "target"),
    [
        ({"validation_fraction": 0, "coordinates": "raw"}, slice(None), Y),
        ({}, slice(None), np.ones(400)),
        ({}, slice(10), Y),
    ],
    ids=["nothing held out", "constant", "few rows"],
)
def test_models_without_guarantees_say_why(options, rows, target):
    model = NCPRegressor(**{**FAST, **options}).fit(X[rows], target[rows])
    with pytest.raises(
        ValueError, match=r"`guarantees` needs a trained operator .* Fit with `validation_fraction` > 0"
    ):
        model.guarantees()


def test_rank_zero_is_the_marginal_law_and_has_bounds():
    # held-out rows where y falls with x support no singular function of a y that rises
    model = NCPRegressor(**{**FAST, "rank": "auto", "coordinates": "raw"}).fit(X, Y, validation_data=(X, -Y))
    assert model.rank_ == 0
    guarantees = model.guarantees()
    assert guarantees.terms.operator_gap == 0
    assert guarantees.terms.sigma_next > 0  # the dependence that is left out
    assert np.isfinite(guarantees["probability"].value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, r"`delta` must lie in \(0, 1\); got 0"),
        ({"delta": 1.5}, "`delta` must lie in"),
        ({"constant": -1.0}, "`constant` must"),
        ({"A": Box([9, 9], [10, 10])}, "`A` must contain at least one training row"),
        ({"A": np.ones(3, bool)}, "`A` must be a Box, a callable or a boolean mask over the 400"),
        ({"A": Box(0, 1)}, "`A` must have 2 coordinates"),
        ({"B": (50.0, 60.0)}, "`prob_B` must lie in"),
        ({"A": lambda x: np.ones(len(x), bool)}, "`prob_A` must lie in"),
        ({"B": lambda y: y[:, 0]}, "`B` must return one boolean per row"),
    ],
)
def test_bad_questions_are_named(options, message, model):
    with pytest.raises(ValueError, match=message):
        model.guarantees(**options)


def test_unfitted_models_say_so():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        NCPRegressor().guarantees()
