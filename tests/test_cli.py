"""The command line: what it takes, what it says, and the status of each of its own failures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

import ascend_runner
from ascend_runner.job.settings import OPTIONS
from tests.conftest import CLEAN, LIMIT, run_to_end, sentence

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ONE_RANK = ("--nproc-per-node", "1")


def plan_of(*args: str | bytes, env: dict[str, str] | None = None, cwd: Path | None = None) -> dict[str, Any]:
    """Give the plan that `--dry-run` prints for these arguments."""
    ended = run_to_end("--dry-run", *args, env=env, cwd=cwd)
    assert 0 == ended.returncode, ended.stderr
    plan: dict[str, Any] = json.loads(ended.stdout)
    return plan


def error_of(*args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> tuple[int, str]:
    """Give the status and the only sentence of a run that fails before it has started anything."""
    ended = run_to_end(*args, env=env, cwd=cwd)
    assert "" == ended.stdout
    (line,) = ended.stderr.splitlines()
    return ended.returncode, sentence(line)


# --- Options ----------------------------------------------------------------------------------------------------------


def test_help_lists_each_option_beside_its_variable() -> None:
    """--help goes to stdout, succeeds, and leaves no option out."""
    ended = run_to_end("--help")
    entries = {
        entry.split()[0]: " ".join(entry.split()) for entry in ended.stdout.replace("\n  --", "\0--").split("\0")[1:]
    }

    assert (0, "") == (ended.returncode, ended.stderr)
    assert "usage: ascend-runner [OPTIONS] COMMAND [ARG ...]\n" in ended.stdout
    assert {option.flag for option in OPTIONS} | {"--version", "--help,"} == set(entries)
    for option in OPTIONS:
        assert option.metavar in entries[option.flag]
        assert (f"[{option.variable}]" in entries[option.flag]) is option.has_variable


def test_readme_lists_each_option_and_variable() -> None:
    """In the table of options, by the words of --help."""
    rows = [line for line in README.read_text("utf-8").splitlines() if line.startswith("| `--")]

    for option in OPTIONS:
        row = next(row for row in rows if re.search(f"`{option.flag}[ `]", row))
        assert (f"`{option.variable}`" in row) is option.has_variable


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_full_disk_under_a_check(words: tuple[str, ...], tmp_path: Path) -> None:
    """No word is no good news."""
    command = [sys.executable, "-m", "ascend_runner", "--log-dir", str(tmp_path), "--check", *words]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*command, *ONE_RANK, "true"], env=CLEAN, stdout=full, stderr=subprocess.PIPE, timeout=LIMIT, check=False
        )

    assert 125 == ended.returncode
    assert b" WARNING standard output cannot be written any more: no space left on device;" in ended.stderr


@pytest.mark.parametrize("words", [("--help",), (*ONE_RANK, "--dry-run", "true")])
def test_full_disk_under_what_is_printed(words: tuple[str, ...], tmp_path: Path) -> None:
    """Whoever keeps a plan that could not be written must learn of it; a reader that has seen enough is none."""
    words = (sys.executable, "-m", "ascend_runner", "--log-dir", "log", *words)
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            words, env=CLEAN, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False
        )
    assert (125, "ERROR standard output cannot be written: no space left on device") == (
        ended.returncode,
        sentence(ended.stderr.strip()),
    )

    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        assert 0 == subprocess.run(words, env=CLEAN, cwd=tmp_path, stdout=closed, timeout=LIMIT, check=False).returncode


def test_help_fits_a_wide_terminal() -> None:
    """The text is the same wherever it is printed, and no line is longer than 120 columns."""
    shown = run_to_end("--help", env={"COLUMNS": "40"}).stdout

    assert shown == run_to_end("--help", env={"COLUMNS": "200"}).stdout
    assert max(map(len, shown.splitlines())) <= 120


def test_version() -> None:
    """--version prints the version and nothing else, by either name of the program."""
    script = subprocess.run(
        [str(Path(sys.executable).parent / "ascend-runner"), "--version"],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )

    assert f"{ascend_runner.__version__}\n" == run_to_end("--version").stdout == script.stdout


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
        (["--grace", "3", "--no-prefix", "true", "-c", "--no-prefix"], ["true", "-c", "--no-prefix"]),
        (["--grace", "3", "--", "true", "-c"], ["true", "-c"]),
        (["true", "", " ", "a b", "*", "$HOME"], ["true", "", " ", "a b", "*", "$HOME"]),
        (["true", "-1", "--nproc-per-node=9"], ["true", "-1", "--nproc-per-node=9"]),
    ],
)
def test_options_end_at_the_first_word(words: list[str], command: list[str]) -> None:
    """What follows the first word that is no option, or `--`, is the command's, untouched."""
    (rank,) = plan_of(*ONE_RANK, *words)["ranks"]

    assert command == rank["argv"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "there is no command to run, expected: ascend-runner [OPTIONS] COMMAND [ARG ...]"),
        (["--"], "there is no command to run, expected: ascend-runner [OPTIONS] COMMAND [ARG ...]"),
        (["--quiet"], "there is no command to run, expected: ascend-runner [OPTIONS] COMMAND [ARG ...]"),
        (["--nproc", "8", "true"], "there is no option '--nproc', see ascend-runner --help"),
        (["-v", "true"], "there is no option '-v', see ascend-runner --help"),
        (["--grace"], "--grace is without its value, expected --grace SECONDS"),
        (["--grace", "--", "true"], "--grace is without its value, expected --grace SECONDS"),
        (["--grace", "-1", "true"], "--grace is '-1', expected a number of seconds, 0 or more"),
        (["--quiet=1", "true"], "--quiet is given '1', expected no value"),
        (
            ["--quiet", "--verbose", "true"],
            "--quiet and --verbose contradict each other, expected one of them",
        ),
        (["--console", "first", "true"], "--console is 'first', expected 'all', 'none' or ranks such as '0,8-15'"),
    ],
)
def test_bad_words_are_one_sentence_and_125(words: list[str], expected: str) -> None:
    """A usage error is said in one line on stderr, and nothing is started."""
    assert (125, f"ERROR {expected}") == error_of(*words)


def test_bad_variable_is_one_sentence_and_125() -> None:
    """The variable is named, for the user has not written a flag."""
    expected = "ERROR ASCEND_RUNNER_GRACE is 'long', expected a number of seconds, 0 or more"

    assert (125, expected) == error_of("true", env={"ASCEND_RUNNER_GRACE": "long"})


def test_unknown_option_does_not_swallow_the_command() -> None:
    """`--nproc 8 python` is a slip of one word, and not the command `8`."""
    status, said = error_of("--nproc", "8", "python")

    assert (125, True) == (status, "--nproc" in said)


# --- The plan ---------------------------------------------------------------------------------------------------------


def test_dry_run_prints_the_plan_and_touches_nothing(tmp_path: Path) -> None:
    """JSON on stdout with all that would be run, and not a folder made."""
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
        "host_files": [],
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
        "JOB_ID": "modelarts-job-1",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "NODE_RANK": "0",
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // 2)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "RANK": "1",
        "RANK_ID": "1",
        "RANK_SIZE": "2",
        "WORLD_SIZE": "2",
    } == variables
    assert [] == list(tmp_path.iterdir())


def test_dry_run_tells_what_is_unset() -> None:
    """A variable that the ranks will not have is no secret."""
    (rank,) = plan_of(*ONE_RANK, "true", env={"RANK_TABLE_FILE": "/user/config"})["ranks"]

    assert ["RANK_TABLE_FILE"] == rank["unset"]


def test_words_that_are_no_text_are_planned_and_run(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 go through as they are; the plan names them as JSON can."""
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
    """Give a folder of files that cannot be run, each for another reason."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "no-permission").write_text("#!/bin/sh\n")
    for name, text in (("no-format", "no program\n"), ("no-interpreter", "#!/missing/interpreter\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("table", [ONE_RANK, ("--rank-table", "missing.json")], ids=["no-table", "table-to-come"])
def test_missing_command_is_127_before_anything_is_waited_for(
    table: tuple[str, ...], tmp_path: Path, commands: Path
) -> None:
    """The sentence says where it was looked for; no rank table is awaited for a slip of the pen."""
    expected = "ERROR there is no command 'no-such-program' in any folder of PATH"

    assert (127, expected) == error_of(*table, "no-such-program", cwd=commands)
    assert (127, f"ERROR there is no command '{tmp_path}/missing' in {tmp_path}") == error_of(
        *table, f"{tmp_path}/missing", cwd=commands
    )


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("missing", 127, "there is no command './missing' in {}"),
        ("folder", 126, "'{}/./folder' is a folder"),
        ("no-permission", 126, "'{}/./no-permission' is not executable"),
    ],
)
def test_relative_command_that_cannot_be_run(name: str, status: int, expected: str, commands: Path) -> None:
    """Found but no program is 126, not found is 127; nothing is made."""
    before = set(commands.rglob("*"))

    assert (status, f"ERROR {expected.format(commands)}") == error_of(
        *ONE_RANK, "--log-dir", "log", f"./{name}", cwd=commands
    )
    assert before == set(commands.rglob("*"))


def test_first_in_path_that_can_be_run_is_the_command(commands: Path) -> None:
    """As a shell does, folders and files without permission are passed over; where there is nothing else, 126."""
    (commands / "folder" / "no-permission").write_text("#!/bin/sh\necho ran\n")
    (commands / "folder" / "no-permission").chmod(0o755)
    both, first = f"{commands}:{commands}/folder", str(commands)

    assert 0 == run_to_end(*ONE_RANK, "--log-dir", "log", "no-permission", cwd=commands, env={"PATH": both}).returncode
    assert (126, f"ERROR '{commands}/no-permission' is not executable") == error_of(
        *ONE_RANK, "no-permission", cwd=commands, env={"PATH": first}
    )


def test_relative_folder_of_path_is_the_callers(commands: Path) -> None:
    """A command that is found by PATH is the same program in every working directory."""
    (commands / "folder" / "program").write_text("#!/bin/sh\necho ran\n")
    (commands / "folder" / "program").chmod(0o755)
    ended = run_to_end(
        *ONE_RANK, "--log-dir", "log", "--workdir", "/", "program", cwd=commands, env={"PATH": "folder:/usr/bin:/bin"}
    )

    assert "[rank 0] ran\n" == ended.stdout


NO_FORMAT = "a script begins with #! and its interpreter, a program must be built for this machine"


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        (
            "no-format",
            126,
            f"'./no-format': exec format error ({NO_FORMAT})",
        ),
        ("no-interpreter", 127, "'./no-interpreter' is there, but not the interpreter of its first line"),
    ],
)
def test_command_that_only_the_kernel_can_judge(name: str, status: int, reason: str, commands: Path) -> None:
    """What is found out by starting it ends the job with the same statuses."""
    ended = run_to_end("--nproc-per-node", "2", "--log-dir", "log", f"./{name}", cwd=commands)

    assert status == ended.returncode
    assert f" ERROR rank 0 could not be started: {reason}\n" in ended.stderr
    assert ended.stderr.endswith("others 1: not started\n")


def test_missing_working_directory_is_the_runners_failure(commands: Path) -> None:
    """125 before anything is made or started, and the sentence names the folder, not the command."""
    expected = f"ERROR --workdir is '{commands}/elsewhere', expected 'device', 'inherit' or a folder that exists"

    assert (125, expected) == error_of(*ONE_RANK, "--log-dir", "log", "--workdir", "elsewhere", "true", cwd=commands)
    assert not (commands / "log").exists()


# --- What is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "stdout", "levels"),
    [
        ((), "[rank 0] a\n[rank 1] a\n", {"INFO"}),
        (("--no-prefix",), "a\na\n", {"INFO"}),
        (("--console", "1"), "[rank 1] a\n", {"INFO"}),
        (("--console", "none"), "", {"INFO"}),
        (("--quiet",), "[rank 0] a\n[rank 1] a\n", set()),
        (("--verbose",), "[rank 0] a\n[rank 1] a\n", {"INFO", "DEBUG"}),
    ],
)
def test_what_is_shown(options: tuple[str, ...], stdout: str, levels: set[str], tmp_path: Path) -> None:
    """Ranks' lines go to stdout, the runner's own to stderr; what is not shown is in the log files."""
    env = {"MA_VJ_NAME": "job"}
    ended = run_to_end("--nproc-per-node", "2", "--log-dir", "log", *options, "echo", "a", cwd=tmp_path, env=env)

    assert 0 == ended.returncode
    assert stdout.splitlines() == sorted(ended.stdout.splitlines())
    assert levels == {line.split(" ")[2] for line in ended.stderr.splitlines()}
    assert ["a\n", "a\n"] == [path.read_text() for path in sorted((tmp_path / "log").glob("*.txt"))]


def test_settings_may_come_from_variables(tmp_path: Path) -> None:
    """What an image sets for every job holds without a flag."""
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
    """Where Python does not put the current folder before it (-P), it is not taken for that."""
    path = os.pathsep.join({str(Path(package.__file__ or "").parents[1]): 0 for package in (attrs, orjson)})
    table = ROOT / "fixtures" / "valid" / "group_list_8_devices.json"
    command = [sys.executable, "-S", "-m", "ascend_runner", "--rank-table", str(table), "--dry-run", "true"]
    env = {**CLEAN, "MA_CURRENT_INSTANCE_NAME": "job-worker-0", "PYTHONSAFEPATH": "1"}
    env["PYTHONPATH"] = f"{path}{os.pathsep}{ROOT}"
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=LIMIT, check=False)

    assert (0, b"") == (ended.returncode, ended.stderr)


@pytest.mark.parametrize("words", [("no-such-program",), ("sh", "-c", "exit 7")])
def test_status_does_not_depend_on_a_reader(words: tuple[str, ...], tmp_path: Path) -> None:
    """Where nobody reads stdout and stderr any more, the exit status is the only word left, and right."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ascend_runner", *ONE_RANK, "--log-dir", str(tmp_path), *words]
    try:
        ended = subprocess.run(command, env=CLEAN, stdout=writer, stderr=writer, timeout=LIMIT, check=False)
    finally:
        os.close(writer)

    assert (127 if words[0] == "no-such-program" else 7) == ended.returncode


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "no-such-locale"])
def test_any_locale_will_do(locale: str, tmp_path: Path) -> None:
    """What is not ASCII is shown and kept as the ranks wrote it."""
    ended = run_to_end(
        *ONE_RANK, "--log-dir", str(tmp_path), "echo", "日本 ä", env={"LC_ALL": locale, "MA_VJ_NAME": "作业"}
    )

    assert (0, "[rank 0] 日本 ä\n") == (ended.returncode, ended.stdout)
    assert "日本 ä\n" == (tmp_path / "作业-proc-rank-0-device-0.txt").read_text(encoding="utf-8")
