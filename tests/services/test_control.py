"""The control socket of a job: what it carries out, and what cannot disturb it."""

from __future__ import annotations

import errno
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Final

import pytest

from ascend_runner.record.facts import CheckpointAsked, CheckpointPostponed
from ascend_runner.record.nodes import NodeRecord
from ascend_runner.services import control, run_folder
from ascend_runner.services.control import Requests
from ascend_runner.supervision.job_machine import JobState
from tests.helpers.messages import KeptMessages
from tests.helpers.program import Program
from tests.helpers.surroundings import descriptors_copied, permitted
from tests.helpers.waiting import LIMIT, wait_until

NOBODY: Final = 65534
STRANGER: Final = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
connection.send(b'{"request": "checkpoint"}')
print(connection.recv(100))
"""


FLOOD: Final = """
import itertools, socket, sys
silent = []
for number in itertools.count():
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(sys.argv[1])
        if number % 3:
            connection.send(b"x" * (number % 3) ** 16)
    except OSError as error:
        if error.errno in (2, 111):  # the job has ended
            break
    silent = [*silent[-50:], connection]
    if number == 100:
        print("flooding", flush=True)
"""


def asked(reached: Collection[int], unreached: Collection[int] = ()) -> CheckpointAsked:
    """Return what came of a request for a checkpoint."""
    return CheckpointAsked(
        signum=signal.SIGUSR1, reached=frozenset(reached), unreached=frozenset(unreached), seconds=300.0
    )


class Job:
    """A job that listens: its requests and its messages."""

    def __init__(self, folder: str, limit: float | None, checkpoint_grace: float = 0.0) -> None:
        self.folder = folder
        self.wakes: list[None] = []
        self.messages = KeptMessages()
        self.requests = Requests(self, limit, checkpoint_grace=checkpoint_grace)
        self.requests.is_running = True
        self.asked: CheckpointAsked | CheckpointPostponed | None = asked({0, 1})
        self.has_loop = True

    @staticmethod
    def now() -> float:
        """Return the time."""
        return time.monotonic()

    def wake(self) -> None:
        """Answer requests for a checkpoint like the loop of the runner, if there is one."""
        self.wakes.append(None)
        if self.has_loop and self.requests.take_checkpoint_request():
            self.requests.answer(self.asked)

    def ask(self, **message: object) -> control.Message:
        """Send a request and return the answer."""
        return control.ask(self.folder, message)

    def connect(self) -> socket.socket:
        """Connect, and say nothing."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(os.path.join(self.folder, run_folder.CONTROL))
        connection.settimeout(LIMIT)
        return connection


@contextmanager
def job_with(limit: float | None = None, checkpoint_grace: float = 0.0) -> Iterator[Job]:
    """Listen for requests to a job."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, limit, checkpoint_grace)
        with control.listening(folder, job.requests, job.messages):
            yield job


@pytest.fixture(name="job")
def fixture_job() -> Iterator[Job]:
    """Return a job without a limit."""
    with job_with() as job:
        yield job


def test_closing_ends_the_thread() -> None:
    """Also while a child that hangs in execve(2) has copies of all descriptors."""
    before = threading.active_count()
    with ExitStack() as copies:
        with job_with():
            copies.enter_context(descriptors_copied())

        assert before == threading.active_count()


def test_checkpoint(job: Job) -> None:
    """The request is passed on and wakes the loop of the runner; the answer names the ranks that were asked."""
    answer = job.ask(request="checkpoint")

    assert str(job.asked) == answer["answer"]
    assert [None] == job.wakes


@pytest.mark.parametrize("came", [asked([], [0, 1]), None])
def test_checkpoint_that_no_rank_is_asked_for(job: Job, came: CheckpointAsked | None) -> None:
    """It is refused: no rank handles the signal, or the ranks are stopped first."""
    job.asked = came

    answer = job.ask(request="checkpoint")
    assert ["refused"] == [*answer]
    assert came is None or str(came) == answer["refused"]


def test_checkpoint_that_is_postponed(job: Job) -> None:
    """The answer says when the ranks will be asked."""
    job.asked = CheckpointPostponed(3.2)

    assert str(job.asked) == job.ask(request="checkpoint")["answer"]


class Nodes:
    """The nodes of a job, which answer a request with a sentence."""

    is_linked = False

    def __init__(self, sentence: str = "") -> None:
        self.sentence = sentence
        self.asked: list[tuple[str, str]] = []

    def ask(self, request: str, argument: str = "") -> str:
        """Keep the request, and return the sentence."""
        self.asked.append((request, argument))
        if self.sentence.startswith("refused"):
            raise ValueError(self.sentence)
        return self.sentence

    def ask_for_checkpoint(self) -> bool:
        """Return that there is no link."""
        return False

    def rows(self) -> tuple[NodeRecord, ...]:
        """Return two nodes."""
        return NodeRecord(node=0, state="running", step=17), NodeRecord(node=1, is_unreachable=True)


def test_requests_to_all_nodes(job: Job) -> None:
    """Where the nodes are linked, they carry it out or refuse it, and this one does nothing by itself."""
    nodes = job.requests.others = Nodes("all 6 nodes: done")
    answers = [job.ask(request=name)["answer"] for name in ("checkpoint", "stop")]
    limit = str(job.ask(request="limit", by=60.0)["answer"])
    nodes.sentence = "refused"

    assert ["all 6 nodes: done"] * 2 == answers
    assert limit.endswith("; all 6 nodes: done")
    assert {"refused": "refused"} == job.ask(request="checkpoint")
    assert [("checkpoint", ""), ("stop", ""), ("limit", '{"by": 60.0}')] == nodes.asked[:3]
    assert (None, False) == (job.requests.limit, job.requests.take_checkpoint_request())


@pytest.mark.parametrize("others", [None, Nodes()])
def test_requests_without_a_link(job: Job, others: Nodes | None) -> None:
    """One of several nodes that is not linked carries them out alone, and says so; a stop is left to `ascend-job`."""
    job.requests.others, job.requests.has_other_nodes = others, True
    answers = job.ask(request="checkpoint")["answer"], job.ask(request="limit", seconds=60)["answer"]

    assert all(str(answer).endswith(f"; {control.ONLY_HERE}") for answer in answers)
    assert (60, "") == (job.requests.limit, job.ask(request="stop")["answer"])


def test_nodes_are_shown_before_the_first_attempt(job: Job) -> None:
    """Viewers see which nodes are missing while the job waits for them."""
    job.requests.others = Nodes()
    shown, _answer = control.view(job.folder)

    assert shown
    assert [("running", 17, False), ("", None, True)] == [
        (node.state, node.step, node.is_unreachable) for node in shown.nodes
    ]


def test_checkpoint_while_the_loop_is_busy(job: Job) -> None:
    """The request is not lost, and the answer claims nothing about the ranks."""
    job.has_loop = False

    assert str(job.ask(request="checkpoint")["answer"]).startswith("requested a checkpoint, but ")
    assert job.requests.take_checkpoint_request()


@pytest.mark.parametrize(
    ("is_tearing_down", "why"), [(False, "no rank is running"), (True, "the ranks are being stopped")]
)
def test_checkpoint_without_ranks(job: Job, why: str, *, is_tearing_down: bool) -> None:
    """While there are no ranks to ask the request is refused, and not kept for those of the next attempt."""
    job.requests.is_running, job.requests.is_tearing_down = False, is_tearing_down

    assert {"refused": f"{why}, so no checkpoint can be requested"} == job.ask(request="checkpoint")
    assert not job.requests.take_checkpoint_request()


@pytest.mark.parametrize("message", [{"seconds": 1}, {"by": 1}])
def test_limit_of_a_held_job(job: Job, message: dict[str, float]) -> None:
    """No time limit ends a hold, so the request is refused instead of confirmed."""
    job.requests.note(JobState.HOLDING)

    assert str(job.ask(request="limit", **message)["refused"]).startswith("the job is held")
    assert job.requests.limit is None


@pytest.mark.parametrize(
    ("state", "is_refused"), [(JobState.RESTARTING, False), (JobState.EXPIRED, True), (JobState.FAILED, True)]
)
def test_limit_of_a_job_without_ranks(job: Job, state: JobState, *, is_refused: bool) -> None:
    """Between two attempts the limit can be changed; at the end of the job, a change would be confirmed in vain."""
    job.requests.note(state)
    answer = job.ask(request="limit", seconds=3600)

    assert is_refused is ("refused" in answer) is (job.requests.limit is None)


def test_held_job_has_no_end_by_its_limit() -> None:
    """A limit from before the failure is not shown as one that would end the hold."""
    with job_with(3600.0) as job:
        before = job.ask(request="status")
        job.requests.note(JobState.HOLDING)

        assert before["limit_at"] is not None
        assert job.ask(request="status")["limit_at"] is None


def test_checkpoint_without_a_signal(job: Job) -> None:
    """A job that has no signal to ask its ranks with refuses the request."""
    job.requests.has_checkpoint_signal = False

    assert "--checkpoint-signal none" in str(job.ask(request="checkpoint")["refused"])
    assert not job.requests.take_checkpoint_request()


@pytest.mark.parametrize(
    ("before", "message", "after"),
    [
        (None, {"seconds": 3600}, 3600.0),
        (3600.0, {"seconds": None}, None),
        (3600.0, {"by": 60}, 3660.0),
        (3600.0, {"by": -60}, 3540.0),
    ],
)
def test_limit(before: float | None, message: dict[str, float | None], after: float | None) -> None:
    """A limit is set, removed, or changed by a duration; the answer has the moment at which the job will end."""
    with job_with(before) as job:
        answer = job.ask(request="limit", **message)

        assert after == job.requests.limit
        assert "answer" in answer
        assert [after is None, after] == [answer["limit_at"] is None, answer["limit"]]


@pytest.mark.parametrize("message", [{"seconds": 60}, {"by": -3540}])
def test_limit_leaves_the_time_for_a_checkpoint(message: dict[str, object]) -> None:
    """It is postponed if it would come earlier, and the answer says so; a later one is left alone."""
    with job_with(3600.0, checkpoint_grace=600.0) as job:
        early = job.ask(request="limit", **message)
        assert isinstance(job.requests.limit, float)
        assert 600.0 <= job.requests.limit < 3600.0
        later = job.ask(request="limit", seconds=7200)

        assert str(early["answer"]).endswith(" (no earlier, to leave time for --checkpoint-grace)")
        assert "--checkpoint-grace" not in str(later["answer"])
        assert 7200.0 == job.requests.limit


@pytest.mark.parametrize("message", [{"seconds": 0}, {"by": -7200}])
@pytest.mark.parametrize("checkpoint_grace", [0.0, 600.0])
def test_limit_in_the_past(message: dict[str, object], checkpoint_grace: float) -> None:
    """It would end the job at once, so it is refused, and the answer names the command that stops a job."""
    with job_with(3600.0, checkpoint_grace) as job:
        refused = str(job.ask(request="limit", **message)["refused"])

        assert refused.startswith("the new time limit would be in the past, as the job has already run for ")
        assert refused.endswith("; use ascend-job stop to stop it")
        assert (3600.0, []) == (job.requests.limit, [*job.wakes, *job.messages.lines])


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"request": "limit", "by": 60}, "the job has no time limit to adjust"),
        ({"request": "limit", "seconds": -1}, "a time limit must be between 0 seconds and 10 years"),
        ({"request": "limit", "seconds": 1e300}, "a time limit must be"),
        ({"request": "limit", "seconds": float("nan")}, "a time limit must be"),
        ({"request": "limit", "seconds": 10**4000}, "a time limit must be"),
        ({"request": "limit", "seconds": "1"}, "a time limit must be"),
        ({"request": "limit"}, "a request for a time limit must have either 'seconds' or 'by'"),
        ({"request": "limit", "seconds": 3, "by": 4}, "a request for a time limit must have either"),
        ({"request": "dance"}, "unknown request 'dance'"),
    ],
)
def test_requests_that_are_refused(job: Job, message: dict[str, object], sentence: str) -> None:
    """One sentence says why, and nothing is changed."""
    assert str(job.ask(**message)["refused"]).startswith(sentence)
    assert job.requests.limit is None
    assert [] == [*job.wakes, *job.messages.lines]


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    "data",
    [b"x", b"[]", b"{}", b'{"request": 7}', b"\xff\xfe", b"[" * 4000, b'{"request": "checkpoint"}' + b" " * 5000],
)
def test_messages_that_are_none(job: Job, data: bytes) -> None:
    """They are ignored, which is reported once, and the next request is carried out."""
    for _ in range(3):
        with job.connect() as connection:
            connection.send(data)
            assert b"" == connection.recv(100)
    job.ask(request="limit", seconds=60)

    assert 60.0 == job.requests.limit
    assert not job.requests.take_checkpoint_request()
    assert 1 == len(job.messages.of("warning"))


def test_another_user_is_not_heard(job: Job) -> None:
    """Its message is ignored even if it can reach the socket."""
    permitted("setpriv", f"--reuid={NOBODY}")
    for path in (job.folder, os.path.join(job.folder, run_folder.CONTROL)):
        os.chmod(path, 0o777)  # noqa: S103  the directory of a job is private
    command = [sys.executable, "-c", STRANGER, os.path.join(job.folder, run_folder.CONTROL), str(NOBODY)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)

    assert "b''\n" == ended.stdout or "Error" in ended.stderr
    wait_until(lambda: bool(job.messages.of("warning")))
    assert f"a message from user {NOBODY}" in job.messages.of("warning")[0]
    assert [] == job.wakes


def test_connections_that_say_nothing_make_room(job: Job) -> None:
    """More of them than there is room for do not keep a request out."""
    silent = [job.connect() for _ in range(control.MOST_CONNECTIONS * 2)]
    answers = [job.ask(request="checkpoint") for _ in range(3)]
    for connection in silent:
        connection.close()

    assert 3 == sum("answer" in answer for answer in answers)
    assert 1 == len(job.messages.of("warning"))


def test_silent_connection_is_given_up(job: Job) -> None:
    """It is closed after a while."""
    path = os.path.join(job.folder, "other")
    with closing(control.Control(job.requests, job.messages, patience=0.1)) as impatient:
        impatient.start(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(path)
            connection.settimeout(LIMIT)
            assert b"" == connection.recv(1)

    assert ["a connection without a message"] == [
        warning.partition(" on ")[0].partition(" ")[2] for warning in job.messages.of("warning")
    ]


@pytest.mark.parametrize("has_read", [True, False])
def test_runner_that_ends_before_it_answers(*, has_read: bool) -> None:
    """The connection is closed without an answer, before or after the request was read."""

    def end() -> None:
        connection, _address = listener.accept()
        with connection:
            connection.recv(4096) if has_read else wait_until(lambda: bool(connection.recv(1, socket.MSG_PEEK)))

    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, control.LISTENER) as listener:
        listener.setblocking(True)
        listener.bind(os.path.join(folder, run_folder.CONTROL))
        listener.listen()
        runner = threading.Thread(target=end, daemon=True)
        runner.start()
        with pytest.raises(ConnectionResetError):
            control.ask(folder, {"request": "status"})
        runner.join()


def test_flood_of_requests_is_answered_in_turn(job: Job) -> None:
    """Each of many connections gets its answer, and the thread ends in time."""
    connections = []
    for _ in range(control.MOST_CONNECTIONS):
        connection = job.connect()
        connection.send(json.dumps({"request": "checkpoint"}).encode())
        connections.append(connection)
    answers = [connection.recv(4096) for connection in connections]
    for connection in connections:
        connection.close()

    assert all(b"asked ranks 0, 1 for a checkpoint" in answer for answer in answers)


def test_end_does_not_wait_for_connections() -> None:
    """The socket is gone after the end, and those that were connected are reported."""
    with job_with() as job:
        silent = job.connect()
    with closing(silent), suppress(ConnectionResetError):
        assert b"" == silent.recv(1)
    with pytest.raises(FileNotFoundError):
        job.ask(request="checkpoint")


def test_idle_thread_sleeps() -> None:
    """Without a connection nothing wakes the thread."""
    before = set(os.listdir("/proc/self/task"))
    with job_with() as job:
        job.ask(request="status")
        (thread,) = set(os.listdir("/proc/self/task")) - before

        def sleeps() -> bool:
            before = waits_of(thread)
            subprocess.run(["/bin/sleep", "0.2"], check=True)
            return before == waits_of(thread)

        wait_until(sleeps)


def waits_of(thread: str) -> list[str]:
    """Return how often a thread of this process has waited."""
    with open(f"/proc/self/task/{thread}/status") as file:
        return [line for line in file if line.startswith("voluntary_ctxt_switches")]


def test_job_without_a_directory_has_no_socket() -> None:
    """Nothing listens then, and that is no failure; a socket that cannot be made is a warning."""
    job = Job("", None)
    for folder in ("", "/nowhere"):
        with control.listening(folder, job.requests, job.messages):
            pass

    assert ["requests from ascend-job are disabled: no such file or directory"] == job.messages.of("warning")


def test_job_without_descriptors_has_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the limit of descriptors is reached before the last socket is made, there is one warning and no error."""

    def refused() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socketpair", refused)
    with job_with() as job:
        assert [True] == ["too many open files" in warning for warning in job.messages.of("warning")]


def test_flood_does_not_hold_up_a_job(program: Program) -> None:
    """Malformed and endless messages for as long as a job runs change nothing but one warning."""
    with tempfile.TemporaryDirectory() as run_dir:
        env = {run_folder.RUN_DIR_VARIABLE: run_dir}
        os.mkfifo(program.folder / "fifo")
        run = program.start("--nproc-per-node", "1", "sh", "-c", "echo ready; read line < fifo; echo end", env=env)
        run.wait_for("ready")
        (path,) = glob.glob(f"{run_dir}/*/{run_folder.CONTROL}")
        flood = subprocess.Popen([sys.executable, "-c", FLOOD, path], stdout=subprocess.PIPE)
        assert flood.stdout
        assert b"flooding\n" == flood.stdout.readline()
        (program.folder / "fifo").write_text("go\n")
        status = run.finish()
        flood.communicate(timeout=LIMIT)

    assert 0 == status
    assert 1 == run.screen.count("on the job's control socket")
