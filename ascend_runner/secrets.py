"""Recognizes secrets, and masks them in everything that the runner itself prints or writes. Pure.

Variables and options are recognized by name, everything else by the shape of the value: in report, dry run, rerun
script and in the excerpts of logs on the screen. A rank's log file is the rank's own and stays as it is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.text import CUT, without_escapes

MASK: Final = "***"

# Whole words between underscores: HUAWEICLOUD_SDK_AK has one, BREAK_LINES and TOKENIZERS_PARALLELISM have none.
_WORDS: Final = (
    "AK|APIKEYS?|AUTH|COOKIES?|CREDENTIALS?|DSN|KEYS?|PASS|PASSWD|PASSWORDS?|PAT|PRIVATE|PWD|SECRETS?|SESSION|SK"
    "|TOKENS?"
)
_ENDINGS: Final = "ACCESSKEY|APIKEY|PASSPHRASE|PASSWD|PASSWORD|SECRET|SECRETKEY|TOKEN"  # endings of a word: PGPASSWORD
_NAME: Final = rf"(?:(?<![A-Z0-9])(?:{_WORDS})|{_ENDINGS})(?![A-Z0-9])"
# These are never short numbers: --max-tokens 4096 is a length.
NOT_NUMBERS: Final = frozenset({"AUTH", "KEY", "KEYS", "SESSION", "TOKEN", "TOKENS"})
NOT_SECRETS: Final = frozenset({"", "0", "1", "true", "false", "none", "null", "yes", "no"})
FOLDERS: Final = frozenset({"PWD", "OLDPWD"})  # the shell's current and previous directory

# A shell's reference to a variable or a command; an ellipsis; a placeholder or a token of a vocabulary in brackets.
_HARMLESS: Final = r"\$[({A-Za-z_]|\.\.\.\Z|<[^<>]*>\Z|\[[^\[\]]*\]\Z|\{[^{}]*\}\Z"
_QUOTED: Final = r"(?P<quote>\\?['\"])(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\\\n]))*)(?P=quote)"  # also JSON in JSON
_VALUE: Final = rf"(?:{_QUOTED}|(?P<bare>[^\s'\"]*[^\s'\";&|),\]}}]))"  # without what ends it in a shell or a list
_PROSE: Final = r"(?:and|are|as|expected|for|from|in|is|must|not|or|require[ds]?|to|was|were|with)\b"
_HEADER: Final = r"(?:[\w-]{0,80}[-_])?(?:(?:api|access|secret)[-_]?key|passphrase|passw(?:or)?d|secret|token)"
# A setting in any case whose value need not be quoted: its name ends in one of these, see the README.
_STRONG: Final = (
    *("access_key", "access-key", "ak", "api_key", "api-key", "apikey", "apikeys", "cookie", "cookies", "credential"),
    *("credentials", "dsn", "pass", "passwd", "password", "passwords", "pat", "private_key", "private-key", "pwd"),
    *("secret", "secrets", "secret_key", "secret-key", "session_id", "session-id", "sk"),
)
_STRONG_ENDINGS: Final = ("accesskey", "apikey", "passphrase", "passwd", "password", "secret", "secretkey")
_WEAK: Final = ("auth", "key", "keys", "session", "token", "tokens")
_NAMES: Final = frozenset((*_STRONG, *_STRONG_ENDINGS, *_WEAK))
# By the shortest of the names that a name contains. A name that ends in another one is left out.
_SETTING_MARKS: Final = {
    stem: tuple(
        name + mark
        for name in sorted(_NAMES)
        if stem in name and not any(name != other and name.endswith(other) for other in _NAMES)
        for mark in ("=", " =", ":")
    )
    for stem in sorted(_NAMES)
    if not any(stem != other and other in stem for other in _NAMES)
}
_SETTING: Final = (
    r"(?<![\w.-])(?!(?<=-c )pass: /)[\w.-]{0,80}"  # but not `python -c pass`, followed by the path of the command
    rf"(?:(?:(?<![a-z0-9])(?:{'|'.join(_STRONG)})|{'|'.join(_STRONG_ENDINGS)})"
    rf"|(?P<weak>(?<!expected )(?:(?<![a-z0-9])(?:auth|tokens?)|(?<=[_-])(?:keys?|session)|token)))(?![\w.-])"
)
_STATES: Final = (  # words and types that follow a name in a sentence or in code
    "accepted|boolean|cannot|denied|disabled|enabled|expired|failed|failure|incorrect|integer|invalid|missing|optional"
    "|rejected|string|success|unknown"
)
_NUMBER: Final = r"[-+]?[0-9][0-9.,_/]{0,14}(?:e[-+]?[0-9]{1,3})?[kmgtb%]?(?:/?s)?(?![\w.])"
_CODE: Final = r"[a-z_][\w.]{0,99}[(\[]|[a-z_]{1,40}(?:\.[a-z_]{1,40}){1,9}(?![\w.])"  # a call, an item, an attribute
_LONG: Final = r"[^\s'\"]{0,200}[0-9]|[^\s'\"]{16}"  # unlike a word of a sentence
_SETTING_AND_VALUE: Final = (
    rf"(?i)(?P<before>(?P<name>{_SETTING})(?:(?P<spaced>:(?![:/])[ \t]{{0,4}}| = )|=(?![=>])))"
    rf"(?!{_PROSE}|(?:{_STATES})\b|\$[({{a-z_])"
    rf"(?(weak)(?!{_NUMBER}|{_CODE})(?=\\?['\"]?[a-z0-9]))(?(weak)(?(spaced)(?=\\?['\"]?(?:{_LONG}))))"
    rf"(?=\\?['\"][^'\"\n]{{6}}|[^\s'\"]{{6}}){_VALUE}"
)
# Each shape, and the words of which a text must contain one: most texts have none, and a search takes time, as does
# compiling the pattern, which `re` does at the first search. What comes before the secret stays: the user of a URL, the
# scheme of a header, the name of an option. The numbers bound the time that an odd text takes.
_SHAPES: Final[Sequence[tuple[Sequence[str], str]]] = (
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
    (("?", "&"), r"(?P<before>[?&](?P<name>[\w.-]{1,100})=)(?P<bare>[^\s&#'\"]+)"),  # a parameter of a URL
    (("-",), rf"(?P<before>-(?<![\w-]-)-?(?P<name>\w[\w-]{{0,99}})(?:=|[ \t]+(?![-(]|{_PROSE}))){_VALUE}"),
    # An option in a list of arguments, as Python prints it.
    (("'-", '"-'), rf"(?P<before>(?P<mark>['\"])--?(?P<name>\w[\w-]{{0,99}})(?P=mark),\s{{0,4}}[bu]?)(?!.-){_QUOTED}"),
    (("=",), rf"(?P<before>(?<![\w-])(?P<name>[A-Z_][A-Z0-9_]{{0,99}})=){_VALUE}"),
    # In Python's source, in its records and dictionaries, and in JSON.
    (("='", '="', "= '", '= "'), rf"(?P<before>\b(?P<field>[a-z_]\w{{0,99}}) ?= ?){_QUOTED}"),
    (
        ("':", '":'),
        rf"(?P<before>(?P<mark>\\?['\"])(?P<field>[A-Za-z_][\w.-]{{0,99}})(?P=mark)\s{{0,4}}:\s{{0,4}}[bu]?){_QUOTED}",
    ),
)
# The same for patterns in any case; the words are in lower case.
_SHAPES_IN_ANY_CASE: Final[Sequence[tuple[Sequence[str], str]]] = (
    # A line of YAML, or a header of HTTP, also one that is an argument.
    (
        ("key:", "passphrase:", "passwd:", "password:", "secret:", "token:"),
        rf"(?im)(?P<before>(?:^[ \t<>|*-]{{0,40}}|['\"])(?P<name>{_HEADER}):[ \t]+(?!{_PROSE})){_VALUE}(?= *$|['\"])",
    ),
    (
        ("authorization:",),  # any scheme
        rf"(?i)(?P<before>\bauthorization: {{1,4}}[a-z][\w-]{{1,40}} {{1,4}})(?={_LONG})[\w.~+/:=-]{{8,}}",
    ),
)
# Characters of a line of a log that are searched, half of them at its end. Only a dump of data is longer, of which much
# less is shown; with a mark at every other character, the search takes 2 s for 4 MiB.
LONGEST_LINE: Final = 1 << 16
_LONG_LINE: Final = re.compile(rf"^[^\r\n]{{{LONGEST_LINE + 1},}}", re.MULTILINE)
_WORDS_OF_CODE: Final = frozenset({"key", "keys", "session"})  # fields of everything
_OPTION: Final = r"--?(\w[\w-]*)"
_ASSIGNMENT: Final = r"([-+~]*([A-Za-z_][\w.-]*)=)(.*)"  # --token=x, TOKEN=x for env(1), +wandb.token=x for hydra


def is_secret(name: str, value: str = "x") -> bool:
    """Return whether a variable, an option or a field of this name looks as if its value were a secret."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
    if words in FOLDERS or value.lower() in NOT_SECRETS or re.match(_HARMLESS, value):
        return False
    if re.sub(r"\W|_", "", value.upper()) == re.sub(r"\W|_", "", name.upper()):
        return False  # as in the usage of a program: --token TOKEN
    found = set(re.findall(_NAME, words))
    return bool(found) and not (found <= NOT_NUMBERS and re.fullmatch(r"[0-9,]{1,9}|[0-9,]+\.[0-9]*", value))


@attrs.define(eq=False, repr=False)
class Masker:
    """Masks secrets and counts them, so that the output can state how many were masked.

    `hide` gets a secret and the name of its variable, option or field, "" without one, and returns what replaces it.
    """

    count: int = 0
    hide: Callable[[str, str], str] = lambda _secret, _name: MASK
    _hidden: set[str] = attrs.field(factory=lambda: {MASK}, init=False)

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with every secret masked: by the variable's name, else by the shape of the value."""
        return {
            name: value if _is_harmless(name, value) else self._variable(name, value)
            for name, value in variables.items()
        }

    def arguments(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a command with every secret masked, also one that follows its option as a word."""
        masked: list[str] = []
        option = ""
        for word in argv:
            follows = bool(option) and not word.startswith("-") and is_secret(option, word)
            masked.append(self._hide(word, option) if follows else self._argument(word, is_program=option == "c"))
            found = re.fullmatch(_OPTION, word)
            option = found[1] if found else ""
        return tuple(masked)

    def text(self, text: str) -> str:
        """Return a text with every secret masked that is recognized by its shape."""
        for words, pattern in _SHAPES:
            if any(word in text for word in words):
                text = re.sub(pattern, self._masked, text)
        lowered = text.lower()
        for words, pattern in _SHAPES_IN_ANY_CASE:
            if any(word in lowered for word in words):
                text = re.sub(pattern, self._masked, text)
        # Most texts have few of the stems.
        if any(stem in lowered and any(mark in lowered for mark in marks) for stem, marks in _SETTING_MARKS.items()):
            text = re.sub(_SETTING_AND_VALUE, self._masked, text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return the end of a log without colors, and with every secret masked that is recognized by its shape.

        Of a line of more than LONGEST_LINE characters, the middle is left out.
        """
        text = _LONG_LINE.sub(_without_middle, without_escapes(data.decode(errors="surrogateescape")))
        return self.text(text).encode(errors="surrogateescape")

    def members(self, members: Mapping[str, object]) -> dict[str, object]:
        """Return a JSON object with its secrets masked, which the name of a member or the shape of a value reveals."""
        return {
            name: self.variables({name: value})[name] if isinstance(value, str) else self._value(value)
            for name, value in members.items()
        }

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (list, tuple)):
            return [self._value(item) for item in value]
        return self.members(value) if isinstance(value, Mapping) else value

    def _variable(self, name: str, value: str) -> str:
        return self._hide(value, name) if is_secret(name, value) else self.text(value)

    def _argument(self, word: str, *, is_program: bool) -> str:
        """Mask one argument. That of `sh -c` may begin with an assignment, and more follows."""
        found = None if is_program else re.fullmatch(_ASSIGNMENT, word, re.DOTALL)
        return found[1] + self._hide(found[3], found[2]) if found and is_secret(found[2], found[3]) else self.text(word)

    def _masked(self, found: re.Match[str]) -> str:
        parts = found.groupdict(default="")
        before, quote = parts.get("before", ""), parts.get("quote", "")
        secret = found[0][len(before) + len(quote) : len(found[0]) - len(quote)]
        field = parts.get("field", "")
        name = parts.get("name", "") or field
        if secret in self._hidden or field in _WORDS_OF_CODE or (name and not is_secret(name, secret)):
            return before + quote + self.text(secret) + quote if quote else found[0]
        return before + quote + self._hide(secret, name) + quote

    def _hide(self, secret: str, name: str) -> str:
        self.count += 1
        hidden = self.hide(secret, name)
        self._hidden.add(hidden)
        return hidden


def _without_middle(line: re.Match[str]) -> str:
    """Return both ends of a long line. The first word of the second end is dropped, as it may be part of a secret."""
    half = LONGEST_LINE // 2
    return line[0][:half] + CUT + re.sub(r"^\S*", "", line[0][-half:])


@functools.lru_cache(maxsize=256)  # more than the variables of a node's ranks that differ
def _is_harmless(name: str, value: str) -> bool:
    """Whether a variable has no secret. Cached, since most ranks have the same variables, and those in each attempt."""
    return not is_secret(name, value) and Masker().text(value) == value
