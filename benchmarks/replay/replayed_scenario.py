"""A scenario whose end state can be read, so that a replay can be judged by what it did."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class ReplayedScenario(Scenario):
    """A scenario that is recorded, exported and replayed.

    Attributes:
        end_state: reads what the programs hold now (values of a form, contents of files) by name;
            gets the home folder of the desktop.
        wanted: the end state of a person who made no mistake.
    """

    end_state: Callable[[Path], dict[str, str]]
    wanted: dict[str, str]
