"""The files that make up a recording: their names, and how large they may be."""

from collections.abc import Mapping
from typing import Protocol

from demo_pipeline.problems import Problem

LOG_FILE = "input_log.jsonl"
META_FILE = "meta.json"
VIDEO_FILE = "recording.mp4"
RECORDING_FILES = (LOG_FILE, META_FILE, VIDEO_FILE)
# Written by newer recorders and by what receives their uploads; nothing is read from them.
OTHER_FILES = ("checksums.json", "input_log_meta.json", "manifest.json", "sft.json")


class FileLimits(Protocol):
    """The settings that limit the size of each file, in bytes."""

    @property
    def max_log_bytes(self) -> int:
        """Of input_log.jsonl."""
        ...

    @property
    def max_meta_bytes(self) -> int:
        """Of meta.json."""
        ...

    @property
    def max_video_bytes(self) -> int:
        """Of recording.mp4."""
        ...


def oversized_files(sizes: Mapping[str, int], limits: FileLimits) -> list[Problem]:
    """A problem for each file that is larger than it may be; found before anything is read.

    Args:
        sizes: file name → bytes; names besides the three do not count.
        limits: the settings.
    """
    most = {
        LOG_FILE: ("max_log_bytes", limits.max_log_bytes),
        META_FILE: ("", limits.max_meta_bytes),
        VIDEO_FILE: ("max_video_bytes", limits.max_video_bytes),
    }
    return [
        Problem(
            "file_too_large",
            name,
            f"has {sizes[name]} bytes, and more than {limit} are not accepted",
            remedy="upload the file that the recorder wrote"
            + (f"; if it is this large, raise the setting limits.{setting}" if setting else ""),
        )
        for name, (setting, limit) in most.items()
        if sizes.get(name, 0) > limit
    ]
