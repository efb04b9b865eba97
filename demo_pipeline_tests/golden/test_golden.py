"""The two recordings of a real desktop come out as committed, in every stage."""

import difflib
import shutil
from pathlib import Path

import pytest

from demo_pipeline_tests.golden.outputs import GOLDEN, committed_texts, golden_texts
from demo_pipeline_tests.golden.rendering import render_folder

LONGEST_DIFF = 60  # lines
REMEDY = (
    "If this change is meant, run `make golden` and look at `git diff`. The pixel hashes hold for "
    "the versions of av and opencv in constraints.txt."
)


@pytest.fixture(scope="module")
def made(real_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the code makes now; the stages up to the trajectories have run already."""
    root = tmp_path_factory.mktemp("golden") / "root"
    shutil.copytree(real_root, root, symlinks=True)
    return golden_texts(root)


def difference(name: str, before: str, now: str) -> str:
    """A unified diff of a golden file, cut to what fits on two screens."""
    lines = list(
        difflib.unified_diff(
            before.splitlines(), now.splitlines(), f"committed {name}", f"made {name}", "", "", 1
        )
    )
    rest = len(lines) - LONGEST_DIFF
    return "\n".join([*lines[:LONGEST_DIFF], *([f"… {rest} more lines"] if rest > 0 else [])])


def test_every_stage_has_its_golden_outputs_and_none_is_left_over(made: dict[str, str]) -> None:
    assert set(committed_texts()) == set(made), REMEDY


@pytest.mark.parametrize("name", sorted(committed_texts()))
def test_the_output_is_as_committed(name: str, made: dict[str, str]) -> None:
    before, now = committed_texts()[name], made.get(name, "")
    if now != before:
        pytest.fail(f"{difference(name, before, now)}\n\n{REMEDY}", pytrace=False)


def test_the_golden_outputs_are_compact() -> None:
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*.txt")) < 820_000


class TestRendering:
    """What the comparison sees and what it rounds away."""

    def test_a_picture_is_known_by_its_pixels_and_not_by_its_compression(
        self, real_root: Path, tmp_path: Path
    ) -> None:
        import cv2

        source = real_root / "store" / "screenshots" / "20261121_212801" / "000.png"
        picture = cv2.imread(str(source))
        assert picture is not None
        cv2.imwrite(str(tmp_path / "000.png"), picture, [cv2.IMWRITE_PNG_COMPRESSION, 0])
        same = render_folder(tmp_path)
        assert same.strip() in (GOLDEN / "20261121_212801" / "screenshots.txt").read_text("utf-8")
        picture[0, 0, 0] ^= 1
        cv2.imwrite(str(tmp_path / "000.png"), picture)
        assert render_folder(tmp_path) != same

    def test_the_last_bits_of_a_float_do_not_show(self, tmp_path: Path) -> None:
        file = tmp_path / "numbers.json"
        file.write_text('{"offset_ms": 0.30000000000000004, "zero": -0.0}')
        first = render_folder(tmp_path)
        file.write_text('{"offset_ms": 0.3, "zero": 0.0}')
        assert render_folder(tmp_path) == first
        file.write_text('{"offset_ms": 0.301, "zero": 0.0}')
        assert render_folder(tmp_path) != first

    def test_what_is_cut_short_still_shows_a_change(self, tmp_path: Path) -> None:
        file = tmp_path / "rows.jsonl"
        file.write_text(f'{{"text": "{"a" * 500}", "list": [{", ".join(["1"] * 500)}]}}\n')
        first = render_folder(tmp_path)
        assert len(first) < 250
        file.write_text(f'{{"text": "{"a" * 499}b", "list": [{", ".join(["1"] * 500)}]}}\n')
        second = render_folder(tmp_path)
        file.write_text(f'{{"text": "{"a" * 500}", "list": [{", ".join(["1"] * 499)}, 2]}}\n')
        assert len({first, second, render_folder(tmp_path)}) == 3
