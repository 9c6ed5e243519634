"""The package's source: modules, their imports, and the names of other packages that they use."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Union

import attrs

import ascend_runner

PACKAGE: Final = Path(ascend_runner.__file__).parent
NAMES: Final = {
    ".".join(part for part in path.relative_to(PACKAGE).with_suffix("").parts if part != "__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
IMPORTERS: Final = ("import_module", "importlib.import_module", "__import__", "find_spec", "importlib.util.find_spec")
Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


@attrs.frozen
class Import:
    """One import, wherever it is; `target` is a module of the package ("plan.job") or a name outside of it."""

    target: str
    is_own: bool
    is_in_function: bool = False


@attrs.frozen(slots=False)  # slots leave no room for cached properties
class Module:
    """One source file; `name` is its dotted name below the package: "plan.job", or "" for the package itself."""

    name: str
    path: Path = attrs.field(eq=False)

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The syntax tree, parsed when a test asks for it: each process of the tests imports this file."""
        return ast.parse(self.path.read_bytes())

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree."""
        return tuple(ast.walk(self.tree))

    @property
    def room(self) -> str:
        """The first part of the name: the directory or the module directly below the package."""
        return self.name.partition(".")[0]

    @property
    def functions(self) -> Iterator[Function]:
        """All functions and methods."""
        return (node for node in self.nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))

    @functools.cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import: at the top, inside functions, under TYPE_CHECKING, and by a string."""
        in_function = {id(node) for function in self.functions for node in ast.walk(function)}
        found = [
            attrs.evolve(one, is_in_function=id(node) in in_function)
            for node in self.nodes
            for one in (*_by_statement(node), *self._by_string(node))
        ]
        return tuple(dict.fromkeys(found))

    def _by_string(self, node: ast.AST) -> Iterator[Import]:
        """Yield what a string imports: "ascend_runner.plan.spec" anywhere, and the arguments of import functions."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _own_module(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in IMPORTERS:
            argument = node.args[0]
            if not isinstance(argument, ast.Constant):
                yield from self._completed_names(ast.unparse(argument))
            elif isinstance(argument.value, str) and not list(_own_module(argument.value)):
                yield Import(argument.value, is_own=False)

    def _completed_names(self, argument: str) -> Iterator[Import]:
        """Return the modules that strings of this file become behind the name that a computed argument begins with."""
        folder = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        is_relative = folder and ("__name__" in argument or "__package__" in argument)
        start = f"ascend_runner.{folder}." if is_relative else "ascend_runner."
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                yield from _own_module(start + node.value)

    @functools.cached_property
    def foreign_names(self) -> frozenset[str]:
        """The names of other packages that are used, as far as they can be followed: "os.path.join", "time"."""
        modules: dict[str, str] = {}
        names = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                modules.update((alias.asname or alias.name.partition(".")[0], alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    if name in {"os.path", "importlib.util"}:
                        modules[alias.asname or alias.name] = name
                    else:
                        names.add(name)
        names.update(_chains(self.nodes, modules))
        return frozenset(name for name in names if name.partition(".")[0] != "ascend_runner")


def _by_statement(node: ast.AST) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield _import_of(alias.name)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "imports are absolute"
        for alias in node.names:
            yield _import_of(f"{node.module}.{alias.name}")


def _import_of(name: str) -> Import:
    is_own = name.partition(".")[0] == "ascend_runner"
    return Import(_module_of(name) if is_own else name, is_own=is_own)


def _module_of(name: str) -> str:
    """Return the module of the package that a dotted name is, or stands in, without "ascend_runner."."""
    inner = name.partition(".")[2]
    while inner not in NAMES:
        inner = inner.rpartition(".")[0]
    return inner


def _own_module(name: str) -> Iterator[Import]:
    """Return a string as an import if it is the full name of a module of the package."""
    target = _module_of(name)
    if target and name == f"ascend_runner.{target}":
        yield Import(target, is_own=True)


def _chains(nodes: tuple[ast.AST, ...], modules: Mapping[str, str]) -> Iterator[str]:
    """Return the attributes that are read of imported modules, each as long as it is written."""
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in inner and _root(node) in modules:
            root, _, rest = ast.unparse(node).partition(".")
            if root in modules:
                full = modules[root] if modules[root].partition(".")[0] != root else root
                yield f"{full}.{rest}".rstrip(".")


def _root(node: ast.expr) -> str:
    """Return the name that a chain of attributes begins with, or "" if it begins with another expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


MODULES: Final = tuple(Module(name, path) for name, path in NAMES.items())


def circles() -> list[list[str]]:
    """Return the groups of modules that import each other, directly or by way of others."""
    below = {module.name: {found.target for found in module.imports if found.is_own} for module in MODULES}
    reached = {name: _reachable(name, below) for name in below}
    groups = {tuple(sorted(o for o in reached[name] if name in reached[o])) for name in below if name in reached[name]}
    return [list(group) for group in sorted(groups)]


def _reachable(name: str, below: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    to_visit = set(below[name])
    while to_visit:
        one = to_visit.pop()
        if one not in found:
            found.add(one)
            to_visit |= below[one]
    return found
