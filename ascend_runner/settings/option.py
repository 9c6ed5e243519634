"""The record of an option: its names, its value, its default, and the topic of `--help` that it belongs to."""

from __future__ import annotations

import enum
from typing import Callable, Final

import attrs

from ascend_runner.settings import parsing

VARIABLE_PREFIX: Final = "ASCEND_RUNNER_"
SEPARATOR: Final = "\0"  # of the values of an option that is repeated; no argument contains it


class Topic(enum.Enum):
    """A group of options in `--help`, by the word for `--help TOPIC`."""

    TABLE = "table"
    NODES = "nodes"
    RANKS = "ranks"
    LAUNCHERS = "launchers"
    OUTPUT = "output"
    STOPPING = "stopping"
    RESTARTS = "restarts"
    PERFORMANCE = "performance"
    DATA = "data"
    HOOKS = "hooks"
    HEALTH = "health"
    CHECKS = "checks"

    @property
    def title(self) -> str:
        """The heading of the group."""
        return _TITLES[self]


_TITLES: Final = {
    Topic.TABLE: "rank table",
    Topic.NODES: "nodes and ranks",
    Topic.RANKS: "what each rank gets",
    Topic.LAUNCHERS: "other launchers",
    Topic.OUTPUT: "logs and console",
    Topic.STOPPING: "stopping",
    Topic.RESTARTS: "restarts after a failure",
    Topic.PERFORMANCE: "slow training",
    Topic.DATA: "data sets",
    Topic.HOOKS: "hooks, and a hold after a failure",
    Topic.HEALTH: "health of the node",
    Topic.CHECKS: "dry run and checks",
}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Option:
    """One option. A switch has no `metavar` and takes no value.

    An option with `is_repeatable` may be given more than once, and its setting is a tuple of all values. A variable has
    one in each line.

    `parse` turns the value into that of the setting, or raises a ValueError with the expected form. `default_text`
    describes a default that depends on the platform or on other settings. `shown` returns an invalid value as the error
    shows it.
    """

    name: str
    topic: Topic
    help: str
    metavar: str = ""
    parse: Callable[[str], object] = parsing.switch
    default: object = attrs.Factory(lambda option: None if option.metavar else False, takes_self=True)
    default_text: str = ""
    has_variable: bool = True
    is_common: bool = False
    is_repeatable: bool = False
    shown: Callable[[str], str] = repr

    @property
    def flag(self) -> str:
        """The name on the command line, such as --log-dir."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, such as ASCEND_RUNNER_LOG_DIR; empty if there is none."""
        return VARIABLE_PREFIX + self.name.upper() if self.has_variable else ""

    @property
    def usage(self) -> str:
        """The flag and its value, such as --log-dir DIR."""
        return f"{self.flag} {self.metavar}".rstrip()

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value."""
        return not self.metavar

    @property
    def shown_default(self) -> str:
        """The default as help shows it; empty for a switch."""
        if self.default_text or self.is_switch:
            return self.default_text
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)
