"""What `ascend-job explain` makes of the logs of each launcher, in its own layout."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ascend_runner import programs
from tests.helpers.program import Program
from tests.helpers.waiting import LIMIT, wait_until
from tests.tools.job.conftest import Start, Tool, running

NAN: Final = """\
Traceback (most recent call last):
  File "/code/train.py", line 212, in <module>
    train_step(batch)
  File "/code/train.py", line 140, in train_step
    raise ValueError(f"loss is nan at step {step}")
ValueError: loss is nan at step 17
"""
LOST: Final = """\
Traceback (most recent call last):
  File "/code/train.py", line 212, in <module>
    dist.all_reduce(loss)
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:5012
"""
TIMEOUT: Final = """\
[ERROR] HCCL(%d,python):2026-11-22-09:47:36.123.456 [task_exception_handler.cc:1][4711][TaskExecStage][Timeout]x
EI0002: [PID: %d] 2026-11-22-09:47:36.123.456 The wait execution of the Notify register times out.
"""
OOM: Final = "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 60.97 GiB total capacity)\n"
SUMMARY: Final = "ValueError: loss is nan at step 17"


def steps(rank: int, count: int = 17) -> str:
    """Return the progress of a rank."""
    return "".join(f"step {number} loss {2 - rank / 100:.2f}\n" for number in range(count))


def prefixed(prefix: str, text: str) -> str:
    """Return a text with a prefix before each line."""
    return "".join(f"{prefix}{line}" for line in text.splitlines(keepends=True))


def interleaved(*texts: str) -> str:
    """Return one line of each text after another."""
    lines = [text.splitlines(keepends=True) for text in texts]
    longest = max(map(len, lines))
    return "".join(of_one[number] for number in range(longest) for of_one in lines if number < len(of_one))


def box(rank: int, code: int, *, local: int | None = None) -> str:
    """Return torchrun's report on a failed worker, with its own traceback."""
    local = rank if local is None else local
    pid = 4711 + rank
    told = f"Signal {-code} (SIGKILL) received by PID {pid}" if code < 0 else "To enable traceback see: https://x"
    return f"""\
W1122 09:47:36.1 4700 torch/x/api.py:900] Sending process 4712 closing signal SIGTERM
E1122 09:47:37.0 4700 torch/x/api.py:874] failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: python
Traceback (most recent call last):
  File "/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_09:47:36
  host      : worker-0
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: {pid})
  error_file: <N/A>
  traceback : {told}
============================================================
"""


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files below a directory, and return it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def ranks(name: str, guilty: str = NAN, others: str = LOST, count: int = 4) -> dict[str, str]:
    """Return the logs of ranks, of which rank 2 has failed by itself."""
    return {name.format(rank): steps(rank) + (guilty if rank == 2 else others) for rank in range(count)}


def explained(tool: Tool, *words: object) -> tuple[int | None, str, str]:
    """Return the rank that is the cause, the sentence on it, and its log."""
    status, text = tool("explain", "--json", *map(str, words))
    found: dict[str, Any] = json.loads(text)
    cause = found["cause"]
    logs = {rank["rank_id"]: rank["log_path"] for rank in found["ranks"]}

    assert (cause is None) == (status == 1)
    return (cause["rank_id"], cause["sentence"], logs.get(cause["rank_id"], "")) if cause else (None, "", "")


@pytest.mark.parametrize(
    ("files", "log"),
    [
        ({**ranks("worker_{}.log"), "scheduler.log": "[ERROR] cluster: The node: 2 is timed out\n"}, "worker_2.log"),
        (ranks("none_x1y2/attempt_0/{}/stderr.log"), "none_x1y2/attempt_0/2/stderr.log"),
        (ranks("1/rank.{}/stderr"), "1/rank.2/stderr"),
        (ranks("rank.{}/stderr"), "rank.2/stderr"),
        (ranks("20261122_rank{}.log"), "20261122_rank2.log"),
        (
            {
                **ranks("modelarts-job-95f661bd-proc-rank-{0}-device-{0}.txt"),
                "modelarts-job-95f661bd-worker-0.log": NAN,
            },
            "modelarts-job-95f661bd-proc-rank-2-device-2.txt",
        ),
        (ranks("job1/worker-0/train_log/rank-{}.txt"), "job1/worker-0/train_log/rank-2.txt"),
        (ranks("device{}/train.log"), "device2/train.log"),
    ],
    ids=["msrun", "torchrun", "mpirun", "horovodrun", "deepspeed", "modelarts", "mindcluster", "mindspore"],
)
def test_a_log_for_each_rank(files: dict[str, str], log: str, tool: Tool, tmp_path: Path) -> None:
    """The rank that failed by itself is the cause, not the ones that lost it."""
    folder = written(tmp_path, files)

    assert (2, f"rank 2 failed: {SUMMARY}", str(folder / log)) == explained(tool, folder)
    assert (2, f"rank 2 failed: {SUMMARY}", str(folder / log)) == explained(
        tool, *(path for path in folder.rglob("*") if path.is_file())
    )


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("[default{}]:", box(2, 1)),
        ("[default{0}]:[rank{0}]: ", box(2, 1)),
        ("[rank{}]: ", box(2, 1)),
        (
            "[1,{}]<stderr>:",
            "The first process to do so was:\n\n  Process name: [[35302,1],2]\n  Exit code:    1\n",
        ),
        ("[{}]<stderr>:", "Process 2 exit with status code 1.\n"),
        ("[rank {}] ", ""),
        ("09:47:36 [rank {}] ", ""),
        ("{}: ", ""),
        ("2026-11-22T09:47:36.123456789Z [rank{}]: ", ""),
    ],
    ids=[
        "torchrun",
        "torchrun and torch",
        "torch",
        "mpirun",
        "horovodrun",
        "ascend-runner",
        "--timestamps",
        "srun",
        "kubectl",
    ],
)
def test_one_log_of_all_ranks(prefix: str, end: str, tool: Tool, tmp_path: Path) -> None:
    """The lines of ranks are told apart by their prefixes, in whichever order they come."""
    logs = [prefixed(prefix.format(rank), text) for rank, text in enumerate(ranks("{}").values())]
    written(tmp_path, {"train.log": interleaved(*logs) + end})
    rank, sentence, log = explained(tool, tmp_path / "train.log")

    assert (2, str(tmp_path / "train.log")) == (rank, log)
    assert SUMMARY in sentence


@pytest.mark.parametrize(
    ("prefix", "title"),
    [("[pod/train-worker-{}/pytorch] ", "pod train-worker-2"), ("worker-{}  | ", "container worker-2")],
    ids=["kubectl", "docker compose"],
)
def test_one_log_of_processes_without_ranks(prefix: str, title: str, tool: Tool, tmp_path: Path) -> None:
    """Pods and containers are told apart by their names; which rank one is, is unknown."""
    logs = [prefixed(prefix.format(number), steps(number) + (NAN if number == 2 else LOST)) for number in range(4)]
    written(tmp_path, {"train.log": interleaved(*logs)})

    assert f"{title} failed: {SUMMARY}" == explained(tool, tmp_path / "train.log")[1]


def test_only_tracebacks_have_a_prefix(tool: Tool, tmp_path: Path) -> None:
    """With torchrun without --tee: torch prefixes its tracebacks, and nothing else."""
    logs = [steps(rank) + prefixed(f"[rank{rank}]: ", NAN if rank == 2 else LOST) for rank in range(4)]
    written(tmp_path, {"slurm-4711.out": interleaved(*logs) + box(0, 1)})
    status, text = tool("explain", str(tmp_path / "slurm-4711.out"))

    assert 0 == status
    assert "rank 2" in text.splitlines()[0]
    assert SUMMARY in text.splitlines()[0]
    assert "rank 0 ended first (exit status 1)" in text


@pytest.mark.parametrize("name", ["slurm-4711.out", "modelarts-job-95f661bd-worker-0.log"])
def test_no_line_has_a_prefix(name: str, tool: Tool, tmp_path: Path) -> None:
    """With torchrun and torch before 2.3: the error is the cause, of an unknown rank."""
    written(tmp_path, {name: steps(0) + NAN + LOST + box(0, 1)})
    status, text = tool("explain", str(tmp_path / name))

    assert 0 == status
    assert text.splitlines()[0].endswith(f" failed: {SUMMARY}")
    assert "  first  rank 0 ended first (exit status 1)" in text.splitlines()
    assert f"  log    {tmp_path / name}" in text.splitlines()


def test_errors_that_tell_their_rank(tool: Tool, tmp_path: Path) -> None:
    """Errors of torch_npu have the rank, if no prefix and no name has."""
    error = "[ERROR] 2026-11-22-09:47:36 (PID:4711, Device:3, RankID:11) ERR00100 PTA call acl api failed\n"
    written(tmp_path, {"train.log": steps(0) + NAN.replace(SUMMARY, "RuntimeError: x, error code is 507015") + error})

    assert "rank 11 failed: RuntimeError: x, error code is 507015" == explained(tool, tmp_path / "train.log")[1]


def test_a_kill_that_only_the_launcher_has_seen(tool: Tool, tmp_path: Path) -> None:
    """A rank that was killed has no words; torchrun's report names it, and the signal."""
    written(
        tmp_path,
        {"train.log": prefixed("[default3]:", steps(3)) + box(3, -9), "none_x/attempt_0/3/stdout.log": steps(3)},
    )
    status, text = tool("explain", str(tmp_path))

    assert 0 == status
    assert "rank 3" in text.splitlines()[0]
    assert "killed by SIGKILL" in text.splitlines()[0]
    assert "usually by the kernel for lack of memory" in text


def test_an_empty_log(tool: Tool, tmp_path: Path) -> None:
    """Of the logs of a rank without an error, the one is named that has its last lines."""
    written(tmp_path, {"train.log": box(3, -9), "none_x/attempt_0/3/stdout.log": steps(3)})
    written(tmp_path, {"none_x/attempt_0/3/stderr.log": ""})

    assert str(tmp_path / "none_x/attempt_0/3/stdout.log") == explained(tool, tmp_path)[2]


SCHEDULER: Final = """\
[ERROR] DISTRIBUTED(4711,7f1,python):2026-11-22-09:47:36 [x/meta_server_node.cc:548] UpdateTopoState] The node: 2 is \
timed out. It may exit with exception, please check this node's log.
Traceback (most recent call last):
  File "/code/train.py", line 4, in <module>
    init()
  File "/lib/python3.11/site-packages/mindspore/communication/management.py", line 210, in init
    init_cluster()
RuntimeError: The total number of timed out node is 1. Timed out node list is: [const vector]{2}, worker 2 is the \
first one timed out, please check its log.
"""


def test_a_launcher_that_repeats_the_scheduler(tool: Tool, tmp_path: Path) -> None:
    """What the launcher prints of its scheduler, as `msrun --join True` does, is ascribed to the scheduler."""
    written(tmp_path, {**ranks("log/worker_{}.log", guilty="", others=""), "log/scheduler.log": SCHEDULER})
    written(tmp_path, {"msrun.log": f"Start scheduler process\n{SCHEDULER}"})
    status, text = tool("explain", str(tmp_path))

    assert 0 == status
    assert text.startswith("scheduler failed: RuntimeError: The total number of timed out node is 1.")
    assert "blames rank 2" in text
    assert "report the same error" not in text
    assert "msrun.log" not in text


def test_deepspeed(tool: Tool, tmp_path: Path) -> None:
    """DeepSpeed tells the exit status of a local rank."""
    end = (
        "[2026-11-22 09:47:37,1] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4711\n"
        "[2026-11-22 09:47:37,2] [ERROR] [launch.py:325:sigkill_handler] ['/bin/python', '-u', 'train.py',"
        " '--local_rank=1', '--lr', '1'] exits with return code = -11\n"
    )
    written(tmp_path, {"train.log": steps(0) + end})
    rank, sentence, _log = explained(tool, tmp_path / "train.log")

    assert 1 == rank
    assert "killed by SIGSEGV" in sentence


def test_several_nodes(tool: Tool, tmp_path: Path) -> None:
    """Local ranks are counted through the nodes, and global ones are what they are."""
    local = {f"worker-{node}/none_x/attempt_0/{rank}/stderr.log": LOST for node in range(2) for rank in range(4)}
    written(tmp_path / "local", {**local, "worker-1/none_x/attempt_0/2/stderr.log": NAN})
    told = {f"node{node}/train.log": prefixed(f"[default0]:[rank{4 * node}]: ", LOST) for node in range(2)}
    written(tmp_path / "told", {**told, "node1/train.log": prefixed("[default2]:[rank6]: ", NAN)})

    assert 6 == explained(tool, tmp_path / "local")[0]
    assert 6 == explained(tool, tmp_path / "told")[0]
    assert 6 == explained(tool, *(tmp_path / "told").iterdir())[0]


def test_attempts_and_runs(tool: Tool, tmp_path: Path) -> None:
    """The last attempt counts, and of runs in one directory the newest."""
    written(tmp_path, ranks("none_x/attempt_0/{}/stderr.log", guilty=LOST.replace("closed", "reset")))
    written(tmp_path, ranks("none_x/attempt_1/{}/stderr.log"))
    written(tmp_path, ranks("none_old/attempt_0/{}/stderr.log", guilty=OOM))
    for path in tmp_path.rglob("none_old/**/stderr.log"):
        os.utime(path, (1000.0, 1000.0))
    status, text = tool("explain", str(tmp_path))

    assert 0 == status
    assert f"rank 2 failed: {SUMMARY}" in text
    assert "ignored 8 logs of earlier runs and attempts" in text


def test_plogs_of_ranks(tool: Tool, tmp_path: Path) -> None:
    """A rank without a word of its own is explained by its plog, which is found by its path or its pid."""
    plog = "[INFO] TDT(4713,python):x\n[ERROR] DRV(4713,python):2026 x\nEI0011: [PID: 4713] x\n"
    quiet = ranks("rank-{}.txt", guilty="", others=LOST)
    quiet["rank-2.txt"] += "[WARNING] GE(4713,python):2026-11-22 x\n"
    written(tmp_path / "path", {**quiet, "process_log/rank_2/debug/plog/plog-4713_2026.log": plog})
    written(tmp_path / "pid", {**quiet, "process_log/debug/plog/plog-4713_2026.log": plog})

    for folder in ("path", "pid"):
        status, text = tool("explain", str(tmp_path / folder))

        assert 0 == status
        assert text.startswith("rank 2 failed: EI0011")
        assert "not enough device memory for HCCL's buffers" in text
        assert "plog-4713_2026.log" in text


def test_a_directory_of_plogs(tool: Tool, tmp_path: Path) -> None:
    """Plogs alone are explained; HCCL's lines tell the ranks, else they are called by their pids."""
    entry = "[EVENT] HCCL(%d,python):2026 [op_base.cc:1]Entry-HcclCommInitRootInfo:ranks[2], rank[%d], rootinfo: x\n"
    own = "[ERROR] HCCL(4712,python):2026 x\nEI0011: [PID: 4712] x\n"
    files = {
        "run/plog/plog-4711_2026.log": entry % (4711, 0),
        "debug/plog/plog-4711_2026.log": TIMEOUT % (4711, 4711),
        "debug/plog/plog-4712_2026.log": entry % (4712, 1) + own,
    }
    written(tmp_path, files)
    _rank, sentence, _log = explained(tool, tmp_path)
    alone = explained(tool, tmp_path / "debug/plog/plog-4712_2026.log")

    assert "EI0011" in sentence
    assert "EI0011" in alone[1]


def test_plogs_without_ranks(tool: Tool, tmp_path: Path) -> None:
    """Processes are listed in order, as people write lists."""
    pids = range(4711, 4715)
    written(tmp_path, {f"debug/plog/plog-{pid}_2026.log": TIMEOUT % (pid, pid) for pid in pids})

    assert tool("explain", str(tmp_path))[1].endswith(
        "  others reported a lost peer: process 4712, process 4713 and process 4714\n"
    )


def test_standard_input(tmp_path: Path) -> None:
    """`kubectl logs pod | ascend-job explain -`."""
    text = prefixed("[rank3]: ", NAN).encode()
    command = [*programs.argv(programs.JOB), "explain", "-"]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, cwd=tmp_path, timeout=LIMIT, check=False)

    assert 0 == done.returncode
    assert done.stdout.startswith(f"rank 3 failed: {SUMMARY}\n".encode())
    assert b"  log    standard input\n" in done.stdout


def test_process_substitution(tmp_path: Path) -> None:
    """`ascend-job explain <(kubectl logs pod)`."""
    (tmp_path / "train.log").write_text(NAN)
    words = " ".join([*programs.argv(programs.JOB), "explain", "<(cat train.log)"])
    done = subprocess.run(["/bin/bash", "-c", words], stdout=subprocess.PIPE, cwd=tmp_path, timeout=LIMIT, check=False)

    assert 0 == done.returncode
    assert SUMMARY.encode() in done.stdout


def test_compressed_logs(tool: Tool, tmp_path: Path) -> None:
    """A compressed log is read like any other, whatever its name."""
    written(tmp_path, ranks("rank-{}.txt", guilty=""))
    (tmp_path / "rank-2.txt").unlink()
    (tmp_path / "rank-2.txt.gz").write_bytes(gzip.compress((steps(2) + NAN).encode()))
    (tmp_path / "other.bin").write_bytes((tmp_path / "rank-2.txt.gz").read_bytes())

    assert 2 == explained(tool, tmp_path)[0]
    assert SUMMARY in explained(tool, tmp_path / "other.bin")[1]


def test_the_same_log_twice(tool: Tool, tmp_path: Path) -> None:
    """A file is read once, however often it is named."""
    written(tmp_path, ranks("rank-{}.txt"))

    assert explained(tool, tmp_path) == explained(tool, tmp_path, tmp_path / "rank-1.txt", tmp_path / "rank-1.txt")


def test_the_screen(tool: Tool, tmp_path: Path) -> None:
    """It is the one after a failure: the cause, the evidence, the log, and the other ranks."""
    written(tmp_path, {**ranks("rank-{}.txt"), "rank-3.txt": steps(3)})
    expected = f"""\
rank 2 failed: {SUMMARY}
  | Traceback (most recent call last):
  |   File "/code/train.py", line 212, in <module>
  |     train_step(batch)
  |   File "/code/train.py", line 140, in train_step
  |     raise ValueError(f"loss is nan at step {{step}}")
  | ValueError: loss is nan at step 17
  log    {tmp_path}/rank-2.txt
  others reported a lost peer: ranks 0, 1
         no error in the log: rank 3
"""

    assert [line for line in expected.splitlines() if "means" not in line] == [
        line for line in tool("explain", str(tmp_path))[1].splitlines() if "means" not in line
    ]


@pytest.mark.parametrize(
    ("head", "error"),
    [("all 4 ranks failed alike: ValueError", NAN), ("all 4 ranks report the same error: RuntimeError", LOST)],
)
def test_all_ranks_report_the_same_error(head: str, error: str, tool: Tool, tmp_path: Path) -> None:
    """None of them is singled out, whether they are the cause or may all be victims."""
    written(tmp_path, ranks("rank-{}.txt", guilty=error, others=error))
    first, *lines = tool("explain", str(tmp_path))[1].splitlines()

    assert first.startswith(f"{head}: ")
    assert "exit status" not in first
    assert (error is LOST) == first.endswith(" (cause unclear)")
    assert [] == [line for line in lines if line.startswith(("  cause", "  first", "  also"))]


def test_no_known_cause(tool: Tool, tmp_path: Path) -> None:
    """Nothing is guessed."""
    written(tmp_path, {f"rank-{rank}.txt": steps(rank) for rank in range(4)})
    written(tmp_path, {"rank-1.txt": steps(1) + "ERROR: cannot send a mail\n"})

    assert (1, "no known cause in 4 logs\n  last error of rank 1: ERROR: cannot send a mail\n") == tool(
        "explain", str(tmp_path)
    )
    assert (None, "", "") == explained(tool, tmp_path)


def test_no_known_cause_in_a_plog(tool: Tool, tmp_path: Path) -> None:
    """The first error of a plog is shown, also if it is not known."""
    error = "[ERROR] RUNTIME(4711,python):2026-11-22 [x.cc:1]4711 F:something unheard of"
    written(tmp_path, {"plog-4711_2026.log": f"[INFO] x\n{error}\n[ERROR] RUNTIME(4711,python):2026 more\n"})

    assert (1, f"no known cause in {tmp_path}/plog-4711_2026.log\n  first error of process 4711: {error}\n") == tool(
        "explain", str(tmp_path)
    )


WRAPPED: Final = """\
Traceback (most recent call last):
  File "/code/train.py", line 61, in start
    dist.init_process_group("hccl")
RuntimeError: init:x.cpp:9 HCCL function error: HcclCommInitClusterInfo(path), error code is 11
[ERROR] 2026-11-22-09:47:36 (PID:7, Device:0, RankID:0) ERR02200 DIST call hccl api failed.
EI0004: [PID: 7] 2026-11-22-09:47:36.123.456 Failed to verify the rank table. Reason: no server has the ID 10.0.0.9.
"""
INNERMOST: Final = "EI0004: Failed to verify the rank table. Reason: no server has the ID 10.0.0.9."


@pytest.fixture(name="ended")
def fixture_ended(start: Start, program: Program) -> list[str]:
    """The last screen of a job in which rank 0 lost rank 1, and ended first: without prefixes, from the cause on."""
    written(program.folder, {"guilty": WRAPPED, "victim": LOST})
    guilty = "[ $RANK = 0 ] || { cat guilty; touch told; exec sleep 1000; }"
    run = start(f"{guilty}; until [ -e told ]; do :; done; cat victim; exit 1", "--html", "never")
    run.finish()
    lines = run.screen.splitlines()
    first = next(number for number, line in enumerate(lines) if " ERROR rank 1 " in line)
    return [lines[first].partition(" ERROR ")[2], *lines[first + 1 :]]


def test_the_report_of_a_job(ended: list[str], tool: Tool, program: Program) -> None:
    """It shows the last screen of the job again, but for the path of the report.

    The cause is the innermost statement, not the exception around it, in the report and in `ascend-job status` as well.
    """
    status, text = tool("explain", str(program.log_dir))
    cause = f"rank 1 caused the failure (likely): {INNERMOST}"

    assert (cause, cause.replace(" (likely)", "")) == (ended[0], program.report()["cause"]["sentence"])
    assert f"  cause       {cause}" in tool("status", str(program.log_dir))[1].splitlines()
    assert (0, text) == tool("explain", str(program.log_dir / "job-report.json"))
    assert (0, [line for line in ended if not line.startswith("  report ")]) == (status, text.splitlines())


def test_the_bare_logs_of_a_job(ended: list[str], tool: Tool, program: Program) -> None:
    """They give the same cause, evidence and advice; what only the job knew is left out."""
    bare = written(program.folder / "bare", {path.name: path.read_text() for path in program.log_dir.glob("*.txt")})
    evidence = ("  | ", "  means ", "  code ", "  next ", "  blames ")
    first, *lines = tool("explain", str(bare))[1].splitlines()

    assert f"rank 1 failed: {INNERMOST}" == first
    assert [line for line in ended if line.startswith(evidence)] == [
        line for line in lines if line.startswith(evidence)
    ]
    assert f"  log    {bare / 'job-proc-rank-1-device-1.txt'}" in lines


def test_a_running_job(start: Start, tool: Tool, program: Program) -> None:
    """A job that runs has not failed."""
    run = running(start, tool)

    assert (1, "job is running and has not failed\n") == tool("explain", str(program.log_dir))

    run.popen.terminate()
    run.finish()


def test_a_job_that_has_succeeded(start: Start, tool: Tool, program: Program) -> None:
    """Nothing is to be explained."""
    start("exit 0").finish()

    assert (1, "job has succeeded\n") == tool("explain", str(program.log_dir))


def test_a_runner_that_was_killed(start: Start, tool: Tool, program: Program) -> None:
    """Its report has no end, so the logs are read."""
    run = start(f"echo '{NAN}'; sleep 1000", ranks=1)
    log = program.log_dir / "job-proc-rank-0-device-0.txt"
    wait_until(lambda: log.exists() and SUMMARY in log.read_text())
    os.kill(run.runner_pid, signal.SIGKILL)
    run.finish()

    assert SUMMARY in explained(tool, program.log_dir)[1]


def test_a_python_without_rich(tmp_path: Path) -> None:
    """The progress bar is an extra."""
    (tmp_path / "train.log").write_text(NAN)
    script = "import sys; sys.modules['rich'] = None; from ascend_runner.tools.job.main import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "explain", str(tmp_path / "train.log")]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT, check=False)

    assert 0 == done.returncode
