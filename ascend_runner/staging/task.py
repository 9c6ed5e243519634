"""Performs one stage: gives a directory the contents of a dataset, and marks it as complete.

In the directory, LOCK lets one runner copy while others wait, MANIFEST lists all that may be there, and COMPLETE is
written last. The next runner continues a stage that was interrupted at any point.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import OutputError, reason
from ascend_runner.host.host import Host
from ascend_runner.plan.staging import Stage, Staged
from ascend_runner.staging import copies, datasets
from ascend_runner.staging.copies import CancelledError, Copies
from ascend_runner.staging.datasets import COMPLETE, LOCK, MANIFEST, OWN_PREFIX, Entry, Kind, Total
from ascend_runner.staging.surveys import Survey, check_room, surveying
from ascend_runner.text import counted, duration, size

NEW_MANIFEST: Final = f"{OWN_PREFIX}manifest.new"
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
SILENCE: Final = 10.0  # seconds before the first message: a small copy needs none
REPORT_INTERVAL: Final = 30.0  # seconds between further ones
LOOK_INTERVAL: Final = 0.2  # seconds between two checks of the lock, or of the threads
END_LIMIT: Final = 5.0  # seconds for the other threads after one has failed


@attrs.define(eq=False, repr=False)
class StageTask:
    """One stage. It ends soon after `stop` is set, unless a disk hangs."""

    stage: Stage
    stop: threading.Event
    say: Callable[[str], None]
    warn: Callable[[str], None]
    _began: float = attrs.field(factory=time.monotonic, init=False)
    _reported: float = attrs.field(default=0.0, init=False)  # time of the last report; 0: there is none yet
    _boot: str = attrs.field(factory=lambda: Host().read_text(BOOT_ID).strip(), init=False)

    def perform(self) -> Staged:
        """Copy what is missing.

        Raises:
            CancelledError: `stop` was set.
            OSError: Something cannot be read or written; its path is the error's.
            OutputError: The copy is impossible for another reason.
        """
        with self._locked(), self._new_manifest():
            self._remove_damaged()
            survey = self._write_manifest()
            is_complete = datasets.summary(self._own(COMPLETE)).get("checksum") == _hex(survey.found)
            if survey.missing.entries or not is_complete:
                check_room(self.stage, survey.missing)
                self._replace(survey)
        seconds = time.monotonic() - self._began
        total = f"{self._title} ({counted(survey.found.files, 'file')}, {size(survey.found.size)})"
        if self._reported:
            self.say(f"staged {total} in {duration(seconds)}; copied {size(survey.missing.size)}")
        return Staged(
            source=self.stage.source,
            place=self.stage.place,
            files=survey.found.files,
            size=survey.found.size,
            copied=survey.missing.size,
            seconds=round(seconds, 3),
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory, which is made if it is missing."""
        files.make_folder(self.stage.folder)
        with copies.opened(files.open_lock(self._own(LOCK))) as fd:
            if not self._try_lock(fd):
                self.say(f"waiting for another runner that is staging to {self.stage.folder!r}")
                while not self._try_lock(fd):
                    self._check_stop()
                    self._report(
                        lambda: f"another runner still holds the lock after {duration(time.monotonic() - self._began)}"
                    )
                    time.sleep(LOOK_INTERVAL)
            yield

    @contextmanager
    def _new_manifest(self) -> Iterator[None]:
        """Remove the new manifest at the end, unless it has replaced the former one."""
        try:
            yield
        finally:
            with suppress(OSError):  # the next runner overwrites it
                os.unlink(self._own(NEW_MANIFEST))

    def _try_lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:  # two runners would write to the same files
            raise OutputError(
                f"cannot stage {self.stage.source!r} to {self.stage.folder!r}: its file system does not lock files"
                f" ({reason(error)}); use a directory on a local disk"
            ) from error
        return True

    def _remove_damaged(self) -> None:
        """Remove files whose contents a crash of the machine may have lost, although their sizes are right.

        If the manifest is lost as well, their names come from the source.
        """
        former = datasets.summary(self._own(MANIFEST))
        if former.get("boot") == self._boot or os.path.lexists(self._own(COMPLETE)):
            return
        if not datasets.has_contents(self.stage.folder):  # a new directory: the source is listed only once
            return
        for entry in datasets.listed(self._own(MANIFEST)) if former else datasets.walk(self.stage.top, self.stage.name):
            self._check_stop()
            if entry.kind is Kind.FILE:
                copies.remove(entry, self.stage.folder)

    def _write_manifest(self) -> Survey:
        survey = Survey()
        with open(self._own(NEW_MANIFEST), "wb", opener=_open_no_symlink) as manifest:
            for line in surveying(self.stage, survey):
                self._check_stop()
                manifest.write(line)
                self._report(lambda: f"listing {self.stage.source!r}: {counted(survey.found.files, 'file')} so far")
            manifest.write(self._summary(survey))
        if survey.skipped:
            self.warn(f"skipped sockets, FIFOs and devices, such as {survey.skipped!r}")
        return survey

    def _replace(self, survey: Survey) -> None:
        """Update the copy to the contents of the new manifest."""
        with suppress(FileNotFoundError):
            os.unlink(self._own(COMPLETE))
        if datasets.summary(self._own(MANIFEST)).get("checksum", _hex(survey.found)) != _hex(survey.found):
            self._remove_vanished()
        with copies.opened(_open_no_symlink(self._own(NEW_MANIFEST), os.O_RDONLY)) as manifest:
            os.fsync(manifest)
        os.replace(self._own(NEW_MANIFEST), self._own(MANIFEST))
        with copies.opened(_open_folder(self.stage.folder)) as folder:  # no file is renamed to its final name before
            os.fsync(folder)
        self._copy(survey.missing)
        for entry in datasets.listed(self._own(MANIFEST)):
            self._check_stop()
            if entry.kind is Kind.FOLDER:
                copies.finish_folder(entry, os.path.join(self.stage.folder, entry.path))
        for name in os.listdir(self.stage.folder):
            if name.startswith(copies.PART):  # parts of files that have changed or vanished since
                os.unlink(self._own(name))
        _sync(self.stage.folder)
        files.write_atomically(self._own(COMPLETE), self._summary(survey))

    def _remove_vanished(self) -> None:
        """Remove entries of the former manifest that the source no longer has. Files of others stay."""
        folders: list[Entry] = []
        for entry in datasets.listed(self._own(MANIFEST)):
            self._check_stop()
            with suppress(FileNotFoundError, NotADirectoryError):
                if datasets.look(self.stage.top, entry.path).kind is entry.kind:
                    continue
            if entry.kind is Kind.FOLDER:
                folders.append(entry)
            else:
                copies.remove(entry, self.stage.folder)
        for entry in reversed(folders):
            copies.remove(entry, self.stage.folder)

    def _copy(self, missing: Total) -> None:
        copying = Copies(self.stage.top, self.stage.folder, self._boot, self.stop)
        began, threads = time.monotonic(), copying.start(self._files())
        for thread in threads:
            while thread.is_alive() and not copying.error:
                thread.join(LOOK_INTERVAL)
                self._report(lambda: _progress(copying.done, missing.size, time.monotonic() - began))
        deadline = time.monotonic() + END_LIMIT
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if copying.error:
            raise copying.error
        self._check_stop()
        if copying.finished < len(threads):
            raise OutputError(f"cannot stage {self.stage.source!r}: a copying thread ended unexpectedly")

    def _files(self) -> Iterator[Entry]:
        """Yield the files; directories and symlinks are made in between, so that the directory of each file exists."""
        for entry in datasets.listed(self._own(MANIFEST)):
            self._check_stop()
            if entry.kind is Kind.FOLDER:
                copies.make_folder(os.path.join(self.stage.folder, entry.path))
            elif entry.kind is Kind.LINK:
                copies.make_link(entry, os.path.join(self.stage.folder, entry.path))
            else:
                yield entry

    # --- Details ------------------------------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"{self.stage.source!r} to {self.stage.place!r}"

    def _own(self, name: str) -> str:
        return os.path.join(self.stage.folder, name)

    def _summary(self, survey: Survey) -> bytes:
        document = {
            "source": self.stage.source,
            "files": survey.found.files,
            "bytes": survey.found.size,
            "checksum": _hex(survey.found),
            "boot": self._boot,
        }
        return json.dumps(document).encode() + b"\n"

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise CancelledError

    def _report(self, text: Callable[[], str]) -> None:
        now = time.monotonic()
        if now >= (self._reported + REPORT_INTERVAL if self._reported else self._began + SILENCE):
            self._reported = now
            self.say(f"staging {self._title}: {text()}")


def _progress(done: int, total: int, seconds: float) -> str:
    rate = done / max(seconds, 0.001)
    left = f", about {duration((total - done) / rate)} left" if rate else ""
    return f"{size(done)} of {size(total)}, {size(int(rate))}/s{left}"


def _hex(total: Total) -> str:
    return f"{total.checksum:032x}"


def _open_no_symlink(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, files.FILE_MODE)


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync(folder: str) -> None:
    """Write everything to the disk of a directory: COMPLETE must be true after a crash of the machine as well."""
    with copies.opened(_open_folder(folder)) as fd:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
