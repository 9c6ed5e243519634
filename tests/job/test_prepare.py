"""From a command to its plan, or to all problems at once, without a process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import attrs
import pytest

from ascend_runner.errors import CommandError, RankTableNotReadyError, SettingsError
from ascend_runner.job.preparation import Preparation, Preparer
from ascend_runner.plan.ranks import PlanContext
from ascend_runner.problems import Severity, Subject
from ascend_runner.rank_table import RankTable
from ascend_runner.ranks.messages import Messages
from ascend_runner.settings.model import Settings
from tests.platforms import platform_cases

VALID = Path(__file__).parents[2] / "fixtures" / "valid"
TABLE = str(VALID / "group_list_8_devices.json")
PYTHON = os.path.dirname(sys.executable)
TWO_RANKS = Settings(nproc_per_node=2)
TWO_NODES = Settings(nnodes=2, node_rank=1, master_addr="a")


@attrs.define
class Preparing:
    """Prepares jobs in a directory, and counts the pauses in which something was waited for."""

    folder: Path
    pauses: int = 0
    former: RankTable | None = None
    shown: list[str] = attrs.field(factory=list)

    def prepare(
        self,
        settings: Settings = TWO_RANKS,
        *argv: str,
        environ: Mapping[str, str] | None = None,
        reserve_port: Callable[[Iterable[int]], int | None] = lambda ports: next(iter(ports)),
        folders: Collection[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> Preparation:
        """Prepare a command, by default one that exists."""
        context = PlanContext(
            settings=settings,
            command=argv or ("python", "train.py"),
            environ={"PATH": PYTHON, **(environ or {})},
            cwd=str(self.folder),
            host_name="some-host",
            is_folder=folders.__contains__,
            read_text=lambda path: (files or {}).get(path, ""),
            reserve_port=reserve_port,
        )
        messages = Messages(lambda data: self.shown.append(data.decode()))
        return Preparer(context, messages, self._pause, former=self.former).prepare()

    def _pause(self, _seconds: float) -> None:
        self.pauses += 1


@pytest.fixture
def preparing(tmp_path: Path) -> Preparing:
    """Prepare jobs in an empty directory."""
    return Preparing(tmp_path)


def subjects(prepared: Preparation, severity: Severity = Severity.ERROR) -> list[Subject | None]:
    """Return the subjects of the problems with a severity."""
    return [problem.subject for problem in prepared.problems if problem.severity is severity]


def test_plan_without_problems(preparing: Preparing) -> None:
    """A job without problems has a plan, which can be started."""
    prepared = preparing.prepare()

    assert () == prepared.problems
    assert [0, 1] == [rank.rank_id for rank in prepared.job().ranks]


def test_table_decides_on_the_ranks(preparing: Preparing) -> None:
    """With a rank table the ranks are those of this node in the table."""
    prepared = preparing.prepare(Settings(rank_table=TABLE))

    assert list(range(8)) == [rank.rank_id for rank in prepared.job().ranks]
    assert prepared.table is not None


# --- All problems -----------------------------------------------------------------------------------------------------


def test_independent_problems_are_found_together(preparing: Preparing) -> None:
    """Command, working directory, job id, node and rank table are all checked; the first error decides the status."""
    (preparing.folder / "broken.json").write_text('{"status": "completed", "server_list": 5}')
    prepared = preparing.prepare(
        Settings(rank_table="broken.json", workdir="nowhere"),
        "trian",
        environ={"MA_VJ_NAME": "a/b", "MASTER_PORT": "x"},
    )

    assert [
        Subject.COMMAND,
        Subject.SETTINGS,
        Subject.VARIABLES,
        Subject.SETTINGS,
        Subject.RANK_TABLE,
    ] == subjects(prepared)
    assert isinstance(prepared.error, CommandError)
    assert 127 == prepared.error.exit_status
    with pytest.raises(CommandError):
        prepared.job()


def test_all_conflicts_of_variables_are_found(preparing: Preparing) -> None:
    """Each row of the table of conflicts is reported, not only the first one that stops a start."""
    prepared = preparing.prepare(
        environ={
            "HCCL_INTRA_PCIE_ENABLE": "1",
            "HCCL_INTRA_ROCE_ENABLE": "1",
            "ASCEND_RT_VISIBLE_DEVICES": "1,0",
            "HCCL_CONNECT_TIMEOUT": "60",
            "TORCHELASTIC_RUN_ID": "old",
        }
    )

    assert [Subject.VARIABLES] * 2 == subjects(prepared)
    assert [Subject.VARIABLES] == subjects(prepared, Severity.WARNING)


def test_conflicts_are_found_while_the_table_is_missing(preparing: Preparing) -> None:
    """A rank table that is not there yet does not hide a conflict of variables."""
    environ = {"HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "1"}
    prepared = preparing.prepare(Settings(rank_table="later.json", check=True), environ=environ)

    assert [Subject.VARIABLES] == subjects(prepared)
    assert [Subject.RANK_TABLE] == subjects(prepared, Severity.WARNING)


def test_plan_in_spite_of_a_missing_command(preparing: Preparing) -> None:
    """A missing command does not hide what else would be planned, but the job cannot be started."""
    prepared = preparing.prepare(TWO_RANKS, "trian")

    assert prepared.plan is not None
    assert [0, 1] == [rank.rank_id for rank in prepared.plan.ranks]
    with pytest.raises(CommandError):
        prepared.job()


def test_rejections_of_hccl(preparing: Preparing) -> None:
    """Each defect that HCCL would reject is an error with HCCL's code, unless the checks are switched off."""
    devices = [{"device_id": str(rank), "device_ip": "10.0.0.1", "rank_id": str(rank)} for rank in range(3)]
    server = {"server_id": "10.0.0.9", "device": devices}
    table = {"status": "completed", "version": "1.0", "server_count": "1", "server_list": [server]}
    (preparing.folder / "twins.json").write_text(json.dumps(table))
    checked = preparing.prepare(Settings(rank_table="twins.json"))
    unchecked = preparing.prepare(Settings(rank_table="twins.json", no_table_checks=True))

    assert ["EI0014"] * 2 == [problem.code for problem in checked.about(Subject.RANK_TABLE)]
    assert all("--no-table-checks" in problem.remedy for problem in checked.problems)
    assert 3 == len(unchecked.job().ranks)


@pytest.mark.parametrize(
    ("name", "has_hint"), [("rank_list_rank_count_wrong", True), ("group_list_status_missing", False)]
)
def test_hint_to_skip_the_checks(preparing: Preparing, name: str, *, has_hint: bool) -> None:
    """An error in a table ends with the option that lets the table pass, if there is one."""
    prepared = preparing.prepare(Settings(rank_table=str(VALID.parent / "invalid" / f"{name}.json")))

    assert has_hint is ("--no-table-checks" in str(prepared.error))


def test_table_and_options_that_disagree(preparing: Preparing) -> None:
    """A contradiction between the rank table and the options is a problem of this node."""
    prepared = preparing.prepare(Settings(rank_table=TABLE, nnodes=2, node_rank=0, master_addr="a"))

    assert [Subject.NODE] == subjects(prepared)


@pytest.mark.parametrize(
    ("name", "linger", "expected"),
    [("mindcluster_pytorch", None, 30.0), ("mindcluster_mindspore", 0.0, 0.0), ("pai", None, 0.0), ("pai", 9.0, 9.0)],
)
def test_nodes_linger_on_mindcluster(preparing: Preparing, name: str, linger: float | None, expected: float) -> None:
    """Nodes that have only lost another one stay by default where the platform gives up on a job that fails at once."""
    prepared = preparing.prepare(Settings(linger=linger), environ=platform_cases.load(name).variables)

    assert expected == prepared.job().restarts.linger


def test_least_number_of_nodes_requires_a_table(preparing: Preparing) -> None:
    """Only a rank table can say that fewer nodes take part: without one, --min-nodes is refused."""
    prepared = preparing.prepare(Settings(nproc_per_node=2, nnodes=2, node_rank=0, master_addr="a", min_nodes=1))

    assert [Subject.SETTINGS] == subjects(prepared)
    assert isinstance(prepared.error, SettingsError)


def test_ambiguous_place_of_this_node(preparing: Preparing) -> None:
    """Variables that do not determine this node's place are an error, unless a rank table does."""
    environ = {"WORLD_SIZE": "4", "RANK": "2"}

    assert [Subject.VARIABLES] == subjects(preparing.prepare(environ=environ))
    assert [] == subjects(preparing.prepare(Settings(rank_table=TABLE), environ=environ))


# --- Waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "argv", "sentence"),
    [
        (attrs.evolve(TWO_RANKS, linger=5.0), (), "--linger has no effect on a single-node job"),
        (TWO_RANKS, ("python", "train.py", "{stage:0}"), "--stage is not set"),
    ],
)
def test_what_has_no_effect_is_a_warning(
    preparing: Preparing, settings: Settings, argv: tuple[str, ...], sentence: str
) -> None:
    """An option or placeholder without effect is reported, and the job starts."""
    prepared = preparing.prepare(settings, *argv)

    assert prepared.error is None
    assert [sentence] == [sentence for problem in prepared.problems if sentence in str(problem)]


def test_options_of_several_nodes(preparing: Preparing) -> None:
    """--linger has an effect on several nodes."""
    settings = attrs.evolve(TWO_RANKS, nnodes=2, node_rank=0, master_addr="a", linger=5.0)
    prepared = preparing.prepare(attrs.evolve(settings, inspect="warn"))

    assert () == prepared.problems


@pytest.mark.parametrize(
    ("settings", "has_link"),
    [
        (attrs.evolve(TWO_NODES, nproc_per_node=2), True),
        (attrs.evolve(TWO_NODES, rank_table="later.json"), True),
        (attrs.evolve(TWO_NODES, nproc_per_node=2, dry_run=True), False),
        (attrs.evolve(TWO_NODES, nproc_per_node=2, link="off"), False),
        (Settings(rank_table="later.json"), False),
        (TWO_RANKS, False),
    ],
)
def test_other_nodes_are_known_in_spite_of_an_error(
    preparing: Preparing, settings: Settings, *, has_link: bool
) -> None:
    """A node with an error can tell the others, unless its options do not say where they are."""
    outline = preparing.prepare(settings, "trian").outline

    assert has_link is bool(outline and outline.link)


def test_nobody_waits_after_an_error(preparing: Preparing) -> None:
    """With an error there is no wait for a rank table, and a table that is not there yet is no further problem."""
    prepared = preparing.prepare(Settings(rank_table="later.json"), "trian")

    assert [Subject.COMMAND] == subjects(prepared)
    assert 1 == len(prepared.problems)
    assert 0 == preparing.pauses


@pytest.mark.parametrize("text", [None, "", "{", '{"status": "initializing"}', '{"status": "completed"}'])
def test_table_that_is_known_is_not_awaited(preparing: Preparing, text: str | None) -> None:
    """If all runners live on, a restart does not depend on whether the platform's file is still there."""
    settings = Settings(rank_table="table.json")
    path = preparing.folder / "table.json"
    path.write_bytes(Path(TABLE).read_bytes())
    former = preparing.former = preparing.prepare(settings).table
    path.unlink() if text is None else path.write_text(text)
    again = preparing.prepare(settings)

    assert (former, 8, 0) == (again.table, len(again.job().ranks), preparing.pauses)


def test_table_that_has_changed_is_read(preparing: Preparing) -> None:
    """A new table takes the place of the one that is known."""
    preparing.former = preparing.prepare(Settings(rank_table=TABLE)).table
    again = preparing.prepare(Settings(rank_table=str(VALID / "group_list_1_device.json")))

    assert 1 == len(again.job().ranks)


def test_wait_for_the_table(preparing: Preparing) -> None:
    """Without an error the rank table is awaited up to its limit."""
    prepared = preparing.prepare(Settings(rank_table="later.json", rank_table_timeout=0.001))

    assert isinstance(prepared.error, RankTableNotReadyError)
    assert 0 < preparing.pauses


# --- One process ------------------------------------------------------------------------------------------------------


def test_rank_of_another_launcher(preparing: Preparing) -> None:
    """A process that mpirun started as one of several on this node runs the command once, as its rank."""
    prepared = preparing.prepare(Settings(), environ=platform_cases.load("open_mpi_per_card").variables)

    assert prepared.job().is_passed_through
    assert 1 == len(prepared.job().processes)
    assert "OMPI_COMM_WORLD_LOCAL_SIZE" in prepared.why


HOROVOD = {"HYDRA_HOST_FILE": "/etc/mpi/mpich_hostfile", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}
HOST_FILES = {"/etc/mpi/hostfile": "server1 slots=4\nserver2 slots=4\n"}


@pytest.mark.parametrize(
    ("settings", "argv", "files", "launched"),
    [
        (Settings(), (), HOST_FILES, "mpirun --allow-run-as-root -np 8"),
        (Settings(), ("mpirun", "-np", "8", "train"), HOST_FILES, "mpirun -np 8 train"),
        (Settings(), ("bash", "-c", "mpirun -np 8 train"), HOST_FILES, "bash -c mpirun -np 8 train"),
        (TWO_RANKS, (), HOST_FILES, "python train.py"),
        (Settings(rank_table=TABLE), (), HOST_FILES, "python train.py"),
        (Settings(), (), {}, ""),
    ],
)
def test_mode_of_horovod(
    preparing: Preparing, settings: Settings, argv: tuple[str, ...], files: dict[str, str], launched: str
) -> None:
    """A host file of the platform puts mpirun before a command that lacks it, unless the user names the ranks."""
    path = f"{_program(preparing.folder, 'mpirun')['PATH']}:{PYTHON}:/bin"
    environ = {**HOROVOD, "PATH": path, "HOSTNAME": "server1"}
    prepared = preparing.prepare(settings, *argv, environ=environ, files=files)

    if launched:
        assert " ".join(prepared.job().processes[0].argv).startswith(launched)
    else:
        assert "--nproc-per-node" in str(prepared.error)


def test_mode_of_horovod_with_mpich(preparing: Preparing) -> None:
    """MPICH's mpirun gets the number of processes, but none of Open MPI's options."""
    environ = {**_program(preparing.folder, "mpirun"), "HYDRA_HOST_FILE": "hosts", "HOSTNAME": "server1"}
    files = {str(preparing.folder / "hosts"): "server1:4\nserver2:4\n"}
    prepared = preparing.prepare(Settings(), environ=environ, files=files)

    assert "mpirun -np 8 python train.py" == " ".join(prepared.job().processes[0].argv)


@pytest.mark.parametrize(
    ("settings", "programs"), [(Settings(), ["mpirun"]), (Settings(), []), (Settings(bind="cores"), ["mpirun"])]
)
def test_mode_of_horovod_names_no_option_that_was_not_given(
    preparing: Preparing, settings: Settings, programs: Sequence[str]
) -> None:
    """The variable is named that has put mpirun before the command, never --launcher."""
    environ = {**HOROVOD, "PATH": "/nowhere", "HOSTNAME": "server1"}
    for name in programs:
        environ.update(_program(preparing.folder, name))
    prepared = preparing.prepare(settings, environ=environ, files=HOST_FILES)
    shown = "".join((*preparing.shown, *map(str, prepared.problems)))

    assert "mpirun" in shown
    assert "--launcher" not in shown


@pytest.mark.parametrize("argv", [(), ("mpirun", "-np", "8", "train"), ("deepspeed", "train.py")])
@pytest.mark.parametrize(("log_dir", "is_refused"), [(None, True), ("/shared", False)])
def test_wait_for_node_0(preparing: Preparing, argv: tuple[str, ...], log_dir: str, *, is_refused: bool) -> None:
    """Another node can wait for the report of node 0 only in a log directory that is not its own."""
    programs = {**_program(preparing.folder, "mpirun"), **_program(preparing.folder, "deepspeed")}
    prepared = preparing.prepare(
        Settings(log_dir=log_dir), *argv, environ={**HOROVOD, **programs, "HOSTNAME": "server2"}, files=HOST_FILES
    )

    assert is_refused is ("--log-dir" in str(prepared.error))
    assert is_refused is (prepared.error is not None)


def test_engine_that_is_missing(preparing: Preparing) -> None:
    """An engine that is not installed is a problem of the settings, not of the command."""
    (preparing.folder / "python").write_text("#!/bin/sh\n")
    (preparing.folder / "python").chmod(0o755)
    environ = {"PATH": str(preparing.folder)}
    prepared = preparing.prepare(Settings(nproc_per_node=2, launcher="torchrun"), environ=environ)

    assert [Subject.SETTINGS] == subjects(prepared)
    assert 127 == prepared.problems[0].exit_status
    assert "'torchrun'; it starts the ranks: " in prepared.problems[0].sentence


@pytest.mark.parametrize("changes", [{"workdir": "device"}, {"bind": "cores"}, {"isolate_devices": True}])
def test_options_that_an_engine_cannot_apply(preparing: Preparing, changes: Mapping[str, object]) -> None:
    """Options for single ranks are refused if another engine starts the ranks."""
    settings = attrs.evolve(TWO_RANKS, launcher="torchrun", **changes)  # type: ignore[arg-type]  # names of fields

    assert isinstance(preparing.prepare(settings).error, SettingsError)


@pytest.mark.parametrize(
    ("conf", "is_bound"), [("1", False), ("2,npu0:0-1", False), ("mode:1", False), ("0", True), ("", True)]
)
def test_ranks_that_torch_npu_binds(preparing: Preparing, conf: str, *, is_bound: bool) -> None:
    """Where CPU_AFFINITY_CONF makes torch_npu bind the ranks, --bind leaves them alone, with a warning."""
    prepared = preparing.prepare(attrs.evolve(TWO_RANKS, bind="cores"), environ={"CPU_AFFINITY_CONF": conf})

    assert [is_bound] * 2 == [rank.cores is not None for rank in prepared.job().ranks]
    assert ([] if is_bound else [Subject.SETTINGS]) == subjects(prepared, Severity.WARNING)


# --- Working directories ----------------------------------------------------------------------------------------------


def _here(_folder: Path) -> None:
    pass


def _there(folder: Path) -> None:
    (folder / "there" / "train.py").write_text("")


@pytest.mark.parametrize(("lay", "expected"), [(_here, [Subject.SETTINGS]), (_there, [])])
def test_script_in_another_working_directory(
    preparing: Preparing, lay: Callable[[Path], None], expected: list[Subject]
) -> None:
    """A relative script that exists here must exist in the ranks' working directory, too."""
    (preparing.folder / "train.py").write_text("")
    (preparing.folder / "there").mkdir()
    lay(preparing.folder)

    assert expected == subjects(preparing.prepare(attrs.evolve(TWO_RANKS, workdir="there")))


def test_conda_environment(preparing: Preparing) -> None:
    """The programs of a conda environment come first; one that does not exist is an error."""
    python = preparing.folder / "conda" / "envs" / "job" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    environ = {"ANACONDA_DIR": str(preparing.folder / "conda"), "DEFAULT_CONDA_ENV_NAME": "job"}
    missing = {**environ, "DEFAULT_CONDA_ENV_NAME": "other"}

    assert str(python) == preparing.prepare(environ=environ).job().ranks[0].executable
    assert [Subject.SETTINGS] == subjects(preparing.prepare(environ=missing))
    asked = attrs.evolve(TWO_RANKS, conda_env="other")
    assert [Subject.SETTINGS] == subjects(preparing.prepare(asked, environ=environ))


@pytest.mark.parametrize("name", ["train.py", "./train.py"])
def test_script_without_python(preparing: Preparing, name: str) -> None:
    """A Python script that cannot be executed is answered with the command that works."""
    (preparing.folder / "train.py").write_text("")
    prepared = preparing.prepare(TWO_RANKS, name)

    assert isinstance(prepared.error, CommandError)
    assert f"ascend-runner python {name}?" in str(prepared.error)


@pytest.mark.parametrize("selected", [Settings(console=frozenset({1, 7})), Settings(stdin=7)])
def test_selection_of_a_rank_that_does_not_exist(preparing: Preparing, selected: Settings) -> None:
    """A rank that the job does not have is refused; one of another node is not."""
    alone = preparing.prepare(attrs.evolve(selected, nproc_per_node=2))
    several = attrs.evolve(selected, nproc_per_node=4, nnodes=2, node_rank=0, master_addr="10.0.0.1")

    (problem,) = alone.about(Subject.SETTINGS)
    assert (Severity.ERROR, True) == (problem.severity, "rank 7" in str(problem))
    assert () == preparing.prepare(several).about(Subject.SETTINGS)


# --- How many processes -----------------------------------------------------------------------------------------------

ENGINE = ("torchrun", "--nproc_per_node", "2", "train.py")


def _program(folder: Path, name: str) -> dict[str, str]:
    """Make a program, and return the environment in which it is found."""
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def test_engine_as_the_command_runs_once(preparing: Preparing) -> None:
    """An engine runs once, as it is, and not once per device of the platform's count."""
    environ = {**_program(preparing.folder, "torchrun"), "SLOTS": "2", "WORLD_SIZE": "1", "RANK": "0"}
    job = preparing.prepare(Settings(), *ENGINE, environ=environ).job()

    assert [ENGINE] == [process.argv for process in job.processes]
    assert "RANK_ID" not in job.processes[0].env


@pytest.mark.parametrize(
    ("settings", "environ", "count"),
    [
        (TWO_RANKS, {}, "2"),
        (Settings(), {"SLOTS": "2", "WORLD_SIZE": "1", "RANK": "0"}, "2"),
        (Settings(rank_table=TABLE), {}, "8"),
    ],
)
def test_command_that_starts_torchrun_itself(
    preparing: Preparing, settings: Settings, environ: dict[str, str], count: str
) -> None:
    """It runs once as well, and learns the number of processes, wherever that comes from."""
    command, path = ("swift", "sft", "--model", "x"), _program(preparing.folder, "swift")
    job = preparing.prepare(settings, *command, environ={**path, **environ}).job()

    assert [("swift", command)] == [(process.title, process.argv) for process in job.processes]
    assert count == job.processes[0].env["NPROC_PER_NODE"]
    assert "RANK_TABLE_FILE" not in job.processes[0].env


def test_command_that_counts_the_devices_itself(preparing: Preparing) -> None:
    """Where nothing gives their number, LLaMA-Factory counts them on each node."""
    command, path = ("llamafactory-cli", "train", "x.yaml"), _program(preparing.folder, "llamafactory-cli")
    nodes = Settings(nnodes=2, node_rank=1, master_addr="a")
    alone, one = (preparing.prepare(settings, *command, environ=path).job() for settings in (Settings(), nodes))

    assert not {"FORCE_TORCHRUN", "NNODES"} & alone.processes[0].env.keys()
    assert ("1", "2") == tuple(one.processes[0].env[name] for name in ("FORCE_TORCHRUN", "NNODES"))
    assert "NPROC_PER_NODE" not in one.processes[0].env


def test_package_of_a_missing_command(preparing: Preparing) -> None:
    """If the package has another name than the command, the error says how to install it."""
    prepared = preparing.prepare(TWO_RANKS, "swift", "sft", environ={"PATH": str(preparing.folder)})

    assert "(pip install ms-swift)" in str(prepared.error)


TORCH_NODES = {"SLOTS": "2", "WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "a"}
ONE_NODE = Settings(nnodes=1)


@pytest.mark.parametrize(
    ("settings", "options", "environ", "part"),
    [
        (Settings(), (), {}, ""),
        (ONE_NODE, (), TORCH_NODES, ""),
        (Settings(), (), TORCH_NODES, "-node-1"),
        (Settings(), ("--nnodes=2",), {}, "-some-host"),
        (Settings(), (), {"WORLD_SIZE": "2", "RANK": "1"}, "-some-host"),
        (attrs.evolve(TWO_RANKS, launcher="torchrun"), None, {}, ""),
        (Settings(launcher="torchrun"), None, TORCH_NODES, "-node-1"),
    ],
)
def test_files_of_an_engine(
    preparing: Preparing, settings: Settings, options: tuple[str, ...] | None, environ: dict[str, str], part: str
) -> None:
    """Only on several nodes the report carries the node: its number, or its name if the number is unknown."""
    command = ("python", "train.py") if options is None else (ENGINE[0], *options, *ENGINE[1:])
    path = f"{_program(preparing.folder, 'torchrun')['PATH']}:{PYTHON}"
    job = preparing.prepare(settings, *command, environ={"PATH": path, **environ}).job()

    assert f"train-report{part}.json" == os.path.basename(job.report_path)


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({"VK_TASK_INDEX": "0"}, ""),
        ({"MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "0", "VC_TASK_INDEX": "0"}, ""),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'}, "-node-1"),
        ({"TF_CONFIG": '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}'}, "-some-host"),
    ],
)
def test_files_of_a_single_process(preparing: Preparing, environ: dict[str, str], part: str) -> None:
    """A process that is all of its job has a report without a node, and the name of its command."""
    job = preparing.prepare(Settings(), environ=environ).job()

    assert f"train-report{part}.json" == os.path.basename(job.report_path)
    assert ("some-host" if part == "-some-host" else f"train{part}") == job.processes[0].title


@pytest.mark.parametrize("settings", [TWO_RANKS, Settings(rank_table=TABLE)])
def test_engine_as_the_command_of_several_ranks(preparing: Preparing, settings: Settings) -> None:
    """An engine once per device would be n x n processes: refused."""
    prepared = preparing.prepare(settings, *ENGINE, environ=_program(preparing.folder, "torchrun"))

    assert isinstance(prepared.error, SettingsError)


OCTOPUS = {"MA_NUM_HOSTS": "1", "VC_TASK_INDEX": "0"}
TF_WORKER = {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'}


@pytest.mark.parametrize("count", [{}, {"MA_NUM_GPUS": ""}])
def test_count_of_devices_that_is_not_set(preparing: Preparing, count: dict[str, str]) -> None:
    """MA_NUM_HOSTS without MA_NUM_GPUS means one device, as the Octopus guide reads it."""
    assert 1 == len(preparing.prepare(Settings(), environ={**OCTOPUS, **count}).job().ranks)


ONE_OF_ONE = {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "1", "RANK": "0"}
VOLCENGINE = {"MLP_WORKER_NUM": "1", "MLP_ROLE_INDEX": "0", "MLP_WORKER_0_HOST": "a"}


@pytest.mark.parametrize(
    "environ",
    [
        {**OCTOPUS, "MA_NUM_GPUS": "0"},
        {**VOLCENGINE, "MLP_WORKER_GPU": "0"},
        TF_WORKER,
        {"VK_TASK_INDEX": "0"},
        {"VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "job-worker-0.job", "VC_WORKER_NUM": "1"},
        {"VC_TASK_INDEX": "0", **ONE_OF_ONE},
        {"HOSTNAME": "job-master-0", **ONE_OF_ONE},
    ],
)
def test_command_without_devices_runs_once(preparing: Preparing, environ: dict[str, str]) -> None:
    """A node without a device, or a task or a single pod without a count of devices, runs the command once."""
    job = preparing.prepare(Settings(), environ=environ).job()

    assert () == job.ranks
    assert [("python", "train.py")] == [process.argv for process in job.processes]


def test_single_mode_of_the_task_training_platform(preparing: Preparing) -> None:
    """Its directories are enough to run the command once, unless a variable hints at several nodes or processes."""
    layout = {"/workspace/algorithm"}
    jobs = [
        preparing.prepare(Settings(), environ=environ, folders=layout)
        for environ in ({}, {"VK_TASK_INDEX": "1"}, {"WORLD_SIZE": "2"}, {"HYDRA_HOST_FILE": "/nowhere"})
    ]

    assert [("python", "train.py")] == [process.argv for process in jobs[0].job().processes]
    assert [False, True, True, True] == [job.error is not None for job in jobs]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        VOLCENGINE,
        ONE_OF_ONE,
        {"VK_TASK_INDEX": "0", "VC_WORKER_HOSTS": "a.job,b.job"},
        {"VK_TASK_INDEX": "0", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"},
        {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "auto"},
        {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NODEID": "0"},
        {"HOSTNAME": "job-master-0", **ONE_OF_ONE, "WORLD_SIZE": "2"},
    ],
)
def test_number_of_ranks_is_never_guessed(preparing: Preparing, environ: dict[str, str]) -> None:
    """Where nothing gives the number of devices and the platform may have several, --nproc-per-node is required."""
    prepared = preparing.prepare(Settings(), environ=environ)

    assert "--nproc-per-node 1" in str(prepared.error)


def test_tasks_of_volcano(preparing: Preparing) -> None:
    """On Volcano a parameter server runs the command once, and each worker's ranks get tasks of their own."""
    lists = {"VC_PS_HOSTS": "ps-0.job", "VC_WORKER_HOSTS": "w-0.job,w-1.job", "VC_TASK_INDEX": "0", "SLOTS": "2"}
    server = preparing.prepare(Settings(), environ={**lists, "HOSTNAME": "ps-0"}).job()
    worker = preparing.prepare(Settings(dry_run=True), environ={**lists, "HOSTNAME": "w-1", "VC_TASK_INDEX": "1"}).job()

    assert () == server.ranks
    assert '"type": "ps"' in server.processes[0].env["TF_CONFIG"]
    assert [2, 3] == [rank.rank_id for rank in worker.ranks]
    assert 2 == len({rank.env["TF_CONFIG"] for rank in worker.ranks})


@pytest.mark.parametrize(
    ("settings", "command", "slots", "is_made"),
    [
        (Settings(), ("python", "train.py"), "", True),
        (Settings(), ("python", "train.py"), "2", True),
        (Settings(framework="torch"), ("python", "train.py"), "", False),
        (Settings(nproc_per_node=2), ("python", "train.py"), "", False),
        (Settings(), ENGINE, "2", False),
        (Settings(launcher="torchrun"), ("python", "train.py"), "2", False),
    ],
)
def test_workers_of_the_task_training_platform(
    preparing: Preparing, settings: Settings, command: tuple[str, ...], slots: str, *, is_made: bool
) -> None:
    """Workers in the platform's directories are TensorFlow's, unless a framework, ranks or an engine is named."""
    environ = {"VC_WORKER_HOSTS": "a.job,b.job", "VK_TASK_INDEX": "1", "SLOTS": slots}
    environ.update(_program(preparing.folder, "torchrun"))
    prepared = preparing.prepare(settings, *command, environ=environ, folders=("/workspace/algorithm",))

    assert is_made is ("TF_CONFIG" in prepared.context.environ)


@pytest.mark.parametrize(
    ("settings", "environ", "port", "reserved"),
    [
        (TWO_RANKS, {}, "29502", [29500, 29501, 29502]),
        (attrs.evolve(TWO_RANKS, master_port=4000), {}, "4000", [4000]),
        (TWO_RANKS, {"MASTER_PORT": "4001"}, "4001", [4001]),
        (attrs.evolve(TWO_RANKS, nnodes=2, node_rank=0, master_addr="127.0.0.1"), {}, "29500", [29500]),
        (attrs.evolve(TWO_RANKS, nnodes=2, node_rank=1, master_addr="127.0.0.1"), {}, "29500", []),
    ],
    ids=["single", "flag", "variable", "several", "another-node"],
)
def test_port_of_node_0(
    preparing: Preparing, settings: Settings, environ: dict[str, str], port: str, reserved: list[int]
) -> None:
    """Only a single node gets a free port, unless one is set; it is reserved on node 0 in any case."""
    tried: list[int] = []

    def reserve(ports: Iterable[int]) -> int:
        tried.extend(islice(ports, 3))
        return tried[-1]

    job = preparing.prepare(settings, environ=environ, reserve_port=reserve).job()

    assert {port} == {rank.env["MASTER_PORT"] for rank in job.ranks}
    assert reserved == tried
