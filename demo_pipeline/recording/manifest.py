"""The `raw_recordings` stage: verifies, fingerprints and describes the files of a recording.

The required files are meta.json, input_log.jsonl and recording.mp4. The stage writes manifest.json.
Later stages compare the files with this manifest before they read them.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from demo_pipeline.files.atomic_write import combined_digest, file_digest, link_or_copy
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.json_files import dump_json, json_bytes
from demo_pipeline.files.recording_files import (
    LOG_FILE,
    META_FILE,
    OTHER_FILES,
    RECORDING_FILES,
    VIDEO_FILE,
    oversized_files,
)
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import DemonstrationError, Problem, warning
from demo_pipeline.recording.meta import Meta, read_meta
from demo_pipeline.recording.video_probe import VideoProbe, describe_video, probe_video

MANIFEST_FILE = "manifest.json"
_REBUILD = "process this demonstration again, from the uploaded files on"


class FileFingerprint(BaseModel):
    """Name, size and SHA-256 of an uploaded file."""

    model_config = ConfigDict(frozen=True)

    name: str
    size: int = Field(ge=0, description="size in bytes")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class RecordingManifest(BaseModel):
    """The content of `recordings/<id>/manifest.json`."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str = Field(description="name of the uploaded folder")
    fingerprint: str = Field(description="SHA-256 of the names and hashes of the three files")
    files: tuple[FileFingerprint, ...] = Field(min_length=3, max_length=3)
    other_files: tuple[FileFingerprint, ...] = Field(
        (), description="other uploaded files, which are optional and not part of the fingerprint"
    )
    meta: dict[str, Any] = Field(description="content of meta.json, including unknown keys")
    video: VideoProbe
    warnings: tuple[dict[str, Any], ...] = ()

    def file(self, name: str) -> FileFingerprint:
        """Returns the fingerprint of the required file with this name."""
        return next(file for file in self.files if file.name == name)

    def parsed_meta(self) -> Meta:
        """Returns the content of meta.json as a validated model."""
        return Meta.model_validate(self.meta)

    @property
    def recorded_at(self) -> datetime:
        """meta.timestamp in UTC."""
        return self.parsed_meta().timestamp.astimezone(UTC)


def build_manifest(folder: Path, demonstration: str, out: Path) -> dict[str, Any]:
    """Examines a recording, writes manifest.json, and returns the summary of the stage.

    Args:
        folder: the uploaded folder.

    Raises:
        DemonstrationError: required files are missing or invalid; lists all problems.
    """
    manifest = examine(folder, demonstration)
    dump_json(out / MANIFEST_FILE, manifest)
    video = manifest.video
    return {
        "fingerprint": manifest.fingerprint,
        "bytes": sum(file.size for file in manifest.files),
        "video": f"{video.codec} {video.width}x{video.height}, {video.frames} frames, "
        f"{video.mean_fps:g} fps{' (variable)' if video.variable_rate else ''}",
        "video_seconds": round(video.last_pts_s - video.first_pts_s, 3),
        "platform": manifest.parsed_meta().platform or "unknown",
        "status": manifest.parsed_meta().status,
        "warnings": [str(warning["message"]) for warning in manifest.warnings],
    }


def examine(folder: Path, demonstration: str) -> RecordingManifest:
    """Reads, hashes and probes the required files of a recording, and returns their manifest.

    Raises:
        DemonstrationError: required files are missing or invalid; lists all problems.
    """
    problems = _unusable_files(folder)
    usable = {META_FILE, VIDEO_FILE} - {problem.file for problem in problems}
    meta = probe = None
    try:
        if META_FILE in usable:
            meta = read_meta((folder / META_FILE).read_bytes())
    except DemonstrationError as error:
        problems.extend(error.problems)
    try:
        if VIDEO_FILE in usable:
            probe = probe_video(folder / VIDEO_FILE)
    except DemonstrationError as error:
        problems.extend(error.problems)
    log = folder / LOG_FILE
    if log.is_file() and not log.stat().st_size:
        remedy = "upload the log again"
        problems.append(Problem("empty_file", LOG_FILE, "is empty", line=1, remedy=remedy))
    if problems or meta is None or probe is None:
        raise DemonstrationError([replace(p, demonstration=demonstration) for p in problems])
    warnings = [*meta[1], *probe[1], *_meta_warnings(meta[0], demonstration)]
    files = tuple(fingerprint_file(folder / file) for file in RECORDING_FILES)
    return RecordingManifest(
        id=demonstration,
        name=demonstration,
        fingerprint=combined_digest((file.name, file.sha256) for file in files),
        files=files,
        other_files=tuple(_other_files(folder)),
        meta=meta[0].members(),
        video=probe[0],
        warnings=tuple(replace(p, demonstration=demonstration).as_dict() for p in warnings),
    )


def _unusable_files(folder: Path) -> list[Problem]:
    """Returns a problem for each required file that is missing or too large."""
    missing = []
    sizes = {}
    for file in RECORDING_FILES:
        if (folder / file).is_file():
            sizes[file] = (folder / file).stat().st_size
            continue
        message = "is missing"
        if (folder / file).exists():
            message = "is not a regular file"
        remedy = f"upload {file} to the folder of the other files"
        missing.append(Problem("missing_file", file, message, remedy=remedy))
    return missing + oversized_files(sizes)


def _other_files(folder: Path) -> Iterator[FileFingerprint]:
    """Yields the fingerprints of readable optional files, without symbolic links."""
    for name in OTHER_FILES:
        path = folder / name
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                yield fingerprint_file(path)


def _meta_warnings(meta: Meta, name: str) -> Iterator[Problem]:
    """Yields a warning if the id is not the folder's name, and one if the platform is unknown."""
    if meta.id and meta.id != name:
        message = (
            "meta.id differs from the folder's name; the folder's name is the demonstration id"
        )
        yield warning("id_differs", META_FILE, message)
    if not meta.platform:
        fault = "is missing"
        code = "missing"
        if meta.platform_raw:
            fault = "is another"
            code = "unknown"
        yield warning(
            f"{code}_platform",
            META_FILE,
            f"platform: expected windows, macos or linux, {fault}; key names decide if they can",
            remedy="add the platform: keys, wheel and accessibility trees are read by it",
        )


def fingerprint_file(path: Path) -> FileFingerprint:
    """Returns the name, size and SHA-256 of a file."""
    size, sha256 = file_digest(path)
    return FileFingerprint(name=path.name, size=size, sha256=sha256)


def read_manifest(folder: Path) -> RecordingManifest:
    """Reads manifest.json from the output of the `raw_recordings` stage.

    Raises:
        DemonstrationError: the file is missing or does not match `RecordingManifest`.
    """
    try:
        return RecordingManifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError) as error:
        raise_system_trouble(error)
        message = f"does not fit its model: {type(error).__name__}"
        raise DemonstrationError(
            Problem("invalid_manifest", MANIFEST_FILE, message, remedy=_REBUILD)
        ) from None


def verified_file(
    folder: Path, name: str, manifest: RecordingManifest, *, kept: bool = False
) -> Path:
    """Returns the path of an uploaded file after checking that the file matches the manifest.

    Args:
        kept: whether the file is a copy that `keep_files` put next to the manifest. If so, only its
            size is compared, because the store verifies the hash.

    Raises:
        DemonstrationError: the size or hash changed, or the copy is missing.
    """
    path = folder / name
    fingerprint = manifest.file(name)
    code = "upload_changed"
    message = "changed since it was verified"
    if kept:
        code = "missing_file"
        message = "is missing beside the recording's manifest"
    as_known = path.is_file() and path.stat().st_size == fingerprint.size
    if as_known and (kept or fingerprint_file(path) == fingerprint):
        return path
    raise DemonstrationError(
        Problem(code, name, message, remedy=_REBUILD, demonstration=manifest.id)
    )


def check_manifest(folder: Path, upload: Path, demonstration: str) -> list[Problem]:
    """Returns a problem for each difference between a written manifest and the uploaded files.

    The frames of the video are counted again, but only the first one is decoded.

    Args:
        folder: output of the stage, which contains the manifest.
        upload: folder with the uploaded files.

    Raises:
        DemonstrationError: a file changed, or the manifest cannot be read.
    """
    written = read_manifest(folder)
    names = [file.name for file in written.files]
    if names != list(RECORDING_FILES):
        return [Problem("differs", MANIFEST_FILE, "files: expected the three", remedy=_REBUILD)]
    for file in RECORDING_FILES:
        verified_file(upload, file, written)
    kept = {file: upload / file for file in RECORDING_FILES if (folder / file).exists()}
    derived = written.model_copy(
        update={
            "id": demonstration,
            "name": demonstration,
            "fingerprint": combined_digest((file.name, file.sha256) for file in written.files),
            # Optional files of a download are not stored, so they are not compared.
            "other_files": written.other_files if kept else tuple(_other_files(upload)),
            "meta": read_meta((upload / META_FILE).read_bytes())[0].members(),
            "video": describe_video(upload / VIDEO_FILE),
        }
    )
    return differing_files(folder, {MANIFEST_FILE: json_bytes(derived), **kept})


def keep_files(folder: Path, out: Path) -> None:
    """Hard-links the required files into `out`, or copies them if links are not possible."""
    for name in RECORDING_FILES:
        link_or_copy(folder / name, out / name)
