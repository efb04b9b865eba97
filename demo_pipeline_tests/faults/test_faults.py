"""A few cases of the fault suite; `make faults` has the many."""

import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from demo_pipeline_tests.faults.commands import ROOT
from demo_pipeline_tests.faults.injection import Disturbance, Injection
from demo_pipeline_tests.faults.proxy import Fault, NetworkPlan, network_proxy


def test_kills_and_a_full_disk_leave_old_or_new_and_the_next_run_finishes() -> None:
    """A process of its own, since it forks."""
    few = ["--kills", "2", "--chain", "2", "--failing", "1"]
    none = ["--clock", "0", "--company", "0", "--daemon", "0", "--network", "0", "--s3-kills", "0"]
    ended = subprocess.run(
        [sys.executable, "-m", "demo_pipeline_tests.faults", *few, *none, "--jobs", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| failing calls | 1 of 1 | 0 | 0 | 0 | 0 |" in ended.stdout


class TestInjection:
    """The suite itself: what it counts, and that its faults happen."""

    def program(self, root: Path, action: str, call: int) -> subprocess.CompletedProcess[str]:
        text = f"""
import os
from pathlib import Path
from demo_pipeline_tests.faults.injection import Disturbance, Injection
root = Path({str(root)!r})
Injection(Disturbance(root, {action!r}, {call}, "main", root.parent / "log")).install()
(root.parent / "elsewhere").write_text("not counted")
for name in ("a", "b", "c"):
    try:
        with (root / name).open("w") as file:
            file.write("x")
            os.fsync(file)
    except OSError as error:
        print(name, error.strerror)
(root / "a").rename(root / "d")
"""
        return subprocess.run(
            [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False
        )

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "root").mkdir()
        return tmp_path / "root"

    def test_it_counts_the_calls_below_the_root(self, root: Path) -> None:
        assert self.program(root, "count", 0).returncode == 0
        assert (root.parent / "log.main").stat().st_size == 7

    def test_it_kills_before_the_call(self, root: Path) -> None:
        assert self.program(root, "kill", 3).returncode == -9
        assert [path.name for path in root.iterdir()] == ["a"]

    def test_calls_fail_from_the_first_on(self, root: Path) -> None:
        ended = self.program(root, "ENOSPC", 3)
        assert ended.stdout == "b No space left on device\nc No space left on device\n"
        assert "No space left on device" in ended.stderr


@contextmanager
def server() -> Iterator[tuple[str, list[str]]]:
    """A server whose answer is `0123456789`, and the methods that it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response_only(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"0123456789")

        do_GET = do_PUT = answer  # noqa: N815

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}", asked
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("fault", "method", "answer", "asked"),
    [
        (None, "GET", "0123456789", ["GET"]),
        ("slow", "GET", "0123456789", ["GET"]),
        ("flip", "GET", "012344", ["GET"]),
        ("cut", "GET", "IncompleteRead", ["GET"]),
        ("storm", "GET", "HTTPError", []),
        ("reset", "GET", "RemoteDisconnected", []),
        ("lost", "PUT", "RemoteDisconnected", ["PUT"]),
    ],
)
def test_the_network_is_damaged_as_planned(
    fault: Fault | None, method: str, answer: str, asked: list[str]
) -> None:
    plan = NetworkPlan((fault,) if fault else (), share=1.0 if fault else 0.0)
    with server() as (endpoint, seen), network_proxy(endpoint, plan) as proxy:
        request = urllib.request.Request(f"{proxy}/a", method=method, data=b"")  # noqa: S310
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request) as response:
                found = response.read().decode()
        except OSError as error:
            found = type(error).__name__
            if isinstance(error, urllib.error.HTTPError):
                error.close()
        except Exception as error:  # noqa: BLE001 - a body that ends early
            found = type(error).__name__
    assert found.startswith(answer)
    assert seen == asked


def test_a_disturbance_of_workers_leaves_the_command_alone(tmp_path: Path) -> None:
    plan = Disturbance(tmp_path, "ENOSPC", 1, "worker", tmp_path / "log")
    injection = Injection(plan)
    injection.audit("os.mkdir", (str(tmp_path / "a"), 0o777, -1))
    injection.become_worker()
    with pytest.raises(OSError, match="No space left"):
        injection.audit("os.mkdir", (str(tmp_path / "a"), 0o777, -1))
