"""What strangers wrote, made fit for a terminal."""

from __future__ import annotations

import pytest

from ascend_runner.text import LINE_LIMIT, last_lines, lines_of, printable, rank_list, shown


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
    """What steers a terminal, or turns the writing round, is spelled out; what is text stays."""
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
    """Lines are what a terminal would show of them."""
    assert expected == lines_of(data)


def test_unended_sequence() -> None:
    """A sequence that has no end takes nothing of the line with it, and is spelled out."""
    assert ["\\x1b]0;title"] == list(map(shown, lines_of(b"\x1b]0;title")))


def test_long_line() -> None:
    """Of a long line both ends are shown."""
    line = shown("a" * 5000 + "z" * 5000)

    assert LINE_LIMIT == len(line)
    assert ("aaa", "zzz") == (line[:3], line[-3:])


@pytest.mark.parametrize(
    ("words", "rank_ids"),
    [
        ("rank 3", [3]),
        ("ranks 0, 1", [1, 0]),
        ("ranks 0-2, 4, 6-9", [0, 1, 2, 4, 6, 7, 8, 9]),
        ("the process that is no rank", [-1]),
        ("the process that is no rank and rank 3", [-1, 3]),
    ],
)
def test_rank_list(words: str, rank_ids: list[int]) -> None:
    """Ranks are named briefly."""
    assert words == rank_list(rank_ids)


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
    ids=["nothing", "blank", "unended", "dos", "bar", "bar-at-end", "colour", "bytes", "many"],
)
def test_last_lines(tail: bytes, lines: list[str]) -> None:
    """The last twenty lines that say something, as a terminal would show them."""
    assert lines == last_lines(tail)
