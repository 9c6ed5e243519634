"""The record of an option, with its names, its value and its default, and the topics of `--help`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Final

import attrs

from ascend_runner.settings import parsing

VARIABLE_PREFIX: Final = "ASCEND_RUNNER_"
SEPARATOR: Final = "\0"  # separates the values of a repeated option; no argument contains it


class Topic(enum.Enum):
    """A group of options in `--help`, by the word for `--help TOPIC`."""

    TABLE = "table", "rank table"
    NODES = "nodes", "nodes and ranks"
    RANKS = "ranks", "what each rank gets"
    LAUNCHERS = "launchers", "other launchers"
    OUTPUT = "output", "logs and console"
    STOPPING = "stopping", "stopping"
    RESTARTS = "restarts", "restarts after a failure"
    PERFORMANCE = "performance", "slow training"
    DATA = "data", "datasets"
    HOOKS = "hooks", "hooks, and a hold after a failure"
    HEALTH = "health", "health of the node"
    CHECKS = "checks", "dry run and checks"

    def __init__(self, word: str, title: str) -> None:
        """`word` is the TOPIC of `--help TOPIC`, `title` the heading."""
        self.word = word
        self.title = title


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Option:
    """One option of a topic. A switch has no `metavar` and takes no value. `choices` are all values that are accepted.

    An option with `is_repeatable` may be given more than once, and its setting is a tuple of all values. In a variable,
    each line has one value.

    `parse` turns the value into that of the setting, or raises a ValueError with the expected form. `default_text`
    describes a default that depends on the platform or on other settings. `shown` returns an invalid value as the error
    shows it.
    """

    name: str
    help: str
    choices: Collection[str] = ()
    metavar: str = attrs.Factory(lambda option: "|".join(option.choices), takes_self=True)
    parse: Callable[[str], object] = attrs.Factory(
        lambda option: parsing.one_of(option.choices) if option.choices else parsing.switch, takes_self=True
    )
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


def with_dashes(flag: str) -> str:
    """Return a flag with dashes: torchrun accepts --nproc_per_node as well."""
    return flag.replace("_", "-")
