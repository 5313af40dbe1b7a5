"""One self-contained HTML page about a fitted model: scores beside baselines, calibration, dependence, pictures.

Numbers are gathered from rows the caller gives, which should have had no part in `fit`; nothing is refitted but two
simple baselines. The page loads nothing from the network.
"""

from ncprob.report.writing import write_report

__all__ = ["write_report"]
