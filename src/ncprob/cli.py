"""The command line: options in, calls of `commands` and `questions` out, one clear line for what went wrong."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from ncprob._version import __version__

try:
    import typer
    from typer.core import TyperCommand, TyperGroup
except ImportError:  # the command line is an extra
    sys.exit("The command line needs typer: pip install 'ncprob[cli]'")

BAD_INPUT = 2
BAD = (ValueError, TypeError, OSError, ImportError)
LAST_WORDS = "ncprob.last_words"  # what shell completion looks at


class OneLineErrors(TyperGroup):
    """Commands that tell bad input in one line on standard error, with status 2; `--debug` anywhere shows all."""

    def main(self, args: Sequence[str] | None = None, *positional: Any, **settings: Any) -> Any:
        """Run, and leave with a status."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words
        words = [word for word in words if word != "--debug"]
        settings["standalone_mode"] = False
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = _show_warning  # type: ignore[assignment]
            try:
                status = super().main(words, *positional, **settings)
            except BrokenPipeError:
                raise  # nobody reads on, which typer knows how to leave with
            except Exception as error:
                if debug:
                    raise
                status = _refusal(error)
        sys.exit(status if isinstance(status, int) else 0)


def _refusal(error: Exception) -> int:
    """Tell an error in one line; one that is not about the input is a mistake of ours and is raised again."""
    message = getattr(error, "format_message", None)  # wrong options and arguments
    if message is None and not isinstance(error, BAD):
        raise error
    text = str(error) if message is None else message()
    if not text.strip() and message is not None:  # no arguments at all: typer shows the help
        error.show()  # type: ignore[attr-defined]
        return BAD_INPUT
    typer.echo(f"Error: {' '.join(text.split())}", err=True)
    return BAD_INPUT


def _show_warning(message: Warning | str, *_: Any) -> None:
    typer.echo(f"Warning: {' '.join(str(message).split())}", err=True)


class SeveralValues(TyperCommand):
    """A command whose repeatable options take several values at once: `--quantiles 0.05 0.5 0.95`.

    Numbers are taken as long as they come. Words are taken once all arguments of the command are there, so that
    `fit --target price data.csv` keeps its file.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, as the parser wants it."""
        words = _repeated(args, self.params)
        ctx.meta[LAST_WORDS] = words[-2:]
        return super().parse_args(ctx, words)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Once all arguments are there, a word may be one more value of the option before it."""
        before = ctx.meta.get(LAST_WORDS, [])
        for param in self.params:
            if not incomplete.startswith("-") and len(before) == 2 and param.multiple and before[0] in param.opts:
                return param.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def _repeated(args: Sequence[str], params: Sequence[Any]) -> list[str]:
    options = {name: param for param in params for name in param.opts if param.param_type_name == "option"}
    wanted = sum(param.param_type_name == "argument" for param in params)
    spread: list[str] = []
    seen, i = 0, 0
    while i < len(args):
        word, param = args[i], options.get(args[i])
        if word == "--":
            return spread + list(args[i:])
        spread.append(word)
        i += 1
        if param is None:
            seen += word == "-" or not word.startswith("-")
        elif not param.is_flag and i < len(args):
            spread.append(args[i])
            i += 1
            while param.multiple and i < len(args) and (_is_number(args[i]) or (seen >= wanted and _is_word(args[i]))):
                spread += [word, args[i]]
                i += 1
    return spread


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_word(text: str) -> bool:
    return not text.startswith("-")


def _coordinates() -> list[str]:
    from ncprob.base import COORDINATES

    return list(COORDINATES)


def _devices() -> list[str]:
    return ["auto", "cpu", "cuda"]


def _tasks() -> list[str]:
    from ncprob import datasets

    return datasets.names()


app = typer.Typer(
    name="ncprob",
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
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
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Learn a conditional distribution once, then ask it anything.

    Start with `ncprob demo`, or with a table of your own:

        ncprob fit data.csv --target price --out model/

        ncprob ask model/ --where "rooms > 6" --prob "price > 30"
    """


Model = Annotated[str, typer.Argument(help="Directory of a model written by `ncprob fit` or `save`.")]
Data = Annotated[str, typer.Argument(help="Table: csv, csv.gz or parquet; - reads csv from standard input.")]
Delimiter = Annotated[
    str | None, typer.Option(help="What separates columns of csv files; found out by itself if not given.")
]
Quantiles = Annotated[list[float] | None, typer.Option(help="Levels of quantiles, one or several.")]
Interval = Annotated[list[float] | None, typer.Option(help="Coverages of shortest intervals, one or several.")]
Mean = Annotated[bool, typer.Option("--mean", help="The conditional mean.")]
Std = Annotated[bool, typer.Option("--std", help="The conditional standard deviation.")]


@app.command(cls=SeveralValues)
def fit(
    data: Data,
    target: Annotated[list[str], typer.Option(help="Column to learn the law of; several for a joint law.")],
    out: Annotated[Path, typer.Option(help="Directory for the model; a model there is replaced.")],
    drop: Annotated[list[str] | None, typer.Option(help="Columns to leave out.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="Columns of numbers to take as text (codes, years).")] = None,
    weights: Annotated[str | None, typer.Option(help="Column with weights of the rows.")] = None,
    classify: Annotated[bool, typer.Option("--classify", help="Learn classes; text targets always are.")] = False,
    test: Annotated[str | None, typer.Option(help="Table to score the model on.")] = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")] = False,
    seed: Annotated[int, typer.Option(help="Seed: the same one gives the same model.")] = 0,
    max_steps: Annotated[int, typer.Option(help="Most steps of training.")] = 2000,
    coordinates: Annotated[
        str, typer.Option(help="auto, raw (the paper) or residual.", autocompletion=_coordinates)
    ] = "auto",
    rank: Annotated[int | None, typer.Option(help="Number of singular functions; chosen if not given.")] = None,
    ensemble_size: Annotated[int, typer.Option(help="Networks to average.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=_devices)] = "auto",
    delimiter: Delimiter = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no summary.")] = False,
) -> None:
    """Learn the law of a column given the others, and save the model.

    Text columns become categories. A target of text gives a classifier.

    Examples:

        ncprob fit homes.csv --target price --out model/

        ncprob fit homes.csv --target price area --drop id --out model/ --test later.csv

        zcat homes.csv.gz | ncprob fit - --target kind --out model/

        ncprob fit 'parts/*.parquet' --target price --out model/
    """
    from ncprob import commands  # late: torch takes seconds to import, and --help should not wait for it

    estimator = {
        "random_state": seed,
        "max_steps": max_steps,
        "coordinates": coordinates,
        "rank": "auto" if rank is None else rank,
        "ensemble_size": ensemble_size,
        "device": device,
        "progress": False if quiet else "auto",
    }
    roles = commands.Roles(target, drop or (), weights, text or (), classify)
    settings = commands.FitSettings(out, estimator, delimiter, drop_missing, test)
    commands.fit(data, roles, settings, (lambda _: None) if quiet else typer.echo)


@app.command(cls=SeveralValues)
def predict(
    model: Model,
    data: Data,
    quantiles: Quantiles = None,
    interval: Interval = None,
    mean: Mean = False,
    std: Std = False,
    cdf: Annotated[list[float] | None, typer.Option(help="Values t for P(target ≤ t), one or several.")] = None,
    keep: Annotated[list[str] | None, typer.Option(help="Columns of the table to write too; '*' for all.")] = None,
    out: Annotated[
        str, typer.Option(help="File to write: csv, csv.gz or parquet; - is standard output. A directory for many.")
    ] = "-",
    workers: Annotated[
        str, typer.Option(help="Processes to share many files out over, or ray for a Ray cluster.")
    ] = "1",
    delimiter: Delimiter = None,
) -> None:
    """Predict the rows of a table: means, quantiles, intervals, or probabilities of classes.

    Without options it writes the mean and the 5, 50 and 95 % quantiles. Columns that the model does not know are
    not looked at. A directory or a pattern of Parquet files gives a directory of Parquet files, one for each; started
    again, it goes on where it was stopped.

    Examples:

        ncprob predict model/ new.csv --quantiles 0.05 0.5 0.95 --interval 0.9 --out predictions.csv

        ncprob predict model/ new.parquet --mean --keep id --out predictions.parquet

        ncprob predict model/ 'in/*.parquet' --mean --cdf 20 30 --out out/ --workers 4
    """
    from ncprob import commands, questions

    wanted = questions.Wanted(mean, std, quantiles or (), interval or (), cdf or ())
    if commands.many_files(data):
        commands.predict_many(model, data, wanted, out, keep or (), delimiter, workers, typer.echo)
    elif workers != "1":
        raise ValueError(f"--workers is for many files; {data} is one. Leave it out.")
    else:
        commands.predict(model, data, wanted, out, keep or (), delimiter)


@app.command(cls=SeveralValues)
def ask(
    model: Model,
    where: Annotated[str | None, typer.Option(help="Condition on the inputs; all training rows if not given.")] = None,
    prob: Annotated[list[str] | None, typer.Option(help="Condition on the target whose probability is asked.")] = None,
    quantiles: Quantiles = None,
    interval: Interval = None,
    mean: Mean = False,
    std: Std = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Ask about the target given a condition on the inputs, without data and without training.

    Conditions compare columns by < <= > >= == != and in, with and, or, not, + - * / and parentheses. Text stands in
    quotes, names that are not plain words in back quotes.

    Examples:

        ncprob ask model/ --where "rooms > 6 and age < 20" --prob "price > 30" --mean

        ncprob ask model/ --where "kind in ('flat', 'loft') and 2 < rooms <= 4" --quantiles 0.1 0.9

        ncprob ask model/ --where "`year built` >= 1990" --prob "20 < price <= 30" --json
    """
    from ncprob import questions

    wanted = questions.Wanted(mean, std, quantiles or (), interval or ())
    questions.ask(model, where, prob or (), wanted, typer.echo, as_json)


@app.command()
def info(model: Model) -> None:
    """Tell what a saved model is: target, inputs, settings, and how far to trust it.

    Example:

        ncprob info model/
    """
    from ncprob import questions

    questions.info(model, typer.echo)


@app.command()
def report(
    model: Model,
    data: Data,
    out: Annotated[str, typer.Option(help="Page to write.")] = "report.html",
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    delimiter: Delimiter = None,
) -> None:
    """Write one self-contained HTML page about a model and how it does on a table it has not seen.

    Example:

        ncprob report model/ test.csv --out report.html
    """
    from ncprob import commands

    commands.report(model, data, out, title, delimiter)


@app.command(cls=SeveralValues)
def benchmark(
    task: Annotated[
        list[str] | None,
        typer.Option(help="Simulators, one or several; by default the quick ones.", autocompletion=_tasks),
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows to fit on.")] = 2000,
    max_steps: Annotated[int, typer.Option(help="Most steps of training.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of data and fits.")] = 0,
) -> None:
    """Fit simulated data and print the distance to the exact truth, beside that of knowing nothing of X.

    Example:

        ncprob benchmark --task LinearGaussian Cauchy --rows 10000
    """
    from ncprob import benchmark as quick

    typer.echo(f"{'':<16}{'KS':>8}{'without X':>12}{'seconds':>10}")
    for result in quick.run(task or quick.QUICK, rows, seed, max_steps=max_steps):
        typer.echo(f"{result.name:<16}{result.ks:>8.3f}{result.ks_marginal:>12.3f}{result.seconds:>10.1f}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(help="Seed of the simulated data and the fit.")] = 0,
) -> None:
    """Fit on simulated data and print the answers beside the exact truth. No download, under a minute.

    Example:

        ncprob demo --out demo-output
    """
    from ncprob.demo import run

    run(out, random_state=seed)


def main() -> None:
    """Entry point of the `ncprob` command."""
    app()
