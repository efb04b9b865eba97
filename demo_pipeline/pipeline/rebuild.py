"""Which command builds an output, and the messages that tell people to run it.

Belongs here: the text that storage cannot know, since it knows no asset and no command line.
"""

from demo_pipeline.pipeline.dataset_stages import DATASET_STAGES
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.problems import Problem
from demo_pipeline.storage.errors import MissingOutput, OutputError, StorageError
from demo_pipeline.storage.store.integrity import OutputDamage

_COMMAND = "dagster asset materialize -m demo_pipeline.definitions --select"


def rebuild_command(output: str) -> str:
    """The command that builds `output`, e.g. `events/<id>`."""
    for dataset in DATASET_STAGES:
        if output == dataset.output or output.startswith(f"{dataset.output}/"):
            return f"{_COMMAND} {dataset.name}"
    folder, _, demonstration = output.partition("/")
    names = {stage.folder: stage.name for stage in STAGES}
    command = f"{_COMMAND} {names.get(folder, folder)}"
    return f"{command} --partition {demonstration}" if demonstration else command


def storage_message(error: StorageError) -> str:
    """The message of a storage error, with the command that corrects it when there is one."""
    if not isinstance(error, OutputError):
        return str(error)
    command = rebuild_command(error.output)
    if isinstance(error, MissingOutput):
        return f"{error}; build it with `{command}`"
    return f"{error}; build it again by force: `{command}`"


def damage_problem(damage: OutputDamage) -> Problem:
    """What is wrong with a file of a committed output, with the command that corrects it."""
    command = rebuild_command(damage.output)
    remedy = f"build it again, by force if nothing else changed: `{command}`"
    return Problem(damage.code, damage.file, damage.message, remedy=remedy)
