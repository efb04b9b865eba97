"""Generates demonstrations with known faults, cheaply, by writing the outputs of earlier stages.

In each demonstration, an imagined person clicks on buttons, types and scrolls in an application.
There is no video: the screenshots are drawn, and the events, actions, evidence and trees agree with
the screenshots. Each function in `FAULTS` adds one kind of fault.
"""

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from demo_pipeline.actions.action_tables import ACTIONS_FILE, Action, write_actions
from demo_pipeline.files.image_files import PngWriter
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.files.parquet import write_rows
from demo_pipeline.observation.clock.canvas import Canvas
from demo_pipeline.observation.clock.clock import Clock, ClockMethod
from demo_pipeline.observation.frames.evidence import Evidence
from demo_pipeline.recording.events import EVENTS_FILE, SCANS_FILE
from demo_pipeline.recording.input_log import EVENTS_SCHEMA, SCANS_SCHEMA
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.review.triage import TRIAGE_STAGE, build_triage
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.versions import Recipe
from demo_pipeline.trajectories.provenance import write_hidden_actions, write_provenance
from demo_pipeline_tests.datasets.builders import ROW
from demo_pipeline_tests.uploads import made_manifest

START_MS = 1_764_765_296_000
APPLICATIONS = ("Shop", "Letters", "Calendar", "Sheets", "Player")
TARGET = ("target_x", "target_y", "target_width", "target_height")
STAGES = ("recordings", "events", "actions", "screenshots", "trajectories")
BUTTONS = {f"node_{2 + n}": (240 + 300 * n, 160, 220, 60) for n in range(4)}
FIELD = ("node_6", (240, 300, 800, 60))
LIST = ("node_7", (240, 400, 900, 400))
BOXES = {**BUTTONS, **dict((FIELD, LIST))}
NAMES = {name: f"Button {name[5:]}" for name in BUTTONS} | {"node_6": "Words", "node_7": "Rows"}
ROLES = dict.fromkeys(BUTTONS, "button") | {"node_6": "textfield", "node_7": "listbox"}


@dataclass
class MadeStep:
    """A step. Times are milliseconds since the start of the video; points are screenshot pixels."""

    kind: str
    node: str | None
    press: int
    end: int
    look: int  # number of the screen that is shown before the step
    text: str = ""
    keys: tuple[str, ...] = ()
    deletions: int = 0
    detour: float = 1.0  # length of the pointer's path ÷ distance
    place: tuple[int, int] | None = None  # point of an action without a target
    window: str = ""  # title of the window; empty for the application's own window
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def point(self) -> tuple[int, int] | None:
        """The point of the action in screenshot pixels, or None for an action without a point."""
        if self.kind in {"type", "hotkey", "wait"}:
            return None
        if self.node is None:
            return self.place
        x, y, width, height = BOXES[self.node]
        return x + width // 2, y + height // 2


@dataclass
class MadeDemonstration:
    """A demonstration. `faulty` maps a step to the fault of its screenshot, such as `black`."""

    id: str
    application: str
    task: str
    steps: list[MadeStep]
    film_ms: int
    final: int
    meta_s: float
    clock: ClockMethod = "pixels"
    uncertainty: float = 40.0
    changes_s: list[float] = field(default_factory=list)
    faulty: dict[int, str] = field(default_factory=dict)


def clean(number: int, seed: int = 0) -> MadeDemonstration:
    """Returns an ordinary demonstration without faults.

    As in real demonstrations, a few trees are stale, a few targets are missing, and the person
    sometimes pauses.
    """
    rng = random.Random(f"{seed}-{number}")
    application = rng.choice(APPLICATIONS)
    time = rng.randint(800, 4000)
    steps = []
    kinds = ["click", "click", "type", "click", "scroll", "click"][: rng.randint(5, 6)]
    looks = rng.sample(range(1, 13), len(kinds) + 1)
    for kind, look in zip(kinds, looks, strict=False):
        node = {"type": "node_6", "scroll": "node_7"}.get(kind, rng.choice(list(BUTTONS)))
        time += rng.choice((900, 1500, 2500, 4000, 6000))
        text = "".join(rng.choice("abcdef gh") for _ in range(rng.randint(4, 30)))
        lasts = int(len(text) * rng.uniform(130, 260)) if kind == "type" else rng.randint(70, 140)
        row: dict[str, Any] = {"freshness": rng.choices(("fresh", "stale"), (2, 1))[0]}
        row["leak"] = rng.random() < 0.03
        step = MadeStep(kind, node, time, time + lasts, look, row=row)
        step.text = text if kind == "type" else ""
        step.deletions = rng.choice((0, 0, 0, 1)) if kind == "type" else 0
        step.detour = rng.uniform(1.02, 1.6)
        steps.append(step)
        time += lasts
    film = time + rng.randint(1500, 5000)
    meta = film / 1000 + rng.uniform(-0.5, 2.5)
    task = f"Task {rng.randint(0, 60)} in {application}"
    name = f"demo_{number:04d}"
    demonstration = MadeDemonstration(name, application, task, steps, film, looks[-1], meta)
    _as_people_are(demonstration, rng)
    return demonstration


def _as_people_are(demo: MadeDemonstration, rng: random.Random) -> None:
    """Adds ordinary behaviour that is no fault, such as pauses for reading, detours and typos."""
    last = len(demo.steps) - 1
    if rng.random() < 0.12:
        _later(demo, rng.randint(1, last), rng.randint(8000, 14_000))
    if rng.random() < 0.1:
        demo.steps[rng.randint(0, last)].detour = 4.0
    if rng.random() < 0.04:  # a click without a visible effect
        demo.steps[1].look = demo.steps[0].look
    if rng.random() < 0.1:
        demo.changes_s.append((demo.steps[2].end + 2500) / 1000)
    for step in demo.steps:
        if step.kind == "type" and rng.random() < 0.2:
            step.deletions = 3 if len(step.text) > 16 else 2
        if step.kind == "click" and rng.random() < 0.1:
            step.node = None
            step.place = (900, 820)


def _later(demo: MadeDemonstration, place: int, by: int) -> None:
    for step in demo.steps[place:]:
        step.press += by
        step.end += by
    demo.film_ms += by
    demo.meta_s += by / 1000


def _insert(demo: MadeDemonstration, place: int, *steps: MadeStep) -> None:
    _later(demo, place, 2000 * len(steps))
    demo.steps[place:place] = steps


def no_effect(demo: MadeDemonstration) -> None:
    """Adds a click without an effect, and the same click again."""
    before = demo.steps[0]
    after = demo.steps[1]
    for number in (1, 2):
        press = before.end + 700 * number
        _insert(demo, number, MadeStep("click", "node_5", press, press + 90, after.look))


def undone(demo: MadeDemonstration) -> None:
    """Adds Ctrl+Z after a step."""
    step = demo.steps[3]
    press = demo.steps[3].end + 900
    undo = MadeStep("hotkey", None, press, press + 80, demo.steps[4].look, keys=("ctrl", "z"))
    demo.steps[4].look = step.look
    _insert(demo, 4, undo)


def hesitating(demo: MadeDemonstration) -> None:
    """Adds pauses and detours of the pointer, as if the person were searching."""
    for place in (1, 2, 3):
        _later(demo, place, 14_000)
        demo.steps[place].detour = 4.0


def mistyping(demo: MadeDemonstration) -> None:
    """Adds typing with many corrections."""
    step = next(step for step in demo.steps if step.kind == "type")
    step.text = "a few words here"
    step.deletions = 9


def off_task(demo: MadeDemonstration) -> None:
    """Adds two steps in the window of a messenger at the end."""
    for number in range(2):
        press = demo.steps[-1].end + 1500
        step = MadeStep("click", f"node_{3 + number}", press, press + 80, demo.final)
        step.window = "Chat with Bob"
        demo.final = 20 + number
        demo.steps.append(step)
    demo.film_ms += 6000
    demo.meta_s += 6


def jumping(demo: MadeDemonstration) -> None:
    """Changes the screen without an action, or hides an action."""
    if int(demo.id[-1]) % 2:
        demo.steps[2].row["hidden_before"] = 2
    else:
        _later(demo, 2, 6000)
        demo.changes_s.append((demo.steps[2].press - 1500) / 1000)


def unclocked(demo: MadeDemonstration) -> None:
    """Makes meta.timestamp the only source of the clock."""
    demo.clock = "meta_timestamp"
    demo.uncertainty = 2500.0


def cut_film(demo: MadeDemonstration) -> None:
    """Makes the duration in meta.json longer than the video."""
    demo.meta_s = demo.meta_s * 1.6 + 5


def bad_picture(demo: MadeDemonstration) -> None:
    """Makes screenshots black, torn or frozen, depending on the id of the demonstration."""
    kind = ("black", "torn", "frozen")[int(demo.id[-2:]) % 3]
    if kind == "black":
        demo.faulty[2] = kind
    elif kind == "torn":
        for place, look in enumerate((40, 40, 41), start=1):
            demo.steps[place].look = look
            demo.faulty[place] = "torn" if place == 2 else "page"
    if kind != "frozen":
        return
    for place, node in enumerate(("node_2", "node_5", "node_3", "node_4")):
        demo.steps[place] = MadeStep(
            "click", node, demo.steps[place].press, demo.steps[place].press + 90, 3
        )
        demo.faulty[place] = "frozen"


def on_recorder(demo: MadeDemonstration) -> None:
    """Turns a step into a click on the recorder's own window."""
    demo.steps[2].window = "Training Gym - recording"
    demo.steps[2].kind = "click"
    demo.steps[2].node = "node_4"
    demo.steps[2].text = ""


FAULTS: Mapping[str, Callable[[MadeDemonstration], None]] = {
    change.__name__: change
    for change in (
        *(no_effect, undone, hesitating, mistyping, off_task),
        *(jumping, unclocked, cut_film, bad_picture, on_recorder),
    )
}


def _page(look: int) -> np.ndarray[Any, Any]:
    small = np.random.default_rng(look).integers(0, 255, (108, 192, 1))
    return np.repeat(np.repeat(small, 10, 0), 10, 1)


@cache
def _png(application: str, look: int, fault: str, pointer: tuple[int, int] | None) -> bytes:
    """Returns a PNG of a window with a title bar, buttons, and random boxes that `look` decides."""
    rng = np.random.default_rng(look + 100 * APPLICATIONS.index(application))
    screen = np.full((1080, 1920, 3), 60 + 12 * APPLICATIONS.index(application), np.uint8)
    screen[80:1000, 200:1700] = 235
    screen[80:120, 200:1700] = (70, 90, 140)
    for x, y, width, height in BOXES.values():
        screen[y : y + height, x : x + width] = 215
    for _ in range(8):
        x = int(rng.integers(250, 1500))
        y = int(rng.integers(250, 900))
        screen[y : y + 40, x : x + 120] = rng.integers(0, 255, 3)
    if fault == "black":
        screen[:] = 0
    if fault in {"page", "torn"}:  # the whole screen is noise
        screen[:] = _page(look)
    if fault == "torn":  # the upper half already shows the next screen
        screen[:540] = _page(look + 1)[:540]
    if pointer and fault != "frozen":
        x, y = pointer
        screen[y : y + 18, x : x + 11] = 0
    return PngWriter().encode(screen)


def write_outputs(demo: MadeDemonstration, root: Path) -> tuple[RecordingManifest, dict[str, Path]]:
    """Writes the outputs of the stages before the triage.

    Returns:
        The manifest, and name of a stage → folder of its output.
    """
    folders = {name: root / name / demo.id for name in STAGES}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    manifest = _manifest(demo)
    dump_json(folders["recordings"] / "manifest.json", manifest)
    dump_json(folders["screenshots"] / "evidence.json", _evidence(demo))
    actions = _write_input(demo, folders)
    write_actions(folders["actions"] / ACTIONS_FILE, actions)
    _write_trajectory(demo, folders["trajectories"], actions)
    return manifest, folders


def write_triage(demo: MadeDemonstration, root: Path, out: Path) -> None:
    """Builds the triage of a generated demonstration in `out`."""
    out.mkdir(parents=True)
    build_triage(triage_inputs(*write_outputs(demo, root)), out)


def triage_inputs(manifest: RecordingManifest, folders: dict[str, Path]) -> RecordingInputs:
    """Returns the inputs of the stage `triage`."""
    return RecordingInputs(
        settings=Settings(),
        folders=folders,
        demonstration=manifest.id,
        upload=folders["recordings"],
        manifest=manifest,
    )


def commit(workspace: Workspace, demo: MadeDemonstration, root: Path) -> None:
    """Commits a generated demonstration with its triage to a store."""
    manifest, folders = write_outputs(demo, root)
    triage = root / "triage" / demo.id
    shutil.rmtree(triage, ignore_errors=True)
    triage.mkdir(parents=True)
    build_triage(triage_inputs(manifest, folders), triage)
    for name, folder in {**folders, TRIAGE_STAGE.folder: triage}.items():
        with workspace.store.stage(f"{name}/{demo.id}") as staging:
            shutil.copytree(folder, staging.path, dirs_exist_ok=True)
            workspace.store.commit(staging, Recipe(name, "made", "made", {}), {})


def _manifest(demo: MadeDemonstration) -> RecordingManifest:
    return made_manifest(
        demo.id,
        seconds=demo.film_ms / 1000,
        id=demo.id,
        timestamp=datetime.fromtimestamp(START_MS / 1000, UTC).isoformat(),
        duration_seconds=demo.meta_s,
        status="completed",
        reason="done",
        title=demo.task,
        platform="windows",
    )


def _evidence(demo: MadeDemonstration) -> Evidence:
    clock = Clock(
        origin_ms=START_MS, method=demo.clock, uncertainty_ms=demo.uncertainty,
        documented_offset_ms=0, score=0.9, moves=20,
    )  # fmt: skip
    canvas = Canvas(
        width=1920, height=1080, video_width=1920, video_height=1080, event_scale=1, scale=1,
        pad_x=0, pad_y=0,
    )  # fmt: skip
    return Evidence(clock=clock, canvas=canvas, waits=(), screen_changes_s=tuple(demo.changes_s))


def _write_input(demo: MadeDemonstration, folders: Mapping[str, Path]) -> list[Action]:
    """Writes the events and scans of a demonstration, and returns its actions."""
    rows: list[dict[str, Any]] = []

    def log(event: str, time: float, **more: Any) -> int:
        line = len(rows) + 1
        place = {"event_index": line, "byte_offset": line * 100, "byte_length": 99}
        rows.append({**place, "event": event, "time_ms": int(START_MS + time), **more})
        return line

    at = (300.0, 900.0)
    actions = []
    log("mousemove", 10, x=at[0], y=at[1])
    for index, step in enumerate(demo.steps):
        lines = []
        action = Action(step.kind, START_MS + step.press, START_MS + step.end, [], index)
        if step.point:
            action.pre_move_ms = START_MS + step.press - 400
            for x, y, time in _path(at, step):
                log("mousemove", time, x=x, y=y)
            at = (float(step.point[0]), float(step.point[1]))
            action.x, action.y = at
            if step.kind == "click":
                action.button = "left"
                action.clicks = 1
                lines = [
                    log(name, time, x=at[0], y=at[1], button="Left")
                    for name, time in (("mousedown", step.press), ("mouseup", step.end))
                ]
            else:
                lines = [log("mousewheel", step.press, delta=240.0)]
                action.direction = "down"
                action.amount = 2
                action.wheel_unit = "120"
                action.wheel_sum = 240.0
                action.wheel_method = "unit_signature"
                action.wheel_remainder = 0.0
        elif step.kind == "type":
            names = ["A"] * len(step.text) + ["Backspace"] * step.deletions
            gap = (step.end - step.press) / max(1, len(names))
            lines = [log("keydown", step.press + gap * n, key=k) for n, k in enumerate(names)]
            action.text = step.text
        elif step.keys:
            lines = [log("keydown", step.press, key="Z")]
            action.keys = list(step.keys)
            action.presses = 1
        action.events = lines
        action.first_event = lines[0]
        action.last_event = lines[-1]
        actions.append(action)
    write_rows(folders["events"] / EVENTS_FILE, rows, EVENTS_SCHEMA)
    scan = {"event_index": 1, "byte_offset": 0, "byte_length": 9}
    scans = [{**scan, "time_ms": START_MS + 500, "duration_ms": 300}]
    write_rows(folders["events"] / SCANS_FILE, scans, SCANS_SCHEMA)
    return actions


def _path(at: tuple[float, float], step: MadeStep) -> list[tuple[float, float, int]]:
    """Returns the pointer's path from `at` to the point of a step, with the step's detour.

    The path has twenty moves (x, y, time in milliseconds).
    """
    assert step.point is not None
    x0, y0 = at
    x1, y1 = step.point
    bow = (max(0.0, step.detour**2 - 1) ** 0.5) * 0.5 + (step.detour > 2) * 1.0
    moves = []
    for n in range(1, 21):
        share = n / 20
        aside = bow * (1 - abs(2 * share - 1))
        x = x0 + (x1 - x0) * share
        y = y0 + (y1 - y0) * share
        x = x - (y1 - y0) * aside
        y = y + (x1 - x0) * aside
        moves.append((x, y, step.press - 400 + 19 * n))
    return moves


def _write_trajectory(demo: MadeDemonstration, folder: Path, actions: list[Action]) -> None:
    task: dict[str, Any] = {"task_id": demo.task.replace(" ", "_"), "instruction": demo.task}
    task |= {"osworld_task_id": None, "application": demo.application.lower()}
    dump_json(
        folder / "task.json", {**task, "difficulty": "medium", "expected_steps": len(actions)}
    )
    result = {"trajectory_id": demo.id, "success": True, "total_steps": len(actions)}
    result |= {"completion_time_ms": demo.film_ms, "error_message": None}
    dump_json(folder / "result.json", {**result, "model_info": {"name": "human", "version": "1"}})
    pointer = (300, 900)
    rows = []
    for index, step in enumerate(demo.steps):
        place = folder / "steps" / f"{index:03d}"
        place.mkdir(parents=True)
        png = _png(demo.application, step.look, demo.faulty.get(index, ""), pointer)
        (place / "screenshot.png").write_bytes(png)
        dump_json(place / "ui_tree.json", tree(step.window or f"{demo.application} window"))
        dump_json(place / "action.json", _written(index, step))
        box = BOXES[step.node] if step.node else (None,) * 4
        frame_ms = step.press - (420 if step.point else 30)
        rows.append(
            {
                **ROW,
                "trajectory_id": demo.id,
                "step_index": index,
                "action_index": index,
                "action_type": step.kind,
                "press_ms": START_MS + step.press,
                "end_ms": START_MS + step.end,
                "pts": frame_ms / 1000,
                "lead_ms": float(step.press - frame_ms),
                "clock_method": demo.clock,
                "clock_uncertainty_ms": demo.uncertainty,
                "split_group": task["task_id"],
                "recorded_at": "2025-12-03T12:34:56+00:00",
                **dict(zip(TARGET, box, strict=True)),
                **step.row,
            }
        )
        pointer = step.point or pointer
    final = _png(demo.application, demo.final, "", pointer)
    (folder / "final_screenshot.png").write_bytes(final)
    write_provenance(folder / "provenance.parquet", rows)
    write_hidden_actions(folder, demo.id, [])


def _written(index: int, step: MadeStep) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    if step.point:
        parameters = dict(zip("xy", step.point, strict=True))
    more: dict[str, dict[str, Any]] = {
        "click": {"button": "left"},
        "scroll": {"direction": "down", "amount": 2},
        "type": {"text": step.text},
        "hotkey": {"keys": list(step.keys)},
    }
    target = None
    if step.node:
        target = {"id": step.node, "role": ROLES[step.node], "name": NAMES[step.node]}
    members: dict[str, Any] = {"step_index": index, "action_type": step.kind}
    members |= {"parameters": parameters | more[step.kind]}
    return {**members, "target_element": target, "reasoning": f"Do step {index}."}


def tree(window: str) -> dict[str, Any]:
    """Returns the UI tree of a desktop with a taskbar and a window with the given title."""

    def node(name: str, role: str, text: str, box: tuple[int, ...], *children: Any) -> Any:
        bounds = dict(zip(("x", "y", "width", "height"), box, strict=True))
        node = {"id": name, "role": role, "name": text, "bounds": bounds}
        return node | ({"children": list(children)} if children else {})

    inside = [node(name, ROLES[name], NAMES[name], box) for name, box in BOXES.items()]
    root = node(
        "node_0", "desktop", "", (0, 0, 1920, 1080),
        node("node_1", "window", window, (200, 80, 1500, 920), *inside),
        node("node_8", "taskbar", "Taskbar", (0, 1040, 1920, 40)),
    )  # fmt: skip
    screen = {"width": 1920, "height": 1080}
    return {"timestamp": "2025-12-03T12:34:56Z", "screen": screen, "root": root}
