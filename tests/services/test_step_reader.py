"""Steps are read from the lines of the ranks, and slow trainings are found in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascend_runner.node.host import Host
from ascend_runner.services.pace import MOST_AT_ONCE, MOST_LINES, MOST_WAITING, Devices, StepReader
from ascend_runner.supervision.causes import Rule, SignalReceived, Slowdown
from ascend_runner.supervision.state import Phase, State
from tests.helpers.npu_tools import TWO_DIES, fake_npu_smi, script
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import wait_until

NO_DEVICES = Devices(Host("/nowhere"), {"PATH": "/nowhere"})
GUIDE = b"this iteration hardware time is 2201.521 and e2e time is 3317.794921875 ms.\n"
SCREEN = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| 0     910B3               | OK            | 93.6        40                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          3161 / 65536         |
| 3     910B3               | Alarm         | 93.6        71                0    / 0             |
"""


@contextmanager
def reading(
    ranks: int, devices: Devices | None = None, found: list[Slowdown] | None = None, **perf: object
) -> Iterator[tuple[StepReader, list[str]]]:
    """Read the steps of a job; yield the reader and its warnings, and append to `found`."""
    warnings: list[str] = []
    job = job_spec([rank_spec(rank_id) for rank_id in range(ranks)], **perf)
    pass_on = ([] if found is None else found).append
    reader = StepReader(job, devices or NO_DEVICES, warnings.append, pass_on=pass_on)
    reader.pause = 0.05
    reader.start()
    try:
        yield reader, warnings
    finally:
        reader.close()


def enough(found: list[Slowdown]) -> list[Slowdown]:
    """Wait until something was found, and return it."""
    wait_until(lambda: bool(found))
    return found


def test_guide_to_the_letter() -> None:
    """Three lines above the threshold are a slow training."""
    found: list[Slowdown] = []
    with reading(1, found=found, perf_threshold=0.66) as (reader, _warnings):
        reader.tap(0)(GUIDE * 3)

        assert [(Rule.RATIO, 0, 2.201521, 3.317794921875)] == [
            (slow.rule, slow.rank_id, slow.own, slow.reference) for slow in enough(found)
        ]


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize(
    "line",
    [
        b" iteration %(step)8d/    5000 | consumed samples: 128 | elapsed time per iteration (ms): %(ms).1f |\n",
        b"INFO - { Epoch:[  1/  2], step:[%(step)5d/ 1900], loss: 10.633, per_step_time: %(ms)dms, lr: 1e-05\n",
        b"epoch time: 553262.126, per step time: %(ms).3f\n",
        b" 12%%|#   | %(step)d/1000 [00:10<01:20,  %(seconds).2fs/it]\r",
        b"Epoch 0:  12%%|#  | %(step)d/1000 [06:00<44:00,  %(rate).3fit/s, v_num=0]\r",
        b"epoch=0/global_step=%(step)d, RunningAvgSamplesPerSec=5, CurrSamplesPerSec=%(rate).2f, MemAllocated=6.01GB\n",
        b">> {'loss': 1.0921, 'epoch': 0.31, 'throughput': %(rate).2f}\n",
        b"this iteration hardware time is 1.0 and e2e time is %(ms)f ms.\n",
        b"my step took %(seconds)f s\n",
    ],
    ids="Megatron MindFormers MindSpore tqdm Lightning DeepSpeed LLaMA-Factory guide pattern".split(),
)
def test_lines_of_frameworks(line: bytes) -> None:
    """A drop of the speed is found in the lines of each of them, as they come from the ranks."""
    found: list[Slowdown] = []
    pattern = "my step took (?P<seconds>[0-9.]+)"
    with reading(1, found=found, perf_drop=0.3, perf_pattern=pattern) as (reader, warnings):
        take = reader.tap(0)
        for step in range(80):
            seconds = 2.0 if step > 60 else 1.0
            take(line % {b"step": step, b"seconds": seconds, b"ms": 1000 * seconds, b"rate": 1 / seconds})
        enough(found)

    assert [(Rule.DROP, 0)] == [(slow.rule, slow.rank_id) for slow in found]
    assert [1.0] == pytest.approx([slow.own / slow.reference - 1 for slow in found])
    assert [] == warnings


def test_last_step_of_several_lines() -> None:
    """Each line gives the figures that it has; the bar of an evaluation does not give the step of the training."""
    lines = (
        b"  3%|3   | 30/1000 [01:00<20:00,  1.20s/it]\n",
        b"{'loss': 0.5, 'grad_norm': 1.0}\n",
        b" 50%|5   | 5/10 [00:01<00:01,  0.20s/it]\n",
        b"my step 31 took 7\n",
    )
    with reading(1, perf_pattern=r"my step (?P<step>\d+) took") as (reader, _warnings):
        assert reader.last_step() is None
        for line in lines:
            reader.tap(0)(line)
        wait_until(lambda: (reader.last_step() or {}).get("step") == 31)
        last = dict(reader.last_step() or {})

    assert (31, 1000, 1.2, 0.5) == tuple(last[name] for name in ("step", "steps", "seconds", "loss"))


def test_bars_of_ranks_with_fewer_steps() -> None:
    """A rank with fewer batches than another one is not behind, and its steps are no evaluation of the other one."""
    with reading(3) as (reader, _warnings):
        for step in (1, 500):
            for rank_id, steps in ((1, 999), (0, 1000), (2, 1000)):
                reader.tap(rank_id)(b" 50%%|5   | %d/%d [00:01<00:01,  5.00it/s]\n" % (step, steps))
        reader.tap(1)(b" 50%|5   | 5/10 [00:01<00:01,  5.00it/s]\n")
        reader.tap(0)(b"X_STEP=501\n")
        wait_until(lambda: (reader.last_step() or {}).get("step") == 501)

        assert "" == reader.behind_others({0, 1, 2})


def test_bars_of_other_activities() -> None:
    """They give the step only before the first one of the training, and no rank is behind others by them."""
    bar = b"Processing: 50%%|5   | %d/900 [00:01<00:01,  5.00it/s]\n"
    with reading(3) as (reader, _warnings):
        reader.tap(0)(bar % 7)
        wait_until(lambda: (reader.last_step() or {}).get("step") == 7)
        for rank_id in (0, 1):
            reader.tap(rank_id)(b"my loss is 2\nX_STEP=501\n")
        for rank_id in (0, 2):
            reader.tap(rank_id)(bar % 400)
        reader.tap(1)(b"{'loss': 2.0}\n")
        wait_until(lambda: "loss" in (reader.last_step() or {}))
        last = dict(reader.last_step() or {})

        assert {"step": 501, "loss": 2.0} == {name: last[name] for name in last if name != "at"}
        assert "" == reader.behind_others({0, 1, 2})


def test_group_that_is_not_a_number() -> None:
    """That is reported once, and the pattern is not used any more."""
    with reading(1, perf_pattern="step (?P<step>.+) done") as (reader, warnings):
        reader.tap(0)(b"step one done\nstep two done\nX_STEP=7\n")
        wait_until(lambda: reader.last_step() is not None)

    assert 1 == len(warnings)
    assert warnings[0].endswith("a group is not a number: step is 'one'")


def test_waiting_lines_are_read_at_once() -> None:
    """The child process is asked once for many lines."""
    left: list[int] = []
    job = job_spec([rank_spec(0)], perf_pattern=r"my step (?P<step>\d+)")
    reader = StepReader(job, NO_DEVICES, print, show_step=lambda *_figures: left.append(reader.waiting))
    reader.tap(0)(b"my step 1\n" * (2 * MOST_AT_ONCE + 1))
    reader.start()
    wait_until(lambda: len(left) == 2 * MOST_AT_ONCE + 1)
    reader.close()

    assert [*[MOST_AT_ONCE + 1] * MOST_AT_ONCE, *[1] * MOST_AT_ONCE, 0] == left


def test_lines_are_collected() -> None:
    """Lines are read after a pause, together with those that have come meanwhile; the end of the job cuts it short."""
    steps: list[int | None] = []
    reader = StepReader(
        job_spec([rank_spec(0)], perf_drop=0.3),
        NO_DEVICES,
        print,
        show_step=lambda _at, step, *_others: steps.append(step),
    )
    reader.pause = 10000.0
    reader.start()
    reader.tap(0)(b"X_STEP=1\n")
    wait_until(lambda: not reader.waiting)
    reader.tap(0)(b"X_STEP=2\nX_STEP=3\n")
    collected = list(steps)
    reader.close()

    assert ([], [1, 2, 3]) == (collected, steps)


def test_device_and_temperature_of_a_slow_rank(tmp_path: Path) -> None:
    """A slow rank is named with its NPU, as npu-smi knows it."""
    for number in range(4):
        device = tmp_path / "dev" / f"davinci{number}"
        device.parent.mkdir(exist_ok=True)
        device.touch()
    tool = tmp_path / "npu-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{SCREEN}END\n")
    tool.chmod(0o755)
    devices = Devices(Host(str(tmp_path)), {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    found: list[Slowdown] = []
    with reading(4, devices, found, perf_threshold=0.9) as (reader, _warnings):
        taps = [reader.tap(rank_id) for rank_id in range(4)]
        for _ in range(70):
            for rank_id, take in enumerate(taps):
                take(b"hardware time is %d and e2e time is 9999 ms\n" % (200 if rank_id == 3 else 100))
        enough(found)

    assert [(Rule.STRAGGLER, 3, 3, 71)] == [(one.rule, one.rank_id, one.device, one.temperature) for one in found]


def test_npu_smi_that_cannot_be_read(tmp_path: Path) -> None:
    """Without it, or if it says something else, the temperature is unknown."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "davinci0").touch()
    tool = tmp_path / "npu-smi"
    devices = Devices(Host(str(tmp_path)), {"PATH": str(tmp_path)})
    found = [devices.temperature(0, lambda: False)]
    for text in ("#!/bin/sh\necho 'dcmi module initialize failed'\n", "#!/bin/nothing\n"):
        tool.write_text(text)
        tool.chmod(0o755)
        found.append(devices.temperature(0, lambda: False))

    assert [None, None, None] == found
    assert devices.temperature(8, lambda: False) is None


def test_temperature_of_a_chip_of_a_card(tmp_path: Path) -> None:
    """The temperature is that of the rank's own chip, which npu-smi lists below the number of its card."""
    (tmp_path / "dev").mkdir()
    for number in (4, 5):
        (tmp_path / "dev" / f"davinci{number}").touch()
    environ = {"PATH": f"{fake_npu_smi(tmp_path, script(TWO_DIES, ''))}:{os.environ['PATH']}"}

    assert 71 == Devices(Host(str(tmp_path)), environ).temperature(1, lambda: False)


@pytest.mark.parametrize(("line", "count"), [(b"step 1 took 2\n", 0), (b"step 1 is done\n", 1)])
def test_check_for_a_match_while_the_job_runs(line: bytes, count: int) -> None:
    """After a while, output without any match is reported, once; lines that are waiting are read first."""
    with reading(1, perf_pattern=r"step (?P<step>\d+) took") as (reader, warnings):
        reader.check_at = 0.0
        take = reader.tap(0)
        take(line)
        take(line + b"X_STEP=7\n")
        wait_until(lambda: reader.last_step() == {**(reader.last_step() or {}), "step": 7})
        wait_until(lambda: len(warnings) >= count)  # the check follows the last line that was waiting

    assert count == len(warnings)


@pytest.mark.parametrize(
    ("cause", "line", "count"),
    [(None, b"step 1 took 2\n", 0), (None, b"step 1 is done\n", 1), (SignalReceived(15), b"step 1 is done\n", 0)],
)
def test_check_for_a_match_at_the_end(cause: SignalReceived | None, line: bytes, count: int) -> None:
    """Only a success without any match is reported, when the last lines have been read."""
    with reading(1, perf_pattern=r"step (?P<step>\d+) took") as (reader, warnings):
        reader.pause = 10000.0
        reader.tap(0)(line)
        reader.observe(State(grace=1.0, phase=Phase.DONE, cause=cause), 0.0)

    assert count == len(warnings)


def test_lines_are_dropped_rather_than_kept() -> None:
    """A reader that is late keeps a bounded number of lines."""
    reader = StepReader(job_spec([rank_spec(0)], perf_drop=0.3), NO_DEVICES, print)
    take = reader.tap(0)
    for _ in range(2 * MOST_WAITING // MOST_LINES):
        take(b"X_STEP=7\n" * MOST_LINES)

    assert MOST_WAITING == reader.waiting
    reader.close()
