"""The `raw_recordings` stage: three files verified, fingerprinted and described.

Belongs here: the manifest that later stages trust, and the proof that a file is still the one the
manifest speaks of. Not here: where uploads lie (storage/), what the log says (events.py).
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from demo_pipeline.common.hashing import file_digest
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.formats.demonstration.meta import Meta, read_meta
from demo_pipeline.problems import DemonstrationError, Problem, Severity
from demo_pipeline.recording.event_tables import LOG_FILE
from demo_pipeline.recording.video_probe import VIDEO_FILE, VideoProbe, probe_video
from demo_pipeline.settings import RecordingSettings

META_FILE = "meta.json"
MANIFEST_FILE = "manifest.json"
FILES = (LOG_FILE, META_FILE, VIDEO_FILE)

T = TypeVar("T")


class FileFingerprint(BaseModel):
    """One uploaded file."""

    model_config = ConfigDict(frozen=True)

    name: str
    size: int = Field(ge=0, description="bytes")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class RecordingManifest(BaseModel):
    """What `recordings/<id>/manifest.json` holds."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str = Field(description="the folder's name as uploaded")
    fingerprint: str = Field(description="SHA-256 over the three files' names and hashes")
    files: tuple[FileFingerprint, ...] = Field(min_length=3, max_length=3)
    meta: dict[str, Any] = Field(description="meta.json as parsed, unknown keys kept")
    video: VideoProbe
    warnings: tuple[dict[str, Any], ...] = ()

    def parsed_meta(self) -> Meta:
        """The meta as its model."""
        return Meta.model_validate(self.meta)

    @property
    def recorded_at(self) -> datetime:
        """meta.timestamp in UTC."""
        return self.parsed_meta().timestamp.astimezone(UTC)


def build_manifest(
    folder: Path, demonstration: str, name: str, out: Path, settings: RecordingSettings
) -> dict[str, Any]:
    """Examine `folder`, write manifest.json into `out`, return a summary.

    Raises `DemonstrationError` with everything that is wrong with the three files at once.
    """
    manifest = examine(folder, demonstration, name, settings)
    dump_json(out / MANIFEST_FILE, manifest)
    video = manifest.video
    return {
        "fingerprint": manifest.fingerprint,
        "bytes": sum(file.size for file in manifest.files),
        "video": f"{video.codec} {video.width}x{video.height}, {video.frames} frames, "
        f"{video.mean_fps:g} fps{' (variable)' if video.variable_rate else ''}",
        "video_seconds": round(video.last_pts_s - video.first_pts_s, 3),
        "platform": manifest.parsed_meta().platform,
        "status": manifest.parsed_meta().status,
        "warnings": [str(warning["message"]) for warning in manifest.warnings],
    }


def examine(
    folder: Path, demonstration: str, name: str, settings: RecordingSettings
) -> RecordingManifest:
    """Read, hash and probe the three files."""
    missing = [
        Problem(
            "missing_file",
            file,
            "is missing" if not (folder / file).exists() else "is no regular file",
            remedy=f"upload {file} beside the other files",
        )
        for file in FILES
        if not (folder / file).is_file()
    ]
    problems: list[Problem] = list(missing)
    absent = {problem.file for problem in missing}
    meta = _attempt(
        problems, lambda: read_meta((folder / META_FILE).read_bytes()), META_FILE, absent
    )
    probe = _attempt(
        problems, lambda: probe_video(folder / VIDEO_FILE, settings), VIDEO_FILE, absent
    )
    if LOG_FILE not in absent and not (folder / LOG_FILE).stat().st_size:
        remedy = "upload the log again"
        problems.append(Problem("empty_file", LOG_FILE, "is empty", line=1, remedy=remedy))
    if problems or meta is None or probe is None:
        raise DemonstrationError([replace(p, demonstration=demonstration) for p in problems])
    warnings = [*meta[1], *probe[1], *_id_warning(meta[0], name)]
    files = tuple(fingerprint_file(folder / file) for file in FILES)
    return RecordingManifest(
        id=demonstration,
        name=name,
        fingerprint=combined_fingerprint(files),
        files=files,
        meta=meta[0].members(),
        video=probe[0],
        warnings=tuple(replace(p, demonstration=demonstration).as_dict() for p in warnings),
    )


def _attempt(
    problems: list[Problem], read: Callable[[], T], file: str, absent: set[str]
) -> T | None:
    if file in absent:
        return None
    try:
        return read()
    except DemonstrationError as error:
        problems.extend(error.problems)
    return None


def _id_warning(meta: Meta, name: str) -> list[Problem]:
    if not meta.id or meta.id == name:
        return []
    message = "meta.id differs from the folder's name; the folder's name is the demonstration id"
    return [Problem("id_differs", META_FILE, message, severity=Severity.WARNING)]


def fingerprint_file(path: Path) -> FileFingerprint:
    """Size and SHA-256 of a file."""
    size, sha256 = file_digest(path)
    return FileFingerprint(name=path.name, size=size, sha256=sha256)


def combined_fingerprint(files: Sequence[FileFingerprint]) -> str:
    """SHA-256 over `name sha256` lines, by name."""
    text = "".join(f"{file.name} {file.sha256}\n" for file in sorted(files, key=lambda f: f.name))
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(folder: Path) -> RecordingManifest:
    """Load `folder`/manifest.json. Raises `DemonstrationError` when it does not fit its model."""
    try:
        return RecordingManifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError) as error:
        message = f"does not fit its model: {type(error).__name__}"
        remedy = "materialise raw_recordings again"
        raise DemonstrationError(
            Problem("invalid_manifest", MANIFEST_FILE, message, remedy=remedy)
        ) from None


def verified_file(folder: Path, name: str, manifest: RecordingManifest) -> Path:
    """The path of an uploaded file, proven to be the one the manifest speaks of.

    Raises `DemonstrationError` when the upload changed since `raw_recordings` saw it.
    """
    path = folder / name
    expected = next(file for file in manifest.files if file.name == name)
    if not path.is_file() or fingerprint_file(path) != expected:
        message = "changed since raw_recordings verified it"
        remedy = "materialise raw_recordings of this demonstration again"
        raise DemonstrationError(
            Problem("upload_changed", name, message, remedy=remedy, demonstration=manifest.id)
        )
    return path


def keep_files(folder: Path, out: Path) -> None:
    """Let the three files be in `out`, too: by hard links, or copies where these cannot be."""
    for name in FILES:
        try:
            os.link(folder / name, out / name)
        except OSError:
            shutil.copyfile(folder / name, out / name)


def kept_file(folder: Path, name: str, manifest: RecordingManifest) -> Path:
    """The path of a file that `raw_recordings` kept beside its manifest.

    Raises `DemonstrationError` when it is not there, as when the uploads were local at the time.
    """
    path = folder / name
    expected = next(file for file in manifest.files if file.name == name)
    if not path.is_file() or path.stat().st_size != expected.size:
        message = "is not beside the manifest that raw_recordings wrote"
        remedy = "materialise raw_recordings of this demonstration again"
        raise DemonstrationError(
            Problem("missing_file", name, message, remedy=remedy, demonstration=manifest.id)
        )
    return path
