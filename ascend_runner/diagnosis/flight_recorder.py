"""Asks the flight recorders of torch and torch_npu what ranks that hang wait for, and compares their answers.

A recorder holds the newest collectives of a rank. A write to its pipe makes the rank dump them to a file. Collectives
are matched between ranks by process group and number, never by time. What a dump has is the rank's own, so nothing of
it is trusted. Recorders are asked shortly before the limit of a hang and again at the limit, where only those that have
answered quickly the first time are waited for.
"""

from __future__ import annotations

import math
import os
import re
import stat
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs

from ascend_runner import files
from ascend_runner.diagnosis.finding import CollectiveGroup
from ascend_runner.errors import AscendRunnerError
from ascend_runner.members import Members
from ascend_runner.node import bounded
from ascend_runner.text import rank_list, shown

# Seconds for a dump: a recorder reads its pipe once a second, may have to wait for the GIL, imports torch._dynamo (5 s,
# unless an optimizer already has), and writes 2,000 collectives with their stacks in 1.5 s.
DUMP_LIMIT: Final = 10.0
READ_INTERVAL: Final = 1.0  # seconds between two reads of the pipe by a recorder
QUICK: Final = 2.0  # seconds; a recorder that took longer is not waited for when it is asked again
ASK_LIMIT: Final = 1.0  # seconds for the disk with the pipes
POLL_INTERVAL: Final = 0.05  # seconds
MOST_BYTES: Final = 16 * 1024 * 1024  # of a dump; 2,000 collectives need 0.3 MB, with deep stacks a few
MOST_TOLD: Final = 8  # process groups
LONGEST_NAME: Final = 80  # characters of the name of a process group or collective
# A few bytes of a dump can refer to the same long list or text again and again, so that only so much of each is read.
MOST_ENTRIES: Final = 20_000  # collectives
MOST_GROUPS: Final = 200  # process groups
MOST_ITEMS: Final = 16  # of a short list: frames, tensors, dimensions
LONGEST_LIST: Final = 100_000  # characters of the list of the ranks in a process group
# Collectives whose tensors have the same number of elements on every rank. It is not known of the others: ranks may
# gather parts of different sizes.
EQUAL_SIZES: Final = frozenset({"all_reduce", "allreduce", "broadcast", "reduce"})
_DEFAULT_GROUP: Final = "default_pg"  # the description of the process group that has all ranks
_FRONTEND: Final = "distributed_c10d.py"  # the file of torch whose functions are the collectives
# What torch and torch_npu log about a dump that was asked for (ProcessGroupNCCL.cpp and FlightRecorder.cpp in
# torch/csrc/distributed/c10d): "[rank0]:[E606 09:09:08.172565234 ProcessGroupNCCL.cpp:1700] [PG ID 0 ... Rank 0]
# ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1".
_LOGGED: Final = re.compile(
    rb"(?:\[rank\d+\]:)?\[[A-Z]\d+ [\d:.]+ \w+\.[ch]pp:\d+\] .{0,300}?"
    rb"(?:preparing to dump debug info|[Ww]riting Flight Recorder debug info|dumping \w+ trace"
    rb"|trace successfully dumped|Dump signal received through pipe)"
)


@attrs.frozen(kw_only=True)
class Place:
    """Where a rank is in the collectives of a process group; see `CollectiveGroup`."""

    number: int = 0
    name: str = ""
    elements: int | None = None
    is_waiting: bool = False


NOWHERE: Final = Place()


@attrs.frozen(order=True)
class Channel:
    """The collectives of a process group, or its transfers between two ranks: each has numbers of its own."""

    name: str = ""  # of the process group; the same on all ranks
    description: str = ""
    is_transfer: bool = False

    @property
    def group(self) -> str:
        """The process group as it is shown: "0 (default_pg)"."""
        is_described = self.description not in {"", "undefined"}
        return shown(f"{self.name} ({self.description})" if is_described else self.name)


@attrs.frozen
class Recording:
    """What a recorder has dumped: the places of its rank, and the ranks of process groups by name, as far as known.

    Unless it `is_whole`, older collectives are missing, perhaps all of a process group.
    """

    places: Mapping[Channel, Place] = {}
    ranks: Mapping[str, frozenset[int]] = {}
    is_whole: bool = True

    def members(self, channel: Channel) -> frozenset[int]:
        """Return the ranks of the process group, an empty set if they are unknown."""
        return self.ranks.get(channel.name, frozenset())


# --- Asking -----------------------------------------------------------------------------------------------------------


@attrs.define
class _Asked:
    """A recorder that was asked, and the last known version of its dump."""

    rank_id: int
    dump: str
    version: tuple[int, ...] | None

    def answer(self) -> Recording | None:
        """Return its recording, or None if it has not dumped one since it was asked."""
        version = _version(self.dump)
        if version is None or version == self.version:
            return None
        self.version = version
        return _read(self.dump, version[0])


class Question:
    """Requests one dump from each recorder, and collects the dumps in a thread for up to DUMP_LIMIT seconds.

    `paths` are those of the pipe and the dump of each recorder of a rank. Existing dumps are ignored: they are from an
    earlier hang, or were written for another reason.
    """

    def __init__(
        self, paths: Mapping[int, Sequence[tuple[str, str]]], is_cut: Callable[[], bool] = bounded.never
    ) -> None:
        self._paths, self._is_cut = paths, is_cut
        self._began = 0.0
        self._asked: list[_Asked] = []
        self._found: dict[int, Recording | None] = {}
        self._seconds: dict[int, float] = {}  # response times
        self._limits: Mapping[int, float] | None = None  # seconds to wait for each rank, set by `answers`
        self._has_asked = threading.Event()
        self._is_changed = threading.Event()  # whether there are limits, or the question is closed
        self.is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def has_recorders(self) -> bool:
        """Whether any rank has a recorder."""
        return any(self._paths.values())

    @property
    def is_open(self) -> bool:
        """Whether dumps are still being collected. This remains true while their disk hangs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def seconds(self) -> dict[int, float]:
        """Response times in seconds, by the ids of the ranks that have answered."""
        return dict(self._seconds)

    def start(self) -> None:
        """Request the dumps and start collecting them; do neither if no thread can be started."""
        self._began = time.monotonic()
        if self.has_recorders:
            with suppress(AscendRunnerError):
                self._thread = bounded.start_thread(self._run)

    def await_asked(self) -> None:
        """Wait up to ASK_LIMIT seconds until all requests have been sent."""
        deadline = time.monotonic() + ASK_LIMIT
        while self.is_open and time.monotonic() < deadline and not self._is_cut():
            if self._has_asked.wait(POLL_INTERVAL):
                break

    def answers(self, before: Mapping[int, float]) -> dict[int, Recording | None]:
        """Return the recording of each rank that was asked, or None if it has not dumped one.

        `before` has the earlier response times of ranks, in seconds. Only ranks that took at most QUICK seconds are
        waited for, and only READ_INTERVAL longer than they took.
        """
        self._limits = {rank_id: seconds + READ_INTERVAL for rank_id, seconds in before.items() if seconds <= QUICK}
        self._is_changed.set()
        if self._thread and self._has_asked.is_set():
            ends_at = max(self._began + max(self._limits.values(), default=0.0), time.monotonic())
            bounded.join(self._thread, ends_at + bounded.LAST_CHANCE, self._is_cut)
        return {} if self.is_closed else dict(self._found)  # a late answer must not change what the caller reads

    def close(self) -> None:
        """Discard the dumps, since the ranks have moved on, but keep the response times."""
        self.is_closed = True
        self._is_changed.set()

    def _run(self) -> None:
        for rank_id, recorders in self._paths.items():
            for pipe, dump in recorders:
                version = _version(dump)  # before it is asked: it may answer at once
                if _write(pipe):
                    self._asked.append(_Asked(rank_id, dump, version))
                    self._found[rank_id] = None
        self._has_asked.set()
        self._collect()

    def _collect(self) -> None:
        waiting = self._asked
        while waiting and not (self.is_closed or self._is_cut()):
            limits, after = self._limits, time.monotonic() - self._began
            waiting = [
                recorder
                for recorder in waiting
                if not self._has_answered(recorder)
                and after < (DUMP_LIMIT if limits is None else limits.get(recorder.rank_id, 0.0))
            ]
            if waiting and limits is None:
                self._is_changed.wait(POLL_INTERVAL)
            elif waiting:
                time.sleep(POLL_INTERVAL)

    def _has_answered(self, recorder: _Asked) -> bool:
        recording = recorder.answer()
        if recording:
            self._found[recorder.rank_id] = _merged(self._found[recorder.rank_id], recording)
            self._seconds[recorder.rank_id] = time.monotonic() - self._began
        return recording is not None


def is_own_log(data: bytes) -> bool:
    """Return whether `data` contains only complete messages of recorders about requested dumps."""
    # The first match alone settles most output, before it is split into lines.
    return data.endswith(b"\n") and bool(_LOGGED.match(data)) and all(map(_LOGGED.match, data.splitlines()))


def _write(pipe: str) -> bool:
    """Write to a named pipe without blocking; return False if it has no reader, is full, or is not a named pipe."""
    try:
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # ENXIO: nobody reads it; ENOENT: the rank has not made it
        return False
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode) and os.write(fd, b"dump\n") > 0
    except OSError:  # EAGAIN: it is full, as nobody has read for long
        return False
    finally:
        os.close(fd)


def _version(path: str) -> tuple[int, ...] | None:
    """Return the size of a file and what changes when it is written again, None without a file."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _read(path: str, size: int) -> Recording | None:
    """Return a recording, None if the file has none or is still being written."""
    try:
        return decode(files.read_end(path, MOST_BYTES) if size <= MOST_BYTES else b"")
    except ValueError:
        return None


def _merged(one: Recording | None, other: Recording) -> Recording:
    """Merge the recordings of two recorders of a rank."""
    if one is None:
        return other
    ranks, is_whole = {**one.ranks, **other.ranks}, one.is_whole and other.is_whole
    return Recording({**one.places, **other.places}, ranks, is_whole)


# --- Reading ----------------------------------------------------------------------------------------------------------

# A pickle is a program, and pickle.loads() runs it: it imports and calls whatever it names, and even without that its
# author chooses how much memory and time it takes. These are the instructions that torch writes (Pickler in
# torch/csrc/jit/serialization/pickler.cpp) and those that Python writes instead; they can make only plain values.
MOST_INSTRUCTIONS: Final = 2_000_000  # each makes at most one value; 2,000 collectives need 0.3 million
_BYTE, _SHORT, _LONG, _SIGNED, _FLOAT = map(struct.Struct, ("<B", "<H", "<I", "<i", ">d"))
_STOP: Final = ord(".")


@attrs.define(eq=False, repr=False)
class _Machine:
    """Makes the value of a pickle from None, booleans, numbers, strings, lists, tuples, and dicts by strings."""

    _data: bytes
    _at: int = 0
    _stack: list[Any] = attrs.field(factory=list)
    _marks: list[int] = attrs.field(factory=list)
    _memo: dict[int, object] = attrs.field(factory=dict)

    def run(self) -> object:
        """Return the value.

        Raises:
            ValueError: Something else is made, or too much, or a value or list is missing.
            IndexError, KeyError, struct.error: The end or a value is missing.
        """
        data, instructions = self._data, _INSTRUCTIONS
        for _number in range(MOST_INSTRUCTIONS):
            code = data[self._at]
            self._at += 1
            if code == _STOP:
                return self._stack[-1]
            if code not in instructions:
                raise ValueError(f"instruction {code:#04x} makes no plain value")
            instructions[code](self)
        raise ValueError("too many instructions")

    def push(self, value: object) -> None:
        self._stack.append(value)

    def number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return value

    def cut(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise ValueError("the end is missing")
        return self._data[start : self._at]

    def skip(self, length: int) -> None:
        self._at += length

    def get(self, number: int) -> None:
        self._stack.append(self._memo[number])

    def put(self, number: int | None = None) -> None:
        self._memo[len(self._memo) if number is None else number] = self._stack[-1]

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def since_mark(self) -> list[Any]:
        return self.last(len(self._stack) - self._marks.pop())

    def last(self, count: int) -> list[Any]:
        """Take the last values off the stack."""
        start = len(self._stack) - max(0, count)
        if start < 0:
            raise ValueError("a value is missing")
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def extend(self, values: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise ValueError("values for something that is not a list")
        self._stack[-1].extend(values)

    def update(self, values: list[Any]) -> None:
        """Set names and values. Only strings are names: the hash of a tuple may need more than the C stack."""
        names = values[::2]
        is_paired = len(values) == 2 * len(names) and all(type(name) is str for name in names)
        if type(self._stack[-1]) is not dict or not is_paired:
            raise ValueError("values for something that is not a dict, or names that are not strings")
        self._stack[-1].update(zip(names, values[1::2]))


_Instruction = Callable[[_Machine], None]
_INSTRUCTIONS: Final[Mapping[int, _Instruction]] = {
    ord("h"): lambda at: at.get(at.number(_BYTE)),
    ord("j"): lambda at: at.get(at.number(_LONG)),
    ord("q"): lambda at: at.put(at.number(_BYTE)),
    ord("r"): lambda at: at.put(at.number(_LONG)),
    0x94: _Machine.put,
    ord("("): _Machine.mark,
    ord("N"): lambda at: at.push(None),
    0x88: lambda at: at.push(True),
    0x89: lambda at: at.push(False),
    ord("K"): lambda at: at.push(at.number(_BYTE)),
    ord("M"): lambda at: at.push(at.number(_SHORT)),
    ord("J"): lambda at: at.push(at.number(_SIGNED)),
    ord("G"): lambda at: at.push(at.number(_FLOAT)),
    0x8A: lambda at: at.push(int.from_bytes(at.cut(at.number(_BYTE)), "little", signed=True)),
    ord("X"): lambda at: at.push(at.cut(at.number(_LONG)).decode(errors="replace")),
    0x8C: lambda at: at.push(at.cut(at.number(_BYTE)).decode(errors="replace")),
    ord("]"): lambda at: at.push([]),
    ord("}"): lambda at: at.push({}),
    ord(")"): lambda at: at.push(()),
    ord("a"): lambda at: at.extend(at.last(1)),
    ord("e"): lambda at: at.extend(at.since_mark()),
    ord("s"): lambda at: at.update(at.last(2)),
    ord("u"): lambda at: at.update(at.since_mark()),
    ord("t"): lambda at: at.push(tuple(at.since_mark())),
    0x85: lambda at: at.push(tuple(at.last(1))),
    0x86: lambda at: at.push(tuple(at.last(2))),
    0x87: lambda at: at.push(tuple(at.last(3))),
    0x80: lambda at: at.skip(1),  # the version
    0x95: lambda at: at.skip(8),  # the length of what follows
}


def loads(data: bytes) -> object:
    """Return the value that a pickle makes of None, booleans, numbers, strings, lists, tuples, and dicts by strings.

    Raises:
        ValueError: It is incomplete, damaged or too long, or makes anything else.
    """
    try:
        return _Machine(data).run()
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError("not a complete pickle") from error


def decode(data: bytes) -> Recording:
    """Return the recording in a dump of version 2, which has the numbers of collectives.

    Raises:
        ValueError: It is not a complete dump, or of another version.
    """
    value = loads(data)
    dump = Members(value) if isinstance(value, dict) else Members()
    if not dump.text("version").startswith("2."):
        raise ValueError("not a dump of a flight recorder")
    entries = dump.members.get("entries")
    entries = entries if isinstance(entries, list) else []
    first, *_rest = [*map(_members, entries[:1]), Members()]
    told: dict[Channel, Members] = {}  # the entry that says where the rank is
    for entry in map(_members, entries[-MOST_ENTRIES:]):
        channel = _channel(entry)
        if channel in told and _is_waiting(told[channel]):
            continue  # this one cannot begin before that one has ended
        if _is_waiting(entry) or not channel.is_transfer:
            told[channel] = entry
    config = dump.child("pg_config").members
    groups = [_members(config[name]) for name, _number in zip(config, range(MOST_GROUPS))]
    is_whole = len(entries) <= MOST_ENTRIES and not first.whole("record_id")
    return Recording(
        {channel: _place(channel, entry) for channel, entry in told.items()},
        {group.text("name")[:LONGEST_NAME]: _ranks(group) for group in groups},
        is_whole,
    )


def _members(value: object) -> Members:
    return Members(value) if isinstance(value, dict) else Members()


def _few(members: Members, name: str) -> Sequence[object]:
    """Return the first items of a list or tuple."""
    value = members.members.get(name)
    return value[:MOST_ITEMS] if isinstance(value, (list, tuple)) else ()


def _channel(entry: Members) -> Channel:
    texts = [text[:LONGEST_NAME] for text in (*_few(entry, "process_group"), "", "") if isinstance(text, str)]
    return Channel(texts[0], texts[1], entry.flag("is_p2p"))


def _is_waiting(entry: Members) -> bool:
    """Whether a collective is not over. gloo's never become "completed", and retired is also one that is given up."""
    return entry.text("state") != "completed" and not entry.flag("retired")


def _place(channel: Channel, entry: Members) -> Place:
    name = _called(entry)
    return Place(
        number=entry.count("p2p_seq_id" if channel.is_transfer else "collective_seq_id") or 0,
        name=name,
        elements=_elements(entry) if name in EQUAL_SIZES else None,
        is_waiting=_is_waiting(entry),
    )


def _called(entry: Members) -> str:
    """Return the name of a collective: "all_reduce". torch_npu may record only that a function of torch was called."""
    name = entry.text("profiling_name")[:LONGEST_NAME].rpartition(":")[2]
    frames = [*map(_members, _few(entry, "frames"))]
    functions = (frame.text("name") for frame in frames if frame.text("filename").endswith(_FRONTEND))
    return shown((name or next(functions, ""))[:LONGEST_NAME])


def _elements(entry: Members) -> int | None:
    """Return the number of elements of the tensors that a collective reads, None if it is unknown."""
    tensors = [tensor for tensor in _few(entry, "input_sizes") if isinstance(tensor, (list, tuple))]
    if not tensors or len(tensors) == MOST_ITEMS or any(len(tensor) > MOST_ITEMS for tensor in tensors):
        return None
    sizes = [[Members({"size": size}).count("size") for size in tensor] for tensor in tensors]
    return sum(math.prod(size or 0 for size in tensor) for tensor in sizes)


def _ranks(group: Members) -> frozenset[int]:
    """Return the ranks of a process group: "[0, 1]"."""
    return frozenset(map(int, re.findall(r"\b\d{1,7}\b", group.text("ranks")[:LONGEST_LIST])))


# --- Comparing --------------------------------------------------------------------------------------------------------


def compare(recordings: Mapping[int, Recording], others: Collection[int] = ()) -> tuple[CollectiveGroup, ...]:
    """Return where ranks are in the process groups in which any of them waits, those of most ranks first.

    `others` are ranks without a recording; they are left out if the result would have nothing else.
    """
    recordings = _completed(recordings)
    waiting: dict[tuple[Channel, frozenset[int]], int] = {}
    for recording in recordings.values():
        for channel, place in recording.places.items():
            key = channel, recording.members(channel)
            waiting[key] = waiting.get(key, 0) + place.is_waiting
    keys = sorted(
        (key for key, count in waiting.items() if count), key=lambda key: (-waiting[key], key[0], sorted(key[1]))
    )
    found = [group for key in keys[:MOST_TOLD] for group in _of_channel(*key, recordings)]
    unknown = [CollectiveGroup(rank_ids=tuple(sorted(others)))] if found and others else []
    return (*found, *unknown)


def _completed(recordings: Mapping[int, Recording]) -> dict[int, Recording]:
    """Add to each recording the process groups that its rank is in but only others have recorded."""
    known = dict.fromkeys(pair for recording in recordings.values() for pair in recording.ranks.items() if pair[1])
    return {
        rank_id: attrs.evolve(
            recording,
            ranks={
                **{name: ranks for name, ranks in known if rank_id in ranks},
                **{name: ranks for name, ranks in recording.ranks.items() if ranks},
            },
        )
        for rank_id, recording in recordings.items()
    }


def _of_channel(
    channel: Channel, members: frozenset[int], recordings: Mapping[int, Recording]
) -> Iterator[CollectiveGroup]:
    """Yield the ranks of a process group by their places, first the one where most wait.

    Several groups that torch's split_group() has made may share a name. Their ranks are then added to it.
    """
    group = channel.group
    if any(recording.members(channel) not in {members, frozenset()} for recording in recordings.values()):
        group = shown(f"{group} of {rank_list(members)}")
    ranks: dict[Place, list[int]] = {}
    for rank_id, recording in sorted(recordings.items()):
        if recording.members(channel) != members:
            continue
        is_member = rank_id in members or channel.description == _DEFAULT_GROUP
        has_called_none = is_member and recording.is_whole and not channel.is_transfer
        place = recording.places.get(channel, NOWHERE if has_called_none else None)
        if place:
            ranks.setdefault(place, []).append(rank_id)
    for place in sorted(ranks, key=lambda place: (not place.is_waiting, -len(ranks[place]), place.number)):
        yield CollectiveGroup(
            group=group,
            rank_ids=tuple(ranks[place]),
            number=place.number,
            name=place.name,
            elements=place.elements,
            is_waiting=place.is_waiting,
            is_transfer=channel.is_transfer,
        )
