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
- PyTorch's examples: `ProgressMeter` in imagenet/main.py, `train` in mnist/main.py; torchvision: `MetricLogger` in
  references/classification/utils.py; timm: `train_one_epoch` in train.py; nanoGPT: train.py. `train` of PyTorch's
  word_language_model/main.py, the loops of its tutorials "Quickstart" and "Training a Classifier".
- nanochat: scripts/base_train.py; build-nanogpt: train_gpt2.py; llm.c: train_gpt2.cu.
- MMEngine: `LogProcessor` in mmengine/runner/log_processor.py, captured in its documentation; Detectron2:
  `CommonMetricPrinter` in detectron2/utils/events.py; fairseq: fairseq/logging/progress_bar.py; verl:
  `concat_dict_to_str` in verl/utils/logger/aggregate_logger.py; Ultralytics: `progress_string` in engine/trainer.py.
- PaddleX: `TRAIN` lines of paddlex/cv/models/base.py; PaddleNLP: the loops of its examples.
- The line of the two times is that of a platform's guide.
"""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, strategies

from ascend_runner.training.steps import FORMS, LONGEST, NO_STEP, Form, Step, furthest, is_beside, newest, parse

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
    ("iter 250: loss 2.3, time 100.00ms, mfu 3.10%", Step(step=250, seconds=0.1, loss=2.3)),
    ("2026-11-22 23:42:00,123 - train - INFO - step=23 loss=0.04", Step(step=23, loss=0.04)),
    ("INFO:__main__:step 23 loss 0.04", Step(step=23, loss=0.04)),
    ("Training:  12%|██ | 12/100 [00:01<00:08, 10.0it/s, loss=0.3]", Step(step=12, steps=100, seconds=0.1, loss=0.3)),
    ("Epoch 3:  12%|█ | 12/100 [00:01<00:08,  2.00s/it]", Step(step=12, steps=100, seconds=2.0)),
    ("step 12/100 | lr 1e-4 | loss 2.3 | 0.25 s/step", Step(step=12, steps=100, seconds=0.25, loss=2.3)),
    ("step 12/100 | loss 2.3 | 250ms/it", Step(step=12, steps=100, seconds=0.25, loss=2.3)),
    ("step 12/100 | loss 2.3 | 4 steps/s", Step(step=12, steps=100, seconds=0.25, loss=2.3)),
    ("my run (lr 0.1):  12%|█ | 12/100 [00:01<?, ?it/s]", Step(step=12, steps=100)),
    ("Training (dev machine):  12%|█ | 12/100 [00:01<?, ?it/s]", Step(step=12, steps=100)),
    ("Train:  50%|█████ | 5/10 [00:01<00:01, 4.00batch/s]", Step(step=5, steps=10, seconds=0.25)),
    (
        "      1/100      2.1G      1.237      1.209        20        640:  12%|█▏ | 12/100 [0:01<0:08, 8it/s]",
        Step(step=12, steps=100, seconds=0.125),
    ),
    (
        "\x1b[K      1/100      2.1G   1.237   1.209    20     640: 12% ━╸────────── 12/100 8.0it/s 1.5s<11.0s",
        Step(step=12, steps=100, seconds=0.125),
    ),
    (
        "Epoch: [1][  10/5005]\tTime  0.100 ( 0.250)\tData  0.000 ( 0.01)\tLoss 6.9e+00 (6.9e+00)",
        Step(step=5015, seconds=0.1, loss=6.9),
    ),
    ("Epoch: [0][10/5005] Time 0.1 Loss 6.9", Step(step=10, seconds=0.1, loss=6.9)),
    (
        (
            "Epoch: [0]  [ 10/100]  eta: 0:00:40  lr: 0.1  img/s: 80.1  loss: 6.9000 (6.95)  acc1: 0.0 (0.0)"
            "  time: 0.4000  data: 0.01  max mem: 400"
        ),
        Step(step=10, seconds=0.4, loss=6.9),
    ),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300000", Step(step=640, loss=2.3)),
    ("Train Epoch: 2 [640/60000 (1%)] Loss: 2.30", Step(step=60640, loss=2.3)),
    ("Epoch 1 [100/500] loss: 0.33", Step(step=100, loss=0.33)),
    ("Epoch [2/5], Step [100/600], Loss: 0.33", Step(step=700, steps=3000, loss=0.33)),
    ("epoch 3 step 20", Step(step=20)),
    ("Epoch 3/10, step 20/500", Step(step=20)),
    (
        "Train: 0 [  50/1251 (  4%)]  Loss: 6.9 (6.93)  Time: 0.400s,  640.00/s  (0.410s,  624.00/s)  LR: 1.000e-05",
        Step(step=50, seconds=0.4, loss=6.9),
    ),
    (
        (
            "08/21 02:58:41 - mmengine - INFO - Epoch(train) [2][10/25]  lr: 1.0000e-02  eta: 0:00:00  time: 0.0020"
            "  data_time: 0.0004  loss1: 0.8381  loss2: 0.9007  loss: 1.7388"
        ),
        Step(step=35, seconds=0.002, loss=1.7388),
    ),
    ("Iter(train) [ 100/160000]  lr: 1e-2  time: 0.5000  data_time: 0.01  loss: 2.5", Step(100, 160000, 0.5, 2.5)),
    (
        (
            "[07/11 12:00:00 d2.utils.events]:  eta: 1 day, 0:10:00  iter: 19  total_loss: 4.5  loss_cls: 4.0"
            "  loss_box_reg: 0.5  time: 0.3500  last_time: 0.3  data_time: 0.01  lr: 0.00002  max_mem: 2000M"
        ),
        Step(step=19, seconds=0.35, loss=4.5),
    ),
    (
        "2024-01-01 12:00:00 | INFO | train_inner | epoch 001:    100 / 1000 loss=5.2, nll_loss=4.1, ppl=17.1, ups=2.5",
        Step(step=100, seconds=0.4, loss=5.2),
    ),
    (
        (
            '2024-01-01 12:00:00 | INFO | train_inner | {"epoch": 2, "update": 1.1, "loss": "5.2", "ppl": "17.1",'
            ' "ups": "2.5", "num_updates": "1100", "lr": "0.1"}'
        ),
        Step(step=1100, seconds=0.4, loss=5.2),
    ),
    (
        "2022-01-01 12:00:00 [INFO]\t[TRAIN] Epoch=1/12, Step=10/100, loss=0.5, time_each_step=0.2s, eta=0:3:55",
        Step(step=10, steps=1200, seconds=0.2, loss=0.5),
    ),
    (
        "[2022-01-01 12:00:00] global step 10, epoch: 1, batch: 10, loss: 2.5, lr: 0.1, speed: 4.0 step/s",
        Step(step=10, seconds=0.25, loss=2.5),
    ),
    (
        "(TaskRunner pid=12) step:1 - actor/pg_loss:0.25 - actor/lr:1e-06 - timing_s/step:12.5",
        Step(step=1, seconds=12.5, loss=0.25),
    ),
    ("(WorkerDict pid=12, ip=10.0.0.2) step:1 - actor/pg_loss:0.25", Step(step=1, loss=0.25)),
    ("step:1 - actor/pg_loss:0.25 - critic/rewards/mean:0.5 - timing_s/step:12.5", Step(1, None, 12.5, 0.25)),
    (
        "[titan] 2025-01-01 12:00:00,1 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.25  \x1b[34mgrad_norm: 1.5",
        Step(step=1, loss=8.25),
    ),
    ("  5%|▌ | 5/100", Step(step=5, steps=100)),
    ("Epoch [1/10], Batch [100/600], Loss: 0.33", Step(step=100, steps=6000, loss=0.33)),
    ("Epoch 1 | Batch 100/500 | Loss 0.33", Step(step=100, loss=0.33)),
    ("Epoch: 2, Batch: 100, Loss: 0.33", Step(step=100, loss=0.33)),
    ("[1,  2000] loss: 2.199", Step(step=2000, loss=2.199)),
    ("loss: 2.300000  [ 6400/60000]", Step(step=6400, loss=2.3)),
    (
        "| epoch   2 |   200/ 2983 batches | lr 5.00 | ms/batch 31.00 | loss  8.10 | ppl  3295.00",
        Step(step=3183, seconds=0.031, loss=8.1),
    ),
    (" iter: 19  total_loss: 4.5  loss_cls: 4.0  lr: 2e-5", Step(step=19, loss=4.5)),
    (
        "step    10 | loss: 6.900000 | lr 6.0000e-04 | norm: 1.0000 | dt: 100.00ms | tok/sec: 5000.00",
        Step(step=10, seconds=0.1, loss=6.9),
    ),
    (
        "step 00020/01000 (2.00%) | loss: 3.400000 | lrm: 1.00 | dt: 100.00ms | tok/sec: 5,000 | mfu: 50.00",
        Step(step=20, steps=1000, seconds=0.1, loss=3.4),
    ),
    ("step   20/1000 | loss 6.900000 (+0.10z)| norm 1.0 (+0.2z)| lr 6e-4 | 100.00 ms", Step(20, 1000, None, 6.9)),
    ("Global step: 10 | loss: 2.3", Step(step=10, loss=2.3)),
    ("2026-01-01 10:00:00.000 | INFO     | __main__:train:42 - step 10 loss 2.3", Step(step=10, loss=2.3)),
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
        "Map: 100%|██████████| 1000/1000 [00:00<00:00, 9000.00 examples/s]",
        "{'eval_loss': 0.5, 'eval_runtime': 3.2}",
        "my X_STEP=7",
        "disk 90%| full",
        "Downloading: 100%|██████████| 440M/440M [00:04<00:00, 98.5MB/s]",
        "Downloading data files: 100%|██████████| 3/3 [00:00<00:00, 900.00it/s]",
        "model.safetensors:  12%|█▏ | 1.2G/9.9G [00:10<01:10, 120MB/s]",
        "Fetching 12 files:  50%|█████ | 6/12 [00:01<00:01, 5.00it/s]",
        "Map (num_proc=8): 100%|██████████| 1000/1000 [00:00<00:00, 9000.00 examples/s]",
        "Tokenizing:  50%|█████ | 5/10 [00:00<00:00, 80.00it/s]",
        "Running tokenizer on dataset (num_proc=4):  50%|█████ | 5/10 [00:00<00:00, 80.00it/s]",
        "Saving the dataset (1/2 shards):  50%|█████ | 5/10 [00:00<00:00, 80.00it/s]",
        "                 Class     Images  Instances      Box(P          R: 50% ━━━━━━────── 1/2 1.0it/s 1.0s<1.0s",
        "train: Scanning /data/labels.cache... 128 images, 0 corrupt:  50%|█| 64/128 [00:00<00:00, 900it/s]",
        "   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 660.5/660.5 kB 7.9 MB/s eta 0:00:00",
        "[1/3] building the loss extension",
        "[1/3] c++ -MMD -MF fused_loss.o -c fused_loss.cpp",
        "Installing loss-kit 1.2.3 (step 2/3)",
        "2026-11-22 23:42:00 loss scaling is on",
        "Collecting loss==2.3.1",
        *(
            f"{name}: 100%|██████████| 35/35 [00:10<00:00,  3.00it/s]"
            for name in (
                *("Capturing CUDA graph shapes", "Adding requests", "Truncating train dataset", "Unzipping"),
                *("Applying chat template to train dataset", "Deleting", "Initializing", "Searching"),
            )
        ),
        "Loading checkpoint shards:  50%|█████ | 2/4",
        "model.safetensors: 12%|█ | 1.2G/9.9G",
        "12%|█ | 5/100 of the disk",
        "Batch 32, loss 0.3",
        "[2026, 11] loss",
        "[1/3] loss: 2.3",
        "Test loss: 2.300000  [ 6400/60000]",
        "Avg loss: 2.300000  [ 6400/60000]",
        "epoch 3 step 20 saved checkpoint",
        "epoch 3 step 20: evaluation",
        "WARNING | step 10 | loss 2.3 | is high",
        "epoch 3 steps 20",
        "epoch 3 step 2.5 of the paper",
        "last epoch 3 step 20",
        "Test: [ 10/100]\tTime  0.1 ( 0.2)\tLoss 6.9 (6.9)\tAcc@1 0.0",
        "Test:  [ 10/100]  eta: 0:00:10  loss: 6.9 (6.9)  time: 0.1",
        "Epoch(val) [1][10/25]  loss: 0.1  time: 0.1",
        "Test set: Average loss: 0.05, Accuracy: 9830/10000 (98%)",
        "2024-01-01 12:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5.2 | ppl 17.1",
        "elapsed time per iteration (ms): 12",
    ],
)
def test_other_lines(line: str) -> None:
    """Lines that only resemble those of a step give nothing."""
    assert parse(line.encode()) is None


@pytest.mark.parametrize(
    "description",
    [
        *("Testing", "Evaluating", "Validation DataLoader 0", "Validation", "Epoch 3 [val]", "Dev", "Rollout"),
        *("Processing batches", "Scoring model", "Warmup", "warm-up lr", "Encoding", "Collating", "Gathering"),
        "             Class     Images  Instances      Box(P          R      mAP50",
    ],
)
def test_bars_of_other_activities(description: str) -> None:
    """A bar with any description gives a step, but one that may not train does not replace a step of the training."""
    line = f"{description}: 20%|██        | 7/35 [00:10<00:40,  2.00s/it]\n".encode()
    bar = Step(step=7, steps=35, seconds=2.0, is_other=True)
    training = Step(step=3, steps=4)

    assert bar == parse(line) == newest(line)
    assert (training, training) == (newest(b"75%|### | 3/4\n" + line), newest(line, training))
    assert (training, training) == (newest(line + b"75%|### | 3/4\n"), newest(b"75%|### | 3/4\n", bar))
    assert bar._replace(loss=2.0) == newest(line + b"{'loss': 2.0}\n")
    assert (True, False) == (is_beside(bar, training), is_beside(training, bar))


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
        b"INFO [",
        b"(a pid=11",
        b"(a pid=11)",
    ):
        parse(form.literal + filler * LONGEST)
        parse((filler * LONGEST)[: LONGEST - len(form.literal)] + form.literal)
    parse(b"(a pid=" + b"9" * (LONGEST - 20) + form.literal)

    assert time.process_time() - begin < 10


def test_newest() -> None:
    """The figures of the last step may be in two lines, and what they lack is that of the step before."""
    lines = b"X_STEP=3\nX_STEP=4\nper step time: 250 ms\nsaved\n"

    assert Step(step=4, seconds=0.25) == newest(lines)
    assert Step(step=4, seconds=0.25, loss=2.0) == newest(lines, Step(step=2, loss=2.0))
    assert NO_STEP == newest(b"")
    assert Step(step=30, steps=1000) == newest(b"50%|#####     | 5/10\n", Step(step=30, steps=1000))


def test_furthest() -> None:
    """Of several ranks, the highest step counts."""
    assert Step(step=5) == furthest([Step(step=4), Step(step=5), Step(loss=1.0)])
    assert Step(step=4) == furthest([Step(step=9, is_other=True), Step(step=4)])
    assert furthest([NO_STEP]) is None
