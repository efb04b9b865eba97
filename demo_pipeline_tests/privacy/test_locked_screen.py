"""Tests that a password typed while the screen is black or locked is in no output."""

from collections.abc import Callable
from pathlib import Path

import pytest

from demo_pipeline.files.parquet import read_rows
from demo_pipeline.trajectories.provenance import HIDDEN_ACTIONS_SCHEMA
from demo_pipeline_tests.api.test_notebook_store import build_datasets
from demo_pipeline_tests.observation.frames.test_private_screen import (
    SECRET,
    Draw,
    black,
    lock_screen,
    options_for,
    press_of,
    story_of,
    write_video,
)
from demo_pipeline_tests.privacy.test_secret_fields import holding
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import write_documents
from demo_pipeline_tests.simulator.script import Act, click, hotkey, think, type_text

LOCKED = [hotkey("ctrl", "alt", "l"), think(2.0)]
PICTURES: dict[str, tuple[list[Act], Callable[[], Draw]]] = {
    "black": (
        [think(2.5)],
        lambda: black(lambda actions: press_of(actions, SECRET) - 1800, 3.4),
    ),
    "locked": (
        LOCKED,
        lambda: lock_screen("ctrl+alt+l", lambda actions: press_of(actions, "enter") + 400),
    ),
}


@pytest.mark.parametrize("screen", PICTURES)
def test_a_password_typed_on_a_black_or_locked_screen_is_in_no_output(
    tmp_path: Path, screen: str
) -> None:
    before, draw = PICTURES[screen]
    unlocking = [*before, type_text(SECRET), hotkey("enter"), think(2.0)]
    acts = [type_text("anna maria"), *unlocking, click("Agree"), click("Rows/b"), click("Rows/c")]
    folder = tmp_path / "uploads" / "lock"
    options = options_for("linux")
    story = story_of(*acts)
    truth = write_documents(folder, story, options)
    painter = Painter(story.desktop.at(options.width, options.height))
    write_video(folder / "recording.mp4", painter, truth, draw())
    workspace = open_workspace(tmp_path)
    statuses = run_all_stages(workspace, "lock")
    assert set(map(str, statuses.values())) == {"made"}
    build_datasets(workspace)
    store = tmp_path / "store"
    assert holding(store, SECRET) <= {"events", "actions", "recordings"}
    [hidden] = read_rows(store / "trajectories/lock/hidden_actions.parquet", HIDDEN_ACTIONS_SCHEMA)
    assert (hidden["reason"], hidden["action_type"]) == ("private", "hotkey")
    samples = "".join(path.read_text() for path in store.glob("sft/*.jsonl"))
    assert "anna maria" in samples
    assert "while the screen was dark or locked" in samples
