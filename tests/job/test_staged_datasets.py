"""What --stage accepts: places that the command and the ranks learn, and copies that would do harm."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import attrs
import pytest

from ascend_runner.errors import AscendRunnerError, StopRequestedError
from ascend_runner.job import staging
from ascend_runner.plan.ranks import PlanContext, Stage, with_places, without_place
from ascend_runner.services import staging as datasets
from ascend_runner.settings.model import Settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a dataset, a file, and a directory with files of others."""
    (tmp_path / "data" / "part").mkdir(parents=True)
    (tmp_path / "data" / "sample").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "lost+found").mkdir()
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


def place(folder: Path, *named: str, command: tuple[str, ...] = ("true",)) -> PlanContext:
    """Place stages, each of which is written with paths below the directory."""
    pairs = tuple(
        (f"{folder}/{source}", f"{folder}/{target}") for source, _, target in (one.partition(":") for one in named)
    )
    context = PlanContext(
        settings=Settings(stage=pairs),
        command=command,
        environ={"ASCEND_RUNNER_STAGE": "/a:/b", "ASCEND_RUNNER_STAGED_0": "/of/another/runner", "A": "b"},
        cwd="/",
        host_name="some-host",
        is_folder=os.path.isdir,
    )
    return staging.placed(context, lambda _: None)


def refusal(folder: Path, *named: str, command: tuple[str, ...] = ("true",)) -> str:
    """Return the sentence that refuses some stages, without the path of the directory."""
    with pytest.raises(AscendRunnerError) as refused:
        place(folder, *named, command=command)
    return str(refused.value).replace(f"{folder}/", "")


def test_places(folder: Path) -> None:
    """The copy of a directory is the one that the user names, that of a file is in it; command and ranks know both."""
    context = place(
        folder, "data:copy/of/data", "file:new", command=("python", "x", "--data={stage:0}:{stage:1}", "{}")
    )
    copy, file = f"{folder}/copy/of/data", f"{folder}/new/file"

    assert (Stage(f"{folder}/data", copy), Stage(f"{folder}/file", f"{folder}/new", "file")) == context.stages
    assert ("python", "x", f"--data={copy}:{file}", "{}") == context.command
    assert {"A": "b", "ASCEND_RUNNER_STAGED_0": copy, "ASCEND_RUNNER_STAGED_1": file} == context.rank_environ
    assert not (folder / "copy").exists()


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("data:data", "cannot stage 'data' to 'data': source and destination are the same; use another directory"),
        ("data:link", "cannot stage 'data' to 'link': source and destination are the same; use another directory"),
        ("link:data", "cannot stage 'link' to 'data': source and destination are the same; use another directory"),
        (
            "data:data/copy",
            "cannot stage 'data' to 'data/copy': the copy would be inside the dataset; use another directory",
        ),
        (
            "data:link/copy",
            "cannot stage 'data' to 'link/copy': the copy would be inside the dataset; use another directory",
        ),
        (
            "data/part:data",
            "cannot stage 'data/part' to 'data': the dataset is inside that directory; use another one",
        ),
        (
            "data/sample:data",
            "cannot stage 'data/sample' to 'data': source and destination are the same; use another directory",
        ),
        (
            "data:other",
            "cannot stage 'data' to 'other': the directory has other files; use an empty or a new directory",
        ),
        ("data:file", "cannot create the directory 'file': 'file' is not a directory"),
        ("data:file/in", "cannot create the directory 'file/in': 'file' is not a directory"),
        ("missing:copy", "cannot stage 'missing': no such file or directory"),
        ("fifo:copy", "cannot stage 'fifo': it is neither a directory nor a file"),
    ],
)
def test_harmful_copy_is_refused(named: str, sentence: str, folder: Path) -> None:
    """A copy of a dataset into itself, or among files of others, is refused before anything is made."""
    before = sorted(folder.rglob("*"))

    assert sentence == refusal(folder, named)
    assert before == sorted(folder.rglob("*"))


@pytest.mark.parametrize("second", ["file:copy", "file:copy/in"])
def test_directories_that_overlap(second: str, folder: Path) -> None:
    """Two datasets in one directory would remove each other's files."""
    target = second.partition(":")[2]

    assert (
        f"cannot stage both 'data' to 'copy' and 'file' to '{target}': each dataset needs a directory of its own"
        == refusal(folder, "data:copy", second)
    )


def test_copy_of_another_dataset(folder: Path) -> None:
    """A directory has the copy of one dataset; that of another one is not replaced."""
    copy = folder / "copy"
    copy.mkdir()
    (copy / datasets.MANIFEST).write_text(f'{{"source": "{folder}/data"}}\n')
    (copy / "sample").touch()

    assert place(folder, "data:copy").stages
    assert (
        "cannot stage 'other' to 'copy': the directory has a copy of 'data'; remove it or use another directory"
        == refusal(folder, "other:copy")
    )


def test_copy_whose_manifest_is_lost(folder: Path) -> None:
    """After a crash of the machine, the lock shows that a directory has a copy."""
    (folder / "other" / datasets.LOCK).touch()
    assert place(folder, "data:other").stages

    (folder / "other" / datasets.COMPLETE).write_text('{"source": "/another"}\n')
    assert "the directory has a copy of '/another'" in refusal(folder, "data:other")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize("named", ["data:locked/copy", "locked:copy"])
def test_permissions(named: str, folder: Path) -> None:
    """A source that cannot be read, or a directory that cannot be written to, is named."""
    (folder / "locked").mkdir(mode=0o000)

    assert "permi" in refusal(folder, named)


def test_unknown_number(folder: Path) -> None:
    """The command can only name datasets that are staged. Without --stage, it is passed on with a warning.

    It is passed on silently if it contains a --stage of its own, as that of a runner inside it.
    """
    assert "the command contains {stage:1}, but --stage is set only once: use {stage:0}" == refusal(
        folder, "data:copy", command=("echo", "{stage:1}")
    )
    assert ("echo", "{stage:1}") == with_places(("echo", "{stage:1}"), ())
    assert "{stage:1}" in without_place(("echo", "{stage:1}"))
    assert [] == [*filter(None, map(without_place, (("echo",), ("ascend-runner", "--stage=a:b", "cat", "{stage:0}"))))]


def test_stages_are_not_looked_at_again(folder: Path) -> None:
    """Before a further attempt of the job, the source may be gone."""
    context = place(folder, "data:copy", command=("ls", "{stage:0}"))
    (folder / "data").rename(folder / "moved")
    again = staging.placed(attrs.evolve(context, command=("ls", "{stage:0}")), lambda _: None)

    assert (context.stages, context.command) == (again.stages, again.command)


def test_stop_signal_while_a_disk_hangs() -> None:
    """A stop signal ends the wait for a disk."""
    answer = threading.Event()

    def hang(source: str, folder: str) -> Stage:
        answer.wait()
        return Stage(source, folder)

    def stop(_seconds: float) -> None:
        raise StopRequestedError(15, "SIGTERM")

    with pytest.raises(StopRequestedError):
        staging.find([("/source", "/copy")], stop, hang)
    answer.set()
