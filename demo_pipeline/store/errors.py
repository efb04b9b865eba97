"""The errors that the store raises.

Belongs here: this package's exceptions; they name an output, never the command that builds it. What
is wrong with a demonstration itself is a `DemonstrationError`.
"""


class StorageError(Exception):
    """A root, a name or a staged directory that the store cannot work with.

    Attributes:
        trouble: the cause without the name of a file, so that it is equal for every file, e.g.
            `No space left on device`; empty if no other file can have the same trouble.
    """

    def __init__(self, *values: object, trouble: str = "") -> None:
        super().__init__(*values)
        self.trouble = trouble


class ObjectChangedError(StorageError):
    """A file or object is missing, or is not the expected one."""


class OutputError(StorageError):
    """An output that cannot be used as it is; building it again corrects it.

    Attributes:
        output: its name, e.g. `events/<id>`.
    """

    def __init__(self, output: str, *more: str) -> None:
        super().__init__(output, *more)
        self.output = output


class MissingOutput(OutputError):  # noqa: N818 - the name states what is wrong
    """An output that was never committed, or that lacks one of its files."""

    def __str__(self) -> str:
        return f"{self.output}: not committed, or one of its files is missing"


class ChangedOutput(OutputError):  # noqa: N818 - the name states what is wrong
    """An output with a file, a printable path in it, that was changed after its commit."""

    def __init__(self, output: str, file: str) -> None:
        super().__init__(output, file)
        self.file = file

    def __str__(self) -> str:
        return f"{self.output}/{self.file} was changed after its commit"
