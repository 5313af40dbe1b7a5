"""ncprob: learn a conditional distribution once, then ask it anything."""

import importlib
from typing import Any

from ncprob._version import __version__
from ncprob.distribution import ConditionalDistribution
from ncprob.estimators import NCPClassifier, NCPRegressor
from ncprob.operator import SpectralOperator
from ncprob.persistence import load
from ncprob.sets import Box
from ncprob.training import train

__all__ = [
    "Box",
    "ConditionalDistribution",
    "NCPClassifier",
    "NCPRegressor",
    "SpectralOperator",
    "__version__",
    "load",
    "train",
]


def __getattr__(name: str) -> Any:
    """`ncprob.plotting` and the like are imported when first named: some need extras, and `import ncprob` does not."""
    if name in ("datasets", "metrics", "plotting", "report", "scoring"):
        return importlib.import_module(f"ncprob.{name}")
    raise AttributeError(f"module 'ncprob' has no attribute {name!r}")
