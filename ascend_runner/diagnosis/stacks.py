"""Collects the stacks of ranks that hang, and groups ranks by their innermost frames, so that an outlier stands out.

py-spy (the extra `debug`) reads the memory of another process, which requires ptrace(2): a parent may trace its
children unless a container forbids it. /proc/PID/{status,wchan,syscall} are always readable, /proc/PID/stack by root
only. Everything has a time limit: a process stuck in a driver may never respond, and neither may its tracer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis.finding import StackGroup
from ascend_runner.errors import AscendRunnerError, reason
from ascend_runner.guardian.process_tree import descendants, is_in_exec, is_proc_ours, wchan
from ascend_runner.node import bounded, executables
from ascend_runner.node.host import Host
from ascend_runner.text import shown

STUCK: Final = "disk sleep"  # state D of proc(5): it reacts to no signal
INNERMOST: Final = 8  # frames that must be equal; outer frames rarely differ between ranks of one program


@attrs.frozen(kw_only=True)
class ProcessStack:
    """The stack of one process, innermost frame first: "all_reduce (distributed_c10d.py:2501)".

    Unless `is_python`, the frames are the kernel's ("futex_wait_queue"). `state` is from proc(5), such as "sleeping".
    """

    state: str
    frames: tuple[str, ...]
    is_python: bool = False


@attrs.frozen
class RankStack:
    """The stacks of one rank's processes, its leader first. Empty if all of them have exited."""

    rank_id: int
    processes: tuple[ProcessStack, ...]

    @property
    def main(self) -> ProcessStack | None:
        """The process that represents the rank: the first Python, else the first that does not wait for a child.

        This skips the shell of `bash train.sh` and the workers of a data loader. A process that is stuck in the kernel
        has no Python stack, because no process can trace it, and precedes its children.
        """
        pythons = [process for process in self.processes if process.is_python or process.state == STUCK]
        working = [process for process in self.processes if process.frames[:1] != ("do_wait",)]
        return next(iter((*pythons, *working, *self.processes)), None)


def group(stacks: Sequence[RankStack], earlier: Sequence[RankStack] = ()) -> tuple[StackGroup, ...]:
    """Group ranks by innermost frames, smallest group first: the others usually wait for the outlier.

    Ranks with the same stacks as `earlier` are not in a group with ranks that have moved on.
    """
    before = {stack.rank_id: stack.main for stack in earlier}
    groups: dict[tuple[tuple[str, ...], bool | None], list[RankStack]] = {}
    for stack in stacks:
        has_changed = _has_changed(stack.main, before.get(stack.rank_id))
        groups.setdefault((_innermost(stack.main), has_changed), []).append(stack)

    found = [
        StackGroup(
            rank_ids=tuple(sorted(stack.rank_id for stack in members)),
            state=members[0].main.state if members[0].main else "gone",
            frames=members[0].main.frames if members[0].main else (),
            has_changed=has_changed,
        )
        for (_frames, has_changed), members in groups.items()
    ]
    return tuple(sorted(found, key=lambda member: (len(member.rank_ids), member.rank_ids)))


def _innermost(process: ProcessStack | None) -> tuple[str, ...]:
    return process.frames[:INNERMOST] if process else ()


def _has_changed(now: ProcessStack | None, before: ProcessStack | None) -> bool | None:
    """Compare Python stacks; the kernel's are often the same in processes that make progress."""
    if not (now and before and now.is_python and before.is_python):
        return None
    return _innermost(now) != _innermost(before)


PROCESSES_PER_RANK: Final = 8  # the leader, its children, some workers; a data loader may have dozens, all alike
STACKS_LIMIT: Final = 6.0  # seconds for all ranks
DUMP_LIMIT: Final = 3.0  # seconds per process; a healthy one needs 0.05
PARALLEL_DUMPS: Final = 4  # py-spy processes at once; each occupies a core that the ranks may need
FRAMES_LIMIT: Final = 64
STOPPED: Final = "the job is being stopped"


class StackCollector:
    """Collects the stacks of all ranks within a time limit. Must be called in the thread that reaps.

    `refusal` is the reason if there are no Python stacks, "" otherwise.
    """

    def __init__(self, py_spy: str, is_cut: Callable[[], bool] = bounded.never, *, may_pause: bool = True) -> None:
        """`py_spy` is the path of the program, see `executables.find_py_spy`, or "" for the kernel's view only.

        Unless it `may_pause` the processes, their stacks may be inexact if they change just then.
        """
        self.refusal = "" if py_spy else executables.no_py_spy()
        self._is_cut = is_cut
        self._py_spy = py_spy
        self._options = () if may_pause else ("--nonblocking",)

    def collect(self, leaders: Mapping[int, int], seconds: float = STACKS_LIMIT) -> tuple[RankStack, ...]:
        """Return the stacks of each rank within about `seconds`; `leaders` maps rank ids to pids.

        Where py-spy fails, the kernel's view is returned.
        """
        if not is_proc_ours():
            self.refusal = "/proc belongs to another PID namespace"
            return ()
        pids = {rank_id: _family(pid) for rank_id, pid in leaders.items()}
        stacks = {pid: _kernel_stack(pid) for family in pids.values() for pid in family}
        if self._py_spy:
            for pid, frames in self._dump_each(_leaders_first(pids.values()), seconds).items():
                if frames:
                    stacks[pid] = attrs.evolve(stacks[pid], frames=frames, is_python=True)

        return tuple(
            RankStack(rank_id, tuple(stacks[pid] for pid in family if stacks[pid].state))
            for rank_id, family in pids.items()
        )

    def _dump_each(self, pids: list[int], seconds: float) -> dict[int, tuple[str, ...]]:
        deadline = time.monotonic() + seconds

        def dump(pid: int) -> tuple[str, ...]:
            return self._dump(pid, min(DUMP_LIMIT, deadline - time.monotonic()))

        try:
            limit = seconds + bounded.KILL_LIMIT
            dumps = bounded.call_each(pids, dump, limit, workers=PARALLEL_DUMPS, is_cut=self._is_cut)
        except AscendRunnerError as error:
            self.refusal = f"cannot start py-spy: {error}"
            return {}
        if len(dumps) < len(pids) and self._is_cut():
            self.refusal = STOPPED
        return dumps

    def _dump(self, pid: int, seconds: float) -> tuple[str, ...]:
        if seconds <= 0:
            return ()
        command = [self._py_spy, "dump", "--json", *self._options, "--pid", str(pid)]
        try:
            dump = bounded.run(command, seconds, is_cut=self._is_cut)
        except OSError as error:
            self.refusal = f"cannot start py-spy: {reason(error)}"
            return ()
        if dump is None:
            is_late = not self._is_cut()
            self.refusal = f"py-spy did not respond within {seconds:.0f} s" if is_late else STOPPED
            return ()
        if dump.returncode:
            # A shell or another program without a Python interpreter is not an error.
            if "ermission" in dump.stderr or "permitted" in dump.stderr:
                self.refusal = "py-spy is not permitted to trace the ranks: it requires CAP_SYS_PTRACE"
            return ()
        return decode_dump(dump.stdout)


def decode_dump(data: str) -> tuple[str, ...]:
    """Parse py-spy's JSON: the frames of the main thread, innermost first."""
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


def _family(leader: int) -> list[int]:
    """Return a rank's processes, parents before children."""
    below = (found.pid for found in descendants(leader) if not found.is_zombie)
    return [leader, *(pid for _number, pid in zip(range(PROCESSES_PER_RANK - 1), below))]


def _leaders_first(families: Iterable[list[int]]) -> list[int]:
    """Sort all pids so that every rank gets its turn before the time is up, rather than all workers of one."""
    numbered = [(number, pid) for family in families for number, pid in enumerate(family)]
    return [pid for _number, pid in sorted(numbered, key=lambda entry: entry[0])]


def _kernel_stack(pid: int) -> ProcessStack:
    host, proc = Host(), f"/proc/{pid}"
    status = dict(line.partition(":\t")[::2] for line in host.read_lines(f"{proc}/status"))
    state = status.get("State", "").partition("(")[2].rstrip(")")
    if is_in_exec(pid):
        return ProcessStack(state=state, frames=("execve",))
    stack = [line.partition("] ")[2].partition("+")[0] for line in host.read_lines(f"{proc}/stack")]
    frames = [frame for frame in stack if frame] or [frame for frame in (wchan(pid), _system_call(pid)) if frame]

    return ProcessStack(state=state, frames=tuple(map(shown, frames)))


def _system_call(pid: int) -> str:
    number = Host().read_text(f"/proc/{pid}/syscall").partition(" ")[0].strip()
    return f"system call {number}" if number.isdigit() else ""
