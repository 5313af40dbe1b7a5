"""The default with one ingredient taken away, to see what it brings."""

from __future__ import annotations

from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest.mock import patch

from benchmarks.methods.base import Array
from benchmarks.methods.ncprob_default import NcprobDefault
from ncprob import candidates, coordinates, networks


def _without_clusters(decay: float, gate: float, *sizes: Any) -> list[coordinates.Variant]:
    """The same mixtures that begin at random."""
    plain = coordinates.Variant(3 * decay, gate, form="quadratic")
    known = coordinates.variants(decay, gate, *sizes)
    return [plain if variant.form == "clusters" else variant for variant in known]


def _without_normal_laws(*facts: Any) -> list[coordinates.Variant]:
    return [variant for variant in coordinates.variants(*facts) if variant.components > 1]


# Ingredients without a setting of their own are replaced where they are used, while the model is fitted.
REPLACED: dict[str, tuple[ModuleType, str, Any]] = {
    "clusters": (networks, "variants", _without_clusters),
    "normal laws": (networks, "variants", _without_normal_laws),
    "pool": (networks, "variants", lambda decay, gate, *sizes: [coordinates.Variant(10 * decay, gate)]),
    "smoothing": (candidates, "smooth_atoms", lambda scores, weights=None: None),
}


class Without(NcprobDefault):
    """`NCPRegressor` with settings, or a part of its recipe, replaced."""

    def __init__(self, ingredient: str, **options: Any) -> None:
        super().__init__(**options)
        self.ingredient = ingredient

    def _fit(self, X: Array, y: Array, seed: int, validation: tuple[Array, Array] | None) -> None:
        with ExitStack() as stack:
            if self.ingredient in REPLACED:
                stack.enter_context(patch.object(*REPLACED[self.ingredient]))
            super()._fit(X, y, seed, validation)
        self.settings = f"without {self.ingredient}; {self.settings}"
