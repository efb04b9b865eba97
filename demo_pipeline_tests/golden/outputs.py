"""Builds the golden outputs: every stage for the two recordings of a real desktop."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.stages import STAGES, dataset_stages
from demo_pipeline.store.store import Store
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.golden.rendering import render_folder, render_values
from demo_pipeline_tests.sample_workspace import open_workspace, run_catalog

GOLDEN = Path(__file__).parent
RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "samples"
REAL_RECORDINGS = ("20261121_212358", "20261121_212801")
DATASETS = "datasets"


def copy_recordings(root: Path) -> None:
    """Copies the two recordings into the uploads of a workspace at `root`."""
    for name in REAL_RECORDINGS:
        shutil.copytree(RECORDINGS / name, root / "uploads" / name)


def golden_texts(root: Path) -> dict[str, str]:
    """Returns the text of each golden file, by name, from the workspace at `root`.

    Files are named `<recording>/<stage>.txt` and `datasets/<stage>.txt`. Outputs that the workspace
    already has are not built again.
    """
    workspace = open_workspace(root)
    run_catalog(workspace)
    texts = {}
    for name in REAL_RECORDINGS:
        for stage in STAGES:
            texts[f"{name}/{stage.name}.txt"] = _text(root, build_stage(workspace, stage, name))
    for dataset in dataset_stages():
        texts[f"{DATASETS}/{dataset.name}.txt"] = _text(root, run_dataset_stage(workspace, dataset))
    return texts


def _text(root: Path, result: BuildResult) -> str:
    version = Store(root / "store").current(result.output)
    assert version is not None, result.checks
    recipe = version.manifest.recipe
    made_from = {"settings": recipe.settings, "inputs": sorted(recipe.inputs)}
    checks = {outcome.name: outcome.passed for outcome in result.checks}
    summary = {name: value for name, value in result.summary.items() if name != "problems"}
    parts = {
        "built from": render_values(made_from),
        "checks passed": render_values(checks),
        "summary": render_values(summary),
        "files": render_folder(root / "store" / result.output),
    }
    return "\n".join(f"# {title}\n{text}" for title, text in parts.items())


def fresh_texts() -> dict[str, str]:
    """Builds the golden texts of the current code, in a temporary folder with default settings."""
    for name in [name for name in os.environ if name.startswith("DEMO_PIPELINE_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DEMO_PIPELINE_CONFIG"] = str(Path(folder) / "none.toml")
        copy_recordings(Path(folder))
        return golden_texts(Path(folder))


def committed_texts() -> dict[str, str]:
    """Reads the committed golden texts."""
    return {
        path.relative_to(GOLDEN).as_posix(): path.read_text("utf-8")
        for path in sorted(GOLDEN.glob("*/*.txt"))
    }


def write_texts(texts: Mapping[str, str]) -> None:
    """Writes these texts as the golden outputs, and removes all others."""
    for name in set(committed_texts()) - set(texts):
        (GOLDEN / name).unlink()
    for name, text in texts.items():
        (GOLDEN / name).parent.mkdir(exist_ok=True)
        (GOLDEN / name).write_text(text, encoding="utf-8")
