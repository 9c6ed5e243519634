"""TAB in bash, zsh and fish: the options of the three programs, and the command behind ascend-runner."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.services import run_folder
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import wait_until

COMPLETIONS: Final = Path(run_folder.__file__).parents[1] / "tools" / "job" / "completions"
BASHRC: Final = """\
PS1='ready> '
. /usr/share/bash-completion/bash_completion
. {folder}/bash/ascend-job
bind 'set bell-style none'
bind 'set show-all-if-ambiguous on'
show() {{ printf '%s\\n' "$READLINE_LINE" > ~/line; }}
bind -x '"\\C-g": show'
"""
ZSHRC: Final = """\
fpath=({folder}/zsh $fpath)
autoload -Uz compinit
compinit -u
show() {{ print -r -- $BUFFER > ~/line }}
zle -N show
bindkey '^G' show
PS1='ready> '
"""
FISHRC: Final = """\
source {folder}/fish/ascend-job.fish
function fish_prompt
    printf 'ready> '
end
set fish_greeting
bind \\cg 'commandline > ~/line'
"""
COMPLETED: Final = {
    "ascend-runner --rank-table-t": "--rank-table-timeout",
    "ascend-runner --log-dir exp": "experiment/",
    "ascend-runner --stop-signal T": "TERM",
    "ascend-runner --framework ten": "tensorflow",
    "ascend-runner --nproc-per-node 8 --dry-run ascend-rank-t": "ascend-rank-table",
    "ascend-runner --job-name x -- ls exp": "experiment/",
    "ascend-runner --timestamps ascend-job comp": "completion",
    "ascend-runner --job-name x ls --almost-a": "--almost-all",
    "ascend-job checkp": "checkpoint",
    "ascend-job logs --fol": "--follow",
    "ascend-job logs pre": "pretraining-7-node-1",
    "ascend-job report node0 pre": "pretraining-7-node-1",
    "ascend-job limit of": "off",
    "ascend-job limit pretraining-7-node-1 of": "off",
    "ascend-job logs -f -r 0 exp": "experiment/",
    "ascend-job completion fi": "fish",
    "ascend-rank-table conv": "convert",
    "ascend-rank-table convert --to gr": "group-list",
    "ascend-rank-table show tab": "table.json",
    "ascend-rank-table diff a.json tab": "table.json",
    "ascend-rank-table validate a.json b.json tab": "table.json",
    "ascend-runner --workdir exp": "experiment/",
}
HOSTILE: Final = (
    "pretraining-$(touch${IFS}WAS-RUN)",
    "pretraining-`touch WAS-RUN`",
    "pretraining-;touch WAS-RUN;",
    "pretraining-\n$(touch WAS-RUN)",
    "pretraining-(touch WAS-RUN)",
    "pretraining-8 pretraining-9",
    "$(touch WAS-RUN)",
)
OTHER_USER: Final = 65534
LISTED: Final = ("ascend-job status ", "ascend-job limit ")
CLEAR: Final = "\x15"  # Ctrl-U
SHOW: Final = "\x07"  # Ctrl-G writes the line to a file


def add_job(folder: Path, job_id: str, part: str = "") -> None:
    """Create a run directory."""
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"job_id": job_id, "part": part, "command": []}))


@pytest.fixture(name="shell", params=["bash", "zsh", "fish"])
def fixture_shell(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """Return a shell in a directory with a job, a directory and a file."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "table.json").touch()
    add_job(tmp_path / "run" / "run-x", "pretraining-7", "-node-1")
    home = tmp_path / "home"
    (home / ".config" / "fish").mkdir(parents=True)
    (home / ".local" / "share" / "fish" / "generated_completions").mkdir(parents=True)  # else fish reads all man pages
    for name, text in ((".bashrc", BASHRC), (".zshrc", ZSHRC), (".config/fish/config.fish", FISHRC)):
        (home / name).write_text(text.format(folder=COMPLETIONS))
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    env = {"HOME": str(home), "PATH": path, run_folder.RUN_DIR_VARIABLE: str(tmp_path / "run")}
    terminal = Terminal([f"/usr/bin/{request.param}", "-i"], tmp_path, env)
    terminal.wait_for("ready> ")
    yield terminal
    pid = terminal.popen.pid
    wait_until(lambda: all(process.is_zombie for process in process_tree.descendants(pid)))  # subshells of a completion
    terminal.close()


def test_completions(shell: Terminal, tmp_path: Path) -> None:
    """One TAB completes what is unambiguous."""
    line = tmp_path / "home" / "line"
    found = {}
    for words in COMPLETED:
        shell.type(f"{CLEAR}{words}\t{SHOW}")
        wait_until(lambda: line.exists() and line.read_text())
        found[words] = line.read_text().rstrip("= \n")
        line.unlink()

    assert {words: " ".join([*words.split()[:-1], last]) for words, last in COMPLETED.items()} == found


@pytest.mark.parametrize("words", LISTED)
def test_list_of_jobs(shell: Terminal, tmp_path: Path, words: str) -> None:
    """TAB lists each job once, however often it has run, and whatever directory has its name."""
    (tmp_path / "other-3").mkdir()
    for number in range(3):
        add_job(tmp_path / "run" / f"earlier-{number}", "pretraining-7", "-node-1")
        add_job(tmp_path / "run" / f"other-{number}", "other-3")
    shell.type(f"{CLEAR}{words}\t")
    shell.wait_for("pretraining-7-node-1")
    shell.type(f"{CLEAR}printf 'end of %s' list\r")  # printed after all rows of the list
    shell.wait_for("end of list")

    assert (1, 1) == (shell.screen.count("pretraining-7-node-1"), shell.screen.count("other-3"))


def complete_job(shell: Terminal, line: Path) -> str:
    """Return the line after one TAB behind the beginning of a job's name."""
    shell.type(f"{CLEAR}ascend-job logs pre\t{SHOW}")
    wait_until(lambda: line.exists() and line.read_text())
    return line.read_text().rstrip("\n")


def test_hostile_names(shell: Terminal, tmp_path: Path) -> None:
    """Names of jobs are data: a command in one is neither carried out nor completed."""
    for number, name in enumerate(HOSTILE):
        add_job(tmp_path / "run" / f"hostile-{number}", name)
        add_job(tmp_path / "run" / f"hostile-part-{number}", "pretraining-7", name)

    found = complete_job(shell, tmp_path / "home" / "line")

    assert "ascend-job logs pretraining-7-node-1 " == found
    assert [] == list(tmp_path.rglob("WAS-RUN"))


@pytest.mark.skipif(os.getuid() != 0, reason="gives a directory to another user")
def test_jobs_of_other_users(shell: Terminal, tmp_path: Path) -> None:
    """Only one's own jobs are completed."""
    foreign = tmp_path / "run" / "foreign"
    add_job(foreign, "pretraining-8")
    os.chown(foreign, OTHER_USER, OTHER_USER)

    assert "ascend-job logs pretraining-7-node-1 " == complete_job(shell, tmp_path / "home" / "line")
