"""A secret and a typed text, looked for in every byte that runs leave behind."""

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.cli.app import main
from demo_pipeline.defs import demonstrations
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.command_reports import forget_partition
from demo_pipeline.defs.demonstration_runs import BatchMember, batch_tags
from demo_pipeline.files.logs import LOG_ROOT, PassedOnLog
from demo_pipeline.runs import batch
from demo_pipeline.runs.batch import DemonstrationTask, run_demonstration
from demo_pipeline.runs.results import Status
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.defs.bench import Bench, bench, failures, launched, ticked
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, type_text
from demo_pipeline_tests.uploads import BREAKING, TYPED, upload

SECRET = "canary/5Zt9QmXw+never/to/be/written"  # noqa: S105 - it opens nothing


@pytest.fixture
def left(tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """What is left of good and bad runs, the datasets, the table and retries."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with bench(tmp_path, kept=True, captured=True) as made:
        upload(recording, made.uploads, "good")
        for number, (spoil, _, _) in enumerate(BREAKING.values()):
            spoil(upload(recording, made.uploads, f"bad{number}"))
        made.catalogue()
        for _ in range(3):
            for request in ticked(made, "new_uploads").requests:
                launched(made, request)
        for job in ("build_datasets", "report_quarantine", "retry_quarantined", "register_uploads"):
            made.run(job)
        yield made


def holding(paths: Iterable[Path], canary: str) -> list[str]:
    needles = {canary.encode(), canary.encode("utf-16-le")}
    files = [path for path in paths if path.is_file()]
    assert files
    return [str(path) for path in files if any(n in path.read_bytes() for n in needles)]


def test_the_secret_is_written_nowhere_and_the_typed_text_only_where_it_belongs(
    left: Bench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    root = left.uploads.parent
    said = [*(root / "store").rglob("manifest.json"), *(root / "store" / "quarantine").rglob("*")]
    said += [*(root / "store" / "quarantine_table").rglob("*")]
    home = list((root / "home").rglob("*"))
    assert any(path.suffix == ".db" for path in home)
    assert any(path.suffix == ".sqlite" for path in home)
    for canary in (SECRET, TYPED):
        assert holding(home, canary) == []
        assert holding(said, canary) == []
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET
    shown = capfd.readouterr()
    logged = f"{shown.out}\n{shown.err}\n{caplog.text}"
    assert SECRET not in logged
    assert TYPED not in logged
    assert holding(root.rglob("*"), SECRET) == []
    made = (root / "store" / ".versions" / "trajectories").rglob("*")
    assert holding(made, TYPED)  # where it belongs: the search does find it


def crash(monkeypatch: pytest.MonkeyPatch, stage: str, error: Exception) -> None:
    """Let a stage fail with this message, and with a cause of the same message."""

    def build(*_: object) -> dict[str, object]:
        raise error from LookupError(str(error))

    stages = [replace(one, build=build) if one.name == stage else one for one in STAGES]
    monkeypatch.setattr(demonstrations, "STAGES", stages)
    monkeypatch.setattr(batch, "STAGES", stages)


@pytest.mark.parametrize("stage", ["raw_recordings", "actions"])
def test_the_message_of_a_defect_that_quotes_typed_text_is_left_out(
    stage: str,
    tmp_path: Path,
    recording: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """`demo-pipeline run`, its workers forked from this process, where the defect is."""
    home = tmp_path / "home"
    home.mkdir()
    # Dagster's capture of output leaves processes behind that watch threads which raise.
    (home / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
    upload(recording, tmp_path / "uploads", "one")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    for name in ("uploads", "store"):
        monkeypatch.setenv(f"DEMO_PIPELINE_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("DEMO_PIPELINE_OSWORLD_TASKS", str(tmp_path / "tasks"))
    monkeypatch.setattr(sys, "argv", ["demo-pipeline", "run"])
    crash(monkeypatch, stage, ValueError(f"cannot place {TYPED!r}"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    shown = capfd.readouterr()
    defect = f"a defect of the pipeline stopped {stage} of one, at demo_pipeline/"
    assert f"one {stage}: ValueError: {defect}" in shown.err
    assert TYPED not in f"{shown.out}\n{shown.err}"
    files = list(home.rglob("*"))
    assert holding(files, "ValueError") != []
    assert holding(files, TYPED) == []


def test_a_worker_passes_on_no_message_of_a_defect_that_quotes_typed_text(
    tmp_path: Path, recording: Path
) -> None:
    """A worker of `demo-pipeline run` sends its result and its log to the command."""

    def build(*_: object) -> dict[str, object]:
        raise ValueError(f"cannot place {TYPED!r}") from LookupError(TYPED)

    stages = [replace(one, build=build) if one.name == "actions" else one for one in STAGES]
    lines: list[str] = []
    logger, handler = logging.getLogger(LOG_ROOT), PassedOnLog(lambda _, line: lines.append(line))
    level = logger.level
    with bench(tmp_path, kept=True) as made:
        upload(recording, made.uploads, "one")
        handler.begin()
        try:
            result = run_demonstration(made.workspace, stages, DemonstrationTask("one"))
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
    assert (result.status, result.stage) == (Status.FAILED, "actions")
    assert "ValueError" in result.reason
    assert any(line.startswith("events: events/one made in ") for line in lines)
    assert TYPED not in f"{result}\n{lines}"


def test_a_storage_error_keeps_its_message_and_loses_its_cause(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is ours, with a remedy."""
    with bench(tmp_path, kept=True) as made:
        upload(recording, made.uploads, "one")
        crash(monkeypatch, "events", StorageError("the disk is full; make room"))
        result = replace(made, definitions=build_defs(made.settings)).process("one")
        [said] = failures(result).values()
        words = "waiting: the disk is full; make room; it is tried again by itself"
        assert said.description == words
    assert holding((tmp_path / "home").rglob("*"), "LookupError: ") == []


def record(uploads: Path, name: str, instruction: str, typed: str) -> None:
    acts = (click("Agree"), click("Name"), type_text(typed), click("Rows/b"))
    made = replace(script(*acts), title=f"{instruction} title", content=f"{instruction} please")
    write_recording(uploads / name, made, SMALL)


@pytest.mark.parametrize("batch_from", [2, 8])
def test_a_batch_that_is_forgotten_leaves_no_picture_and_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_from: int
) -> None:
    """Events of a run over several demonstrations stay: nothing of that kind was ever in them."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    with bench(
        tmp_path, kept=True, captured=True, partitions_per_run=9, batch_from=batch_from
    ) as made:
        record(made.uploads, "gone", "Zaunkoenig", "Wiedehopf")
        record(made.uploads, "kept", "Amsel", "Drossel")
        made.catalogue()
        made.run("register_uploads")
        members = batch_tags([BatchMember("gone"), BatchMember("kept")])
        assert made.run("process_batch", **members).success
        made.run("build_datasets")
        made.run("report_quarantine")
        assert forget_partition(made.instance, "gone") == (0, 1)
    words = re.compile(rb"zaunkoenig|wiedehopf|data:image|iVBORw0KGgo|/9j/4AAQ", re.IGNORECASE)
    for path in (tmp_path / "home").rglob("*"):
        assert not path.is_file() or not words.search(path.read_bytes()), path
    assert holding((tmp_path / "store" / ".versions" / "trajectories").rglob("*"), "Wiedehopf")
