"""Writes an imported recording as an upload folder, completely or not at all.

People can state facts that the recording does not contain, such as the task. They use options of
the command, or a file `import.json` next to the recording.
"""

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.json_files import dump_json, json_bytes, load_json
from demo_pipeline.files.recording_files import LOG_FILE, META_FILE, SOURCE_FILE, VIDEO_FILE
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import Importer, SourceRecording
from demo_pipeline.importers.source_values import UnreadableSourceError, json_object, plain_text
from demo_pipeline.importers.video_remux import VideoFacts, copy_video

SIDECAR = "import.json"
OUTCOMES = {
    "completed": ("completed", "done"),
    "failed": ("completed", "fail"),
    "aborted": ("aborted", None),
}
"""Maps an outcome that a person states to `status` and `reason` in meta.json."""

PLATFORMS = ("windows", "macos", "linux")
# Version of the written files. Increase it when the same source yields different files.
_FORM = 2
# Names of folders may contain the uploader's e-mail address, which must not become part of the id.
_ADDRESS = re.compile(r"[^\s@_]+@[^\s@_]+\.[^\s@_]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")  # becomes "_" in an id
_MOST_NAME = 60  # maximum number of characters that an id takes from the recording's name
_INPUTS = {"mousemove", "mousedown", "mouseup", "mousewheel", "keydown", "keyup"}
# The import reports a log that ends more than 5 s after the video. If the same recorder writes log
# and video, they start at most 2.5 s apart and end at most 2.5 s apart. The limit is the sum.
_UNFILMED_MS = 5000


@dataclass(frozen=True)
class Given:
    """The facts that a person states about a recording. A fact that is not stated is empty.

    `status` is a key of `OUTCOMES`, `platform` an item of `PLATFORMS`.
    """

    task: str = ""
    status: str = ""
    application: str = ""
    platform: str = ""


def given_for(source: SourceFiles, options: Given) -> Given:
    """Returns the stated facts of a recording: its `import.json` overrides the options.

    Raises `UnreadableSourceError` if `import.json` is invalid.
    """
    stem = source.logs[0].name.rpartition(".")[0]
    for path in (source.folder / f"{stem}.{SIDECAR}", source.folder / SIDECAR):
        if not path.is_file():
            continue
        sidecar = json_object(path)
        stated = {name: plain_text(sidecar.get(name)) for name in vars(options)}
        for name, choices in (("status", OUTCOMES), ("platform", PLATFORMS)):
            if stated[name] not in {"", *choices}:
                raise UnreadableSourceError(f"{path}: {name}: expected one of {', '.join(choices)}")
        return replace(options, **{name: text for name, text in stated.items() if text})
    return options


def import_id(source: SourceFiles) -> str:
    """Returns the id of the demonstration that a recording becomes.

    If the source has no id, the result is the recording's name without e-mail addresses, and 8
    hexadecimal digits of a hash over the logs.
    """
    if source.id:
        return source.id
    digest = hashlib.sha256()
    for log in source.logs:
        digest.update(file_digest(log).sha256.encode())
    name = _UNSAFE.sub("_", _ADDRESS.sub("", source.name)).strip("_")[:_MOST_NAME].strip("_")
    return f"{name or 'recording'}-{digest.hexdigest()[:8]}"


def source_files(source: SourceFiles) -> list[dict[str, Any]]:
    """Returns name, size and modification time of each file of a recording."""
    return [
        {"name": path.name, "bytes": path.stat().st_size, "changed_ns": path.stat().st_mtime_ns}
        for path in source.files
        if path.is_file()
    ]


def is_imported(folder: Path, source: SourceFiles, given: Given) -> bool:
    """Whether `folder` is an upload of these source files with these stated facts.

    Names, sizes and modification times of the source files are compared, not their content.
    """
    try:
        written = load_json(folder / SOURCE_FILE)
    except ValueError:
        return False
    wanted = {"form": _FORM, "given": vars(given), "files": source_files(source)}
    return isinstance(written, dict) and all(written.get(name) == wanted[name] for name in wanted)


def write_upload(
    folder: Path,
    source: SourceFiles,
    recording: SourceRecording,
    importer: Importer,
    given: Given,
) -> None:
    """Writes the upload folder, and replaces an older one of the same recording.

    Raises:
        UnreadableSourceError: the video cannot be copied, or the log has no input.
        OSError: a source file cannot be read, or the folder cannot be written.
    """
    with _whole_folder(folder) as draft:
        video = copy_video(recording.video, draft / VIDEO_FILE)
        kinds = _write_log(draft / LOG_FILE, recording, video)
        if not kinds.keys() & _INPUTS:
            raise UnreadableSourceError(f"{source.logs[0]}: holds no input that can be read")
        meta = _meta(folder.name, recording, video, given)
        dump_json(draft / META_FILE, meta)
        missing = [name for name in ("task", "status") if not meta["imported"][name]]
        record = source_record(
            source,
            importer,
            given,
            damaged=recording.damaged,
            lost=recording.not_carried_over,
            missing=missing,
        )
        record |= {"carried_over": dict(sorted(kinds.items())), "film": video._asdict()}
        dump_json(draft / SOURCE_FILE, record)


def source_record(
    source: SourceFiles,
    importer: Importer,
    given: Given,
    *,
    damaged: Sequence[str],
    lost: Sequence[str],
    missing: Sequence[str],
) -> dict[str, Any]:
    """Returns the fields of source.json that uploads and trajectories have in common.

    Args:
        damaged: sentences about parts of the source that could not be read.
        lost: sentences about parts of the source that were not carried over.
        missing: the names of the unknown facts: `task`, `status` or both.
    """
    return {
        "tool": importer.tool,
        "form": _FORM,
        "given": vars(given),
        "files": source_files(source),
        "not_carried_over": list(lost),
        "damaged": list(damaged),
        "missing": list(missing),
    }


@contextmanager
def _whole_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder, which replaces `folder` if the block ends without error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".importing-{folder.name}")
    old = folder.with_name(f".replaced-{folder.name}")
    for left_over in (draft, old):
        shutil.rmtree(left_over, ignore_errors=True)
    draft.mkdir()
    try:
        yield draft
        if folder.exists():
            folder.rename(old)
        draft.rename(folder)
    finally:
        for left_over in (draft, old):
            shutil.rmtree(left_over, ignore_errors=True)


def _write_log(path: Path, recording: SourceRecording, video: VideoFacts) -> Counter[str]:
    """Writes input_log.jsonl and returns the number of lines of each event type."""
    kinds = Counter[str]()
    with path.open("wb") as stream:
        if recording.video_zero_ms is not None:
            first = recording.video_zero_ms + video.first_s * 1000
            # The pipeline reads the start time of the video from a message of ffmpeg that recorders
            # log. This line has the same form.
            text = f"start: {first / 1000:.6f} (of the first frame, by the imported recording)"
            line = {"event": "ffmpeg_stderr", "data": {"output": text}, "time": round(first)}
            stream.write(json_bytes(line, compact=True))
        begins = recording.video_zero_ms or recording.recorded_at.timestamp() * 1000
        ends = last = begins + video.last_s * 1000
        for event, data, time in recording.lines:
            kinds[event] += 1
            last = max(last, time)
            line = {"event": event, "data": data, "time": round(time)}
            stream.write(json_bytes(line, compact=True))
    if last - ends > _UNFILMED_MS:
        gap = f"the video ends {(last - ends) / 1000:.0f} s before the last event"
        recording.damaged.append(f"{gap}: actions after its end do not become steps")
    return kinds


def _meta(name: str, recording: SourceRecording, video: VideoFacts, given: Given) -> dict[str, Any]:
    """Returns the content of meta.json.

    Unknown facts are empty. The field `imported` says whether the task and the status are known.
    """
    status, reason = OUTCOMES.get(given.status or recording.status, ("", None))
    task = given.task or recording.task
    width, height = recording.screen or (video.width, video.height)
    quest = None
    if task:
        app = given.application or recording.application
        quest = {"title": task, "app": app, "icon_url": "", "objectives": [], "content": task}
    return {
        "id": name,
        "timestamp": recording.recorded_at.isoformat(),
        "duration_seconds": round(video.last_s - video.first_s, 3),
        "status": status,
        "title": task,
        "description": "",
        "platform": recording.platform or given.platform,
        "arch": recording.arch,
        "version": recording.version,
        "locale": "",
        "primary_monitor": {"width": width, "height": height},
        "reason": reason,
        "quest": quest,
        "imported": {"task": bool(task), "status": bool(status)},
    }
