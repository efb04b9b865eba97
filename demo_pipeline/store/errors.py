"""The errors that the store raises.

Their messages name an output, but no command, because the store does not know the commands.
"""


class StorageError(Exception):
    """Raised for a root, a name or a staged directory that the store cannot use.

    Attributes:
        trouble: a cause that may affect other files, too, such as `No space left on device`. Empty
            if the cause concerns only this file.
    """

    def __init__(self, *values: object, trouble: str = "") -> None:
        super().__init__(*values)
        self.trouble = trouble


class ObjectChangedError(StorageError):
    """Raised if a file or object was removed or replaced after it was listed."""


class OutputError(StorageError):
    """Raised for an output that cannot be used until it is built again.

    Attributes:
        output: its name, such as `events/<id>`.
    """

    def __init__(self, output: str, *more: str) -> None:
        super().__init__(output, *more)
        self.output = output


class MissingOutput(OutputError):  # noqa: N818 - the name states what is wrong
    """Raised for an output that was never committed, or that has a missing file."""

    def __str__(self) -> str:
        return f"{self.output}: not committed, or one of its files is missing"


class ChangedOutput(OutputError):  # noqa: N818 - the name states what is wrong
    """Raised for an output with a file that was changed after its commit.

    Attributes:
        file: the path of the file in the output, in printable ASCII.
    """

    def __init__(self, output: str, file: str) -> None:
        super().__init__(output, file)
        self.file = file

    def __str__(self) -> str:
        return f"{self.output}/{self.file} was changed after its commit"
