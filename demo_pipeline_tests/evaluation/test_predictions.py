"""Tests that any file of predictions can be read, and that unusable answers count as wrong."""

import json

import pytest

from demo_pipeline.evaluation.predictions import LONGEST_ANSWER, batch_key, read_predictions
from demo_pipeline.exports.answers import AnswerFormatError

TYPED = "hunter2"
KNOWN = {"demo"}


def plain(step, response, trajectory="demo"):
    value = {"trajectory_id": trajectory, "step_index": step, "response": response}
    return json.dumps(value).encode()


def batch(step, message, status=200, error=None, trajectory="demo"):
    body = {"choices": [{"message": message}]}
    response = {"status_code": status, "request_id": "r", "body": body}
    value = {"custom_id": f"{trajectory}/{step}", "response": response, "error": error}
    return json.dumps(value).encode()


def read(tmp_path, *lines):
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return read_predictions(path, KNOWN)


def outcome(predictions, step):
    try:
        return predictions.answer(("demo", step))
    except AnswerFormatError as error:
        return f"unusable: {error}"


def test_both_forms_may_be_in_one_file(tmp_path):
    lines = [plain(0, "a"), b"", batch(1, {"content": "b"}), plain(2.0, "c")]
    lines.append(batch(3, {"content": [{"type": "text", "text": "d"}]}))
    with read(tmp_path, *lines) as predictions:
        assert [outcome(predictions, step) for step in range(4)] == ["a", "b", "c", "d"]
        assert (predictions.lines, predictions.unusable, predictions.unasked) == (4, {}, 0)


def test_calls_that_a_server_took_out_of_the_text_are_put_back(tmp_path):
    arguments = '{"action": "wait", "time": 1}'
    call = {"function": {"name": "computer_use", "arguments": arguments}}
    with read(tmp_path, batch(0, {"content": None, "tool_calls": [call]})) as predictions:
        text = predictions.answer(("demo", 0))
    assert text.startswith("<tool_call>\n")
    assert json.loads(text.split("\n")[1])["arguments"]["time"] == 1


UNUSABLE = [
    (b"{", "not JSON"),
    (b'{"trajectory_id": "demo", "step_index": NaN, "response": "x"}', "not JSON"),
    (b"\xff\xfe" + TYPED.encode(), "not UTF-8"),
    (b"[" * 100_000, "not JSON"),
    (b'["x"]', "not an object"),
    (b'{"response": "x"}', "no key"),
    (b'{"custom_id": "demo", "response": null}', "no key"),
    (b'{"custom_id": "demo/-1"}', "no key"),
    (b'{"custom_id": "demo/99999999999999999999"}', "no key"),
    (b'{"custom_id": 3}', "a key of the wrong type"),
    (plain("0", TYPED), "a key of the wrong type"),
    (plain(True, TYPED), "a key of the wrong type"),
    (plain(0.5, TYPED), "a key of the wrong type"),
    (plain(0, TYPED, trajectory=7), "a key of the wrong type"),
    (plain(0, None), "the response is not text"),
    (plain(0, {"text": TYPED}), "the response is not text"),
    (batch(0, {"content": 5}), "the response is not text"),
    (batch(0, {"content": None, "tool_calls": [3]}), "the response is not text"),
    (b'{"custom_id": "demo/0", "response": {"status_code": 200, "body": {}}}', None),
    (plain(0, TYPED, trajectory="other"), "unknown step"),
    (plain(-1, TYPED), "unknown step"),
    (plain(10**12, TYPED), "unknown step"),
    (b'{"trajectory_id": "demo", "x": "' + b"y" * 10_000_000 + b'"}', "too long"),
]


@pytest.mark.parametrize(("line", "reason"), UNUSABLE, ids=range(len(UNUSABLE)))
def test_a_line_that_cannot_be_used_is_counted_by_reason(tmp_path, line, reason):
    with read(tmp_path, line, plain(1, "good")) as predictions:
        assert predictions.unusable == {reason or "the response is not text": 1}
        assert outcome(predictions, 0) == "unusable: missing"
        assert outcome(predictions, 1) == "good"
        assert predictions.lines == 2


def test_a_step_that_is_answered_twice_has_no_answer(tmp_path):
    with read(tmp_path, plain(0, "a"), plain(0, "a"), plain(1, "b")) as predictions:
        assert outcome(predictions, 0) == "unusable: doubled"
        assert outcome(predictions, 1) == "b"


def test_a_request_that_failed_and_was_sent_again_counts_by_its_answer(tmp_path):
    failed = batch(0, {"content": ""}, status=500)
    refused = batch(1, {"content": "x"}, error={"code": "400", "message": TYPED})
    for lines in ((failed, plain(0, "a"), refused), (refused, plain(0, "a"), failed)):
        with read(tmp_path, *lines) as predictions:
            assert outcome(predictions, 0) == "a"
            assert outcome(predictions, 1) == "unusable: the request failed"


def test_answers_to_steps_outside_the_split_are_counted(tmp_path):
    lines = [plain(0, "a"), plain(99, "b"), batch(98, {"content": ""}, status=500)]
    with read(tmp_path, *lines, plain(97, "x" * (LONGEST_ANSWER + 1))) as predictions:
        outcome(predictions, 0)
        assert predictions.unasked == 3


def test_the_key_of_a_batch_is_read_back(tmp_path):
    key = ("a.b-c_d", 12)
    line = json.dumps({"custom_id": batch_key(key), "response": None}).encode()
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(line)
    with (
        read_predictions(path, {"a.b-c_d"}) as predictions,
        pytest.raises(AnswerFormatError, match="the request failed"),
    ):
        predictions.answer(key)
