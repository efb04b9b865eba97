"""A new exporter is one entry in the registry of dataset stages, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo_pipeline.runs import stages
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.sample_workspace import copy_of

PACKAGE = Path(stages.__file__).parents[1]
REGISTRY = Path(stages.__file__).relative_to(PACKAGE)
ENTRY = '''

def _run_toy(context, out):
    """One line and one Parquet row per trajectory, naming it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = [trajectory.id for trajectory in context.committed.trajectories]
    (out / "toy.jsonl").write_text("".join(f'"{key}"\\n' for key in ids))
    pq.write_table(pa.table({"trajectory_id": ids}), out / "toy.parquet")
    return {"lines": len(ids)}


def _verify_toy(_context, out):
    lines = (out / "toy.jsonl").read_text().splitlines()
    return [] if lines else [Problem("empty_toy", "toy.jsonl", "has no line")]


from demo_pipeline.problems import Problem
from demo_pipeline.stage import Check

TOY_STAGE = Stage(
    name="toy_dataset",
    folder="toy",
    description="A toy dataset: the id of every trajectory, one per line.",
    kinds=frozenset({"json"}),
    code_version="1",
    build=_run_toy,
    checks=(
        Check("toy_lines", "The file has at least one line.", _verify_toy, compared=("lines",)),
    ),
)
'''
ASK_DAGSTER = """
import json
from demo_pipeline.definitions import defs
from demo_pipeline.defs import sensors
from demo_pipeline.runs.damage import rebuild_command
from demo_pipeline.settings import Settings
[spec] = [spec for spec in defs.resolve_all_asset_specs() if spec.key.path == ["toy_dataset"]]
checks = defs.resolve_asset_graph().asset_check_keys
print(json.dumps({
    "description": spec.description,
    "group": spec.group_name,
    "parents": [dep.asset_key.path[-1] for dep in spec.deps],
    "checks": sorted(key.name for key in checks if key.asset_key == spec.key),
    "in_job": "toy_dataset" in defs.resolve_job_def("build_datasets").graph.node_dict,
    "sensor_waits_for_it": spec.key in sensors.followed_datasets(Settings()),
    "rebuild": rebuild_command("toy").split("--select ")[1],
}))
"""
PRUNE = """
import dagster as dg
from demo_pipeline.defs.maintenance_jobs import prune_runs
with dg.DagsterInstance.get() as instance:
    prune_runs(instance, 4e9)
    record = instance.get_latest_materialization_event(dg.AssetKey("toy_dataset"))
    print(instance.get_run_by_id(record.run_id) is not None)
"""


@dataclass(frozen=True)
class Checkout:
    """A copy of the package with one more entry, and a store that its `run` has filled."""

    root: Path
    run_output: str

    def python(self, *arguments: str) -> str:
        return execute(self.root, *arguments)

    def command(self, *arguments: str) -> str:
        return self.python("-m", "demo_pipeline.cli.app", *arguments)


def execute(root: Path, *arguments: str) -> str:
    environment = {
        "PYTHONPATH": str(root),
        "DAGSTER_HOME": str(root / "home"),
        "DEMO_PIPELINE_UPLOADS": str(root / "made/uploads"),
        "DEMO_PIPELINE_STORE": str(root / "made/store"),
        "DEMO_PIPELINE_OSWORLD_TASKS": str(root / "made/tasks"),
        "COLUMNS": "160",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def checkout(made_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    root = tmp_path_factory.mktemp("checkout")
    package = root / PACKAGE.name
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (package / REGISTRY).read_text(encoding="utf-8")
    before, opening, after = text.partition(
        "DATASET_STAGES: tuple[Stage[DatasetInputs], ...] = (\n"
    )
    assert opening
    extended = f"{before}{ENTRY}\n{opening}    TOY_STAGE,\n{after}"
    (package / REGISTRY).write_text(extended, encoding="utf-8")
    copy_of(made_root, root / "made")
    (root / "home").mkdir()
    (root / "home/dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
    return Checkout(root, execute(root, "-m", "demo_pipeline.cli.app", "run"))


def test_a_run_builds_it_and_lists_it_with_its_counts(checkout: Checkout) -> None:
    assert "0 done, 0 quarantined, 2 up to date" in checkout.run_output
    [row] = [line for line in checkout.run_output.splitlines() if "toy_dataset" in line]
    assert "2 lines" in row
    lines = (checkout.root / "made/store/toy/toy.jsonl").read_text().splitlines()
    assert lines == ['"first"', '"second"']


def test_dagster_and_the_error_messages_know_it(checkout: Checkout) -> None:
    assert json.loads(checkout.python("-c", ASK_DAGSTER)) == {
        "description": "A toy dataset: the id of every trajectory, one per line.",
        "group": "datasets",
        "parents": ["records"],
        "checks": ["toy_lines", "trajectories_whole"],
        "in_job": True,
        "sensor_waits_for_it": True,
        "rebuild": "toy_dataset",
    }


def test_export_copies_it(checkout: Checkout, tmp_path: Path) -> None:
    dest = tmp_path / "out"
    assert f"{dest}/toy\n" in checkout.command("export", str(dest))


def test_pruning_keeps_the_run_that_built_it(checkout: Checkout) -> None:
    assert checkout.python("-c", PRUNE) == "True\n"
