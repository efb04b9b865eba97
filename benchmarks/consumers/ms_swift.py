"""ms-swift: its dataset loader, preprocessor, template and collator."""

import os
from pathlib import Path

from reported import lines_of, places, row
from swift.dataset import load_dataset
from swift.model import get_processor
from swift.template import get_template


def encode(dataset: str, model: Path) -> tuple[int, int]:
    """The samples that are encoded, and their labels."""
    data, _ = load_dataset(dataset, use_hf=True, load_from_cache_file=False)
    processor = get_processor(str(model), model_type="qwen2_5_vl")
    template = get_template(processor, max_length=8192, template_type="qwen2_5_vl")
    template.set_mode("train")
    after = labels = 0
    for one in data:
        batch = template.data_collator([template.encode(one)])
        kept = batch["labels"][batch["labels"] != -100]
        assert batch["image_grid_thw"].shape[0] == 1
        if not after:
            print("first labels:", repr(processor.tokenizer.decode(kept)))
        after, labels = after + 1, labels + kept.numel()
    return after, labels


def main() -> None:
    """The JSON Lines and the tables with paths, and the tables with pictures."""
    export, model = (path.resolve() for path in places())
    root = export / "messages"
    os.environ["ROOT_IMAGE_DIR"] = str(root)
    count = len(lines_of(root / "train.jsonl"))
    row("messages (JSON Lines)", count, *encode(f"{root}/train.jsonl", model))
    row("messages (tables)", count, *encode(f"{root}/train.parquet", model))
    pictures = encode(f"{export}/embedded/train.parquet", model)
    row("messages (tables with pictures)", count, *pictures)


if __name__ == "__main__":
    main()
