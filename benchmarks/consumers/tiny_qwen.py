"""A Qwen2.5-VL of random weights with a tokenizer trained on the spot: nothing is downloaded.

Run by the Python of a trainer: `python tiny_qwen.py FOLDER JSONL`. The words of the tokenizer are
those of the chats in the file; the chat template is ChatML with a place for the picture.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
)

try:
    from transformers import Qwen2VLVideoProcessor
except ImportError:
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)
_BODY = (
    "{% macro body(content) %}{% if content is string %}{{ content }}{% else %}"
    "{% for part in content %}{% if part['type'] == 'image' %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{% endmacro %}"
)
TEMPLATE = (
    f"{_BODY}{{% for message in messages %}}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}"
    "{{ body(message['content']) + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ body(message['content']) + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of the texts, with the special tokens of Qwen-VL."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[0],
        additional_special_tokens=list(SPECIAL[1:]),
    )


def tiny_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    """Two layers of 32 numbers each; the same patches, and so the same tokens, as the real one."""
    token = tokenizer.convert_tokens_to_ids
    size = len(tokenizer)
    text = {
        "vocab_size": size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
        "max_position_embeddings": 32768,
        "bos_token_id": token("<|endoftext|>"),
        "eos_token_id": token("<|im_end|>"),
        "pad_token_id": token("<|endoftext|>"),
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 32,
        "fullatt_block_indexes": [],
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
    )


def main() -> None:
    """Write model and processor, as trainers load them."""
    folder, chats = map(Path, sys.argv[1:])
    lines = [json.loads(line) for line in chats.read_text(encoding="utf-8").splitlines()]
    texts = [json.dumps(line["messages"], ensure_ascii=False) for line in lines]
    tokenizer = train_tokenizer(texts)
    limits = {"shortest_edge": 56 * 56, "longest_edge": 12_845_056}
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=limits),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(size=limits),
        chat_template=TEMPLATE,
    )
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(tiny_config(tokenizer)).save_pretrained(folder)
    processor.save_pretrained(folder)


if __name__ == "__main__":
    main()
