"""The errors that the store raises.

They name an output, never the command that builds it. Problems of a demonstration itself are
`DemonstrationError`s.
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
    """A file or object is missing, or was replaced."""


class OutputError(StorageError):
    """An output that cannot be used until it is built again.

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
    """An output with a file that was changed after its commit; `file` is its printable path."""

    def __init__(self, output: str, file: str) -> None:
        super().__init__(output, file)
        self.file = file

    def __str__(self) -> str:
        return f"{self.output}/{self.file} was changed after its commit"
