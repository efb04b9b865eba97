"""Tests which requests the review server refuses, what it sends, and how it stores decisions."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from demo_pipeline.cli.app import app
from demo_pipeline.files.web_requests import kept_token
from demo_pipeline.review.server import TOKEN_FILE
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.review.serving import TOKEN, Served, served
from demo_pipeline_tests.sample_workspace import copy_of, live_in, open_workspace

HOSTILE = '</script><script>alert(1)</script>"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def reviewed_root(made_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of(made_root, tmp_path_factory.mktemp("reviewed") / "root")


@pytest.fixture
def server(reviewed_root: Path) -> Iterator[Served]:
    with served(open_workspace(reviewed_root)) as running:
        yield running


def test_the_queue_and_a_demonstration_are_sent_whole(server):
    queue = server.ask("api/queue").json
    assert sorted(row["id"] for row in queue["rows"]) == ["first", "second"]
    assert [row["doubt"] for row in queue["rows"]] == sorted(
        (row["doubt"] for row in queue["rows"]), reverse=True
    )
    assert queue["author"] == "ann"
    first = server.ask("api/demonstrations/first").json
    assert first["task"]["instruction"] == "Please do the first task."
    assert first["video"]["last"] > first["video"]["first"]
    assert first["clock"]["uncertainty_ms"] >= 0
    assert {action["step"] for action in first["timeline"]["actions"]} >= {0, 1, 2}
    step = f"files/first/{first['version']}/0"
    assert server.ask(f"{step}/screenshot").body.startswith(b"\x89PNG")
    assert server.ask(f"{step}/tree").json["root"]["role"] == "desktop"


def test_the_video_is_sent_in_ranges_and_its_frame_times_as_a_list(server, reviewed_root):
    film = (reviewed_root / "uploads/first/recording.mp4").read_bytes()
    whole = server.ask("api/demonstrations/first/video")
    assert (whole.status, whole.body) == (200, film)
    part = server.ask("api/demonstrations/first/video", range="bytes=100-299")
    assert (part.status, part.body) == (206, film[100:300])
    assert part.headers["content-range"] == f"bytes 100-299/{len(film)}"
    assert server.ask("api/demonstrations/first/video", range="bytes=99999999-").status == 416
    frames = server.ask("api/demonstrations/first/frames").json
    assert frames == sorted(frames)
    assert len(frames) > 20


def test_a_video_other_than_the_processed_one_is_not_shown(reviewed_root, tmp_path):
    root = copy_of(reviewed_root, tmp_path / "root")
    (root / "uploads/first/recording.mp4").write_bytes(b"another")
    with served(open_workspace(root)) as running:
        assert running.ask("api/demonstrations/first/video").status == 404
        assert running.ask("api/demonstrations/first").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1:1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_another_site_can_neither_read_nor_write(server, headers):
    body = {"id": "a" * 32, "version": "x", "kind": "approve", "value": {}}
    path = "api/demonstrations/first"
    answers = [server.ask("api/queue", **headers), server.ask(path, **headers)]
    answers += [server.ask(f"{path}/decisions", "POST", body, **headers), server.ask("", **headers)]
    assert [answer.status for answer in answers] == [403] * 4
    for answer in answers:
        assert b"first" not in answer.body
        assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_write_needs_the_pages_own_origin(server):
    body = {"id": "a" * 32, "version": "x", "kind": "approve", "value": {}}
    path = "api/demonstrations/first/decisions"
    assert server.ask(path, "POST", body, origin=None).status == 403
    assert server.ask(path, "POST", b"{" * 100_000).status == 400
    assert server.ask(path, "DELETE", body, origin=f"http://127.0.0.1:{server.port}").status == 405
    assert server.ask("api/queue", "OPTIONS", origin="http://evil.example").status == 403


def test_a_body_that_is_too_long_for_a_decision_is_refused(server):
    path = "api/demonstrations/first/decisions"
    assert server.ask(path, "POST", b" " * 2**20).status == 400
    answer = server.ask(path, "POST", b" " * (2**20 + 1))
    assert (answer.status, answer.body) == (413, b"a decision has at most 1048576 bytes")


@pytest.mark.parametrize("path", ["/", "/api/queue", "/wrong/api/queue", f"/{TOKEN[:-1]}/", "//"])
def test_nothing_is_sent_without_the_token(server, path):
    answer = server.ask(path, raw=True)
    assert answer.status == 403
    assert b"<script" not in answer.body


@pytest.mark.parametrize(
    "path",
    [
        "files/first/../../etc/passwd",
        "files/first/%2e%2e/0/screenshot",
        "files/..%2f..%2fstore/x/0/screenshot",
        "files/first/{version}/0/..%2faction",
        "files/first/{version}/99/screenshot",
        "files/first/{version}/-1/screenshot",
        "api/demonstrations/..%2ffirst",
        "api/demonstrations/%2e%2e/video",
        "api/demonstrations/.versions/video",
        "api/demonstrations/nobody",
        "../page.html",
        "server.py",
        "page.py",
    ],
)
def test_no_path_leads_to_files_that_the_page_does_not_show(server, path):
    version = server.ask("api/demonstrations/first").json["version"]
    answer = server.ask(path.format(version=version))
    assert answer.status in {403, 404}
    assert b"root:" not in answer.body


def test_every_answer_forbids_use_by_other_sites(server):
    for path in ("", "page.js", "api/queue", "api/demonstrations/first/video", "nothing"):
        headers = server.ask(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    page = server.ask("").body.decode()
    assert "http" not in page
    assert "onclick" not in page


def test_a_wrong_decision_is_refused_with_the_reason_and_without_its_text(server):
    secret = {"reason": "hunter2"}
    answer = server.decide("first", "reject", secret, uuid4().hex)
    assert answer.status == 422
    assert "reason" in str(answer.json["faults"])
    assert b"hunter2" not in answer.body
    sent = uuid4().hex
    assert server.decide("first", "approve", {}, sent, version="0" * 16).status == 409
    assert server.decide("first", "approve", {}, sent).status == 201
    # The page repeats a decision whose answer was lost, after the trajectory was built again.
    assert server.decide("first", "approve", {}, sent, version="0" * 16).status == 201


def test_the_token_is_random_kept_and_readable_by_its_owner_only(tmp_path):
    token = kept_token(tmp_path / "cache", TOKEN_FILE)
    assert len(token) >= 32
    assert kept_token(tmp_path / "cache", TOKEN_FILE) == token
    assert kept_token(tmp_path / "other", TOKEN_FILE) != token
    assert (tmp_path / "cache/review-token").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("left", ["", "short"])
def test_a_token_that_was_cut_by_a_crash_is_replaced(tmp_path, left):
    (tmp_path / "review-token").write_text(left)
    token = kept_token(tmp_path, TOKEN_FILE)
    assert len(token) >= 32
    (tmp_path / "review-token").write_text(f"{token}\n")  # an editor has added a line end
    assert kept_token(tmp_path, TOKEN_FILE) == token


def test_a_taken_port_ends_the_command_with_a_message(tmp_path, monkeypatch):
    live_in(tmp_path, monkeypatch)
    with socket.create_server(("127.0.0.1", 9572)):
        result = CliRunner().invoke(app, ["review", "--port", "9572"])
    assert result.exit_code == 2
    assert "port 9572 is taken" in result.output


def test_the_queue_shows_decisions_and_near_duplicates(tmp_path):
    workspace = open_workspace(tmp_path)
    commit_trajectory(workspace, make_trajectory(tmp_path, "one", actions=(CLICK,) * 4))
    with served(workspace) as running:
        running.decide("one", "reject", {"reason": "duplicate"}, uuid4().hex)
        running.decide("one", "bad_step", {"step": 2}, uuid4().hex)
        changed = make_trajectory(tmp_path, "one", actions=(CLICK,) * 4, shade=9)
        commit_trajectory(workspace, changed)
        [row] = running.ask("api/queue").json["rows"]
    expected: dict[str, Any] = {"review": "open", "stale": 2, "corrected": False}
    assert {key: row[key] for key in expected} == expected
