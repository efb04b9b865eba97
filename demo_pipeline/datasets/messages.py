"""The messages export: the CUDAG records' questions and answers as chats of role and content.

Belongs here: which trajectories go in and what a line says. Pictures are named by their path in the
dataset. The form is `formats.messages`.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.common.json_files import dump_json
from demo_pipeline.datasets.cudag_records import (
    PROVENANCE_COLUMNS,
    STEP_EXCLUSIONS,
    RecordDraft,
    drafts,
)
from demo_pipeline.datasets.prompts import system_prompt, tool_schema
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory, load, select
from demo_pipeline.datasets.split_files import SplitFiles, plain
from demo_pipeline.datasets.split_plan import CrossSplitGuard, plan_splits
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.cudag.tool_calls import render_json, render_tool_calls
from demo_pipeline.formats.messages.models import SCHEMA_FILE, committed_schema
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings

_PART = pa.struct([("type", pa.string()), ("text", pa.string())])
_FUNCTION = pa.struct([("name", pa.string()), ("arguments", pa.string())])
_CALL = pa.struct([("type", pa.string()), ("function", _FUNCTION)])


@dataclass(frozen=True, slots=True)
class MessagesSummary:
    """What was written.

    Attributes:
        samples: lines.
        trajectories: that gave at least one line.
        records: lines by split.
        excluded_trajectories: by reason: failed, contaminated, unreadable.
        excluded_samples: by reason, as in the CUDAG dataset.
        problems: why unreadable trajectories are.
    """

    samples: int
    trajectories: int
    records: dict[str, int]
    excluded_trajectories: dict[str, int]
    excluded_samples: dict[str, int]
    problems: tuple[Problem, ...]


def messages_table_schema(settings: DatasetSettings) -> pa.Schema:
    """The columns of the Parquet files: those of a line, one type each."""
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
) -> MessagesSummary:
    """Write `train`, `val`, `test` (and `held_out`) as JSON Lines and Parquet, and the schema.

    The same steps, prompts and splits as the CUDAG dataset; one trajectory is in memory at a time.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is made.
        settings: what takes part, the splits, and the form of the calls (`tool_call_format`).
    """
    selection = select(trajectories, settings)
    splits = plan_splits(selection, settings).splits
    sights = CrossSplitGuard.of(selection, splits, told=settings.prompt_style != "grounding")
    excluded: Counter[str] = Counter(dict.fromkeys(STEP_EXCLUSIONS, 0))
    left_out, problems = selection.excluded.copy(), list(selection.problems)
    written: set[str] = set()
    with SplitFiles(out, messages_table_schema(settings)) as files:
        for candidate in selection.chosen:
            split = splits[candidate.source.id]
            try:
                trajectory, rows = load(candidate.source, PROVENANCE_COLUMNS)
            except DemonstrationError as error:
                problems.extend(error.problems)
                left_out["unreadable"] += 1
                continue
            for draft in drafts(trajectory, rows, settings, excluded):
                if sights.leaks(candidate.instruction, draft.prompt, draft.screenshot, split):
                    excluded["split_leak"] += 1
                    continue
                line = message_line(draft, candidate, settings)
                files.write(split, line, line)
                written.add(trajectory.id)
    dump_json(out / SCHEMA_FILE, committed_schema())
    return MessagesSummary(
        samples=files.counts.total(),
        trajectories=len(written),
        records={split.value: files.counts[split] for split in Split},
        excluded_trajectories=dict(left_out),
        excluded_samples=dict(excluded),
        problems=tuple(problems),
    )


def message_line(
    draft: RecordDraft, candidate: Candidate, settings: DatasetSettings
) -> dict[str, Any]:
    """One record as the export writes it; see `formats.messages.MessagesRecord`."""
    inside = draft.screenshot.relative_to(candidate.source.path).as_posix()
    user = [{"type": "image"}, _text(draft.prompt)]
    line = {
        "id": draft.id,
        "trajectory_id": plain(draft.metadata.trajectory_id),
        "step_index": draft.metadata.step_index,
        "application": plain(draft.metadata.application),
        "task_type": draft.metadata.task_type,
        "messages": [
            {"role": "system", "content": [_text(message_prompt(settings))]},
            {"role": "user", "content": user},
            _answer(draft) if _structured(settings) else _answer_in_text(draft),
        ],
        "images": [f"trajectories/{candidate.source.id}/{inside}"],
    }
    tools = json.dumps([tool_schema(settings)], ensure_ascii=False)
    return line | ({"tools": tools} if _structured(settings) else {})


def message_prompt(settings: DatasetSettings) -> str:
    """The system prompt; with structured calls the chat template adds the tool and its grammar."""
    told = system_prompt(settings)
    return told.partition("\n\nThere is one tool:")[0] if _structured(settings) else told


def _structured(settings: DatasetSettings) -> bool:
    return settings.tool_call_format == "structured"


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": plain(text)}


def _answer_in_text(draft: RecordDraft) -> dict[str, Any]:
    return {"role": "assistant", "content": [_text(render_tool_calls(draft.calls)[0])]}


def _answer(draft: RecordDraft) -> dict[str, Any]:
    functions = [call.as_dict() for call in draft.calls]
    calls = [
        {
            "type": "function",
            "function": {
                "name": one["name"],
                "arguments": plain(render_json(one["arguments"])[0]),
            },
        }
        for one in functions
    ]
    return {"role": "assistant", "content": [], "tool_calls": calls}
