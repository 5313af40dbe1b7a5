"""All bounds for one model and its sets, as a table that says when a bound is vacuous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from ncprob._validation import check_choice
from ncprob.guarantees.bounds import (
    Condition,
    FeatureAssumption,
    OperatorTerms,
    TargetMoments,
    _psi,
    _rate,
    approximation_bound,
    cdf_bound,
    covariance_bound,
    epsilon_bar,
    expectation_bound,
    interval_coverage_bound,
    mean_bound,
    ratio_bound,
    relative_bound,
    sample_size_conditions,
)

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Bound:
    """One evaluated bound; `limit` is the error that no estimate of any use can exceed."""

    key: str
    statement: str
    reference: str
    value: float
    limit: float
    applies: bool = True

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing, being above the largest possible error."""
        return self.value > self.limit

    @property
    def verdict(self) -> str:
        """In words."""
        if self.vacuous:
            return f"vacuous: above {self.limit:.3g}, the largest possible error"
        return "informative" if self.applies else "not guaranteed: a condition fails"


@dataclass(frozen=True)
class GuaranteeReport:
    """All bounds for one model and one pair of sets; print it to read it."""

    terms: OperatorTerms
    prob_A: float
    prob_B: float
    delta: float
    constant: float
    features: str
    epsilon: float  # ε_n(δ/3)
    epsilon_bar: float  # ε̄_n(δ/3)
    psi: float  # ψ_n(δ/3)
    conditions: tuple[Condition, ...]
    bounds: tuple[Bound, ...]
    notes: tuple[str, ...] = ()

    @property
    def conditions_hold(self) -> bool:
        """Whether n is large enough for the theorem with these sets."""
        return all(condition.holds for condition in self.conditions)

    def to_dict(self) -> dict[str, float]:
        """Values of the bounds by their keys."""
        return {bound.key: bound.value for bound in self.bounds}

    def __getitem__(self, key: str) -> Bound:
        """The bound with a key, such as `report["probability"]`."""
        keys = [bound.key for bound in self.bounds]
        return self.bounds[keys.index(check_choice(key, "key", keys))]

    def __str__(self) -> str:
        head = (
            f"Guarantees with probability {1 - self.delta:g} (delta = {self.delta:g}), n = {self.terms.n:,}, "
            f"rank d = {self.terms.rank}, {self.features} features, constant C = {self.constant:g}\n"
            f"Sets: P(X in A) = {self.prob_A:.3g}, P(Y in B) = {self.prob_B:.3g}"
        )
        conditions = [(c.name, _number(c.value), _number(c.needed), str(c.holds)) for c in self.conditions]
        bounds = [(b.statement, b.reference, _number(b.value), b.verdict) for b in self.bounds]
        parts = [
            head,
            _table(("term", "value"), self._term_rows()),
            _table(("condition", "have", "need", "holds"), conditions),
            _table(("error of", "from", "at most", "reads"), bounds),
        ]
        return "\n\n".join(parts + [f"Note: {note}" for note in self.notes])

    def _term_rows(self) -> list[tuple[str, ...]]:
        terms = self.terms
        rows = {
            "first singular value left out, sigma_{d+1}": terms.sigma_next,
            "operator gap, E_theta = largest of": terms.operator_gap,
            "  ||[[D]]_d - U S V*||": terms.approximation_gap,
            "  ||U*U - I||": terms.left_gram_gap,
            "  ||V*V - I||": terms.right_gram_gap,
            "  ||U*1||": terms.left_mean_norm,
            "  ||V*1||": terms.right_mean_norm,
            "rate of feature means, eps_n(delta/3)": self.epsilon,
            "rate of frequencies, eps_bar_n(delta/3)": self.epsilon_bar,
            "error of the operator, psi_n(delta/3)": self.psi,
        }
        if terms.n_held_out:
            rows[f"(noise floor of ||U*U - I|| on {terms.n_held_out:,} held-out rows)"] = terms.noise_floor
        return [(name, _number(value)) for name, value in rows.items()]


def report(
    terms: OperatorTerms,
    prob_A: float = 0.5,
    prob_B: float = 0.5,
    delta: float = 0.05,
    *,
    constant: float = 1.0,
    hidden_constant: float = 1.0,
    features: FeatureAssumption = "bounded",
    levels: Sequence[float] = LEVELS,
    target: TargetMoments | None = None,
    as_printed: bool = False,
    notes: Sequence[str] = (),
) -> GuaranteeReport:
    """Evaluate every bound for sets of probability `prob_A` and `prob_B`.

    Parameters
    ----------
    terms : OperatorTerms
        From `estimate_terms`, or exact.
    levels : sequence of float
        Values of F_Y(t) at which the distribution function is bounded.
    target : TargetMoments, optional
        Moments of Y; with them the conditional mean and covariance are bounded too.
    constant, hidden_constant : float
        C of eq. 15 and the constant behind ≲ of the appendix; unknown, 1 by default.

    Examples
    --------
    >>> terms = OperatorTerms(10**5, 2, 0.01, 0, 0, 0, 0, 0, 2.0, 2.0, 1.4, 1.4)
    >>> guarantees = report(terms, prob_A=0.5, prob_B=0.5)
    >>> guarantees.conditions_hold, round(guarantees["probability"].value, 3)
    (True, 0.08)
    """
    # Each bound holds with probability 1 − δ by itself; nothing is said of all of them together.
    options: dict[str, Any] = {"constant": constant, "features": features}
    conditions = sample_size_conditions(terms, prob_A, prob_B, delta, features=features)
    bounds = _probability_bounds(terms, prob_A, prob_B, delta, options)
    bounds += _interval_bounds(terms, prob_A, delta, levels, options | {"as_printed": as_printed})
    if target is not None:
        options |= {"hidden_constant": hidden_constant}
        bounds += _target_bounds(terms, target, prob_A, delta, options, as_printed)
    return GuaranteeReport(
        terms=terms,
        prob_A=prob_A,
        prob_B=prob_B,
        delta=delta,
        constant=constant,
        features=features,
        epsilon=_rate(terms, delta / 3, constant, features),
        epsilon_bar=epsilon_bar(terms.n, delta / 3),
        psi=_psi(terms, delta / 3, constant, features),
        conditions=conditions,
        bounds=tuple(bounds),
        notes=(_CONSTANT_NOTE, *notes),
    )


_CONSTANT_NOTE = (
    "the paper leaves its constants open; each bound holds with the stated probability for a large enough C, "
    "for the plain plug-in estimate, and for features that do not depend on the n pairs."
)


def _probability_bounds(
    terms: OperatorTerms, prob_A: float, prob_B: float, delta: float, options: dict[str, Any]
) -> list[Bound]:
    applies = _applies(terms, prob_A, prob_B, delta, options)
    sets = (terms, prob_A, prob_B, delta)
    largest = _largest_probability(prob_A, prob_B)
    approximation = approximation_bound(terms.sigma_next, prob_A, prob_B)
    ratio, relative = ratio_bound(*sets, **options), relative_bound(*sets, **options)
    return [
        Bound("approximation", "P(B|A) of the exact operator of rank d", "Lemma 1", approximation, largest),
        Bound("ratio", "P(B|A) / P(B)", "Theorem 2, eq. 19", ratio, largest / prob_B, applies),
        Bound("relative", "P(B|A), relative to P(B)", "Theorem 2, eq. 20", relative, largest / prob_B, applies),
        Bound("probability", "P(B|A)", "Theorem 2, eq. 20", prob_B * relative, largest, applies),
    ]


def _largest_probability(prob_A: float, prob_B: float) -> float:
    """P(B | A) is at most 1 and at most P(B)/P(A)."""
    return min(1.0, prob_B / prob_A)


def _interval_bounds(
    terms: OperatorTerms, prob_A: float, delta: float, levels: Sequence[float], options: dict[str, Any]
) -> list[Bound]:
    cdf = [
        Bound(
            key=f"cdf[{level:g}]",
            statement=f"F(t|A) where F(t) = {level:g}",
            reference="Corollary 1",
            value=cdf_bound(terms, prob_A, level, delta, **options),
            limit=_largest_probability(prob_A, level),
            applies=_applies(terms, prob_A, level, delta, options),
        )
        for level in levels
    ]
    coverage = interval_coverage_bound(terms, prob_A, delta, **options)
    applies = _applies(terms, prob_A, 0.5, delta, options)
    return [*cdf, Bound("interval", "coverage of an interval", "eq. 22", coverage, 1.0, applies)]


def _target_bounds(
    terms: OperatorTerms,
    target: TargetMoments,
    prob_A: float,
    delta: float,
    options: dict[str, Any],
    as_printed: bool,
) -> list[Bound]:
    applies = _applies(terms, prob_A, 0.5, delta, options)
    given = (terms, target, prob_A, delta)
    largest_square = target.second_moment / prob_A  # ‖E[Y|A]‖² and ‖Cov(Y|A)‖ are at most E‖Y‖²/P(A)
    expectation = expectation_bound(*given, **options, as_printed=as_printed)
    covariance = covariance_bound(*given, **options, as_printed=as_printed)
    largest = sqrt(largest_square)
    return [
        Bound("expectation", "E[h(Y)|A] for h(y) = y", "Theorem 4", expectation, largest, applies),
        Bound("mean", "E[Y|A]", "Corollary 2", mean_bound(*given, **options), largest, applies),
        Bound("covariance", "Cov(Y|A), operator norm", "Corollary 3", covariance, largest_square, applies),
    ]


def _applies(terms: OperatorTerms, prob_A: float, prob_B: float, delta: float, options: dict[str, Any]) -> bool:
    conditions = sample_size_conditions(terms, prob_A, prob_B, delta, features=options["features"])
    return all(condition.holds for condition in conditions)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns padded to their widest entry, a rule under the header."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    rule = tuple("-" * width for width in widths)
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, rule, *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)
