"""Finds this node's place in a job: the platforms that are known, and the order in which they are asked.

WORLD_SIZE has three meanings (processes for torchrun, nodes for four platforms, cards for acjob) and RANK two, so that
they are believed only beside a second witness. Where there is none and they speak of other nodes, the node carries a
doubt, and a job that has nothing else to go by is not started: each of its nodes would take itself for the only one.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.errors import SettingsError
from ascend_runner.lazy import load

from .node import FLAGS, LOCALHOST, MASTER_PORT, NOTHING, Node
from .variables import Variables, check_port, is_whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .contract import Contract
    from .node import Said

TASK_TRAINING: Final = "the task-training platform"  # the one whose boot commands differ (see `launchers`)

# The first counts whose variables are all set and whose file finds nothing against it in what they hold. Who started
# this very process comes before who started its container, and who is recognised by names of its own before who shares
# them: ModelArts, Octopus and the task-training platform run on Volcano.
PLATFORMS: Final = (
    # platform                                file and contract            recognised by
    ("Open MPI", "mpi.OPEN_MPI", ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")),
    ("Hydra (MPICH, Intel MPI)", "mpi.HYDRA", ("PMI_SIZE", "PMI_RANK")),
    ("Slurm", "slurm.CONTRACT", ("SLURM_STEP_NUM_NODES", "SLURM_NODEID")),
    ("ModelArts with topology acceleration", "modelarts.ACCELERATED", ("MA_VJ_NAME", "ROUTE_PLAN", "RANK_AFTER_ACC")),
    ("ModelArts", "modelarts.CONTRACT", ("MA_VJ_NAME",)),
    ("ModelArts V1", "modelarts.CONTRACT", ("BATCH_JOB_ID", "DLS_TASK_NUMBER")),
    ("Octopus", "octopus.CONTRACT", ("MA_NUM_HOSTS", "VC_TASK_INDEX")),
    ("Octopus", "octopus.CONTRACT", ("MA_NUM_HOSTS", "DATASET_MAP")),
    ("MindCluster", "mindcluster.MINDSPORE", ("MS_WORKER_NUM", "MS_LOCAL_WORKER", "MS_NODE_RANK")),
    ("MindCluster", "mindcluster.TENSORFLOW", ("CM_WORKER_SIZE", "CM_LOCAL_WORKER", "CM_RANK")),
    ("MindCluster", "mindcluster.PYTORCH", ("MINDX_TASK_ID", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK")),
    ("MindCluster", "mindcluster.PYTORCH", ("MINDX_SERVER_IP", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK")),
    ("MindCluster", "mindcluster.PYTORCH_BY_LIST", ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK")),
    (TASK_TRAINING, "task_training.CONTRACT", ("SLOTS", "WORLD_SIZE", "RANK")),
    ("PAI DLC", "pai.CONTRACT", ("NPROC_PER_NODE", "MASTER_ADDR", "WORLD_SIZE", "RANK")),
    ("Volcengine", "volcengine.CONTRACT", ("MLP_WORKER_NUM", "MLP_ROLE_INDEX")),
    ("Kubeflow Trainer", "kubeflow.TRAINER", ("PET_NNODES", "PET_NODE_RANK")),
    ("TF_CONFIG", "tf_config.CONTRACT", ("TF_CONFIG",)),
    ("Volcano with its pytorch plugin", "volcano.PYTORCH", ("VC_TASK_INDEX", "MASTER_ADDR", "WORLD_SIZE", "RANK")),
    ("Volcano", "volcano.HOSTS", ("VC_TASK_INDEX",)),
    ("Volcano", "volcano.HOSTS", ("VK_TASK_INDEX",)),
    ("Kubeflow PyTorchJob", "kubeflow.PYTORCH_JOB", ("HOSTNAME", "MASTER_ADDR", "WORLD_SIZE", "RANK")),
)

# What counts nodes, but is no platform by itself: that takes the number of this node as well.
COUNTS: Final = ("MA_NUM_HOSTS", "DLS_TASK_NUMBER", "PET_NNODES", "MLP_WORKER_NUM")

# Without any of these nobody has started one process per card, and `single` needs no asking: the time to start.
SINGLE_WITNESSES: Final = frozenset(
    {
        *("RANK_ID", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"),
        *("MA_RUN_METHOD", "MS_ROLE", "TF_CONFIG"),
    }
)

# How a platform's job is called. Slurm's number alone would be no name among other jobs' logs.
JOB_IDS: Final = ("BATCH_JOB_ID", "MA_VJ_NAME", "SLURM_JOB_ID", "MINDX_TASK_ID")


def find(environ: Mapping[str, str], said: Said = NOTHING) -> Node:
    """Find this node's place: what the user said, then what its platform tells, else it is the only one.

    Errors: SettingsError, one sentence that names the flag or variable.
    """
    if said.is_complete:
        variables = Variables(environ, said)
        port = variables.master_port((), default=MASTER_PORT)
        node = Node(platform="the settings", master_port=port, sources=variables.sources)
    else:
        node = _seen(environ, said)
    node = _located(_overruled(node, said))
    _check(node, environ)

    return node._replace(job_id=job_id(environ), log_dirs=log_dirs(environ))


def job_id(environ: Mapping[str, str]) -> str:
    """Give the name that the platform knows the job by; empty where it has none. Not checked."""
    name = next(filter(environ.get, JOB_IDS), "")
    if name == "MA_VJ_NAME":
        return environ[name].replace("ma-job", "modelarts-job", 1)

    return f"slurm-{environ[name]}" if name == "SLURM_JOB_ID" else environ.get(name, "")


def log_dirs(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Give the platform's log folders; the first that exists is meant."""
    mount = environ.get("MA_MOUNT_PATH")
    return tuple(filter(None, (environ.get("BATCH_TASK_LOG_PATH"), f"{mount.rstrip('/')}/log" if mount else "")))


def _seen(environ: Mapping[str, str], said: Said) -> Node:
    for platform, place, witness in PLATFORMS:
        if not all(map(environ.get, witness)):
            continue
        contract: Contract = load(__package__, place)
        if contract.is_certain(environ):
            from .contract import read

            return read(contract, environ, said)._replace(platform=platform, witness=witness)

    variables = Variables(environ, said)
    return Node(
        master_addr=variables.master_addr(()),
        master_port=variables.master_port((), default=MASTER_PORT),
        sources=variables.sources,
        doubt=_doubt(environ),
    )


def _doubt(environ: Mapping[str, str]) -> str:
    """Say what is odd where no platform was recognised, and yet variables speak of other nodes."""
    nodes = environ.get("SLURM_JOB_NUM_NODES", "1")
    if nodes != "1" and not environ.get("SLURM_STEP_NUM_NODES"):
        return (
            f"SLURM_JOB_NUM_NODES is {nodes}, but srun did not start this process: expected"
            " srun --ntasks-per-node=1 --kill-on-bad-exit=1 ascend-runner ..., or --nnodes 1 for this node alone"
        )
    count = next((name for name in COUNTS if environ.get(name, "1") not in {"", "1"}), "")
    if count:
        return (
            f"{count} is {environ[count]}, but no variable says which of the nodes this is: expected --nnodes,"
            " --node-rank and --master-addr (--nnodes 1 for this node alone)"
        )
    index = next(filter(environ.get, ("VC_TASK_INDEX", "VK_TASK_INDEX")), "")
    lists = [name for name in environ if name.startswith("VC_") and name.endswith("_HOSTS")]
    several = next((name for name in lists if "," in environ[name]), "")
    if several or (index and (lists or environ[index] != "0")):
        return (
            f"this is a pod of a Volcano job ({index or several}), but it is not certain how many take part and which"
            " one this is: expected --nnodes, --node-rank and --master-addr (--nnodes 1 for this node alone)"
        )
    size = environ.get("WORLD_SIZE", "")
    if environ.get("RANK") and is_whole_number(size) and int(size) > 1:
        return (
            f"WORLD_SIZE is {size} and RANK is {environ['RANK']}, but no other variable says whether they count nodes"
            " or processes: expected --nnodes and --node-rank (--nnodes 1 for this node alone)"
        )

    return ""


def _overruled(node: Node, said: Said) -> Node:
    """Put what the user said in the place of what a platform told, fact by fact."""
    sources = {fact: FLAGS[fact] for fact in said.facts}
    node = node._replace(**said.facts, sources={**node.sources, **sources})
    if said.nnodes is None:
        return node

    if said.nnodes > 1 and "node_rank" not in node.sources:
        raise SettingsError(f"--nnodes is {said.nnodes}, expected --node-rank as well: no platform tells it here")
    hosts = node.hosts if len(node.hosts) == said.nnodes else ()
    return node._replace(node_rank=node.node_rank if said.nnodes > 1 or said.node_rank else 0, hosts=hosts, doubt="")


def _located(node: Node) -> Node:
    """Say where node 0 is, where nobody said it: here, or at the first of the hosts if all are listed."""
    if node.nnodes > 1 and "node_rank" not in node.sources:
        doubt = f"there are {node.nnodes} nodes ({node.sources['nnodes']}), but nothing says which one this is:"
        node = node._replace(doubt=f"{doubt} expected --node-rank (--nnodes 1 for this node alone)")
    if node.hosts and len(node.hosts) != node.nnodes:
        doubt = f"{node.sources['hosts']} lists {len(node.hosts)} hosts, expected as many as {_count(node)}"
        node = node._replace(hosts=(), doubt=doubt)
    if node.master_addr:
        return node

    return node._replace(master_addr=LOCALHOST if node.nnodes == 1 else next(iter(node.hosts), ""))


def _check(node: Node, environ: Mapping[str, str]) -> None:
    check_port(node.master_port, node.sources.get("master_port", "the default port"), environ)
    if node.node_rank >= node.nnodes:
        raise SettingsError(f"{node.sources['node_rank']} is {node.node_rank}, expected less than {_count(node)}")
    for host in node.hosts:
        if not (host.isascii() and host.isprintable()) or " " in host:  # it would be a line of a host file
            raise SettingsError(f"{node.sources.get('hosts', 'the list of hosts')} has {host!r}, expected host names")


def _count(node: Node) -> str:
    return f"{node.sources.get('nnodes', 'the number of nodes (--nnodes)')}, which is {node.nnodes}"
