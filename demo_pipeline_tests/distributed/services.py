"""Starts a Postgres server and a Ray head on this machine, which end with their contexts.

Both listen on the loopback interface only, and write to their own folders.
"""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo_pipeline_tests.distributed.processes import running
from demo_pipeline_tests.simulator.s3_server import free_ports

_START_SECONDS = 90.0
_OBJECT_STORE_BYTES = 100_000_000  # small, because runs do not use Ray's object store
_HEAD_LOG = "ray-head.log"
_RENAME = (
    "import os, socket, sys; socket.sethostname('ray-node'); os.execv(sys.argv[1], sys.argv[1:])"
)


class MissingProgramError(Exception):
    """Postgres or Ray is not installed. The message says how to install it."""


def require_programs() -> None:
    """Checks that Postgres and Ray are installed, before anything is started.

    Raises:
        MissingProgramError: one of them is not installed.
    """
    _postgres_programs()
    _script("ray")


@contextmanager
def postgres_server() -> Iterator[str]:
    """Starts an empty Postgres cluster, and yields the URL of its database `postgres`.

    Postgres refuses to run as root. If this process runs as root, Postgres runs as another user.
    """
    programs = _postgres_programs()
    [port] = free_ports(1)
    password = secrets.token_hex(16)
    user = _unprivileged_user()
    with tempfile.TemporaryDirectory(prefix="ray-postgres-") as folder:
        data = Path(folder) / "data"
        word = Path(folder) / "password"
        word.write_text(password)
        if user is not None:
            for path in (folder, word):
                os.chown(path, user["user"], user["group"])
        initdb = (programs / "initdb", "-D", data, "-U", "dagster", "--pwfile", word)
        options = ("-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync")
        _run(*initdb, *options, cwd=folder, **(user or {}))
        server = [str(programs / "postgres"), "-D", str(data), "-p", str(port), "-k", folder]
        process: subprocess.Popen[bytes] = subprocess.Popen(
            (*server, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not stop it before its clients
            **(user or {}),
        )
        with running(process, signal.SIGINT):
            ready = (programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port))
            _wait_until(
                lambda: subprocess.run(ready, check=False).returncode == 0, process, "Postgres"
            )
            yield f"postgresql+psycopg2://dagster:{password}@127.0.0.1:{port}/postgres"


@contextmanager
def ray_head(folder: Path, cpus: int) -> Iterator[str]:
    """Starts a Ray head, and yields the URL of its Jobs API.

    Jobs have the environment of this process. If the system allows it, they have another host name,
    so that the processes of runs seem to be on another machine.

    Args:
        folder: a new folder with a short path, for Ray's files.
        cpus: number of CPUs of the head, which is also the number of simultaneous jobs.
    """
    folder.mkdir(parents=True)
    port, dashboard, client, metrics, agent, grpc = free_ports(6)
    command = [_script("ray"), "start", "--head", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address=127.0.0.1", f"--port={port}", f"--temp-dir={folder}"]
    command += ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
    command += [f"--num-cpus={cpus}", f"--object-store-memory={_OBJECT_STORE_BYTES}"]
    command += [f"--ray-client-server-port={client}", f"--metrics-export-port={metrics}"]
    # Any free ports for workers, instead of the default range from 10,002 to 19,999.
    command += ["--min-worker-port=0", "--max-worker-port=0"]
    command += [f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={grpc}"]
    with (folder / _HEAD_LOG).open("wb") as log:
        scripts = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}"
        process = subprocess.Popen(
            (*_under_another_name(), *command),
            cwd=folder,
            env={**os.environ, "PATH": scripts},  # jobs find the command `dagster` on the PATH
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{dashboard}"
        with running(process, signal.SIGTERM):
            try:
                _wait_until(lambda: _answers(f"{url}/api/jobs/"), process, "Ray")
            except RuntimeError as error:
                log_end = (folder / _HEAD_LOG).read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{error}:\n{log_end}") from None
            yield url


def _postgres_programs() -> Path:
    """Returns the folder of Postgres's programs: Debian's newest version, or else from the PATH."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    installed = sorted(debian, key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not installed and on_path is None:
        raise MissingProgramError("Postgres is not installed: apt-get install postgresql")
    return (installed[-1] if installed else Path(str(on_path)).resolve()).parent


def _unprivileged_user() -> dict[str, Any] | None:
    """Returns arguments of `Popen` that run a process as an unprivileged user.

    Returns None if this process does not run as root.
    """
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = users.get("postgres") or users["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _under_another_name() -> list[str]:
    """Returns the command prefix that gives a command another host name.

    Returns [] if the system does not allow another host name.
    """
    namespace = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = ["unshare", *namespace, "--uts", sys.executable, "-c", _RENAME]
    try:
        tried = subprocess.run((*words, "/bin/true"), check=False, capture_output=True)
    except OSError:
        return []
    return words if tried.returncode == 0 else []


def _script(name: str) -> str:
    """Returns the path of a console script of this environment."""
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        raise MissingProgramError(f"{name} is not installed: pip install -e '.[ray]'")
    return str(path)


def _run(*command: str | Path, **more: Any) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr}")


def _answers(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(url, timeout=5).close()
    except OSError:
        return False
    return True


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], name: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode} instead of starting")
        if time.monotonic() > end:
            raise RuntimeError(f"{name} did not start within {_START_SECONDS:.0f} s")
        time.sleep(0.3)
