"""What is said of the job as it would be planned: table, node, variables, command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascend_runner import errors
from ascend_runner.check import job
from ascend_runner.job.settings import Settings
from ascend_runner.rank_table import source
from tests.check.scenes import VALID, advice, job_of, said, scene
from tests.platforms import platform_cases

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "group_list_8_devices.json"


# --- The rank table ---------------------------------------------------------------------------------------------------


def test_table_is_fine() -> None:
    """A table that HCCL would take is told by its size."""
    ((verdict, found),) = said(job.rank_table, scene(table=TABLE))

    assert "ok" == verdict
    assert found.endswith(f"{TABLE}: group list, 1 server, 8 devices")


def test_no_table_is_wanted() -> None:
    """With --nproc-per-node a table is not missed."""
    assert [("ok", "none is wanted for 2 ranks on this node")] == said(job.rank_table, scene(nproc=2))


def test_table_that_the_plan_does_without() -> None:
    """What the launcher plans without a table does not want one, whoever said how many ranks there are."""
    given = scene(nproc=1)._replace(settings=Settings(), table_error=errors.RankTableError("no rank table"))

    assert [("ok", "none is wanted for 1 rank on this node")] == said(job.rank_table, given)


def test_table_is_not_there_yet() -> None:
    """Waiting may mend it, so it is no error; how long a start would wait is told."""
    given = scene()._replace(table_error=errors.RankTableNotReadyError("t.json is not completed: it is empty"))

    assert [("warning", "t.json is not completed: it is empty")] == said(job.rank_table, given)
    assert [
        "a start would wait for it, at most 1800 s; if it stays so, look whether all pods of the job run"
    ] == advice(job.rank_table, given)


def test_all_that_is_wrong_with_a_table() -> None:
    """A table that can never be used is told with each of its errors."""
    bad = errors.RankTableFormatError("one", path="a[0]", others=(errors.RankTableFormatError("two", code="EI0014"),))

    assert [("error", "one, in 'a[0]'"), ("error", "two (EI0014)")] == said(
        job.rank_table, scene()._replace(table_error=bad)
    )


@pytest.mark.parametrize(("settings", "verdict"), [(Settings(), "error"), (Settings(no_table_checks=True), "warning")])
def test_table_that_hccl_would_refuse(tmp_path: Path, settings: Settings, verdict: str) -> None:
    """HCCL's refusals are errors, unless the user launches all the same."""
    text = (VALID / "server_list_8_devices.json").read_text()
    addresses = [device.device_ip for device in source.read(VALID / "server_list_8_devices.json").devices]
    (tmp_path / "twins.json").write_text(text.replace(f'"{addresses[1]}"', f'"{addresses[0]}"'))
    given = scene()._replace(settings=settings, table=source.read(tmp_path / "twins.json"))
    ((said_so, found),) = said(job.rank_table, given)

    assert verdict == said_so
    assert addresses[0] in found
    assert "(EI00" in found


def test_what_is_odd_about_a_table() -> None:
    """What a start would warn of when it reads a table is told with it."""
    table = source.read(VALID / "server_list_version_1_1.json")

    assert [("warning", f"{table.warnings[0]} (EI0014)")] == said(job.rank_table, scene()._replace(table=table))


# --- This node --------------------------------------------------------------------------------------------------------


def test_part_of_this_node() -> None:
    """Ranks, server and pod, as a start would say them."""
    given = scene(nproc=2)
    assert given.job
    pod = given._replace(job=given.job._replace(pod_name="job-worker-0"))

    assert [("ok", "ranks 0, 1 of 2 on 10.0.0.1")] == said(job.this_node, given)
    assert [("ok", "ranks 0, 1 of 2 on 10.0.0.1 (pod job-worker-0)")] == said(job.this_node, pod)


def test_node_is_not_in_the_table() -> None:
    """That is this subject's error, and none of the settings'."""
    given = scene()._replace(job_error=errors.NodeNotFoundError("this node is not in the rank table"))

    assert [("error", "this node is not in the rank table")] == said(job.this_node, given)
    assert [] == said(job.plan, given)


def test_node_is_not_known_yet() -> None:
    """Without a table nothing can be said of it."""
    assert [] == said(job.this_node, scene()._replace(job_error=errors.RankTableNotReadyError("not yet")))


# --- Settings and variables -------------------------------------------------------------------------------------------


def test_what_else_a_start_would_say() -> None:
    """Whatever the launcher refuses or warns of is told, once."""
    given = scene()._replace(job_error=errors.SettingsError("the job id is '..'"), warnings=("odd", "odder"))

    assert [("error", "the job id is '..'"), ("warning", "odd"), ("warning", "odder")] == said(job.plan, given)


def test_variables_agree() -> None:
    """The platform that was recognised is told, and by which variables."""
    ((verdict, found),) = said(job.variables, scene("", {"MASTER_PORT": "2222"}, nproc=1))

    assert "ok" == verdict
    assert found.startswith("no conflict; no platform is recognised: node rank 0 of 1")
    assert found.endswith("port 2222 (MASTER_PORT)")


def test_variables_in_conflict() -> None:
    """All rows of the table of conflicts are told, not only the first that would stop a start."""
    environ = {
        "HCCL_INTRA_PCIE_ENABLE": "1",
        "HCCL_INTRA_ROCE_ENABLE": "1",
        "ASCEND_RT_VISIBLE_DEVICES": "1,0",
        "HCCL_CONNECT_TIMEOUT": "60",
        "TORCHELASTIC_RUN_ID": "old",
    }
    verdicts = [verdict for verdict, _ in said(job.variables, scene("", environ, nproc=1))]

    assert ["error", "error", "warning"] == verdicts


def test_doubt_about_this_nodes_place() -> None:
    """What stops the start is told as an error of the variables, once; where a rank table decides, it is none."""
    given = scene("", {"WORLD_SIZE": "4", "RANK": "2"})
    doubt = given.node.doubt if given.node else ""
    stopped = given._replace(job_error=errors.SettingsError(doubt))

    assert ([("error", doubt)], []) == (said(job.variables, stopped), said(job.plan, stopped))
    assert ["ok"] == [verdict for verdict, _ in said(job.variables, given)]


def test_command_that_is_run_once() -> None:
    """Under mpirun's own ranks the numbers of a node would be told wrong: said is that nothing more is started."""
    variables = platform_cases.load("open_mpi_per_card").variables
    given = scene("", variables)._replace(job=job_of([6])._replace(is_passed_through=True))
    ((verdict, found),) = said(job.variables, given)

    assert "ok" == verdict
    assert found.endswith("so the command is run once, as it is")


def test_variable_that_cannot_be_read() -> None:
    """A value that is none is the only thing to be said."""
    given = scene()._replace(node=None, node_error=errors.SettingsError("MASTER_PORT is 'x'"))

    assert [("error", "MASTER_PORT is 'x'")] == said(job.variables, given)


# --- The command ------------------------------------------------------------------------------------------------------


def test_no_command() -> None:
    """Without one nothing is said of it."""
    assert [] == said(job.command, scene(nproc=1))


def test_command_is_not_there() -> None:
    """The launcher's own sentence is told."""
    given = scene(nproc=1)._replace(
        command=("trian",), command_error=errors.CommandError("there is no command 'trian'", exit_status=127)
    )

    assert [("error", "there is no command 'trian'")] == said(job.command, given)


def planned(folder: Path, *argv: str) -> list[tuple[str, str]]:
    """Say what is said of a command that is planned to run in a folder."""
    return said(job.command, scene()._replace(command=argv, job=job_of([0], folder=str(folder), argv=argv)))


def test_script_is_there(tmp_path: Path) -> None:
    """The command is told with the program that runs it, and with what that really is."""
    (tmp_path / "python3.9").touch()
    (tmp_path / "python").symlink_to("python3.9")
    (tmp_path / "train.py").touch()
    python = str(tmp_path / "python")

    assert [("ok", f"{python} train.py --epochs 5 ...: {python} ({python}3.9)")] == planned(
        tmp_path, python, "train.py", "--epochs", "5", "--lr", "1"
    )
    assert [("ok", f"{python} -m train: {python} ({python}3.9)")] == planned(tmp_path, python, "-m", "train")


def test_script_is_missing(tmp_path: Path) -> None:
    """A script that is not there is told by its full path."""
    (tmp_path / "python").touch()

    assert [("error", f"there is no {tmp_path}/trian.py")] == planned(tmp_path, str(tmp_path / "python"), "trian.py")


def test_script_is_judged_while_the_table_is_awaited(tmp_path: Path) -> None:
    """A missing table does not hide a missing script."""
    argv = ("/bin/python3", "trian.py")
    given = scene()._replace(command=argv, trial=job_of([0], folder=str(tmp_path), argv=argv))

    assert [("error", f"there is no {tmp_path}/trian.py")] == said(job.command, given)


@pytest.mark.parametrize(("line", "missing"), [("#! /nowhere/python -u\n", "/nowhere/python"), ("#!/bin/sh\n", "")])
def test_interpreter_of_a_script(tmp_path: Path, line: str, missing: str) -> None:
    """A script whose interpreter is not there would end in a misleading "not found"."""
    script = tmp_path / "train"
    script.write_text(line)
    ((verdict, found),) = planned(tmp_path, str(script))

    assert ("error" if missing else "ok") == verdict
    assert not missing or f"{script} is to be run by {missing}, which is not there" == found
