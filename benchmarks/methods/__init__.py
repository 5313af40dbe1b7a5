"""Methods of the benchmark by name; a rival's package is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError
from typing import Any

from benchmarks.methods.base import Method

# name: module of the adapter, class, options
REGISTRY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ncprob": ("ncprob_default", "NcprobDefault", {}),
    "NCP": ("ncp", "PaperNCP", {"postprocessing": "none"}),
    "NCP-C": ("ncp", "PaperNCP", {"postprocessing": "centering"}),
    "NCP-W": ("ncp", "PaperNCP", {"postprocessing": "whitening"}),
    "quantile-forest": ("quantile_forest", "QuantileForest", {}),
    "ngboost": ("ngboost", "NGBoost", {}),
    "catboost": ("catboost", "CatBoost", {}),
    "lightgbm": ("lightgbm", "LightGBM", {}),
    "NNKCDE": ("nnkcde", "NNKCDE", {}),
    "NNKCDE-tuned": ("nnkcde", "NNKCDE", {"tuned": True}),
    "CKDE": ("ckde", "CKDE", {}),
    "LSCDE": ("lscde", "LSCDE", {}),
    "LSCDE-tuned": ("lscde", "LSCDE", {"bandwidth": 0.1, "ridge": 1e-3}),
    "FC": ("flexcode", "FlexCode", {}),
    "FC-joint": ("flexcode", "FlexCode", {"joint": True, "n_estimators": 1000}),
    "RFCDE": ("rfcde", "RFCDE", {}),
    "LCDE": ("lincde", "LinCDE", {}),
    "RFSCP": ("rfscp", "RFSCP", {}),
    "CQR": ("cqr", "CQR", {}),
    "CCP": ("ccp", "CCP", {}),
    "NF": ("nf", "PaperFlow", {}),
    "NF-spline": ("nf", "PaperFlow", {"kind": "spline", "hidden_size": 128}),
    "NF-tuned": ("nf", "TunedFlow", {}),
    "DDPM": ("ddpm", "DDPM", {}),
    "DDPM-tuned": ("ddpm", "DDPM", {"tuned": True}),
    "MDN": ("mdn", "MDN", {}),
    "MDN-tuned": ("mdn", "MDN", {"tuned": True}),
    "KMN": ("kmn", "KMN", {}),
    "KMN-tuned": ("kmn", "KMN", {"tuned": True}),
    "without mixture": ("ablation", "Without", {"ingredient": "mixture", "coordinates": "raw", "tree_inputs": True}),
    "without trees": ("ablation", "Without", {"ingredient": "trees", "tree_inputs": False}),
    "without gates": ("ablation", "Without", {"ingredient": "gates", "input_gate": 0.0}),
    "without clusters": ("ablation", "Without", {"ingredient": "clusters"}),
    "without normal laws": ("ablation", "Without", {"ingredient": "normal laws"}),
    "without pool": ("ablation", "Without", {"ingredient": "pool"}),
    "without smoothing": ("ablation", "Without", {"ingredient": "smoothing"}),
    "without leaving the operator out": ("ablation", "Without", {"ingredient": "choice of rank 0", "rank": 16}),
}


def names() -> list[str]:
    """All methods."""
    return list(REGISTRY)


def method_class(name: str) -> type[Method]:
    """Class of a method; a missing package is an ImportError that names the remedy."""
    if name not in REGISTRY:
        raise ValueError(f"A method must be one of {', '.join(REGISTRY)}; got {name!r}. Check the spelling.")
    module, kind, _ = REGISTRY[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), kind)
    except ModuleNotFoundError as error:
        raise _not_installed(name, error) from error


def version(name: str) -> str:
    """Version that a method's results are of; a missing package is an ImportError that names the remedy."""
    try:
        return method_class(name).version()
    except PackageNotFoundError as error:
        raise _not_installed(name, error) from error


def _not_installed(name: str, error: ModuleNotFoundError) -> ImportError:
    return ImportError(
        f"Method {name!r} needs the package {error.name!r}, which is not installed. "
        "Install the extra: pip install -e '.[benchmarks]'."
    )


def make(name: str, **options: Any) -> Method:
    """A method ready to fit; options go to its class, for example `max_steps=50` for a quick test of NCP."""
    kind = method_class(name)
    return kind(**(REGISTRY[name][2] | options))
