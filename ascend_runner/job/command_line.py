"""Which words of the command line are the runner's options and which the training command; and the help. Pure.

By hand, since what is needed is little (options end at the first word that is none) and argparse costs 5 ms of a
start-up of 35: its import, and a parser object with an action for each option.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.errors import COMMAND_NOT_FOUND, CommandError, SettingsError

from .settings import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE: Final = "ascend-runner [OPTIONS] COMMAND [ARG ...]"
SEPARATORS: Final = ("&&", "||")  # no program takes these as an argument; a lone ; or | some do
SHELL: Final = "expected a command and its arguments, or bash -c '...' around a line for a shell"
HELP: Final = "help"
VERSION: Final = "version"

_REQUESTS: Final = {"--help": HELP, "-h": HELP, "--version": VERSION}
_WIDTH: Final = 118
_COLUMN: Final = 32  # where the meanings begin

_DESCRIPTION: Final = (
    "Start COMMAND once per Ascend NPU of this node, as the platform's rank table says; keep every rank's log, stop all"
    " at the first failure, leave nothing behind, and name the cause."
)
_EPILOG: Final = (
    "A flag beats its variable. Exit status: 0 when every rank exited 0, else that of the first rank to fail"
    " (128 + signal), 128 + signal when told to stop, 125 when the runner itself failed, 126 or 127 when COMMAND cannot"
    " be executed or is not there. Example: ascend-runner python train.py --epochs 5"
)


def parse(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split the words into flags by option name, and the training command, which needs no quoting.

    Options end at the first word that is none, or at `--`. A request for HELP or VERSION is the only flag then.
    Errors: SettingsError.
    """
    options = {option.flag: option for option in OPTIONS}
    flags: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        if word in _REQUESTS:
            return {_REQUESTS[word]: ""}, []

        flag, equals, value = word.partition("=")
        option = options.get(flag)
        if option is None:
            raise SettingsError(f"there is no option {flag!r}, see ascend-runner --help")
        if option.is_switch:
            if equals:
                raise SettingsError(f"{flag} is given {value!r}, expected no value")
            value = "1"
        elif not equals:
            if not words or words[0].startswith("--"):
                raise SettingsError(f"{flag} is without its value, expected {flag} {option.metavar}")
            value = words.pop(0)
        flags[option.name] = value

    return flags, words


def check(argv: Sequence[str]) -> None:
    """Refuse a training command that only a shell could run. Errors: CommandError.

    It starts with an executable and is no shell line (the task-training platform's guide to run commands).
    """
    first, *others = argv
    if not first:
        raise CommandError("the command is an empty word", exit_status=COMMAND_NOT_FOUND)
    name, equals, _ = first.partition("=")
    if equals and name.isidentifier():
        raise CommandError(f"the command starts with {first!r}, which sets a variable for a shell: {SHELL}")
    # A path may have spaces in it, but hardly a separator.
    words = first.split() or [""]
    if len(words) > 1 and ("/" not in words[0] or {*words} & {*SEPARATORS}):
        raise CommandError(f"the command starts with {first!r}, which is a line for a shell: {SHELL}")
    found = next((word for word in others if word in SEPARATORS), None)
    if found:
        raise CommandError(f"the command has the word {found!r}, which joins commands in a shell: {SHELL}")


def help_text() -> str:
    """Give each option beside its variable, and what the exit status means."""
    from textwrap import fill  # only here: 3 ms

    rows = [
        (
            f"{option.flag} {option.metavar}",
            f"{option.help} [{option.variable}]" if option.has_variable else option.help,
        )
        for option in OPTIONS
    ]
    rows += [("--version", "show the version"), ("--help, -h", "show this text")]
    options = [
        fill(meaning, _WIDTH, initial_indent=f"  {words}  ".ljust(_COLUMN), subsequent_indent=" " * _COLUMN)
        for words, meaning in rows
    ]
    return "\n".join(
        [
            f"usage: {USAGE}\n",
            f"{fill(_DESCRIPTION, _WIDTH)}\n",
            "options, each beside its variable:",
            *options,
            f"\n{fill(_EPILOG, _WIDTH)}\n",
        ]
    )
