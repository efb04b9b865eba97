"""Builds a store with the two desktop recordings in `data/samples/` and all default datasets."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from demo_pipeline_tests.sample_workspace import variables_of

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ("20261121_212358", "20261121_212801")


def build_sample_store(root: Path) -> Path:
    """Runs the pipeline with all folders (uploads, store, cache, home) below `root`.

    Returns `root`.
    """
    for recording in RECORDINGS:
        shutil.copytree(ROOT / "data" / "samples" / recording, root / "uploads" / recording)
    (root / "home").mkdir()
    shutil.copy(ROOT / "dagster.yaml", root / "home")
    command = [str(Path(sys.executable).parent / "demo-pipeline"), "run", "--strict"]
    environment = os.environ | variables_of(root)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return root
