"""The script that runs one rank again, read by real shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_runner.plan.rerun import script
from ascend_runner.plan.spec import JobSpec, RankSpec
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import LIMIT

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))"
PATH = {"PATH": os.environ["PATH"]}
SHELLS = [shell for shell in ("/bin/sh", "/bin/bash", "/bin/dash") if os.path.exists(shell)]
DISTRIBUTED = {
    **PATH,
    "RANK": "5",
    "RANK_ID": "5",
    "LOCAL_RANK": "5",
    "DEVICE_ID": "5",
    "WORLD_SIZE": "8",
    "RANK_SIZE": "8",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "RANK_TABLE_FILE": "/hccl.json",
    "MS_ROLE": "MS_WORKER",
}


def rank(*argv: str, env: dict[str, str] | None = None, cwd: str = "/", name: str = "") -> RankSpec:
    """Make the plan of rank 5, on device 5."""
    return rank_spec(5, argv=argv, env=PATH if env is None else env, cwd=cwd, name=name)


def job_of(spec: RankSpec, rank_size: int = 1) -> JobSpec:
    """Make a job that the rank belongs to."""
    return job_spec([spec], rank_size=rank_size)


def run(
    spec: RankSpec, *args: str, rank_size: int = 1, env: dict[str, str] | None = None, shell: str = "/bin/sh"
) -> subprocess.CompletedProcess[bytes]:
    """Check the syntax of a script with a shell, then run it in an environment."""
    text = script(spec, job_of(spec, rank_size), PATH if env is None else env)
    subprocess.run([shell, "-n"], input=text, check=True, timeout=LIMIT)
    return subprocess.run(
        [shell, "-s", "--", *args] if args else [shell, "-s"],
        input=text, env=PATH if env is None else env, capture_output=True, check=False, timeout=LIMIT,
    )  # fmt: skip


words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=15)
@given(arguments=st.lists(words, max_size=3), values=st.lists(words, min_size=3, max_size=3))
def test_what_a_shell_makes_of_it(shell: str, arguments: list[str], values: list[str]) -> None:
    """A shell runs the same command with the same variables in the same directory, whatever they contain."""
    inherited = {**PATH, "LC_ALL": "C.UTF-8", "DROPPED": values[0], "CHANGED": "0"}
    env = {**PATH, "LC_ALL": "C.UTF-8", "CHANGED": values[1], "NEW": values[2]}
    done = run(rank(sys.executable, "-S", "-c", SHOW, *arguments, env=env, cwd="/tmp"), env=inherited, shell=shell)
    argv, cwd, seen = json.loads(done.stdout)

    assert (arguments, "/tmp") == (argv, cwd)
    assert env == {name: seen[name] for name in seen if name not in {"PWD", "OLDPWD", "SHLVL", "_"}}


@pytest.mark.parametrize("folder", ["/a b", "/-x", "/$HOME", "/ü", "/it's"])
def test_directory(folder: str, tmp_path: Path) -> None:
    """The command runs in any directory; a missing one is an error."""
    path = Path(f"{tmp_path}{folder}")
    path.mkdir()
    there = run(rank("pwd", cwd=str(path)))
    path.rmdir()
    missing = run(rank("pwd", cwd=str(path)))

    assert (f"{path}\n".encode(), 0) == (there.stdout, there.returncode)
    assert (b"", True) == (missing.stdout, missing.returncode != 0)


def test_bytes_that_are_no_text() -> None:
    """Undecodable bytes reach the command unchanged."""
    assert b"\xff\x1b\n" == run(rank("printf", "%s\n", "\udcff\x1b")).stdout


def test_hostile_names() -> None:
    """A line break in a name cannot add a line to the script."""
    spec = rank("true")
    text = script(spec, job_spec([spec], server_id="x\ntouch /forged"), {})

    assert [] == [line for line in text.splitlines() if line.startswith(b"touch")]


def test_variables_of_a_terminal_stay() -> None:
    """The script changes nothing that belongs to the shell it is run in."""
    done = run(rank("env", env={**PATH, "TERM": "dumb", "SSH_AUTH_SOCK": "/old"}), env={**PATH, "TERM": "xterm"})

    assert b"TERM=xterm\n" in done.stdout
    assert b"SSH_AUTH_SOCK" not in done.stdout


# --- Secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_are_required() -> None:
    """A secret is taken from the environment of the script, and a missing one is named."""
    env = {**PATH, "HF_TOKEN": "hidden", "DATABASE": "mysql://root:hidden@db"}
    spec = rank("printenv", "HF_TOKEN", "DATABASE", env=env)
    missing = run(spec)
    given_again = run(spec, env=env)

    assert b"hidden" not in script(spec, job_of(spec), {})
    assert missing.returncode != 0
    assert b"DATABASE" in missing.stderr
    assert b"hidden\nmysql://root:hidden@db\n" == given_again.stdout


def test_secrets_in_arguments() -> None:
    """An argument is taken from the variable that has the same value, else from one with the name of its option."""
    env = {**PATH, "MY_TOKEN": "hidden-1"}
    argv = ("printf", "%s\n", "--token", "hidden-1", "--api-key=hidden-2", "x --token hidden-3")
    spec = rank(*argv, env=env)
    set_before = {**env, "API_KEY": "hidden-2", "TOKEN": "hidden-3"}

    assert b"hidden" not in script(spec, job_of(spec), {})
    assert "\n".join((*argv[2:], "")).encode() == run(spec, env=set_before).stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_secrets_in_a_program_of_a_shell(shell: str) -> None:
    """Of a program, only the secrets are taken from variables: with their values the same program runs."""
    program = """echo "it's" --token 'hidden 1' --2fa-token hidden-2 'http://u:hidden-3@h' --token hidden-4; true"""
    spec = rank("sh", "-c", program)
    values = {"TOKEN": "hidden 1", "SECRET_1": "hidden-3", "SECRET_2": "hidden-2", "SECRET_3": "hidden-4"}
    text = script(spec, job_of(spec), {})

    assert b"hidden" not in text
    assert b"echo" in text
    assert run(rank("sh", "-c", program)).returncode
    assert b"it's --token hidden 1 --2fa-token hidden-2 http://u:hidden-3@h --token hidden-4\n" == (
        run(spec, env={**PATH, **values}, shell=shell).stdout
    )


def test_secret_in_an_assignment() -> None:
    """An assignment, as for env(1), takes its value from the variable that it assigns."""
    spec = rank("env", "SECRET_KEY=hidden", "printenv", "SECRET_KEY", env=PATH)

    assert b"hidden" not in script(spec, job_of(spec), {})
    assert b"hidden\n" == run(spec, env={**PATH, "SECRET_KEY": "hidden"}).stdout


# --- Ranks that wait for others ---------------------------------------------------------------------------------------


def test_rank_of_several_never_runs_alone_by_itself() -> None:
    """Without a choice nothing runs, and both ways are offered."""
    done = run(rank("echo", "started", env=DISTRIBUTED), rank_size=8)

    assert (2, b"") == (done.returncode, done.stdout)
    assert b"rank 5 belongs to a job of 8 ranks" in done.stderr
    assert b"--alone" in done.stderr
    assert b"--together" in done.stderr


def test_rank_with_the_others() -> None:
    """With --together the rank gets what it had."""
    done = run(rank("env", env=DISTRIBUTED), "--together", rank_size=8)

    assert DISTRIBUTED.items() <= dict(line.split("=", 1) for line in done.stdout.decode().splitlines()).items()


@pytest.mark.parametrize(("visible", "device"), [("", "5"), ("8,9,10,11,12,13,14,15", "13"), ("3", "3")])
def test_rank_alone(visible: str, device: str) -> None:
    """With --alone the rank is the only one of a job on one node, without a table, and sees its own device only."""
    env = {**DISTRIBUTED, **({"ASCEND_RT_VISIBLE_DEVICES": visible} if visible else {})}
    done = run(rank("env", env=env), "--alone", rank_size=8)
    seen = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())

    ones, zeros = ("WORLD_SIZE", "RANK_SIZE"), ("RANK", "RANK_ID", "LOCAL_RANK", "DEVICE_ID")
    assert {**dict.fromkeys(ones, "1"), **dict.fromkeys(zeros, "0")}.items() <= seen.items()
    assert ("127.0.0.1", device) == (seen["MASTER_ADDR"], seen["ASCEND_RT_VISIBLE_DEVICES"])
    assert not {"RANK_TABLE_FILE", "MS_ROLE"} & set(seen)


def test_scheduler_cannot_be_alone() -> None:
    """MindSpore's scheduler waits for the ranks, so that only --together is offered."""
    worker, scheduler = rank("true"), rank("true", name="scheduler")
    text = script(scheduler, job_spec([worker], rank_size=8, beside=(scheduler,)), {}).decode()

    assert "--together" in text
    assert "--alone" not in text


def test_engine_of_one_node_runs_at_once() -> None:
    """An engine that starts all ranks itself waits for no other process."""
    engine = rank("true", name="torchrun")

    assert "--together" not in script(engine, job_spec([], rank_size=8, beside=(engine,)), {}).decode()


def test_engine_of_several_nodes_waits_for_the_others() -> None:
    """An engine on one of several nodes waits for those on the others."""
    engine = rank("true", name="torchrun-node-1")

    for rank_size, words in ((8, "a job of 8 ranks"), (0, "a job of several nodes")):
        text = script(engine, job_spec([], rank_size=rank_size, beside=(engine,), node_number=1), {}).decode()
        assert "--together" in text
        assert words in text


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_exported_function_of_bash() -> None:
    """A variable whose name is no identifier, as bash exports functions, does not break the script."""
    done = run(rank("printenv", "BASH_FUNC_f%%", env={**PATH, "BASH_FUNC_f%%": "() {  echo x\n}"}))

    assert b"() {  echo x\n}\n" == done.stdout
