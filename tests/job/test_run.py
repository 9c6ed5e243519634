"""A check through the real command: its screen, its JSON and its exit status. Nothing is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.job.check import Found, format_finding, format_json, format_summary, subjects
from ascend_runner.problems import error, warning
from tests.helpers.program import Program, run_here, run_to_end, sentence
from tests.helpers.surroundings import CLEAN, bound_to_free_port
from tests.job.contexts import context

VALID = Path(__file__).parents[2] / "fixtures" / "valid"
TABLE = VALID / "group_list_8_devices.json"


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the runs check a port that no other process on this machine uses: bound, but not listening."""
    with bound_to_free_port() as bound:
        own = {"MASTER_PORT": str(bound.getsockname()[1]), "HCCL_HOST_SOCKET_PORT_RANGE": "auto"}
        for name, value in own.items():
            monkeypatch.setitem(CLEAN, name, value)
        yield


def lines_of(ended: subprocess.CompletedProcess[str]) -> dict[str, list[tuple[str, str]]]:
    """Return verdicts and sentences by subject."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in ended.stdout.splitlines():
        if not line.startswith(" "):
            found.setdefault(line[9:22].strip(), []).append((line[:9].strip().lower(), line[22:]))
    return found


def test_node_without_errors(tmp_path: Path) -> None:
    """A job that could run ends with 0; the subjects are in their order, and nothing is created or started."""
    ended = run_to_end("--check", "--nproc-per-node", "2", "--log-dir", "log", sys.executable, "-c", "1", cwd=tmp_path)
    found = lines_of(ended)

    assert 0 == ended.returncode, ended.stdout
    assert [subject for subject in subjects(context(nproc=2)) if subject in found] == [*found]
    assert {"rank table", "this node", "variables", "command", "devices", "ports", "space", "limits", "grace"} <= {
        *found
    }
    assert [("ok", f"ranks 0, 1 of 2 on {os.uname().nodename}")] == found["this node"]
    assert [] == [*tmp_path.iterdir()]


def test_node_with_errors(tmp_path: Path) -> None:
    """Errors give 1, and the last line counts and names them."""
    ended = run_here("--check", "--rank-table", str(TABLE), "trian", cwd=tmp_path)
    found = lines_of(ended)

    assert 1 == ended.returncode
    assert [("error", "command not found: 'trian'")] == found["command"]
    assert "ranks 0-7 of 8" in found["this node"][0][1]
    (last,) = ended.stderr.splitlines()
    assert sentence(last).startswith(f"ERROR {os.uname().nodename}: ")
    assert "command" in last


def test_table_with_a_wrong_count(tmp_path: Path) -> None:
    """A table is rejected, or corrected with a warning, as in a start with the same options."""
    table = VALID.with_name("invalid") / "server_list_server_count_wrong.json"
    options = ("--check", "--rank-table", str(table), "--log-dir", "log")
    env = {"MA_CURRENT_HOST_IP": "10.0.0.1"}
    refused = lines_of(run_here(*options, "true", env=env, cwd=tmp_path))
    mended = lines_of(run_here(*options, "--no-table-checks", "true", env=env, cwd=tmp_path))
    told = "server_count is 3, but 2 servers are listed"

    assert [("error", f"{told}, in 'server_count' of {table} (EI0014)")] == refused["rank table"]
    ignored = f"{told} (the count is ignored)"
    assert [("warning", f"{ignored}, in 'server_count' of {table} (EI0014)")] == mended["rank table"]
    assert "this node" not in refused
    assert [("ok", "ranks 0, 1 of 4 on 10.0.0.1")] == mended["this node"]


def test_table_that_is_not_there(tmp_path: Path) -> None:
    """A check does not wait for a table, and checks what does not depend on it."""
    ended = run_here("--check", "--rank-table", "later.json", sys.executable, "trian.py", cwd=tmp_path)
    found = lines_of(ended)

    assert 1 == ended.returncode
    assert [("warning", f"rank table not found: {tmp_path}/later.json")] == found["rank table"]
    assert [("error", f"{tmp_path}/trian.py does not exist")] == found["command"]
    assert "this node" not in found


def test_broken_table(tmp_path: Path) -> None:
    """A table that waiting does not complete is an error."""
    (tmp_path / "table.json").write_text('{"status": "completed", "server_list": 5}')
    found = lines_of(run_here("--check", "--rank-table", "table.json", cwd=tmp_path))

    assert ["error"] == [verdict for verdict, _ in found["rank table"]]
    assert "settings" not in found


def test_node_that_is_not_in_the_table(tmp_path: Path) -> None:
    """A node that is not in the table is a problem of this node."""
    table = VALID / "group_list_2_pods_on_1_server.json"
    ended = run_here("--check", "--rank-table", str(table), env={"MA_CURRENT_INSTANCE_NAME": "nobody"}, cwd=tmp_path)

    assert "this node is not in the rank table" in lines_of(ended)["this node"][0][1], ended.stdout


def test_settings_that_a_start_would_refuse(tmp_path: Path) -> None:
    """A rejected setting is listed under its own subject."""
    found = lines_of(run_here("--check", "--nproc-per-node", "1", env={"MA_VJ_NAME": "a/b"}, cwd=tmp_path))

    assert ["error"] == [verdict for verdict, _ in found["settings"]]


def test_option_without_effect(tmp_path: Path) -> None:
    """A check lists it, and a start warns once."""
    options = ("--nproc-per-node", "1", "--hang-action", "stop", "--hang-timeout", "off")
    found = lines_of(run_here(*options, "--check", "true", cwd=tmp_path))
    started = run_to_end(*options, "true", cwd=tmp_path)

    assert ["warning"] == [verdict for verdict, text in found["settings"] if "--hang-action" in text]
    assert 0 == started.returncode
    assert 1 == started.stderr.count("--hang-action")


def test_each_refusal_is_told(tmp_path: Path) -> None:
    """One problem does not hide the next, and each is listed once."""
    (tmp_path / "table.json").write_text('{"status": "completed", "server_list": 5}')
    env = {"MA_VJ_NAME": "a/b", "MASTER_PORT": "60005", "HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "1"}
    options = ("--rank-table", "table.json", "--workdir", "nowhere", "--framework", "mindspore")
    found = lines_of(run_here("--check", *options, "A=1", "python", "train.py", env=env, cwd=tmp_path))
    errors = {
        subject: [told.partition(",")[0] for verdict, told in lines if verdict == "error"]
        for subject, lines in found.items()
    }

    assert ["server_list is 5"] == errors["rank table"]
    assert [
        f"working directory not found: '{tmp_path}/nowhere' (--workdir)",
        "invalid value 'a/b' for MA_VJ_NAME: expected a plain file name; use another --job-name",
    ] == errors["settings"]
    assert ["port 60005 (MASTER_PORT) is used by HCCL: choose a port other than 60000 to 60031 and 16666"] == errors[
        "variables"
    ]
    assert 1 == len(errors["command"])


def test_options_that_do_not_go_with_a_launcher_are_told_beside_others(tmp_path: Path) -> None:
    """Options that an engine cannot apply are listed beside other problems."""
    options = ("--nproc-per-node", "2", "--launcher", "torchrun", "--workdir", "device", "--bind", "cores")
    found = lines_of(run_here("--check", *options, "python", "a.py", env={"MASTER_PORT": "zz"}, cwd=tmp_path))
    sentence = "--workdir device and --bind cannot be used with torchrun, "

    assert any(told.startswith(sentence) for verdict, told in found["settings"] if verdict == "error"), found


def test_empty_command(tmp_path: Path) -> None:
    """An empty command is an error with every launcher."""
    for launcher in ("direct", "mpirun"):
        ended = run_here("--check", "--nproc-per-node", "2", "--launcher", launcher, "", cwd=tmp_path)
        assert [("error", "the command is empty")] == lines_of(ended)["command"]


def test_table_and_node_that_disagree(tmp_path: Path) -> None:
    """A contradiction between table and options is a problem of this node."""
    found = lines_of(run_here("--check", "--rank-table", str(TABLE), "--nnodes", "2", "--node-rank", "0", cwd=tmp_path))

    ((verdict, sentence),) = found["this node"]

    assert "error" == verdict
    assert "--nnodes is 2" in sentence


def test_command_of_an_engine_that_is_not_there(tmp_path: Path) -> None:
    """If an engine is missing, the command itself is fine: the engine's own working directory counts."""
    (tmp_path / "train.py").touch()
    (tmp_path / "python").symlink_to(sys.executable)
    env = {"MA_MOUNT_PATH": str(tmp_path / "mount"), "PATH": str(tmp_path)}
    options = ("--launcher", "torchrun", "--nproc-per-node", "2")
    found = lines_of(run_here("--check", *options, "python", "train.py", env=env, cwd=tmp_path))

    assert ["error"] == [verdict for verdict, _sentence in found["settings"]]
    assert "command" not in found
    assert "devices" in found


def test_folder_that_is_gone(program: Program) -> None:
    """A current directory that was removed is an error without a traceback."""
    ended = program.shell(f"mkdir x && cd x && rmdir ../x && exec {program.python} -m ascend_runner --check true")

    assert 125 == ended.returncode
    assert b"cannot use the current directory" in ended.stdout
    assert b"Traceback" not in ended.stdout


def test_usage_is_no_finding() -> None:
    """An option that cannot be parsed is a failure of the runner, not a finding."""
    assert 125 == run_here("--check", "--grace", "long").returncode


def test_json(tmp_path: Path) -> None:
    """--json prints the same as one document, with the same exit status."""
    ended = run_here("--check", "--json", "--nproc-per-node", "1", "trian", cwd=tmp_path)
    document = json.loads(ended.stdout)
    command = next(one for one in document["checks"] if one["subject"] == "command")

    assert 1 == ended.returncode
    assert (os.uname().nodename, "error") == (document["host"], document["verdict"])
    assert {
        "subject": "command",
        "verdict": "error",
        "found": "command not found: 'trian'",
        "fix": "use its full path, or add its directory to PATH",
    } == command


def test_quiet_leaves_out_what_is_fine(tmp_path: Path) -> None:
    """--quiet shows warnings and errors only."""
    ended = run_here("--check", "--quiet", "--nproc-per-node", "1", "trian", cwd=tmp_path)

    assert {"warning", "error"} >= {verdict for lines in lines_of(ended).values() for verdict, _ in lines}
    assert 1 == ended.returncode


def test_fake_npu_smi(tmp_path: Path) -> None:
    """npu-smi is searched for in PATH, as a shell does."""
    tool = tmp_path / "npu-smi"
    tool.write_text("#!/bin/sh\necho '| 3     910B3      | Critical      | 93.6 |'\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = run_here("--check", "--nproc-per-node", "1", env=env, cwd=tmp_path)

    assert [("error", "device 3 reported Critical")] == lines_of(ended)["health"]
    assert 1 == ended.returncode


def test_stopped_in_the_middle(tmp_path: Path) -> None:
    """A SIGTERM while npu-smi runs ends the check as it ends a job; the fake sends it."""
    tool = tmp_path / "npu-smi"
    tool.write_text("#!/bin/sh\nkill -TERM $PPID\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = run_to_end("--check", "--nproc-per-node", "1", env=env, cwd=tmp_path)

    assert 143 == ended.returncode
    assert "stopped by SIGTERM" in ended.stderr


# --- How findings are shown -------------------------------------------------------------------------------------------


def test_columns() -> None:
    """Verdict, subject and sentence are aligned, with the remedy below the sentence."""
    assert "ok       grace        15 s\n" == format_finding("grace", "15 s")
    assert "WARNING  other nodes  odd\n                      fix: that\n" == format_finding(
        "other nodes", warning("odd", "that")
    )


def test_nothing_steers_the_terminal() -> None:
    """Names from tables and tools are escaped, and stay on their line."""
    assert "ok       space        a\\x1b[31m b\n" == format_finding("space", "a\x1b[31m\nb")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], "node-3: no problems found"),
        ([("a", "x")], "node-3: no problems found"),
        ([("a", warning("x"))], "node-3: 1 warning (a)"),
        (
            [("b", warning("x")), ("a", warning("x")), ("a", warning("y")), ("c", error("z"))],
            "node-3: 1 error (c); 3 warnings (b, a)",
        ),
    ],
)
def test_summary(found: list[Found], expected: str) -> None:
    """The last line begins with the host name, which one searches for in the logs of 64 nodes."""
    assert expected == format_summary(found, "node-3")


@pytest.mark.parametrize(
    ("found", "expected"),
    [([], "ok"), ([("a", "x")], "ok"), ([("a", "x"), ("b", warning("x"))], "warning"), ([("b", error("x"))], "error")],
)
def test_worst_verdict_of_a_document(found: list[Found], expected: str) -> None:
    """A program need not read the list to find the worst verdict."""
    assert expected == json.loads(format_json(found, "x"))["verdict"]


def test_findings_of_a_document() -> None:
    """Each finding has its subject, verdict, sentence and remedy."""
    document = json.loads(format_json([("a", "x"), ("b", error("y", "z"))], "node-3"))

    assert [
        {"subject": "a", "verdict": "ok", "found": "x", "fix": ""},
        {"subject": "b", "verdict": "error", "found": "y", "fix": "z"},
    ] == document["checks"]
