"""LLaMA-Factory: its loader, converter and collator on the CUDAG directory."""

from llamafactory.data import MultiModalDataCollatorForSeq2Seq, get_dataset
from llamafactory.data.template import get_template_and_fix_tokenizer
from llamafactory.hparams import get_train_args
from reported import cudag, lines_of, places, row
from transformers import AutoProcessor


def main() -> None:
    """Load the training split as `llamafactory-cli train` does, with the documented settings."""
    export, model = places()
    root = cudag(export)
    name = f"{root.name.partition('--')[0]}_train"
    settings = {
        "stage": "sft",
        "do_train": True,
        "model_name_or_path": str(model),
        "template": "qwen2_vl",
        "dataset_dir": str(root),
        "media_dir": str(root),
        "dataset": name,
        "default_system": (root / "system_prompt.txt").read_text(encoding="utf-8").strip(),
        "cutoff_len": 8192,
        "output_dir": "out",
        "finetuning_type": "full",
        "overwrite_cache": True,
        "report_to": "none",
    }
    model_args, data_args, training_args, _, _ = get_train_args(settings)
    processor = AutoProcessor.from_pretrained(model)
    # Its loader sets these from the model's arguments.
    processor.image_max_pixels, processor.image_min_pixels = 1920 * 1080, 32 * 32
    tokenizer = processor.tokenizer
    template = get_template_and_fix_tokenizer(tokenizer, data_args)
    given = (template, model_args, data_args, training_args, "sft", tokenizer, processor)
    data = get_dataset(*given)["train_dataset"]
    collator = MultiModalDataCollatorForSeq2Seq(
        tokenizer=tokenizer, template=template, processor=processor, label_pad_token_id=-100
    )
    after = labels = 0
    for one in data:
        batch = collator([one])
        kept = batch["labels"][batch["labels"] != -100]
        assert batch["pixel_values"].shape[0]
        if not after:
            print("first labels:", repr(tokenizer.decode(kept)))
        after, labels = after + 1, labels + kept.numel()
    row("cudag (train)", len(lines_of(root / "train.jsonl")), after, labels)


if __name__ == "__main__":
    main()
