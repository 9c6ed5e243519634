"""Untrusted input (tables, variables, a shared /tmp) cannot inject a path, shell command or terminal escape."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from tests.helpers.program import Program
from tests.helpers.surroundings import permitted

# Clears the screen, in both notations; sets the title; forges a line; reverses the text direction; ends a shell word.
NASTY = "x\x1b[2J\x9b2J\x1b]0;t\x07\n[ascend-runner] 00:00:00 INFO all is well\r\u202e\n  forged'; touch forged; '-0"
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def written(path: Path) -> list[Path]:
    """List everything in a directory."""
    return sorted(path.rglob("*"))


def check_screen(screen: str) -> None:
    """Fail if the screen holds control characters, or a forged line."""
    assert not STEERING.search(screen)
    assert not [line for line in screen.splitlines() if line.startswith(("[ascend-runner] 00:00:00 INFO", "  forged"))]


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize("job_id", ["../../x", "a/b", "/etc/x", "..", ".", "a\nb", "\x1b[2J", "a\x9bb", NASTY])
@pytest.mark.parametrize("name", ["MA_VJ_NAME", "BATCH_JOB_ID"])
def test_job_id(program: Program, name: str, job_id: str) -> None:
    """A job id that is not a plain file name is refused before anything is created."""
    ended = program.here("--nproc-per-node", "1", "true", env={name: job_id})

    assert 125 == ended.returncode
    assert f" for {name}: expected a plain file name" in ended.stderr
    check_screen(ended.stderr)
    assert [] == written(program.folder)


def table(pods: list[tuple[str, str]]) -> str:
    """Return a group list with these pods (name, server), one device each."""
    instances = [
        {"pod_name": pod, "server_id": server, "devices": [{"device_id": "0", "device_ip": f"10.0.0.{number}"}]}
        for number, (pod, server) in enumerate(pods, 1)
    ]
    group = {"device_count": str(len(pods)), "instance_count": str(len(pods)), "instance_list": instances}
    return json.dumps({"status": "completed", "group_count": "1", "group_list": [group]})


@pytest.mark.deep(quick=3)
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
    """Names of pods and servers are escaped on the screen, and become neither file nor command."""
    (program.folder / "table.json").write_text(table(pods))
    env = {"MA_CURRENT_INSTANCE_NAME": own}
    run = program.start("--rank-table", "table.json", *options, "sh", "-c", "exit 3", env=env)

    assert run.finish() in {0 if "--dry-run" in options else 3, 125}
    check_screen(run.screen)
    made = {str(path.relative_to(program.folder)) for path in written(program.folder)}
    assert all(path.isprintable() and path.isascii() for path in made)
    assert "forged" not in made


@pytest.mark.deep
def test_values_of_variables(program: Program) -> None:
    """Values in a shell command that the runner prints are quoted and escaped."""
    run = program.start("--nproc-per-node", "1", "sh", "-c", "exit 3", env={"MASTER_ADDR": NASTY, "JOB_ID": NASTY})

    assert 3 == run.finish()
    check_screen(run.screen)
    program.shell(program.report()["ranks"][0]["rerun"])
    assert not (program.folder / "forged").exists()


# --- A shared /tmp ----------------------------------------------------------------------------------------------------


@pytest.fixture
def public(program: Program) -> Path:
    """Make a world-writable directory, as /tmp, that holds the log directory."""
    folder = program.folder / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    program.log_dir = folder / "log"
    return folder


def test_folder_that_is_a_symlink(program: Program, public: Path) -> None:
    """A symlink in place of the log directory is refused, and its target stays empty."""
    elsewhere = program.folder / "elsewhere"
    elsewhere.mkdir()
    (public / "log").symlink_to(elsewhere)
    run = program.act(1, "say=hello")

    assert 125 == run.finish()
    assert "symlink in the world-writable directory" in run.screen
    assert [] == written(elsewhere)


def test_file_that_is_a_symlink(program: Program, public: Path) -> None:
    """Neither a log nor the report is written through a symlink."""
    victim = program.folder / "victim"
    victim.write_bytes(b"precious")
    (public / "log").mkdir()
    for name in ("job-proc-rank-0-device-0.txt", "job-report.json"):
        (public / "log" / name).symlink_to(victim)

    assert 0 == program.act(1, "say=hello").finish()
    assert not [path for path in (public / "log").iterdir() if path.is_symlink()]
    assert b"precious" == victim.read_bytes()


def test_folder_of_somebody_else(program: Program, public: Path) -> None:
    """A log directory of another user is refused, because its owner could read and change the logs."""
    (public / "log").mkdir()
    if os.geteuid():
        permitted("chown", "1")  # only root can create another user's directory
    os.chown(public / "log", 12345, 12345)
    run = program.act(1, "say=hello")

    assert 125 == run.finish()
    assert "belongs to user 12345" in run.screen
    assert [] == written(public / "log")


def test_modes(program: Program) -> None:
    """No file and no directory is writable by others, even if the umask allows it."""
    (program.folder / "table.json").write_text(table([("pod-0", "10.1.0.1")]))
    options = ("--no-table-checks", "--rank-table", "table.json", "--workdir", "device", "--log-max-size", "1K")
    mask = ("sh", "-c", 'umask 0; exec "$@"', "sh")
    assert 0 == program.start(*options, "sh", "-c", "seq 1000", under=mask).finish()
    assert 0 == program.start(*options, "sh", "-c", "seq 1000", under=mask).finish()

    made = [program.log_dir, *written(program.log_dir)]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in made}
    assert {(True, 0o775), (False, 0o664)} == modes
    names = "\n".join(str(path.relative_to(program.log_dir)) for path in made)
    for part in (
        ".txt.1",
        "run-1/job-proc",
        "report.json",
        "rank_table/jobstart_hccl.json",
        "process_log/rank_0",
        "device0",
    ):
        assert part in names


# --- Secrets ----------------------------------------------------------------------------------------------------------

SECRETS = ("HF_TOKEN", "AK", "OBS_SK", "WANDB_API_KEY", "DB_PASSWORD", "MY_SECRET", "GIT_CREDENTIAL_FILE")


def test_secrets_are_shown_nowhere(program: Program) -> None:
    """Secrets, by name or by shape, are neither in the plan, nor in the runner's own lines, nor in any of its files."""
    env = {name: f"sesame-{number}" for number, name in enumerate(SECRETS)}
    command = ("sh", "-c", 'echo "HF_TOKEN=$HF_TOKEN $*"; exit 3', "x", "--api-key", "sesame", "--token=sesame")
    plan = program.start("--nproc-per-node", "1", "--dry-run", *command, env=env)
    assert 0 == plan.finish()
    assert 2 == json.loads(plan.screen)["secrets_masked"]
    run = program.start("--nproc-per-node", "1", "--verbose", *command, env=env)
    assert 3 == run.finish()

    # The rank has them, and its own output is not masked.
    assert b"HF_TOKEN=sesame-0 --api-key sesame --token=sesame\n" == program.log(0)
    own_lines = "".join(line for line in run.lines if not line.startswith("[rank "))
    assert "| HF_TOKEN=*** --api-key *** --token=***" in own_lines
    assert "sesame" not in plan.screen + own_lines
    others = [path.read_text() for path in written(program.log_dir) if path.is_file() and path.suffix != ".txt"]
    assert "sesame" not in "".join(others)
