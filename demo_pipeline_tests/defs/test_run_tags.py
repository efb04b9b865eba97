"""The Runs page stays readable: people see few and short tags, and runs under their job."""

import tomllib
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.storage import tags as dagster_tags
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG, TagType, get_tag_type

from demo_pipeline.defs import tags
from demo_pipeline.defs.demonstration_runs import (
    BatchMember,
    batch_tags,
    members_of,
    note_outcomes,
    noted_outcomes,
    records_of,
)
from demo_pipeline.defs.run_recovery import local_run_tags
from demo_pipeline.runs.discovery import Ending
from demo_pipeline.runs.results import Status

ROOT = Path(__file__).resolve().parents[2]


def seen(found: dict[str, str]) -> dict[str, str]:
    """The tags that the UI gets from its server."""
    return {key: value for key, value in found.items() if get_tag_type(key) is not TagType.HIDDEN}


def test_of_a_batch_of_500_people_see_only_how_many_it_has() -> None:
    members = [
        BatchMember(f"demo_{n:03d}", "f" * 64, f"demo_{n:03d}@{'f' * 16}") for n in range(500)
    ]
    outcomes = {member.demonstration: Ending(Status.LOST) for member in members[:30]}
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(empty, tags=batch_tags(members))
        note_outcomes(instance, run.run_id, outcomes)
        kept = instance.get_run_by_id(run.run_id)
        assert kept is not None
        assert seen(dict(kept.tags)) == {"demo_pipeline/batch": "500"}
        assert members_of(kept) == members
        assert noted_outcomes(kept) == outcomes
        [found] = records_of(instance, "demo_007", 1)
        assert found.dagster_run.run_id == run.run_id


def test_a_run_of_the_command_line_is_listed_under_its_job() -> None:
    """The UI lists what the location of workspace.yaml launched; `dagster dev` reads the other."""
    [location] = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    name = location["python_module"]["location_name"]
    assert project["code_location_name"] == name
    assert local_run_tags("id")[REPOSITORY_LABEL_TAG] == f"__repository__@{name}"
    assert seen(local_run_tags("id")) == {tags.MAX_RETRIES_TAG: "0"}


@pytest.mark.parametrize("file", ["dagster.yaml", "deploy/ray/dagster.yaml"])
def test_the_queue_limits_runs_by_tags_that_exist(file: str) -> None:
    limits = yaml.safe_load((ROOT / file).read_text())["concurrency"]["runs"]
    ours = {limit["key"] for limit in limits["tag_concurrency_limits"]} - {
        "dagster/partition",
        "dagster/backfill",
    }
    assert ours == {tags.BATCH_TAG, tags.ONE_AT_A_TIME_TAG}


def test_the_names_of_dagsters_tags_are_those_of_dagster() -> None:
    names = [name for name in vars(tags) if name.isupper() and hasattr(dagster_tags, name)]
    assert len(names) >= 3
    assert {name: getattr(tags, name) for name in names} == {
        name: getattr(dagster_tags, name) for name in names
    }


@dg.job
def empty() -> None:
    """Nothing to do."""
