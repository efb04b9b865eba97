"""A command that fails prints a sentence, never a traceback."""

import errno
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.cli.app import main
from demo_pipeline.runs.failures import best_effort
from demo_pipeline.store.bucket import Bucket, S3CallError
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.faults.states import stuck_runs
from demo_pipeline_tests.sample_workspace import live_in
from demo_pipeline_tests.uploads import upload


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets DAGSTER_HOME to a folder next to empty folders for uploads and store."""
    (tmp_path / "uploads").mkdir()
    live_in(tmp_path, monkeypatch)
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    return tmp_path / "home"


def usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str = "run"
) -> str:
    """Runs a command that ends with a usage error. Returns the output."""
    monkeypatch.setattr(sys, "argv", ["demo-pipeline", command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    return errors.strip()


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EROFS, "Read-only file system"), (errno.ENOSPC, "No space left on device")],
)
def test_a_read_only_or_full_dagster_home_is_one_sentence(home, monkeypatch, capsys, number, words):
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", fail)
    line = usage_error(monkeypatch, capsys, "register")
    assert line.startswith(f"demo-pipeline: DAGSTER_HOME {home} cannot be written to: {words}; ")
    assert "set DAGSTER_HOME to another folder" in line


@pytest.mark.parametrize(
    ("text", "words"),
    [("run_queue: [", "dagster.yaml:1: "), ("nonsense: 1\n", "dagster.yaml: Received unexpected")],
)
def test_a_broken_dagster_yaml_is_named(home, monkeypatch, capsys, text, words):
    (home / "dagster.yaml").write_text(text)
    line = usage_error(monkeypatch, capsys)
    assert line.startswith(f"demo-pipeline: {home}/{words}")
    assert line.count("\n") == 0


@pytest.mark.parametrize("below", ["", "store"])
def test_a_store_that_cannot_be_written_is_refused_at_once(
    home, recording, monkeypatch, capsys, below
):
    upload(recording, home.parent / "uploads", "one")
    (home.parent / "file").write_text("no folder")
    store = home.parent / "file" / below
    monkeypatch.setenv("DEMO_PIPELINE_STORE", str(store))
    line = usage_error(monkeypatch, capsys)
    assert line.startswith(f"demo-pipeline: the store {store} cannot be written to: Not a directo")
    assert line.endswith("name another place in DEMO_PIPELINE_STORE")
    assert not (home / "history").exists()


def test_a_bucket_that_denies_writing_is_refused_at_once(
    home, recording, moto_url, monkeypatch, capsys
):
    call = Bucket.call

    def deny(self: Bucket, method: str, key: str = "", **arguments: Any) -> Any:
        if method in {"put_object", "create_multipart_upload"}:
            raise S3CallError(f"{moto_url}/{key}", "AccessDenied", 403)
        return call(self, method, key, **arguments)

    monkeypatch.setattr(Bucket, "call", deny)
    upload(recording, home.parent / "uploads", "one")
    monkeypatch.setenv("DEMO_PIPELINE_STORE", f"{moto_url}/denied")
    monkeypatch.setenv("DEMO_PIPELINE_CACHE", str(home.parent / "cache"))
    line = usage_error(monkeypatch, capsys)
    assert line.startswith(f"demo-pipeline: the store {moto_url}/denied cannot be written to: ")
    assert line.endswith("access denied; check the policy of the bucket and the credentials")


@pytest.mark.parametrize("name", ["history/runs/index.db", "history/runs.db"])
def test_a_damaged_database_of_dagster_is_one_sentence_and_can_be_moved_away(
    home, monkeypatch, capsys, name
):
    monkeypatch.setattr(sys, "argv", ["demo-pipeline", "register"])
    for write in (None, b"no database" * 500):
        if write is not None:
            (home / name).write_bytes(write)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == (0 if write is None else 2)
    errors = capsys.readouterr().err
    assert f"demo-pipeline: DAGSTER_HOME {home} cannot be used: file is not a database; " in errors
    (home / name).rename(home / "damaged")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def test_ctrl_c_says_what_was_done_and_leaves_no_run_open_and_nothing_to_others(home, recording):
    root = home.parent
    home.chmod(0o755)
    for name in ("one", "two"):
        upload(recording, root / "uploads", name)
    running = subprocess.Popen(
        [sys.executable, "-m", "demo_pipeline.cli.app", "run", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        umask=0,
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
    assert "the next `demo-pipeline run` continues with the others" in err
    assert stuck_runs(home) == []
    written = [root / "store", *(home / name for name in ("history", "schedules", "storage"))]
    assert [path.stat().st_mode & 0o777 for path in written] == [0o700] * 4
    assert home.stat().st_mode & 0o7777 == 0o755


def test_a_working_directory_that_was_removed_is_named(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from demo_pipeline.cli.app import main; main()"
    command = [sys.executable, "-c", code, "run"]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "demo-pipeline: the working directory was removed; change to another one\n"
    )


def test_a_defect_while_outputs_are_compared_is_reported_and_the_run_continues(
    made_root, monkeypatch, capsys
):
    def fail(*_: Any) -> bool:
        raise KeyError("typed text")

    live_in(made_root, monkeypatch)
    monkeypatch.setattr("demo_pipeline.runs.demonstration_outputs.is_up_to_date", fail)
    monkeypatch.setattr(sys, "argv", ["demo-pipeline", "run", "--dry-run"])
    with suppress(SystemExit):
        main()
    captured = capsys.readouterr()
    words = " ".join(captured.err.split())
    assert re.search(r"a defect of the pipeline \(KeyError, at \S+:\d+\); please report it", words)
    assert "typed text" not in captured.err
    assert "are up to date" in captured.out


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (StorageError("a.json: could not be written"), "a.json: could not be written"),
        (
            ValueError("typed text"),
            r"a defect of the pipeline \(ValueError, at .*; please report it",
        ),
    ],
)
def test_work_that_fails_next_to_a_run_is_reported_with_its_reason(caplog, error, reason):
    def work() -> None:
        raise error

    with best_effort(logging.getLogger("demo_pipeline"), "noting a failure"):
        work()
    [record] = caplog.records
    assert re.fullmatch(f"noting a failure failed: {reason}", record.getMessage())
