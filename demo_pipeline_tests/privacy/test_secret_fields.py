import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from demo_pipeline.observation.trees.secret_fields import PASSWORD, dots_for
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, think, type_text

SECRET = "Tr0ub4dor&3"  # noqa: S105 - an invented password
MARKS: dict[str, dict[str, Any]] = {
    "AT-SPI": {"role": "password text"},
    "UIA": {"IsPassword": True},
    "UIA, snake case": {"is_password": True},
    "AX": {"subrole": "AXSecureTextField"},
    "HTML": {"input_type": "password"},
    "Chromium": {"states": {"enabled": True, "visible": True, "protected": True}},
}


def mark_fields(log: Path, mark: dict[str, Any]) -> None:
    """Marks the field `Name` as a password field in every scan of a log."""

    def marked(value: Any) -> Any:
        if isinstance(value, list):
            return [marked(item) for item in value]
        if not isinstance(value, dict):
            return value
        copied = {key: marked(item) for key, item in value.items()}
        if value.get("name") == "Name" and "bbox" in value:
            copied |= mark
        return copied

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(f"{json.dumps(marked(line))}\n" for line in lines))


def sign_in(root: Path, change: Callable[[Path], None], *, content: str) -> Path:
    """Records and processes a demonstration that types a secret into the field `Name`.

    Args:
        root: folder for the uploads and the store.
        change: a function that changes the recorded input log.
        content: the request of the task.

    Returns:
        The folder of the store.
    """
    acts = (click("Name"), type_text(SECRET), think(2.5), click("Agree"), click("Rows/b"))
    demonstration = replace(script(*acts), title="Sign in", content=content)
    write_recording(root / "uploads" / "signin", demonstration, SMALL)
    change(root / "uploads" / "signin" / "input_log.jsonl")
    statuses = run_all_stages(open_workspace(root), "signin")
    assert set(map(str, statuses.values())) == {"made"}
    return root / "store"


def holding(store: Path, text: str) -> set[str]:
    """Returns the top folders of the store that have a file with the given text."""
    folders = set()
    for path in store.rglob("*"):
        if path.is_file() and text.encode() in path.read_bytes():
            parts = path.relative_to(store).parts
            folders.add(parts[1] if ".versions" in parts else parts[0])
    return folders


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_text_typed_into_a_password_field_is_in_no_output(tmp_path, mark):
    content = f"Sign in with {SECRET} and agree."
    store = sign_in(tmp_path, lambda log: mark_fields(log, mark), content=content)
    assert holding(store, SECRET) <= {"events", "actions", "recordings"}
    trajectory = store / "trajectories" / "signin"
    actions = [json.loads(p.read_text()) for p in sorted(trajectory.glob("steps/*/action.json"))]
    typed = [action["parameters"]["text"] for action in actions if action["action_type"] == "type"]
    assert typed == [PASSWORD]
    task = json.loads((trajectory / "task.json").read_text())
    assert task["instruction"] == f"Sign in with {PASSWORD} and agree."


def test_text_typed_into_other_fields_is_kept(tmp_path):
    store = sign_in(tmp_path, lambda _: None, content="Fill in the form.")
    assert SECRET in (store / "trajectories/signin/steps/001/action.json").read_text()


PAPER = 245
INK = 20


def empty_screen() -> Any:
    screen = np.full((400, 700), PAPER, np.uint8)
    cv2.rectangle(screen, (40, 100), (400, 140), 90, 1)
    return screen


def write(screen: Any, text: str, place: tuple[int, int], size: float = 1.2) -> None:
    cv2.putText(screen, text, place, cv2.FONT_HERSHEY_PLAIN, size, INK, 1, cv2.LINE_AA)


def write_dots(screen: Any, count: int, left: int = 60) -> None:
    for number in range(count):
        place = (left + 11 * number, 120)
        cv2.circle(screen, place, 3, INK, cv2.FILLED, cv2.LINE_AA)


def draw_text_cursor(screen: Any, left: int) -> None:
    cv2.rectangle(screen, (left, 110), (left + 1, 130), INK, cv2.FILLED)


def test_dots_on_the_screen_show_a_password_field():
    before = empty_screen()
    after = before.copy()
    write_dots(after, len(SECRET))
    assert dots_for(SECRET, before, after)


def test_asterisks_on_the_screen_show_a_password_field():
    before = empty_screen()
    after = before.copy()
    for number in range(len(SECRET)):
        write(after, "*", (55 + 16 * number, 127))
    assert dots_for(SECRET, before, after)


def test_letters_on_the_screen_show_no_password_field():
    before = empty_screen()
    after = before.copy()
    for number, letter in enumerate(SECRET):
        write(after, letter, (55 + 16 * number, 127))
    assert not dots_for(SECRET, before, after)


@pytest.mark.parametrize("gap", [-1, 0, 1, 2, 5])
def test_a_text_cursor_beside_or_at_the_last_dot_changes_nothing(gap):
    before = empty_screen()
    draw_text_cursor(before, 50)
    after = empty_screen()
    write_dots(after, len(SECRET))
    draw_text_cursor(after, 60 + 11 * (len(SECRET) - 1) + 4 + gap)
    assert dots_for(SECRET, before, after)


def test_a_first_dot_that_replaced_the_text_cursor_is_a_dot():
    before = empty_screen()
    draw_text_cursor(before, 56)
    after = empty_screen()
    write_dots(after, len(SECRET))
    assert dots_for(SECRET, before, after)


def test_a_last_character_that_is_shown_for_a_moment_hides_nothing():
    before = empty_screen()
    after = before.copy()
    write_dots(after, len(SECRET) - 1)
    write(after, SECRET[-1], (58 + 11 * (len(SECRET) - 1), 126))
    assert dots_for(SECRET, before, after)


def test_an_icon_behind_the_last_dot_changes_nothing():
    before = empty_screen()
    after = before.copy()
    write_dots(after, len(SECRET))
    cv2.circle(after, (60 + 11 * len(SECRET) + 8, 120), 7, INK, 2)
    assert dots_for(SECRET, before, after)


def test_text_far_from_the_dots_in_the_same_line_changes_nothing():
    before = empty_screen()
    after = before.copy()
    write_dots(after, len(SECRET))
    write(after, "Caps lock is on", (420, 126))
    assert dots_for(SECRET, before, after)


@pytest.mark.parametrize("size", [1.1, 1.2, 1.3, 1.4, 1.5, 1.6])
@pytest.mark.parametrize("status", ["1 occurrence", "no occurrence", "1 of 1 occurrences"])
def test_letters_that_look_alike_within_a_word_are_no_dots(size, status):
    """The letters "occu" in the status of a find bar were once taken for dots of a password."""
    before = empty_screen()
    after = before.copy()
    write(after, "yacht", (55, 127), size)
    write(after, status, (420, 127), size)
    assert not dots_for("yacht", before, after)


def test_three_equal_letters_of_a_word_are_no_dots():
    """The last letters of a short word, such as "moon", may look alike in some fonts."""
    before = np.full((400, 700), PAPER, np.uint8)
    after = before.copy()
    cv2.rectangle(after, (48, 112), (62, 127), INK, 2)
    for number in range(1, 4):
        cv2.circle(after, (62 + 16 * number, 122), 5, INK, 2)
    assert not dots_for("moon", before, after)
