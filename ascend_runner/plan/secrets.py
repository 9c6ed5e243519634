"""What looks like a secret, and how it is masked in everything that the runner itself prints or writes. Pure.

Variables are recognised by name, everything else by the shape of the value: in report, dry run, rerun script and in the
excerpts of logs on the screen. A rank's log file is the rank's own and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

MASK: Final = "***"

# Whole words between underscores: HUAWEICLOUD_SDK_AK has one, BREAK_LINES and TOKENIZERS_PARALLELISM have none.
SECRET_WORDS: Final = frozenset(
    {
        *("AK", "APIKEY", "APIKEYS", "AUTH", "COOKIE", "COOKIES", "CREDENTIAL", "CREDENTIALS", "DSN", "KEY", "KEYS"),
        *("PASS", "PASSWD", "PASSWORD", "PASSWORDS", "PAT", "PRIVATE", "PWD", "SECRET", "SECRETS", "SESSION", "SK"),
        *("TOKEN", "TOKENS"),
    }
)
FOLDERS: Final = frozenset({"PWD", "OLDPWD"})  # the shell's current and previous folder

_PEM: Final = r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
_JWT: Final = r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
# Prefixes that their issuers document: Hugging Face, GitHub, OpenAI and its like, AWS, Alibaba Cloud.
_ISSUED: Final = r"\b(?:hf_|ghp_|gho_|ghs_|github_pat_|sk-)[\w-]{16,}|\b(?:AKIA|LTAI)[A-Za-z0-9]{12,}"
_WHOLE: Final = re.compile(f"{_PEM}|{_JWT}|{_ISSUED}", re.DOTALL)
# What comes before the secret stays: the user of a URL, the scheme of a header, the name of an option.
_AFTER: Final = (
    re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(?=@)", re.IGNORECASE),
    re.compile(r"(?P<before>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}"),
    re.compile(r"(?P<before>(?<![\w-])--?(?P<name>[A-Za-z][\w-]*)=)[^\s'\"]+"),
    re.compile(r"(?P<before>(?<![\w-])(?P<name>[A-Za-z_]\w*)=)[^\s'\"]+"),
)
_OPTION: Final = re.compile(r"--?([A-Za-z][\w-]*)")


def is_secret(name: str) -> bool:
    """Return whether a variable or an option of this name looks as if it held a secret."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper().replace("-", "_")
    return words not in FOLDERS and not SECRET_WORDS.isdisjoint(words.split("_"))


@attrs.define(eq=False, repr=False)
class Masker:
    """Masks secrets and counts them, so that the output can state how many were masked."""

    count: int = 0

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with every secret masked: by the variable's name, else by the shape of the value."""
        return {
            name: self._mask() if is_secret(name) and value else self.text(value) for name, value in variables.items()
        }

    def arguments(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a command with every secret masked, also one that follows its option as a word."""
        masked: list[str] = []
        follows_secret = False
        for word in argv:
            masked.append(self._mask() if follows_secret and not word.startswith("-") else self.text(word))
            option = _OPTION.fullmatch(word)
            follows_secret = bool(option and is_secret(option[1]))
        return tuple(masked)

    def text(self, text: str) -> str:
        """Return a text with every secret masked that is recognised by its shape."""
        text = _WHOLE.sub(lambda _: self._mask(), text)
        for pattern in _AFTER:
            text = pattern.sub(self._masked_after, text)
        return text

    def _masked_after(self, found: re.Match[str]) -> str:
        name = found.groupdict().get("name")
        if (name is not None and not is_secret(name)) or found[0].endswith(MASK):
            return found[0]
        return found["before"] + self._mask()

    def _mask(self) -> str:
        self.count += 1
        return MASK


def mask(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with every secret masked."""
    return Masker().variables(variables)
