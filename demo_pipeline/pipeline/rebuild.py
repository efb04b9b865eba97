"""Which command builds an output, and the messages that tell people to run it.

Belongs here: the text that storage cannot know, since it knows no asset and no command line.
"""

from demo_pipeline.pipeline.stages import DATASET_STAGES, STAGES
from demo_pipeline.pipeline.task_catalog import TASKS_STAGE
from demo_pipeline.problems import Problem
from demo_pipeline.stage import DATASETS_JOB
from demo_pipeline.storage.errors import MissingOutput, OutputError, StorageError
from demo_pipeline.storage.store.integrity import OutputDamage

_COMMAND = "dagster asset materialize -m demo_pipeline.definitions --select"


def rebuild_command(output: str) -> str:
    """The command that builds `output`, e.g. `events/<id>`."""
    for dataset in DATASET_STAGES:
        if output == dataset.folder or output.startswith(f"{dataset.folder}/"):
            return f"{_COMMAND} {dataset.name}"
    folder, _, demonstration = output.partition("/")
    names = {stage.folder: stage.name for stage in STAGES}
    command = f"{_COMMAND} {names.get(folder, folder)}"
    return f"{command} --partition {demonstration}" if demonstration else command


def mending_command(output: str) -> str:
    """The command that builds a damaged `output` again, and first what shares its files."""
    folder = output.partition("/")[0]
    jobs = {stage.folder.partition("/")[0]: stage.job for stage in DATASET_STAGES}
    jobs |= dict.fromkeys((stage.folder for stage in STAGES), DATASETS_JOB)
    verified = jobs.get(folder) in (DATASETS_JOB, TASKS_STAGE.job)
    return "demo-pipeline run --verify" if verified else rebuild_command(output)


def storage_message(error: StorageError) -> str:
    """The message of a storage error, with the command that corrects it when there is one."""
    if not isinstance(error, OutputError):
        return str(error)
    if isinstance(error, MissingOutput):
        return f"{error}; build it with `{rebuild_command(error.output)}`"
    return f"{error}; `{mending_command(error.output)}` builds it again"


def damage_problem(damage: OutputDamage, demonstration: str = "") -> Problem:
    """What is wrong with a file of a committed output, with the command that corrects it."""
    remedy = f"`{mending_command(damage.output)}` builds it again"
    return Problem(
        damage.code, damage.file, damage.message, remedy=remedy, demonstration=demonstration
    )
