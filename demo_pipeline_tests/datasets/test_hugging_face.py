"""Loading the exports with `datasets`: every split, any mix of action types."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import pytest

from demo_pipeline.datasets.card_content import describe_cudag, describe_messages, describe_sft
from demo_pipeline.datasets.cudag_build import build_cudag
from demo_pipeline.datasets.messages import build_messages
from demo_pipeline.datasets.sft import build_sft
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import TABLE, make_trajectory, read_lines

BUILD = {
    "sft": (build_sft, describe_sft),
    "messages": (build_messages, describe_messages),
    "cudag": (build_cudag, describe_cudag),
}
STYLES = ("text", "structured")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`load_dataset` with a cache of its own, off the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hub")))
        import datasets

        datasets.disable_progress_bars()
        yield datasets.load_dataset


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every export of demonstrations that have one action type each, so no split has all."""
    root = tmp_path_factory.mktemp("exports")
    demos = [
        make_trajectory(root, f"demo_{number}", [step], instruction=f"Task {number}", shade=number)
        for number, step in enumerate(TABLE)
    ]
    provenance = [demo.provenance for demo in demos]
    for name, (build, describe) in BUILD.items():
        build(demos, root / name, DatasetSettings())
        describe(root / name, DatasetSettings(), provenance, {})
    for style in STYLES:
        settings = DatasetSettings(tool_call_format=style)
        build_messages(demos, root / style, settings)
        describe_messages(root / style, settings, provenance, {})
    return root


@pytest.mark.parametrize("name", ["sft", "messages", "structured"])
def test_the_folder_alone_is_enough_to_load_its_splits(exports: Path, hub: Any, name: str) -> None:
    loaded = hub(str(exports / name), cache_dir=str(exports / "cache"))
    assert set(loaded) == {"train", "val", "test"}
    for split, rows in loaded.items():
        assert len(rows) == len(read_lines(exports / name / f"{split}.jsonl")) > 0


def test_a_sample_read_back_is_the_line_that_was_written(exports: Path, hub: Any) -> None:
    loaded = hub(str(exports / "sft"), cache_dir=str(exports / "cache"))
    for split, rows in loaded.items():
        for row, line in zip(rows, read_lines(exports / "sft" / f"{split}.jsonl"), strict=True):
            assert json.loads(row["action"]) == line["output"]["action"]
            assert json.loads(row["history"]) == line["input"]["history"]
            assert {key: row[key] for key in ("instruction", "screenshot", "ui_tree")} == {
                key: line["input"][key] for key in ("instruction", "screenshot", "ui_tree")
            }


def filled(value: Any) -> Any:
    """The value without the keys that a table has to fill with nothing."""
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items() if item is not None}
    if isinstance(value, str | int | None):
        return value
    return [filled(item) for item in value]


@pytest.mark.parametrize("name", STYLES)
def test_messages_load_from_json_lines_as_from_parquet(exports: Path, hub: Any, name: str) -> None:
    files = {split: str(exports / name / f"{split}.jsonl") for split in ("train", "val", "test")}
    lines = hub("json", data_files=files, cache_dir=str(exports / "cache"))
    table = hub(str(exports / name), cache_dir=str(exports / "cache"))
    for split in files:
        assert filled(lines[split]["messages"]) == filled(table[split]["messages"])


def test_cudag_train_and_val_load_together_and_the_tests_apart(exports: Path, hub: Any) -> None:
    loaded = hub(str(exports / "cudag"), cache_dir=str(exports / "cache"))
    assert set(loaded) == {"train", "val"}
    kinds = {row["metadata"]["task_type"] for rows in loaded.values() for row in rows}
    assert len(kinds) > 8
    tests = hub(str(exports / "cudag"), "test", cache_dir=str(exports / "cache"))
    written = json.loads((exports / "cudag" / "test" / "test.json").read_text())
    assert [row["test_id"] for row in tests["test"]] == [test["test_id"] for test in written]


def qwen_turns(conversations: list[dict[str, str]], images: list[Path]) -> tuple[str, str]:
    """What a Qwen-VL trainer makes of a record: the text with pictures, and what it learns."""
    assert [turn["from"] for turn in conversations] == ["human", "gpt"]
    human, gpt = (turn["value"] for turn in conversations)
    pads = iter(images)
    asked = re.sub("<image>", lambda _: f"<|vision_start|>{next(pads).name}<|vision_end|>", human)
    assert next(pads, None) is None
    assert "<image>" not in gpt
    text = f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n"
    return text, f"{gpt}<|im_end|>"


def test_a_trainers_preprocessing_takes_five_records(exports: Path, hub: Any) -> None:
    loaded = hub(str(exports / "cudag"), cache_dir=str(exports / "cache"))
    for row in loaded["train"].select(range(5)):
        image = exports / "cudag" / row["image"]
        asked, learnt = qwen_turns(row["conversations"], [image])
        assert asked.count("<|vision_start|>") == 1
        assert asked.count("<|im_start|>") == 2
        picture = cv2.imread(str(image))
        assert picture is not None
        assert picture.shape == (1080, 1920, 3)
        call = json.loads(learnt.split("\n")[1])
        assert call["name"] == "computer_use"


def test_a_chat_template_takes_five_records(exports: Path, hub: Any) -> None:
    loaded = hub(str(exports / "messages"), cache_dir=str(exports / "cache"))
    for row in loaded["train"].select(range(5)):
        paths = iter(row["images"])
        text = ""
        for message in row["messages"]:
            parts = [
                f"<|image|>{next(paths)}" if part["type"] == "image" else part["text"]
                for part in message["content"]
            ]
            text += f"<|im_start|>{message['role']}\n{''.join(parts)}<|im_end|>\n"
        assert next(paths, None) is None
        assert [line[12:] for line in text.split("\n") if line.startswith("<|im_start|>")] == [
            "system",
            "user",
            "assistant",
        ]
        assert cv2.imread(str(exports / "messages" / row["images"][0])) is not None
