"""Jobs in which a victim ends first, and the rank that caused its end later, or only because the runner stops it."""

from __future__ import annotations

from signal import SIGABRT, SIGSEGV, SIGTERM
from typing import Final

import attrs
import pytest

from ascend_runner.diagnosis import log_evidence, root_cause
from ascend_runner.diagnosis.finding import Certainty, RootCause
from ascend_runner.diagnosis.root_cause import Death
from ascend_runner.supervision.causes import Ending

FAILED, STOPPED = Ending(exit_code=1), Ending(signum=SIGTERM)
CULPRIT: Final = 2
STEPS: Final = "".join(f"step {number} loss 2.31\n" for number in range(17))


def traceback(message: str, source: str = "loss = step(batch)", path: str = "/job/train.py") -> str:
    """Return a traceback of the program that ends with a message, which may have several lines."""
    frames = (
        f'  File "/job/train.py", line 212, in <module>\n    main()\n  File "{path}", line 61, in step\n    {source}\n'
    )
    return f"Traceback (most recent call last):\n{frames}{message}\n"


# What victims say.
GLOO: Final = traceback(
    "RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:5012", "dist.all_reduce(loss)"
)
SOCKET: Final = traceback(
    "RuntimeError: HCCL function error: HcclAllreduce, error code is 6\n"
    "EI0006: [PID: 7] 2026-01-02-03:04:05.123.456 Getting socket times out. Reason: the remote rank does not answer.",
    "dist.all_reduce(loss)",
)
NOTIFY: Final = traceback(
    "RuntimeError: ACL stream synchronize failed, error code is 507048\n"
    "EI0002: [PID: 7] 2026-01-02-03:04:05.123.456 The wait execution of the Notify register times out.",
    "torch.npu.synchronize()",
)
WATCHDOG: Final = (
    "terminate called after throwing an instance of 'std::runtime_error'\n"
    "  what():  [Rank 7] HCCL watchdog thread terminated with exception: [Rank 7] Watchdog caught collective operation"
    " timeout: WorkHCCL(SeqNum=197, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800993 milliseconds before timing"
    " out.\n"
)
STORE: Final = traceback(
    "torch.distributed.DistNetworkError: Connection was likely closed. Did the remote server shutdown or crash?",
    "store.get(key)",
    "/opt/env/lib/python3.11/site-packages/torch/distributed/rendezvous.py",
)
LINK_DOWN: Final = traceback("mesh.LinkDown: port 5012 of 10.0.0.4 does not answer", "raise LinkDown(port, peer)")
ALSO: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"


@attrs.frozen(kw_only=True)
class Case:
    """What the rank has said that caused the end of the others, and what the victims have."""

    truth: str  # the cause in one line contains it
    log: str
    victim: str = GLOO
    ending: Ending = FAILED


LAST_WORDS: Final = "a message and no traceback"
CASES: Final = {
    "own class, then the watchdog": Case(
        truth="data.decode.DecodeError: block 7 of shard 12 is cut off",
        log=STEPS
        + traceback("data.decode.DecodeError: block 7 of shard 12 is cut off", "raise DecodeError(block)")
        + WATCHDOG,
        victim=WATCHDOG,
        ending=Ending(signum=SIGABRT),
    ),
    "peer reported while handled": Case(
        truth="KeyError: 'pixel_values'",
        log=STEPS + traceback("KeyError: 'pixel_values'", "images = batch['pixel_values']") + ALSO + SOCKET,
        victim=SOCKET,
    ),
    "assertion of a kernel": Case(
        truth="/op/gather.cpp:31: Assertion `index < rows'",
        log=f"{STEPS}[ASSERT] /op/gather.cpp:31: Assertion `index < rows'\n"
        + traceback(
            "RuntimeError: synchronize:x.cpp:361 NPU function error: AclrtSynchronizeStream(stream), error code is"
            " 507015\n Since the operator is called asynchronously, the stacktrace may be inaccurate.",
            "loss.item()",
        ),
        victim=NOTIFY,
    ),
    "empty exception": Case(
        truth="shard 7 of /obs/data has no checksum",
        log=f"{STEPS}2026-01-02 03:04:05,678 ERROR shard 7 of /obs/data has no checksum\n" + traceback("OSError"),
    ),
    "words that nobody knows": Case(
        truth="mesh.GridError: cell 7 has no neighbor",
        log=STEPS + traceback("mesh.GridError: cell 7 has no neighbor", "raise GridError(cell)"),
        victim=LINK_DOWN,
    ),
    "worker of a data loader": Case(
        truth="DataLoader worker (pid 4711) is killed by signal: Killed.",
        log=STEPS
        + traceback("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ")
        + ALSO.replace(
            "During handling of the above exception, another exception occurred",
            "The above exception was the direct cause of the following exception",
        )
        + traceback("RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"),
        victim=STORE,
    ),
    LAST_WORDS: Case(
        truth="global_batch_size must be a multiple of 96",
        log="loading /job/config.yaml\nconfig: global_batch_size must be a multiple of 96\n",
        victim=SOCKET,
    ),
    "record in Chinese": Case(
        truth="数据集 /data/train 第 7 片校验失败",
        log=f"{STEPS}2026-01-02 03:04:05,678 - 错误 - 数据集 /data/train 第 7 片校验失败\n",
        victim=STORE,
    ),
    "long epilogue after survived losses": Case(
        truth="ValueError: loss is nan at step 17",
        log="WARNING retrying: ConnectionResetError: [Errno 104] Connection reset by peer\n"
        + STEPS
        + traceback("ValueError: loss is nan at step 17", "raise ValueError(message)")
        + "wandb: \nwandb: Run history:\n"
        + "".join(f"wandb: metric/{number} ▁▂▃▄▅▆▇█\n" for number in range(60)),
    ),
    "traceback in JSON": Case(
        truth="RuntimeError: the tokenizer has 7 tokens less than the embedding",
        log=STEPS
        + '{"level": "error", "message": "Traceback (most recent call last):\\n  File \\"/job/train.py\\", line 9, in'
        ' main\\n    check()\\nRuntimeError: the tokenizer has 7 tokens less than the embedding"}\n',
        victim=NOTIFY,
    ),
    "crash of native code": Case(
        truth="Segmentation fault",
        log=f"{STEPS}Fatal Python error: Segmentation fault\n\nCurrent thread 0x0000ffff8a7ff010 (most recent call"
        ' first):\n  File "/job/ops.py", line 12 in fused_norm\n  File "/job/train.py", line 61 in step\n',
        victim=WATCHDOG,
        ending=Ending(signum=SIGSEGV),
    ),
    "memory, then a lost peer": Case(
        truth="RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB",
        log=STEPS
        + traceback("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 2; 60.97 GiB total capacity)")
        + "[ERROR] HCCL(7,python):2026-01-02-03:04:06.123.456 [socket.cc:9] [Recv] the peer is gone, error code is 6\n"
        "EI0006: [PID: 7] 2026-01-02-03:04:06.123.456 Getting socket times out.\n",
        victim=SOCKET,
    ),
}


def death(rank_id: int, log: str, ending: Ending = FAILED, *, is_stopped: bool = False) -> Death:
    """Return a rank with what its log says."""
    evidence = log_evidence.read(log.encode(), ending, is_stopped=is_stopped)
    return Death(rank_id=rank_id, ending=ending, evidence=evidence, is_stopped=is_stopped)


# How the rank ends that is the cause: before the others are asked to stop, after that, or because of that.
ENDS: Final = ("before", "late", "stopped")


def root_of(case: Case, end: str) -> RootCause:
    """Return the cause of a job whose ranks 0 and 1 are victims, and whose rank 3 trains until it is stopped."""
    ending = STOPPED if end == "stopped" else case.ending
    culprit = death(CULPRIT, case.log, ending, is_stopped=end != "before")
    victims = [death(rank_id, STEPS + case.victim) for rank_id in (0, 1)]
    others = [death(3, STEPS, STOPPED, is_stopped=True)]
    return root_cause.find([*victims, culprit, *others], first_exit=0, suspected=None)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", CASES)
def test_rank_that_caused_it(name: str, end: str) -> None:
    """The rank that caused the end of the others is named, with its reason, although a victim ended before.

    Only a bare line is too weak to accuse a rank that was asked to stop: then the cause is open.
    """
    case = CASES[name]
    root = root_of(case, end)
    if name == LAST_WORDS and end != "before":
        assert Certainty.OPEN is root.certainty
    else:
        assert (CULPRIT, True) == (root.rank_id, case.truth in root.summary)
