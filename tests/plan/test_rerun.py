"""The command that runs one rank alone again, read by a real shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_runner.plan.job import RankSpec
from ascend_runner.plan.rerun import rerun_command

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))"


def spec(cwd: str, env: dict[str, str], *argv: str) -> RankSpec:
    """Make the plan of a rank."""
    return RankSpec(
        rank_id=3, local_rank=3, executable=argv[0], argv=argv, env=env, cwd=cwd, log_path="/log", prefix=None
    )


def test_the_line() -> None:
    """The line enters the folder, unsets and sets what the runner changed, and omits the rest."""
    environ = {"PATH": "/bin", "RANK_TABLE_FILE": "/user/config", "RANK": "9"}
    line = rerun_command(
        spec("/job a", {"PATH": "/bin", "RANK": "3", "MODE": "a b"}, "python", "train.py", "--lr=0.1", "it's"), environ
    )

    assert "cd '/job a' && env -u RANK_TABLE_FILE 'MODE=a b' RANK=3 python train.py --lr=0.1 'it'\"'\"'s'" == line


def test_secrets_are_masked() -> None:
    """Values of secrets are masked."""
    assert "cd / && env 'OBS_SK=***' true" == rerun_command(spec("/", {"OBS_SK": "hunter2"}, "true"), {})


def test_control_characters() -> None:
    """The line is one line without control characters."""
    line = rerun_command(spec("/", {"A": "x\ny\x1b[2J"}, "true", "\udcff\\'"), {})

    assert "cd / && env $'A=x\\x0ay\\x1b[2J' true $'\\xff\\x5c\\x27'" == line


words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


@settings(max_examples=25)
@given(arguments=st.lists(words, max_size=3), values=st.lists(words, min_size=3, max_size=3))
def test_what_a_shell_makes_of_it(arguments: list[str], values: list[str]) -> None:
    """Bash runs the same command with the same variables in the same folder, whatever they contain."""
    inherited = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "KEPT": "1", "DROPPED": values[0], "CHANGED": "0"}
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "KEPT": "1", "CHANGED": values[1], "NEW": values[2]}
    line = rerun_command(spec("/tmp", env, sys.executable, "-S", "-c", SHOW, *arguments), inherited)
    shown = subprocess.run(["/bin/bash", "-c", line], env=inherited, capture_output=True, check=True).stdout
    argv, cwd, seen = json.loads(shown)

    assert "\n" not in line
    assert (arguments, "/tmp") == (argv, cwd)
    assert env == {name: seen[name] for name in seen if name not in {"PWD", "OLDPWD", "SHLVL", "_"}}


@pytest.mark.parametrize("folder", ["/a b", "/-x", "/$HOME", "/ü"])
def test_folder(folder: str, tmp_path: Path) -> None:
    """The line works for any folder."""
    path = Path(f"{tmp_path}{folder}")
    path.mkdir()
    line = rerun_command(spec(str(path), {}, "pwd"), {})

    assert f"{path}\n" == subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, check=True).stdout
