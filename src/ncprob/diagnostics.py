"""Is this model to be trusted? Numbers read on held-out rows, and what they mean in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ncprob.metrics import pit_uniformity

FloatArray = NDArray[np.float64]
ROWS_PER_INPUT = 10  # fewer, and even a line has poorly known slopes
LEVELS = tuple(np.round(np.linspace(0.05, 0.95, 19), 2).tolist())


@dataclass(frozen=True)
class HeldOutAnswers:
    """What a model said of rows that did not train it, one row each.

    Attributes
    ----------
    inputs : array of shape (m, p)
        Inputs, scaled.
    pit : array of shape (m, q)
        Probability integral transforms F(y | x).
    covered : array of shape (m, q)
        Whether y lay in the shortest 90 % interval.
    repair : array of shape (m,)
        Mass of the negative part of the density ratio that was cut off, relative to what is left.
    """

    inputs: FloatArray
    pit: FloatArray
    covered: NDArray[np.bool_]
    repair: FloatArray


@dataclass(frozen=True)
class Diagnostics:
    """Figures of one fitted model; print it for a verdict in words.

    Attributes
    ----------
    spectrum : array
        Singular values in use.
    orthonormality_gap, centering_gap : float
        Largest of ‖E[uuᵀ] − I‖ and ‖E[vvᵀ] − I‖ (operator norm), and of ‖E u‖ and ‖E v‖, on held-out rows.
    held_out_loss : float
        L of the paper on held-out rows, an estimate of −χ² dependence in the coordinates of the model.
    repair : float
        Mean share of the density ratio that was negative and cut off.
    pit_histogram : array of shape (10,)
        Shares of held-out F(y | x) in ten equal cells; 0.1 each for a calibrated model.
    pit_pvalue : float
        Kolmogorov–Smirnov test of their uniformity (smallest over components, times their number).
    calibration : dict
        Nominal coverage of central intervals → coverage on held-out rows.
    coverage_90, worst_slab_coverage_90 : float
        Coverage of the shortest 90 % intervals: overall, and in the worst slab of inputs (see `worst_slab_coverage`).
    n_held_out : int
        Rows behind these figures.
    n_rows, n_inputs : int
        Rows and columns that the model was fitted on; 0 if unknown.
    learned : bool
        Whether anything was learned about X; else the answers are those of the marginal law.
    """

    spectrum: FloatArray
    orthonormality_gap: float
    centering_gap: float
    held_out_loss: float
    repair: float
    pit_histogram: FloatArray
    pit_pvalue: float
    calibration: dict[float, float]
    coverage_90: float
    worst_slab_coverage_90: float
    n_held_out: int
    n_rows: int = 0
    n_inputs: int = 0
    learned: bool = True

    @property
    def warnings(self) -> list[str]:
        """What speaks against trusting the model, in words; empty if nothing does."""
        found = []
        if not self.learned:
            found.append("Nothing was learned about X: the answers are those of the marginal distribution of y.")
        elif 0 < self.n_rows < ROWS_PER_INPUT * self.n_inputs:
            found.append(
                f"Only {self.n_rows} rows for {self.n_inputs} inputs: what depends on several of them may be missed."
            )
        if self.n_held_out == 0:
            found.append("No held-out rows: nothing here shows whether the model is right.")
        elif self.n_held_out < 50:
            found.append(f"Only {self.n_held_out} held-out rows: these figures are rough.")
        if self.pit_pvalue < 0.01:
            found.append(
                f"Held-out F(y|x) are not uniform (p = {self.pit_pvalue:.2g}): probabilities are miscalibrated."
            )
        spread = 3 * np.sqrt(0.09 / max(self.n_held_out, 1))  # three standard errors of a coverage of 0.9
        if self.coverage_90 < 0.9 - spread:
            found.append(f"90 % intervals cover {self.coverage_90:.1%}: use `conformalize` or more data.")
        if self.worst_slab_coverage_90 < 0.9 - 3 * spread:
            found.append(f"90 % intervals cover only {self.worst_slab_coverage_90:.1%} in one region of X.")
        if self.repair > 0.1:
            found.append(
                f"{self.repair:.0%} of the density ratio was negative: the rank is too high or training too short."
            )
        return found

    @property
    def verdict(self) -> str:
        """One line: whether these figures speak for trusting the model's probabilities."""
        spread = 3 * np.sqrt(0.09 / max(self.n_held_out, 1))
        if not self.learned:
            return "not about X: these are answers of the marginal distribution."
        if self.n_held_out == 0:
            return "unknown: score it on rows that it has not seen."
        if self.pit_pvalue < 0.01 or self.coverage_90 < 0.9 - spread:
            return "no, not its probabilities as they are: calibrate with `conformalize` or fit on more rows."
        if self.warnings:
            return "with care: see the warnings."
        return f"yes, for inputs like those of the training rows, as far as {self.n_held_out} held-out rows can show."

    def __str__(self) -> str:
        spectrum = ", ".join(f"{value:.3f}" for value in self.spectrum[:8]) or "none (independent)"
        slab = "unknown" if np.isnan(self.worst_slab_coverage_90) else f"{self.worst_slab_coverage_90:.1%}"
        lines = [
            f"spectrum              {spectrum}{', …' if len(self.spectrum) > 8 else ''}",
            f"orthonormality gap    {self.orthonormality_gap:.3f}",
            f"centring gap          {self.centering_gap:.3f}",
            f"held-out loss         {self.held_out_loss:.4f}",
            f"CDF repair            {self.repair:.2%}",
            f"PIT uniformity        p = {self.pit_pvalue:.3f}",
            f"90 % coverage         {self.coverage_90:.1%}, in the worst slab {slab}",
            f"held-out rows         {self.n_held_out}",
            f"to be trusted?        {self.verdict}",
        ]
        return "\n".join(
            lines + [f"! {warning}" for warning in self.warnings] + ([] if self.warnings else ["no warnings"])
        )


def calibration_curve(pit: ArrayLike, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Coverage of the central intervals: P(|F(y|x) − ½| ≤ level/2) for each level.

    Examples
    --------
    >>> calibration_curve(np.linspace(0.005, 0.995, 100), levels=[0.5, 0.9])
    {0.5: 0.5, 0.9: 0.9}
    """
    distance = np.abs(np.asarray(pit, dtype=float) - 0.5)
    return {float(level): float((distance <= level / 2 + 1e-12).mean()) for level in levels}


def worst_slab_coverage(
    x: ArrayLike, covered: ArrayLike, *, mass: float = 0.2, n_directions: int = 100, random_state: int = 0
) -> float:
    """Coverage in the worst slab {a ≤ ⟨w, x⟩ ≤ b} of at least `mass` of the rows, over random directions w.

    The slab is found on one half of the rows and its coverage is read on the other half, so that choosing the worst
    does not bias it (Cauchois, Gupta & Duchi 2021, section 4.1). nan for fewer than 40 rows.

    Examples
    --------
    >>> x = np.linspace(0, 1, 1000)[:, None]
    >>> bool(worst_slab_coverage(x, x[:, 0] < 0.5) < 0.1)  # no y is covered for x > 0.5
    True
    """
    points, hit = np.asarray(x, dtype=float), np.asarray(covered, dtype=float)
    if len(points) < 40:
        return float("nan")
    rng = np.random.default_rng(random_state)
    order = rng.permutation(len(points))
    find, read = order[::2], order[1::2]
    directions = rng.normal(size=(points.shape[1], n_directions))
    projected = points @ directions
    column, low, high = _worst_slab(projected[find], hit[find], mass)
    inside = (projected[read, column] >= low) & (projected[read, column] <= high)
    return float(hit[read][inside].mean()) if inside.any() else float("nan")


def _worst_slab(projected: FloatArray, hit: FloatArray, mass: float) -> tuple[int, float, float]:
    """Direction and bounds of the run of rows with the lowest coverage; the lowest has between 1 and 2 times `mass`."""
    m = len(projected)
    order = np.argsort(projected, axis=0)
    cumulative = np.vstack([np.zeros(projected.shape[1]), np.cumsum(hit[order], axis=0)])
    best = (np.inf, 0, 0.0, 0.0)
    for share in (1.0, 1.5, 2.0):
        width = min(m, int(np.ceil(share * mass * m)))
        means = (cumulative[width:] - cumulative[:-width]) / width
        start, column = np.unravel_index(int(means.argmin()), means.shape)
        if means[start, column] < best[0]:
            ordered = projected[order[:, column], column]
            best = (float(means[start, column]), int(column), ordered[start], ordered[start + width - 1])
    return best[1:]


def summarize(
    answers: HeldOutAnswers | None,
    spectrum: FloatArray,
    gaps: tuple[float, float],
    held_out_loss: float,
    n_rows: int = 0,
    n_inputs: int = 0,
    learned: bool = True,
) -> Diagnostics:
    """All figures; without held-out rows most are nan."""
    if answers is None:
        nan = float("nan")
        unknown = Diagnostics(spectrum, *gaps, held_out_loss, nan, np.full(10, nan), nan, {}, nan, nan, 0)
        return replace(unknown, n_rows=n_rows, n_inputs=n_inputs, learned=learned)
    pit = answers.pit
    pvalues = [pit_uniformity(column).pvalue for column in pit.T]
    histogram = np.histogram(pit, bins=10, range=(0, 1))[0] / pit.size
    return Diagnostics(
        spectrum=spectrum,
        orthonormality_gap=gaps[0],
        centering_gap=gaps[1],
        held_out_loss=held_out_loss,
        repair=float(answers.repair.mean()),
        pit_histogram=histogram,
        pit_pvalue=float(min(1.0, min(pvalues) * len(pvalues))),
        calibration=calibration_curve(pit),
        coverage_90=float(answers.covered.mean()),
        worst_slab_coverage_90=worst_slab_coverage(answers.inputs, answers.covered.mean(axis=1)),
        n_held_out=len(pit),
        n_rows=n_rows,
        n_inputs=n_inputs,
        learned=learned,
    )
