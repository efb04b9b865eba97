"""Converts summaries, checks, failures and the log to the types that Dagster's UI shows.

The results contain no typed text, and text of a recording is never shown as markup.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow as pa

from demo_pipeline.files.logs import LOG_ROOT, PassedOnLog
from demo_pipeline.files.parquet import column_descriptions, column_domains
from demo_pipeline.files.shown_text import counted, plain_line, plain_values
from demo_pipeline.observation.observation_stages import SCREENSHOTS_STAGE
from demo_pipeline.problems import Problem, errors
from demo_pipeline.runs.failures import RETRY_SECONDS, TransientError, UploadChangedError
from demo_pipeline.runs.results import TRANSIENT, BuildResult
from demo_pipeline.runs.vain_waits import VainWaits
from demo_pipeline.stage import Check, Stage
from demo_pipeline.store.versions import CheckOutcome
from demo_pipeline.trajectories.contact_sheets import FIRST_SHEET
from demo_pipeline.trajectories.trajectory_stages import CONTACT_SHEETS_STAGE, TRAJECTORIES_STAGE

# Key in the metadata of a failure. Its value is `REFUSED`, `TRANSIENT` or `DEFECT` of
# runs/results.py.
WHY = "why"
KEPT_VERSION = "a check failed, so the last good version is kept: "
_TABLE_ROWS = 20  # maximum number of problems in a table
_COUNT_NAMES = {  # nouns in messages, for counts whose key is not a suitable noun
    "cursor_checked": "hit tests of the recorder",
    "ledger": "input events",
    "quarantined": "quarantined demonstrations",
}
_PROBLEM_COLUMNS = dg.TableSchema.from_name_type_dict(
    {"severity": "string", "where": "string", "what": "string", "what to do": "string"}
)
_HAS_PICTURES = {SCREENSHOTS_STAGE.name, TRAJECTORIES_STAGE.name, CONTACT_SHEETS_STAGE.name}


def dataset_metadata(result: BuildResult, location: str) -> dict[str, Any]:
    """Returns metadata of a dataset: its counts, location, version, number of files and bytes."""
    summary = {key: value for key, value in result.summary.items() if value is not None}
    return {
        **plain_values(summary),
        "path": dg.MetadataValue.path(location),
        "outcome": result.status.value,
        "version": result.version.id if result.version else "",
        "files": result.files,
        "output_bytes": result.size,
    }


def stage_metadata(result: BuildResult, store_url: str) -> dict[str, Any]:
    """Returns metadata of an output: its counts, warnings, path and the path of its contact sheet.

    Counts of 0 are left out. Images and the text of the task are left out too, because Dagster
    cannot delete single events when a demonstration is forgotten.
    """
    metadata: dict[str, Any] = {
        key: value for key, value in result.summary.items() if value and type(value) in {int, float}
    }
    if warnings := result.summary.get("warnings"):
        metadata["warnings"] = dg.MetadataValue.json(plain_values(warnings))
    metadata["path"] = dg.MetadataValue.path(f"{store_url}/{result.output}")
    metadata["outcome"] = result.status.value
    if result.stage in _HAS_PICTURES:
        sheets = CONTACT_SHEETS_STAGE.output(result.demonstration)
        metadata["contact_sheet"] = dg.MetadataValue.path(f"{store_url}/{sheets}/{FIRST_SHEET}")
        metadata["review"] = f"demo-pipeline review {result.demonstration}"
    return metadata


def data_version(result: BuildResult) -> dg.DataVersion:
    """Returns the fingerprint of the content of an output as Dagster's data version."""
    return dg.DataVersion(result.content[:16])


def columns_metadata(schema: pa.Schema | None) -> dict[str, Any]:
    """Returns metadata with the columns of an asset's table, or {} if the asset has no table."""
    if schema is None:
        return {}
    descriptions = column_descriptions(schema)
    domains = dict(column_domains(schema))
    columns = []
    for field in schema:
        allowed_values = [domains[field.name].words] if field.name in domains else None
        columns.append(
            dg.TableColumn(
                name=field.name,
                type=str(field.type),
                description=descriptions[field.name],
                constraints=dg.TableColumnConstraints(
                    nullable=field.nullable, other=allowed_values
                ),
            )
        )
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def check_specs(
    asset: str,
    checks: Sequence[Check[Any]],
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
) -> list[dg.AssetCheckSpec]:
    """Returns Dagster's declarations of the checks of a stage."""
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


def stage_check_results(stage: Stage[Any], result: BuildResult) -> Iterator[dg.AssetCheckResult]:
    """Yields the results of the checks that a stage declares.

    If the output was up to date, the results are those of its last build, without the results of
    checks that the stage no longer declares.
    """
    checks = {check.name: check for check in stage.checks}
    for outcome in result.checks:
        if outcome.name in checks:
            yield check_result(outcome, checks[outcome.name].counts(result.summary))


def check_result(
    outcome: CheckOutcome, compared: Mapping[str, int] = MappingProxyType({})
) -> dg.AssetCheckResult:
    """Converts the outcome of a check to Dagster's result.

    The description names the first problem, or the numbers in `compared` if there are no problems.
    It must be short, because Dagster stores each result three times.

    Args:
        compared: how many items of each kind the check compared.
    """
    severity = dg.AssetCheckSeverity.ERROR if outcome.blocking else dg.AssetCheckSeverity.WARN
    if not outcome.problems:
        return dg.AssetCheckResult(
            check_name=outcome.name,
            passed=outcome.passed,
            severity=severity,
            description=_compared_words(compared),
        )
    error_count = len(errors(outcome.problems))
    warning_count = len(outcome.problems) - error_count
    description = first_sentence(outcome.problems)
    if outcome.passed:
        description = f"no error, {counted(warning_count, 'warnings')}: {description}"
    metadata = {
        "errors": dg.MetadataValue.int(error_count),
        "warnings": dg.MetadataValue.int(warning_count),
        "found": problem_table(outcome.problems),
    }
    if compared:
        metadata["compared"] = dg.MetadataValue.json(dict(compared))
    return dg.AssetCheckResult(
        check_name=outcome.name,
        passed=outcome.passed,
        severity=severity,
        description=description,
        metadata=metadata,
    )


def _compared_words(compared: Mapping[str, int]) -> str:
    counts = []
    for name, number in compared.items():
        counts.append(counted(number, _COUNT_NAMES.get(name, name.replace("_", " "))))
    return f"no problem in {', '.join(counts)}" if counts else "no problem"


def first_sentence(problems: Sequence[Problem]) -> str:
    """Returns the first problem as plain text, with the number of further problems."""
    if not problems:
        return "refused without a reason"
    sentence = plain_line(str(problems[0]))
    if len(problems) > 1:
        return f"{sentence} (and {len(problems) - 1} more)"
    return sentence


def failure(problems: Sequence[Problem], why: str, introduction: str = "") -> dg.Failure:
    """Returns the exception that fails a step; its message names the first problem.

    Args:
        why: the kind of failure, `REFUSED`, `TRANSIENT` or `DEFECT`.
    """
    metadata = {WHY: dg.MetadataValue.text(why), "found": problem_table(problems)}
    message = introduction + first_sentence(problems)
    return dg.Failure(message, metadata=metadata, allow_retries=False)


def retried(
    context: dg.AssetExecutionContext, error: TransientError, vain_waits: VainWaits
) -> Exception:
    """Returns the exception to raise after a transient error.

    The exception requests a retry after each of the first three attempts, and is a failure after
    the fourth.

    A step is not retried if its upload changed, or if all retries for the same cause failed earlier
    in the run.
    """
    attempts = context.retry_number
    message = plain_line(error.reason)
    if isinstance(error, UploadChangedError):
        pass
    elif error.trouble in vain_waits:
        message += "; this run has waited for it already, in vain"
    elif attempts < len(RETRY_SECONDS):
        context.log.warning("%s; the step is retried", error.reason)
        return dg.RetryRequested(len(RETRY_SECONDS), seconds_to_wait=RETRY_SECONDS[attempts])
    else:
        vain_waits.add(error.trouble)
        message += f"; tried {attempts + 1} times"
    return dg.Failure(message, metadata={WHY: TRANSIENT}, allow_retries=False)


def problem_table(problems: Sequence[Problem]) -> dg.MetadataValue:
    """Returns the first `_TABLE_ROWS` problems as a table. The UI shows cells as plain text."""
    records = []
    for problem in problems[:_TABLE_ROWS]:
        record = {
            "severity": problem.severity.value,
            "where": plain_line(problem.location),
            "what": plain_line(problem.message),
            "what to do": plain_line(problem.remedy),
        }
        records.append(dg.TableRecord(record))
    return dg.MetadataValue.table(records, schema=_PROBLEM_COLUMNS)


@contextmanager
def package_log(write: Callable[[int, str], None]) -> Iterator[None]:
    """Passes this thread's log messages of level INFO or above to `write`."""
    logger = logging.getLogger(LOG_ROOT)
    level_before = logger.level
    thread = threading.get_ident()
    handler = PassedOnLog(write)
    handler.addFilter(lambda record: record.thread == thread)
    handler.begin()
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level_before)
