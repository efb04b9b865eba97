"""Axolotl: its dataset loader, multimodal strategy and collator; without its GPU packages."""

import os
from pathlib import Path

from axolotl.processing_strategies import get_processing_strategy
from axolotl.utils.collators.mm_chat import MultiModalChatDataCollator
from axolotl.utils.data.shared import load_dataset_with_config
from axolotl.utils.dict import DictDefault
from reported import answers, learned, places, row
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration


def collate(config: dict[str, str], said: list[str], model: Path) -> tuple[int, int]:
    """The samples that keep their answer, and their labels."""
    data = load_dataset_with_config(DictDefault({"split": "train", **config}), use_auth_token=False)
    processor = AutoProcessor.from_pretrained(model)
    strategy = get_processing_strategy(processor, None, "qwen2_vl")
    collator = MultiModalChatDataCollator(processor.tokenizer, strategy)
    batches = (collator([one]) for one in data)
    loaded = Qwen2_5_VLForConditionalGeneration.from_pretrained(model)
    return learned(batches, said, processor.tokenizer, loaded)


def main() -> None:
    """The JSON Lines, started in their folder."""
    export, model = (path.resolve() for path in places())
    lines = export / "messages/train.jsonl"
    said = answers(lines)
    os.chdir(lines.parent)
    chats = collate({"path": str(lines), "ds_type": "json"}, said, model)
    row("messages (JSON Lines)", len(said), *chats)


if __name__ == "__main__":
    main()
