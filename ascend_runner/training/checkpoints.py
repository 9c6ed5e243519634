"""Finds the newest complete checkpoint of a directory.

Whether one is complete follows from the order in which the software writes, according to its source:

- Megatron, MindSpeed: `latest_checkpointed_iteration.txt` is written after a barrier of all ranks (`save_checkpoint` in
  megatron/training/checkpointing.py), DeepSpeed's `latest` likewise (`save_checkpoint` in deepspeed/runtime/engine.py).
- HF Trainer: `trainer_state.json` comes last, in old versions `rng_state*.pth`; a save on SIGTERM removes
  `checkpoint-is-incomplete.txt` at the end (`_save_checkpoint` in transformers/trainer.py).
- torch DCP: `.metadata` comes last and lists every file with its length (`finish` in
  torch/distributed/checkpoint/filesystem.py); Lightning's sharded `.ckpt` directory adds `meta.pt`.
- accelerate: `random_states_0.pkl` comes last but for registered objects (`save_state` in accelerate/accelerator.py).
- MindSpore: a `.ckpt` file becomes read-only at the end (`_exec_save` in mindspore/train/serialization.py).
- Other files of torch.save (Lightning's `.ckpt`, `checkpoint-7.pt`) are archives that show their end themselves.

A machine that loses power can lose what was written before the last file, so every archive is checked, too.
"""

from __future__ import annotations

import os
import pathlib
import re
import time

from ascend_runner.training.whole_files import (
    are_listed_files_whole,
    is_archive,
    is_checkpoint_file,
    is_cut_off,
    is_trainer_state,
)

TYPE_CHECKING = False  # typing.Final: Python 3.8

if TYPE_CHECKING:
    from typing import Final

MOST_ENTRIES: Final = 20_000  # entries of one directory; a checkpoint of 8,192 ranks has fewer
LONGEST_LOOK: Final = 10.0  # seconds

_POINTERS: Final = ("latest_checkpointed_iteration.txt", "latest")
_POINTED_TO: Final = re.compile(r"iter_\d+|global_step\d+|release")  # complete only if a pointer names it
_TEMPORARY: Final = re.compile(r"tmp.*|.*\.tmp|\..*", re.DOTALL)
_FILE: Final = re.compile(r".+\.ckpt|(?:checkpoint|ckpt)[-_.].*\d\.(?:pt|pth)", re.DOTALL)
_HF: Final = re.compile(r"checkpoint-\d+")
_LAST_FILES: Final = (".metadata", "random_states_0.pkl")  # they make a directory of any name a checkpoint
_CUSTOM: Final = re.compile(r"custom_checkpoint_\d+\.pkl")  # an object that was registered with accelerate
_STEP: Final = re.compile(r"step=(\d+)")  # Lightning: epoch=3-step=1200.ckpt
_EPOCH_AND_STEP: Final = re.compile(r"-(\d+)_(\d+)(?:_breakpoint)?\.ckpt$")  # MindSpore: resnet-1_1875.ckpt


class Checkpoint:
    """A possible checkpoint. `number` is its step, or its epoch and step, if the name has them."""

    def __init__(self, path: str, written_at: float) -> None:
        self.path, self.written_at = path, written_at
        name = os.path.basename(path)
        self.kind = re.sub(r"\d+", "#", name)
        found = _STEP.search(name) or _EPOCH_AND_STEP.search(name)
        digits = found.groups() if found else re.findall(r"\d+", name)
        self.number = tuple(map(int, digits)) if found or len(digits) == 1 else ()

    def is_newer_than(self, other: Checkpoint) -> bool:
        """Return whether this one is newer: by step number, or by modification time if the names differ in kind."""
        if self.number and self.kind == other.kind:
            return self.number > other.number
        return self.written_at > other.written_at


class Checkpoints:
    """The newest complete checkpoint of a directory, and whether everything could be read (`is_known`)."""

    def __init__(self, newest: Checkpoint | None, *, is_known: bool) -> None:
        self.newest, self.is_known = newest, is_known

    def is_progress_since(self, before: Checkpoints) -> bool | None:
        """Return whether there is a newer checkpoint than before, or None if that cannot be known."""
        if self.newest and before.newest and self.newest.is_newer_than(before.newest):
            return True
        if not (self.is_known and before.is_known):
            return None
        return bool(self.newest and not before.newest)


def latest_checkpoint(directory: str | os.PathLike[str]) -> pathlib.Path | None:
    """Return the newest complete checkpoint in `directory`, or None if there is none, or no such directory.

    Those of Megatron, MindSpeed, DeepSpeed, HF Trainer, accelerate, Lightning, torch and MindSpore are recognized. A
    checkpoint that is being saved, or was interrupted, is never returned.

        import ascend_runner

        print(ascend_runner.latest_checkpoint("output"))

    Raises:
        OSError: The directory cannot be read.
    """
    try:
        os.listdir(directory)  # look() takes the contents of an unreadable directory for unknown
    except FileNotFoundError:
        return None
    newest = look(directory).newest
    return None if newest is None else pathlib.Path(newest.path)


def look(directory: str | os.PathLike[str]) -> Checkpoints:
    """Look for the newest complete checkpoint in `directory`. Raises nothing: what cannot be read is unknown."""
    return _Look(os.fspath(directory)).result()


class _Look:
    """One search of a directory, within limits."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._deadline = time.monotonic() + LONGEST_LOOK
        self._is_known = True

    def result(self) -> Checkpoints:
        try:
            entries = self._list(self._directory)
        except FileNotFoundError:
            return Checkpoints(None, is_known=True)
        except OSError:
            return Checkpoints(None, is_known=False)
        self._is_known = len(entries) < MOST_ENTRIES and not self._is_late()
        pointers = [entry.path for entry in entries if entry.name in _POINTERS]
        found = self._pointed_to(pointers) if pointers else self._named(entries)
        is_one_kind = len({checkpoint.kind for checkpoint in found}) == 1
        found.sort(key=lambda checkpoint: (checkpoint.number if is_one_kind else (), checkpoint.written_at))
        custom = set() if pointers else self._custom_objects(found)
        while found:
            checkpoint = found.pop()
            if self._is_complete(checkpoint.path, custom, is_pointed_to=bool(pointers)):
                return Checkpoints(checkpoint, is_known=self._is_known)
        return Checkpoints(None, is_known=self._is_known)

    def _list(self, path: str) -> list[os.DirEntry[str]]:
        """Return the entries of a directory, at most MOST_ENTRIES of them."""
        found: list[os.DirEntry[str]] = []
        with os.scandir(path) as entries:
            for entry in entries:
                if len(found) == MOST_ENTRIES or self._is_late():
                    break
                found.append(entry)
        return found

    def _pointed_to(self, pointers: list[str]) -> list[Checkpoint]:
        """Return the checkpoints that the pointers name. If a pointer is cut off, nothing is known."""
        found = []
        for pointer in pointers:
            try:
                with open(pointer, encoding="utf-8") as file:
                    text = file.read(4096).strip()
                name = f"iter_{int(text):07d}" if text.isdigit() else os.path.basename(text)
                path = os.path.join(self._directory, name or "no name")
                found.append(Checkpoint(path, os.stat(path).st_mtime))
            except (OSError, ValueError):
                self._is_known = False
        return found

    def _named(self, entries: list[os.DirEntry[str]]) -> list[Checkpoint]:
        """Return the entries that are checkpoints by their names or their last files."""
        found = []
        for entry in entries:
            try:
                if _is_checkpoint_folder(entry) if entry.is_dir() else _FILE.fullmatch(entry.name):
                    found.append(Checkpoint(entry.path, entry.stat().st_mtime))
            except FileNotFoundError:
                continue  # an old one, deleted meanwhile
            except OSError:
                self._is_known = False
        return found

    def _custom_objects(self, found: list[Checkpoint]) -> set[str]:
        """Return the names of the registered objects in any of the checkpoints, which all must have."""
        folders = [checkpoint.path for checkpoint in found if not _FILE.fullmatch(os.path.basename(checkpoint.path))]
        names: set[str] = set()
        for folder in folders:
            try:
                names.update(entry.name for entry in self._list(folder))
            except OSError:
                continue  # its completeness is another question
        return {name for name in names if _CUSTOM.fullmatch(name)}

    def _is_complete(self, path: str, custom: set[str], *, is_pointed_to: bool) -> bool:
        try:
            if not os.path.isdir(path):
                return is_checkpoint_file(path)
            proof = self._list(path) if is_pointed_to else self._has_last_file(path, custom)
            return bool(proof) and self._is_whole(path)
        except FileNotFoundError:
            return False
        except OSError:
            self._is_known = False
            return False

    def _has_last_file(self, path: str, custom: set[str]) -> bool:
        names = {entry.name for entry in self._list(path)}
        if ".metadata" in names:
            needs_more = path.endswith(".ckpt")
            return are_listed_files_whole(path) and (not needs_more or is_archive(os.path.join(path, "meta.pt")))
        if not _HF.fullmatch(os.path.basename(path)):
            last = {"random_states_0.pkl", *custom, *filter(_CUSTOM.fullmatch, names)}
            return all(is_archive(os.path.join(path, name)) for name in last)
        if "checkpoint-is-incomplete.txt" in names:
            return False
        random_states = [name for name in names if name.startswith("rng_state")]
        needs_random_state = any(name.startswith(("optimizer", "global_step")) for name in names)
        return is_trainer_state(os.path.join(path, "trainer_state.json")) and (
            not needs_random_state or any(is_archive(os.path.join(path, name)) for name in random_states)
        )

    def _is_whole(self, path: str) -> bool:
        """Whether no file is recognizably cut off. Where there are too many, their order is proof enough."""
        entries = self._list(path)
        names = {entry.name for entry in entries}
        if ".metadata" not in names and any(name.endswith(".distcp") for name in names):
            return False
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        files = [entry.path for entry in entries if entry.is_file()]
        return all(self._is_late() or self._is_whole(folder) for folder in folders) and not any(
            not self._is_late() and is_cut_off(file) for file in files
        )

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline


def _is_checkpoint_folder(entry: os.DirEntry[str]) -> bool:
    if _POINTED_TO.fullmatch(entry.name) or _TEMPORARY.fullmatch(entry.name):
        return False
    return bool(_HF.fullmatch(entry.name)) or any(
        os.path.exists(os.path.join(entry.path, name)) for name in _LAST_FILES
    )
