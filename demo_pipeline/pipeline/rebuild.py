"""Which command builds an output, and the messages that tell people to run it.

Belongs here: the text that storage cannot know, since it knows no asset and no command line.
"""

from demo_pipeline.problems import Problem
from demo_pipeline.storage.errors import MissingOutput, OutputError, StorageError
from demo_pipeline.storage.store.integrity import OutputDamage

_ASSETS = {
    "recordings": "raw_recordings",
    "dataset": "trajectory_index",
    "sft": "sft_samples",
    "messages": "messages_dataset",
    "statistics": "dataset_statistics",
    "datasets": "cudag_dataset",
    "quarantine_table": "quarantine",
    "osworld/tasks": "osworld_tasks",
    "osworld/quests": "osworld_quests",
}
_UNPARTITIONED = frozenset(
    {
        "dataset",
        "sft",
        "messages",
        "statistics",
        "datasets",
        "quarantine_table",
        "osworld/tasks",
        "osworld/quests",
    }
)


def rebuild_command(output: str) -> str:
    """The command that builds `output`, e.g. `events/<id>`."""
    folder, _, rest = (output, "", "") if output in _ASSETS else output.partition("/")
    asset = _ASSETS.get(folder, folder)
    command = f"dagster asset materialize -m demo_pipeline.definitions --select {asset}"
    return command if folder in _UNPARTITIONED or not rest else f"{command} --partition {rest}"


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
