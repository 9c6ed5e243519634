"""The library: launch, prepare, current_rank, from a program that uses them as README says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import ascend_runner
from ascend_runner import library
from ascend_runner.errors import CommandError, JobFailedError, NotARankError, RankTableNotReadyError, SettingsError
from ascend_runner.job.settings import OPTIONS
from ascend_runner.supervision.events import Ending
from ascend_runner.supervision.outcome import RankFailed
from tests.conftest import ACTOR, CLEAN, LIMIT

README = Path(__file__).parents[1] / "README.md"
VALID = Path(__file__).parents[1] / "fixtures" / "valid"


def test_launch_gives_the_outcome_of_each_rank(tmp_path: Path) -> None:
    """What became of each rank, its log and its last lines come back."""
    outcome = ascend_runner.launch([*ACTOR, "say=hello"], environ=CLEAN, nproc_per_node=2, log_dir=tmp_path)

    assert outcome.status == 0
    assert [(0, Ending(), ("hello",)), (1, Ending(), ("hello",))] == [
        (rank.rank_id, rank.ending, rank.last_lines) for rank in outcome.ranks
    ]
    assert [b"hello\n"] * 2 == [Path(rank.log_path).read_bytes() for rank in outcome.ranks]
    outcome.check()


def test_check_raises_with_the_cause(tmp_path: Path) -> None:
    """A failed job is data until somebody asks for an exception, which then carries cause and status."""
    outcome = ascend_runner.launch([*ACTOR, "1:exit=7", "sleep"], environ=CLEAN, nproc_per_node=2, log_dir=tmp_path)

    assert RankFailed(1, Ending(exit_code=7)) == outcome.cause
    with pytest.raises(JobFailedError, match=r"^rank 1 failed first: exit status 7$") as caught:
        outcome.check()
    assert caught.value.exit_status == 7


def test_failure_of_the_runner_is_an_exception_of_its_class(tmp_path: Path) -> None:
    """What the command line says as one sentence and a status, the library raises."""
    with pytest.raises(CommandError, match=r"^there is no command 'no-such-program' in any folder of PATH$") as caught:
        ascend_runner.launch(["no-such-program"], environ=CLEAN, nproc_per_node=1, log_dir=tmp_path)
    assert caught.value.exit_status == 127

    with pytest.raises(SettingsError, match=r"^--grace is '-1\.0', expected a number of seconds, 0 or more$"):
        ascend_runner.launch(["true"], environ=CLEAN, nproc_per_node=1, grace=-1.0)


def test_unknown_option_is_a_type_error() -> None:
    """A misspelt option is refused before anything happens, with the names there are."""
    with pytest.raises(TypeError, match=r"^launch\(\) has no option 'nproc', expected one of rank_table, "):
        ascend_runner.launch(["true"], nproc=1)  # type: ignore[call-arg]  # what is tested


def test_launch_in_a_thread_leaves_the_programs_signals_alone(tmp_path: Path) -> None:
    """No handler is changed, and a thread that is not the main one may launch."""
    handlers = [signal.getsignal(signum) for signum in signal.valid_signals()]
    statuses: list[int] = []

    def launch() -> None:
        outcome = ascend_runner.launch([*ACTOR, "exit=3"], environ=CLEAN, nproc_per_node=1, log_dir=tmp_path)
        statuses.append(outcome.status)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join(LIMIT)

    assert [3] == statuses
    assert handlers == [signal.getsignal(signum) for signum in signal.valid_signals()]


LAUNCHING = """
    import sys, ascend_runner
    try:
        ascend_runner.launch(sys.argv[2:], nproc_per_node=2, log_dir=sys.argv[1], grace=5.0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def start_launching(tmp_path: Path) -> subprocess.Popen[str]:
    """Start a program that launches two sleeping ranks, and wait until these are ready."""
    popen = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(LAUNCHING),
            str(tmp_path),
            *ACTOR,
            "answer=TERM:saved:0",
            "say=ready",
            "sleep",
        ],
        env=CLEAN,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert popen.stdout
    assert {"[rank 0] ready\n", "[rank 1] ready\n"} == {popen.stdout.readline(), popen.stdout.readline()}
    return popen


def test_keyboard_interrupt_tears_the_job_down_and_goes_on(tmp_path: Path) -> None:
    """Ranks get SIGTERM and their grace; then the program sees its KeyboardInterrupt."""
    with start_launching(tmp_path) as popen:
        popen.send_signal(signal.SIGINT)
        output, _ = popen.communicate(timeout=LIMIT)

    assert sorted(["[rank 0] saved", "[rank 1] saved", "interrupted"]) == sorted(output.splitlines())
    assert output.endswith("interrupted\n")


def test_death_of_the_launching_program_tears_the_job_down(tmp_path: Path) -> None:
    """Nobody waits for the outcome any more, so no rank may hold a device."""
    with start_launching(tmp_path) as popen:
        popen.kill()
        output, _ = popen.communicate(timeout=LIMIT)  # returns when the last holder of the pipe is gone

    assert ["[rank 0] saved", "[rank 1] saved"] == sorted(output.splitlines())
    os.wait()  # the guardian has come home as an orphan of the test


def test_prepare_converts_and_points_to_the_result(tmp_path: Path) -> None:
    """RANK_TABLE_FILE and RANK_SIZE of the given environment say what frameworks read."""
    environ = {"MA_MOUNT_PATH": str(tmp_path), "RANK_TABLE_FILE": str(VALID / "group_list_8_devices.json")}
    table = ascend_runner.prepare(environ=environ)

    assert table.rank_size == 8
    assert {
        "MA_MOUNT_PATH": str(tmp_path),
        "RANK_TABLE_FILE": f"{tmp_path}/rank_table/jobstart_hccl.json",
        "RANK_SIZE": "8",
    } == environ
    converted = ascend_runner.rank_table.read(environ["RANK_TABLE_FILE"])
    assert [device.device_ip for device in table.devices] == [device.device_ip for device in converted.devices]


def test_prepare_says_why_a_table_does_not_come(tmp_path: Path) -> None:
    """The limit passes, and the reason is in the sentence."""
    with pytest.raises(RankTableNotReadyError, match="it does not exist"):
        ascend_runner.prepare(tmp_path / "no.json", timeout=0.0, environ={})


def test_current_rank_reads_what_a_rank_was_given() -> None:
    """Numbers as numbers, and the table where there is one."""
    path = str(VALID / "server_list_8_devices.json")
    environ = {"RANK_ID": "5", "LOCAL_RANK": "1", "RANK_SIZE": "8", "DEVICE_ID": "1", "RANK_TABLE_FILE": path}
    rank = ascend_runner.current_rank(environ)

    assert (5, 1, 8, 1) == (rank.rank_id, rank.local_rank, rank.rank_size, rank.device_index)
    assert rank.table == ascend_runner.rank_table.read(path)


def test_current_rank_without_torchs_variables() -> None:
    """MindSpore's ranks have no LOCAL_RANK: it is the number of their device."""
    rank = ascend_runner.current_rank({"RANK_ID": "5", "RANK_SIZE": "8", "DEVICE_ID": "1"})

    assert (5, 1, 1, None) == (rank.rank_id, rank.local_rank, rank.device_index, rank.table)


def test_platform_gives_paths() -> None:
    """What variables name, as Paths, with the names of datasets as they are."""
    environ = {"DATASET_MAP": '{"道路": "/data/0"}', "RESULT": "/result", "DATASET": "/data"}
    found = ascend_runner.platform(environ)

    assert (Path("/data"), {"道路": Path("/data/0")}, Path("/result")) == (found.dataset, found.datasets, found.result)


def test_platform_with_a_bad_map_is_one_error() -> None:
    """The sentence says what the variable is, and what was expected."""
    with pytest.raises(
        SettingsError, match=r"^DATASET_MAP is '\{key1: value1\}', expected \{\"name\": \"path\", ...\} as"
    ):
        ascend_runner.platform({"DATASET_MAP": "{key1: value1}"})


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({}, "this process is no rank: RANK_ID is expected to be a whole number, and it is not set"),
        ({"RANK_ID": "x"}, "this process is no rank: RANK_ID is expected to be a whole number, and it is 'x'"),
    ],
)
def test_current_rank_outside_of_a_rank_is_an_error(environ: dict[str, str], sentence: str) -> None:
    """The sentence names the variable."""
    with pytest.raises(NotARankError) as caught:
        ascend_runner.current_rank(environ)

    assert sentence == str(caught.value)


def test_options_are_those_of_the_command_line() -> None:
    """What type checkers are told is what there is."""
    assert {option.name for option in OPTIONS} == library.Options.__annotations__.keys()


@pytest.mark.parametrize("number", range(5))
def test_example_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    """Each stands by itself, and works as it stands."""
    examples = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    example = examples[number].replace("/user/config/jobstart_hccl.json", str(VALID / "group_list_8_devices.json"))
    (tmp_path / "train.py").write_text("print('trained')\n")
    done = run_example(example, tmp_path)

    assert (5, 0, "") == (len(examples), done.returncode, "" if done.returncode == 0 else done.stderr)


@pytest.mark.parametrize(
    "function", [ascend_runner.launch, ascend_runner.prepare, ascend_runner.current_rank, ascend_runner.platform]
)
def test_example_of_the_docstring_runs(function: object, tmp_path: Path) -> None:
    """Each public function is documented with an example, and the example works as it stands."""
    assert function.__doc__
    lines = textwrap.dedent("\n".join(function.__doc__.split("\n")[1:])).split("\n")
    example = "\n".join(line[4:] for line in lines if line.startswith("    "))
    done = run_example(example, tmp_path)

    assert "import ascend_runner" in example
    assert (0, "") == (done.returncode, "" if done.returncode == 0 else done.stderr)


def run_example(example: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a documented example in a folder, as if it were a rank's."""
    rank = {"RANK_ID": "0", "LOCAL_RANK": "0", "RANK_SIZE": "8", "DEVICE_ID": "0", "ASCEND_RUNNER_WORKDIR": "inherit"}
    rank["MA_MOUNT_PATH"] = str(folder)
    (folder / "log").mkdir()  # the platform's; without it logs go to /tmp/log, which may be somebody else's
    # The examples call "python", which Debian has in a virtual environment only.
    path = os.pathsep.join([os.path.dirname(sys.executable), CLEAN.get("PATH", os.defpath)])
    environ = {**CLEAN, **rank, "PATH": path, "RANK_TABLE_FILE": str(VALID / "server_list_8_devices.json")}
    return subprocess.run(
        [sys.executable, "-c", example],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
