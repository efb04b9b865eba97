"""TRL to 1.13: two training steps of a reward model on each configuration, and its labels."""

import math
from pathlib import Path

from datasets import load_dataset
from reported import places, row
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForTokenClassification
from trl.experimental.prm import PRMConfig, PRMTrainer


def train(root: Path, config: str, model: Path) -> None:
    """Train on a configuration; a demonstration without the label of a step is lost."""
    data = load_dataset(str(root), config)["train"]
    tokenizer = AutoTokenizer.from_pretrained(model)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    trainer = PRMTrainer(
        model=Qwen2ForTokenClassification(Qwen2Config(vocab_size=len(tokenizer), **sizes, **heads)),
        args=PRMConfig(
            output_dir="out",
            max_length=None,
            max_steps=2,
            report_to="none",
            use_cpu=True,
            bf16=False,
            save_strategy="no",
        ),
        train_dataset=data,
        processing_class=tokenizer,
    )
    assert math.isfinite(trainer.train().training_loss)
    made = [[one for one in row["labels"] if one != -100] for row in trainer.train_dataset]
    whole = sum(a == b for a, b in zip(made, data["labels"], strict=True))
    row(f"step_labels ({config})", len(data), whole, sum(map(len, made)))


def main() -> None:
    """The labels of steps and those of demonstrations."""
    export, model = places()
    for config in ("default", "outcome"):
        train(export / "step_labels", config, model)


if __name__ == "__main__":
    main()
