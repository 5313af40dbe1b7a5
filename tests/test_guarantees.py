"""Bounds against their formulas written out once more, their monotonicities, and Lemma 1 on exact tables."""

from dataclasses import replace
from math import e, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprob import guarantees as g

TERMS = g.OperatorTerms(
    n=20_000,
    rank=3,
    sigma_next=0.04,
    approximation_gap=0.02,
    left_gram_gap=0.03,
    right_gram_gap=0.01,
    left_mean_norm=0.005,
    right_mean_norm=0.006,
    left_bound=2.5,
    right_bound=3.0,
    left_std=1.7,
    right_std=1.6,
    subgaussian_norm=2.2,
)
MOMENTS = g.TargetMoments(
    dimension=2,
    second_moment=1.5,
    fourth_moment=4.0,
    covariance_trace=1.2,
    covariance_norm=0.8,
    subgaussian_norm=1.9,
)
A, B, DELTA = 0.3, 0.2, 0.05

PROBABILITY_BOUNDS = {
    "ratio": g.ratio_bound,
    "relative": g.relative_bound,
    "probability": g.probability_bound,
    "cdf": g.cdf_bound,
}
TARGET_BOUNDS = {"expectation": g.expectation_bound, "mean": g.mean_bound, "covariance": g.covariance_bound}


def every_bound(terms=TERMS, prob_A=A, prob_B=B, delta=DELTA, moments=MOMENTS, **options):
    """All bounds with a sample in them, by name."""
    found = {name: bound(terms, prob_A, prob_B, delta, **options) for name, bound in PROBABILITY_BOUNDS.items()}
    found |= {name: bound(terms, moments, prob_A, delta, **options) for name, bound in TARGET_BOUNDS.items()}
    found["interval"] = g.interval_coverage_bound(terms, prob_A, delta, **options)
    if "features" not in options:
        found["cdf printed"] = g.cdf_bound(terms, prob_A, prob_B, delta, as_printed=True, **options)
        found["interval printed"] = g.interval_coverage_bound(terms, prob_A, delta, as_printed=True, **options)
        found["covariance printed"] = g.covariance_bound(terms, moments, prob_A, delta, as_printed=True, **options)
    return found


# ---------------------------------------------------------------- formulas


class Literal:
    """The formulas for TERMS, A and B with numbers put in, at a given δ."""

    def __init__(self, delta, C=1.0, subgaussian=False):
        n, d, c, sigma, K, gap, tail = 20_000, 3, 3.0, 1.7, 2.2, 0.03, 0.04
        self.eps = C * (c * sqrt(d) * log(e / delta) / n + sigma * sqrt(log(e / delta) / n))
        if subgaussian:
            self.eps = C / sqrt(n) * sqrt(sigma**2 + K**2 / n) * log(2 / delta)
        self.bar = 2 * sqrt(2 * log(2 / delta) / n)
        self.psi = tail + gap + 2 * sqrt(1 + gap) * (gap + self.eps) + self.eps**2
        self.phi_a, self.phi_b = sqrt(0.7 / 0.3), sqrt(0.8 / 0.2)
        self.printed = tail + 2 * sqrt(2) * gap + (2 * sqrt(2) + 1) * self.eps + 4 * self.phi_a * self.bar


OPTIONS = [{}, {"constant": 3.0}, {"features": "subgaussian"}]


@pytest.fixture(params=OPTIONS, ids=["bounded", "constant", "subgaussian"])
def options(request):
    return request.param


def literal(delta, options):
    return Literal(delta, options.get("constant", 1.0), options.get("features") == "subgaussian")


def test_phi():
    assert g.phi(0.2) == pytest.approx(2.0)
    assert g.phi(0.5) == g.phi(0.9) == 1.0


def test_rates():
    assert g.epsilon_bar(50, 0.1) == pytest.approx(2 * sqrt(2 * log(20) / 50))
    expected = 1.5 * (2.0 * sqrt(3) * (1 + log(10)) / 50 + 0.7 * sqrt((1 + log(10)) / 50))
    assert g.epsilon(50, 0.1, rank=3, feature_bound=2.0, feature_std=0.7, constant=1.5) == pytest.approx(expected)
    expected = 1.5 / sqrt(50) * sqrt(0.49 + 4.0 / 50) * log(20)
    assert g.epsilon_subgaussian(50, 0.1, 0.7, 2.0, constant=1.5) == pytest.approx(expected)
    assert g.psi(0.1, 0.21, 0.3) == pytest.approx(0.1 + 0.21 + 2 * 1.1 * 0.51 + 0.09)


def test_approximation_bound():
    assert g.approximation_bound(0.3, prob_A=0.1, prob_B=0.4) == pytest.approx(0.6)


def test_ratio_bound(options):
    at = literal(DELTA / 3, options)
    expected = (4 * at.psi + (1 + at.psi) * (2 * at.phi_a + 4 * at.phi_b) * at.bar) / sqrt(0.3 * 0.2)
    assert g.ratio_bound(TERMS, A, B, DELTA, **options) == pytest.approx(expected)


def test_relative_and_probability_bound(options):
    at = literal(DELTA / 3, options)
    expected = at.phi_b * at.bar + (2 * (1 + at.psi) * at.phi_a * at.bar + at.psi) / sqrt(0.3 * 0.2)
    assert g.relative_bound(TERMS, A, B, DELTA, **options) == pytest.approx(expected)
    assert g.probability_bound(TERMS, A, B, DELTA, **options) == pytest.approx(0.2 * expected)
    assert g.cdf_bound(TERMS, A, 0.2, DELTA, **options) == pytest.approx(0.2 * expected)


def test_cdf_bound_as_printed(options):
    at = literal(DELTA / 3, options)
    expected = sqrt(0.2 * 0.8) * at.bar + sqrt(0.2 / 0.3) * at.printed
    assert g.cdf_bound(TERMS, A, 0.2, DELTA, as_printed=True, **options) == pytest.approx(expected)


def test_interval_coverage_bound(options):
    at = literal(DELTA / 6, options)
    expected = at.bar / 2 + (2 * (1 + at.psi) * at.phi_a * at.bar + at.psi) / sqrt(0.3)
    assert g.interval_coverage_bound(TERMS, A, DELTA, **options) == pytest.approx(expected)
    printed = at.bar / 2 + at.printed / sqrt(0.3)
    assert g.interval_coverage_bound(TERMS, A, DELTA, as_printed=True, **options) == pytest.approx(printed)


def test_expectation_bound(options):
    at = literal(DELTA / 3, options)
    operator = sqrt(1.5) / sqrt(0.3) * (at.psi + 2 * (1 + at.psi) * at.phi_a * at.bar)
    for as_printed, numerator in ((False, 6), (True, 3)):
        spread = 1 / sqrt(20_000) * sqrt(1.2 + 1.9**2 / 20_000) * log(numerator / DELTA)
        bound = g.expectation_bound(TERMS, MOMENTS, A, DELTA, hidden_constant=2.0, as_printed=as_printed, **options)
        assert bound == pytest.approx(2 * (spread + operator))


def literal_mean(delta, options):
    at = literal(delta / 3, options)
    ell = log(3 * 2 / delta) / 20_000
    spread = sqrt(1.2) * max(sqrt(ell), ell)
    return spread + sqrt(1.5) / sqrt(0.3) * (at.psi + 2 * (1 + at.psi) * at.phi_a * at.bar)


def test_mean_bound(options):
    bound = g.mean_bound(TERMS, MOMENTS, A, DELTA, hidden_constant=2.0, **options)
    assert bound == pytest.approx(2 * literal_mean(DELTA, options))


def test_covariance_bound(options):
    at = literal(DELTA / 4, options)
    n, r, tail = 20_000, 1.5, log(1 / DELTA)
    rate = 0.8 * (sqrt(r / n) + r / n + sqrt(tail / n) + tail / n)
    mean = literal_mean(DELTA / 4, options)
    operator = (at.psi + 2 * (1 + at.psi) * at.phi_a * at.bar) / sqrt(0.3)
    for as_printed, scale in ((False, 2.0), (True, 1.5**2)):
        given_mean = g.covariance_bound(
            TERMS, MOMENTS, A, DELTA, conditional_mean_norm=0.7, as_printed=as_printed, **options
        )
        assert given_mean == pytest.approx(rate + operator * scale + mean * (2 * 0.7 + mean))
    worst = g.covariance_bound(TERMS, MOMENTS, A, DELTA, hidden_constant=2.0, **options)
    assert worst == pytest.approx(2 * (rate + operator * 2.0 + mean * (2 * sqrt(1.5 / 0.3) + mean)))


def test_conditions():
    conditions = g.sample_size_conditions(TERMS, A, B, DELTA)
    bar = 2 * sqrt(2 * log(6 / DELTA) / 20_000)
    expected = [(A, bar), (B, bar), (20_000, 8 * log(6 / DELTA) * 2.0), (20_000, 27.0)]
    assert [(c.value, c.needed) for c in conditions] == [pytest.approx(pair) for pair in expected]
    assert all(c.holds for c in conditions)
    assert len(g.sample_size_conditions(TERMS, A, B, DELTA, features="subgaussian")) == 3


@pytest.mark.parametrize(
    ("change", "prob_B", "holds"),
    [
        ({"n": 1000}, 0.15, [True, False, True, True]),
        ({"n": 20}, 0.5, [False, False, False, False]),
        ({"left_bound": 100.0}, 0.5, [True, True, True, False]),
    ],
)
def test_conditions_that_fail(change, prob_B, holds):
    conditions = g.sample_size_conditions(replace(TERMS, **change), 0.5, prob_B, DELTA)
    assert [c.holds for c in conditions] == holds


def test_sufficient_constant_covers_the_bernstein_bound_of_both_features():
    for delta in (1e-6, 0.01, 0.5, 0.99):
        per_row = log(4 / delta) / 100
        bernstein = 4 * 2.0 * sqrt(3) * per_row + sqrt(2) * 1.7 * sqrt(per_row)
        assert g.epsilon(100, delta, 3, 2.0, 1.7, constant=g.SUFFICIENT_CONSTANT) >= bernstein


# ---------------------------------------------------------------- monotonicities

probabilities = st.floats(0.01, 0.99)
sizes = st.integers(10, 10**7)


@settings(max_examples=30, deadline=None)
@given(n=sizes, more=sizes, prob_A=probabilities, prob_B=probabilities, delta=probabilities)
def test_more_data_never_hurts(n, more, prob_A, prob_B, delta):
    few = every_bound(replace(TERMS, n=n), prob_A, prob_B, delta)
    many = every_bound(replace(TERMS, n=n + more), prob_A, prob_B, delta)
    assert all(many[name] < few[name] for name in few)


@settings(max_examples=30, deadline=None)
@given(deltas=st.tuples(probabilities, probabilities), prob_A=probabilities, prob_B=probabilities)
def test_less_confidence_gives_smaller_bounds(deltas, prob_A, prob_B):
    strict, lenient = (every_bound(prob_A=prob_A, prob_B=prob_B, delta=delta) for delta in sorted(deltas))
    assert all(lenient[name] <= strict[name] for name in strict)


@settings(max_examples=30, deadline=None)
@given(sets=st.tuples(probabilities, probabilities), prob_B=probabilities)
def test_rarer_conditions_cost_more(sets, prob_B):
    rare, common = (every_bound(prob_A=prob_A, prob_B=prob_B) for prob_A in sorted(sets))
    assert all(common[name] <= rare[name] for name in rare)


GROWING = ["sigma_next", "approximation_gap", "left_gram_gap", "right_gram_gap", "left_mean_norm", "right_mean_norm"]


@pytest.mark.parametrize("name", [*GROWING, "left_bound", "right_std", "rank"])
def test_bounds_grow_with_every_term(name):
    larger = every_bound(replace(TERMS, **{name: 5 if name == "rank" else getattr(TERMS, name) + 0.9}))
    smaller = every_bound()
    assert all(larger[key] > smaller[key] for key in smaller)


def test_bounds_grow_with_the_constant():
    once, thrice = every_bound(), every_bound(constant=3.0)
    assert all(thrice[name] > once[name] for name in once)


def test_bounds_vanish_for_a_perfect_model_and_endless_data():
    perfect = g.OperatorTerms(10**15, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, subgaussian_norm=1.0)
    for features in ("bounded", "subgaussian"):
        assert all(value < 1e-4 for value in every_bound(perfect, features=features).values())


# ---------------------------------------------------------------- Lemma 1 on tables


def random_table(n_x, n_y, seed):
    """A joint law P(X = i, Y = j) with strong dependence."""
    joint = np.exp(1.5 * np.random.default_rng(seed).normal(size=(n_x, n_y)))
    return joint / joint.sum()


def table_svd(joint):
    """Singular functions u (n_x, k), v (n_y, k) and values of the deflated operator of a table."""
    p, q = joint.sum(axis=1), joint.sum(axis=0)
    roots = np.sqrt(p), np.sqrt(q)
    left, values, right_t = np.linalg.svd((joint - np.outer(p, q)) / np.outer(*roots), full_matrices=False)
    return left / roots[0][:, None], values, right_t.T / roots[1][:, None]


def subsets(size):
    """All subsets of {0, …, size − 1} but the empty and the full one, as masks."""
    masks = (np.arange(1, 2**size - 1)[:, None] >> np.arange(size)) & 1
    return masks.astype(float)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lemma_1_holds_for_every_pair_of_sets(rank, seed):
    joint = random_table(5, 6, seed)
    p, q = joint.sum(axis=1), joint.sum(axis=0)
    u, values, v = table_svd(joint)
    sets_a, sets_b = subsets(5), subsets(6)
    prob_a, prob_b = sets_a @ p, sets_b @ q
    exact = sets_a @ joint @ sets_b.T / prob_a[:, None]
    left, right = sets_a @ (p[:, None] * u[:, :rank]), sets_b @ (q[:, None] * v[:, :rank])
    truncated = prob_b + (left * values[:rank]) @ right.T / prob_a[:, None]
    bounds = np.array([[g.approximation_bound(values[rank], a, b) for b in prob_b] for a in prob_a])
    assert (np.abs(exact - truncated) <= bounds + 1e-12).all()
    assert (np.abs(exact - truncated) / bounds).max() > 0.1  # the bound is of the right size


# ---------------------------------------------------------------- estimates


def paired_states(joint, n, seed):
    outcome = np.random.default_rng(seed).choice(joint.size, n, p=joint.ravel())
    return np.divmod(outcome, joint.shape[1])


def test_estimated_terms_approach_the_exact_ones():
    joint = random_table(4, 5, seed=1)
    p, q = joint.sum(axis=1), joint.sum(axis=0)
    u, _, v = table_svd(joint)
    mix = np.array([[1.2, 0.3], [-0.1, 0.9]])
    u, v = u[:, :2] @ mix + 0.1, v[:, :2] * [0.8, 1.1] - [0.0, 0.2]
    s = np.array([0.7, 0.3])
    x, y = paired_states(joint, 400_000, seed=2)
    terms = g.estimate_terms(u[x], v[y], s, n_train=1000, sigma_next=0.1)
    gram_u, gram_v = u.T @ (p[:, None] * u), v.T @ (q[:, None] * v)
    # the exact gap: D and U S V* as matrices in L²(μ), L²(ν); here the span holds the leading singular functions
    # only together with constants, so D inside the span is compared
    root_p, root_q = np.sqrt(p)[:, None], np.sqrt(q)[:, None]
    deflated = (joint - np.outer(p, q)) / (root_p @ root_q.T)
    basis_u, basis_v = np.linalg.qr(root_p * u)[0], np.linalg.qr(root_q * v)[0]
    inside = basis_u @ basis_u.T @ deflated @ basis_v @ basis_v.T
    gap = np.linalg.norm(inside - (root_p * u * s) @ (root_q * v).T, 2)
    assert terms.approximation_gap == pytest.approx(gap, abs=0.01)
    assert terms.left_gram_gap == pytest.approx(np.linalg.norm(gram_u - np.eye(2), 2), abs=0.01)
    assert terms.right_gram_gap == pytest.approx(np.linalg.norm(gram_v - np.eye(2), 2), abs=0.01)
    assert terms.left_mean_norm == pytest.approx(np.linalg.norm(p @ u), abs=0.01)
    assert terms.right_mean_norm == pytest.approx(np.linalg.norm(q @ v), abs=0.01)
    assert terms.left_std == pytest.approx(sqrt(np.trace(gram_u) - (p @ u) @ (p @ u)), abs=0.01)
    assert (terms.left_bound, terms.n, terms.n_held_out) == (np.abs(u).max(), 1000, 400_000)


def test_exact_features_have_no_gap():
    """With the population as rows (a table of equal weights) every part of E_θ is zero but for rounding."""
    counts = np.array([[4, 1, 1], [1, 3, 2], [1, 2, 5]])
    u, values, v = table_svd(counts / counts.sum())
    x, y = (np.repeat(index.ravel(), counts.ravel()) for index in np.indices(counts.shape))
    terms = g.estimate_terms(u[x], v[y], values, n_train=20, rank=1)
    assert terms.operator_gap < 1e-12
    assert terms.sigma_next == pytest.approx(values[1])
    assert terms.left_std == pytest.approx(1.0)


def test_sigma_next_default_and_rank():
    rng = np.random.default_rng(0)
    u, v, s = rng.normal(size=(50, 3)), rng.normal(size=(50, 3)), [0.9, 0.5, 0.2]
    assert g.estimate_terms(u, v, s, 100, rank=2).sigma_next == 0.2
    assert g.estimate_terms(u, v, s, 100, rank=1).sigma_next == 0.5
    assert g.estimate_terms(u, v, s, 100).sigma_next == 0.2
    assert g.estimate_terms(u, v, s, 100, sigma_next=0.01).sigma_next == 0.01
    assert g.estimate_terms(u, v, s, 100, rank=2).rank == 2


def test_feature_bounds_cover_training_rows_and_are_at_least_one():
    u = np.full((4, 1), 0.5)
    assert g.estimate_terms(u, u, [0.5], 10).left_bound == 1.0
    signs = np.tile([[1.0], [-1.0]], (10, 1))
    seen = (np.vstack([signs, [[np.sqrt(21 * 4 - 20)]]]), np.vstack([signs, [[-1.0]]]))  # mean squares 4 and 1
    terms = g.estimate_terms(u, 3 * u, [0.5], 10, training=seen)
    assert (terms.left_bound, terms.right_bound) == pytest.approx((4.0, 1.5))


def test_canonical_form_is_the_same_operator_in_orthonormal_features():
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(200, 3)) * [1.0, 0.3, 2.0], rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3))
    s = np.array([0.9, 0.5, 0.3])
    form = g.canonical_form(u.T @ u / 200, v.T @ v / 200, s)
    left, right = u @ form.left_map, v @ form.right_map
    assert (left * form.values) @ right.T == pytest.approx((u * s) @ v.T)
    assert right.T @ right / 200 == pytest.approx(np.eye(3), abs=1e-9)
    inner = left.T @ left / 200
    assert inner == pytest.approx(np.diag(np.diag(inner)), abs=1e-9)
    assert (form.values <= 1).all()
    assert (np.diff(form.values) <= 0).all()


def test_shrunken_features_lose_their_gap_in_canonical_form():
    """A ridge shrinks features; the model is the same, and so should its terms be."""
    joint = random_table(4, 5, seed=1)
    u, values, v = table_svd(joint)
    x, y = paired_states(joint, 100_000, seed=3)
    shrink = np.array([0.9, 0.6])
    left, right, s = u[x, :2] * shrink, v[y, :2] * shrink, values[:2] / shrink**2
    assert (s <= 1).all()
    plain = g.estimate_terms(left, right, s, 1000, sigma_next=values[2])
    canonical = g.estimate_terms(left, right, s, 1000, sigma_next=values[2], training=(left, right))
    assert plain.operator_gap > 0.6
    assert canonical.operator_gap < 0.02
    assert canonical.left_std == pytest.approx(np.sqrt(2), abs=0.01)


def test_collapsed_features_are_survived():
    u = np.column_stack([np.tile([1.0, -1.0], 10), np.zeros(20)])
    terms = g.estimate_terms(u, u, [1.0, 0.0], 10)
    assert terms.left_gram_gap == pytest.approx(1.0)
    assert terms.approximation_gap < 1e-12


def test_worst_of_an_ensemble_covers_each_member():
    other = replace(TERMS, n=10_000, rank=2, left_gram_gap=0.2, left_bound=2.0, subgaussian_norm=3.0, n_held_out=50)
    worst = g.OperatorTerms.worst([TERMS, other])
    assert (worst.n, worst.rank, worst.left_gram_gap, worst.left_bound, worst.n_held_out) == (10_000, 3, 0.2, 2.5, 0)
    for member in (TERMS, other):
        assert all(every_bound(worst)[name] >= value for name, value in every_bound(member).items())


def test_noise_floor_is_what_exact_features_read():
    rng = np.random.default_rng(0)
    u = rng.choice([-1.0, 1.0], (2000, 8))
    terms = g.estimate_terms(u, u, np.ones(8), 10)
    assert 0.3 * terms.noise_floor < terms.left_gram_gap < 1.5 * terms.noise_floor


def test_target_moments():
    y = np.random.default_rng(0).normal([1.0, -2.0], [1.0, 2.0], size=(200_000, 2))
    moments = g.target_moments(y)
    assert moments.dimension == 2
    assert moments.second_moment == pytest.approx(5.0, rel=0.02)
    assert moments.fourth_moment == pytest.approx(3 + 2 * 4 + 3 * 16, rel=0.03)
    assert moments.covariance_norm == pytest.approx(4.0, rel=0.02)
    assert moments.effective_rank == pytest.approx(1.25, rel=0.02)
    assert g.target_moments(y, center=False).second_moment == pytest.approx(10.0, rel=0.02)
    assert g.target_moments(np.ones(3)).effective_rank == 1.0


def test_subgaussian_norm_of_known_laws():
    normal = np.random.default_rng(0).normal(size=200_000)
    assert g.subgaussian_norm(normal) == pytest.approx(sqrt(8 / 3), rel=0.03)  # E exp(Z²/C²) = (1 − 2/C²)^(−½)
    assert g.subgaussian_norm([-2.0, 2.0]) == pytest.approx(2 / sqrt(log(2)))
    assert g.subgaussian_norm([3.0, 0.0, 0.0]) == pytest.approx(3 / sqrt(log(4)))
    assert g.subgaussian_norm([0.0, 0.0]) == 0.0


# ---------------------------------------------------------------- report


def test_report_holds_the_bounds():
    found = g.report(TERMS, A, B, DELTA, target=MOMENTS, levels=(0.2, 0.9))
    expected = {name: value for name, value in every_bound().items() if name in {*TARGET_BOUNDS, "interval"}}
    expected |= {name: every_bound()[name] for name in ("ratio", "relative", "probability")}
    expected |= {f"cdf[{level:g}]": g.cdf_bound(TERMS, A, level, DELTA) for level in (0.2, 0.9)}
    expected["approximation"] = g.approximation_bound(0.04, A, B)
    assert found.to_dict() == pytest.approx(expected)
    assert found.psi == pytest.approx(Literal(DELTA / 3).psi)
    assert found["ratio"].value == expected["ratio"]
    assert found.conditions_hold


def test_report_passes_its_options_on():
    options = {"constant": 2.0, "features": "subgaussian"}
    found = g.report(TERMS, A, B, DELTA, target=MOMENTS, hidden_constant=3.0, as_printed=True, **options)
    assert found["ratio"].value == g.ratio_bound(TERMS, A, B, DELTA, **options)
    assert found["interval"].value == g.interval_coverage_bound(TERMS, A, DELTA, as_printed=True, **options)
    assert found["mean"].value == g.mean_bound(TERMS, MOMENTS, A, DELTA, hidden_constant=3.0, **options)


def test_report_reads_as_a_table():
    text = str(g.report(replace(TERMS, n=300, n_held_out=30), 0.5, 0.2, target=MOMENTS, notes=["a remark."]))
    assert "Theorem 2, eq. 20" in text
    assert "vacuous: above 0.4, the largest possible error" in text
    assert "30 held-out rows" in text
    assert text.endswith("Note: a remark.")
    assert max(len(line) for line in text.splitlines() if not line.startswith("Note")) <= 120


def test_report_says_which_bounds_are_not_guaranteed():
    found = g.report(g.OperatorTerms(10**6, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1), levels=(0.005, 0.5))
    assert [found[key].applies for key in ("cdf[0.005]", "cdf[0.5]")] == [False, True]
    assert "0.005" in next(line for line in str(found).splitlines() if "not guaranteed: a condition fails" in line)


def test_verdicts():
    assert g.Bound("k", "s", "r", 0.5, 1.0).verdict == "informative"
    assert g.Bound("k", "s", "r", 1.5, 1.0).vacuous
    assert g.Bound("k", "s", "r", 0.5, 1.0, applies=False).verdict.startswith("not guaranteed")


def test_unknown_key():
    with pytest.raises(ValueError, match=r"`key` must be one of .* Did you mean 'interval'"):
        g.report(TERMS)["intervall"]


# ---------------------------------------------------------------- bad arguments

CALLS = {
    name: lambda bound=bound, **k: bound(TERMS, **({"prob_A": A, "prob_B": B, "delta": DELTA} | k))
    for name, bound in PROBABILITY_BOUNDS.items()
    if name != "cdf"
}
CALLS |= {
    "cdf": lambda **k: g.cdf_bound(TERMS, **({"prob_A": A, "level": B, "delta": DELTA} | k)),
    "interval": lambda **k: g.interval_coverage_bound(TERMS, **({"prob_A": A, "delta": DELTA} | k)),
    "conditions": lambda **k: g.sample_size_conditions(TERMS, **({"prob_A": A, "prob_B": B, "delta": DELTA} | k)),
    "report": lambda **k: g.report(TERMS, **({"prob_A": A, "prob_B": B, "delta": DELTA} | k)),
}
CALLS |= {
    name: lambda bound=bound, **k: bound(TERMS, MOMENTS, **({"prob_A": A, "delta": DELTA} | k))
    for name, bound in TARGET_BOUNDS.items()
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", ["prob_A", "delta"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 2.5, float("nan")])
def test_probabilities_must_be_inside(call, name, value):
    with pytest.raises(ValueError, match=rf"`{name}` must lie in \(0, 1\); got .* Choose a value inside\."):
        call(**{name: value})


@pytest.mark.parametrize("name", ["ratio", "relative", "probability", "conditions", "report"])
def test_prob_b_must_be_inside(name):
    with pytest.raises(ValueError, match=r"`prob_B` must lie in \(0, 1\); got 1\. Choose a value inside\."):
        CALLS[name](prob_B=1.0)


def test_level_must_be_inside():
    with pytest.raises(ValueError, match=r"`level` must lie in \(0, 1\); got 0\."):
        CALLS["cdf"](level=0)


@pytest.mark.parametrize("constant", ["constant", "hidden_constant"])
def test_constants_must_be_positive(constant):
    with pytest.raises(ValueError, match=rf"`{constant}` must lie in \(0, inf\); got 0\."):
        g.mean_bound(TERMS, MOMENTS, A, DELTA, **{constant: 0.0})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: g.phi(1.0), ValueError, r"`probability` must lie in \(0, 1\); got 1"),
        (lambda: g.phi("half"), TypeError, "`probability` must be a number; got 'half' of type str. Pass a float"),
        (lambda: g.epsilon_bar(0, 0.1), ValueError, "`n` must be at least 1; got 0. Raise `n`"),
        (lambda: g.epsilon_bar(10.5, 0.1), TypeError, "`n` must be an integer; got 10.5"),
        (lambda: g.epsilon_bar(10, 1.0), ValueError, r"`delta` must lie in \(0, 1\); got 1"),
        (lambda: g.epsilon(10, 0.1, 0, 1.0, 1.0), ValueError, "`rank` must be at least 1; got 0"),
        (lambda: g.epsilon(10, 0.1, 1, -1.0, 1.0), ValueError, r"`feature_bound` must lie in \[0, inf\]; got -1"),
        (lambda: g.epsilon_subgaussian(10, 0.1, 1.0, -2.0), ValueError, "`subgaussian_norm` must lie in"),
        (lambda: g.psi(-0.1, 0.0, 0.0), ValueError, "`sigma_next` must lie in"),
        (lambda: g.approximation_bound(1.5, 0.5, 0.5), ValueError, r"`sigma_next` must lie in \[0, 1\]; got 1.5"),
        (lambda: replace(TERMS, n=0), ValueError, "`n` must be at least 1; got 0"),
        (lambda: replace(TERMS, left_std=-1.0), ValueError, "`left_std` must lie in"),
        (lambda: replace(TERMS, sigma_next=2.0), ValueError, r"`sigma_next` must lie in \[0, 1\]; got 2"),
        (lambda: g.OperatorTerms.worst([]), ValueError, "`members` must hold at least one"),
        (lambda: g.ratio_bound(TERMS, A, B, DELTA, features="bound"), ValueError, "Did you mean 'bounded'"),
        (
            lambda: g.ratio_bound(replace(TERMS, subgaussian_norm=float("nan")), A, B, DELTA, features="subgaussian"),
            ValueError,
            "`terms.subgaussian_norm` must be a number .* Pass K",
        ),
        (
            lambda: g.estimate_terms(np.ones((3, 2)), np.ones((3, 1)), [0.5, 0.5], 10),
            ValueError,
            r"`u` and `v` must have shape \(m, 2\).*got \(3, 2\) and \(3, 1\)",
        ),
        (lambda: g.estimate_terms(np.ones((1, 1)), np.ones((1, 1)), [0.5], 10), ValueError, "at least 2 rows; got 1"),
        (lambda: g.estimate_terms(np.ones((3, 1)), np.ones((3, 1)), [1.5], 10), ValueError, "`singular_values` must"),
        (
            lambda: g.estimate_terms(np.ones((3, 1)), np.ones((3, 1)), [0.5], 10, rank=2),
            ValueError,
            "`rank` must be at most 1, the number of features; got 2. Lower `rank`",
        ),
        (lambda: g.estimate_terms(np.ones((3, 1)), np.ones((3, 1)), [0.5], 0), ValueError, "`n_train` must be at"),
        (lambda: g.estimate_terms([[np.nan], [1.0]], np.ones((2, 1)), [0.5], 9), ValueError, "`u` must be finite"),
        (lambda: g.target_moments(np.zeros((0, 2))), ValueError, r"`values` must have shape .*; got \(0, 2\)"),
        (
            lambda: g.covariance_bound(TERMS, MOMENTS, A, DELTA, conditional_mean_norm=-1.0),
            ValueError,
            "`conditional_mean_norm` must lie in",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
