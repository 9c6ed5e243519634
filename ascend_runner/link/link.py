"""The runner's side of the link: starts the link process, tells it about this node, and passes on its news.

Whatever happens to the link process, the job does not notice: one that ends, hangs or sends too much is killed, a
warning says so once, and another one is started after a growing delay.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Final

import attrs

from ascend_runner.errors import reason
from ascend_runner.guardian.runner import LINK
from ascend_runner.link import channel
from ascend_runner.link.messages import LARGEST_MESSAGE, Asked, Joined, Local, News
from ascend_runner.node import bounded
from ascend_runner.text import printable, signal_name

NEWS_KEPT: Final = 1000  # for a runner that does not read them
MOST_ASKED: Final = 16  # requests for a process that does not read
ERROR_KEPT: Final = 4096  # bytes of what the process has written to stderr; the last line is shown
# A pyzmq that cannot be loaded is reported on the socket, its stdin: the process has nothing else yet.
PROGRAM: Final = """
import os, sys
sys.path[:] = {path!r}
try:
    from ascend_runner.link import process
except ImportError as error:
    import json
    os.write(0, json.dumps({{"Unavailable": {{"sentence": str(error)[:1000]}}}}).encode())
    sys.exit()
{run}
"""
INHERITED: Final = ("LD_LIBRARY_PATH",)  # where some Pythons find their own library; LD_PRELOAD is meant for the ranks
ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "1"}  # memory pools; each thread would get one
RUN: Final = "from ascend_runner.link import rules; process.main(int(sys.argv[1]), rules.make, rules.transition)"


@attrs.frozen(kw_only=True)
class Limits:
    """When to give up a link process; in seconds."""

    ping_interval: float = 5.0
    answer: float = 10.0  # a machine may be overloaded
    first_delay: float = 1.0  # until the next process is started; doubled each time
    longest_delay: float = 60.0  # a process that lives longer begins again with the first delay
    last_answer: float = 1.0  # at the end, of a process that is to send the last word
    close: float = 6.5  # for the last word to arrive at the other nodes; the process gives up earlier
    close_again: float = 3.0  # the same for a second process, if the first did not respond; it must connect first
    most_messages: int = 1000  # of the process in a second


@attrs.frozen(kw_only=True)
class Surroundings:
    """How the link reaches its runner."""

    environ: Mapping[str, str]
    warn: Callable[[str], object]  # called in a thread
    wake: Callable[[], object] = lambda: None  # called in a thread when there are news
    tell_guardian: Callable[[str], object] = lambda _line: None


class Link:
    """The link of this node to the others, from `open` to `close`."""

    def __init__(
        self, settings: channel.Settings, around: Surroundings, limits: Limits = Limits(), run: str = RUN
    ) -> None:
        self.pids: set[int] = set()  # the link process, which belongs to no rank
        self._settings, self._around, self._limits = settings, around, limits
        self._program = PROGRAM.format(path=sys.path, run=run)
        self._resources = ExitStack()
        self._hubs = settings.hubs  # the newest
        self.contact: float | None = None  # when node 0 was last in contact, as reported by the link process
        self._local: Local | None = None  # the newest state to send
        self._news: deque[News] = deque(maxlen=NEWS_KEPT)
        self._asked: deque[Asked] = deque(maxlen=MOST_ASKED)
        self._child: Child | None = None
        self._has_warned = False
        self._is_heard = False  # whether the link process responded when it was closed
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start the link process, and keep it running.

        Raises:
            OSError: No socket or pipe can be made.
            AscendRunnerError: No thread can be started.
        """
        with ExitStack() as made:
            self._sleeper, self._waker = socket.socketpair()
            for end in (self._sleeper, self._waker):
                end.setblocking(False)
                made.callback(end.close)
            self._farewell, self._guardians_end = os.pipe2(os.O_CLOEXEC)
            made.callback(os.close, self._farewell)
            made.callback(os.close, self._guardians_end)
            self._thread = bounded.start_thread(self._run)
            self._resources = made.pop_all()

    @property
    def is_usable(self) -> bool:
        """Whether there can be news; not once it has turned out that there never will be any."""
        return self._thread is not None and self._thread.is_alive()

    def tell(self, local: Local) -> None:
        """Replace what the other nodes know of this one. Never waits."""
        self._local = local
        self._wake_thread()

    def dial(self, hubs: tuple[str, ...]) -> None:
        """Look for node 0 at other addresses from now on. Never waits."""
        self._hubs = hubs
        self._wake_thread()

    def news(self) -> tuple[News, ...]:
        """Return what has arrived since the last call."""
        return tuple(self._news.popleft() for _ in range(len(self._news)))

    def ask(self, asked: Asked) -> None:
        """Ask something of the whole job; the answer is `Answered` or `NodesKnown`. Never waits."""
        self._asked.append(asked)
        self._wake_thread()

    def close(self, is_cut: Callable[[], bool] = bounded.never) -> None:
        """Let the link process send the last messages to the other nodes, and end it.

        That takes milliseconds, or `Limits.close` if other nodes do not respond; half a second once `is_cut` returns
        true. If the process does not respond, another one tells the others. May be called twice.
        """
        if self._thread:
            self._closing.set()
            self._wake_thread()
            limit = 2 * self._limits.last_answer + self._limits.close
            if not bounded.join(self._thread, time.monotonic() + limit, is_cut) and self._child:
                self._child.kill()
            self._thread.join(2 * bounded.KILL_LIMIT)
            if not self._thread.is_alive():  # otherwise its descriptors stay open: it still uses them
                self._resources.close()
        self._thread = None

    def _wake_thread(self) -> None:
        with suppress(OSError):  # full: it will wake up; or closed
            self._waker.send(b"\0")

    # --- In the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        delay = self._limits.first_delay
        while not self._closing.is_set():
            started = time.monotonic()
            try:
                with Child(self._program, self._farewell, self._around.environ, self._limits) as child:
                    self._child = child
                    self.pids.add(child.pid)
                    end = self._talk(child)
            except (OSError, ValueError) as error:
                end = f"cannot be used: {reason(error)}"
            self.pids.clear()
            if self._closing.is_set():
                break
            if end is None:
                return
            if time.monotonic() - started > self._limits.longest_delay:
                delay = self._limits.first_delay
            self._warn(f"the link process {end}; restarting it; until then, the job continues without a link")
            self._closing.wait(delay)
            delay = min(2 * delay, self._limits.longest_delay)
        self._say_last_word()

    def _talk(self, child: Child) -> str | None:
        """Exchange messages until the process has ended; return how, or None if no other one is to be started."""
        self._asked.clear()  # nobody waits for these answers any longer
        settings = self._newest_settings()
        child.send(settings)
        self._around.tell_guardian(f"{LINK} {child.pid} {self._guardians_end}")
        while not self._closing.is_set():
            if self._hubs != settings.hubs:
                moved = attrs.evolve(settings, hubs=self._hubs)
                settings = moved if child.send(moved) else settings
            child.send_newest(self._local)
            while self._asked and child.send(self._asked[0]):
                self._asked.popleft()
            child.wait(self._sleeper)
            for answer in child.receive():
                if isinstance(answer, channel.Unavailable):
                    self._warn(f"this node is not linked to the others: pyzmq cannot be used: {answer.sentence}")
                    return None
                if isinstance(answer, channel.Ping):
                    self.contact = answer.contact
                else:
                    self._news.append(answer)
                    self._around.wake()
                    if isinstance(answer, Joined):
                        child.ping_soon()  # its answer tells the contact, which a later process needs
            if child.end:
                return child.end
        child.send_newest(self._local)
        self._is_heard = child.say_goodbye(self._limits.close)
        return None

    def _say_last_word(self) -> None:
        """Tell the other nodes through a new process how this one ended, unless the last process has told them."""
        if not self._is_heard and self._local:
            with (
                suppress(OSError, ValueError),
                Child(self._program, self._farewell, self._around.environ, self._limits) as child,
            ):
                self._child = child
                child.send(self._newest_settings())
                child.send_newest(self._local)
                child.say_goodbye(self._limits.close_again)

    def _newest_settings(self) -> channel.Settings:
        return attrs.evolve(self._settings, hubs=self._hubs, contact=self.contact)

    def _warn(self, sentence: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._around.warn(sentence)


class Child:
    """A running link process. No method blocks, except for the limited wait in `say_goodbye`."""

    def __init__(self, program: str, farewell: int, environ: Mapping[str, str], limits: Limits) -> None:
        self.end = ""  # how it has ended, or why it was given up
        self._limits = limits
        self._sent: Local | None = None
        self._asked_at = 0.0  # when the question was sent that is not answered; 0: none
        self._ask_at = time.monotonic() + limits.ping_interval
        self._second, self._messages = 0, 0  # of the clock, and how many messages arrived in it
        self._channel, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self._channel.setblocking(False)
            try:
                self._popen = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", program, str(farewell)],
                    env={**{name: environ[name] for name in INHERITED if name in environ}, **ENVIRONMENT},
                    stdin=end.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=(farewell,),
                    # Ctrl-C is not for it, nor what a scheduler sends to all processes: this thread blocks all signals,
                    # and so do the processes that it starts.
                    start_new_session=True,
                )
            except OSError:
                self._channel.close()
                raise
        self.pid = self._popen.pid

    def __enter__(self) -> Child:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process, if it has not ended."""
        self._channel.close()
        self._popen.kill()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(bounded.KILL_LIMIT)
        if self._popen.stderr:
            self._popen.stderr.close()

    def send(self, record: channel.Order) -> bool:
        """Send a record; return whether there was room for it."""
        try:
            self._channel.send(channel.encode(record))
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            return True  # the next `receive` notices
        return True

    def send_newest(self, local: Local | None) -> None:
        """Send the state of the node, unless it was sent before. Without room for it, the next call tries again."""
        if local is not None and local is not self._sent and self.send(local):
            self._sent = local

    def ping_soon(self) -> None:
        """Ping the process in the next `wait`, without waiting for the interval."""
        self._ask_at = 0.0

    def wait(self, sleeper: socket.socket) -> None:
        """Wait for a message of the process, for a wake-up, or until the process is to be asked or given up."""
        deadline = self._asked_at + self._limits.answer if self._asked_at else self._ask_at
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(sleeper, select.POLLIN)
        ready = dict(poll.poll(max(0, int((deadline - time.monotonic()) * 1000) + 1)))
        if sleeper.fileno() in ready:
            sleeper.recv(4096)
        now = time.monotonic()
        if self._channel.fileno() in ready:
            return
        if self._asked_at and now >= deadline:
            self.end = "does not respond and was killed"
        elif now >= deadline:
            self._asked_at = now
            self.send(channel.Ping())

    def receive(self) -> Iterator[channel.Answer]:
        """Return the messages that wait."""
        while not self.end:
            try:
                message = self._channel.recv(LARGEST_MESSAGE + 1)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it has ended with messages unread, but its own can still be read
                continue
            if not message:
                self.end = self._how_it_ended()
                return
            if self._is_flood():
                self.end = f"has sent more than {self._limits.most_messages} messages in a second and was killed"
                return
            answer: channel.Answer = channel.decode(message, channel.ANSWERS)
            if isinstance(answer, channel.Ping):
                self._asked_at, self._ask_at = 0.0, time.monotonic() + self._limits.ping_interval
            yield answer

    def _is_flood(self) -> bool:
        second = int(time.monotonic())
        self._messages = self._messages + 1 if second == self._second else 1
        self._second = second
        return self._messages > self._limits.most_messages

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            status = self._popen.wait(bounded.KILL_LIMIT)
            said = self._last_words()
            how = f"was killed by {signal_name(-status)}" if status < 0 else f"has ended with the exit status {status}"
            return f"{how} ({said})" if said else how
        return "has closed its socket and was killed"

    def _last_words(self) -> str:
        """Return the last line of what an ended process has written to stderr, such as a failed assertion of libzmq."""
        written = os.read(self._popen.stderr.fileno(), ERROR_KEPT) if self._popen.stderr else b""
        return printable(written.decode(errors="replace").strip().rpartition("\n")[2])

    def say_goodbye(self, seconds: float) -> bool:
        """Let the process send the last messages and, if it responds, wait for its exit; return whether it responds."""
        has_answered = False
        self.send(channel.Ping())
        self.send(channel.Close())
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        deadline = time.monotonic() + self._limits.last_answer
        while not self.end and (left := deadline - time.monotonic()) > 0:
            poll.poll(int(left * 1000) + 1)
            if any(isinstance(answer, channel.Ping) for answer in self.receive()):
                has_answered, deadline = True, time.monotonic() + seconds
        return has_answered

    def kill(self) -> None:
        """Kill the process, which ends every wait for it."""
        self._popen.kill()
