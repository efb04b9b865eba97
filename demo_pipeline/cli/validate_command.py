"""The command `demo-pipeline validate`.

Belongs here: its output and exit codes. The formats are registered in pipeline/.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from demo_pipeline.cli.console import print_error, print_json, print_line
from demo_pipeline.cli.environment import INVALID, OK, USAGE, usable_settings
from demo_pipeline.problems import Problem, Severity

_SHOWN_OF_A_CODE = 20


def _format_name(value: str) -> str:
    """A name in the registry, which is imported only when `--kind` is used."""
    from demo_pipeline.pipeline.validation import FORMATS

    if value not in FORMATS:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(FORMATS)}")
    return value


def validate_path(
    path: Annotated[Path, typer.Argument(help="A file or directory.")],
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            parser=_format_name,
            metavar="FORMAT",
            help="Format of PATH, e.g. recording; default: recognised by its files.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a report as JSON.")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Print every problem, with its code and byte offset; otherwise 20 of each code.",
        ),
    ] = False,
) -> None:
    """Validate a recording, a trajectory, a dataset in any exported format, or OSWorld tasks.

    Exits with 0 if PATH is valid (warnings are allowed), 1 if not, 2 if it cannot be checked.
    """
    from demo_pipeline.pipeline.validation import FORMATS, recognise, unreadable_files, validate

    if not path.exists():
        print_error(f"{path}: does not exist")
        raise typer.Exit(USAGE)
    if not (path.is_file() or path.is_dir()):
        print_error(f"{path}: is not a regular file or a folder, but a device, a pipe or a socket")
        raise typer.Exit(USAGE)
    name = kind or recognise(path)
    if name is None:
        print_error(f"{path}: not recognised as {', '.join(FORMATS)}; name the format with --kind")
        raise typer.Exit(USAGE)
    refused = next(unreadable_files(path), None)
    if refused is not None:
        print_error(refused)
        raise typer.Exit(USAGE)
    problems = validate(path.absolute(), name, usable_settings())
    invalid = sum(problem.severity is Severity.ERROR for problem in problems)
    if as_json:
        report = {"path": str(path), "kind": name, "valid": not invalid}
        report["problems"] = [problem.as_dict() for problem in problems]
        print_json(report)
    else:
        _print_report(path, name, problems, invalid, verbose=verbose)
    raise typer.Exit(INVALID if invalid else OK)


def _print_report(
    path: Path, name: str, problems: Sequence[Problem], invalid: int, *, verbose: bool
) -> None:
    counts: Counter[str] = Counter()
    for problem in problems:
        counts[problem.code] += 1
        if verbose:
            print_line(f"{problem.severity}: {problem} {_details(problem)}")
        elif counts[problem.code] <= _SHOWN_OF_A_CODE:
            print_line(f"{problem.severity}: {problem}")
    for code, count in counts.items():
        if verbose:
            print_line(f"{code}: {count}")
        elif count > _SHOWN_OF_A_CODE:
            print_line(f"{code}: {count - _SHOWN_OF_A_CODE} more; -v shows them")
    result = f"invalid: {invalid} errors" if invalid else "valid"
    print_line(f"{path}: {name} {result}, {len(problems) - invalid} warnings")


def _details(problem: Problem) -> str:
    """The code of a problem, and its byte offset if it is known: `[invalid_json, byte 77]`."""
    byte = "" if problem.byte is None else f", byte {problem.byte}"
    return f"[{problem.code}{byte}]"
