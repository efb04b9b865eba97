"""The errors that the store raises.

Belongs here: this package's exceptions; they name an output, never the command that builds it. What
is wrong with a demonstration itself is a `DemonstrationError`.
"""

from typing import Any


class StorageError(Exception):
    """A root, a name or a staged directory that the store cannot work with."""


class OutputError(StorageError):
    """An output that cannot be used as it is; building it again corrects it.

    Attributes:
        output: its name, e.g. `events/<id>`.
    """

    def __init__(self, output: str, *more: str, message: str) -> None:
        self.output, self._arguments = output, (output, *more)
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self._arguments)


class MissingOutput(OutputError):  # noqa: N818 - the name states what is wrong
    """An output that was never committed, or that lacks one of its files."""

    def __init__(self, output: str) -> None:
        message = f"{output}: not committed, or one of its files is missing"
        super().__init__(output, message=message)


class ChangedOutput(OutputError):  # noqa: N818 - the name states what is wrong
    """An output with a file that was changed after its commit.

    Args:
        output: its name.
        file: path of the file in the output, printable.
    """

    def __init__(self, output: str, file: str) -> None:
        self.file = file
        message = f"{output}/{file} was changed after its commit"
        super().__init__(output, file, message=message)
