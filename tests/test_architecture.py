"""The floors of the package and the rules of its rooms, checked against the source and a running program.

A room is a directory or a module directly below the package. A new room needs a row in FLOORS.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.package_source import MODULES, PACKAGE, Module, circles
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT

# Imports go down only. "" is `ascend_runner/__init__.py`: the public names, of which the package itself reads only
# `__version__`, in its entrances.
FLOORS: Final = {
    "": 11,
    "__main__": 11,
    "cli": 10,
    "rank_library": 10,
    "job": 9,
    "library": 9,
    "tools": 9,
    "manager": 8,
    "report": 8,
    "services": 8,
    "link": 7,
    "ranks": 7,
    "views": 7,
    "record": 6,
    "plan": 5,
    "tool": 5,
    "diagnosis": 4,
    "settings": 4,
    "node": 3,
    "engines": 2,
    "frameworks": 2,
    "rank_table": 2,
    "report_file": 2,
    "supervision": 2,
    "files": 1,
    "guardian": 1,
    "html_table": 1,
    "members": 1,
    "platforms": 1,
    "problems": 1,
    "secrets": 1,
    "activity": 0,
    "errors": 0,
    "import_path": 0,
    "programs": 0,
    "text": 0,
    "training": 0,
}
ENTRANCES: Final = {"cli", "library", "rank_library", "__main__", "tools"}
# Rooms of one floor do not import each other, with these exceptions.
NEIGHBOURS: Final[dict[tuple[str, str], str]] = {}

# A pure room decides on records that it is given: it touches no file, environment, clock or process. So of the standard
# library it may use what computes, and of modules that do both, these names.
PURE_ROOMS: Final = {
    "supervision",
    "diagnosis",
    "plan",
    "platforms",
    "frameworks",
    "engines",
    "rank_table",
    "record",
    "link",
}
IMPURE_MODULES: Final = {
    *("rank_table.source", "diagnosis.catalogue", "diagnosis.failed_rank", "diagnosis.flight_recorder"),
    *("diagnosis.oom", "diagnosis.stacks"),
    "engines.ray_node",  # a script of its own, which no module imports
    *("link.link", "link.process", "link.rules", "link.sockets"),
}
PURE_MODULES: Final = set(
    "__future__ ast attrs base64 binascii bisect collections dataclasses difflib enum functools graphlib hashlib"
    " importlib ipaddress itertools json math operator orjson re shlex sre_parse statistics string textwrap types"
    " typing typing_extensions zlib".split()
)
PURE_NAMES: Final = set(
    "os.path.basename os.path.commonpath os.path.dirname os.path.isabs os.path.join os.path.normpath os.path.split"
    " os.path.splitext os.fsdecode os.fsencode os.sep pathlib.PurePath pathlib.PurePosixPath"
    " signal.Signals signal.strsignal"
    " socket.AF_INET socket.AF_INET6 socket.inet_ntop socket.inet_pton sys.version_info".split()
)
IMPURE_BUILTINS: Final = {"open", "print", "input", "exec", "eval", "breakpoint"}

ORJSON_USERS: Final = {
    "rank_table.codec": "reads and writes rank tables",
    "report.writing": "writes the report",
    "services.live": "encodes the records of all ranks of a node within milliseconds",
}

# Everything else is imported at the top of its file.
IMPORTS_IN_FUNCTIONS: Final = {
    ("__init__", "errors"): "PEP 562: the guardian imports the package and must stay small",
    ("__init__", "library"): "as above",
    ("__init__", "rank_table"): "as above",
    ("__init__", "importlib.import_module"): "as above",
    ("__init__", "plan"): "before the function of that name, which a later import of the package would hide",
    ("__main__", "cli"): "behind the fork: the guardian must stay small",
    ("__main__", "threading"): "as above",
    ("__main__", "report.result"): "as above, and only `launch()` needs it",
    ("tools.rank_table.__main__", "tools.rank_table.main"): "Ctrl-C during the imports must not print a traceback",
    ("tools.job.__main__", "tools.job.main"): "as above",
    **{
        ("tools.job.commands", f"tools.job.{name}"): "only the command that is run: each needs much"
        for name in ("batch", "explain", "logs", "processes", "reports", "screens")
    },
    ("tools.job.logs", "views.page_content"): "50 ms that only a log on another node needs, for the rank table",
    ("tools.job.commands", "importlib.resources"): "15 ms, with pathlib, tempfile and urllib, for completions",
    ("tools.job.commands", "tools.job.metrics"): "prometheus_client, of the optional extra `view`",
    ("tools.job.explain", "rich.console"): "50 ms with the next one, for a progress bar; rich comes with textual",
    ("tools.job.explain", "rich.progress"): "as above",
    ("tools.job.commands", "tools.job.top_app"): "textual, of the optional extra `view`",
    ("rank_table.model", "html_table"): "only notebooks show a table as HTML",
    ("record.rank_record", "html_table"): "as above",
    ("record.rank_record", "diagnosis.finding"): "10 ms that only the readers of reports need",
    ("record.job_record", "diagnosis.finding"): "as above",
    ("record.job_record", "record.nodes"): "as above",
    ("services.live", "record.nodes"): "only viewers decode",
    ("cli", "job.launch"): "a usage error, --help and --version need nothing of a job",
    ("cli", "settings.model"): "as above",
    ("cli", "job.simulation"): "only --simulate needs it",
    ("engines.ray_node", "ray"): "only the process that becomes `ray start`, which tells if there is none",
    ("engines.ray_node", "ray.scripts.scripts"): "as above",
    ("node.bounded", "subprocess"): "5 ms of --version and status, which run no program",
    ("settings.command_line", "textwrap"): "2 ms that only --help needs",
    ("settings.parsing", "difflib"): "3 ms that only a misspelled word needs",
    ("job.launch", "job.dry_run"): "only --dry-run needs it",
    ("job.preparation", "diagnosis.catalogue"): "10 ms; only --catalogue needs it before a failure",
    ("job.preparation", "job.table"): "20 ms, with the readers and checks of rank tables, for jobs that have one",
    ("job.setup", "job.table"): "as above",
    ("job.preparation", "job.link_plan"): "10 ms with the next one and the room `link`, for jobs of several nodes",
    ("job.runner", "job.nodes"): "as above",
    ("job.launch", "job.nodes"): "as above",
    ("job.check", "job.link_plan"): "as above",
    ("job.launch", "job.check"): "20 ms at each start; only `--check` and a pre-check need it, the latter in a thread",
    ("report.html_page", "views.page_content"): "only a page needs it; loaded in the background in longer jobs",
    ("report.html_page", "views.page"): "jinja2, which only a page needs",
    ("job.end", "plan.rerun"): "only a failure is run again",
    ("report.recorder", "report.investigation"): "60 ms for a failure; loaded in the background in longer jobs",
    # Features that are off must not cost each start 10 ms or more.
    ("job.preparation", "job.staging"): "10 ms with the next one, for hashes; only --stage needs them",
    ("job.setup", "services.staging"): "as above",
    ("job.job_hooks", "training.checkpoints"): "10 to 20 ms; only --checkpoint-dir needs it",
    ("job.runner", "services.pace"): "10 to 20 ms; only --perf-* and --summary need it",
    ("services.hccl_heartbeats", "diagnosis.heartbeat_events"): "60 ms; only a rank that HCCL reports needs it",
    ("job.preparation", "services.inspector"): "10 to 15 ms; only an inspection needs it",
    ("node.network", "psutil"): "most nodes are found in their rank table without their addresses",
    ("guardian.own_children", "threading"): "only without /proc; the guardian must stay small",
    ("guardian.process_tree", "ctypes"): "only for prctl(2), which most modules that look at processes never call",
}

# What the first process may have loaded when it forks the runner; it stays in memory as long as the job runs.
GUARDIAN_DIET: Final = set(
    "__future__ collections contextlib copyreg ctypes enum errno functools gc genericpath io itertools keyword"
    " operator os posixpath re reprlib select signal stat struct time types typing warnings"
    " heapq sre_compile sre_constants sre_parse".split()  # parts of collections and re before Python 3.11
)
GUARDIAN_OWN: Final = {
    "",
    "__main__",
    "errors",
    "guardian",
    "guardian.guard",
    "guardian.own_children",
    "guardian.process_tree",
    "guardian.runner",
    "guardian.signal_sets",
    "guardian.sweep",
    "import_path",
    "ranks",
    "ranks.message_format",  # for the final message of the guardian
    "text",
}

LONGEST_FUNCTION: Final = 30  # lines, without the docstring


def test_every_room_stands_on_a_floor() -> None:
    """Each room has a row in FLOORS, and each row a room."""
    rooms = {module.room for module in MODULES}

    assert FLOORS.keys() == rooms


def test_imports_go_down_only() -> None:
    """No module imports one of a higher floor, nor one of another room of its own floor."""
    upwards = [
        f"{module.name} imports {found.target or '__init__'}"
        for module in MODULES
        for found in module.imports
        if found.is_own and not _may_import(module.room, found.target.partition(".")[0])
    ]

    assert [] == sorted(upwards)


def _may_import(reader: str, other: str) -> bool:
    if reader == other or (reader, other) in NEIGHBOURS:
        return True
    if other == "":
        return reader in ENTRANCES
    return FLOORS.get(other, 0) < FLOORS.get(reader, 0)


def test_no_modules_import_each_other() -> None:
    """There is no circle of imports, neither between rooms nor inside one."""
    assert set() == {" ".join(circle) for circle in circles()}


def test_pure_rooms_touch_nothing() -> None:
    """A pure room uses no name that reads or changes files, the environment, the clock or processes."""
    touching = [
        f"{module.name} uses {name}"
        for module in _pure_modules()
        for name in sorted(module.foreign_names)
        if not _is_pure(name)
    ]
    acting = [
        f"{module.name} calls {node.func.id}"
        for module in _pure_modules()
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS
    ]

    assert [] == sorted(touching + acting)


def _pure_modules() -> Iterator[Module]:
    return (module for module in MODULES if module.room in PURE_ROOMS and module.name not in IMPURE_MODULES)


def _is_pure(name: str) -> bool:
    parts = name.split(".")
    names = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return parts[0] in PURE_MODULES or bool(names & PURE_NAMES) or name.startswith("signal.SIG")


def test_only_entrances_read_arguments_and_environment() -> None:
    """Below the entrances, arguments and environment are parameters."""
    names = {"sys.argv", "sys.orig_argv", "os.environ", "os.environb", "os.getenv", "os.getenvb"}
    reading = [
        f"{module.name} reads {name}"
        for module in MODULES
        if module.room not in ENTRANCES
        # The entrances of a rank, and of a node of Ray.
        and module.name not in {"training.rank_calls", "engines.ray_node"}
        for name in sorted(module.foreign_names)
        if name in names or name.rpartition(".")[0] in names
    ]

    assert [] == sorted(reading)


def test_orjson_is_used_where_json_is_read_and_written() -> None:
    """Bytes become records, and records bytes, in few places."""
    users = {module.name for module in MODULES for name in module.foreign_names if name.partition(".")[0] == "orjson"}

    assert set() == ORJSON_USERS.keys() ^ users


def test_imports_stand_at_the_top() -> None:
    """An import inside a function has a reason."""
    inside = {
        (module.name or "__init__", found.target or "__init__")
        for module in MODULES
        for found in module.imports
        if found.is_in_function
    }

    assert set() == {f"{reader} imports {target}" for reader, target in IMPORTS_IN_FUNCTIONS.keys() ^ inside}


def test_functions_are_short() -> None:
    """A longer function has two tasks."""
    functions = {
        f"{module.name}.{function.name}"
        for module in MODULES
        for function in module.functions
        if _length(function) > LONGEST_FUNCTION
    }

    assert set() == functions


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_importing_does_nothing() -> None:
    """The top of a module holds imports, definitions and constants; only `__main__` acts."""
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    acting = [
        f"{module.name}: {ast.unparse(node).splitlines()[0]}"
        for module in MODULES
        for node in module.tree.body
        if not isinstance(node, definitions) and not _is_docstring(node) and not _is_condition_on_the_start(node)
    ]

    assert [] == [line for line in acting if "__main__: " not in line]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_condition_on_the_start(node: ast.stmt) -> bool:
    """Whether it is `if TYPE_CHECKING`, its contrary, about the version of Python, or what only `python -m` runs."""
    if not isinstance(node, ast.If):
        return False
    test = ast.unparse(node.test)
    is_of_versions = test.startswith("sys.version_info")
    return test in {"TYPE_CHECKING", "not TYPE_CHECKING"} or is_of_versions or test.startswith("__name__ == '__main__'")


def test_importing_leaves_no_trace(tmp_path: Path) -> None:
    """Importing the modules (but `__main__`) opens no file, starts no thread, and changes no signal or variable."""
    script = """
import importlib, os, signal, sys, threading
def trace():
    return (
        sorted(os.listdir("/proc/self/fd")), [str(signal.getsignal(number)) for number in signal.valid_signals()],
        dict(os.environ), os.getcwd(), threading.active_count(), signal.set_wakeup_fd(-1), os.listdir("."),
    )
before = trace()
for name in sys.argv[1:]:
    importlib.import_module(name)
print(before == trace() or (before, trace()))
"""
    names = [f"ascend_runner.{module.name}".rstrip(".") for module in MODULES if module.name != "__main__"]
    command = [sys.executable, "-B", "-c", f"import sys; sys.path.append({str(PACKAGE.parent)!r})\n{script}", *names]
    # An empty directory: beside the package, other tests write files meanwhile.
    shown = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, check=True, timeout=LIMIT).stdout

    assert b"True\n" == shown


def test_jobs_start_without_what_only_others_need() -> None:
    """A job that succeeds pays neither for a diagnosis nor for `--check` nor for modules of one of their functions."""
    rare = set(
        "job.check node.findings node.probes node.npu_probes node.inspection services.inspector services.pace"
        " diagnosis report.investigation training.steps rank_table job.table job.dry_run plan.rerun statistics"
        " link job.link_plan job.nodes record.nodes".split()
    )
    script = "import sys, ascend_runner.job.launch; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT)
    loaded = shown.stdout.split()

    assert [] == [name for name in loaded if name == "psutil" or name.removeprefix("ascend_runner.") in rare]


def test_processes_start_by_vfork_and_without_a_shell() -> None:
    """No process is started with preexec_fn, which turns vfork into fork, nor through a shell."""
    used = [
        f"{module.name}:{node.value.lineno} passes {node.arg}"
        for module in MODULES
        for node in module.nodes
        if isinstance(node, ast.keyword) and node.arg in {"preexec_fn", "shell"}
    ]

    assert [] == sorted(used)


def test_runner_keeps_its_folder_and_environment() -> None:
    """The working directory and the environment of a rank are passed to it; the runner's own stay unchanged."""
    names = {"os.chdir", "os.fchdir", "os.putenv", "os.unsetenv", "os.system", "os.popen", "os.umask"}
    used = [f"{module.name} uses {name}" for module in MODULES for name in sorted(module.foreign_names & names)]

    assert [] == sorted(used)


def test_guardian_is_small_when_it_forks(tmp_path: Path) -> None:
    """The first process has loaded few modules of the standard library and of the package, and no other package."""
    loaded = {name for name in _loaded_at_the_fork(tmp_path) if not name.rpartition(".")[2].startswith("_")}
    own = {name[len("ascend_runner.") :] for name in loaded if name.partition(".")[0] == "ascend_runner"}
    others = {name.partition(".")[0] for name in loaded} - {"ascend_runner"}

    assert set() == (others - GUARDIAN_DIET) | (own - GUARDIAN_OWN)


def _loaded_at_the_fork(folder: Path) -> set[str]:
    """Run one rank in a fresh interpreter; give the modules that it had imported when it forked for the first time."""
    seen = folder / "seen"
    script = f"""
import sys
sys.path.append({str(PACKAGE.parent)!r})
before, seen = set(sys.modules), []
def note(event, args):
    if event == "os.fork" and not seen:
        seen.extend(set(sys.modules) - before)
        with open({str(seen)!r}, "w") as file:
            file.write(repr(seen))
sys.addaudithook(note)
from ascend_runner.__main__ import main
main()
"""
    options = ["--nproc-per-node", "1", "--log-dir", str(folder / "log"), "--workdir", "inherit"]
    # Without site: a .pth file of this environment may import anything.
    command = [sys.executable, "-S", "-c", script, *options, "true"]
    ended = subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False, timeout=LIMIT)
    if not seen.exists():
        pytest.fail(f"the program did not fork: {ended.stderr}")
    return set(ast.literal_eval(seen.read_text()))
