"""A run of a demonstration that needs too much: tried once more alone, then quarantined."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.defs import demonstrations
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.settings import LimitSettings
from demo_pipeline.stage import Summary
from demo_pipeline_tests.defs.bench import bench, failures
from demo_pipeline_tests.uploads import upload

WORDS = "events needs more than 1 s of CPU time (limits.cpu_seconds)"


def test_it_is_quarantined_in_the_same_run_and_nothing_waits(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(_inputs: RecordingInputs, _out: Path) -> Summary:
        with (tmp_path / "attempts").open("a") as attempts:
            attempts.write("one\n")
        end = time.process_time() + 60
        while time.process_time() < end:
            pass
        return {}

    stages = [replace(one, build=build) if one.name == "events" else one for one in STAGES]
    monkeypatch.setattr(demonstrations, "STAGES", stages)
    limits = LimitSettings(cpu_seconds=1, cpu_seconds_per_video_second=0, cpu_seconds_per_action=0)
    with bench(tmp_path) as made:
        upload(recording, made.uploads, "one")
        settings = made.settings.model_copy(update={"limits": limits})
        result = replace(made, settings=settings, definitions=build_defs(settings)).process("one")
        assert not result.success
        assert f"{WORDS}, also alone in a process" in failures(result)["events"].description
        record = read_quarantine(made.workspace.store, "one")
        assert record is not None
        assert record.problems[0]["message"] == f"{WORDS}, also alone in a process"
    assert (tmp_path / "attempts").read_text() == "one\none\n"
