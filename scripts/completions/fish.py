"""The completions for fish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from completions.model import HELP, NOTE, VERSION, Command, Flag, Value

COMMON: Final = r"""
function __ascend_runner_jobs
    set -l bases /run/ascend-runner /dev/shm/ascend-runner-(id -u)
    set -q XDG_RUNTIME_DIR; and set -a bases $XDG_RUNTIME_DIR/ascend-runner
    set -q ASCEND_RUNNER_RUN_DIR; and set bases $ASCEND_RUNNER_RUN_DIR
    set -l names
    for folder in $bases/*/
        test -O $folder -a -f $folder/job.json -a -r $folder/job.json; or continue
        # Without a pipeline: on a busy machine, one of a loop and builtins may lose its output (fish 3.6).
        for name in (string replace -rf '^{"job_id": "(\w[\w.+@-]*)", "part": "([\w.+@-]*)".*' '$1$2' <$folder/job.json)
            contains -- $name $names; or set -a names $name
        end
    end
    set -q names[1]; and printf '%%s\n' $names
    for folder in (__fish_complete_directories (commandline -ct) 'directory with logs')
        contains -- (string replace -r '/\t.*' '' -- $folder) $names; or printf '%%s\n' $folder
    end
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


def text(programs: Mapping[str, tuple[Command, ...]], runner: Sequence[Flag]) -> str:
    """Return the completions for fish."""
    valued = " ".join(name for flag in runner if flag.value for name in flag.names if name != "--help")
    lines = [_flag("ascend-runner", "__ascend_runner_is_before_command", flag) for flag in runner]
    for program, commands in programs.items():
        lines += ["", f"complete -c {program} -f"]
        lines += [_flag(program, "__fish_use_subcommand", flag) for flag in (HELP, VERSION)]
        for command in commands:
            seen = f"__fish_seen_subcommand_from {command.name}"
            summary = _quoted(command.help)
            lines.append(f"complete -c {program} -n __fish_use_subcommand -a {command.name} -d {summary}")
            lines += [_flag(program, seen, flag) for flag in command.flags]
            if command.most != 0:
                lines.append(f"complete -c {program} -n '{seen}'{_value(command.argument)}")
    return NOTE + COMMON % {"valued": valued} + "\n".join(lines) + "\n"


def _flag(program: str, condition: str, flag: Flag) -> str:
    names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in flag.names)
    value = f" -r{_value(flag.value)}" if flag.value else ""
    return f"complete -c {program} -n '{condition}'{names} -d {_quoted(flag.help)}{value}"


def _value(value: Value) -> str:
    words = " ".join(value.words)
    calls = {"job": "(__ascend_runner_jobs)", "directory": "(__fish_complete_directories (commandline -ct))"}
    if value.kind == "file":
        return f" -F -a '{words}'" if words else " -F"
    return f" -f -a '{' '.join(filter(None, (words, calls.get(value.kind, ''))))}'"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
