"""Rank tables in files: waiting, errors that end the wait at once, and writing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from ascend_runner.errors import OutputError, RankTableError, RankTableNotReadyError
from ascend_runner.problems import RankTableFormatError
from ascend_runner.rank_table import source
from ascend_runner.rank_table.model import RankTable
from tests.rank_table.rank_table_files import invalid, valid

INITIALIZING = b'{"status": "initializing"}'


@pytest.fixture
def table() -> bytes:
    """Return a completed table of 8 devices."""
    return valid("server_list_8_devices")


class FakeTime:
    """A clock that moves only while the wait pauses, and then does the next of `steps`."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self.said: list[str] = []
        self._steps: Iterator[Callable[[], object]] = iter(steps)

    def pause(self, seconds: float) -> None:
        """Advance the clock and perform the next step."""
        self.pauses.append(seconds)
        self.now += seconds
        next(self._steps, lambda: None)()

    def wait(self, path: Path, *, timeout: float = 10.0) -> RankTable:
        """Wait for a table with this clock."""
        return source.wait(path, timeout=timeout, pause=self.pause, say=self.said.append, clock=lambda: self.now)


def _await(path: Path, *steps: Callable[[], object]) -> RankTable:
    return FakeTime(*steps).wait(path)


def test_completed_table_is_taken_at_once(tmp_path: Path, table: bytes) -> None:
    """A completed table is returned without a message or a pause: the table, its bytes and its file."""
    path = tmp_path / "jobstart_hccl.json"
    path.write_bytes(table)
    time = FakeTime()
    found = time.wait(tmp_path)

    assert 8 == found.rank_size
    assert table == found.data
    assert str(path) == found.source
    assert [] == time.pauses
    assert [] == time.said


def test_missing_file_appears(tmp_path: Path, table: bytes) -> None:
    """A missing file is awaited."""
    path = tmp_path / "a.json"

    assert table == _await(path, lambda: path.write_bytes(table)).data


def test_missing_folder_appears(tmp_path: Path, table: bytes) -> None:
    """A missing path that does not end in .json is a directory that is awaited."""
    folder = tmp_path / "config"
    path = folder / "jobstart_hccl.json"

    assert str(path) == _await(folder, folder.mkdir, lambda: path.write_bytes(table)).source


def test_file_of_any_name(tmp_path: Path, table: bytes) -> None:
    """An existing file is used, whatever its name."""
    path = tmp_path / "table"
    path.write_bytes(table)

    assert str(path) == _await(path).source


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{\n  "status": "comp', "it is not JSON at line 2 column "),
        (INITIALIZING, "its status is 'initializing'"),
        (b'{"status": "unknown", "server_list": null}', "its status is 'unknown'"),
    ],
    ids=["empty", "blank", "half-written", "initializing", "unknown"],
)
def test_not_yet(data: bytes, reason: str, tmp_path: Path, table: bytes) -> None:
    """The wait goes on, reports the reason once, and returns the table when it is completed."""
    path = tmp_path / "a.json"
    path.write_bytes(data)
    time = FakeTime(lambda: None, lambda: path.write_bytes(table))
    found = time.wait(path)

    assert table == found.data
    assert [0.2, 0.2] == time.pauses
    assert 1 == len(time.said)
    assert time.said[0].startswith(f"waiting for the rank table {path} (up to 10 s): {reason}")


def test_table_that_went_back_to_initializing(tmp_path: Path, table: bytes) -> None:
    """A table whose status is initializing again is not used, even if it still has a list."""
    path = tmp_path / "a.json"
    path.write_bytes(table.replace(b"completed", b"initializing"))
    new = table.replace(b"10.0.0.1", b"10.0.0.7")

    assert ["10.0.0.7"] == [server.server_id for server in _await(path, lambda: path.write_bytes(new)).servers]


def test_symlink_of_a_config_map_is_swapped(tmp_path: Path, table: bytes) -> None:
    """A ConfigMap changes by a symlink beside the file: file -> ..data/file, ..data -> ..<time>."""
    for name, data in (("..1", INITIALIZING), ("..2", table)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "jobstart_hccl.json").write_bytes(data)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "jobstart_hccl.json").symlink_to("..data/jobstart_hccl.json")

    def swap() -> None:
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    assert table == _await(tmp_path, swap).data


def test_dangling_symlink_is_missing(tmp_path: Path, table: bytes) -> None:
    """A dangling symlink is awaited like a missing file."""
    (tmp_path / "a.json").symlink_to("b.json")

    assert table == _await(tmp_path / "a.json", lambda: (tmp_path / "b.json").write_bytes(table)).data


@pytest.fixture
def coarse_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulate a file system whose timestamps are so coarse that no write of a test changes them."""
    fstat = os.fstat

    def coarse(fd: int) -> os.stat_result:
        status = fstat(fd)
        return os.stat_result((*status[:7], 0, 0, 0))

    monkeypatch.setattr(os, "fstat", coarse)


@pytest.mark.usefixtures("coarse_times")
def test_rewrite_that_leaves_the_times_of_a_file(tmp_path: Path, table: bytes) -> None:
    """A file is read at every poll, whatever its times and its size say."""
    path = tmp_path / "a.json"
    path.write_bytes(INITIALIZING.ljust(len(table)))

    assert table == _await(path, *[lambda: None] * 20, lambda: path.write_bytes(table)).data


def test_content_that_has_not_changed_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large document that is not completed costs one reading of its JSON, not one per poll."""
    path = tmp_path / "a.json"
    path.write_bytes(INITIALIZING)
    parse = orjson.loads
    parsed: list[bytes] = []

    def count(data: bytes) -> object:
        parsed.append(data)
        return parse(data)

    monkeypatch.setattr(orjson, "loads", count)
    with pytest.raises(RankTableNotReadyError) as caught:
        _await(path, *[lambda: None] * 20)
    assert "its status is 'initializing'" == caught.value.reason
    assert [INITIALIZING] == parsed


def test_file_that_changes_while_it_is_read(tmp_path: Path, table: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a file changes while it is being read, what was read is discarded, even if it is invalid."""
    path = tmp_path / "a.json"
    path.write_bytes(invalid("server_list_rank_id_twice"))
    read = os.read
    writes = iter([table])

    def read_while_it_is_written(fd: int, size: int) -> bytes:
        data = read(fd, size)
        for new in writes:
            path.write_bytes(new)
        return data

    monkeypatch.setattr(os, "read", read_while_it_is_written)
    time = FakeTime()

    assert table == time.wait(path).data
    assert [f"waiting for the rank table {path} (up to 10 s): it changed while being read"] == time.said


def test_reason_is_reported_every_30_seconds(tmp_path: Path) -> None:
    """The reason of the wait is reported every 30 seconds."""
    path = tmp_path / "a.json"
    time = FakeTime(*[lambda: None] * 200, lambda: path.write_bytes(INITIALIZING))
    with pytest.raises(RankTableNotReadyError) as caught:
        time.wait(path, timeout=70.0)

    assert [
        f"waiting for the rank table {path} (up to 70 s): it does not exist",
        f"waiting for the rank table {path} (30 of 70 s so far): it does not exist",
        f"waiting for the rank table {path} (60 of 70 s so far): its status is 'initializing'",
    ] == time.said
    assert (
        f"timed out after 70 s waiting for the rank table {path}: its status is 'initializing'; make sure that all pods"
        " of the job are running" == str(caught.value)
    )


def test_damaged_file_is_to_be_checked(tmp_path: Path) -> None:
    """A file that is no JSON may still be written; after the timeout the advice is about the file, not about pods."""
    path = tmp_path / "a.json"
    path.write_bytes(b"no table")
    with pytest.raises(RankTableNotReadyError) as caught:
        FakeTime().wait(path)

    assert str(caught.value).endswith("; make sure that the file is written completely and not damaged")


def test_timeout_of_0(tmp_path: Path) -> None:
    """With a timeout of 0 there is one poll and no pause."""
    time = FakeTime()
    with pytest.raises(RankTableNotReadyError):
        time.wait(tmp_path / "a.json", timeout=0.0)

    assert [] == time.pauses


def test_last_poll_is_at_the_timeout(tmp_path: Path, table: bytes) -> None:
    """The last pause ends at the timeout and is followed by one more poll."""
    path = tmp_path / "a.json"
    time = FakeTime(lambda: None, lambda: path.write_bytes(table))

    assert table == time.wait(path, timeout=0.3).data
    assert [0.2, 0.1] == [round(pause, 6) for pause in time.pauses]


def test_pause_may_end_the_wait(tmp_path: Path) -> None:
    """An exception from `pause` ends the wait, as after a signal."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _await(tmp_path / "a.json", interrupt)


def test_invalid_document_ends_the_wait(tmp_path: Path) -> None:
    """A document that is not a table ends the wait at once."""
    path = tmp_path / "a.json"
    path.write_bytes(invalid("group_list_device_id_no_number"))
    time = FakeTime()
    with pytest.raises(RankTableFormatError) as caught:
        time.wait(path)

    assert [str(path)] == [problem.source for problem in caught.value.problems]
    assert [] == time.pauses


def test_special_file_ends_the_wait(tmp_path: Path) -> None:
    """A FIFO does not block; it is rejected, and so is a directory in place of the file."""
    fifo = tmp_path / "a.json"
    os.mkfifo(fifo)
    with pytest.raises(RankTableError) as caught:
        _await(fifo)

    assert f"cannot read the rank table {fifo}: it is not a regular file" == str(caught.value)

    (tmp_path / "jobstart_hccl.json").mkdir()
    with pytest.raises(RankTableError, match=r"it is not a regular file$"):
        _await(tmp_path)


def test_error_of_open_ends_the_wait(tmp_path: Path) -> None:
    """An error that waiting cannot resolve is reported at once, with its reason."""
    loop = tmp_path / "a.json"
    loop.symlink_to("a.json")
    with pytest.raises(RankTableError) as caught:
        _await(loop)

    assert f"cannot open the rank table {loop}: too many levels of symbolic links" == str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_ends_the_wait(tmp_path: Path, table: bytes) -> None:
    """A file without read permission is reported at once."""
    path = tmp_path / "a.json"
    path.write_bytes(table)
    path.chmod(0)
    with pytest.raises(RankTableError) as caught:
        _await(path)

    assert f"cannot open the rank table {path}: permission denied" == str(caught.value)


def test_wait_of_the_library(tmp_path: Path, table: bytes) -> None:
    """`wait` returns a table that another thread completes."""
    path = tmp_path / "a.json"
    path.write_bytes(INITIALIZING)
    writer = threading.Thread(target=source.write, args=(path, table))
    writer.start()
    waited = source.wait(path, timeout=30.0)
    writer.join()

    assert 8 == waited.rank_size


def test_wait_of_the_library_has_a_limit(tmp_path: Path) -> None:
    """On a timeout `wait` reports the reason."""
    with pytest.raises(RankTableNotReadyError, match=r"^timed out after 0\.01 s waiting for .*: it does not exist; "):
        source.wait(tmp_path / "a.json", timeout=0.01)


def test_read_does_not_wait(tmp_path: Path) -> None:
    """`read` of a table that is not completed is an error at once."""
    path = tmp_path / "a.json"
    with pytest.raises(RankTableNotReadyError) as caught:
        source.read(path)

    assert f"rank table not found: {path}" == str(caught.value)


def test_write_makes_a_regular_file(tmp_path: Path) -> None:
    """Neither directories nor file are writable by others, and no neighbour stays."""
    path = tmp_path / "x" / "rank_table" / "jobstart_hccl.json"
    source.write(path, b"{}")

    assert b"{}" == path.read_bytes()
    assert [0, 0, 0] == [made.stat().st_mode & 0o002 for made in (path, path.parent, path.parent.parent)]
    assert [path] == list(path.parent.iterdir())


def test_convert(tmp_path: Path) -> None:
    """A group list becomes what ModelArts' own launcher would write."""
    path = tmp_path / "jobstart_hccl.json"
    path.write_bytes(valid("group_list_1_device"))
    target = tmp_path / "rank_table" / "jobstart_hccl.json"
    table = source.convert(tmp_path, target)

    assert 1 == table.rank_size
    assert table.devices[0].device_id == source.read(target).devices[0].device_id == 4


def test_convert_copies_a_server_list(tmp_path: Path) -> None:
    """A server list is copied byte for byte."""
    path = tmp_path / "a.json"
    path.write_bytes(valid("server_list_unknown_keys"))
    source.convert(path, tmp_path / "b.json")

    assert path.read_bytes() == (tmp_path / "b.json").read_bytes()


def test_convert_to_an_unwritable_target(tmp_path: Path, table: bytes) -> None:
    """The error names a target that cannot be written."""
    path = tmp_path / "a.json"
    path.write_bytes(table)

    with pytest.raises(OutputError, match=r"a\.json"):
        source.convert(path, path / "b.json")


def test_device_that_never_ends() -> None:
    """Reading is bounded even if the size of the file is unknown."""
    with open("/dev/zero", "rb") as zeros, pytest.raises(RankTableFormatError) as caught:
        source.read_all(zeros.fileno(), "/dev/zero", largest=1 << 24)

    assert ["the file is larger than 16777216 bytes"] == [problem.sentence for problem in caught.value.problems]
