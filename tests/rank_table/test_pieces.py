"""Long lists in little memory: what is cut is what the parser reads of the whole, and what is folded is what it was."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.errors import RankTableFormatError
from ascend_runner.rank_table import checks, codec, pieces
from ascend_runner.rank_table.pieces import Folded, Pieces, fold, unfold
from tests.rank_table.rank_table_files import valid
from tests.rank_table.rank_table_strategies import json_values, patient

ENTRIES = [{"a": index, "b": [{"a": "},{"}, {"c": "]"}]} for index in range(20)]


def _parse(data: bytes, size: int = 40) -> Any:
    """Read a document in pieces of that many bytes, and put it together; None where that does not work."""
    try:
        document = pieces.parse(data, "rank_list", orjson.loads, size=size)
    except orjson.JSONDecodeError:
        return None
    if document:
        document["rank_list"] = list(document["rank_list"])  # type: ignore[call-overload]  # Pieces, by the name

    return document


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("around", [({}, {}), ({"x": [1]}, {"y": {"z": "1"}})], ids=str)
def test_long_list_is_cut(around: tuple[dict[str, object], dict[str, object]], indent: int | None) -> None:
    """However it is printed, and wherever it stands, it is cut into many pieces that say the same."""
    first, last = around
    entries = [{"id": entry["a"], **entry} for entry in ENTRIES]
    document = {**first, "rank_list": entries, **last}
    data = json.dumps(document, indent=indent).encode()
    cut = pieces.parse(data, "rank_list", orjson.loads, size=100)

    assert document == _parse(data)
    assert cut
    assert isinstance(cut["rank_list"], Pieces)
    assert len(cut["rank_list"].cuts) > 5


@pytest.mark.parametrize(
    "text",
    [
        '{"rank_list": 3, "x": "%s"}',
        '{"rank_list": [], "x": "%s"}',
        '{"rank_list": [3, "%s"]}',
        '{"rank_list": [{}, {"x": "%s"}]}',
        '{"rank_list": [{"a": "%s"}], "x": []}',
        '{"rank_list": [{"a": "%s"}], "rank_list": []}',
        '{"x": {"rank_list": [{"a": "%s"}]}}',
        '{"rank\\u005flist": [], "x": {"rank_list": [{"a": "%s"}]}}',
        '{"x\\"rank_list": [{"a": "%s"}], "rank_list\\n": []}',
        '[{"rank_list": [{"a": "%s"}]}]',
    ],
)
def test_what_is_not_cut(text: str) -> None:
    """A document in which the list is not certain to be the one that counts is left to the parser."""
    data = text.replace("%s", "x" * 80).encode()

    assert orjson.loads(data)
    assert _parse(data) is None


@pytest.mark.parametrize("wrong", ['{"a": 1}{"a": 2}', '{"a": 1},,{"a": 2}', '{"a": 1},{"a": 2},', '{"a": 1},{"a": '])
def test_what_is_no_json(wrong: str) -> None:
    """What the parser would refuse is not made right by a cut."""
    data = f'{{"x": "{"x" * 40}", "rank_list": [{wrong}]}}'.encode()

    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(data)
    for size in range(1, 12):
        assert _parse(data, size) is None


@patient
@given(st.lists(st.dictionaries(st.sampled_from("ab"), json_values)), json_values, st.integers(1, 40))
def test_any_list(entries: list[dict[str, object]], beside: object, size: int) -> None:
    """Whatever is cut, it is what the parser reads of the whole."""
    data = json.dumps({"x": beside, "rank_list": entries, "y": beside}).encode()
    found = _parse(data, size)

    assert found is None or orjson.loads(data) == found


def _long(**changes: object) -> bytes:
    """Give a rank list that is long enough to be cut, the last rank with these changes."""
    document = json.loads(valid("rank_list_2_servers"))
    first = document["rank_list"][0]
    ranks = []
    for rank in range(4000):
        level = {**first["level_list"][0], "net_instance_id": f"rack{rank // 8}"}
        ranks.append({**first, "rank_id": rank, "local_id": rank % 8, "device_id": rank % 8, "level_list": [level]})
    ranks[-1].update(changes)
    data = json.dumps({**document, "rank_count": len(ranks), "rank_list": ranks}).encode()

    assert len(data) > pieces.PIECE
    return data


def test_long_rank_list() -> None:
    """It is the same table, and handed on byte for byte; a defect is told with its place."""
    data = _long()
    table = codec.loads(data)

    assert 4000 == table.rank_size
    assert [f"rack{index}" for index in range(500)] == [server.server_id for server in table.servers]
    assert data is codec.hand_on(table, data)
    assert json.loads(data) == json.loads(codec.dumps(table))
    with pytest.raises(RankTableFormatError, match=r"^rank_id is 'x', .* in 'rank_list\[3999\]\.rank_id'"):
        codec.loads(_long(rank_id="x"))
    assert ["local_id 6 is that of 'rank_list[3998]' already, on server 'rack499'"] == [
        finding.sentence for finding in checks.check_reading(codec.examine(_long(local_id=6)))
    ]


def test_long_rank_list_with_a_long_number() -> None:
    """Every digit of a number is kept."""
    assert 10**30 == codec.loads(_long(x=10**30)).rank(3999).more["x"]


def test_long_rank_list_beside_another_list() -> None:
    """The list that counts is found as in a short document."""
    table = codec.loads(b'{"server_list": [], ' + _long()[1:])

    assert 4000 == table.rank_size


def test_folded() -> None:
    """It is the mapping that it was, to the digit and the half of a pair."""
    values: dict[str, object] = {"a": [1, {"b": 10**30}], "c": None, "d": 1.5, "e": "\ud800é"}
    folded = fold(values)

    assert isinstance(folded, Folded)
    assert values == folded
    assert values == unfold(folded) == unfold(values)
    assert (4, list(values), repr(values)) == (len(folded), list(folded), repr(folded))
    assert 1.5 == folded["d"]
    assert "x" not in folded


def test_what_cannot_be_folded() -> None:
    """What is nested too deeply stays as it is."""
    deep: dict[str, object] = {}
    for _ in range(3000):
        deep = {"a": deep}

    assert deep is fold(deep)
