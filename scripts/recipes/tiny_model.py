"""Makes a tiny Llama model with a tokenizer and a data set, for LLaMA-Factory and ms-swift. Downloads nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MODEL, DATA = Path("tiny-model"), Path("tiny-data")
CHAT = "{% for message in messages %}<s>{{ message['role'] }}: {{ message['content'] }}</s>{% endfor %}"

words = ["<s>", "</s>", "<unk>", *map(chr, range(32, 127))]
ids = {word: number for number, word in enumerate(words)}
tokenizer = Tokenizer(models.WordLevel(ids, unk_token=words[2]))
tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=CHAT, **special).save_pretrained(MODEL)
config = LlamaConfig(
    vocab_size=len(words),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    bos_token_id=ids["<s>"],
    eos_token_id=ids["</s>"],
)
LlamaForCausalLM(config).save_pretrained(MODEL)

DATA.mkdir(exist_ok=True)
pairs = [(one, other) for one in range(8) for other in range(8)]
sums = [{"instruction": f"{one} + {other}", "input": "", "output": str(one + other)} for one, other in pairs]
(DATA / "sums.json").write_text(json.dumps(sums))
(DATA / "dataset_info.json").write_text(json.dumps({"sums": {"file_name": "sums.json"}}))
