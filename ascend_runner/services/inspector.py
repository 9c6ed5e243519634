"""Starts the process that inspects this node, and passes on its findings. Imported only by jobs that are inspected."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from signal import SIGSTOP
from typing import Final

from ascend_runner.errors import AscendRunnerError
from ascend_runner.guardian import sweep
from ascend_runner.node import bounded, inspection
from ascend_runner.node.findings import Node, places
from ascend_runner.node.host import Host
from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.facts import Fact
from ascend_runner.supervision.causes import NodeFinding
from ascend_runner.supervision.state import Phase, State

END_LIMIT: Final = 0.5  # seconds for the process to be gone after SIGKILL; one that hangs in a driver takes longer
INTERVAL: Final = 60.0  # seconds between two inspections
PROGRAM: Final = (
    "import os, sys; sys.path[:] = {path!r}; from ascend_runner.node import inspection;"
    " inspection.main(sys.argv[1], os.environ)"
)


class Inspector:
    """Inspects this node as soon as all ranks run. An observer of the manager's facts."""

    def __init__(
        self,
        spec: JobSpec,
        device_ids: tuple[int, ...],
        environ: Mapping[str, str],
        pass_on: Callable[[NodeFinding], None],
        interval: float = INTERVAL,
    ) -> None:
        """`pass_on` is called in a thread; `interval` is in seconds."""
        self._node = Node(
            host=Host(),
            environ=environ,
            device_ids=device_ids,
            places=places(spec.files.log_dir, spec.files.checkpoint_dir),
            has_peers=len(spec.ranks) < spec.rank_size,
        )
        self._interval = interval
        self._pass_on = pass_on
        self._child: subprocess.Popen[str] | None = None
        self.pids: set[int] = set()  # the process that inspects, which belongs to no rank

    def observe(self, fact: Fact, _at: float) -> None:
        """Start the process when all ranks run for the first time."""
        if isinstance(fact, State) and fact.phase is Phase.RUNNING and not self._child:
            self._start()

    def _start(self) -> None:
        program = PROGRAM.format(path=sys.path)
        argv = [sys.executable, "-I", "-S", "-c", program, inspection.arguments(self._node, self._interval)]
        try:
            self._child = subprocess.Popen(
                argv,
                env=self._node.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            self.pids.add(self._child.pid)
            bounded.start_thread(self._read)
        except (OSError, AscendRunnerError) as error:
            self._pass_on(inspection.notice("inspection", f"this node is not inspected: {error}", time.time()))

    def _read(self) -> None:
        lines = self._child.stdout if self._child else None
        if lines:
            with lines:
                for line in lines:
                    self._pass_on(inspection.decode(line))
        if self._child:
            sentence = "the inspection process ended unexpectedly; this node is no longer inspected"
            self._pass_on(inspection.notice("inspection", sentence, time.time()))

    def close(self) -> None:
        """Kill the process and its tools. Closing it again has no effect."""
        ended, self._child = self._child, None
        if not ended:
            return
        ended.send_signal(SIGSTOP)  # or it would start the next tool
        sweep.kill_below(ended.pid, 0.0)
        ended.kill()
        bounded.call(END_LIMIT, ended.wait)
        if ended.stdin:
            ended.stdin.close()
        self.pids.clear()
