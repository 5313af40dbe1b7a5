"""The command line: `ncprob demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from ncprob._version import __version__

try:
    import typer
except ImportError:  # the command line is an extra
    sys.exit("The command line needs typer: pip install 'ncprob[cli]'")

app = typer.Typer(
    name="ncprob",
    help="Learn a conditional distribution once, then ask it anything.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ncprob {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn a conditional distribution once, then ask it anything."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(help="Seed of the simulated data and the fit.")] = 0,
) -> None:
    """Fit on simulated data and print the answers beside the exact truth. No download, under a minute."""
    from ncprob.demo import run  # late: torch takes seconds to import, and --help should not wait for it

    run(out, random_state=seed)


def main() -> None:
    """Entry point of the `ncprob` command."""
    app()
