"""The command `demo-pipeline annotate`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from demo_pipeline.cli.app import app
from demo_pipeline_tests.annotations.made import CALLS, KEY, TYPED, chat, good, made_store
from demo_pipeline_tests.evaluation.fake_server import fake_server


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made_store(tmp_path, "one", "two")
    monkeypatch.setenv("DEMO_PIPELINE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OPENAI_API_KEY", "")
    return tmp_path


def call(*arguments: object) -> Result:
    done = CliRunner().invoke(app, ["annotate", *map(str, arguments)], env={"COLUMNS": "200"})
    assert KEY not in done.output
    assert TYPED not in done.output
    return done


@pytest.mark.usefixtures("root")
def test_it_prints_the_cost_then_asks_and_asks_no_question_twice():
    with fake_server(good) as server:
        given = ("--provider", "openai", "--endpoint", server.url, "--model", "stub")
        planned = call(*given, "one", "--kind", "thought", "--dry-run", "--limit", "2")
        assert "2 requests about 1 demonstrations" in planned.output
        assert server.bodies == []
        assert call(*given, "one", "--kind", "thought", "--limit", "1").exit_code == 0
        assert len(server.bodies) == 1
        done = call(*given, "one", "--kind", "thought")
        assert "2 requests about 1 demonstrations, about " in done.output
        assert (done.exit_code, len(server.bodies)) == (0, 3)
        assert "2 written, 0 known before" in done.output
        assert call(*given).exit_code == 0
        assert len(server.bodies) == 2 * CALLS
        again = call(*given)
        assert f"{server.url}: 0 requests about 0 demonstrations" in again.output
        assert len(server.bodies) == 2 * CALLS


@pytest.mark.usefixtures("root")
def test_nothing_is_sent_to_another_host_without_yes(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    given = ("--provider", "openai", "--endpoint", "https://models.invalid/v1", "--model", "x")
    done = call(*given)
    assert done.exit_code == 2
    assert f"{2 * CALLS} requests" in done.output  # the estimate is printed first
    assert "models.invalid is another host" in done.output
    assert "--yes" in done.output


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--provider", "openai"), "--endpoint and --model"),
        (("--provider", "oracle"), "--provider is one of"),
        (("--provider", "import"), "import needs --file"),
        (("--provider", "opencua", "--file", "x.jsonl"), "needs --model"),
        (("--provider", "import", "--file", "absent.jsonl"), "absent.jsonl"),
        (
            ("--provider", "openai", "--endpoint", "ftp://x", "--model", "x"),
            "the endpoint must be a URL",
        ),
    ],
)
@pytest.mark.usefixtures("root")
def test_a_missing_option_is_named(given, message):
    done = call(*given)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.usefixtures("root")
def test_refusals_failures_and_unknown_demonstrations_are_counted():
    def bad(_body: dict[str, Any], number: int) -> tuple[int, Any]:
        return chat("no") if number < 4 else (400, {"error": TYPED})

    with fake_server(bad) as server:
        given = ("--provider", "openai", "--endpoint", server.url, "--model", "stub")
        done = call(*given, "one", "absent", "--kind", "thought", "--at-once", 1)
    assert done.exit_code == 1
    assert "4 answers: not_json" in done.output
    assert "1 answers: status 400" in done.output
    assert "2 questions refused twice" in done.output
    assert "absent" in done.output
    assert "has no trajectory" in done.output


@pytest.mark.usefixtures("root")
def test_a_reason_is_counted_once_over_steps_and_wholes():
    with fake_server(lambda *_: (400, {})) as server:
        given = ("--provider", "openai", "--endpoint", server.url, "--model", "stub")
        done = call(*given, "one")
    assert done.output.count("answers: status 400") == 1


def test_lines_and_rules_need_no_server(root):
    line = {"demonstration": "one", "step": 0, "kind": "thought", "value": "Go."}
    line |= {"source": "human", "author": "ann"}
    lines = [line, line | {"value": 3}, line | {"demonstration": "gone"}]
    (root / "in.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = call("--provider", "import", "--file", root / "in.jsonl")
    assert done.exit_code == 1
    assert "1 written" in done.output
    assert "in.jsonl:2" in done.output
    assert "1 demonstrations of the file are not in the store" in done.output
    assert "6 written" in call("--provider", "rule").output


@pytest.mark.usefixtures("root")
def test_a_key_that_the_server_refuses_ends_the_run(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with fake_server(lambda *_: (401, {"error": KEY})) as server:
        done = call("--provider", "openai", "--endpoint", server.url, "--model", "stub")
        assert len(server.bodies) <= 4  # requests that were already being sent
    assert done.exit_code == 2
    assert "answered 401" in done.output
