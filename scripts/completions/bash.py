"""The completions for bash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from completions.model import JOB_NAMES, NOTE, Command, Flag, Value

COMMON: Final = r"""
_ascend_runner_jobs() {
    local base folder files=() bases=("$XDG_RUNTIME_DIR/ascend-runner" /run/ascend-runner "/dev/shm/ascend-runner-$UID")
    [[ -n $ASCEND_RUNNER_RUN_DIR ]] && bases=("$ASCEND_RUNNER_RUN_DIR")
    for base in "${bases[@]}"; do
        for folder in "$base"/*/; do
            [[ -O $folder && -f ${folder}job.json ]] && files+=("${folder}job.json")
        done
    done
    sed -n '%(names)s' "${files[@]}" /dev/null 2>/dev/null | sort -u
}

# Completes $cur with a kind of value and with words.
_ascend_runner_value() {
    local name kind=$1 words=$2
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    case $kind in
        file) compopt -o default ;;
        directory) compopt -o filenames; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$cur") ;;
        job)
            compopt -o filenames
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$cur")
            # Not `compgen -W`, which would carry out a command substitution in a name.
            while IFS= read -r name || [[ -n $name ]]; do
                [[ $name == "$cur"* ]] && COMPREPLY+=("$name")
            done < <(_ascend_runner_jobs)
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

RUNNER: Final = r"""
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

TOOL: Final = r"""
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


def text(programs: Mapping[str, tuple[Command, ...]], runner: Sequence[Flag]) -> str:
    """Return the completions for bash, with those of the command if there is bash-completion."""
    valued = [flag for flag in runner if flag.value]
    script = (
        NOTE
        + COMMON.replace("%(names)s", JOB_NAMES)
        + RUNNER
        % {
            "valued": "|".join(name for flag in valued for name in flag.names if name != "--help"),
            "values": "\n".join(f"            {_case(flag)}" for flag in valued),
            "flags": _names(runner),
        }
    )
    for program, commands in programs.items():
        script += TOOL % {
            "function": "_" + program.replace("-", "_"),
            "program": program,
            "values": "\n".join(
                f"        {_case(flag, command.name + ' ')}"
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
                f"        {command.name}) {_value(command.argument)} ;;" for command in commands if command.most != 0
            ),
        }
    return script


def _names(flags: Sequence[Flag]) -> str:
    return " ".join(name for flag in flags for name in flag.names)


def _case(flag: Flag, prefix: str = "") -> str:
    names = "|".join(f'"{prefix}{name}"' for name in flag.names)
    end = "; return" if prefix else ""
    return f"{names}) {_value(flag.value or Value())}{end} ;;"


def _value(value: Value) -> str:
    return f'_ascend_runner_value "{value.kind}" "{" ".join(value.words)}"'
