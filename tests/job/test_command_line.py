"""Options end where the training command begins, and whatever is wrong with them is said in one sentence."""

from __future__ import annotations

import pytest

from ascend_runner.errors import RUNNER_FAILED, CommandError, SettingsError
from ascend_runner.job import command_line
from ascend_runner.job.settings import OPTIONS


@pytest.mark.parametrize(
    ("argv", "flags", "command"),
    [
        ([], {}, []),
        (["python", "train.py"], {}, ["python", "train.py"]),
        (["--grace", "5", "python"], {"grace": "5"}, ["python"]),
        (["--grace=5", "python"], {"grace": "5"}, ["python"]),
        (["--grace", "-5", "python"], {"grace": "-5"}, ["python"]),
        (["--rank-table=a=b", "python"], {"rank_table": "a=b"}, ["python"]),
        (["--rank-table=", "python"], {"rank_table": ""}, ["python"]),
        (["--quiet", "--no-prefix", "python"], {"quiet": "1", "no_prefix": "1"}, ["python"]),
        (["--grace", "5", "--grace", "6", "python"], {"grace": "6"}, ["python"]),
        (["--", "--odd-name", "x"], {}, ["--odd-name", "x"]),
        (["python", "--grace", "5", "--", "--help"], {}, ["python", "--grace", "5", "--", "--help"]),
        (["--quiet", "--help", "python"], {"help": ""}, []),
        (["-h"], {"help": ""}, []),
        (["--version"], {"version": ""}, []),
    ],
)
def test_options_end_at_the_command(argv: list[str], flags: dict[str, str], command: list[str]) -> None:
    """The first word that is no option, and all that follow, are the command's."""
    assert (flags, command) == command_line.parse(argv)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--grave", "5", "x"], "there is no option '--grave', see ascend-runner --help"),
        (["--grac", "5", "x"], "there is no option '--grac', see ascend-runner --help"),
        (["-n", "8", "x"], "there is no option '-n', see ascend-runner --help"),
        (["--grace"], "--grace is without its value, expected --grace SECONDS"),
        (["--grace", "--quiet", "x"], "--grace is without its value, expected --grace SECONDS"),
        (["--quiet=no", "x"], "--quiet is given 'no', expected no value"),
    ],
)
def test_wrong_option_is_named(argv: list[str], sentence: str) -> None:
    """Nothing is guessed: not what an unknown option meant, and no option is taken for a value."""
    with pytest.raises(SettingsError) as caught:
        command_line.parse(argv)

    assert sentence == str(caught.value)


def test_help_names_each_option_beside_its_variable() -> None:
    """Help fits a screen of 120 columns and leaves nothing out."""
    text = command_line.help_text()
    words = text.split()

    assert text.startswith("usage: ascend-runner [OPTIONS] COMMAND [ARG ...]\n\n")
    assert max(map(len, text.splitlines())) <= 120
    assert {option.flag for option in OPTIONS} <= set(words)
    assert {f"[{option.variable}]" for option in OPTIONS if option.has_variable} <= set(words)


# --- The training command ---------------------------------------------------------------------------------------------

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
    with pytest.raises(CommandError) as caught:
        command_line.check(argv)

    assert (sentence, RUNNER_FAILED) == (str(caught.value), caught.value.exit_status)


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
    ],
)
def test_not_refused(argv: list[str]) -> None:
    """Arguments may hold anything, and so may paths."""
    command_line.check(argv)
