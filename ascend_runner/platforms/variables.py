"""Typed readers of an environment. The only place that builds the sentence about a variable's bad value.

A variable that is set to nothing counts as not set, as for the runner's own.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.errors import SettingsError

from .node import FLAGS, NOTHING, Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST: Final = 65536  # of nodes, cards and ports alike: a mistyped number must not fill the memory
MOST_DIGITS: Final = 18  # fits 64 bits, and keeps int() away from its limit
HIGHEST_PORT: Final = 65535
HCCL_BASE_PORT: Final = 60000  # the first of HCCL's host ports, unless HCCL_IF_BASE_PORT moves them
HCCL_PORTS: Final = 32  # 16 before CANN 8.5
NPU_PORT: Final = 16666  # HCCL's port on the cards


class Variables:
    """Reads facts and notes in `sources` which variable told each. Of several names the first that is set counts.

    No variable is read for a fact of `said`: the user's flag decides, and what stands behind it may be broken.
    """

    def __init__(self, environ: Mapping[str, str], said: Said = NOTHING) -> None:
        self.sources = {fact: FLAGS[fact] for fact in said.facts}
        self._environ = environ
        self._said = said

    def text(self, fact: str, names: Iterable[str]) -> str:
        """Read a text; empty where no name is set."""
        name = next(filter(self._environ.get, names), None)
        if name is None:
            return ""

        self.sources[fact] = name
        return self._environ[name].strip()

    def whole_number(self, fact: str, names: Iterable[str], *, default: int, at_least: int = 0) -> int:
        """Read a number. Errors: SettingsError."""
        said: int | None = getattr(self._said, fact, None)
        if said is not None:
            return said
        text = self.text(fact, names)
        return whole_number(text, self.sources[fact], at_least=at_least) if text else default

    def master_addr(self, names: Iterable[str]) -> str:
        """Read where node 0 is: by torch's name, which users set too, a platform's `names`, other frameworks'."""
        if self._said.master_addr is not None:
            return self._said.master_addr
        return self.text("master_addr", ("MASTER_ADDR", *names, "MS_SCHED_HOST", "CM_CHIEF_IP"))

    def master_port(self, names: Iterable[str], *, default: int) -> int:
        """Read at which port node 0 is met, likewise; whether it will do is for `check_port`. Errors: SettingsError."""
        names = ("MASTER_PORT", *names, "MS_SCHED_PORT", "CM_CHIEF_PORT")
        return self.whole_number("master_port", names, default=default)

    def hosts(self, names: Iterable[str]) -> tuple[str, ...]:
        """Read host names or addresses, separated by commas, in the order of the nodes."""
        return tuple(host.strip() for host in self.text("hosts", names).split(",") if host.strip())


def whole_number(text: str, name: str, *, at_least: int = 0) -> int:
    """Read the number that the variable `name` holds. Errors: SettingsError."""
    if not is_whole_number(text) or not at_least <= int(text) <= MOST:
        raise SettingsError(f"{name} is {text!r}, expected a whole number, {at_least} to {MOST}")

    return int(text)


def is_whole_number(text: str) -> bool:
    """Whether a text is decimal digits and nothing else, and not absurdly many."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def check_port(port: int, name: str, environ: Mapping[str, str]) -> None:
    """Refuse what is no port, and HCCL's own ports: node 0's meeting point would take one from it (EI0019, EI0020)."""
    if not 1 <= port <= HIGHEST_PORT:
        raise SettingsError(f"{name} is {port}, expected a port, 1 to {HIGHEST_PORT}")

    moved = environ.get("HCCL_IF_BASE_PORT", "")
    base = int(moved) if is_whole_number(moved) else HCCL_BASE_PORT
    if base <= port < base + HCCL_PORTS or port == NPU_PORT:
        raise SettingsError(
            f"{name} is {port}, expected a port that HCCL does not use itself: those are {base} to"
            f" {base + HCCL_PORTS - 1} and {NPU_PORT}"
        )
