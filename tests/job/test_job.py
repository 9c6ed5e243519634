"""Findings about the job as it would be planned: table, node, settings, variables, command."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import pytest

from ascend_runner.job.check import CheckContext
from ascend_runner.plan.spec import TableFile
from ascend_runner.problems import Problem, Severity, Subject
from ascend_runner.rank_table import source
from ascend_runner.settings.model import Settings
from tests.helpers.plans import changed
from tests.helpers.waiting import LIMIT
from tests.job.contexts import VALID, context, in_context, job_of, look_at, prepared, remedies

TABLE = "group_list_8_devices.json"


def problem(subject: Subject, sentence: str, severity: Severity = Severity.ERROR, **facts: object) -> Problem:
    """Make a problem that the launcher found."""
    return attrs.evolve(Problem(severity=severity, sentence=sentence, subject=subject), **facts)  # type: ignore[arg-type]  # the names and types of fields


def test_table_is_fine() -> None:
    """A rank table without problems is described by its size."""
    ((verdict, sentence),) = look_at("rank table", context(table=TABLE))

    assert "ok" == verdict
    assert sentence.endswith(f"{TABLE}: group list, 1 server, 8 devices")


def test_no_table_is_needed() -> None:
    """A job without a rank table reports its number of ranks."""
    assert [("ok", "not needed for 2 ranks on this node")] == look_at("rank table", context(nproc=2))


def test_problems_of_a_table() -> None:
    """All problems of a rank table are reported, and a remedy in common only once."""
    problems = tuple(problem(Subject.RANK_TABLE, sentence, remedy="mend it") for sentence in ("one", "two"))
    given = prepared(context(table=TABLE), problems=problems)

    assert [("error", "one"), ("error", "two")] == look_at("rank table", given)
    assert ["mend it"] == remedies("rank table", given)


def test_rejections_with_checks_switched_off(tmp_path: Path) -> None:
    """With --no-table-checks the problems that HCCL would report are warnings."""
    text = (VALID / "server_list_8_devices.json").read_text()
    addresses = [device.device_ip for device in source.read(VALID / "server_list_8_devices.json").devices]
    (tmp_path / "twins.json").write_text(text.replace(f'"{addresses[1]}"', f'"{addresses[0]}"'))
    given = context(nproc=8, table="server_list_8_devices.json")
    plan = changed(job_of(range(8)), table=TableFile("/t.json", "/t.json", b""))
    given = prepared(given, table=source.read(tmp_path / "twins.json"), plan=plan)
    given = in_context(given, settings=attrs.evolve(given.settings, no_table_checks=True))

    assert {"warning"} == {verdict for verdict, _ in look_at("rank table", given)}


def test_part_of_this_node() -> None:
    """The ranks, server and pod of this node are shown as a start shows them."""
    given = context(nproc=2)
    pod = prepared(given, plan=attrs.evolve(job_of(range(2)), pod_name="job-worker-0"))

    assert [("ok", "ranks 0, 1 of 2 on 10.0.0.1")] == look_at("this node", given)
    assert [("ok", "ranks 0, 1 of 2 on 10.0.0.1 (pod job-worker-0)")] == look_at("this node", pod)


def test_node_is_unknown() -> None:
    """Without a plan there is nothing to report about this node."""
    assert [] == look_at("this node", context())


@pytest.mark.parametrize("subject", [Subject.RANK_TABLE, Subject.NODE, Subject.SETTINGS, Subject.VARIABLES])
@pytest.mark.parametrize("severity", Severity)
def test_problems_of_the_launcher_are_listed_under_their_subject(subject: Subject, severity: Severity) -> None:
    """Each problem appears under its own subject only, with its severity."""
    others = [problem(other, "another") for other in Subject if other is not subject]
    given = prepared(context(nproc=2), problems=(problem(subject, "odd", severity), *others))

    assert [(severity.value, "odd")] == look_at(subject.value, given)


def test_variables_agree() -> None:
    """Without conflicts the platform is shown, and the variables by which it was recognized."""
    given = context(environ={"MASTER_PORT": "2222"}, nproc=1)
    ((verdict, sentence),) = look_at("variables", given)

    assert "ok" == verdict
    assert given.prepared.node
    assert sentence.endswith(given.prepared.node.why)


def test_framework_that_recovers_by_itself() -> None:
    """With variables of MindIO TFT, a check says as the start does that a failed rank stops no other."""
    given = context(environ={"TTP_OT": "1000"}, nproc=2)
    plan = attrs.evolve(job_of(range(2)), stopping=attrs.evolve(job_of(range(2)).stopping, recovery=1030.0))
    (_, (verdict, sentence)) = look_at("variables", prepared(given, plan=plan))

    assert "ok" == verdict
    assert sentence.startswith("TTP_OT is set, so the framework recovers by itself: ")


# --- The command ------------------------------------------------------------------------------------------------------


def test_no_command() -> None:
    """Without a command nothing is reported about it."""
    assert [] == look_at("command", context(nproc=1))


def test_command_does_not_exist() -> None:
    """The launcher's problem is reported with a remedy."""
    problems = (problem(Subject.COMMAND, "command not found: 'trian'", exit_status=127),)
    given = attrs.evolve(prepared(context(nproc=1), problems=problems), command=("trian",))

    assert [("error", "command not found: 'trian'")] == look_at("command", given)
    assert ["use its full path, or add its directory to PATH"] == remedies("command", given)


def check_command(folder: Path, *argv: str) -> list[tuple[str, str]]:
    """Check a command that would run in a directory."""
    given = prepared(context(), plan=job_of([0], folder=str(folder), argv=argv))
    return look_at("command", attrs.evolve(given, command=argv))


def test_script_exists(tmp_path: Path) -> None:
    """The command is shown with the program that runs it, and where a link to it leads."""
    (tmp_path / "python3.9").touch()
    (tmp_path / "python").symlink_to("python3.9")
    (tmp_path / "train.py").touch()
    python = str(tmp_path / "python")

    assert [("ok", f"{python} train.py --epochs 5 ...: {python} ({python}3.9)")] == check_command(
        tmp_path, python, "train.py", "--epochs", "5", "--lr", "1"
    )
    assert [("ok", f"{python} -m train: {python} ({python}3.9)")] == check_command(tmp_path, python, "-m", "train")
    assert [("ok", f"{python} train.py --token ***: {python} ({python}3.9)")] == check_command(
        tmp_path, python, "train.py", "--token", "hidden"
    )


def test_script_is_missing(tmp_path: Path) -> None:
    """A missing script is named by its full path."""
    (tmp_path / "python").touch()

    assert [("error", f"{tmp_path}/trian.py does not exist")] == check_command(
        tmp_path, str(tmp_path / "python"), "trian.py"
    )


def test_script_is_checked_while_there_is_no_table(tmp_path: Path) -> None:
    """A missing rank table does not hide a missing script."""
    (tmp_path / "python3").touch(mode=0o755)
    given = in_context(context(environ={"PATH": str(tmp_path)}), cwd=str(tmp_path))
    given = attrs.evolve(given, command=("python3", "trian.py"))

    assert [("error", f"{tmp_path}/trian.py does not exist")] == look_at("command", given)


@pytest.mark.parametrize(("line", "missing"), [("#! /nowhere/python -u\n", "/nowhere/python"), ("#!/bin/sh\n", "")])
def test_interpreter_of_a_script(tmp_path: Path, line: str, missing: str) -> None:
    """A missing interpreter is named, because execve(2) would report the script itself as not found."""
    script = tmp_path / "train"
    script.write_text(line)
    ((verdict, sentence),) = check_command(tmp_path, str(script))

    assert ("error" if missing else "ok") == verdict
    assert not missing or f"{missing}, the interpreter of {script}, does not exist" == sentence


def engine_of(python: Path, script: str, launcher: str = "torchrun") -> CheckContext:
    """Make a job of an engine whose Python is a shell script."""
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    given = prepared(context(), plan=job_of([0], folder=str(python.parent), argv=[str(python), "-m", "torchrun"]))
    return attrs.evolve(in_context(given, settings=Settings(launcher=launcher)), patience=LIMIT)


def test_engine_that_cannot_be_imported(tmp_path: Path) -> None:
    """The Python of the job is asked for the engine, and its last line is the reason."""
    fails = engine_of(tmp_path / "python3", 'echo "ModuleNotFoundError: $2" >&2; exit 1')
    works = engine_of(tmp_path / "python3.9", "true")
    python = f"{tmp_path}/python3"

    assert [
        (
            "error",
            f"{python} cannot import torch.distributed.run: ModuleNotFoundError: import torch.distributed.run",
        )
    ] == look_at("engine", fails)
    assert [("ok", f"torch.distributed.run can be imported by {python}.9")] == look_at("engine", works)


def test_engine_of_a_script(tmp_path: Path) -> None:
    """A program such as torchrun names its Python in its first line."""
    engine_of(tmp_path / "python3", "exit 1")
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f"#!{tmp_path}/python3\n")
    given = prepared(context(), plan=job_of([0], argv=[str(torchrun)]))

    assert ["error"] == [
        verdict for verdict, _ in look_at("engine", in_context(given, settings=Settings(launcher="torchrun")))
    ]


def test_engine_behind_a_shell_script(tmp_path: Path) -> None:
    """Which Python a shell script runs is unknown, so nothing is reported."""
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\nexec python3 -m torch.distributed.run "$@"\n')
    given = prepared(context(), plan=job_of([0], argv=[str(torchrun)]))

    assert [] == look_at("engine", in_context(given, settings=Settings(launcher="torchrun")))


def test_no_engine_to_import(tmp_path: Path) -> None:
    """Without an engine, and with one that is no Python module, nothing is reported."""
    assert [] == look_at("engine", engine_of(tmp_path / "python", "exit 1", "direct"))
    assert [] == look_at("engine", engine_of(tmp_path / "python", "exit 1", "mpirun"))


@pytest.mark.parametrize("name", ["file", "file/log", "missing/log"])
def test_directory_that_cannot_be_made(name: str, tmp_path: Path) -> None:
    """A file in the place of a directory is an error, as it is at the start; nothing is made."""
    (tmp_path / "file").touch()
    folders = tuple(str(tmp_path / folder) for folder in ("missing/rank_0", "missing/rank_1", name))
    plan = changed(job_of([0]), folders=folders)

    expected = [] if name.startswith("missing") else ["error"]
    assert expected == [verdict for verdict, _ in look_at("directories", prepared(context(), plan=plan))]
    assert ["file"] == [path.name for path in tmp_path.iterdir()]


def test_script_that_is_not_in_the_working_directory(tmp_path: Path) -> None:
    """A script that is in the current directory only is a problem of the settings, and is reported once."""
    (tmp_path / "train.py").touch()
    argv = (sys.executable, "train.py")
    given = prepared(context(), plan=job_of([0], folder="/", argv=argv))
    given = attrs.evolve(in_context(given, cwd=str(tmp_path)), command=argv)

    assert [] == look_at("command", given)
    assert ["error"] == [verdict for verdict, _ in look_at("command", in_context(given, cwd="/"))]
