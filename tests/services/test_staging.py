"""Copies of datasets: what a copy is, when it is made again, and what ends it."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from ascend_runner.errors import OutputError
from ascend_runner.node.host import Host
from ascend_runner.plan.ranks import Stage
from ascend_runner.record.job_record import Staged
from ascend_runner.services import staging as datasets
from ascend_runner.services.staging import PART, CancelledError, Entry, StageTask, Total, check_room, part_name
from ascend_runner.text import size
from tests.helpers import data_trees


@attrs.define
class Staging:
    """Stages a dataset in `source` to `target`, with the warnings of the last time."""

    source: Path
    target: Path
    warnings: list[str] = attrs.field(factory=list)
    stop: threading.Event = attrs.field(factory=threading.Event)

    def task(self, name: str = "", *, syncs_each: bool = False) -> StageTask:
        """Return what stages the directory, or a file in it."""
        stage = Stage(str(self.source / name), str(self.target), name)
        return StageTask(stage, self.stop, lambda _: None, self.warnings.append, syncs_each)

    def stage(self, name: str = "") -> Staged:
        """Stage the directory, or a file in it."""
        self.warnings.clear()
        return self.task(name).perform()

    def entry(self, name: str) -> Entry:
        """Return an entry of the source, and make the directory of the copy."""
        self.target.mkdir(parents=True, exist_ok=True)
        return datasets.look(str(self.source), name)

    @property
    def is_identical(self) -> bool:
        """Whether the copy is like the source."""
        return data_trees.read(self.source) == data_trees.read(self.target)


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    """Make a dataset."""
    return Staging(data_trees.make(tmp_path / "source"), tmp_path / "disk" / "copy")


# --- What a copy is ---------------------------------------------------------------------------------------------------


def test_copy_is_identical(staging: Staging) -> None:
    """Contents, names, permissions, times, links and empty directories are those of the source."""
    result = staging.stage()
    size = sum(path.stat().st_size for path in staging.source.rglob("*") if path.is_file() and not path.is_symlink())

    assert staging.is_identical
    assert (21, size, size) == (result.files, result.size, result.copied)
    assert {".complete.json", ".staging.lock", ".staging.list"} == {
        name for name in os.listdir(staging.target) if datasets.is_own(name)
    }


def test_file_alone(staging: Staging) -> None:
    """The copy of a file is in the directory, under its name; a symlink to it is resolved."""
    (staging.source / "newest").symlink_to("class-0/part-0/sample-6")
    staging.stage("newest")

    assert not (staging.target / "newest").is_symlink()
    assert (staging.source / "newest").read_bytes() == (staging.target / "newest").read_bytes()
    assert ["newest"] == list(data_trees.read(staging.target))


def test_names_that_are_not_text(staging: Staging) -> None:
    """Any byte may be in a name."""
    for name in (b"\xff\xfe", b"a\nb", "Größe".encode(), b"{stage:0}"):
        Path(os.fsdecode(os.fsencode(staging.source) + b"/" + name)).touch()
    staging.stage()

    assert staging.is_identical


def test_links_that_lead_out_are_resolved(staging: Staging) -> None:
    """A link within the dataset stays one, what any other leads to is copied, and a dangling one stays."""
    outside = staging.source.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"outside")
    (staging.source / "folder").symlink_to(outside)
    (staging.source / "file").symlink_to("../outside/file")
    (staging.source / "whole").symlink_to(staging.source / "class-0" / "locked")
    (staging.source / "dangling").symlink_to("/nowhere/at/all")
    staging.stage()

    links = {path.name for path in staging.target.rglob("*") if path.is_symlink()}
    assert {"link", "dangling"} == links
    assert b"outside" == (staging.target / "folder" / "file").read_bytes() == (staging.target / "file").read_bytes()
    assert b"locked" == (staging.target / "whole").read_bytes()


def test_link_that_leads_back(staging: Staging) -> None:
    """A link to a directory above itself has no end: it is named."""
    (staging.source / "empty" / "up").symlink_to(staging.source)
    with pytest.raises(OutputError) as refused:
        staging.stage()

    path = str(staging.source / "empty" / "up")
    assert f"cannot stage {path!r}: it is a symlink to a directory that contains it" == str(refused.value)


def test_sockets_are_named(staging: Staging) -> None:
    """What is no data is not copied, and named."""
    path = staging.source / "empty" / "s"
    os.mkfifo(path)
    staging.stage()

    assert [f"skipped sockets, FIFOs and devices, such as {str(path)!r}"] == staging.warnings
    assert [] == list((staging.target / "empty").iterdir())


def test_holes_stay_holes(staging: Staging) -> None:
    """A sparse file takes no more room in the copy."""
    sparse = staging.source / "sparse"
    with open(sparse, "wb") as file:
        for offset in (0, 40 << 20, 100 << 20):
            file.seek(offset)
            file.write(b"data")
        file.truncate(128 << 20)
    staging.stage()

    assert staging.is_identical
    assert (staging.target / "sparse").stat().st_blocks < (8 << 20) // 512


def test_source_that_is_a_copy_itself(staging: Staging) -> None:
    """The runner's own files in a source are not a part of the dataset."""
    staging.stage()
    further = Staging(staging.target, staging.target.parent / "further")
    further.stage()

    assert further.is_identical


# --- When it is made again --------------------------------------------------------------------------------------------


def inodes(folder: Path) -> dict[str, int]:
    """Return the inode of everything in a directory but the lock, which nobody replaces."""
    return {str(path): path.lstat().st_ino for path in folder.rglob("*")}


def test_complete_copy_stays(staging: Staging) -> None:
    """A second run changes nothing, not even its own files."""
    staging.stage()
    before = inodes(staging.target)

    assert 0 == staging.stage().copied
    assert before == inodes(staging.target)


def append(path: Path) -> None:
    """Make a file longer, with the time that it had."""
    status = path.stat()
    with open(path, "ab") as file:
        file.write(b"more")
    os.utime(path, ns=(0, status.st_mtime_ns))


def replace_by_link(path: Path, target: str) -> None:
    """Put a symlink in the place of a file or link."""
    path.unlink()
    path.symlink_to(target)


def replace_by_file(path: Path) -> None:
    """Put a file in the place of a link or an empty directory."""
    if path.is_symlink():
        path.unlink()
    else:
        path.rmdir()
    path.write_bytes(b"file")


def replace_by_folder(path: Path) -> None:
    """Put a directory in the place of a link."""
    path.unlink()
    path.mkdir()


def test_copy_is_read_only(staging: Staging) -> None:
    """No rank changes the data of the next job by accident; what it caches beside them has its place."""
    staging.stage()
    modes = {path.stat().st_mode & 0o222 for path in staging.target.rglob("sample-*")}

    assert {0} == modes
    assert (staging.target / "class-0").stat().st_mode & 0o200


CHANGES: dict[str, Callable[[Path], object]] = {
    "longer": lambda top: append(top / "class-2/part-0/sample-2"),
    "newer": lambda top: os.utime(top / "class-2/part-0/sample-2"),
    "permissions": lambda top: (top / "class-2/part-0/sample-2").chmod(0o600),
    "gone": lambda top: (top / "class-2/part-0/sample-2").unlink(),
    "further": lambda top: (top / "class-0/further").write_bytes(b"further"),
    "renamed": lambda top: (top / "class-2").rename(top / "class-9"),
    "file-is-link": lambda top: replace_by_link(top / "class-0/locked", "part-0"),
    "link-is-file": lambda top: replace_by_file(top / "link"),
    "link-is-folder": lambda top: replace_by_folder(top / "link"),
    "folder-is-file": lambda top: replace_by_file(top / "empty"),
    "other-link": lambda top: replace_by_link(top / "link", "class-0/locked"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_source_is_noticed(change: Callable[[Path], object], staging: Staging) -> None:
    """Whatever changes in the source is brought to the copy, and nothing else is copied again."""
    staging.stage()
    untouched = (staging.target / "class-0/part-0/sample-6").stat()
    change(staging.source)
    staging.stage()

    assert staging.is_identical
    assert untouched.st_ino == (staging.target / "class-0/part-0/sample-6").stat().st_ino


DAMAGES = ("longer", "newer", "permissions", "gone", "renamed", "file-is-link", "link-is-file", "other-link")


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_copy_is_mended(name: str, staging: Staging) -> None:
    """What a copy has lost is copied again."""
    staging.stage()
    CHANGES[name](staging.target)
    staging.stage()

    assert not data_trees.read(staging.source).items() - data_trees.read(staging.target).items()


def test_files_of_others_stay(staging: Staging) -> None:
    """What ranks have cached beside the data is neither missing nor removed, also after the source has changed."""
    staging.stage()
    cache = staging.target / "class-2" / "cache.arrow"
    cache.write_bytes(b"cache")
    before = inodes(staging.target)
    staging.stage()
    assert before == inodes(staging.target)

    (staging.source / "class-2").rename(staging.source / "class-9")
    staging.stage()

    assert b"cache" == cache.read_bytes()
    assert ["cache.arrow"] == os.listdir(cache.parent)


def replace_boot(manifest: Path) -> None:
    """Let a manifest be that of an earlier boot of the machine."""
    lines = manifest.read_bytes().splitlines(keepends=True)
    summary = {**json.loads(lines[-1]), "boot": "an earlier one"}
    manifest.write_bytes(b"".join(lines[:-1]) + json.dumps(summary).encode() + b"\n")


def test_contents_are_not_trusted_after_a_crash(staging: Staging) -> None:
    """A file that was written before the machine has crashed may have its size without its contents."""
    staging.stage()
    (staging.target / datasets.COMPLETE).unlink()
    manifest = staging.target / datasets.MANIFEST
    replace_boot(manifest)
    result = staging.stage()

    assert result.size == result.copied
    assert staging.is_identical


def empty(path: Path) -> None:
    """Cut a file to nothing."""
    os.truncate(path, 0)


def cut(path: Path) -> None:
    """Cut a file in the middle of a line."""
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [Path.unlink, empty, cut])
def test_manifest_is_lost_in_a_crash(damage: Callable[[Path], None], staging: Staging) -> None:
    """Without the manifest, no file is trusted that the source has: everything is copied again."""
    staging.stage()
    (staging.target / datasets.COMPLETE).unlink()
    damage(staging.target / datasets.MANIFEST)
    sample = staging.target / "class-2/part-0/sample-2"
    status = sample.stat()
    sample.write_bytes(bytes(status.st_size))
    os.utime(sample, ns=(0, status.st_mtime_ns))
    result = staging.stage()

    assert result.size == result.copied
    assert staging.is_identical


def test_damaged_manifest(staging: Staging) -> None:
    """A manifest that cannot be read is named, and can be removed."""
    staging.stage()
    manifest = staging.target / datasets.MANIFEST
    manifest.write_bytes(b"[7]\n" + manifest.read_bytes())
    (staging.source / "class-0/further").touch()
    (staging.target / datasets.COMPLETE).unlink()
    replace_boot(manifest)
    with pytest.raises(OutputError) as refused:
        staging.stage()
    assert f"{str(manifest)!r} is damaged; remove it and start again" == str(refused.value)

    manifest.unlink()
    staging.stage()
    assert staging.is_identical


def test_manifest_is_on_the_disk_before_any_file(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash of the machine leaves no files without a manifest, and no manifest without its contents."""
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def note_sync(fd: int) -> None:
        events.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")
        sync(fd)

    def note_replace(source: str, target: str) -> None:
        events.append(f"name {os.path.basename(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    staging.stage()

    assert ["sync .staging.list.new", "name .staging.list", "sync copy"] == events[:3]


def test_interrupted_file_is_continued(staging: Staging) -> None:
    """What was written of a file is not copied again; the leftovers of other files are removed."""
    (staging.source / "big").write_bytes(b"0123456789" * 200_000)
    staging.stage()
    boot = str(datasets.summary(str(staging.target / datasets.MANIFEST))["boot"])
    (staging.target / "big").unlink()
    part = staging.target / part_name(staging.entry("big"), boot)
    part.write_bytes(b"x" * 1_999_990)
    (staging.target / f"{PART}of-another-file").touch()
    staging.stage()

    assert b"x" * 1_999_990 + b"0123456789" == (staging.target / "big").read_bytes()
    assert [] == [name for name in os.listdir(staging.target) if name.startswith(PART)]


def test_leftover_that_is_longer(staging: Staging) -> None:
    """A partial copy that cannot be the beginning of the file is written again."""
    task, entry = staging.task(), staging.entry("link")
    entry = staging.entry(entry.target)
    (staging.target / "class-0" / "part-0").mkdir(parents=True)
    boot = Host().boot_id
    (staging.target / part_name(entry, boot)).write_bytes(b"longer than the file" * 1000)
    task.copy(entry, str(staging.source / entry.path))

    assert (staging.source / entry.path).read_bytes() == (staging.target / entry.path).read_bytes()


@pytest.mark.deep
def test_killed_at_any_point(tmp_path: Path) -> None:
    """A few of the points of scripts/chaos-staging: the copy is resumed by one of two processes, and identical."""
    script = Path(__file__).parents[2] / "scripts" / "chaos_staging.py"
    options = ("--points", "6", "--big", "4", "--dir", str(tmp_path))
    ended = subprocess.run([sys.executable, script, *options], capture_output=True, text=True, check=False, timeout=240)

    assert 0 == ended.returncode, ended.stdout + ended.stderr


# --- What ends it -----------------------------------------------------------------------------------------------------


def test_stop(staging: Staging) -> None:
    """A stop ends it, without a mark that it is complete."""
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        StageTask(Stage(str(staging.source), str(staging.target)), stop, lambda _: None, lambda _: None).perform()

    assert not (staging.target / datasets.COMPLETE).exists()


def test_waiting_is_repeated(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for another runner says so again and again, with the time."""
    ticks = itertools.count(time.monotonic(), 60.0)
    stop, said = threading.Event(), list[str]()

    def say(sentence: str) -> None:
        said.append(sentence)
        if len(said) == 3:
            stop.set()

    staging.target.mkdir(parents=True)
    task = StageTask(Stage(str(staging.source), str(staging.target)), stop, say, said.append)
    with open(staging.target / datasets.LOCK, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
        with pytest.raises(CancelledError):
            task.perform()

    title = f"staging {str(staging.source)!r} to {str(staging.target)!r}"
    assert 3 == len(set(said))
    assert all(f"{title}: another runner still holds the lock after " in sentence for sentence in said[1:])


def test_file_system_without_locks(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runners would write to the same files, so such a directory is refused."""

    def fail(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    stage = Stage(str(staging.source), str(staging.target))
    with pytest.raises(OutputError) as refused:
        StageTask(stage, threading.Event(), lambda _: None, lambda _: None).perform()

    assert (
        f"cannot stage {stage.source!r} to {stage.folder!r}: its file system does not lock files"
        " (no locks available); use a directory on a local disk" == str(refused.value)
    )


def test_room(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the file system stays free; a copy that needs no room is not refused.

    If a copy needs more than is free, the refusal gives both sizes.
    """
    staging.target.mkdir(parents=True)
    stage = Stage(str(staging.source), str(staging.target))
    disk = os.statvfs(staging.target)
    check_room(stage, Total())
    monkeypatch.setattr(os, "statvfs", lambda _path: disk)
    free = disk.f_bavail * disk.f_frsize
    with pytest.raises(OutputError) as refused:
        check_room(stage, Total(entries=1, files=1, size=10, room=free))
    with pytest.raises(OutputError) as too_large:
        check_room(stage, Total(entries=1, files=1, size=10, room=free + 4096))

    head = f"cannot stage {stage.source!r} to {stage.folder!r}: "
    tail = "; free some space or use another directory"
    assert f"{head}10 B would leave 0% of its file system free, and at least 10% is required{tail}" == str(
        refused.value
    )
    assert f"{head}the copy needs {size(free + 4096)}, and its file system has only {size(free)} free{tail}" == str(
        too_large.value
    )


def test_refused_stage_leaves_no_list(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks into the directory finds nothing that was begun."""
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 100, 100, 100, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    with pytest.raises(OutputError):
        staging.stage()

    assert [datasets.LOCK] == os.listdir(staging.target)


def test_room_for_files(staging: Staging) -> None:
    """A file system has a limited number of files."""
    staging.target.mkdir(parents=True)
    disk = os.statvfs(staging.target)
    if not disk.f_files:
        pytest.skip("this file system has no such limit")
    with pytest.raises(OutputError, match=f"room for only .* more files, and {disk.f_files + 1} are needed$"):
        check_room(Stage("/source", str(staging.target)), Total(entries=disk.f_files + 1))


@pytest.mark.parametrize("data", [b"more data", b"less", b"", b"same size!"])
def test_source_that_has_changed(data: bytes, staging: Staging) -> None:
    """A file that is not as it was listed is named, and leaves no copy."""
    path = staging.source / "file"
    path.write_bytes(b"ten bytes.")
    entry = staging.entry("file")
    path.write_bytes(data)
    os.utime(path, ns=(0, entry.mtime_ns + 1))
    with pytest.raises(OutputError) as changed:
        staging.task().copy(entry, str(path))

    assert f"cannot stage {str(path)!r}: the file changed while it was being copied; retry when it is complete" == str(
        changed.value
    )
    assert not (staging.target / "file").exists()


@pytest.mark.parametrize("syncs_each", [True, False])
def test_failure_of_the_disk(syncs_each: bool, staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001  a parameter of the test
    """Before Linux 5.8, syncfs(2) does not report that data could not be written: each file is asked for."""

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    task = staging.task(syncs_each=syncs_each)
    if syncs_each:
        with pytest.raises(OutputError, match=r"input/output error$"):
            task.perform()
    else:
        task.perform()

    assert syncs_each != (staging.target / datasets.COMPLETE).exists()


def test_source_that_cannot_be_read(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file, whichever thread has read it."""
    path, read = str(staging.source / "class-1" / "part-1" / "sample-7"), os.open

    def open_others(name: str, *arguments: int) -> int:
        if name == path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return read(name, *arguments)

    monkeypatch.setattr(os, "open", open_others)
    with pytest.raises(OutputError) as failed:
        staging.stage()

    assert f"cannot stage {path!r}: no such file or directory" == str(failed.value)


def test_target_that_cannot_be_written(staging: Staging) -> None:
    """The error names what is in the way."""
    (staging.target / "class-0" / "locked").mkdir(parents=True)

    with pytest.raises(OutputError, match="is a directory"):
        staging.stage()


def test_stop_while_files_are_copied(staging: Staging) -> None:
    """What was copied of a file stays for the next run, and no file is complete."""
    task, entry = staging.task(), staging.entry("class-0/part-0/sample-6")
    staging.stop.set()
    with pytest.raises(CancelledError):
        task.copy(entry, str(staging.source / entry.path))

    assert [True] == [name.startswith(PART) for name in os.listdir(staging.target)]
