"""Modules that need an optional package are not collected for doctests where it is missing."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("skpro") else ["src/ncprob/skpro.py"]
