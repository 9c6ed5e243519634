"""The floors of the house as a table, and what each room must not know, read from the source with `ast`.

A new module finds its room by its name; a new room needs a row here, and thereby a decision where it stands.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Final, NamedTuple

import pytest

import ascend_runner
from tests.conftest import CLEAN

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(ascend_runner.__file__).parent

# Imports go down only. Rooms of one floor do not know each other, but for the neighbours below. What stands under
# `if TYPE_CHECKING` counts, too: a name that is known is known.
FLOORS: Final = {
    "cli": 8,
    "__main__": 8,
    "library": 8,
    "rank_table_tool": 8,
    "check": 7,
    "launcher": 7,
    "manager": 6,
    "ledger": 5,
    "inquiries": 5,
    "autopsy": 4,
    "reporter": 4,
    "linux": 3,
    "report": 3,
    "result": 3,
    "diagnosis": 2,
    "job": 2,
    "supervision": 1,
    "launchers": 2,
    "platforms": 1,
    "frameworks": 2,
    "rank_table": 1,
    "records": 1,
    "text": 1,
    "errors": 0,
    "lazy": 0,
    "plain_signal": 0,
    "annotations": -1,
}
NEIGHBOURS: Final = {
    ("check", "launcher"),  # what would be planned is asked of who plans
    ("job", "launchers"),
    ("job", "frameworks"),
    ("__main__", "cli"),  # the second half of the same entrance, behind the fork
}
# The rules of life and death stand alone, but for the one class of `Outcome.check` and what annotations need.
HERMITS: Final = {"supervision"}
# `ascend_runner/__init__.py` is the doorplate: it hands on names of every floor, and only the entrances read it.
READERS_OF_THE_DOORPLATE: Final = {"cli", "launcher", "library", "rank_table_tool"}

# Whoever decides does not look: no files, no environment, no clock, no processes. So of the world's modules only what
# is a name or a rule may be imported, nothing that could ask the kernel.
PURE_ROOMS: Final = {"diagnosis", "supervision", "job", "platforms", "frameworks", "launchers", "rank_table"}
IMPURE_MODULES: Final = {"rank_table.source"}
PURE_IMPORTS: Final = {
    "__future__",
    "attrs",
    "binascii",
    "bisect",
    "collections",
    "collections.abc",
    "enum",
    "functools",
    "importlib.import_module",  # lazy names (PEP 562)
    "itertools",
    "json",
    "math",
    "operator",
    "orjson",
    "os.path.basename",
    "os.path.dirname",
    "os.path.isabs",
    "os.path.join",
    "os.path.normpath",
    "os.path.splitext",
    "re",
    "shlex",
    "socket.AF_INET",
    "socket.AF_INET6",
    "marshal",  # of what this process has made itself
    "socket.inet_ntop",
    "socket.inet_pton",  # a parser of addresses, the one that HCCL uses; it asks nobody
    "textwrap",
    "types",
    "typing",
    "zlib",
}
SIGNAL_NAMES: Final = ("signal.SIG", "signal.Signals", "ascend_runner.plain_signal.SIG")  # SIGTERM is a number

IS_ENTERED_BY_MINUS_M: Final = "__name__ == '__main__' and (not getattr(sys.flags, 'safe_path', False))"
ENTRANCES: Final = {"cli", "__main__", "library", "rank_table_tool"}  # who may read argv and the environment
ORJSON_USERS: Final = {"rank_table.codec"}
LAZY_EVERYWHERE: Final = {"psutil", "ctypes", "json"}  # too dear for a start; whoever needs them imports them then

# None of these before the first rank runs, when there is no table to read: each takes longer than starting a rank.
HEAVY: Final = {
    "asyncio",
    "attr",
    "attrs",
    "collections",
    "contextlib",
    "enum",
    "functools",
    "importlib",
    "inspect",
    "json",
    "logging",
    "operator",
    "orjson",
    "pathlib",
    "psutil",
    "re",
    "rich",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "typing",
    "typing_extensions",
    "warnings",
}


class Import(NamedTuple):
    """One imported name: `wanted` is a dotted name, a module's or one in a module."""

    wanted: str
    line: int
    is_at_top: bool  # carried out, and not only read by the type checker, when the module is imported


class Module(NamedTuple):
    """One source file of the package; `name` without the package's own ("linux.pump")."""

    name: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The first part of the name; "" for the doorplate."""
        return self.name.partition(".")[0]

    @property
    def is_pure(self) -> bool:
        """Whether it decides and does not look."""
        return self.room in PURE_ROOMS and self.name not in IMPURE_MODULES

    def imports(self) -> Iterator[Import]:
        """Give every name that is imported, wherever the statement stands."""
        deferred = {id(node) for outer in ast.walk(self.tree) if _defers(outer) for node in ast.walk(outer)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, id(node) not in deferred)
            elif isinstance(node, ast.ImportFrom):
                origin = self._absolute(node)
                for alias in node.names:
                    yield Import(f"{origin}.{alias.name}", node.lineno, id(node) not in deferred)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        folder = self.name.split(".") if (PACKAGE / self.name.replace(".", "/")).is_dir() else self.name.split(".")[:-1]
        above = ["ascend_runner", *filter(None, folder)]
        return ".".join([*above[: len(above) - node.level + 1], *filter(None, [node.module])])


def _defers(node: ast.AST) -> bool:
    """Whether what stands below is not carried out when the module is imported."""
    is_for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return is_for_types or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _read(path: Path) -> Module:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return Module(".".join(part for part in parts if part != "__init__"), ast.parse(path.read_bytes()))


MODULES: Final = [_read(path) for path in sorted(PACKAGE.rglob("*.py"))]


def _room_of(wanted: str) -> str | None:
    """Give the room that a dotted name stands in: "" for the doorplate, None outside of the package."""
    parts = wanted.split(".")
    if parts[0] != "ascend_runner":
        return None
    return parts[1] if len(parts) > 1 and _is_room(parts[1]) else ""


def _is_room(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def _may_know(reader: str, known: str) -> bool:
    if reader in {"", known}:
        return True
    if known == "":
        return reader in READERS_OF_THE_DOORPLATE
    if reader in HERMITS:
        return known in {"errors", "annotations", "plain_signal"}
    return FLOORS[known] < FLOORS[reader] or (reader, known) in NEIGHBOURS


def test_every_room_stands_on_a_floor() -> None:
    """Whoever builds a room decides on which floor."""
    homeless = {module.room for module in MODULES} - {""} - FLOORS.keys()

    assert set() == homeless


def test_imports_go_down_only() -> None:
    """No module knows what stands above it or beside it."""
    upwards = [
        f"{module.name or '__init__'}:{found.line} imports {found.wanted}"
        for module in MODULES
        for found in module.imports()
        if (room := _room_of(found.wanted)) is not None and not _may_know(module.room, room)
    ]

    assert [] == upwards


def test_pure_rooms_cannot_look_at_the_world() -> None:
    """A module that decides imports names and rules only, and opens, prints and asks nothing."""
    looking = [
        f"{module.name}:{found.line} imports {found.wanted}"
        for module in MODULES
        if module.is_pure
        for found in module.imports()
        if _room_of(found.wanted) in {None, "plain_signal"} and not _is_pure_import(found.wanted, module)
    ]
    doing = [
        f"{module.name}:{node.lineno} calls {node.func.id}"
        for module in MODULES
        if module.is_pure
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in {"open", "print", "input", "exec", "eval", "__import__"}
    ]

    assert [] == looking + doing


def _is_pure_import(wanted: str, module: Module) -> bool:
    if wanted == "os.path":  # what it is used for counts: os.path.join is a rule, os.path.exists asks the kernel
        return all(
            f"os.path.{node.attr}" in PURE_IMPORTS
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os.path"
        ) and not any(
            isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and node.attr != "path"
            for node in ast.walk(module.tree)
        )
    return bool({wanted, wanted.rpartition(".")[0]} & PURE_IMPORTS) or wanted.startswith(SIGNAL_NAMES)


def test_only_the_entrances_read_argv_and_the_environment() -> None:
    """Below the command line and the library, what the user set comes as an argument."""
    names = {"sys.argv", "os.environ", "os.environb", "os.getenv"}
    found = [
        f"{module.name}:{node.lineno} reads {ast.unparse(node)}"
        for module in MODULES
        if module.room not in ENTRANCES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in names
    ]
    imported = [
        f"{module.name}:{found.line} imports {found.wanted}"
        for module in MODULES
        for found in module.imports()
        if found.wanted in names
    ]

    assert [] == found + imported


def test_only_the_codec_knows_orjson() -> None:
    """Bytes become records in one place."""
    assert ORJSON_USERS == {module.name for module in MODULES for found in module.imports() if "orjson" in found.wanted}


def test_dear_modules_are_imported_where_they_are_needed() -> None:
    """What takes long to import is never imported at the top of a module."""
    found = [
        f"{module.name}:{found.line} imports {found.wanted}"
        for module in MODULES
        for found in module.imports()
        if found.is_at_top and found.wanted.partition(".")[0] in LAZY_EVERYWHERE
    ]

    assert [] == found


def test_nothing_is_done_at_import() -> None:
    """At the top of a module stand definitions and constants; no statement that acts."""
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    acting = [
        f"{module.name}: {ast.unparse(node).splitlines()[0]}"
        for module in MODULES
        for node in module.tree.body
        if not (isinstance(node, allowed) or _is_docstring(node) or _is_guarded(node))
    ]

    # The entrance alone acts: an early Ctrl-C must show no traceback, and collecting garbage among imports costs time.
    assert ["__main__: if getsignal(SIGINT) is default_int_handler:", "__main__: gc.disable()"] == acting


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_guarded(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If):
        return False
    if ast.unparse(node.test) == "not TYPE_CHECKING":
        return all(isinstance(inner, ast.FunctionDef) for inner in node.body)
    return ast.unparse(node.test) in {"TYPE_CHECKING", "__name__ == '__main__'", IS_ENTERED_BY_MINUS_M}


def test_an_import_leaves_no_trace() -> None:
    """Importing a module (but the entrance) starts no thread, opens no file, leaves signals and environment alone."""
    script = """
import os, signal, sys, threading
def trace():
    return (
        sorted(os.listdir("/proc/self/fd")), [str(signal.getsignal(number)) for number in signal.valid_signals()],
        dict(os.environ), os.getcwd(), threading.active_count(), signal.set_wakeup_fd(-1), os.listdir("."),
    )
import importlib
before = trace()
for name in sys.argv[1:]:
    importlib.import_module(name)
print(before == trace() or (before, trace()))
"""
    names = [f"ascend_runner.{module.name}".rstrip(".") for module in MODULES if module.name != "__main__"]
    shown = subprocess.run(
        [sys.executable, "-B", "-c", script, *names], stdout=subprocess.PIPE, check=True, timeout=30
    ).stdout

    assert b"True\n" == shown


def test_ranks_are_spawned_by_vfork_and_without_a_shell() -> None:
    """No process is started with preexec_fn, which turns vfork into fork, nor through a shell line."""
    used = [
        f"{module.name}:{node.value.lineno} passes {node.arg}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.keyword) and node.arg in {"preexec_fn", "shell"}
    ]

    assert [] == used


def test_runner_never_moves_nor_changes_its_environment() -> None:
    """What a rank gets is handed to it: the runner's own folder and environment stay as they were."""
    calls = {"os.chdir", "os.fchdir", "os.putenv", "os.unsetenv", "os.system", "os.popen"}
    used = [
        f"{module.name}:{node.lineno} {ast.unparse(node)}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in calls
    ]

    assert [] == used


@pytest.fixture
def loaded_at(tmp_path: Path) -> Callable[[str], set[str]]:
    """Run one rank in a fresh interpreter; give the modules that were imported when an audit event came first."""

    def run(event: str) -> set[str]:
        seen = tmp_path / "seen"
        script = f"""
import sys
sys.path.append({str(PACKAGE.parent)!r})
before, seen = set(sys.modules), []
def note(event, args):
    if event == {event!r} and not seen:
        seen.extend(set(sys.modules) - before)
        with open({str(seen)!r}, "w") as file:
            file.write(repr(seen))
sys.addaudithook(note)
from ascend_runner.__main__ import main
main()
"""
        options = ["--nproc-per-node", "1", "--log-dir", str(tmp_path / "log"), "--workdir", "inherit"]
        # Without site: what a .pth file of this environment imports would hide what we do.
        subprocess.run([sys.executable, "-S", "-c", script, *options, "true"], env=CLEAN, check=True, timeout=60)
        return set(ast.literal_eval(seen.read_text()))

    return run


@pytest.mark.parametrize(
    ("event", "needed"),
    [("os.posix_spawn", "ascend_runner.manager"), ("os.rename", "ascend_runner.report")],
    ids=["before-the-first-rank-runs", "before-the-report-is-there"],
)
def test_nothing_heavy_is_imported(loaded_at: Callable[[str], set[str]], event: str, needed: str) -> None:
    """Without a table to read, a job that succeeds pays for nothing that it does not use."""
    loaded = loaded_at(event)

    assert set() == loaded & HEAVY
    assert needed in loaded


def test_guardian_is_forked_off_before_anything_heavy_is_imported(loaded_at: Callable[[str], set[str]]) -> None:
    """The first process stays small: of this package it has its own modules only."""
    loaded = loaded_at("os.fork")

    assert set() == loaded & HEAVY
    assert {
        "ascend_runner",
        "ascend_runner.__main__",
        "ascend_runner.annotations",
        "ascend_runner.errors",
        "ascend_runner.linux",
        "ascend_runner.linux.descendants",
        "ascend_runner.linux.guardian",
        "ascend_runner.plain_signal",
    } == {name for name in loaded if name.startswith("ascend_runner")}
