"""The newest complete checkpoint: no part of an interrupted save is ever taken for a whole one."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from ascend_runner.training import checkpoints
from tests.helpers.pythons import python_of

Save = list[tuple[str, bytes]]  # the files in the order in which they are written


def archive() -> bytes:
    """Return what torch.save writes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        file.writestr("a/data.pkl", b"PK\x05\x06" + bytes(20))
        file.writestr("a/data/0", b"tensor")
    return target.getvalue()


def tensors() -> bytes:
    """Return a safetensors file."""
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "data_offsets": [0, 40]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(40)


def dcp_metadata(*files: str) -> bytes:
    """Return what torch writes of its files, which hold two archives each."""
    places = {name: SimpleNamespace(relative_path=name, offset=len(archive()), length=len(archive())) for name in files}
    return pickle.dumps(SimpleNamespace(state_dict_metadata={}, storage_data=places))


def megatron(step: int) -> Save:
    """Return the shards of two ranks, and the tracker file."""
    folder = f"iter_{step:07d}"
    shards = [(f"{folder}/mp_rank_0{rank}/model_optim_rng.pt", archive()) for rank in (0, 1)]
    return [*shards, ("latest_checkpointed_iteration.txt", str(step).encode())]


def megatron_dist(step: int) -> Save:
    """Return the distributed format, which is torch's within a directory of Megatron."""
    return [(f"iter_{step:07d}/{name}", data) for name, data in dcp(step, "")] + [
        (f"iter_{step:07d}/metadata.json", b'{"sharded_backend": "torch_dist"}'),
        ("latest_checkpointed_iteration.txt", str(step).encode()),
    ]


def deepspeed(step: int) -> Save:
    """Return the shards of two ranks, and the tag."""
    tag = f"global_step{step}"
    shards = [(f"{tag}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", archive()) for rank in (0, 1)]
    return [(f"{tag}/mp_rank_00_model_states.pt", archive()), *shards, ("latest", tag.encode())]


def verl(step: int) -> Save:
    """Return the shards of two ranks of an actor, the state of the data loader, and the tracker file."""
    folder = f"global_step_{step}"
    shards = [(f"{folder}/actor/model_world_size_2_rank_{rank}.pt", archive()) for rank in (0, 1)]
    tracker = ("latest_checkpointed_iteration.txt", str(step).encode())
    return [*shards, (f"{folder}/data.pt", archive()), tracker]


def hf(step: int) -> Save:
    """Return what HF Trainer writes."""
    state = json.dumps({"global_step": step, "log_history": [{"loss": 1.5}]}, indent=2).encode()
    index = json.dumps({"weight_map": {"w": "model-00001-of-00001.safetensors"}}).encode()
    files = {
        "model-00001-of-00001.safetensors": tensors(),
        "model.safetensors.index.json": index,
        "training_args.bin": archive(),
        "optimizer.pt": archive(),
        "scheduler.pt": archive(),
        "rng_state.pth": archive(),
        "trainer_state.json": state,
    }
    return [(f"checkpoint-{step}/{name}", data) for name, data in files.items()]


def hf_old(step: int) -> Save:
    """Return what was written before the random state was moved forward."""
    *files, random_state, trainer_state = hf(step)
    return [*files, trainer_state, random_state]


def dcp(step: int, folder: str = "step_{}/") -> Save:
    """Return what torch.distributed.checkpoint writes."""
    files = [(f"__{rank}_0.distcp", 2 * archive()) for rank in (0, 1)]
    metadata = (".metadata", dcp_metadata(*(name for name, _ in files)))
    return [(folder.format(step) + name, data) for name, data in (*files, metadata)]


def lightning(step: int) -> Save:
    """Return what Lightning's ModelCheckpoint writes."""
    return [(f"epoch=0-step={step}.ckpt", archive())]


def lightning_sharded(step: int) -> Save:
    """Return what Lightning's FSDPStrategy writes."""
    return [*dcp(step, "epoch=0-step={}.ckpt/"), (f"epoch=0-step={step}.ckpt/meta.pt", archive())]


def plain_torch(step: int) -> Save:
    """Return what a training loop of one's own writes."""
    return [(f"checkpoint_{step}.pt", archive())]


def accelerate(step: int) -> Save:
    """Return what Accelerator.save_state writes."""
    files = {"model.safetensors": tensors(), "optimizer.bin": archive(), "random_states_0.pkl": archive()}
    return [(f"checkpoint_{step}/{name}", data) for name, data in files.items()]


def accelerate_custom(step: int) -> Save:
    """Return the same with an object registered for checkpointing."""
    return [*accelerate(step), (f"checkpoint_{step}/custom_checkpoint_0.pkl", archive())]


def accelerate_of_diffusers(step: int) -> Save:
    """Return the same in a directory with a name of HF Trainer."""
    return [(name.replace("_", "-", 1), data) for name, data in accelerate(step)]


FORMATS: Final = [
    megatron,
    megatron_dist,
    deepspeed,
    hf,
    hf_old,
    dcp,
    lightning,
    lightning_sharded,
    plain_torch,
    accelerate,
    accelerate_custom,
    accelerate_of_diffusers,
    verl,
]


def write(folder: Path, save: Save) -> None:
    """Write a whole save."""
    for name, data in save:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def parts(folder: Path, save: Save) -> Iterator[str]:
    """Write a save, and pause at each file and at each byte of the last one."""
    for number, (name, data) in enumerate(save):
        is_last = number == len(save) - 1
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for length in range(len(data)) if is_last else (0, len(data) // 2, len(data)):
            (folder / name).write_bytes(data[:length])
            yield f"{length} bytes of {name}"
    write(folder, save[-1:])


@pytest.mark.deep(quick=4)
@pytest.mark.parametrize("form", FORMATS)
def test_no_part_of_a_save_is_a_checkpoint(tmp_path: Path, form: Callable[[int], Save]) -> None:
    """Cut at every file, and at every byte of the last one, a save leaves the one before it as the newest."""
    write(tmp_path, form(100))
    before = checkpoints.look(tmp_path)
    older = checkpoints.latest_checkpoint(tmp_path)
    taken = {part: checkpoints.latest_checkpoint(tmp_path) for part in parts(tmp_path, form(1200))}
    newest = checkpoints.latest_checkpoint(tmp_path)

    assert older is not None
    assert {} == {part: found for part, found in taken.items() if found not in {older, None}}
    assert newest is not None
    assert newest != older
    assert checkpoints.look(tmp_path).is_progress_since(before)


@pytest.mark.deep(quick=4)
@pytest.mark.parametrize("form", [form for form in FORMATS if form is not accelerate_custom])
def test_no_part_of_the_first_save_is_a_checkpoint(tmp_path: Path, form: Callable[[int], Save]) -> None:
    """The same holds for the first save of all, except for accelerate's registered objects, which are not known yet."""
    taken = {part: checkpoints.latest_checkpoint(tmp_path) for part in parts(tmp_path, form(7))}

    assert {} == {part: found for part, found in taken.items() if found is not None}
    assert checkpoints.latest_checkpoint(tmp_path) is not None


def test_mindspore_makes_a_whole_file_read_only(tmp_path: Path) -> None:
    """A `.ckpt` of MindSpore shows no end, so it counts once it is read-only; epoch and step order it."""
    for name in ("net-2_50.ckpt", "net-10_50.ckpt"):
        (tmp_path / name).write_bytes(b"\x0a\x05hello")
        (tmp_path / name).chmod(0o400)
    (tmp_path / "net-11_50.ckpt").write_bytes(b"\x0a\x05hello")
    unfinished = checkpoints.latest_checkpoint(tmp_path)
    (tmp_path / "net-11_50.ckpt").chmod(0o400)

    assert tmp_path / "net-10_50.ckpt" == unfinished
    assert tmp_path / "net-11_50.ckpt" == checkpoints.latest_checkpoint(tmp_path)


def test_steps_are_compared_as_numbers(tmp_path: Path) -> None:
    """checkpoint-1000 is newer than checkpoint-900, whenever it was copied here."""
    write(tmp_path, hf(1000))
    write(tmp_path, hf(900))
    os.utime(tmp_path / "checkpoint-1000", (1, 1))

    assert tmp_path / "checkpoint-1000" == checkpoints.latest_checkpoint(tmp_path)


def test_times_decide_between_names_of_different_kinds(tmp_path: Path) -> None:
    """Lightning's last.ckpt is newer than the best one, which has a step in its name."""
    write(tmp_path, [*lightning(400), ("last.ckpt", archive())])
    os.utime(tmp_path / "epoch=0-step=400.ckpt", (1, 1))

    assert tmp_path / "last.ckpt" == checkpoints.latest_checkpoint(tmp_path)


def test_damaged_files_of_a_finished_save_are_noticed(tmp_path: Path) -> None:
    """A machine that lost power may have lost the end of an early file although the last one is there."""
    write(tmp_path, hf(100))
    write(tmp_path, hf(200))
    (tmp_path / "checkpoint-200" / "optimizer.pt").write_bytes(archive()[:-1])

    assert tmp_path / "checkpoint-100" == checkpoints.latest_checkpoint(tmp_path)


@pytest.mark.parametrize("folder", ["tmp-checkpoint-9", "checkpoint-9.tmp", "iter_0000009", "global_step9"])
def test_other_folders_are_no_checkpoints(tmp_path: Path, folder: str) -> None:
    """Temporary directories, and those that only a tracker file completes, are not taken."""
    write(tmp_path, [(f"{folder}/{name.partition('/')[2]}", data) for name, data in (*hf(9), *dcp(9))])

    assert checkpoints.latest_checkpoint(tmp_path) is None


# Names that trainings give to what they save, those of two steps in one directory.
USUAL_NAMES: Final = [
    ("9.pt", "10.pt"),
    ("model_9.pt", "model_10.pt"),
    ("model9.pth", "model10.pth"),
    ("step-9.pt", "step-10.pt"),
    ("step_9.safetensors", "step_10.safetensors"),
    ("epoch_3.pt", "epoch_12.pt"),
    ("epoch3.pt", "epoch12.pt"),
    ("iter_9.pth", "iter_10.pth"),
    ("model_0004999.pth", "model_0009999.pth"),
    ("checkpoint_0009.pth.tar", "checkpoint_0010.pth.tar"),
    ("checkpoint-9.pth.tar", "checkpoint-10.pth.tar"),
    ("checkpoint3.pt", "checkpoint12.pt"),
    ("ckpt-9.pt", "ckpt-10.pt"),
    ("ckpt_9.ckpt", "ckpt_10.ckpt"),
    ("epoch=3-step=900.ckpt", "epoch=3-step=1000.ckpt"),
    ("epoch=3-val_loss=0.25.ckpt", "epoch=12-val_loss=0.09.ckpt"),
    ("resnet50_epoch_9.pth", "resnet50_epoch_10.pth"),
    ("llama-7b-step9.safetensors", "llama-7b-step10.safetensors"),
    ("epoch_3_iter_900.pth", "epoch_12_iter_100.pth"),
    ("pytorch_model_9.bin", "pytorch_model_10.bin"),
    ("weights_9.npz", "weights_10.npz"),
    ("state_9.pkl", "state_10.pkl"),
    ("weights.9.h5", "weights.10.h5"),
    ("G_900.pth", "G_1000.pth"),
    ("snapshot_epoch_3.pt", "snapshot_epoch_12.pt"),
    ("step_9_rank_0.pt", "step_10_rank_0.pt"),
    ("step_100/model.pt", "step_1000/model.pt"),
    ("epoch_3/pytorch_model.bin", "epoch_12/pytorch_model.bin"),
    ("step9-unsharded/model/rank0.pt", "step10-unsharded/model/rank0.pt"),
    ("checkpoint-9/model.pt", "checkpoint-10/model.pt"),
]
UNNUMBERED: Final = [
    *(
        "last.pt",
        "last.ckpt",
        "last.pth.tar",
        "latest.pth",
        "checkpoint.pt",
        "checkpoint.pth.tar",
        "ckpt.pt",
        "best.pt",
    ),
    *("model.pt", "model_best.pth.tar", "snapshot.pt", "model.safetensors", "pytorch_model.bin", "weights.h5"),
    *("resnet50.pth", "llama-7b.safetensors", "checkpoint.npz", "state.pkl"),
]


def content(name: str) -> bytes:
    """Return what a file of this name holds when it is whole."""
    kinds = {"safetensors": tensors(), "pkl": pickle.dumps({"w": 1}), "h5": hdf5(), "bin": bytes(range(1, 99))}
    return kinds.get(name.rpartition(".")[2], archive())


def hdf5() -> bytes:
    """Return the superblock of an HDF5 file, and its data."""
    return b"\x89HDF\r\n\x1a\n\x02\x08\x08\0" + bytes(16) + (100).to_bytes(8, "little") + bytes(64)


@pytest.mark.parametrize(("older", "newer"), USUAL_NAMES)
def test_usual_names_with_a_number(tmp_path: Path, older: str, newer: str) -> None:
    """A file or directory with a number in its name is a checkpoint, and the number says which one is newer."""
    write(tmp_path, [(newer, content(newer))])
    after = checkpoints.look(tmp_path)
    (tmp_path / newer.partition("/")[0]).rename(tmp_path / "aside")
    write(tmp_path, [(older, content(older))])
    before = checkpoints.look(tmp_path)
    (tmp_path / "aside").rename(tmp_path / newer.partition("/")[0])
    os.utime(tmp_path / newer.partition("/")[0], (1, 1))

    assert tmp_path / newer.partition("/")[0] == checkpoints.latest_checkpoint(tmp_path)
    assert (True, False) == (after.is_progress_since(before), before.is_progress_since(after))


@pytest.mark.parametrize("name", UNNUMBERED)
def test_usual_names_without_a_number(tmp_path: Path, name: str) -> None:
    """A file without a number is progress when it is written again, by its time or its size."""
    nothing = checkpoints.look(tmp_path)
    write(tmp_path, [(name, content(name))])
    os.utime(tmp_path / name, (100, 100))
    first = checkpoints.look(tmp_path)
    os.utime(tmp_path / name, (200, 200))
    second = checkpoints.look(tmp_path)

    assert tmp_path / name == checkpoints.latest_checkpoint(tmp_path)
    assert [True, True] == [first.is_progress_since(nothing), second.is_progress_since(first)]
    assert second.is_progress_since(second) is False
    if name.endswith(".bin"):
        (tmp_path / name).write_bytes(2 * content(name))
        os.utime(tmp_path / name, (200, 200))
        assert checkpoints.look(tmp_path).is_progress_since(second) is True


def test_number_that_is_no_step(tmp_path: Path) -> None:
    """A file with a number that the training writes again at each step is progress, but not a step saved again."""
    progress = {}
    for name in ("gpt-2.pt", "step_100.pt"):
        write(tmp_path / name, [(name, archive())])
        before = checkpoints.look(tmp_path / name)
        os.utime(tmp_path / name / name, (before.newest.written_at + 9,) * 2)  # type: ignore[union-attr]  # it is there
        progress[name] = checkpoints.look(tmp_path / name).is_progress_since(before)

    assert {"gpt-2.pt": True, "step_100.pt": False} == progress


@pytest.mark.parametrize(
    "name",
    [
        *("model_9.pt.tmp", "tmp_model_9.pt", "model_9.tmp.pt", ".model_9.pt", "model_9.pt.part", "model_9.pt~"),
        *("step_9.tmp/model.pt", "step_9.incomplete/model.pt", "step_9.tmp.123/model.pt"),
        *("optimizer.pt", "optimizer_9.pt", "model_9_optimizer.pt", "rng_state_0.pth", "training_args.bin"),
        *("model-00001-of-00002.safetensors", "train.bin", "config.json", "events.out.tfevents.1763", "step_9/log.txt"),
    ],
)
def test_other_names_are_no_checkpoints(tmp_path: Path, name: str) -> None:
    """Temporary names, what is saved beside a model, parts of one and datasets are not taken for a checkpoint."""
    write(tmp_path, [(name, content(name))])

    assert checkpoints.latest_checkpoint(tmp_path) is None


@pytest.mark.parametrize(
    "name", [name for _older, name in USUAL_NAMES if not name.endswith(".bin")] + ["last.pt", "last.ckpt", "state.pkl"]
)
def test_file_that_is_cut_off_is_no_checkpoint(tmp_path: Path, name: str) -> None:
    """Formats that show their end are not taken while they are half-written, and an empty file never is."""
    whole = content(name)
    write(tmp_path, [(name, b"")])
    taken = set()
    for length in (*range(10), len(whole) // 2, *range(len(whole) - 24, len(whole))):
        (tmp_path / name).write_bytes(whole[:length])
        taken.add(checkpoints.latest_checkpoint(tmp_path))
    (tmp_path / name).write_bytes(bytes(len(whole)))

    assert {None} == taken
    assert checkpoints.latest_checkpoint(tmp_path) is None


def test_directory_that_lacks_a_part(tmp_path: Path) -> None:
    """A directory without a part that all others of its kind have is half-written; its notes are no part."""
    for step in (1, 2):
        write(tmp_path, [(f"step_{step}/{name}", archive()) for name in ("model.pt", "optimizer.pt", "args.json")])
    write(tmp_path, [("step_3/model.pt", archive())])
    half = checkpoints.latest_checkpoint(tmp_path)
    write(tmp_path, [("step_3/optimizer.pt", archive())])

    assert tmp_path / "step_2" == half
    assert tmp_path / "step_3" == checkpoints.latest_checkpoint(tmp_path)


def test_directory_that_accelerate_may_have_begun(tmp_path: Path) -> None:
    """A single directory with a model only may lack the rest, so it is unknown; a second one shows that it is whole."""
    nothing = checkpoints.look(tmp_path)
    write(tmp_path, [("step_1/model.safetensors", tensors())])
    first = checkpoints.look(tmp_path)
    write(tmp_path, [("step_2/model.safetensors", tensors())])

    assert (None, None) == (first.newest, first.is_progress_since(nothing))
    assert tmp_path / "step_2" == checkpoints.latest_checkpoint(tmp_path)


@pytest.mark.parametrize("link", ["latest", "last.pt", "step_latest"])
@pytest.mark.parametrize("target", ["step_100", "step_100.pt"])
def test_link_to_a_checkpoint(tmp_path: Path, link: str, target: str) -> None:
    """A link beside its target is no checkpoint of its own, and no tracker file; one that leads nowhere is nothing."""
    write(tmp_path, [(f"{target}/model.pt" if target == "step_100" else target, archive())])
    (tmp_path / link).symlink_to(target)
    (tmp_path / "step_200").symlink_to("gone")

    assert tmp_path / target == checkpoints.latest_checkpoint(tmp_path)


def test_result_of_a_training_is_not_resumed_from(tmp_path: Path) -> None:
    """The model at the top of HF's output directory, or a file of samples, does not take the place of a checkpoint."""
    write(tmp_path, hf(100))
    write(tmp_path, [("model.safetensors", tensors()), ("samples_900.npz", archive())])

    assert tmp_path / "checkpoint-100" == checkpoints.latest_checkpoint(tmp_path)


def test_special_file_is_no_checkpoint(tmp_path: Path) -> None:
    """A FIFO with a usual name is not opened, which would block."""
    os.mkfifo(tmp_path / "model_9.pt")

    assert checkpoints.latest_checkpoint(tmp_path) is None


def test_unrecognized_files_are_unknown_progress(tmp_path: Path) -> None:
    """If nothing in a directory is recognized, progress is unknown, until the first checkpoint that is."""
    nothing = checkpoints.look(tmp_path)
    write(tmp_path, [("weights.abc", b"1"), (".hidden", b"")])
    before = checkpoints.look(tmp_path)
    write(tmp_path, [("weights.abd", b"2"), ("run/x", b"")])
    after = checkpoints.look(tmp_path)
    write(tmp_path, [("model_9.pt", archive())])

    assert ("run", "weights.abc", "weights.abd") == after.unrecognized
    assert [None, None] == [before.is_progress_since(nothing), after.is_progress_since(before)]
    assert checkpoints.look(tmp_path).is_progress_since(after) is True


INCOMPLETE: Final[list[tuple[Save, str]]] = [
    (hf(9)[:-1], "checkpoint-9: trainer_state.json is missing or truncated"),
    ([("checkpoint-9/a.txt", b"1")], "checkpoint-9: no file in it is recognized"),
    (
        [("net-9_50.ckpt", b"\x0a\x05hello")],
        "net-9_50.ckpt: it is still writable, and MindSpore makes it read-only when it is complete",
    ),
    ([("model_9.pt", archive()[:-1]), ("optimizer_9.pt", archive())], "model_9.pt: it is truncated"),
    ([("last.pt", b"")], "last.pt: it is empty"),
    (megatron(9)[:-1], "iter_0000009: no latest_checkpointed_iteration.txt or latest names it"),
    (deepspeed(9)[-1:], "latest names a missing checkpoint"),
    ([*deepspeed(9), ("global_step9/x_model_states.pt", b"PK")], "global_step9: x_model_states.pt is truncated"),
    ([*dcp(9)[1:]], "step_9: __0_0.distcp is missing"),
    ([*hf(9), ("checkpoint-9/checkpoint-is-incomplete.txt", b"")], "checkpoint-9: it has checkpoint-is-incomplete.txt"),
]


@pytest.mark.parametrize(("files", "lack"), INCOMPLETE)
def test_incomplete_checkpoints_are_unknown_progress(tmp_path: Path, files: Save, lack: str) -> None:
    """If no checkpoint is complete, what the newest lacks is said, and progress is unknown, before and after."""
    nothing = checkpoints.look(tmp_path)
    write(tmp_path, files)
    found = checkpoints.look(tmp_path)

    assert (lack, None, True) == (found.incomplete, found.newest, found.is_unclear)
    assert [None, None] == [found.is_progress_since(nothing), found.is_progress_since(found)]


def test_complete_checkpoint_after_incomplete_ones_is_progress(tmp_path: Path) -> None:
    """The first complete checkpoint is progress, and one that is incomplete beside it is not mentioned."""
    write(tmp_path, hf(9)[:-1])
    before = checkpoints.look(tmp_path)
    write(tmp_path, hf(8))
    found = checkpoints.look(tmp_path)

    assert ("", False) == (found.incomplete, found.is_unclear)
    assert found.is_progress_since(before) is True


@pytest.mark.parametrize("folder", ["version_0", "run-3", "exp2"])
def test_directory_of_a_whole_run_is_no_checkpoint(tmp_path: Path, folder: str) -> None:
    """In lightning_logs, `version_0` holds checkpoints and is none: nothing can be resumed from it."""
    write(tmp_path, [(f"{folder}/checkpoints/epoch=3-step=1200.ckpt", archive())])
    found = checkpoints.look(tmp_path)

    assert (None, (folder,)) == (found.newest, found.unrecognized)


def test_missing_and_unreadable_directories(tmp_path: Path) -> None:
    """No directory holds no checkpoint yet; one that cannot be read is an error, and unknown to a restart."""
    (tmp_path / "file").touch()
    nothing = checkpoints.look(tmp_path / "none")

    assert checkpoints.latest_checkpoint(tmp_path / "none") is None
    assert checkpoints.look(tmp_path / "file").is_progress_since(nothing) is None
    (tmp_path / "empty").mkdir()
    assert checkpoints.look(tmp_path / "empty").is_progress_since(nothing) is False
    with pytest.raises(NotADirectoryError):
        checkpoints.latest_checkpoint(tmp_path / "file")


def test_empty_tracker_file_is_unknown(tmp_path: Path) -> None:
    """A tracker file that is being replaced tells neither of progress nor of its lack."""
    write(tmp_path, megatron(100))
    before = checkpoints.look(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_bytes(b"")

    assert checkpoints.look(tmp_path).is_progress_since(before) is None
    assert before.is_progress_since(before) is False


def test_first_checkpoint_is_progress(tmp_path: Path) -> None:
    """Progress is a newer checkpoint, not the same one written again."""
    before = checkpoints.look(tmp_path)
    write(tmp_path, hf(100))
    first = checkpoints.look(tmp_path)
    write(tmp_path, hf(100))

    assert first.is_progress_since(before) is True
    assert checkpoints.look(tmp_path).is_progress_since(first) is False


@pytest.mark.deep
def test_a_crowded_directory_is_unknown(tmp_path: Path) -> None:
    """Only a limited number of entries is checked; whether a newer checkpoint is among the rest is unknown."""
    for number in range(checkpoints.MOST_ENTRIES + 1):
        os.mknod(f"{tmp_path}/{number}")

    assert not checkpoints.look(tmp_path).is_known


def test_directory_that_takes_too_long_is_unknown(tmp_path: Path) -> None:
    """Nothing is known of a directory whose disk responds only after the time for a search is over."""
    write(tmp_path, dcp(5))

    found = checkpoints.look(tmp_path, limit=0.0)
    assert (None, False, False) == (found.newest, found.is_known, found.is_unclear)


def test_a_hostile_pickle_runs_nothing(tmp_path: Path) -> None:
    """Reading `.metadata` calls nothing that it names."""
    write(tmp_path, dcp(5))
    (tmp_path / "step_5" / ".metadata").write_bytes(b"cos\nmkdir\n(V" + os.fsencode(tmp_path / "made") + b"\ntR.")

    assert checkpoints.latest_checkpoint(tmp_path) is None
    assert not (tmp_path / "made").exists()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("version", ["3.7", "3.8"])
def test_old_pythons_of_trainings_run_it(tmp_path: Path, version: str) -> None:
    """The training's Python may be older than the runner's, and has none of its dependencies."""
    python = python_of(version)
    if not python:
        pytest.skip(f"there is no Python {version}")
    write(tmp_path, hf(100))
    script = "import sys, ascend_runner; print(ascend_runner.latest_checkpoint(sys.argv[1]))"
    package = Path(checkpoints.__file__).parents[2]
    command = [python, "-I", "-c", f"import sys; sys.path.insert(0, {str(package)!r}); {script}", str(tmp_path)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout

    assert f"{tmp_path / 'checkpoint-100'}\n" == shown
