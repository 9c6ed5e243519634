"""Takes a command apart: its conda environment, Python's script or module and arguments, and an engine in it. Pure.

An engine starts the processes of a node or of all nodes: to run it once per device would start n x n processes.

ANACONDA_DIR and DEFAULT_CONDA_ENV_NAME are ModelArts' names (its guide to custom images). Its job runtime is not a
shell, so `conda activate` does not work there, and `conda run` adds a process and buffers the output. Without
ANACONDA_DIR an environment is looked for where images have conda.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os.path
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.errors import SettingsError

VALUED: Final = "cmWX"  # options of python(1) that take a value: the rest of the word, or the next word

# The modules that the programs of the same names run.
TORCHRUN_MODULE: Final = "torch.distributed.run"
LAUNCH_MODULE: Final = "torch.distributed.launch"
MSRUN_MODULE: Final = "mindspore.parallel.cluster.run"
DEEPSPEED_MODULE: Final = "deepspeed.launcher.runner"
MSRUN_WORKERS: Final = "8"  # on all nodes and on each, by default
CONFIGURED: Final = frozenset({"--config-file", "--machine-rank"})  # options of accelerate
# The name in messages (and of --launcher, if it has the engine), the program and the module of each engine.
PROGRAMS: Final = (
    ("torchrun", "torchrun", TORCHRUN_MODULE),
    (LAUNCH_MODULE, LAUNCH_MODULE, LAUNCH_MODULE),
    ("msrun", "msrun", MSRUN_MODULE),
    ("mpirun", "mpirun", "mpirun"),
    ("mpiexec", "mpiexec", "mpiexec"),
    ("deepspeed", "deepspeed", DEEPSPEED_MODULE),
    ("horovodrun", "horovodrun", "horovod.runner.launch"),
    ("ray", "ray", "ray.scripts.scripts"),
    ("accelerate launch", "accelerate-launch", "accelerate.commands.launch"),
)
# Programs that are an engine only with certain first arguments: name, program, module, arguments.
LLAMA_FACTORY: Final = "llamafactory-cli"
SWIFT: Final = "swift"
MEGATRON_SWIFT: Final = "megatron"  # of ms-swift
WITH_ARGUMENT: Final = (
    ("accelerate launch", "accelerate", "accelerate", ("launch",)),
    ("accelerate launch", "accelerate", "accelerate.commands.accelerate_cli", ("launch",)),
    (LLAMA_FACTORY, LLAMA_FACTORY, "llamafactory.cli", ("train",)),
    (LLAMA_FACTORY, "lmf", "llamafactory.cli", ("train",)),
    (SWIFT, SWIFT, "swift.cli.main", ("pt", "sft", "rlhf", "infer")),
    (MEGATRON_SWIFT, MEGATRON_SWIFT, "swift.cli._megatron.main", ("pt", "sft", "rlhf", "export")),
)
# Programs that run the rest of their words as a command, each with its options that take the next word as a value.
WRAPPERS: Final[Mapping[str, frozenset[str]]] = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
    "numactl": frozenset(
        {"-m", "--membind", "-N", "--cpunodebind", "-C", "--physcpubind", "-i", "--interleave", "-p", "--preferred"}
    ),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "-n"}),
    "taskset": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "timeout": frozenset({"-s", "--signal", "-k", "--kill-after"}),
    "time": frozenset({"-f", "-o"}),
    "conda": frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}),
}
TAKES_A_WORD: Final = frozenset({"taskset", "timeout"})  # a mask or list of cores, a duration
SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh"})
SHELL_VALUED: Final = re.compile(r"[-+][A-Za-z]*[oO]|--rcfile|--init-file")  # options with a value: -eo pipefail
# Names with which a Python script starts processes.
STARTING: Final = frozenset(
    {"Popen", "run", "call", "check_call", "system", "popen", "execvp", "execv", "execvpe", "execlp", "spawnvp"}
)
BETWEEN_COMMANDS: Final = r"[;&|\n]+"  # separators of a shell's commands
COMMENT: Final = r"(?m)^\s*#.*$"  # a line of its own
BEFORE_COMMANDS: Final = frozenset({"exec", "then", "do", "else", "if", "while", "!", "{", "("})  # words of a shell


@attrs.frozen
class PythonCommand:
    """A command that runs a Python script or module: `interpreter` `options` [-m] `target` `arguments`."""

    interpreter: str
    options: tuple[str, ...]
    is_module: bool
    target: str
    arguments: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The script, or -m and the module, and the arguments."""
        return (*(("-m",) if self.is_module else ()), self.target, *self.arguments)


def is_python(word: str) -> bool:
    """Whether a word is the name of a Python, with or without a path: python, python3, python3.9."""
    name = os.path.basename(word)
    return name.startswith("python") and not name[len("python") :].replace(".", "").strip("0123456789")


def python_command(argv: Sequence[str]) -> PythonCommand | None:
    """Return the parts of a Python command, or None if it has no script or module (another program, or python -c)."""
    if not is_python(argv[0]):
        return None

    options: list[str] = []
    words = list(argv[1:])
    while words and words[0].startswith("-") and words[0] != "-":
        flags, letter, value = _cut(words.pop(0))
        if letter == "c":
            return None
        if letter == "m":
            options += [flags] if flags != "-" else []
            words = [value, *words] if value else words
            return PythonCommand(argv[0], tuple(options), True, words[0], tuple(words[1:])) if words else None
        options.append(flags + letter + value)
        if letter and not value and words:
            options.append(words.pop(0))

    if not words or words[0] == "-":
        return None
    return PythonCommand(argv[0], tuple(options), False, words[0], tuple(words[1:]))


def calls(argv: Sequence[str], program: str, module: str) -> bool:
    """Whether a command calls a program by its name, or as a script or module of Python.

    An argument with that name does not count: python train.py --engine torchrun.
    """
    command = python_command(argv)
    if command is None:
        return os.path.basename(argv[0]) == program

    return command.target == module if command.is_module else os.path.basename(command.target) == program


def engine_command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the engine that a command runs, also after a wrapper or in the line of a shell, or ()."""
    command = _without_wrappers(argv)
    if command and os.path.basename(command[0]) in SHELLS:
        return next(filter(None, map(engine_command, commands_of(_line_of(command[1:])))), ())
    return command if _engine(command) else ()


def engine_in(argv: Sequence[str]) -> str:
    """Return the engine that a command runs, also after `env` or in `bash -c`, or ""."""
    return _engine(engine_command(argv))


def commands_of(script: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a shell's script, as far as they can be read without running it."""
    for part in re.split(BETWEEN_COMMANDS, re.sub(COMMENT, "", script).replace("\\\n", " ")):
        try:
            words = shlex.split(part)
        except ValueError:  # a quoted operator
            continue
        while words and (words[0] in BEFORE_COMMANDS or "=" in words[0]):
            del words[0]
        if words:
            yield tuple(words)


def script_of(argv: Sequence[str]) -> str:
    """Return the path of the script that a shell or Python runs, also after a wrapper, or ""."""
    command = _without_wrappers(argv)
    if command and os.path.basename(command[0]) in SHELLS:
        has_line, words = _cut_shell(command[1:])
        return "" if has_line else next(iter(words), "")
    python = python_command(command) if command else None
    return python.target if python and not python.is_module else ""


def file_of(argv: Sequence[str]) -> str:
    """Return the path of the script that a command runs, or of its program if that is given by a path, or ""."""
    command = _without_wrappers(argv) or ("",)
    is_interpreter = os.path.basename(command[0]) in SHELLS or is_python(command[0])
    return script_of(command) or ("" if is_interpreter or "/" not in command[0] else command[0])


def engine_in_script(script: str) -> str:
    """Return an engine that the text of a script shows to run, or "".

    A Python script runs one if it starts processes, and one of its strings is the name or the command of an engine. Any
    other script is a shell's.
    """
    try:
        nodes = list(ast.walk(ast.parse(script)))
    except (SyntaxError, ValueError):
        return _engine_in_text(script)
    names = {name for node in nodes for name in (getattr(node, "attr", ""), getattr(node, "id", ""))}
    comments = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [_text_of(node) for node in nodes if id(node) not in comments] if names & STARTING else []
    return next(filter(None, map(_engine_in_text, texts)), "")


def _text_of(node: ast.AST) -> str:
    """Return the value of a string, "" of any other node. What an f-string inserts may be the path of a Python."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) or "python" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _engine_in_text(text: str) -> str:
    named = next((name for name, *words in PROGRAMS if text in words), "")
    return named or next(filter(None, map(engine_in, commands_of(text))), "")


def _engine(command: Sequence[str]) -> str:
    if not command:
        return ""
    python = python_command(command)
    arguments = python.arguments if python else command[1:]
    for name, program, module, first in WITH_ARGUMENT:
        if calls(command, program, module):
            return name if "".join(arguments[:1]) in first else ""

    return next((name for name, program, module in PROGRAMS if calls(command, program, module)), "")


def names_other_nodes(argv: Sequence[str]) -> bool:
    """Whether an engine may run on other nodes as well, each with a command of its own, by its options.

    A configuration file of accelerate may say so, too.
    """
    values = options_of(engine_command(argv))
    counts = {values.get(option, "1") for option in ("--nnodes", "--num-machines")}
    workers = {values.get(option, MSRUN_WORKERS) for option in ("--worker-num", "--local-worker-num")}
    is_configured = engine_in(argv) == "accelerate launch" and bool(CONFIGURED & values.keys())
    return is_configured or bool(counts - {"1", "1:1"}) or len(workers) > 1


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Return each word with its value, or the first one if it comes again; options are spelled with dashes."""
    values: dict[str, str] = {}
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        option, equals, value = word.partition("=")
        values.setdefault(option.replace("_", "-"), value if equals else following)
    return values


def _without_wrappers(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command without `env A=B`, `numactl -N 0`, `nice -n 5` and the like before it."""
    words = list(argv)
    while words and (wrapper := os.path.basename(words[0])) in WRAPPERS:
        del words[: 2 if wrapper == "conda" else 1]  # conda run
        while words and (words[0].startswith("-") or (wrapper == "env" and "=" in words[0])):
            if words.pop(0) in WRAPPERS[wrapper]:
                del words[:1]
        if wrapper in TAKES_A_WORD:
            del words[:1]
    return tuple(words)


@functools.lru_cache(maxsize=None)  # noqa: UP033  functools.cache: Python 3.9
def program_of(argv: tuple[str, ...]) -> str:
    """Return the script, module or program that a command runs in the end, without the path.

    Wrappers, shells and engines do not name the job: `env A=1 python train.py`, `bash -c "cd x && python
    train.py"` and `torchrun --nproc_per_node 2 train.py` all run train.py. If that is unknown, it is the program.
    """
    command = _without_wrappers(argv) or argv
    python, engine = python_command(command), engine_command(command)
    if engine:
        scripts = [word for word in engine if word.endswith(".py")]
        return os.path.basename((scripts or engine)[0])
    if python:
        return os.path.basename(python.target)
    name = os.path.basename(command[0])
    return (_run_by_shell(command[1:]) if name in SHELLS else "") or name


def _run_by_shell(words: Sequence[str]) -> str:
    """Return the script that a shell runs, the target of the last command of its -c, or "" if there is neither."""
    has_line, rest = _cut_shell(words)
    if not has_line:
        return os.path.basename(next(iter(rest), ""))
    for command in reversed([*commands_of(_line_of(words))]):
        inner = _without_wrappers(command)
        if inner and (python_command(inner) or engine_in(inner) or os.path.basename(inner[0]) in SHELLS):
            return program_of(inner)
    return ""


def _line_of(words: Sequence[str]) -> str:
    """Return the line that a shell runs with -c, or "" if it runs a script."""
    has_line, rest = _cut_shell(words)
    return next(iter(rest), "") if has_line else ""


def _cut_shell(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Return whether the arguments of a shell have -c, and those that follow its options."""
    has_line, rest = False, list(words)
    while rest and rest[0].startswith(("-", "+")):
        option = rest.pop(0)
        has_line |= "c" in option and not option.startswith("--")
        if SHELL_VALUED.fullmatch(option):
            del rest[:1]
    return has_line, rest


def refuse_python_options(command: PythonCommand, engine: str) -> None:
    """Refuse options for Python: an engine that starts the script itself would lose them.

    Raises:
        SettingsError: The command has options other than -u.
    """
    others = [option for option in command.options if option != "-u"]
    if others:
        raise SettingsError(
            f"{engine} starts the script itself, without Python options: remove {' '.join(others)} from the command"
        )


def _cut(word: str) -> tuple[str, str, str]:
    """Split an option into its flags, the letter that takes a value, and the value: -u, -uWignore, -um, --version."""
    letter = next((letter for letter in word[1:] if letter in VALUED), "") if word[:2] != "--" else ""
    return word.partition(letter) if letter else (word, "", "")


ROOT: Final = "ANACONDA_DIR"
DEFAULT: Final = "DEFAULT_CONDA_ENV_NAME"
# Where images have conda: ModelArts' images, Docker's miniconda, and its installers.
USUAL_PLACES: Final = (
    "/home/ma-user/anaconda3",
    "/home/ma-user/miniconda3",
    "/opt/conda",
    "/opt/miniconda3",
    "/root/anaconda3",
    "/root/miniconda3",
    "/usr/local/anaconda3",
    "/usr/local/miniconda3",
)
PATH: Final = "/bin:/usr/bin"  # os.defpath: the search path if PATH is not set


@attrs.frozen(kw_only=True)
class Conda:
    """A conda environment: its interpreter, and the variables that put its programs and libraries first."""

    python: str
    variables: Mapping[str, str]


def find(
    command: str, environ: Mapping[str, str], name: str | None = None, *, is_folder: Callable[[str], bool]
) -> Conda | None:
    """Return the environment for a command: `name` (--conda-env), else the image's, or None if neither is set.

    A name with a slash is the directory of the environment. A Python with a path needs no environment, unless the user
    has named one.

    Raises:
        SettingsError: ANACONDA_DIR is not set, and no usual place has the environment.
    """
    if not name and (not environ.get(DEFAULT) or ("/" in command and is_python(command))):
        return None
    prefix = _prefix(name, environ, is_folder)

    return Conda(
        python=os.path.join(prefix, "bin", "python"),
        variables={
            "PATH": _first(os.path.join(prefix, "bin"), environ.get("PATH", PATH)),
            "LD_LIBRARY_PATH": _first(os.path.join(prefix, "lib"), environ.get("LD_LIBRARY_PATH", "")),
        },
    )


def _prefix(option: str | None, environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> str:
    name = option or environ[DEFAULT]
    if "/" in name:
        return name.rstrip("/")
    roots = (environ[ROOT],) if environ.get(ROOT) else USUAL_PLACES
    prefixes = [root if name == "base" else os.path.join(root, "envs", name) for root in roots]
    if environ.get(ROOT):
        return prefixes[0]
    active = environ.get("CONDA_PREFIX", "")
    if os.path.basename(active) == name:
        return active

    found = next(filter(is_folder, prefixes), "")
    if not found:
        raise SettingsError(
            f"conda environment not found: {name!r} ({'--conda-env' if option else DEFAULT}): {ROOT} is not set, and"
            f" none of the usual directories has it ({', '.join(USUAL_PLACES)}); set {ROOT} to conda's directory, or"
            " --conda-env to the directory of the environment"
        )
    return found


def _first(folder: str, path: str) -> str:
    """Move a directory to the start of a search path."""
    others = [other for other in path.split(":") if other and other != folder]
    return ":".join([folder, *others])
