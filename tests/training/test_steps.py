"""Lines of trainings: their figures of a step, and nothing from lines that only resemble them.

The lines are captured output or follow the statement that prints them:

- Megatron: `training_log` in megatron/training/training.py; captured from logs of 2025 (and of 2021, without a rate).
- MindSpeed-MM: `training_log` in mindspeed_mm/training.py, where the loss has no "lm".
- MindFormers: `MFLossMonitor` in mindformers/core/callback/callback.py; captured in its documentation. `LossCallback`
  in mindformers/pynative/callback/loss_callback.py; a stage of a pipeline that is not the last one has no loss.
- MindSpore: `LossMonitor` and `TimeMonitor` in mindspore/train/callback; captured in its documentation.
- HF Trainer: `ProgressCallback.on_log` in transformers/trainer_callback.py, with strings since version 5.
- LLaMA-Factory: `LogCallback` in src/llamafactory/train/callbacks.py.
- DeepSpeed: `ThroughputTimer` in deepspeed/utils/timer.py, and `_report_progress` in deepspeed/runtime/engine.py.
- Lightning: `TQDMProgressBar` in lightning/pytorch/callbacks/progress/tqdm_progress.py; tqdm: `format_meter`.
- The line of the two times is that of a platform's guide.
"""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, strategies

from ascend_runner.training.steps import FORMS, LONGEST, NO_STEP, Form, Step, furthest, newest, parse

LINES = [
    (
        "this iteration hardware time is 2201.521 and e2e time is 3317.794921875 ms.",
        Step(hardware=2.201521, e2e=3.317794921875),
    ),
    (
        (
            " [2025-08-01 07:19:37] iteration        1/    5000 | consumed samples:          128 | elapsed time per"
            " iteration (ms): 19138.8 | throughput per GPU (TFLOP/s/GPU): 80.2 | learning rate: 6.976744E-08 |"
            " global batch size:   128 | lm loss: 1.043863E+01 |"
            " loss scale: 1.0 | grad norm: 26.203 | number of skipped iterations:   0 |"
            " number of nan iterations:   0 |"
        ),
        Step(step=1, steps=5000, seconds=19.1388, loss=10.43863, throughput=80.2, unit="TFLOP/s/GPU"),
    ),
    (
        (
            " iteration      100/  500000 | consumed samples:         1600 | elapsed time per iteration (ms): 615.0 |"
            " learning rate: 0.000E+00 | global batch size:    16 | loss scale: 4294967296.0 |"
        ),
        Step(step=100, steps=500000, seconds=0.615),
    ),
    (
        (
            " iteration       10/    5000 | consumed samples:           80 | elapsed time per iteration (ms): 13105.3 |"
            " learning rate: 1.2E-05 | global batch size:     8 | loss: nan | loss scale: 1.0 |"
        ),
        Step(step=10, steps=5000, seconds=13.1053, loss=math.nan),
    ),
    (
        (
            "2025-04-07 15:34:29,173 - [mindformers/core/callback/callback.py:529] - INFO - { Epoch:[  2/  2],"
            " step:[    2/   19], loss: 10.633, per_step_time: 1752ms, lr: 1e-05, overflow cond: False,"
            " loss_scale: 1.0, global_norm: [1 508834], train_throughput_per_npu: 170.738T"
        ),
        Step(step=21, steps=38, seconds=1.752, loss=10.633, throughput=170.738, unit="TFLOP/s/NPU"),
    ),
    (
        "INFO - { Epoch:[  1/  2], step:[    3/   19], loss:[10.250/10.500], per_step_time: 900ms, lr: 1e-05",
        Step(step=3, steps=38, seconds=0.9, loss=10.25),
    ),
    (
        (
            "2026-03-02 10:00:01,318 - [loss_callback.py:212] - INFO - { step:[   25/ 5000], loss:  10.250000,"
            " per_step_time:    900ms, lr: 1.000000e-05, grad_norm:   2.500000, throughput:  95.25T }"
        ),
        Step(step=25, steps=5000, seconds=0.9, loss=10.25, throughput=95.25, unit="TFLOP/s/NPU"),
    ),
    (
        (
            "INFO - { step:[   25/ 5000], consumed_samples: 400, global_batch_size: 16, loss: N/A (non-last PP stage,"
            " refer to last stage for real loss), per_step_time:    900ms, grad_norm: NaN }"
        ),
        Step(step=25, steps=5000, seconds=0.9),
    ),
    (
        "- INFO -    0.0% |                            | 0.00600 samples/s/p  25 days, 2:07:47 }",
        Step(throughput=0.006, unit="samples/s/NPU"),
    ),
    ("epoch: 1 step: 100, loss is 2.301", Step(step=100, loss=2.301)),
    ("Epoch time: 60059.685 ms, per step time: 30029.843 ms, avg loss: 2.301", Step(seconds=30.029843, loss=2.301)),
    ("epoch time: 553262.126, per step time: 518.521", Step(seconds=0.518521)),
    ("epoch time: 40.559 s, per step time: 0.208 s", Step(seconds=0.208)),
    (
        "{'loss': 0.2234, 'grad_norm': 2.3729889392852783, 'learning_rate': 2.0000000000000002e-07, 'epoch': 3.19}",
        Step(loss=0.2234),
    ),
    ("{'loss': '0.2234', 'grad_norm': '2.373', 'learning_rate': '2e-07', 'epoch': '3.19'}", Step(loss=0.2234)),
    (
        (
            "[INFO|2025-03-02 10:00:01] llamafactory.train.callbacks:143 >> {'loss': 1.0921, 'learning_rate': 9.8e-05,"
            " 'epoch': 0.31, 'throughput': 4321.5}"
        ),
        Step(loss=1.0921, throughput=4321.5, unit="tokens/s"),
    ),
    (
        (
            "[2024-03-07 15:27:02,646] [INFO] [timer.py:260:stop] epoch=0/micro_step=199/global_step=199,"
            " RunningAvgSamplesPerSec=58.73, CurrSamplesPerSec=61.35, MemAllocated=6.01GB, MaxMemAllocated=19.52GB"
        ),
        Step(step=199, throughput=61.35, unit="samples/s"),
    ),
    (
        "[2023-10-31 08:58:33,237] [INFO] [logging.py:96:log_dist] [Rank 0] step=14000, skipped=25, lr=[0.001]",
        Step(step=14000),
    ),
    (
        "\r  0%|          | 0/1000 [00:00<?, ?it/s]\r 12%|█▏        | 120/1000 [00:10<01:20, 12.5it/s]",
        Step(step=120, steps=1000, seconds=0.08),
    ),
    (
        "Epoch 0:  12%|█▏        | 120/1000 [06:00<44:00,  3.00s/it, v_num=0, train_loss_step=0.300]",
        Step(step=120, steps=1000, seconds=3.0, loss=0.3),
    ),
    ("  0%|          | 0/1000 [00:00<?, ?it/s]", Step(step=0, steps=1000)),
    ("X_STEP=1200", Step(step=1200)),
    ("step 23 loss 0.0417", Step(step=23, loss=0.0417)),
    ("epoch 1 step 23, loss: 0.04", Step(step=23, loss=0.04)),
    ("Epoch 1/3 | Step 23/500 | Loss: 4e-2", Step(step=23, loss=0.04)),
    ("Step 23 | loss 0.04", Step(step=23, loss=0.04)),
    ("step 23/1000 loss=0.04", Step(step=23, steps=1000, loss=0.04)),
    ("[rank 3] step: 23, lr: 1e-4, grad_norm: 2.5, loss: nan", Step(step=23, loss=math.nan)),
    ("[step 23] train_loss=0.04 val_loss=0.05", Step(step=23, loss=0.04)),
    ("iter 250: loss 2.3, time 100.00ms", Step(step=250, loss=2.3)),
    ("2026-11-22 23:42:00,123 - train - INFO - step=23 loss=0.04", Step(step=23, loss=0.04)),
    ("INFO:__main__:step 23 loss 0.04", Step(step=23, loss=0.04)),
]


@pytest.mark.parametrize(("line", "told"), LINES)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_lines_of_software(line: str, told: Step, end: str) -> None:
    """A line gives its figures, whatever ends it."""
    found = parse((line + end).encode())

    assert repr(told._replace(hardware=None, e2e=None)) == repr(found and found._replace(hardware=None, e2e=None))
    assert found is not None
    assert [told.hardware, told.e2e] == pytest.approx([found.hardware, found.e2e])


def test_long_redrawn_bar() -> None:
    """Of a bar that was redrawn often without an end of line, the last state is read."""
    states = [f" {step / 10:.0f}%|█████     | {step}/1000 [00:06<00:06,  5.00it/s]" for step in range(1001)]

    assert Step(step=1000, steps=1000, seconds=0.2) == parse("\r".join(states).encode())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loss is nan at step 17",
        "step 15 done, the loss is unknown",
        "step 15 val_loss 0.2",
        "eval step 15 loss 0.2",
        "resumed from step 15, best loss 0.2",
        "best model: step 15, loss 0.2",
        "step 15: saved in 3 s",
        "step x loss 0.2",
        "epoch 15 loss 0.2",
        "hardware time is unknown",
        "Loading checkpoint shards:  50%|█████     | 2/4 [00:02<00:02,  1.00s/it]",
        "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 80.00it/s]",
        "Map: 100%|██████████| 1000/1000 [00:00<00:00, 9000.00 examples/s]",
        "{'eval_loss': 0.5, 'eval_runtime': 3.2}",
        "my X_STEP=7",
        "disk 90%| full",
        "elapsed time per iteration (ms): 12",
    ],
)
def test_other_lines(line: str) -> None:
    """Lines that only resemble those of a step give nothing."""
    assert parse(line.encode()) is None


@given(
    strategies.lists(
        strategies.sampled_from([*(form.literal for form in FORMS), b"9", b"1e", b".", b"-", b" ", b"|", b"nan", b"\r"])
        | strategies.binary(max_size=5)
    ).map(b"".join)
)
def test_hostile_lines(line: bytes) -> None:
    """Any line is read without an error."""
    found = parse(line)

    assert found is None or found.step is None or found.step < 10**40


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.literal.decode().strip())
def test_hostile_lines_are_bounded(form: Form) -> None:
    """No line keeps the parser busy; the processor's time is far below the limit."""
    begin = time.process_time()
    for filler in (
        b" ",
        b"9",
        b"|",
        b"step:[",
        b"Epoch 1",
        b"9%|",
        b"<",
        b"1.",
        b"loss: ",
        b"iteration 9",
        b"INFO ",
        b"[]",
        b"step 9 a 9 ",
    ):
        parse(form.literal + filler * LONGEST)
        parse((filler * LONGEST)[: LONGEST - len(form.literal)] + form.literal)

    assert time.process_time() - begin < 10


def test_newest() -> None:
    """The figures of the last step may be in two lines, and what they lack is that of the step before."""
    lines = b"X_STEP=3\nX_STEP=4\nper step time: 250 ms\nsaved\n"

    assert Step(step=4, seconds=0.25) == newest(lines)
    assert Step(step=4, seconds=0.25, loss=2.0) == newest(lines, Step(step=2, loss=2.0))
    assert NO_STEP == newest(b"")


def test_furthest() -> None:
    """Of several ranks, the highest step counts."""
    assert Step(step=5) == furthest([Step(step=4), Step(step=5), Step(loss=1.0)])
    assert furthest([NO_STEP]) is None
