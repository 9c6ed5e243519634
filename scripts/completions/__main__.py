"""Writes the completions of the three programs for bash, zsh and fish, from their tables of options and commands.

They are static: no Python runs when a user presses TAB. With --check, only reports what is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from ascend_runner.tools.job import main as job_tool
from ascend_runner.tools.rank_table import commands as rank_table_files
from ascend_runner.tools.rank_table import main as rank_table_tool
from completions import bash, fish, zsh
from completions.model import commands_of, runner_flags

TARGET: Final = Path(job_tool.__file__).parent / "completions"


def texts() -> dict[Path, str]:
    """Return the files by their names. Shells look for one that is called like the program."""
    programs = {
        job_tool.PROGRAM: commands_of(job_tool.make_parser()[1]),
        rank_table_files.PROGRAM: commands_of(rank_table_tool.make_parser()[1]),
    }
    found = {
        Path("bash", "ascend-runner"): bash.text(programs, runner_flags()),
        Path("zsh", "_ascend-runner"): zsh.text(programs, runner_flags()),
        Path("fish", "ascend-runner.fish"): fish.text(programs, runner_flags()),
    }
    for program in programs:
        found[Path("bash", program)] = 'source "${BASH_SOURCE[0]%/*}/ascend-runner"\n'
        found[Path("fish", f"{program}.fish")] = "source (status dirname)/ascend-runner.fish\n"
    return found


def main() -> int:
    """Write the files, or with --check only compare them; return the exit status."""
    status = 0
    for name, text in texts().items():
        path = TARGET / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            sys.stderr.write(f"{path} is out of date: run scripts/generate\n")
            status = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
