"""What strangers write (tables, variables, a shared /tmp) reaches no path, no shell and no terminal as a command."""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING

import pytest

from tests.conftest import permitted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Program, Run

# Clears the screen, in both notations; sets the title; forges a line; turns the text around; ends a shell word.
NASTY = "x\x1b[2J\x9b2J\x1b]0;t\x07\n[ascend-runner] 00:00:00 INFO all is well\r\u202e\n  forged'; touch forged; '-0"
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def written(path: Path) -> list[Path]:
    """Give all that was made in a folder."""
    return sorted(path.rglob("*"))


def check_screen(run: Run) -> None:
    """Fail where a terminal would obey, or be shown a line that nobody has said."""
    assert not STEERING.search(run.screen)
    assert not [line for line in run.lines if line.startswith(("[ascend-runner] 00:00:00 INFO", "  forged"))]


@pytest.mark.parametrize("job_id", ["../../x", "a/b", "/etc/x", "..", ".", "a\nb", "\x1b[2J", "a\x9bb", NASTY])
@pytest.mark.parametrize("name", ["MA_VJ_NAME", "BATCH_JOB_ID"])
def test_job_id(program: Program, name: str, job_id: str) -> None:
    """A job id that is no plain file name is refused before anything is made."""
    run = program.start("--nproc-per-node", "1", "true", env={name: job_id})

    assert run.finish() == 125
    assert "ERROR the job id is " in run.screen
    check_screen(run)
    assert [] == written(program.folder)


def table(pods: list[tuple[str, str]]) -> str:
    """Give a group list with these pods (name, server), one device each."""
    instances = [
        {"pod_name": pod, "server_id": server, "devices": [{"device_id": "0", "device_ip": f"10.0.0.{number}"}]}
        for number, (pod, server) in enumerate(pods, 1)
    ]
    group = {"device_count": str(len(pods)), "instance_count": str(len(pods)), "instance_list": instances}
    return json.dumps({"status": "completed", "group_count": "1", "group_list": [group]})


@pytest.mark.parametrize(
    ("pods", "own"),
    [
        ([(NASTY, "10.1.0.1")], NASTY),
        ([("pod-0", NASTY)], "pod-0"),
        ([(NASTY, "10.1.0.1"), ("pod-1", "10.1.0.2")], NASTY),
        ([(NASTY, "10.1.0.1"), (NASTY, "10.1.0.2")], NASTY),
        ([("pod-0", NASTY), ("pod-1", NASTY)], "pod-1"),
        ([(NASTY, "10.1.0.1"), ("pod-1", "10.1.0.2")], "nobody"),
        ([("pod-0", "10.1.0.1"), ("pod-1", "10.1.0.2")], NASTY),
        ([("no number", "10.1.0.1"), (NASTY + "x", "10.1.0.2")], "no number"),
    ],
    ids=["pod", "server", "one-of-two", "twice", "server-twice", "not-mine", "mine", "without-number"],
)
@pytest.mark.parametrize("options", [(), ("--no-table-checks",), ("--no-table-checks", "--dry-run")], ids=str)
def test_names_of_a_table(program: Program, pods: list[tuple[str, str]], own: str, options: tuple[str, ...]) -> None:
    """Pods and servers may be called anything: it is spelled out on the screen, and makes no file and no command."""
    (program.folder / "table.json").write_text(table(pods))
    env = {"MA_CURRENT_INSTANCE_NAME": own}
    run = program.start("--rank-table", "table.json", *options, "sh", "-c", "exit 3", env=env)

    assert run.finish() in {0 if "--dry-run" in options else 3, 125}
    check_screen(run)
    made = {str(path.relative_to(program.folder)) for path in written(program.folder)}
    assert all(path.isprintable() and path.isascii() for path in made)
    assert "forged" not in made


def test_values_of_variables(program: Program) -> None:
    """A value that the runner shows again, for a shell, is quoted and spelled out."""
    run = program.start("--nproc-per-node", "1", "sh", "-c", "exit 3", env={"MASTER_ADDR": NASTY, "JOB_ID": NASTY})

    assert run.finish() == 3
    check_screen(run)
    program.shell(program.report()["ranks"][0]["rerun"])
    assert not (program.folder / "forged").exists()


# --- A shared /tmp ----------------------------------------------------------------------------------------------------


@pytest.fixture
def public(program: Program) -> Path:
    """Give a folder where everybody can write, as /tmp, for the log folder to stand in."""
    folder = program.folder / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    program.log_dir = folder / "log"
    return folder


def test_folder_that_is_a_symlink(program: Program, public: Path) -> None:
    """What a stranger has laid there in time is refused, and what it leads to stays empty."""
    elsewhere = program.folder / "elsewhere"
    elsewhere.mkdir()
    (public / "log").symlink_to(elsewhere)
    run = program.act(1, "say=hello")

    assert run.finish() == 125
    assert f"ERROR '{public}/log' is a symlink in '{public}', where everybody can write: refused\n" in run.screen
    assert [] == written(elsewhere)


def test_file_that_is_a_symlink(program: Program, public: Path) -> None:
    """Neither a log nor the report is written through it."""
    victim = program.folder / "victim"
    victim.write_bytes(b"precious")
    (public / "log").mkdir()
    (public / "log" / "job-proc-rank-0-device-0.txt").symlink_to(victim)
    assert program.act(1, "say=hello").finish() == 125

    (public / "log" / "job-proc-rank-0-device-0.txt").unlink()
    (public / "log" / "job-report.json").symlink_to(victim)
    assert program.act(1, "say=hello").finish() == 0
    assert b"precious" == victim.read_bytes()


def test_folder_of_somebody_else(program: Program, public: Path) -> None:
    """Whoever owns it could read and change the logs: refused, and nothing is put there."""
    (public / "log").mkdir()
    if os.geteuid():
        permitted("chown", "1")  # says why it is skipped: only root can make somebody else's folder
    os.chown(public / "log", 12345, 12345)
    run = program.act(1, "say=hello")

    assert run.finish() == 125
    assert f"ERROR '{public}/log' belongs to user 12345, in '{public}', where everybody can write: " in run.screen
    assert [] == written(public / "log")


def test_modes(program: Program) -> None:
    """Files are 0640 and folders 0750, whatever the umask would allow beyond that."""
    (program.folder / "table.json").write_text(table([("pod-0", "10.1.0.1")]))
    options = ("--no-table-checks", "--rank-table", "table.json", "--workdir", "device", "--log-max-size", "1K")
    mask = ("sh", "-c", 'umask 0; exec "$@"', "sh")
    assert program.start(*options, "sh", "-c", "seq 1000", under=mask).finish() == 0
    assert program.start(*options, "sh", "-c", "seq 1000", under=mask).finish() == 0

    made = [program.log_dir, *written(program.log_dir)]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in made}
    assert {(True, 0o750), (False, 0o640)} == modes
    names = "\n".join(str(path.relative_to(program.log_dir)) for path in made)
    for part in (
        ".txt.1",
        ".run-1.txt",
        "report.json",
        "rank_table/jobstart_hccl.json",
        "process_log/rank_0",
        "device0",
    ):
        assert part in names


# --- Secrets ----------------------------------------------------------------------------------------------------------

SECRETS = ("HF_TOKEN", "AK", "OBS_SK", "WANDB_API_KEY", "DB_PASSWORD", "MY_SECRET", "GIT_CREDENTIAL_FILE")
NO_SECRETS = ("TOKENIZERS_PARALLELISM", "MONKEY", "BREAK_AT", "RISK")


def test_secrets_are_shown_nowhere(program: Program) -> None:
    """Their values stand neither in the plan, nor on the screen, nor in any file that the runner writes."""
    env = {name: f"hidden-{number}" for number, name in enumerate(SECRETS)}
    plan = program.start("--nproc-per-node", "1", "--dry-run", "false", env=env)
    assert plan.finish() == 0
    run = program.start("--nproc-per-node", "1", "--verbose", "sh", "-c", "echo $HF_TOKEN; exit 3", env=env)
    assert run.finish() == 3

    assert program.log(0) == b"hidden-0\n"  # the rank has it, and what ranks write is theirs
    own_lines = "".join(line for line in run.lines if not line.startswith(("[rank ", "  | ")))
    assert "hidden" not in plan.screen + own_lines
    del run
    report = program.report()
    report["ranks"][0]["finding"]["last_lines"] = ()
    assert "hidden" not in json.dumps(report)
