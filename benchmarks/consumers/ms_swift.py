"""ms-swift: its dataset loader, preprocessor, template and collator."""

import os
from pathlib import Path

from reported import answers, chosen, learned, places, row
from swift.dataset import load_dataset
from swift.model import get_processor
from swift.template import get_template
from transformers import Qwen2_5_VLForConditionalGeneration


def encode(dataset: str, said: list[str], model: Path) -> tuple[int, int]:
    """The samples that keep their answer, and their labels."""
    data, _ = load_dataset(dataset, use_hf=True, load_from_cache_file=False)
    processor = get_processor(str(model), model_type="qwen2_5_vl")
    template = get_template(processor, max_length=8192, template_type="qwen2_5_vl")
    template.set_mode("train")
    # It knows the number that the token has in the real tokenizer.
    template.image_token_id = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    looked_at = chosen(data) if len(data) == len(said) else []
    batches = (template.data_collator([template.encode(data[n])]) for n in looked_at)
    said = [said[number] for number in looked_at]
    loaded = Qwen2_5_VLForConditionalGeneration.from_pretrained(model)
    return learned(batches, said, processor.tokenizer, loaded)


def main() -> None:
    """The JSON Lines and the tables."""
    export, model = (path.resolve() for path in places())
    root = export / "messages"
    os.environ["ROOT_IMAGE_DIR"] = str(root)
    said = answers(root / "train.jsonl")
    for name, file in {
        "JSON Lines": root / "train.jsonl",
        "tables": root / "train.parquet",
    }.items():
        if file.exists():
            looked_at = len(chosen(said))
            row(f"messages ({name})", looked_at, *encode(str(file), said, model))


if __name__ == "__main__":
    main()
