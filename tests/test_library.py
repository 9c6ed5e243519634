"""The functions for programs, used as the documentation shows them."""

from __future__ import annotations

import inspect
import json
import os
import pydoc
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
from ascend_runner.errors import (
    CommandError,
    JobFailedError,
    NotARankError,
    RankTableError,
    RankTableNotReadyError,
    SettingsError,
)
from ascend_runner.supervision.causes import CAUSES, Ending, Exited
from tests.helpers.program import ACTOR, run_to_end
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT

ROOT = Path(__file__).parents[1]
VALID = ROOT / "fixtures" / "valid"
EXAMPLES = [
    example
    for readme in (ROOT / "README.md", *sorted((ROOT / "ascend_runner").rglob("README.md")))
    for example in re.findall(r"^```python\n(.*?)^```$", readme.read_text("utf-8"), re.DOTALL | re.MULTILINE)
]


def test_launch_gives_the_outcome_of_each_rank(tmp_path: Path) -> None:
    """The outcome contains how each rank ended, its log and its last lines."""
    outcome = ascend_runner.launch([*ACTOR, "say=hello"], environ=CLEAN, nproc_per_node=2, log_dir=tmp_path)

    assert 0 == outcome.status
    assert [(0, Ending(), ("hello",)), (1, Ending(), ("hello",))] == [
        (rank.rank_id, rank.ending, rank.last_lines) for rank in outcome.ranks
    ]
    assert [b"hello\n"] * 2 == [Path(rank.log_path).read_bytes() for rank in outcome.ranks]
    outcome.check()


def test_check_raises_with_the_cause(tmp_path: Path) -> None:
    """A failed job raises an exception only in `check()`, with the cause and the exit status."""
    outcome = ascend_runner.launch([*ACTOR, "1:exit=7", "sleep"], environ=CLEAN, nproc_per_node=2, log_dir=tmp_path)

    assert Exited(1, Ending(exit_code=7)) == outcome.cause
    with pytest.raises(JobFailedError, match=r"^rank 1 failed: exit status 7$") as caught:
        outcome.check()
    assert 7 == caught.value.exit_status


CATCHES = r"""
import ascend_runner, sys
script = "import os\nif os.environ['RANK'] == '1': raise ValueError('loss is nan at step 17')\nopen('/dev/null')"
outcome = ascend_runner.launch([sys.executable, "-c", script], nproc_per_node=2, log_dir="log", quiet=True)
try:
    outcome.check()
except ascend_runner.JobFailedError as error:
    print("error:", error, error.exit_status)
print("cause:", outcome.cause)
print("outcome:", outcome)
"""


def test_program_that_catches_a_failed_job(tmp_path: Path) -> None:
    """It reads what the rank has raised in the exception and in the cause; `print(outcome)` is one line."""
    words = [sys.executable, "-c", CATCHES]
    shown = subprocess.run(words, cwd=tmp_path, env=CLEAN, stdout=-1, text=True, check=True, timeout=LIMIT).stdout
    sentence = "rank 1 failed: ValueError: loss is nan at step 17 (exit status 1)"
    lines = [line for line in shown.splitlines() if not line.startswith("[rank 1] ")]

    assert [f"error: {sentence} 1", f"cause: {sentence}"] == lines[:2]
    assert [f"outcome: {sentence}; the job took "] == [re.sub(r"[\d.]+ (ms|s)$", "", line) for line in lines[2:]]


def test_failure_of_the_runner_is_an_exception_of_its_class(tmp_path: Path) -> None:
    """An error of the runner is raised with the class, the text and the status that the command line reports."""
    with pytest.raises(CommandError, match=r"^command not found: 'no-such-program'$") as caught:
        ascend_runner.launch(["no-such-program"], environ=CLEAN, nproc_per_node=1, log_dir=tmp_path)
    assert 127 == caught.value.exit_status

    with pytest.raises(SettingsError, match=r"^invalid value '-1\.0' for grace: expected a number of seconds"):
        ascend_runner.launch(["true"], environ=CLEAN, nproc_per_node=1, grace=-1.0)


def test_error_names_parameters(tmp_path: Path) -> None:
    """The error of `launch()` without a number of ranks names its parameters, which it has instead of options."""
    environ = {"PATH": os.environ["PATH"]}
    with pytest.raises(RankTableError) as caught:
        ascend_runner.launch(["true"], environ=environ, cwd=tmp_path)

    assert "--" not in str(caught.value)
    assert "nproc_per_node=N" in str(caught.value)


def test_unknown_option_is_a_type_error() -> None:
    """An unknown option is refused before anything is started, and the error lists all options."""
    with pytest.raises(TypeError, match=r"^unknown option 'nproc', expected one of rank_table, "):
        ascend_runner.launch(["true"], nproc=1)  # type: ignore[call-arg]  # what is tested


def test_plan_is_what_a_dry_run_prints(tmp_path: Path) -> None:
    """`plan` returns the plan and starts nothing; a job that cannot be planned is an exception."""
    options = ["--nproc-per-node", "2", "--log-dir", str(tmp_path / "log")]
    printed = run_to_end("--dry-run", *options, sys.executable, "-c", "1", env={"A": "b"}).stdout
    command = [sys.executable, "-c", "1"]
    plan = library.plan(command, environ={**CLEAN, "A": "b"}, nproc_per_node=2, log_dir=tmp_path / "log")

    assert json.loads(printed) == plan
    assert [] == [*tmp_path.iterdir()]
    with pytest.raises(CommandError):
        library.plan(["no-such-program"], environ=CLEAN, nproc_per_node=1)


def test_check_is_what_a_check_prints(tmp_path: Path) -> None:
    """`check` returns all findings; errors among them are no exception, but one of the settings is."""
    found = library.check(["no-such-program"], environ=CLEAN, nproc_per_node=1, log_dir=tmp_path / "log")
    errors = [finding["subject"] for finding in found["checks"] if finding["verdict"] == "error"]

    assert ("error", os.uname().nodename) == (found["verdict"], found["host"])
    assert "command" in errors
    assert "this node" in [finding["subject"] for finding in library.check(environ=CLEAN, nproc_per_node=1)["checks"]]
    with pytest.raises(SettingsError):
        library.check(environ=CLEAN, grace=-1.0)


USER_PROGRAM = """
import ascend_runner

def rank_of_failure(outcome: ascend_runner.Outcome) -> int:
    cause = outcome.cause
    if isinstance(cause, ascend_runner.Exited):
        return cause.rank_id + cause.ending.exit_code
    if isinstance(cause, ascend_runner.SpawnFailed):
        return cause.rank_id
    if isinstance(cause, ascend_runner.SignalReceived):
        return cause.signum
    return 0 if cause is None else cause.exit_status

print(rank_of_failure(ascend_runner.launch(["true"], nproc_per_node=1)))
for rank in ascend_runner.plan(["true"], nproc_per_node=1)["ranks"]:
    print(rank["rank_id"])
print(ascend_runner.check()["verdict"], ascend_runner.rank_table.read("hccl.json").rank_size)
"""


@pytest.mark.deep
def test_program_of_a_user_passes_a_type_checker(tmp_path: Path) -> None:
    """The public names have types: the cause has its fields after isinstance()."""
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(USER_PROGRAM)
    shown, failed, status = api.run(["--strict", f"--cache-dir={tmp_path}", str(program)])

    assert (0, "") == (status, failed), shown


PUBLIC = """
import pydoc, sys, ascend_runner
documents = [pydoc.render_doc(ascend_runner), pydoc.render_doc(ascend_runner.rank_table)]
for name in sys.argv[1:]:
    documents.append(pydoc.render_doc(getattr(ascend_runner, name)))
print(*documents)
print(all(map(callable, (ascend_runner.launch, ascend_runner.plan, ascend_runner.check))))
"""


def test_help_shows_no_variable() -> None:
    """help() of the package and its public names contains no value of the environment; all functions are callable."""
    command = [sys.executable, "-c", PUBLIC, *ascend_runner.__all__]
    env = {**CLEAN, "HF_TOKEN": "a-secret-value"}
    shown = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT)

    assert "a-secret-value" not in shown.stdout
    assert shown.stdout.endswith("True\n")


@pytest.mark.parametrize("record", [ascend_runner.Outcome, ascend_runner.rank_table.RankTable])
def test_help_of_a_record_begins_with_its_description(record: type) -> None:
    """The fields of a record, with their types and defaults, are no wall before it."""
    shown = [line.rstrip() for line in pydoc.plain(pydoc.render_doc(record)).splitlines()]

    assert [f" |  {record.__name__}(**fields)", " |", f" |  {str(record.__doc__).splitlines()[0]}"] == shown[3:6]
    assert 125 > max(map(len, shown))


def test_dir_shows_public_names() -> None:
    """dir() lists what the documentation names, in the package and in `rank_table`."""
    assert {"launch", "check", "plan", "rank_table", "Exited"} <= {*dir(ascend_runner)}
    assert {"read", "wait", "convert", "check"} <= {*dir(ascend_runner.rank_table)}
    assert all(hasattr(ascend_runner.rank_table, name) for name in dir(ascend_runner.rank_table))


def test_every_cause_is_public() -> None:
    """A program can tell the causes of `Outcome.cause` apart by names of the package."""
    public = {getattr(ascend_runner, name) for name in ascend_runner.__all__}

    assert {*CAUSES} <= public


def test_packages_never_replace_functions(tmp_path: Path) -> None:
    """`check` and `plan` stay functions, although packages of these names are imported afterwards."""
    imports = "import ascend_runner; ascend_runner.plan; import ascend_runner.job.check, ascend_runner.plan.spec"
    code = f"{imports}; print(ascend_runner.plan, ascend_runner.check)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout

    assert 2 == shown.count("<function ")


def test_launch_in_a_thread_leaves_the_programs_signals_alone(tmp_path: Path) -> None:
    """Signal handlers stay unchanged, and any thread may launch."""
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
    """Start a program that launches two ranks, and wait until these are ready."""
    popen = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(LAUNCHING),
            str(tmp_path),
            *ACTOR,
            "answer=INT:saved:0",
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


@pytest.mark.deep
def test_keyboard_interrupt_tears_the_job_down_and_goes_on(tmp_path: Path) -> None:
    """The ranks are stopped within the grace before the KeyboardInterrupt propagates."""
    with start_launching(tmp_path) as popen:
        popen.send_signal(signal.SIGINT)
        output, _ = popen.communicate(timeout=LIMIT)

    assert sorted(["[rank 0] saved", "[rank 1] saved", "interrupted"]) == sorted(output.splitlines())
    assert output.endswith("interrupted\n")


def test_death_of_the_launching_program_tears_the_job_down(tmp_path: Path) -> None:
    """If the launching program is killed, the job is stopped: no rank may keep its device."""
    with start_launching(tmp_path) as popen:
        popen.kill()
        output, _ = popen.communicate(timeout=LIMIT)  # returns when the last holder of the pipe is gone

    assert ["[rank 0] saved", "[rank 1] saved"] == sorted(output.splitlines())
    os.wait()  # the guardian, now an orphan adopted by the test


def test_prepare_converts_and_points_to_the_result(tmp_path: Path) -> None:
    """RANK_TABLE_FILE and RANK_SIZE are set to the converted table."""
    environ = {"MA_MOUNT_PATH": str(tmp_path), "RANK_TABLE_FILE": str(VALID / "group_list_8_devices.json")}
    table = ascend_runner.prepare(environ=environ)

    assert 8 == table.rank_size
    assert {
        "MA_MOUNT_PATH": str(tmp_path),
        "RANK_TABLE_FILE": f"{tmp_path}/rank_table/jobstart_hccl.json",
        "RANK_SIZE": "8",
    } == environ
    converted = ascend_runner.rank_table.read(environ["RANK_TABLE_FILE"])
    assert [device.device_ip for device in table.devices] == [device.device_ip for device in converted.devices]


def test_prepare_warns_at_the_line_of_its_caller(tmp_path: Path) -> None:
    """If another table is in use at the documented path, the warning shows the line of the program that calls."""
    environ = {"MA_MOUNT_PATH": str(tmp_path), "BATCH_TASK_LOG_PATH": str(tmp_path), "MA_VJ_NAME": "job"}
    ascend_runner.prepare(VALID / "server_list_8_devices.json", environ=environ)
    with pytest.warns(UserWarning, match="^another job is using the rank table ") as caught:
        ascend_runner.prepare(VALID / "group_list_1_device.json", environ=environ)

    assert [__file__] == [warning.filename for warning in caught]


def test_prepare_reports_why_the_table_is_missing(tmp_path: Path) -> None:
    """After the timeout, the error contains the reason."""
    with pytest.raises(RankTableNotReadyError, match="it does not exist"):
        ascend_runner.prepare(tmp_path / "no.json", timeout=0.0, environ={})


def test_prepare_without_a_table() -> None:
    """The advice is what a program can do, not an option of the command line."""
    with pytest.raises(RankTableError, match=r"; pass the path of one to prepare\(\)$") as caught:
        ascend_runner.prepare(environ={})

    assert "--" not in str(caught.value)


def test_current_rank_reads_what_a_rank_was_given() -> None:
    """The variables of a rank are returned as numbers, with its rank table."""
    path = str(VALID / "server_list_8_devices.json")
    environ = {"RANK_ID": "5", "LOCAL_RANK": "1", "RANK_SIZE": "8", "DEVICE_ID": "1", "RANK_TABLE_FILE": path}
    rank = ascend_runner.current_rank(environ)

    assert (5, 1, 8, 1) == (rank.rank_id, rank.local_rank, rank.rank_size, rank.device_index)
    assert rank.table == ascend_runner.rank_table.read(path)


def test_current_rank_without_torchs_variables() -> None:
    """Without LOCAL_RANK, as with MindSpore, the local rank is the device index."""
    rank = ascend_runner.current_rank({"RANK_ID": "5", "RANK_SIZE": "8", "DEVICE_ID": "1"})

    assert (5, 1, 1, None) == (rank.rank_id, rank.local_rank, rank.device_index, rank.table)


def test_platform_gives_paths() -> None:
    """Directories are returned as paths, datasets by their names."""
    environ = {"DATASET_MAP": '{"道路": "/data/0"}', "RESULT": "/result", "DATASET": "/data"}
    found = ascend_runner.platform(environ)

    assert (Path("/data"), {"道路": Path("/data/0")}, Path("/result")) == (found.dataset, found.datasets, found.result)


def test_platform_with_a_bad_map(tmp_path: Path) -> None:
    """A malformed DATASET_MAP is a warning that names it, and hides nothing else."""
    for folder in ("dataset-0", "dataset-1", ".trash"):
        (tmp_path / folder).mkdir()
    (tmp_path / "README").touch()
    environ = {"DATASET_MAP": "{key1: value1}", "DATASET": str(tmp_path), "RESULT": "/result", "MODEL": "/model"}
    with pytest.warns(UserWarning, match=r"^invalid value .* for DATASET_MAP: "):
        found = ascend_runner.platform(environ)

    assert (Path("/result"), Path("/model"), {}) == (found.result, found.model, found.models)
    assert {name: tmp_path / name for name in ("dataset-0", "dataset-1")} == found.datasets


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({}, "this process is not a rank: RANK_ID is not set, expected a whole number"),
        ({"RANK_ID": "x"}, "this process is not a rank: RANK_ID is 'x', expected a whole number"),
    ],
)
def test_current_rank_outside_of_a_rank_is_an_error(environ: dict[str, str], sentence: str) -> None:
    """The error names the variable that is missing or invalid."""
    with pytest.raises(NotARankError) as caught:
        ascend_runner.current_rank(environ)

    assert sentence == str(caught.value)


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_a_readme_runs(example: str, tmp_path: Path) -> None:
    """Each Python example in a README is complete and works as it is."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    table = str(VALID / "group_list_8_devices.json")
    done = run_example(example.replace("/user/config/jobstart_hccl.json", table), tmp_path)

    assert (0, "") == (done.returncode, "" if done.returncode == 0 else done.stderr)


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    "function", [ascend_runner.launch, ascend_runner.prepare, ascend_runner.current_rank, ascend_runner.platform]
)
def test_example_of_the_docstring_runs(function: object, tmp_path: Path) -> None:
    """Each public function is documented with an example that works as it is."""
    text = inspect.getdoc(function) or ""
    lines = text.partition("\nRaises:")[0].split("\n")
    example = "\n".join(line[4:] for line in lines if line.startswith("    "))
    done = run_example(example, tmp_path)

    assert "import ascend_runner" in example
    assert (0, "") == (done.returncode, "" if done.returncode == 0 else done.stderr)


def run_example(example: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example in a directory, with the variables of a rank."""
    rank = {"RANK_ID": "0", "LOCAL_RANK": "0", "RANK_SIZE": "8", "DEVICE_ID": "0", "ASCEND_RUNNER_WORKDIR": "inherit"}
    rank["MA_MOUNT_PATH"] = str(folder)
    (folder / "log").mkdir()  # otherwise logs go to /tmp/log, which may belong to another user
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
