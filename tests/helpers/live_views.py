"""Jobs of 8, 64 and 1,024 ranks as `ascend-job top` sees them."""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.node.npu_smi import Figures
from ascend_runner.record.nodes import NodeRecord
from ascend_runner.tools.job.top_frame import JobView, RankView, State, judged
from ascend_runner.training.steps import Step

NOW: Final = 1000.0  # seconds
STEADY: Final = (40, *(90 + index * 7 % 25 for index in range(70)))  # bytes
STALLED: Final = (*STEADY[:48], *[0] * 23)


def steps_until(step: int, loss: str, steps: int = 1563) -> tuple[str, ...]:
    """Return the end of a log."""
    return tuple(f"step {one}/{steps} | {loss} | 1.752 s/step" for one in range(step - 4, step + 1))


def rank(rank_id: int, **members: object) -> RankView:
    """Return a rank that trains."""
    known = {
        "state": State.RUNNING,
        "npu": rank_id % 8,
        "pid": 25355 + rank_id,
        "quiet": float(rank_id % 3),
        "step": 1204,
        "cpu": 101.0 + rank_id % 4,
        "memory": (39 << 30) // 10 + (rank_id % 5 << 20),
        "device": Figures(temperature=52 + rank_id % 4, ai_core=95 + rank_id % 3, memory=91, at=NOW - 1),
        "output": STEADY[rank_id % 5 :],
        "last_lines": steps_until(1204, f"loss: 2.{310 + rank_id}"),
    }
    return RankView(rank_id=rank_id, **{**known, **members})  # type: ignore[arg-type]  # members of several types


def quiet(rank_id: int) -> RankView:
    """Return a rank that has written nothing for minutes, and whose NPU is idle."""
    figures = Figures(temperature=49, ai_core=0, memory=91, at=NOW - 1)
    lines = (*steps_until(1069, "loss: 2.402"), "loading shard 12 of 40")
    return rank(rank_id, quiet=252.0, step=1069, cpu=99.0, device=figures, output=STALLED, last_lines=lines)


EIGHT: Final = JobView(
    name="modelarts-job-5f2c",
    headline="running, started 2026-11-21 09:47:36 +0800, 2 h 14 min ago",
    brief="running, started 2 h 14 min ago",
    place="192.168.0.25, pod ma-job-5f2c-trainjob-0",
    ranks=judged([quiet(5) if number == 5 else rank(number) for number in range(8)]),
    now=NOW,
    step=Step(step=1204, steps=1563, seconds=1.752, loss=2.311),
    has_npus=True,
    has_stacks=True,
)
FATAL: Final = ("Fatal Python error: 段错误", "Current thread 0x0000ffff8c0 (most recent call first):")
TIMEOUT: Final = "RuntimeError: EI0006: connect timeout"
_AGED: Final = Figures(temperature=61, ai_core=0, memory=17, at=NOW - 60)
SIXTY_FOUR: Final = attrs.evolve(
    EIGHT,
    ranks=judged(
        [
            *(quiet(number) if number in {5, 44} else rank(number) for number in range(60)),
            rank(60, step=1100),
            rank(61, step=None, cpu=None, memory=None, device=None, quiet=None, last_lines=(), output=()),
            rank(62, device=_AGED),
            rank(63, state=State.FAILED, ending="failed (SIGSEGV)", quiet=None, last_lines=FATAL),
        ]
    ),
)


def of_many(rank_id: int) -> RankView:
    """Return a rank of which only the log is seen."""
    members = {"cpu": None, "memory": None, "device": None, "output": (), "pid": 0, "node": f"worker-{rank_id // 8}"}
    lines = steps_until(880, f"loss: 3.{rank_id % 100:02}", 5000)
    found = rank(rank_id, step=880, last_lines=lines, **members)
    if rank_id == 170:
        ending = "failed (exit status 1)"
        return attrs.evolve(found, state=State.FAILED, ending=ending, quiet=None, last_lines=(*lines, TIMEOUT))
    return attrs.evolve(found, quiet=130.0) if rank_id in {224, 312} else found


THOUSAND: Final = JobView(
    name="modelarts-job-9a11",
    headline="running, started 2026-11-21 09:47:36 +0800, 31 min 4 s ago",
    brief="running, started 31 min 4 s ago",
    place="128 nodes, logs in /sfs/log",
    ranks=judged([of_many(number) for number in range(1024)]),
    now=NOW,
    step=Step(step=880, steps=5000, seconds=1.752),
)
LINKED: Final = attrs.evolve(
    EIGHT,
    nodes=tuple(
        NodeRecord(
            node=node,
            pod=f"worker-{node}",
            state="" if node == 9 else "running",
            is_unreachable=node == 30,
            ranks=8,
            alive=8,
            step=1204,
            heard=None if node == 9 else 0.4,
            differs="CANN 8.0.RC2" if node == 3 else "",
        )
        for node in range(40)
    ),
)
JOBS: Final = {8: EIGHT, 64: SIXTY_FOUR, 1024: THOUSAND}  # by their ranks
SIZES: Final = {80: 24, 140: 24, 300: 50}  # rows by columns
