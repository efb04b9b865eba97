"""The one split plan that every training export follows.

Belongs here: from a selection to its splits, and keeping the same question out of two of them, so
that no task and no picture with its prompt leaks between the exports.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo_pipeline.datasets.selection import Selection
from demo_pipeline.datasets.splits import Split, SplitPlan, assign_splits, connected_groups
from demo_pipeline.formats.cudag.tool_calls import escape_markers
from demo_pipeline.settings import DatasetSettings


def plan_splits(selection: Selection, settings: DatasetSettings) -> SplitPlan:
    """Where every chosen trajectory goes; see `assign_splits`."""
    chosen = {candidate.source.id: candidate for candidate in selection.chosen}
    groups = connected_groups({key: one.split_groups for key, one in chosen.items()})
    return assign_splits(groups, settings, {key: one.application for key, one in chosen.items()})


@dataclass(slots=True)
class CrossSplitGuard:
    """Pictures with their prompts that were written, and in which split.

    Attributes:
        watched: instructions whose prompts may stand in two splits; elsewhere the question differs.
        seen: digest of prompt and picture → split.
    """

    watched: frozenset[str]
    seen: dict[bytes, Split] = field(default_factory=dict)

    @classmethod
    def of(
        cls, selection: Selection, splits: Mapping[str, Split], *, told: bool = True
    ) -> "CrossSplitGuard":
        """What has to be watched in a selection.

        Args:
            selection: what is written.
            splits: split of every trajectory.
            told: whether prompts hold the instruction; when not, every picture is watched.
        """
        asked = {
            one.instruction: escape_markers(one.instruction)[0] if told else ""
            for one in selection.chosen
        }
        found: dict[str, set[Split]] = {}
        for one in selection.chosen:
            found.setdefault(asked[one.instruction], set()).add(splits[one.source.id])
        return cls(frozenset(text for text, prompt in asked.items() if len(found[prompt]) > 1))

    def leaks(self, instruction: str, prompt: str, screenshot: Path, split: Split) -> bool:
        """Whether another split already shows the same picture with the same prompt."""
        if instruction not in self.watched:
            return False
        sight = hashlib.sha256(prompt.encode(errors="replace"))
        sight.update(hashlib.sha256(screenshot.read_bytes()).digest())
        return self.seen.setdefault(sight.digest(), split) is not split
