"""The words of a command: what is refused, and what of a Python command is its script."""

from __future__ import annotations

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.launchers.command import PythonCommand, check, is_python, python_command

HINT = "expected a command and its arguments, or bash -c '...' around a line for a shell"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["A=1", "python", "a.py"], f"the command starts with 'A=1', which sets a variable for a shell: {HINT}"),
        (["A_b="], f"the command starts with 'A_b=', which sets a variable for a shell: {HINT}"),
        (
            ["cd x && python a.py"],
            f"the command starts with 'cd x && python a.py', which is a line for a shell: {HINT}",
        ),
        (["python a.py"], f"the command starts with 'python a.py', which is a line for a shell: {HINT}"),
        (["/a/b && c"], f"the command starts with '/a/b && c', which is a line for a shell: {HINT}"),
        (["a", "&&", "b"], f"the command has the word '&&', which joins commands in a shell: {HINT}"),
        (["a", "b", "||", "c"], f"the command has the word '||', which joins commands in a shell: {HINT}"),
    ],
)
def test_refused(argv: list[str], sentence: str) -> None:
    """What only a shell could run is refused with the way to have one."""
    with pytest.raises(SettingsError) as caught:
        check(argv)

    assert sentence == str(caught.value)


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "a.py", "A=1"],
        ["./A=1"],
        ["env", "A=1", "python", "a.py"],
        ["bash", "-c", "cd x && A=1 python a.py"],
        ["/my tools/run", "a b"],
        ["find", ".", "-exec", "ls", ";"],
        ["train", "--x=a && b"],
        [""],
    ],
)
def test_not_refused(argv: list[str]) -> None:
    """Arguments may hold anything, and so may paths."""
    check(argv)


@pytest.mark.parametrize("word", ["python", "python3", "python3.11", "/opt/conda/bin/python", "../python3"])
def test_python(word: str) -> None:
    """A Python is known by its name, whatever its folder."""
    assert is_python(word)


@pytest.mark.parametrize("word", ["pythonw", "bash", "ipython", "python-config", "/opt/python/run", "pypy3"])
def test_no_python(word: str) -> None:
    """Other programs are not."""
    assert not is_python(word)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python a.py -m x", PythonCommand("python", (), False, "a.py", ("-m", "x"))),
        ("python -u a.py", PythonCommand("python", ("-u",), False, "a.py", ())),
        ("python -uB -W no -Xdev a.py 1", PythonCommand("python", ("-uB", "-W", "no", "-Xdev"), False, "a.py", ("1",))),
        ("python -m pkg.train --x", PythonCommand("python", (), True, "pkg.train", ("--x",))),
        ("python -um pkg", PythonCommand("python", ("-u",), True, "pkg", ())),
        ("python -mpkg", PythonCommand("python", (), True, "pkg", ())),
        ("/p/python3 a.py", PythonCommand("/p/python3", (), False, "a.py", ())),
    ],
)  # fmt: skip
def test_taken_apart(line: str, expected: PythonCommand) -> None:
    """Options of the interpreter end where the script or module starts."""
    assert expected == python_command(line.split())


@pytest.mark.parametrize("line", ["python", "python -", "python -c 1", "python -uc 1", "python -m", "bash a.sh", "-u"])
def test_no_script(line: str) -> None:
    """Other programs, and Pythons without a script or module, are not taken apart."""
    assert python_command(line.split()) is None


def test_words_as_the_interpreter_takes_them() -> None:
    """A module keeps its -m."""
    assert ("-m", "pkg", "1") == PythonCommand("python", (), True, "pkg", ("1",)).words
