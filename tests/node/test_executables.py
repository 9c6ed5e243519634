"""Programs are found as execvp(3) finds them, and what cannot be run has the exit status of POSIX."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_runner.errors import CommandError
from ascend_runner.node.executables import find_executable, is_relative


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Make a program, a file without permission, a directory, and an empty directory."""
    for name, mode in (("program", 0o755), ("no-permission", 0o644)):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_program_is_found_on_the_search_path(commands: Path) -> None:
    """The first directory that has the program wins; a relative directory counts from the working directory."""
    search_path = f"{commands}/empty:{commands}:/bin"

    assert f"{commands}/program" == find_executable("program", cwd="/", search_path=search_path)
    assert f"{commands}/./program" == find_executable("program", cwd=str(commands), search_path="empty:.")


def test_program_with_a_slash_is_returned_as_it_is(commands: Path) -> None:
    """A path is searched for in the working directory, not on the search path."""
    assert "./program" == find_executable("./program", cwd=str(commands), search_path="")
    assert f"{commands}/program" == find_executable(f"{commands}/program", cwd="/", search_path="")


@pytest.mark.parametrize(
    ("name", "status"),
    [("missing", 127), ("./missing", 127), ("no-permission", 126), ("./no-permission", 126), ("folder", 126)],
)
def test_program_that_cannot_be_run(commands: Path, name: str, status: int) -> None:
    """A missing program has status 127; one that is not executable has 126."""
    with pytest.raises(CommandError) as caught:
        find_executable(name, cwd=str(commands), search_path=str(commands))

    assert status == caught.value.exit_status


@pytest.mark.parametrize(("name", "expected"), [("a", False), ("/a", False), ("./a", True), ("a/b", True)])
def test_relative_commands(name: str, *, expected: bool) -> None:
    """A command counts from the working directory if it is a relative path."""
    assert expected is is_relative(name)
