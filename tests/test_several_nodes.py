"""Jobs of several nodes, which their platform restarts: what it learns from the runners' exit statuses, and when."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from ascend_runner.supervision.job_machine import JobState
from ascend_runner.tools.job import node_reports
from tests.helpers.program import Program, Run
from tests.helpers.replay import replay
from tests.helpers.waiting import wait_until

IMPORT = (sys.executable, "-c", "import a_module_that_nobody_has")


# --- The exit verdict -------------------------------------------------------------------------------------------------


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    ("command", "status", "verdict"),
    [
        (("sh", "-c", "exit 7"), 7, 75),
        (("sh", "-c", "kill -SEGV $$"), 139, 75),
        (("true",), 0, None),
        (IMPORT, 1, 93),
        (("sh", "-c", "exit 127"), 127, None),
        ((sys.executable, "-c", "raise ValueError"), 1, 75),
    ],
)
def test_exit_verdict(program: Program, command: tuple[str, ...], status: int, verdict: int | None) -> None:
    """The runner's status says whether a retry may help; the screen and the report have that of the rank as well."""
    run = program.start("--nproc-per-node", "1", "--exit-verdict", *command)

    assert (status if verdict is None else verdict) == run.finish()
    assert (status, verdict) == (program.report()["status"], program.report()["exit_verdict"])
    may = "will not" if verdict == 93 else "may"
    last = f"  exit   {verdict} instead of {status}: a retry {may} help (--exit-verdict)\n"
    assert (verdict is not None) == (last in run.lines) == ("--exit-verdict" in run.screen)


def test_verdict_is_off_unless_asked_for(program: Program) -> None:
    """Without the option the exit status is the rank's."""
    run = program.start("--nproc-per-node", "1", *IMPORT)

    assert 1 == run.finish()
    assert program.report()["exit_verdict"] is None
    assert "--exit-verdict" not in run.screen


def test_stopped_job_gives_no_verdict(program: Program) -> None:
    """A stop signal is what the status says, whether ranks run or have failed just before."""
    run = program.act(1, "say=ready", "sleep", options=("--exit-verdict",))
    run.wait_for("ready")
    run.popen.terminate()

    assert 143 == run.finish()
    assert program.report()["exit_verdict"] is None


def test_verdict_for_the_caller_of_a_library(program: Program) -> None:
    """`launch()` returns the rank's status and the verdict."""
    code = (
        "import ascend_runner, json\n"
        "outcome = ascend_runner.launch(['sh', '-c', 'exit 7'], nproc_per_node=1, exit_verdict=True)\n"
        "print(json.dumps([outcome.status, outcome.exit_verdict, outcome.exit_status]))"
    )
    run = program.run([sys.executable, "-c", code], {"ASCEND_RUNNER_LOG_DIR": str(program.log_dir)})

    assert 0 == run.finish(), run.screen
    assert [7, 75, 75] == json.loads(run.lines[-1])


# --- The node with the cause -----------------------------------------------------------------------------------------


GLOO = """Traceback (most recent call last):
  File "train.py", line 7, in step
    dist.all_reduce(loss)
RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.99.0.2]:5012"""


def test_node_that_only_lost_a_peer_names_the_other(program: Program) -> None:
    """The node whose address the ranks' errors name is the cause, on the screen, in the report and for all nodes."""
    pods = [
        {
            "pod_name": f"worker-{node}",
            "server_id": f"10.99.0.{node + 1}",
            "devices": [{"device_id": str(one), "device_ip": f"192.0.{node}.{one + 1}"} for one in range(4)],
        }
        for node in range(2)
    ]
    group = {"group_name": "g", "device_count": "8", "instance_count": "2", "instance_list": pods}
    table = {"status": "completed", "group_count": "1", "group_list": [group]}
    (program.folder / "table.json").write_text(json.dumps(table))
    script = f"echo '{GLOO}' >&2; sleep 0$RANK_ID; exit 1"
    options = ("--rank-table", "table.json", "--pod-name", "worker-0", "--html", "failure", "--link", "off")
    run = program.start(*options, "sh", "-c", script)

    assert 1 == run.finish()
    where = "all failed ranks of this node lost a peer; look at node 1 (pod worker-1, 10.99.0.2), ranks 4-7"
    report = json.loads((program.log_dir / "job-report-node-0.json").read_bytes())
    assert (where, [4, 5, 6, 7]) == (report["cause"]["sentence"], report["cause"]["candidates"])
    assert 1 == run.screen.count(f"ERROR {where}\n")
    assert not any(words in run.screen for words in ("may be", "cause unclear"))
    assert where in (program.log_dir / "job-report-node-0.html").read_text()
    found = node_reports.read(str(program.log_dir))
    assert [(0, 0, where), (1, 1, "")] == [(node.number, node.named_by, node.sentence) for node in found.nodes]
    assert [1] == [node.number for node in found.candidates]


# --- Lingering --------------------------------------------------------------------------------------------------------

NODES = 4
LOST = "EI0006: [PID: 7] Getting socket times out."
# The nodes fail once all of them run: the faulty one first.
FAIL = f"""
touch up-$NODE
while ! [ -e up-0 ] || ! [ -e up-1 ] || ! [ -e up-2 ] || ! [ -e up-3 ]; do sleep 0.05; done
if [ $NODE = $FAULTY ]; then echo 'ValueError: loss is nan'; touch failed; exit 3; fi
while ! [ -e failed ]; do sleep 0.05; done
echo '{LOST}'; exit 4
"""


class Platform:
    """MindCluster with a job of four nodes: four runners on this machine, each with a log directory of its own."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.pods: list[Run] = []

    def start(self, script: str, *options: str, faulty: int = 0) -> None:
        """Start the pods; the shell script knows the number of its node and that of the faulty one."""
        job = {"MINDX_TASK_ID": "job", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": str(NODES), "MASTER_ADDR": "10.0.0.1"}
        job |= {"MA_VJ_NAME": ""}  # not ModelArts
        for node in range(NODES):
            env = {**job, "RANK": str(node), "NODE": str(node), "FAULTY": str(faulty)}
            own = ("--log-dir", str(self._program.folder / f"log-{node}"), *options)
            self.pods.append(self._program.start(*own, "sh", "-c", script, env=env))

    def states(self, node: int) -> list[str]:
        """Return the states that the events of a node report."""
        path = self._program.folder / f"log-{node}" / f"job-events-node-{node}.jsonl"
        return [json.loads(line)["data"]["state"] for line in path.read_bytes().splitlines()] if path.exists() else []

    def has_lingered(self) -> list[bool]:
        """Return for each node whether it has waited before it has failed."""
        return ["holding" in self.states(node) for node in range(NODES)]

    def failed(self) -> list[int]:
        """Return the nodes whose pods have failed."""
        return [node for node, pod in enumerate(self.pods) if pod.popen.poll()]

    def delete(self) -> None:
        """Delete all pods, as the operator does before it reschedules them."""
        for pod in self.pods:
            pod.send(signal.SIGTERM)


@pytest.fixture
def platform(program: Program) -> Platform:
    """Return a platform without a job."""
    return Platform(program)


@pytest.mark.deep
@pytest.mark.parametrize(("faulty", "verdict"), [(0, ()), (2, ("--exit-verdict",))])
def test_node_with_the_cause_fails_first(platform: Platform, faulty: int, verdict: tuple[str, ...]) -> None:
    """Of four nodes only the faulty one fails; the others, which have lost it, stay until the platform deletes them."""
    platform.start(FAIL, "--linger", "1h", *verdict, faulty=faulty)
    victims = [node for node in range(NODES) if node != faulty]
    wait_until(lambda: all(platform.states(node)[-1:] == ["holding"] for node in victims))
    first = platform.pods[faulty].finish()

    assert [faulty] == platform.failed()
    platform.delete()
    others = {platform.pods[node].finish() for node in victims}
    assert ((75, {75}) if verdict else (3, {4})) == (first, others)
    assert [node in victims for node in range(NODES)] == platform.has_lingered()
    assert {"failed"} == {platform.states(node)[-1] for node in range(NODES)}


@pytest.mark.deep
def test_error_of_all_nodes_ends_them_at_once(platform: Platform) -> None:
    """A script that can start nowhere fails on all nodes without a wait, which the operator takes for hopeless."""
    platform.start(f"exec {sys.executable} -c 'import a_module_that_nobody_has'", "--linger", "1h", "--exit-verdict")

    assert [93] * NODES == [pod.finish() for pod in platform.pods]
    assert [False] * NODES == platform.has_lingered()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("script", "options", "status"),
    [
        ("echo 'EI0009: [PID: 7] The link is down.'; exit 1", (), 1),  # this rank or a peer may be at fault
        (f"echo '{LOST}'; exit 1", ("--linger", "0"), 1),
        ("exec sleep 1000", ("--hang-timeout", "0.5"), 124),
        ("kill -SEGV $$", (), 139),
        ("exit 0", (), 0),
    ],
)
def test_other_ends_are_not_delayed(platform: Platform, script: str, options: tuple[str, ...], status: int) -> None:
    """Only a node that has certainly lost another one stays, and not if the option forbids it."""
    platform.start(script, "--linger", "1h", "--link", "off", *options)

    assert [status] * NODES == [pod.finish() for pod in platform.pods]
    assert [False] * NODES == platform.has_lingered()


SECOND_OF_TWO = (
    "--nproc-per-node",
    "1",
    "--nnodes",
    "2",
    "--node-rank",
    "1",
    "--link",
    "off",
    "--master-addr",
    "10.0.0.1",
)


def test_linger_ends(program: Program) -> None:
    """After the time the runner exits with the status of the failure; the screen says how long it stays, and why."""
    run = program.start(*SECOND_OF_TWO, "--linger", "0.1", "--exit-verdict", "sh", "-c", f"echo '{LOST}'; exit 4")

    assert 75 == run.finish()
    assert (
        "  waiting 0.1 s so that the node that caused the failure exits first (--linger), or until a stop signal; then"
        " exit status 75\n"
    ) in run.lines


def test_single_node_does_not_linger(program: Program) -> None:
    """Where there is no other node, the cause is here, whatever the ranks report."""
    run = program.start("--nproc-per-node", "1", "--linger", "1h", "sh", "-c", f"echo '{LOST}'; exit 4")

    assert 4 == run.finish()
    assert "waiting" not in run.screen


# --- Fewer nodes ------------------------------------------------------------------------------------------------------


def start(program: Program, servers: int, *options: str) -> Run:
    """Start node 1 of 4 by a rank table of some servers with a device each; it is the last one in the table."""
    own = (*place(program, servers), "--node-rank", "1")
    return program.start(*own, *options, "sh", "-c", 'echo "$RANK of $WORLD_SIZE, $NNODES nodes, $MASTER_ADDR"')


def place(program: Program, servers: int) -> tuple[str, ...]:
    """Write a rank table of some servers with a device each; return the options of the last one, of 4 nodes."""
    addresses = [f"10.0.0.{number}" for number in range(servers)]
    entries = [
        {"server_id": address, "device": [{"device_id": "0", "device_ip": address, "rank_id": str(rank_id)}]}
        for rank_id, address in enumerate(addresses)
    ]
    table = {"status": "completed", "version": "1.0", "server_count": str(servers), "server_list": entries}
    (program.folder / "hccl.json").write_text(json.dumps(table))
    return "--rank-table", "hccl.json", "--server-id", addresses[-1], "--nnodes", "4"


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(("servers", "resized"), [(4, []), (3, [(3, 4)]), (2, [(2, 4)])])
def test_fewer_nodes(program: Program, servers: int, resized: list[tuple[int, int]]) -> None:
    """Ranks and variables follow the table, and an event says by how much the job is smaller."""
    options = () if servers < 4 else ("--node-rank", "3")
    run = start(program, servers, "--min-nodes", "2", *options)

    assert 0 == run.finish(), run.screen
    name = f"node-{1 if servers < 4 else 3}"
    log = (program.log_dir / f"job-proc-rank-{servers - 1}-device-0.txt").read_text()
    assert log.startswith(f"{servers - 1} of {servers}, ")
    assert log.endswith(" 10.0.0.0\n")
    lines = (program.log_dir / f"job-events-{name}.jsonl").read_bytes().splitlines(keepends=True)
    data = [json.loads(line)["data"] for line in lines]
    assert resized == [(one["nodes"], one["nnodes"]) for one in data if one["event"] == "resized"]
    assert (f"the rank table has {servers} of 4 nodes" in run.screen) is bool(resized)
    job = replay(lines)
    assert job
    assert JobState.SUCCEEDED is job.state


def test_table_numbers_the_node(program: Program) -> None:
    """With --min-nodes, the rank of this node is that of the table and need not be given."""
    run = program.start(*place(program, 3), "--min-nodes", "2", "sh", "-c", 'echo "$RANK of $WORLD_SIZE"')

    assert 0 == run.finish(), run.screen
    assert b"2 of 3\n" == (program.log_dir / "job-proc-rank-2-device-0.txt").read_bytes()
    assert (program.log_dir / "job-report-node-2.json").exists()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("servers", "options", "sentence"),
    [
        (3, (), "--min-nodes 3"),
        (1, ("--min-nodes", "2"), "--min-nodes is 2, but the rank table has 1 server"),
        (5, ("--min-nodes", "2"), "--nnodes is 4, but the rank table has 5 servers"),
        (4, ("--min-nodes", "5"), "--min-nodes is 5, but the number of nodes is 4 (--nnodes)"),
    ],
)
def test_wrong_number_of_nodes(program: Program, servers: int, options: tuple[str, ...], sentence: str) -> None:
    """Another number of nodes is refused in one sentence, and nothing is started."""
    run = start(program, servers, *options)

    assert 125 == run.finish()
    assert 1 == len(run.lines), run.screen
    assert sentence in run.screen
    assert [] == [*program.log_dir.glob("*-proc-*")]
