"""Files and folders of another user; the tests may run as root, whom the system refuses nothing."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def refuse_reading(monkeypatch: pytest.MonkeyPatch, private: Path) -> None:
    """Refuse what the system does for a file of mode 0600, or a folder of mode 0700.

    Args:
        monkeypatch: of the test.
        private: cannot be opened; what is below it cannot be examined either.
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
