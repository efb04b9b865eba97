"""TRL: two training steps on each configuration, as the card says, and the labels that it makes."""

from pathlib import Path

import torch
from datasets import Dataset, Image, List, load_dataset
from qwen_vl_utils import process_vision_info
from reported import answers, chosen, learned, lines_of, places, row
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration
from trl import SFTConfig, SFTTrainer


def loaded(root: Path, config: str) -> Dataset:
    """The training split with its pictures, by the lines of the card."""
    data = load_dataset(str(root), config)["train"]
    data = data.map(lambda one: {"images": [f"{root}/{path}" for path in one["images"]]})
    return data.cast_column("images", List(Image()))


def train(data: Dataset, said: list[str], model: Path, **settings: object) -> tuple[int, int]:
    """Train two steps; returns the samples that keep their answer, and their labels."""
    torch.manual_seed(0)
    processor = AutoProcessor.from_pretrained(model)
    trainer = SFTTrainer(
        model=Qwen2_5_VLForConditionalGeneration.from_pretrained(model),
        args=SFTConfig(
            output_dir="out",
            max_steps=2,
            per_device_train_batch_size=1,
            report_to="none",
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            gradient_checkpointing=False,
            **settings,
        ),
        train_dataset=data,
        processing_class=processor,
    )
    trainer.train()
    batches = (trainer.data_collator([one]) for one in trainer.train_dataset)
    return learned(batches, said, processor.tokenizer, trainer.model)


def main() -> None:
    """Both configurations, the loss with defaults, and qwen-vl-utils on the JSON Lines."""
    export, model = places()
    root = export / "messages"
    said = answers(root / "train.jsonl")
    for config, settings in (
        ("prompt_completion", {}),
        ("default", {"assistant_only_loss": True}),
        ("default", {}),
    ):
        data = loaded(root, config)
        looked_at = chosen(data) if len(data) == len(said) else []
        data = data.select(looked_at)
        kept = [said[number] for number in looked_at]
        after, labels = train(data, kept, model, max_length=None, **settings)
        name = f"messages ({config}), {settings or 'max_length=None only'}"
        row(name, len(data), after, labels)
    lines = lines_of(root / "train.jsonl")
    for line in lines:
        picture = line["messages"][1]["content"][0]
        picture["image"] = f"{root}/{picture['image']}"
    opened = sum(len(process_vision_info(line["messages"])[0]) == 1 for line in lines)
    row("messages (JSON Lines), qwen-vl-utils", len(lines), opened)


if __name__ == "__main__":
    main()
