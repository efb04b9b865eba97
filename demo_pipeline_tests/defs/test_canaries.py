"""Searches all files that runs write for a secret and for typed text."""

import os
from collections.abc import Iterable
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.partitions import FORCE_TAG
from demo_pipeline_tests.defs.bench import open_bench
from demo_pipeline_tests.uploads import BREAKING, TYPED, upload

SECRET = "canary/5Zt9QmXw+never/to/be/written"  # noqa: S105 - not a real password


def holding(paths: Iterable[Path], canary: str) -> list[str]:
    needles = {canary.encode(), canary.encode("utf-16-le")}
    files = [path for path in paths if path.is_file()]
    assert files
    return [str(path) for path in files if any(n in path.read_bytes() for n in needles)]


def test_the_secret_is_written_nowhere_and_the_typed_text_only_where_it_belongs(
    tmp_path, recording, monkeypatch, capfd, caplog
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with open_bench(tmp_path, kept=True, captured=True) as bench:
        upload(recording, bench.uploads, "good")
        assert bench.process("good").success
        for number, (spoil, _, _) in enumerate(BREAKING.values()):
            spoil(upload(recording, bench.uploads, f"bad{number}"))
            assert not bench.process(f"bad{number}").success
        assert bench.run("build_datasets").success
    private_files = [*(tmp_path / "store").rglob("manifest.json")]
    private_files += [*(tmp_path / "store" / "quarantine").rglob("*")]
    home = list((tmp_path / "home").rglob("*"))
    assert any(path.suffix == ".db" for path in home)
    for canary in (SECRET, TYPED):
        assert holding(home, canary) == []
        assert holding(private_files, canary) == []
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET
    captured = capfd.readouterr()
    logged = f"{captured.out}\n{captured.err}\n{caplog.text}"
    assert SECRET not in logged
    assert TYPED not in logged
    assert holding(tmp_path.rglob("*"), SECRET) == []
    assert holding((tmp_path / "store").rglob("*.json"), TYPED)  # shows that the search works


def test_the_message_of_a_defect_that_quotes_typed_text_is_left_out(
    tmp_path, recording, monkeypatch
):
    def build(*_: object) -> dict[str, object]:
        raise ValueError(f"cannot place {TYPED!r}") from LookupError(TYPED)

    with open_bench(tmp_path, kept=True) as bench:
        upload(recording, bench.uploads, "one")
        bench.process("one")
        monkeypatch.setattr("demo_pipeline.runs.graph.run_checks", build)
        result = bench.run("process_demonstration", "one", ["actions"], **{FORCE_TAG: "true"})
    [event] = result.get_step_failure_events()
    assert isinstance(event, dg.DagsterEvent)
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert "stopped actions of one" in (failure.description or "")
    assert holding((tmp_path / "home").rglob("*"), TYPED) == []
