"""Exports whole trajectories as rows of CUA-Lite, which has adapters to train many agents.

A row has the columns `images` (a list of paths), `messages` and `metadata` (both JSON text). Our
splits test and held_out are separate datasets, because CUA-Lite only knows train and validation.
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
from demo_pipeline.desktopd.models import Pixel, Text
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
    EncodedStep,
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

LITE_ROOT = "cua-lite"  # first folder in every image path


class _Function(StrictDocument):
    name: Literal["computer", "point", "bbox"]
    arguments: dict[str, Any]


class _Call(StrictDocument):
    id: Text
    type: Literal["function"]
    function: _Function


class _ImagePart(StrictDocument):
    type: Literal["image"]
    index: Annotated[int, Field(ge=0)]  # 0-based position in the column `images`


class _TextPart(StrictDocument):
    type: Literal["text"]
    text: Text


class _Words(StrictDocument):
    type: Literal["text", "action_description", "inline_reasoning", "history_summary"]
    text: Text


class _Note(StrictDocument):
    type: Literal["metadata"]
    data: dict[str, Any]  # not shown to models


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
    others: _Others  # may have any further keys


class _LiteRow(StrictDocument):
    """A row of a table; `messages` and `metadata` are JSON text."""

    images: list[str]
    messages: str
    metadata: str

    @property
    def id(self) -> str | None:
        """The id in the column `metadata`; None if the column is invalid."""
        metadata = _parsed(_Metadata, self.metadata)
        return metadata.others.id if isinstance(metadata, _Metadata) else None


def _parsed(model: type[DocumentT], text: str, key: str = "") -> DocumentT | list[str]:
    """Parses the JSON text of a column as a model. Returns error messages if the text is invalid.

    Args:
        key: if not empty, the column's value is wrapped as `{key: value}` before it is parsed.
    """
    try:
        value = parse_json(text, "the column")
    except JsonFileError as error:
        return [error.message]
    return lite_value(model, {key: value} if key else value)


# Maps each of our splits to the suffix of the dataset's name and to CUA-Lite's split.
_PLACES: Mapping[Split, tuple[str, str]] = {
    Split.TRAIN: ("", "train"),
    Split.VAL: ("", "validation"),
    Split.TEST: ("-test", "validation"),
    Split.HELD_OUT: ("-held-out", "validation"),
}
_DIMS = ("desktop", "use")  # CUA-Lite's platform and task type
LITE_SCHEMA = pa.schema(
    [("images", pa.list_(pa.string())), ("messages", pa.string()), ("metadata", pa.string())]
)
LITE_TABLE = Table(LITE_SCHEMA, rows=64, characters=8 * 2**20)
# The only Linux distribution that CUA-Lite knows is Ubuntu, so `ubuntu` stands for every Linux.
LITE_SYSTEMS = {"windows": "windows", "macos": "macos", "linux": "ubuntu"}


def lite_image(name: str, split: Split, image: str) -> str:
    """Returns the image path to store in the rows of a split.

    Args:
        name: name of the dataset, `datasets.name_prefix`.
        image: the result of `content_name`.
    """
    return f"{LITE_ROOT}/{name}{_PLACES[split][0]}/images/{image}"


def content_name(image: Path) -> str:
    """Returns the path of a PNG file in the image folder; the name is the file's SHA-256."""
    digest = file_digest(image).sha256
    return f"{digest[:2]}/{digest}.png"


def lite_row(
    images: Sequence[Path],
    messages: Sequence[Mapping[str, Any]],
    dims: tuple[str, str],
    others: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns a row before its split is known; `placed_row` completes the image paths.

    Args:
        images: PNG files in the order of their indexes in `messages`.
        dims: platform and task type.
        others: further metadata, such as `id` and `os`; None values are left out.
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
    """Completes the image paths in a row that `lite_row` returned; see `Form.place`."""
    images = [lite_image(settings.name_prefix, split, image) for image in row["images"]]
    return {**row, "images": images}


def lite_call(number: int, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a call of a tool; `number` is the 0-based number of the call in its row."""
    function = {"name": tool, "arguments": arguments}
    return {"id": f"call_{number:04d}", "type": "function", "function": function}


def _row(stretch: Stretch, source: Source) -> Iterator[Row]:
    """Yields the row for a stretch of consecutive steps."""
    trajectory = source.trajectory
    prompt = stretch.prompt(source.instruction)
    question = [{"type": "image", "index": 0}, {"type": "text", "text": prompt}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": question}]
    images = [step.files.screenshot for step in stretch.steps]
    ended = stretch.whole and trajectory.result.success
    for number, step in enumerate(stretch.steps):
        call = _call(number, step, trajectory)
        turns.append(call)
        if number + 1 < len(images) or ended:
            result = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"]}
            turns.append({**result, "content": [{"type": "image", "index": number + 1}]})
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
        "task_completed": None,
        "terminate_status": None if success else "failure",
    }
    if stretch.whole:  # otherwise the row does not show whether the task was done
        others["task_completed"] = success
        others |= agentnet_fields(trajectory, None, AGENTNET_TASK_FIELDS)
        others |= annotation_sources(trajectory, None)
    line = lite_row(images, turns, _DIMS, others)
    files = dict(zip(line["images"], images, strict=True))
    counts = counted_steps(stretch.steps, source)
    yield Row(trajectory.id, prompt, images[0], {"row": line}, files, counts)


def _call(number: int, step: EncodedStep, trajectory: Trajectory) -> dict[str, Any]:
    """Returns the assistant's turn for a step; `number` is the 0-based number of its call."""
    index = step.files.index

    def point_text(point: Pixel) -> str:
        return str(to_ru(*point, step.size))

    caption = trajectory.note(index, "caption") or sentence(step.files.action, point_text)
    notes = agentnet_fields(trajectory, index, AGENTNET_STEP_FIELDS)
    thought = notes.pop("thought", "")
    content: list[dict[str, Any]] = []
    if thought:
        content.append({"type": "inline_reasoning", "text": thought})
    if caption:
        content.append({"type": "action_description", "text": caption})
    if sources := annotation_sources(trajectory, index):
        content.append({"type": "metadata", "data": {"opencua_step": notes, **sources}})
    calls = [lite_call(number, COMPUTER, {"actions": step.encoded})]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _row_faults(row: _LiteRow, files: NamedFiles) -> Iterator[Fault]:
    """Yields the faults of images, of their order, and of the two columns with JSON text."""
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
    indexes = list[int]()
    for turn in talk.messages:
        if not isinstance(turn, _Assistant):
            indexes += [part.index for part in turn.content if isinstance(part, _ImagePart)]
    if indexes != list(range(len(row.images))):
        message = f"messages: the images must be those from 0 to {len(row.images) - 1}, in order"
        yield Fault("image_index", message)
    if not isinstance(talk.messages[-1], _Assistant):
        yield Fault("end", "messages: the last turn must be the assistant's")


def _row_images(row: _LiteRow) -> Iterator[tuple[str, str]]:
    for image in row.images:
        yield "an image", image


LITE_FORMAT = RecordFormat(_LiteRow, _row_images, _row_faults)


def lite_file(part: str, dims: tuple[str, str], below: str = "", config: str = "") -> File:
    """Declares the files of a dataset that are tables in CUA-Lite's format, one for each split.

    Args:
        part: see `File.part`.
        dims: platform and task type.
        below: the folder that contains `LITE_ROOT`; empty means the dataset's own folder.
        config: see `File.config`.
    """

    def path(settings: DatasetSettings, split: Split) -> str:
        suffix, folder = _PLACES[split]
        name = f"{settings.name_prefix}{suffix}"
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


# A row contains the longest stretch of consecutive steps that can be exported; see
# whole_trajectories.py. `metadata.json` counts the left-out steps by reason.
FORM = Form(
    name="cua_lite",
    asset="cua_lite_dataset",
    folder="cua_lite",
    description="Whole trajectories in CUA-Lite's format, from which its adapters render "
    "training data for many agents. A row is the longest part of a trajectory "
    "whose steps all have screenshots and can be expressed in the format.",
    code_version="16",
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
