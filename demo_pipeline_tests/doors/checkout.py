"""Makes a checkout with an environment, and runs commands in it as a person types them."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from demo_pipeline.settings import Settings, project_root
from demo_pipeline_tests.doors.page_lines import ROOT

_UPLOADS = Settings.model_fields["uploads"].get_default(call_default_factory=True)
# The default folder of uploads, relative to the checkout.
INBOX = str(Path(_UPLOADS).relative_to(project_root()))
# Placeholder in commands of the pages → the value that a person puts in its place.
PLACEHOLDERS = {
    "DEST": "data/exported",
    "FILE": "data/predictions.jsonl",
    "FOLDER": "my_recording",
    "ID": "20261121_212358",
    "PATH": "data/store/dataset",
}
# Commands that run until Ctrl-C.
SERVER = "make ui"
WEBSERVER = ".venv/bin/dagster-webserver"
DAEMON = ".venv/bin/dagster-daemon run"
DEMO_S3 = "make demo-s3 KEEP=1"
REVIEW = ".venv/bin/demo-pipeline review"
_WHOLE = re.compile(r"^[\w.-]+$")
_FILES = ("Makefile", "pyproject.toml", "constraints.txt", "dagster.yaml", "workspace.yaml")
_FOLDERS = ("demo_pipeline", "data/osworld", "data/samples")
_ANSWERS_SECONDS = 300.0


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of a command line."""

    line: str
    code: int
    output: str


@dataclass
class Checkout:
    """A checkout with an environment.

    Attributes:
        root: the folder of the checkout.
        variables: the environment variables of the shell.
        placeholders: text of a page → the text that a person types instead, besides
            `PLACEHOLDERS`.
        by_hand: beginning of a command → what the page asks the reader to do before the command,
            without the shell.
    """

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    placeholders: dict[str, str] = field(default_factory=dict)
    by_hand: dict[str, Callable[[], None]] = field(default_factory=dict)

    def type(self, line: str) -> Answer:
        """Runs a line in the checkout. Variables that it exports are kept for later lines.

        A command that runs until Ctrl-C is interrupted when it is ready. Any other command that
        asks for confirmation gets the answer `y`.
        """
        for word, meant in PLACEHOLDERS.items():
            line = re.sub(rf"(?<= ){word}\b", meant, line)
        for text, meant in self.placeholders.items():
            line = line.replace(text, meant)
        for begin, act in self.by_hand.items():
            if line.startswith(begin):
                act()
        if line.startswith((SERVER, WEBSERVER, DEMO_S3)):
            with self.serving(line) as address:
                return Answer(line, 0, address)
        if f"{line} ".startswith(f"{REVIEW} "):  # not `reviews`
            with self.reviewing(line) as address:
                return Answer(line, 0, address)
        if line.startswith(DAEMON):
            return self._run_daemon(line)
        environment_file = self.root / ".environment"
        script = f"{line}\ncode=$?\nenv -0 > {environment_file}\nexit $code"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.root,
            env=self.variables,
            check=False,
            input="y\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        pairs = (pair.partition("=") for pair in environment_file.read_text().split("\0") if pair)
        self.variables = {name: value for name, _, value in pairs}
        return Answer(line, done.returncode, done.stdout)

    @contextmanager
    def reviewing(self, line: str = REVIEW) -> Iterator[str]:
        """Starts a review server, and yields the address of the review page."""
        process = subprocess.Popen(
            [*shlex.split(line, comments=True), f"--port={_free_port()}"],
            cwd=self.root,
            env=self.variables,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            end = time.monotonic() + _ANSWERS_SECONDS
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > end:
                    raise TimeoutError(f"{REVIEW}: no page at {address!r}")
                time.sleep(0.5)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
            process.stdout.close()

    @contextmanager
    def serving(self, line: str) -> Iterator[str]:
        """Starts a line that runs a server, yields the address, and interrupts the server.

        Raises:
            TimeoutError: the server does not answer, or the line has ended.
        """
        port = _free_port()
        address = f"http://127.0.0.1:{port}"
        log = self.root / ".server"
        line = re.sub(r"-p \d+", f"-p {port}", line)
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", line],
                cwd=self.root,
                env={**self.variables, "PORT": str(port)},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            end = time.monotonic() + _ANSWERS_SECONDS
            while not _answers(f"{address}/server_info") or not _is_ready(line, log):
                if process.poll() is not None or time.monotonic() > end:
                    raise TimeoutError(f"{line}: {log.read_text(errors='replace')[-3000:]}")
                time.sleep(0.5)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)

    def _run_daemon(self, line: str) -> Answer:
        """Runs Dagster's daemon until Dagster says that the daemon is alive."""
        process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=self.root,
            env=self.variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + _ANSWERS_SECONDS
            alive = Answer("", 1, "")
            while alive.code and process.poll() is None and time.monotonic() < end:
                time.sleep(2)
                alive = self.type(".venv/bin/dagster-daemon liveness-check")
            return Answer(line, alive.code, alive.output)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            process.wait(60)


def fresh_checkout(root: Path, samples: Path | None = None) -> Checkout:
    """Copies the files of this checkout that the tested commands read.

    The new environment uses the packages of the current one, but imports the copied sources.

    Args:
        root: the folder to make, which does not exist.
        samples: smaller recordings that replace the samples to save time.
    """
    root.mkdir()
    for name in _FILES:
        shutil.copy(ROOT / name, root / name)
    for name in _FOLDERS:  # copied with times, so that the copied bytecode stays valid
        source = samples if samples and name == "data/samples" else ROOT / name
        shutil.copytree(source, root / name)
    lend_environment(root / ".venv", root)
    return Checkout(root, plain_environment())


def lend_environment(folder: Path, root: Path) -> None:
    """Makes an environment that imports the sources in `root` and uses the current packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    lent = packages.relative_to(folder)
    (packages / "lent.pth").write_text(f"{root}\n{Path(sys.prefix) / lent}\n")
    python = folder / "bin/python"
    for script in (Path(sys.prefix) / "bin").iterdir():
        if script.is_file() and not script.is_symlink() and _WHOLE.match(script.name):
            first, _, rest = script.read_bytes().partition(b"\n")
            if first.startswith(b"#!") and b"python" in first:
                copy = folder / "bin" / script.name
                copy.write_bytes(b"#!" + bytes(python) + b"\n" + rest)
                copy.chmod(0o755)
    for done in (".installed", ".installed-dev"):
        (folder / done).touch()


def plain_environment() -> dict[str, str]:
    """Returns the environment variables without those of this project, Dagster, make and Python."""
    ours = ("DEMO_PIPELINE_", "DAGSTER_", "MAKE", "PYTEST_", "COV_", "PYTHON", "VIRTUAL_ENV")
    kept: Mapping[str, str] = os.environ
    return {name: value for name, value in kept.items() if not name.startswith(ours)}


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _is_ready(line: str, log: Path) -> bool:
    """Returns whether a server has done what it does before it waits for Ctrl-C."""
    return not line.startswith(DEMO_S3) or "Still running: " in log.read_text(errors="replace")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own server
            return bool(answer.status == 200)
    except OSError:
        return False
