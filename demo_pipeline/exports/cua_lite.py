"""CUA-Lite: whole trajectories as rows, from which its adapters train many agents.

Belongs here: the models, the rows, their rules and those of a folder. A row has the columns
`images`, a list of paths, and `messages` and `metadata`, both JSON text. CUA-Lite has the splits
train and validation; what must not be trained on is a dataset of its own beside it, whose rows are
its validation split.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from demo_pipeline.annotations.annotations import (
    AGENTNET_STEP_FIELDS,
    AGENTNET_TASK_FIELDS,
    agentnet_fields,
    annotation_sources,
)
from demo_pipeline.datasets.record_forms import Form, Record, RecordSource, Table
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import Text, points
from demo_pipeline.desktopd.trajectory_reader import Trajectory
from demo_pipeline.exports.answers import UNKNOWN_KEY
from demo_pipeline.exports.cua_lite_actions import (
    BBOX,
    COMPUTER,
    LITE_DONE,
    POINT,
    argument_faults,
    lite_actions,
    lite_value,
)
from demo_pipeline.exports.cudag.models import GENERATOR, to_ru
from demo_pipeline.exports.record_checks import (
    REBUILD,
    Checked,
    ExportReader,
    Fault,
    NamedFiles,
    RecordFormat,
    StrictDocument,
    checked_records,
    record_problems,
    unused_images,
)
from demo_pipeline.exports.whole_trajectories import (
    STRETCH_EXCLUSIONS,
    STRETCH_SETTINGS,
    SaidStep,
    Stretch,
    finish_losses,
    sentence,
    stretch_records,
)
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.base_model import Document, DocumentT, limited
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.parquet import read_schema, read_table
from demo_pipeline.files.shown_text import MARKER, escape_markers, replace_surrogates
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings

LITE_ROOT = "cua-lite"  # every path of an image begins with this folder
_TOOL_OF = {
    "use": COMPUTER,
    "grounding.action": COMPUTER,
    "grounding.point": POINT,
    "grounding.bbox": BBOX,
}
_LAYOUT = (
    ("desktop", "browser", "mobile"),
    ("understanding", *_TOOL_OF),
    ("train", "validation"),
)  # the folders below a dataset: platform, task type, split
_IMAGE = re.compile(
    rf"{LITE_ROOT}/(?P<name>[^/]+)/images/(?P<head>[0-9a-f]{{2}})/(?P<hash>[0-9a-f]{{64}})\.\w+"
)


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


def lite_files(name: str, dims: tuple[str, str], split: Split) -> str:
    """The table of a split of ours, of one platform and task type; `name`: of the dataset."""
    added, folder = _PLACES[split]
    return "/".join((LITE_ROOT, f"{name}{added}", *dims, folder, "demonstrations.parquet"))


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


def _record(stretch: Stretch, made_of: RecordSource) -> Iterator[Record]:
    """Yield the row of a stretch; after its instruction is what was done before it."""
    trajectory = made_of.trajectory
    prompt = escape_markers(made_of.instruction)[0]
    if stretch.before:
        before = [f"{number}. {words}" for number, words in enumerate(stretch.before, start=1)]
        prompt = "\n".join([prompt, "", "Previous actions:", *before])
    asked = [{"type": "image", "index": 0}, {"type": "text", "text": prompt}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    images = [step.files.screenshot for step in stretch.steps]
    ended = stretch.final is not None and trajectory.result.success
    for number, step in enumerate(stretch.steps):
        turns.append(_call(number, step, trajectory))
        if number + 1 < len(images) or ended:
            shown = [{"type": "image", "index": number + 1}]
            of_call = {"role": "tool", "tool_call_id": turns[-1]["tool_calls"][0]["id"]}
            turns.append({**of_call, "content": shown})
    if ended and stretch.final is not None:
        images.append(stretch.final)
        turns.append({"role": "assistant", "content": [{"type": "text", "text": LITE_DONE}]})
    success, first = trajectory.result.success, stretch.steps[0]
    others = {
        "id": made_of.id,
        "resolution": list(first.size),
        "os": LITE_SYSTEMS.get(made_of.rows[first.files.index]["platform"]),
        "source": GENERATOR,
        "source_id": replace_surrogates(trajectory.task.task_id),
        "domain": made_of.application,
        "first_step": first.files.index,
        "last_step": stretch.steps[-1].files.index,
        # What is cut does not show whether the task was done.
        "task_completed": success if stretch.final else None,
        "terminate_status": None if success else "failure",
        **(agentnet_fields(trajectory, None, AGENTNET_TASK_FIELDS) if stretch.whole else {}),
        **(annotation_sources(trajectory, None) if stretch.whole else {}),
    }
    line = lite_row(images, turns, _DIMS, others)
    files = dict(zip(line["images"], images, strict=True))
    yield Record(
        trajectory.id, prompt, images[0], {"row": line}, files, {"steps": len(stretch.steps)}
    )


def _call(number: int, step: SaidStep, trajectory: Trajectory) -> dict[str, Any]:
    places = [str(to_ru(x, y, step.size)) for x, y in points(step.files.action)]
    index = step.files.index
    words = trajectory.note(index, "caption") or sentence(step.files.action, places)
    said = agentnet_fields(trajectory, index, AGENTNET_STEP_FIELDS)
    thought = said.pop("thought", "")
    content = [{"type": "inline_reasoning", "text": thought}] if thought else []
    content += [{"type": "action_description", "text": words}] if words else []
    if sources := annotation_sources(trajectory, index):
        content.append({"type": "metadata", "data": {"opencua_step": said, **sources}})
    calls = [lite_call(number, COMPUTER, {"actions": step.said})]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def lite_format(dims: Sequence[str], name: str) -> RecordFormat[_LiteRow]:
    """The form of the rows of a folder."""
    faults = partial(_row_faults, list(dims), name)
    return RecordFormat(_LiteRow, lambda row: [("an image", one) for one in row.images], faults)


def kept_lite(dims: tuple[str, str]) -> Checked:
    """The check of a row before its split, and so the folder of its images, is known."""
    form = lite_format(dims, "kept")

    def check(
        row: Mapping[str, Any], file: str, line: int | None, files: NamedFiles
    ) -> list[Problem]:
        placed = [lite_image("kept", Split.TRAIN, image) for image in row["images"]]
        return record_problems(form, {**row, "images": placed}, file, line, files)

    return check


def _row_faults(dims: list[str], name: str, row: _LiteRow, files: NamedFiles) -> Iterator[Fault]:
    for number, image in enumerate(row.images):
        found = _IMAGE.fullmatch(image)
        if not found or found["name"] != name:
            yield Fault("images", f"images[{number}]: is not a path of this dataset's images")
        elif not found["hash"].startswith(found["head"]):
            yield Fault("images", f"images[{number}]: the folder is not the beginning of the hash")
        elif not isinstance(files.picture(image), str) and files.digest(image) != found["hash"]:
            yield Fault("image", f"images[{number}]: has another content than its name says")
    metadata = _parsed(_Metadata, row.metadata)
    if isinstance(metadata, list):
        yield from (Fault("metadata", f"metadata: {fault}") for fault in metadata)
    else:
        if metadata.dims != dims:
            yield Fault("dims", f"metadata.dims is not {dims}, the folder's")
        if "split" in metadata.others.members():
            message = "metadata.others: the split is that of the folder and not named here"
            yield Fault("split", message)
    talk = _parsed(_Talk, row.messages, "messages")
    if isinstance(talk, list):
        yield from (Fault("messages", fault) for fault in talk)
    else:
        yield from _talk_faults(talk.messages, row.images, dims[1])


def _talk_faults(turns: Sequence[_Turn], images: Sequence[str], task_type: str) -> Iterator[Fault]:
    shown = [
        part.index
        for turn in turns
        if not isinstance(turn, _Assistant)
        for part in turn.content
        if isinstance(part, _ImagePart)
    ]
    if shown != list(range(len(images))):
        message = f"messages: the images must be those from 0 to {len(images) - 1}, in order"
        yield Fault("image_index", message)
    parts = turns[0].content if isinstance(turns[0], _User) else []
    if [part.type for part in parts] != ["image", "text"]:
        yield Fault("first_turn", "messages[0]: must be the user's, an image and then a text")
    if any(isinstance(part, _TextPart) and MARKER.search(part.text) for part in parts):
        yield Fault("marker", "messages[0]: the text contains a control marker of a model")
    yield from _order_faults(turns)
    calls = [(number, call) for number, turn in enumerate(turns) for call in _calls(turn)]
    yield from _end_faults(turns[-1], task_type, has_calls=bool(calls))
    if len({call.id for _, call in calls}) < len(calls):
        yield Fault("call_id", "messages: two calls have the same id")
    if task_type.startswith("grounding.") and len(calls) != 1:
        yield Fault("calls", "messages: a grounding row has one call")
    for number, call in calls:
        yield from _call_faults(call, task_type, f"messages[{number}].tool_calls")


def _calls(turn: _Turn) -> Sequence[_Call]:
    return turn.tool_calls if isinstance(turn, _Assistant) else ()


def _order_faults(turns: Sequence[_Turn]) -> Iterator[Fault]:
    """After the user come the assistant and, in turns, the results of its calls."""
    waiting: list[str] = []
    for number, turn in enumerate(turns[1:], start=1):
        place = f"messages[{number}]"
        if isinstance(turn, _Result):
            if turn.tool_call_id not in waiting:
                yield Fault("orphan_result", f"{place}: no call before it waits for a result")
            else:
                waiting.remove(turn.tool_call_id)
            continue
        if waiting:
            yield Fault("no_result", f"{place}: a call before it has no result")
        if isinstance(turn, _User) or isinstance(turns[number - 1], _Assistant):
            yield Fault("roles", f"{place}: the turns must be user, assistant, tool, assistant")
        waiting = [call.id for call in _calls(turn)]


def _end_faults(last: _Turn, task_type: str, *, has_calls: bool) -> Iterator[Fault]:
    if not isinstance(last, _Assistant):
        yield Fault("end", "messages: the last turn must be the assistant's")
        return
    words = [part.text for part in last.content if part.type == "text"]
    if not last.tool_calls and not words:
        yield Fault("end", "messages: the last turn has neither a call nor words")
    if task_type == "use" and not last.tool_calls and words != [LITE_DONE]:
        yield Fault("end", f"messages: the words of the last turn must be {LITE_DONE!r}")
    if task_type == "use" and not has_calls:
        yield Fault("calls", "messages: no turn has a call")
    if task_type == "understanding" and has_calls:
        yield Fault("calls", "messages: a row of this task type has no calls")


def _call_faults(call: _Call, task_type: str, place: str) -> Iterator[Fault]:
    tool = call.function.name
    if tool != _TOOL_OF.get(task_type, tool):
        yield Fault("tool", f"{place}: the tool must be {_TOOL_OF[task_type]}")
    for code, said in argument_faults(tool, call.function.arguments):
        yield Fault(code, f"{place}{said}")


def validate_cua_lite(root: Path) -> list[Problem]:
    """The problems of the datasets below `cua-lite/`, with the numbers of the rows from 1.

    Args:
        root: the folder that the paths of images are relative to.
    """
    home = root / LITE_ROOT
    datasets = sorted(path for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
    if not datasets:
        return [Problem("missing_file", LITE_ROOT, "has no dataset", remedy=REBUILD)]
    reader, problems = ExportReader(root), list[Problem]()
    for dataset in datasets:
        for table in sorted(path for path in dataset.rglob("*.parquet") if path.is_file()):
            problems += limited(list(_table_problems(table, dataset, reader)))
        name = f"{LITE_ROOT}/{dataset.name}"
        problems += unused_images(len(reader.unnamed(f"{name}/images")), name, "row")
    return problems


def _table_problems(table: Path, dataset: Path, reader: ExportReader) -> Iterator[Problem]:
    file = table.relative_to(reader.root).as_posix()
    *folders, _ = table.relative_to(dataset).parts
    if len(folders) != 3 or any(a not in b for a, b in zip(folders, _LAYOUT, strict=True)):
        message = "is not at <platform>/<task type>/<split>/<variant>.parquet"
        yield Problem("layout", file, message, remedy=REBUILD)
    elif not _has_columns(table):
        message = "the columns must be images (list of text), messages and metadata (text)"
        yield Problem("columns", file, message, remedy=REBUILD)
    else:
        rows = reader.records(lite_format(folders[:2], dataset.name), file)
        yield from (problem for _, found in rows for problem in found)


def _has_columns(table: Path) -> bool:
    """Whether the columns are a list of text and two of text, of any width, if it can be read."""
    try:
        columns = read_schema(table)
    except (OSError, pa.ArrowException):  # the reader of the rows says why not
        return True
    if columns.names != LITE_SCHEMA.names:
        return False
    first, *others = columns.types
    is_list = pa.types.is_list(first) or pa.types.is_large_list(first)
    plain = [first.value_type if is_list else pa.null(), *others]
    return all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in plain)


# A row is the longest stretch of a trajectory. The splits test and held_out are datasets of their
# own, `<prefix>-test` and `<prefix>-held-out`; `metadata.json` says what was left out.
CUA_LITE_FORM = Form(
    name="cua_lite",
    code_version="7",
    settings=STRETCH_SETTINGS,
    unit="steps",
    exclusions=(*STRETCH_EXCLUSIONS, UNKNOWN_KEY),
    records=stretch_records(lite_actions, _record),
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
    problems=checked_records(row=kept_lite(_DIMS)),
)


def cua_lite_record_counts(folder: Path) -> Mapping[str, int]:
    """Records by trajectory of a CUA-Lite export."""
    tables = sorted((folder / LITE_ROOT).glob("*/*/*/*/*.parquet"))
    columns = (read_table(table, columns=["metadata"])["metadata"] for table in tables)
    return Counter(json.loads(text)["others"]["id"] for one in columns for text in one.to_pylist())
