"""Two jobs on one machine at the same time: nothing that one of them needs is taken by the other."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ascend_runner.platforms.node import MASTER_PORT
from tests.helpers.program import Program, Run
from tests.helpers.surroundings import CLEAN, bound_to_free_port, permitted
from tests.helpers.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[1]

# Rank 0 serves at MASTER_PORT, without SO_REUSEADDR; rank 1 meets it there. Both end when the file exists.
MEETS = """
import os, pathlib, socket, sys, time
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.socket() as server:
        server.bind(place)
        server.listen()
        print("met", place[1], server.accept()[0].recv(10), flush=True)
else:
    while True:
        try:
            socket.create_connection(place).sendall(sys.argv[1].encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
while not pathlib.Path("both").exists():
    time.sleep(0.01)
"""


def test_user_who_cannot_write_here() -> None:
    """Where a user cannot write, such as in another user's directory, the logs are below a directory of the user's."""
    drop = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups") if os.geteuid() == 0 else ()
    under = permitted(*drop, sys.executable, "-c", "")[:-2]
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's, which are its user's alone
        os.chmod(folder, 0o1777)  # noqa: S103  as /tmp is
        command = [*under, "-m", "ascend_runner", "--nproc-per-node", "1", "true"]
        env = {**CLEAN, "TMPDIR": folder, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
        (newest,) = Path(folder).glob("ascend-runner-*/logs/latest")

        assert (0, 1) == (ended.returncode, len([*newest.glob("true-proc-rank-*.txt")])), ended.stderr


@pytest.fixture
def _default_port() -> Iterator[None]:
    """Let one test at a time listen on the default port, of all that run on this machine."""

    def is_locked() -> bool:
        with suppress(OSError):
            lock.bind("\0ascend-runner-tests-default-port")
            return True
        return False

    with socket.socket(socket.AF_UNIX) as lock:
        wait_until(is_locked)
        yield


@pytest.fixture
def stranger(_default_port: None) -> Iterator[None]:
    """Let a program listen on the default port; if one does already, that serves as well."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            server.bind(("", MASTER_PORT))
            server.listen()
        yield


@pytest.mark.usefixtures("_default_port")
def test_both_run(program: Program) -> None:
    """Two jobs of the same command, directory and user meet at ports of their own and write logs of their own."""
    runs = [program.start_plain("--nproc-per-node", "2", program.python, "-c", MEETS, name) for name in ("one", "two")]
    for run, name in zip(runs, ("one", "two")):
        run.wait_for(f"b'{name}'")
    (program.folder / "both").touch()

    assert [0, 0] == [run.finish() for run in runs]
    ports = {line.split()[3] for run in runs for line in run.lines if "met" in line}
    folders = [folder for folder in (program.folder / "logs").iterdir() if not folder.is_symlink()]
    assert (2, 2) == (len(ports), len(folders))
    assert (program.folder / "logs" / "latest").resolve() in folders
    assert [2, 2] == [len([*folder.glob("python-proc-rank-*.txt")]) for folder in folders]


@pytest.mark.deep
@pytest.mark.usefixtures("_default_port")
def test_ports_of_jobs_that_start_together(program: Program) -> None:
    """However many jobs start at the same time, each has a port of its own, and rank 0 can bind it."""
    binds = "import os, socket; socket.socket().bind(('', int(os.environ['MASTER_PORT']))); print('bound')"
    waits = 'echo port $MASTER_PORT; until [ -e both ]; do sleep 0.05; done; exec "$0" -c "$1"'
    runs = [program.start_plain("--nproc-per-node", "1", "sh", "-c", waits, program.python, binds) for _one in range(6)]
    for run in runs:
        run.wait_for("] port ")
    (program.folder / "both").touch()

    assert [0] * 6 == [run.finish() for run in runs]
    assert 6 == len({line.split()[-1] for run in runs for line in run.lines if "] port " in line})


@pytest.mark.deep
def test_earlier_runs_in_logs(program: Program) -> None:
    """Of the directories of earlier runs of a job the newest are kept, but never that of a run that has not ended."""
    waits = "echo runs; while [ ! -e both ]; do sleep 0.1; done"
    running = program.start_plain("--nproc-per-node", "1", "sh", "-c", waits)
    running.wait_for("] runs")
    for _number in range(4):
        assert 0 == program.start_plain("--nproc-per-node", "1", "--log-runs", "1", "sh", "-c", "true").finish()
    folders = [folder for folder in (program.folder / "logs").iterdir() if not folder.is_symlink()]
    (program.folder / "both").touch()

    assert 0 == running.finish()
    assert 3 == len(folders)
    assert all((folder / "sh-report.json").exists() for folder in folders)


@pytest.mark.usefixtures("stranger")
def test_busy_port_of_a_stranger(program: Program) -> None:
    """Where another program listens on the default port, a single node gets another one."""
    run = program.start_plain("--nproc-per-node", "1", "sh", "-c", "echo port $MASTER_PORT")

    assert 0 == run.finish()
    (line,) = (line for line in run.lines if "[rank 0] port " in line)
    assert int(line.split()[-1]) > MASTER_PORT


@pytest.mark.deep(quick=1)
@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(
    ("options", "env"),
    [(("--master-port", str(MASTER_PORT)), {}), ((), {"MASTER_PORT": str(MASTER_PORT)})],
    ids=["flag", "variable"],
)
def test_port_that_is_named(program: Program, options: tuple[str, ...], env: dict[str, str]) -> None:
    """A port that the user or the platform names is taken as it is, free or not."""
    run = program.start_plain("--nproc-per-node", "1", *options, "sh", "-c", "echo port $MASTER_PORT", env=env)

    assert 0 == run.finish()
    assert f"[rank 0] port {MASTER_PORT}\n" in run.lines


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("message", ["", "cannot listen on [::]:{port}: Address already in use"])
def test_process_that_has_the_port(message: str, program: Program) -> None:
    """The screen names the process that listens on the port, whether the error names the port or means MASTER_PORT."""
    with bound_to_free_port() as server:
        server.listen()
        port = server.getsockname()[1]
        fails = f"raise SystemExit({message.format(port=port)!r})"
        binds = f"import socket; socket.socket().bind(('127.0.0.1', {port}))"
        options = ("--nproc-per-node", "1", "--master-port", str(MASTER_PORT if message else port))
        run = program.start_plain(*options, program.python, "-c", fails if message else binds)

        assert 1 == run.finish()
    assert f"process {os.getpid()} (" in run.screen
    assert f") on port {port}\n" in run.screen


# --- The rank table ---------------------------------------------------------------------------------------------------

# Looks at its table, and once more when it is let go.
LOOKS = """
look() { echo "looked $RANK_TABLE_FILE $(grep -o '"server_id": *"[^"]*"' "$RANK_TABLE_FILE")"; }
look; until [ -e "$0" ]; do sleep 0.02; done; look
"""
PREPARES = f"""
import os, sys, ascend_runner
ascend_runner.prepare(sys.argv[1])
os.execvp("sh", ["sh", "-c", {LOOKS!r}, sys.argv[2]])
"""


# The options and variables of a program with this name, by what it shares with others: MA_MOUNT_PATH, --log-dir, or the
# log directory that the platform gives to a job.
SHARES: dict[str, tuple[str, dict[str, str]]] = {
    "mount": ("--log-dir={name}-log --job-name={name}", {"MA_MOUNT_PATH": "{folder}/mount"}),
    "logs": ("--log-dir=log --job-name={name}", {}),
    "job": ("", {"BATCH_TASK_LOG_PATH": "{folder}/log", "MA_VJ_NAME": "job"}),
}


class Shared:
    """A directory that several programs share, each with a rank table of its own."""

    def __init__(self, program: Program, kind: str = "mount") -> None:
        self.program = program
        self._options, self._env = SHARES[kind]
        (program.folder / "log").mkdir()
        self._begun: dict[str, Run] = {}

    def place(self, below: str) -> str:
        """Return the path of a rank table in a directory."""
        return f"{self.program.folder}/{below}/jobstart_hccl.json"

    def begin(self, kind: str, name: str) -> Run:
        """Start a job, or a script that calls `prepare()`, and wait until it has looked at its table."""
        device = {"device_id": "0", "device_ip": "10.0.0.1", "rank_id": "0"}
        server = {"server_id": name, "device": [device]}
        document = {"status": "completed", "version": "1.0", "server_count": "1", "server_list": [server]}
        table = self.program.folder / f"{name}.json"
        table.write_text(json.dumps(document))
        env = {variable: value.format(folder=self.program.folder) for variable, value in self._env.items()}
        if kind == "script":
            run = self.program.run([self.program.python, "-c", PREPARES, str(table), name], env)
        else:
            options = ("--rank-table", str(table), "--workdir", "inherit", *self._options.format(name=name).split())
            run = self.program.start_plain(*options, "sh", "-c", LOOKS, name, env=env)
        run.wait_for("looked ")
        self._begun[name] = run
        return run

    def end(self, name: str) -> str:
        """Let a program go on to its end; return the path of the table at which it has looked twice."""
        run = self._begun[name]
        (self.program.folder / name).touch()
        assert 0 == run.finish()
        (seen,) = {line.partition("looked ")[2] for line in run.lines if "looked " in line}
        path, server_id = seen.split(maxsplit=1)
        assert name in server_id
        return path


@pytest.mark.deep
@pytest.mark.parametrize(
    ("first", "second"), [("job", "job"), ("job", "script"), ("script", "job"), ("script", "script")]
)
def test_tables_of_programs_that_share_a_mount(first: str, second: str, program: Program) -> None:
    """The first has the documented path until it ends; nobody sees a table change, whatever starts and ends beside."""
    mount = Shared(program)
    mount.begin(first, "a")
    mount.begin(second, "b")
    mount.begin("job", "c")
    of_a = mount.end("a")
    mount.begin(second, "d")
    of_b, of_c = mount.end("b"), mount.end("c")
    documented = mount.place("mount/rank_table")

    assert (documented, documented) == (of_a, mount.end("d"))
    assert 3 == len({documented, of_b, of_c})


def test_tables_of_jobs_that_share_a_log_directory(program: Program) -> None:
    """Each has its table below its own name, and what starts beside it changes nothing."""
    logs = Shared(program, "logs")
    for name in ("a", "b"):
        logs.begin("job", name)

    assert [logs.place(f"log/{name}/rank_table") for name in ("a", "b")] == [logs.end(name) for name in ("a", "b")]


@pytest.mark.deep
@pytest.mark.parametrize(("first", "second"), [("job", "script"), ("script", "job"), ("script", "script")])
def test_tables_of_programs_of_one_job(first: str, second: str, program: Program) -> None:
    """In the log directory that the platform gives to the job, the first has its table until it ends, then another."""
    job = Shared(program, "job")
    job.begin(first, "a")
    job.begin(second, "b")
    of_a = job.end("a")
    job.begin("script", "c")

    assert [job.place(f"log/job/{name}") for name in ("rank_table", "rank_table-2", "rank_table")] == [
        of_a,
        job.end("b"),
        job.end("c"),
    ]


# Looks at its table in each attempt until it is let go; the first attempt fails.
LOOKS_AGAIN = """
look() { echo "looked $RANK_TABLE_FILE $(grep -o '"server_id": *"[^"]*"' "$RANK_TABLE_FILE")"; }
look; until [ -e "$0-$ASCEND_RUNNER_ATTEMPT" ]; do sleep 0.02; done; look; exit $((7 - 7 * ASCEND_RUNNER_ATTEMPT))
"""


@pytest.mark.deep
def test_table_that_changes_between_attempts(program: Program) -> None:
    """A restarted job with another table leaves the one that it has shared with a job that still runs."""
    mount = Shared(program)
    mount.begin("job", "a")
    table = ("--rank-table", "a.json", "--max-restarts", "1", "--restart-delay", "0", "--job-name", "other")
    env = {"MA_MOUNT_PATH": f"{program.folder}/mount"}
    run = program.start_plain(*table, "--workdir", "inherit", "sh", "-c", LOOKS_AGAIN, "other", env=env)
    run.wait_for("looked ")
    (program.folder / "a.json").write_text((program.folder / "a.json").read_text().replace('"a"', '"other"'))
    (program.folder / "other-0").touch()
    run.wait_for("looked ", times=3)
    of_a = mount.end("a")
    (program.folder / "other-1").touch()

    assert 0 == run.finish()
    seen = [line.partition("looked ")[2].split(maxsplit=1) for line in run.lines if "looked " in line]
    assert [of_a, of_a] == [path for path, _server_id in seen[:2]]
    assert of_a not in {path for path, _server_id in seen[2:]}
    assert ["a", "a", "other", "other"] == [server_id.split('"')[3] for _path, server_id in seen]


def test_table_of_a_killed_job(program: Program) -> None:
    """The place of a runner that was killed is free."""
    mount = Shared(program)
    killed = mount.begin("job", "a")
    os.kill(killed.runner_pid, signal.SIGKILL)
    killed.finish()
    mount.begin("job", "b")

    assert mount.place("mount/rank_table") == mount.end("b")
