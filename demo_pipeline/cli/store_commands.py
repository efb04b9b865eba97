"""The commands `export`, `revalidate`, `prune`, `stats`, `validate` and `doctor`.

Belongs here: their arguments, output and exit codes.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import (
    byte_text,
    print_csv,
    print_error,
    print_json,
    print_line,
    print_records,
)
from demo_pipeline.cli.environment import INVALID, OK, USAGE, set_dagster_home, usable_settings
from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.settings import Settings

if TYPE_CHECKING:
    from demo_pipeline.runs.workspace import Workspace

_SHOWN_OF_A_CODE = 20


def export(
    dest: Annotated[Path, typer.Argument(help="A directory that is empty or does not exist.")],
    *,
    hub_layout: Annotated[
        bool,
        typer.Option(
            help="One dataset for the Hugging Face Hub instead: pictures in Parquet shards, a card."
        ),
    ] = False,
) -> None:
    """Copy the datasets to a directory, as plain files, completely or not at all.

    Every picture is stored once, under all its names. Exports that `datasets.exports` does not name
    are not copied.
    """
    from demo_pipeline.runs.export import export_datasets
    from demo_pipeline.runs.stages import training_exports
    from demo_pipeline.runs.workspace import Workspace

    settings = usable_settings()
    if hub_layout:
        _export_hub_layout(Workspace.open(settings), dest)
        return
    disabled = [stage.folder for stage in training_exports() if not stage.is_built(settings)]
    copied = export_datasets(Workspace.open(settings).store, dest, disabled)
    written: Counter[str] = Counter()
    for name, size in copied.items():
        print_line(f"{dest}/{name}")
        written[name.partition("/")[0]] += size
    sizes = ", ".join(f"{name} {byte_text(size)}" for name, size in written.items())
    print_line(f"written: {sizes}")


def _export_hub_layout(workspace: "Workspace", dest: Path) -> None:
    from demo_pipeline.runs.export import export_hub_layout

    for config in export_hub_layout(workspace, dest):
        rows = ", ".join(f"{split} {count}" for split, count in config.rows.items())
        size = byte_text(sum(config.sizes.values()))
        print_line(f"{config.table.config}: {rows or 'no row, not listed'} ({size})")
    print_line(f"to share it: hf upload NAME {dest} --repo-type dataset")


def revalidate() -> None:
    """Read every committed output and compare each file with its manifest."""
    from demo_pipeline.runs.damage import damage_problem, verify_outputs
    from demo_pipeline.runs.workspace import Workspace

    found = verify_outputs(Workspace.open(usable_settings()))
    for damage in found.damages:
        print_line(str(damage_problem(damage)))
    print_line(f"{found.outputs} outputs, {len(found.damages)} problems")
    raise typer.Exit(INVALID if found.damages else OK)


def prune(
    *,
    grace_hours: Annotated[
        float, typer.Option(min=0, help="Keep versions that were in use within this many hours.")
    ] = 24.0,
) -> None:
    """Delete old versions of outputs that nothing refers to any more."""
    from demo_pipeline.runs.workspace import Workspace

    deleted = Workspace.open(usable_settings()).store.collect(grace_hours * 3600, time.time())
    print_line(f"{len(deleted)} old versions removed")


def stats(
    query: Annotated[
        str | None, typer.Argument(help="One SELECT over the views (default: the statistics).")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the answer as CSV.")] = False,
    views: Annotated[
        bool, typer.Option("--views", help="Print an SQL script that creates the views.")
    ] = False,
) -> None:
    """Print statistics of the datasets, or the answer to an SQL query (DuckDB).

    A query is one SELECT. It reads the files of the store and no others, and changes nothing.
    Records that are wider than the terminal are printed one below the other.
    """
    if as_csv and (query is None or as_json):
        raise typer.BadParameter("--csv prints the answer to a query, and not as JSON too")
    settings, form = usable_settings(), "json" if as_json else "csv" if as_csv else ""
    raise typer.Exit(print_views(settings) if views else print_tables(settings, query, form))


def print_views(settings: Settings) -> int:
    """Print the script that creates the views over this store, for any DuckDB."""
    from demo_pipeline.datasets.views import views_sql, views_with_files
    from demo_pipeline.runs.queries import require_local
    from demo_pipeline.runs.stages import store_views

    root, known = require_local(settings.store), store_views()
    for line in views_sql(known, str(root), views_with_files(known, root)).splitlines():
        print_line(line)
    return OK


def print_tables(settings: Settings, query: str | None, form: str = "") -> int:
    """Print the statistics, or the answer to `query`.

    Args:
        settings: with the store.
        query: one SELECT; None: the statistics.
        form: `json`, `csv`, or empty for people.

    Returns:
        0; 1 when the store has no dataset yet; 2 when DuckDB refuses the query.
    """
    import duckdb

    from demo_pipeline.runs.queries import current_statistics, run_query
    from demo_pipeline.runs.workspace import Workspace

    workspace = Workspace.open(settings)
    try:
        tables = (
            {"answer": run_query(workspace, query)}
            if query is not None
            else current_statistics(workspace)
        )
    except duckdb.Error as error:
        if query is None:
            raise
        for line in str(error).splitlines():
            print_error(f"demo-pipeline: {line}")
        return USAGE
    if not tables:
        url = workspace.store.url
        print_error(f"{url} has no dataset yet; build the datasets with `demo-pipeline run`")
        return INVALID
    if form == "json":
        print_json(tables)
    elif form == "csv":
        print_csv(tables["answer"])
    else:
        for name, rows in tables.items():
            print_records(name.replace("_", " "), rows)
    return OK


def _format_name(value: str) -> str:
    """A name in the registry, which is imported only when `--kind` is used."""
    from demo_pipeline.runs.validation import FORMATS

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
    from demo_pipeline.runs.validation import validate

    name = _format_of(path, kind)
    problems = validate(path.absolute(), name, usable_settings(anywhere=True))
    invalid = sum(problem.severity is Severity.ERROR for problem in problems)
    if as_json:
        report = {"path": str(path), "kind": name, "valid": not invalid}
        report["problems"] = [problem.as_dict() for problem in problems]
        print_json(report)
    else:
        _print_problems(problems, shown=sys.maxsize if verbose else _SHOWN_OF_A_CODE)
        result = f"invalid: {invalid} errors" if invalid else "valid"
        print_line(f"{path}: {name} {result}, {len(problems) - invalid} warnings")
    raise typer.Exit(INVALID if invalid else OK)


def _format_of(path: Path, kind: str | None) -> str:
    """The format of a path, `kind` if it is given; ends the command when it cannot be checked."""
    from demo_pipeline.runs.validation import FORMATS, recognise, unreadable_files

    name = kind
    if not path.exists():
        why = "does not exist"
    elif not (path.is_file() or path.is_dir()):
        why = "is not a regular file or a folder, but a device, a pipe or a socket"
    elif (name := kind or recognise(path)) is None:
        why = f"not recognised as {', '.join(FORMATS)}; name the format with --kind"
    elif (refused := next(unreadable_files(path), None)) is not None:
        print_error(refused)
        raise typer.Exit(USAGE)
    else:
        return name
    print_error(f"{path}: {why}")
    raise typer.Exit(USAGE)


def _print_problems(problems: Sequence[Problem], shown: int) -> None:
    """Print the first of each code, and counts; all of them with code and byte offset."""
    verbose, counts = shown == sys.maxsize, Counter[str]()
    for problem in problems:
        counts[problem.code] += 1
        byte = "" if problem.byte is None else f", byte {problem.byte}"
        details = f" [{problem.code}{byte}]" if verbose else ""
        if counts[problem.code] <= shown:
            print_line(f"{problem.severity}: {problem}{details}")
    for code, count in counts.items():
        if verbose:
            print_line(f"{code}: {count}")
        elif count > shown:
            print_line(f"{code}: {count - shown} more; -v shows them")


@reduced_python_gc()  # a quarter of the time of importing Dagster
def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a report as JSON.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 for warnings too.")] = False,
    expect_daemon: Annotated[
        bool, typer.Option("--expect-daemon", help="It is an error when no daemon runs.")
    ] = False,
) -> None:
    """Examine versions, roots, free space, runs, sensors, quarantine and leftovers.

    Exits with 0 if nothing needs anybody, 1 if something is wrong, 2 for unusable settings.
    """
    from demo_pipeline.defs.instance_health import examine_instance
    from demo_pipeline.runs.health import HealthLevel, examine_workspace
    from demo_pipeline.runs.workspace import Workspace

    workspace = Workspace.open(usable_settings())
    set_dagster_home()
    findings = [
        *examine_workspace(workspace),
        *examine_instance(workspace, expect_daemon=expect_daemon),
    ]
    levels = [finding.level for finding in findings]
    errors, warnings = levels.count(HealthLevel.ERROR), levels.count(HealthLevel.WARNING)
    if as_json:
        report = {
            "healthy": not errors,
            "errors": errors,
            "warnings": warnings,
            "findings": [finding.as_dict() for finding in findings],
        }
        print_json(report)
    else:
        for finding in findings:
            print_line(f"{finding.level.value:<8}{finding.check}: {finding.message}")
        print_line(f"{errors} errors, {warnings} warnings")
    raise typer.Exit(INVALID if errors or (strict and warnings) else OK)
