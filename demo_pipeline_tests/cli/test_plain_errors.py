"""What a person reads when a command cannot go on: a sentence, never a traceback."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dagster as dg  # noqa: TID251 - the runs of an interrupted command
import pytest

from demo_pipeline.cli.app import main
from demo_pipeline_tests.faults.states import stuck_runs
from demo_pipeline_tests.uploads import upload


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """DAGSTER_HOME, beside empty roots."""
    for name in ("uploads", "home"):
        (tmp_path / name).mkdir()
    for name in ("uploads", "store", "osworld_tasks"):
        monkeypatch.setenv(f"DEMO_PIPELINE_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    return tmp_path / "home"


def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What `run` prints when it ends as a usage error."""
    monkeypatch.setattr(sys, "argv", ["demo-pipeline", "run"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    return shown.strip()


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EROFS, "Read-only file system"), (errno.ENOSPC, "No space left on device")],
)
def test_a_home_that_is_read_only_or_full(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    words: str,
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", fail)
    line = told(monkeypatch, capsys)
    assert line.startswith(f"demo-pipeline: DAGSTER_HOME {home} cannot be written to: {words}; ")
    assert "set DAGSTER_HOME to another folder" in line


@pytest.mark.parametrize(
    ("text", "words"),
    [("run_queue: [", "dagster.yaml:1: "), ("nonsense: 1\n", "dagster.yaml: Received unexpected")],
)
def test_a_broken_dagster_yaml_is_named(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    words: str,
) -> None:
    (home / "dagster.yaml").write_text(text)
    line = told(monkeypatch, capsys)
    assert line.startswith(f"demo-pipeline: {home}/{words}")
    assert line.count("\n") == 0


def test_ctrl_c_says_what_was_done_and_leaves_no_run_open(home: Path, recording: Path) -> None:
    root = home.parent
    for name in ("one", "two"):
        upload(recording, root / "uploads", name)
    running = subprocess.Popen(
        [sys.executable, "-m", "demo_pipeline.cli.app", "run", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 300
    while not list((root / "store").glob("recordings/*")) and time.monotonic() < end:
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, out + err
    assert "Traceback" not in out + err
    assert "demonstrations were done in this run and are kept" in err
    assert "the next `demo-pipeline run` goes on with the others" in err
    assert stuck_runs(home) == []
    with dg.DagsterInstance.from_config(str(home)) as instance:
        tags = [run.tags.get("demo_pipeline/outcome") for run in instance.get_runs()]
    assert "interrupted" in tags
