"""What storage itself can refuse, said so that a person can act on it.

Belongs here: this folder's exceptions. A demonstration's own trouble is a `DemonstrationError`.
"""

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


class StorageError(Exception):
    """A root, a name or a staged directory that storage cannot work with."""


class MissingOutput(StorageError):  # noqa: N818 - it names what is the matter
    """An output that is not there, or no longer whole.

    Attributes:
        output: its name, e.g. `events/<id>`.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        super().__init__(
            f"{output}: not there, or a file of it is missing; make it with `{making(output)}`"
        )

    def __reduce__(self) -> tuple[type["MissingOutput"], tuple[str]]:
        return (type(self), (self.output,))


def making(output: str) -> str:
    """The command that makes `output`."""
    folder, _, rest = (output, "", "") if output in _ASSETS else output.partition("/")
    command = f"dagster asset materialize -m demo_pipeline.definitions --select {asset(folder)}"
    return command if folder in _UNPARTITIONED or not rest else f"{command} --partition {rest}"


def asset(folder: str) -> str:
    """The asset whose outputs lie in `folder`; most folders bear their asset's name."""
    return _ASSETS.get(folder, folder)
