"""Benchmarks: run as modules from the project folder, for example `python -m benchmarks.answers`."""
