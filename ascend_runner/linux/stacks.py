"""Where the processes of a hanging rank stand: their Python stacks by py-spy, else what /proc tells.

py-spy (the extra `debug`) reads another process' memory, which ptrace(2) must permit: a parent may look at its children
unless a container forbids it. /proc/PID/{status,wchan,syscall} can always be read, /proc/PID/stack by root only.
Bounded in all: a process deep in a driver may never answer, and then neither does who looks at it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.diagnosis.stack_groups import ProcessStack, RankStack
from ascend_runner.errors import reason
from ascend_runner.text import shown

from .descendants import descendants, is_proc_ours, wchan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PROCESSES_PER_RANK: Final = 8  # the leader, what it runs, some workers; a data loader may have dozens, all alike
DUMP_LIMIT: Final = 3.0  # seconds for one process; a healthy one takes 0.05
KILL_LIMIT: Final = 0.5  # seconds for a py-spy that was given up to be gone; milliseconds, unless the kernel holds it
LOOKERS: Final = 4  # py-spy processes at once: each needs a core for a moment, and the ranks need theirs
FRAMES_LIMIT: Final = 64


class Looker:
    """Looks at the processes of all ranks within a time limit. Call it in the thread that reaps."""

    def __init__(self, search_path: str) -> None:
        """`search_path` is the PATH to find py-spy on, unless it stands beside this interpreter."""
        self.py_spy = find_py_spy(search_path)
        self.refusal = "" if self.py_spy else "py-spy is not installed (pip install 'ascend-runner[debug]')"
        self._found: dict[int, ProcessStack] = {}

    def look(self, leaders: Mapping[int, int], seconds: float = 6.0) -> tuple[RankStack, ...]:
        """Give the stacks of each rank; `leaders` are the pids by rank id. Takes `seconds` at most, and a moment.

        Where py-spy fails, `refusal` says why, and the kernel's view stands in.
        """
        if not is_proc_ours():
            self.refusal = "/proc is another PID namespace's"
            return ()
        pids = {rank_id: _family(pid) for rank_id, pid in leaders.items()}
        self._found = {pid: _kernel_stack(pid) for family in pids.values() for pid in family}
        if self.py_spy:
            self._ask_py_spy(_leaders_first(pids.values()), time.monotonic() + seconds)

        found = dict(self._found)  # a thread that comes too late must not change what is being read
        return tuple(
            RankStack(rank_id, tuple(found[pid] for pid in family if found[pid].state))
            for rank_id, family in pids.items()
        )

    def _ask_py_spy(self, pids: list[int], deadline: float) -> None:
        waiting = pids[::-1]
        threads = [
            threading.Thread(target=self._work_off, args=(waiting, deadline), name="py-spy", daemon=True)
            for _number in range(min(LOOKERS, len(pids)))
        ]
        try:
            for thread in threads:
                thread.start()
        except RuntimeError as error:  # RLIMIT_NPROC
            self.refusal = f"py-spy cannot be started: {error}"
        for thread in filter(threading.Thread.is_alive, threads):
            thread.join(max(0.0, deadline + KILL_LIMIT - time.monotonic()))

    def _work_off(self, waiting: list[int], deadline: float) -> None:
        while time.monotonic() < deadline:
            try:
                pid = waiting.pop()
            except IndexError:
                return
            frames = self._dump(pid, min(DUMP_LIMIT, deadline - time.monotonic()))
            if frames:
                self._found[pid] = self._found[pid]._replace(frames=frames, is_python=True)

    def _dump(self, pid: int, seconds: float) -> tuple[str, ...]:
        command = [self.py_spy, "dump", "--json", "--pid", str(pid)]
        try:
            dump = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=max(0.0, seconds)
            )
        except subprocess.TimeoutExpired:
            self.refusal = f"py-spy had no answer within {seconds:.0f} s"
            return ()
        except OSError as error:
            self.refusal = f"py-spy cannot be started: {reason(error)}"
            return ()
        if dump.returncode:
            # A shell or another program without Python in it is no failure.
            if b"ermission" in dump.stderr or b"permitted" in dump.stderr:
                self.refusal = "py-spy may not look at the ranks: it needs the right to ptrace (CAP_SYS_PTRACE)"
            return ()
        return decode_dump(dump.stdout)


def decode_dump(data: bytes) -> tuple[str, ...]:
    """Read py-spy's JSON: the frames of the main thread, the innermost first."""
    import json  # only at a hang

    try:
        threads = json.loads(data)
    except ValueError:
        return ()
    if not isinstance(threads, list) or not threads:
        return ()
    main = next((thread for thread in threads if thread.get("thread_name") == "MainThread"), threads[-1])

    return tuple(
        shown(f"{frame.get('name')} ({os.path.basename(str(frame.get('filename')))}:{frame.get('line')})")
        for frame in main.get("frames", [])[:FRAMES_LIMIT]
    )


def find_py_spy(search_path: str) -> str:
    """Give the path of py-spy, "" where there is none."""
    for folder in (os.path.dirname(sys.executable), *search_path.split(os.pathsep)):
        path = os.path.join(folder, "py-spy")
        if folder and os.access(path, os.X_OK):
            return path
    return ""


def _family(leader: int) -> list[int]:
    """Give a rank's processes, parents before children."""
    below = (found.pid for found in descendants(leader) if not found.is_zombie)
    return [leader, *(pid for _number, pid in zip(range(PROCESSES_PER_RANK - 1), below))]


def _leaders_first(families: Iterable[list[int]]) -> list[int]:
    """Give all pids, so that when time is over each rank has been looked at, rather than all workers of one."""
    numbered = [(number, pid) for family in families for number, pid in enumerate(family)]
    return [pid for _number, pid in sorted(numbered, key=lambda entry: entry[0])]


def _kernel_stack(pid: int) -> ProcessStack:
    status = dict(line.partition(":\t")[::2] for line in _read(pid, "status").splitlines())
    state = status.get("State", "").partition("(")[2].rstrip(")")
    stack = [line.partition("] ")[2].partition("+")[0] for line in _read(pid, "stack").splitlines()]
    frames = [frame for frame in stack if frame] or [frame for frame in (wchan(pid), _system_call(pid)) if frame]

    return ProcessStack(pid, shown(status.get("Name", "")), state, tuple(map(shown, frames)))


def _system_call(pid: int) -> str:
    number = _read(pid, "syscall").partition(" ")[0].strip()
    return f"system call {number}" if number.isdigit() else ""


def _read(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""  # it has gone, or the kernel keeps it to itself
