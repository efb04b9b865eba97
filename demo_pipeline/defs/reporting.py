"""What people read in the UI: metadata of outputs, results of checks, reasons of failures, the log.

Belongs here: converting summaries, checks and problems into Dagster's types. None of them contains
typed text, and no text of a recording is markup in it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pyarrow as pa

from demo_pipeline.files.logs import LOG_ROOT, PassedOnLog
from demo_pipeline.files.parquet import column_descriptions, column_domains
from demo_pipeline.files.shown_text import markdown_table, markdown_text, plain_line, plain_values
from demo_pipeline.problems import Problem
from demo_pipeline.runs.failures import RETRY_SECONDS, TransientError, UploadChangedError
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.stage import Check
from demo_pipeline.store.versions import CheckOutcome
from demo_pipeline.trajectories.contact_sheets import FIRST_SHEET
from demo_pipeline.trajectories.trajectory_stages import CONTACT_SHEETS_STAGE, TRAJECTORIES_STAGE

# Events cannot be wiped when a demonstration is forgotten: these stay in the store.
_KEPT_OUT = {"preview", "task_id", "error_message"}
_SHOWN = 20
_ONE = {"demonstrations": 1}
_REPEATED = "files of this version, which still have the SHA-256 of its manifest"
_WORDS = {
    "cursor_checked": "hit tests of the recorder",
    "ledger": "input events",
    "quarantined": "quarantined demonstrations",
}
WHY = "why"  # in the metadata of a failure: one of the next three
REFUSED, MAY_PASS, DEFECT = "the recording is at fault", "it may pass", "a defect of the pipeline"


def metadata_of(summary: Mapping[str, Any]) -> dict[str, dg.MetadataValue]:
    """One entry per key: numbers as numbers, lists of texts as Markdown lists, others as JSON."""
    return {key: _value(value) for key, value in summary.items() if value is not None}


def _value(value: Any) -> dg.MetadataValue:
    match value:
        case bool():
            return dg.MetadataValue.bool(value)
        case int():
            return dg.MetadataValue.int(value)
        case float():
            return dg.MetadataValue.float(value)
        case str():
            return dg.MetadataValue.text(plain_line(value))
        case list() if all(isinstance(item, str) for item in value):
            lines = [f"- {markdown_text(item)}" for item in value]
            return dg.MetadataValue.md("\n".join(lines) or "none")
        case _:
            return dg.MetadataValue.json(plain_values(value))


def report_metadata(made: BuildResult, location: str) -> dict[str, dg.MetadataValue]:
    """The counts, location, version, number of files and size in bytes of an output.

    No picture and no word of a task is in it: it says where they are.
    """
    shown: dict[str, dg.MetadataValue] = {"path": dg.MetadataValue.path(location)}
    if made.stage == TRAJECTORIES_STAGE.name:
        shown["review"] = dg.MetadataValue.text(f"demo-pipeline review {made.demonstration}")
    if made.stage == CONTACT_SHEETS_STAGE.name:
        shown["contact_sheet"] = dg.MetadataValue.path(f"{location}/{FIRST_SHEET}")
    counts = {key: value for key, value in made.summary.items() if key not in _KEPT_OUT}
    rest = {
        "outcome": made.status.value,
        "version": made.version.id if made.version else None,
        "files": made.files,
        "output_bytes": made.size,
    }
    return metadata_of(counts) | shown | metadata_of(rest)


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


def compared(check: Check[Any], made: BuildResult) -> dict[str, int]:
    """What a check compared in one output: the counts, and the files when nothing was built."""
    counts = check.counts(made.summary) or _ONE
    return counts | {_REPEATED: made.files} if made.status is Status.CACHED else dict(counts)


def check_result(
    outcome: CheckOutcome, compared_counts: Mapping[str, int] | None = None
) -> dg.AssetCheckResult:
    """The result of a check with its problems; its metadata count what it compared."""
    counts = compared_counts or outcome.metadata
    return dg.AssetCheckResult(
        check_name=outcome.name,
        passed=outcome.passed,
        severity=dg.AssetCheckSeverity.ERROR if outcome.blocking else dg.AssetCheckSeverity.WARN,
        description=first_sentence(outcome.problems)
        if outcome.problems
        else _compared_words(counts),
        metadata={
            "problems": dg.MetadataValue.int(len(outcome.problems)),
            **({"compared": dg.MetadataValue.json(dict(counts))} if counts else {}),
            **({"found": problem_table(outcome.problems)} if outcome.problems else {}),
        },
    )


def first_sentence(problems: Sequence[Problem]) -> str:
    """The first problem in plain text, and how many more there are."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{plain_line(str(problems[0]))}{more}" if problems else "refused without a reason"


def _compared_words(compared: Mapping[str, int]) -> str:
    counts = []
    for name, number in compared.items():
        words = _WORDS.get(name, name.replace("_", " "))
        words = words.removesuffix("s") if number == 1 and name != _REPEATED else words
        counts.append(f"{number} {words}")
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
