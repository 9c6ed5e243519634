"""Which variables hold secrets, by their names. The one place that decides what a plan, a log or a report may show."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK: Final = "***"

# Whole words between underscores: HUAWEICLOUD_SDK_AK is one, BREAK_LINES and TOKENIZERS_PARALLELISM are none.
SECRET_WORDS: Final = frozenset(
    {
        "AK",
        "CREDENTIAL",
        "CREDENTIALS",
        "KEY",
        "KEYS",
        "PASSWD",
        "PASSWORD",
        "SECRET",
        "SECRETS",
        "SK",
        "TOKEN",
        "TOKENS",
    }
)


def is_secret(name: str) -> bool:
    """Whether a variable of this name looks as if it held a secret."""
    return not SECRET_WORDS.isdisjoint(name.upper().split("_"))


def mask(variables: Mapping[str, str]) -> dict[str, str]:
    """Give the variables as they may be shown: a secret's value is MASK."""
    return {name: MASK if is_secret(name) else value for name, value in variables.items()}
