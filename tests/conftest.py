"""Shapes are types: jaxtyping annotations of the tensor modules are checked while tests run."""

import torch
from jaxtyping import install_import_hook

torch.set_num_threads(1)  # small tensors gain nothing from more, and test workers share the cores

TENSOR_MODULES = (
    "linalg",
    "statistics",
    "losses",
    "encoders",
    "operator",
    "weighted",
    "preprocessing",
    "truncation",
    "calibration",
    "dependence",
    "transport",
    "mixture",
    "smoothing",
    "trees",
    "coordinates",
    "novelty",
)

install_import_hook([f"ncprob.{name}" for name in TENSOR_MODULES], "beartype.beartype")
