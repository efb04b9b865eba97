"""How far each listing has come that goes on from look to look.

Belongs here: their names, and the one value that is kept of each.
"""

from dataclasses import dataclass
from enum import StrEnum


class ListingKind(StrEnum):
    """Of folders, of every object, and of runs that were cancelled or failed."""

    FOLDERS = "folders"
    SWEEP = "sweep"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class Listing:
    """How far a listing has come.

    Attributes:
        token: of the next page; None at the beginning.
        number: how many of its kind were ended before.
        failures: how often in a row the token was refused.
    """

    token: str | None = None
    number: int = 0
    failures: int = 0
