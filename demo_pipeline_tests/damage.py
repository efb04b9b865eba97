"""Damages committed files as a faulty disk does."""

import os
from pathlib import Path

from demo_pipeline.runs.workspace import Workspace


def flip_byte(workspace: Workspace, output: str, file: str) -> None:
    """Changes one byte in the middle of a file in the store, but not its size and times."""
    flip_byte_of(workspace.store.open(output)[0] / file)


def flip_byte_of(path: Path) -> None:
    """Changes one byte in the middle of a file, but not its size and times."""
    status = path.stat()
    path.write_bytes(flipped(path.read_bytes()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def flipped(data: bytes) -> bytes:
    """Returns the bytes with a changed byte in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def broken_counts(workspace: Workspace) -> dict[str, int]:
    """Returns, by dataset, the number of demonstrations that are left out as broken."""
    counts: dict[str, int] = {}
    for output in workspace.store.outputs():
        version = workspace.store.published(output)
        assert version is not None
        left_out = version.manifest.summary.get("left_out")
        if isinstance(left_out, dict) and isinstance(count := left_out.get("broken"), int):
            counts[output.partition("/")[0]] = count
    assert counts.keys() >= {"sft", "messages", "datasets", "dataset", "osworld"}
    return counts
