"""Defines the files of a CUDAG dataset: records, images, config.json and further files.

CUDAG does not require the tool definition, the system prompt, LLaMA-Factory's `dataset_info.json`,
the split report, or the records in other layouts. records.py makes the records.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import cv2
from pydantic import JsonValue

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.selection import Candidate, select
from demo_pipeline.datasets.splits import (
    Split,
    SplitPlan,
    split_at,
    split_intervals,
    stable_position,
)
from demo_pipeline.exports.cudag.models import (
    DIRECTORY_PATTERN,
    GENERATOR,
    HASHED,
    RECORD_FILES,
    REPORT_FILE,
    CudagMetadata,
)
from demo_pipeline.exports.cudag.record_rules import HUMAN_START, cudag_record_problems
from demo_pipeline.exports.cudag.records import (
    DRAFT_EXCLUSIONS,
    DRAFT_SETTINGS,
    record_drafts,
)
from demo_pipeline.exports.cudag.validator import validate_cudag, validate_cudag_file
from demo_pipeline.exports.export_summary import ExportSummary, FinishedRows
from demo_pipeline.exports.form import (
    Excluded,
    File,
    Form,
    KeptRow,
    Row,
    Source,
    json_text,
)
from demo_pipeline.exports.prompts import scroll_rule, system_prompt, tool_schema, units_per_notch
from demo_pipeline.exports.tool_calls import RU_MAX, render_tool_calls
from demo_pipeline.files.image_files import Pixels, PngWriter
from demo_pipeline.files.shown_text import escape_markers
from demo_pipeline.problems import Problem
from demo_pipeline.settings import NAME_PART, DatasetSettings
from demo_pipeline.stage import Check, TrainingExport
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

QWEN_VL = "qwen_vl"  # folder of records for QwenLM's and 2U1's training scripts
MADE = "cudag"  # folder of JPEGs and annotated screenshots in the output of the stage `records`
# Colours (red, green, blue) in annotated screenshots.
_POINT = (255, 0, 0)
_BOX = (0, 200, 0)


def image_suffix(settings: DatasetSettings) -> str:
    """Returns the file extension of training images."""
    return ".jpg" if settings.image_mode == "jpeg" else ".png"


def cudag_pictures(
    candidate: Candidate, split: Split, record: KeptRow, settings: DatasetSettings
) -> Mapping[str, str]:
    """Returns a record's images: a mapping from names in the dataset to source files.

    The source is an image that the stage `records` made, or the screenshot if that stage made no
    image. See `Form.pictures`.
    """
    (path,) = record.files.values()
    source = candidate.source
    screenshot = f"{source.folder}/{path}"
    if split is not Split.TEST:
        image = f"{record.id}{image_suffix(settings)}"
        return {f"images/{image}": _kept_image(source, image, screenshot)}
    pictures = {f"test/images/{record.id}.png": screenshot}
    if record.counts["places"] and "test" in record.parts:
        drawn = f"{record.id}_annotated.png"
        pictures[f"test/annotated/{drawn}"] = _kept_image(source, drawn, screenshot)
    return pictures


def _kept_image(source: DatasetTrajectory, image: str, screenshot: str) -> str:
    """Returns the path of the image, or of the screenshot if `records` did not make the image."""
    kept = f"{MADE}/{image}"
    return f"{source.records}/{kept}" if kept in source.digests else screenshot


def make_cudag_picture(
    source: str, target: str, record: KeptRow, settings: DatasetSettings
) -> bool | None:
    """Writes an image that is not a link: an annotated screenshot, a JPEG or a copy.

    Args:
        source: path of the screenshot, or of the finished image.
        record: the record that contains the name of the image.

    Returns:
        True if the image was written, False if the screenshot cannot be decoded, None if the image
        is a link, which the caller makes.
    """
    draws = target.endswith("_annotated.png") and not source.endswith("_annotated.png")
    converts = target.endswith(".jpg") and not source.endswith(".jpg")
    if not (draws or converts or settings.image_mode == "copy"):
        return None
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    if draws:
        tested = json.loads(record.parts["test"])["metadata"]
        metadata_values = {key: tested[key] for key in CudagMetadata._fields}
        annotate(Path(source), Path(target), CudagMetadata(**metadata_values))
    elif converts:
        picture = cv2.imread(source, cv2.IMREAD_COLOR)
        quality = [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality]
        return picture is not None and bool(cv2.imwrite(target, picture, quality))
    else:
        shutil.copyfile(source, target)
    return True


def prepare_cudag_pictures(
    candidate: Candidate, records: Iterable[KeptRow], settings: DatasetSettings, out: Path
) -> None:
    """Writes JPEGs and annotated screenshots for the records; see `Form.prepare_pictures`.

    The split is not known yet, so it is predicted from the hash of the task. Only screenshots of
    the test split are annotated. If the prediction is wrong, the build of the dataset makes the
    missing images.
    """
    without_images = replace(candidate, source=replace(candidate.source, digests={}))
    position = stable_position(settings.seed, candidate.split_groups[0])
    split = split_at(position, split_intervals(settings))
    for record in records:
        for name, screenshot in cudag_pictures(without_images, split, record, settings).items():
            target = f"{out}/{MADE}/{Path(name).name}"
            if target.endswith((".jpg", "_annotated.png")):
                make_cudag_picture(screenshot, target, record, settings)


def annotate(source: Path, target: Path, metadata: CudagMetadata) -> bool:
    """Draws the expected point and its tolerance on a copy of the screenshot.

    Returns:
        False if the screenshot cannot be decoded and no copy was written.
    """
    picture = cv2.imread(str(source), cv2.IMREAD_COLOR_RGB)
    if picture is None:
        return False
    _draw(picture, metadata)
    PngWriter().write(target, picture)
    return True


def _draw(picture: Pixels, metadata: CudagMetadata) -> None:
    x, y = metadata.real_coords
    half_x, half_y = _half(metadata)
    cv2.rectangle(picture, (x - half_x, y - half_y), (x + half_x, y + half_y), _BOX, 2)
    cv2.circle(picture, (x, y), 4, _POINT, -1)


def _half(metadata: CudagMetadata) -> tuple[int, int]:
    """Returns the tolerance in pixels: half the width and height of the drawn box."""
    width, height = metadata.image_size
    x, y = metadata.tolerance
    return round(x * width / RU_MAX), round(y * height / RU_MAX)


_STAMP = "%Y%m%d_%H%M%S"
SETTINGS_DETAIL = "settings"  # key of the summary; the value is the result of `decisive_settings`
_CHOICES = (  # settings that config.json contains
    *("held_out_applications", "include_failed", "include_aborted", "include_contaminated"),
    *("include_avoidable_leaks", "include_unavoidable_leaks"),
    *("max_hidden_share", "prompt_style"),
)
_DECISIVE = (  # settings that must be equal for all directories with the same prefix and user
    *("seed", "train_ratio", "val_ratio", "test_ratio", *_CHOICES),
    *("cudag_scroll_sign", "cudag_scroll_unit", "cudag_pixels_per_notch"),
)


def _generated_at(newest: datetime) -> datetime:
    """Returns the time in the dataset's name: the newest recording's time in whole seconds."""
    return newest.replace(microsecond=0)


def dataset_directory_name(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> str:
    """Returns the directory name that CUDAG requires: `{prefix}--{user}--{YYYYMMDD_HHMMSS}`.

    Raises:
        ValueError: a setting cannot be used in a name.
    """
    newest = select(trajectories, settings).newest
    return _directory_name(_generated_at(newest), settings)


def _prefix(settings: DatasetSettings) -> str:
    """Returns the prefix of the name, with the prompt style if the style is not `history`.

    Datasets with different prompt styles therefore never replace each other.
    """
    style = settings.prompt_style
    return settings.name_prefix if style == "history" else f"{settings.name_prefix}-{style}"


def _directory_name(time: datetime, settings: DatasetSettings) -> str:
    """Returns the directory name for a time; for errors see `dataset_directory_name`."""
    parts = {"name_prefix": settings.name_prefix, "user": settings.user}
    for key, part in parts.items():
        if not re.fullmatch(NAME_PART.strip("^$"), part):
            raise ValueError(
                f"datasets.{key} is {part!r}; use letters, digits, . _ and single - inside"
            )
    name = f"{_prefix(settings)}--{settings.user}--{time:{_STAMP}}"
    if not DIRECTORY_PATTERN.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid dataset name; choose other parts")
    return name


def _configuration(
    settings: DatasetSettings,
    time: datetime,
    tasks: Mapping[str, int],
    plan: SplitPlan,
    escaped: Mapping[str, int],
) -> dict[str, Any]:
    """Returns the content of `config.json`.

    Args:
        time: the time in the dataset's name.
        tasks: number of records in all splits, by task type.
        escaped: numbers of escaped control markers (special tokens) in prompts and tool calls.
    """
    total = sum(tasks.values())
    return {
        "generator": GENERATOR,
        "name_prefix": _prefix(settings),
        "user": settings.user,
        "generated_at": f"{time:%Y-%m-%dT%H:%M:%SZ}",
        "seed": settings.seed,
        "task_types": list(tasks),
        "task_counts": tasks,
        "task_distributions": {kind: round(count / total, 6) for kind, count in tasks.items()},
        "train_split": settings.train_ratio,
        "split_ratios": _split_ratios(settings),
        "split_rule": "SHA-256 of seed and task group against the cumulative ratios",
        "split_filled": [{"group": group, "split": split.value} for group, split in plan.filled],
        **_values(settings, _CHOICES),
        "images": _images(settings),
        "scroll": {
            "unit": settings.cudag_scroll_unit,
            "positive": settings.cudag_scroll_sign,
            "hscroll_positive": "right",
            "pixels_per_notch": units_per_notch(settings),
            "rule": scroll_rule(settings),
        },
        "tolerance": {
            "unit": "RU",
            "rule": "from the point to the target's nearer edge on each axis, within min and max; "
            "a test of a click on a button, a box or a menu item expects the target's centre, "
            "with half the target's size as tolerance; a test of another action has no target_bbox",
            "min": settings.tolerance_min,
            "max": settings.tolerance_max,
            "without_target": settings.default_tolerance,
            "scroll": settings.scroll_tolerance,
            "drag": settings.drag_tolerance,
        },
        "escaped_markers": escaped,
        "system_prompt": system_prompt(settings),
    }


def decisive_settings(settings: DatasetSettings) -> dict[str, JsonValue]:
    """Returns the settings that determine the records of a dataset, as JSON values by name."""
    return _values(settings, _DECISIVE) | {"image_mode": _images(settings)}


def _values(settings: DatasetSettings, names: Sequence[str]) -> dict[str, JsonValue]:
    """Returns the settings with these names as JSON values."""
    values: dict[str, JsonValue] = {}
    for name in names:
        value = getattr(settings, name)
        values[name] = list(value) if isinstance(value, tuple) else value
    return values


def _split_ratios(settings: DatasetSettings) -> dict[str, float]:
    """Returns the target share of task groups, 0 to 1, for each split that is assigned by hash."""
    return {name: getattr(settings, f"{name}_ratio") for name in HASHED}


def _images(settings: DatasetSettings) -> dict[str, JsonValue]:
    """Returns the format of the training images, and the quality of JPEGs."""
    if settings.image_mode == "jpeg":
        return {"format": "jpeg", "quality": settings.jpeg_quality}
    return {"format": "png"}


def _dataset_info(splits: Collection[Split], settings: DatasetSettings) -> dict[str, Any]:
    """Returns LLaMA-Factory's `dataset_info.json`: an entry `<name_prefix>_<split>` per split.

    For LLaMA-Factory, set `dataset_dir` and `media_dir` to the dataset's directory, and
    `default_system` to the text of `system_prompt.txt`, because records have no system prompt.
    """
    tags = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"}
    return {
        f"{_prefix(settings)}_{split.value}": {
            "file_name": RECORD_FILES[split.value],
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "images": "image"},
            "tags": tags,
        }
        for split in splits
    }


def _split_report(
    plan: SplitPlan, settings: DatasetSettings, summary: ExportSummary
) -> dict[str, Any]:
    """Returns the content of `splits.json`: splits, their sizes, and numbers of left-out items."""
    groups = Counter(plan.groups.values())
    trajectories = Counter(plan.splits.values())
    by_hash = groups.total() - groups[Split.HELD_OUT]
    splits: dict[str, dict[str, Any]] = {
        split.value: {
            "groups": groups[split],
            "trajectories": trajectories[split],
            "records": summary.records[split],
        }
        for split in Split
    }
    for name, ratio in _split_ratios(settings).items():
        share: float = 0
        if by_hash:
            share = round(splits[name]["groups"] / by_hash, 6)
        splits[name] |= {"ratio": ratio, "share": share}
    return {
        "splits": splits,
        "filled": [{"group": group, "split": split.value} for group, split in plan.filled],
        "empty": [split.value for split in plan.empty],
        "held_out_applications_absent": list(plan.absent),
        "excluded": {
            "trajectories": dict(sorted(summary.excluded_trajectories.items())),
            "records": dict(sorted(summary.excluded_records.items())),
            "actions": summary.hidden_actions,
        },
        "trajectories": {
            key: {"group": plan.members[key], "split": split.value}
            for key, split in plan.splits.items()
        },
    }


_PIECE = 2**20  # bytes that are copied at once
_DATA = ("train", "val", "held_out")  # data.jsonl consists of the files of these splits
# Keys of `Row.counts`.
_PROMPTS = "markers of prompts"
_CALLS = "markers of calls"
_TASK = "task "  # prefix; the rest of the key is a task type


def _rows(source: Source) -> Iterator[Row | Excluded]:
    """Yields the records of a trajectory, each in the layouts of all files that may contain it."""
    for draft in record_drafts(source):
        if isinstance(draft, Excluded):
            yield draft
            continue
        parts = {
            "line": draft.line(image_suffix(source.settings)),
            **draft.tests(),
            "test_line": draft.line(folder="test/"),
        }
        counts = {
            _PROMPTS: draft.markers,
            _CALLS: render_tool_calls(draft.calls)[1],
            "places": int(draft.metadata.has_coordinate),
            f"{_TASK}{draft.metadata.task_type}": 1,
        }
        files = {draft.id: draft.screenshot}
        tokens = draft.metadata.tokens
        yield Row(draft.id, draft.prompt, draft.screenshot, parts, files, counts, tokens=tokens)


def _task_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of records in all splits, by task type."""
    prefix = len(_TASK)
    return {name[prefix:]: counts[name] for name in sorted(counts) if name.startswith(_TASK)}


def _escaped(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the numbers of escaped control markers in prompts and in tool calls."""
    return {"prompts": counts.get(_PROMPTS, 0), "tool_calls": counts.get(_CALLS, 0)}


def _details(finished: FinishedRows) -> Mapping[str, Any]:
    """Returns the entries of the summary that only this export has; see `Form.details`.

    - `name`: the directory name
    - `trajectories`: number of planned trajectories, by split
    - `task_counts`: number of records, by task type
    - `escaped`: numbers of escaped control markers in prompts and in tool calls
    - `empty_splits`: splits with a ratio above 0 but no record; [] if there is no task group
    - `settings`: see `decisive_settings`

    Raises:
        ValueError: a setting cannot be used in the directory name.
    """
    plan = finished.plan
    settings = finished.settings
    records = finished.summary.records
    planned = Counter(plan.splits.splits.values())
    ratios = _split_ratios(settings)
    empty = [split for split, ratio in ratios.items() if ratio > 0 and not records[split]]
    return {
        "name": _directory_name(_generated_at(plan.selection.newest), settings),
        "trajectories": {split.value: planned[split] for split in Split},
        "task_counts": _task_counts(finished.counts),
        "escaped": _escaped(finished.counts),
        "empty_splits": empty if plan.splits.groups else [],
        SETTINGS_DETAIL: decisive_settings(settings),
    }


def _side_files(finished: FinishedRows) -> Mapping[str, Any]:
    """Returns config.json and the files that CUDAG does not require; see `Form.side_files`."""
    plan = finished.plan
    settings = finished.settings
    time = _generated_at(plan.selection.newest)
    tasks = _task_counts(finished.counts)
    written = [split for split in Split if finished.summary.records[split.value]]
    return {
        "config.json": _configuration(
            settings, time, tasks, plan.splits, _escaped(finished.counts)
        ),
        "system_prompt.txt": system_prompt(settings) + "\n",
        "tools.json": [tool_schema(settings)],
        "dataset_info.json": _dataset_info(written, settings),
        REPORT_FILE: _split_report(plan.splits, settings, finished.summary),
    }


def _kind_of(row: KeptRow) -> tuple[int, str]:
    """Returns step index and task type of a record; see `Form.kind_of`."""
    kind = next(name.removeprefix(_TASK) for name in row.counts if name.startswith(_TASK))
    return int(row.id.rpartition("_")[2]), kind


def replaced_directories(
    _inputs: DatasetInputs, directory: str, published: Collection[str]
) -> list[str]:
    """Returns the published directories with the same prefix and user as a new directory.

    Args:
        directory: name of the new output.
        published: names of the stage's published outputs.
    """
    return [name for name in published if name != directory and _family(name) == _family(directory)]


def verify_one_configuration(inputs: DatasetInputs, _out: Path) -> list[Problem]:
    """Returns a problem for each published directory that was built with other settings.

    Directories with a different prefix, user or code version are ignored. The code version matters
    because it can change the default settings.
    """
    settings = inputs.settings.datasets
    family = f"{_prefix(settings)}--{settings.user}"
    wanted = decisive_settings(settings)
    problems = []
    for name, version in inputs.published.items():
        is_comparable = version.manifest.recipe.code_version == inputs.code_version
        built = version.manifest.summary.get(SETTINGS_DETAIL)
        is_family = _family(name.rpartition("/")[2]) == family
        if not is_family or not is_comparable or not isinstance(built, Mapping):
            continue
        if differing := [key for key in wanted if key in built and built[key] != wanted[key]]:
            keys = ", ".join(f"datasets.{key}" for key in differing)
            message = (
                f"{name} has the same prefix and user, but was built with other values of {keys}; "
                "it stays published"
            )
            remedy = (
                "give these settings another datasets.name_prefix, so that both can be told apart"
            )
            problems.append(Problem("other_settings", "config.json", message, remedy=remedy))
    return problems


def _family(directory: str) -> str:
    """Returns `<prefix>--<user>`, the start of the name `<prefix>--<user>--<timestamp>`."""
    return directory.rpartition("--")[0]


def _union(out: Path) -> Iterator[bytes]:
    """Yields the content of `data.jsonl`: the records of train, then val, then held_out."""
    for split in _DATA:
        path = out / f"{split}.jsonl"
        if path.is_file():
            with path.open("rb") as records:
                yield from iter(partial(records.read, _PIECE), b"")


def _conversations(path: Path, prompt: str) -> Iterator[bytes]:
    """Yields a JSON array of a split's records with the system prompt in the human turn.

    The array is for training scripts that do not take a separate system prompt. Each record is on
    a line of its own.

    Args:
        path: the JSON Lines file of the split.
    """
    before = "[\n"
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            human = record["conversations"][0]
            question = human["value"].removeprefix(HUMAN_START)
            human["value"] = f"{HUMAN_START}{prompt}\n\n{question}"
            yield f"{before}{json_text(record)}".encode()
            before = ",\n"
    yield b"\n]\n"


class CudagForm(Form):
    """The record format of the CUDAG dataset, with images and layouts of its own."""

    def count_trajectory(self, source: Source) -> Mapping[str, int]:
        """Counts the control markers of the instruction once, although each prompt repeats them."""
        in_prompt = source.settings.prompt_style != "grounding"
        instruction = source.trajectory.task.instruction
        return {_PROMPTS: escape_markers(instruction)[1] if in_prompt else 0}

    def prepare_pictures(
        self, candidate: Candidate, rows: Iterable[KeptRow], settings: DatasetSettings, out: Path
    ) -> None:
        """Writes JPEGs and annotated screenshots; see `prepare_cudag_pictures`."""
        prepare_cudag_pictures(candidate, rows, settings, out)

    def make_picture(
        self, source: str, target: str, row: KeptRow, settings: DatasetSettings
    ) -> bool | None:
        """Writes a JPEG, an annotated screenshot or a copy; see `make_cudag_picture`."""
        return make_cudag_picture(source, target, row, settings)

    def derived_files(self, out: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yields `data.jsonl`, and `qwen_vl/<split>.json` for each split with a record."""
        yield "data.jsonl", _union(out)
        prompt = (out / "system_prompt.txt").read_text(encoding="utf-8").removesuffix("\n")
        for split in _DATA:
            path = out / f"{split}.jsonl"
            if path.is_file() and path.stat().st_size:
                yield f"{QWEN_VL}/{split}.json", _conversations(path, prompt)

    def adapted(self, export: TrainingExport[Any]) -> TrainingExport[Any]:
        """Puts each dataset into a directory with a CUDAG name.

        A new directory replaces the earlier directories with the same prefix and user. An
        additional check reports earlier directories that were built with other settings.
        """
        one_configuration = Check(
            "one_configuration",
            "No published directory with the same prefix and user was built with other settings.",
            verify_one_configuration,
            compared=("records",),
        )
        return replace(
            export,
            stage=replace(export.stage, checks=(one_configuration, *export.stage.checks)),
            subfolder=_subfolder,
            replaces=replaced_directories,
        )


def _subfolder(inputs: DatasetInputs) -> str:
    """Returns the directory name of the dataset that is built from the inputs."""
    return dataset_directory_name(inputs.committed.trajectories, inputs.settings.datasets)


_CONVERSED = frozenset({Split.TRAIN, Split.VAL, Split.HELD_OUT})
_TESTED = frozenset({Split.TEST})
FORM = CudagForm(
    name="cudag",
    asset="cudag_dataset",
    folder="datasets",
    description="A CUDAG dataset: all records, and those of train and val, as JSON Lines, and "
    "a test set with images. No task and no demonstration is in two splits.",
    code_version="26",
    settings=(
        *DRAFT_SETTINGS,
        *("image_mode", "jpeg_quality", "seed", "train_ratio", "val_ratio"),
    ),
    exclusions=DRAFT_EXCLUSIONS,
    unit="records",
    rows=_rows,
    files=(
        File(
            "line",
            "{split}.jsonl",
            checked=cudag_record_problems,
            only=_CONVERSED,
            config="default",
        ),
        File("test", "test/test.json", only=_TESTED),
        # The content of test.json as JSON Lines. `load_dataset` reads all configurations of a card
        # with the same reader, and the configuration `default` is in JSON Lines.
        File("test_row", "test/test.jsonl", only=_TESTED, config="test"),
        File("test_line", RECORD_FILES["test"], only=_TESTED),
    ),
    check="cudag_schema",
    kind_of=_kind_of,
    pictures=cudag_pictures,
    details=_details,
    side_files=_side_files,
    folders=("images", "test/images", "test/annotated", QWEN_VL),
    marks=("data.jsonl", "train.jsonl", "val.jsonl", "config.json", "images", "test"),
    decisive=False,
    line_key="conversations",
    validate=validate_cudag,
    validate_file=validate_cudag_file,
)
