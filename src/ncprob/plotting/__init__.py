"""Pictures with matplotlib. Every function returns its axes and shows nothing by itself.

`ax=` draws on axes of your own. A legend is added to axes that the function makes; on yours, call `finish(ax)`.
"""

from ncprob.plotting._canvas import finish
from ncprob.plotting.bands import plot_bands, plot_fan
from ncprob.plotting.checks import plot_calibration, plot_history, plot_pit, plot_spectrum
from ncprob.plotting.laws import plot_cdf, plot_density, plot_joint

__all__ = [
    "finish",
    "plot_bands",
    "plot_calibration",
    "plot_cdf",
    "plot_density",
    "plot_fan",
    "plot_history",
    "plot_joint",
    "plot_pit",
    "plot_spectrum",
]
