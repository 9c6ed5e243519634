"""A guardian whose runner performs its first argument; the exit status is the guardian's.

exit=N      return N                          die=SIGNAL  be killed by it
raise       fail with an exception            stop=N      raise SystemExit(N)
orphans     leave sleeping processes behind, in the same session, their own, and twice forked; then SIGKILL itself
signals     print each signal as it comes, until SIGQUIT
copies      the same; equal stop signals are copies of one for an hour, because a busy machine delivers copies late
busy=PATH   print "ready", and compute with all signals blocked until that file exists
hang=N      print "ready", and wait forever with all signals blocked, as if on a disk; the grace is N seconds
hang-end=N  the same, with the exit status 7 already announced
stop-parent stop the guardian, and return 7
starve      leave a sleeping process behind and no descriptor free, kill the guardian, and fail with an exception
files=PATH  write there what the fds 0 to 2 are
group       print whether this process leads a group that is not its parent's
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from ascend_runner.guardian import guard, signal_sets
from ascend_runner.ranks.signals import Signals

LONG = 1000.0  # seconds


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def die(name: str) -> int:
    os.kill(os.getpid(), signal.Signals["SIG" + name])
    return 0


def fail(_: str) -> int:
    raise RuntimeError("as it was told to")


def stop(status: str) -> int:
    raise SystemExit(int(status))


def leave_orphans(_: str) -> int:
    for detach in (stay, os.setsid, fork_again):
        reader, writer = os.pipe()
        if os.fork() == 0:
            detach()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say(str(os.getpid()))
            os.close(writer)
            while True:
                signal.pause()
        os.close(writer)
        os.read(reader, 1)  # end of file: it is ready
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def stay() -> None:
    pass


def fork_again() -> None:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)


def print_signals(tell_guardian: Callable[[str], None]) -> int:
    with Signals(tell_guardian) as signals:
        say("ready")
        while True:
            for signum in signals.wait(None):
                say(signal.Signals(signum).name)
                if signum == signal.SIGQUIT:
                    return 0


def hang(tell_guardian: Callable[[str], None], grace: float, status: int | None) -> int:
    signals = Signals(tell_guardian)
    signals.begin(grace)
    if status is not None:
        signals.expect_end(status)
    say("ready")
    time.sleep(LONG)
    return 0


def compute(path: str) -> int:
    say("ready")
    while not os.path.exists(path):
        sum(range(100_000))
    return 0


def stop_parent(_: str) -> int:
    os.kill(os.getppid(), signal.SIGSTOP)
    return 7


def starve(_: str) -> int:
    say(f"{os.getpid()} {os.posix_spawn('/bin/sleep', ['sleep', '100'], os.environ)}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with suppress(OSError):
        while True:
            os.dup(2)
    guardian = os.getppid()
    os.kill(guardian, signal.SIGKILL)
    while os.getppid() == guardian:
        time.sleep(0.001)
    return fail("")


def write_files(path: str) -> int:
    with open(path, "w") as file:
        file.write(" ".join(os.readlink(f"/proc/self/fd/{number}") for number in range(3)))
    return 0


def print_group(_: str) -> int:
    say(str(os.getpgid(0) == os.getpid() != os.getpgid(os.getppid())))
    return 0


BODIES: dict[str, Callable[[str], int]] = {
    "exit": int,
    "die": die,
    "raise": fail,
    "stop": stop,
    "orphans": leave_orphans,
    "busy": compute,
    "stop-parent": stop_parent,
    "starve": starve,
    "files": write_files,
    "group": print_group,
}


def main(tell_guardian: Callable[[str], None]) -> int:
    name, _, value = sys.argv[1].partition("=")
    if name in {"hang", "hang-end"}:
        return hang(tell_guardian, float(value), 7 if name == "hang-end" else None)
    return print_signals(tell_guardian) if name in {"signals", "copies"} else BODIES[name](value)


if __name__ == "__main__":
    if sys.argv[1] == "copies":
        signal_sets.ONE_SIGNAL = 3600.0
    os._exit(guard.guard(main, lambda sentence: print(sentence, file=sys.stderr, flush=True)))
