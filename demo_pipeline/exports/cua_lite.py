"""Exports whole trajectories in CUA-Lite's form, from which its adapters train many agents.

Belongs here: the turns of a row, what is known about it, and the layout. CUA-Lite has the splits
train and validation; what must not be trained on is a dataset of its own beside it, whose rows are
its validation split. The models are in cua_lite_models.py.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from demo_pipeline.annotations.annotations import (
    AGENTNET_STEP_FIELDS,
    AGENTNET_TASK_FIELDS,
    agentnet_fields,
)
from demo_pipeline.datasets.export_loop import build_form
from demo_pipeline.datasets.forms import Excluded, Form, Record, Table
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import points
from demo_pipeline.desktopd.reader import Trajectory
from demo_pipeline.exports.cua_lite_models import COMPUTER, LITE_DONE, LITE_ROOT
from demo_pipeline.exports.cua_lite_validator import LITE_SCHEMA
from demo_pipeline.exports.cudag.models import GENERATOR, to_ru
from demo_pipeline.exports.whole_trajectories import (
    LITE_LOSSES,
    STRETCH_EXCLUSIONS,
    STRETCH_SETTINGS,
    Place,
    SaidStep,
    Stretch,
    finish_losses,
    lite_actions,
    longest_stretch,
    sentence,
)
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.parquet import read_table
from demo_pipeline.files.shown_text import escape_markers, replace_surrogates
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

VARIANT = "demonstrations"
# Split → what is added to the dataset's name, and CUA-Lite's split.
_PLACES: Mapping[Split, tuple[str, str]] = {
    Split.TRAIN: ("", "train"),
    Split.VAL: ("", "validation"),
    Split.TEST: ("-test", "validation"),
    Split.HELD_OUT: ("-held-out", "validation"),
}
_DIMS = ("desktop", "use")
LITE_TABLE = Table(LITE_SCHEMA, 64, 8 * 2**20)


def lite_files(name: str, dims: tuple[str, str], split: Split) -> str:
    """The table of a split of ours, of one platform and task type; `name`: of the dataset."""
    added, folder = _PLACES[split]
    return "/".join((LITE_ROOT, f"{name}{added}", *dims, folder, f"{VARIANT}.parquet"))


def lite_row(
    images: Sequence[Path],
    messages: Sequence[Mapping[str, Any]],
    dims: tuple[str, str],
    others: Mapping[str, Any],
) -> dict[str, Any]:
    """A row before its split is known.

    Args:
        images: PNG files in the order of their indexes; the row has their names, by content.
        messages: the turns.
        dims: platform and task type.
        others: what is known about the row: `id`, `resolution`, `os` and so on.
    """
    metadata = {
        "metadata_kind": "cua",
        "dims": list(dims),
        "extra_tool_schemas": [],
        "valid_actions": None,
        "others": others,
    }
    return {
        "images": [content_name(image) for image in images],
        "messages": replace_surrogates(json.dumps(messages, ensure_ascii=False)),
        "metadata": replace_surrogates(json.dumps(metadata, ensure_ascii=False)),
    }


def content_name(image: Path) -> str:
    """The name of a PNG file by its content, below the folder of images."""
    digest = file_digest(image).sha256
    return f"{digest[:2]}/{digest}.png"


def lite_image(name: str, split: Split, image: str) -> str:
    """Where the rows of a split have an image; `name`: of the dataset."""
    return f"{LITE_ROOT}/{name}{_PLACES[split][0]}/images/{image}"


def placed_row(
    row: Mapping[str, Any], split: Split, settings: DatasetSettings, _folder: str
) -> Mapping[str, Any]:
    """A row with the paths of its images in a split."""
    images = [lite_image(settings.name_prefix, split, image) for image in row["images"]]
    return {**row, "images": images}


# The form's only word for Linux is the name of one distribution.
LITE_SYSTEMS = {"windows": "windows", "macos": "macos", "linux": "ubuntu"}


def _records(
    candidate: Candidate,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
    settings: DatasetSettings,
) -> Iterator[Record | Excluded]:
    """Yield the row of a trajectory, and an `Excluded` for each step that it does not show."""
    stretch = longest_stretch(candidate, trajectory, rows, settings, lite_actions)
    left_out = stretch.left_out if isinstance(stretch, Stretch) else stretch
    yield from map(Excluded, left_out.elements())
    if isinstance(stretch, Stretch):
        yield _record(stretch, trajectory, rows[stretch.steps[0].files.index])


def _record(stretch: Stretch, trajectory: Trajectory, row: ProvenanceRow) -> Record:
    prompt = _prompt(stretch, trajectory)
    asked = [{"type": "image", "index": 0}, {"type": "text", "text": prompt}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    images = [step.files.screenshot for step in stretch.steps]
    ended = stretch.final is not None and trajectory.result.success
    for number, step in enumerate(stretch.steps):
        turns.append(_call(number, step, trajectory))
        if number + 1 < len(images) or ended:
            turns.append(_result(number))
    if ended and stretch.final is not None:
        images.append(stretch.final)
        turns.append({"role": "assistant", "content": [{"type": "text", "text": LITE_DONE}]})
    line = lite_row(images, turns, _DIMS, _others(stretch, trajectory, row))
    files = dict(zip(line["images"], images, strict=True))
    steps = {"steps": len(stretch.steps)}
    return Record(trajectory.id, prompt, images[0], {"row": line}, files, steps)


def _prompt(stretch: Stretch, trajectory: Trajectory) -> str:
    """The instruction, and what was done before the first step."""
    text = escape_markers(replace_surrogates(trajectory.task.instruction))[0]
    lines = [f"{number}. {words}" for number, words in enumerate(stretch.before, start=1)]
    return "\n".join([text, "", "Previous actions:", *lines]) if lines else text


def _call(number: int, step: SaidStep, trajectory: Trajectory) -> dict[str, Any]:
    places = [str(to_ru(x, y, step.size)) for x, y in points(step.files.action)]
    index = step.files.index
    words = trajectory.note(index, "caption") or sentence(step.files.action, places)
    said = agentnet_fields(trajectory, index, AGENTNET_STEP_FIELDS)
    thought = said.pop("thought", "")
    content = [{"type": "inline_reasoning", "text": thought}] if thought else []
    content += [{"type": "action_description", "text": words}] if words else []
    if notes := trajectory.notes.get(index, {}):
        sources = {name: note.source for name, note in sorted(notes.items())}
        data = {"opencua_step": said, "annotation_sources": sources}
        content.append({"type": "metadata", "data": data})
    function = {"name": COMPUTER, "arguments": {"actions": step.said}}
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": _id(number), "type": "function", "function": function}],
    }


def _result(number: int) -> dict[str, Any]:
    shown = [{"type": "image", "index": number + 1}]
    return {"role": "tool", "tool_call_id": _id(number), "content": shown}


def _id(number: int) -> str:
    return f"call_{number:04d}"


def _others(stretch: Stretch, trajectory: Trajectory, row: ProvenanceRow) -> dict[str, Any]:
    success, first, last = trajectory.result.success, stretch.steps[0], stretch.steps[-1]
    known = {
        "id": replace_surrogates(trajectory.id),
        "resolution": list(first.size),
        "os": LITE_SYSTEMS.get(row["platform"]),
        "source": GENERATOR,
        "source_id": replace_surrogates(trajectory.task.task_id),
        "domain": replace_surrogates(trajectory.task.application),
        "first_step": first.files.index,
        "last_step": last.files.index,
        # What is cut does not show whether the task was done.
        "task_completed": success if stretch.final else None,
        "terminate_status": None if success else "failure",
    }
    if stretch.whole:
        known |= agentnet_fields(trajectory, None, AGENTNET_TASK_FIELDS)
    return {name: value for name, value in known.items() if value is not None}


# A row is the longest stretch of a trajectory. The splits test and held_out are datasets of their
# own, `<prefix>-test` and `<prefix>-held-out`; `metadata.json` says what was left out.
CUA_LITE_FORM = Form(
    name="cua_lite",
    code_version="5",
    settings=STRETCH_SETTINGS,
    unit="steps",
    exclusions=(*STRETCH_EXCLUSIONS, *LITE_LOSSES),
    records=_records,
    files=lambda split, settings: {"row": (lite_files(settings.name_prefix, _DIMS, split),)},
    written=lambda split, _: split is Split.TRAIN,
    tables=lambda _: {"row": LITE_TABLE},
    row=placed_row,
    pictures=lambda candidate, split, record, settings: {
        lite_image(settings.name_prefix, split, name): f"{candidate.source.folder}/{path}"
        for name, path in record.files.items()
    },
    whole_trajectories=True,
    finish=finish_losses,
)
build_cua_lite = partial(build_form, CUA_LITE_FORM)


def cua_lite_record_counts(folder: Path) -> Mapping[str, int]:
    """Records by trajectory of a CUA-Lite export."""
    return Counter(trajectory for trajectory, _ in cua_lite_places(folder))


def cua_lite_places(folder: Path) -> Iterator[Place]:
    """Yield the place of every row; it is the name of the dataset and CUA-Lite's split."""
    for table in sorted((folder / LITE_ROOT).glob("*/*/*/*/*.parquet")):
        name = f"{table.relative_to(folder / LITE_ROOT).parts[0]} {table.parent.name}"
        for text in read_table(table, columns=["metadata"])["metadata"].to_pylist():
            yield json.loads(text)["others"]["id"], name
