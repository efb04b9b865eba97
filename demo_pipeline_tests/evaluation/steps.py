"""Synthetic steps and answers for the tests of scoring."""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from demo_pipeline.desktopd.models import PARAMETERS, ActionType
from demo_pipeline.evaluation.predictions import Predictions, read_predictions
from demo_pipeline.evaluation.true_steps import TrueStep
from demo_pipeline.exports.answers import Answer, AnsweredAction

SIZE = (1000, 1000)


def act(kind: str, **parameters: Any) -> AnsweredAction:
    action_type = ActionType(kind)
    return AnsweredAction(action_type, PARAMETERS[action_type].model_validate(parameters))


def answer(kind: str, **parameters: Any) -> Answer:
    return Answer((act(kind, **parameters),))


@contextmanager
def predicted(
    rows: Iterable[tuple[str, int, str]], trajectory_ids: Collection[str]
) -> Iterator[Predictions]:
    """Writes rows of (trajectory, step, response) to a file and reads them as predictions."""
    names = ("trajectory_id", "step_index", "response")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    with TemporaryDirectory() as folder:
        path = Path(folder, "predictions.jsonl")
        path.write_text("\n".join(lines), encoding="utf-8")
        with read_predictions(path, trajectory_ids) as predictions:
            yield predictions


def made_step(right: Answer, index: int = 0, trajectory: str = "demo", **changes: Any) -> TrueStep:
    labels = {"application": "chrome", "platform": "linux", "difficulty": "easy", "size": SIZE}
    return TrueStep(
        trajectory_id=trajectory,
        step_index=index,
        answer=right,
        **{"task": f"task of {trajectory}", **labels, **changes},
    )


DONE = Answer((), "success")
EVERY_ACTION = (
    answer("click", x=500, y=300),
    answer("click", x=500, y=300, button="middle"),
    answer("click", x=500, y=300, clicks=3),
    answer("right_click", x=10, y=20),
    answer("double_click", x=0, y=0),
    answer("drag", start_x=100, start_y=200, end_x=900, end_y=540),
    answer("scroll", x=500, y=540, direction="up", amount=3),
    answer("scroll", x=500, y=540, direction="left", amount=1),
    answer("type", text="google.com"),
    answer("hotkey", keys=["ctrl", "c"]),
    answer("hotkey", keys=["down"], presses=3),
    answer("wait", seconds=2.5),
    DONE,
)
