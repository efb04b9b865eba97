"""Whether the upload that lies there is still the one that a stage is run for.

Belongs here: asking the listing, and what is said when the answer and the bytes do not agree.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from demo_pipeline.problems import Problem
from demo_pipeline.storage.uploads import fingerprint
from demo_pipeline.storage.uploads.uploads import Uploads

_CHANGED = "upload_changed"


class SupersededError(Exception):
    """The upload changed while it was worked on: what was found speaks of no upload any more."""

    def __init__(self, demonstration: str, stage: str) -> None:
        self.demonstration, self.stage = demonstration, stage
        super().__init__(f"{demonstration}: the upload changed before {stage} was done with it")

    def __reduce__(self) -> tuple[type["SupersededError"], tuple[str, str]]:
        return (type(self), (self.demonstration, self.stage))


@dataclass(frozen=True, slots=True)
class ExpectedUpload:
    """The upload that a stage of a demonstration is run for.

    Attributes:
        listed: its listing fingerprint (storage/fingerprint.py); None: nothing that can be opened.
        asked: whether it matters that it still lies there.
    """

    uploads: Uploads
    demonstration: str
    stage: str
    listed: str | None
    asked: bool

    @classmethod
    def by(
        cls, uploads: Uploads, demonstration: str, stage: str, listed: str | None, *, first: bool
    ) -> Self:
        """The upload `listed`; for the `first` stage and None, the one that lies there now.

        Raises:
            SupersededError: the first stage would begin with another one than is meant.
        """
        meant = cls(uploads, demonstration, stage, listed, listed is not None)
        if not first:
            return meant
        meant.require()
        there = (
            fingerprint.upload_listing_fingerprint(uploads, demonstration)
            if listed is None
            else listed
        )
        return replace(meant, listed=there, asked=True)

    def require(self) -> None:
        """Make sure that it lies there.

        Raises:
            SupersededError: it does not.
        """
        now = (
            fingerprint.upload_listing_fingerprint(self.uploads, self.demonstration)
            if self.asked
            else self.listed
        )
        if now != self.listed:
            raise SupersededError(self.demonstration, self.stage) from None


def says_changed(problems: Iterable[Problem]) -> bool:
    """Whether a reader met other bytes than it had been told of."""
    return any(problem.code == _CHANGED for problem in problems)


def never_as_listed(problems: Iterable[Problem]) -> list[Problem]:
    """The same, where reading again helped nothing and the listing says that nothing changed."""
    return [_never_as_listed(one) if one.code == _CHANGED else one for one in problems]


def _never_as_listed(problem: Problem) -> Problem:
    return replace(
        problem,
        code="unreadable_file",
        message="could not be read as it is listed, twice, though its listing stayed the same",
        remedy="upload it again; when that does not help, the storage is at fault",
    )
