"""Damages to the outputs of the dataset stages, by stage: name → damage."""

from collections.abc import Mapping

from demo_pipeline_tests.breakages.damages import (
    Damage,
    add,
    appended,
    black,
    cell,
    cut,
    drop,
    emptied,
    exchange,
    exchange_files,
    line,
    null,
    put,
    remove,
    repeat,
    replaced,
    replaced_by,
    retyped,
    smaller,
    swap,
    without,
    without_column,
)

OTHER_TASK = "Please do the second task."
STEP = "trajectories/20260106_140000/steps"


SFT: Mapping[str, Damage] = {
    "another task's instruction": line("train.jsonl", "input.instruction", OTHER_TASK),
    "another task's instruction everywhere": cell("train.parquet", "instruction", OTHER_TASK),
    "tap": line("train.jsonl", "output.action.action_type", "tap"),
    "another place": line("train.jsonl", "output.action.parameters.x", lambda x: x + 1),
    "other words": line("train.jsonl", "output.reasoning", "Click anywhere."),
    "another step's picture": line("train.jsonl", "input.screenshot", f"{STEP}/003/screenshot.png"),
    "a picture that is not there": line("train.jsonl", "input.screenshot", "nowhere.png"),
    "an earlier step less": line("train.jsonl", "input.history", lambda steps: steps[1:], 3),
    "rotten": line("train.jsonl", "freshness", "rotten"),
    "an unknown agreement": line("samples.jsonl", "tree_agreement", "perhaps"),
    "a line less": drop("train.jsonl", 2),
    "a line twice": repeat("train.jsonl", 2),
    "lines exchanged": swap("train.jsonl", 1, 2),
    "a line of val in train": appended("train.jsonl", b"{}\n"),
    "a line cut off": cut("train.jsonl"),
    "a sample less": drop("samples.jsonl", 2),
    "a row less": drop("train.parquet", 2),
    "rows exchanged": swap("samples.parquet", 1, 2),
    "another split": cell("samples.parquet", "split", "val"),
    "an unknown split": cell("samples.parquet", "split", "bench"),
    "another application": cell("samples.parquet", "application", "gimp"),
    "another type": cell("samples.parquet", "action_type", "drag"),
    "another step": cell("samples.parquet", "step_index", 7),
    "another task": cell("samples.parquet", "task_id", "notes_the_second_task"),
    "a rotten row": cell("samples.parquet", "freshness", "rotten"),
    "an unknown source of words": cell("samples.parquet", "reasoning_source", "dream"),
    "null as an id": null("samples.parquet", "trajectory_id"),
    "a column less": without_column("train.parquet", "reasoning"),
    "a black picture": black(f"{STEP}/000/screenshot.png"),
    "pictures exchanged": exchange_files(
        f"{STEP}/000/screenshot.png", f"{STEP}/004/screenshot.png"
    ),
    "half a picture": cut(f"{STEP}/000/screenshot.png"),
    "a picture too many": add(f"{STEP}/099/screenshot.png"),
    "trees exchanged": exchange_files(
        "trajectories/*/steps/000/ui_tree.json", "trajectories/first/steps/001/ui_tree.json"
    ),
    "no test": remove("test.jsonl"),
    "a file too many": add("notes.txt"),
}

MESSAGES: Mapping[str, Damage] = {
    "another task's instruction": line("train.jsonl", "messages.1.content.1.text", OTHER_TASK),
    "another answer": line("train.jsonl", "messages.2.content", "Click anywhere."),
    "another place": line(
        "train.jsonl",
        "messages.2.content",
        lambda text: text.replace('coordinate": [', 'coordinate": [9'),
    ),
    "another role": line("train.jsonl", "messages.0.role", "prophet"),
    "a question less": line("train.jsonl", "messages", lambda turns: turns[:1]),
    "another step's picture": line(
        "train.jsonl", "messages.1.content.0.image", f"{STEP}/003/screenshot.png"
    ),
    "a picture that is not there": line("train.jsonl", "messages.1.content.0.image", "none.png"),
    "an unknown type": line("train.jsonl", "task_type", "tap"),
    "another type": line("train.jsonl", "task_type", "drag"),
    "another application": line("train.jsonl", "application", "gimp"),
    "another step": line("train.jsonl", "step_index", 7),
    "an id twice": line("train.jsonl", "id", "20260106_140000_001"),
    "a line less": drop("train.jsonl", 2),
    "a line twice": repeat("train.jsonl", 2),
    "lines exchanged": swap("train.jsonl", 1, 2),
    "a line cut off": cut("train.jsonl"),
    "a row less": drop("train.parquet", 2),
    "rows exchanged": swap("train.parquet", 1, 2),
    "another row's application": cell("train.parquet", "application", "gimp"),
    "a prompt less": drop("prompt_completion/train.parquet", 2),
    "another completion": exchange("prompt_completion/train.parquet", "completion", 0, 1),
    "a prompt's other application": cell("prompt_completion/train.parquet", "application", "gimp"),
    "no prompts": remove("prompt_completion/val.parquet"),
    "a black picture": black(f"{STEP}/000/screenshot.png"),
    "pictures exchanged": exchange_files(
        f"{STEP}/000/screenshot.png", f"{STEP}/004/screenshot.png"
    ),
    "half a picture": cut(f"{STEP}/000/screenshot.png"),
    "a picture too many": add(f"{STEP}/099/screenshot.png"),
    "another schema": put("messages.schema.json", "title", "Chat"),
    "no schema": remove("messages.schema.json"),
    "no val": remove("val.jsonl"),
    "a file too many": add("notes.txt"),
}

CUDAG: Mapping[str, Damage] = {
    "another task's instruction": line(
        "train.jsonl", "conversations.0.value", f"<image>\n{OTHER_TASK}"
    ),
    "another answer": line("train.jsonl", "conversations.1.value", "Click anywhere."),
    "another real place": line("train.jsonl", "metadata.real_coords", [9, 9]),
    "another type": line("train.jsonl", "metadata.task_type", "drag"),
    "an unknown type": line("train.jsonl", "metadata.task_type", "tap"),
    "sideways": line("train.jsonl", "metadata.scroll_direction", "sideways"),
    "a tolerance below zero": line("train.jsonl", "metadata.tolerance", [-1, 5]),
    "another tolerance": line("train.jsonl", "metadata.tolerance", [3, 3]),
    "another box": line("train.jsonl", "metadata.target_bbox", [0, 0, 9, 9]),
    "another application": line("train.jsonl", "metadata.application", "gimp"),
    "another step": line("train.jsonl", "metadata.step_index", 7),
    "other words": line("train.jsonl", "metadata.reasoning", "Click anywhere."),
    "null": line("train.jsonl", "metadata.reasoning", None),
    "another record's picture": exchange("train.jsonl", "image", 0, 3),
    "a line less": drop("train.jsonl", 2),
    "a line twice": repeat("train.jsonl", 2),
    "lines exchanged": swap("train.jsonl", 1, 2),
    "lines of data exchanged": swap("data.jsonl", 1, 2),
    "a line of data less": drop("data.jsonl", 2),
    "a test less": drop("test/test.json", 2),
    "another expected action": put("test/test.json", "0.expected_action.name", "tap"),
    "another expected place": put(
        "test/test.json", "0.expected_action.arguments.coordinate.0", lambda x: x + 9
    ),
    "a test record less": drop("test/records.jsonl", 1),
    "a black picture": black("images/20260106_140000_000.png"),
    "pictures exchanged": exchange_files(
        "images/20260106_140000_000.png", "images/20260106_140000_003.png"
    ),
    "half a picture": cut("images/20260106_140000_000.png"),
    "a smaller picture": smaller("images/20260106_140000_000.png"),
    "a picture too many": add("images/left_over.png"),
    "a black test picture": black("test/images/20260105_090000_000.png"),
    "other counts": put("config.json", "task_counts.left-click", 999),
    "another seed": put("config.json", "seed", 7),
    "another prompt": replaced("system_prompt.txt", "computer", "toaster"),
    "other groups": put("splits.json", "splits.train.groups", 9),
    "another group": put("splits.json", "trajectories.first.group", "notes_the_second_task"),
    "no tools": remove("tools.json"),
    "a file too many": add("notes.txt"),
}

_LITE = "cua-lite/demonstrations/desktop/use/train/demonstrations.parquet"
_LITE_IMAGES = "cua-lite/demonstrations/images"
CUA_LITE: Mapping[str, Damage] = {
    "another task's instruction": cell(_LITE, "messages:0.content.1.text", OTHER_TASK),
    "tap": cell(_LITE, "messages:1.tool_calls.0.function.arguments.actions.0.action", "tap"),
    "banana": cell(_LITE, "messages:1.tool_calls.0.function.arguments.actions.0.button", "banana"),
    "another place": cell(
        _LITE,
        "messages:1.tool_calls.0.function.arguments.actions.0.coordinate.0",
        lambda x: x + 9,
    ),
    "a place off the screen": cell(
        _LITE, "messages:1.tool_calls.0.function.arguments.actions.0.coordinate.0", 1001
    ),
    "other words": cell(_LITE, "messages:1.content.0.text", "Click anywhere."),
    "a turn less": cell(
        _LITE, "messages", lambda text: text.replace('"role": "tool"', '"role": "user"', 1)
    ),
    "an id twice": cell(_LITE, "metadata:others.id", "first"),
    "another application": cell(_LITE, "metadata:others.domain", "gimp"),
    "another task": cell(_LITE, "metadata:others.source_id", "notes_the_second_task"),
    "not completed": cell(_LITE, "metadata:others.task_completed", False),
    "an unknown system": cell(_LITE, "metadata:others.os", "amiga"),
    "another system": cell(_LITE, "metadata:others.os", "macos"),
    "other steps": cell(_LITE, "metadata:others.last_step", 2),
    "a pictures column with another order": cell(
        _LITE, "images", lambda images: [images[1], images[0], *images[2:]]
    ),
    "a picture less": cell(_LITE, "images", lambda images: images[:-1]),
    "a row less": drop(_LITE, 1),
    "a row twice": repeat(_LITE, 1),
    "rows exchanged": swap(_LITE, 0, 1),
    "a black picture": black(f"{_LITE_IMAGES}/*/*.png"),
    "half a picture": cut(f"{_LITE_IMAGES}/*/*.png"),
    "a picture gone": remove(f"{_LITE_IMAGES}/*/*.png"),
    "a picture too many": add(f"{_LITE_IMAGES}/aa/{'a' * 64}.png"),
    "a table cut off": cut(_LITE),
    "no table": remove(_LITE),
    "other counts": put("metadata.json", "records.train", 99),
    "a file too many": add("notes.txt"),
}

AGENTNET: Mapping[str, Damage] = {
    "another task's instruction": line("train.jsonl", "instruction", OTHER_TASK),
    "another task's instruction in both": line("code_only/train.jsonl", "instruction", OTHER_TASK),
    "another call": line("train.jsonl", "traj.0.value.code", "pyautogui.tap(x=0.5, y=0.5)"),
    "another place": line("train.jsonl", "traj.0.value.code", "pyautogui.click(x=0.5, y=0.5)"),
    "more than a call": line("train.jsonl", "traj.0.value.code", "import os"),
    "other words": line("train.jsonl", "traj.0.value.action", "Click anywhere."),
    "another application": line("train.jsonl", "domain", "gimp"),
    "not completed": line("train.jsonl", "task_completed", False),
    "a step less": line("train.jsonl", "traj", lambda steps: steps[:-1]),
    "another step's picture": line("train.jsonl", "traj.0.image", "20260106_140000_3.png"),
    "another number": line("train.jsonl", "traj.1.index", 5),
    "an id twice": line("train.jsonl", "task_id", "first"),
    "a line less": drop("train.jsonl", 1),
    "a line less in both": drop("code_only/train.jsonl", 1),
    "a line twice": repeat("train.jsonl", 1),
    "lines exchanged": swap("code_only/train.jsonl", 0, 1),
    "an unknown system": line("meta_data_merged.jsonl", "system", "Amiga"),
    "another system": line("meta_data_merged.jsonl", "system", "Darwin"),
    "a task without a system": drop("meta_data_merged.jsonl"),
    "a black picture": black("images/20260106_140000_0.png"),
    "pictures exchanged": exchange_files(
        "images/20260106_140000_0.png", "images/20260106_140000_3.png"
    ),
    "half a picture": cut("images/20260106_140000_0.png"),
    "a picture gone": remove("images/20260106_140000_0.png"),
    "a picture too many": add("images/left_over.png"),
    "no val": remove("val.jsonl"),
    "a file cut off": cut("train.jsonl"),
    "a file too many": add("notes.txt"),
}

_ATIF = "train/20260106_140000/trajectory.json"
_CUA = "*/*/metadata.json"
_TURN = "*/*/turn_000"
CUA_FOLDER: Mapping[str, Damage] = {
    "another task": put(_CUA, "kwargs.messages.0.content", OTHER_TASK),
    "another id": put(_CUA, "trajectory_id", "first"),
    "still running": put(_CUA, "status", "running"),
    "another time": put(_CUA, "created_at", "1"),
    "more turns": put(_CUA, "total_turns", lambda n: n + 1),
    "an item less": put(_CUA, "new_items", lambda items: items[:-1]),
    "a key too many": put(_CUA, "mood", "good"),
    "cut off": cut(_CUA),
    "another action": replaced(f"{_TURN}/0001_agent_response.json", '"action"', '"deed"'),
    "a response less": remove(f"{_TURN}/0001_agent_response.json"),
    "a result less": remove(f"{_TURN}/0002_computer_call_result.json"),
    "a picture less": remove(f"{_TURN}/0000_screenshot.png"),
    "another picture": black(f"{_TURN}/0000_screenshot.png"),
    "a file too many": add("turn_000/0003_screenshot.png"),
}

ATIF: Mapping[str, Damage] = {
    "another task's instruction": put(_ATIF, "steps.0.message.0.text", OTHER_TASK),
    "tap": put(_ATIF, "steps.1.tool_calls.0.function_name", "tap"),
    "another place": put(_ATIF, "steps.1.tool_calls.0.arguments.x", lambda x: x + 1),
    "a place off the screen": put(_ATIF, "steps.1.tool_calls.0.arguments.x", 5000),
    "sideways": put(
        _ATIF,
        "steps",
        lambda steps: [
            step
            if "scroll" not in str(step)
            else step
            | {
                "tool_calls": [
                    call | {"arguments": call["arguments"] | {"direction": "sideways"}}
                    for call in step["tool_calls"]
                ]
            }
            for step in steps
        ],
    ),
    "other words": put(_ATIF, "steps.1.message", "Click anywhere."),
    "another time": put(_ATIF, "steps.1.timestamp", "1999-01-01T00:00:00+00:00"),
    "times out of order": put(_ATIF, "steps.2.timestamp", "2020-01-01T00:00:00+00:00"),
    "a step less": put(_ATIF, "steps", lambda steps: steps[:-1]),
    "steps out of order": put(
        _ATIF, "steps", lambda steps: [steps[0], steps[2], steps[1], *steps[3:]]
    ),
    "another step's picture": put(
        _ATIF,
        "steps.1.observation.results.0.content.0.source.path",
        "images/003.png",
    ),
    "another id": put(_ATIF, "trajectory_id", "first"),
    "another person": put(_ATIF, "agent.name", "gpt"),
    "another version": put(_ATIF, "schema_version", "ATIF-v0"),
    "a key too many": put(_ATIF, "mood", "good"),
    "cut off": cut(_ATIF),
    "a line less": drop("atif_trajectories.jsonl"),
    "a line twice": repeat("atif_trajectories.jsonl"),
    "another split": line("atif_trajectories.jsonl", "split", "test", 1),
    "an unknown split": line("atif_trajectories.jsonl", "split", "bench"),
    "a black picture": black("train/20260106_140000/images/000.png"),
    "pictures exchanged": exchange_files(
        "train/20260106_140000/images/000.png", "train/20260106_140000/images/003.png"
    ),
    "half a picture": cut("train/20260106_140000/images/000.png"),
    "a picture gone": remove("train/20260106_140000/images/000.png"),
    "a picture too many": add("train/20260106_140000/images/099.png"),
    "other counts": put("metadata.json", "records.train", 99),
    "no counts": remove("metadata.json"),
    "a file too many": add("notes.txt"),
}

GROUNDING: Mapping[str, Damage] = {
    "another box": cell("train.parquet", "box", lambda box: [box[0] + 1, *box[1:]]),
    "a box that ends before it begins": cell("train.parquet", "box", lambda box: box[::-1]),
    "a point outside": cell("train.parquet", "point", [0, 0]),
    "another size": cell("train.parquet", "image_size", [10, 10]),
    "another name": cell("train.parquet", "text", "the Elsewhere button"),
    "an unknown role": cell("train.parquet", "role", "wizard"),
    "another role": cell("train.parquet", "role", "button"),
    "another application": cell("train.parquet", "application", "gimp"),
    "an unknown platform": cell("train.parquet", "platform", "amiga"),
    "another platform": cell("train.parquet", "platform", "macos"),
    "another step's picture": cell("train.parquet", "image", f"{STEP}/005/screenshot.png"),
    "another step": cell("train.parquet", "step_index", 7),
    "an id twice": cell("train.parquet", "id", "20260106_140000_000_node_8"),
    "a row less": drop("train.parquet", 2),
    "a row twice": repeat("train.parquet", 2),
    "rows exchanged": swap("train.parquet", 1, 2),
    "null": null("train.parquet", "text"),
    "an entry less": drop("screenspot/train.json", 2),
    "an unknown kind": put("screenspot/train.json", "0.ui_type", "sound"),
    "another box in an entry": put("screenspot/train.json", "0.bbox.0", lambda x: x + 1),
    "a lite row less": drop("cua_lite/cua-lite/demonstrations/desktop/grounding.bbox/*/*.parquet"),
    "a black picture": black(f"{STEP}/000/screenshot.png"),
    "pictures exchanged": exchange_files(
        "trajectories/20260106_140000/steps/000/screenshot.png",
        "trajectories/first/steps/000/screenshot.png",
    ),
    "half a picture": cut(f"{STEP}/000/screenshot.png"),
    "a picture too many": add(f"{STEP}/099/screenshot.png"),
    "another schema": put("grounding.schema.json", "title", "Chat"),
    "no test": remove("test.parquet"),
    "a table cut off": cut("train.parquet"),
    "a file too many": add("notes.txt"),
}

TRANSITIONS: Mapping[str, Damage] = {
    "another task's instruction": cell("train.parquet", "instruction", OTHER_TASK),
    "tap": cell("train.parquet", "action_type", "tap"),
    "another type": cell("train.parquet", "action:action_type", "double_click"),
    "another place": cell("train.parquet", "action:parameters.x", lambda x: x + 1),
    "sideways": cell(
        "train.parquet",
        "action:parameters.direction",
        "sideways",
        lambda row: row["action_type"] == "scroll",
    ),
    "other words": cell("train.parquet", "reasoning", "Click anywhere."),
    "another application": cell("train.parquet", "application", "gimp"),
    "a wait below zero": cell("train.parquet", "waited_seconds", -1.0),
    "another wait": cell("train.parquet", "waited_seconds", 9.0),
    "before and after exchanged": cell("train.parquet", "before", f"{STEP}/001/screenshot.png"),
    "a later picture after": cell("train.parquet", "after", f"{STEP}/007/screenshot.png"),
    "final": cell("train.parquet", "after_is_final", True),
    "another step": cell("train.parquet", "step_index", 7),
    "another trajectory": cell("train.parquet", "trajectory_id", "first"),
    "a row less": drop("train.parquet", 2),
    "a row twice": repeat("train.parquet", 2),
    "rows exchanged": swap("train.parquet", 1, 2),
    "null": null("train.parquet", "before"),
    "a black picture": black(f"{STEP}/000/screenshot.png"),
    "pictures exchanged": exchange_files(
        f"{STEP}/000/screenshot.png", f"{STEP}/004/screenshot.png"
    ),
    "half a picture": cut(f"{STEP}/000/screenshot.png"),
    "a picture too many": add(f"{STEP}/099/screenshot.png"),
    "another schema": put("transitions.schema.json", "title", "Chat"),
    "no val": remove("val.parquet"),
    "a table cut off": cut("train.parquet"),
    "a file too many": add("notes.txt"),
}

_OUTCOME = "outcome/train.parquet"
STEP_LABELS: Mapping[str, Damage] = {
    "another task's instruction": cell("train.parquet", "prompt", OTHER_TASK),
    "a false label": cell("train.parquet", "labels", lambda labels: [False, *labels[1:]]),
    "a label less": cell("train.parquet", "labels", lambda labels: labels[1:]),
    "another step": cell("train.parquet", "completions.0", '{"action_type": "tap"}'),
    "another place": cell(
        "train.parquet",
        "completions.0",
        '{"action_type": "right_click", "parameters": {"x": 1, "y": 1}}',
    ),
    "steps exchanged": cell(
        "train.parquet", "completions", lambda steps: [steps[1], steps[0], *steps[2:]]
    ),
    "another step's picture": cell(
        "train.parquet", "images", lambda images: [images[1], images[0], *images[2:]]
    ),
    "other steps": cell("train.parquet", "steps", 2),
    "another application": cell("train.parquet", "application", "gimp"),
    "failed": cell("train.parquet", "outcome", "failed"),
    "success flipped": cell(_OUTCOME, "labels", lambda labels: [not labels[0]]),
    "success flipped, both": cell(
        _OUTCOME, "outcome", "success", lambda row: row["outcome"] != "success"
    ),
    "an unknown outcome": cell(_OUTCOME, "outcome", "rotten"),
    "aborted": cell(_OUTCOME, "outcome", "aborted", lambda row: row["outcome"] == "failed"),
    "a failed one less": drop(_OUTCOME, -1),
    "a row less": drop("train.parquet", 1),
    "a row twice": repeat("train.parquet", 1),
    "rows exchanged": swap("train.parquet", 0, 1),
    "a black picture": black(f"{STEP}/000/screenshot.png"),
    "a black last picture": black("trajectories/first/final_screenshot.png"),
    "pictures exchanged": exchange_files(
        f"{STEP}/000/screenshot.png", f"{STEP}/004/screenshot.png"
    ),
    "a picture too many": add(f"{STEP}/099/screenshot.png"),
    "another schema": put("step_labels.schema.json", "title", "Chat"),
    "no outcome": remove("outcome/val.parquet"),
    "a table cut off": cut("train.parquet"),
    "a file too many": add("notes.txt"),
}

_BENCH = "tasks/20260105_090000.json"
AGENTNETBENCH: Mapping[str, Damage] = {
    "another task's instruction": put(_BENCH, "high_level_task_description", OTHER_TASK),
    "tap": put(_BENCH, "steps.0.ground_truth_actions.0.type", "tap"),
    "another action": put(_BENCH, "steps.0.ground_truth_actions.0.type", "rightClick"),
    "another place": put(
        _BENCH, "steps.0.ground_truth_actions.0.params.position.x", lambda x: x + 0.01
    ),
    "a place off the screen": put(_BENCH, "steps.0.ground_truth_actions.0.params.position.x", 1.5),
    "another box": put(
        _BENCH,
        "steps.0.ground_truth_actions.0.metadata.bboxes.0.rel_bbox.0",
        lambda x: x + 0.01,
    ),
    "a box less": put(_BENCH, "steps.0.ground_truth_actions.0.metadata.bboxes", []),
    "a step less": put(_BENCH, "steps", lambda steps: steps[:-1]),
    "steps exchanged": put(_BENCH, "steps", lambda steps: [steps[1], steps[0], *steps[2:]]),
    "no action": put(_BENCH, "steps.0.ground_truth_actions", []),
    "another step's picture": put(_BENCH, "steps.0.image", "20260105_090000_3.png"),
    "other words": put(_BENCH, "steps.0.inner_monologue.low_level_instruction", "Anywhere."),
    "an unknown system": put(_BENCH, "meta_info.system", "Amiga"),
    "another id": put(_BENCH, "task_id", "first"),
    "a task gone": remove(_BENCH),
    "a task cut off": cut(_BENCH),
    "a black picture": black("images/20260105_090000_0.png"),
    "pictures exchanged": exchange_files(
        "images/20260105_090000_0.png", "images/20260105_090000_3.png"
    ),
    "half a picture": cut("images/20260105_090000_0.png"),
    "a picture too many": add("images/left_over.png"),
    "no README": remove("README.md"),
    "a file too many": add("notes.txt"),
}

_QUEST = "examples/notes/first.json"
QUESTS: Mapping[str, Damage] = {
    "another task's instruction": put(_QUEST, "instruction", OTHER_TASK),
    "an evaluator": put(_QUEST, "evaluator", {"func": "infeasible"}),
    "another application": put(_QUEST, "related_apps", ["gimp"]),
    "another snapshot": put(_QUEST, "snapshot", "gimp"),
    "another id": put(_QUEST, "id", "somebody"),
    "another trajectory": put(_QUEST, "trajectory", "trajectories/second"),
    "a setup": put(_QUEST, "config", [{"type": "launch", "parameters": {}}]),
    "a setup of a wrong form": put(_QUEST, "config", "launch"),
    "no instruction": without(_QUEST, "instruction"),
    "cut off": cut(_QUEST),
    "a quest gone": remove(_QUEST),
    "a quest too many": add("examples/notes/left_over.json", b"{}"),
    "quests exchanged": exchange_files(_QUEST, "examples/notes/second.json"),
    "the list emptied": replaced_by("test_all.json", b"{}"),
    "no list": remove("test_all.json"),
    "a quest less in the list": put("test_all.json", "notes", lambda ids: ids[1:]),
    "a quest twice in the list": put("test_all.json", "notes", lambda ids: [ids[0], *ids]),
    "a file too many": add("notes.txt"),
}

INDEX: Mapping[str, Damage] = {
    "a trajectory less": put("index.json", "trajectories", lambda entries: entries[1:]),
    "another count": put("index.json", "total_trajectories", 99),
    "success flipped": put("index.json", "trajectories.0.success", False),
    "another version": put("index.json", "version", "9.9"),
    "entries exchanged": put(
        "index.json", "trajectories", lambda entries: [entries[1], entries[0], *entries[2:]]
    ),
    "cut off": cut("index.json"),
    "another number of steps": put("metadata.json", "counts.steps", 1),
    "other applications": put("metadata.json", "counts.applications", {"gimp": 1}),
    "another seed": put("metadata.json", "configuration.seed", 7),
    "another program": put("metadata.json", "created_by.name", "somebody"),
    "a row less": drop("trajectories.parquet"),
    "rows exchanged": swap("trajectories.parquet"),
    "success flipped in the table": cell("trajectories.parquet", "success", False),
    "impossible": cell("trajectories.parquet", "difficulty", "impossible"),
    "another difficulty": cell("trajectories.parquet", "difficulty", "hard"),
    "another task": cell("trajectories.parquet", "task_id", "notes_the_second_task"),
    "another time taken": cell("trajectories.parquet", "completion_time_ms", 5),
    "hidden actions below zero": cell("trajectories.parquet", "hidden_actions", -1),
    "other reasons": cell("trajectories.parquet", "hidden_reasons.off_screen", 7),
    "complete": cell("trajectories.parquet", "complete", lambda complete: not complete),
    "a step less": drop("steps.parquet", 3),
    "a step twice": repeat("steps.parquet", 3),
    "steps exchanged": swap("steps.parquet", 2, 3),
    "rotten": cell("steps.parquet", "freshness", "rotten"),
    "another lead": cell("steps.parquet", "lead_ms", 1.5, 4),
    "a leak": cell("steps.parquet", "leak", True, 4),
    "another group": cell("steps.parquet", "split_group", "notes_the_second_task", 4),
    "null": null("steps.parquet", "action_type", 4),
    "a hidden action less": drop("hidden_actions.parquet"),
    "an unknown reason": cell("hidden_actions.parquet", "reason", "shy"),
    "another hidden action": cell("hidden_actions.parquet", "action_type", "drag"),
    "an export less": drop("exports.parquet"),
    "another split": cell("exports.parquet", "split", "val"),
    "an unknown split": cell("exports.parquet", "split", "bench"),
    "an unknown status": cell("exports.parquet", "status", "rotten"),
    "other records": cell("exports.parquet", "records", 99),
    "another export": cell("exports.parquet", "export", "toast"),
    "other bytes": cell("exports.parquet", "bytes", -1),
    "another split in the document": put("exports.json", "trajectories.first.split", "test"),
    "other records in the document": put("exports.json", "exports.sft.records", 1),
    "a document cut off": cut("exports.json"),
    "a table cut off": cut("steps.parquet"),
    "a column less": without_column("steps.parquet", "leak"),
    "numbers as text": retyped("trajectories.parquet", "steps"),
    "a trajectory's folder gone": remove("trajectories/first"),
    "trajectories exchanged": exchange_files("trajectories/first", "trajectories/second"),
    "no table": remove("hidden_actions.parquet"),
    "a file too many": add("notes.txt"),
}

STATISTICS: Mapping[str, Damage] = {
    "another count": put("statistics.json", "overview.0.trajectories", 99),
    "another number of steps": put("statistics.json", "overview.0.steps", 1),
    "fewer successes": put("statistics.json", "overview.0.successful", lambda count: count - 1),
    "other minutes": put("statistics.json", "overview.0.minutes", 99.5),
    "an application less": put("statistics.json", "applications", lambda rows: rows[1:]),
    "another application": put("statistics.json", "applications.0.application", "gimp"),
    "tap": put("statistics.json", "actions.0.action_type", "tap"),
    "another share": put("statistics.json", "actions.0.share", 0.9),
    "another rate": put("statistics.json", "leak_rates.0.leak_rate", 0.9),
    "rows exchanged": put("statistics.json", "frames", lambda rows: rows[::-1]),
    "rotten": put("statistics.json", "trees.0.freshness", "rotten"),
    "other samples": put("statistics.json", "sft_splits.0.samples", 1),
    "a table less": without("statistics.json", "screens"),
    "cut off": cut("statistics.json"),
    "gone": remove("statistics.json"),
    "another view": replaced("views.sql", "sft/samples.parquet", "sft/train.parquet"),
    "no views": remove("views.sql"),
    "views cut off": cut("views.sql"),
    "a file too many": add("notes.txt"),
}

_CATALOG, _FAULTS = "catalog.parquet", "problems.parquet"
TASKS: Mapping[str, Damage] = {
    "an unknown kind": cell(_CATALOG, "kind", "dangerous"),
    "another kind": cell(_CATALOG, "kind", "ordinary"),
    "another task's instruction": cell(_CATALOG, "instruction", OTHER_TASK),
    "another key": cell(_CATALOG, "instruction_key", "do the second task"),
    "no id": cell(_CATALOG, "task_id", ""),
    "another id": cell(_CATALOG, "task_id", "00000000"),
    "another file": cell(_CATALOG, "file", "examples/os/left_over.json"),
    "another domain": cell(_CATALOG, "domain", "gimp"),
    "not listed": cell(_CATALOG, "listed", lambda listed: not listed),
    "an unknown evaluator": cell(_CATALOG, "evaluator", "oracle"),
    "other functions": cell(_CATALOG, "evaluator_functions", ["always"]),
    "other applications": cell(_CATALOG, "related_apps", ["gimp"]),
    "warnings below zero": cell(_CATALOG, "warnings", -1),
    "another document": cell(_CATALOG, "document", "{}"),
    "a document cut off": cell(_CATALOG, "document", lambda text: text[:40]),
    "a row less": drop(_CATALOG),
    "a row twice": repeat(_CATALOG),
    "rows exchanged": swap(_CATALOG),
    "null": null(_CATALOG, "instruction"),
    "a column less": without_column(_CATALOG, "domain"),
    "a table cut off": cut(_CATALOG),
    "no problems": remove(_FAULTS),
    "a file too many": add("notes.txt"),
}

_QUARANTINE = "quarantine.parquet"
QUARANTINE: Mapping[str, Damage] = {
    "an unknown stage": cell(_QUARANTINE, "stage", "cooking"),
    "another stage": cell(_QUARANTINE, "stage", "events"),
    "an unknown severity": cell(_QUARANTINE, "severity", "rotten"),
    "a warning": cell(_QUARANTINE, "severity", "warning"),
    "another demonstration": cell(_QUARANTINE, "demonstration", "first"),
    "no code": cell(_QUARANTINE, "code", ""),
    "another file": cell(_QUARANTINE, "file", "meta.json"),
    "a line below one": cell(_QUARANTINE, "line", 0),
    "a byte below zero": cell(_QUARANTINE, "byte", -1),
    "another message": cell(_QUARANTINE, "message", "is fine"),
    "no remedy": cell(_QUARANTINE, "remedy", ""),
    "another fingerprint": cell(_QUARANTINE, "fingerprint", "0" * 64),
    "no attempt": cell(_QUARANTINE, "attempts", 0),
    "another version": cell(_QUARANTINE, "tool_version", "9"),
    "emptied": emptied(_QUARANTINE),
    "a row twice": repeat(_QUARANTINE),
    "null": null(_QUARANTINE, "message"),
    "a column less": without_column(_QUARANTINE, "code"),
    "cut off": cut(_QUARANTINE),
    "gone": remove(_QUARANTINE),
    "a file too many": add("notes.txt"),
}
