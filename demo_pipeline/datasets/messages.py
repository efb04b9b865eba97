"""Exports the CUDAG records as chats: messages of role and content.

Belongs here: what a line and the rows hold. The format is described in `formats.messages`; why the
rows differ from the line, in docs/trainers.md.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from demo_pipeline.common.dataset_settings import DatasetSettings
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
from demo_pipeline.datasets.prompts import action_sentence, system_prompt
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory
from demo_pipeline.datasets.split_files import FileRecord, SplitFiles, replace_surrogates
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.cudag.tool_calls import ACTION_LINE, render_tool_calls
from demo_pipeline.formats.desktopd.reader import Trajectory
from demo_pipeline.formats.messages.models import SCHEMA_FILE, committed_schema

PROMPT_COMPLETION = "prompt_completion"  # the folder of TRL's rows
_PICTURES_IN_MEMORY = 16  # rows; a PNG of the canvas is about 0.7 MB
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_IDENTITY = (
    ("id", pa.string()),
    ("trajectory_id", pa.string()),
    ("step_index", pa.int32()),
    ("application", pa.string()),
    ("task_type", pa.string()),
)


def messages_table_schema(settings: DatasetSettings) -> pa.Schema:
    """The schema of `<split>.parquet`: a chat whose content is text, and its pictures."""
    return _table_schema([("messages", _TURNS)], settings)


def prompt_completion_schema(settings: DatasetSettings) -> pa.Schema:
    """The schema of `prompt_completion/<split>.parquet`: the chat without and with the answer."""
    return _table_schema([("prompt", _TURNS), ("completion", _TURNS)], settings)


def _table_schema(chat: Sequence[tuple[str, pa.DataType]], settings: DatasetSettings) -> pa.Schema:
    picture = _PICTURE if settings.embed_images else pa.string()
    schema = pa.schema([*_IDENTITY, *chat, ("images", pa.list_(picture))])
    if not settings.embed_images:
        return schema
    # `datasets` decodes pictures only if this names them as pictures.
    features = {field.name: _feature(field.type) for field in schema}
    note = json.dumps({"info": {"features": features}})
    return schema.with_metadata({"huggingface": note})


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """A type of Arrow as `datasets` writes it into a schema."""
    if kind == _PICTURE:
        return {"_type": "Image"}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


def build_messages(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Write `train`, `val`, `test` (and `held_out`) as JSON Lines and Parquet, and the schema.

    The same steps, prompts and splits as the CUDAG dataset. `prompt_completion/` has the same
    records again as TRL's rows.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is created.
        settings: what takes part, the splits, `action_line` and `embed_images`.
    """
    plan = plan_export(trajectories, settings)
    rows = _PICTURES_IN_MEMORY if settings.embed_images else 512
    with (
        SplitFiles(out, messages_table_schema(settings), rows_in_memory=rows) as chats,
        SplitFiles(
            out / PROMPT_COMPLETION,
            prompt_completion_schema(settings),
            json_lines=False,
            rows_in_memory=rows,
        ) as pairs,
    ):
        summary = export_records(plan, MessagesExporter(chats, pairs, settings))
    dump_json(out / SCHEMA_FILE, committed_schema())
    return summary


@dataclass(frozen=True, slots=True)
class MessagesExporter:
    """Makes a chat of every CUDAG record; see `export_loop.Exporter`.

    Attributes:
        chats: the files of lines, and of rows with `messages`.
        pairs: the files of rows with `prompt` and `completion`.
    """

    unit: ClassVar[str] = "samples"
    exclusions: ClassVar[Sequence[str]] = DRAFT_EXCLUSIONS
    provenance_columns: ClassVar[Sequence[str]] = PROVENANCE_COLUMNS
    chats: SplitFiles
    pairs: SplitFiles
    settings: DatasetSettings

    @property
    def sinks(self) -> Sequence[SplitFiles]:
        """See `export_loop.PartedExporter`; embedded pictures are not kept a second time."""
        return () if self.settings.embed_images else (self.chats, self.pairs)

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
                line, row = chat_of(draft, candidate, self.settings)
                files = {row["images"][0]: draft.screenshot}
                yield FileRecord(line, row, draft.prompt, draft.screenshot, files)

    def write(self, split: Split, record: FileRecord) -> None:
        """Add a chat to the files."""
        row = record.row
        if self.settings.embed_images:
            (path,) = row["images"]
            row = {**row, "images": [{"bytes": record.screenshot.read_bytes(), "path": path}]}
        self.chats.write(split, record.line, row)
        self.chats.link_files(record.files)
        asked, answered = row["messages"][:-1], row["messages"][-1:]
        self.pairs.write(split, record.line, {**row, "prompt": asked, "completion": answered})


def chat_of(
    draft: RecordDraft, candidate: Candidate, settings: DatasetSettings
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record as a line (`formats.messages.MessagesRecord`) and as a row of the table.

    The line names the picture in the chat, the row beside it: TRL and ms-swift refuse both at once,
    and Axolotl would show the picture twice.
    """
    path = draft.screenshot.relative_to(candidate.source.path).as_posix()
    image = f"trajectories/{candidate.source.id}/{path}"
    identity = {
        "id": draft.id,
        "trajectory_id": replace_surrogates(draft.metadata.trajectory_id),
        "step_index": draft.metadata.step_index,
        "application": replace_surrogates(draft.metadata.application),
        "task_type": draft.metadata.task_type,
    }
    asked, answer = replace_surrogates(draft.prompt), replace_surrogates(_answer(draft, settings))
    parts = [{"type": "image", "image": image}, {"type": "text", "text": asked}]
    row = {**identity, "messages": _turns(asked, answer, settings), "images": [image]}
    return {**identity, "messages": _turns(parts, answer, settings)}, row


def _turns(asked: object, answer: str, settings: DatasetSettings) -> list[dict[str, Any]]:
    prompt = system_prompt(settings, action_line=settings.action_line)
    return [
        {"role": "system", "content": prompt},
        {"role": "user", "content": asked},
        {"role": "assistant", "content": answer},
    ]


def _answer(draft: RecordDraft, settings: DatasetSettings) -> str:
    calls = render_tool_calls(draft.calls)[0]
    if not settings.action_line:
        return calls
    metadata = draft.metadata
    places = (metadata.real_coords, metadata.end_coords)
    return f"{ACTION_LINE}{action_sentence(draft.calls, metadata.reasoning, places)}\n{calls}"
