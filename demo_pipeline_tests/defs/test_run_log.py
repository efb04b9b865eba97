"""The log: what it says, where it is shown, and what is never in it."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from demo_pipeline.cli.app import app
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE
from demo_pipeline.files.logs import LOG_ROOT
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES
from demo_pipeline_tests.defs.bench import Bench, bench, in_this_process, launched, ticked
from demo_pipeline_tests.defs.test_canaries import holding
from demo_pipeline_tests.uploads import BREAKING, KEY, NODE, TYPED, add_canaries, upload

pytestmark = pytest.mark.no_cover  # other tests run the same lines

CANARIES = (TYPED, KEY, NODE)


@pytest.fixture
def made(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    with bench(tmp_path, kept=True) as opened:
        upload(recording, opened.uploads, "good")
        yield opened


def run_log(made: Bench, result: dg.ExecuteInProcessResult) -> list[str]:
    """What people read in the log of a run."""
    entries = made.instance.all_logs(result.run_id)
    return [entry.user_message for entry in entries if not entry.is_dagster_event]


def test_the_log_of_a_run_has_the_lines_of_the_package(
    made: Bench,
) -> None:
    said = run_log(made, made.process("good"))
    for stage in STAGES:
        assert f"{stage.name}: building {stage.output('good')}, because there is no version" in said
        [ended] = [
            line for line in said if line.startswith(f"{stage.name}: {stage.output('good')}")
        ]
        assert re.search(r"made in \d+\.\d s: \d+ \w+", ended)


def test_without_any_configuration_the_run_log_has_them_too(made: Bench) -> None:
    """And the level is what it was before."""
    assert logging.getLogger(LOG_ROOT).level == logging.NOTSET
    said = run_log(made, made.process("good"))
    assert len(said) == 2 * len(STAGES)
    assert logging.getLogger(LOG_ROOT).level == logging.NOTSET
    assert logging.getLogger(LOG_ROOT).handlers == []
    again = run_log(made, made.process("good"))
    assert again == [f"{stage.name}: {stage.output('good')} is unchanged" for stage in STAGES]
    datasets = run_log(made, made.run("build_datasets"))
    assert any(line.startswith(f"{STATISTICS_STAGE.name}: statistics made in") for line in datasets)


def test_it_says_why_a_stage_is_built_again(made: Bench) -> None:
    made.process("good")
    reasons = run_log(made, made.process("good", **{"demo_pipeline/force": "true"}))
    assert any("because it was forced" in line for line in reasons)


def test_every_package_that_decides_has_a_logger(
    made: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    caplog.set_level(logging.DEBUG, logger=LOG_ROOT)
    for _ in range(3):
        for request in ticked(made, "new_uploads").requests:
            launched(made, request)
        made.catalogue()
    made.run("build_datasets")
    names = {record.name for record in caplog.records if record.name.startswith(LOG_ROOT)}
    assert names >= {
        f"{LOG_ROOT}.{package}"
        for package in (
            "actions",
            "datasets",
            "observation.clock",
            "observation.frames",
            "observation.trees",
            "runs",
            "store",
        )
    }


def tear_trees(folder: Path) -> None:
    """Trees in which `NODE` stands where a form, a list, a number or a name is expected."""
    log = folder / "input_log.jsonl"
    torn = {"children": NODE, "bbox": NODE, "states": [NODE], "role": 7, NODE: NODE}
    torn |= {"name": {NODE: NODE}}
    lines, scans = log.read_text(encoding="utf-8").splitlines(), 0
    for number, line in enumerate(lines):
        event = json.loads(line)
        if event["event"] == "axtree" and event["data"].get("tree"):
            [element, *_] = event["data"]["tree"]
            event["data"]["tree"] += [element | {field: value} for field, value in torn.items()]
            lines[number] = json.dumps(event)
            scans += 1
    lines += [json.dumps({"event": NODE, "time": 1, "data": {}}), f'{{"event": "{NODE}", "time"']
    assert scans
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")


def spoil_trajectory(folder: Path) -> None:
    """No action fits its step's tree, and the first tree does not fit the format."""
    for path in folder.rglob("action.json"):
        action = json.loads(path.read_text(encoding="utf-8"))
        action |= {"target_element": {"id": "node_1", "role": "button", "name": NODE}}
        path.unlink()
        path.write_text(json.dumps(action), encoding="utf-8")
    for path in folder.rglob("000/ui_tree.json"):
        tree = json.loads(path.read_text(encoding="utf-8"))
        tree["root"] |= {"name": [NODE], "role": NODE}
        path.unlink()
        path.write_text(json.dumps(tree), encoding="utf-8")


def answers_of_the_command_line(made: Bench, exported: Path, patch: pytest.MonkeyPatch) -> str:
    """What commands say about the uploads, the quarantine and a spoilt export."""
    for name in ("uploads", "store", "osworld_tasks"):
        patch.setenv(f"DEMO_PIPELINE_{name.upper()}", getattr(made.settings, name))
    patch.setenv("DAGSTER_HOME", str(made.uploads.parent / "home"))
    said = []

    def ask(*arguments: str) -> None:
        result = CliRunner().invoke(app, [*arguments])
        assert isinstance(result.exception, SystemExit | None), result.exception
        said.append(result.output)

    ask("export", str(exported))
    spoil_trajectory(exported)
    for upload_folder in made.uploads.iterdir():
        ask("validate", str(upload_folder))
    for kind in ("dataset", "sft", "messages"):
        ask("validate", "--kind", kind, str(exported / kind))
    for command in ("quarantine", "revalidate", "stats", "doctor"):
        ask(command)
    ask("inspect", "demo0")
    assert "target_element.name: differs" in said[len(BREAKING) + 3]
    return "\n".join(said)


@pytest.mark.no_cover  # other tests run the same lines
def test_no_canary_is_in_any_log_check_or_error(
    tmp_path: Path,
    recording: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Typed as text, logged as a key's name and as its character, and the name of elements.

    Looked for in the logs of all packages, in everything that Dagster keeps (runs, metadata,
    checks), in manifests, in the quarantine, and in what commands say about all of it.
    """
    in_this_process(monkeypatch)
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger=LOG_ROOT)
    with bench(tmp_path, kept=True, captured=True) as made:
        for number, spoil in enumerate(
            [None, tear_trees, *(entry[0] for entry in BREAKING.values())]
        ):
            folder = upload(recording, made.uploads, f"demo{number}")
            add_canaries(folder)
            if spoil is not None:
                spoil(folder)
            made.process(f"demo{number}")
        for job in ("build_datasets", "report_quarantine"):
            made.run(job)
        actions = made.workspace.store.current("actions/demo0")
        assert actions is not None
        assert actions.manifest.summary["unknown_keys"] == ["unknown key, 14 characters"]
        answers = answers_of_the_command_line(made, tmp_path / "exported", monkeypatch)
        shown = capfd.readouterr()
        logged = f"{caplog.text}\n{shown.out}\n{shown.err}\n{answers}"
        assert "type(13 chars)" in logged
        assert "known_input: failed, 1 problems" in logged  # the unknown key, by its length
        home = list((tmp_path / "home").rglob("*"))
        assert holding(home, "unknown key, 14 characters"), "the search does find metadata"
        store = tmp_path / "store"
        said = [path for path in store.rglob("manifest.json") if "recordings" not in path.parts]
        said += list((store / "quarantine").rglob("*"))
        said += list((store / "quarantine_table").rglob("*"))
        for canary in CANARIES:
            assert canary not in logged
            assert holding(home, canary) == []
            assert holding(said, canary) == []
            data = [
                *(store / ".versions").rglob("*.json"),
                *(store / ".versions").rglob("*.parquet"),
            ]
            data += list((store / ".versions").rglob("*.jsonl"))
            assert canary == KEY or holding(data, canary), (
                "where it belongs: the search does find it"
            )
    assert {stage.name for stage in DATASET_STAGES} >= {"sft_samples"}
