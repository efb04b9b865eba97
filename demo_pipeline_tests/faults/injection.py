"""Counts the calls of this process that change files, and disturbs the process at the n-th call."""

import errno
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Action = Literal["count", "kill", "ENOSPC", "EIO", "EACCES"]
Role = Literal["main", "worker"]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_SQLITE = {
    "ENOSPC": ("SQLITE_FULL", "database or disk is full"),
    "EIO": ("SQLITE_IOERR", "disk I/O error"),
    "EACCES": ("SQLITE_READONLY", "attempt to write a readonly database"),
}
# Audit event → pairs of argument indexes: of a path, and of the folder to which it is relative.
_PLACES = {
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.utime": ((0, 3),),
}


@dataclass(frozen=True)
class Disturbance:
    """Describes a disturbance at a call that changes a file below `root`.

    Attributes:
        root: the folder whose files are counted.
        action: `count` writes a byte for each call to `log`.<role>. `kill` ends the process. With
            the name of an error, this call and all later calls fail.
        call: 1-based number of the call at which the disturbance happens. Each process counts its
            own calls.
        role: the kind of process that is disturbed: the command's own process, or its workers.
        log: a file that is created when the disturbance happens. A process is killed only if the
            file does not exist yet.
    """

    root: Path
    action: Action
    call: int
    role: Role
    log: Path


class Injection:
    """Disturbs this process and, after a fork, its workers."""

    def __init__(self, disturbance: Disturbance) -> None:
        self.plan = disturbance
        self.role = "main"
        self.calls = 0
        self.busy = False
        self.root = os.fsencode(disturbance.root)

    def install(self) -> None:
        sys.addaudithook(self.audit)
        os.register_at_fork(after_in_child=self.become_worker)
        synchronise = os.fsync
        os.fsync = self._before(synchronise)  # type: ignore[assignment]

    def become_worker(self) -> None:
        self.role = "worker"
        self.calls = 0

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy:
            return
        self.busy = True
        try:
            self._examine(event, arguments)
        finally:
            self.busy = False

    def _examine(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes | os.PathLike) and flags & _WRITING:
                self._count(_absolute(path, None))
        elif event == "sqlite3.connect":
            self._count(_absolute(arguments[0], None), database=True)
        elif event in _PLACES:
            for place, folder in _PLACES[event]:
                at = arguments[folder] if folder is not None else None
                if self._count(_absolute(arguments[place], at)):
                    return

    def _before(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def counted(descriptor: int) -> None:
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            self.audit("open", (os.readlink(f"/proc/self/fd/{number}"), "", os.O_WRONLY))
            call(descriptor)

        return counted

    def _count(self, path: bytes | None, *, database: bool = False) -> bool:
        """Counts a call if its file is below the root. Returns whether it was counted."""
        if path is None or not path.startswith(self.root):
            return False
        if self.plan.action == "count":
            with self.plan.log.with_suffix(f".{self.role}").open("ab") as log:
                log.write(b".")
            return True
        if self.role != self.plan.role:
            return False
        self.calls += 1
        if self.calls >= self.plan.call:
            self._disturb(path, database=database)
        return True

    def _disturb(self, path: bytes, *, database: bool) -> None:
        action = self.plan.action
        try:
            os.close(os.open(self.plan.log, os.O_CREAT | os.O_EXCL))
            first = True
        except FileExistsError:
            first = False
        if action == "kill" and first:
            os.kill(os.getpid(), signal.SIGKILL)
        elif action in _SQLITE and database:
            name, message = _SQLITE[action]
            error = sqlite3.OperationalError(message)
            error.sqlite_errorname = name
            raise error
        elif action in _SQLITE:
            number = getattr(errno, action)
            raise OSError(number, os.strerror(number), os.fsdecode(path))


def _absolute(path: Any, folder: Any) -> bytes | None:
    """Returns an absolute path as bytes. `folder` may be the descriptor of an open folder."""
    if isinstance(path, int):
        return os.fsencode(os.readlink(f"/proc/self/fd/{path}"))
    name = os.fsencode(path)
    if os.path.isabs(name) or not isinstance(folder, int) or folder < 0:
        return os.path.abspath(name) if name else None
    return os.path.join(os.fsencode(os.readlink(f"/proc/self/fd/{folder}")), name)
