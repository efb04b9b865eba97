"""Predictions that were put into the store become scores, once, and say nothing of their words."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.evaluation.scoring import ScoreReport
from demo_pipeline.runs import evaluations
from demo_pipeline.runs.evaluations import Evaluation, write_right_answers
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.defs.bench import (
    Bench,
    Result,
    bench,
    failures,
    materialized,
    ticked,
    values,
    verdicts,
)
from demo_pipeline_tests.store.refusals import refuse_reading

TYPED = "hunter2"
ANSWERED = "sw0rdfish"
JOB = "score_evaluation"
BOX = {"target_x": 900, "target_y": 500, "target_width": 100, "target_height": 80}


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The roots of a bench with three demonstrations."""
    root = tmp_path_factory.mktemp("committed")
    with bench(root) as made:
        actions = [CLICK, ("type", {"text": TYPED})]
        made_of = [
            make_trajectory(
                root, f"demo{n}", actions, rows={0: BOX}, shade=n, instruction=f"Do {n}"
            )
            for n in range(3)
        ]
        commit_trajectories(made.workspace, made_of)
    return root


@pytest.fixture
def made(tmp_path: Path, committed: Path) -> Iterator[Bench]:
    with bench(tmp_path, source=committed) as copied:
        yield copied


def drop(made: Bench, name: str, *, wrong: bool = False, **asked: Any) -> Path:
    """Right answers to every step, or to all but the first, in a folder of the store."""
    folder = Path(made.settings.store) / "evaluations" / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "predictions.jsonl"
    write_right_answers(made.workspace, path, Evaluation(split="any"))
    if wrong:
        lines = path.read_text().splitlines()
        first = {**json.loads(lines[0]), "response": ANSWERED}
        path.write_text("\n".join([json.dumps(first), *lines[1:], lines[-1]]))
    (folder / "evaluation.json").write_text(json.dumps({"split": "any", **asked}))
    return path


def requested(made: Bench, cursor: str | None = None) -> tuple[list[str], str | None]:
    """(the names that the sensor asks to score, its cursor)."""
    ticked_once = ticked(made, "new_evaluations", cursor)
    configs = [request.run_config["ops"] for request in ticked_once.requests]
    names = [name for one in configs for name in one["evaluation_scores"]["config"]["names"]]
    return names, ticked_once.cursor


def launched(made: Bench, *names: str) -> Result:
    """Run at once what the daemon would launch for these names; without: for all."""
    config = {"ops": {"evaluation_scores": {"config": {"names": list(names)}}}}
    return made.definitions.resolve_job_def(JOB).execute_in_process(
        instance=made.instance, run_config=config, raise_on_error=False
    )


def score(made: Bench, name: str) -> Result:
    assert requested(made)[0] == [name]
    return launched(made, name)


def shown(result: Result) -> dict[str, Any]:
    return values(materialized(result)["evaluation_scores", None])


def test_right_answers_have_full_scores_and_pass_the_checks(made):
    drop(made, "perfect")
    result = score(made, "perfect")
    assert result.success
    values = shown(result)
    assert values["scores"] == {"perfect": 1.0}
    table = values["table"].replace("\\", "")  # no text of a recording is markup
    assert "| perfect | made | strict | predictions | 1.000 |" in table
    assert "| perfect | made | strict | screen centre | " in table
    assert values["score_perfect"] == 1.0  # a number, which the UI draws over the runs
    assert Path(values["failures_perfect"]).read_bytes().startswith(b"\xff\xd8")
    assert {name for name, verdict in verdicts(result).items() if verdict.passed} == {
        "coverage",
        "private",
    }
    folder = made.workspace.store.open("evaluation_scores/perfect")[0]
    names = {path.name for path in folder.iterdir()}
    assert names == {"scores.parquet", "steps.parquet", "summary.json", "failures.jpg"}


def test_what_is_missing_is_in_the_check_and_no_word_is_anywhere(made):
    path = drop(made, "bad", wrong=True)
    path.chmod(0o644)
    result = score(made, "bad")
    assert result.success
    assert shown(result)["scores"] == {"bad": 7 / 9}
    found = verdicts(result)
    assert not found["coverage"].passed
    assert not found["private"].passed
    text = str(found["coverage"].metadata["found"].value)
    assert "1 steps: no tool call" in text
    assert "1 steps: doubled" in text
    assert "evaluations/bad/predictions.jsonl" in text
    events = "".join(str(event) for event in made.instance.all_logs(result.run_id))
    assert TYPED not in events
    assert ANSWERED not in events
    kept = b"".join(data for _, files in made.files().items() for data in files.values())
    assert ANSWERED.encode() not in kept


@pytest.mark.parametrize("error", [OSError(28, "full"), ZeroDivisionError(TYPED)])
def test_trouble_with_one_keeps_no_other_from_its_scores(made, monkeypatch, error):
    score = evaluations.score_file

    def score_one(workspace: Workspace, predictions: Path, *rest: Any) -> ScoreReport:
        if predictions.read_bytes() == b"first":
            raise error
        return score(workspace, predictions, *rest)

    path = drop(made, "first")
    path.write_bytes(b"first")
    drop(made, "second")
    monkeypatch.setattr(evaluations, "score_file", score_one)
    result = launched(made)
    assert not result.success
    assert shown(result)["scores"] == {"second": 1.0}
    told = str(failures(result)["evaluation_scores"].description)
    assert told.startswith("first: ")
    assert TYPED not in told


def test_each_change_is_scored_once(made):
    drop(made, "first")
    names, cursor = requested(made)
    assert names == ["first"]
    assert requested(made, "nonsense") == (names, cursor)  # a cursor that a person wrote
    assert requested(made, cursor)[0] == []
    path = drop(made, "second", wrong=True)
    names, cursor = requested(made, cursor)
    assert names == ["second"]
    path.write_text(path.read_text() + "\n{}\n")
    os.utime(path, (1, 1))
    names, cursor = requested(made, cursor)
    assert names == ["second"]
    assert launched(made, "first").success
    again = launched(made)
    assert "| first | unchanged |" in shown(again)["table"]
    assert "screen centre" not in shown(again)["table"]
    assert "| second | made |" in shown(again)["table"]
    assert shown(again)["scores"]["first"] == 1.0


def test_a_changed_dataset_is_scored_again(made):
    drop(made, "first")
    _, cursor = requested(made)
    assert launched(made, "first").success
    assert made.run("build_datasets").success
    names, cursor = requested(made, cursor)
    assert names == ["first"]
    assert requested(made, cursor)[0] == []
    more = make_trajectory(made.uploads.parent, "demo9", [CLICK], rows={0: BOX}, shade=9)
    commit_trajectories(made.workspace, [more])
    assert made.run("build_datasets").success
    names, cursor = requested(made, cursor)
    assert names == ["first"]
    result = launched(made, *names)
    assert shown(result)["scores"]["first"] < 1.0  # the new steps have no answer
    assert not verdicts(result)["coverage"].passed


def test_nothing_to_score_is_no_failure_and_one_that_cannot_be_scored_costs_no_other(made):
    result = launched(made)
    assert result.success
    assert shown(result)["evaluations"] == 0
    drop(made, "good")
    drop(made, "odd", presets=["nice"])
    result = launched(made)
    assert not result.success
    assert shown(result)["scores"] == {"good": 1.0}
    said = failures(result)["evaluation_scores"].description
    assert "odd: evaluations/odd/evaluation.json: there is no such preset" in said
    assert "good" not in said


@pytest.mark.parametrize("private", ["alice", "alice/predictions.jsonl", "alice/evaluation.json"])
def test_predictions_that_may_not_be_read_keep_no_others_from_their_scores(
    made, monkeypatch, private
):
    folder = drop(made, "alice").parent.parent
    _, cursor = requested(made)
    drop(made, "bob")
    with monkeypatch.context() as patched:
        refuse_reading(patched, folder / private)
        names, cursor = requested(made, cursor)
        assert names == ["bob"]
        skipped = ticked(made, "new_evaluations", cursor).skipped
    assert "'evaluations/alice/" in skipped
    assert "cannot be read; check its permissions" in skipped
    assert requested(made, cursor)[0] == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"presets": ["nice"]}, "there is no such preset"),
        ({"form": 3}, "form and split (names)"),
        ({"split": "held_out"}, "no step is in the split held_out"),
        ({"wish": TYPED}, "must be an object with form"),
        ({"seed": -1}, "seed (a whole number from 0)"),
    ],
)
def test_a_wish_that_cannot_be_met_fails_with_a_plain_reason(made, asked, reason):
    drop(made, "odd", **asked)
    result = score(made, "odd")
    assert not result.success
    events = "".join(str(event) for event in made.instance.all_logs(result.run_id))
    assert reason in events
    assert TYPED not in events
