"""Damage as a bad disk does it."""

import os
from pathlib import Path

from demo_pipeline.runs.workspace import Workspace


def flip_byte(workspace: Workspace, output: str, file: str) -> None:
    """Change one byte in the middle of a committed file; its size and its times stay."""
    flip_byte_of(workspace.store.open(output)[0] / file)


def flip_byte_of(path: Path) -> None:
    """Change one byte in the middle of a file; its size and its times stay."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
