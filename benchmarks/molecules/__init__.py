"""Molecules: simulate a protein that folds, learn its dynamics, compare with counting. See `__main__`."""
