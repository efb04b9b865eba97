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

SECRET = "Tr0ub4dor&3"  # noqa: S105 - made up
MARKS: dict[str, dict[str, Any]] = {
    "AT-SPI": {"role": "password text"},
    "UIA": {"IsPassword": True},
    "UIA, snake case": {"is_password": True},
    "AX": {"subrole": "AXSecureTextField"},
    "HTML": {"input_type": "password"},
    "Chromium": {"states": {"enabled": True, "visible": True, "protected": True}},
}


def mark_fields(log: Path, mark: dict[str, Any]) -> None:
    """Let every scan of a log say that the field `Name` is one for passwords."""

    def marked(value: Any) -> Any:
        if isinstance(value, list):
            return [marked(one) for one in value]
        if not isinstance(value, dict):
            return value
        same = {key: marked(one) for key, one in value.items()}
        return {**same, **mark} if value.get("name") == "Name" and "bbox" in value else same

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(f"{json.dumps(marked(line))}\n" for line in lines))


def sign_in(root: Path, change: Callable[[Path], None], *, content: str) -> Path:
    """The store with one demonstration that types a secret into `Name`, and uses it again."""
    acts = (click("Name"), type_text(SECRET), think(2.5), click("Agree"), click("Rows/b"))
    demonstration = replace(script(*acts), title="Sign in", content=content)
    write_recording(root / "uploads" / "signin", demonstration, SMALL)
    change(root / "uploads" / "signin" / "input_log.jsonl")
    statuses = run_all_stages(open_workspace(root), "signin")
    assert set(map(str, statuses.values())) == {"made"}
    return root / "store"


def holding(store: Path, text: str) -> set[str]:
    """Folders of the store with a file that holds a text, outputs as readers see them."""
    found = set()
    for path in store.rglob("*"):
        if path.is_file() and text.encode() in path.read_bytes():
            found.add(path.relative_to(store).parts[1 if ".versions" in str(path) else 0])
    return found


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_what_is_typed_into_a_field_for_passwords_is_in_no_output(tmp_path, mark):
    content = f"Sign in with {SECRET} and agree."
    store = sign_in(tmp_path, lambda log: mark_fields(log, mark), content=content)
    assert holding(store, SECRET) <= {"events", "actions", "recordings"}
    trajectory = store / "trajectories" / "signin"
    actions = [json.loads(p.read_text()) for p in sorted(trajectory.glob("steps/*/action.json"))]
    typed = [one["parameters"]["text"] for one in actions if one["action_type"] == "type"]
    assert typed == [PASSWORD]
    task = json.loads((trajectory / "task.json").read_text())
    assert task["instruction"] == f"Sign in with {PASSWORD} and agree."


def test_other_fields_keep_what_is_typed(tmp_path):
    store = sign_in(tmp_path, lambda _: None, content="Fill in the form.")
    assert SECRET in (store / "trajectories/signin/steps/001/action.json").read_text()


@pytest.mark.parametrize(("shape", "dots"), [("dots", True), ("asterisks", True), ("text", False)])
def test_dots_in_the_picture_say_that_the_field_is_one_for_passwords(shape, dots):
    before = np.full((400, 700), 245, np.uint8)
    cv2.rectangle(before, (40, 100), (400, 140), 90, 1)
    after = before.copy()
    for number, letter in enumerate(SECRET):
        if shape == "dots":
            cv2.circle(after, (60 + 11 * number, 120), 3, 30, cv2.FILLED, cv2.LINE_AA)
        else:
            shown = letter if shape == "text" else "*"
            at = (55 + 16 * number, 127)
            cv2.putText(after, shown, at, cv2.FONT_HERSHEY_PLAIN, 1.2, 20, 1, cv2.LINE_AA)
    assert dots_for(SECRET, before, after) is dots


def test_three_equal_letters_of_a_word_are_no_dots():
    """As the last letters of a short word are in some fonts."""
    before = np.full((400, 700), 245, np.uint8)
    after = before.copy()
    cv2.rectangle(after, (48, 112), (62, 127), 20, 2)
    for number in range(1, 4):
        cv2.circle(after, (62 + 16 * number, 122), 5, 20, 2)
    assert not dots_for("moon", before, after)
