"""Finding this node's position: fixtures of the platforms, their order, overrides, invalid values."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.detect import find_node, job_id, log_dirs, way_in
from ascend_runner.platforms.node import Node, Overrides
from ascend_runner.platforms.registry import PLATFORMS
from tests.platforms import platform_cases

MODELARTS = platform_cases.load("modelarts").variables


@pytest.mark.parametrize("name", platform_cases.names("node"))
def test_platform(name: str) -> None:
    """Each fixture gives the node, job id, log directories and way in that it expects, or their defaults."""
    case = platform_cases.load(name)
    found = find_node(case.variables, case.overrides)
    expected: dict[str, Any] = {
        fact: tuple(value) if isinstance(value, list) else value for fact, value in case.expected["node"].items()
    }

    assert Node(**expected, sources=found.sources) == found
    assert case.expected.get("job_id", "") == job_id(case.variables)
    assert tuple(case.expected.get("log_dirs", ())) == log_dirs(case.variables)
    assert case.expected.get("way_in", "") == way_in(case.variables, "pod", "host", "")


def test_way_into_a_pod() -> None:
    """Any other container of Kubernetes is entered with kubectl, in its namespace if that is known."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}

    assert "kubectl exec -it pod-0 -- bash" == way_in(environ, "pod-0", "host", "")
    assert "kubectl exec -it --namespace training host -- bash" == way_in(environ, "", "host", "training")


@pytest.mark.parametrize("name", platform_cases.names("node"))
def test_sources_are_variables_of_the_environment(name: str) -> None:
    """The source of each fact is an option or a variable of the environment."""
    case = platform_cases.load(name)
    found = find_node(case.variables, case.overrides)
    named = {word for source in found.sources.values() for word in source.split(" and ")}

    assert {word for word in named if not word.startswith("--")} <= {*case.variables, *found.detected_by}


def test_every_platform_has_a_fixture() -> None:
    """Each row of the table has a fixture."""
    seen = {platform_cases.load(name).expected["node"]["platform"] for name in platform_cases.names("node")}

    assert {spec.name for spec in PLATFORMS} <= seen


def test_why_names_the_platform_and_its_variables() -> None:
    """One sentence names the platform, the variables that detect it, and the source of each fact."""
    expected = (
        "ModelArts (detected by MA_VJ_NAME): node rank 1 of 2 (VC_TASK_INDEX, MA_NUM_HOSTS), node 0 at"
        " ma-job-7c1d-worker-0.ma-job-7c1d, port 29500"
    )

    assert expected == find_node(MODELARTS).why
    assert "no platform detected: node rank 0 of 1, node 0 at 127.0.0.1, port 29500" == find_node({}).why


def test_address_of_node_0_is_unknown() -> None:
    """No address is invented if only mpirun's numbers are known."""
    found = find_node({"PMI_SIZE": "2", "PMI_RANK": "1"})

    assert "" == found.master_addr
    assert "node 0 at an unknown address" in found.why


# --- Which source is used ---------------------------------------------------------------------------------------------


def test_mpirun_comes_before_the_platform_around() -> None:
    """The launcher of this process takes precedence over the platform of its container."""
    found = find_node({**MODELARTS, "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "MASTER_ADDR": "a"})

    assert ("Open MPI", 3, 4) == (found.platform, found.node_rank, found.nnodes)


@pytest.mark.parametrize("names", [("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK")])
def test_mpirun_of_one_process_says_nothing(names: tuple[str, str]) -> None:
    """`mpirun -np 1` may run on every node, so it does not make a job of one node."""
    found = find_node({**MODELARTS, **dict(zip(names, ("1", "0")))})

    assert ("ModelArts", 1, 2) == (found.platform, found.node_rank, found.nnodes)


def test_hydra_inside_a_slurm_step_takes_its_hosts() -> None:
    """A Slurm step with as many nodes as MPI has processes lists their hosts."""
    step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "n[3-4]"}
    found = find_node({"PMI_SIZE": "2", "PMI_RANK": "1", **step})

    assert ("Hydra (MPICH, Intel MPI)", ("n3", "n4"), "n3") == (found.platform, found.hosts, found.master_addr)


def test_route_plan_that_is_off() -> None:
    """With ROUTE_PLAN=false the usual variables count."""
    found = find_node({**platform_cases.load("modelarts_route_plan").variables, "ROUTE_PLAN": "false"})

    assert ("ModelArts", 0, 3) == (found.platform, found.node_rank, found.nnodes)


def test_route_plan_with_an_address_of_the_users() -> None:
    """A MASTER_ADDR that the user has set is kept."""
    found = find_node({**platform_cases.load("modelarts_route_plan").variables, "MASTER_ADDR": "mine"})

    assert "mine" == found.master_addr


def test_octopus_by_its_datasets() -> None:
    """DATASET_MAP detects Octopus if the only node has no number."""
    found = find_node({"MA_NUM_HOSTS": "1", "DATASET_MAP": "{}"})

    assert ("Octopus", 1, 6789) == (found.platform, found.nnodes, found.master_port)


def test_acjob_by_its_list_of_ranks() -> None:
    """LOCAL_RANK is a list on MindCluster only, so it suffices."""
    found = find_node({"LOCAL_RANK": "0,1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6", "RANK": "2"})

    assert ("MindCluster", 2, 3) == (found.platform, found.node_rank, found.nnodes)


@pytest.mark.parametrize("variables", [{"HOSTNAME": "somewhere"}, {"MASTER_ADDR": "10.0.0.1"}])
def test_pytorchjob_is_not_believed_without_its_name(variables: dict[str, str]) -> None:
    """In a pod with another name, the same variables may be torchrun's."""
    found = find_node({**platform_cases.load("kubeflow_pytorchjob").variables, **variables})

    assert "no platform detected" == found.platform
    assert found.ambiguity


@pytest.mark.parametrize(
    "variables",
    [
        {"VC_TASK_INDEX": "0", "VC_A_HOSTS": "a", "VC_B_HOSTS": "b"},  # two tasks that nobody explains
        {"VC_TASK_INDEX": "2"},  # a third pod at least, and no list
        {**platform_cases.load("volcano_master_and_workers").variables, "HOSTNAME": "shell"},  # in none of the lists
    ],
)
def test_volcano_pod_without_a_certain_number(variables: dict[str, str]) -> None:
    """If it is unclear which tasks take part, the node is ambiguous."""
    expected = (
        "cannot tell the number of nodes or this node's rank from Volcano's variables (VC_TASK_INDEX): set --nnodes,"
        " --node-rank and --master-addr (or --nnodes 1 to use this node alone)"
    )

    assert expected == find_node(variables).ambiguity


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"MA_NUM_HOSTS": "2", "VC_WORKER_HOSTS": "a,b"}, "MA_NUM_HOSTS is 2, but no variable"),
        ({"PET_NNODES": "1:4", "PET_MASTER_ADDR": "a"}, "PET_NNODES is 1:4, but no variable"),
        ({"MLP_WORKER_NUM": "2"}, "MLP_WORKER_NUM is 2, but no variable"),
        ({"DLS_TASK_NUMBER": "2"}, "DLS_TASK_NUMBER is 2, but no variable"),
        ({"VC_WORKER_HOSTS": "a,b"}, "Volcano's variables (VC_WORKER_HOSTS)"),
    ],
)
def test_half_of_a_platform(variables: dict[str, str], part: str) -> None:
    """A number of nodes without this node's rank is ambiguous."""
    assert part in find_node(variables).ambiguity


@pytest.mark.parametrize(
    "variables", [{"MA_NUM_HOSTS": "1"}, {"PET_NNODES": ""}, {"MLP_WORKER_NUM": "1"}, {"VC_WORKER_HOSTS": "a"}]
)
def test_half_of_a_platform_of_one_node(variables: dict[str, str]) -> None:
    """A number of nodes of one is not ambiguous."""
    assert "" == find_node(variables).ambiguity


def test_several_nodes_without_a_number_of_this_one() -> None:
    """Without a rank, each ModelArts node would assume that it is node 0."""
    variables = {name: value for name, value in MODELARTS.items() if name != "VC_TASK_INDEX"}
    expected = (
        "cannot tell this node's rank among 2 nodes (MA_NUM_HOSTS): set --node-rank (or --nnodes 1 to use this node"
        " alone)"
    )

    assert expected == find_node(variables).ambiguity
    assert "" == find_node(variables, Overrides(node_rank=1)).ambiguity


def test_volcano_pod_without_lists() -> None:
    """Index 0 without a list of hosts does not hint at other nodes."""
    assert "" == find_node({"VC_TASK_INDEX": "0"}).ambiguity


def test_batch_script_of_several_nodes() -> None:
    """An sbatch script that calls the runner without srun runs on one node of several."""
    expected = (
        "SLURM_JOB_NUM_NODES is 2, but srun did not start this process: use srun --ntasks-per-node=1"
        " --kill-on-bad-exit=1 ascend-runner ... (or --nnodes 1 to use this node alone)"
    )

    assert expected == find_node({"SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}).ambiguity


def test_interactive_step_is_one_node() -> None:
    """The shell of salloc is a step of its own, on one node."""
    found = find_node({"SLURM_JOB_NUM_NODES": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0"})

    assert (1, "", "127.0.0.1") == (found.nnodes, found.ambiguity, found.master_addr)


def test_world_size_and_rank_alone() -> None:
    """WORLD_SIZE and RANK alone are ambiguous."""
    found = find_node({"WORLD_SIZE": "4", "RANK": "1"})

    assert (0, 1) == (found.node_rank, found.nnodes)
    assert (
        "cannot tell whether WORLD_SIZE (4) and RANK (1) count nodes or processes: set --nnodes and --node-rank (or"
        " --nnodes 1 to use this node alone)"
    ) == found.ambiguity


@pytest.mark.parametrize("variables", [{"WORLD_SIZE": "1", "RANK": "0"}, {"WORLD_SIZE": "4"}, {"RANK": "1"}])
def test_world_size_that_speaks_of_nobody_else(variables: dict[str, str]) -> None:
    """One process, or only one of the two variables, is not ambiguous."""
    assert "" == find_node(variables).ambiguity


# --- What the user says ----------------------------------------------------------------------------------------------


def test_user_overrules_the_platform() -> None:
    """Each override replaces the platform's fact; the hosts are dropped if their number changes."""
    found = find_node(MODELARTS, Overrides(nnodes=3, node_rank=2, master_port=4000))

    told = (found.platform, found.node_rank, found.nnodes, found.master_port, found.hosts)
    assert ("ModelArts", 2, 3, 4000, ()) == told
    assert "--nnodes" == found.sources["nnodes"]


@pytest.mark.parametrize("overrides", [Overrides(master_port=4000), Overrides(nnodes=1, master_port=4000)])
def test_port_of_the_users_overrules_one_that_will_not_do(overrides: Overrides) -> None:
    """Only the effective port is checked, not the one that it overrides."""
    assert 4000 == find_node({**MODELARTS, "MASTER_PORT": "60005"}, overrides).master_port


def test_complete_settings_ask_no_platform() -> None:
    """With complete overrides no variable of a platform is read."""
    variables = {**MODELARTS, "MA_NUM_HOSTS": "broken"}
    found = find_node(variables, Overrides(nnodes=2, node_rank=0, master_addr="10.0.0.1"))

    assert ("settings", "10.0.0.1") == (found.platform, found.master_addr)


@pytest.mark.parametrize(
    ("fixture", "broken", "overrides", "place"),
    [
        ("modelarts", "MA_NUM_HOSTS", Overrides(nnodes=2), (1, 2)),
        ("modelarts", "VC_TASK_INDEX", Overrides(node_rank=0), (0, 2)),
        ("modelarts", "MA_NUM_GPUS", Overrides(devices_per_node=4), (1, 2)),
        ("octopus", "VC_WORKER_PORT", Overrides(master_port=4000), (1, 2)),
        ("mindcluster_pytorch", "WORLD_SIZE", Overrides(nnodes=4), (3, 4)),
        ("kubeflow_trainer", "PET_NNODES", Overrides(nnodes=3), (1, 3)),
        ("kubeflow_trainer", "PET_NPROC_PER_NODE", Overrides(devices_per_node=4), (1, 2)),
    ],
)
def test_broken_variable_behind_a_flag(fixture: str, broken: str, overrides: Overrides, place: tuple[int, int]) -> None:
    """An override hides an invalid variable, and the platform still gives the other facts."""
    variables = {**platform_cases.load(fixture).variables, broken: "1:x"}
    found = find_node(variables, overrides)

    assert place == (found.node_rank, found.nnodes)
    assert overrides.facts.items() <= attrs.asdict(found, recurse=False).items()
    with pytest.raises(SettingsError, match=f"'1:x' for {broken}: "):
        find_node(variables)


@pytest.mark.parametrize(
    "overrides", [Overrides(nnodes=2, node_rank=0, master_addr="a", master_port=4000), Overrides(master_port=4000)]
)
def test_broken_port_behind_a_flag(overrides: Overrides) -> None:
    """An override of the port hides an invalid variable, with or without a platform."""
    assert 4000 == find_node({"MASTER_PORT": "http"}, overrides).master_port


def test_fewer_ranks_do_not_make_more_nodes() -> None:
    """MindCluster's nodes are counted by its own cards per node, not by the override."""
    found = find_node(platform_cases.load("mindcluster_pytorch").variables, Overrides(devices_per_node=2))

    assert (4, 2) == (found.nnodes, found.devices_per_node)


def test_one_node_by_the_settings() -> None:
    """--nnodes 1 means this node alone, regardless of the variables."""
    found = find_node({"WORLD_SIZE": "4", "RANK": "1", "MASTER_PORT": "4001"}, Overrides(nnodes=1))

    assert ("", 0, "127.0.0.1", 4001) == (found.ambiguity, found.node_rank, found.master_addr, found.master_port)


def test_number_of_nodes_without_a_number_of_this_one() -> None:
    """Without --node-rank every node would be node 0."""
    with pytest.raises(SettingsError) as caught:
        find_node({}, Overrides(nnodes=2, master_addr="a"))

    assert "--nnodes 2 requires --node-rank: no platform variable gives this node's rank" == str(caught.value)


def test_node_rank_alone() -> None:
    """--node-rank requires a number of nodes."""
    with pytest.raises(SettingsError) as caught:
        find_node({}, Overrides(node_rank=1))

    assert str(caught.value).startswith("--node-rank is 1, but node ranks range from 0 to 0: ")


# --- Bad values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"MA_NUM_HOSTS": "x"}, "invalid value 'x' for MA_NUM_HOSTS: expected a whole number from 1 to 65536"),
        (
            {"MA_NUM_HOSTS": "9" * 5000},
            f"invalid value {'9' * 5000!r} for MA_NUM_HOSTS: expected a whole number from 1 to 65536",
        ),
        ({"MA_NUM_HOSTS": "0"}, "invalid value '0' for MA_NUM_HOSTS: expected a whole number from 1 to 65536"),
        ({"MA_NUM_GPUS": "-1"}, "invalid value '-1' for MA_NUM_GPUS: expected a whole number from 0 to 65536"),
        (
            {"VC_TASK_INDEX": "2"},
            "VC_TASK_INDEX is 2, but node ranks range from 0 to 1: the number of nodes is 2 (MA_NUM_HOSTS)",
        ),
        ({"VC_WORKER_HOSTS": "h1,h2\nevil"}, r"invalid host name 'h2\nevil' in VC_WORKER_HOSTS"),
        ({"VC_WORKER_HOSTS": "h1,h2\udcff"}, r"invalid host name 'h2\udcff' in VC_WORKER_HOSTS"),
        ({"MASTER_PORT": "http"}, "invalid value 'http' for MASTER_PORT: expected a port from 1 to 65535"),
        ({"VC_WORKER_PORT": "0"}, "invalid value '0' for VC_WORKER_PORT: expected a port from 1 to 65535"),
        (
            {"MASTER_PORT": "60031"},
            "port 60031 (MASTER_PORT) is used by HCCL: choose a port other than 60000 to 60031 and 16666",
        ),
        (
            {"MASTER_PORT": "16666"},
            "port 16666 (MASTER_PORT) is used by HCCL: choose a port other than 60000 to 60031 and 16666",
        ),
        (
            {"HCCL_IF_BASE_PORT": "2222", "MASTER_PORT": "2230"},
            "port 2230 (MASTER_PORT) is used by HCCL: choose a port other than 2222 to 2253 and 16666",
        ),
    ],
)
def test_bad_value(variables: dict[str, str], sentence: str) -> None:
    """An invalid value is an error that names its variable."""
    with pytest.raises(SettingsError) as caught:
        find_node({**MODELARTS, **variables})

    assert sentence == str(caught.value)


def test_variable_without_a_name() -> None:
    """A variable with an empty name is ignored."""
    assert (29500, "127.0.0.1") == (find_node({"": "x"}).master_port, find_node({"": "x"}).master_addr)


def test_bad_port_by_flag() -> None:
    """A port of HCCL is refused from the option as well."""
    with pytest.raises(SettingsError) as caught:
        find_node({}, Overrides(master_port=60000))

    assert str(caught.value).startswith("port 60000 (--master-port) is used by HCCL")


def test_cards_that_are_no_multiple() -> None:
    """MindCluster's cards must be a multiple of the cards per node."""
    with pytest.raises(SettingsError) as caught:
        find_node({**platform_cases.load("mindcluster_pytorch").variables, "WORLD_SIZE": "15"})

    assert "WORLD_SIZE (15) is not a multiple of LOCAL_WORLD_SIZE (4)" == str(caught.value)


@pytest.mark.parametrize("nproc", ["auto", "gpu", "cpu"])
def test_trainer_that_leaves_the_count_to_torchrun(nproc: str) -> None:
    """Values of torchrun such as `auto` give no number of devices."""
    found = find_node({"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": nproc})

    assert found.devices_per_node is None


def test_trainer_that_counts() -> None:
    """A number gives the number of devices."""
    variables = {"PET_NNODES": "1", "PET_NODE_RANK": "0"}

    assert 4 == find_node({**variables, "PET_NPROC_PER_NODE": "4"}).devices_per_node
    with pytest.raises(
        SettingsError, match="invalid value 'all' for PET_NPROC_PER_NODE: expected a whole number from 1 to 65536"
    ):
        find_node({**variables, "PET_NPROC_PER_NODE": "all"})


def test_list_of_hosts_that_is_too_short() -> None:
    """A list of hosts with the wrong length is ambiguous."""
    found = find_node({**MODELARTS, "VC_WORKER_HOSTS": "a"})

    assert ((), "") == (found.hosts, found.master_addr)
    assert found.ambiguity.startswith("VC_WORKER_HOSTS lists 1 host, but the number of nodes is 2 (MA_NUM_HOSTS): ")


# --- The job's name and logs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"BATCH_JOB_ID": "job-1", "MA_VJ_NAME": "ma-job-2"}, "job-1"),
        ({"MA_VJ_NAME": "ma-job-ma-job"}, "modelarts-job-ma-job"),
        ({"SLURM_JOB_ID": "12"}, "slurm-12"),
        ({"MINDX_TASK_ID": "uid"}, "uid"),
        ({}, ""),
    ],
)
def test_job_id(variables: dict[str, str], expected: str) -> None:
    """The job id is the platform's name of the job."""
    assert expected == job_id(variables)


def test_log_dirs() -> None:
    """The platform's log directories are given in their order; the last is the one of its own scripts."""
    assert ("/b", "/m/log", "/tmp/log") == log_dirs({"BATCH_TASK_LOG_PATH": "/b", "MA_MOUNT_PATH": "/m/"})
    assert () == log_dirs({})


def test_ranks_without_a_table() -> None:
    """Without a rank table every node has the same number of ranks, in the order of the nodes."""
    assert (4, 5) == Node(node_rank=2, nnodes=3).rank_ids(2)
