"""What looks like a secret, and how it is masked in everything that the runner itself prints or writes. Pure.

Variables and options are recognised by name, everything else by the shape of the value: in report, dry run, rerun
script and in the excerpts of logs on the screen. A rank's log file is the rank's own and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.text import without_escapes

MASK: Final = "***"

# Whole words between underscores: HUAWEICLOUD_SDK_AK has one, BREAK_LINES and TOKENIZERS_PARALLELISM have none.
SECRET_WORDS: Final = frozenset(
    {
        *("AK", "APIKEY", "APIKEYS", "AUTH", "COOKIE", "COOKIES", "CREDENTIAL", "CREDENTIALS", "DSN", "KEY", "KEYS"),
        *("PASS", "PASSWD", "PASSWORD", "PASSWORDS", "PAT", "PRIVATE", "PWD", "SECRET", "SECRETS", "SESSION", "SK"),
        *("TOKEN", "TOKENS"),
    }
)
# These are never short numbers: --max-tokens 4096 is a length.
NOT_NUMBERS: Final = frozenset({"AUTH", "KEY", "KEYS", "SESSION", "TOKEN", "TOKENS"})
NOT_SECRETS: Final = frozenset({"", "0", "1", "true", "false", "none", "null", "yes", "no"})
FOLDERS: Final = frozenset({"PWD", "OLDPWD"})  # the shell's current and previous folder

_QUOTED: Final = r"\"[^\"\n]*\"|'[^'\n]*'"
_VALUE: Final = rf"(?P<value>{_QUOTED}|[^\s'\"]+)"
_PROSE: Final = r"(?:and|are|as|expected|for|from|in|is|must|not|or|require[ds]?|to|was|were|with)\b"
# Each shape, and the words of which a text must contain one: most texts have none, and a search takes time, as does
# compiling the pattern, which `re` does at the first search. What comes before the secret stays: the user of a URL, the
# scheme of a header, the name of an option. The numbers bound the time that an odd text takes.
_SHAPES: Final = (
    (
        ("PRIVATE KEY-----",),
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    ),
    # A text that begins within a key.
    (("PRIVATE KEY-----",), r"\A[A-Za-z0-9+/=\s]+-----END [A-Z ]*PRIVATE KEY-----"),
    (("eyJ",), r"\beyJ[\w-]{8,1024}\.[\w-]{8,8192}\.[\w-]*"),  # JSON Web Token
    # Prefixes that their issuers document: Hugging Face, GitHub, OpenAI and its like, AWS, Alibaba Cloud.
    (
        ("hf_", "ghp_", "gho_", "ghs_", "github_pat_", "sk-", "AKIA", "LTAI"),
        r"\b(?:(?:hf_|ghp_|gho_|ghs_|github_pat_|sk-)[\w-]{16,}|(?:AKIA|LTAI)[A-Za-z0-9]{12,})",
    ),
    (("://",), r"(?i)(?P<before>\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,256}:)[^\s/@]{1,1024}(?=@)"),
    (("Bearer", "Basic"), r"(?P<before>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}"),
    (
        ("-",),
        rf"(?P<before>(?<![\w-])--?(?P<name>[A-Za-z][\w-]{{0,99}})(?:=|[ \t]+(?!-|{_PROSE}))){_VALUE}",
    ),
    (("=",), rf"(?P<before>(?<![\w-])(?P<name>[A-Z_][A-Z0-9_]{{0,99}})=){_VALUE}"),
    # In Python's source and its records; a plain word such as `key` is a parameter of everything.
    (("='", '="'), rf"(?P<before>\b(?P<name>[a-z]+(?:_[a-z]+)*)=)(?P<value>{_QUOTED})"),
)
_WORDS_OF_CODE: Final = frozenset({"key", "keys", "session"})
_REFERENCE: Final = r"\$[({A-Za-z_]"  # of a shell, to a variable or a command
_OPTION: Final = r"--?([A-Za-z][\w-]*)"


def is_secret(name: str, value: str = "x") -> bool:
    """Return whether a variable or an option of this name looks as if its value were a secret."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper().replace("-", "_")
    found = SECRET_WORDS.intersection(words.split("_")) if words not in FOLDERS else set()
    if not found or value.lower() in NOT_SECRETS or re.match(_REFERENCE, value):
        return False
    return not (found <= NOT_NUMBERS and re.fullmatch(r"[0-9.,]{1,9}", value))


@attrs.define(eq=False, repr=False)
class Masker:
    """Masks secrets and counts them, so that the output can state how many were masked."""

    count: int = 0

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with every secret masked: by the variable's name, else by the shape of the value."""
        return {name: self._mask() if is_secret(name, value) else self.text(value) for name, value in variables.items()}

    def arguments(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a command with every secret masked, also one that follows its option as a word."""
        masked: list[str] = []
        option = ""
        for word in argv:
            follows = bool(option) and not word.startswith("-") and is_secret(option, word)
            masked.append(self._mask() if follows else self.text(word))
            found = re.fullmatch(_OPTION, word)
            option = found[1] if found else ""
        return tuple(masked)

    def text(self, text: str) -> str:
        """Return a text with every secret masked that is recognised by its shape."""
        for words, pattern in _SHAPES:
            if any(word in text for word in words):
                text = re.sub(pattern, self._masked, text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return the end of a log without colours, and with every secret masked that is recognised by its shape."""
        return self.text(without_escapes(data.decode(errors="surrogateescape"))).encode(errors="surrogateescape")

    def _masked(self, found: re.Match[str]) -> str:
        parts = found.groupdict(default="")
        before, name = parts.get("before", ""), parts.get("name", "")
        is_code = name in _WORDS_OF_CODE and not before.startswith("-")
        if found[0].endswith(MASK) or is_code or (name and not is_secret(name, parts["value"].strip("'\""))):
            return found[0]
        return before + self._mask()

    def _mask(self) -> str:
        self.count += 1
        return MASK
