"""However the bytes of a rank are cut into reads, its lines on the console are the same, and none is lost."""

from __future__ import annotations

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.ranks.lines import WRAP_AT, LineCutter

PREFIX = b"[rank 3] "
# Contents around the length at which a line is wrapped, and the three endings; "" joins two contents to one line.
LENGTHS = st.sampled_from([0, 1, 2, 70, WRAP_AT - 1, WRAP_AT, WRAP_AT + 1, 2 * WRAP_AT, 2 * WRAP_AT + 1])
ENDINGS = st.sampled_from([b"\n", b"\r", b"\r\n", b"", b"\n\n", b"\r\r\n"])


def reference(data: bytes, prefix: bytes) -> bytes:
    """Return what is shown of a whole stream, computed in the simplest way."""
    shown = []
    for content, ending in re.findall(rb"([^\r\n]*)(\r\n|\r|\n|\Z)", data):
        if content or ending:
            *wrapped, last = [content[at : at + WRAP_AT] for at in range(0, len(content) or 1, WRAP_AT)]
            shown += [prefix + part + b"\n" for part in wrapped]
            shown += [prefix + last + ending]
    if data and not data.endswith(b"\n"):
        shown.append(b"\n")
    return b"".join(shown)


def cut(data: bytes, prefix: bytes, ends: list[int]) -> bytes:
    """Feed `data` in the pieces that end at `ends`; check that each answer is whole lines."""
    cutter = LineCutter(prefix)
    shown = b""
    for start, end in zip([0, *ends], [*ends, len(data)]):
        pieces = b"".join(cutter.feed(data[start:end])) if start < end else b""
        assert pieces[-1:] in {b"", b"\n", b"\r"}, "whole lines only"
        shown += pieces
    return shown + cutter.finish()


@attrs.frozen
class Stream:
    """A compact description of a rank's output: the length and ending of each line, and the ends of the reads."""

    lines: list[tuple[int, bytes]]
    ends: list[int]

    @property
    def data(self) -> bytes:
        """The bytes; each line consists of a different letter, so that mix-ups are visible."""
        return b"".join(b"%c" % (97 + index) * length + end for index, (length, end) in enumerate(self.lines))


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Draw a stream of lines of awkward lengths, and where the reads end."""
    stream = Stream(draw(st.lists(st.tuples(LENGTHS, ENDINGS), max_size=5)), [])
    ends = draw(st.lists(st.integers(0, len(stream.data)), max_size=8))
    # Reads that end just before, in and just behind an ending find what random ones do not.
    breaks = [match.start() for match in re.finditer(rb"[\r\n]", stream.data)]
    ends += [place + draw(st.integers(0, 1)) for place in breaks if draw(st.booleans())]
    return attrs.evolve(stream, ends=sorted(ends))


@given(streams(), st.sampled_from([PREFIX, b""]))
def test_long_lines_are_shown_alike_however_they_are_read(stream: Stream, prefix: bytes) -> None:
    """Lines around the length of wrapping, with every ending, come out as the reference has it."""
    assert reference(stream.data, prefix) == cut(stream.data, prefix, stream.ends)


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\r", b"\n", b"\r\n", b"ab\n", b"ab"]), max_size=30))
def test_any_bytes_are_shown_alike_however_they_are_read(reads: list[bytes]) -> None:
    """Bytes of any kind, NUL and broken UTF-8 among them, come out as the reference has it."""
    data = b"".join(reads)
    ends = [sum(map(len, reads[:count])) for count in range(1, len(reads))]

    assert reference(data, PREFIX) == cut(data, PREFIX, ends)


@given(streams())
def test_no_byte_is_lost(stream: Stream) -> None:
    """Without prefix, and without the newlines that were put in, what is shown is what was written."""
    assert stream.data.replace(b"\n", b"") == cut(stream.data, b"", stream.ends).replace(b"\n", b"")


@pytest.mark.parametrize(
    ("reads", "shown"),
    [
        ([b"a\nb\n"], b"> a\n> b\n"),
        ([b"a", b"b\n"], b"> ab\n"),
        ([b"\n\n"], b"> \n> \n"),
        ([b"no newline at the end"], b"> no newline at the end\n"),
        ([b"10%\r20%\r", b"done\n"], b"> 10%\r> 20%\r> done\n"),
        ([b"dos\r", b"\nnext\r\n"], b"> dos\r\n> next\r\n"),
        ([b"bar\r"], b"> bar\r\n"),
        ([b"x" * (WRAP_AT + 1) + b"\n"], b"> " + b"x" * WRAP_AT + b"\n> x\n"),
        ([b"x" * WRAP_AT, b"\n"], b"> " + b"x" * WRAP_AT + b"\n"),
        ([b"x" * WRAP_AT, b"\r\n"], b"> " + b"x" * WRAP_AT + b"\r\n"),
        ([], b""),
    ],
    ids=["two", "cut", "empty", "unended", "bar", "dos", "bar-at-end", "long", "just-not", "just-not-dos", "nothing"],
)
def test_lines_by_example(reads: list[bytes], shown: bytes) -> None:
    """Each line, each part of a wrapped line and each state of a progress bar has a prefix."""
    cutter = LineCutter(b"> ")

    assert shown == b"".join(piece for read in reads for piece in cutter.feed(read)) + cutter.finish()


def test_whole_lines_are_not_held_back() -> None:
    """A complete line is shown at once; the rest waits for its end, for 64 KiB, or for the end of the stream."""
    cutter = LineCutter(b"> ")

    assert b"> a\n" == b"".join(cutter.feed(b"a\nb"))
    assert b"" == b"".join(cutter.feed(b"c"))
    assert b"> bc\n" == b"".join(cutter.feed(b"\n"))


def test_finish_is_the_end_of_a_line_once() -> None:
    """A stream that is finished twice has one end."""
    cutter = LineCutter(b"> ")
    cutter.feed(b"a")

    assert b"> a\n" == cutter.finish()
    assert b"" == cutter.finish()


@given(streams(), st.data(), st.booleans())
def test_skipped_lines_are_those_that_would_have_been_shown(
    stream: Stream,
    choices: st.DataObject,
    folds: bool,  # noqa: FBT001  a parameter
) -> None:
    """Skipped lines are counted, and later ones are shown as if none had been skipped."""
    shown, skipped = LineCutter(PREFIX, folds=folds), LineCutter(PREFIX, folds=folds)
    for start, end in zip([0, *stream.ends], [*stream.ends, len(stream.data)]):
        read = stream.data[start:end]
        pieces = b"".join(shown.feed(read))
        if choices.draw(st.booleans()):
            assert pieces.count(b"\n") == skipped.skip(read)
        else:
            assert pieces == b"".join(skipped.feed(read))

    assert shown.finish() == skipped.finish()


# --- Lines that are drawn again ---------------------------------------------------------------------------------------


def last_state(line: bytes) -> bytes:
    """Return what is left of a line that was drawn again, in the simplest way."""
    states = [state for state in line.split(b"\r") if state]
    return (states[-1] if states else b"") + (b"\r" if line.endswith(b"\r") else b"")


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\r", b"\n", b"\r\n", b"ab\n", b"\r10%"]), max_size=30))
def test_folded_lines_are_their_last_states(reads: list[bytes]) -> None:
    """However they are read, each line is shown once, in its last state."""
    *lines, last = b"".join(reads).split(b"\n")
    expected = b"".join(PREFIX + last_state(line) + b"\n" for line in lines)
    expected += PREFIX + last_state(last) + b"\n" if last else b""
    cutter = LineCutter(PREFIX, folds=True)

    assert expected == b"".join(piece for read in reads for piece in cutter.feed(read)) + cutter.finish()


@given(st.lists(st.sampled_from([b"ab", b"c\n", b"\n", b"d\ne"]) | st.none(), max_size=20))
def test_unfinished_lines_add_up_to_the_output(reads: list[bytes | None]) -> None:
    """Where an unfinished line was shown (None), the rest follows without its prefix: nothing is lost or repeated."""
    for folds in (False, True):
        cutter = LineCutter(b"> ", folds=folds)
        shown = b""
        for read in reads:
            piece = cutter.show_unfinished() if read is None else b"".join(cutter.feed(read))
            shown += piece[cutter.continued or 0 :] if piece else b""
        piece = cutter.finish()
        shown += piece[cutter.continued or 0 :] if piece else b""

        assert reference(b"".join(filter(None, reads)), b"> ") == shown


@pytest.mark.parametrize(
    ("reads", "shown"),
    [
        ([b"10%\r20%\r", b"30%"], b"> 30%\r"),
        ([b"\r10%", b"\r20%"], b"> 20%\r"),
        ([b"10%\r"], b"> 10%\r"),
        ([b"a\nname: "], b"> name: "),
        ([b"a\n"], b""),
        ([b"bar\rdone\n"], b""),
    ],
    ids=["bar", "returns-first", "one-state", "prompt", "nothing", "finished"],
)
def test_unfinished_line_by_example(reads: list[bytes], shown: bytes) -> None:
    """A bar ends in a carriage return, so that its next state is written over it, any other line in its last byte."""
    cutter = LineCutter(b"> ", folds=True)
    for read in reads:
        cutter.feed(read)

    assert shown == cutter.show_unfinished()
    assert b"" == cutter.show_unfinished()


def test_last_state_of_a_bar_is_shown_when_its_line_ends() -> None:
    """A state that has already been shown is shown again with the newline."""
    cutter = LineCutter(b"> ", folds=True)
    cutter.feed(b"\r10%")
    cutter.show_unfinished()

    assert b"> 10%\n" == b"".join(cutter.feed(b"\n"))


def test_bar_that_is_drawn_over_shown_text_begins_anew() -> None:
    """If an unfinished line that was shown turns out to be drawn over, what follows does not continue it."""
    cutter = LineCutter(b"> ", folds=True)
    cutter.feed(b"loading")
    cutter.show_unfinished()
    pieces = b"".join(cutter.feed(b"\r10%\n"))

    assert (b"> 10%\n", None) == (pieces, cutter.continued)
