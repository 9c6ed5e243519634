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
from types import MappingProxyType
from typing import Final

import attrs
import pytest

from tests.helpers.program import Program, Run
from tests.helpers.surroundings import permitted
from tests.platforms import platform_cases

REPOSITORY: Final = Path(__file__).parents[1]
# Lays an overlay of / below the directory $0, and then adds other paths as they are.
LAY: Final = """set -e; mount -t tmpfs world "$0"; cd "$0"; mkdir upper work root
mount -t overlay world -o lowerdir=/,upperdir=upper,workdir=work root
"""
KEEP: Final = 'for path in /proc /dev /sys "$@"; do mkdir -p "root$path"; mount --rbind "$path" "root$path"; done\n'
PROGRAMS: Final = ("python", "python3", "mpirun", "horovodrun", "torchrun", "deepspeed")
FAKE: Final = r"""#!/bin/sh
echo "ran $(basename "$0") $*: RANK=$RANK WORLD_SIZE=$WORLD_SIZE LOCAL_RANK=$LOCAL_RANK RANK_ID=$RANK_ID \
RANK_SIZE=$RANK_SIZE DEVICE_ID=$DEVICE_ID JOB_ID=$JOB_ID"
[ -z "$RANK_TABLE_FILE" ] || echo "ran table $RANK_TABLE_FILE"
env | sed -n '/^\(ASCEND_\|CM_\|HCCL_\|HYDRA_\|LD_\|MASTER_\|MS_\|OMPI_\|PWD\|TF_CONFIG\)/s/^/has /p'
"""


@attrs.frozen(kw_only=True)
class Guide:
    """A mode: its variables, the files of the platform, the directory, the command, and what each process was given."""

    name: str
    environ: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    late: Mapping[str, str] = {}  # files that the platform replaces once the runner waits for them
    cwd: str = "/workspace/algorithm"
    command: str = "python train.py --lr 0.1"
    ran: tuple[str, ...]  # how the line of each process begins
    has: tuple[str, ...] = ()  # variables of one of them
    logs: tuple[str, ...] = ()  # the names of its log files
    says: tuple[str, ...] = ()  # what the runner says
    status: int = 0
    table: str = ""  # the path of the rank table that each of them is given

    @property
    def lines(self) -> list[str]:
        """The beginnings of the lines of all processes."""
        return sorted([*self.ran, *([f"table {self.table}"] * len(self.ran) if self.table else [])])


NO_FILES: Final[Mapping[str, str]] = MappingProxyType({})
OCTOPUS: Final = {
    "DATASET": "/home/ma-user/datasets",
    "DATASET_MAP": '{"数据集-0": "/home/ma-user/datasets/dataset-0"}',
    "RESULT": "/home/ma-user/modelarts/result",
    "MA_NUM_HOSTS": "1",
    "VC_TASK_INDEX": "0",
}
CCE: Final = {
    **OCTOPUS,
    "DATASET": "/tmp/data/dataset",
    "CACHED_DATASET": "/tmp/data/cached-dataset",
    "RESULT": "/tmp/result",
    "MODEL": "/tmp/data/model",
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
IN_JOB: Final = "/home/ma-user/modelarts/user-job-dir"
LOGS: Final = ("/home/ma-user/modelarts/log", "/tmp/log")  # of ModelArts
CONDA: Final = {"ANACONDA_DIR": "/home/ma-user/anaconda3", "DEFAULT_CONDA_ENV_NAME": "python-3.7.10"}
CONDA_PYTHON: Final = "/home/ma-user/anaconda3/envs/python-3.7.10/bin/python"
CONDA_PROGRAM: Final = "/home/ma-user/anaconda3/bin/conda"
CONDA_RUN: Final = '#!/bin/sh\nshift 3; exec "$(dirname "$0")/../envs/python-3.7.10/bin/$@"\n'
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
WORKERS: Final = {"VC_WORKER_HOSTS": "server1.job,server2.job", "VK_TASK_INDEX": "1"}
BY_NAME: Final = {"VC_WORKER_HOSTS": WORKERS["VC_WORKER_HOSTS"], "HOSTNAME": "server2"}


def _tf_config(role: str, index: object, **tasks: list[str]) -> str:
    return json.dumps({"cluster": tasks, "task": {"type": role, "index": index}, "environment": "cloud"})


TENSORFLOW: Final = _tf_config("worker", "1", worker=["a:1", "b:1"])
TENSORFLOW_PS: Final = _tf_config("ps", "0", ps=["p:1"], worker=["a:1", "b:1"])
MADE: Final = f"TF_CONFIG={_tf_config('worker', 1, worker=['server1.job:2222', 'server2.job:2222'])}"


def _group_list(*pods: tuple[int, ...], **changes: str) -> dict[str, str]:
    """Return the file of ModelArts' table, template 2, for pods with these devices."""
    instances = [
        {
            "devices": [{"device_id": str(one), "device_ip": f"192.1.{10 + number}.{250 + one}"} for one in devices],
            "pod_name": f"jobxxxxxxxx-job-trainjob-{number}",
            "server_id": f"192.168.0.{25 + number}",
        }
        for number, devices in enumerate(pods)
    ]
    group = {
        "device_count": str(sum(map(len, pods))),
        "group_name": "job-trainjob",
        "instance_count": str(len(pods)),
        "instance_list": instances,
    }
    document = {"group_count": "1", "group_list": [group], "status": "completed", **changes}
    return {"/user/config/jobstart_hccl.json": json.dumps(document)}


def _server_list(servers: int, devices: int = 2) -> str:
    """Return a table of template 1 for servers with so many devices each."""
    entries = [
        {
            "server_id": f"192.168.0.{25 + number}",
            "device": [
                {
                    "device_id": f"{one}",
                    "device_ip": f"192.1.{number}.{one + 1}",
                    "rank_id": f"{devices * number + one}",
                }
                for one in range(devices)
            ],
        }
        for number in range(servers)
    ]
    return json.dumps({"status": "completed", "version": "1.0", "server_count": str(servers), "server_list": entries})


def _ranks(size: int, first: int = 0, command: str = "python train.py --lr 0.1", local: int = 2) -> tuple[str, ...]:
    """Return what each rank of a node prints first."""
    return tuple(f"{command}: RANK={first + one} WORLD_SIZE={size} LOCAL_RANK={one} " for one in range(local))


def _of_fixture(name: str) -> Mapping[str, str]:
    """Return the variables of a platform that is no subject of the guides."""
    return platform_cases.load(name).variables


def _elsewhere(name: str, environ: Mapping[str, str], command: str, files: Mapping[str, str] = NO_FILES) -> Guide:
    """Return the mode of a node that node 0 starts: the wait for node 0 needs a log directory that both share."""
    says = ("this node waits for the report of node 0", "set --log-dir to a directory that all nodes share")
    return Guide(name=name, environ=environ, files=files, command=command, ran=(), status=125, says=says)


RUN_ASCEND: Final = Guide(
    name="run-ascend",
    environ={**MODELARTS, "RANK_TABLE_FILE": "/user/config"},
    files=_group_list((0, 1)),
    cwd="/home/ma-user",
    command=f"python {CODE}",
    ran=_ranks(2, command=f"python {CODE}"),
    table=OWN_TABLE,
)
SECOND: Final = {
    "MA_NUM_HOSTS": "2",
    "VC_TASK_INDEX": "1",
    "MA_CURRENT_INSTANCE_NAME": "jobxxxxxxxx-job-trainjob-1",
    "MA_CURRENT_HOST_IP": "192.168.0.26",
}
CUSTOM: Final = Guide(
    name="custom-image",
    environ={**MODELARTS, **CONDA, "RANK_TABLE_FILE": "/user/config", "MA_NUM_GPUS": "1"},
    files=_group_list((4,)),
    cwd="/home/ma-user",
    command=f"python {CODE}",
    ran=(f"python {CODE}: RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 RANK_ID=0 RANK_SIZE=1 DEVICE_ID=0 JOB_ID=modelarts-job",),
    has=("LD_LIBRARY_PATH=/home/ma-user/anaconda3/envs/python-3.7.10/lib",),
    table=OWN_TABLE,
)
INTERPRETED: Final = attrs.evolve(CUSTOM, environ=MODELARTS, has=())
GUIDES: Final = (
    # Octopus: algorithm files, in a pool of ModelArts and in one of CCE
    Guide(
        name="octopus",
        environ={**OCTOPUS, "MA_NUM_GPUS": "2"},
        cwd="/home/ma-user",
        ran=_ranks(2),
        has=("MASTER_ADDR=127.0.0.1", "MASTER_PORT=6789"),
    ),
    Guide(name="octopus-card", environ={**OCTOPUS, "MA_NUM_GPUS": "1"}, cwd="/home/ma-user", ran=(_ranks(1)[0],)),
    Guide(name="octopus-count-empty", environ={**OCTOPUS, "MA_NUM_GPUS": ""}, cwd="/home/ma-user", ran=(_ranks(1)[0],)),
    Guide(name="octopus-cce", environ={**CCE, "MA_NUM_GPUS": "2"}, cwd="/tmp", ran=_ranks(2)),
    Guide(
        name="octopus-nodes",
        environ={**OCTOPUS, **NODES, "MA_NUM_GPUS": "2"},
        cwd="/home/ma-user",
        ran=_ranks(16, 2),
        has=("MASTER_ADDR=a-worker-0.a", "MASTER_PORT=6789"),
    ),
    Guide(
        name="octopus-nodes-check",
        environ={**OCTOPUS, **NODES, "MA_NUM_GPUS": "2"},
        cwd="/home/ma-user",
        command="--check python train.py --lr 0.1",
        ran=(),
        says=("where a connection between nodes was lost, which takes up to 30 s, use --grace 45)",),
        status=1,
    ),
    Guide(
        name="octopus-engine",
        environ={**OCTOPUS, "MA_NUM_GPUS": "2"},
        cwd="/home/ma-user",
        command="python -m torch.distributed.launch --nproc_per_node=2 train.py",
        ran=("python -m torch.distributed.launch --nproc_per_node=2 train.py: ",),
    ),
    # ModelArts: custom images, and the guide's four ways to a Python
    CUSTOM,
    attrs.evolve(INTERPRETED, name="custom-image-interpreter", command=f"{CONDA_PYTHON} {CODE}"),
    attrs.evolve(
        INTERPRETED,
        name="custom-image-path",
        environ={**MODELARTS, "PATH": f"{Path(CONDA_PYTHON).parent}:/usr/bin:/bin"},
    ),
    attrs.evolve(
        INTERPRETED,
        name="custom-image-conda-run",
        files={**CUSTOM.files, CONDA_PROGRAM: CONDA_RUN},
        command=f"{CONDA_PROGRAM} run -n python-3.7.10 python {CODE}",
    ),
    attrs.evolve(
        CUSTOM,
        name="custom-image-table-is-late",
        files=_group_list((4,), status="initializing"),
        late=_group_list((4,)),
        says=("waiting for the rank table",),
    ),
    attrs.evolve(
        CUSTOM,
        name="custom-image-other-pod",
        environ={**CUSTOM.environ, "MA_CURRENT_INSTANCE_NAME": "other"},
        ran=(),
        has=(),
        says=("no pod_name matches 'other' (MA_CURRENT_INSTANCE_NAME)",),
        status=125,
        table="",
    ),
    attrs.evolve(
        CUSTOM,
        name="custom-image-other-address",
        environ={
            **{name: value for name, value in CUSTOM.environ.items() if name != "MA_CURRENT_INSTANCE_NAME"},
            "MA_CURRENT_HOST_IP": "10.9.9.9",
        },
        ran=(),
        has=(),
        says=("10.9.9.9", "(MA_CURRENT_HOST_IP)"),
        status=125,
        table="",
    ),
    attrs.evolve(
        CUSTOM,
        name="custom-image-group-count",
        files=_group_list((4,), group_count="2"),
        says=("WARNING group_count is 2, but 1 group is listed",),
    ),
    # MindSpore with a custom image: run_ascend
    attrs.evolve(
        RUN_ASCEND,
        files={**RUN_ASCEND.files, "/home/ma-user/modelarts/log/.keep": ""},
        has=(
            "ASCEND_DEVICE_ID=1",
            "HCCL_CONNECT_TIMEOUT=1800",
            "PWD=/home/ma-user/modelarts/workspace/device1",
            "ASCEND_PROCESS_LOG_PATH=/home/ma-user/modelarts/log/modelarts-job-trainjob/ascend/process_log/rank_1",
        ),
        logs=("/home/ma-user/modelarts/log/modelarts-job-trainjob-proc-rank-1-device-1.txt",),
    ),
    attrs.evolve(
        RUN_ASCEND,
        name="run-ascend-nodes",
        environ={**RUN_ASCEND.environ, **SECOND},
        files=_group_list((0, 1), (0, 1)),
        ran=_ranks(4, 2, f"python {CODE}"),
    ),
    attrs.evolve(
        RUN_ASCEND,
        name="run-ascend-slash",
        environ={**RUN_ASCEND.environ, "RANK_TABLE_FILE": "/user/config/"},
    ),
    attrs.evolve(
        RUN_ASCEND,
        name="run-ascend-v1",
        environ={**MODELARTS, "RANK_TABLE_FILE_V_1_0": "/user/config/v1.json"},
        files={"/user/config/v1.json": _server_list(1)},
    ),
    attrs.evolve(
        RUN_ASCEND,
        name="run-ascend-v1-nodes",
        environ={**MODELARTS, **SECOND, "RANK_TABLE_FILE_V_1_0": "/user/config/v1.json"},
        files={"/user/config/v1.json": _server_list(2)},
        ran=_ranks(4, 2, f"python {CODE}"),
    ),
    attrs.evolve(
        RUN_ASCEND,
        name="run-ascend-cpu",
        files=_group_list(()),
        ran=(f"python {CODE}: RANK=0 WORLD_SIZE=1 ",),
        table="",
    ),
    attrs.evolve(
        RUN_ASCEND,
        name="run-ascend-without-variables",
        environ={"MA_VJ_NAME": "ma-job-a"},
        files={**RUN_ASCEND.files, "/cache/.keep": ""},
        has=("PWD=/cache/device1",),
        logs=("/tmp/log/modelarts-job-a-proc-rank-1-device-1.txt",),
        table="/tmp/log/modelarts-job-a/rank_table/jobstart_hccl.json",
    ),
    # ModelArts: boot commands of PyTorch
    Guide(name="pytorch-card", environ={**MODELARTS, "MA_NUM_GPUS": "1"}, cwd=IN_JOB, ran=(_ranks(1)[0],)),
    Guide(name="pytorch-boot", environ={**MODELARTS, "MA_NUM_GPUS": "2"}, cwd=IN_JOB, ran=_ranks(2)),
    Guide(
        name="pytorch-boot-cards",
        environ={**MODELARTS, "MA_NUM_GPUS": "8"},
        cwd=IN_JOB,
        command=f"python train.py --init_method tcp://{WORKER_0}:6666 --epochs 5",
        ran=(f"python train.py --init_method tcp://{WORKER_0}:6666 --epochs 5: RANK= ",),
        says=("so the script starts its processes itself",),
    ),
    Guide(
        name="pytorch-boot-nodes",
        environ={**MODELARTS, "MA_NUM_GPUS": "8", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1"},
        cwd=IN_JOB,
        command=f"python train.py --init_method tcp://{WORKER_0}:6666 --rank 1 --world_size 2 --epochs 5",
        ran=(f"python train.py --init_method tcp://{WORKER_0}:6666 --rank 1 --world_size 2 --epochs 5: RANK= ",),
    ),
    Guide(
        name="pytorch-boot-init-method",
        environ={**MODELARTS, "MA_NUM_GPUS": "8", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1"},
        cwd=IN_JOB,
        command="--launcher init-method python train.py --epochs 5",
        ran=(f"python train.py --init_method tcp://{WORKER_0}:29500 --rank 1 --world_size 2 --epochs 5: ",),
    ),
    # The task-training platform
    Guide(name="single", ran=("python train.py --lr 0.1: RANK= WORLD_SIZE= ",)),
    Guide(name="single-volcano", environ={"VK_TASK_INDEX": "0"}, ran=("python train.py --lr 0.1: RANK= ",)),
    Guide(name="shell", command="bash -c 'A=1 python3 train.py'", ran=("python3 train.py: ",)),
    Guide(
        name="illegal",
        command="A=1 python3 train.py",
        ran=(),
        status=125,
        says=("the command begins with a variable assignment: use env A=... COMMAND, or bash -c '...'",),
    ),
    Guide(name="pytorch", environ=PYTORCH, ran=_ranks(4, 2), has=("MASTER_ADDR=server1", "MASTER_PORT=2222")),
    Guide(
        name="pytorch-launch",
        environ=PYTORCH,
        command="python3 -m torch.distributed.launch --nproc_per_node=2 --nnodes=2 --node_rank=1 train.py",
        ran=("python3 -m torch.distributed.launch --nproc_per_node=2 --nnodes=2 --node_rank=1 train.py: RANK=1 ",),
    ),
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
    _elsewhere("deepspeed-elsewhere", PYTORCH, "deepspeed train.py --deepspeed", JOB_SLOTS),
    Guide(name="open-mpi", environ=OPEN_MPI, files=SLOTS, ran=(PREFIX,)),
    _elsewhere("open-mpi-elsewhere", {**OPEN_MPI, "HOSTNAME": "server2"}, "python train.py", SLOTS),
    Guide(
        name="open-mpi-own",
        environ=OPEN_MPI,
        files=SLOTS,
        command="mpirun -np 8 -x NCCL_SOCKET_IFNAME=^lo,docker0 python train.py",
        ran=("mpirun -np 8 -x NCCL_SOCKET_IFNAME=^lo,docker0 python train.py: ",),
        has=("OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",),
    ),
    Guide(
        name="horovodrun",
        environ=OPEN_MPI,
        files=SLOTS,
        command="horovodrun -np 8 python train.py",
        ran=("horovodrun -H server1:4,server2:4 -np 8 python train.py: ",),
        says=("horovodrun gets the hosts of /etc/mpi/hostfile",),
    ),
    _elsewhere("horovodrun-elsewhere", {**OPEN_MPI, "HOSTNAME": "server2"}, "horovodrun -np 8 python train.py", SLOTS),
    Guide(
        name="mpirun-hosts",
        environ={**WORKERS, "VK_TASK_INDEX": "0"},
        command="mpirun -np 8 python train.py",
        ran=("mpirun -np 8 python train.py: RANK= ",),
        says=("mpirun gets the hosts of VC_WORKER_HOSTS in ",),
    ),
    _elsewhere("mpirun-hosts-elsewhere", WORKERS, "mpirun -np 8 python train.py"),
    Guide(
        name="mpirun-hosts-by-name",
        environ={**BY_NAME, "HOSTNAME": "server1"},
        command="mpirun -np 8 python train.py",
        ran=("mpirun -np 8 python train.py: RANK= ",),
        says=("mpirun gets the hosts of VC_WORKER_HOSTS in ",),
    ),
    _elsewhere("mpirun-hosts-by-name-elsewhere", BY_NAME, "mpirun -np 8 python train.py"),
    Guide(
        name="mpich",
        environ=MPICH,
        files=HYDRA_SLOTS,
        ran=("mpirun -np 8 python train.py --lr 0.1: ",),
        has=("HYDRA_HOST_FILE=/etc/mpi/mpich_hostfile", "HYDRA_IFACE=eth0"),
    ),
    Guide(name="both", environ={**OPEN_MPI, **MPICH}, files={**SLOTS, **HYDRA_SLOTS}, ran=(PREFIX,)),
    Guide(
        name="tensorflow",
        environ={"TF_CONFIG": TENSORFLOW, "VK_TASK_INDEX": "1"},
        ran=("python train.py --lr 0.1: RANK= ",),
        has=(f"TF_CONFIG={TENSORFLOW}",),
    ),
    Guide(
        name="tensorflow-ps",
        environ={"TF_CONFIG": TENSORFLOW_PS, "VK_TASK_INDEX": "0"},
        ran=("python train.py --lr 0.1: RANK= ",),
        has=(f"TF_CONFIG={TENSORFLOW_PS}",),
    ),
    Guide(name="tensorflow-hosts", environ=WORKERS, ran=("python train.py --lr 0.1: RANK= ",), has=(MADE,)),
    Guide(name="tensorflow-hosts-by-name", environ=BY_NAME, ran=("python train.py --lr 0.1: RANK= ",), has=(MADE,)),
    # MindCluster and Volcano, on which these platforms are built
    Guide(
        name="mindcluster-table",
        environ={**_of_fixture("mindcluster_pytorch"), "XDL_IP": "192.168.0.28"},
        files={"/user/serverid/devindex/config/hccl.json": _server_list(4, 4)},
        cwd="/job",
        ran=_ranks(16, 12, local=4),
        has=("MASTER_ADDR=10.96.11.2", "MASTER_PORT=2222"),
        table="/job/logs/5f9c-uid",
    ),
    Guide(
        name="mindcluster-torch",
        environ=_of_fixture("mindcluster_pytorch"),
        cwd="/job",
        ran=_ranks(16, 12, local=4),
        has=("MASTER_ADDR=10.96.11.2", "MASTER_PORT=2222"),
    ),
    Guide(
        name="mindcluster-mindspore",
        environ=_of_fixture("mindcluster_mindspore"),
        cwd="/job",
        ran=("python train.py --lr 0.1: RANK= ",) * 9,
        has=("MS_ROLE=MS_WORKER", "MS_NODE_ID=7", "MS_ROLE=MS_SCHED"),
    ),
    Guide(
        name="mindcluster-tensorflow",
        environ=_of_fixture("mindcluster_tensorflow"),
        cwd="/job",
        ran=("python train.py --lr 0.1: RANK= ",) * 8,
        has=("CM_CHIEF_IP=10.96.4.4", "ASCEND_DEVICE_ID=7"),
    ),
    Guide(
        name="volcano-table",
        environ={**_of_fixture("volcano"), "HOST_IP": "192.168.0.27"},
        files={"/user/config/jobstart_hccl.json": _server_list(3)},
        cwd="/job",
        ran=_ranks(6, 4),
        has=("MASTER_ADDR=bert-worker-0.bert",),
        table="/job/logs/",
    ),
    Guide(
        name="volcano-pytorch",
        environ=_of_fixture("volcano_pytorch"),
        cwd="/job",
        ran=(),
        status=125,
        says=("use --nproc-per-node N",),
    ),
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
        mode = 755 if content.startswith("#!") else 644
        lay.append(f"mkdir -p {Path(path).parent}; printf %s {shlex.quote(content)} > {path}; chmod {mode} {path}")
    for path, content in guide.late.items():
        wait = "until grep -qs preparing /tmp/log/*-report.json; do sleep 0.05; done"
        lay.append(f"({wait}; printf %s {shlex.quote(content)} > {path}.new; mv {path}.new {path}) & true")
    variables = {"PATH": f"{programs}:/usr/bin:/bin", **guide.environ}
    words = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    words += [sys.executable, "-m", "ascend_runner", *shlex.split(guide.command)]
    end = "status=0; {} || status=$?; find {} -name '*.txt' 2>/dev/null || :; exit $status"
    inner = "; ".join([*lay, f"cd {guide.cwd}; {end.format(shlex.join(words), ' '.join(LOGS))}"])
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
    shown = [line.rstrip("\n") for line in started.lines]
    ran = sorted(line.partition("ran ")[2] for line in shown if line.startswith("[") and "] ran " in line)
    has = {line.partition("] has ")[2] for line in shown}

    assert guide.status == status, started.screen
    assert "Traceback" not in started.screen
    assert guide.lines == [line[: len(begin)] for line, begin in zip(ran, guide.lines)], started.screen
    assert len(guide.lines) == len(ran), started.screen
    assert set() == {*guide.has} - has, started.screen
    assert set() == {*guide.logs} - {*shown}, started.screen
    assert [] == [words for words in guide.says if words not in started.screen], started.screen


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
        ("rays.sh", "ray start --head\npython train.py", "ray, which starts one node of a cluster"),
    ],
)
def test_engine_that_a_check_finds_in_a_start_script(program: Program, name: str, script: str, engine: str) -> None:
    """--check names an engine that the text of the command's script shows, if several ranks would run it."""
    (program.folder / name).write_text(script, "utf-8")
    words = [sys.executable if name.endswith(".py") else "bash", name]
    checked = program.start("--check", "--nproc-per-node", "2", *words)
    checked.finish()

    assert bool(engine) is (f"{name} runs {engine}" in checked.screen), checked.screen


def test_check_of_a_command_that_an_engine_starts(program: Program) -> None:
    """Neither the runner's own script for Ray nor the command is run by several ranks."""
    checked = program.start("--check", "--nproc-per-node", "2", "--launcher", "ray", sys.executable, "-c", "")
    checked.finish()

    assert "in each of 2 ranks" not in checked.screen, checked.screen


@pytest.mark.parametrize(("script", "warnings"), [("ray stop\npython train.py", 1), ("torchrun train.py", 0)])
def test_start_script_that_starts_ray_itself(program: Program, script: str, warnings: int) -> None:
    """With --launcher ray, --check names a script with `ray stop`, which would end the runner's cluster."""
    (program.folder / "train.sh").write_text(script, "utf-8")
    checked = program.start("--check", "--nproc-per-node", "1", "--launcher", "ray", "bash", "train.sh")
    checked.finish()

    assert warnings == checked.screen.count("train.sh runs ray itself"), checked.screen


def test_engine_that_a_check_finds_in_a_program_that_is_a_script(program: Program) -> None:
    """A start script that is executed itself, without the name of a shell, is read as well."""
    script = program.folder / "start.sh"
    script.write_text("#!/bin/bash\ncd .\ntorchrun train.py\n", "utf-8")
    script.chmod(0o755)
    checked = program.start("--check", "--nproc-per-node", "2", "./start.sh")
    checked.finish()

    assert "start.sh runs torchrun, which starts one process per device itself" in checked.screen, checked.screen
