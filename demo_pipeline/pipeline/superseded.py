"""Whether an upload changed while a stage was processing it.

Belongs here: comparing the upload's current listing with the expected one, and the errors for an
upload that changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from demo_pipeline.problems import Problem
from demo_pipeline.storage.uploads.fingerprint import upload_listing_fingerprint
from demo_pipeline.storage.uploads.uploads import Uploads

_CHANGED = "upload_changed"


class SupersededError(Exception):
    """The upload changed while it was processed; the result describes no existing upload."""

    def __init__(self, demonstration: str, stage: str) -> None:
        self.demonstration, self.stage = demonstration, stage
        super().__init__(f"{demonstration}: the upload changed during {stage}")

    def __reduce__(self) -> tuple[type["SupersededError"], tuple[str, str]]:
        return (type(self), (self.demonstration, self.stage))


@dataclass(frozen=True, slots=True)
class ExpectedUpload:
    """The upload that a stage of a demonstration is run for.

    Attributes:
        uploads: the root.
        demonstration: its id.
        stage: name of the stage, for the error.
        listed: listing fingerprint (storage/uploads/fingerprint.py); None: the upload cannot be
            opened.
        compared: whether `require` compares it with the current listing.
    """

    uploads: Uploads
    demonstration: str
    stage: str
    listed: str | None
    compared: bool

    @classmethod
    def of(
        cls, uploads: Uploads, demonstration: str, stage: str, listed: str | None, *, first: bool
    ) -> Self:
        """The upload `listed`; for the `first` stage and None, the current one.

        Raises:
            SupersededError: the first stage would read another upload than `listed`.
        """
        expected = cls(uploads, demonstration, stage, listed, listed is not None)
        if not first:
            return expected
        expected.require()
        current = upload_listing_fingerprint(uploads, demonstration) if listed is None else listed
        return replace(expected, listed=current, compared=True)

    def require(self) -> None:
        """Verify that it is the current upload.

        Raises:
            SupersededError: it is not.
        """
        if not self.compared:
            return
        if upload_listing_fingerprint(self.uploads, self.demonstration) != self.listed:
            raise SupersededError(self.demonstration, self.stage) from None


def is_upload_change(problems: Iterable[Problem]) -> bool:
    """Whether a reader found other bytes than the listing describes."""
    return any(problem.code == _CHANGED for problem in problems)


def unreadable_as_listed(problems: Iterable[Problem]) -> list[Problem]:
    """The problems of a second reading that failed although the listing did not change."""
    return [_unreadable(problem) if problem.code == _CHANGED else problem for problem in problems]


def _unreadable(problem: Problem) -> Problem:
    return replace(
        problem,
        code="unreadable_file",
        message="was read twice and differed from its listing, which did not change",
        remedy="upload it again; if that does not help, check the storage",
    )
