"""Markdown of the report."""

from __future__ import annotations

import pandas as pd


def table(frame: pd.DataFrame) -> str:
    """The frame with its columns as head; the index is left out."""
    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + "---|" * len(frame.columns)]
    lines += ["| " + " | ".join(str(value) for value in row) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines)
