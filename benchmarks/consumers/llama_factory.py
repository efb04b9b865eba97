"""LLaMA-Factory: its loader, converter and collator on the CUDAG directory."""

from llamafactory.data import MultiModalDataCollatorForSeq2Seq, get_dataset
from llamafactory.data.template import get_template_and_fix_tokenizer
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer
from reported import answers, chosen, cudag, learned, places, row
from transformers import Qwen2_5_VLForConditionalGeneration


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
        "image_max_pixels": 1920 * 1080,
        "output_dir": "out",
        "finetuning_type": "full",
        "overwrite_cache": True,
        "report_to": "none",
    }
    model_args, data_args, training_args, _, _ = get_train_args(settings)
    tokenizer, processor = load_tokenizer(model_args).values()
    template = get_template_and_fix_tokenizer(tokenizer, data_args)
    given = (template, model_args, data_args, training_args, "sft", tokenizer, processor)
    data = get_dataset(*given)["train_dataset"]
    collator = MultiModalDataCollatorForSeq2Seq(
        tokenizer=tokenizer, template=template, processor=processor, label_pad_token_id=-100
    )
    said = answers(root / "train.jsonl")
    looked_at = chosen(data) if len(data) == len(said) else []
    said = [said[number] for number in looked_at]
    batches = (collator([data[number]]) for number in looked_at)
    loaded = Qwen2_5_VLForConditionalGeneration.from_pretrained(model)
    row("cudag (train)", len(said), *learned(batches, said, tokenizer, loaded))


if __name__ == "__main__":
    main()
