"""Writes the completions of the three programs for bash, zsh and fish, from their tables of options and commands.

They are static: no Python runs when a user presses TAB. With --check, only reports what is out of date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from ascend_runner.job_tool import arguments as job_tool
from ascend_runner.rank_table_tool import arguments as rank_table_tool
from ascend_runner.rank_table_tool import files as rank_table_files
from ascend_runner.settings.option import Topic
from ascend_runner.settings.options import OPTIONS

TARGET: Final = Path(job_tool.__file__).parent / "completions"
FILES: Final = {"PATH", "FILE", "OUT", "A", "B", "FILE|FOLDER"}
PLACEHOLDERS: Final = {"DIR", "DURATION", "FILE", "FOLDER", "JOB", "RANK", "RANKS"}
NOTE: Final = "# Completion for ascend-runner, ascend-job and ascend-rank-table, written by scripts/generate.\n"


@attrs.frozen
class Value:
    """What completes a value: `words`, and what `kind` says: "file", "directory", "job", or "" for nothing."""

    kind: str = ""
    words: tuple[str, ...] = ()


@attrs.frozen
class Flag:
    """An option with its names; a switch has no value."""

    names: tuple[str, ...]
    help: str
    value: Value | None = None


@attrs.frozen
class Command:
    """A command of a program: its options, and its arguments, the last of which may be repeated."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    arguments: tuple[Value, ...]


HELP: Final = Flag(("-h", "--help"), "show help")
VERSION: Final = Flag(("--version",), "show the version")


def value_of(metavar: str, choices: Sequence[str] = ()) -> Value:
    """Return what completes a value that is described by `metavar`."""
    words = metavar.split("|")
    kind = "directory" if "DIR" in words else "job" if "JOB" in words else "file" if set(words) & FILES else ""
    known = [*choices] or [word for word in words if len(words) > 1 and word not in PLACEHOLDERS]
    return Value(kind, tuple(known))


def runner_flags() -> tuple[Flag, ...]:
    """Return the options of ascend-runner."""
    topics = Value("", tuple(topic.value for topic in Topic))
    flags = [Flag((one.flag,), one.help, None if one.is_switch else value_of(one.metavar)) for one in OPTIONS]
    return (*flags, Flag(("--help",), "show help, or that of a topic", topics), VERSION)


def commands_of(parser: argparse.ArgumentParser, parsers: Mapping[str, argparse.ArgumentParser]) -> tuple[Command, ...]:
    """Return the commands of a program."""
    (listed,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001  as shtab
    helps = {one.dest: one.help or "" for one in listed._choices_actions}  # noqa: SLF001
    return tuple(_command(name, helps[name], one) for name, one in parsers.items())


def _command(name: str, text: str, parser: argparse.ArgumentParser) -> Command:
    flags, arguments = [HELP], []
    for action in parser._actions:  # noqa: SLF001
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        value = value_of(metavar, [*map(str, action.choices or ())])
        if not action.option_strings:
            arguments.append(value)
        elif "--help" not in action.option_strings:
            text_of_flag = (action.help or "") % {"default": action.default}
            flags.append(Flag(tuple(action.option_strings), text_of_flag, None if action.nargs == 0 else value))
    return Command(name, text, tuple(flags), tuple(arguments))


# --- bash -------------------------------------------------------------------------------------------------------------

BASH_COMMON: Final = r"""
_ascend_runner_jobs() {
    local base bases=("$XDG_RUNTIME_DIR/ascend-runner" /run/ascend-runner "/dev/shm/ascend-runner-$UID")
    [[ -n $ASCEND_RUNNER_RUN_DIR ]] && bases=("$ASCEND_RUNNER_RUN_DIR")
    for base in "${bases[@]}"; do
        sed -n 's/^{"job_id": "\([^"\\]*\)", "part": "\([^"\\]*\)".*/\1\2/p' "$base"/*/job.json 2>/dev/null
    done
}

# Completes $cur with a kind of value and with words.
_ascend_runner_value() {
    local kind=$1 words=$2
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    case $kind in
        file) compopt -o default ;;
        directory) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$cur") ;;
        job)
            compopt -o filenames
            words=$(_ascend_runner_jobs)
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"; compgen -d -- "$cur")
            ;;
    esac
}

# Sets $cur to what is to be completed, and $flag to the option of which it is the value, if it is in the same word.
_ascend_runner_word() {
    cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]}
    if [[ $cur == = ]]; then
        cur=
    elif [[ $flag == = ]]; then
        flag=${COMP_WORDS[COMP_CWORD - 2]}
    fi
}
"""

BASH_RUNNER: Final = r"""
_ascend_runner() {
    local cur flag index=1
    _ascend_runner_word
    while ((index < COMP_CWORD)); do
        case ${COMP_WORDS[index]} in
            --) ((index++)); break ;;
            %(valued)s)
                [[ ${COMP_WORDS[index + 1]} == = ]] && ((index++))
                ((index += 2))
                ;;
            -*) ((index++)) ;;
            *) break ;;
        esac
    done
    if ((index > COMP_CWORD)); then
        case $flag in
%(values)s
        esac
    elif ((index == COMP_CWORD)) && [[ $cur == -* && ${COMP_WORDS[COMP_CWORD - 1]} != -- ]]; then
        COMPREPLY=($(compgen -W "%(flags)s" -- "$cur"))
    elif declare -F _command_offset >/dev/null; then
        _command_offset $index
    elif ((index == COMP_CWORD)); then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -c -- "$cur" | sort -u)
    else
        compopt -o default
    fi
}
complete -F _ascend_runner ascend-runner
"""

BASH_TOOL: Final = r"""
%(function)s() {
    local cur flag index=1 command= words
    _ascend_runner_word
    while ((index < COMP_CWORD)) && [[ ${COMP_WORDS[index]} == -* ]]; do
        ((index++))
    done
    ((index < COMP_CWORD)) && command=${COMP_WORDS[index]}
    case "$command $flag" in
%(values)s
    esac
    if [[ $cur == -* ]]; then
        case $command in
%(flags)s
        esac
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        return
    fi
    case $command in
        "") COMPREPLY=($(compgen -W "%(commands)s" -- "$cur")) ;;
%(arguments)s
    esac
}
complete -F %(function)s %(program)s
"""


def bash(programs: Mapping[str, tuple[Command, ...]], runner: Sequence[Flag]) -> str:
    """Return the completions for bash, with those of the command if there is bash-completion."""
    valued = [flag for flag in runner if flag.value]
    text = BASH_COMMON + BASH_RUNNER % {
        "valued": "|".join(name for flag in valued for name in flag.names if name != "--help"),
        "values": "\n".join(f"            {_bash_case(flag)}" for flag in valued),
        "flags": _names(runner),
    }
    for program, commands in programs.items():
        text += BASH_TOOL % {
            "function": "_" + program.replace("-", "_"),
            "program": program,
            "values": "\n".join(
                f"        {_bash_case(flag, command.name + ' ')}"
                for command in commands
                for flag in command.flags
                if flag.value
            ),
            "flags": "\n".join(
                f'            {command.name}) words="{_names(command.flags)}" ;;' for command in commands
            )
            + '\n            *) words="-h --help --version" ;;',
            "commands": " ".join(command.name for command in commands),
            "arguments": "\n".join(
                f"        {command.name}) {_bash_value(command.arguments[0])} ;;"
                for command in commands
                if command.arguments
            ),
        }
    return text


def _names(flags: Sequence[Flag]) -> str:
    return " ".join(name for flag in flags for name in flag.names)


def _bash_case(flag: Flag, prefix: str = "") -> str:
    names = "|".join(f'"{prefix}{name}"' for name in flag.names)
    end = "; return" if prefix else ""
    return f"{names}) {_bash_value(flag.value or Value())}{end} ;;"


def _bash_value(value: Value) -> str:
    return f'_ascend_runner_value "{value.kind}" "{" ".join(value.words)}"'


# --- zsh --------------------------------------------------------------------------------------------------------------

ZSH_HEAD: Final = "#compdef ascend-runner ascend-job ascend-rank-table\n"
ZSH_COMMON: Final = r"""
_ascend_runner_jobs() {
    local -a names bases
    bases=($XDG_RUNTIME_DIR/ascend-runner /run/ascend-runner /dev/shm/ascend-runner-$UID)
    [[ -n $ASCEND_RUNNER_RUN_DIR ]] && bases=($ASCEND_RUNNER_RUN_DIR)
    local pattern='s/^{"job_id": "\([^"\\]*\)", "part": "\([^"\\]*\)".*/\1\2/p'
    names=(${(f)"$(sed -n $pattern $^bases/*/job.json(N) /dev/null)"})
    _alternative "jobs:job:compadd -a names" "directories:directory with logs:_files -/"
}
"""
ZSH_TOOL: Final = r"""
_%(program)s() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    _arguments -C '(- *)'{-h,--help}'[show help]' '(- *)--version[show the version]' '1: :->command' '*:: :->rest'
    case $state in
        command)
            local -a commands
            commands=(
%(commands)s
            )
            _describe command commands
            ;;
        rest)
            case $line[1] in
%(cases)s
            esac
            ;;
    esac
}
"""
ZSH_END: Final = r"""
if [[ $funcstack[1] == _ascend-runner ]]; then
    _$service "$@"
else
    compdef _ascend-runner-itself ascend-runner
    compdef _ascend-job ascend-job
    compdef _ascend-rank-table ascend-rank-table
fi
"""


def zsh(programs: Mapping[str, tuple[Command, ...]], runner: Sequence[Flag]) -> str:
    """Return the completions for zsh."""
    specs = " \\\n        ".join(_zsh_flag(flag) for flag in runner)
    text = ZSH_HEAD + NOTE + ZSH_COMMON
    text += f"\n_ascend-runner-itself() {{\n    _arguments -S -A '-*' \\\n        {specs} \\\n"
    text += "        '(-)1: :_command_names -e' '*:: :_normal'\n}\n"
    for program, commands in programs.items():
        cases = []
        for command in commands:
            words = [_zsh_flag(flag) for flag in command.flags]
            words += [_quoted(f"{place}:: :{_zsh_value(value)}") for place, value in zip("1*", command.arguments)]
            cases.append(
                f"                {command.name}) _arguments -S " + " \\\n                    ".join(words) + " ;;"
            )
        names = "\n".join(f"                {_quoted(f'{one.name}:{one.help}')}" for one in commands)
        text += ZSH_TOOL % {"program": program, "commands": names, "cases": "\n".join(cases)}
    return text + ZSH_END.replace("_$service", "${${:-_$service}/%_ascend-runner/_ascend-runner-itself}")


def _zsh_flag(flag: Flag) -> str:
    text = flag.help.replace("\\", "").replace("[", "(").replace("]", ")").replace(":", "\\:")
    names = [f"{name}=" if flag.value and name.startswith("--") else name for name in flag.names]
    value = f":value:{_zsh_value(flag.value)}" if flag.value else ""
    return " ".join(_quoted(f"{name}[{text}]{value}") for name in names)


def _zsh_value(value: Value) -> str:
    words = f"({' '.join(value.words)})" if value.words else ""
    kinds = {"file": "_files", "directory": "_files -/", "job": "_ascend_runner_jobs"}
    return words or kinds.get(value.kind, " ")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# --- fish -------------------------------------------------------------------------------------------------------------

FISH_COMMON: Final = r"""
function __ascend_runner_jobs
    set -l bases /run/ascend-runner /dev/shm/ascend-runner-(id -u)
    set -q XDG_RUNTIME_DIR; and set -a bases $XDG_RUNTIME_DIR/ascend-runner
    set -q ASCEND_RUNNER_RUN_DIR; and set bases $ASCEND_RUNNER_RUN_DIR
    for base in $bases
        cat $base/*/job.json 2>/dev/null
        echo
    end | string replace -rf '^{"job_id": "([^"\\\\]*)", "part": "([^"\\\\]*)".*' '$1$2'
    __fish_complete_directories (commandline -ct) 'directory with logs'
end

# Prints the words of the command before the cursor, if it has begun.
function __ascend_runner_command
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case --
                set -e words[1]
                break
            case '--*=*'
                set -e words[1]
            case %(valued)s
                set -e words[1]
                set -e words[1]
            case '-*'
                set -e words[1]
            case '*'
                break
        end
    end
    set -q words[1]; and printf '%%s\n' $words
end

function __ascend_runner_is_before_command
    test (count (__ascend_runner_command)) -eq 0
end

function __ascend_runner_complete_command
    set -l word (commandline -ct)
    if __ascend_runner_is_before_command; and string match -q -- '-*' $word
        return
    end
    complete -C (string join ' ' -- (__ascend_runner_command | string escape) $word)
end

complete -c ascend-runner -f -a '(__ascend_runner_complete_command)'
"""


def fish(programs: Mapping[str, tuple[Command, ...]], runner: Sequence[Flag]) -> str:
    """Return the completions for fish."""
    valued = " ".join(name for flag in runner if flag.value for name in flag.names if name != "--help")
    lines = [_fish_flag("ascend-runner", "__ascend_runner_is_before_command", flag) for flag in runner]
    for program, commands in programs.items():
        lines += ["", f"complete -c {program} -f"]
        lines += [_fish_flag(program, "__fish_use_subcommand", flag) for flag in (HELP, VERSION)]
        for command in commands:
            seen = f"__fish_seen_subcommand_from {command.name}"
            text = _fish_quoted(command.help)
            lines.append(f"complete -c {program} -n __fish_use_subcommand -a {command.name} -d {text}")
            lines += [_fish_flag(program, seen, flag) for flag in command.flags]
            lines += [f"complete -c {program} -n '{seen}'{_fish_value(value)}" for value in command.arguments[:1]]
    return NOTE + FISH_COMMON % {"valued": valued} + "\n".join(lines) + "\n"


def _fish_flag(program: str, condition: str, flag: Flag) -> str:
    names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in flag.names)
    value = f" -r{_fish_value(flag.value)}" if flag.value else ""
    return f"complete -c {program} -n '{condition}'{names} -d {_fish_quoted(flag.help)}{value}"


def _fish_value(value: Value) -> str:
    words = " ".join(value.words)
    calls = {"job": "(__ascend_runner_jobs)", "directory": "(__fish_complete_directories (commandline -ct))"}
    if value.kind == "file":
        return f" -F -a '{words}'" if words else " -F"
    return f" -f -a '{' '.join(filter(None, (words, calls.get(value.kind, ''))))}'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def texts() -> dict[Path, str]:
    """Return the files by their names. Shells look for one that is called like the program."""
    programs = {
        job_tool.PROGRAM: commands_of(*job_tool.make_parser()),
        rank_table_files.PROGRAM: commands_of(*rank_table_tool.make_parser()),
    }
    found = {
        Path("bash", "ascend-runner"): NOTE + bash(programs, runner_flags()),
        Path("zsh", "_ascend-runner"): zsh(programs, runner_flags()),
        Path("fish", "ascend-runner.fish"): fish(programs, runner_flags()),
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
