"""Other users can neither write to files and directories of the runner nor redirect it to their own."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner import files
from ascend_runner.errors import OutputError

STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files of another user")


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    """Run with the umask of most container images."""
    mask = os.umask(0o022)
    yield
    os.umask(mask)


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """Return a world-writable directory, like /tmp."""
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def mode(path: Path) -> int:
    """Return the permission bits."""
    return stat.S_IMODE(path.lstat().st_mode)


def open_and_close(path: Path) -> None:
    """Create a log file."""
    os.close(files.open_new_log(str(path)))


# --- Directories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "folder_mode", "file_mode"),
    [(0o022, 0o755, 0o644), (0o002, 0o775, 0o664), (0o077, 0o700, 0o600), (0o000, 0o775, 0o664)],
)
def test_modes_follow_the_umask(tmp_path: Path, mask: int, folder_mode: int, file_mode: int) -> None:
    """Directories, logs and written files have the modes that the umask leaves, but others never get to write."""
    folder = tmp_path / "a" / "b" / "c"
    os.umask(mask)
    files.make_folder(str(folder))
    open_and_close(folder / "log")
    files.write_atomically(str(folder / "report"), b"{}")

    assert [folder_mode] * 3 == [mode(folder), mode(folder.parent), mode(folder.parent.parent)]
    assert [file_mode] * 2 == [mode(folder / "log"), mode(folder / "report")]


def test_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    """The mode of a directory that exists is not changed."""
    tmp_path.chmod(0o755)
    files.make_folder(str(tmp_path))

    assert 0o755 == mode(tmp_path)


def test_folder_may_be_a_symlink_of_the_platform(tmp_path: Path) -> None:
    """A symlink in a directory that only its owner can write to is followed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.make_folder(str(tmp_path / "link" / "log"))

    assert (tmp_path / "real" / "log").is_dir()


def test_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    """The error names the file that is in the way."""
    (tmp_path / "a").touch()

    with pytest.raises(OutputError) as caught:
        files.make_folder(str(tmp_path / "a" / "b"))
    assert f"cannot create the directory '{tmp_path}/a': file exists" == str(caught.value)

    with pytest.raises(OutputError) as caught:
        files.make_folder(str(tmp_path / "a"))
    assert f"cannot create the directory '{tmp_path}/a': file exists" == str(caught.value)


def test_dangling_symlink_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    """No directory is created at the other end of the symlink."""
    (tmp_path / "a").symlink_to(tmp_path / "missing")

    with pytest.raises(OutputError):
        files.make_folder(str(tmp_path / "a"))
    assert not (tmp_path / "missing").exists()


def test_own_folder_in_a_public_one_is_used(public: Path) -> None:
    """A directory of the same user in a world-writable directory is used."""
    files.make_folder(str(public / "log"))
    files.make_folder(str(public / "log"))

    assert 0o755 == mode(public / "log")


def test_symlink_in_a_public_folder_is_refused_and_not_followed(public: Path, tmp_path: Path) -> None:
    """A symlink that another user may have placed is refused, and nothing is created at its other end."""
    (tmp_path / "elsewhere").mkdir()
    (public / "log").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OutputError) as caught:
        files.make_folder(str(public / "log" / "job"))

    assert f"refusing to use '{public}/log': it is a symlink in the world-writable directory '{public}'" == str(
        caught.value
    )
    assert [] == list((tmp_path / "elsewhere").iterdir())


@as_root
def test_folder_of_another_user_in_a_public_one_is_refused(public: Path) -> None:
    """A directory whose owner could change the logs is refused, and nothing is created in it."""
    (public / "log").mkdir(mode=0o777)
    os.chown(public / "log", STRANGER, STRANGER)

    with pytest.raises(OutputError) as caught:
        files.make_folder(str(public / "log" / "job"))

    expected = (
        f"refusing to use '{public}/log': it belongs to user {STRANGER}, in the world-writable directory '{public}'"
    )
    assert expected == str(caught.value)
    assert [] == list((public / "log").iterdir())


@as_root
def test_public_folder_behind_a_symlink_is_public(public: Path, tmp_path: Path) -> None:
    """A directory reached through a symlink is world-writable if the target is."""
    (tmp_path / "data").symlink_to(public)
    (public / "log").mkdir(mode=0o777)
    os.chown(public / "log", STRANGER, STRANGER)

    with pytest.raises(OutputError):
        files.make_folder(str(tmp_path / "data" / "log"))


@as_root
def test_folder_of_the_platform_may_have_any_owner(tmp_path: Path) -> None:
    """The owner does not matter if the parent directory is not world-writable."""
    (tmp_path / "log").mkdir()
    os.chown(tmp_path / "log", STRANGER, STRANGER)
    files.make_folder(str(tmp_path / "log"))
    open_and_close(tmp_path / "log" / "a.txt")

    assert (tmp_path / "log" / "a.txt").exists()


# --- Log files --------------------------------------------------------------------------------------------------------


def test_log_is_new_and_writable(tmp_path: Path) -> None:
    """A log file has the bytes written to its fd."""
    fd = files.open_new_log(str(tmp_path / "a.txt"))
    os.write(fd, b"line\n")
    os.close(fd)

    assert b"line\n" == (tmp_path / "a.txt").read_bytes()


def test_log_is_not_inherited(tmp_path: Path) -> None:
    """No rank inherits a log file."""
    fd = files.open_new_log(str(tmp_path / "a.txt"))
    is_inherited = os.get_inheritable(fd)
    os.close(fd)

    assert not is_inherited


def test_earlier_logs_are_kept(tmp_path: Path) -> None:
    """A log that could not be moved away is renamed, numbered in order."""
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


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(tmp_path / "missing" / "a.txt"))

    assert f"cannot create the log file '{tmp_path}/missing/a.txt': no such file or directory" == str(caught.value)


@pytest.mark.parametrize("is_dangling", [False, True])
def test_symlink_in_the_place_of_a_log_is_refused(tmp_path: Path, *, is_dangling: bool) -> None:
    """The target of a symlink is neither written, created nor renamed."""
    target = tmp_path / "precious"
    if not is_dangling:
        target.write_bytes(b"precious")
    (tmp_path / "a.txt").symlink_to(target)

    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(tmp_path / "a.txt"))

    assert f"log file '{tmp_path}/a.txt' is a symlink, not a regular file" == str(caught.value)
    assert {"a.txt"} | (set() if is_dangling else {"precious"}) == {file.name for file in tmp_path.iterdir()}


def test_folder_in_the_place_of_a_log_is_refused(tmp_path: Path) -> None:
    """A directory is not renamed like an earlier log."""
    (tmp_path / "a.txt").mkdir()

    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(tmp_path / "a.txt"))

    assert f"log file '{tmp_path}/a.txt' is a directory or device, not a regular file" == str(caught.value)
    assert ["a.txt"] == [file.name for file in tmp_path.iterdir()]


def test_failed_rename_of_an_earlier_log_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an earlier log cannot be renamed, no file is left behind: a platform may restart a job a thousand times."""

    def refuse(*_paths: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    open_and_close(tmp_path / "a.txt")
    monkeypatch.setattr(os, "rename", refuse)  # root may rename everything
    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(tmp_path / "a.txt"))

    assert f"cannot create the log file '{tmp_path}/a.txt': operation not permitted" == str(caught.value)
    assert ["a.txt"] == os.listdir(tmp_path)


@as_root
def test_file_of_another_user_in_a_public_folder_is_refused(public: Path) -> None:
    """A file of another user is neither written nor renamed."""
    (public / "a.txt").write_bytes(b"theirs")
    os.chown(public / "a.txt", STRANGER, STRANGER)

    with pytest.raises(OutputError) as caught:
        files.open_new_log(str(public / "a.txt"))

    expected = (
        f"refusing to use '{public}/a.txt': it belongs to user {STRANGER}, in the world-writable directory '{public}'"
    )
    assert expected == str(caught.value)
    assert b"theirs" == (public / "a.txt").read_bytes()


# --- Files that are replaced as a whole -------------------------------------------------------------------------------


def test_written_file_is_alone(tmp_path: Path) -> None:
    """Nothing else stays in the directory."""
    files.write_atomically(str(tmp_path / "a.json"), b"{}")

    assert {"a.json": b"{}"} == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


def test_reader_keeps_the_old_content(tmp_path: Path) -> None:
    """A reader that has opened the old file reads all of it after the file was replaced."""
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with path.open("rb") as held:
        files.write_atomically(str(path), b"new")

        assert (b"old", b"new") == (held.read(), path.read_bytes())


def test_equal_content_stays_the_same_file(tmp_path: Path) -> None:
    """A file with the content already keeps its inode."""
    path = tmp_path / "a.json"
    files.write_atomically(str(path), b"{}")
    inode = path.stat().st_ino
    files.write_atomically(str(path), b"{}")

    assert inode == path.stat().st_ino


@pytest.mark.parametrize("content", [b"{}", b"[]"])
def test_symlink_is_replaced_and_not_followed(tmp_path: Path, content: bytes) -> None:
    """A symlink becomes a regular file, and its target is not touched, even where it has the content already."""
    (tmp_path / "target").write_bytes(b"{}")
    (tmp_path / "a.json").symlink_to(tmp_path / "target")
    files.write_atomically(str(tmp_path / "a.json"), content)

    assert not (tmp_path / "a.json").is_symlink()
    assert (content, b"{}") == ((tmp_path / "a.json").read_bytes(), (tmp_path / "target").read_bytes())


def test_symlink_in_a_public_folder_is_refused_by_the_writer(public: Path) -> None:
    """A symlink that any user may have made is neither followed nor replaced."""
    (public / "a.json").symlink_to("target")

    with pytest.raises(OutputError):
        files.write_atomically(str(public / "a.json"), b"{}")
    assert ["a.json"] == os.listdir(public)


def test_longest_file_name_can_be_written(tmp_path: Path) -> None:
    """The temporary name beside the file is never longer than the file system allows."""
    path = tmp_path / ("a" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    files.write_atomically(str(path), b"{}")

    assert b"{}" == path.read_bytes()


def test_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    """An error names the file and the reason, and no temporary file stays."""
    (tmp_path / "a.json").mkdir()

    with pytest.raises(OutputError) as caught:
        files.write_atomically(str(tmp_path / "a.json"), b"{}")
    assert f"cannot write '{tmp_path}/a.json': is a directory" == str(caught.value)
    assert [tmp_path / "a.json"] == list(tmp_path.iterdir())


# --- Ends of files ----------------------------------------------------------------------------------------------------


def test_end_of_a_file(tmp_path: Path) -> None:
    """read_end() returns the end of a regular file, and nothing of a symlink, a directory or a missing file."""
    path = tmp_path / "log"
    path.write_bytes(b"abcdef")
    (tmp_path / "link").symlink_to(path)

    assert [b"ef", b"abcdef"] == [files.read_end(str(path), size) for size in (2, 100)]
    assert [b"", b"", b""] == [files.read_end(str(tmp_path / name), 9) for name in ("link", "missing", ".")]


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    """The next write to a directory removes what a killed writer has left, and nothing that is new or in use."""
    names = ("left", "new", "used")
    for name in names:
        (tmp_path / f".ascend-runner-{name}").touch()
    for name in ("left", "used"):
        os.utime(tmp_path / f".ascend-runner-{name}", (0, 0))
    with (tmp_path / ".ascend-runner-used").open() as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        files.write_atomically(str(tmp_path / "report"), b"{}")

    assert {"report", ".ascend-runner-new", ".ascend-runner-used"} == {path.name for path in tmp_path.iterdir()}
