"""The checker of CUA-Lite refuses every change that its readers would not take, and says where."""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo_pipeline.exports.cua_lite import LITE_SCHEMA, validate_cua_lite
from demo_pipeline_tests.datasets.builders import picture

Row = dict[str, Any]
Change = Callable[[Row], object]
PICTURES = [picture(shade, 64, 36) for shade in range(3)]
TABLE = "cua-lite/demos/desktop/use/train/all.parquet"


def address(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f"cua-lite/demos/images/{digest[:2]}/{digest}.png"


def call(number: int, *actions: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"call_{number:04d}",
        "type": "function",
        "function": {"name": "computer", "arguments": {"actions": list(actions)}},
    }


def turn(number: int, *actions: dict[str, Any]) -> dict[str, Any]:
    said = [{"type": "action_description", "text": "Do it."}]
    return {"role": "assistant", "content": said, "tool_calls": [call(number, *actions)]}


def result(number: int) -> dict[str, Any]:
    shown = [{"type": "image", "index": number + 1}]
    return {"role": "tool", "tool_call_id": f"call_{number:04d}", "content": shown}


CLICK = {"action": "click", "coordinate": [500, 300], "button": "right"}
KEY = {"action": "key", "keys": ["ctrl", "c"]}
GOOD: Row = {
    "images": [address(data) for data in PICTURES],
    "messages": [
        {
            "role": "user",
            "content": [{"type": "image", "index": 0}, {"type": "text", "text": "Open it"}],
        },
        turn(0, CLICK),
        result(0),
        turn(1, KEY, {"action": "scroll", "direction": "up", "amount": 2, "coordinate": [1, 2]}),
        result(1),
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ],
    "metadata": {
        "metadata_kind": "cua",
        "dims": ["desktop", "use"],
        "extra_tool_schemas": [],
        "valid_actions": None,
        "others": {"id": "demo", "resolution": [64, 36], "os": "windows", "source": "here"},
    },
}
OTHER_ACTIONS: list[dict[str, Any]] = [
    {"action": "drag", "start_coordinate": [0, 0], "coordinate": [1000, 1000], "button": "middle"},
    {"action": "drag", "coordinate": [1, 1]},
    {"action": "type", "text": "a\n"},
    {"action": "key_down", "keys": ["meta"]},
    {"action": "key_up", "keys": ["f24"]},
    {"action": "hold_key", "keys": ["+"], "duration": 0.5},
    {"action": "mouse_move", "coordinate": [1, 1]},
    {"action": "mouse_down"},
    {"action": "mouse_up", "button": "right"},
    {"action": "wait", "duration": 2},
    {"action": "screenshot"},
    {"action": "cursor_position"},
    {"action": "click", "coordinate": [1, 1], "clicks": 3},
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for data in PICTURES:
        path = tmp_path / address(data)
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    return tmp_path


def write(root: Path, *rows: Row, table: str = TABLE, schema: pa.Schema = LITE_SCHEMA) -> None:
    texts = [
        {
            key: value if key == "images" or isinstance(value, str) else json.dumps(value)
            for key, value in row.items()
        }
        for row in rows
    ]
    (root / table).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(texts, schema), root / table)


def codes(root: Path) -> list[str]:
    return [problem.code for problem in validate_cua_lite(root)]


def changed(change: Change) -> Row:
    row = copy.deepcopy(GOOD)
    change(row)
    return row


def test_a_good_row_is_good(root: Path) -> None:
    write(root, GOOD)
    assert validate_cua_lite(root) == []


@pytest.mark.parametrize("action", OTHER_ACTIONS, ids=lambda action: action["action"])
def test_every_action_of_the_form_is_good(root: Path, action: dict[str, Any]) -> None:
    write(root, changed(lambda row: actions(row).append(action)))
    assert validate_cua_lite(root) == []


def test_a_row_that_ends_with_a_call_without_a_result_is_good(root: Path) -> None:
    def cut(row: Row) -> None:
        del row["messages"][4:]
        row["images"].pop()

    (root / GOOD["images"][2]).unlink()
    write(root, changed(cut))
    assert validate_cua_lite(root) == []


def actions(row: Row, turn: int = 1) -> list[dict[str, Any]]:
    return row["messages"][turn]["tool_calls"][0]["function"]["arguments"]["actions"]


def on_action(**members: Any) -> Change:
    return lambda row: actions(row)[0].update(members)


def instead(**members: Any) -> Change:
    return lambda row: actions(row).__setitem__(0, members)


def on_call(**members: Any) -> Change:
    return lambda row: row["messages"][1]["tool_calls"][0].update(members)


def on_function(**members: Any) -> Change:
    return lambda row: row["messages"][1]["tool_calls"][0]["function"].update(members)


def on_metadata(**members: Any) -> Change:
    return lambda row: row["metadata"].update(members)


def on_others(**members: Any) -> Change:
    return lambda row: row["metadata"]["others"].update(members)


def on_turn(number: int, **members: Any) -> Change:
    return lambda row: row["messages"][number].update(members)


def flat_call(row: Row) -> None:
    flat = {"call_id": "call_0000", "name": "computer", "arguments": {"actions": [CLICK]}}
    row["messages"][1]["tool_calls"] = [flat]


def terminate(row: Row) -> None:
    row["messages"][5]["tool_calls"] = [call(2)]
    function = {"name": "terminate", "arguments": {"status": "success"}}
    row["messages"][5]["tool_calls"][0]["function"] = function


DONE = {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}
MUTATIONS: dict[str, tuple[str, Change]] = {
    "a place beyond the edge": ("arguments", on_action(coordinate=[1001, 0])),
    "a place before the edge": ("arguments", on_action(coordinate=[0, -1])),
    "a place in parts": ("arguments", on_action(coordinate=[0.5, 0.5])),
    "a place of one number": ("arguments", on_action(coordinate=[500])),
    "a place of three numbers": ("arguments", on_action(coordinate=[1, 2, 3])),
    "a place as text": ("arguments", on_action(coordinate="500, 300")),
    "no place": ("no_place", lambda row: actions(row)[0].pop("coordinate")),
    "no place of a scroll": ("no_place", lambda row: actions(row, 3)[1].pop("coordinate")),
    "an unknown button": ("arguments", on_action(button="back")),
    "four clicks": ("arguments", on_action(clicks=4)),
    "no click": ("arguments", on_action(clicks=0)),
    "clicks as true": ("arguments", on_action(clicks=True)),
    "an unknown member": ("arguments", on_action(modifiers=["ctrl"])),
    "an unknown action": ("arguments", instead(action="double_click", coordinate=[1, 2])),
    "a terminate action": ("arguments", instead(action="terminate", status="success")),
    "no action name": ("arguments", instead(coordinate=[1, 2])),
    "no actions": ("arguments", lambda row: actions(row).clear()),
    "a capital key": ("arguments", instead(action="key", keys=["C"])),
    "another name of a key": ("arguments", instead(action="key", keys=["Return"])),
    "one of our names of a key": ("arguments", instead(action="key", keys=["win"])),
    "a key beyond ASCII": ("arguments", instead(action="key", keys=["é"])),
    "two characters as a key": ("arguments", instead(action="key", keys=["ab"])),
    "no keys": ("arguments", instead(action="key", keys=[])),
    "keys as text": ("arguments", instead(action="key", keys="ctrl")),
    "a scroll by nothing": ("arguments", lambda row: actions(row, 3)[1].update(amount=0)),
    "a scroll backwards": ("arguments", lambda row: actions(row, 3)[1].update(amount=-2)),
    "a scroll in pieces": ("arguments", lambda row: actions(row, 3)[1].update(amount=1.5)),
    "a scroll inwards": ("arguments", lambda row: actions(row, 3)[1].update(direction="in")),
    "a wait before now": ("arguments", instead(action="wait", duration=-1)),
    "a number as text to type": ("arguments", instead(action="type", text=7)),
    "a drag to nowhere": ("arguments", instead(action="drag", start_coordinate=[1, 2])),
    "the older, flat call": ("messages", flat_call),
    "a call of another kind": ("messages", on_call(type="tool")),
    "a call without an id": ("messages", lambda row: row["messages"][1]["tool_calls"][0].pop("id")),
    "an empty id": ("messages", on_call(id="")),
    "the same id twice": (
        "call_id",
        lambda row: row["messages"][3]["tool_calls"].append(call(0, KEY)),
    ),
    "another tool": ("messages", on_function(name="finished")),
    "a tool of grounding": ("tool", on_function(name="point", arguments={"coordinate": [1, 2]})),
    "arguments as text": ("messages", on_function(arguments='{"actions": []}')),
    "a terminate call": ("messages", terminate),
    "no result": ("no_result", lambda row: row["messages"].pop(2)),
    "a result of no call": ("orphan_result", on_turn(2, tool_call_id="call_0007")),
    "a result twice": ("orphan_result", lambda row: row["messages"].insert(3, result(0))),
    "a result under another key": ("messages", on_turn(2, call_id="call_0000")),
    "a result in words": ("messages", on_turn(2, content=[{"type": "text", "text": "ok"}])),
    "a result at the end": ("end", lambda row: row["messages"].pop()),
    "two turns of the assistant": ("roles", lambda row: row["messages"].append(DONE)),
    "a second question": ("roles", lambda row: row["messages"].insert(5, row["messages"][0])),
    "a system's turn": ("messages", lambda row: row["messages"].insert(0, {"role": "system"})),
    "the assistant first": ("first_turn", lambda row: row["messages"].pop(0)),
    "the text before the image": (
        "first_turn",
        lambda row: row["messages"][0]["content"].reverse(),
    ),
    "no text": ("first_turn", lambda row: row["messages"][0]["content"].pop()),
    "an image token in the text": (
        "marker",
        lambda row: row["messages"][0]["content"][1].update(text="Look at <image>"),
    ),
    "other last words": ("end", on_turn(5, content=[{"type": "text", "text": "I am done"}])),
    "an empty last turn": ("end", on_turn(5, content=[])),
    "an unknown kind of words": ("messages", on_turn(1, content=[{"type": "think", "text": "a"}])),
    "the raw answer beside": ("messages", on_turn(1, raw_response="x")),
    "an image number beyond": ("image_index", on_turn(4, content=[{"type": "image", "index": 3}])),
    "an image twice": ("image_index", on_turn(4, content=[{"type": "image", "index": 1}])),
    "an image that nothing shows": (
        "image_index",
        lambda row: row["images"].append(row["images"][0]),
    ),
    "an image of another dataset": (
        "images",
        lambda row: row["images"].__setitem__(0, row["images"][0].replace("demos", "others")),
    ),
    "an image in the wrong folder": (
        "images",
        lambda row: row["images"].__setitem__(0, row["images"][0].replace("images/", "images/0")),
    ),
    "an image that is missing": (
        "image",
        lambda row: row["images"].__setitem__(0, address(b"nothing")),
    ),
    "a path out of the folder": ("images", lambda row: row["images"].__setitem__(0, "../a.png")),
    "a split in the metadata": ("metadata", on_metadata(split="train")),
    "a split among the others": ("split", on_others(split="train")),
    "another kind of metadata": ("metadata", on_metadata(metadata_kind="chat")),
    "another platform": ("dims", on_metadata(dims=["mobile", "use"])),
    "dims of one name": ("metadata", on_metadata(dims=["desktop"])),
    "tools of its own": ("metadata", on_metadata(extra_tool_schemas=[{"name": "answer"}])),
    "a choice of actions": ("metadata", on_metadata(valid_actions=["click"])),
    "no choice of actions": ("metadata", lambda row: row["metadata"].pop("valid_actions")),
    "an unknown system": ("metadata", on_others(os="linux")),
    "no id": ("metadata", lambda row: row["metadata"]["others"].pop("id")),
    "an empty resolution": ("metadata", on_others(resolution=[0, 36])),
    "messages that are not a list": ("messages", lambda row: row.update(messages={})),
    "messages that are not JSON": ("messages", lambda row: row.update(messages="[")),
    "metadata that is not JSON": ("metadata", lambda row: row.update(metadata="{")),
    "no call at all": (
        "calls",
        lambda row: row.update(messages=[row["messages"][0], DONE], images=row["images"][:1]),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_change_is_refused_at_its_row(root: Path, name: str) -> None:
    code, change = MUTATIONS[name]
    write(root, changed(on_others(id="first")), changed(change))
    found = [one for one in validate_cua_lite(root) if one.code != "unused_image"]
    assert code in {problem.code for problem in found}
    assert {problem.location for problem in found} == {f"{TABLE}:2"}


class TestFiles:
    def test_the_same_id_in_two_files(self, root: Path) -> None:
        write(root, GOOD)
        write(root, GOOD, table="cua-lite/demos/desktop/use/validation/all.parquet")
        assert codes(root) == ["duplicate_id"]

    @pytest.mark.parametrize(
        "folder", ["desktop/use/test", "linux/use/train", "desktop/chat/train"]
    )
    def test_a_folder_that_no_reader_knows(self, root: Path, folder: str) -> None:
        write(root, GOOD)
        write(root, GOOD, table=f"cua-lite/demos/{folder}/all.parquet")
        assert codes(root) == ["layout"]

    def test_another_column(self, root: Path) -> None:
        write(root, GOOD, schema=LITE_SCHEMA.append(pa.field("split", pa.string())))
        assert codes(root) == ["columns", "unused_image"]

    def test_wider_texts_are_texts_too(self, root: Path) -> None:
        wide = pa.large_string()
        names = {"images": pa.list_(wide), "messages": wide, "metadata": wide}
        write(root, GOOD, schema=pa.schema(names))
        assert validate_cua_lite(root) == []

    def test_an_image_with_another_content(self, root: Path) -> None:
        write(root, GOOD)
        (root / GOOD["images"][1]).write_bytes(PICTURES[0])
        assert codes(root) == ["image"]

    def test_an_image_that_is_cut_off(self, root: Path) -> None:
        write(root, GOOD)
        (root / GOOD["images"][1]).write_bytes(PICTURES[1][:-20])
        assert codes(root) == ["image"]

    def test_an_image_that_no_row_names(self, root: Path) -> None:
        write(root, GOOD)
        path = root / address(b"more")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"more")
        assert codes(root) == ["unused_image"]

    def test_a_table_that_cannot_be_read(self, root: Path) -> None:
        write(root, GOOD)
        (root / TABLE).write_bytes(b"PAR1")
        assert codes(root) == ["unreadable_table", "unused_image"]

    def test_no_dataset(self, tmp_path: Path) -> None:
        assert codes(tmp_path) == ["missing_file"]


class TestOtherTaskTypes:
    """Rows of one question."""

    @staticmethod
    def row(task_type: str, name: str, arguments: dict[str, Any]) -> Row:
        def change(row: Row) -> None:
            row["metadata"]["dims"] = ["desktop", task_type]
            row["images"] = row["images"][:1]
            row["messages"] = row["messages"][:2]
            row["messages"][1]["tool_calls"][0]["function"] = {"name": name, "arguments": arguments}

        return changed(change)

    def found(self, root: Path, task_type: str, name: str, arguments: dict[str, Any]) -> list[str]:
        table = f"cua-lite/demos/desktop/{task_type}/train/all.parquet"
        write(root, self.row(task_type, name, arguments), table=table)
        return [code for code in codes(root) if code != "unused_image"]

    def test_points_and_boxes(self, root: Path) -> None:
        assert self.found(root, "grounding.point", "point", {"coordinate": [1, 2]}) == []
        assert self.found(root, "grounding.bbox", "bbox", {"coordinate": [1, 2, 3, 4]}) == [
            "duplicate_id"
        ]

    def test_an_action(self, root: Path) -> None:
        assert self.found(root, "grounding.action", "computer", {"actions": [CLICK]}) == []

    @pytest.mark.parametrize(
        ("task_type", "name", "arguments", "code"),
        [
            ("grounding.point", "bbox", {"coordinate": [1, 2, 3, 4]}, "tool"),
            ("grounding.point", "point", {"coordinate": [1, 2, 3, 4]}, "arguments"),
            ("grounding.bbox", "bbox", {"coordinate": [5, 2, 3, 4]}, "box"),
            ("grounding.bbox", "bbox", {"coordinate": [1, 2, 3, 1001]}, "arguments"),
            ("understanding", "point", {"coordinate": [1, 2]}, "calls"),
        ],
    )
    def test_what_does_not_fit(
        self, root: Path, task_type: str, name: str, arguments: dict[str, Any], code: str
    ) -> None:
        assert code in self.found(root, task_type, name, arguments)
