"""Tests that a new training export needs only a module and its name in the settings."""

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
from demo_pipeline_tests.sample_workspace import copy_of, variables_of

PACKAGE = Path(stages.__file__).parents[1]
MODULE = """
from collections.abc import Iterator

import pyarrow as pa

from demo_pipeline.datasets.sql_views import View
from demo_pipeline.exports.form import Excluded, File, Form, Row, Source, Table
from demo_pipeline.exports.record_checks import RecordFormat, StrictDocument


class ToyLine(StrictDocument):
    id: str


def _rows(made_of: Source) -> Iterator[Row | Excluded]:
    first = made_of.trajectory.steps[0].screenshot
    parts = {"line": {"id": made_of.id}, "row": {"trajectory_id": made_of.id}}
    yield Row(made_of.id, made_of.instruction, first, parts, {f"{made_of.id}.png": first})


FORM = Form(
    name="toy",
    asset="toy_dataset",
    folder="toy",
    description="A toy dataset: the id of every trajectory, one per line.",
    code_version="1",
    settings=(),
    exclusions=(),
    rows=_rows,
    files=(
        File("line", "{split}.jsonl", checked=RecordFormat(ToyLine)),
        File("row", "toy.parquet", lambda _: Table(pa.schema([("trajectory_id", pa.string())]))),
    ),
    check="toy_lines",
    whole=True,
    marks=("toy.parquet",),
    views=(View("toy", "a trajectory of the toy dataset", "toy/toy.parquet"),),
)
"""
ASK_DAGSTER = """
import json
from demo_pipeline.definitions import defs
from demo_pipeline.runs.damage import rebuild_command
[spec] = [spec for spec in defs.resolve_all_asset_specs() if spec.key.path == ["toy_dataset"]]
checks = defs.resolve_asset_graph().asset_check_keys
print(json.dumps({
    "description": spec.description,
    "group": spec.group_name,
    "parents": [dep.asset_key.path[-1] for dep in spec.deps],
    "checks": sorted(key.name for key in checks if key.asset_key == spec.key),
    "in_job": "toy_dataset" in defs.resolve_job_def("build_datasets").graph.node_dict,
    "rebuild": rebuild_command("toy").split("--select ")[1],
}))
"""


@dataclass(frozen=True)
class Checkout:
    """A copy of the package with an additional training export, and a store filled by `run`."""

    root: Path
    run_output: str

    def python(self, *arguments: str) -> str:
        return execute(self.root, *arguments)

    def command(self, *arguments: str) -> str:
        return self.python("-m", "demo_pipeline.cli.app", *arguments)


def execute(root: Path, *arguments: str) -> str:
    environment = variables_of(root / "made") | {
        "PYTHONPATH": str(root),
        "DEMO_PIPELINE_DATASETS__EXPORTS": '["sft", "toy"]',
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
    settings = package / "settings.py"
    text = settings.read_text(encoding="utf-8")
    assert '    "sft",\n' in text
    settings.write_text(text.replace('    "sft",\n', '    "sft",\n    "toy",\n', 1))
    (package / "exports/toy.py").write_text(MODULE, encoding="utf-8")
    copy_of(made_root, root / "made")
    shutil.rmtree(root / "made/home", ignore_errors=True)  # another test may have created it
    (root / "made/home").mkdir()
    (root / "made/home/dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
    return Checkout(root, execute(root, "-m", "demo_pipeline.cli.app", "run"))


def test_a_run_builds_the_new_export_with_its_card_and_lists_it(checkout):
    [row] = [line for line in checkout.run_output.splitlines() if "toy_dataset" in line]
    assert "train 1, val 1" in row
    store = checkout.root / "made/store/toy"
    files = [store / f"{split}.jsonl" for split in ("train", "val", "test")]
    ids = []
    for file in files:
        ids += [json.loads(line)["id"] for line in file.read_text().splitlines()]
    assert sorted(ids) == ["first", "second"]
    assert (store / "first.png").read_bytes()[1:4] == b"PNG"
    assert "A toy dataset: the id of every trajectory" in (store / "README.md").read_text()


def test_dagster_and_the_error_messages_know_the_new_export(checkout):
    assert json.loads(checkout.python("-c", ASK_DAGSTER)) == {
        "description": "A toy dataset: the id of every trajectory, one per line.",
        "group": "demo_pipeline",
        "parents": ["records"],
        "checks": ["toy_lines", "trajectories_whole"],
        "in_job": True,
        "rebuild": "toy_dataset",
    }


def test_export_copies_the_new_export_and_validate_recognises_the_copy(checkout, tmp_path):
    dest = tmp_path / "out"
    assert f"{dest}/toy\n" in checkout.command("export", str(dest))
    assert f"{dest}/toy: toy valid, 0 warnings" in checkout.command("validate", str(dest / "toy"))
    assert "toy valid" in checkout.command("validate", "--kind", "toy", str(dest / "toy"))


def test_stats_queries_the_view_of_the_new_export(checkout):
    answer = checkout.command("stats", "--json", "SELECT count(*) AS n FROM toy")
    assert json.loads(answer) == {"answer": [{"n": 2}]}
    assert "-- toy: a trajectory of the toy dataset\n" in checkout.command("stats", "--views")
