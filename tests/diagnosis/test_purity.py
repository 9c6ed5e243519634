"""What the diagnosis may know, and when it may be loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import ascend_runner

PACKAGE = Path(ascend_runner.__file__).parent
PURE = {"__future__", "collections.abc", "enum", "os.path", "re", "signal", "typing"}
BELOW = {"ascend_runner.annotations", "ascend_runner.text", "ascend_runner.supervision.events"}


def imports_of(path: Path) -> set[str]:
    """Give the modules that a source file imports, its own package's left out."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}


def test_floor() -> None:
    """The diagnosis is pure: of the standard library it uses nothing that touches the world, of ours what is below."""
    imported = {name for path in (PACKAGE / "diagnosis").glob("*.py") for name in imports_of(path)}

    assert imported <= PURE | BELOW


def test_not_loaded_before_a_failure() -> None:
    """Nothing of it is loaded by the modules that start ranks."""
    code = "import sys, ascend_runner.cli, ascend_runner.manager; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    late = {"ascend_runner.autopsy", "ascend_runner.report", "ascend_runner.linux.stacks", "ascend_runner.linux.plog"}

    assert late.isdisjoint(loaded)
    assert not [name for name in loaded if name.startswith("ascend_runner.diagnosis")]
