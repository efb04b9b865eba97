"""Tests that requests are retried, resumed and limited, and are sent only to the given host."""

import json
import stat
import threading
import time

import pytest

from demo_pipeline.annotations.chat_server import Endpoint
from demo_pipeline.evaluation.predictions import read_predictions
from demo_pipeline.evaluation.requests import answered_ids, count_requests, send_requests
from demo_pipeline_tests.datasets.builders import picture
from demo_pipeline_tests.evaluation.fake_server import echo, fake_server

TYPED = "hunter2"


def ask(number, words=TYPED):
    content = [{"type": "text", "text": words}]
    body = {"model": "model", "messages": [{"role": "user", "content": content}]}
    return {"custom_id": f"demo/{number}", "method": "POST", "url": "/v1/chat", "body": body}


def write(tmp_path, *requests):
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return path, tmp_path / "answers.jsonl"


def endpoint(url, **options):
    pauses: list[float] = []

    async def sleep(seconds):
        pauses.append(seconds)

    return Endpoint(url, **options, sleep=sleep), pauses


def test_answers_are_kept_privately_and_can_be_scored(tmp_path):
    requests, results = write(tmp_path, *(ask(n, f"words {n}") for n in range(5)))
    assert count_requests(requests, results) == (5, 0)
    with fake_server() as server:
        counts = send_requests(requests, results, endpoint(server.url, key="k")[0], "qwen")
    assert counts == (5, 0)
    assert stat.S_IMODE(results.stat().st_mode) == 0o600
    assert {body["model"] for body in server.bodies} == {"qwen"}
    assert set(server.paths) == {"/v1/chat/completions"}
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer k"}
    with read_predictions(results, {"demo"}) as predictions:
        assert [predictions.answer(("demo", n)) for n in range(5)] == [
            f"words {n}" for n in range(5)
        ]


def test_a_second_run_sends_only_what_has_no_answer(tmp_path):
    requests, results = write(tmp_path, *(ask(n) for n in range(4)))

    def half(body, number):
        return echo(body, number) if number % 2 else (500, {"error": TYPED})

    with fake_server(half) as server:
        one_by_one = endpoint(server.url, attempts=1)[0]
        counts = send_requests(requests, results, one_by_one, "qwen", at_once=1)
    assert counts == (2, 2)
    errors = [json.loads(line)["error"] for line in results.read_text().splitlines()]
    assert TYPED not in json.dumps(errors)
    with results.open("ab") as file:
        file.write(b'{"custom_id": "demo/0", "resp')  # the last line is cut off, as after a kill
    assert count_requests(requests, results) == (4, 2)
    with fake_server() as server:
        counts = send_requests(requests, results, endpoint(server.url)[0], "qwen")
    assert (counts, len(server.bodies)) == ((2, 0), 2)
    assert answered_ids(results) == {f"demo/{n}" for n in range(4)}
    with read_predictions(results, {"demo"}) as predictions:
        assert not predictions.unusable
        assert [predictions.answer(("demo", n)) for n in range(4)] == [TYPED] * 4


@pytest.mark.parametrize("failure", [(503, {}), (429, {}), (200, None)], ids=str)
def test_transient_failures_are_retried_with_growing_delays(tmp_path, failure):
    requests, results = write(tmp_path, ask(0))
    with fake_server(lambda body, n: failure if n < 3 else echo(body, n)) as server:
        host, pauses = endpoint(server.url)
        counts = send_requests(requests, results, host, "qwen")
    assert counts == (1, 0)
    assert len(pauses) == 3
    assert 0.5 <= pauses[0] <= 1
    assert 2 <= pauses[2] <= 4


HEAD = b"HTTP/1.1 200 OK\r\n"
BROKEN = {
    "a body that ends early": [HEAD + b"Content-Length: 900\r\n\r\n{"],
    "a chunk that ends early": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n900\r\n{"],
    "no HTTP": [TYPED.encode() + b"\r\n\r\n"],
}


@pytest.mark.parametrize("pieces", BROKEN.values(), ids=BROKEN)
def test_a_request_whose_answer_breaks_off_is_retried(tmp_path, pieces):
    requests, results = write(tmp_path, ask(0), ask(1))
    with fake_server(lambda body, n: (0, pieces) if not n else echo(body, n)) as server:
        counts = send_requests(requests, results, endpoint(server.url)[0], "qwen", at_once=1)
    assert (counts, len(server.bodies)) == ((2, 0), 3)


def test_an_answer_in_chunks_or_without_a_length_is_complete(tmp_path):
    chat = json.dumps(echo(ask(0)["body"], 0)[1]).encode()
    halves = [b"%x\r\n%s\r\n" % (len(part), part) for part in (chat[:9], chat[9:])]
    chunked = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *halves, b"0\r\n\r\n"]
    pieces = [chunked, [b"HTTP/1.0 200 OK\r\n\r\n", chat]]
    requests, results = write(tmp_path, ask(0), ask(1))
    with fake_server(lambda _, n: (0, pieces[n])) as server:
        counts = send_requests(requests, results, endpoint(server.url)[0], "qwen", at_once=1)
    assert (counts, len(server.bodies)) == ((2, 0), 2)


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD + b"Content-Length: 900\r\n\r\n", *[b" "] * 60],
        [b"HTTP/1.0 200 OK\r\n\r\n", *[b" "] * 60],
        [HEAD, *[b"X-Drip: 1\r\n"] * 60],
        [b"HTTP/1.1 100 Continue\r\n\r\n"] * 60,
        [b"HTTP/1.1 302 Found\r\nLocation: /\r\n", *[b"X-Drip: 1\r\n"] * 60],
    ],
    ids=["body", "body without a length", "headers", "continue", "redirect"],
)
def test_an_answer_that_never_ends_is_given_up_in_time(tmp_path, pieces):
    requests, results = write(tmp_path, ask(0))
    with fake_server(lambda *_: (0, pieces)) as server:
        start = time.monotonic()
        host = endpoint(server.url, timeout=0.3, attempts=1)[0]
        assert send_requests(requests, results, host, "qwen") == (0, 1)
        assert time.monotonic() - start < 3


def test_running_requests_do_not_delay_an_interruption(tmp_path):
    requests, results = write(tmp_path, *(ask(n) for n in range(4)))
    released = threading.Event()

    def hang(body, number):
        if number:
            released.wait(20)
        return echo(body, number)

    def interrupt():
        raise KeyboardInterrupt

    with fake_server(hang) as server:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            send_requests(requests, results, Endpoint(server.url), "qwen", on_answer=interrupt)
        assert time.monotonic() - start < 5
        released.set()
    assert len(answered_ids(results)) == 1


def test_a_closed_port_is_reported_soon(tmp_path):
    requests, results = write(tmp_path, *(ask(n) for n in range(9)))
    with fake_server() as server:
        url = server.url
    host, pauses = endpoint(url)
    with pytest.raises(ValueError, match=f"{url}: no connection; start the server"):
        send_requests(requests, results, host, "qwen", at_once=1)
    assert len(pauses) == 3
    assert sum(pauses) < 10


@pytest.mark.parametrize("body", [{"error": {"message": TYPED}}, {"choices": []}, [], "x"])
def test_a_request_whose_answer_is_no_chat_is_sent_again_by_the_next_run(tmp_path, body):
    requests, results = write(tmp_path, ask(0))
    with fake_server(lambda *_: (200, body)) as server:
        assert send_requests(requests, results, endpoint(server.url)[0], "qwen") == (0, 1)
    assert json.loads(results.read_text())["error"] == {"code": "200", "message": "not a chat"}
    with fake_server() as server:
        assert send_requests(requests, results, endpoint(server.url)[0], "qwen") == (1, 0)


@pytest.mark.parametrize("answer", [(200, b"{"), (200, b'{"a": NaN}'), (400, {"error": "x"})])
def test_a_permanent_failure_is_a_failed_request(tmp_path, answer):
    requests, results = write(tmp_path, ask(0))
    with fake_server(lambda *_: answer) as server:
        host, pauses = endpoint(server.url)
        assert send_requests(requests, results, host, "qwen") == (0, 1)
    assert pauses == []


@pytest.mark.parametrize("status", [401, 404, 302])
def test_a_server_that_refuses_everything_ends_the_run(tmp_path, status):
    requests, results = write(tmp_path, *(ask(n) for n in range(50)))
    with fake_server(lambda *_: (status, {"error": TYPED})) as server:
        with pytest.raises(ValueError, match=r"^127\.0\.0\.1 ") as caught:
            send_requests(
                requests, results, endpoint(server.url, key="k-e-y")[0], "qwen", at_once=2
            )
        assert len(server.bodies) <= 4
    assert TYPED not in str(caught.value)
    assert "k-e-y" not in str(caught.value) + repr(endpoint(server.url, key="k-e-y")[0])


def test_images_in_the_folder_of_the_requests_are_sent_and_no_other_file(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.png").write_bytes(picture(1))

    def showing(place):
        part = {"type": "image_url", "image_url": {"url": place.resolve().as_uri()}}
        request = ask(0)
        request["body"]["messages"][0]["content"].append(part)
        return request

    requests, results = write(folder, showing(folder / "a.png"))
    with fake_server() as server:
        send_requests(requests, results, endpoint(server.url)[0], "qwen")
    url = server.bodies[0]["messages"][0]["content"][1]["image_url"]["url"]
    assert url.startswith("data:image/png;base64,")
    (tmp_path / "outside.png").write_bytes(picture(1))
    (folder / "typed.png").write_text(TYPED)
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    for name in ("../outside.png", "typed.png", "link.png"):
        requests, _ = write(folder, showing(folder / name))
        with fake_server() as server, pytest.raises(ValueError, match=r"^an image "):
            send_requests(requests, tmp_path / name[-9:], endpoint(server.url)[0], "qwen")
        assert server.bodies == []


def test_a_file_that_holds_no_requests_is_refused_with_its_line(tmp_path):
    requests, results = write(tmp_path, ask(0), {"text": TYPED})
    with pytest.raises(ValueError, match=r"requests\.jsonl:2: not a request"):
        count_requests(requests, results)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.3.2.1/v1", True),
        ("http://[::1]:80/v1", True),
        ("https://localhost.example.org/v1", False),
        ("https://127.0.0.1.example.org/v1", False),
        ("http://10.0.0.2/v1", False),
        ("http://0.0.0.0/v1", False),
    ],
)
def test_only_this_machine_is_loopback(url, here):
    assert Endpoint(url).is_loopback is here


@pytest.mark.parametrize(
    "url",
    [
        "ftp://localhost",
        "localhost:8000",
        "http://",
        "http://me:pw@localhost/v1",
        "http://a:b/v1",
        "http://[::1/v1",
        "http://localhost/v 1",
        "http://localhost/v1\n",
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused(url):
    with pytest.raises(ValueError, match=r"^the endpoint must ") as caught:
        Endpoint(url)
    assert "pw" not in str(caught.value)


def test_a_key_is_not_sent_in_the_clear():
    with pytest.raises(ValueError, match="https"):
        Endpoint("http://example.org/v1", "key")


@pytest.mark.parametrize(
    "key", ["hunter2\n", "hunter2\r\nX: y", "hunter 2", "hunter2…", "hunter2é"]
)
def test_a_key_that_cannot_be_sent_is_not_quoted(key):
    with pytest.raises(ValueError, match="OPENAI_API_KEY contains") as caught:
        Endpoint("http://127.0.0.1/v1", key)
    assert "hunter" not in str(caught.value)
