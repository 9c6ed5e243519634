"""What the class of an error of MindSpore means: its operators, datasets and graphs."""

from __future__ import annotations

import re

import pytest

from ascend_runner.diagnosis.log_evidence import read
from ascend_runner.diagnosis.phrases import MINDSPORE
from ascend_runner.supervision.causes import Ending


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("operators' compiler", "RuntimeError: TbeInitialize running failed."),
        ("function of a pipeline", "RuntimeError: Exception thrown from user defined Python function in dataset. "),
        (
            "kernel of MindSpore",
            "TypeError: Can not select a valid kernel info for [Gather] in AI CORE or AI CPU kernel",
        ),
        ("MindRecord", "MRMOpenError: [MRMOpenError]: MindRecord File could not open successfully."),
        (
            "page of MindRecord",
            "RuntimeError: Syntax error. Invalid data, Page size: 1048576 is too small to save a blob",
        ),
        (
            "workers of a dataset",
            "RuntimeError: GeneratorDataset's num_workers=8, this value is not within the required",
        ),
        ("tree of a dataset", "ValueError: The data pipeline is not a tree (i.e., one node has 2 consumers)"),
        ("source of a dataset", "RuntimeError: Unable to fetch data from GeneratorDataset, try iterate the source"),
        (
            "tensors in a dataset",
            "RuntimeError: Exception thrown from PyFunc. GetOpOutput] : The pointer[cnode] is null.",
        ),
        ("function of a pipeline", "RuntimeError: map operation: [PyFunc] failed. The corresponding data file is: a"),
        ("transform of a sample", "RuntimeError: map operation: [Decode] failed. Decode: image decode failed."),
        ("runtime of MindSpore", "RuntimeError: The pointer[stream] is null."),
        ("compiler of MindSpore", "RuntimeError: Response is empty"),
        ("internal error of MindSpore", "RuntimeError: The pointer[device_context->res_()] is null."),
        (
            "device of MindSpore",
            "ValueError: For 'set_context', package type mindspore-gpu support 'device_target' type",
        ),
        ("sample", "RuntimeError: Exception thrown from dataset pipeline. Refer to 'Dataset Pipeline Error Message'."),
        ("arguments of an operator", "ValueError: For 'MatMul', the input dimensions must be equal"),
        ("branches of a graph", "TypeError: Type Join Failed: AbstractTensor cannot join with AbstractScalar."),
        ("code in graph mode", "RuntimeError: Unsupported statement 'Try'."),
        ("parallel strategy", "RuntimeError: np_tensor can not be split by strategy!"),
        ("depth of a graph", "ValueError: There isn't any branch that can be evaluated."),
        ("arguments of construct", "TypeError: The parameters number of the function is 3, but 2 arguments are given."),
        ("code in graph mode", "RuntimeError: Should not use Python object in runtime, node: ValueNode<Interpreted>"),
        ("code in graph mode", "TypeError: Do not support to convert <class 'A'> object into graph node."),
    ],
)
def test_class(name: str, message: str) -> None:
    """An exception that no other rule knows is explained by its class."""
    frame = 'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    step(batch)\n'

    assert name == read(f"{frame}{message}\n".encode(), Ending(exit_code=1)).code


def test_parallel_strategy() -> None:
    """MindSpore names an operator whose strategy is wrong, and logs the reason just above."""
    reason = "[ERROR] PARALLEL(7): MatMul: the strategy is ((1, 3)), the length must be 2\n"
    error = 'Traceback (most recent call last):\n  File "/job/train.py", line 6, in f\n    a()\nRuntimeError: failed\n'

    assert "parallel strategy" == read(f"{reason}{error}".encode(), Ending(exit_code=1)).code


def test_every_class_is_of_the_rank() -> None:
    """Each meaning fits on one line, and each rule blames the rank that raised the error."""
    rules = re.findall(r"^(\w+) .+? = (.+)$", MINDSPORE, re.MULTILINE)

    assert rules
    assert all("root" == kind and len(meaning) < 100 for kind, meaning in rules)
