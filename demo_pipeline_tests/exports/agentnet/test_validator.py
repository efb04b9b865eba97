"""The checker of AgentNet's form refuses every change that its readers would not take."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.agentnet import validate_agentnet
from demo_pipeline_tests.datasets.builders import picture

Line = dict[str, Any]
Change = Callable[[Line], object]
CODES = (
    "pyautogui.click(x=0.5, y=0.25)",
    "pyautogui.moveTo(x=0.1, y=0.2)\npyautogui.dragTo(x=0.3, y=0.4, button='left')",
    "pyautogui.moveTo(x=0.1, y=0.2)\npyautogui.scroll(-3)",
    "pyautogui.hotkey(['ctrl', 'c'])",
    "pyautogui.press('enter', presses=2)",
    "pyautogui.write(message='abc')",
    "computer.wait(2.5)",
    "computer.terminate(status='success')",
)
LAST = len(CODES) - 1
GOOD: Line = {
    "task_id": "demo",
    "instruction": "Open it",
    "domain": "chrome",
    "traj": [
        {"index": n, "image": f"demo_{n}.png", "value": {"code": code, "action": "Do it."}}
        for n, code in enumerate(CODES)
    ],
    "task_completed": True,
}
SYSTEM = {"task_id": "demo", "system": "Windows"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "code_only").mkdir()
    for step in GOOD["traj"]:
        (tmp_path / "images" / step["image"]).write_bytes(picture(step["index"], 64, 36))
    for name in ("train", "val", "test", "code_only/val", "code_only/test"):
        (tmp_path / f"{name}.jsonl").write_text("")
    return tmp_path


def reduced(line: Line) -> Line:
    steps = [
        {"image": step.get("image"), "value": {"code": step["value"].get("code")}}
        for step in line["traj"]
    ]
    return {key: line.get(key) for key in ("task_id", "instruction")} | {"traj": steps}


def write(root: Path, *lines: Line, codes: list[Line] | None = None) -> None:
    shorter = [reduced(line) for line in lines] if codes is None else codes
    named = {line.get("task_id"): {**SYSTEM, "task_id": line.get("task_id")} for line in lines}
    files = {"train": lines, "code_only/train": shorter, "meta_data_merged": named.values()}
    for name, values in files.items():
        text = "".join(json.dumps(value) + "\n" for value in values)
        (root / f"{name}.jsonl").write_text(text)


def found(root: Path) -> set[str]:
    return {problem.code for problem in validate_agentnet(root)}


def changed(change: Change) -> Line:
    line = copy.deepcopy(GOOD)
    change(line)
    return line


def test_a_good_line_is_good(root: Path) -> None:
    write(root, GOOD)
    assert validate_agentnet(root) == []


def test_a_line_without_an_end_is_good(root: Path) -> None:
    def cut(line: Line) -> None:
        line["traj"].pop()
        del line["task_completed"]

    (root / f"images/demo_{LAST}.png").unlink()
    write(root, changed(cut))
    assert validate_agentnet(root) == []


def code(text: str, step: int = 0) -> Change:
    return lambda line: line["traj"][step]["value"].update(code=text)


def on_step(**members: Any) -> Change:
    return lambda line: line["traj"][0].update(members)


def on_value(**members: Any) -> Change:
    return lambda line: line["traj"][0]["value"].update(members)


MUTATIONS: dict[str, tuple[str, Change]] = {
    "a statement": ("code", code("x = 1")),
    "an import": ("code", code("import pyautogui\npyautogui.click(x=0, y=0)")),
    "a loop": ("code", code("for i in [1]: pyautogui.click(x=0, y=0)")),
    "a comment alone": ("code", code("# nothing")),
    "another module": ("code", code("time.sleep(1)")),
    "another call": ("code", code("pyautogui.mouseDown()")),
    "a held key": ("code", code("pyautogui.keyDown('ctrl')")),
    "a bare name": ("code", code("click(x=0, y=0)")),
    "a call in a call": ("code", code("pyautogui.click(x=float(1), y=0)")),
    "a pixel": ("code", code("pyautogui.click(x=960, y=540)")),
    "a place before the edge": ("code", code("pyautogui.click(x=-0.1, y=0)")),
    "no place": ("code", code("pyautogui.click()")),
    "half a place": ("code", code("pyautogui.click(x=0.5)")),
    "a place as text": ("code", code("pyautogui.click(x='0.5', y=0)")),
    "another argument": ("code", code("pyautogui.click(x=0, y=0, clicks=2)")),
    "pyautogui's triple click": ("code", code("pyautogui.tripleClick(x=0, y=0)")),
    "a drag from nowhere": ("code", code("pyautogui.dragTo(x=0, y=0)")),
    "a drag with no button of a mouse": (
        "code",
        code("pyautogui.moveTo(x=0, y=0)\npyautogui.dragTo(x=0, y=0, button='back')"),
    ),
    "a move alone": ("code", code("pyautogui.moveTo(x=0, y=0)")),
    "a scroll nowhere": ("code", code("pyautogui.scroll(3)")),
    "a scroll by nothing": ("code", code("pyautogui.moveTo(x=0, y=0)\npyautogui.scroll(0)")),
    "a scroll in pieces": ("code", code("pyautogui.moveTo(x=0, y=0)\npyautogui.scroll(0.5)")),
    "keys one by one": ("code", code("pyautogui.hotkey('ctrl', 'c')")),
    "no keys": ("code", code("pyautogui.hotkey([])")),
    "an unknown key": ("code", code("pyautogui.press('return key')")),
    "a capital key": ("code", code("pyautogui.press('A')")),
    "no presses": ("code", code("pyautogui.press('a', presses=0)")),
    "a number as text": ("code", code("pyautogui.write(message=5)")),
    "text under another name": ("code", code("pyautogui.write(text='a')")),
    "a wait before now": ("code", code("computer.wait(-1)")),
    "an end that is neither": ("code", code("computer.terminate(status='done')", LAST)),
    "an end without a status": ("code", code("computer.terminate()", LAST)),
    "an end too early": ("code", code("computer.terminate(status='success')")),
    "an end after another call": (
        "code",
        code("computer.wait(1)\ncomputer.terminate(status='success')", LAST),
    ),
    "an end in failure": ("code", code("computer.terminate(status='failure')", LAST)),
    "an end that is not judged": ("code", lambda line: line.pop("task_completed")),
    "unclosed code": ("code", code("pyautogui.click(x=0, y=0")),
    "empty code": ("invalid_field", code("")),
    "no code": ("invalid_field", lambda line: line["traj"][0]["value"].pop("code")),
    "no words": ("invalid_field", lambda line: line["traj"][0]["value"].pop("action")),
    "a thought that is not text": ("invalid_field", on_value(thought=7)),
    "an unknown member of a value": ("invalid_field", on_value(target="x")),
    "an unknown member of a step": ("invalid_field", on_step(action="click")),
    "an unknown member": ("invalid_field", lambda line: line.update(split="train")),
    "no task id": ("invalid_field", lambda line: line.pop("task_id")),
    "an empty task": ("invalid_field", lambda line: line.update(instruction="")),
    "no steps": ("invalid_field", lambda line: line.update(traj=[])),
    "a score beyond ten": ("invalid_field", lambda line: line.update(alignment_score=11)),
    "a result as text": ("invalid_field", lambda line: line.update(task_completed="yes")),
    "an index twice": ("index", lambda line: line["traj"][1].update(index=0)),
    "steps out of order": ("index", lambda line: line["traj"].reverse()),
    "an image that is missing": ("image", on_step(image="other.png")),
    "a path as image": ("invalid_field", on_step(image="images/demo_0.png")),
    "a text as image": ("invalid_field", on_step(image="demo_0.txt")),
    "an image token in the task": (
        "marker",
        lambda line: line.update(instruction="Look at <image>"),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_change_is_refused_at_its_line(root: Path, name: str) -> None:
    expected, change = MUTATIONS[name]
    first = changed(lambda line: line.update(task_id="first"))
    write(root, first, changed(change))
    problems = [one for one in validate_agentnet(root) if one.file == "train.jsonl"]
    assert expected in {problem.code for problem in problems}
    assert {problem.line for problem in problems} == {2}


class TestFiles:
    """What the lines of several files have to do with each other."""

    def test_the_same_task_twice(self, root: Path) -> None:
        write(root, GOOD, GOOD)
        assert found(root) == {"duplicate_id"}

    def test_code_that_differs_between_the_forms(self, root: Path) -> None:
        other = changed(code("computer.wait(1)"))
        write(root, GOOD, codes=[reduced(other)])
        assert found(root) == {"forms_differ"}
        write(root, GOOD, codes=[])
        assert found(root) == {"forms_differ"}
        write(root, GOOD, codes=[reduced(GOOD) | {"domain": "chrome"}])
        assert found(root) == {"invalid_field", "forms_differ"}

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            ({"task_id": "demo", "system": "linux"}, "invalid_field"),
            ({"task_id": "other", "system": "Windows"}, "systems"),
        ],
    )
    def test_a_computer_that_no_reader_knows(self, root: Path, line: Line, code: str) -> None:
        write(root, GOOD)
        (root / "meta_data_merged.jsonl").write_text(json.dumps(line) + "\n")
        assert found(root) == {code}

    def test_a_computer_named_twice(self, root: Path) -> None:
        write(root, GOOD)
        (root / "meta_data_merged.jsonl").write_text((json.dumps(SYSTEM) + "\n") * 2)
        assert found(root) == {"duplicate_id"}

    @pytest.mark.parametrize("name", ["train", "code_only/test", "meta_data_merged"])
    def test_a_missing_file(self, root: Path, name: str) -> None:
        write(root, GOOD)
        (root / f"{name}.jsonl").unlink()
        assert "missing_file" in found(root)

    def test_an_image_that_does_not_open(self, root: Path) -> None:
        write(root, GOOD)
        (root / "images/demo_0.png").write_bytes(picture(0, 64, 36)[:-20])
        assert found(root) == {"image"}

    def test_an_image_that_no_line_names(self, root: Path) -> None:
        write(root, GOOD)
        (root / "images/more.png").write_bytes(b"more")
        assert found(root) == {"unused_image"}

    def test_a_line_that_is_no_json(self, root: Path) -> None:
        write(root, GOOD)
        (root / "train.jsonl").write_text("{\n")
        assert "invalid_json" in found(root)
