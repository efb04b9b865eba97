"""An upload that is replaced while a run reads it: the run succeeds without an output."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import dagster as dg
import pytest

from demo_pipeline.cli.tables import report_run
from demo_pipeline.defs import demonstrations
from demo_pipeline.defs.demonstration_runs import BatchMember, member_tags
from demo_pipeline.defs.tags import MEMBERS_TAG, OUTCOME_TAG
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.runs import batch
from demo_pipeline.runs.batch import DemonstrationTask, process
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.results import DemonstrationResult
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.store.uploads import upload_listing_fingerprint
from demo_pipeline_tests.defs.bench import (
    Bench,
    Result,
    bench,
    launched,
    materialized,
    ticked,
    verdicts,
)
from demo_pipeline_tests.uploads import tear_meta, upload


@pytest.fixture
def made(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        upload(recording, one.uploads, "one")
        yield one


def tags(result: Result, made: Bench) -> dict[str, str]:
    run = made.instance.get_run_by_id(result.run_id)
    assert run is not None
    return dict(run.tags)


def while_reading(monkeypatch: pytest.MonkeyPatch, stage: str, act: Callable[[], object]) -> None:
    """Let something happen in the middle of a stage."""

    def build(work: Any, out: Path) -> Any:
        one = next(one for one in STAGES if one.name == stage)
        act()
        return one.build(work, out)

    stages = [replace(one, build=build) if one.name == stage else one for one in STAGES]
    monkeypatch.setattr(demonstrations, "STAGES", stages)
    monkeypatch.setattr(batch, "STAGES", stages)


def listed_in(request: dg.RunRequest) -> str:
    """Fingerprint of the upload that a run is requested for."""
    [[_, fingerprint, _]] = json.loads(request.tags[MEMBERS_TAG])
    return str(fingerprint)


def assert_superseded(result: Result, made: Bench) -> None:
    assert result.success
    assert materialized(result) == {}
    assert tags(result, made)[OUTCOME_TAG] == "superseded"
    [record] = made.instance.fetch_observations(dg.AssetKey("raw_recordings"), limit=5).records
    observed = record.asset_observation
    assert observed is not None
    assert (observed.partition, observed.metadata["outcome"].value) == ("one", "superseded")
    said = verdicts(result)
    assert set(said) == {check.name for check in STAGES[0].checks}
    assert {one.severity for one in said.values()} == {dg.AssetCheckSeverity.WARN}
    assert all("superseded" in (one.description or "") for one in said.values())
    assert list_quarantine(made.workspace.store) == []


def test_an_upload_that_changed_before_the_run_began_supersedes_it(made: Bench) -> None:
    listed = str(upload_listing_fingerprint(made.workspace.uploads, "one"))
    (made.uploads / "one" / "meta.json").touch()
    assert_superseded(made.process("one", **member_tags([BatchMember("one", listed)])), made)
    assert made.workspace.store.outputs("recordings") == []


def test_an_upload_that_is_replaced_while_it_is_read_supersedes_the_run(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = str(upload_listing_fingerprint(made.workspace.uploads, "one"))
    while_reading(monkeypatch, "raw_recordings", lambda: tear_meta(made.uploads / "one"))
    strict = replace(made, definitions=_again(made))
    assert_superseded(strict.process("one", **member_tags([BatchMember("one", listed)])), made)


def test_a_changed_download_supersedes_a_manual_run_too(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn() -> None:
        (made.uploads / "one" / "meta.json").touch()
        raise DemonstrationError(Problem("upload_changed", "recording.mp4", "changed"))

    while_reading(monkeypatch, "raw_recordings", torn)
    assert_superseded(replace(made, definitions=_again(made)).process("one"), made)


def test_a_later_stage_stops_without_a_quarantine_when_the_upload_was_replaced(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = str(upload_listing_fingerprint(made.workspace.uploads, "one"))
    log = made.uploads / "one" / "input_log.jsonl"
    while_reading(monkeypatch, "events", lambda: log.write_bytes(b"{}\n"))
    strict = replace(made, definitions=_again(made))
    result = strict.process("one", **member_tags([BatchMember("one", listed)]))
    assert result.success
    assert {name for name, _ in materialized(result)} == {"raw_recordings"}
    assert tags(result, made)[OUTCOME_TAG] == "superseded"
    assert list_quarantine(made.workspace.store) == []


def test_a_defect_is_not_recorded_of_an_upload_that_came_meanwhile(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        (made.uploads / "one" / "input_log.jsonl").write_bytes(b"{}\n")
        raise ZeroDivisionError

    [request] = [one for _ in range(3) for one in ticked(made, "new_uploads").requests][:1]
    while_reading(monkeypatch, "actions", fail)
    assert not launched(replace(made, definitions=_again(made)), request).success
    assert list_quarantine(made.workspace.store) == []
    again = [one for _ in range(4) for one in ticked(made, "new_uploads").requests]
    assert {one.partition_key for one in again} == {"one"}
    assert {listed_in(one) for one in again} != {listed_in(request)}


def test_outputs_of_a_replaced_upload_are_not_committed(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are valid, but of another upload than the run was for."""
    listed = str(upload_listing_fingerprint(made.workspace.uploads, "one"))
    while_reading(monkeypatch, "raw_recordings", (made.uploads / "one" / "meta.json").touch)
    strict = replace(made, definitions=_again(made))
    assert_superseded(strict.process("one", **member_tags([BatchMember("one", listed)])), made)
    assert made.workspace.store.outputs("recordings") == []


@pytest.mark.no_cover  # other tests run the same lines
def test_a_file_without_read_permission_quarantines_after_one_run(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a file superseded every run, and each requested the next."""
    respect_modes(monkeypatch)
    made.catalogue()
    (made.uploads / "one" / "recording.mp4").chmod(0)
    runs = [launched(made, one) for _ in range(8) for one in ticked(made, "new_uploads").requests]
    [failed] = runs
    assert not failed.success
    assert OUTCOME_TAG not in tags(failed, made)
    [record] = list_quarantine(made.workspace.store)
    [problem] = record.problems
    assert (problem["code"], problem["file"]) == ("unreadable_file", "recording.mp4")
    assert "let the pipeline's user read it" in str(problem["remedy"])
    (made.uploads / "one" / "recording.mp4").chmod(0o644)
    assert made.process("one").success
    assert list_quarantine(made.workspace.store) == []


def test_an_upload_that_is_only_broken_is_still_quarantined(made: Bench) -> None:
    tear_meta(made.uploads / "one")
    listed = str(upload_listing_fingerprint(made.workspace.uploads, "one"))
    result = made.process("one", **member_tags([BatchMember("one", listed)]))
    assert not result.success
    assert OUTCOME_TAG not in tags(result, made)
    assert [one.demonstration for one in list_quarantine(made.workspace.store)] == ["one"]


@pytest.mark.no_cover  # other tests run the same lines
def test_the_new_upload_is_requested_again(made: Bench) -> None:
    requests = [one for _ in range(3) for one in ticked(made, "new_uploads").requests]
    first = requests[0]
    (made.uploads / "one" / "meta.json").touch()
    made.catalogue()
    assert launched(made, first).success
    again = [one for _ in range(4) for one in ticked(made, "new_uploads").requests]
    assert {one.partition_key for one in again} == {"one"}
    assert {one.run_key for one in again} != {first.run_key}
    assert {name for name, _ in materialized(launched(made, again[0]))} == {
        stage.name for stage in STAGES
    }
    assert [one for _ in range(3) for one in ticked(made, "new_uploads").requests] == []


def test_a_restored_upload_is_requested_again(made: Bench) -> None:
    """A run that read another upload does not show that this one was read."""
    first = next(one for _ in range(3) for one in ticked(made, "new_uploads").requests)
    folder, aside = made.uploads / "one", made.uploads.parent / "aside"
    shutil.move(folder, aside)
    assert launched(made, first).success
    shutil.move(aside, folder)
    again = [one for _ in range(4) for one in ticked(made, "new_uploads").requests]
    assert {listed_in(one) for one in again} == {listed_in(first)}
    assert first.run_key not in {one.run_key for one in again}


def test_the_command_line_says_so(
    made: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    while_reading(monkeypatch, "raw_recordings", (made.uploads / "one" / "meta.json").touch)
    *_, result = process(made.workspace, [DemonstrationTask("one")])
    assert isinstance(result, DemonstrationResult)
    report_run([result], 0, [], 0.0)
    shown = capsys.readouterr()
    assert "0 done, 0 quarantined, 1 superseded" in shown.out
    assert "one raw_recordings: the upload changed while it was read; run it again" in shown.err


def respect_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a file without mode bits is refused, as for every user but root."""
    opened = Path.open

    def refusing(path: Path, *args: Any, **kwargs: Any) -> IO[Any]:
        if path.is_file() and not path.stat().st_mode & 0o444:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refusing)


def _again(made: Bench) -> dg.Definitions:
    from demo_pipeline.defs.code_location import build_defs

    return build_defs(made.settings)
