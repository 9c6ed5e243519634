"""The completions for zsh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from completions.model import JOB_NAMES, NOTE, Command, Flag, Value

HEAD: Final = "#compdef ascend-runner ascend-job ascend-rank-table\n"
COMMON: Final = r"""
_ascend_runner_jobs() {
    local -a bases folders
    bases=($XDG_RUNTIME_DIR/ascend-runner /run/ascend-runner /dev/shm/ascend-runner-$UID)
    [[ -n $ASCEND_RUNNER_RUN_DIR ]] && bases=($ASCEND_RUNNER_RUN_DIR)
    folders=($^bases/*(N-/U))
    names=(${(f)"$(sed -n '%(names)s' $^folders/job.json(N-.) /dev/null)"})
}

# Completes a kind of value, and words.
_ascend_runner_value() {
    local kind=$1
    local -aU names
    local -a choices
    shift
    (( $# )) && choices+=("words:value:($*)")
    case $kind in
        file) choices+=("files:file:_files") ;;
        directory) choices+=("directories:directory:_files -/") ;;
        job)
            _ascend_runner_jobs
            choices+=("jobs:job:compadd -a names" "directories:directory with logs:_files -/")
            ;;
    esac
    _alternative $choices
}
"""
TOOL: Final = r"""
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
END: Final = r"""
if [[ $funcstack[1] == _ascend-runner ]]; then
    _$service "$@"
else
    compdef _ascend-runner-itself ascend-runner
    compdef _ascend-job ascend-job
    compdef _ascend-rank-table ascend-rank-table
fi
"""


def text(programs: Mapping[str, tuple[Command, ...]], runner: Sequence[Flag]) -> str:
    """Return the completions for zsh."""
    specs = " \\\n        ".join(_flag(flag) for flag in runner)
    script = HEAD + NOTE + COMMON.replace("%(names)s", JOB_NAMES)
    script += f"\n_ascend-runner-itself() {{\n    _arguments -S -A '-*' \\\n        {specs} \\\n"
    script += "        '(-)1: :_command_names -e' '*:: :_normal'\n}\n"
    for program, commands in programs.items():
        cases = []
        for command in commands:
            words = [_flag(flag) for flag in command.flags]
            places = ["*"] if command.most is None else [f"{place}:" for place in range(1, command.most + 1)]
            words += [_quoted(f"{place}: :{_value(command.argument)}") for place in places]
            cases.append(
                f"                {command.name}) _arguments -S " + " \\\n                    ".join(words) + " ;;"
            )
        names = "\n".join(f"                {_quoted(f'{one.name}:{one.help}')}" for one in commands)
        script += TOOL % {"program": program, "commands": names, "cases": "\n".join(cases)}
    return script + END.replace("_$service", "${${:-_$service}/%_ascend-runner/_ascend-runner-itself}")


def _flag(flag: Flag) -> str:
    text = flag.help.replace("\\", "").replace("[", "(").replace("]", ")").replace(":", "\\:")
    names = [f"{name}=" if flag.value and name.startswith("--") else name for name in flag.names]
    value = f":value:{_value(flag.value)}" if flag.value else ""
    return " ".join(_quoted(f"{name}[{text}]{value}") for name in names)


def _value(value: Value) -> str:
    if value.kind:  # behind a space, it gets no further arguments
        return " " + " ".join(("_ascend_runner_value", value.kind, *value.words))
    return f"({' '.join(value.words)})" if value.words else " "


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
