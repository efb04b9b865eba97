"""CUA-Lite: whole trajectories as rows, from which its adapters train many agents.

Belongs here: the models, the rows and their rules. A row has the columns
`images`, a list of paths, and `messages` and `metadata`, both JSON text. CUA-Lite has the splits
train and validation; what must not be trained on is a dataset of its own beside it, whose rows are
its validation split.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from demo_pipeline.annotations.annotations import (
    AGENTNET_STEP_FIELDS,
    AGENTNET_TASK_FIELDS,
    agentnet_fields,
    annotation_sources,
)
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import Text
from demo_pipeline.desktopd.trajectory_reader import Trajectory
from demo_pipeline.exports.answers import CLICKS_OF_BUTTON, HELD_KEYS, UNKNOWN_KEY
from demo_pipeline.exports.cua_lite_actions import (
    COMPUTER,
    LITE_DONE,
    lite_actions,
    lite_value,
)
from demo_pipeline.exports.cudag.models import GENERATOR, to_ru
from demo_pipeline.exports.form import File, Form, Row, Source, Table
from demo_pipeline.exports.record_checks import (
    Fault,
    NamedFiles,
    RecordFormat,
    StrictDocument,
)
from demo_pipeline.exports.whole_trajectories import (
    STRETCH_EXCLUSIONS,
    STRETCH_SETTINGS,
    SaidStep,
    Stretch,
    counted_details,
    counted_steps,
    losses_file,
    sentence,
    stretch_rows,
)
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.base_model import Document, DocumentT
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.settings import DatasetSettings

LITE_ROOT = "cua-lite"  # every path of an image begins with this folder


class _Function(StrictDocument):
    name: Literal["computer", "point", "bbox"]
    arguments: dict[str, Any]


class _Call(StrictDocument):
    id: Text
    type: Literal["function"]
    function: _Function


class _ImagePart(StrictDocument):
    type: Literal["image"]
    index: Annotated[int, Field(ge=0)]  # in the column `images`


class _TextPart(StrictDocument):
    type: Literal["text"]
    text: Text


class _Words(StrictDocument):
    type: Literal["text", "action_description", "inline_reasoning", "history_summary"]
    text: Text


class _Note(StrictDocument):
    type: Literal["metadata"]
    data: dict[str, Any]  # not shown to a model


class _User(StrictDocument):
    role: Literal["user"]
    content: Annotated[
        list[Annotated[_ImagePart | _TextPart, Field(discriminator="type")]], Field(min_length=1)
    ]


class _Assistant(StrictDocument):
    role: Literal["assistant"]
    content: list[Annotated[_Words | _Note, Field(discriminator="type")]] = Field(
        default_factory=list
    )
    reasoning_content: str | None = None
    tool_calls: list[_Call] = Field(default_factory=list)


class _Result(StrictDocument):
    role: Literal["tool"]
    tool_call_id: Text
    content: Annotated[list[_ImagePart], Field(min_length=1)]


_Turn = Annotated[_User | _Assistant | _Result, Field(discriminator="role")]


class _Talk(StrictDocument):
    messages: list[_Turn] = Field(min_length=2)


class _Others(Document):
    id: Text
    resolution: Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=2, max_length=2)]
    os: Literal["windows", "macos", "ubuntu"] | None = None


class _Metadata(StrictDocument):
    metadata_kind: Literal["cua"]
    dims: Annotated[list[str], Field(min_length=2, max_length=2)]
    extra_tool_schemas: Annotated[list[Any], Field(max_length=0)]
    valid_actions: None
    others: _Others  # what is free


class _LiteRow(StrictDocument):
    """A row; two of its columns are JSON text, whose faults are told by the column's name."""

    images: list[str]
    messages: str
    metadata: str

    @property
    def id(self) -> str | None:
        """That of its metadata; None when these are bad."""
        metadata = _parsed(_Metadata, self.metadata)
        return metadata.others.id if isinstance(metadata, _Metadata) else None


def _parsed(model: type[DocumentT], text: str, key: str = "") -> DocumentT | list[str]:
    """The model of a column (the value of `key`, if given), or what is wrong with it."""
    try:
        value = parse_json(text, "the column")
    except JsonFileError as error:
        return [error.message]
    return lite_value(model, {key: value} if key else value)


# Split → what is added to the dataset's name, and CUA-Lite's split.
_PLACES: Mapping[Split, tuple[str, str]] = {
    Split.TRAIN: ("", "train"),
    Split.VAL: ("", "validation"),
    Split.TEST: ("-test", "validation"),
    Split.HELD_OUT: ("-held-out", "validation"),
}
_DIMS = ("desktop", "use")
LITE_SCHEMA = pa.schema(
    [("images", pa.list_(pa.string())), ("messages", pa.string()), ("metadata", pa.string())]
)
LITE_TABLE = Table(LITE_SCHEMA, 64, 8 * 2**20)
# The form's only word for Linux is the name of one distribution.
LITE_SYSTEMS = {"windows": "windows", "macos": "macos", "linux": "ubuntu"}


def lite_image(name: str, split: Split, image: str) -> str:
    """Where the rows of a split have an image; `name`: of the dataset."""
    return f"{LITE_ROOT}/{name}{_PLACES[split][0]}/images/{image}"


def content_name(image: Path) -> str:
    """The name of a PNG file by its content, below the folder of images."""
    digest = file_digest(image).sha256
    return f"{digest[:2]}/{digest}.png"


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
        "others": {name: value for name, value in others.items() if value is not None},
    }
    return {
        "images": [content_name(image) for image in images],
        "messages": replace_surrogates(json.dumps(messages, ensure_ascii=False)),
        "metadata": replace_surrogates(json.dumps(metadata, ensure_ascii=False)),
    }


def placed_row(
    row: Mapping[str, Any], split: Split, settings: DatasetSettings, _folder: str
) -> Mapping[str, Any]:
    """A row with the paths of its images in a split."""
    images = [lite_image(settings.name_prefix, split, image) for image in row["images"]]
    return {**row, "images": images}


def lite_call(number: int, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The call of a tool; `number`: of the call in its row, from 0."""
    function = {"name": tool, "arguments": arguments}
    return {"id": f"call_{number:04d}", "type": "function", "function": function}


def _row(stretch: Stretch, source: Source) -> Iterator[Row]:
    """Yield the row of a stretch."""
    trajectory = source.trajectory
    prompt = stretch.prompt(source.instruction)
    asked = [{"type": "image", "index": 0}, {"type": "text", "text": prompt}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    images = [step.files.screenshot for step in stretch.steps]
    ended = stretch.whole and trajectory.result.success
    for number, step in enumerate(stretch.steps):
        turns.append(_call(number, step, trajectory))
        if number + 1 < len(images) or ended:
            shown = [{"type": "image", "index": number + 1}]
            of_call = {"role": "tool", "tool_call_id": turns[-1]["tool_calls"][0]["id"]}
            turns.append({**of_call, "content": shown})
    if ended and stretch.final is not None:
        images.append(stretch.final)
        turns.append({"role": "assistant", "content": [{"type": "text", "text": LITE_DONE}]})
    success = trajectory.result.success
    first = stretch.steps[0]
    others = {
        "id": source.id,
        "resolution": list(first.size),
        "os": LITE_SYSTEMS.get(source.rows[first.files.index]["platform"]),
        "source": GENERATOR,
        "source_id": replace_surrogates(trajectory.task.task_id),
        "domain": source.application,
        "first_step": first.files.index,
        "last_step": stretch.steps[-1].files.index,
        "part": stretch.part,
        # What is cut does not show whether the task was done.
        "task_completed": success if stretch.whole else None,
        "terminate_status": None if success else "failure",
        **(agentnet_fields(trajectory, None, AGENTNET_TASK_FIELDS) if stretch.whole else {}),
        **(annotation_sources(trajectory, None) if stretch.whole else {}),
    }
    line = lite_row(images, turns, _DIMS, others)
    files = dict(zip(line["images"], images, strict=True))
    counts = counted_steps(stretch.steps, source)
    yield Row(trajectory.id, prompt, images[0], {"row": line}, files, counts)


def _call(number: int, step: SaidStep, trajectory: Trajectory) -> dict[str, Any]:
    index = step.files.index
    described = sentence(step.files.action, lambda point: str(to_ru(*point, step.size)))
    words = trajectory.note(index, "caption") or described
    said = agentnet_fields(trajectory, index, AGENTNET_STEP_FIELDS)
    thought = said.pop("thought", "")
    content = [{"type": "inline_reasoning", "text": thought}] if thought else []
    content += [{"type": "action_description", "text": words}] if words else []
    if sources := annotation_sources(trajectory, index):
        content.append({"type": "metadata", "data": {"opencua_step": said, **sources}})
    calls = [lite_call(number, COMPUTER, {"actions": step.said})]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _row_faults(row: _LiteRow, files: NamedFiles) -> Iterator[Fault]:
    for number, image in enumerate(row.images):
        digest = PurePosixPath(image).stem
        if not isinstance(files.picture(image), str) and files.digest(image) != digest:
            yield Fault("image", f"images[{number}]: has another content than its name says")
    metadata = _parsed(_Metadata, row.metadata)
    if isinstance(metadata, list):
        yield from (Fault("metadata", f"metadata: {fault}") for fault in metadata)
    talk = _parsed(_Talk, row.messages, "messages")
    if isinstance(talk, list):
        yield from (Fault("messages", fault) for fault in talk)
        return
    shown = [
        part.index
        for turn in talk.messages
        if not isinstance(turn, _Assistant)
        for part in turn.content
        if isinstance(part, _ImagePart)
    ]
    if shown != list(range(len(row.images))):
        message = f"messages: the images must be those from 0 to {len(row.images) - 1}, in order"
        yield Fault("image_index", message)
    if not isinstance(talk.messages[-1], _Assistant):
        yield Fault("end", "messages: the last turn must be the assistant's")


LITE_FORMAT = RecordFormat(
    _LiteRow, lambda row: [("an image", one) for one in row.images], _row_faults
)


def lite_file(part: str, dims: tuple[str, str], below: str = "", config: str = "") -> File:
    """The tables of one platform and task type, a dataset a split of ours."""

    def path(settings: DatasetSettings, split: Split) -> str:
        added, folder = _PLACES[split]
        name = f"{settings.name_prefix}{added}"
        parts = (LITE_ROOT, name, *dims, folder, "demonstrations.parquet")
        return "/".join(filter(None, (below, *parts)))

    only_train = frozenset({Split.TRAIN})
    return File(
        part,
        path,
        lambda _: LITE_TABLE,
        checked=LITE_FORMAT,
        empty=only_train,
        base=below,
        config=config,
    )


# A row is the longest stretch of a trajectory. The splits test and held_out are datasets of their
# own, `<prefix>-test` and `<prefix>-held-out`; `metadata.json` says what was left out.
FORM = Form(
    name="cua_lite",
    asset="cua_lite_dataset",
    folder="cua_lite",
    description="Whole trajectories in CUA-Lite's form, from which its adapters render the "
    "training data of many agents. A row is the longest stretch of a trajectory that can be shown "
    "and said.",
    code_version="14",
    kinds=frozenset({"parquet"}),
    settings=STRETCH_SETTINGS,
    exclusions=(*STRETCH_EXCLUSIONS, UNKNOWN_KEY, CLICKS_OF_BUTTON, HELD_KEYS),
    unit="steps",
    whole=True,
    rows=stretch_rows(lite_actions, _row),
    files=(lite_file("row", _DIMS, config="default"),),
    check="cua_lite_rows",
    marks=(LITE_ROOT,),
    place=placed_row,
    pictures=lambda candidate, split, row, settings: {
        lite_image(settings.name_prefix, split, name): f"{candidate.source.folder}/{path}"
        for name, path in row.files.items()
    },
    details=counted_details,
    side_files=losses_file,
)
