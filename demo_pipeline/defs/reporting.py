"""What a person reads in the UI: metadata of outputs, verdicts of checks, reasons of failures.

Belongs here: turning summaries, checks and problems into Dagster's own types. Nothing here carries
what was typed; the summaries do not either.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from demo_pipeline.common.parquet import column_descriptions
from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.quarantine import QuarantineRecord
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.storage.store.version_manifest import CheckOutcome

_SHOWN = 20


def metadata_of(summary: Mapping[str, Any]) -> dict[str, dg.MetadataValue]:
    """One entry a key: numbers as numbers, lists as a Markdown list, objects as JSON."""
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
            return dg.MetadataValue.text(value)
        case list() if all(isinstance(item, str) for item in value):
            return dg.MetadataValue.md("\n".join(f"- {item}" for item in value) or "none")
        case _:
            return dg.MetadataValue.json(value)


def made_metadata(made: BuildResult, location: str) -> dict[str, dg.MetadataValue]:
    """The summary of an output, where it lies, and which version it is."""
    entries = metadata_of(made.summary)
    entries["path"] = dg.MetadataValue.path(location)
    entries["outcome"] = dg.MetadataValue.text(made.status)
    if made.version is not None:
        entries["version"] = dg.MetadataValue.text(made.version.id)
        entries["files"] = dg.MetadataValue.int(len(made.version.manifest.files))
        size = sum(file.size for file in made.version.manifest.files)
        entries["output_bytes"] = dg.MetadataValue.int(size)
    return entries


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """A Parquet schema as the UI shows it."""
    descriptions = column_descriptions(schema)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=str(field.type),
                description=descriptions[field.name],
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def picture(jpeg: bytes, alt: str) -> dg.MetadataValue:
    """A small picture inside the metadata."""
    data = base64.b64encode(jpeg).decode()
    return dg.MetadataValue.md(f"![{alt}](data:image/jpeg;base64,{data})")


def pictures(pngs: Mapping[str, bytes]) -> dg.MetadataValue:
    """Small PNG pictures below each other, by name."""
    data = {name: base64.b64encode(png).decode() for name, png in pngs.items()}
    shown = [f"![{name}](data:image/png;base64,{text})" for name, text in data.items()]
    return dg.MetadataValue.md("\n\n".join(shown))


def records(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue:
    """Rows of plain values as a Markdown table, the first twenty."""
    names = list(rows[0]) if rows else ["nothing"]
    lines = [names, ["---"] * len(names), *(list(row.values()) for row in rows[:_SHOWN])]
    text = "\n".join("| " + " | ".join(cell(str(one)) for one in line) + " |" for line in lines)
    more = f"\n\n… and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return dg.MetadataValue.md(text + more)


def check_result(outcome: CheckOutcome, *, halts: bool = True) -> dg.AssetCheckResult:
    """A verdict with what, where and what to do; `halts`: whether an error stops the run."""
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
    """Problems as a Markdown table, the first twenty."""
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
    """Why one demonstration stands still; not retried, since its input is at fault."""
    found = list(problems)
    lines = "\n".join(f"  {problem}" for problem in found[:_SHOWN])
    return dg.Failure(
        description=f"{demonstration} cannot go on at {stage}:\n{lines}",
        metadata={
            "demonstration": demonstration,
            "stage": stage,
            "found": problem_table(found),
            "what_to_do": "correct the upload, then materialise raw_recordings and what follows "
            "again; the other demonstrations are not affected",
        },
        allow_retries=False,
    )


def recorded(record: QuarantineRecord) -> list[Problem]:
    """The problems of a quarantine record."""
    return [
        Problem.from_dict(values, demonstration=record.demonstration) for values in record.problems
    ]


def worst(problems: Sequence[Problem]) -> list[Problem]:
    """Errors first."""
    return sorted(problems, key=lambda problem: problem.severity is not Severity.ERROR)
