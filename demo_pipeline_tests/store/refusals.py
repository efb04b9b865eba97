"""Simulates files of another user, because tests that run as root may open every file."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def refuse_reading(monkeypatch: pytest.MonkeyPatch, private: Path) -> None:
    """Makes `open` and `stat` fail as for another user's file or folder without permissions.

    Args:
        monkeypatch: the fixture of the test.
        private: the file or folder that cannot be opened. Paths below it cannot be opened or
            examined.
    """
    opened = Path.open
    status = Path.stat

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def refusing_open(path: Path, *args: Any, **named: Any) -> Any:
        if private in (path, *path.parents):
            refuse(path)
        return opened(path, *args, **named)

    def refusing_status(path: Path, **named: Any) -> Any:
        if private in path.parents:
            refuse(path)
        return status(path, **named)

    monkeypatch.setattr(Path, "open", refusing_open)
    monkeypatch.setattr(Path, "stat", refusing_status)
