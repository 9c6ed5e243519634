"""Finds the newest complete checkpoint of a directory.

Whether one is complete follows from the order in which the software writes, according to its source:

- Megatron, MindSpeed: `latest_checkpointed_iteration.txt` is written after a barrier of all ranks (`save_checkpoint` in
  megatron/training/checkpointing.py), verl's after all workers have saved (`_save_checkpoint` in
  verl/trainer/ppo/ray_trainer.py), DeepSpeed's `latest` likewise (`save_checkpoint` in deepspeed/runtime/engine.py).
- HF Trainer: `trainer_state.json` comes last, in old versions `rng_state*.pth`; a save on SIGTERM removes
  `checkpoint-is-incomplete.txt` at the end (`_save_checkpoint` in transformers/trainer.py).
- torch DCP: `.metadata` comes last and lists every file with its length (`finish` in
  torch/distributed/checkpoint/filesystem.py); Lightning's sharded `.ckpt` directory adds `meta.pt`.
- accelerate: `random_states_0.pkl` comes last but for registered objects (`save_state` in accelerate/accelerator.py).
- MindSpore: a `.ckpt` file becomes read-only at the end (`_exec_save` in mindspore/train/serialization.py).
- Other files of torch.save (Lightning's `.ckpt`, `model_7.pt`) are archives that show their end themselves, and so do
  safetensors, pickles and HDF5. A format that does not is taken for whole.
- A directory of an unknown writer (`step_7/`) has every part that all others of its kind have.

A machine that loses power can lose what was written before the last file, so every archive is checked, too.

What a name says: `_tier` tells how surely a file is a checkpoint, and `Checkpoint.number` which one is newer.
"""

from __future__ import annotations

import os
import pathlib
import re
import time
from collections.abc import Iterable

from ascend_runner.training.whole_files import (
    are_listed_files_whole,
    is_archive,
    is_cut_off,
    is_trainer_state,
    lack_of_file,
)

TYPE_CHECKING = False  # typing.Final: Python 3.8

if TYPE_CHECKING:
    from typing import Final

MOST_ENTRIES: Final = 20_000  # entries of one directory; a checkpoint of 8,192 ranks has fewer
LONGEST_LOOK: Final = 10.0  # seconds

_POINTERS: Final = ("latest_checkpointed_iteration.txt", "latest")
_POINTED_TO: Final = re.compile(r"iter_\d+|global_step_?\d+|release")  # complete only if a pointer names it
_TEMPORARY: Final = re.compile(
    r"\..*|tmp.*|temp[-_.].*|.*[-_.](?:tmp|temp|incomplete)(?:[-_.].*)?|.*\.(?:part|partial)|.*~", re.DOTALL
)
# Others may hold a dataset, too: `train.bin`, `samples_7.npz`.
_OF_TRAINING: Final = re.compile(r"\.(?:pt|pth|ckpt|safetensors|nemo|pdparams)(?:\.tar)?$")
_SUFFIX: Final = re.compile(_OF_TRAINING.pattern + r"|\.(?:bin|npz|pkl|h5|hdf5|keras|msgpack|tar)$")
_RESUMABLE: Final = re.compile(r"(?:^|[-_.])(?:checkpoint|ckpt|last|latest|snapshot|resume)", re.IGNORECASE)
_MODEL: Final = re.compile(
    _RESUMABLE.pattern + r"|(?:^|[-_.])(?:model|weights?|state|params|step|epoch|iter|best|final)", re.IGNORECASE
)
# What is saved beside a model, and a part of one: model-00001-of-00002.safetensors.
_BESIDE: Final = r"optim(?:izers?)?|opt|(?:lr_)?scheduler|scaler|sampler|rng(?:_states?)?|random_states?|training_args"
_SIDE: Final = re.compile(rf"(?:{_BESIDE})(?:[-_.]?\d.*|\..*)|.*[-_.](?:{_BESIDE})(?:\.\w+)+|.*-of-\d+\.\w+", re.DOTALL)
_HF: Final = re.compile(r"checkpoint-\d+")
_OF_HF: Final = re.compile(r"(?:adapter_|pytorch_)?model\b.*\.(?:safetensors|bin|json)|train(?:er|ing)_.*|rng_.*")
_LAST_FILES: Final = (".metadata", "random_states_0.pkl")  # they make a directory of any name a checkpoint
_CUSTOM: Final = re.compile(r"custom_checkpoint_\d+\.pkl")  # an object that was registered with accelerate
_OF_ACCELERATE: Final = re.compile(
    r"(?:model.*\.(?:safetensors|json)|pytorch_model.*\.bin|(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin"
    r"|scaler\.pt|custom_checkpoint_\d+\.pkl)$"
)
_RANK: Final = re.compile(r"rank[-_]?\d+")
_OF_A_RUN: Final = re.compile(r"(?:version|run|trial|exp|experiment|job|attempt)[-_]?\d+", re.IGNORECASE)
_COUNTERS: Final = re.compile(r"(epoch|iter|step)(?:ation)?s?[-_=]?(\d+)", re.IGNORECASE)  # epoch=3-step=1200.ckpt
_EPOCH_AND_STEP: Final = re.compile(r"-(\d+)_(\d+)(?:_breakpoint)?\.ckpt$")  # MindSpore: resnet-1_1875.ckpt
_NUMBER: Final = re.compile(r"(?:(?<![A-Za-z\d])|checkpoint|ckpt|model)(\d+)(?![A-Za-z\d])", re.IGNORECASE)


class Checkpoint:
    """A possible checkpoint. `number` is its step, or its epoch and step, if the name has them."""

    def __init__(self, path: str, written_at: float, size: int = 0) -> None:
        self.path, self.written_at, self.size = path, written_at, size
        name = os.path.basename(path)
        self.kind = re.sub(r"\d+", "#", name)
        self.number, self._is_of_a_step = _number(name), bool(_COUNTERS.search(name) or _RESUMABLE.search(name))

    def is_newer_than(self, other: Checkpoint) -> bool:
        """Return whether this one is newer: by its number, or by what was written last if that says nothing.

        A step that is saved again is no newer, but a `model_2.pt` may be saved again at each step.
        """
        if self.number and self.kind == other.kind and (self.number != other.number or self._is_of_a_step):
            return self.number > other.number
        is_other_size = self.path == other.path and self.size != other.size
        return self.written_at > other.written_at or is_other_size


class Checkpoints:
    """The newest complete checkpoint of a directory, and whether everything could be read (`is_known`).

    `unrecognized` has the names of all entries if none of them is known to be a checkpoint; `incomplete` says of the
    newest one what it lacks if none is complete.
    """

    def __init__(
        self,
        newest: Checkpoint | None,
        *,
        is_known: bool,
        unrecognized: tuple[str, ...] = (),
        incomplete: str = "",
    ) -> None:
        self.newest, self.is_known = newest, is_known
        self.unrecognized, self.incomplete = unrecognized, incomplete

    @property
    def is_unclear(self) -> bool:
        """Whether there are files, but no checkpoint that a training could resume from."""
        return bool(self.unrecognized or self.incomplete)

    def is_progress_since(self, before: Checkpoints) -> bool | None:
        """Return whether there is a newer checkpoint than before, or None if that cannot be known."""
        if self.newest and before.newest and self.newest.is_newer_than(before.newest):
            return True
        if self.newest and before.unrecognized:
            return True
        if not (self.is_known and before.is_known) or self.is_unclear:
            return None
        return bool(self.newest and not before.newest)


def latest_checkpoint(directory: str | os.PathLike[str]) -> pathlib.Path | None:
    """Return the newest complete checkpoint in `directory`, or None if there is none, or no such directory.

    Checkpoints of Megatron, MindSpeed, DeepSpeed, HF Trainer, accelerate, Lightning, torch and MindSpore are
    recognized, and files with a usual name. A checkpoint that is being saved, or whose save was interrupted, is not
    returned if its format shows it.

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


def look(directory: str | os.PathLike[str], limit: float = LONGEST_LOOK) -> Checkpoints:
    """Look for the newest complete checkpoint in `directory`, for at most `limit` seconds if its disk responds.

    Raises nothing: what cannot be read is unknown.
    """
    return _Look(os.fspath(directory), limit).result()


class _Look:
    """One search of a directory, within limits."""

    def __init__(self, directory: str, limit: float) -> None:
        self._directory = directory
        self._deadline = time.monotonic() + limit
        self._is_known = True
        self._parts_of: dict[str, set[str]] = {}  # of the directories that were looked at

    def result(self) -> Checkpoints:
        try:
            entries = self._list(self._directory)
        except FileNotFoundError:
            return Checkpoints(None, is_known=True)
        except OSError:
            return Checkpoints(None, is_known=False)
        self._is_known = len(entries) < MOST_ENTRIES and not self._is_late()
        pointers = [entry.path for entry in entries if entry.name in _POINTERS and entry.is_file(follow_symlinks=False)]
        found = self._pointed_to(pointers) if pointers else self._named(entries)
        if not (pointers or found):
            if self._is_late():
                return Checkpoints(None, is_known=False)
            names = sorted(entry.name for entry in entries if not _TEMPORARY.fullmatch(entry.name))
            begun = [name for name in names if _POINTED_TO.fullmatch(name)]
            if not begun:
                return Checkpoints(None, is_known=self._is_known, unrecognized=tuple(names))
            lack = f"{begun[-1]}: no {' or '.join(_POINTERS)} names it"
            return Checkpoints(None, is_known=self._is_known, incomplete=lack)
        is_one_kind = len({checkpoint.kind for checkpoint in found}) == 1
        found.sort(key=lambda checkpoint: (checkpoint.number if is_one_kind else (), checkpoint.written_at))
        folders = {} if pointers else self._folders(found)
        newest, incomplete = None, "" if found else f"{os.path.basename(pointers[0])} names a missing checkpoint"
        while found and newest is None:
            checkpoint = found.pop()
            lack = self._lack(checkpoint, folders, is_pointed_to=bool(pointers))
            newest = None if lack else checkpoint
            incomplete = incomplete or f"{os.path.basename(checkpoint.path)}: {lack}"
        is_known = self._is_known and not self._is_late()
        return Checkpoints(newest, is_known=is_known, incomplete="" if newest else incomplete)

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
                names = [os.path.basename(text) or "no name"]
                if text.isdigit():
                    names = [f"iter_{int(text):07d}", f"global_step_{int(text)}"]
                paths = [os.path.join(self._directory, name) for name in names]
                path = next(filter(os.path.exists, paths), paths[0])
                found.append(Checkpoint(path, os.stat(path).st_mtime))
            except (OSError, ValueError):
                self._is_known = False
        return found

    def _named(self, entries: list[os.DirEntry[str]]) -> list[Checkpoint]:
        """Return the entries that are most surely checkpoints by their names or their last files."""
        found: dict[int, list[Checkpoint]] = {}
        for entry in entries:
            try:
                tier = None if _is_link_to_another(entry) else self._tier(entry)
                if tier is not None:
                    status = entry.stat()
                    checkpoint = Checkpoint(entry.path, status.st_mtime, 0 if entry.is_dir() else status.st_size)
                    if entry.is_dir() and not checkpoint.number:  # its files may be written again
                        written = [part.stat().st_mtime for part in self._list(entry.path)]
                        checkpoint.written_at = max([status.st_mtime, *written])
                    found.setdefault(tier, []).append(checkpoint)
            except FileNotFoundError:
                continue  # an old one, deleted meanwhile
            except OSError:
                self._is_known = False
        return found[min(found)] if found else []

    def _tier(self, entry: os.DirEntry[str]) -> int | None:
        if not entry.is_dir():
            return _tier(entry.name) if entry.is_file() else None
        if any(form.fullmatch(entry.name) for form in (_POINTED_TO, _TEMPORARY, _OF_A_RUN)):
            return None
        if _HF.fullmatch(entry.name) or any(os.path.exists(os.path.join(entry.path, name)) for name in _LAST_FILES):
            return 0
        return 0 if _number(entry.name) and self._parts(entry.path) else None

    def _parts(self, path: str) -> set[str]:
        """Return the names of what is saved in a directory, or in those in it, without the numbers in them."""
        if path in self._parts_of:
            return self._parts_of[path]
        entries = self._list(path)
        names = [entry.name for entry in entries if _SUFFIX.search(entry.name)]
        for folder in [entry for entry in entries if entry.is_dir(follow_symlinks=False)]:
            inner = (entry.name for entry in self._list(folder.path))
            names += [f"{folder.name}/{name}" for name in inner if _SUFFIX.search(name)]
        return self._parts_of.setdefault(path, {re.sub(r"\d+", "#", name) for name in names})

    def _folders(self, found: list[Checkpoint]) -> dict[str, set[str]]:
        """Return the names in the checkpoints that are directories."""
        folders: dict[str, set[str]] = {}
        for checkpoint in found:
            try:
                folders[checkpoint.path] = {entry.name for entry in self._list(checkpoint.path)}
            except OSError:
                continue  # a file; or its completeness is another question
        return folders

    def _lack(self, checkpoint: Checkpoint, folders: dict[str, set[str]], *, is_pointed_to: bool) -> str:
        """Return in a clause what a checkpoint lacks, "" if it is complete."""
        path = checkpoint.path
        try:
            if not os.path.isdir(path):
                return lack_of_file(path)
            if not self._list(path):
                return "it is empty"
            return ("" if is_pointed_to else self._lack_of_last_file(checkpoint, folders)) or self._damage(path)
        except FileNotFoundError as error:
            return f"{os.path.basename(error.filename)} is missing"
        except OSError as error:
            self._is_known = False
            return f"it cannot be read: {error.strerror}"

    def _lack_of_last_file(self, checkpoint: Checkpoint, folders: dict[str, set[str]]) -> str:
        path, names = checkpoint.path, {entry.name for entry in self._list(checkpoint.path)}
        if ".metadata" in names:
            lack = self._lack_of_archives(path, ["meta.pt"] if path.endswith(".ckpt") else [])
            return lack if are_listed_files_whole(path) else ".metadata or a file that it lists is truncated"
        if "checkpoint-is-incomplete.txt" in names:
            return "it has checkpoint-is-incomplete.txt"
        is_of_hf = _HF.fullmatch(os.path.basename(path)) and any(map(_OF_HF.match, names))
        if "random_states_0.pkl" in names or not is_of_hf:
            if "random_states_0.pkl" not in names and not self._is_of_accelerate(names, folders):
                return self._lack_of_parts(checkpoint, folders)
            custom = filter(_CUSTOM.fullmatch, set().union(*folders.values()))  # all must have each registered object
            return self._lack_of_archives(path, sorted({"random_states_0.pkl", *custom}, reverse=True))
        random_states = [name for name in names if name.startswith("rng_state")]
        needs_random_state = any(name.startswith(("optimizer", "global_step")) for name in names)
        has_random_state = any(is_archive(os.path.join(path, name)) for name in random_states)
        if is_trainer_state(os.path.join(path, "trainer_state.json")):
            return "rng_state.pth is missing or truncated" if needs_random_state and not has_random_state else ""
        return "trainer_state.json is missing or truncated"

    def _lack_of_archives(self, path: str, names: Iterable[str]) -> str:
        lacking = [name for name in names if not is_archive(os.path.join(path, name))]
        return f"{lacking[0]} is missing or truncated" if lacking else ""

    def _is_of_accelerate(self, names: set[str], folders: dict[str, set[str]]) -> bool:
        """Whether accelerate may be writing a directory; unknown if there is only one."""
        if not all(map(_OF_ACCELERATE.match, names)) or names == {"pytorch_model.bin"}:
            return False
        if any("random_states_0.pkl" in others for others in folders.values()):
            return True
        self._is_known = self._is_known and len(folders) > 1
        return len(folders) == 1

    def _lack_of_parts(self, checkpoint: Checkpoint, folders: dict[str, set[str]]) -> str:
        """Return which part that all its siblings have a directory of an unknown writer lacks, or a temporary file."""
        own = self._parts(checkpoint.path)
        others = [
            self._parts(path)
            for path in folders
            if path != checkpoint.path and Checkpoint(path, 0.0).kind == checkpoint.kind
        ]
        expected = set.intersection(*others) if others else set()
        temporary = sorted(filter(_TEMPORARY.fullmatch, folders.get(checkpoint.path, ())))
        if self._is_late():
            return "the directory takes too long to read"
        if temporary:
            return f"{temporary[0]} is still being written"
        lacking = [f"{name}, which all others have, is missing" for name in sorted(expected - own)]
        return (lacking or ["" if own else "no file in it is recognized"])[0]

    def _damage(self, path: str) -> str:
        """Return which file is recognizably cut off. Where there are too many, their order is proof enough."""
        entries = self._list(path)
        names = {entry.name for entry in entries}
        if ".metadata" not in names and any(name.endswith(".distcp") for name in names):
            return ".metadata is missing"
        for entry in entries:
            if self._is_late():
                break
            damage = self._damage(entry.path) if entry.is_dir(follow_symlinks=False) else ""
            if damage or (entry.is_file() and is_cut_off(entry.path)):
                return damage or f"{entry.name} is truncated"
        return ""

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline


def _is_link_to_another(entry: os.DirEntry[str]) -> bool:
    """Whether an entry only points to another checkpoint in its directory, such as `latest -> step_100`."""
    if not entry.is_symlink():
        return False
    target, folder = os.path.realpath(entry.path), os.path.realpath(os.path.dirname(entry.path))
    is_known = os.path.isdir(target) or _tier(os.path.basename(target)) is not None
    return is_known and os.path.dirname(target) == folder


def _tier(name: str) -> int | None:
    """Return how likely a file is a checkpoint by its name, from 0 (most likely) up, or None if it is not one.

    A model without a number may be the result of a training, or where it began; one with a step is one to resume from.
    """
    if not _SUFFIX.search(name) or _TEMPORARY.fullmatch(name) or _SIDE.fullmatch(name):
        return None
    is_model = bool(_OF_TRAINING.search(name) or _MODEL.search(name))
    if _numbers(name):
        return 0 if is_model else 2
    if name.endswith(".ckpt") or (is_model and _RESUMABLE.search(name)):
        return 0
    return 1 if is_model else None


def _number(name: str) -> tuple[int, ...]:
    """Return the step in a name, or epoch and step; () if there is none, or numbers of unknown meaning."""
    digits = _numbers(name)
    found = sorted(_COUNTERS.findall(name))  # the epoch first
    last = _EPOCH_AND_STEP.search(name)
    if found or last:
        digits = [number for _word, number in found] or list(last.groups() if last else ())
    return tuple(map(int, digits)) if found or last or len(digits) == 1 else ()


def _numbers(name: str) -> list[str]:
    """Return the numbers in a name, apart from that of a rank, and those that belong to a word: resnet50, llama-7b."""
    stem = _RANK.sub("", _SUFFIX.sub("", name))
    return _NUMBER.findall(stem) or [number for _word, number in _COUNTERS.findall(stem)]
