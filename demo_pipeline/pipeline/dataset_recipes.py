"""The recipe and the output of a dataset stage.

Belongs here: what an output depends on, and its name. Building it is in dataset_runner.py.
"""

from collections.abc import Mapping

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.stage import Stage
from demo_pipeline.storage.store.version_manifest import Recipe

_BROKEN = "left out: broken"


def dataset_output(stage: Stage[DatasetInputs], context: DatasetInputs) -> str:
    """Name of the stage's output in the store."""
    return f"{stage.folder}/{stage.subfolder(context)}" if stage.subfolder else stage.folder


def dataset_recipe(
    stage: Stage[DatasetInputs], context: DatasetInputs, fingerprints: Mapping[str, str]
) -> Recipe:
    """Everything that the output depends on.

    Args:
        stage: the stage.
        context: its inputs.
        fingerprints: name → fingerprint of the inputs that are not trajectories.
    """
    inputs = dict(fingerprints)
    if stage.reads_trajectories:
        committed = context.committed
        inputs |= {key: version.content for key, version in committed.versions.items()}
        inputs |= {f"left out: {name}": str(n) for name, n in committed.left_out.items()}
    settings = context.settings
    inputs |= {name: section(settings).fingerprint() for name, section in stage.limits.items()}
    return Recipe(stage.name, stage.code_version, stage.fingerprint(settings), inputs)


def is_present(built: Recipe, wanted: Recipe) -> bool:
    """Whether a dataset was built from what there is now.

    Trajectories that were damaged after their commit may be missing, when they are counted.
    """
    same = (built.stage, built.code_version, built.settings)
    if same != (wanted.stage, wanted.code_version, wanted.settings):
        return False
    missing = wanted.inputs.keys() - built.inputs.keys()
    expected = {name: text for name, text in wanted.inputs.items() if name not in missing}
    if missing and _BROKEN in expected:
        expected[_BROKEN] = str(int(expected[_BROKEN]) + len(missing))
    return built.inputs == expected
