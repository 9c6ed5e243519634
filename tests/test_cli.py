"""The command line as a program: its arguments, its output, and the exit status of each of its errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

import ascend_runner
from ascend_runner.node import cores
from ascend_runner.node.host import Host
from ascend_runner.settings.command_line import help_text
from ascend_runner.settings.options import Topic
from tests.helpers.program import run_here, run_to_end, sentence
from tests.helpers.site_catalogue import LICENCE
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT

ROOT = Path(__file__).parents[1]
ONE_RANK = ("--nproc-per-node", "1")


def plan_of(*args: str | bytes, env: dict[str, str] | None = None, cwd: Path | None = None) -> dict[str, Any]:
    """Return the plan that `--dry-run` prints for these arguments."""
    ended = run_here("--dry-run", *args, env=env, cwd=cwd)
    assert 0 == ended.returncode, ended.stderr
    plan: dict[str, Any] = json.loads(ended.stdout)
    return plan


def error_of(*args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> tuple[int, str]:
    """Return the status and the only message of a run that fails before it starts anything."""
    ended = run_here(*args, env=env, cwd=cwd)
    assert "" == ended.stdout
    # Another job on this machine may hold the default port, which is announced.
    (line,) = (line for line in ended.stderr.splitlines() if " is in use; using port " not in line)
    return ended.returncode, sentence(line)


# --- Options ----------------------------------------------------------------------------------------------------------


def test_help_goes_to_standard_output() -> None:
    """--help succeeds without a command, and its text does not depend on the terminal."""
    narrow = run_to_end("--help", env={"COLUMNS": "40"})

    assert (0, "", help_text()) == (narrow.returncode, narrow.stderr, narrow.stdout)
    assert help_text(Topic.NODES.word) == run_to_end("--help", "nodes", env={"COLUMNS": "200"}).stdout


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_full_disk_under_a_check(words: tuple[str, ...], tmp_path: Path) -> None:
    """A check whose results cannot be written has failed."""
    command = [sys.executable, "-m", "ascend_runner", "--log-dir", str(tmp_path), "--check", *words]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*command, *ONE_RANK, "true"], env=CLEAN, stdout=full, stderr=subprocess.PIPE, timeout=LIMIT, check=False
        )

    assert 125 == ended.returncode
    assert b" WARNING cannot write to standard output: no space left on device;" in ended.stderr


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("words", [("--help",), (*ONE_RANK, "--dry-run", "true")])
def test_full_disk_under_what_is_printed(words: tuple[str, ...], tmp_path: Path) -> None:
    """Output that cannot be written is an error; a reader that closes the pipe is not."""
    words = (sys.executable, "-m", "ascend_runner", "--log-dir", "log", *words)
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            words, env=CLEAN, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False
        )
    assert (125, "ERROR cannot write to standard output: no space left on device") == (
        ended.returncode,
        sentence(ended.stderr.strip()),
    )

    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        assert 0 == subprocess.run(words, env=CLEAN, cwd=tmp_path, stdout=closed, timeout=LIMIT, check=False).returncode


def test_version() -> None:
    """--version prints only the version, with `python -m ascend_runner` and with the script."""
    script = subprocess.run(
        [str(Path(sys.executable).parent / "ascend-runner"), "--version"],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )

    assert f"{ascend_runner.__version__}\n" == run_to_end("--version").stdout == script.stdout


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["true"], ["true"]),
        (["true", "--grace", "x", "--help"], ["true", "--grace", "x", "--help"]),
        (["true", "--", "-x"], ["true", "--", "-x"]),
        (["--", "true", "--quiet"], ["true", "--quiet"]),
        (["--", "true", "--", "x"], ["true", "--", "x"]),
        (["--quiet", "--", "true"], ["true"]),
        (["--quiet", "true", "--verbose"], ["true", "--verbose"]),
        (["--grace=3", "true"], ["true"]),
        (["--grace", "3", "--timestamps", "true", "-c", "--timestamps"], ["true", "-c", "--timestamps"]),
        (["--grace", "3", "--", "true", "-c"], ["true", "-c"]),
        (["true", "", " ", "a b", "*", "$HOME"], ["true", "", " ", "a b", "*", "$HOME"]),
        (["true", "-1", "--nproc-per-node=9"], ["true", "-1", "--nproc-per-node=9"]),
    ],
)
def test_options_stop_at_the_first_non_option_argument(words: list[str], command: list[str]) -> None:
    """All that follows the first non-option argument, or `--`, reaches the command unchanged."""
    (rank,) = plan_of(*ONE_RANK, *words)["ranks"]

    assert command == rank["argv"]


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("words", [[], ["--"], ["--quiet"]])
def test_missing_command(words: list[str]) -> None:
    """Without a command, nothing can be run."""
    expected = "ERROR no command given (usage: ascend-runner [OPTIONS] COMMAND [ARG ...])"

    assert (125, expected) == error_of(*words)


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--nproc", "8", "true"], "--nproc"),
        (["-v", "true"], "-v"),
        (["--grace"], "--grace"),
        (["--grace", "--", "true"], "--grace"),
        (["--grace", "-1", "true"], "--grace"),
        (["--quiet=1", "true"], "--quiet"),
        (["--quiet", "--verbose", "true"], "--verbose"),
        (["--console", "first", "true"], "--console"),
    ],
)
def test_usage_error_is_one_sentence_and_125(words: list[str], named: str) -> None:
    """A usage error is one line on stderr that names the option, and nothing is started."""
    status, line = error_of(*words)

    assert (125, True) == (status, named in line.replace(":", " ").split())


def test_invalid_variable_is_one_sentence_and_125() -> None:
    """The error names the variable, because the user has not given the option."""
    status, line = error_of("true", env={"ASCEND_RUNNER_GRACE": "long"})

    assert (125, True) == (status, " for ASCEND_RUNNER_GRACE: " in line)


# --- The plan ---------------------------------------------------------------------------------------------------------


def test_dry_run_prints_the_plan_and_touches_nothing(tmp_path: Path) -> None:
    """The plan is JSON on stdout with all that would be started, and no directory is created."""
    plan = plan_of(
        "--nproc-per-node", "2", "--log-dir", "log", "/bin/echo", "ä", cwd=tmp_path, env={"MA_VJ_NAME": "ma-job-1"}
    )
    ranks = plan.pop("ranks")
    variables = ranks[1].pop("variables")

    assert {
        "job_id": "modelarts-job-1",
        "rank_size": 2,
        "server_id": os.uname().nodename,
        "pod_name": "",
        "rank_table": None,
        "beside": [],
        "stages": [],
        "hooks": [],
        "host_files": [],
        "secrets_masked": 0,
    } == plan
    assert {
        "rank_id": 1,
        "local_rank": 1,
        "executable": "/bin/echo",
        "argv": ["/bin/echo", "ä"],
        "unset": [],
        "cwd": str(tmp_path),
        "log": f"{tmp_path}/log/modelarts-job-1-proc-rank-1-device-1.txt",
    } == ranks[1]
    assert {
        "ASCEND_DEVICE_ID": "1",
        "ASCEND_PROCESS_LOG_PATH": f"{tmp_path}/log/modelarts-job-1/ascend/process_log/rank_1",
        "DEVICE_ID": "1",
        "HCCL_CONNECT_TIMEOUT": "1800",
        "PYTHONUNBUFFERED": "1",
        "ASCEND_RUNNER_ATTEMPT": "0",
        "JOB_ID": "modelarts-job-1",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "NODE_RANK": "0",
        "OMP_NUM_THREADS": str(max(1, cores.available(Host()) // 2)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "RANK": "1",
        "RANK_ID": "1",
        "RANK_SIZE": "2",
        "WORLD_SIZE": "2",
    } == variables
    assert [] == list(tmp_path.iterdir())


def test_dry_run_lists_unset_variables() -> None:
    """The plan lists the variables that are removed from the environment of a rank."""
    (rank,) = plan_of(*ONE_RANK, "true", env={"RANK_TABLE_FILE": "/user/config"})["ranks"]

    assert ["RANK_TABLE_FILE"] == rank["unset"]


def test_undecodable_arguments_are_planned_and_run(tmp_path: Path) -> None:
    """Arguments that are not UTF-8 reach the command unchanged; the plan has them as JSON escapes."""
    (rank,) = plan_of(*ONE_RANK, "echo", b"a\xffb", cwd=tmp_path)["ranks"]
    subprocess.run(
        [sys.executable, "-m", "ascend_runner", *ONE_RANK, "--log-dir", "log", "echo", b"a\xffb"],
        env={**CLEAN, "MA_VJ_NAME": "job"},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )

    assert ["echo", "a\udcffb"] == rank["argv"]
    assert b"a\xffb\n" == (tmp_path / "log" / "job-proc-rank-0-device-0.txt").read_bytes()


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Return a directory of files that cannot be executed, each for another reason."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "no-permission").write_text("#!/bin/sh\n")
    for name, text in (("no-format", "no program\n"), ("no-interpreter", "#!/missing/interpreter\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("table", [ONE_RANK, ("--rank-table", "missing.json")], ids=["no-table", "table-to-come"])
def test_missing_command_is_127_before_anything_is_waited_for(
    table: tuple[str, ...], tmp_path: Path, commands: Path
) -> None:
    """A typing error in the command is reported before the runner waits for a rank table."""
    expected = "ERROR command not found: 'no-such-program'"

    assert (127, expected) == error_of(*table, "no-such-program", cwd=commands)
    assert (127, f"ERROR command not found: '{tmp_path}/missing'") == error_of(
        *table, f"{tmp_path}/missing", cwd=commands
    )


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("missing", 127, "command not found: './missing' in {}"),
        ("folder", 126, "permission denied: '{}/./folder' is a directory"),
        ("no-permission", 126, "permission denied: '{}/./no-permission' is not executable"),
    ],
)
def test_relative_command_that_cannot_be_run(name: str, status: int, expected: str, commands: Path) -> None:
    """A command that is not executable is 126 and one that is not found 127; nothing is created."""
    before = set(commands.rglob("*"))

    assert (status, f"ERROR {expected.format(commands)}") == error_of(
        *ONE_RANK, "--log-dir", "log", f"./{name}", cwd=commands
    )
    assert before == set(commands.rglob("*"))


def test_first_in_path_that_can_be_run_is_the_command(commands: Path) -> None:
    """Like a shell, the search in PATH skips what is not executable; 126 if nothing else is found."""
    (commands / "folder" / "no-permission").write_text("#!/bin/sh\necho ran\n")
    (commands / "folder" / "no-permission").chmod(0o755)
    both, first = f"{commands}:{commands}/folder", str(commands)

    assert 0 == run_to_end(*ONE_RANK, "--log-dir", "log", "no-permission", cwd=commands, env={"PATH": both}).returncode
    assert (126, f"ERROR permission denied: '{commands}/no-permission' is not executable") == error_of(
        *ONE_RANK, "no-permission", cwd=commands, env={"PATH": first}
    )


def test_relative_folder_of_path_is_the_callers(commands: Path) -> None:
    """A relative directory in PATH refers to the current directory of the caller, not to that of a rank."""
    (commands / "folder" / "program").write_text("#!/bin/sh\necho ran\n")
    (commands / "folder" / "program").chmod(0o755)
    ended = run_to_end(
        *ONE_RANK, "--log-dir", "log", "--workdir", "/", "program", cwd=commands, env={"PATH": "folder:/usr/bin:/bin"}
    )

    assert "[rank 0] ran\n" == ended.stdout


NO_FORMAT = "a script must begin with #! and its interpreter; a binary must be built for this architecture"


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        (
            "no-format",
            126,
            f"'./no-format': exec format error ({NO_FORMAT})",
        ),
        ("no-interpreter", 127, "'./no-interpreter': the interpreter in its first line does not exist"),
    ],
)
def test_command_that_only_the_kernel_can_judge(name: str, status: int, reason: str, commands: Path) -> None:
    """An error that only starting the command reveals ends the job with the same exit status."""
    ended = run_to_end("--nproc-per-node", "2", "--log-dir", "log", f"./{name}", cwd=commands)

    assert status == ended.returncode
    assert f" ERROR cannot start rank 0: {reason}\n" in ended.stderr
    assert "others not started: rank 1\n" in ended.stderr


def test_missing_working_directory_is_the_runners_failure(commands: Path) -> None:
    """The error names the working directory, not the command; nothing is created or started."""
    expected = f"ERROR working directory not found: '{commands}/elsewhere' (--workdir)"

    assert (125, expected) == error_of(*ONE_RANK, "--log-dir", "log", "--workdir", "elsewhere", "true", cwd=commands)
    assert not (commands / "log").exists()


# --- The catalogue of a site ------------------------------------------------------------------------------------------


def test_site_explains_its_own_errors(tmp_path: Path) -> None:
    """Its words precede what is known of an error otherwise, which still decides about the rest."""
    (tmp_path / "site.toml").write_text(LICENCE)
    script = "raise RuntimeError('licence server l1 refused: NPU out of memory')"
    words = ("--log-dir", "log", "--catalogue", "site.toml", sys.executable, "-c", script)
    ended = run_to_end(*ONE_RANK, *words, cwd=tmp_path)

    assert 1 == ended.returncode
    known = ["  means  the licence server refuses this host", "  next   ask the platform team"]
    assert known == [line for line in ended.stderr.splitlines() if line in known]
    assert "out of memory on the device" not in ended.stderr


def test_faults_of_a_catalogue_are_reported_before_the_start(tmp_path: Path) -> None:
    """All of them, each with its place; no rank starts, and nothing is created."""
    (tmp_path / "site.toml").write_text(LICENCE.replace("means", "mean").replace("https", "see"))
    ended = run_to_end(*ONE_RANK, "--log-dir", "log", "--catalogue", "site.toml", "true", cwd=tmp_path)

    assert 125 == ended.returncode
    assert ["ERROR site.toml, entry 1 ('licence')"] * 3 == [
        sentence(line).partition(": ")[0] for line in ended.stderr.splitlines()
    ]
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(("name", "reason"), [("none.toml", "no such file or directory"), (".", "is a directory")])
def test_catalogue_that_cannot_be_read(name: str, reason: str, tmp_path: Path) -> None:
    """It is the runner's failure, with the path."""
    expected = f"ERROR cannot read --catalogue '{name}': {reason}"

    assert (125, expected) == error_of(*ONE_RANK, "--catalogue", name, "true", cwd=tmp_path)


def test_failure_without_a_catalogue(tmp_path: Path) -> None:
    """If the installation has changed under a job, a failure is still diagnosed, without explanations."""
    shutil.copytree(ROOT / "ascend_runner", tmp_path / "ascend_runner", ignore=shutil.ignore_patterns("catalogue"))
    words = ("--log-dir", "log", sys.executable, "-c", "raise ValueError('loss is nan')")
    ended = run_to_end(*ONE_RANK, *words, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})

    assert 1 == ended.returncode
    assert f"cannot read '{tmp_path}/ascend_runner/diagnosis/catalogue': no such file or directory" in ended.stderr
    assert "  | ValueError: loss is nan" in ended.stderr.splitlines()


# --- What is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    ("options", "stdout", "levels"),
    [
        ((), "[rank 0] a\n[rank 1] a\n", {"INFO"}),
        (("--console", "1"), "[rank 1] a\n", {"INFO"}),
        (("--console", "none"), "", {"INFO"}),
        (("--quiet",), "[rank 0] a\n[rank 1] a\n", set()),
        (("--verbose",), "[rank 0] a\n[rank 1] a\n", {"INFO", "DEBUG"}),
    ],
)
def test_what_is_shown(options: tuple[str, ...], stdout: str, levels: set[str], tmp_path: Path) -> None:
    """Lines of ranks go to stdout and messages to stderr; the log files contain what is not shown."""
    env = {"MA_VJ_NAME": "job"}
    ended = run_to_end("--nproc-per-node", "2", "--log-dir", "log", *options, "echo", "a", cwd=tmp_path, env=env)

    assert 0 == ended.returncode
    assert stdout.splitlines() == sorted(ended.stdout.splitlines())
    assert levels == {line.split(" ")[2] for line in ended.stderr.splitlines()}
    assert ["a\n", "a\n"] == [path.read_text() for path in sorted((tmp_path / "log").glob("*.txt"))]


def test_settings_may_come_from_variables(tmp_path: Path) -> None:
    """Variables apply without an option, for example those of an image."""
    env = {
        "MA_VJ_NAME": "job",
        "ASCEND_RUNNER_NPROC_PER_NODE": "2",
        "ASCEND_RUNNER_LOG_DIR": str(tmp_path / "log"),
        "ASCEND_RUNNER_CONSOLE": "none",
    }
    ended = run_to_end("echo", "a", env=env)

    assert (0, "") == (ended.returncode, ended.stdout)
    assert ["a\n", "a\n"] == [path.read_text() for path in sorted((tmp_path / "log").glob("*.txt"))]


def test_first_folder_of_pythonpath_counts(tmp_path: Path) -> None:
    """With PYTHONSAFEPATH, the first directory of PYTHONPATH is kept: it is not the current directory."""
    path = os.pathsep.join({str(Path(package.__file__ or "").parents[1]): 0 for package in (attrs, orjson)})
    table = ROOT / "fixtures" / "valid" / "group_list_8_devices.json"
    command = [sys.executable, "-S", "-m", "ascend_runner", "--rank-table", str(table), "--dry-run", "true"]
    env = {**CLEAN, "MA_CURRENT_INSTANCE_NAME": "job-worker-0", "PYTHONSAFEPATH": "1"}
    env["PYTHONPATH"] = f"{path}{os.pathsep}{ROOT}"
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=LIMIT, check=False)

    assert (0, b"") == (ended.returncode, ended.stderr)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("words", [("no-such-program",), ("sh", "-c", "exit 7")])
def test_status_does_not_depend_on_a_reader(words: tuple[str, ...], tmp_path: Path) -> None:
    """The exit status is the same if stdout and stderr are closed pipes."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ascend_runner", *ONE_RANK, "--log-dir", str(tmp_path), *words]
    try:
        ended = subprocess.run(command, env=CLEAN, stdout=writer, stderr=writer, timeout=LIMIT, check=False)
    finally:
        os.close(writer)

    assert (127 if words[0] == "no-such-program" else 7) == ended.returncode


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "no-such-locale"])
def test_any_locale_will_do(locale: str, tmp_path: Path) -> None:
    """Text that is not ASCII is shown and kept as the ranks wrote it."""
    ended = run_to_end(
        *ONE_RANK, "--log-dir", str(tmp_path), "echo", "日本 ä", env={"LC_ALL": locale, "MA_VJ_NAME": "作业"}
    )

    assert (0, "[rank 0] 日本 ä\n") == (ended.returncode, ended.stdout)
    assert "日本 ä\n" == (tmp_path / "作业-proc-rank-0-device-0.txt").read_text(encoding="utf-8")


def test_variable_that_is_no_option_is_one_warning(tmp_path: Path) -> None:
    """A misspelt variable is reported once, and the job runs."""
    env = {"ASCEND_RUNNER_GRACES": "5", "ASCEND_RUNNER_PORT": "tcp://10.0.0.1:80"}
    ended = run_to_end("--quiet", "--log-dir", str(tmp_path), *ONE_RANK, "true", env=env)

    assert 0 == ended.returncode
    (line,) = ended.stderr.splitlines()
    assert "ASCEND_RUNNER_GRACES" in line
