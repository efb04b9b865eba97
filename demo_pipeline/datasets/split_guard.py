"""Keeps the same screenshot with the same prompt out of two splits.

Belongs here: comparing what is about to be written with what was written. Which trajectory belongs
to which split is decided in `splits`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.cudag.tool_calls import escape_markers


@dataclass(slots=True)
class CrossSplitGuard:
    """The prompts and screenshots that were written, and in which split.

    Attributes:
        shared_instructions: instructions that could give the same prompt in two splits. Records of
            other instructions differ by their prompt and are not compared.
        split_of: SHA-256 of prompt and screenshot → split.
    """

    shared_instructions: frozenset[str]
    split_of: dict[bytes, Split] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        candidates: Sequence[Candidate],
        splits: Mapping[str, Split],
        *,
        instruction_in_prompt: bool = True,
    ) -> "CrossSplitGuard":
        """A guard for an export of `candidates`.

        Args:
            candidates: the trajectories that take part.
            splits: split of every trajectory, by id.
            instruction_in_prompt: whether every prompt holds the instruction; when not, every
                screenshot is compared.
        """
        prompts = {
            candidate.instruction: (
                escape_markers(candidate.instruction)[0] if instruction_in_prompt else ""
            )
            for candidate in candidates
        }
        used: dict[str, set[Split]] = {}
        for candidate in candidates:
            prompt = prompts[candidate.instruction]
            used.setdefault(prompt, set()).add(splits[candidate.source.id])
        return cls(
            frozenset(
                instruction for instruction, prompt in prompts.items() if len(used[prompt]) > 1
            )
        )

    def leaks(self, instruction: str, prompt: str, screenshot: Path, split: Split) -> bool:
        """Whether another split already has the same screenshot with the same prompt."""
        if instruction not in self.shared_instructions:
            return False
        question = hashlib.sha256(prompt.encode(errors="replace"))
        question.update(hashlib.sha256(screenshot.read_bytes()).digest())
        return self.split_of.setdefault(question.digest(), split) is not split
