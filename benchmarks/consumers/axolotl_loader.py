"""Axolotl: its dataset loader, multimodal strategy and collator; without its GPU packages."""

import os
from pathlib import Path

from axolotl.processing_strategies import get_processing_strategy
from axolotl.utils.collators.mm_chat import MultiModalChatDataCollator
from axolotl.utils.data.shared import load_dataset_with_config
from axolotl.utils.dict import DictDefault
from reported import lines_of, places, row
from transformers import AutoProcessor


def collate(config: dict[str, str], model: Path) -> tuple[int, int]:
    """The samples that are collated, and their labels."""
    data = load_dataset_with_config(DictDefault({"split": "train", **config}), use_auth_token=False)
    processor = AutoProcessor.from_pretrained(model)
    strategy = get_processing_strategy(processor, None, "qwen2_vl")
    collator = MultiModalChatDataCollator(processor.tokenizer, strategy)
    after = labels = 0
    for one in data:
        batch = collator([one])
        kept = batch["labels"][batch["labels"] != -100]
        assert batch["image_grid_thw"].shape[0] == 1
        if not after:
            print("first labels:", repr(processor.tokenizer.decode(kept)))
        after, labels = after + 1, labels + kept.numel()
    return after, labels


def main() -> None:
    """The JSON Lines, started in their folder, and tables with pictures, started anywhere."""
    export, model = (path.resolve() for path in places())
    count = len(lines_of(export / "messages/train.jsonl"))
    row("messages (tables with pictures)", count, *collate({"path": f"{export}/embedded"}, model))
    os.chdir(export / "messages")
    row(
        "messages (JSON Lines)",
        count,
        *collate({"path": str(export / "messages/train.jsonl"), "ds_type": "json"}, model),
    )


if __name__ == "__main__":
    main()
