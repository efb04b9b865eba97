"""Tests that the digest of a file is right, even if the file changed since it was last computed."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from demo_pipeline.files.atomic_write import FileDigest, file_digest


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that was last written a minute ago, according to a changed clock."""
    path = tmp_path / "recording.mp4"
    path.write_bytes(b"first")
    later = time.time_ns() + 60_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    return path


def digest_of(data: bytes) -> FileDigest:
    return FileDigest(len(data), hashlib.sha256(data).hexdigest())


def test_a_file_that_rests_is_read_once(old, monkeypatch):
    assert file_digest(old) == digest_of(b"first")
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("was read again"))
    assert file_digest(old) == digest_of(b"first")


@pytest.mark.parametrize("in_place", [True, False])
def test_other_bytes_of_the_same_length_and_date_are_noticed(old, *, in_place):
    status = old.stat()
    assert file_digest(old) == digest_of(b"first")
    time.sleep(0.02)  # more than a tick of the file system's clock
    written = old if in_place else old.with_name("other")
    written.write_bytes(b"other")
    os.utime(written, ns=(status.st_atime_ns, status.st_mtime_ns))
    written.replace(old)
    assert file_digest(old) == digest_of(b"other")


def test_a_file_that_was_just_written_is_read_each_time(tmp_path, monkeypatch):
    path = tmp_path / "recording.mp4"
    path.write_bytes(b"first")
    # Simulates writes within one tick of a coarse clock, so that only the bytes differ.
    status = path.stat()
    monkeypatch.setattr(Path, "stat", lambda *_, **__: status)
    assert file_digest(path) == digest_of(b"first")
    path.write_bytes(b"other")
    assert file_digest(path) == digest_of(b"other")
