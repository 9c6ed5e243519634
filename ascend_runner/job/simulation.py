"""Simulates a job of several nodes on this machine (`--simulate 4x8`): one runner for each node, and one console.

The runners are the real ones, and learn only what a platform would tell them: a rank table with all nodes, and the
number of their own. If this process dies, each of them stops its ranks, see `guard.guard`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from datetime import datetime
from signal import SIGCHLD
from typing import IO, Final

from ascend_runner import files, programs
from ascend_runner.errors import AscendRunnerError, JobFailedError, OutputError, reason
from ascend_runner.job.preparation import ports_from
from ascend_runner.job.setup import current, of_logs
from ascend_runner.node import network, terminal
from ascend_runner.node.namespaces import INTERFACE, Namespaces
from ascend_runner.plan.ranks import LATEST, TABLE_NAME
from ascend_runner.platforms.node import MASTER_PORT
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.log_folder import point_at_newest
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from ascend_runner.report.result import LAUNCH_VARIABLE
from ascend_runner.settings.command_line import CommandLine
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import COLOR_ALWAYS, COLOR_AUTO, COLOR_NEVER, OPTIONS, SEPARATOR
from ascend_runner.settings.parsing import OFF
from ascend_runner.text import abbreviated, counted

NAMESPACE_NETWORK: Final = "10.99.0."  # nothing outside of the namespaces sees it
LOOPBACK_NETWORK: Final = "127.0.0."
DEVICE_NETWORK: Final = "10.98."  # of the NPUs that the rank table lists, and nobody has
MOMENT: Final = 2.0  # seconds in which the others follow a node that has failed, if they are linked to it
READ_SIZE: Final = 1024 * 1024  # bytes: what a pipe may hold
# A line of a runner begins with the title of a rank or of the runner, perhaps colored, perhaps after the time.
TITLE: Final = re.compile(rb"((?:\x1b\[[0-9;]*m|[0-9]{2}:[0-9]{2}:[0-9]{2} )*\[)(?=(?:rank [0-9]+|ascend-runner)\])")


def simulate(
    settings: Settings, line: CommandLine, environ: Mapping[str, str], surroundings: tuple[Signals, Console, Messages]
) -> None:
    """Run the training command on simulated nodes, to the end of all of them.

    Raises:
        AscendRunnerError: A node has failed, or cannot be started.
    """
    signals, console, messages = surroundings
    nodes, devices = settings.simulate or (1, 1)
    with ExitStack() as resources:
        namespaces, addresses, how = _addresses(nodes, resources)
        folder = _make_folder(settings)
        path = os.path.join(folder, TABLE_NAME)
        files.write_atomically(path, json.dumps(table(addresses, devices), indent=2).encode())
        size = f"{counted(nodes, 'node')} with {counted(devices, 'rank')} each"
        messages.info(f"simulating {size} {how}, logs in {folder}")
        flags = {**_flags(settings, line, environ), "log_dir": folder, "rank_table": path, "master_addr": addresses[0]}
        if not (namespaces or settings.master_port):
            flags["master_port"] = _free_port(environ, resources)
        if namespaces:
            environ = {"GLOO_SOCKET_IFNAME": INTERFACE, **environ}  # the host name resolves to an address outside
        running: list[_Node] = []
        try:
            for number in range(nodes):
                argv = node_argv(flags, nodes, number, line.command)
                with namespaces.inside(number) if namespaces else nullcontext():
                    running.append(resources.enter_context(closing(_Node(number, argv, environ, console))))
        except OSError as error:  # at a limit
            raise AscendRunnerError(f"cannot start the runner of node {len(running)}: {reason(error)}") from error
        messages.info("runners: " + ", ".join(f"node {node.number} has pid {node.process.pid}" for node in running))
        signals.begin(settings.grace + settings.checkpoint_grace)
        _follow(running, signals, messages)


def table(addresses: Sequence[str], devices: int) -> dict[str, object]:
    """Return the rank table of simulated nodes as ModelArts writes it. Pure."""
    return {
        "status": "completed",
        "group_count": "1",
        "group_list": [
            {
                "group_name": "worker",
                "device_count": str(len(addresses) * devices),
                "instance_count": str(len(addresses)),
                "instance_list": [
                    {
                        "pod_name": f"simulated-worker-{node}",
                        "server_id": address,
                        "devices": [
                            {"device_id": str(device), "device_ip": f"{DEVICE_NETWORK}{node}.{device + 1}"}
                            for device in range(devices)
                        ],
                    }
                    for node, address in enumerate(addresses)
                ],
            }
        ],
    }


def node_argv(flags: Mapping[str, str], nodes: int, number: int, command: Sequence[str]) -> list[str]:
    """Return the command of a node's runner: options by name, which node it is, and the training command."""
    words = programs.argv(programs.RUNNER)
    for option in OPTIONS:
        for text in flags[option.name].split(SEPARATOR) if option.name in flags else ():
            words.append(option.flag if option.is_switch else f"{option.flag}={text}")
    return [*words, f"--nnodes={nodes}", f"--node-rank={number}", "--", *command]


def titled(line: bytes, number: int) -> bytes:
    """Return a line of a node's runner with the node in its title: `[rank 17]` becomes `[node 2 rank 17]`. Pure."""
    if line == b"\n":  # the end of a line that was shown unfinished
        return line
    found = TITLE.match(line)
    if not found:
        return b"[node %d] %b" % (number, line)
    return b"%bnode %d %b" % (found[1], number, line[found.end() :])


def _make_folder(settings: Settings) -> str:
    started_at = datetime.now().strftime("%Y%m%d-%H%M%S")  # noqa: DTZ005  local time, as in all messages
    logs = of_logs(current())
    folder = os.path.abspath(settings.log_dir or os.path.join(logs, f"simulation-{started_at}"))
    files.make_folder(folder)
    if not settings.log_dir:
        point_at_newest(folder, os.path.join(logs, LATEST))
    return folder


def _addresses(nodes: int, resources: ExitStack) -> tuple[Namespaces | None, list[str], str]:
    """Return namespaces, if this process may make them, the address of each node, and a note on both."""
    numbers = range(1, nodes + 1)
    addresses = [f"{NAMESPACE_NETWORK}{number}" for number in numbers]
    namespaces = resources.enter_context(closing(Namespaces(addresses)))
    try:
        namespaces.open()
    except OutputError as error:
        namespaces.close()
        addresses = [f"{LOOPBACK_NETWORK}{number}" for number in numbers]
        return None, addresses, f"at {abbreviated(addresses)} in the network of this machine (no namespaces: {error})"
    return namespaces, addresses, f"in network namespaces that reach only each other, at {abbreviated(addresses)}"


def _flags(settings: Settings, line: CommandLine, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options that all nodes share. They have no NPUs, so that nothing is checked."""
    flags = {**line.values, "precheck": OFF, "inspect": OFF}
    del flags["simulate"]
    if settings.color == COLOR_AUTO:
        flags["color"] = COLOR_ALWAYS if terminal.has_colors(terminal.STDOUT, environ) else COLOR_NEVER
    return flags


def _free_port(environ: Mapping[str, str], resources: ExitStack) -> str:
    """Reserve a port of node 0, as a job on a single node does: others may use the network of this machine."""
    port, reservation = network.reserve_port(ports_from(MASTER_PORT, environ)) or (MASTER_PORT, nullcontext())
    resources.enter_context(reservation)
    return str(port)


class _Node:
    """The runner of a node, and what it writes."""

    def __init__(self, number: int, argv: Sequence[str], environ: Mapping[str, str], console: Console) -> None:
        self.number = number
        with open(os.devnull, "wb") as result:  # the runner passes it to whoever has launched it; nobody reads this one
            self.process = subprocess.Popen(
                argv,
                env={**environ, LAUNCH_VARIABLE: f"{os.getpid()}:{result.fileno()}"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[result.fileno()],
            )
        self.streams = [
            _Stream(self.process.stdout, number, lambda lines: console.show(number, lines)),
            _Stream(self.process.stderr, number, lambda lines: console.show_message(b"".join(lines))),
        ]

    def status(self) -> int | None:
        """Return the exit status of a runner that has ended."""
        status = self.process.poll()
        return 128 - status if status is not None and status < 0 else status

    def read(self, *, is_over: bool) -> list[_Stream]:
        """Show what has arrived, all of it if that is over; return the streams that have ended since the last call."""
        ended = []
        for stream in [stream for stream in self.streams if stream.is_open]:
            while stream.read() and is_over:  # a runner that is still there may never stop to write
                continue
            stream.is_open &= not is_over
            if not stream.is_open:
                ended.append(stream)
        return ended

    def close(self) -> None:
        """Stop a runner that has just started because another one cannot be, and close the pipes that are open."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(MOMENT)
        for stream in self.streams:
            stream.close()


class _Stream:
    """What a runner writes to a pipe; `show` takes whole lines."""

    def __init__(self, pipe: IO[bytes] | None, number: int, show: Callable[[list[bytes]], None]) -> None:
        if pipe is None:
            raise ValueError("the runner must be started with pipes")
        os.set_blocking(pipe.fileno(), False)
        self.pipe, self.is_open = pipe, True
        self._number, self._show, self._rest = number, show, b""

    def read(self) -> bool:
        """Show the lines that have arrived; return whether there may be more. `is_open` is false after the last one."""
        try:
            data = os.read(self.pipe.fileno(), READ_SIZE)
        except BlockingIOError:
            return False
        self.is_open = bool(data)
        # A progress bar ends each of its states with a carriage return.
        *lines, self._rest = re.split(rb"(?<=[\r\n])", self._rest + (data or b"\n" * bool(self._rest)))
        if lines:
            self._show([titled(line, self._number) for line in lines])
        return self.is_open

    def close(self) -> None:
        """Close the pipe if it is open."""
        self.pipe.close()


def _follow(nodes: Sequence[_Node], signals: Signals, messages: Messages) -> None:
    """Pass on signals and output until all nodes have ended.

    Raises:
        JobFailedError: A node has failed; the status is the first one's.
    """
    running, statuses = list(nodes), dict[int, int]()  # exit statuses in the order in which nodes ended
    due: dict[int, float] = {}  # when the end of a failed node is shown, unless the others have followed it
    for stream in (stream for node in nodes for stream in node.streams):
        signals.watch(stream.pipe)
    while running:
        arrived = signals.wait(max(0.0, min(due.values()) - signals.now()) if due else None)
        for node in list(running):
            for signum in arrived:
                if signum != SIGCHLD:
                    node.process.send_signal(signum)
            status = node.status()
            for stream in node.read(is_over=status is not None):
                signals.unwatch(stream.pipe)
            if status is not None:
                running.remove(node)
                statuses[node.number] = status
                due.update({node.number: signals.now() + MOMENT} if status else {})
        left = ", ".join(f"node {node.number}" for node in running)
        for number in [number for number, at in due.items() if left and signals.now() >= at]:
            del due[number]
            messages.warning(f"node {number} ended with exit status {statuses[number]}; still running: {left}")
    _conclude(statuses, due, messages)


def _conclude(statuses: Mapping[int, int], untold: Collection[int], messages: Messages) -> None:
    """Show how all nodes have ended, in one line if they agree.

    Raises:
        JobFailedError: As `_follow`.
    """
    first, status = next((end for end in statuses.items() if end[1]), (0, 0))
    if status and {status} == {*statuses.values()}:
        raise JobFailedError(f"all nodes ended with exit status {status}", exit_status=status)
    for number in untold:
        messages.warning(f"node {number} ended with exit status {statuses[number]}")
    if status:
        raise JobFailedError(f"node {first} failed first, with exit status {status}", exit_status=status)
