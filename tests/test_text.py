"""How text of unknown origin, numbers and durations are shown."""

from __future__ import annotations

import time

import pytest

from ascend_runner.text import (
    LINE_LIMIT,
    abbreviated,
    clock,
    duration,
    format_numbers,
    in_seconds,
    last_lines,
    lines_of,
    parse_numbers,
    printable,
    rank_list,
    shown,
    size,
)
from tests.helpers.package_source import MODULES


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("plain\ttext, 训练", "plain\ttext, 训练"),
        ("\\x1b[2J", "\x1b[2J"),
        ("a\\nb\\rc\\x00", "a\nb\rc\0"),
        ("\\x9b", "\x9b"),
        ("\\u202e", "\u202e"),
        ("\\udcff", "\udcff"),
    ],
)
def test_printable(expected: str, text: str) -> None:
    """Characters that control a terminal or the direction of writing are escaped; text stays."""
    assert expected == printable(text)


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        (["a", "b", ""], b"a\r\nb\n"),
        (["100%"], b"  0%\r 50%\r100%"),
        (["100%", ""], b" 50%\r100%\r\n"),
        (["red x"], b"\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\x\x1bM"),
        (["\ufffda\0"], b"\xffa\0"),
        ([""], b""),
    ],
)
def test_lines_of(expected: list[str], data: bytes) -> None:
    """Lines are split as a terminal shows them."""
    assert expected == lines_of(data)


def test_unended_sequence() -> None:
    """An escape sequence without an end is escaped and hides nothing of the line."""
    assert ["\\x1b]0;title"] == list(map(shown, lines_of(b"\x1b]0;title")))


def test_long_line() -> None:
    """Both ends of a long line are shown."""
    line = shown("a" * 5000 + "z" * 5000)

    assert LINE_LIMIT == len(line)
    assert ("aaa", "zzz") == (line[:3], line[-3:])


@pytest.mark.parametrize(
    ("words", "rank_ids"),
    [
        ("rank 3", [3]),
        ("ranks 0, 1", [1, 0]),
        ("ranks 0-2, 4, 6-9", [0, 1, 2, 4, 6, 7, 8, 9]),
        ("the auxiliary process", [-1]),
        ("the auxiliary process and rank 3", [3, -1]),
        ("2 auxiliary processes and rank 3", [3, -1, -2]),
    ],
)
def test_rank_list(words: str, rank_ids: list[int]) -> None:
    """Ranks are named in order, with runs as ranges."""
    assert words == rank_list(rank_ids)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), ""),
        ((5,), "5"),
        ((0, 1), "0, 1"),
        ((0, 1, 2, 4), "0-2, 4"),
        ((3, 2, 1), "3, 2, 1"),
    ],
)
def test_format_numbers(numbers: tuple[int, ...], text: str) -> None:
    """Three and more consecutive numbers are a range, and the order stays."""
    assert text == format_numbers(numbers)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", (0,)),
        ("2-2", (2,)),
        ("8-10,0", (8, 9, 10, 0)),
        ("0-2, 4", (0, 1, 2, 4)),
        ("0-1,1", (0, 1, 1)),
        ("0-1\n", (0, 1)),
    ],
)
def test_parse_numbers(text: str, numbers: tuple[int, ...]) -> None:
    """Numbers and ranges are read in their order; `format_numbers` writes what this reads."""
    assert numbers == parse_numbers(text)


@pytest.mark.parametrize("text", ["", "0,", "-1", "3-", "3-1", "0;1", "x", "٨", "0-9999999", "0-999999,0-999999"])
def test_parse_numbers_refuses(text: str) -> None:
    """Anything else is an error, and so is a list that would fill the memory."""
    with pytest.raises(ValueError, match=r"is not a number or a range|has more than 1000000 numbers"):
        parse_numbers(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (0.0004, "0 s"),
        (0.001, "1 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.1 s"),
        (6.0, "6 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (10.4, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (125.0, "2 min 5 s"),
        (3599.7, "1 h 0 min"),
        (8040.0, "2 h 14 min"),
        (273600.0, "3 d 4 h"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    """A duration has its two largest units, and 60 s is 1 min."""
    assert words == duration(seconds)


def test_in_seconds() -> None:
    """A limit has at most one decimal."""
    assert ["14 s", "13.9 s", "0.5 s", "90 s"] == list(map(in_seconds, (13.9984, 13.91, 0.5, 90.0)))


def test_abbreviated() -> None:
    """A sentence names eight things, and counts the others."""
    assert "0, 1, 2, 3, 4, 5, 6, 7" == abbreviated(list("01234567"))
    assert "0, 1, 2, 3, 4, 5, 6, 7 and 2 more" == abbreviated(list("0123456789"))


@pytest.mark.parametrize(
    ("words", "count"),
    [("0 B", 0), ("1023 B", 1023), ("1.0 KiB", 1024), ("1.5 GiB", 3 << 29), ("2048.0 TiB", 1 << 51)],
)
def test_size(words: str, count: int) -> None:
    """Sizes use the largest unit in which they are 1 or more."""
    assert words == size(count)


@pytest.mark.parametrize(
    ("tail", "lines"),
    [
        (b"", []),
        (b"\n \n", []),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n\n", ["a", "b"]),
        (b" 50%\r100%\ndone\n", ["100%", "done"]),
        (b"a\n 50%\r100%\r", ["a", "100%"]),
        (b"\x1b[31mred\x1b[0m\n", ["red"]),
        (b"\xff\x07\n", ["\ufffd\\x07"]),
        (b"".join(b"%d\n" % number for number in range(30)), [str(number) for number in range(10, 30)]),
    ],
    ids=["nothing", "blank", "unended", "dos", "bar", "bar-at-end", "color", "bytes", "many"],
)
def test_last_lines(tail: bytes, lines: list[str]) -> None:
    """The last twenty lines are shown, without blank lines at the end."""
    assert lines == last_lines(tail)


@pytest.mark.parametrize(("zone", "expected"), [("UTC", "03:12:45 +0000"), ("<+0530>-05:30", "08:42:45 +0530")])
def test_clock(monkeypatch: pytest.MonkeyPatch, zone: str, expected: str) -> None:
    """A time has the zone of this machine."""
    with monkeypatch.context() as context:
        context.setenv("TZ", zone)
        time.tzset()
        written = clock(1_795_317_165.0)
    time.tzset()

    assert (f"2026-11-22 {expected}", "") == (written, clock(None))


def test_times_have_one_notation() -> None:
    """No other module writes dates for people, with or without another notation of the zone."""
    writing = [module.name for module in MODULES if b"%Y-%m-%d" in module.path.read_bytes()]
    separated = [module.name for module in MODULES if b"isoformat(sep" in module.path.read_bytes()]

    # What is compared with the times in HCCL's logs, in their notation, is not for people.
    assert ({"text", "services.hccl_heartbeats"}, []) == (set(writing), separated)
