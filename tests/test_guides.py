"""The documented environment of each mode in the platforms' five guides: their variables and paths, and no option.

The program runs with `env -i` in a copy of this machine's file tree that has the platform's directories and files. The
programs of the user and of engines are fakes that print what they were given.
"""

from __future__ import annotations

import json
import shlex
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.helpers.program import Program, Run
from tests.helpers.surroundings import permitted

REPOSITORY: Final = Path(__file__).parents[1]
# Lays an overlay of / below the directory $0, and then adds other paths as they are.
LAY: Final = """set -e; mount -t tmpfs world "$0"; cd "$0"; mkdir upper work root
mount -t overlay world -o lowerdir=/,upperdir=upper,workdir=work root
"""
KEEP: Final = 'for path in /proc /dev /sys "$@"; do mkdir -p "root$path"; mount --rbind "$path" "root$path"; done\n'
PROGRAMS: Final = ("python", "python3", "mpirun", "torchrun", "deepspeed")
FAKE: Final = """#!/bin/sh
echo "ran $(basename "$0") $*: RANK=$RANK WORLD_SIZE=$WORLD_SIZE LOCAL_RANK=$LOCAL_RANK RANK_ID=$RANK_ID \
RANK_SIZE=$RANK_SIZE DEVICE_ID=$DEVICE_ID JOB_ID=$JOB_ID MASTER=$MASTER_ADDR:$MASTER_PORT HOSTS=$HYDRA_HOST_FILE"
[ -z "$RANK_TABLE_FILE" ] || echo "ran table $RANK_TABLE_FILE"
"""


@attrs.frozen(kw_only=True)
class Guide:
    """A mode: its variables, the files of the platform, the directory, the command, and what each process was given."""

    name: str
    environ: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    cwd: str = "/workspace/algorithm"
    command: str = "python train.py --lr 0.1"
    ran: tuple[str, ...]  # how the line of each process begins
    status: int = 0
    table: str = ""  # the path of the rank table that each of them is given

    @property
    def lines(self) -> list[str]:
        """The beginnings of the lines of all processes."""
        return sorted([*self.ran, *([f"table {self.table}"] * len(self.ran) if self.table else [])])


OCTOPUS: Final = {
    "DATASET": "/home/ma-user/datasets",
    "DATASET_MAP": '{"数据集-0": "/home/ma-user/datasets/dataset-0"}',
    "RESULT": "/home/ma-user/modelarts/result",
    "MA_NUM_HOSTS": "1",
    "VC_TASK_INDEX": "0",
}
NODES: Final = {"MA_NUM_HOSTS": "8", "VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "a-worker-0.a,a-worker-1.a" + ",x" * 6}
MODELARTS: Final = {
    "MA_HOME": "/home/ma-user",
    "MA_MOUNT_PATH": "/home/ma-user/modelarts",
    "MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir",
    "MA_VJ_NAME": "ma-job-trainjob",
    "MA_TASK_NAME": "worker",
    "MA_NUM_HOSTS": "1",
    "MA_CURRENT_INSTANCE_NAME": "jobxxxxxxxx-job-trainjob-0",
    "MA_CURRENT_HOST_IP": "192.168.0.25",
    "VC_TASK_INDEX": "0",
}
WORKER_0: Final = "ma-job-trainjob-worker-0.ma-job-trainjob"
CONDA: Final = {"ANACONDA_DIR": "/home/ma-user/anaconda3", "DEFAULT_CONDA_ENV_NAME": "python-3.7.10"}
CONDA_PYTHON: Final = "/home/ma-user/anaconda3/envs/python-3.7.10/bin/python"
CODE: Final = "/home/ma-user/modelarts/user-job-dir/code/train.py"
OWN_TABLE: Final = "/home/ma-user/modelarts/rank_table/jobstart_hccl.json"
PYTORCH: Final = {
    "MASTER_ADDR": "server1",
    "MASTER_PORT": "2222",
    "WORLD_SIZE": "2",
    "RANK": "1",
    "SLOTS": "2",
    "VK_TASK_INDEX": "0",
}
OPEN_MPI: Final = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "HOSTNAME": "server1", "VK_TASK_INDEX": "0"}
MPICH: Final = {"HYDRA_HOST_FILE": "/etc/mpi/mpich_hostfile", "HYDRA_IFACE": "eth0", "HOSTNAME": "server1"}
SLOTS: Final = {"/etc/mpi/hostfile": "server1 slots=4\nserver2 slots=4\n"}
HYDRA_SLOTS: Final = {"/etc/mpi/mpich_hostfile": "server1:4\nserver2:4\n"}
JOB_SLOTS: Final = {"/job/hostfile": "server1 slots=2\nserver2 slots=2\n"}
PREFIX: Final = (
    "mpirun --allow-run-as-root -np 8 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH"
    " -mca pml ob1 -mca btl ^openib python train.py --lr 0.1: "
)
DEVICES: Final = [
    {"device_id": f"{index}", "device_ip": f"192.1.10.{index + 1}", "rank_id": f"{index}"} for index in (0, 1)
]
TEMPLATE_1: Final = {
    "status": "completed",
    "version": "1.0",
    "server_count": "1",
    "server_list": [{"server_id": "192.168.0.25", "device": DEVICES}],
}
WORKERS: Final = {"VC_WORKER_HOSTS": "server1.job,server2.job", "VK_TASK_INDEX": "1"}
TENSORFLOW: Final = json.dumps(
    {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "1"}, "environment": "cloud"}
)


def _group_list(*devices: int) -> dict[str, str]:
    """Return the file of ModelArts' table, template 2, for one pod with these devices."""
    listed = [{"device_id": str(device), "device_ip": f"192.1.10.{250 + device}"} for device in devices]
    instance = {
        "devices": listed,
        "pod_name": "jobxxxxxxxx-job-trainjob-0",
        "server_id": "192.168.0.25",
    }
    group = {
        "device_count": str(len(devices)),
        "group_name": "job-trainjob",
        "instance_count": "1",
        "instance_list": [instance],
    }
    return {
        "/user/config/jobstart_hccl.json": json.dumps(
            {"group_count": "1", "group_list": [group], "status": "completed"}
        )
    }


def _ranks(size: int, first: int = 0, command: str = "python train.py --lr 0.1") -> tuple[str, ...]:
    """Return what each rank of a node prints first."""
    return tuple(f"{command}: RANK={first + local} WORLD_SIZE={size} LOCAL_RANK={local} " for local in range(2))


GUIDES: Final = (
    # Octopus: algorithm files
    Guide(name="octopus", environ={**OCTOPUS, "MA_NUM_GPUS": "2"}, ran=_ranks(2)),
    Guide(name="octopus-count-empty", environ={**OCTOPUS, "MA_NUM_GPUS": ""}, ran=(_ranks(1)[0],)),
    Guide(name="octopus-nodes", environ={**OCTOPUS, **NODES, "MA_NUM_GPUS": "2"}, ran=_ranks(16, 2)),
    Guide(
        name="octopus-engine",
        environ={**OCTOPUS, "MA_NUM_GPUS": "2"},
        command="python -m torch.distributed.launch --nproc_per_node=2 train.py",
        ran=("python -m torch.distributed.launch --nproc_per_node=2 train.py: ",),
    ),
    # ModelArts: custom images
    Guide(
        name="custom-image",
        environ={**MODELARTS, **CONDA, "RANK_TABLE_FILE": "/user/config", "MA_NUM_GPUS": "1"},
        files=_group_list(4),
        cwd="/home/ma-user",
        command=f"python {CODE}",
        ran=(
            f"python {CODE}: RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 RANK_ID=0 RANK_SIZE=1 DEVICE_ID=0 JOB_ID=modelarts-job",
        ),
        table=OWN_TABLE,
    ),
    Guide(
        name="custom-image-interpreter",
        environ=MODELARTS,
        files=_group_list(4),
        cwd="/home/ma-user",
        command=f"{CONDA_PYTHON} {CODE}",
        ran=(f"python {CODE}: RANK=0 WORLD_SIZE=1 ",),
        table=OWN_TABLE,
    ),
    # MindSpore with a custom image: run_ascend
    Guide(
        name="run-ascend",
        environ={**MODELARTS, "RANK_TABLE_FILE": "/user/config"},
        files=_group_list(0, 1),
        cwd="/home/ma-user",
        command=f"python {CODE}",
        ran=_ranks(2, command=f"python {CODE}"),
        table=OWN_TABLE,
    ),
    Guide(
        name="run-ascend-v1",
        environ={**MODELARTS, "RANK_TABLE_FILE_V_1_0": "/user/config/v1.json"},
        files={"/user/config/v1.json": json.dumps(TEMPLATE_1)},
        cwd="/home/ma-user",
        command=f"python {CODE}",
        ran=_ranks(2, command=f"python {CODE}"),
        table=OWN_TABLE,
    ),
    Guide(
        name="run-ascend-without-variables",
        environ={"MA_VJ_NAME": "ma-job-a"},
        files=_group_list(0, 1),
        cwd="/home/ma-user",
        command=f"python {CODE}",
        ran=_ranks(2, command=f"python {CODE}"),
        table="/tmp/log/modelarts-job-a/rank_table/jobstart_hccl.json",
    ),
    # ModelArts: boot commands of PyTorch
    Guide(
        name="pytorch-boot",
        environ={**MODELARTS, "MA_NUM_GPUS": "2"},
        cwd="/home/ma-user/modelarts/user-job-dir",
        ran=_ranks(2),
    ),
    Guide(
        name="pytorch-boot-init-method",
        environ={**MODELARTS, "MA_NUM_GPUS": "8", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1"},
        cwd="/home/ma-user/modelarts/user-job-dir",
        command="--launcher init-method python train.py --epochs 5",
        ran=(f"python train.py --init_method tcp://{WORKER_0}:29500 --rank 1 --world_size 2 --epochs 5: ",),
    ),
    # The task-training platform
    Guide(name="single", ran=("python train.py --lr 0.1: RANK= WORLD_SIZE= ",)),
    Guide(name="single-volcano", environ={"VK_TASK_INDEX": "0"}, ran=("python train.py --lr 0.1: RANK= ",)),
    Guide(name="shell", command="bash -c 'A=1 python3 train.py'", ran=("python3 train.py: ",)),
    Guide(name="pytorch", environ=PYTORCH, ran=_ranks(4, 2)),
    Guide(
        name="pytorch-torchrun",
        environ=PYTORCH,
        command="bash -c 'torchrun --nnodes ${WORLD_SIZE} --node_rank ${RANK} --nproc_per_node ${SLOTS} train.py'",
        ran=("torchrun --nnodes 2 --node_rank 1 --nproc_per_node 2 train.py: ",),
    ),
    Guide(
        name="deepspeed",
        environ={**PYTORCH, "RANK": "0"},
        files=JOB_SLOTS,
        command="deepspeed train.py --deepspeed",
        ran=("deepspeed train.py --deepspeed: ",),
    ),
    Guide(
        name="deepspeed-elsewhere",
        environ=PYTORCH,
        files=JOB_SLOTS,
        command="deepspeed train.py --deepspeed",
        ran=(),
        status=125,
    ),
    Guide(name="open-mpi", environ=OPEN_MPI, files=SLOTS, ran=(PREFIX,)),
    Guide(name="open-mpi-elsewhere", environ={**OPEN_MPI, "HOSTNAME": "server2"}, files=SLOTS, ran=(), status=125),
    Guide(
        name="open-mpi-own",
        environ=OPEN_MPI,
        files=SLOTS,
        command="mpirun -np 8 -x NCCL_SOCKET_IFNAME=^lo,docker0 python train.py",
        ran=("mpirun -np 8 -x NCCL_SOCKET_IFNAME=^lo,docker0 python train.py: ",),
    ),
    Guide(
        name="mpirun-hosts",
        environ={**WORKERS, "VK_TASK_INDEX": "0"},
        command="mpirun -np 8 python train.py",
        ran=("mpirun -np 8 python train.py: RANK= ",),
    ),
    Guide(name="mpirun-hosts-elsewhere", environ=WORKERS, command="mpirun -np 8 python train.py", ran=(), status=125),
    Guide(name="mpich", environ=MPICH, files=HYDRA_SLOTS, ran=("mpirun -np 8 python train.py --lr 0.1: ",)),
    Guide(name="both", environ={**OPEN_MPI, **MPICH}, files={**SLOTS, **HYDRA_SLOTS}, ran=(PREFIX,)),
    Guide(name="tensorflow", environ={"TF_CONFIG": TENSORFLOW, "VK_TASK_INDEX": "1"}, ran=("python train.py --lr",)),
    Guide(name="tensorflow-hosts", environ=WORKERS, ran=("python train.py --lr 0.1: RANK= ",)),
)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Make a directory for a file tree, and the fakes of programs."""
    (tmp_path / "world").mkdir()
    permitted("unshare", "-m", "sh", "-c", LAY, str(tmp_path / "world"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text(FAKE, "utf-8")
        (programs / name).chmod((programs / name).stat().st_mode | stat.S_IXUSR)
    return tmp_path


def run(guide: Guide, folder: Path) -> Run:
    """Run the program in the world of a guide."""
    programs, conda = folder / "bin", Path(CONDA_PYTHON).parent
    files = {**guide.files, f"{guide.cwd}/train.py": "", CODE: ""}
    lay = [f"mkdir -p {conda}; cp {programs}/python {conda}"]
    for path, content in files.items():
        lay.append(f"mkdir -p {Path(path).parent}; printf %s {shlex.quote(content)} > {path}")
    variables = {"PATH": f"{programs}:/usr/bin:/bin", **guide.environ}
    words = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    words += [sys.executable, "-m", "ascend_runner", *shlex.split(guide.command)]
    inner = "; ".join([*lay, f"cd {guide.cwd}; exec {shlex.join(words)}"])
    script = f"{LAY}{KEEP}exec chroot root sh -ec {shlex.quote(inner)}"
    kept = [str(folder / "bin"), str(REPOSITORY), sys.base_prefix]
    return Run(["unshare", "-m", "sh", "-c", script, str(folder / "world"), *kept], {}, folder)


@pytest.mark.deep(quick=4)
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_documented_environment(guide: Guide, world: Path) -> None:
    """With the variables and paths of a guide, and no option, the program runs what the guide says."""
    started = run(guide, world)
    status = started.finish()
    started.close()
    ran = sorted(line.partition("ran ")[2] for line in started.lines if line.startswith("[") and "ran " in line)

    assert guide.status == status, started.screen
    assert guide.lines == [line[: len(begin)] for line, begin in zip(ran, guide.lines)], started.screen
    assert len(guide.lines) == len(ran), started.screen
    assert bool(guide.status) is ("--log-dir" in started.screen)


# The script of the Octopus guide, and an engine of which one fails once both run.
START: Final = """
import os, subprocess, sys
command = f"{sys.executable} -m torch.distributed.launch --nproc_per_node=2 train.py"
sys.exit(subprocess.Popen(command, shell=True).wait())
"""
ENGINE: Final = """
import os, pathlib, sys, time
pathlib.Path(os.environ["RANK"]).touch()
while not (os.path.exists("0") and os.path.exists("1")):
    time.sleep(0.01)
sys.exit(1) if os.environ["RANK"] == "0" else time.sleep(1000)
"""


@pytest.fixture
def start_script(program: Program) -> dict[str, str]:
    """Write a start script that runs torch.distributed.launch; return the environment with the fake of that."""
    (program.folder / "torch" / "distributed").mkdir(parents=True)
    (program.folder / "torch" / "distributed" / "launch.py").write_text(ENGINE, "utf-8")
    (program.folder / "start.py").write_text(START, "utf-8")
    return {"PYTHONPATH": str(program.folder), "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "2", "VC_TASK_INDEX": "0"}


def test_engine_behind_a_start_script(program: Program, start_script: dict[str, str]) -> None:
    """An engine that every rank starts is named with the ways out, at the latest when the first one fails."""
    run = program.start(sys.executable, "start.py", env=start_script)

    assert 1 == run.finish()
    assert 1 == sum("runs torch.distributed.launch (pid " in line for line in run.lines)
    assert "use --nproc-per-node 1 to run the command once" in run.screen


@pytest.mark.parametrize(
    ("name", "script", "engine"),
    [
        ("start.py", START, "torch.distributed.launch"),
        ("start.py", 'import os\nos.execvp("torchrun", ["torchrun", "train.py"])', "torchrun"),
        ("start.py", '"""Run with subprocess: torchrun train.py"""\nprint("torchrun train.py")', ""),
        ("train.sh", "# torchrun a.py\nexport A=1\npython -m torch.distributed.run train.py", "torchrun"),
        ("train.sh", "python train.py --with torchrun", ""),
    ],
)
def test_engine_that_a_check_finds_in_a_start_script(program: Program, name: str, script: str, engine: str) -> None:
    """--check names an engine that the text of the command's script shows, if several ranks would run it."""
    (program.folder / name).write_text(script, "utf-8")
    words = [sys.executable if name.endswith(".py") else "bash", name]
    checked = program.start("--check", "--nproc-per-node", "2", *words)
    checked.finish()

    assert bool(engine) is (f"{name} runs {engine}" in checked.screen), checked.screen


def test_engine_that_a_check_finds_in_a_program_that_is_a_script(program: Program) -> None:
    """A start script that is executed itself, without the name of a shell, is read as well."""
    script = program.folder / "start.sh"
    script.write_text("#!/bin/bash\ncd .\ntorchrun train.py\n", "utf-8")
    script.chmod(0o755)
    checked = program.start("--check", "--nproc-per-node", "2", "./start.sh")
    checked.finish()

    assert "start.sh runs torchrun, which starts one process per device itself" in checked.screen, checked.screen
