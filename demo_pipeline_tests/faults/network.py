"""The cases behind a network that fails."""
from pathlib import Path
from demo_pipeline_tests.faults.scenarios import Scene, Tally


def network_tallies(scene: Scene, folder: Path, count: int, seed: int) -> dict[str, Tally]:
    return {}
