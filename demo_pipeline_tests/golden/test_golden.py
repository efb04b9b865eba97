"""Tests that every stage writes the committed outputs for the two recordings of a real desktop."""

import difflib
import shutil
from pathlib import Path

import pytest

from demo_pipeline_tests.golden.outputs import GOLDEN, committed_texts, golden_texts

LONGEST_DIFF = 60  # lines
REMEDY = (
    "If this change is meant, run `make golden` and look at `git diff`. The pixel hashes hold for "
    "the versions of av and opencv in constraints.txt."
)


@pytest.fixture(scope="module")
def current_texts(real_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the golden texts of the current code.

    The stages up to `trajectories` have already run in `real_root`.
    """
    root = tmp_path_factory.mktemp("golden") / "root"
    shutil.copytree(real_root, root, symlinks=True)
    return golden_texts(root)


def difference(name: str, before: str, now: str) -> str:
    """Returns a unified diff of a golden file, of at most `LONGEST_DIFF` lines."""
    lines = list(
        difflib.unified_diff(
            before.splitlines(), now.splitlines(), f"committed {name}", f"made {name}", "", "", 1
        )
    )
    rest = len(lines) - LONGEST_DIFF
    if rest > 0:
        lines[LONGEST_DIFF:] = [f"… {rest} more lines"]
    return "\n".join(lines)


def test_every_stage_has_its_golden_outputs_and_none_is_left_over(current_texts):
    assert set(committed_texts()) == set(current_texts), REMEDY


@pytest.mark.parametrize("name", sorted(committed_texts()))
def test_the_output_is_as_committed(name, current_texts):
    before = committed_texts()[name]
    now = current_texts.get(name, "")
    if now != before:
        pytest.fail(f"{difference(name, before, now)}\n\n{REMEDY}", pytrace=False)


def test_the_golden_outputs_are_compact():
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*.txt")) < 900_000
