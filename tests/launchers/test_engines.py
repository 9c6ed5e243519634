"""The command that each engine is given, word by word, as the platforms' guides write it."""

from __future__ import annotations

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.launchers.engines import DIRECT, LAUNCHERS, NAMES, hand_over
from ascend_runner.launchers.handover import Handover, HostFile, HostFiles, Request
from ascend_runner.platforms.find import find
from ascend_runner.platforms.node import Node, Said
from tests.platforms import platform_cases

ALONE = Node(master_addr="127.0.0.1")
OCTOPUS = find(platform_cases.load("octopus").variables)  # node 1 of 2
MODELARTS = find(platform_cases.load("modelarts").variables)  # node 1 of 2
ONE_NODE = find(platform_cases.load("modelarts_one_node").variables)
TASK_TRAINING = find(platform_cases.load("task_training").variables)  # node 3 of 4
TASK_MASTER = TASK_TRAINING._replace(node_rank=0, hosts=("s1", "s2", "s3", "s4"))


def _request(line: str, node: Node, nproc: int = 8) -> Request:
    return Request(tuple(line.split()), node, nproc, {}, "/log")


def _given(launcher: str, line: str, node: Node, nproc: int = 8) -> str:
    return " ".join(hand_over(launcher, _request(line, node, nproc)).argv)


def test_names() -> None:
    """All that --launcher takes."""
    assert (
        DIRECT,
        "torchrun",
        "torch.distributed.launch",
        "init-method",
        "mpirun",
        "deepspeed",
        "msrun",
    ) == NAMES


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
            find({}, Said(nnodes=1, master_port=4000)),
            2,
            "torchrun --nproc_per_node=2 --master_port=4000 train.py",
        ),
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
        ("bash train.sh", "it starts with 'bash', not with python and a script"),
        ("python -c pass", "it starts with 'python', not with python and a script"),
    ],
)
def test_torch_leaves_untouched(launcher: str, line: str, reason: str) -> None:
    """A command that calls an engine itself, or is no plain Python command, stays as it is."""
    expected = Handover(tuple(line.split()), f"the command is left as it is: {reason}")

    assert expected == hand_over(launcher, _request(line, OCTOPUS))


@pytest.mark.parametrize("launcher", ["torchrun", "torch.distributed.launch", "deepspeed"])
def test_options_for_python_that_would_be_lost(launcher: str) -> None:
    """An engine starts the script with options of its own: others are refused, not dropped."""
    with pytest.raises(SettingsError, match="the command has options for Python, -O -u, expected none but -u: "):
        hand_over(launcher, _request("python -O -u train.py", ALONE))


# --- scripts that are told where to meet -----------------------------------------------------------------------------

MEETING = "--init_method tcp://ma-job-7c1d-worker-0.ma-job-7c1d:29500"


@pytest.mark.parametrize(
    ("line", "node", "nproc", "given"),
    [
        ("python gpu-train/train.py --epochs 5", ONE_NODE, 1, "python gpu-train/train.py --epochs 5"),
        ("python train.py --epochs 5", ONE_NODE, 8, f"python train.py {MEETING} --epochs 5"),
        ("python train.py --epochs 5", MODELARTS, 8, f"python train.py {MEETING} --rank 1 --world_size 2 --epochs 5"),
        ("python -u -m pkg --x", MODELARTS, 8, f"python -u -m pkg {MEETING} --rank 1 --world_size 2 --x"),
        ("python train.py", ALONE, 8, "python train.py --init_method tcp://127.0.0.1:29500"),
        ("python train.py", ALONE._replace(master_addr="fd00::1"), 8,
         "python train.py --init_method tcp://[fd00::1]:29500"),
        ("bash train.sh", MODELARTS, 8, "bash train.sh"),
    ],
)  # fmt: skip
def test_init_method(line: str, node: Node, nproc: int, given: str) -> None:
    """Rank and world size count nodes, and stand before the user's own arguments."""
    assert given == _given("init-method", line, node, nproc)


# --- mpirun ----------------------------------------------------------------------------------------------------------

HOROVOD = (
    "-bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib"
    " python3 entry.py"
)
OPEN_MPI_HOSTS = b"s1 slots=4\ns2 slots=4\ns3 slots=4\ns4 slots=4\n"
HYDRA_HOSTS = b"s1:4\ns2:4\ns3:4\ns4:4\n"


def test_mpirun() -> None:
    """Four nodes of four cards are 16 processes, and both kinds of list are written where they are looked for."""
    expected = Handover(
        tuple(f"mpirun --allow-run-as-root -np 16 {HOROVOD}".split()),
        "handed over to mpirun",
        {
            "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
            "HYDRA_HOST_FILE": "/etc/mpi/mpich_hostfile",
            "HYDRA_IFACE": "eth0",
        },
        (HostFile("/etc/mpi/hostfile", OPEN_MPI_HOSTS), HostFile("/etc/mpi/mpich_hostfile", HYDRA_HOSTS)),
    )

    assert expected == hand_over("mpirun", _request("python3 entry.py", TASK_MASTER, 4))


def test_mpirun_elsewhere() -> None:
    """The name of the network interface is the task-training platform's alone."""
    handover = hand_over("mpirun", _request("python3 entry.py", OCTOPUS._replace(node_rank=0)))

    assert "HYDRA_IFACE" not in handover.variables
    assert b"octopus-worker-0.octopus:8\noctopus-worker-1.octopus:8\n" == handover.files[1].content


def test_mpirun_of_the_users() -> None:
    """A command that calls mpirun stays as it is, and finds the hosts."""
    handover = hand_over("mpirun", _request("mpirun -np 16 python3 entry.py", TASK_MASTER, 4))

    assert "mpirun -np 16 python3 entry.py" == " ".join(handover.argv)
    assert [OPEN_MPI_HOSTS, HYDRA_HOSTS] == [file.content for file in handover.files]


def test_mpirun_on_one_node() -> None:
    """Nobody else is to be reached, so no list is written."""
    handover = hand_over("mpirun", _request("python3 entry.py", ALONE, 4))

    assert f"mpirun --allow-run-as-root -np 4 {HOROVOD}" == " ".join(handover.argv)
    assert ({}, ()) == (handover.variables, handover.files)


def test_hosts_that_the_platform_lists() -> None:
    """Where a variable names a list already, it stays."""
    environ = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "HYDRA_HOST_FILE": "/x"}
    handover = hand_over("mpirun", _request("python3 entry.py", TASK_MASTER, 4)._replace(environ=environ))

    assert ({}, ()) == (handover.variables, handover.files)


def test_host_files_elsewhere() -> None:
    """The paths are the user's to choose."""
    files = HostFiles(open_mpi="/a", mpich="/b", deepspeed="/c")
    request = _request("python3 entry.py", TASK_MASTER, 4)._replace(host_files=files)

    assert ["/a", "/b"] == [file.path for file in hand_over("mpirun", request).files]
    assert ("deepspeed", "--hostfile=/c", "entry.py") == hand_over("deepspeed", request).argv
    module = _request("python -m deepspeed.launcher.runner --x a.py", TASK_MASTER, 4)._replace(host_files=files)
    assert "python -m deepspeed.launcher.runner --hostfile=/c --x a.py" == " ".join(hand_over("deepspeed", module).argv)


@pytest.mark.parametrize("launcher", ["mpirun", "deepspeed"])
def test_engine_that_reaches_the_others(launcher: str) -> None:
    """On another node than 0 it would be a second one."""
    with pytest.raises(SettingsError) as caught:
        hand_over(launcher, _request("python3 entry.py", TASK_TRAINING))

    assert (
        f"--launcher {launcher} reaches the other nodes by itself, expected ascend-runner on node 0 only: this is"
        " node 3"
    ) == str(caught.value)


@pytest.mark.parametrize("launcher", ["mpirun", "deepspeed"])
def test_engine_that_does_not_know_the_others(launcher: str) -> None:
    """Hosts are not guessed."""
    with pytest.raises(SettingsError) as caught:
        hand_over(launcher, _request("python3 entry.py", TASK_MASTER._replace(hosts=())))

    assert f"--launcher {launcher} needs the names of 4 hosts, and no variable tells them" == str(caught.value)


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
    """Its hosts are in the file that it reads by itself; its own command stays as it is."""
    handover = hand_over("deepspeed", _request(line, TASK_MASTER, 4))

    assert given == " ".join(handover.argv)
    if not line.startswith("bash"):
        assert (HostFile("/job/hostfile", OPEN_MPI_HOSTS),) == handover.files


def test_deepspeed_on_one_node() -> None:
    """Without a list it would take every device it sees, so it is told how many."""
    handover = hand_over("deepspeed", _request("python entry.py", ALONE, 4))

    assert ("deepspeed", "--num_gpus=4", "entry.py") == handover.argv
    assert () == handover.files


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
    """It joins its workers, meets at an address, and takes python as the word for the interpreter."""
    arguments = (
        "--worker_num=16 --local_worker_num=8 --master_addr=10.0.0.1 --master_port=6789 --node_rank=1 --log_dir=/log"
        " --join=True"
    )
    request = _request(line, OCTOPUS)._replace(resolve=lambda name: {"octopus-worker-0.octopus": "10.0.0.1"}[name])

    assert given.format(arguments) == " ".join(hand_over("msrun", request).argv)


def test_msrun_with_a_python_elsewhere() -> None:
    """The python that msrun starts is looked for in PATH, so its folder comes first."""
    request = _request("/p/bin/python train.py", ALONE)._replace(environ={"PATH": "/usr/bin"})

    assert {"PATH": "/p/bin:/usr/bin"} == hand_over("msrun", request).variables
    assert {} == hand_over("msrun", _request("python train.py", ALONE)).variables


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_arguments_are_never_quoted_anew(launcher: str) -> None:
    """Words with spaces, quotes or nothing in them stay the words they are."""
    words = ("a b", "", "'", "$HOME", "--x=1 2")
    request = Request(("python", "train.py", *words), ALONE, 2, {}, "/log")

    assert words == hand_over(launcher, request).argv[-len(words) :]
