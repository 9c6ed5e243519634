"""Whose a log is by its path and its lines, and what is kept of a long one."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.diagnosis import foreign_logs
from ascend_runner.diagnosis.foreign_logs import END, Excerpt, Origin, PlogReader, Process, Splitter
from ascend_runner.supervision.causes import Ending

NAN = 'Traceback (most recent call last):\n  File "train.py", line 5, in step\nValueError: loss is nan at step 17\n'
LOST = (
    'Traceback (most recent call last):\n  File "train.py", line 7, in step\n    dist.all_reduce(loss)\n'
    "RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:5012\n"
)
BOX = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-22_09:47:37
  host      : worker-1
  rank      : 11 (local_rank: 3)
  exitcode  : -9 (pid: 4715)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4715
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_09:47:36
  host      : worker-1
  rank      : 10 (local_rank: 2)
  exitcode  : 1 (pid: 4714)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/log/none_x1y2/attempt_1/3/stderr.log", {"local": 3, "attempt": 1, "run": "/log/none_x1y2"}),
        ("/msrun_log/worker_11.log", {"rank": 11}),
        ("/msrun_log/scheduler.log", {"name": "scheduler"}),
        ("/out/1/rank.03/stdout", {"rank": 3}),
        ("/out/rank_3/stderr", {"rank": 3}),
        ("/log/modelarts-job-95f661bd-1527-worker-1.log", {"node": "worker-1"}),
        ("/log/modelarts-job-95f661bd-1527-proc-rank-3-device-3.txt", {"rank": 3}),
        ("/log/ascend/process_log/rank_3/debug/plog/plog-4711_2026.log", {"rank": 3, "pid": 4711}),
        ("/job/worker-1/train_log/rank-3.txt", {"rank": 3, "node": "worker-1"}),
        ("/job/worker-1/process_log/run/plog/plog-4711_20261122094736.log", {"node": "worker-1", "pid": 4711}),
        ("/log/train-proc-scheduler.txt", {"name": "scheduler"}),
        ("/log/20261122_rank12.log.gz", {"rank": 12}),
        ("/log/log_local_rank_3.txt", {"local": 3}),
        ("/code/train_parallel3/log.txt", {"local": 3}),
        ("/code/device3/train.log", {"local": 3}),
        ("/log/worker-1.log", {"node": "worker-1"}),
        ("/log/rank_0/rank_3.log", {"rank": 3}),
        *((f"/log/{name}", {}) for name in ("train.log", "rank-all.txt", "rank_table_8p.json", "nranks8.log")),
        *((f"/log/{name}", {}) for name in ("rank3d.log", "frank3.log", "worker_3.txt", "rank1234567.log")),
    ],
)
def test_paths(path: str, expected: dict[str, Any]) -> None:
    """The launchers' names of files and directories tell the rank, the local rank, the node and the pid."""
    assert Origin(**expected) == foreign_logs.origin_of(path)


def split(text: str, size: int = 1 << 20) -> dict[Any, str]:
    """Return the lines of each process in a log that is read in pieces of this size."""
    splitter = Splitter()
    data = text.encode()
    for start in range(0, len(data), size):
        splitter.feed(data[start : start + size])
    splitter.close()
    return {tag: excerpt.text.decode() for tag, excerpt in splitter.parts.items()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[rank3]: Traceback", ((False, 3), "Traceback")),
        ("[rank3]:[E1122 09:47:36.0 x.cpp:1] x", ((False, 3), "[E1122 09:47:36.0 x.cpp:1] x")),
        ("[rank 3] step 1", ((False, 3), "step 1")),
        ("\x1b[36m[rank 3] \x1b[0mstep 1", ((False, 3), "step 1")),
        ("09:47:36 [rank 3] step 1", ((False, 3), "step 1")),
        ("[RANK 3] step 1", ((False, 3), "step 1")),
        ("[default3]:step 1", ((True, 3), "step 1")),
        ('[default3]:  File "x"', ((True, 3), '  File "x"')),
        ('[1,3]<stderr>:  File "x"', ((False, 3), '  File "x"')),
        ("[trainer11]:step 1", ((True, 11), "step 1")),
        ("[default3]:[rank11]: Traceback", ((False, 11), "Traceback")),
        ("[1,3]<stderr>:Traceback", ((False, 3), "Traceback")),
        ("[prterun-host-4711@1,3]<stdout>: step 1", ((False, 3), "step 1")),
        ("[3]<stdout>:step 1", ((False, 3), "step 1")),
        ("Sun Nov 22 09:47:36 2026[3]<stderr>:step 1", ((False, 3), "step 1")),
        ("10.0.0.2: [rank9]: Traceback", ((False, 9), "Traceback")),
        ("2026-11-22T09:47:36.123456789Z [rank3]: Traceback", ((False, 3), "Traceback")),
        ("2026-11-22T09:47:36.123456789+08:00 stderr F [rank3]: Traceback", ((False, 3), "Traceback")),
        ("[pod/train-worker-1/pytorch] Traceback", ("pod train-worker-1", "Traceback")),
        ("[pod/train-worker-1/pytorch] [rank3]: Traceback", ((False, 3), "Traceback")),
        ("[pod/train-worker-1/pytorch] [default3]:step 1", ("pod train-worker-1", "step 1")),
        ("worker-1  | Traceback", ("container worker-1", "Traceback")),
        ("train-master-1    | [default3]:[rank3]: Traceback", ((False, 3), "Traceback")),
        ("resnet | 76.1 | 3", (None, "resnet | 76.1 | 3")),
        ("  | Name  | Type", (None, "  | Name  | Type")),
        ("10  | layer3  | Conv2d", (None, "10  | layer3  | Conv2d")),
        ("[INFO] 3 steps", (None, "[INFO] 3 steps")),
        ("[2026-11-22 09:47:36] step 3", (None, "[2026-11-22 09:47:36] step 3")),
        ("step [rank3]: 1", (None, "step [rank3]: 1")),
    ],
)
def test_lines(line: str, expected: tuple[Any, str]) -> None:
    """A line without its prefixes belongs to the process that they name."""
    tag, text = expected

    assert {tag: f"{text}\n"} == split(f"{line}\n")
    assert {tag: f"{text}\n"} == split(line)


def test_labels_of_srun() -> None:
    """Labels without brackets count only if all lines have them."""
    labelled = "".join(f"{number % 2}: step {number}\n" for number in range(40))

    assert {(False, 0), (False, 1)} == split(labelled).keys()
    assert {None} == split("begin\n" + labelled).keys()


SAMPLES: Final[dict[str, tuple[Any, str]]] = {
    "[rank1]: a\n": ((False, 1), "a"),
    "[default2]:b\n": ((True, 2), "b"),
    "[1,3]<stdout>:d\n": ((False, 3), "d"),
    "c\n": (None, "c"),
    "\n": (None, ""),
    "e" * 100_000 + "\n": (None, "e" * 100_000),
}


@given(lines=st.lists(st.sampled_from(list(SAMPLES))), size=st.sampled_from([7, 4099, 1 << 20]))
def test_splitting_loses_nothing(lines: list[str], size: int) -> None:
    """Whatever the pieces in which a log arrives, each process gets its lines in their order."""
    expected: dict[Any, str] = {}
    for tag, text in map(SAMPLES.__getitem__, lines):
        expected[tag] = expected.get(tag, "") + text

    assert expected == {tag: text.replace("\n", "") for tag, text in split("".join(lines), size).items()}


def test_ranks_of_local_ranks() -> None:
    """A local rank is a rank where lines tell that; else the nodes are counted through."""
    one = {("", 0): 0, ("", 3): 3}
    two = {("worker-0", 0): 0, ("worker-0", 7): 7, ("worker-1", 0): 8, ("worker-1", 7): 15}
    ten = foreign_logs.ranks_of([(f"node{number}", local) for number in range(11) for local in range(2)])

    assert one == foreign_logs.ranks_of(one)
    assert two == foreign_logs.ranks_of(two)
    assert 20 == ten["node10", 0]
    assert {("", 3): 11} == foreign_logs.ranks_of([("", 3)], {("", 3): 11})
    assert {("10.0.0.9", 0): 1, ("10.0.0.5", 0): 0} == foreign_logs.ranks_of([("10.0.0.9", 0), ("10.0.0.5", 0)])


def read(*pieces: bytes, limit: int = END) -> bytes:
    """Return what is kept of a log."""
    excerpt = Excerpt()
    for piece in pieces:
        excerpt.feed(piece, limit)
    return excerpt.text


def test_a_short_log_is_kept() -> None:
    """Up to the limit, nothing is left out."""
    text = b"".join(b"line %d\n" % number for number in range(1000))

    assert text == read(text)
    assert text == read(*(text[start : start + 10] for start in range(0, len(text), 10)))
    assert b"" == read()


def test_errors_before_the_end_are_kept() -> None:
    """An error is kept whatever follows, with the lines before it; of several, the last ones."""
    noise = b"waiting for peers\n" * 10_000
    first, second = NAN.encode(), NAN.encode().replace(b"17", b"18")
    text = read(noise, first, noise, noise, second, noise, noise, limit=1 << 17)

    assert text.endswith(noise[-(1 << 17) :])
    assert second in text
    assert first not in text
    assert len(text) < 1 << 18


@pytest.mark.parametrize("piece", [b"x" * (1 << 20), NAN.encode() * 1000, b"\n" * (1 << 20), b"[ERROR] " * (1 << 17)])
def test_memory_is_bounded(piece: bytes) -> None:
    """Whatever a log contains, little of it is kept."""
    assert len(read(*[piece] * 20)) < 2 * END
    assert len(read(*[piece] * 20, limit=1 << 15)) < 1 << 17


def test_number_of_processes_is_bounded() -> None:
    """Lines that name ever more processes belong to none of them."""
    parts = split("".join(f"[rank{number}]: x\n" for number in range(5000)))

    assert foreign_logs.MOST_PROCESSES + 1 == len(parts)
    assert 5000 == sum(text.count("x") for text in parts.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOX, {(False, 10): Ending(exit_code=1), (False, 11): Ending(signum=9)}),
        (
            "E1122 09:47:36 1 torch/x/api.py:874] failed (exitcode: -9) local_rank: 2 (pid: 4711) of binary: python",
            {(True, 2): Ending(signum=9)},
        ),
        ("  Process name: [[35302,1],3]\n  Exit code:    1\n", {(False, 3): Ending(exit_code=1)}),
        ("   Process name: [prterun-a-4711@1,3]\n   Exit code:    7\n", {(False, 3): Ending(exit_code=7)}),
        (
            "mpirun noticed that process rank 3 with PID 4711 on node a exited on signal 11 (Segmentation fault).",
            {(False, 3): Ending(signum=11)},
        ),
        (
            "[launch.py:325:sigkill_handler] ['python', 'train.py', '--local_rank=3'] exits with return code = -7",
            {(True, 3): Ending(signum=7)},
        ),
        ("10.0.0.1: [launch.py:325] ['python', 'train.py', '--local_rank=3'] exits with return code = -7", {}),
        ("[0]<stderr>:Process 3 exit with status code 1.", {(False, 3): Ending(exit_code=1)}),
        ("srun: error: node1: task 3: Exited with exit code 1", {(False, 3): Ending(exit_code=1)}),
        ("srun: error: node1: task 3: Segmentation fault (core dumped)", {(False, 3): Ending(signum=11)}),
        ("srun: error: node1: task 3: Out Of Memory", {}),
        ("rank 3 is fine", {}),
    ],
)
def test_endings(text: str, expected: dict[Any, Ending]) -> None:
    """Launchers tell how ranks ended; the first one to end comes first. Whose local rank pdsh means is unknown."""
    assert list(expected.items()) == list(foreign_logs.endings_in(text).items())


def test_plogs() -> None:
    """The errors of a plog count from the first one on, and its largest communicator has the rank."""
    plog = PlogReader()
    plog.feed(b"[EVENT] HCCL(7,python):2026 [op_base.cc:1]Entry-HcclCommInitRootInfo:ranks[2], rank[1], rootinfo: x\n")
    plog.feed(b"[EVENT] HCCL(7,python):2026 [op_base.cc:1]Entry-HcclCommInitRootInfo:ranks[16], rank[1")
    plog.feed(b"1], rootinfo: x\n[WARNING] TDT(7,python):x\n[ERROR] HCCL(7,python):first\n[INFO] GE(7,python):x\n")
    plog.feed(b"[ERROR] HCCL(7,python):second\n" * 1000)

    assert (16, 11) == plog.found
    assert [b"[ERROR] HCCL(7,python):first", b"[INFO] GE(7,python):x"] == plog.errors[:2]
    assert len(plog.errors) < 300


def judged(text: str, **about: Any) -> tuple[str, str]:
    """Return the cause that the evidence about a process gives, and the last error that is not one."""
    found = foreign_logs.judge(Process(rank_id=0, text=text.encode(), **about))
    return found.death.evidence.summary, found.last_error


UNCAUGHT = NAN.replace("in step", "in <module>")  # what the program has printed before may be written after it
STEPS = "".join(f"step {number} loss 2.31\n" for number in range(100))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STEPS + NAN, "ValueError: loss is nan at step 17"),
        (STEPS + NAN + " 12%|#2   | 12/100 [00:10<01:00,  1.2it/s]\n", "ValueError: loss is nan at step 17"),
        (NAN + "uploading logs\n" * 300, "ValueError: loss is nan at step 17"),
        (NAN + STEPS, ""),
        (UNCAUGHT + STEPS, "ValueError: loss is nan at step 17"),
        (UNCAUGHT + STEPS * 10, ""),
        (STEPS, ""),
        ("", ""),
        (STEPS + "ERROR: cannot send a mail\n", ""),
        (STEPS + "done, 0 samples were invalid\n", ""),
        (STEPS + "Fatal Python error: Segmentation fault\n", "Fatal Python error: Segmentation fault"),
    ],
)
def test_a_rank_with_an_unknown_end(text: str, expected: str) -> None:
    """An error is the cause unless progress follows it; a record of a logger alone is none."""
    assert expected == judged(text)[0]


def test_last_error() -> None:
    """What is no cause is not lost."""
    assert ("", "ERROR: cannot send a mail") == judged(STEPS + "ERROR: cannot send a mail\n")


def test_a_rank_with_a_known_end() -> None:
    """Of a rank that failed according to its launcher, more counts; one that was stopped needs an error of its own."""
    assert "cannot send a mail" in judged(STEPS + "ERROR: cannot send a mail\n", ending=Ending(exit_code=1))[0]
    assert "" == judged(STEPS + "ERROR: cannot send a mail\n", ending=Ending(signum=15))[0]


def diagnose(*texts: str, first: int | None = None, **others: str) -> tuple[int | None, str]:
    """Return the rank that is the cause, and the certainty; `launcher` is the text of no rank."""
    found = [foreign_logs.judge(Process(rank_id=rank_id, text=text.encode())) for rank_id, text in enumerate(texts)]
    found += [foreign_logs.judge(Process(rank_id=-1, text=text.encode(), is_mixed=True)) for text in others.values()]
    root = foreign_logs.diagnose(found, first).root
    return (root.rank_id, root.certainty.value) if root else (None, "")


def test_own_errors_precede_lost_peers() -> None:
    """The rank with an error of its own is the cause, also if the launcher saw another one end first."""
    assert (2, "certain") == diagnose(LOST, STEPS, NAN, LOST)
    assert (2, "certain") == diagnose(LOST, STEPS, NAN, LOST, first=0)
    assert (0, "open") == diagnose(LOST, LOST)
    assert (None, "") == diagnose(STEPS, STEPS)


def test_launchers_only_pass_on() -> None:
    """What belongs to no rank counts only if no rank has failed by itself, and a launcher's report not at all then."""
    assert (1, "certain") == diagnose(STEPS, NAN, launcher=LOST + BOX)
    assert (0, "open") == diagnose(LOST, LOST, launcher=f"Traceback (most recent call last):\n{BOX}")
    assert -1 == diagnose(LOST, STEPS, launcher=STEPS + "Fatal Python error: Segmentation fault\n")[0]
    assert -1 == diagnose(STEPS, launcher=NAN)[0]


CRASH: Final = STEPS + "Fatal Python error: Segmentation fault\n"


@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        ([9], (0, "killed by SIGKILL")),
        ([11], (0, "Fatal Python error: Segmentation fault")),
        ([9, 11], (1, "Fatal Python error: Segmentation fault")),
        ([11, 11], (0, "killed by SIGSEGV")),
    ],
)
def test_a_crash_of_an_unknown_rank(endings: list[int], expected: tuple[int, str]) -> None:
    """A crash that belongs to no rank is that of the only rank that its signal has killed."""
    found = [foreign_logs.judge(Process(rank_id=-1, text=CRASH.encode(), is_mixed=True))]
    found += [
        foreign_logs.judge(Process(rank_id=at, ending=Ending(signum=signum))) for at, signum in enumerate(endings)
    ]
    root = foreign_logs.diagnose(found).root

    assert root is not None
    assert expected == (root.rank_id, root.summary)


def test_a_report_without_logs() -> None:
    """If a launcher only tells which rank failed, that is all that is known; those that it stopped are none."""
    found = [foreign_logs.judge(Process(rank_id=-1, text=f"Traceback (most recent call last):\n{BOX}".encode()))]
    found += [foreign_logs.judge(Process(rank_id=at, ending=Ending(signum=15))) for at in (0, 1)]
    found.append(foreign_logs.judge(Process(rank_id=2, ending=Ending(exit_code=1))))
    root = foreign_logs.diagnose(found, 2).root

    assert root is not None
    assert (2, "exit status 1") == (root.rank_id, root.summary)


FRAGMENTS: Final = (
    *(
        "[rank1]: ",
        "[default2]:",
        "[1,3]<stderr>:",
        "[99999999]<stdout>:",
        "12: ",
        "\x1b[31m",
        "\x00",
        "\xff",
        "\n",
        "\r",
    ),
    *("rank : 3 (local_rank: 3)\n exitcode : -9999 (pid: 1)\n", "Root Cause (first observed failure)", "step 1 loss 2"),
    *("Process name: [[1,1],999999]\n Exit code: 0\n", "'--local_rank=3' ] exits with return code = 1", "x" * 5000),
    *(
        NAN,
        LOST,
        BOX,
        CRASH,
        "EI0006: [PID: 7] x",
        "[ERROR] HCCL(7,p)ranks[9], rank[8]",
        "Traceback (most recent call last):",
    ),
)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30))
def test_nothing_breaks_it(fragments: list[str]) -> None:
    """Whatever a log contains, each rank is judged, and the diagnosis names one of them or none."""
    text = "".join(fragments)
    parts = split(text)
    endings = foreign_logs.endings_in(text)
    processes = [
        Process(rank_id=tag[1] if tag else -1, text=part.encode(), ending=endings.get(tag) if tag else None)
        for tag, part in parts.items()
    ]
    plog = PlogReader()
    plog.feed(text.encode())
    plog.close()
    root = foreign_logs.diagnose([foreign_logs.judge(process) for process in processes]).root

    assert root is None or root.rank_id in {process.rank_id for process in processes}
