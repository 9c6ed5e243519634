"""The figures of the NPUs of this machine while a job is watched. There are none unless npu-smi responds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Optional

from ascend_runner.errors import AscendRunnerError
from ascend_runner.frameworks import hccl
from ascend_runner.host import bounded, npu, npu_smi
from ascend_runner.host.host import Host
from ascend_runner.host.npu_watch import Figures, NpuWatch

TABLE_LIMIT: Final = 10.0  # seconds for `npu-smi info`
MOST_NPUS: Final = 1024  # of a machine


class Npus:
    """Reads the figures. npu-smi starts in the background, because its first table takes seconds."""

    def __init__(self, host: Host, environ: Mapping[str, str]) -> None:
        self._host, self._environ = host, environ
        self._figures: dict[int, Figures] = {}
        self._watch: Optional[NpuWatch] = None
        self._is_closed = False

    def start(self, now: float) -> None:
        """Start npu-smi if this machine has it."""
        tool = npu_smi.find(self._host, self._environ)
        if not tool:
            return

        def start() -> None:
            try:
                run = bounded.run([tool, "info"], TABLE_LIMIT, dict(self._environ), lambda: self._is_closed)
                devices = npu_smi.devices(run.stdout) if run else ()
                watch = NpuWatch(tool, devices, now + TABLE_LIMIT)
            except OSError:
                return
            self._watch = watch
            if self._is_closed:
                watch.close()

        try:
            bounded.start_thread(start)
        except AscendRunnerError:  # the limit of processes: without figures, then
            return

    def look(self, now: float) -> Mapping[int, Figures]:
        """Return the newest figures by the id of the NPU, also those that are old."""
        if self._watch:
            self._figures.update(self._watch.read(now))
        return self._figures

    def close(self) -> None:
        """Kill npu-smi. Closing it again has no effect."""
        self._is_closed = True
        if self._watch:
            self._watch.close()


def ids_of_ranks(host: Host, runner_pid: int) -> tuple[int, ...]:
    """Return the ids of the NPUs of a node's ranks in local order, or none if they are unknown."""
    try:
        with open(host.path(f"/proc/{runner_pid}/environ"), "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:  # it has ended, or belongs to somebody else
        return ()
    environ = dict(os.fsdecode(entry).partition("=")[::2] for entry in entries if b"=" in entry)
    return npu.of_ranks(host, MOST_NPUS, hccl.visible_devices(environ))
