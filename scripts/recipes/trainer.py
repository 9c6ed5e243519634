"""Fine-tunes a tiny Llama model with the Trainer of Transformers.

To fine-tune a real model, load it with `AutoModelForCausalLM.from_pretrained` and pass its dataset.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
examples = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (64, 16))]
options = TrainingArguments(
    "out-trainer",
    max_steps=4,
    per_device_train_batch_size=4,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    use_cpu=not hasattr(torch, "npu"),
)
Trainer(LlamaForCausalLM(config), options, train_dataset=examples).train()
