"""`write_report`: gather, render, and put the page in its place whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from tqdm.auto import tqdm

from ncprob._files import check_writable, replacing
from ncprob._version import __version__
from ncprob.report.figures import BANDS, band_pictures, calibration_pictures, spectrum_picture, strength_picture
from ncprob.report.findings import (
    COVERAGES,
    coverage_tables,
    describe_inputs,
    describe_targets,
    score_tables,
    warnings_in_words,
)
from ncprob.report.panel import panel_data
from ncprob.report.strength import strengths
from ncprob.report.study import Study

NEEDED = ("matplotlib", "plotly", "jinja2")


def write_report(
    model: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str],
    title: str | None = None,
    *,
    progress: bool | Literal["auto"] = "auto",
) -> Path:
    """Write one self-contained HTML page about a fitted model, tried on the rows of X and y; returns its path.

    The page holds a summary of the data, scores beside two simple baselines, coverage, calibration, strength of
    dependence, the strongest inputs, warnings in words, and a panel to pick x and read the law of y. It needs no
    network; plotly's script is inside and makes up most of its 5 MB.

    Parameters
    ----------
    model : NCPRegressor or NCPClassifier
        Fitted on a table.
    X, y : arrays or data frames
        Rows that had no part in `fit`; of more than 5,000, as many are taken evenly.
    path : path
        Where the page goes; an existing file is replaced once the new page is complete.
    title : str, optional
        Heading of the page.
    progress : bool or "auto"
        A progress bar; `"auto"` shows it on a terminal only.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from ncprob import NCPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> model = NCPRegressor(max_steps=30, coordinates="raw", random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(model, X, X[:, 0], folder + "/report.html")
    ...     page.read_text()[:15]
    '<!DOCTYPE html>'
    """
    _check_tools()
    check_writable(path)
    study = Study.of(model, X, y)
    total = len(study.test.names) + min(BANDS, len(study.test.names)) + 5
    disable = None if progress == "auto" else not progress
    with tqdm(total=total, desc="report", disable=disable, leave=False) as bar:

        def tick(done: str) -> None:
            bar.set_postfix_str(done[:40])
            bar.update()

        text = _render(_contents(study, title, tick))
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return Path(path)


def _contents(study: Study, title: str | None, tick: Callable[[str], None]) -> dict[str, Any]:
    """All that the template shows."""
    tables = score_tables(study)
    tick("scores")
    ranked = strengths(study, tick)
    dependence = _dependence(study)
    tick("dependence")
    coverage = [] if study.is_classifier else coverage_tables(study, ranked[0].position)
    calibration = calibration_pictures(study)
    tick("calibration")
    panel = panel_data(study, ranked)
    tick("panel")
    return {
        "title": title or _default_title(study),
        "version": __version__,
        "created": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "study": study,
        "model_name": type(study.model).__name__,
        "calibrated": getattr(study.model, "_calibrator", None) is not None,
        "inputs": describe_inputs(study.training),
        "targets": describe_targets(study),
        "tables": tables,
        "coverages": COVERAGES,
        "coverage": coverage,
        "strongest": ranked[0].name,
        "calibration": calibration,
        "dependence": dependence,
        "spectrum": None if dependence is None else spectrum_picture(dependence),
        "strength": strength_picture(ranked),
        "bands": [] if study.is_classifier else band_pictures(study, ranked, tick),
        "warnings": warnings_in_words(study, tables),
        "panel": panel,
    }


def _default_title(study: Study) -> str:
    asked = "class probabilities" if study.is_classifier else ", ".join(study.targets[:3])
    return f"Report: {asked}"


def _dependence(study: Study) -> Any:
    """Strength of dependence on the training rows, None where there are too few."""
    try:
        return study.model.dependence()
    except ValueError:
        return None


def _render(contents: dict[str, Any]) -> str:
    """Fill the template. jinja2 escapes every value by itself; what is marked safe is plotly's script alone."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ncprob", "report/templates"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("report.html").render(plotly=get_plotlyjs(), **contents)


# -------------------------------------------------------------------- files


def _check_tools() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f"Reports need {', '.join(missing)}: pip install 'ncprob[plot]'.")
