"""Order of the gallery: that of the table in examples/README.md, so that there is one list to keep."""

import re
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


class ReadmeOrder:
    """Sort key of sphinx-gallery: the place of a script in the table; what is not listed comes last."""

    def __init__(self, folder: str) -> None:
        self.listed = re.findall(r"\((plot_\w+\.py)\)", (EXAMPLES / "README.md").read_text())

    def __call__(self, name: str) -> int:
        """Place of the script `name`."""
        return self.listed.index(name) if name in self.listed else len(self.listed)

    def __repr__(self) -> str:
        """Without an address in memory: sphinx builds anew when settings read differently."""
        return "ReadmeOrder"
