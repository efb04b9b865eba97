"""What people read in the UI: metadata of outputs, results of checks, reasons of failures.

Belongs here: converting summaries, checks and problems into Dagster's types. None of them contains
typed text.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from demo_pipeline.common.parquet import column_descriptions
from demo_pipeline.datasets.contact_sheets import FIRST_SHEET
from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_run import StageReport, draw_preview
from demo_pipeline.pipeline.demonstration_stages import CONTACT_SHEETS_STAGE
from demo_pipeline.pipeline.stage_types import Check
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.storage.store.version_manifest import CheckOutcome

_SHOWN = 20
_PLOTTED = ("actions", "steps")  # of a batch: single numbers, which the UI draws over partitions


def metadata_of(summary: Mapping[str, Any]) -> dict[str, dg.MetadataValue]:
    """One entry per key: numbers as numbers, lists of texts as Markdown lists, others as JSON.

    The UI keeps the order; a preview comes first.
    """
    ordered = sorted(summary.items(), key=lambda item: item[0] != "preview")
    return {key: _value(value) for key, value in ordered if value is not None}


def _value(value: Any) -> dg.MetadataValue:
    match value:
        case bool():
            return dg.MetadataValue.bool(value)
        case int():
            return dg.MetadataValue.int(value)
        case float():
            return dg.MetadataValue.float(value)
        case str():
            return dg.MetadataValue.text(value)
        case list() if all(isinstance(item, str) for item in value):
            return dg.MetadataValue.md("\n".join(f"- {item}" for item in value) or "none")
        case _:
            return dg.MetadataValue.json(value)


def result_metadata(result: BuildResult, location: str) -> dict[str, dg.MetadataValue]:
    """The summary, location, version, number of files and size in bytes of an output."""
    made = StageReport.of("", result)
    if made is not None:
        return report_metadata(made, location)
    entries = metadata_of(result.summary)
    entries["path"] = dg.MetadataValue.path(location)
    entries["outcome"] = dg.MetadataValue.text(result.status)
    return entries


def report_metadata(made: StageReport, location: str) -> dict[str, dg.MetadataValue]:
    """The same entries for an output that a worker process built."""
    entries = metadata_of(made.summary)
    entries["path"] = dg.MetadataValue.path(location)
    entries["outcome"] = dg.MetadataValue.text(made.status)
    entries["version"] = dg.MetadataValue.text(made.version)
    entries["files"] = dg.MetadataValue.int(made.files)
    entries["output_bytes"] = dg.MetadataValue.int(made.size)
    return entries


def short_metadata(made: StageReport, location: str) -> dict[str, dg.MetadataValue]:
    """The same in little space, for batches: one entry for the location, one for all the rest."""
    entries = {
        "path": dg.MetadataValue.path(location),
        "summary": dg.MetadataValue.json(
            {
                **made.summary,
                "outcome": made.status,
                "version": made.version,
                "files": made.files,
                "output_bytes": made.size,
            }
        ),
    }
    plotted = {key: made.summary[key] for key in _PLOTTED if key in made.summary}
    return entries | metadata_of(plotted)


def columns_metadata(schema: pa.Schema | None) -> dict[str, Any]:
    """The columns of an asset's table as its metadata; nothing without a table."""
    if schema is None:
        return {}
    descriptions = column_descriptions(schema)
    columns = [
        dg.TableColumn(
            name=field.name,
            type=str(field.type),
            description=descriptions[field.name],
            constraints=dg.TableColumnConstraints(nullable=field.nullable),
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


def preview(workspace: Workspace, stage: str, demonstration: str) -> dict[str, dg.MetadataValue]:
    """A small picture of some steps, and where the contact sheet with all of them begins.

    It goes before other entries. Nothing for a stage without one, or when none is wanted.
    """
    if not workspace.settings.execution.contact_sheets_in_ui:
        return {}
    small = draw_preview(workspace, stage, demonstration)
    if small is None:
        return {}
    entries: dict[str, dg.MetadataValue] = {"preview": picture(small, "steps")}
    if stage == CONTACT_SHEETS_STAGE.name:
        location = f"{workspace.store.url}/{CONTACT_SHEETS_STAGE.output(demonstration)}"
        entries["contact_sheet"] = dg.MetadataValue.path(f"{location}/{FIRST_SHEET}")
    return entries


def picture(jpeg: bytes, alt: str) -> dg.MetadataValue:
    """A small JPEG picture inside the metadata."""
    data = base64.b64encode(jpeg).decode()
    return dg.MetadataValue.md(f"![{alt}](data:image/jpeg;base64,{data})")


def pictures(pngs: Mapping[str, bytes]) -> dg.MetadataValue:
    """Small PNG pictures, one below the other."""
    data = {name: base64.b64encode(png).decode() for name, png in pngs.items()}
    shown = [f"![{name}](data:image/png;base64,{text})" for name, text in data.items()]
    return dg.MetadataValue.md("\n\n".join(shown))


def records(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue:
    """The first twenty rows of plain values as a Markdown table."""
    names = list(rows[0]) if rows else ["nothing"]
    lines = [names, ["---"] * len(names), *(list(row.values()) for row in rows[:_SHOWN])]
    text = "\n".join("| " + " | ".join(cell(str(item)) for item in line) + " |" for line in lines)
    more = f"\n\n… and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return dg.MetadataValue.md(text + more)


def check_result(outcome: CheckOutcome, *, halts: bool = True) -> dg.AssetCheckResult:
    """The result of a check with its problems; `halts`: whether a blocking failure ends the run."""
    blocking = outcome.blocking and halts
    return dg.AssetCheckResult(
        check_name=outcome.name,
        passed=outcome.passed,
        severity=dg.AssetCheckSeverity.ERROR if blocking else dg.AssetCheckSeverity.WARN,
        description=_sentence(outcome.problems),
        metadata={
            "problems": dg.MetadataValue.int(len(outcome.problems)),
            **({"found": problem_table(outcome.problems)} if outcome.problems else {}),
        },
    )


def _sentence(problems: Sequence[Problem]) -> str:
    if not problems:
        return "nothing found"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"


def problem_table(problems: Sequence[Problem]) -> dg.MetadataValue:
    """The first twenty problems as a Markdown table."""
    rows = [
        f"| {p.severity} | {cell(p.location)} | {cell(p.message)} | {cell(p.remedy)} |"
        for p in problems[:_SHOWN]
    ]
    head = ["| severity | where | what | what to do |", "| --- | --- | --- | --- |"]
    rest = [f"\n… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    return dg.MetadataValue.md("\n".join([*head, *rows, *rest]))


def cell(text: str) -> str:
    """Text that stays inside one cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def failure(problems: Iterable[Problem], stage: str, demonstration: str) -> dg.Failure:
    """Why a demonstration is quarantined; not retried, since its input is at fault."""
    found = list(problems)
    lines = "\n".join(f"  {problem}" for problem in found[:_SHOWN])
    return dg.Failure(
        description=f"{demonstration} failed in {stage}:\n{lines}",
        metadata={
            "demonstration": demonstration,
            "stage": stage,
            "found": problem_table(found),
            "what_to_do": "correct the upload, then materialize raw_recordings and the later "
            "stages again; other demonstrations are not affected",
        },
        allow_retries=False,
    )


def errors_first(problems: Sequence[Problem]) -> list[Problem]:
    """The problems, errors before warnings."""
    return sorted(problems, key=lambda problem: problem.severity is not Severity.ERROR)
