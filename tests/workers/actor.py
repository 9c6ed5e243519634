"""A fake training process that performs the steps in its arguments, in order. `2:exit=7` is for rank 2 only.

say=TEXT   print a line                      exit=N      end with that status
die=SIGNAL kill itself with that signal      sleep       do nothing until a signal ends it
ignore=SIG ignore that signal                answer=SIG:TEXT:N  on that signal print TEXT and exit N
note=SIG   print the signal's name whenever it comes
await=PATH go on when that file exists       touch=PATH  make that file
child=HOW  leave a sleeping child behind: plain, group (its own), session (its own), daemon (double-forked, own
           session), headless (its main thread ends)
stubborn=HOW  the same, ignoring SIGTERM
forks=N    leave that many sleeping children behind, every other one in a session of its own
chains=N   leave that many chains of processes behind, each of which starts the next one and ends
headless   say "ready" and end the main thread, while another one lives on
hide       become undumpable, as ssh-agent does
orphans=N  make that many processes lose their parent and end, and wait until somebody has reaped them all
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

NAP = 0.005
PR_SET_DUMPABLE = 4  # linux/prctl.h
PROCESSES_OF_A_CONTAINER = 3  # guardian, runner, this one


def main() -> None:
    for word in sys.argv[1:]:
        rank, colon, step = word.partition(":")
        if not (colon and rank.isdigit()):
            perform(word)
        elif rank == os.environ.get("RANK_ID"):
            perform(step)


def perform(step: str) -> None:
    name, _, value = step.partition("=")
    STEPS[name](value)


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")  # not print(), which a signal handler may interrupt


def die(name: str) -> None:
    signum = signal.Signals["SIG" + name]
    if signum not in {signal.SIGKILL, signal.SIGSTOP}:  # the action of these cannot be changed
        signal.signal(signum, signal.SIG_DFL)  # it may be ignored so far
    os.kill(os.getpid(), signum)


def sleep(_: str) -> None:
    while True:
        time.sleep(1)  # unlike pause(), it does not miss a signal that arrives just before it


def ignore(name: str) -> None:
    signal.signal(signal.Signals["SIG" + name], signal.SIG_IGN)


def answer(value: str) -> None:
    name, text, status = value.split(":")

    def end(_signum: int, _frame: object) -> None:
        say(text)
        os._exit(int(status))

    signal.signal(signal.Signals["SIG" + name], end)


def note(name: str) -> None:
    signal.signal(signal.Signals["SIG" + name], lambda _signum, _frame: say(f"got {name}"))


def await_file(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(NAP)


def touch(path: str) -> None:
    with open(path, "w"):
        pass


def child(how: str) -> None:
    leave_child(how)


def stubborn(how: str) -> None:
    leave_child(how, signal.SIG_IGN)


def leave_child(how: str, on_term: signal.Handlers = signal.SIG_DFL) -> None:
    ready_reader, ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready_reader)
        if how == "group":
            os.setpgid(0, 0)
        elif how in {"session", "daemon"}:
            os.setsid()
        if how == "daemon" and os.fork() != 0:
            os._exit(0)
        signal.signal(signal.SIGTERM, on_term)
        os.write(ready, b"\0")
        os.close(ready)
        if how == "headless":
            end_main_thread()
        while True:
            signal.pause()
    os.close(ready)
    os.read(ready_reader, 1)
    os.close(ready_reader)
    if how == "daemon":
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def fork_many(count: str) -> None:
    for number in range(int(count)):
        if os.fork() == 0:
            if number % 2:
                os.setsid()
            signal.pause()
            os._exit(0)


def start_chains(count: str) -> None:
    for _ in range(int(count)):
        if os.fork() == 0:
            while True:
                if os.fork() != 0:
                    os._exit(0)
                os.setsid()


def become_headless(_: str) -> None:
    say("ready")
    end_main_thread()


def end_main_thread() -> None:
    threading.Thread(target=time.sleep, args=(1000,)).start()
    ctypes.CDLL(None).pthread_exit(None)


def hide(_: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)


def make_orphans(count: str) -> None:
    reader, writer = os.pipe()
    for _ in range(int(count)):
        parent = os.fork()
        if parent == 0:
            if os.fork() == 0:
                os.close(writer)
                os.read(reader, 1)  # until all have started
            os._exit(0)
        os.waitpid(parent, 0)
    os.close(writer)
    while len(list(filter(str.isdigit, os.listdir("/proc")))) > PROCESSES_OF_A_CONTAINER:
        time.sleep(NAP)


STEPS = {
    "say": say,
    "exit": lambda status: sys.exit(int(status)),
    "die": die,
    "sleep": sleep,
    "ignore": ignore,
    "answer": answer,
    "note": note,
    "await": await_file,
    "touch": touch,
    "child": child,
    "stubborn": stubborn,
    "forks": fork_many,
    "chains": start_chains,
    "headless": become_headless,
    "hide": hide,
    "orphans": make_orphans,
}

if __name__ == "__main__":
    main()
