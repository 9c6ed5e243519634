"""Finding this node's place: every platform's fixture, the order of the platforms, what the user says, bad values."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.find import PLATFORMS, find, job_id, log_dirs
from ascend_runner.platforms.node import Node, Said
from tests.platforms import platform_cases

MODELARTS = platform_cases.load("modelarts").variables


@pytest.mark.parametrize("name", platform_cases.names("node"))
def test_platform(name: str) -> None:
    """Each platform's variables come to the node that its file expects; facts that a file leaves out have no value."""
    case = platform_cases.load(name)
    found = find(case.variables, case.said)
    expected: dict[str, Any] = {
        fact: tuple(value) if isinstance(value, list) else value for fact, value in case.expected["node"].items()
    }

    assert Node(**expected, sources=found.sources) == found


@pytest.mark.parametrize("name", platform_cases.names("node"))
def test_sources_are_variables_of_the_environment(name: str) -> None:
    """Whatever is told, it names flags or variables that are there."""
    case = platform_cases.load(name)
    found = find(case.variables, case.said)
    named = {word for source in found.sources.values() for word in source.split(" and ")}

    assert {word for word in named if not word.startswith("--")} <= {*case.variables, *found.witness}


def test_every_platform_has_a_fixture() -> None:
    """No row of the table is without a file."""
    seen = {platform_cases.load(name).expected["node"]["platform"] for name in platform_cases.names("node")}

    assert {platform for platform, _, _ in PLATFORMS} <= seen


def test_why_names_the_platform_and_its_variables() -> None:
    """One sentence says which platform was seen, by what, and what told each fact."""
    expected = (
        "ModelArts, seen by MA_VJ_NAME: node rank 1 of 2 (VC_TASK_INDEX, MA_NUM_HOSTS), node 0 at"
        " ma-job-7c1d-worker-0.ma-job-7c1d, port 29500"
    )

    assert expected == find(MODELARTS).why
    assert "no platform is recognised: node rank 0 of 1, node 0 at 127.0.0.1, port 29500" == find({}).why


def test_address_of_node_0_is_unknown() -> None:
    """No address is made up where mpirun alone tells numbers."""
    found = find({"PMI_SIZE": "2", "PMI_RANK": "1"})

    assert "" == found.master_addr
    assert "node 0 at an unknown address" in found.why


# --- Who is believed -------------------------------------------------------------------------------------------------


def test_mpirun_comes_before_the_platform_around() -> None:
    """What started this process is nearer than what started its container."""
    found = find({**MODELARTS, "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "MASTER_ADDR": "a"})

    assert ("Open MPI", 3, 4) == (found.platform, found.node_rank, found.nnodes)


@pytest.mark.parametrize("names", [("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK")])
def test_mpirun_of_one_process_says_nothing(names: tuple[str, str]) -> None:
    """Mpirun -np 1 on every node is no job of one node."""
    found = find({**MODELARTS, **dict(zip(names, ("1", "0")))})

    assert ("ModelArts", 1, 2) == (found.platform, found.node_rank, found.nnodes)


def test_hydra_inside_a_slurm_step_takes_its_hosts() -> None:
    """A step that has as many nodes as MPI has processes lists their hosts."""
    step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "n[3-4]"}
    found = find({"PMI_SIZE": "2", "PMI_RANK": "1", **step})

    assert ("Hydra (MPICH, Intel MPI)", ("n3", "n4"), "n3") == (found.platform, found.hosts, found.master_addr)


def test_route_plan_that_is_off() -> None:
    """ROUTE_PLAN=false leaves the numbers as they are."""
    found = find({**platform_cases.load("modelarts_route_plan").variables, "ROUTE_PLAN": "false"})

    assert ("ModelArts", 0, 3) == (found.platform, found.node_rank, found.nnodes)


def test_route_plan_with_an_address_of_the_users() -> None:
    """MASTER_ADDR as the guide has users set it stays."""
    found = find({**platform_cases.load("modelarts_route_plan").variables, "MASTER_ADDR": "mine"})

    assert "mine" == found.master_addr


def test_octopus_by_its_datasets() -> None:
    """DATASET_MAP tells Octopus where one node has no number."""
    found = find({"MA_NUM_HOSTS": "1", "DATASET_MAP": "{}"})

    assert ("Octopus", 1, 6789) == (found.platform, found.nnodes, found.master_port)


def test_acjob_by_its_list_of_ranks() -> None:
    """LOCAL_RANK is a list on MindCluster only, so it is witness enough."""
    found = find({"LOCAL_RANK": "0,1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6", "RANK": "2"})

    assert ("MindCluster", 2, 3) == (found.platform, found.node_rank, found.nnodes)


@pytest.mark.parametrize("variables", [{"HOSTNAME": "somewhere"}, {"MASTER_ADDR": "10.0.0.1"}])
def test_pytorchjob_is_not_believed_without_its_name(variables: dict[str, str]) -> None:
    """The same variables in a pod of another name may be torchrun's."""
    found = find({**platform_cases.load("kubeflow_pytorchjob").variables, **variables})

    assert "no platform is recognised" == found.platform
    assert found.doubt


@pytest.mark.parametrize(
    "variables",
    [
        {"VC_TASK_INDEX": "0", "VC_A_HOSTS": "a", "VC_B_HOSTS": "b"},  # two tasks that nobody explains
        {"VC_TASK_INDEX": "2"},  # a third pod at least, and no list
        {**platform_cases.load("volcano_master_and_workers").variables, "HOSTNAME": "shell"},  # in none of the lists
    ],
)
def test_volcano_pod_without_a_certain_number(variables: dict[str, str]) -> None:
    """Which of several tasks take part is not guessed."""
    expected = (
        "this is a pod of a Volcano job (VC_TASK_INDEX), but it is not certain how many take part and which one this"
        " is: expected --nnodes, --node-rank and --master-addr (--nnodes 1 for this node alone)"
    )

    assert expected == find(variables).doubt


@pytest.mark.parametrize(
    ("variables", "start"),
    [
        ({"MA_NUM_HOSTS": "2", "VC_WORKER_HOSTS": "a,b"}, "MA_NUM_HOSTS is 2, but no variable says which"),
        ({"PET_NNODES": "1:4", "PET_MASTER_ADDR": "a"}, "PET_NNODES is 1:4, but no variable says which"),
        ({"MLP_WORKER_NUM": "2"}, "MLP_WORKER_NUM is 2, but no variable says which"),
        ({"DLS_TASK_NUMBER": "2"}, "DLS_TASK_NUMBER is 2, but no variable says which"),
        ({"VC_WORKER_HOSTS": "a,b"}, "this is a pod of a Volcano job (VC_WORKER_HOSTS), but it is not certain"),
    ],
)
def test_half_of_a_platform(variables: dict[str, str], start: str) -> None:
    """Other nodes, and no number of this one: not to be taken for the only node."""
    assert find(variables).doubt.startswith(start)


@pytest.mark.parametrize(
    "variables", [{"MA_NUM_HOSTS": "1"}, {"PET_NNODES": ""}, {"MLP_WORKER_NUM": "1"}, {"VC_WORKER_HOSTS": "a"}]
)
def test_half_of_a_platform_of_one_node(variables: dict[str, str]) -> None:
    """One node is this one."""
    assert "" == find(variables).doubt


def test_several_nodes_without_a_number_of_this_one() -> None:
    """Each of ModelArts' nodes would take itself for node 0; a rank table decides, or the user."""
    variables = {name: value for name, value in MODELARTS.items() if name != "VC_TASK_INDEX"}
    expected = (
        "there are 2 nodes (MA_NUM_HOSTS), but nothing says which one this is: expected --node-rank (--nnodes 1 for"
        " this node alone)"
    )

    assert expected == find(variables).doubt
    assert "" == find(variables, Said(node_rank=1)).doubt


def test_volcano_pod_without_lists() -> None:
    """Index 0 without any list speaks of nobody else."""
    assert "" == find({"VC_TASK_INDEX": "0"}).doubt


def test_batch_script_of_several_nodes() -> None:
    """An sbatch script that calls the runner without srun runs on one node of several."""
    expected = (
        "SLURM_JOB_NUM_NODES is 2, but srun did not start this process: expected srun --ntasks-per-node=1"
        " --kill-on-bad-exit=1 ascend-runner ..., or --nnodes 1 for this node alone"
    )

    assert expected == find({"SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}).doubt


def test_interactive_step_is_one_node() -> None:
    """The shell of salloc is a step of its own, on one node."""
    found = find({"SLURM_JOB_NUM_NODES": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0"})

    assert (1, "", "127.0.0.1") == (found.nnodes, found.doubt, found.master_addr)


def test_world_size_without_a_second_witness() -> None:
    """WORLD_SIZE and RANK alone are a doubt, not a fact."""
    found = find({"WORLD_SIZE": "4", "RANK": "1"})

    assert (0, 1) == (found.node_rank, found.nnodes)
    assert (
        "WORLD_SIZE is 4 and RANK is 1, but no other variable says whether they count nodes or processes: expected"
        " --nnodes and --node-rank (--nnodes 1 for this node alone)"
    ) == found.doubt


@pytest.mark.parametrize("variables", [{"WORLD_SIZE": "1", "RANK": "0"}, {"WORLD_SIZE": "4"}, {"RANK": "1"}])
def test_world_size_that_speaks_of_nobody_else(variables: dict[str, str]) -> None:
    """One process, or half of the pair, is nothing to doubt."""
    assert "" == find(variables).doubt


# --- What the user says ----------------------------------------------------------------------------------------------


def test_user_overrules_the_platform() -> None:
    """Each thing said takes the place of what the platform told; the hosts go where their number changed."""
    found = find(MODELARTS, Said(nnodes=3, node_rank=2, master_port=4000))

    assert ("ModelArts", 2, 3, 4000, ()) == found[:1] + found[2:4] + found[5:7]
    assert "--nnodes" == found.sources["nnodes"]


@pytest.mark.parametrize("said", [Said(master_port=4000), Said(nnodes=1, master_port=4000)])
def test_port_of_the_users_overrules_one_that_will_not_do(said: Said) -> None:
    """The port that counts is judged, not the one that it takes the place of."""
    assert 4000 == find({**MODELARTS, "MASTER_PORT": "60005"}, said).master_port


def test_complete_settings_ask_no_platform() -> None:
    """Who says everything is not stopped by a broken variable, and keeps the job's name."""
    variables = {**MODELARTS, "MA_NUM_HOSTS": "broken"}
    found = find(variables, Said(nnodes=2, node_rank=0, master_addr="10.0.0.1"))

    assert ("the settings", "10.0.0.1", "modelarts-job-7c1d") == (found.platform, found.master_addr, found.job_id)


@pytest.mark.parametrize(
    ("fixture", "broken", "said", "place"),
    [
        ("modelarts", "MA_NUM_HOSTS", Said(nnodes=2), (1, 2)),
        ("modelarts", "VC_TASK_INDEX", Said(node_rank=0), (0, 2)),
        ("modelarts", "MA_NUM_GPUS", Said(devices_per_node=4), (1, 2)),
        ("octopus", "VC_WORKER_PORT", Said(master_port=4000), (1, 2)),
        ("mindcluster_pytorch", "WORLD_SIZE", Said(nnodes=4), (3, 4)),
        ("kubeflow_trainer", "PET_NNODES", Said(nnodes=3), (1, 3)),
        ("kubeflow_trainer", "PET_NPROC_PER_NODE", Said(devices_per_node=4), (1, 2)),
    ],
)
def test_broken_variable_behind_a_flag(fixture: str, broken: str, said: Said, place: tuple[int, int]) -> None:
    """One flag decides its fact, and the platform still tells the others."""
    variables = {**platform_cases.load(fixture).variables, broken: "1:x"}
    found = find(variables, said)

    assert place == (found.node_rank, found.nnodes)
    assert said.facts.items() <= found._asdict().items()
    with pytest.raises(SettingsError, match=f"{broken} is '1:x'"):
        find(variables)


@pytest.mark.parametrize(
    "said", [Said(nnodes=2, node_rank=0, master_addr="a", master_port=4000), Said(master_port=4000)]
)
def test_broken_port_behind_a_flag(said: Said) -> None:
    """A port that was said is not looked for elsewhere, whether a platform is asked or not."""
    assert 4000 == find({"MASTER_PORT": "http"}, said).master_port


def test_fewer_ranks_do_not_make_more_nodes() -> None:
    """An acjob's nodes are counted by its own cards, however many of them are to be used."""
    found = find(platform_cases.load("mindcluster_pytorch").variables, Said(devices_per_node=2))

    assert (4, 2) == (found.nnodes, found.devices_per_node)


def test_one_node_by_the_settings() -> None:
    """--nnodes 1 means this node alone, whatever variables say."""
    found = find({"WORLD_SIZE": "4", "RANK": "1", "MASTER_PORT": "4001"}, Said(nnodes=1))

    assert ("", 0, "127.0.0.1", 4001) == (found.doubt, found.node_rank, found.master_addr, found.master_port)


def test_number_of_nodes_without_a_number_of_this_one() -> None:
    """Without it every node would be node 0."""
    with pytest.raises(SettingsError) as caught:
        find({}, Said(nnodes=2, master_addr="a"))

    assert "--nnodes is 2, expected --node-rank as well: no platform tells it here" == str(caught.value)


def test_node_rank_alone() -> None:
    """A number of this node needs a number of nodes."""
    with pytest.raises(SettingsError) as caught:
        find({}, Said(node_rank=1))

    assert "--node-rank is 1, expected less than the number of nodes (--nnodes), which is 1" == str(caught.value)


# --- Bad values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"MA_NUM_HOSTS": "x"}, "MA_NUM_HOSTS is 'x', expected a whole number, 1 to 65536"),
        ({"MA_NUM_HOSTS": "9" * 5000}, f"MA_NUM_HOSTS is {'9' * 5000!r}, expected a whole number, 1 to 65536"),
        ({"MA_NUM_HOSTS": "0"}, "MA_NUM_HOSTS is '0', expected a whole number, 1 to 65536"),
        ({"MA_NUM_GPUS": "-1"}, "MA_NUM_GPUS is '-1', expected a whole number, 0 to 65536"),
        ({"VC_TASK_INDEX": "2"}, "VC_TASK_INDEX is 2, expected less than MA_NUM_HOSTS, which is 2"),
        ({"VC_WORKER_HOSTS": "h1,h2\nevil"}, r"VC_WORKER_HOSTS has 'h2\nevil', expected host names"),
        ({"VC_WORKER_HOSTS": "h1,h2\udcff"}, r"VC_WORKER_HOSTS has 'h2\udcff', expected host names"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT is 'http', expected a whole number, 0 to 65536"),
        ({"VC_WORKER_PORT": "0"}, "VC_WORKER_PORT is 0, expected a port, 1 to 65535"),
        (
            {"MASTER_PORT": "60031"},
            "MASTER_PORT is 60031, expected a port that HCCL does not use itself: those are 60000 to 60031 and 16666",
        ),
        (
            {"MASTER_PORT": "16666"},
            "MASTER_PORT is 16666, expected a port that HCCL does not use itself: those are 60000 to 60031 and 16666",
        ),
        (
            {"HCCL_IF_BASE_PORT": "2222", "MASTER_PORT": "2230"},
            "MASTER_PORT is 2230, expected a port that HCCL does not use itself: those are 2222 to 2253 and 16666",
        ),
    ],
)
def test_bad_value(variables: dict[str, str], sentence: str) -> None:
    """A value that cannot be used is one sentence that names its variable."""
    with pytest.raises(SettingsError) as caught:
        find({**MODELARTS, **variables})

    assert sentence == str(caught.value)


def test_variable_without_a_name() -> None:
    """There may be one in an environment, and it says nothing."""
    assert (29500, "127.0.0.1") == (find({"": "x"}).master_port, find({"": "x"}).master_addr)


def test_bad_port_by_flag() -> None:
    """A port of HCCL's is refused from the flag as well."""
    with pytest.raises(SettingsError) as caught:
        find({}, Said(master_port=60000))

    assert str(caught.value).startswith("--master-port is 60000, expected a port that HCCL does not use itself")


def test_cards_that_are_no_multiple() -> None:
    """An acjob's cards divide evenly among its nodes."""
    with pytest.raises(SettingsError) as caught:
        find({**platform_cases.load("mindcluster_pytorch").variables, "WORLD_SIZE": "15"})

    assert "WORLD_SIZE is 15, expected a multiple of LOCAL_WORLD_SIZE, 4" == str(caught.value)


@pytest.mark.parametrize("nproc", ["auto", "gpu", "cpu"])
def test_trainer_that_leaves_the_count_to_torchrun(nproc: str) -> None:
    """No number are torchrun's words for "as many as there are"."""
    found = find({"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": nproc})

    assert found.devices_per_node is None


def test_trainer_that_counts() -> None:
    """A number is a number."""
    variables = {"PET_NNODES": "1", "PET_NODE_RANK": "0"}

    assert 4 == find({**variables, "PET_NPROC_PER_NODE": "4"}).devices_per_node
    with pytest.raises(SettingsError, match="PET_NPROC_PER_NODE is 'all', expected a whole number, 1 to 65536"):
        find({**variables, "PET_NPROC_PER_NODE": "all"})


def test_list_of_hosts_that_is_too_short() -> None:
    """It is not relied on, and a job that has nothing else to go by is not started."""
    found = find({**MODELARTS, "VC_WORKER_HOSTS": "a"})

    assert ((), "") == (found.hosts, found.master_addr)
    assert "VC_WORKER_HOSTS lists 1 hosts, expected as many as MA_NUM_HOSTS, which is 2" == found.doubt


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
    """The platform's own name of the job."""
    assert expected == job_id(variables)


def test_log_dirs() -> None:
    """The platform's log folders, in the order asked."""
    assert ("/b", "/m/log") == log_dirs({"BATCH_TASK_LOG_PATH": "/b", "MA_MOUNT_PATH": "/m/"})
    assert () == log_dirs({})


def test_ranks_without_a_table() -> None:
    """Every node has as many ranks, in the order of the nodes."""
    assert (4, 5) == Node(node_rank=2, nnodes=3).rank_ids(2)
