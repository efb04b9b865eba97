"""Tests that no UI or terminal interprets markup and control sequences in a recording's text."""

import json
import logging
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from demo_pipeline.cli.app import main
from demo_pipeline.files.logs import LOG_ROOT
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA
from demo_pipeline.trajectories.trajectories import PROVENANCE_FILE
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE
from demo_pipeline_tests.defs.bench import Bench, Result, open_bench
from demo_pipeline_tests.files.test_shown_text import tokens
from demo_pipeline_tests.sample_workspace import live_in
from demo_pipeline_tests.uploads import upload

HOSTILE = (
    "<script>alert(1)</script>![i](http://evil.example/x.png)\x1b[31mred\u202egnp|[red]x[/red]\nx"
)
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MARKUP = {"image", "link_open", "html_inline", "html_block"}
FOLDER = "<img src=x>![i](e)\x1b[32m"


def hostile(recording: Path, uploads: Path) -> None:
    """Uploads a demonstration with hostile texts, and two broken copies of it.

    One of the copies has a hostile name.
    """
    folder = upload(recording, uploads, "odd")
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    meta |= dict.fromkeys(("id", "platform", "status", "reason", "title", "arch"), HOSTILE)
    meta["quest"] |= {"app": HOSTILE, "title": HOSTILE, "content": HOSTILE}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    log = folder / "input_log.jsonl"
    text = log.read_text(encoding="utf-8")
    log.write_text(text.replace('"Name"', json.dumps(HOSTILE)) + "{\n", encoding="utf-8")
    for name in ("bad", FOLDER):  # FOLDER is not a valid id, so the folder is rejected
        shutil.copytree(folder, uploads / name)
        (uploads / name / "meta.json").write_text("{", encoding="utf-8")


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory, recording: Path
) -> Iterator[tuple[Bench, list[Result]]]:
    with open_bench(tmp_path_factory.mktemp("hostile")) as bench:
        hostile(recording, bench.uploads)
        results = [bench.process("odd"), bench.process("bad")]
        yield bench, [*results, bench.run("build_datasets")]


def markdown_of(metadata: Mapping[str, dg.MetadataValue]) -> Iterator[str]:
    for name, value in metadata.items():
        if isinstance(value, dg.MarkdownMetadataValue):
            assert value.value, name
            yield value.value


def cells_of(metadata: Mapping[str, dg.MetadataValue]) -> Iterator[str]:
    """Yields the cells of tables, which the UI shows as plain text."""
    for value in metadata.values():
        if isinstance(value, dg.TableMetadataValue):
            for record in value.records:
                yield from (str(cell) for cell in record.data.values())


def shown_in(result: Result) -> tuple[list[str], list[str]]:
    """Returns the texts that the UI renders as Markdown, and all other texts."""
    rendered = []
    texts = []
    for event in result.all_events:
        texts.append(event.message or "")
        data: Any = event.event_specific_data
        if event.event_type_value == "ASSET_MATERIALIZATION":
            metadata = data.materialization.metadata
        elif event.event_type_value == "ASSET_CHECK_EVALUATION":
            metadata = data.metadata
            rendered.append(data.description or "")
        elif event.event_type_value == "STEP_FAILURE":
            metadata = data.user_failure_data.metadata
            texts.append(data.user_failure_data.description)
        else:
            continue
        rendered += markdown_of(metadata)
        texts += cells_of(metadata)
        texts += [str(value.value) for value in metadata.values()]
    return rendered, texts


def test_dagster_shows_no_markup_or_control_sequence_of_a_recording(ran):
    rendered: list[str] = []
    plain: list[str] = []
    for result in ran[1]:
        markdown, others = shown_in(result)
        rendered += markdown
        plain += others
    assert rendered
    assert any("meta.json" in text for text in plain)
    for text in rendered:
        assert not {token.type for token in tokens(text)} & MARKUP, text[:500]
        assert "evil" not in text
    for text in (*rendered, *plain):
        assert not UNSEEN.search(text), text[:500]


def test_dataset_cards_contain_no_markup_of_a_recording(ran):
    cards = list((ran[0].uploads.parent / "store").rglob("README.md"))
    assert len(cards) > 3
    for card in cards:
        text = card.read_text(encoding="utf-8")
        assert not UNSEEN.search(text)
        for token in tokens(text.partition("\n---\n")[2]):
            assert token.type not in {"html_inline", "html_block", "link_open"}
            assert token.type != "image" or str(token.attrGet("src")).startswith("plots/")


def test_the_data_contain_only_known_platforms(ran):
    folder = ran[0].workspace.store.open(TRAJECTORIES_STAGE.output("odd"))[0]
    rows = read_rows(folder / PROVENANCE_FILE, PROVENANCE_SCHEMA, ("platform",))
    assert {row["platform"] for row in rows} == {""}
    folder = ran[0].workspace.store.open(RAW_RECORDINGS_STAGE.output("odd"))[0]
    assert json.loads((folder / "manifest.json").read_bytes())["meta"]["platform"] == HOSTILE


@pytest.fixture
def own_log() -> Iterator[None]:
    """Undoes the changes that the option `-v` makes to the package's logger."""
    logger = logging.getLogger(LOG_ROOT)
    before = logger.level, logger.handlers[:], logger.propagate
    yield
    logger.setLevel(before[0])
    logger.handlers[:], logger.propagate = before[1:]


@pytest.mark.usefixtures("own_log")
@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "odd"),
        ("stats",),
        ("stats", "--json"),
        ("stats", f"SELECT '{HOSTILE}' AS x, * FROM trajectories"),  # noqa: S608 - an injection harms nobody
        ("quarantine",),
        ("validate", "-v", "odd"),
        ("validate", "--json", FOLDER),
        ("validate", FOLDER + "/none"),
        ("run", "--strict"),
        ("-v", "run", "odd", "--force"),
    ],
    ids=lambda words: " ".join(words)[:20].strip("'\x1b"),
)
def test_no_command_prints_a_control_sequence(ran, words, monkeypatch, capfd):
    bench = ran[0]
    live_in(bench.uploads.parent, monkeypatch)
    (bench.uploads.parent / "home/dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.chdir(bench.uploads)
    monkeypatch.setattr(sys, "argv", ["demo-pipeline", *words])
    with pytest.raises(SystemExit):
        main()
    captured = capfd.readouterr()
    lines = f"{captured.out}{captured.err}"
    assert len(lines) > 20
    assert not UNSEEN.search(lines)
