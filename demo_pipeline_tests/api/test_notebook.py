"""The example notebook runs on any store, and shows neither typed text nor names of elements."""

import json
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import pytest

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.files.json_files import load_json
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.recording.events import build_events
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.api.test_notebook_store import build_datasets
from demo_pipeline_tests.notebook import NOTEBOOK, executed, outputs, texts
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages
from demo_pipeline_tests.uploads import KEY, NODE, TYPED, add_canaries, upload

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "samples"
_SHORT = 3  # words of up to this many characters are ignored: they may occur by chance


@pytest.fixture(scope="module")
def fresh(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yields the notebook after a run on a store with a demonstration that contains canaries.

    Canaries are unique texts that must not appear in any output.
    """
    root = tmp_path_factory.mktemp("notebook")
    add_canaries(upload(recording, root / "uploads", "one"))
    pipeline = open_workspace(root)
    run_all_stages(pipeline, "one")
    build_datasets(pipeline)
    tree = next((root / "store").glob("trajectories/one/steps/*/ui_tree.json"))
    assert NODE in tree.read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEMO_PIPELINE_STORE", str(root / "store"))
        patch.setenv("DEMO_PIPELINE_UPLOADS", str(root / "uploads"))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        yield executed()


def typed_in(recording: Path, out: Path) -> set[str]:
    """Returns the texts that were typed in a recording."""
    platform = load_json(recording / "meta.json").get("platform", "")
    events = out / "events"
    actions = out / "actions"
    for folder in (events, actions):
        folder.mkdir(parents=True)
    build_events(recording / LOG_FILE, events)
    build_actions(events, actions, str(platform).lower(), ActionSettings())
    return {action.text for action in read_actions(actions) if action.text}


def names_in(value: Any) -> Iterator[str]:
    """Yields the names of all elements in an accessibility scan."""
    if isinstance(value, dict):
        yield str(value.get("name", ""))
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        for part in parts:
            yield from names_in(part)


def names_and_keys(recording: Path) -> set[str]:
    """Returns the names of elements and keys that are too long to occur in an output by chance.

    Names of elements must contain a space. Names of keys must have more than one character.
    """
    names = set()
    for line in (recording / LOG_FILE).read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        names |= {name for name in names_in(event["data"]) if " " in name.strip()}
        key = event["data"].get("key", "")
        if len(key) > 1:
            names.add(key)
    return names


def words_of(texts_typed: set[str]) -> set[str]:
    """Returns the words of typed texts, because an output could show only a part of a text."""
    words = {word.strip(".,:;!?") for word in " ".join(texts_typed).split()}
    return {word for word in words if len(word) > _SHORT}


def test_it_runs_and_shows_pictures_and_tables(fresh):
    kinds = Counter[str]()
    for output in outputs(fresh):
        kinds.update(output.get("data", {}).keys())
    assert (kinds["image/png"], kinds["image/jpeg"]) == (2, 3)
    assert kinds["text/html"]
    pages = [output["data"].get("text/html", "") for output in outputs(fresh) if "data" in output]
    assert sum("<video" in html for html in pages) == 1
    assert sum("<img" in html for html in pages) == 2


@pytest.mark.parametrize("canary", [TYPED, KEY, NODE])
def test_no_canary_is_in_any_fresh_output(fresh, canary):
    assert "type" in texts(fresh)
    assert canary not in texts(fresh)


def test_the_committed_outputs_are_those_of_the_committed_cells(fresh):
    """If this test fails after a cell was changed, run `make notebook`."""
    committed = nbformat.read(NOTEBOOK, as_version=4)
    for cell, run in zip(committed.cells, fresh.cells, strict=True):
        old_types, new = ([out.output_type for out in c.get("outputs", [])] for c in (cell, run))
        assert old_types == new, cell.source
        assert cell.get("execution_count") == run.get("execution_count")
        assert "error" not in old_types


def test_nothing_typed_or_named_in_the_samples_is_in_no_committed_output(tmp_path):
    recordings = sorted(SAMPLES.iterdir())
    typed: set[str] = set()
    names: set[str] = set()
    for recording in recordings:
        typed |= typed_in(recording, tmp_path / recording.name)
        names |= names_and_keys(recording)
    assert len(typed) > 5
    page = texts(nbformat.read(NOTEBOOK, as_version=4)).replace("white-space:pre-wrap", "")
    assert len(page) > 1000
    for recording in recordings:
        task = load_json(recording / "meta.json")["quest"]["content"]
        page = page.replace(escape(task), "")  # the text of the task may be shown
    assert {word for word in words_of(typed) if word in page} == set()
    assert len(names) > 20
    assert {name for name in names if name in page} == set()
