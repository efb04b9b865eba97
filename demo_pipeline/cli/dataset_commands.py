"""The commands `export`, `report`, `diff`, `revalidate`, `prune`, `stats` and `validate`."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import (
    AsJson,
    byte_text,
    print_csv,
    print_error,
    print_json,
    print_line,
)
from demo_pipeline.cli.environment import (
    INVALID,
    OK,
    USAGE,
    open_workspace,
    refuse,
    usable_settings,
)
from demo_pipeline.files.shown_text import counted
from demo_pipeline.problems import Problem, Severity

if TYPE_CHECKING:
    from demo_pipeline.runs.dataset_diff import DatasetDiff

# Maximum number of printed problems with the same code, and of printed lines of a comparison.
_SHOWN = 20
_Dest = Annotated[Path, typer.Argument(help="A directory that is empty or does not exist.")]
_Compared = Annotated[
    str,
    typer.Argument(
        metavar="VERSION|EXPORT_DIR",
        help="A dataset such as `sft` (its current version) or `sft@ID` (another version), the id "
        "of a version, or a folder that `export` wrote.",
    ),
]


def export(
    dest: _Dest,
    *,
    hub_layout: Annotated[
        bool,
        typer.Option(
            help="Write a single dataset for the Hugging Face Hub: Parquet files that contain the "
            "images, and a card."
        ),
    ] = False,
) -> None:
    """Copy the datasets to a directory as plain files, either all of them or none.

    Only the exports in the setting `datasets.exports` are copied. Equal images are stored once, as
    hard links, if the file system supports hard links.
    """
    from demo_pipeline.exports.dataset_stages import INDEX_STAGE
    from demo_pipeline.runs.damage import damage_in_datasets
    from demo_pipeline.runs.export import export_datasets, export_hub_layout
    from demo_pipeline.runs.stages import is_built, training_exports

    workspace = open_workspace()
    if hub_layout:
        for config in export_hub_layout(workspace, dest):
            rows = ", ".join(f"{split} {count}" for split, count in config.rows.items())
            total = byte_text(sum(config.sizes.values()))
            print_line(f"{config.table.config}: {rows or 'no row, not listed'} ({total})")
        print_line(f"to share it: hf upload NAME {dest} --repo-type dataset")
        for problem in damage_in_datasets(workspace):
            print_error(f"left out: {problem}")
        return
    exports = (export.stage for export in training_exports().values())
    disabled = [stage.folder for stage in exports if not is_built(stage, workspace.settings)]
    written: Counter[str] = Counter()
    privacy = workspace.settings.privacy
    index = workspace.store.current(INDEX_STAGE.folder)
    for name, size in export_datasets(workspace.store, dest, disabled, privacy).items():
        print_line(f"{dest}/{name}")
        written[name.partition("/")[0]] += size
    sizes = ", ".join(f"{name} {byte_text(size)}" for name, size in written.items())
    print_line(f"written: {sizes}")
    privacy_sentence = str(index.manifest.summary.get("privacy", "")) if index else ""
    if privacy_sentence:
        print_line(privacy_sentence)
    for problem in damage_in_datasets(workspace):
        print_error(f"left out: {problem}")


def report(
    dest: _Dest,
    *,
    screens: Annotated[
        bool, typer.Option(help="Show screenshots and task texts, or only counts.")
    ] = True,
) -> None:
    """Write a folder with static web pages about demonstrations and datasets, for sharing.

    The pages need no server and no network, and never contain typed text.
    """
    from demo_pipeline.reports.report import write_report

    written = write_report(open_workspace(), dest, screens=screens)
    print_line(
        f"{dest}/index.html: {counted(written.demonstrations, 'demonstrations')}, "
        f"{counted(written.steps, 'steps')}, {counted(written.pictures, 'pictures')}, "
        f"{byte_text(written.size)}"
    )


def diff(before: _Compared, after: _Compared, *, as_json: AsJson = False) -> None:
    """Compare two versions of datasets: show added, removed and changed rows, but no text."""
    from demo_pipeline.runs.dataset_diff import compare_datasets

    comparisons = compare_datasets(open_workspace(), before, after)
    if as_json:
        print_json([asdict(comparison) for comparison in comparisons])
        return
    for comparison in comparisons:
        _print_diff(comparison)


def _print_diff(comparison: "DatasetDiff") -> None:
    """Prints the counts of a comparison, then a line with a count for each kind of difference."""
    changes = Counter(row.change for row in comparison.differences)
    print_line(f"{comparison.stage}: {comparison.before} → {comparison.after}")
    print_line(
        f"{comparison.rows[0]} → {comparison.rows[1]} rows: {changes['added']} added, "
        f"{changes['removed']} removed, {changes['changed']} changed"
    )
    groups = Counter[str]()
    for row in comparison.differences:
        parts = f": {', '.join(row.parts)}" if row.parts else ""
        split = row.split or "no split"
        groups[f"{row.change} of {row.demonstration} ({split}){parts}"] += 1
    for words, count in [*groups.items()][:_SHOWN]:
        print_line(f"{count:>6} {words}")
    if len(groups) > _SHOWN:
        print_line(f"       and {len(groups) - _SHOWN} lines more; --json has every row")


def revalidate() -> None:
    """Read every stored output and document, and report files that differ from their hash."""
    from demo_pipeline.runs.damage import damage_problem, verify_outputs
    from demo_pipeline.store.documents import damaged_documents

    workspace = open_workspace()
    verified = verify_outputs(workspace)
    documents = damaged_documents(workspace.store)
    for damage in verified.damages:
        print_line(str(damage_problem(damage)))
    for document in documents:
        print_line(str(document))
    count = len(verified.damages) + len(documents)
    print_line(f"{verified.outputs} outputs, {count} problems")
    raise typer.Exit(INVALID if count else OK)


def prune(
    *,
    grace_hours: Annotated[
        float,
        typer.Option(min=0, help="Keep versions that were replaced at most this many hours ago."),
    ] = 24.0,
) -> None:
    """Delete old versions of outputs that nothing refers to."""
    deleted = open_workspace().store.prune(grace_hours * 3600)
    print_line(f"{len(deleted)} old versions removed")


def stats(
    query: Annotated[
        str | None, typer.Argument(help="A SELECT over the views. [default: print the statistics]")
    ] = None,
    *,
    all_tables: Annotated[
        bool, typer.Option("--all", help="Print every statistics table.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the answer as CSV.")] = False,
    views: Annotated[
        bool, typer.Option("--views", help="Print an SQL script that creates the views.")
    ] = False,
) -> None:
    """Print statistics of the datasets, or the answer to an SQL query (DuckDB).

    A query is a single SELECT over the views that `--views` shows. It can read only files of the
    store. Rows that are wider than the terminal are printed as a list of names and values.
    """
    import duckdb

    from demo_pipeline.runs import queries

    if as_csv and (query is None or as_json):
        raise typer.BadParameter("--csv needs a query, and cannot be combined with --json")
    workspace = open_workspace()
    if views:
        for line in queries.views_script(workspace.store.url).splitlines():
            print_line(line)
        return
    try:
        tables = (
            {"answer": queries.run_query(workspace, query)}
            if query is not None
            else queries.current_statistics(workspace)
        )
    except duckdb.Error as error:
        if query is None:
            raise
        refuse(str(error).partition("\n")[0])
    if not tables:
        url = workspace.store.url
        print_error(f"{url} has no dataset yet; build the datasets with `demo-pipeline run`")
        raise typer.Exit(INVALID)
    if as_json:
        print_json(tables)
    elif as_csv:
        print_csv(tables["answer"])
    else:
        from demo_pipeline.cli.tables import print_statistics

        print_statistics(tables, everything=all_tables or query is not None)


def _format_name(value: str) -> str:
    """Checks the value of `--kind`."""
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
            help="Format of PATH, such as recording. [default: recognised by the files]",
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Print every problem with its code and byte offset, not only 20 of each code.",
        ),
    ] = False,
) -> None:
    """Validate a recording, a trajectory, a dataset in any exported format, or OSWorld tasks.

    Exits with 0 if PATH is valid (warnings are allowed), 1 if it is invalid, and 2 if it cannot be
    checked.
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
        _print_problems(problems, verbose=verbose)
        result = f"invalid: {invalid} errors" if invalid else "valid"
        print_line(f"{path}: {name} {result}, {len(problems) - invalid} warnings")
    raise typer.Exit(INVALID if invalid else OK)


def _format_of(path: Path, kind: str | None) -> str:
    """Returns `kind` or, if it is None, the format recognised from the files at a path.

    Ends the command if the path does not exist, is not recognised, or cannot be read.
    """
    from demo_pipeline.runs.validation import FORMATS, recognise, unreadable_files

    name = kind
    if not path.exists():
        why = "does not exist"
    elif not (path.is_file() or path.is_dir()):
        why = "is not a regular file or a folder, but a device, a pipe or a socket"
    elif (name := kind or recognise(path)) is None:
        why = f"not recognised as {', '.join(FORMATS)}; name the format with --kind"
    elif (unreadable := next(unreadable_files(path), None)) is not None:
        print_error(unreadable)
        raise typer.Exit(USAGE)
    else:
        return name
    print_error(f"{path}: {why}")
    raise typer.Exit(USAGE)


def _print_problems(problems: Sequence[Problem], *, verbose: bool) -> None:
    """Prints the first `_SHOWN` problems with each code, or all with byte offsets if `verbose`."""
    most = sys.maxsize if verbose else _SHOWN
    counts = Counter[str]()
    for problem in problems:
        counts[problem.code] += 1
        byte = "" if problem.byte is None else f", byte {problem.byte}"
        details = f" [{problem.code}{byte}]" if verbose else ""
        if counts[problem.code] <= most:
            print_line(f"{problem.severity}: {problem}{details}")
    for code, count in counts.items():
        if verbose:
            print_line(f"{code}: {count}")
        elif count > most:
            print_line(f"{code}: {count - most} more; -v shows them")
