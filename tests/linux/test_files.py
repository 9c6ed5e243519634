"""What the runner makes on disk is private, new, and never reached through what a stranger has laid there."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from ascend_runner.errors import OutputError
from ascend_runner.linux import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to somebody else")


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    """Run with the mask that images have."""
    mask = os.umask(0o022)
    yield
    os.umask(mask)


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """Give a folder in which everybody can write, as /tmp is."""
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def mode(path: Path) -> int:
    """Give the permission bits."""
    return stat.S_IMODE(path.lstat().st_mode)


def open_and_close(path: Path) -> None:
    """Make a log file."""
    os.close(files.open_new_log(str(path)))


# --- Folders ----------------------------------------------------------------------------------------------------------


def test_every_folder_made_is_private(tmp_path: Path) -> None:
    """Those above, too, get 0750, not what the umask would leave open."""
    folder = tmp_path / "a" / "b" / "c"
    files.make_folder(str(folder))

    assert [0o750] * 3 == [mode(folder), mode(folder.parent), mode(folder.parent.parent)]


def test_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """A folder of the platform keeps its mode."""
    tmp_path.chmod(0o755)
    files.make_folder(str(tmp_path))

    assert 0o755 == mode(tmp_path)


def test_folder_may_be_a_symlink_of_the_platform(tmp_path: Path) -> None:
    """Mounts are often reached by a symlink; where only their owner can write, it is no trap."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.make_folder(str(tmp_path / "link" / "log"))

    assert (tmp_path / "real" / "log").is_dir()


def test_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    """The sentence names what stands in the way."""
    (tmp_path / "a").touch()

    with pytest.raises(OutputError) as caught:
        files.make_folder(str(tmp_path / "a" / "b"))
    assert f"cannot make the folder '{tmp_path}/a': file exists" == str(caught.value)

    with pytest.raises(OutputError) as caught:
        files.make_folder(str(tmp_path / "a"))
    assert f"cannot make the folder '{tmp_path}/a': file exists" == str(caught.value)


def test_dangling_symlink_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    """Nothing is made at its other end."""
    (tmp_path / "a").symlink_to(tmp_path / "missing")

    with pytest.raises(OutputError):
        files.make_folder(str(tmp_path / "a"))
    assert not (tmp_path / "missing").exists()


def test_own_folder_in_a_public_one_is_used(public: Path) -> None:
    """/tmp/log of an earlier job of ours is fine."""
    files.make_folder(str(public / "log"))
    files.make_folder(str(public / "log"))

    assert 0o750 == mode(public / "log")


def test_symlink_in_a_public_folder_is_refused_and_not_followed(public: Path, tmp_path: Path) -> None:
    """Whoever laid it there chose where the logs would go. Nothing is made at its other end."""
    (tmp_path / "elsewhere").mkdir()
    (public / "log").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OutputError) as caught:
        files.make_folder(str(public / "log" / "job"))

    assert f"'{public}/log' is a symlink in '{public}', where everybody can write: refused" == str(caught.value)
    assert [] == list((tmp_path / "elsewhere").iterdir())


@as_root
def test_strangers_folder_in_a_public_one_is_refused_and_left_alone(public: Path) -> None:
    """Its owner could change the logs, or what lies beside them. Nothing is made in it."""
    (public / "log").mkdir(mode=0o777)
    os.chown(public / "log", STRANGER, STRANGER)

    with pytest.raises(OutputError) as caught:
        files.make_folder(str(public / "log" / "job"))

    expected = f"'{public}/log' belongs to user {STRANGER}, in '{public}', where everybody can write: refused"
    assert expected == str(caught.value)
    assert [] == list((public / "log").iterdir())


@as_root
def test_public_folder_behind_a_symlink_is_public(public: Path, tmp_path: Path) -> None:
    """What counts is the folder that a path leads to, by whatever name."""
    (tmp_path / "data").symlink_to(public)
    (public / "log").mkdir(mode=0o777)
    os.chown(public / "log", STRANGER, STRANGER)

    with pytest.raises(OutputError):
        files.make_folder(str(tmp_path / "data" / "log"))


@as_root
def test_platforms_folder_may_belong_to_anybody(tmp_path: Path) -> None:
    """Where the folder above is not public, whoever may write there is trusted."""
    (tmp_path / "log").mkdir()
    os.chown(tmp_path / "log", STRANGER, STRANGER)
    files.make_folder(str(tmp_path / "log"))
    open_and_close(tmp_path / "log" / "a.txt")

    assert (tmp_path / "log" / "a.txt").exists()


# --- Log files --------------------------------------------------------------------------------------------------------


def test_log_is_private_new_and_writable(tmp_path: Path) -> None:
    """0640, empty, and what is written to the fd is in it."""
    fd = files.open_new_log(str(tmp_path / "a.txt"))
    os.write(fd, b"line\n")
    os.close(fd)

    assert 0o640 == mode(tmp_path / "a.txt")
    assert b"line\n" == (tmp_path / "a.txt").read_bytes()


def test_log_is_not_inherited(tmp_path: Path) -> None:
    """No rank gets another's log file."""
    fd = files.open_new_log(str(tmp_path / "a.txt"))
    is_inherited = os.get_inheritable(fd)
    os.close(fd)

    assert not is_inherited


def test_earlier_logs_are_kept(tmp_path: Path) -> None:
    """Each run of a job keeps the logs of those before, numbered in their order."""
    path = tmp_path / "job-proc-rank-0-device-0.txt"
    for run in range(3):
        fd = files.open_new_log(str(path))
        os.write(fd, b"run %d" % run)
        os.close(fd)

    expected = {
        "job-proc-rank-0-device-0.run-1.txt": b"run 0",
        "job-proc-rank-0-device-0.run-2.txt": b"run 1",
        "job-proc-rank-0-device-0.txt": b"run 2",
    }
    assert expected == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


def test_missing_folder_is_told(tmp_path: Path) -> None:
    """The sentence names the file and the reason."""
    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(tmp_path / "missing" / "a.txt"))

    assert f"cannot make the log file '{tmp_path}/missing/a.txt': no such file or directory" == str(caught.value)


@pytest.mark.parametrize("is_dangling", [False, True])
def test_symlink_in_the_place_of_a_log_is_refused(tmp_path: Path, *, is_dangling: bool) -> None:
    """A log is a regular file: what a symlink leads to is neither written, made nor renamed."""
    target = tmp_path / "precious"
    if not is_dangling:
        target.write_bytes(b"precious")
    (tmp_path / "a.txt").symlink_to(target)

    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(tmp_path / "a.txt"))

    assert f"'{tmp_path}/a.txt' is a symlink, expected a regular file: refused" == str(caught.value)
    assert {"a.txt"} | (set() if is_dangling else {"precious"}) == {file.name for file in tmp_path.iterdir()}


def test_folder_in_the_place_of_a_log_is_refused(tmp_path: Path) -> None:
    """It is not moved out of the way like an earlier log."""
    (tmp_path / "a.txt").mkdir()

    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(tmp_path / "a.txt"))

    assert f"'{tmp_path}/a.txt' is a folder or device, expected a regular file: refused" == str(caught.value)
    assert ["a.txt"] == [file.name for file in tmp_path.iterdir()]


def test_log_that_cannot_be_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that is refused nothing is left behind: a platform may start a job anew a thousand times."""

    def refuse(*_paths: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    open_and_close(tmp_path / "a.txt")
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(tmp_path / "a.txt"))

    assert f"cannot make the log file '{tmp_path}/a.txt': operation not permitted" == str(caught.value)
    assert ["a.txt"] == os.listdir(tmp_path)


@as_root
def test_strangers_file_in_a_public_folder_is_refused(public: Path) -> None:
    """It is neither written nor renamed."""
    (public / "a.txt").write_bytes(b"theirs")
    os.chown(public / "a.txt", STRANGER, STRANGER)

    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(public / "a.txt"))

    expected = f"'{public}/a.txt' belongs to user {STRANGER}, in '{public}', where everybody can write: refused"
    assert expected == str(caught.value)
    assert b"theirs" == (public / "a.txt").read_bytes()


def test_end_of_a_file(tmp_path: Path) -> None:
    """So many bytes of its end, or all of it; nothing of what is no file of ours."""
    path = tmp_path / "log"
    path.write_bytes(b"abcdef")
    (tmp_path / "link").symlink_to(path)

    assert [b"ef", b"abcdef"] == [files.read_end(str(path), size) for size in (2, 100)]
    assert [b"", b"", b""] == [files.read_end(str(tmp_path / name), 9) for name in ("link", "missing", ".")]
