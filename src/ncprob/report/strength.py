"""How much each input matters: permutation importance of the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ncprob.report.study import Study

ROWS, LAWS = 400, 20_000  # at most so many test rows, and about so many laws over all inputs
FEWEST_ROWS = 50


@dataclass(frozen=True)
class Strength:
    """An input and by what share the score gets worse when its values are shuffled."""

    position: int
    name: str
    increase: float


def strengths(study: Study, tick: Callable[[str], None]) -> list[Strength]:
    """All inputs, the strongest first.

    The values of one input are shuffled among test rows and the loss of the laws is taken again: its mean relative
    increase over targets says how much the model leans on that input (Breiman 2001). Inputs that carry the same
    information share it, and each may then look weak.
    """
    n, p = len(study.test), len(study.test.names)
    size = min(n, ROWS, max(FEWEST_ROWS, LAWS // max(p, 1)))
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.choice(n, size, replace=False))
    rows, y = study.test.rows(chosen), study.y[chosen]
    order = rng.permutation(size)
    base = study.losses(rows, y)
    found = []
    for position, name in enumerate(rows.names):
        columns = list(rows.columns)
        columns[position] = columns[position][order]
        loss = study.losses(replace(rows, columns=columns), y)
        found.append(Strength(position, name, float(np.mean(loss / np.maximum(base, 1e-300) - 1))))
        tick(f"strength of {name}")
    return sorted(found, key=lambda strength: -strength.increase)
