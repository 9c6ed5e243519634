"""What the class of an error of a framework means: how packages, settings, models and data fit each other."""

from __future__ import annotations

import re

import pytest

from ascend_runner.diagnosis.log_evidence import read
from ascend_runner.diagnosis.phrases import FRAMEWORKS
from ascend_runner.supervision.causes import Ending


def raised(message: str, file: str = "/job/train.py", function: str = "main") -> str:
    """Return the name of the class of an error that is raised at a place."""
    frame = f'Traceback (most recent call last):\n  File "{file}", line 61, in {function}\n    step(batch)\n'
    return read(f"{frame}{message}\n".encode(), Ending(exit_code=1)).code


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("native extension", "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'"),
        ("argument of a program", "absl.flags._exceptions.UnrecognizedFlagError: Unknown command line flag 'a'"),
        ("argument of a program", "ValueError: unrecognized options: ['--fast']"),
        ("token of a tokenizer", "RuntimeError: Cannot find end-of-document symbol (</s>) in tokenizer"),
        ("data type", "RuntimeError: Unsupport data type: at::ScalarType::Double."),
        ("data type", "TypeError: The data type float64 is not supported by this operator"),
        ("data type", "TypeError: parameter 'input' has DataType uint8 not in list of allowed values: float16"),
        ("not available here", "RuntimeError: launcher 'pdsh' not installed."),
        ("scalar", "IndexError: invalid index of a 0-dim tensor. Use `tensor.item()` in Python"),
        ("refused setting", "AssertionError: mini_batch_size 0 should be larger than 0 after normalization"),
        ("setting named", "ValueError: the mode A is enabled. Please set VLLM_ASCEND_ENABLE_NZ=0."),
        ("setting named", "RuntimeError: no memory pool, try increasing `pool_size`"),
        ("native operator", "RuntimeError: operator torchvision::nms does not exist"),
        ("wrapped model", "AttributeError: 'DistributedDataParallel' object has no attribute 'config'"),
        ("weights of a model", "KeyError: 'model.layers.3.mlp.experts.w2_weight'"),
        ("weights of a model", "KeyError: 'lm_head.weight'"),
        ("settings of a checkpoint", "AssertionError: num_layers value from checkpoint (4) is not equal to 8"),
        ("architecture of a model", "ValueError: Model architectures ['A'] are not supported for now."),
        ("number of devices", "ValueError: Number of devices 1 must equal the product of mesh_shape (1, 8)"),
        ("number of devices", "AssertionError: world_size (8) is not equal to tp (4) x pp (4)"),
        ("number of devices", "ValueError: stage 0 requires 8 device(s), but 4 device(s) are available"),
        ("device mesh", "ValueError: All operands in aten.stack.default must have the same mesh, but got A"),
        ("parallel settings", "AssertionError: pipeline parallel size must be greater than 2 with interleaving"),
        ("setting", "omegaconf.errors.ConfigAttributeError: Key 'a' is not in struct"),
        ("length of a sequence", "ValueError: The prompt (length 9) is longer than the maximum model length of 8."),
        ("types of columns", "TypeError: Couldn't cast array of type string to null"),
        ("split of a dataset", "ValueError: Unknown split \"test\". Should be one of ['train']."),
        ("capture of a graph", "RuntimeError: CUDA error: operation not permitted when stream is capturing"),
        ("equal parts", "AssertionError: only support equal chunks, got 512 in 6"),
        ("data types", "ValueError: Must flatten tensors with uniform dtype but got torch.float32"),
        ("sizes of tensors", "AssertionError: both must have identical batch size"),
        ("sizes of tensors", "ValueError: Each entry must have a batch dimension of length 200"),
        ("configuration of DeepSpeed", "AssertionError: zero stage 2 requires an optimizer"),
        ("registry", "KeyError: 'VoxelNet is not in the mmengine::model registry. Please check'"),
        ("memory for a model", "RuntimeError: Not enough memory. Please try to increase the fraction"),
        ("leaf", "RuntimeError: A leaf parameter that requires gradient is being used in an inplace operator"),
        ("memory for a model", "ValueError: Some modules are dispatched on the CPU or the disk. Make sure"),
        ("no CUDA device", "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
        ("tensor of a collective", "RuntimeError: Tensors must be NPU and dense"),
        ("chip of torch_npu", "RuntimeError: Unsupported soc version: Ascend310B4"),
        ("order of modules", "RuntimeError: still have inflight params [{'id': 723}]"),
        ("images of a sample", "ValueError: Image features and image tokens do not match: tokens: 4, features 6"),
        ("versions", "AssertionError: device type A2 does not match the installed version's device type A3"),
        ("index of a tensor", "IndexError: index 4 is out of bounds for dimension 0 with size 4"),
        ("equal numbers", "RuntimeError: Number of experts (32) must be equal to number of columns (64)."),
        ("variables of a launcher", "ValueError: Error initializing torch using tcp:// rendezvous: no rank"),
        ("process group not initialized", "RuntimeError: The pointer[hccl_comm] is null."),
        ("not supported here", "ValueError: this pooling does not support asymmetric strides"),
        ("options of the allocator", "RuntimeError: Unrecognized CachingAllocator option: expandable"),
        ("buffer of HCCL", "RuntimeError: HCCL_BUFFSIZE is too small, min required HCCL_BUFFSIZE is 400MB"),
        ("environment variable", "RuntimeError: This requires setting the environment variable A_MAX_B to 1"),
        (
            "batch size of DeepSpeed",
            "ValueError: requires you to pass at least one of training or evaluation dataloaders",
        ),
        ("optimizer on the CPU", "AssertionError: CPUAdam param is on npu:0 and must be 'cpu', make sure you enabled"),
        ("length of an input", "ValueError: Input length of input_ids is 4096, but `max_length` is set to 2048."),
        ("labels", "ValueError: The model did not return a loss from the inputs, only the following keys: logits."),
        ("dataset for a step", "ValueError: Trainer: evaluation requires an eval_dataset."),
        ("column", "ValueError: No columns in the dataset match the model's forward method signature."),
        (
            "roles of a conversation",
            "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant",
        ),
        ("order of modules", "RuntimeError: disagreement between rank0 and rank3: rank0: [0, 1], rank3: [0, 2]"),
        ("setting", "KeyError: \"Override 'epochs' not found in: ['seed', 'lr']\""),
        ("not supported here", "ValueError: Bfloat16 is only supported on devices with a higher capability."),
        ("libuv", "RuntimeError: use_libuv was requested but torch was built without libuv support"),
        ("no data", "ValueError: the dataset is empty"),
        ("no data", "ValueError: No training data found in /data"),
        ("sizes of tensors", "RuntimeError: The dim of x should be 2, but got 3"),
        ("sizes of tensors", "RuntimeError: The shapes of key and value are inconsistent"),
        ("not supported here", "RuntimeError: npu_fusion_attention: only support head_dim <= 512"),
        ("actor of verl", "AssertionError: failed to get register_center_actor: a_register_center in []"),
        (
            "automatic device map",
            "ValueError: You can't train a model that has been loaded with `device_map='auto'` in",
        ),
        (
            "quantized model's device",
            "ValueError: a model that has been loaded in 8-bit precision on a different device",
        ),
        (
            "accelerator created twice",
            "ValueError: AcceleratorState has already been initialized and cannot be changed",
        ),
        ("unbalanced memory", "RuntimeError: The memory capacity is unbalanced. Some devices may be occupied"),
        ("columns removed", "IndexError: Invalid key: 42 is out of bounds for size 0"),
        ("cached dataset", "NotImplementedError: Loading a dataset cached in a LocalFileSystem is not supported."),
        ("column", "ValueError: You have to specify either input_ids or inputs_embeds"),
        ("configuration of DeepSpeed", "deepspeed.runtime.zero.utils.ZeRORuntimeException: You are using ZeRO-Offload"),
        ("not available here", "AssertionError: Flash Attention is not available, but is needed for dense attention"),
        ("quantization", "ValueError: Unknown quantization method: ascend. Must be one of ['awq', 'fp8']."),
        ("quantization", "NotImplementedError: There is no available ascend quantizer."),
        ("argument of a program", "serve.py: error: argument --dtype/-d: invalid choice: 'fp4' (choose from 'fp8')"),
        ("number of a rank", "ValueError: Invalid rank 8, rank should be in the interval [0, 7]"),
        ("number of ranks of a checkpoint", "AssertionError: Loading a checkpoint for MP=2 but world size is 1"),
        ("unwrapped model", "AttributeError: 'Net' object has no attribute 'module'"),
        ("order of modules", "AssertionError: {'id': 3, 'status': 'INFLIGHT', 'numel': 9}"),
        ("format of samples", "RuntimeError: Cannot find valid samples, check `data/README.md` for the data format."),
        ("registry", "ValueError: Template qwen9 does not exist."),
        ("memory for a model", "ValueError: The current `device_map` had weights offloaded to the disk. Please"),
        ("configuration of DeepSpeed", "deepspeed.runtime.config_utils.DeepSpeedConfigError: Expected a string path"),
        ("versions", "RuntimeError: Detected that torch and torch_npu were compiled with different versions."),
        ("index of a tensor", "RuntimeError: selected index k out of range"),
        ("no Triton", "RuntimeError: 0 active drivers ([]). There should only be one."),
    ],
)
def test_class(name: str, message: str) -> None:
    """An exception that no other rule knows is explained by its class."""
    assert name == raised(message)


@pytest.mark.parametrize(
    ("name", "message", "file", "function"),
    [
        ("call between packages", "NameError: name 'A' is not defined", "/py/site-packages/mindspore/a.py", "f"),
        ("call between packages", "AttributeError: 'A' object has no attribute 'b'", "/site-packages/a.py", "f"),
        ("call between packages", "AttributeError: 'A' object has no attribute 'b'", "/git/vllm_ascend/a.py", "f"),
        ("loading of a checkpoint", "TypeError: cannot unpack Namespace", "/job/loader.py", "_load_checkpoint"),
        ("FSDP", "ValueError: expected to be in states A but is B", "/torch/distributed/fsdp/_common_utils.py", "f"),
        ("FSDP", "TypeError: 'NoneType' object is not callable", "/accelerate/utils/fsdp_utils.py", "f"),
        ("initialization of the device", "RuntimeError: no", "/torch_npu/npu/__init__.py", "_lazy_init"),
        ("bitsandbytes", "AttributeError: 'NoneType' object has no attribute 'c'", "/bitsandbytes/functional.py", "f"),
        ("layout of a device mesh", "IndexError: list index out of range", "/torch/distributed/device_mesh.py", "f"),
        ("no environment variable", "KeyError: 'JOB_CONFIG'", "/usr/lib/python3.10/os.py", "__getitem__"),
        ("no environment variable", "KeyError: 'JOB_CONFIG'", "<frozen os>", "__getitem__"),
        ("refused value", "AssertionError: --a should be less than --b", "/code/megatron/training.py", "f"),
        ("file of a tokenizer", "TypeError: not a string", "/site-packages/sentencepiece/__init__.py", "LoadFromFile"),
        ("column", "KeyError: 'instruction'", "/src/llamafactory/data/converter.py", "__call__"),
        (
            "values to unpack",
            "ValueError: not enough values to unpack (expected 2, got 1)",
            "/site-packages/transformers/models/t5/modeling_t5.py",
            "forward",
        ),
        ("call between packages", "TypeError: f() missing 1 required argument: 'a'", "/py/site-packages/trl/a.py", "f"),
        ("type of a model", "KeyError: 'qwen9'", "/py/site-packages/transformers/models/auto/a.py", "__getitem__"),
        ("column", "KeyError: 'input_ids'", "/job/swift/base.py", "_data_collator"),
        ("loading of weights", "AssertionError: 3 != 4", "/job/model.py", "load_weights"),
        ("check of settings", "ValueError: a must be b", "/job/options.py", "validate_args"),
        ("check of a configuration", "AssertionError: a must be b", "/job/model_config.py", "f"),
        ("check of a configuration", "ValueError: a must be b", "/opt/vllm/config/model.py", "f"),
        ("samples of a dataset", "TypeError: no bytes", "/job/text_dataset.py", "__getitem__"),
        ("plan of a checkpoint", "KeyError: 'pos'", "/torch/distributed/checkpoint/default_planner.py", "f"),
        ("refused value", "TypeError: key must be a str, got <class 'type'>", "/py/site-packages/a/b.py", "get"),
        ("refused value", "ValueError: 'ms' is not a valid TensorType, please", "/py/site-packages/a.py", "f"),
        ("profiler", "RuntimeError: no", "/py/site-packages/torch_npu/profiler/a.py", "start"),
        ("not supported here", "NotImplementedError: no rule for this", "/py/site-packages/torch/a.py", "f"),
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
        ("AttributeError: 'Parameter' object has no attribute 'main_grad'", "/git/megatron/core/a.py", "f"),
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
        ("no such path", "assert os.path.isfile(path), f'not {path}'", "AssertionError: not ./tokenizer.model"),
        ("no such path", "assert index.is_file()", "AssertionError"),
        ("NaN", "assert torch.isfinite(loss).all(), parts", "AssertionError: {'loss': tensor(nan)}"),
        ("not divisible", "assert samples % ranks == 0", "AssertionError"),
        ("assertion on settings", "assert args.vocab_file is not None", "AssertionError"),
        ("assertion on a value", "assert learning_rate is not None", "AssertionError"),
        ("assertion on versions", "assert torch.__version__ >= '2.1'", "AssertionError"),
        ("assertion on the number of ranks", "assert world_size > 1", "AssertionError"),
        ("assertion on types", "assert state.dtype == torch.int16", "AssertionError"),
        ("assertion on sizes", "assert len(indices) == self.num_samples", "AssertionError"),
        ("CUDA only", "assert torch.cuda.is_available()", "AssertionError"),
        ("key of a checkpoint", "emb = ckpt['emb'].cuda()", "KeyError: 'emb'"),
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

    assert ["", "call between packages"] == [read(log.encode(), Ending(exit_code=1)).code for log in logs]


def test_every_class_is_of_the_rank() -> None:
    """Each meaning fits on one line, and each rule blames the rank that raised the error."""
    rules = re.findall(r"^(\w+) .+? = (.+)$", FRAMEWORKS, re.MULTILINE)

    assert rules
    assert all(kind in {"root", "words"} and len(meaning) < 100 for kind, meaning in rules)
