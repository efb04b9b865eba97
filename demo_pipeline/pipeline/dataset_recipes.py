"""The recipe and the output of a dataset stage.

Belongs here: what an output depends on, and its name. Building it is in dataset_runner.py.
"""

from collections.abc import Mapping

from demo_pipeline.pipeline.context import DatasetContext
from demo_pipeline.pipeline.stage_types import DatasetStage
from demo_pipeline.storage.store.version_manifest import Recipe

_BROKEN = "left out: broken"


def dataset_output(stage: DatasetStage, context: DatasetContext) -> str:
    """Name of the stage's output in the store."""
    return f"{stage.output}/{stage.subfolder(context)}" if stage.subfolder else stage.output


def dataset_recipe(
    stage: DatasetStage, context: DatasetContext, fingerprints: Mapping[str, str]
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
    fingerprint = stage.section(settings).fingerprint() if stage.section else ""
    return Recipe(stage.name, stage.code_version, fingerprint, inputs)


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
