"""The results of a run from the command line, per demonstration and per dataset.

Belongs here: the types that the runs return and the console shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DemonstrationStatus = Literal["done", "quarantined", "superseded", "waiting", "crashed"]


@dataclass(frozen=True)
class DemonstrationOutcome:
    """The result of processing one demonstration.

    Attributes:
        demonstration: its id.
        status: `done`, `quarantined` (its input is at fault), `superseded` (the upload changed
            during the run), `waiting` (something passing stopped it, such as a full disk; it is
            tried again) or `crashed` (the run itself failed).
        summary: of its trajectory; empty unless `done`.
        reasons: why it is not done, one line each.
        again_alone: it waits because a stage exceeded its limits, and is tried again alone.
    """

    demonstration: str
    status: DemonstrationStatus
    summary: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    again_alone: bool = False


@dataclass(frozen=True)
class DatasetOutcome:
    """One built dataset.

    Attributes:
        name: of the asset.
        path: of the output, or its URL.
        counts: what its stage counts: a number, or numbers by split.
        bytes_written: to the store; hard links in a folder count nothing.
    """

    name: str
    path: str
    counts: Mapping[str, Any]
    bytes_written: int = 0
