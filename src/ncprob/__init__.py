"""ncprob: learn a conditional distribution once, then ask it anything."""

from ncprob import cluster, datasets, metrics, molecules, plotting, report, scoring
from ncprob._version import __version__
from ncprob.bulk import predict_files
from ncprob.distribution import ConditionalDistribution
from ncprob.estimators import NCPClassifier, NCPRegressor
from ncprob.kinetics import Kinetics
from ncprob.lagged import TimeLaggedPairs
from ncprob.operator import SpectralOperator
from ncprob.persistence import load
from ncprob.sets import Box
from ncprob.training import train

__all__ = [
    "Box",
    "ConditionalDistribution",
    "Kinetics",
    "NCPClassifier",
    "NCPRegressor",
    "SpectralOperator",
    "TimeLaggedPairs",
    "__version__",
    "cluster",
    "datasets",
    "load",
    "metrics",
    "molecules",
    "plotting",
    "predict_files",
    "report",
    "scoring",
    "train",
]
