"""Tests that errors of the machine are distinguished from errors of a single file."""

import errno
from pathlib import Path

import av
import pytest

from demo_pipeline.files.system_errors import (
    raise_disk_trouble,
    raise_system_trouble,
    system_trouble,
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "x"), "No space left on device"),
        (OSError(errno.EIO, "x"), "Input/output error"),
        (OSError(errno.EDQUOT, "x"), "Disk quota exceeded"),
        (PermissionError(errno.EACCES, "x"), "Permission denied"),
        (MemoryError(), "not enough memory"),
        (ConnectionResetError(), "the connection failed"),
        (TimeoutError(), "the connection failed"),
    ],
)
def test_errors_of_the_machine_have_plain_messages(error, words):
    assert system_trouble(error) == words


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        OSError("an image that no decoder knows"),
        av.error.MemoryError(errno.ENOMEM, "a hostile video"),
        av.error.InvalidDataError(1, "a broken video"),
    ],
)
def test_errors_that_a_file_may_cause_are_not_errors_of_the_machine(error):
    assert system_trouble(error) is None


@pytest.mark.parametrize("number", [errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENOENT])
def test_permissions_and_kinds_stay_the_files_own_problem(number):
    raise_system_trouble(OSError(number, "x"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM, errno.ESTALE])
def test_errors_of_the_disk_are_raised_again(number):
    with pytest.raises(OSError, match="x"):
        raise_system_trouble(OSError(number, "x"))


def test_a_video_that_ffmpeg_cannot_read_is_at_fault_when_the_disk_can(tmp_path, monkeypatch):
    video = tmp_path / "recording.mp4"
    video.write_bytes(b"not a video")
    raise_disk_trouble(av.error.OSError(errno.EIO, "x"), video)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk")

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(OSError, match="the disk"):
        raise_disk_trouble(av.error.OSError(errno.EIO, "x"), video)
