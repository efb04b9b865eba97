"""Tests that commands import the modules of enabled training exports, and of no others."""

import json
import os
import subprocess
import sys
from pathlib import Path

from demo_pipeline_tests.sample_workspace import copy_of, variables_of

ASK = """
import json, sys
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.plan import plan, reasons_to_build
from demo_pipeline.runs.stages import built_stages
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings, export_names
workspace = Workspace.open(Settings())
asked = plan(workspace, {"first": "new"}, force=False)
graph = Graph(workspace)
reasons_to_build(graph, "first")
states = [graph.state(DatasetOutput(graph, stage)) for stage in built_stages(workspace.settings)]
names = [name for name in export_names() if f"demo_pipeline.exports.{name}" in sys.modules]
print(json.dumps({"datasets": [stage for stage, _ in asked.datasets], "loaded": names}))
"""


def test_a_plan_imports_only_the_modules_of_enabled_exports(
    made_root: Path, tmp_path: Path
) -> None:
    root = copy_of(made_root, tmp_path / "made")  # the process writes to the copy
    settings = {"DEMO_PIPELINE_DATASETS__EXPORTS": '["grounding", "atif"]'}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, **variables_of(root), **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {"grounding_dataset", "atif_trajectories"} <= {*answer["datasets"]}
    assert not {"sft", "transitions", "step_labels", "cua_folder"}.intersection(answer["loaded"])
