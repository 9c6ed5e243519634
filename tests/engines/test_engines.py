"""The command that each engine is given, word by word, as the platforms' guides write it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import attrs
import pytest

import ascend_runner.engines
from ascend_runner.engines import local, node_0
from ascend_runner.engines.command import engine_in
from ascend_runner.engines.local import Handover, Request
from ascend_runner.engines.registry import ENGINES, NAMES
from ascend_runner.errors import SettingsError
from ascend_runner.platforms.detect import find_node
from ascend_runner.platforms.node import FREE_PORT, Node, Overrides
from tests.helpers.waiting import LIMIT
from tests.platforms import platform_cases

ALONE = Node(master_addr="127.0.0.1")
BUSY = attrs.evolve(ALONE, master_port=29501, sources={"master_port": FREE_PORT})  # where something listens on 29500
OCTOPUS = find_node(platform_cases.load("octopus").variables)  # node 1 of 2
MODELARTS = find_node(platform_cases.load("modelarts").variables)  # node 1 of 2
ONE_NODE = find_node(platform_cases.load("modelarts_one_node").variables)
TASK_TRAINING = find_node(platform_cases.load("task_training").variables)  # node 3 of 4
TASK_MASTER = attrs.evolve(TASK_TRAINING, node_rank=0, hosts=("s1", "s2", "s3", "s4"))


def _request(line: str, node: Node, nproc: int = 8) -> Request:
    return Request(
        argv=tuple(line.split()),
        node=node,
        nproc=nproc,
        environ={},
        log_dir="/log",
        report_of_node_0="/log/report",
        read_text=lambda _path: "",
    )


def _with_files(request: Request, *paths: str) -> Request:
    """Add host files that the platform has written."""
    return attrs.evolve(request, read_text=lambda path: "s1 slots=4" if path in paths else "")


def _given(launcher: str, line: str, node: Node, nproc: int = 8) -> str:
    return " ".join(ENGINES[launcher](_request(line, node, nproc)).argv)


def test_readme_lists_the_engines() -> None:
    """Each value of --launcher has a row in the README's table, in the order of the registry."""
    readme = Path(ascend_runner.engines.__file__).with_name("README.md").read_text("utf-8")
    cells = [row.split("|")[1].strip() for row in readme.splitlines() if row.startswith("|")]

    assert [f"`{name}`" for name in NAMES] == cells[2:]


# --- torch -----------------------------------------------------------------------------------------------------------

NODES = "--nproc_per_node=8 --nnodes=2 --node_rank=1 --master_addr=octopus-worker-0.octopus --master_port=6789"


@pytest.mark.parametrize(
    ("line", "node", "nproc", "given"),
    [
        ("python Main.py --x", ALONE, 1, "python -u Main.py --x"),
        ("python Main.py --x", ALONE, 8, "python -m torch.distributed.launch --nproc_per_node=8 Main.py --x"),
        ("python Main.py --x", OCTOPUS, 8, f"python -u -m torch.distributed.launch {NODES} Main.py --x"),
        ("python -u -m pkg --x", OCTOPUS, 8, f"python -u -m torch.distributed.launch {NODES} -m pkg --x"),
        (
            "python3 entry.py 1",
            TASK_TRAINING,
            4,
            ("python3 -m torch.distributed.launch --nproc_per_node=4 --nnodes=4 --node_rank=3"
            " --master_addr=train-42-master-0 --master_port=2222 entry.py 1"),
        ),
        (
            "python3 entry.py 1",
            TASK_MASTER,
            4,
            ("python3 -m torch.distributed.launch --nproc_per_node=4 --nnodes=4 --node_rank=0"
            " --master_addr=localhost --master_port=2222 entry.py 1"),
        ),
    ],
)  # fmt: skip
def test_torch_distributed_launch(line: str, node: Node, nproc: int, given: str) -> None:
    """The forms of Octopus (one card, one node, many nodes) and of the task-training platform."""
    assert given == _given("torch.distributed.launch", line, node, nproc)


@pytest.mark.parametrize(
    ("line", "node", "nproc", "given"),
    [
        ("python train.py --x", ALONE, 1, "python -u train.py --x"),
        ("python train.py --x", ALONE, 8, "torchrun --nproc_per_node=8 train.py --x"),
        (
            "python torchrun_train.py --by torchrun",
            ALONE,
            8,
            "torchrun --nproc_per_node=8 torchrun_train.py --by torchrun",
        ),
        ("python -u train.py --x", OCTOPUS, 8, f"torchrun {NODES} train.py --x"),
        ("python -m pkg.train", ALONE, 2, "torchrun --nproc_per_node=2 -m pkg.train"),
        ("/p/bin/python train.py", ALONE, 2, "/p/bin/python -m torch.distributed.run --nproc_per_node=2 train.py"),
        (
            "python train.py",
            find_node({}, Overrides(nnodes=1, master_port=4000)),
            2,
            "torchrun --nproc_per_node=2 --master_port=4000 train.py",
        ),
        ("python train.py", BUSY, 2, "torchrun --nproc_per_node=2 --master_port=29501 train.py"),
    ],
)
def test_torchrun(line: str, node: Node, nproc: int, given: str) -> None:
    """The same arguments, the same Python, and a port on one node only where the user gave one."""
    assert given == _given("torchrun", line, node, nproc)


@pytest.mark.parametrize("launcher", ["torchrun", "torch.distributed.launch"])
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("python -m torch.distributed.launch --x a.py", "it calls torch.distributed.launch itself"),
        ("torchrun --x a.py", "it calls torchrun itself"),
        ("python -u -m torch.distributed.run --x a.py", "it calls torchrun itself"),
        ("python3 /env/bin/torchrun --x a.py", "it calls torchrun itself"),
        (
            "python a.py --with torch.distributed.launch",
            "it calls torch.distributed.launch itself",
        ),  # the guide's words
        ("bash train.sh", "it does not run a Python script or module"),
        ("python -c pass", "it does not run a Python script or module"),
    ],
)
def test_torch_leaves_untouched(launcher: str, line: str, reason: str) -> None:
    """A command that calls an engine itself, or is no plain Python command, stays as it is."""
    expected = Handover(argv=tuple(line.split()), note=f"running the command unchanged: {reason}")

    assert expected == ENGINES[launcher](_request(line, OCTOPUS))


@pytest.mark.parametrize("launcher", ["torchrun", "torch.distributed.launch", "deepspeed"])
def test_options_for_python_that_would_be_lost(launcher: str) -> None:
    """An engine starts the script with its own options: others are refused, not dropped."""
    with pytest.raises(
        SettingsError, match=r"starts the script itself, without Python options: remove -O from the command$"
    ):
        ENGINES[launcher](_request("python -O -u train.py", ALONE))


# --- scripts with a rendezvous address -----------------------------------------------------------------------------

MEETING = "--init_method tcp://ma-job-7c1d-worker-0.ma-job-7c1d:29500"


@pytest.mark.parametrize(
    ("line", "node", "nproc", "given"),
    [
        ("python gpu-train/train.py --epochs 5", ONE_NODE, 1, "python gpu-train/train.py --epochs 5"),
        ("python train.py --epochs 5", ONE_NODE, 8, f"python train.py {MEETING} --epochs 5"),
        ("python train.py --epochs 5", MODELARTS, 8, f"python train.py {MEETING} --rank 1 --world_size 2 --epochs 5"),
        ("python -u -m pkg --x", MODELARTS, 8, f"python -u -m pkg {MEETING} --rank 1 --world_size 2 --x"),
        ("python train.py", ALONE, 8, "python train.py --init_method tcp://127.0.0.1:29500"),
        ("python train.py", attrs.evolve(ALONE, master_addr="fd00::1"), 8,
         "python train.py --init_method tcp://[fd00::1]:29500"),
        ("bash train.sh", MODELARTS, 8, "bash train.sh"),
    ],
)  # fmt: skip
def test_init_method(line: str, node: Node, nproc: int, given: str) -> None:
    """Rank and world size count nodes, and stand before the user's own arguments."""
    assert given == _given("init-method", line, node, nproc)


@pytest.mark.parametrize(
    ("options", "node", "expected"),
    [
        (MEETING, ONE_NODE, True),
        (MEETING.replace("29500", "6666"), ONE_NODE, True),
        ("--init-method=tcp://ma-job-7c1d-worker-0.ma-job-7c1d:1", ONE_NODE, True),
        ("--init_method tcp://10.0.0.1:29500", ONE_NODE, False),
        ("--init_method env://", ONE_NODE, False),
        ("--init_method tcp://127.0.0.1:29500", ALONE, False),
        ("--init_method", ONE_NODE, False),
        ("", ONE_NODE, False),
        (f"{MEETING} --rank 1 --world_size 2", MODELARTS, True),
        (f"{MEETING} --rank=1 --world-size=2", MODELARTS, True),
        (f"{MEETING} --rank 1 --world_size 16", MODELARTS, False),
        (MEETING, MODELARTS, False),
    ],
)
def test_script_that_starts_its_processes(options: str, node: Node, *, expected: bool) -> None:
    """A script that is given worker 0's address and numbers of nodes starts the processes of its node itself."""
    assert expected is local.starts_its_processes(f"python train.py {options} --epochs 5".split(), node)
    assert not local.starts_its_processes(f"bash train.sh {options}".split(), node)


# --- mpirun ----------------------------------------------------------------------------------------------------------

HOROVOD = (
    "-bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib"
    " python3 entry.py"
)
OPEN_MPI_HOSTS = b"s1 slots=4\ns2 slots=4\ns3 slots=4\ns4 slots=4\n"
HYDRA_HOSTS = b"s1:4\ns2:4\ns3:4\ns4:4\n"


def test_mpirun() -> None:
    """Four nodes of four cards are 16 processes, and both host files are written."""
    expected = Handover(
        argv=tuple(f"mpirun --allow-run-as-root -np 16 {HOROVOD}".split()),
        note="running the command with mpirun",
        variables={
            "OMPI_MCA_orte_default_hostfile": "/log/hostfile",
            "PRTE_MCA_prte_default_hostfile": "/log/hostfile",
            "HYDRA_HOST_FILE": "/log/mpich_hostfile",
            "HYDRA_IFACE": "eth0",
        },
        files={"/log/hostfile": OPEN_MPI_HOSTS, "/log/mpich_hostfile": HYDRA_HOSTS},
    )

    assert expected == ENGINES["mpirun"](_request("python3 entry.py", TASK_MASTER, 4))


def test_mpirun_elsewhere() -> None:
    """Only the task-training platform gets a network interface."""
    handover = ENGINES["mpirun"](_request("python3 entry.py", attrs.evolve(OCTOPUS, node_rank=0)))

    assert "HYDRA_IFACE" not in handover.variables
    assert b"octopus-worker-0.octopus:8\noctopus-worker-1.octopus:8\n" == handover.files["/log/mpich_hostfile"]


def test_mpirun_of_the_users() -> None:
    """A command that calls mpirun stays as it is, and finds the hosts."""
    handover = ENGINES["mpirun"](_request("mpirun -np 16 python3 entry.py", TASK_MASTER, 4))

    assert "mpirun -np 16 python3 entry.py" == " ".join(handover.argv)
    assert [OPEN_MPI_HOSTS, HYDRA_HOSTS] == [*handover.files.values()]


def test_mpirun_on_one_node() -> None:
    """On one node no host file is written."""
    handover = ENGINES["mpirun"](_request("python3 entry.py", ALONE, 4))

    assert f"mpirun --allow-run-as-root -np 4 {HOROVOD}" == " ".join(handover.argv)
    assert ({}, {}) == (handover.variables, handover.files)


def test_host_files_of_the_platform() -> None:
    """A host file that a variable names, or that stands in its usual place, is left alone."""
    request = _with_files(_request("python3 entry.py", TASK_MASTER, 4), "/etc/mpi/hostfile", "/x")
    named = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "HYDRA_HOST_FILE": "/x"}
    handover = ENGINES["mpirun"](attrs.evolve(request, environ=named))

    assert ({"PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile"}, {}) == (handover.variables, handover.files)
    assert ["/log/mpich_hostfile"] == [*ENGINES["mpirun"](request).files]
    assert {} == ENGINES["deepspeed"](_with_files(request, "/job/hostfile")).files


@pytest.mark.parametrize("fact", ["hosts", "devices_per_node"])
def test_user_who_contradicts_a_host_file(fact: str) -> None:
    """With other hosts or another number of ranks the platform's file is left alone, and the engine gets another."""
    option = {"hosts": "--hosts", "devices_per_node": "--nproc-per-node"}[fact]
    node = attrs.evolve(TASK_MASTER, sources={**TASK_MASTER.sources, fact: option})
    request = _with_files(_request("python3 entry.py", node, 2), "/etc/mpi/hostfile", "/job/hostfile")
    mpirun, deepspeed = ENGINES["mpirun"](request), ENGINES["deepspeed"](request)

    assert "/log/hostfile" == mpirun.variables["OMPI_MCA_orte_default_hostfile"]
    assert OPEN_MPI_HOSTS.replace(b"4\n", b"2\n") == mpirun.files["/log/hostfile"]
    assert ("deepspeed", "--hostfile=/log/hostfile", "entry.py") == deepspeed.argv


def test_slots_of_each_host() -> None:
    """Mpirun starts as many processes as all hosts have slots."""
    node = attrs.evolve(TASK_MASTER, slots=(4, 4, 2, 2))
    handover = ENGINES["mpirun"](_request("python3 entry.py", node, 4))

    assert ("-np", "12") == handover.argv[2:4]
    assert b"s1:4\ns2:4\ns3:2\ns4:2\n" == handover.files["/log/mpich_hostfile"]


def test_documented_interface() -> None:
    """Where the task-training platform has written MPICH's file, Hydra gets the interface that its guide documents."""
    node = attrs.evolve(ALONE, nnodes=2, hosts=("s1", "s2"))
    path = "/etc/mpi/mpich_hostfile"
    request = attrs.evolve(_request("python3 a.py", node), environ={"HYDRA_HOST_FILE": path})

    assert "HYDRA_IFACE" not in ENGINES["mpirun"](request).variables
    assert "eth0" == ENGINES["mpirun"](_with_files(request, path)).variables["HYDRA_IFACE"]
    chosen = attrs.evolve(_with_files(request, path), environ={"HYDRA_HOST_FILE": path, "HYDRA_IFACE": "ib0"})
    assert "HYDRA_IFACE" not in ENGINES["mpirun"](chosen).variables


@pytest.mark.parametrize("launcher", ["mpirun", "deepspeed"])
def test_engine_that_reaches_the_others(launcher: str) -> None:
    """On the nodes that an engine starts from node 0 a process waits for the end of node 0."""
    node = attrs.evolve(TASK_TRAINING, hosts=TASK_MASTER.hosts)
    handover = ENGINES[launcher](_request("python3 entry.py", node))

    assert handover.is_waiting
    assert node_0.wait("/log/report") == handover


class Waiting:
    """A process that waits for a report, and checks it once for each `tick` instead of every few seconds."""

    def __init__(self, report: Path) -> None:
        program, option, _script, *words = node_0.wait(str(report)).argv
        script = node_0.WAIT.replace('while sleep "$2"', "while echo waiting; read tick")
        self._process = subprocess.Popen(
            [program, option, script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def look(self) -> str:
        """Return the next line: "waiting" once it is ready to check again."""
        assert self._process.stdout
        return self._process.stdout.readline()

    def tick(self) -> None:
        """Let it check."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> int:
        """Return its exit status."""
        self._process.communicate(timeout=LIMIT)
        return self._process.returncode


@pytest.mark.parametrize(
    ("verdict", "expected"), [("", 3), (' "exit_verdict": null,\n', 3), (' "exit_verdict": 93,\n', 93)]
)
def test_waiting_ends_as_node_0_does(tmp_path: Path, verdict: str, expected: int) -> None:
    """The process ends with the exit status in the report of node 0, not with that of an earlier run."""
    report = tmp_path / "job-report-node-0.json"
    report.write_text('{\n "job_id": "job",\n "status": 0,\n}', "utf-8")
    process = Waiting(report)

    assert f"waiting for an exit status in {report}\n" == process.look()
    reports = [f'{{\n "job_id": "job",\n "status": {status},\n{verdict}}}' for status in ("null", "3")]
    reports[0] = reports[0].replace(verdict, "")
    for change in ("", *reports):
        assert "waiting\n" == process.look()
        if change:
            report.write_text(change, "utf-8")
        process.tick()

    assert f"node 0 has ended with exit status {expected}\n" == process.look()
    assert expected == process.end()


@pytest.mark.parametrize(
    ("line", "node", "waits"),
    [
        ("mpirun -np 16 python x.py", attrs.evolve(TASK_TRAINING, hosts=TASK_MASTER.hosts), True),
        ("mpirun -H localhost python x.py", attrs.evolve(TASK_TRAINING, hosts=TASK_MASTER.hosts), False),
        ("horovodrun -H localhost:4 python x.py", attrs.evolve(TASK_TRAINING, hosts=TASK_MASTER.hosts), False),
        ("horovodrun -H a:4 python x.py", attrs.evolve(TASK_TRAINING, hosts=TASK_MASTER.hosts), True),
        ("deepspeed --no_ssh x.py", attrs.evolve(TASK_TRAINING, hosts=TASK_MASTER.hosts), False),
        ("mpirun -np 16 python x.py", attrs.evolve(TASK_TRAINING, hosts=()), False),
        ("mpirun -np 16 python x.py", TASK_MASTER, False),
    ],
)
def test_command_that_must_wait(line: str, node: Node, *, waits: bool) -> None:
    """A command that is such an engine does not run on another node of a list of hosts."""
    assert waits == node_0.must_wait(line.split(maxsplit=1)[0], line.split(), node)


@pytest.mark.parametrize(
    ("line", "nproc", "files"),
    [
        ("mpirun -np 16 python x.py", 4, {"/log/hostfile": OPEN_MPI_HOSTS}),
        ("mpiexec -np 16 python x.py", 0, {"/log/hostfile": b"s1\ns2\ns3\ns4\n"}),
        ("mpirun -H localhost python x.py", 4, {}),
        ("deepspeed x.py", 4, {"/log/hostfile": OPEN_MPI_HOSTS}),
        ("deepspeed x.py", 0, {}),
        ("deepspeed -H own x.py", 4, {}),
        ("env A=1 deepspeed x.py --host 0.0.0.0", 4, {"/log/hostfile": OPEN_MPI_HOSTS}),
    ],
)
def test_hosts_of_an_engine_that_is_the_command(line: str, nproc: int, files: dict[str, bytes]) -> None:
    """On node 0 an engine that is the command is given the hosts that only a variable lists."""
    given = node_0.with_hosts(engine_in(line.split()), _request(line, TASK_MASTER, nproc))

    assert files == {path: content for path, content in given.files.items() if path == "/log/hostfile"}
    assert bool(files) is ("/log/hostfile" in " ".join((*given.argv, *given.variables.values())))


LISTED = "-H s1:4,s2:4,s3:4,s4:4"


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("horovodrun -np 16 python x.py -H 3", f"horovodrun {LISTED} -np 16 python x.py -H 3"),
        ("env A=1 horovodrun -np 16 ./x", f"env A=1 horovodrun {LISTED} -np 16 ./x"),
        ("python -m horovod.runner.launch -np 16 ./x", f"python -m horovod.runner.launch {LISTED} -np 16 ./x"),
        ("horovodrun -np 16 -H a:16 python x.py", ""),
        ("horovodrun -Ha:16 -np 16 python x.py", ""),
        ("horovodrun -np 16 --hosts=a:16 python x.py", ""),
        ("horovodrun -np 16 -hostfile h python x.py", ""),
        ("horovodrun -np 16 --hostfile h python x.py", ""),
        ("horovodrun -np 16 --host-discovery-script ./h python x.py", ""),
        ("horovodrun -np 4 -H localhost:4 python x.py", ""),
    ],
)
@pytest.mark.parametrize("source", ["VC_WORKER_HOSTS", "/etc/mpi/hostfile"])
def test_hosts_of_horovodrun(line: str, given: str, source: str) -> None:
    """It reads no file of a platform, so that it is given the hosts as an option, unless its command names hosts."""
    node = attrs.evolve(TASK_MASTER, sources={**TASK_MASTER.sources, "hosts": source})
    handover = node_0.with_hosts("horovodrun", _request(line, node, 4))

    assert given or line == " ".join(handover.argv)
    assert (f"horovodrun gets the hosts of {source}" if given else "", "") == (handover.note, handover.warning)


@pytest.mark.parametrize("engine", ["horovodrun", "deepspeed"])
@pytest.mark.parametrize(
    ("before", "options", "nproc", "warning"),
    [
        ((), "", 0, "no variable gives the number of devices of each: use --hosts HOST:N,HOST:N"),
        (("bash", "-c"), "", 4, "a shell starts it: run it without the shell"),
        (("bash", "-c"), "-H own:16", 4, ""),
    ],
)
def test_hosts_that_an_engine_cannot_be_given(
    engine: str, before: tuple[str, ...], options: str, nproc: int, warning: str
) -> None:
    """A warning says so, because the engine would start all processes on node 0."""
    line = f"{engine} {options} x.py"
    argv = (*before, line) if before else tuple(line.split())
    handover = node_0.with_hosts(engine, attrs.evolve(_request("", TASK_MASTER, nproc), argv=argv))

    assert argv == handover.argv
    assert (
        f"{engine} does not get the hosts of the platform, because {warning}" if warning else ""
    ) == handover.warning


@pytest.mark.parametrize(
    ("line", "source", "environ", "is_found"),
    [
        ("mpirun ./x", "/etc/mpi/hostfile", {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}, True),
        ("mpirun ./x", "/h", {"HYDRA_HOST_FILE": "/h"}, True),
        ("mpirun ./x", "/etc/mpi/hostfile", {}, False),
        ("deepspeed x.py", "/job/hostfile", {}, True),
        ("deepspeed x.py", "/etc/mpi/hostfile", {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}, False),
    ],
)
def test_host_file_that_an_engine_finds(line: str, source: str, environ: dict[str, str], *, is_found: bool) -> None:
    """An engine is given the platform's host file only if it does not read it anyway."""
    node = attrs.evolve(TASK_MASTER, sources={**TASK_MASTER.sources, "hosts": source})
    request = attrs.evolve(_with_files(_request(line, node, 4), source), environ=environ)

    assert is_found is (node_0.with_hosts(engine_in(line.split()), request) == Handover(argv=request.argv, note=""))


@pytest.mark.parametrize("launcher", ["mpirun", "deepspeed"])
def test_engine_that_does_not_know_the_others(launcher: str) -> None:
    """An engine that needs the hosts is refused without them."""
    with pytest.raises(SettingsError) as caught:
        ENGINES[launcher](_request("python3 entry.py", attrs.evolve(TASK_MASTER, hosts=())))

    assert (
        f"--launcher {launcher} requires the names of all 4 hosts, but neither a variable nor a host file lists them:"
        " set --hosts"
    ) == str(caught.value)


# --- DeepSpeed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "given"),
    [
        (
            "deepspeed entry.py --deepspeed --deepspeed_config ds.json",
            "deepspeed entry.py --deepspeed --deepspeed_config ds.json",
        ),
        ("python entry.py --deepspeed", "deepspeed entry.py --deepspeed"),
        ("python -m pkg --deepspeed", "deepspeed --module pkg --deepspeed"),
        ("/p/python entry.py", "/p/python -m deepspeed.launcher.runner entry.py"),
        ("python -m deepspeed.launcher.runner entry.py", "python -m deepspeed.launcher.runner entry.py"),
        ("python deepspeed_entry.py", "deepspeed deepspeed_entry.py"),
        ("bash run.sh", "bash run.sh"),
    ],
)
def test_deepspeed(line: str, given: str) -> None:
    """DeepSpeed reads the platform's host file; a command that calls it stays as it is."""
    handover = ENGINES["deepspeed"](_with_files(_request(line, TASK_MASTER, 4), "/job/hostfile"))

    assert given == " ".join(handover.argv)
    assert {} == handover.files


def test_deepspeed_without_a_host_file() -> None:
    """Without the platform's host file DeepSpeed gets one."""
    handover = ENGINES["deepspeed"](_request("deepspeed entry.py", TASK_MASTER, 4))

    assert ("deepspeed", "--hostfile=/log/hostfile", "entry.py") == handover.argv
    assert {"/log/hostfile": OPEN_MPI_HOSTS} == handover.files


def test_deepspeed_on_one_node() -> None:
    """On one node the number of devices is given, because DeepSpeed would use all visible ones."""
    handover = ENGINES["deepspeed"](_request("python entry.py", ALONE, 4))

    assert ("deepspeed", "--num_gpus=4", "entry.py") == handover.argv
    assert {} == handover.files
    busy = ENGINES["deepspeed"](_request("python entry.py", BUSY, 4))
    assert ("deepspeed", "--num_gpus=4", "--master_port=29501", "entry.py") == busy.argv


# --- msrun -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("python -u train.py --x", "msrun {} python -u train.py --x"),
        ("python3 train.py", "msrun {} python3 train.py"),
        ("python -m pkg", "msrun {} python -m pkg"),
        ("/p/bin/python3.9 train.py", "/p/bin/python3.9 -m mindspore.parallel.cluster.run {} python3 train.py"),
        ("msrun --join=True train.py", "msrun --join=True train.py"),
        ("python -m mindspore.parallel.cluster.run a.py", "python -m mindspore.parallel.cluster.run a.py"),
        ("python train.py --like msrun", "msrun {} python train.py --like msrun"),
        ("bash run.sh", "bash run.sh"),
    ],
)
def test_msrun(line: str, given: str) -> None:
    """The command of msrun gets --join, an address, and python as the interpreter."""
    arguments = (
        "--worker_num=16 --local_worker_num=8 --master_addr=10.0.0.1 --master_port=6789 --node_rank=1 --log_dir=/log"
        " --join=True"
    )
    request = attrs.evolve(_request(line, OCTOPUS), resolve=lambda name: {"octopus-worker-0.octopus": "10.0.0.1"}[name])

    assert given.format(arguments) == " ".join(ENGINES["msrun"](request).argv)


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("/p/python train.py", "/p/python"),
        ("env A=1 python -c pass", "python"),
        ("sh train.sh", "python3"),
    ],
)
def test_ray(line: str, python: str) -> None:
    """A script runs in the Python of the command, on each node; only node 0 runs the command, and has output."""
    for node in (attrs.evolve(OCTOPUS, node_rank=0), OCTOPUS):
        handover = ENGINES["ray"](attrs.evolve(_request(line, node), job="job", cluster="a1", run="run", timeout=60.0))
        number, own = node.node_rank, f"--scratch={handover.scratch} --logs=/log/node-{node.node_rank}"
        place = "--job=job --cluster=a1 --address=octopus-worker-0.octopus:6789"
        arguments = f"{place} {own} --node={number} --nodes=2 --npus=8"

        assert f"{python} -u {local.RAY_NODE} {arguments} --timeout=60 -- {line}" == " ".join(handover.argv)
        assert (number == 1) == handover.is_silent
    assert "--logs=/log" in ENGINES["ray"](_request(line, ALONE)).argv


def test_rays_directory() -> None:
    """Each run on each node has its own, with a short path: sockets are in it."""
    requests = [
        attrs.evolve(
            _request("python train.py", node), run=run, environ={"TMPDIR": "/a/very/long/path/for/sockets/of/ray"}
        )
        for run in ("first", "second")
        for node in (attrs.evolve(OCTOPUS, node_rank=0), OCTOPUS)
    ]
    found = {ENGINES["ray"](request).scratch for request in requests}

    assert 4 == len(found)
    assert all(path.startswith("/tmp/ascend-ray-") for path in found)
    for given, base in (("/t", "/t"), ("t", "/tmp"), ("/\u4e34\u65f6", "/tmp")):
        request = attrs.evolve(requests[0], environ={"TMPDIR": given})

        assert ENGINES["ray"](request).scratch.startswith(f"{base}/ascend-ray-")


def test_command_that_calls_ray() -> None:
    """It is run as it is."""
    assert "ray symmetric-run -- python train.py" == _given("ray", "ray symmetric-run -- python train.py", ALONE)
    assert "ray" == engine_in(("ray", "job", "submit"))


@pytest.mark.parametrize(
    ("line", "switch"),
    [
        ("llamafactory-cli train x.yaml", {"FORCE_TORCHRUN": "1"}),
        ("swift sft --model x", {}),
        ("megatron sft --model x", {}),
    ],
)
def test_command_that_starts_torchrun_itself(line: str, switch: dict[str, str]) -> None:
    """It is told its place and the number of processes, where the user has not done that; one process needs neither."""
    rewrite = ENGINES[engine_in(line.split())]
    given = {**switch, "NPROC_PER_NODE": "8", "NNODES": "2", "NODE_RANK": "1"}
    meeting = {"MASTER_ADDR": "octopus-worker-0.octopus", "MASTER_PORT": "6789"}
    request = _request(line, OCTOPUS)

    assert {**given, **meeting} == rewrite(request).variables
    assert meeting == rewrite(attrs.evolve(request, environ={**given, "NNODES": "4"})).variables
    assert {**switch, "NPROC_PER_NODE": "8"} == rewrite(_request(line, ALONE)).variables
    assert {**switch, "NPROC_PER_NODE": "8", "MASTER_PORT": "29501"} == rewrite(_request(line, BUSY)).variables
    assert {} == rewrite(_request(line, ALONE, 1)).variables


def test_msrun_with_a_python_elsewhere() -> None:
    """The directory of the interpreter comes first in PATH, where msrun looks for python."""
    request = attrs.evolve(_request("/p/bin/python train.py", ALONE), environ={"PATH": "/usr/bin"})

    assert {"PATH": "/p/bin:/usr/bin"} == ENGINES["msrun"](request).variables
    assert {} == ENGINES["msrun"](_request("python train.py", ALONE)).variables


@pytest.mark.parametrize("launcher", NAMES[1:])
def test_arguments_are_never_quoted_anew(launcher: str) -> None:
    """Arguments with spaces, quotes or nothing in them stay as they are."""
    words = ("a b", "", "'", "$HOME", "--x=1 2")
    request = attrs.evolve(_request("", ALONE, 2), argv=("python", "train.py", *words))

    assert words == ENGINES[launcher](request).argv[-len(words) :]


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("python t.py --init_method=env://", "python t.py --init_method=env://"),
        ("python t.py --rank 3 --init-method x", "python t.py --rank 3 --init-method x"),
    ],
)
def test_init_method_that_the_command_has(line: str, given: str) -> None:
    """An option of the meeting point that the command has is not added a second time."""
    assert given == _given("init-method", line, ONE_NODE)


def test_rank_that_the_command_has() -> None:
    """Only the options that are missing are added."""
    given = _given("init-method", "python t.py --rank 1 --world-size=2", MODELARTS).split()

    assert 1 == given.count("--rank")
    assert "--world_size" not in given
    assert "--init_method" in given
