"""The conventions of the tests themselves, checked against their source."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
SLEEPS: Final = {
    "helpers/waiting.py": "polls for a fact, with a limit",
    "guardian/test_guard.py": "two signals must be further apart than those that count as one",
    "test_supervised_ranks.py": "a signal arrives at any moment of the start; every moment has the same result",
}


@functools.cache
def _sources() -> dict[str, tuple[ast.AST, ...]]:
    """Return the nodes of each file of tests, but not of the programs that ranks run."""
    return {
        str(path.relative_to(TESTS)): tuple(ast.walk(ast.parse(path.read_bytes())))
        for path in sorted(TESTS.rglob("*.py"))
        if "workers" not in path.parts and "programs" not in path.parts
    }


def test_expected_value_comes_first() -> None:
    """Assertions are written `assert expected == actual`."""
    reversed_ones = {
        name
        for name, nodes in _sources().items()
        for node in nodes
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Eq)
        if _is_literal(node.test.comparators[0]) and not _is_literal(node.test.left)
    }

    assert set() == reversed_ones


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def test_nothing_of_our_own_is_patched() -> None:
    """Tests pass fakes as arguments; they replace no name of the package."""
    patched = {
        f"{name}: {ast.unparse(node.args[0])}.{ast.unparse(node.args[1])}"
        for name, nodes in _sources().items()
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"
        if _is_own(node.args[0], _own_names(nodes))
    }

    assert set() == patched


def _is_own(target: ast.expr, own: set[str]) -> bool:
    if isinstance(target, ast.Constant):
        return str(target.value).startswith("ascend_runner")
    return ast.unparse(target).partition(".")[0] in own


def _own_names(nodes: tuple[ast.AST, ...]) -> set[str]:
    """Return the names that a file has imported from the package."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for node in nodes
        for alias in (node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ())
        if ((node.module if isinstance(node, ast.ImportFrom) else alias.name) or "").startswith("ascend_runner")
    }


def test_nothing_waits_for_a_time() -> None:
    """Tests wait for facts; a sleep has a reason."""
    sleeping = {
        name
        for name, nodes in _sources().items()
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "sleep"}
    }

    assert SLEEPS.keys() == sleeping
