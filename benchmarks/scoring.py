"""Scores 1,000, 10,000 and 100,000 predictions: CPU seconds, and the most memory that was held.

Every size runs in a process of its own. Half of the answers are right, a tenth cannot be read. The
time of the baselines is in it: they are in every table.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from demo_pipeline.desktopd.models import PARAMETERS, ActionType, StepAction
from demo_pipeline.evaluation.answer_forms import ANSWER_FORMS
from demo_pipeline.evaluation.predictions import read_predictions
from demo_pipeline.evaluation.scoring import SCORES_SCHEMA, STEPS_SCHEMA, score_steps
from demo_pipeline.evaluation.true_steps import TrueStep
from demo_pipeline.exports.answers import Answer, AnsweredAction
from demo_pipeline.exports.cudag.records import tool_calls
from demo_pipeline.exports.tool_calls import render_tool_calls
from demo_pipeline.files.parquet import TableWriter, write_rows
from demo_pipeline.settings import DatasetSettings

SIZES = (1_000, 10_000, 100_000)
STEPS = 20  # of a trajectory
SETTINGS = DatasetSettings()
SCREEN = (1920, 1080)
ACTIONS = (
    ("click", {"x": 500, "y": 300, "button": "left"}),
    ("type", {"text": "a sentence of some forty characters, typed"}),
    ("hotkey", {"keys": ["ctrl", "s"]}),
    ("scroll", {"x": 900, "y": 500, "direction": "down", "amount": 3}),
    ("drag", {"start_x": 100, "start_y": 200, "end_x": 960, "end_y": 540}),
)


def true_step(number: int) -> TrueStep:
    kind, parameters = ACTIONS[number % len(ACTIONS)]
    action_type = ActionType(kind)
    action = AnsweredAction(action_type, PARAMETERS[action_type].model_validate(parameters))
    trajectory = f"demo{number // STEPS:06d}"
    return TrueStep(
        trajectory_id=trajectory,
        step_index=number % STEPS,
        task=trajectory,
        application=f"application {number // STEPS % 30}",
        platform=("windows", "macos", "linux")[number // STEPS % 3],
        difficulty="medium",
        size=SCREEN,
        answer=Answer((action,)),
        box=(400.0, 250.0, 200.0, 100.0),
        tolerance=(10, 10),
    )


def response(number: int) -> str:
    if number % 10 == 9:
        return "I do not know."
    kind, parameters = ACTIONS[(number + number % 2) % len(ACTIONS)]
    action_type = ActionType(kind)
    action = StepAction(
        step_index=0,
        action_type=action_type,
        parameters=PARAMETERS[action_type].model_validate(parameters),
        reasoning="",
    )
    return render_tool_calls(tool_calls(action, SCREEN, SETTINGS))[0]


def write_predictions(path: Path, size: int) -> None:
    texts = [response(number) for number in range(10)]
    with path.open("w") as file:
        for number in range(size):
            step = true_step(number)
            key = {"trajectory_id": step.trajectory_id, "step_index": step.step_index}
            file.write(json.dumps({**key, "response": texts[number % 10]}) + "\n")


def measure(size: int, predictions: Path, out: Path) -> None:
    """Score one file and print the figures as JSON."""
    known = {f"demo{number:06d}" for number in range(-(-size // STEPS))}
    start = time.process_time()
    with (
        read_predictions(predictions, known) as found,
        TableWriter(out / "steps.parquet", STEPS_SCHEMA, batch_rows=4096) as writer,
    ):
        decode = ANSWER_FORMS["messages"].decoder(SETTINGS)
        report = score_steps(
            lambda add: [add(true_step(number)) for number in range(size)],
            ("strict", "agentnetbench"),
            decode,
            found,
            keep=writer.append_row,
        )
    write_rows(out / "scores.parquet", report.rows, SCORES_SCHEMA)
    seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    score = report.row("strict")["score"]
    print(json.dumps({"size": size, "seconds": seconds, "memory": memory, "score": score}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        folder = Path(arguments.measure[1])
        measure(int(arguments.measure[0]), folder / "predictions.jsonl", folder)
        return
    print("predictions  CPU s  ms each  MB  score (strict)")
    for size in arguments.sizes:
        with TemporaryDirectory() as folder:
            write_predictions(Path(folder) / "predictions.jsonl", size)
            command = [sys.executable, __file__, "--measure", str(size), folder]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        figures = json.loads(done.stdout)
        each = 1000 * figures["seconds"] / size
        print(
            f"{size:11,}  {figures['seconds']:5.1f}  {each:7.3f}  {figures['memory']:.0f}"
            f"  {figures['score']:.3f}"
        )


if __name__ == "__main__":
    main()
