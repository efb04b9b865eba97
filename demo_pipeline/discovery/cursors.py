"""Where each listing that continues from tick to tick stopped.

Belongs here: the kinds of listings and the cursor that is saved for each.
"""

from dataclasses import dataclass
from enum import StrEnum


class ListingKind(StrEnum):
    """`folders` of the uploads, `sweep` over every object, `ends`: failed and cancelled runs."""

    FOLDERS = "folders"
    SWEEP = "sweep"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class ListingCursor:
    """Where a listing continues.

    Attributes:
        token: of the next page; None at the beginning.
        number: how many listings of this kind were completed before.
        failures: how often in a row storage refused the token.
    """

    token: str | None = None
    number: int = 0
    failures: int = 0
