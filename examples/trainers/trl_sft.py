"""Fine-tune a vision model on `messages/` with TRL: python trl_sft.py FOLDER [MODEL].

FOLDER is `messages/` of the store or of an export. The loss is computed only on the answers.
"""

import sys
from pathlib import Path

from datasets import Image, List, load_dataset
from trl import SFTConfig, SFTTrainer

root = Path(sys.argv[1]).resolve()
model = sys.argv[2] if len(sys.argv) > 2 else "Qwen/Qwen3-VL-4B-Instruct"

# The tables have paths relative to the folder, but TRL needs images.
data = load_dataset(str(root), "prompt_completion")
data = data.map(lambda row: {"images": [f"{root}/{path}" for path in row["images"]]})
data = data.cast_column("images", List(Image()))

trainer = SFTTrainer(
    model=model,
    args=SFTConfig(
        output_dir="out",
        max_length=None,  # the default of 1,024 tokens cuts a screenshot in the middle
        per_device_train_batch_size=1,
        gradient_accumulation_steps=16,
        gradient_checkpointing=True,
        bf16=True,
        num_train_epochs=2,
        learning_rate=1e-5,
        eval_strategy="epoch" if "val" in data else "no",
    ),
    train_dataset=data["train"],
    eval_dataset=data.get("val"),
)
trainer.train()
