"""Tests that readers see the old or the new file, and that a failed write leaves no draft."""

import pytest

from demo_pipeline.files.atomic_write import atomic_file


def test_the_file_is_replaced_at_the_end_and_not_before(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with atomic_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_keeps_the_old_file_and_leaves_no_draft(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as file:
        file.write(b"n" * (1 // 0))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
