"""How the catalog asset registers uploads."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs.jobs import register_partitions
from demo_pipeline.defs.tags import PARTITIONS_NAME
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline_tests.defs.bench import Bench, bench, failures, materialized, values, verdicts


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        yield one


def arrive(made: Bench, name: str, *files: str) -> None:
    """An upload of which only the files' names matter."""
    (made.uploads / name).mkdir(parents=True, exist_ok=True)
    for file in files or RECORDING_FILES:
        (made.uploads / name / file).write_bytes(b"x")


def known(made: Bench) -> list[str]:
    return list(made.instance.get_dynamic_partitions("demonstrations"))


def test_it_registers_and_lists_the_uploads(made: Bench) -> None:
    arrive(made, "one")
    arrive(made, "two", "meta.json")
    shown = values(materialized(made.run("register_uploads"))["demonstration_catalog", None])
    assert known(made) == ["one", "two"]
    assert shown["demonstrations"] == 2
    assert shown["newly_registered"] == "- one\n- two"
    assert shown["complete"] == 1
    again = values(materialized(made.run("register_uploads"))["demonstration_catalog", None])
    assert again["newly_registered"] == "none"
    assert known(made) == ["one", "two"]


def test_two_folders_for_one_id_are_reported_and_neither_is_registered(made: Bench) -> None:
    arrive(made, "a b")
    arrive(made, "good")
    [twin] = [one.id for one in made.workspace.uploads.list_demonstrations() if "b" in one.id]
    arrive(made, twin)
    result = made.run("register_uploads")
    assert result.success
    verdict = verdicts(result)["ids_unique"]
    assert not verdict.passed
    assert verdict.severity is dg.AssetCheckSeverity.WARN
    assert f"a b and {twin}" in (verdict.description or "")
    assert "rename all but one of them" in (verdict.description or "")
    assert known(made) == ["good"]


def test_missing_uploads_are_reported_with_a_remedy(made: Bench) -> None:
    made.uploads.rmdir()
    said = failures(made.run("register_uploads"))["demonstration_catalog"]
    assert "DEMO_PIPELINE_UPLOADS" in said.description


class IntegrityError(Exception):
    """As SQLAlchemy names it."""


def test_what_two_commands_register_at_the_same_moment_is_registered_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        add = instance.add_dynamic_partitions

        def raced(name: str, keys: Sequence[str]) -> None:
            monkeypatch.undo()
            add(name, keys[:1])  # the other command
            raise IntegrityError

        monkeypatch.setattr(instance, "add_dynamic_partitions", raced)
        assert register_partitions(instance, ["one", "two"]) == ["one", "two"]
        assert instance.get_dynamic_partitions(PARTITIONS_NAME) == ["one", "two"]
