"""The upload folder that an imported recording becomes: written whole, or not at all.

The module also reads the facts that people state about a recording (task, status, application)
where its source does not: options of the command, or a file `import.json` next to the recording.
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
from demo_pipeline.importers.source_recording import (
    Importer,
    SourceFiles,
    SourceRecording,
    UnreadableSourceError,
    json_object,
    plain_text,
)
from demo_pipeline.importers.video_remux import VideoFacts, copy_video

SIDECAR = "import.json"
OUTCOMES = {
    "completed": ("completed", "done"),
    "failed": ("completed", "fail"),
    "aborted": ("aborted", None),
}
"""The outcome as a person states it → `status` and `reason` of meta.json."""
PLATFORMS = ("windows", "macos", "linux")
_FORM = 1  # of what this module writes; raised when it writes other bytes
_ADDRESS = re.compile(r"[^\s@_]+@[^\s@_]+\.[^\s@_]+")  # uploaders' e-mail in names of folders
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_MOST_NAME = 60
_INPUTS = {"mousemove", "mousedown", "mouseup", "mousewheel", "keydown", "keyup"}
_UNFILMED_MS = 5000  # recorders begin and end the video up to 2.5 s apart from the log


@dataclass(frozen=True)
class Given:
    """The facts that a person states about a recording; empty: not stated.

    `status` is one of `OUTCOMES`, `platform` one of `PLATFORMS`.
    """

    task: str = ""
    status: str = ""
    application: str = ""
    platform: str = ""


def given_for(source: SourceFiles, options: Given) -> Given:
    """The facts for one recording: its file `import.json` overrides the options.

    Raises `UnreadableSourceError` for a sidecar that cannot be used.
    """
    stem = source.logs[0].name.rpartition(".")[0]
    for path in (source.folder / f"{stem}.{SIDECAR}", source.folder / SIDECAR):
        if not path.is_file():
            continue
        value = json_object(path)
        stated = {name: plain_text(value.get(name)) for name in vars(options)}
        for name, choices in (("status", OUTCOMES), ("platform", PLATFORMS)):
            if stated[name] not in {"", *choices}:
                raise UnreadableSourceError(f"{path}: {name}: expected one of {', '.join(choices)}")
        return replace(options, **{name: text for name, text in stated.items() if text})
    return options


def import_id(source: SourceFiles) -> str:
    """The id of a recording: its name, and 8 hex of what its logs contain.

    The same logs have the same id, wherever they lie. E-mail addresses are taken out of the name.
    """
    if source.id:
        return source.id
    digest = hashlib.sha256()
    for log in source.logs:
        digest.update(file_digest(log).sha256.encode())
    name = _UNSAFE.sub("_", _ADDRESS.sub("", source.name)).strip("_")[:_MOST_NAME].strip("_")
    return f"{name or 'recording'}-{digest.hexdigest()[:8]}"


def source_files(source: SourceFiles) -> list[dict[str, Any]]:
    """Names, sizes and times of change of what a recording is read from."""
    return [
        {"name": path.name, "bytes": path.stat().st_size, "changed_ns": path.stat().st_mtime_ns}
        for path in source.files
        if path.is_file()
    ]


def is_imported(folder: Path, source: SourceFiles, given: Given) -> bool:
    """Whether `folder` holds what this recording becomes, with what is given for it now."""
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
    """Write the folder, in place of an older one of the same recording.

    Raises:
        UnreadableSourceError: the video cannot be copied.
        OSError: the disk is full, or it cannot be written to.
    """
    with _whole_folder(folder) as draft:
        video = copy_video(recording.video, draft / VIDEO_FILE)
        kinds = _write_log(draft / LOG_FILE, recording, video)
        if not kinds.keys() & _INPUTS:
            raise UnreadableSourceError(f"{source.logs[0]}: holds no input that can be read")
        meta = _meta(folder.name, recording, video, given)
        dump_json(draft / META_FILE, meta)
        missing = [name for name in ("task", "status") if not meta["imported"][name]]
        lost = recording.lost + [
            f"{count} {what}" for what, count in sorted((+recording.left_out).items())
        ]
        record = source_record(
            source, importer, given, damaged=recording.damaged, lost=lost, missing=missing
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
    """The members of source.json that every import has.

    Args:
        source: the source.
        importer: by which it was read.
        given: what a person says of it.
        damaged: sentences: what could not be read.
        lost: sentences: what was not carried over.
        missing: `task` and `status`, if they are not known.
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
    """A draft to write into, which becomes `folder` at the end unless an error was raised."""
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
    """Write input_log.jsonl; return how many lines of each kind it has."""
    kinds = Counter[str]()
    with path.open("wb") as stream:
        if recording.video_zero_ms is not None:
            first = recording.video_zero_ms + video.first_s * 1000
            # The form in which recorders log what ffmpeg printed: the clock reads it there.
            text = f"start: {first / 1000:.6f} (of the first picture, by the imported recording)"
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
        missing = f"the video ends {(last - ends) / 1000:.0f} s before the last event"
        recording.damaged.append(f"{missing}: what it does not show becomes no step")
    return kinds


def _meta(name: str, recording: SourceRecording, video: VideoFacts, given: Given) -> dict[str, Any]:
    """meta.json; facts that are not known are blank, and named in `imported`."""
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
