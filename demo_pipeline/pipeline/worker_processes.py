"""Worker processes, from the side of the process that gives them work.

Belongs here: starting and killing them, by way of the process that they are forked from: it has
imported everything once for all of them. What they are told is in demonstration_pool.py.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import send_handle

from demo_pipeline.pipeline import worker_template
from demo_pipeline.pipeline.worker_template import KillWorker, StartWorker

_SERVE = f"from {worker_template.__name__} import serve; serve"  # new modules, not copied ones
_LEAVE = 10.0  # seconds that the template has to end its workers


class WorkerProcesses:
    """Processes that run `work` of demonstration_worker.py; `close` ends them all."""

    def __init__(self) -> None:
        self._template: subprocess.Popen[bytes] | None = None
        self._control: Connection | None = None

    def start(self) -> tuple[int, Connection]:
        """(id of a new worker, connection to it).

        Raises:
            OSError: the system gives no further process.
        """
        ours, theirs = Pipe()
        try:
            return self._ask_for_worker(theirs), ours
        except (EOFError, BrokenPipeError, ConnectionResetError):  # the template was killed
            self.close()
            return self._ask_for_worker(theirs), ours
        finally:
            theirs.close()

    def kill(self, pid: int) -> None:
        """Kill a worker, which is safe at any time."""
        if self._control is None:
            return
        killed = False
        with suppress(EOFError, OSError):
            self._control.send(KillWorker(pid))
            killed = self._control.recv()
        if not killed:  # its template was killed
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill every worker and the process that they were forked from."""
        if self._control is None or self._template is None:
            return
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._template.wait(_LEAVE)
        self._template.kill()
        self._template.wait()
        self._control = self._template = None

    def _ask_for_worker(self, theirs: Connection) -> int:
        control = self._control or self._start_template()
        control.send(StartWorker())
        send_handle(control, theirs.fileno(), None)
        answer = control.recv()
        if isinstance(answer, OSError):
            raise answer
        return int(answer)

    def _start_template(self) -> Connection:
        self._control, theirs = Pipe()
        command = (sys.executable, "-c", f"{_SERVE}({theirs.fileno()})")
        # Its own session: a terminal's Ctrl-C is its parent's to answer.
        self._template = subprocess.Popen(  # noqa: S603 - this Python, and a number
            command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        return self._control
