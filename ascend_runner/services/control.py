"""Receives the requests of `ascend-job` on a socket in the run directory: one message and one answer per connection.

A thread waits for them without waking up. Only the job's own user and root are served. Anything that is not a
request is ignored and reported once. Requests, and findings of other threads, are kept here and wake the loop of the
runner, which reads them, so that nothing polls.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, Union

from ascend_runner import programs
from ascend_runner.errors import AscendRunnerError, reason
from ascend_runner.node import bounded
from ascend_runner.record.facts import CheckpointAsked, CheckpointPostponed
from ascend_runner.services import live
from ascend_runner.services.run_folder import CONTROL, CREDENTIALS, ROOT
from ascend_runner.supervision.causes import AnyCause, NodeFinding
from ascend_runner.supervision.job_machine import AnyState, JobState
from ascend_runner.text import LONGEST_DURATION, clock, duration, number_within

if TYPE_CHECKING:
    from ascend_runner.record.facts import Messages
    from ascend_runner.record.nodes import NodeRecord

CheckpointAnswer = Union[CheckpointAsked, CheckpointPostponed, None]
Answer = SimpleQueue[CheckpointAnswer]  # for one answer


class Clock(Protocol):
    """The clock of the runner's loop."""

    def now(self) -> float:
        """Return the time in seconds; it never goes back."""

    def wake(self) -> None:
        """End the current or the next wait of the loop. May be called in any thread."""


class Others(Protocol):
    """The other nodes of the job, see `job.nodes`."""

    @property
    def is_linked(self) -> bool:
        """Whether there is a link to them."""

    def ask(self, request: str, argument: str = "") -> str:
        """Ask all nodes for something, and describe their answers, after a few seconds at most; "" without a link.

        Raises:
            ValueError: No node has carried it out.
        """

    def ask_for_checkpoint(self) -> bool:
        """Ask all nodes for a checkpoint, and do not wait; return whether there is a link."""

    def rows(self) -> tuple[NodeRecord, ...]:
        """Return the nodes that this one knows of, none if its link does not answer at once."""


class Requests:
    """The requests to one job. `limit` is in seconds since its start (None: no limit).

    Every method may be called in any thread.
    """

    def __init__(
        self,
        clock: Clock,
        limit: float | None = None,
        *,
        has_checkpoint_signal: bool = True,
        checkpoint_grace: float = 0.0,
    ) -> None:
        self.has_checkpoint_signal = has_checkpoint_signal
        self.began = clock.now()  # the start of the job, in seconds of the manager's clock
        self.limit = limit
        self.is_running = False  # whether there are ranks to ask; set by the loop
        self.is_tearing_down = False  # whether the ranks are being stopped; set by the loop
        self.is_ending = False  # no attempt follows, and nothing depends on the time limit any longer
        self.is_held = False  # after its failure: the time limit no longer counts
        self._clock, self._checkpoint_grace = clock, checkpoint_grace
        self._has_new_limit = threading.Event()
        self.others: Others | None = None  # where this node is to be linked to them
        self.has_other_nodes = False  # linked or not
        self._checkpoint_requests: deque[Callable[[CheckpointAnswer], object]] = deque()  # what takes the answers
        self._unanswered: list[Callable[[CheckpointAnswer], object]] = []  # of requests that the loop has taken
        self._findings: deque[AnyCause] = deque()
        self.show: Callable[[], bytes] | None = None  # returns a view of the newest attempt; called in a thread

    @property
    def deadline(self) -> float | None:
        """The moment at which the job is stopped, in seconds of the manager's clock, or None if no limit applies."""
        limit = self.limit
        return None if limit is None or self.is_held else self.began + limit

    @property
    def time_left(self) -> float | None:
        """The seconds until then, to the millisecond, or None if there is no limit."""
        deadline = self.deadline
        return None if deadline is None else round(deadline - self._clock.now(), 3)

    def note(self, state: AnyState) -> None:
        """Note the state of the job between its attempts, and at its end."""
        self.is_held, self.is_ending = state is JobState.HOLDING, state.is_final

    def ask_for_checkpoint(self, take: Callable[[CheckpointAnswer], object] | None = None) -> Answer:
        """Request a checkpoint from the ranks. Requests made before the ranks receive one count as one.

        The result, or `take`, receives the answer when they were asked or will be, or None if they are stopped before
        that.

        Raises:
            ValueError: The job has no signal to ask with, or no rank is running, or they are being stopped.
        """
        if not self.is_running:
            why = "the ranks are being stopped" if self.is_tearing_down else "no rank is running"
            raise ValueError(f"{why}, so no checkpoint can be requested")
        if not self.has_checkpoint_signal:
            raise ValueError("the job has no signal to request checkpoints with (--checkpoint-signal none)")
        answer: Answer = SimpleQueue()
        self._checkpoint_requests.append(take or answer.put)
        self._clock.wake()
        return answer

    @property
    def is_linked(self) -> bool:
        """Whether this node is linked to other nodes of the job."""
        return self.others is not None and self.others.is_linked

    def ask_all_nodes(self) -> bool:
        """Request a checkpoint from all nodes of the job, this one included; return whether it is linked to others."""
        return self.others is not None and self.others.ask_for_checkpoint()

    def take_checkpoint_request(self) -> bool:
        """Whether a checkpoint was requested since the last call."""
        taken = [self._checkpoint_requests.popleft() for _ in range(len(self._checkpoint_requests))]
        self._unanswered += taken
        return bool(taken)

    def answer(self, asked: CheckpointAnswer) -> None:
        """Answer the requests for a checkpoint that were taken."""
        for take in self._unanswered:
            take(asked)
        self._unanswered.clear()

    def take_limit_change(self) -> bool:
        """Whether the time limit was changed since the last call."""
        if not self._has_new_limit.is_set():
            return False
        self._has_new_limit.clear()
        return True

    def pass_on(self, finding: AnyCause) -> None:
        """Pass on a finding that may end the attempt, about this node or the training."""
        self._findings.append(finding)
        self._clock.wake()

    def take_findings(self) -> list[AnyCause]:
        """Return the findings that were passed on since the last call."""
        return [self._findings.popleft() for _ in range(len(self._findings))]

    def take_between_attempts(self, *, only_precheck: bool) -> list[NodeFinding]:
        """Return the findings about this node that were passed on since the last call.

        With `only_precheck`, findings that may end an attempt are left to the next one. An attempt that has ended is no
        longer slow.
        """
        found = [one for one in self.take_findings() if isinstance(one, NodeFinding)]
        left = [one for one in found if only_precheck and not one.kind.is_of_precheck]
        self._findings.extendleft(reversed(left))
        return [one for one in found if one not in left]

    def set_limit(self, seconds: float | None) -> bool:
        """Set the time limit of the job, in seconds since its start (None: no limit).

        Return whether it was postponed because it would have left less than the time for a checkpoint.

        Raises:
            ValueError: The limit is in the past, or the job is ending, or is held.
        """
        self._refuse_limit()
        elapsed = self._clock.now() - self.began
        if seconds is not None and seconds < elapsed:
            already = f"the job has already run for {duration(elapsed)}"
            stop = programs.command("ascend-job stop")
            raise ValueError(f"the new time limit would be in the past, as {already}; use {stop} to stop it")
        earliest = elapsed + self._checkpoint_grace
        is_postponed = seconds is not None and bool(self._checkpoint_grace) and seconds < earliest
        self.limit = earliest if is_postponed else seconds
        self._has_new_limit.set()
        self._clock.wake()
        return is_postponed

    def change_limit(self, by: float) -> bool:
        """Change the time limit by some seconds, see `set_limit`; a negative number brings it forward.

        Raises:
            ValueError: There is no limit, or the new one is in the past, or the job is ending, or is held.
        """
        self._refuse_limit()
        if self.limit is None:
            raise ValueError("the job has no time limit to adjust; set one first, for example 12h")
        return self.set_limit(self.limit + by)

    def _refuse_limit(self) -> None:
        if self.is_held:
            release = programs.command("ascend-job release")
            raise ValueError(f"the job is held after its failure, so no time limit applies; use {release}")
        if self.is_ending:
            raise ValueError("the job is already ending, so its time limit can no longer be changed")


ONLY_HERE: Final = "on this node only, which is not linked to the others of the job"


def change_limit(requests: Requests, message: Message, messages: Messages) -> str:
    """Change the time limit as a request says, and return a sentence on it.

    Raises:
        AscendRunnerError: The request is invalid.
        ValueError: The job does not permit it.
    """
    if ("by" in message) is ("seconds" in message):
        raise AscendRunnerError("a request for a time limit must have either 'seconds' or 'by'")
    if "by" in message:
        is_postponed = requests.change_limit(_seconds(message["by"], -LONGEST_DURATION))
    else:
        seconds = message["seconds"]
        is_postponed = requests.set_limit(None if seconds is None else _seconds(seconds, 0.0))
    why = " (no earlier, to leave time for --checkpoint-grace)" if is_postponed else ""
    sentence = _limit_sentence(requests) + why
    messages.info(f"ascend-job: {sentence}")
    return sentence


def _limit_at(requests: Requests) -> float | None:
    """Return the end of the time limit on the wall clock."""
    deadline = requests.deadline
    return None if deadline is None else time.time() + deadline - time.monotonic()


def _limit_sentence(requests: Requests) -> str:
    at = _limit_at(requests)
    if at is None:
        return "time limit removed"
    left = max(0.0, at - time.time())
    return f"the time limit is now {clock(at)}, in {duration(left)}"


LISTENER: Final = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
LONGEST: Final = 4096  # bytes of a message
MOST_CONNECTIONS: Final = 16  # at once; the one that has been silent for longest makes room for another
PATIENCE: Final = 5.0  # seconds for a connection to send its message, and for an answer
NAP: Final = 0.05  # seconds between two rounds, so that a flood costs little
SHARE: Final = 0.1  # of the time, at most, is spent on showing the job
VIEW_PATIENCE: Final = 1.0  # seconds for an answer that is not essential
ASKING_LIMIT: Final = 2.0  # seconds for the loop of the runner to ask the ranks for a checkpoint, less than PATIENCE
END_LIMIT: Final = 1.0  # seconds for the thread at the end of the job
TIMEVAL: Final = struct.Struct("ll")  # seconds and microseconds (socket(7), SO_RCVTIMEO)

Message = Mapping[str, object]


@contextmanager
def listening(folder: str, requests: Requests, messages: Messages) -> Iterator[None]:
    """Carry out requests within `with`, if there is a run directory."""
    if not folder:
        yield
        return
    with ExitStack() as stack:
        try:
            control = stack.enter_context(closing(Control(requests, messages)))
            control.start(os.path.join(folder, CONTROL))
        except (OSError, AscendRunnerError) as error:
            messages.warning(f"requests from ascend-job are disabled: {reason(error)}")
        yield


def ask(folder: str, message: Message) -> Message:
    """Send a message to the runner that has this run directory, and return its answer.

    Raises:
        BlockingIOError: It has not answered in time.
        ConnectionError: It has closed the connection, as at the end of its job, or nobody listens any longer.
        OSError: It does not listen.
        ValueError: The answer is malformed.
    """
    return _ask(folder, message, PATIENCE)[0]


def view(folder: str) -> tuple[live.View | None, Message]:
    """Return the attempt that the runner with this run directory shows, None before the first, and its answer.

    Raises:
        BlockingIOError: It has not answered in time.
        ConnectionError: As for `ask`.
        OSError: Likewise, or it has no memory for it.
        ValueError: The answer is malformed.
    """
    answer, fds = _ask(folder, {"request": "records"}, VIEW_PATIENCE)
    data = [live.read_sealed(fd) for fd in fds]
    if "answer" not in answer:
        raise ValueError("not an answer")
    return live.decode(data[0]) if data else None, answer


def _ask(folder: str, message: Message, patience: float) -> tuple[Message, list[int]]:
    """Send a message to the runner that has this run directory; return its answer and at most one descriptor.

    Raises:
        BlockingIOError: It has not answered in time.
        ConnectionError: It has closed the connection, as at the end of its job, or nobody listens any longer.
        OSError: It does not listen.
        ValueError: The answer is malformed.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        # Limits of the kernel, not settimeout(): with that, connecting fails at once while others are connecting.
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, TIMEVAL.pack(*map(int, divmod(patience * 1e6, 1e6))))
        connection.connect(os.path.join(folder, CONTROL))
        connection.send(json.dumps(message).encode())
        data, fds, _flags, _address = socket.recv_fds(connection, LONGEST, 1)
    try:
        return _answer_in(data), fds
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def _answer_in(data: bytes) -> Message:
    if not data:
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    try:
        answer = json.loads(data)
    except RecursionError:
        raise ValueError("not an answer") from None
    if not isinstance(answer, dict):
        raise ValueError("not an answer")  # noqa: TRY004  as for other data that is no answer
    return answer


class Control:
    """The socket, and the requests that arrive on it."""

    def __init__(self, requests: Requests, messages: Messages, patience: float = PATIENCE) -> None:
        """Make the sockets.

        Raises:
            OSError: The limit of descriptors is reached.
        """
        self._requests, self._messages = requests, messages
        self._path = ""
        with ExitStack() as made:
            self._listener = made.enter_context(socket.socket(socket.AF_UNIX, LISTENER))
            self._waker, self._sleeper = socket.socketpair()
            made.pop_all()
        self._patience = patience
        self._connections: dict[int, tuple[socket.socket, float]] = {}  # socket and deadline by descriptor
        self._poll = select.poll()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_complained = False
        self._view: int | None = None  # the descriptor of the view that this round has made
        self._view_seconds = 0.0  # what that has taken

    def start(self, path: str) -> None:
        """Listen at a path.

        Raises:
            OSError: The socket cannot be bound.
            AscendRunnerError: No thread can be started.
        """
        self._listener.bind(path)
        self._path = path
        self._listener.listen(MOST_CONNECTIONS)
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._sleeper, select.POLLIN)
        self._thread = bounded.start_thread(self._serve)

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._closing.set()
        with self._waker, suppress(OSError):  # the second time, it is closed already
            # Wakes the thread. Closing is not enough while a child that hangs in execve(2) has a copy.
            self._waker.shutdown(socket.SHUT_WR)
        if self._thread:
            self._thread.join(END_LIMIT)
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)
        if not (self._thread and self._thread.is_alive()):
            for open_one in (self._listener, self._sleeper, *(found for found, _ in self._connections.values())):
                open_one.close()

    # --- In the thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            ready = self._poll.poll(self._timeout())
            if self._closing.is_set():
                return
            for fd, _events in ready:
                if fd == self._listener.fileno():
                    self._accept_all()
                elif fd in self._connections:
                    self._receive(fd)
            for fd, (_connection, until) in list(self._connections.items()):
                if time.monotonic() >= until:
                    self._drop(fd, "a connection without a message")
            self._closing.wait(max(NAP, self._end_of_view()))

    def _end_of_view(self) -> float:
        """Forget the view of this round; return how long to rest, so that showing the job costs little."""
        if self._view is not None:
            os.close(self._view)
        self._view, rest = None, self._view_seconds / SHARE
        self._view_seconds = 0.0
        return rest

    def _timeout(self) -> float | None:
        """Return the milliseconds until a connection is given up, or None if there is no connection."""
        ends = [until for _connection, until in self._connections.values()]
        return max(0.0, min(ends) - time.monotonic()) * 1000 if ends else None

    def _accept_all(self) -> None:
        for _ in range(MOST_CONNECTIONS):
            try:
                connection, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptors left
                self._complain(reason(error))
                return
            connection.setblocking(False)
            if len(self._connections) >= MOST_CONNECTIONS:
                self._drop(next(iter(self._connections)), "too many connections")
            fd = connection.fileno()
            self._connections[fd] = connection, time.monotonic() + self._patience
            self._poll.register(fd, select.POLLIN)
            uid = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))[1]
            if uid in {os.getuid(), ROOT}:
                self._receive(fd)
            else:
                self._drop(fd, f"a message from user {uid}")

    def _receive(self, fd: int) -> None:
        """Answer the message of a connection, if it is there."""
        connection, _until = self._connections[fd]
        try:
            data = connection.recv(LONGEST + 1)
            if not data:
                self._drop(fd)
                return
            answer = json.dumps(self._answer(data)).encode()
            fds = [self._view] if self._view is not None and b'"records"' in data else []
            socket.send_fds(connection, [answer], fds)
            self._drop(fd)
        except BlockingIOError:
            return
        except (ValueError, RecursionError):
            self._drop(fd, "a malformed message")
        except OSError:  # the peer has left
            self._drop(fd)

    def _drop(self, fd: int, why: str = "") -> None:
        if why:
            self._complain(why)
        connection, _until = self._connections.pop(fd)
        self._poll.unregister(fd)
        connection.close()

    def _complain(self, why: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            self._messages.warning(f"ignored {why} on the job's control socket; further ones are not reported")

    # --- Requests -----------------------------------------------------------------------------------------------------

    def _answer(self, data: bytes) -> Message:
        """Carry out a request.

        Raises:
            ValueError: It is not a request.
        """
        message = json.loads(data)
        if len(data) > LONGEST or not isinstance(message, dict) or not isinstance(message.get("request"), str):
            raise ValueError("not a request")
        try:
            sentence = self._carry_out(message["request"], message)
        except (AscendRunnerError, ValueError) as refused:
            return {"refused": str(refused)}
        requests = self._requests
        facts = {"limit": requests.limit, "limit_at": _limit_at(requests), "is_held": requests.is_held}
        return {"answer": sentence, **facts}

    def _carry_out(self, name: str, message: Message) -> str:
        """Carry out a request, and return a sentence on what was done, or "" if it was only a question.

        Raises:
            AscendRunnerError: It is invalid.
            ValueError: The job does not permit it.
        """
        if name == "status":
            return ""
        if name == "records":
            return self._make_view()
        if name not in {"checkpoint", "limit", "stop"}:
            raise AscendRunnerError(f"unknown request {name!r}")
        others = self._requests.others
        argument = {key: message[key] for key in ("by", "seconds") if key in message}
        done = others.ask(name, json.dumps(argument) if argument else "") if others else ""
        if done:
            return f"{_limit_sentence(self._requests)}; {done}" if name == "limit" else done
        if name == "stop":  # `ascend-job` sends this runner a signal
            return ""
        if name == "checkpoint":
            sentence = self._ask_for_checkpoint()
        else:
            sentence = change_limit(self._requests, message, self._messages)
        return f"{sentence}; {ONLY_HERE}" if self._requests.has_other_nodes else sentence

    def _make_view(self) -> str:
        """Make the view that goes with the answers of this round, if an attempt has begun.

        Raises:
            ValueError: There is no memory.
        """
        show, others = self._requests.show, self._requests.others
        if (show or others) and self._view is None:
            rows = others.rows() if others else ()
            start = time.monotonic()
            try:
                self._view = live.sealed(live.with_nodes(show() if show else live.NOTHING, rows))
            except OSError as error:
                raise ValueError(reason(error)) from None
            self._view_seconds = time.monotonic() - start
        return ""

    def _ask_for_checkpoint(self) -> str:
        """Request a checkpoint, and return a sentence on which ranks were asked, or on when they will be.

        Raises:
            ValueError: None was, or none can be.
        """
        try:
            asked = self._requests.ask_for_checkpoint().get(timeout=ASKING_LIMIT)
        except Empty:
            return f"requested a checkpoint, but the runner has not asked the ranks within {ASKING_LIMIT:g} s"
        if not asked:
            raise ValueError("the ranks are being stopped, so no checkpoint can be requested")
        if not (isinstance(asked, CheckpointPostponed) or asked.reached):
            raise ValueError(str(asked))
        return str(asked)


def _seconds(value: object, least: float) -> float:
    """Return a number of seconds.

    Raises:
        AscendRunnerError: The value is not a number in range.
    """
    seconds = number_within(value, LONGEST_DURATION, least)
    if seconds is None:
        raise AscendRunnerError("a time limit must be between 0 seconds and 10 years")
    return float(seconds)
