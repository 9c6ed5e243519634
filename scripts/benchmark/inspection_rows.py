"""The row about the inspection: what it costs on a node with 8 NPUs, whose tools are shell scripts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from ascend_runner.node import inspection as child
from ascend_runner.node.findings import Node, Place
from ascend_runner.node.host import Host
from ascend_runner.services import inspector
from benchmark import measure
from benchmark.measure import folder
from benchmark.table import Row, percent

DEVICES: Final = tuple(range(8))
INTERVAL: Final = 60.0  # seconds, the default
SECONDS: Final = 15.0  # of inspections one after the other
NPU_SMI: Final = """#!/bin/sh
echo >> {path}/rounds
cat <<'X'
{table}X
"""
CARD: Final = """\
| {number}     910B3               | OK            | 93.6        38                0    / 0             |
| 0                         | 0000:0{number}:00.0  | 0           0    / 0          3349 / 65536         |
"""
HCCN_TOOL: Final = "#!/bin/sh\necho net health status: Success\n"


def inspection() -> Iterator[Row]:
    """Measure the CPU time of an inspection and its tools, as a part of a core at the default interval."""
    with folder() as path:
        make_node(path)
        node = Node(
            host=Host(path),
            environ={**os.environ, "PATH": f"{path}/bin:{os.environ['PATH']}"},
            device_ids=DEVICES,
            places=(Place(name="log directory", path="/"), Place(name="shared memory", path="/dev")),
        )
        program = inspector.PROGRAM.format(path=sys.path)
        argv = [sys.executable, "-I", "-S", "-c", program, child.arguments(node, 0.1)]
        with subprocess.Popen(argv, env=node.environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as popen:
            time.sleep(2)  # until all is loaded
            rounds, used = _rounds(path), _cpu_seconds(popen.pid)
            time.sleep(SECONDS)
            rounds, used = _rounds(path) - rounds, _cpu_seconds(popen.pid) - used
            popen.communicate()
    yield Row(
        f"an inspection of {len(DEVICES)} NPUs every minute: CPU time", used / rounds / INTERVAL, percent, reach=0.001
    )


def make_node(path: str) -> None:
    """Make the tools of a node with NPUs in `bin` and its devices in `dev`."""
    os.makedirs(f"{path}/bin")
    os.makedirs(f"{path}/dev")
    for number in DEVICES:
        measure.write(f"{path}/dev/davinci{number}", b"")
    table = "".join(CARD.format(number=number) for number in DEVICES)
    for name, text in (("npu-smi", NPU_SMI.format(path=path, table=table)), ("hccn_tool", HCCN_TOOL)):
        measure.write(f"{path}/bin/{name}", text.encode())
        os.chmod(f"{path}/bin/{name}", 0o700)


def _rounds(path: str) -> int:
    return len(measure.read(f"{path}/rounds"))


def _cpu_seconds(pid: int) -> float:
    return measure.process_seconds(pid) + measure.reaped_seconds(pid)


ROWS: Final = (inspection,)
