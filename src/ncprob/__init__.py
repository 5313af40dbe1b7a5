"""ncprob: learn a conditional distribution once, then ask it anything.

Public names are imported when they are first asked for, so that the command line need not wait for torch.
"""

from typing import TYPE_CHECKING

from ncprob._version import __version__

if TYPE_CHECKING:
    from ncprob import cluster, datasets, metrics, molecules, plotting, report, scoring
    from ncprob.bulk import predict_files
    from ncprob.distribution import ConditionalDistribution
    from ncprob.estimators import NCPClassifier, NCPRegressor, load
    from ncprob.kinetics import Kinetics
    from ncprob.lagged import TimeLaggedPairs
    from ncprob.operator import SpectralOperator
    from ncprob.sets import Box
    from ncprob.training import train
else:
    _HOMES = {  # modules of the names above; a module is its own
        "Box": "sets",
        "ConditionalDistribution": "distribution",
        "Kinetics": "kinetics",
        "NCPClassifier": "estimators",
        "NCPRegressor": "estimators",
        "SpectralOperator": "operator",
        "TimeLaggedPairs": "lagged",
        "load": "estimators",
        "predict_files": "bulk",
        "train": "training",
    }

    def __getattr__(name):
        """Import a public name or a module of the package (PEP 562)."""
        from importlib import import_module

        home = f"ncprob.{_HOMES.get(name, name)}"
        try:
            module = None if name.startswith("_") else import_module(home)
        except ModuleNotFoundError as error:
            if error.name != home:
                raise
            module = None
        if module is None:
            raise AttributeError(f"module 'ncprob' has no attribute {name!r}")
        return globals().setdefault(name, getattr(module, name) if name in _HOMES else module)

    def __dir__():
        """Public names, whether imported by now or not."""
        return sorted({*globals(), *__all__})


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
