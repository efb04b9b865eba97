"""What people read in the UI: metadata of outputs, results of checks, reasons of failures, the log.

Belongs here: converting summaries, checks and problems into Dagster's types. None of them contains
typed text, and no text of a recording is markup in it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow as pa

from demo_pipeline.files.logs import LOG_ROOT, PassedOnLog
from demo_pipeline.files.parquet import column_descriptions, column_domains
from demo_pipeline.files.shown_text import (
    counted,
    markdown_table,
    markdown_text,
    plain_line,
    plain_values,
)
from demo_pipeline.problems import Problem
from demo_pipeline.runs.failures import RETRY_SECONDS, TransientError, UploadChangedError
from demo_pipeline.runs.results import MAY_PASS, BuildResult
from demo_pipeline.stage import Check
from demo_pipeline.store.versions import CheckOutcome
from demo_pipeline.trajectories.contact_sheets import FIRST_SHEET
from demo_pipeline.trajectories.trajectory_stages import CONTACT_SHEETS_STAGE, TRAJECTORIES_STAGE

_SHOWN = 20
_WORDS = {
    "cursor_checked": "hit tests of the recorder",
    "ledger": "input events",
    "quarantined": "quarantined demonstrations",
}
WHY = "why"  # in the metadata of a failure: one of those of runs/results.py


def dataset_metadata(made: BuildResult, location: str) -> dict[str, Any]:
    """The counts of a dataset, its location, version, number of files and size in bytes."""
    known = {key: value for key, value in made.summary.items() if value is not None}
    shown: dict[str, Any] = plain_values(known)
    return shown | {
        "path": dg.MetadataValue.path(location),
        "outcome": made.status.value,
        "version": made.version.id if made.version else "",
        "files": made.files,
        "output_bytes": made.size,
    }


def stage_metadata(made: BuildResult, location: str) -> dict[str, Any]:
    """What the UI draws and links of an output of a demonstration, of which there are thousands.

    Numbers other than 0, warnings, and where the rest is. No picture and no word of a task is in
    it: events cannot be wiped when a demonstration is forgotten.
    """
    found = made.summary.items()
    shown: dict[str, Any] = {key: one for key, one in found if one and type(one) in {int, float}}
    if warnings := made.summary.get("warnings"):
        shown["warnings"] = dg.MetadataValue.json(plain_values(warnings))
    shown |= {"path": dg.MetadataValue.path(location), "outcome": made.status.value}
    if made.stage == TRAJECTORIES_STAGE.name:
        shown["review"] = f"demo-pipeline review {made.demonstration}"
    if made.stage == CONTACT_SHEETS_STAGE.name:
        shown["contact_sheet"] = dg.MetadataValue.path(f"{location}/{FIRST_SHEET}")
    return shown


def columns_metadata(schema: pa.Schema | None) -> dict[str, Any]:
    """The columns of an asset's table as its metadata; nothing without a table."""
    if schema is None:
        return {}
    descriptions, domains = column_descriptions(schema), dict(column_domains(schema))
    columns = [
        dg.TableColumn(
            name=field.name,
            type=str(field.type),
            description=descriptions[field.name],
            constraints=dg.TableColumnConstraints(
                nullable=field.nullable,
                other=[domains[field.name].words] if field.name in domains else None,
            ),
        )
        for field in schema
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def check_specs(
    asset: str,
    checks: Sequence[Check[Any]],
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
) -> list[dg.AssetCheckSpec]:
    """The checks of a stage as Dagster declares them."""
    return [
        dg.AssetCheckSpec(
            check.name,
            asset=asset,
            description=check.description,
            blocking=check.blocking,
            partitions_def=partitions_def,
        )
        for check in checks
    ]


def records(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue:
    """The first twenty rows of plain values as a Markdown table."""
    names = list(rows[0]) if rows else ["nothing"]
    return text_table(names, [list(row.values()) for row in rows[:_SHOWN]], len(rows))


def check_result(
    outcome: CheckOutcome, compared: Mapping[str, int] = MappingProxyType({})
) -> dg.AssetCheckResult:
    """The result of a check: what it compared, or its problems.

    Its rows are three in Dagster's databases: what is said of a check is said once.
    """
    problems = outcome.problems
    found = {"problems": dg.MetadataValue.int(len(problems)), "found": problem_table(problems)}
    if compared:
        found["compared"] = dg.MetadataValue.json(dict(compared))
    return dg.AssetCheckResult(
        check_name=outcome.name,
        passed=outcome.passed,
        severity=dg.AssetCheckSeverity.ERROR if outcome.blocking else dg.AssetCheckSeverity.WARN,
        description=first_sentence(problems) if problems else _compared_words(compared),
        metadata=found if problems else {},
    )


def first_sentence(problems: Sequence[Problem]) -> str:
    """The first problem in plain text, and how many more there are."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{plain_line(str(problems[0]))}{more}" if problems else "refused without a reason"


def _compared_words(compared: Mapping[str, int]) -> str:
    counts = [
        counted(number, _WORDS.get(name, name.replace("_", " ")))
        for name, number in compared.items()
    ]
    return f"no problem in {', '.join(counts)}" if counts else "no problem"


def failure(problems: Sequence[Problem], why: str, before: str = "") -> dg.Failure:
    """What ends a run of a demonstration or a dataset: its first words are the sentence."""
    metadata = {WHY: dg.MetadataValue.text(why), "found": problem_table(problems)}
    return dg.Failure(before + first_sentence(problems), metadata=metadata, allow_retries=False)


def retried(context: dg.AssetExecutionContext, error: TransientError) -> Exception:
    """What to raise after an error that may pass: three more attempts, then its own sentence."""
    attempts = context.retry_number
    if attempts < len(RETRY_SECONDS) and not isinstance(error, UploadChangedError):
        context.log.warning("%s; it is tried again", error.reason)
        return dg.RetryRequested(len(RETRY_SECONDS), seconds_to_wait=RETRY_SECONDS[attempts])
    tried = f"; tried {attempts + 1} times" if attempts else ""
    said = f"{plain_line(error.reason)}{tried}"
    return dg.Failure(said, metadata={WHY: MAY_PASS}, allow_retries=False)


def problem_table(problems: Sequence[Problem]) -> dg.MetadataValue:
    """The first twenty problems as a Markdown table."""
    rows = [(p.severity, p.location, p.message, p.remedy) for p in problems[:_SHOWN]]
    return text_table(("severity", "where", "what", "what to do"), rows, len(problems))


def text_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], total: int
) -> dg.MetadataValue:
    """A Markdown table of any text, and how many of `total` rows it does not show."""
    cells = [["" if one is None else markdown_text(str(one)) for one in row] for row in rows]
    more = f"\n\n… and {total - len(cells)} more" if total > len(cells) else ""
    return dg.MetadataValue.md(markdown_table(head, cells) + more)


@contextmanager
def package_log(tell: Callable[[int, str], None]) -> Iterator[None]:
    """Repeat what this thread logs at INFO and above, in a run's log or to who keeps it for one.

    Runs of other threads have logs of their own.
    """
    logger, thread = logging.getLogger(LOG_ROOT), threading.get_ident()
    handler, before = PassedOnLog(tell), logger.level
    handler.addFilter(lambda record: record.thread == thread)
    handler.begin()
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
