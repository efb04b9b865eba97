"""A store that holds the two desktop recordings of `data/samples/`, with all default datasets."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from demo_pipeline_tests.sample_workspace import variables_of

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ("20261121_212358", "20261121_212801")


def build_sample_store(root: Path) -> Path:
    """Run the pipeline below `root` (uploads, store, cache, home), and return `root`."""
    for recording in RECORDINGS:
        shutil.copytree(ROOT / "data" / "samples" / recording, root / "uploads" / recording)
    (root / "home").mkdir()
    shutil.copy(ROOT / "dagster.yaml", root / "home")
    command = [str(Path(sys.executable).parent / "demo-pipeline"), "run", "--strict"]
    environment = os.environ | variables_of(root)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return root
