"""Shapes are types: jaxtyping annotations of the tensor modules are checked while tests run."""

from jaxtyping import install_import_hook

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
)

install_import_hook([f"ncprob.{name}" for name in TENSOR_MODULES], "beartype.beartype")
