"""Random changes to a JSON document, for fuzzing and tests."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any, Final

ODD_VALUES: Final[tuple[object, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1.0,
    1.5,
    2.0,
    10**18,
    2**63,
    2**64,
    10**30,
    "",
    "0",
    "-1",
    "x",
    "٣",
    "\ud800",
    "9" * 40,
    [],
    {},
    [[]],
    "loop",
)
ODD_KEYS: Final = ("version", "deploy_mode", "super_pod_list", "rank_list", "server_list", "x")


def changed(document: object, chance: Random) -> object:
    """Change a value at a random place of the document, in place unless the top is replaced."""
    if not document or not isinstance(document, (dict, list)) or chance.randrange(6) == 0:
        return deepcopy(chance.choice(ODD_VALUES))

    key = chance.choice(list(document) if isinstance(document, dict) else range(len(document)))
    chance.choice((_delete, _copy, _wrap, *[_go_on] * 8))(document, key, chance)
    return document


def _delete(document: Any, key: Any, _: Random) -> None:
    del document[key]


def _copy(document: Any, key: Any, chance: Random) -> None:
    if isinstance(document, list):
        document.append(deepcopy(document[key]))
    else:
        document[chance.choice(ODD_KEYS)] = deepcopy(document[key])


def _wrap(document: Any, key: Any, _: Random) -> None:
    document[key] = [document[key]]


def _go_on(document: Any, key: Any, chance: Random) -> None:
    document[key] = changed(document[key], chance)
