"""The process that workers are forked from: it has imported everything and opened nothing.

Belongs here: what it is asked, and ending its workers with it. Who asks is in worker_processes.py;
what a worker does is in demonstration_worker.py.
"""

import gc
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

from demo_pipeline.pipeline import demonstration_worker

# The threads that its packages start when they are imported (OpenBLAS, jemalloc) are prepared for a
# fork on Linux. System libraries of macOS are not, so that a worker there is a new process.
_FORKS = platform.system() == "Linux"
_WORK = f"from {demonstration_worker.__name__} import work; work"


@dataclass(frozen=True, slots=True)
class StartWorker:
    """A worker is to be started; its end of a connection follows. The answer is its id."""


@dataclass(frozen=True, slots=True)
class KillWorker:
    """A worker is to be killed; the answer, whether it was one of these, comes when it is gone."""

    pid: int


def serve(descriptor: int) -> None:
    """Start and kill workers as asked until the connection is closed, and then kill all."""
    control = Connection(descriptor)
    workers: dict[int, subprocess.Popen[bytes] | None] = {}
    gc.collect()
    gc.freeze()  # what was imported is neither searched nor copied again
    with suppress(EOFError, OSError):
        while True:
            match control.recv():
                case StartWorker():
                    control.send(_start(control, recv_handle(control), workers))
                case KillWorker(pid):
                    control.send(_kill(pid, workers))
    for pid in list(workers):
        _kill(pid, workers)
    os._exit(0)  # at a usual end packages complain of what is frozen


def _start(
    control: Connection, descriptor: int, workers: dict[int, subprocess.Popen[bytes] | None]
) -> int | OSError:
    try:
        if _FORKS:
            pid = os.fork()
            if not pid:
                control.close()
                _work(descriptor)
            workers[pid] = None
        else:
            command = (sys.executable, "-c", f"{_WORK}({descriptor})")
            process = subprocess.Popen(command, pass_fds=(descriptor,))  # noqa: S603 - this Python
            pid = process.pid
            workers[pid] = process
    except OSError as error:  # too many processes, or too little memory
        return error
    finally:
        os.close(descriptor)
    return pid


def _work(descriptor: int) -> None:
    """The life of a forked worker, which never returns to the loop that it was copied from."""
    code = 1
    try:
        demonstration_worker.work(descriptor)
        code = 0
    except BaseException:  # noqa: BLE001 - as an interpreter does at its end
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _kill(pid: int, workers: dict[int, subprocess.Popen[bytes] | None]) -> bool:
    """Kill a worker and wait for its end; its number cannot be another's before that."""
    if pid not in workers:
        return False
    process = workers.pop(pid)
    os.kill(pid, signal.SIGKILL)
    if process is None:
        os.waitpid(pid, 0)
    else:
        process.wait()
    return True
