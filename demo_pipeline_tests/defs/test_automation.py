"""How uploads become known: by the catalog, or by the sensor."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs.automation import MAX_REQUESTS, new_uploads, unseen
from demo_pipeline.storage.uploads import FILES, UploadedDemonstration
from demo_pipeline_tests.defs.bench import (
    Bench,
    bench,
    failures,
    materialized,
    values,
    verdicts,
)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        yield one


def arrive(made: Bench, name: str, *files: str) -> None:
    """An upload of which only the files' names matter."""
    (made.uploads / name).mkdir(parents=True, exist_ok=True)
    for file in files or FILES:
        (made.uploads / name / file).write_bytes(b"x")


def tick(made: Bench) -> dg.SensorResult | dg.SkipReason:
    """One evaluation of the sensor, with what the daemon does about it."""
    context = dg.build_sensor_context(
        instance=made.instance,
        resources={"pipeline": made.pipeline},
        definitions=made.definitions,
    )
    result = new_uploads(context)
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    if isinstance(result, dg.SensorResult):
        for request in result.dynamic_partitions_requests or []:
            keys = list(request.partition_keys)
            made.instance.add_dynamic_partitions(request.partitions_def_name, keys)
    return result


def requested(result: dg.SensorResult | dg.SkipReason) -> list[str | None]:
    assert isinstance(result, dg.SensorResult)
    return [request.partition_key for request in result.run_requests or []]


def known(made: Bench) -> list[str]:
    return list(made.instance.get_dynamic_partitions("demonstrations"))


class TestSensor:
    def test_a_complete_upload_is_registered_and_run_once(self, made: Bench) -> None:
        arrive(made, "one")
        arrive(made, "two")
        assert requested(tick(made)) == ["one", "two"]
        assert known(made) == ["one", "two"]
        assert isinstance(tick(made), dg.SkipReason)
        arrive(made, "three")
        assert requested(tick(made)) == ["three"]

    def test_an_incomplete_upload_waits_until_its_last_file_is_there(self, made: Bench) -> None:
        arrive(made, "one", "meta.json", "input_log.jsonl")
        assert isinstance(tick(made), dg.SkipReason)
        assert known(made) == []
        arrive(made, "one")
        assert requested(tick(made)) == ["one"]

    def test_a_folder_with_an_unsafe_name_runs_under_its_safe_id(self, made: Bench) -> None:
        arrive(made, "my demo, take 2")
        [key] = requested(tick(made))
        assert key is not None
        assert key.startswith("my_demo_take_2-")
        assert known(made) == [key]

    def test_missing_uploads_are_a_reason_to_wait_not_a_crash(self, made: Bench) -> None:
        made.uploads.rmdir()
        result = tick(made)
        assert isinstance(result, dg.SkipReason)
        assert "DEMO_PIPELINE_UPLOADS" in (result.skip_message or "")

    def test_a_tick_asks_for_no_more_runs_than_it_can_submit(self) -> None:
        uploads = [UploadedDemonstration(f"d{n:04}", f"d{n:04}", FILES) for n in range(250)]
        first = unseen(uploads, [])
        assert [one.id for one in first] == [one.id for one in uploads[:MAX_REQUESTS]]
        second = unseen(uploads, [one.id for one in first])
        assert [one.id for one in second] == [one.id for one in uploads[100:200]]


class TestCatalog:
    def test_it_registers_what_lies_there_and_lists_it(self, made: Bench) -> None:
        arrive(made, "one")
        arrive(made, "two", "meta.json")
        shown = values(materialized(made.run("register_uploads"))["demonstration_catalog", None])
        assert known(made) == ["one", "two"]
        assert shown["demonstrations"] == 2
        assert shown["newly_registered"] == "- one\n- two"
        assert "| two | two | 1 of 3 |" in shown["table"]
        again = values(materialized(made.run("register_uploads"))["demonstration_catalog", None])
        assert again["newly_registered"] == "none"
        assert known(made) == ["one", "two"]

    def test_two_folders_for_one_id_are_reported_and_neither_is_registered(
        self, made: Bench
    ) -> None:
        arrive(made, "a b")
        arrive(made, "good")
        [twin] = [one.id for one in made.pipeline.uploads.list_demonstrations() if "b" in one.id]
        arrive(made, twin)
        result = made.run("register_uploads")
        assert result.success
        verdict = verdicts(result)["ids_unique"]
        assert not verdict.passed
        assert verdict.severity is dg.AssetCheckSeverity.WARN
        assert f"a b and {twin}" in (verdict.description or "")
        assert "rename one of them" in (verdict.description or "")
        assert known(made) == ["good"]

    def test_a_name_cannot_break_the_table(self, made: Bench) -> None:
        arrive(made, "a|b")
        shown = values(materialized(made.run("register_uploads"))["demonstration_catalog", None])
        assert "| a\\|b |" in shown["table"]

    def test_missing_uploads_are_said_with_a_way_out(self, made: Bench) -> None:
        made.uploads.rmdir()
        said = failures(made.run("register_uploads"))["demonstration_catalog"]
        assert "DEMO_PIPELINE_UPLOADS" in said.description
