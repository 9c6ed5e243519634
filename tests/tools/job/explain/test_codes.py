"""What `ascend-job explain` says of codes, exit statuses and signals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ascend_runner.diagnosis import catalogue
from ascend_runner.tools.job import explain
from tests.tools.job.conftest import Tool


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("EI0006", "no connection to a peer"),
        ("EI0099", "rejects an argument or a setting"),
        ("EZ9999", "internal error"),
        ("507015", "exception in a kernel on the AI core"),
        ("ERR02200", "a call of HCCL has failed"),
        ("ERR01007", "not support"),
        ("0x800000", "outside of the memory of the device"),
        ("HCCL 7", "a resource of HCCL is unavailable"),
        ("driver 47", "the device ran out of events, streams, notifies or models"),
        ("0", "success"),
        ("1", "uncaught exception"),
        ("127", "command not found"),
        ("137", "exit status 137 (SIGKILL): killed from outside"),
        ("247", "exit status 247 (SIGKILL): "),
        ("-9", "-9 (SIGKILL): "),
        ("SIGSEGV", "native code accessed invalid memory"),
        ("SIGTERM", "asked to stop"),
        ("SIGUSR1", "SIGUSR1: sent from outside"),
        ("42", "chosen by the program"),
        ("93", "a retry will not help"),
        ("no-space-left-on-device", "a disk or /dev/shm is full"),
        ("ei0006", "EI0006 (usually caused by a peer): "),
        ("0X800000", "0x800000: "),
        ("hccl 7", "HCCL 7 "),
        ("DRIVER 47", "driver 47 "),
        ("sigsegv", "SIGSEGV: "),
    ],
)
def test_codes(word: str, expected: str, tool: Tool) -> None:
    """A code is explained, with its source."""
    status, text = tool("explain", word)
    lines = text.splitlines()

    assert 0 == status
    assert expected in lines[0]
    assert lines[-1].startswith("  source https://") or word in {"42", "93"}


@pytest.mark.parametrize("word", ["EQ0001", "199999", "ERR09999", "0x3", "HCCL 9999", "999", "-99", "SIGWHAT"])
def test_unknown_codes(word: str, tool: Tool) -> None:
    """Nothing is guessed."""
    assert (1, f"ascend-job: unknown code {word!r}\n") == tool("explain", word)


def test_every_entry_can_be_looked_up() -> None:
    """An entry of the catalogue is found by its id, by all of its codes, and by each of them."""
    entries = {entry.id: entry for entry in catalogue.ours().names.values()}
    names = {
        entry.id: [entry.id, entry.code or entry.id, *catalogue.code_names(entry.code)] for entry in entries.values()
    }
    words = {name: entry_id for entry_id, found in names.items() for name in found if "exit status" not in name}
    asked = {"SIGTERM", "SIGINT"}  # explained in another way

    assert [] == [word for word in words if not explain.is_code(word)]
    assert [] == [
        word
        for word, entry_id in words.items()
        if word.upper() not in asked and entries[entry_id].means not in getattr(explain.look_up(word), "meaning", "")
    ]
    assert len(words) > 1000


def test_several_codes(tool: Tool) -> None:
    """Each is explained; with --json, as a list."""
    status, text = tool("explain", "EI0006", "EQ0001", "-9")

    assert 1 == status
    assert ["EI0006", "-9"] == [line.split(" ")[0].rstrip(":") for line in text.splitlines() if line[0] in "E-"]
    assert ["EI0006", "-9 (SIGKILL)"] == [
        one["code"] for one in json.loads(tool("explain", "--json", "EI0006", "-9")[1])
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("EI0006", "train.lgo"), "'train.lgo' is neither a file nor an error code"),
        (("EI0006", "train.log"), "'EI0006' is an error code, and 'train.log' a log: explain them separately"),
        (("train.log", "EI0006"), "'EI0006' is an error code, and 'train.log' a log: explain them separately"),
        (("-", "EI0006"), "'EI0006' is an error code, and '-' a log: explain them separately"),
        (("train.log", "EI0006", "nothing"), "'nothing' is neither a file nor an error code"),
    ],
)
def test_codes_and_logs(
    words: tuple[str, ...], sentence: str, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word that is wrong is named, not the first one."""
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text("step 1\n")

    assert (2, f"ascend-job: {sentence}\n") == tool("explain", *words)


def test_a_file_with_the_name_of_a_code(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word in the form of a code is one; with a directory before it, it is a file."""
    monkeypatch.chdir(tmp_path)
    Path("137").write_text("step 1\n")
    Path("ei0006").write_text("step 1\n")

    assert "SIGKILL" in tool("explain", "137")[1]
    assert (1, "no known cause in ./137\n") == tool("explain", "./137")
    assert (1, "no known cause in ei0006\n") == tool("explain", "ei0006")


def test_directories_with_the_names_of_codes(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In torchrun's `attempt_0`, `ascend-job explain *` is about the ranks, not about exit statuses."""
    monkeypatch.chdir(tmp_path)
    for rank in ("0", "1"):
        Path(rank).mkdir()
        Path(rank, "stderr.log").write_text("step 1\n")

    assert (1, "no known cause in 2 logs\n") == tool("explain", "0", "1")
    assert "SIGKILL" in tool("explain", "137")[1]
