"""One node of a Ray cluster, and on node 0 also the command. `--launcher ray` starts this process on every node.

It runs in the Python of the command (3.8 or newer) and uses only the standard library. Ray is imported only by the
process that becomes `ray start --block`, which is started from this file as well. `ray symmetric-run` does the same for
one cluster per machine, but it runs `ray stop`, which ends other clusters, and hides how its processes ended.

The nodes meet at MASTER_PORT of node 0. A connection lasts as long as the job and carries one JSON object per line:

    worker: {"job": NAME, "cluster": ID, "node": 1, "nodes": 2}
    node 0: {"address": HOST:PORT, "session": NAME} or {"refused": WHY}
    worker: {"joined": true}
    node 0: {"status": N}, once the command has ended

So Ray can use any free ports, no node joins the cluster of another job, and workers leave in time. A connection is
closed when the process of its node exits. If it breaks in another way, that proves nothing: Ray watches its nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import glob
import importlib
import json
import os
import resource
import select
import selectors
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

OLDEST = (2, 9)  # the first version of Ray that supports NPUs
VITAL = ("gcs_server", "raylet")  # processes without which a node is lost
HOOK = "RAY_START_HOOK"  # a function that `ray start` calls with its parameters
ADDRESS_FILE = "ray_current_cluster"  # in the temporary directory; written by `ray start` when the node has joined
OUTPUT = "ray-start.txt"  # the output of `ray start`
PAUSE = 0.05  # seconds between two checks for ADDRESS_FILE
RETRY = 0.5  # seconds between two attempts to reach node 0
LAST_WORDS = 2.0  # seconds for the command to exit by itself, or for a linked runner to stop this process
FAREWELL = 5.0  # seconds for the workers to leave after a success
LONGEST = 4096  # bytes of a line
STRANGERS = 64  # connections that have not introduced themselves


class ClusterError(Exception):
    """The cluster could not be started, or has died."""


def main(words: list[str]) -> int:
    """Run a node, and return the exit status of the command."""
    sys.path.pop(0)  # this directory: its modules must not shadow others
    if words[0] == "start":
        return start(int(words[1]), *words[2:4], arguments=words[4:])
    at = words.index("--")
    parser = argparse.ArgumentParser()
    for option in ("--job", "--cluster", "--address", "--scratch", "--logs"):
        parser.add_argument(option, required=True)
    for option in ("--node", "--nodes", "--npus"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    with contextlib.closing(Node(parser.parse_args(words[:at]))) as node:
        try:
            status = run_head(node, words[at + 1 :]) if node.options.node == 0 else run_worker(node)
        except ClusterError as error:
            if not node.asked:
                # Like an exception, which the diagnosis finds: the last one, as the command may have printed others.
                frames = traceback.format_tb(error.__traceback__)[-1:]
                begin = ["Traceback (most recent call last):\n", *frames] if node.has_command else []
                say(f"{''.join(begin)}ClusterError: {error}")
            status = 1
    return end_like(-node.asked if node.asked and status else status)


def end_like(status: int) -> int:
    """Return an exit status, or die of a signal if the status is negative, as in subprocess."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has dumped core already
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    return status


# --- The process that becomes `ray start` -----------------------------------------------------------------------------


def start(reasons: int, temp_dir: str, session: str, *, arguments: list[str]) -> int:
    """Become `ray start --block`. Writes to `reasons` why that is impossible, or why it ends."""
    why = why_unusable()
    if why:
        os.write(reasons, why.encode())
        return 1

    os.set_inheritable(reasons, False)
    globals()["place"] = functools.partial(place, temp_dir, session)
    os.environ[HOOK] = "__main__.place"
    signal.signal(signal.SIGCHLD, functools.partial(look_for_dead, reasons))
    # Ctrl-C is for the command, whose cluster lives until it has ended; Ray's other processes block it (services.py).
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.argv = ["ray", "start", "--block", *arguments]
    try:
        return int(importlib.import_module("ray.scripts.scripts").main() or 0)
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # now Ray stops its own processes


def why_unusable() -> str:
    """Return why this Python cannot start Ray, "" if it can."""
    try:
        found = importlib.import_module("ray").__version__
    except ImportError as error:
        return f"{sys.executable} cannot import Ray ({error}): install ray, or select its environment with --conda-env"
    if tuple(map(int, found.split(".")[:2])) >= OLDEST:
        return ""
    return f"Ray {found} of {sys.executable} is too old: install at least version {'.'.join(map(str, OLDEST))}"


def place(temp_dir: str, session: str, parameters: Any, _is_head: object) -> None:
    """Make Ray use the prepared directory, where `logs` is a link to the job's log directory."""
    os.environ.pop(HOOK, None)  # otherwise all processes of the cluster inherit it
    parameters.temp_dir, parameters.session_name = temp_dir, session
    parameters.ray_client_server_port = None  # it would listen on a fixed port


def look_for_dead(reasons: int, *_signal: object) -> None:
    """Report a dead raylet at once. Ray checks once per second, and the command may fail in the meantime."""
    for name, pid in [process for process in below(os.getpid()) if process[0] in VITAL]:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the first death is the reason
            status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            os.write(reasons, f"{name} (pid {pid}) {ending(status)}".encode())
            kill([pid for _name, pid in below(os.getpid())])
            os._exit(1)


def ending(status: int) -> str:
    """Describe how a process ended."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"


def kill(pids: list[int]) -> None:
    """Kill processes. Without a raylet or the GCS, Ray's workers may stay for many seconds, or forever (2.9)."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def others_of_session(leader: int) -> list[int]:
    """Return the pids of the other processes in a session."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            found += [pid] if pid != leader and os.getsid(pid) == leader else []
    return found


def below(parent: int) -> Iterator[tuple[str, int]]:
    """Yield the name and pid of each descendant of a process, zombies included, parents before children."""
    found: dict[int, list[tuple[str, int]]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            name, _, fields = file.read().partition("(")[2].rpartition(")")
            found.setdefault(int(fields.split()[1]), []).append((name, int(pid)))
    parents = [parent]
    for one in parents:
        yield from found.get(one, ())
        parents += [child for _name, child in found.get(one, ())]


# --- Every node -------------------------------------------------------------------------------------------------------


class Node:
    """The parts common to all nodes: the processes of Ray, signals, and the selector."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.has_command = False  # whether the command was started
        self.asked = 0  # the signal by which this process was asked to stop
        self.deadline = time.monotonic() + options.timeout
        self.selector = selectors.DefaultSelector()
        self.logs = os.path.join(options.logs, time.strftime("session_%Y%m%d-%H%M%S"))
        self.temp_dir = os.path.join(options.scratch, "t")  # Ray makes it writable by everyone
        self._ray: subprocess.Popen[bytes] | None = None
        self._lock = -1
        self._reasons = -1
        woken, waker = self._wakers = socket.socketpair()
        for end in self._wakers:
            end.setblocking(False)
        self.selector.register(woken, selectors.EVENT_READ, "signal")
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._ask)

    def _ask(self, signum: int, _frame: object) -> None:
        self.asked = self.asked or signum

    def wait(self, seconds: float | None) -> list[Any]:
        """Wait for connections, data, signals and the ends of processes; return the sockets that are ready."""
        ready = [key for key, _events in self.selector.select(seconds)]
        if any(key.data == "signal" for key in ready):
            self._drain()
        return [key.fileobj for key in ready if key.data != "signal"]

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakers[0].recv(LONGEST)

    def is_asked_soon(self) -> bool:
        """Whether this process is asked to stop within a moment, by a runner that knows more about a failure.

        Sockets are left alone: one that is ready would end each wait at once.
        """
        until = time.monotonic() + LAST_WORDS
        while not self.asked and time.monotonic() < until:
            select.select([self._wakers[0]], [], [], max(0.0, until - time.monotonic()))
            self._drain()
        return bool(self.asked)

    def start_ray(self, session: str, *arguments: str) -> None:
        """Start Ray on this node. Does not wait until it has joined the cluster.

        Raises:
            ClusterError: A directory cannot be created.
        """
        try:
            self._lock = make_own(self.options.scratch)
            os.makedirs(os.path.join(self.temp_dir, session))
            os.makedirs(self.logs, exist_ok=True)
            share(self.options.logs, 0o700)  # Ray makes its log directory writable by everyone, again and again
            os.symlink(os.path.abspath(self.logs), os.path.join(self.temp_dir, session, "logs"))
        except OSError as error:
            why = f"cannot create directory {error.filename} on node {self.options.node}: {error.strerror}"
            raise ClusterError(why) from error
        self._reasons, reasons = os.pipe()
        starter = (sys.executable, os.path.abspath(__file__), "start", str(reasons), self.temp_dir, session)
        with open(os.path.join(self.logs, OUTPUT), "ab") as output:
            self._ray = subprocess.Popen(
                [*starter, *self._ray_options(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(reasons,),
                env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
            )
        os.close(reasons)

    def _ray_options(self) -> list[str]:
        options = self.options
        own_address = address_towards(options.address.rpartition(":")[0].strip("[]"))
        return [
            f"--node-name={options.job}-node-{options.node}",
            f"--resources={json.dumps({'NPU': options.npus})}",
            # Any free ports: the defaults are the same for all clusters on a machine.
            *("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"),
            # Otherwise Ray chooses the address that reaches a server on the Internet.
            *((f"--node-ip-address={own_address}",) if own_address else ()),
        ]

    @property
    def address(self) -> str:
        """The address of the cluster, "" until this node has joined it."""
        with contextlib.suppress(OSError), open(os.path.join(self.temp_dir, ADDRESS_FILE)) as file:
            return file.read().strip()
        return ""

    def check(self) -> None:
        """Check that Ray is running.

        Raises:
            ClusterError: Ray has died.
        """
        if not self._ray or self._ray.poll() is None:
            return
        why = os.read(self._reasons, LONGEST).decode()
        if self.address:
            what, why = f"Ray died on node {self.options.node}", why or f"ray start {ending(self._ray.returncode)}"
        else:
            what, why = f"node {self.options.node} cannot start Ray", why or self._last_line()
        raise ClusterError(f"{what}: {why} (logs in {self.logs})")

    def _last_line(self) -> str:
        with open(os.path.join(self.logs, OUTPUT), errors="replace") as output:
            lines = [line.strip() for line in output if line.strip()]
        return lines[-1] if lines else "ray start printed nothing"

    def check_start(self, late: str) -> None:
        """Check that this node may go on waiting for the cluster.

        Raises:
            ClusterError: The job is being stopped, Ray has died, or the time is over (with the text `late`).
        """
        if self.asked:
            raise ClusterError("stopped")
        self.check()
        if time.monotonic() >= self.deadline:
            raise ClusterError(late)

    def close(self) -> None:
        """Kill the processes of Ray, and open the log directory to those who may read its parent."""
        if self._ray and self._ray.poll() is None:
            kill([self._ray.pid, *(pid for _name, pid in below(self._ray.pid))])
            self._ray.wait()
        if self._ray and os.getsid(0) == os.getpid():  # the command has a session of its own
            kill(others_of_session(os.getpid()))
        if self._ray:
            mode = stat.S_IMODE(os.stat(os.path.dirname(self.options.logs)).st_mode)
            for folder, _folders, _files in os.walk(self.options.logs, topdown=False):
                share(folder, mode)


def share(folder: str, mode: int) -> None:
    """Set the permissions of a directory, on file systems that have them."""
    with contextlib.suppress(OSError):
        os.chmod(folder, mode)


def address_towards(host: str) -> str:
    """Return the address from which this machine reaches another one; "" if that is itself, or unknown."""
    with contextlib.suppress(OSError):
        family, kind, protocol, _name, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing
            found = probe.getsockname()[0]
            return "" if found.startswith("127.") or found == "::1" else str(found)
    return ""


def make_own(path: str) -> int:
    """Create the temporary directory of a cluster and return its lock. Removes directories of ended clusters."""
    name = f"ascend-ray-{8 * '[0-9a-f]'}"  # as local.py makes it: ascend-ray-demo may be the user's
    for left in [path, *glob.glob(os.path.join(glob.escape(os.path.dirname(path)), name))]:
        remove_unless_used(left)  # by the previous attempt, or by a job whose runner was killed
    while True:
        os.mkdir(path, 0o700)
        with contextlib.suppress(FileNotFoundError):  # another job has just removed it
            folder = os.open(path, os.O_RDONLY)
            fcntl.flock(folder, fcntl.LOCK_EX)
            if os.path.exists(path):
                return folder
            os.close(folder)


def remove_unless_used(path: str) -> None:
    """Remove the directory of a cluster unless a process holds its lock."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(folder)


def say(text: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Lines:
    """A connection to another node."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.peer = connection.getpeername()[0].rpartition("::ffff:")[2]  # of an IPv4 address in IPv6
        self.is_welcome = False  # whether the address of the cluster was sent to it
        self.is_closed = False  # whether the other end has closed it
        self._rest = b""
        connection.settimeout(FAREWELL)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # some networks drop idle connections
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)

    def send(self, **members: object) -> None:
        """Send a message. Errors are ignored: they mean that the node has gone."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(members).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages that have arrived, None if the connection is closed or carries anything else."""
        try:
            data = self.connection.recv(LONGEST)
            self.is_closed = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
            messages = [json.loads(line) for line in lines]
        except (OSError, ValueError):
            return None
        is_sound = len(self._rest) <= LONGEST and all(isinstance(message, dict) for message in messages)
        return messages if data and is_sound else None


# --- Node 0 -----------------------------------------------------------------------------------------------------------


class Hub:
    """The end of all connections at node 0."""

    def __init__(self, node: Node, session: str) -> None:
        self._node, self.session = node, session
        self._strangers: list[Lines] = []
        self._nodes: dict[int, Lines] = {}
        self._joined: set[int] = set()
        self.left: int | None = None  # the first node that has left after joining
        self._server: socket.socket | None = None

    def open(self) -> None:
        """Listen on MASTER_PORT.

        Raises:
            ClusterError: The port is taken.
        """
        address, port = self._node.options.address.rpartition(":")[::2]
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        try:
            self._server = socket.create_server(
                ("", int(port)), family=family, dualstack_ipv6=family == socket.AF_INET6
            )
        except OSError as error:
            raise ClusterError(
                f"node 0 cannot listen on port {port} of {address}, where the nodes of the Ray cluster meet"
                f" ({os.strerror(error.errno or 0)}): stop the program that uses it, or choose another port with"
                " --master-port"
            ) from error
        self._node.selector.register(self._server, selectors.EVENT_READ)

    @property
    def missing(self) -> list[int]:
        """The nodes that have not joined."""
        return [number for number in range(1, self._node.options.nodes) if number not in self._joined]

    def attend(self, seconds: float | None) -> None:
        """Wait for at most `seconds`, and answer the other nodes."""
        for ready in self._node.wait(seconds):
            if self._server and ready is self._server:
                with contextlib.suppress(OSError):
                    lines = Lines(self._server.accept()[0])
                    self._strangers.append(lines)
                    self._node.selector.register(lines.connection, selectors.EVENT_READ)
                for stranger in self._strangers[:-STRANGERS]:
                    self._drop(stranger)
            for lines in [lines for lines in (*self._strangers, *self._nodes.values()) if lines.connection is ready]:
                messages = lines.receive()
                for message in messages or ():
                    self._hear(lines, message)
                if messages is None:
                    self._drop(lines)
        address = self._node.address
        for lines in self._nodes.values() if address else ():
            if not lines.is_welcome:
                lines.is_welcome = True
                lines.send(address=address, session=self.session)

    def _hear(self, lines: Lines, message: dict[str, Any]) -> None:
        options = self._node.options
        if message.get("joined"):
            self._joined.update(number for number, found in self._nodes.items() if found is lines)
            return
        job, number, nodes = (message.get(name) for name in ("job", "node", "nodes"))
        if (job, nodes) != (options.job, options.nodes):
            why = f"{options.address} is for job {options.job!r} of {options.nodes} nodes, not for {job!r} of {nodes}"
        elif message.get("cluster") != options.cluster:
            why = f"{options.address} is for another job {job!r}: its platform job ID or link secret differs"
        elif not isinstance(number, int) or number not in range(1, options.nodes):
            why = f"a job of {options.nodes} nodes has no node {number}"
        elif number in self._nodes:
            why = (
                f"node {number} has already joined from {self._nodes[number].peer}: check --node-rank, or choose"
                " another --master-port for another job"
            )
        elif any(one is lines for one in self._strangers):
            self._strangers = [one for one in self._strangers if one is not lines]
            self._nodes[number] = lines
            return
        else:
            why = "this connection is another node's"
        lines.send(refused=why)

    def _drop(self, lines: Lines) -> None:
        """Close a connection. Its node counts as missing again, or as gone if its process has exited."""
        self._node.selector.unregister(lines.connection)
        lines.connection.close()
        self._strangers = [one for one in self._strangers if one is not lines]
        self._nodes = {number: one for number, one in self._nodes.items() if one is not lines}
        if lines.is_closed:
            self.left = self.left or next(iter(self._joined - set(self._nodes)), None)
        self._joined &= set(self._nodes)

    def close(self) -> None:
        """Stop listening, once all nodes have joined."""
        if self._server:
            self._node.selector.unregister(self._server)
            self._server.close()
            for stranger in self._strangers:
                self._drop(stranger)

    def dismiss(self, status: int) -> None:
        """Send the status of the command to the other nodes. After a success, wait for them to leave."""
        for lines in self._nodes.values():
            lines.send(status=status)
        until = time.monotonic() + FAREWELL
        while self._nodes and status == 0 and time.monotonic() < until:
            self.attend(until - time.monotonic())


def run_head(node: Node, words: list[str]) -> int:
    """Start the head of the cluster, wait for the other nodes, run the command, and return its exit status."""
    hub = Hub(node, os.path.basename(node.logs))
    complete(node, hub)
    try:
        command = subprocess.Popen(words, env={**os.environ, "RAY_ADDRESS": node.address}, start_new_session=True)
    except OSError as error:
        raise ClusterError(f"cannot run {words[0]!r} on node 0: {error.strerror}") from error
    node.has_command = True
    try:
        attend_command(node, hub, command)
    except ClusterError:  # the command may wait for dead processes forever
        end_command(command, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(LAST_WORDS)
        end_command(command, signal.SIGKILL)
        raise
    hub.dismiss(-node.asked or command.returncode)  # a command that is stopped may exit with 0
    return command.returncode


def complete(node: Node, hub: Hub) -> None:
    """Start the head of the cluster, and wait for the other nodes.

    Raises:
        ClusterError: A node is missing, Ray does not start, or this process is asked to stop.
    """
    options, began = node.options, time.monotonic()
    if options.nodes > 1:
        hub.open()
    own = ("--port=0", f"--temp-dir={node.temp_dir}", "--include-dashboard=false", "--disable-usage-stats")
    node.start_ray(hub.session, "--head", *own)
    while not node.address or hub.missing:
        hub.attend(RETRY if node.address else PAUSE)
        node.check_start(missing_nodes(node, hub.missing))
    hub.close()
    nodes = "1 node" if options.nodes == 1 else f"{options.nodes} nodes"
    say(f"the Ray cluster at {node.address} has {nodes} after {time.monotonic() - began:.1f} s")


def attend_command(node: Node, hub: Hub, command: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the command. A request to stop goes to the command, whose workers live until it has ended.

    Raises:
        ClusterError: Ray has died, or a node has left.
    """
    is_told = False
    while command.poll() is None:
        hub.attend(None)
        if hub.left and not node.is_asked_soon():
            raise ClusterError(f"node {hub.left} has left the Ray cluster")
        if node.asked == signal.SIGTERM and not is_told:  # SIGINT from a terminal reaches every process
            is_told = True
            end_command(command, signal.SIGTERM)
        if not node.asked:
            node.check()


def end_command(command: subprocess.Popen[bytes], signum: int) -> None:
    """Send a signal to the process group of the command."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(command.pid, signum)


def missing_nodes(node: Node, missing: list[int]) -> str:
    """Return the error message for a cluster that is not complete in time."""
    options = node.options
    if not missing:
        return f"Ray did not start on node 0 within {options.timeout:g} s (logs in {node.logs})"
    names = ", ".join(map(str, missing))
    are = f"nodes {names} have" if len(missing) > 1 else f"node {names} has"
    return (
        f"{are} not joined the Ray cluster within {options.timeout:g} s: check that ascend-runner is running there and"
        f" can reach {options.address} (--link-timeout)"
    )


# --- The other nodes --------------------------------------------------------------------------------------------------


def run_worker(node: Node) -> int:
    """Join the cluster, and stay until the command has ended on node 0; return 0, or its exit status."""
    lines = connect(node)
    node.selector.register(lines.connection, selectors.EVENT_READ)
    with contextlib.closing(lines.connection):
        welcome = hear(node, lines, "address")
        check_head(node, welcome["address"])
        node.start_ray(welcome["session"], f"--address={welcome['address']}")
        while not node.address:
            if node.wait(PAUSE):  # node 0 sends nothing now, so it has exited
                raise ClusterError(closed(node))
            node.check_start(f"Ray did not start on node {node.options.node} in time (logs in {node.logs})")
        lines.send(joined=True)
        status = int(hear(node, lines, "status", is_joined=True)["status"])
    if status and not node.is_asked_soon():
        raise ClusterError(f"the command on node 0 {ending(status)}")
    return status


def connect(node: Node) -> Lines:
    """Connect to node 0, which may start later.

    Raises:
        ClusterError: Node 0 cannot be reached in time.
    """
    options = node.options
    host, port = options.address.rpartition(":")[::2]
    while True:
        try:
            lines = Lines(socket.create_connection((host.strip("[]"), int(port)), timeout=FAREWELL))
        except OSError as error:
            why = error.strerror or str(error)
        else:
            lines.send(job=options.job, cluster=options.cluster, node=options.node, nodes=options.nodes)
            return lines
        node.check_start(
            f"node {options.node} could not reach node 0 at {options.address} within {options.timeout:g} s ({why}):"
            " check that ascend-runner is running on node 0, and that the network permits this port (--link-timeout)"
        )
        node.wait(RETRY)


def check_head(node: Node, address: str) -> None:
    """Check that Ray's head, which is running, can be reached. Ray would try it for a long time and not name it.

    Raises:
        ClusterError: It cannot be reached.
    """
    host, port = address.rpartition(":")[::2]
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=FAREWELL).close()
    except OSError as error:
        raise ClusterError(
            f"node {node.options.node} cannot reach Ray's head on node 0 at {address} ({error.strerror or error}): let"
            " the nodes reach all ports of each other, because Ray uses any free ones"
        ) from error


def closed(node: Node) -> str:
    """Return the error message for a node 0 that has exited."""
    return f"node 0 at {node.options.address} closed the connection"


def hear(node: Node, lines: Lines, name: str, *, is_joined: bool = False) -> dict[str, Any]:
    """Wait for a message of node 0 with the member `name`, and return it.

    Raises:
        ClusterError: Node 0 refuses this node, Ray has died, or this process is asked to stop.
    """
    while True:
        for ready in node.wait(None):
            messages = lines.receive()
            if messages is None:
                node.selector.unregister(ready)
                if not is_joined or (lines.is_closed and not node.is_asked_soon()):
                    raise ClusterError(closed(node))
            for message in messages or ():
                if "refused" in message:
                    raise ClusterError(f"node {node.options.node} cannot join the Ray cluster: {message['refused']}")
                if name in message:
                    return message
        if node.asked and (not is_joined or lines.is_closed):
            raise ClusterError("stopped")
        if not node.asked:
            node.check()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
