"""What the class of an error of a framework means: how packages, settings, models and data fit each other."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.log_evidence import read
from ascend_runner.supervision.causes import Ending


def raised(message: str, file: str = "/job/train.py", function: str = "main") -> str:
    """Return the name of the class of an error that is raised at a place."""
    frame = f'Traceback (most recent call last):\n  File "{file}", line 61, in {function}\n    step(batch)\n'
    return read(f"{frame}{message}\n".encode(), Ending(exit_code=1)).code


@pytest.mark.parametrize(
    ("name", "message", "file", "function"),
    [
        ("call-between-packages", "NameError: name 'A' is not defined", "/py/site-packages/mindspore/a.py", "f"),
        ("call-between-packages", "AttributeError: 'A' object has no attribute 'b'", "/site-packages/a.py", "f"),
        ("call-between-packages", "AttributeError: 'A' object has no attribute 'b'", "/git/vllm_ascend/a.py", "f"),
        ("loading-of-a-checkpoint", "TypeError: cannot unpack Namespace", "/job/loader.py", "_load_checkpoint"),
        ("fsdp", "ValueError: expected to be in states A but is B", "/torch/distributed/fsdp/_common_utils.py", "f"),
        ("fsdp", "TypeError: 'NoneType' object is not callable", "/accelerate/utils/fsdp_utils.py", "f"),
        ("initialization-of-the-device", "RuntimeError: no", "/torch_npu/npu/__init__.py", "_lazy_init"),
        ("bitsandbytes", "AttributeError: 'NoneType' object has no attribute 'c'", "/bitsandbytes/functional.py", "f"),
        ("layout-of-a-device-mesh", "IndexError: list index out of range", "/torch/distributed/device_mesh.py", "f"),
        ("no-environment-variable", "KeyError: 'JOB_CONFIG'", "/usr/lib/python3.10/os.py", "__getitem__"),
        ("no-environment-variable", "KeyError: 'JOB_CONFIG'", "<frozen os>", "__getitem__"),
        ("refused-value", "AssertionError: --a should be less than --b", "/code/megatron/training.py", "f"),
        ("file-of-a-tokenizer", "TypeError: not a string", "/site-packages/sentencepiece/__init__.py", "LoadFromFile"),
        ("column-missing", "KeyError: 'instruction'", "/src/llamafactory/data/converter.py", "__call__"),
        (
            "values-to-unpack",
            "ValueError: not enough values to unpack (expected 2, got 1)",
            "/site-packages/transformers/models/t5/modeling_t5.py",
            "forward",
        ),
        ("call-between-packages", "TypeError: f() missing 1 required argument: 'a'", "/py/site-packages/trl/a.py", "f"),
        ("type-of-a-model", "KeyError: 'qwen9'", "/py/site-packages/transformers/models/auto/a.py", "__getitem__"),
        ("column-missing", "KeyError: 'input_ids'", "/job/swift/base.py", "_data_collator"),
        ("loading-of-weights", "AssertionError: 3 != 4", "/job/model.py", "load_weights"),
        ("check-of-settings", "ValueError: a must be b", "/job/options.py", "validate_args"),
        ("check-of-a-configuration", "AssertionError: a must be b", "/job/model_config.py", "f"),
        ("check-of-a-configuration", "ValueError: a must be b", "/opt/vllm/config/model.py", "f"),
        ("samples-of-a-dataset", "TypeError: no bytes", "/job/text_dataset.py", "__getitem__"),
        ("plan-of-a-checkpoint", "KeyError: 'pos'", "/torch/distributed/checkpoint/default_planner.py", "f"),
        ("refused-value", "TypeError: key must be a str, got <class 'type'>", "/py/site-packages/a/b.py", "get"),
        ("refused-value", "ValueError: 'ms' is not a valid TensorType, please", "/py/site-packages/a.py", "f"),
        ("profiler-failed", "RuntimeError: no", "/py/site-packages/torch_npu/profiler/a.py", "start"),
        ("not-supported-here", "NotImplementedError: no rule for this", "/py/site-packages/torch/a.py", "f"),
    ],
)
def test_class_by_place(name: str, message: str, file: str, function: str) -> None:
    """The same exception means something else where a package has raised it."""
    assert name == raised(message, file, function)
    assert "" == raised(message)


@pytest.mark.parametrize(
    ("message", "file", "function"),
    [
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "/py/site-packages/a/b.py", "f"),
        ("TypeError: forward() missing 1 required argument: 'x'", "/py/site-packages/torch/m.py", "_call_impl"),
        ("TypeError: unsupported operand type(s) for +: 'int' and 'str'", "/job/train.py", "main"),
        ("TypeError: '<' not supported between instances of 'str' and 'int'", "/job/train.py", "main"),
        ("ValueError: Type mismatch (str, int) for config key A", "/job/train.py", "main"),
        ("TypeError: 'tuple' object does not support item assignment", "/job/train.py", "main"),
        ("ValueError: loss is nan in micro-batch 3 of tensor parallel rank 0", "/job/train.py", "main"),
        ("ValueError: the learning rate is too low", "/job/train.py", "main"),
        ("ValueError: size mismatch of the file a.bin: 9 bytes", "/job/train.py", "main"),
        ("RuntimeError: timeout while waiting for 7 ranks, only 1 ranks joined", "/job/train.py", "main"),
        ("IndexError: list index out of range", "/job/train.py", "main"),
        ("AttributeError: 'NoneType' object has no attribute 'module'", "/job/train.py", "main"),
        ("AttributeError: 'NoneType' object has no attribute 'npu'", "/job/train.py", "main"),
        ("AttributeError: 'Namespace' object has no attribute 'npu'", "/job/train.py", "main"),
        ("RuntimeError: no data received from peer", "/job/train.py", "main"),
        ("RuntimeError: No data for sm_90 and int8.", "/job/train.py", "main"),
        ("KeyError: 'model.layers.30.self_attn.attn'", "/job/train.py", "main"),
        ("AttributeError: 'Parameter' object has no attribute 'grad_buffer'", "/git/megatron/core/a.py", "f"),
        ("ValueError: the loss_scale must not be nan", "/job/train.py", "main"),
        ("RuntimeError: timed out waiting for rank 3, please increase ddp_timeout", "/job/train.py", "main"),
        ("TypeError: unknown argument type", "/job/train.py", "main"),
        ("ValueError: unknown answer option 'E'", "/job/train.py", "main"),
        ("RuntimeError: no tokens, please pass input_ids", "/job/train.py", "main"),
        ("TypeError: f() got multiple values for argument 'x'", "/job/train.py", "main"),
        ("RuntimeError: oops; set the environment variable ASCEND_LAUNCH_BLOCKING=1", "/job/train.py", "main"),
        ("ValueError: checkpoint 7 is not available", "/job/train.py", "main"),
        ("ValueError: could not convert string to float: 'not supported'", "/job/train.py", "main"),
        ("ValueError: no class is left", "/job/labels.py", "check_targets"),
        ("AssertionError: loading is left to actors", "/job/workers.py", "load_checkpoint"),
        ("RuntimeError: no step", "/home/profiler/train.py", "main"),
        ("ValueError: invalid literal for int() with base 10: ''", "/job/config.py", "load"),
        ("TypeError: 'float' object cannot be interpreted as an integer", "/job/dataset.py", "__len__"),
        ("ValueError: not enough values to unpack (expected 2, got 1)", "/data/models/read_csv.py", "f"),
        ("ValueError: not enough values to unpack (expected 2, got 0)", "/py/site-packages/a/moe.py", "f"),
    ],
)
def test_no_class(message: str, file: str, function: str) -> None:
    """An error of the program itself gets no advice on packages, even if a package has raised it."""
    assert "" == raised(message, file, function)


@pytest.mark.parametrize(
    "message",
    [
        "AssertionError: train_acc should be higher than 0.5 after 3 epochs",
        "RuntimeError: early stopping. Please set max_epochs lower next time",
        "RuntimeError: the judge does not support the claim 'cats fly'",
        "ValueError: the price is not available for this ticker",
        "ValueError: number of matches does not match the number of games",
        "ValueError: patient 12 is not registered in the study",
        "RuntimeError: not enough memory cards in the deck",
        "ValueError: tokens 'micro batch' cannot be parsed",
        "ValueError: customer is too old",
        "ValueError: two orders have different shapes: circle and square",
        "ValueError: no examples in prompt template 4",
        "ValueError: image caption does not match the regex",
        "RuntimeError: cannot find a rhyme in the vocabulary",
        "RuntimeError: rejection sampling failed after 10 attempts",
        "ValueError: the user failed to download the form",
        "ValueError: the schedule requires alpha >= 0.5",
    ],
)
def test_words_of_a_program(message: str) -> None:
    """What a program raises in its own words gets no advice, unlike the same words of a package."""
    trace = 'Traceback (most recent call last):\n  File "{}", line 61, in main\n    raise Error(\n{}\n'

    assert "" == read(trace.format("/job/train.py", message).encode(), Ending(exit_code=1)).code
    assert "" != read(trace.format("/git/megatron/training.py", message).encode(), Ending(exit_code=1)).code


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("no-such-path", "assert os.path.isfile(path), f'not {path}'", "AssertionError: not ./tokenizer.model"),
        ("no-such-path", "assert index.is_file()", "AssertionError"),
        ("nan-or-infinite", "assert torch.isfinite(loss).all(), parts", "AssertionError: {'loss': tensor(nan)}"),
        ("not-divisible", "assert samples % ranks == 0", "AssertionError"),
        ("assertion-on-settings", "assert args.vocab_file is not None", "AssertionError"),
        ("assertion-on-a-value", "assert learning_rate is not None", "AssertionError"),
        ("assertion-on-versions", "assert torch.__version__ >= '2.1'", "AssertionError"),
        ("assertion-on-the-number-of-ranks", "assert world_size > 1", "AssertionError"),
        ("assertion-on-types", "assert state.dtype == torch.int16", "AssertionError"),
        ("assertion-on-sizes", "assert len(indices) == self.num_samples", "AssertionError"),
        ("cuda-only", "assert torch.cuda.is_available()", "AssertionError"),
        ("key-of-a-checkpoint", "emb = ckpt['emb'].cuda()", "KeyError: 'emb'"),
        ("", "assert not os.path.exists(path)", "AssertionError"),
        ("", "assert self.is_ready", "AssertionError"),
        ("registry", "return LOSS_MAPPING[loss_type]['loss_func']", "KeyError: 'grpo'"),
        ("", "value = row['emb']", "KeyError: 'emb'"),
        ("", "metrics[state_dict['step']] = scores['a']", "KeyError: 'a'"),
        ("", "label = label_map[name]", "KeyError: 'cat'"),
        ("", "word = id_to_word_map[token]", "KeyError: 17"),
        ("", "assert step == expected_version", "AssertionError"),
        ("", "assert conversion_rate > 0.5", "AssertionError"),
        ("", "assert len(seen) == 0", "AssertionError"),
        ("", "assert len(sys.argv) == 3", "AssertionError"),
        ("", "raise ValueError(args)  # assert args.a", "ValueError: a"),
    ],
)
def test_class_by_source(name: str, source: str, message: str) -> None:
    """The condition of an assertion, or what a key is read from, tells the class where the message does not."""
    trace = f'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    {source}\n{message}\n'

    assert name == read(trace.encode(), Ending(exit_code=1)).code


def test_line_of_an_error() -> None:
    """The frame helps to find the class, but the line that is shown is that of the error."""
    file = "/py/site-packages/vllm/a.py"
    trace = f'Traceback (most recent call last):\n  File "{file}", line 6, in f\n    a.b\n'
    error = "AttributeError: 'A' object has no attribute 'b'"

    assert error == read(f"{trace}{error}\n".encode(), Ending(exit_code=1)).code_line


def test_attribute_of_a_module() -> None:
    """torch.nn.Module raises the AttributeErrors of its users, so the frame above counts."""
    trace = 'Traceback (most recent call last):\n  File "/job/train.py", line 6, in main\n    model.head\n'
    frame = '  File "/py/site-packages/torch/nn/modules/module.py", line 17, in __getattr__\n    raise AttributeError\n'
    error = "AttributeError: 'Model' object has no attribute 'head'\n"

    assert "" == read(f"{trace}{frame}{error}".encode(), Ending(exit_code=1)).code


def test_call_of_a_module() -> None:
    """torch.nn.Module raises the TypeErrors of those who call it, so the frame above counts."""
    trace = 'Traceback (most recent call last):\n  File "{}", line 6, in run\n    model(x)\n'
    frame = '  File "/py/site-packages/torch/nn/modules/module.py", line 17, in _call_impl\n    return forward(*args)\n'
    error = "TypeError: Net.forward() missing 1 required positional argument: 'cache'\n"
    logs = [f"{trace.format(file)}{frame}{error}" for file in ("/job/train.py", "/git/vllm_ascend/runner.py")]

    assert ["", "call-between-packages"] == [read(log.encode(), Ending(exit_code=1)).code for log in logs]
