"""The commands `eval …`, with a store of synthetic trajectories."""

import json
import re
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from demo_pipeline.cli.app import app
from demo_pipeline.evaluation.answer_forms import ANSWER_FORMS
from demo_pipeline_tests.datasets.builders import TABLE, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.evaluation.fake_server import echo, fake_server
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

TYPED = "google.com"
BOX = {"target_x": 480, "target_y": 280, "target_width": 60, "target_height": 50}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a store with three demonstrations of three tasks, each with all kinds of actions."""
    folder = tmp_path_factory.mktemp("built")
    trajectories = [
        make_trajectory(folder, f"demo{n}", TABLE, rows={0: BOX}, shade=20 * n, instruction=str(n))
        for n in range(3)
    ]
    commit_trajectories(open_workspace(folder), trajectories)
    return folder / "store"


@pytest.fixture
def root(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_of(built, tmp_path / "store")
    monkeypatch.setenv("DEMO_PIPELINE_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["eval", *map(str, arguments)], env={"COLUMNS": "200"})


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_right_answers_in_every_form_are_right(root, form):
    path = root / "truth.jsonl"
    assert call("truth", path, "--split", "any", "--form", form).exit_code == 0
    asked = ("score", path, "--split", "any", "--form", form)
    plain = call(*asked).stdout
    assert "does not know waits" in plain
    assert "screen centre" not in plain
    done = call(*asked, "--baselines", "--json")
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert (report["steps"], report["unusable_steps"]) == (3 * 14, {})
    scores = {
        (row["preset"], row["answers"]): row for row in report["scores"] if row["value"] == "all"
    }
    assert scores["strict", "predictions"]["score"] == 1
    assert scores["strict", "truth"]["score"] == 1
    # AgentNetBench's script ignores two of 14 steps: the wait and the click of the middle button.
    assert scores["agentnetbench", "truth"]["score"] == pytest.approx(12 / 14)
    low, high = (scores["strict", "screen centre"][name] for name in ("low", "high"))
    assert 0 <= low <= high < 1


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_requests_are_private_and_ask_with_screen_history_and_system(root, form):
    path = root / "requests.jsonl"
    done = call("requests", path, "--split", "any", "--form", form, "--model", "qwen")
    assert done.exit_code == 0
    assert "42 requests" in done.stdout
    assert "teacher-forced" in done.stdout
    assert TYPED not in done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    requests = lines(path)
    assert [line["custom_id"] for line in requests[:2]] == ["demo0/0", "demo0/1"]
    assert {(line["method"], line["url"]) for line in requests} == {
        ("POST", "/v1/chat/completions")
    }
    system, user = requests[11]["body"]["messages"]
    assert requests[11]["body"]["model"] == "qwen"
    assert (system["role"], user["role"]) == ("system", "user")
    image, text = user["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert TYPED in text["text"]  # the history contains typed text
    assert ("`Action:`" in system["content"]) is (form == "qwen3vl")


def test_a_system_prompt_from_a_file_and_screenshots_as_files(root):
    path = root / "requests.jsonl"
    prompt = root / "prompt.txt"
    prompt.write_text("Be brief.")
    done = call("requests", path, "--split", "any", "--images", "path", "--system-prompt", prompt)
    assert done.exit_code == 0
    first = lines(path)[0]["body"]["messages"]
    assert first[0]["content"] == "Be brief."
    url = first[1]["content"][0]["image_url"]["url"]
    assert Path(url.removeprefix("file://")).parent == root / "requests_images"
    assert stat.S_IMODE((root / "requests_images").stat().st_mode) == 0o700
    with fake_server() as server:
        answers = root / "answers.jsonl"
        done = call("run", path, answers, "--endpoint", server.url, "--model", "m")
        assert done.exit_code == 0, done.stderr
    sent = server.bodies[0]["messages"][1]["content"][0]["image_url"]["url"]
    assert sent.startswith("data:image/png;base64,")


def test_screenshots_as_files_are_only_those_of_the_last_run(root):
    """Images of an earlier run are removed. Files that the command did not write are kept."""
    path = root / "requests.jsonl"
    folder = root / "requests_images"
    arguments = ("requests", path, "--split", "any", "--images", "path")
    assert call(*arguments).exit_code == 0
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert len(first) == 42
    (folder / "demo0_steps_1.png").write_bytes(b"other")
    names = {*first, "demo0_steps_1.png"}
    rebuilt = make_trajectory(root / "new", "demo0", TABLE[:2], shade=200, instruction="0")
    commit_trajectories(open_workspace(root), [rebuilt])
    assert call(*arguments).exit_code == 0
    gone = {name for name in first if re.match(r"demo0_steps_(00[2-9]|01)", name)}
    assert {file.name for file in folder.iterdir()} == names - gone
    assert len(gone) == 11
    for name in ("steps/000/screenshot.png", "final_screenshot.png"):
        copy = folder / f"demo0_{name.replace('/', '_')}"
        assert copy.read_bytes() == (rebuilt.path / name).read_bytes() != first[copy.name]


def test_a_model_is_asked_and_its_answers_are_scored(root, monkeypatch):
    requests, answers, right = (root / f"{name}.jsonl" for name in ("ask", "answer", "right"))
    call("requests", requests, "--split", "any")
    call("truth", right, "--split", "any")
    texts = {
        f"{line['trajectory_id']}/{line['step_index']}": line["response"] for line in lines(right)
    }
    prompts = {json.dumps(line["body"]["messages"]): line["custom_id"] for line in lines(requests)}

    def model(body, number):
        if number % 3 == 0:
            return echo(body, number)
        text = texts[prompts[json.dumps(body["messages"])]]
        return 200, {"choices": [{"message": {"content": text}}]}

    monkeypatch.setenv("OPENAI_API_KEY", "k-e-y")
    with fake_server(model) as server:
        done = call("run", requests, answers, "--endpoint", server.url, "--model", "m")
    assert done.exit_code == 0, done.stderr
    assert f"{server.url}: 42 requests, 0 answered before" in done.stdout
    assert "42 answered, 0 failed" in done.stdout
    assert server.headers[0]["Authorization"] == "Bearer k-e-y"
    assert stat.S_IMODE(answers.stat().st_mode) == 0o600
    out = root / "scores"
    scored = call("score", answers, "--split", "any", "--preset", "strict", "--out", out)
    assert scored.exit_code == 0, scored.stderr
    assert "14 steps: no tool call" in scored.stdout
    assert re.search(r"predictions\W+0\.667", scored.stdout)
    assert {path.name for path in out.iterdir()} == {
        "scores.parquet",
        "steps.parquet",
        "summary.json",
        "failures.jpg",
    }
    assert (out / "failures.jpg").read_bytes().startswith(b"\xff\xd8")
    for text in (done.output, scored.output, *(path.read_bytes() for path in out.iterdir())):
        data = text.encode() if isinstance(text, str) else text
        assert TYPED.encode() not in data
        assert b"k-e-y" not in data


def test_nothing_is_sent_to_another_host_without_yes(root):
    requests = root / "ask.jsonl"
    answers = root / "answers.jsonl"
    call("requests", requests, "--split", "any")
    done = call("run", requests, answers, "--endpoint", "https://example.org/v1", "--model", "m")
    assert done.exit_code == 2
    assert "https://example.org/v1: 42 requests" in done.stdout
    assert "--yes" in done.stderr
    assert not answers.exists()


def test_unusable_arguments_are_reported(root):
    path = root / "x.jsonl"
    for arguments, message in (
        (("requests", path, "--form", "nice"), "there is no such form"),
        (("requests", path, "--split", "held_out"), "no step is in the split held_out"),
        (("requests", path, "--images", "none"), "--images is data or path"),
        (("truth", path, "--split", "nice"), "there is no such split"),
        (("score", root / "nothing.jsonl"), "nothing.jsonl: No such file"),
        (("run", path, path, "--endpoint", "nice", "--model", "m"), "the endpoint must be a URL"),
        (("score", root / "answers.jsonl", "--seed", "-1"), "'--seed'"),
    ):
        done = call(*arguments)
        assert done.exit_code == 2
        assert message in done.stderr
        assert not path.exists()


def test_a_file_that_others_can_read_is_named(root):
    path = root / "truth.jsonl"
    call("truth", path, "--split", "any")
    assert "others can read it" not in call("score", path, "--split", "any").stderr
    path.chmod(0o640)
    assert "others can read it" in call("score", path, "--split", "any").stderr


def test_the_tables_fit_eighty_columns_with_whole_numbers(root):
    path = root / "truth.jsonl"
    call("truth", path, "--split", "any")
    arguments = ["eval", "score", str(path), "--split", "any", "--preset", "strict"]
    arguments.append("--baselines")
    lines = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}).stdout.splitlines()
    assert max(len(line) for line in lines if not line.startswith("split any:")) <= 80
    (row,) = (line.split() for line in lines if line.split()[:1] == ["double_click"])
    assert row == ["double_click", "3", "1.000", *["0.000"] * 4, "1.000", "0.000"]


def test_a_store_without_trajectories_is_no_empty_split(tmp_path, monkeypatch):
    monkeypatch.setenv("DEMO_PIPELINE_STORE", str(tmp_path / "store"))
    done = call("truth", tmp_path / "truth.jsonl", "--split", "any")
    assert done.exit_code == 2
    assert "the store holds no steps" in done.stderr
