"""Exports the CUDAG records as chats: messages of role and content.

Belongs here: what a line holds. Screenshots are named by their path in the dataset. The format is
described in `formats.messages`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from demo_pipeline.common.json_files import dump_json
from demo_pipeline.datasets.cudag_records import (
    DRAFT_EXCLUSIONS,
    PROVENANCE_COLUMNS,
    RecordDraft,
    record_drafts,
)
from demo_pipeline.datasets.export_loop import (
    Excluded,
    ExportSummary,
    export_records,
    plan_export,
)
from demo_pipeline.datasets.prompts import system_prompt, tool_schema
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory
from demo_pipeline.datasets.split_files import FileRecord, SplitFiles, replace_surrogates
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.cudag.tool_calls import render_json, render_tool_calls
from demo_pipeline.formats.desktopd.reader import Trajectory
from demo_pipeline.formats.messages.models import SCHEMA_FILE, committed_schema
from demo_pipeline.settings import DatasetSettings

_PART = pa.struct([("type", pa.string()), ("text", pa.string())])
_FUNCTION = pa.struct([("name", pa.string()), ("arguments", pa.string())])
_CALL = pa.struct([("type", pa.string()), ("function", _FUNCTION)])


def messages_table_schema(settings: DatasetSettings) -> pa.Schema:
    """The schema of the Parquet files: the keys of a line as typed columns."""
    turn = [("role", pa.string()), ("content", pa.list_(_PART))]
    turn += [("tool_calls", pa.list_(_CALL))] if _structured(settings) else []
    columns = [
        ("id", pa.string()),
        ("trajectory_id", pa.string()),
        ("step_index", pa.int32()),
        ("application", pa.string()),
        ("task_type", pa.string()),
        ("messages", pa.list_(pa.struct(turn))),
        ("images", pa.list_(pa.string())),
    ]
    return pa.schema([*columns, ("tools", pa.string())] if _structured(settings) else columns)


def build_messages(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Write `train`, `val`, `test` (and `held_out`) as JSON Lines and Parquet, and the schema.

    The same steps, prompts and splits as the CUDAG dataset.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: what takes part, the splits, and `tool_call_format`.
    """
    plan = plan_export(trajectories, settings)
    with SplitFiles(out, messages_table_schema(settings)) as files:
        summary = export_records(plan, MessagesExporter(files, settings))
    dump_json(out / SCHEMA_FILE, committed_schema())
    return summary


@dataclass(frozen=True, slots=True)
class MessagesExporter:
    """Makes a chat of every CUDAG record; see `export_loop.Exporter`."""

    unit: ClassVar[str] = "samples"
    exclusions: ClassVar[Sequence[str]] = DRAFT_EXCLUSIONS
    provenance_columns: ClassVar[Sequence[str]] = PROVENANCE_COLUMNS
    files: SplitFiles
    settings: DatasetSettings

    @property
    def instruction_in_prompt(self) -> bool:
        """False when the prompt names the target instead."""
        return self.settings.prompt_style != "grounding"

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[FileRecord | Excluded]:
        """Yield the chat of every CUDAG record."""
        for draft in record_drafts(trajectory, rows, candidate.hidden, self.settings):
            if isinstance(draft, Excluded):
                yield draft
            else:
                line = message_line(draft, candidate, self.settings)
                files = {line["images"][0]: draft.screenshot}
                yield FileRecord(line, line, draft.prompt, draft.screenshot, files)

    def write(self, split: Split, record: FileRecord) -> None:
        """Add a chat to the files."""
        self.files.write(split, record.line, record.row)
        self.files.link_files(record.files)


def message_line(
    draft: RecordDraft, candidate: Candidate, settings: DatasetSettings
) -> dict[str, Any]:
    """A record as the export writes it; see `formats.messages.MessagesRecord`."""
    path = draft.screenshot.relative_to(candidate.source.path).as_posix()
    line = {
        "id": draft.id,
        "trajectory_id": replace_surrogates(draft.metadata.trajectory_id),
        "step_index": draft.metadata.step_index,
        "application": replace_surrogates(draft.metadata.application),
        "task_type": draft.metadata.task_type,
        "messages": [
            {"role": "system", "content": [_text(message_prompt(settings))]},
            {"role": "user", "content": [{"type": "image"}, _text(draft.prompt)]},
            _structured_answer(draft) if _structured(settings) else _text_answer(draft),
        ],
        "images": [f"trajectories/{candidate.source.id}/{path}"],
    }
    tools = json.dumps([tool_schema(settings)], ensure_ascii=False)
    return line | ({"tools": tools} if _structured(settings) else {})


def message_prompt(settings: DatasetSettings) -> str:
    """The system prompt, without the tool when calls are structured.

    The chat template then adds the tool and how to call it.
    """
    prompt = system_prompt(settings)
    return prompt.partition("\n\nThere is one tool:")[0] if _structured(settings) else prompt


def _structured(settings: DatasetSettings) -> bool:
    return settings.tool_call_format == "structured"


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": replace_surrogates(text)}


def _text_answer(draft: RecordDraft) -> dict[str, Any]:
    return {"role": "assistant", "content": [_text(render_tool_calls(draft.calls)[0])]}


def _structured_answer(draft: RecordDraft) -> dict[str, Any]:
    functions = [call.as_dict() for call in draft.calls]
    calls = [
        {
            "type": "function",
            "function": {
                "name": function["name"],
                "arguments": replace_surrogates(render_json(function["arguments"])[0]),
            },
        }
        for function in functions
    ]
    return {"role": "assistant", "content": [], "tool_calls": calls}
