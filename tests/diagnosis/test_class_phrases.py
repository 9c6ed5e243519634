"""What the class of an error means where no rule knows its message."""

from __future__ import annotations

import re

import pytest

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.log_evidence import read
from ascend_runner.diagnosis.phrases import CLASSES, class_of
from ascend_runner.supervision.causes import Ending

IN_THE_PROGRAM = 'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    step(batch)\n'
IN_A_COLLECTIVE = (
    'Traceback (most recent call last):\n  File "/opt/torch/distributed/distributed_c10d.py", line 9, in barrier\n'
    "    work = group.barrier(opts=opts)\n"
)


def code_of(text: str) -> str:
    """Return the code that is found in a log."""
    return read(text.encode(), Ending(exit_code=1)).code


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no such path", "FileNotFoundError: [Errno 2] No such file or directory: '/data/a.jsonl'"),
        ("no such path", "ValueError: The file /data/mnist does not exist or permission denied!"),
        ("no such path", "FileNotFoundError: Couldn't find any data file at /data/a."),
        ("no such path", "RuntimeError: Parent directory out/step_9 does not exist."),
        ("not divisible", "AssertionError: 160 % 64 != 0"),
        ("name of a class", "AttributeError: type object 'LlamaAttention' has no attribute '_init_rope'"),
        ("object in a storage", "MoxFileNotExistsException: file or directory or bucket not found."),
        ("retries", "RuntimeError: Failed after 3 retries each. Addr: 10.0.0.1:11220."),
        ("extension loaded twice", 'RuntimeError: illegal RegisterFlag, flag "devices" has been defined in io.cc'),
        ("download", "Exception: some parts are failed when download"),
        ("internal check of torch", "RuntimeError: Could not compute stream ID (something has gone horribly wrong!)"),
        ("shapes of tensors", "ValueError: Attention mask should be of size (1, 1, 8, 8), but is (1, 1, 8, 9)"),
        ("path exists", "FileExistsError: [Errno 17] File exists: '/cache/out'"),
        ("text file busy", "OSError: [Errno 26] Text file busy: '/root/.cache/a.so'"),
        ("resource busy", "OSError: [Errno 16] Device or resource busy: '/mnt/a'"),
        ("other format", "tarfile.ReadError: unexpected end of data"),
        ("other format", "PIL.UnidentifiedImageError: cannot identify image file '/data/a.jpg'"),
        ("JSON", "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        ("encoding of a text", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x8b in position 1"),
        ("keyword of a function", "TypeError: Accelerator.__init__() got an unexpected keyword argument 'a'"),
        ("name of a module", "AttributeError: module 'megatron.core' has no attribute 'mpu'"),
        ("name of a module", "ImportError: cannot import name 'fuse' from 'kernels.ops' (/job/kernels/ops.py)"),
        ("circular import", "AttributeError: module 'random' has no attribute 'a' (consider renaming '/a/random.py')"),
        ("namespace package", "ImportError: cannot import name 'fuse' from 'kernels' (unknown location)"),
        ("class of a pickle", "AttributeError: Can't get attribute 'Meta' on <module '__main__' from '/job/a.py'>"),
        ("package named", "ImportError: Using `low_cpu_mem_usage=True` requires Accelerate: `pip install accelerate`"),
        (
            "version of a package",
            "ImportError: tokenizers>=0.14,<0.19 is required for a normal functioning of this module",
        ),
        ("files of a model", "OSError: /model does not appear to have a file named config.json."),
        ("not divisible", "AssertionError: world size (8) is not divisible by total_model_size (16)"),
        ("NaN", "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"),
        ("shapes in a batch", "RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0"),
        ("shapes of tensors", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x4)"),
        ("devices of tensors", "RuntimeError: Expected all tensors to be on the same device, but found npu:0 and cpu!"),
        ("devices of tensors", "RuntimeError: FSDP only supports single device modules, but got params on {npu, cpu}"),
        (
            "devices of tensors",
            "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.npu.FloatTensor) should be the same",
        ),
        ("devices of tensors", "RuntimeError: Expected npu tensor, please check whether the input tensor device is"),
        ("generator", "RuntimeError: Expected a 'npu' device type for generator but found 'cpu'"),
        ("location of a checkpoint", "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda"),
        ("location of a checkpoint", "RuntimeError: don't know how to restore data location of torch.FloatStorage"),
        ("protocol of a pickle", "ValueError: unsupported pickle protocol: 5"),
        ("tensor to NumPy", "TypeError: can't convert npu:0 device type tensor to numpy. Use Tensor.cpu() to copy it"),
        ("types of tensors", "RuntimeError: expected scalar type Float but found Half"),
        (
            "types of tensors",
            "RuntimeError: Input type (torch.npu.FloatTensor) and weight type (torch.npu.HalfTensor) should be",
        ),
        (
            "shapes of tensors",
            "RuntimeError: Given normalized_shape=[8], expected input with shape [*, 8], but got [4]",
        ),
        ("shapes of tensors", "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)"),
        ("shapes of tensors", "RuntimeError: Trying to create tensor with negative dimension -1: [-1, 8]"),
        ("devices of tensors", "RuntimeError: indices should be either on cpu or on the same device as the tensor"),
        ("devices of tensors", "RuntimeError: Tensor for argument #2 'mat1' is on CPU, but expected it to be on NPU"),
        ("types of tensors", "RuntimeError: result type Float can't be cast to the desired output type Long"),
        ("no gradient", "AssertionError: DistributedDataParallel is not needed when a module doesn't have any"),
        (
            "gradient of an integer",
            "RuntimeError: Only Tensors of floating point and complex dtype can require gradients",
        ),
        ("empty list of tensors", "RuntimeError: torch.cat(): expected a non-empty list of Tensors"),
        ("arguments of a function of torch", "TypeError: empty() received an invalid combination of arguments - got"),
        (
            "device of a wrapped model",
            "ValueError: device_ids and output_device arguments only work with single-device",
        ),
        ("pinned memory", "RuntimeError: cannot pin 'torch.npu.FloatTensor' only dense CPU tensors can be pinned"),
        ("samples of a batch", "TypeError: default_collate: batch must contain tensors, found <class 'NoneType'>"),
        ("arguments of a data loader", "ValueError: sampler option is mutually exclusive with shuffle"),
        ("no such checkpoint", "ValueError: No valid checkpoint found in output directory (out)"),
        (
            "extension loaded twice",
            "RuntimeError: Tried to register an operator (a) with the same name and overload name multiple times",
        ),
        ("quantized model", "ValueError: You cannot perform fine-tuning on purely quantized models. Please attach"),
        ("torch is too old", "ValueError: Due to a serious vulnerability issue in `torch.load`, we now require users"),
        ("compiler", "RuntimeError: Failed to find C compiler. Please specify via CC environment variable."),
        ("no such checkpoint", "ValueError: Unable to find 'latest' file at ckpt/latest, if trying to load latest"),
        ("learning rate of a checkpoint", "KeyError: \"param 'initial_lr' is not specified in param_groups[0]\""),
        ("no parameters", "ValueError: optimizer got an empty parameter list"),
        ("no scaled gradient", "AssertionError: No inf checks were recorded for this optimizer."),
        ("in-place change of a view", "RuntimeError: Output 0 of A is a view and is being modified inplace. This view"),
        ("inference mode", "RuntimeError: Inference tensors cannot be saved for backward. To work around you can"),
        ("value of a condition", "RuntimeError: Boolean value of Tensor with more than one value is ambiguous"),
        ("probabilities", "RuntimeError: all elements of input should be between 0 and 1"),
        ("no tensor", "RuntimeError: Could not infer dtype of NoneType"),
        ("internal check of torch", 'RuntimeError: a.defined() INTERNAL ASSERT FAILED at "../aten/a.cpp":7, please'),
        ("layers for FSDP", "Exception: Could not find the transformer layer class to wrap in the model."),
        ("frozen parameters in FSDP", "ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig"),
        ("extension loaded twice", 'ImportError: generic_type: type "Group" is already registered!'),
        ("no native module", "ImportError: dynamic module does not define module export function (PyInit_fast)"),
        ("submodule", "AttributeError: module 'distutils' has no attribute 'version'"),
        ("package named", "ImportError: the engine needs torch_npu to be installed"),
        ("package of a tokenizer", "ValueError: Cannot instantiate this tokenizer from a slow version. If it's based"),
        ("processor of a model", "ValueError: Processor was not found, please check and update your model file."),
        ("shared twice", "ValueError: bad value(s) in fds_to_keep"),
        ("pickle", "AttributeError: Can't get local object 'main.<locals>.hook'"),
        ("resources of ray", "ValueError: Current node has no NPU available. current_node_resource={'CPU': 8.0}"),
        ("shapes in a batch", "RuntimeError: Unexpected error. Inconsistent batch shapes, batch operation expect same"),
        ("no such checkpoint", "ValueError: For 'load_checkpoint', failed to read the checkpoint file 'a.ckpt'"),
        ("types of tensors", "RuntimeError: Found dtype Float but expected BFloat16"),
        ("loss", "RuntimeError: grad can be implicitly created only for scalar outputs"),
        ("Address already in use", "ConnectionError: Tried to use port `29500`, but another process is utilizing it. "),
        (
            "memory for a communicator",
            'RuntimeError: Ascend collective Error: "HcclCommInitRootInfo failed. | Error Number 2',
        ),
        ("HCCL 7", 'RuntimeError: Ascend collective Error: "HcclCommInitRootInfo failed. | Error Number 7'),
        ("pickle", "AttributeError: Can't pickle local object 'main.<locals>.collate'"),
        ("access to a server", "MoxFileRespException: [MoxFileRespException(stat:403, reason:Forbidden)]"),
        ("object in a storage", "ClientError: An error occurred (NoSuchKey) when calling the GetObject operation"),
        ("server failed", "HTTPError: 503 Server Error: Service Unavailable for url: https://a"),
        ("no such checkpoint", "ValueError: Can't find a valid checkpoint at saves/checkpoint-500"),
        (
            "no such path",
            "ValueError: For 'load_checkpoint', the checkpoint file: /a/b.ckpt does not exist, please check",
        ),
        ("keyword of a function", "ValueError: For 'set_context', the keyword argument jit_config is not recognized!"),
        ("other format", "RuntimeError: unexpected EOF. The file might be corrupted."),
        ("lock of a file", "sqlite3.OperationalError: database is locked"),
        ("rank table", "RuntimeError: Invalid ranktable, with rank_size [8], but ranktable contains 4"),
        ("CUDA only", "RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
        ("other format", "tensorflow.errors_impl.DataLossError: corrupted record at 41943040"),
        ("other format", "OSError: Unable to open file (file signature not found)"),
        ("file not opened", "RuntimeError: Invalid file, failed to open files for reading: ./a.mindrecord"),
        ("invalid file", "RuntimeError: Invalid file, DB file can not match file: /cache/a.mindrecord0"),
    ],
)
def test_class(name: str, message: str) -> None:
    """An exception that no other rule knows is explained by its class."""
    assert name == code_of(f"{IN_THE_PROGRAM}{message}\n")


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: loss is nan at step 17",
        "KeyError: 'labels'",
        "ValueError: the model needs 8 GPUs",
        "RuntimeError: corrupt state: the step went backwards",
        "ValueError: unable to open the valve",
        "ImportError: this program requires a license",
        "ValueError: dataset foo/bar not found in the registry",
        "RuntimeError: cannot load plugin 'a' of the checkpoint manager",
        "ValueError: name 'a' is not a valid file",
        "FileNotFoundError: no checkpoint in epoch 3",
        "ValueError: --fp16 and --bf16 are mutually exclusive",
        "ValueError: key /a/b is unknown",
        "AssertionError: status 4030 is not 200",
        "ValueError: error code 401 rows remain",
        "RuntimeError: silent data corruption detected on rank 3",
        "ValueError: object key 'apple' occurs twice",
        "ValueError: bucket 17 of the histogram does not exist",
        "ValueError: the slowdown must not exceed 2",
        "ValueError: Failed to find function search_web in the answer",
        "RuntimeError: image tiling failed for slide 3",
        "RuntimeError: rank model failed to reach 0.8",
        "RuntimeError: Killed process 12 of the pool after 9 s",
        "ValueError: api_key not configured for the judge",
        "RuntimeError: Timed out waiting for key 'answer'",
        "RuntimeError: image operation setup failed",
        "RuntimeError: CPU memory not enough for the cache",
        "RuntimeError: workers diverge if one of them is out of memory",
        "TypeError: main() missing 1 required positional argument: 'args'",
    ],
)
def test_no_class(message: str) -> None:
    """A message that says all there is to say gets no advice."""
    assert "" == code_of(f"{IN_THE_PROGRAM}{message}\n")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("container", "docker: Error response from daemon: error gathering device information"),
        ("container", "slurmstepd: error: pyxis: couldn't start container"),
        ("launch by Slurm", "srun: error: Task launch for StepId=7.0 failed on node n1: Job credential expired"),
        ("launch by Slurm", "srun: error: task 0 launch failed: Plugin initialization failed"),
        ("setting", "Error: Extra inputs are not permitted"),
        ("cores", "taskset: failed to set pid 0's affinity: Invalid argument"),
        ("version for pip", "ERROR: No matching distribution found for torch_npu==2.1.0.post12"),
        ("other format", "tar: Unexpected EOF in archive"),
        ("version for pip", "ERROR: torch_npu-2.5.1-cp310-cp310-linux_aarch64.whl is not a supported wheel"),
        ("object in a storage", "ERROR: downloader.py: Get object key failed: 'Contents'"),
        ("argument of a program", "FATAL Flags parsing error: Unknown command line flag 'index'"),
        ("check of the devices", 'level=error msg="detect failed, error: dsmi-checker detect failed"'),
    ],
)
def test_last_words(name: str, line: str) -> None:
    """The last line of a program that is not in Python has a class as well, though it is weak evidence."""
    evidence = read(f"step 1\n{line}\n".encode(), Ending(exit_code=1))

    assert name == evidence.code
    assert evidence.kind is (Kind.EITHER if evidence.is_weak else Kind.ROOT)


def test_last_words_of_a_program() -> None:
    """What a program writes on its way out is in its own words."""
    for line in ("ERROR the judge does not support this claim", "[ERROR] 裁判不支持该答案", "ERROR no examples found"):
        assert "" == code_of(f"step 1\n{line}\n")


def test_program_not_started() -> None:
    """A FileNotFoundError of subprocess is a missing program, unlike that of open()."""
    in_subprocess = 'Traceback (most recent call last):\n  File "/py/subprocess.py", line 9, in _execute_child\n'

    assert "program not started" == code_of(
        f"{in_subprocess}FileNotFoundError: [Errno 2] No such file or directory: 'x'\n"
    )


def test_only_the_error_itself() -> None:
    """Other lines have no class, nor has an error that may be a peer's or that passes another one on."""
    assert "" == code_of(f"HTTPError: 503 Server Error\n{IN_THE_PROGRAM}RuntimeError: no\n")
    assert "" == code_of(f"{IN_A_COLLECTIVE}RuntimeError: socket closed, status 503\n")
    assert "" == code_of(
        f"{IN_THE_PROGRAM}CalledProcessError: Command 'a' returned non-zero exit status 1. 503 Server Error\n"
    )


def test_reason_above() -> None:
    """An error without a class has that of the ERROR lines of MindSpore just above its traceback."""
    reason = "[ERROR] PARALLEL(7): the strategy is (1, 3), but shape 1024 cannot be divisible by 3\n"

    assert "not divisible" == code_of(f"{reason}{IN_THE_PROGRAM}RuntimeError: Failure:operator MatMul init failed\n")


def test_known_message_precedes_class() -> None:
    """A rule that knows a message precedes its class."""
    message = ["OSError: [Errno 28] No space left on device: File too large"]

    assert class_of(message)
    assert "No space left on device" == code_of(f"{IN_THE_PROGRAM}{message[0]}\n")


def test_every_class_is_of_the_rank() -> None:
    """Each meaning fits on one line, and each rule blames the rank that raised the error."""
    rules = re.findall(r"^(\w+) .+? = (.+)$", CLASSES, re.MULTILINE)

    assert rules
    assert all(kind in {"root", "words"} and len(meaning) < 100 for kind, meaning in rules)
