"""Tests that a store in a bucket gets the same versions of all outputs as a local store."""

import shutil
from pathlib import Path

import pytest

from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE
from demo_pipeline.runs.export import export_datasets
from demo_pipeline.runs.failures import UnusableInputError
from demo_pipeline.runs.queries import current_statistics, run_query, views_script
from demo_pipeline.runs.stages import dataset_stages, is_built
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.named_stages import SFT_STAGE
from demo_pipeline_tests.sample_workspace import contents, open_workspace, run_all_stages

DEMO = "first"


def build(workspace: Workspace) -> dict[str, str]:
    """Runs every stage and every enabled dataset stage; returns stage → status."""
    statuses = run_all_stages(workspace, DEMO)
    wanted = [stage for stage in dataset_stages() if is_built(stage, workspace.settings)]
    datasets = [stage for stage in wanted if stage is not TASKS_STAGE]
    return statuses | {stage.name: run_dataset_stage(workspace, stage).status for stage in datasets}


def test_a_bucket_gets_the_same_versions_as_a_local_store(made_root, moto_url, tmp_path):
    shutil.copytree(made_root / "uploads" / DEMO, tmp_path / "local/uploads" / DEMO)
    local = open_workspace(tmp_path / "local")
    build(local)

    def machine(name: str) -> Workspace:
        cache = str(tmp_path / name)
        return open_workspace(tmp_path / "local", store=f"{moto_url}/store", cache=cache)

    bucket = machine("cache")
    assert set(build(bucket).values()) == {"made"}
    outputs = local.store.outputs()
    assert bucket.store.outputs() == outputs
    for output in outputs:
        assert bucket.store.current(output) == local.store.current(output), output
    other = machine("elsewhere")
    assert set(build(other).values()) == {"unchanged"}
    assert contents(other, DEMO) == contents(local, DEMO)
    exported = [tmp_path / "out/local", tmp_path / "out/bucket"]
    names = [
        export_datasets(workspace.store, dest)
        for workspace, dest in zip((local, other), exported, strict=True)
    ]
    assert names[0] == names[1]
    assert files(exported[0]) == files(exported[1])
    assert current_statistics(other) == current_statistics(local)
    query = "SELECT * FROM steps ORDER BY trajectory_id, step_index"
    assert run_query(other, query) == run_query(local, query)
    with pytest.raises(StorageError, match="demo-pipeline export"):
        views_script(other.store.url)

    # A dataset that lost a file in the bucket is reported, not treated as missing.
    samples = bucket.store.current(SFT_STAGE.folder)
    assert samples is not None
    lost = f"versions/{SFT_STAGE.folder}/{samples.place}/content/samples.parquet"
    objects = Bucket(f"{moto_url}/store", tmp_path)
    assert objects.head(lost) is not None
    objects.delete(lost)
    newcomer = machine("another place")
    with pytest.raises(UnusableInputError, match=f"{SFT_STAGE.folder}: .*files is missing"):
        run_dataset_stage(newcomer, STATISTICS_STAGE, force=True)
    assert newcomer.store.current(STATISTICS_STAGE.folder) == local.store.current(
        STATISTICS_STAGE.folder
    )


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
