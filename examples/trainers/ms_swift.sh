#!/bin/sh
# Fine-tune a vision model on `messages/` with ms-swift: sh ms_swift.sh FOLDER [MODEL]
# FOLDER is `messages/` of the store or of an export. Paths of screenshots are relative to it.
set -e
FOLDER=$(cd "$1" && pwd)
export ROOT_IMAGE_DIR="$FOLDER"
swift sft \
  --model "${2:-Qwen/Qwen3-VL-4B-Instruct}" \
  --dataset "$FOLDER/train.jsonl" \
  --val_dataset "$FOLDER/val.jsonl" \
  --max_length 8192 \
  --per_device_train_batch_size 1 \
  --gradient_accumulation_steps 16 \
  --learning_rate 1e-4 \
  --num_train_epochs 2 \
  --torch_dtype bfloat16 \
  --output_dir out
