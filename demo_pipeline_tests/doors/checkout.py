"""Makes a checkout with an environment, and runs commands in it as a person types them."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from demo_pipeline_tests.doors.page_lines import ROOT

# Placeholder in commands of the pages → the value that a person puts in its place.
PLACEHOLDERS = {
    "DEST": "data/exported",
    "FILE": "data/predictions.jsonl",
    "FOLDER": "my_recording",
    "ID": "20261121_212358",
    "PATH": "data/store/dataset",
}
SERVER = "make ui"  # runs until Ctrl-C
REVIEW = ".venv/bin/demo-pipeline review"  # runs until Ctrl-C
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
    """

    root: Path
    variables: dict[str, str] = field(default_factory=dict)

    def type(self, line: str) -> Answer:
        """Runs a line in the checkout. Variables that it exports are kept for later lines."""
        for word, meant in PLACEHOLDERS.items():
            line = re.sub(rf"(?<= ){word}\b", meant, line)
        if line.startswith(SERVER):
            with self.serving(line) as address:
                return Answer(line, 0, address)
        if line.startswith(REVIEW):
            with self.reviewing() as address:
                return Answer(line, 0, address)
        environment_file = self.root / ".environment"
        script = f"{line}\ncode=$?\nenv -0 > {environment_file}\nexit $code"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.root,
            env=self.variables,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        pairs = (pair.partition("=") for pair in environment_file.read_text().split("\0") if pair)
        self.variables = {name: value for name, _, value in pairs}
        return Answer(line, done.returncode, done.stdout)

    @contextmanager
    def reviewing(self) -> Iterator[str]:
        """Starts the review server, and yields the address of the review page."""
        process = subprocess.Popen(
            [*REVIEW.split(), f"--port={_free_port()}"],
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
            while not _answers(f"{address}/server_info"):
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
    _lend_environment(root / ".venv", root)
    return Checkout(root, plain_environment())


def _lend_environment(folder: Path, root: Path) -> None:
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


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own server
            return bool(answer.status == 200)
    except OSError:
        return False
