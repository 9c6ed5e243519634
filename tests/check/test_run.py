"""A check through the real command: what is on the screen, in JSON, and the exit status. Nothing is started."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ascend_runner.check.line import Verdict, ok, warning
from ascend_runner.check.run import SUBJECTS, document_of, summary, text_of
from tests.conftest import CLEAN, bound_to_free_port, run_to_end, sentence

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from ascend_runner.check.line import Line
    from tests.conftest import Program

VALID = Path(__file__).parents[2] / "fixtures" / "valid"
TABLE = VALID / "group_list_8_devices.json"


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the runs look at a port that is nobody else's on this machine: bound, but nobody listens there."""
    with bound_to_free_port() as bound:
        own = {"MASTER_PORT": str(bound.getsockname()[1]), "HCCL_HOST_SOCKET_PORT_RANGE": "auto"}
        for name, value in own.items():
            monkeypatch.setitem(CLEAN, name, value)
        yield


def lines_of(ended: subprocess.CompletedProcess[str]) -> dict[str, list[tuple[str, str]]]:
    """Give the verdicts and sentences by subject."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in ended.stdout.splitlines():
        if not line.startswith(" "):
            found.setdefault(line[9:22].strip(), []).append((line[:9].strip().lower(), line[22:]))
    return found


def test_node_without_errors(tmp_path: Path) -> None:
    """A job that could run ends with 0; its subjects are told in their order, and nothing is made or started."""
    ended = run_to_end("--check", "--nproc-per-node", "2", "--log-dir", "log", sys.executable, "-c", "1", cwd=tmp_path)
    found = lines_of(ended)

    assert 0 == ended.returncode, ended.stdout
    assert [subject for subject in SUBJECTS if subject in found] == [*found]
    assert {"rank table", "this node", "variables", "command", "devices", "ports", "room", "limits", "grace"} <= {
        *found
    }
    assert [("ok", f"ranks 0, 1 of 2 on {os.uname().nodename}")] == found["this node"]
    assert [] == [*tmp_path.iterdir()]


def test_node_with_errors(tmp_path: Path) -> None:
    """Errors give 1, and the last line counts and names them."""
    ended = run_to_end("--check", "--rank-table", str(TABLE), "trian", cwd=tmp_path)
    found = lines_of(ended)

    assert 1 == ended.returncode
    assert [("error", "there is no command 'trian' in any folder of PATH")] == found["command"]
    assert "ranks 0-7 of 8" in found["this node"][0][1]
    (last,) = ended.stderr.splitlines()
    assert sentence(last).startswith(f"ERROR {os.uname().nodename}: ")
    assert "command" in last


def test_table_with_a_wrong_count(tmp_path: Path) -> None:
    """It is judged as a start with the same options would: refused, or mended with a warning."""
    table = VALID.with_name("invalid") / "server_list_server_count_wrong.json"
    options = ("--check", "--rank-table", str(table), "--log-dir", "log")
    env = {"MA_CURRENT_HOST_IP": "10.0.0.1"}
    refused = lines_of(run_to_end(*options, "true", env=env, cwd=tmp_path))
    mended = lines_of(run_to_end(*options, "--no-table-checks", "true", env=env, cwd=tmp_path))
    told = "server_count is 3, but 2 servers are listed"

    assert [("error", f"{told}, in 'server_count' of {table} (EI0014)")] == refused["rank table"]
    assert [("warning", f"{told}: the list decides, in 'server_count' of {table} (EI0014)")] == mended["rank table"]
    assert "this node" not in refused
    assert [("ok", "ranks 0, 1 of 4 on 10.0.0.1")] == mended["this node"]


def test_table_that_is_not_there(tmp_path: Path) -> None:
    """Nobody waits for a table, and what does not depend on it is judged all the same."""
    ended = run_to_end("--check", "--rank-table", "later.json", sys.executable, "trian.py", cwd=tmp_path)
    found = lines_of(ended)

    assert 1 == ended.returncode
    assert [("warning", f"{tmp_path}/later.json is not a completed rank table: it does not exist")] == found[
        "rank table"
    ]
    assert [("error", f"there is no {tmp_path}/trian.py")] == found["command"]
    assert "this node" not in found


def test_broken_table(tmp_path: Path) -> None:
    """A table that waiting does not mend is an error."""
    (tmp_path / "table.json").write_text('{"status": "completed", "server_list": 5}')
    found = lines_of(run_to_end("--check", "--rank-table", "table.json", cwd=tmp_path))

    assert ["error"] == [verdict for verdict, _ in found["rank table"]]
    assert "settings" not in found


def test_node_that_is_not_in_the_table(tmp_path: Path) -> None:
    """The sentence is the launcher's."""
    table = VALID / "group_list_2_pods_on_1_server.json"
    ended = run_to_end("--check", "--rank-table", str(table), env={"MA_CURRENT_INSTANCE_NAME": "nobody"}, cwd=tmp_path)

    assert "this node is not in the rank table" in lines_of(ended)["this node"][0][1], ended.stdout


def test_settings_that_a_start_would_refuse(tmp_path: Path) -> None:
    """What the plan fails of is told under its own name."""
    found = lines_of(run_to_end("--check", "--nproc-per-node", "1", env={"MA_VJ_NAME": "a/b"}, cwd=tmp_path))

    assert ["error"] == [verdict for verdict, _ in found["settings"]]


def test_each_refusal_is_told(tmp_path: Path) -> None:
    """One thing that a start would be refused for does not hide the next, and each is told once."""
    (tmp_path / "table.json").write_text('{"status": "completed", "server_list": 5}')
    env = {"MA_VJ_NAME": "a/b", "MASTER_PORT": "60005", "HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "1"}
    options = ("--rank-table", "table.json", "--workdir", "nowhere", "--framework", "mindspore")
    found = lines_of(run_to_end("--check", *options, "A=1", "python", "train.py", env=env, cwd=tmp_path))
    errors = {
        subject: [told.partition(",")[0] for verdict, told in lines if verdict == "error"]
        for subject, lines in found.items()
    }

    assert ["server_list is 5"] == errors["rank table"]
    assert ["the job id is 'a/b' (from BATCH_JOB_ID", f"--workdir is '{tmp_path}/nowhere'"] == errors["settings"]
    assert ["MASTER_PORT is 60005"] == errors["variables"]
    assert ["the command starts with 'A=1'"] == errors["command"]


def test_options_that_do_not_go_with_a_launcher_are_told_beside_others(tmp_path: Path) -> None:
    """Whatever else is refused."""
    options = ("--nproc-per-node", "2", "--launcher", "torchrun", "--workdir", "device", "--bind", "cores")
    found = lines_of(run_to_end("--check", *options, "python", "a.py", env={"MASTER_PORT": "zz"}, cwd=tmp_path))
    sentence = "--workdir device and --bind do not go with --launcher torchrun, which starts the ranks of a node by"

    assert any(told.startswith(sentence) for verdict, told in found["settings"] if verdict == "error"), found


def test_empty_command(tmp_path: Path) -> None:
    """It is refused whoever is to run it."""
    for launcher in ("direct", "mpirun"):
        ended = run_to_end("--check", "--nproc-per-node", "2", "--launcher", launcher, "", cwd=tmp_path)
        assert [("error", "the command is an empty word")] == lines_of(ended)["command"]


def test_table_and_node_that_disagree(tmp_path: Path) -> None:
    """What only both of them together are refused for is told of this node."""
    found = lines_of(
        run_to_end("--check", "--rank-table", str(TABLE), "--nnodes", "2", "--node-rank", "0", cwd=tmp_path)
    )

    assert [("error", "--nnodes says 2 nodes, but the rank table holds 1 pods")] == found["this node"]


def test_command_of_an_engine_that_is_not_there(tmp_path: Path) -> None:
    """The command is fine, and what cannot be started is the engine: its own working directory counts."""
    (tmp_path / "train.py").touch()
    (tmp_path / "python").symlink_to(sys.executable)
    env = {"MA_MOUNT_PATH": str(tmp_path / "mount"), "PATH": str(tmp_path)}
    options = ("--launcher", "torchrun", "--nproc-per-node", "2")
    found = lines_of(run_to_end("--check", *options, "python", "train.py", env=env, cwd=tmp_path))

    assert ["ok"] == [verdict for verdict, _ in found["command"]]
    assert [("error", "there is no command 'torchrun' in any folder of PATH")] == found["settings"]


def test_folder_that_is_gone(program: Program) -> None:
    """Who stands nowhere is told so, without a traceback."""
    ended = program.shell(f"mkdir x && cd x && rmdir ../x && exec {program.python} -m ascend_runner --check true")

    assert 125 == ended.returncode
    assert b"the current folder cannot be used" in ended.stdout
    assert b"Traceback" not in ended.stdout


def test_usage_is_no_finding() -> None:
    """A flag that cannot be read is the runner's own failure, as ever."""
    assert 125 == run_to_end("--check", "--grace", "long").returncode


def test_json(tmp_path: Path) -> None:
    """The same as a document, for programs; the exit status stays."""
    ended = run_to_end("--check", "--json", "--nproc-per-node", "1", "trian", cwd=tmp_path)
    document = json.loads(ended.stdout)
    command = next(one for one in document["checks"] if one["subject"] == "command")

    assert 1 == ended.returncode
    assert (os.uname().nodename, "error") == (document["host"], document["verdict"])
    assert {
        "subject": "command",
        "verdict": "error",
        "found": "there is no command 'trian' in any folder of PATH",
        "to_do": "name it by its full path, or put its folder into PATH",
    } == command


def test_quiet_leaves_out_what_is_fine(tmp_path: Path) -> None:
    """--quiet shows warnings and errors only."""
    ended = run_to_end("--check", "--quiet", "--nproc-per-node", "1", "trian", cwd=tmp_path)

    assert {"warning", "error"} >= {verdict for lines in lines_of(ended).values() for verdict, _ in lines}
    assert 1 == ended.returncode


def test_fake_npu_smi(tmp_path: Path) -> None:
    """npu-smi is looked for on the PATH, as a shell would."""
    tool = tmp_path / "npu-smi"
    tool.write_text("#!/bin/sh\necho '| 3     910B3      | Critical      | 93.6 |'\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = run_to_end("--check", "--nproc-per-node", "1", env=env, cwd=tmp_path)

    assert [("error", "NPU 3 (910B3) reports Critical")] == lines_of(ended)["health"]
    assert 1 == ended.returncode


def test_stopped_in_the_middle(tmp_path: Path) -> None:
    """A SIGTERM while npu-smi is asked ends the check as it ends a job; it comes from the fake itself, in time."""
    tool = tmp_path / "npu-smi"
    tool.write_text("#!/bin/sh\nkill -TERM $PPID\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = run_to_end("--check", "--nproc-per-node", "1", env=env, cwd=tmp_path)

    assert 143 == ended.returncode
    assert "stopped by SIGTERM" in ended.stderr


# --- How it looks -----------------------------------------------------------------------------------------------------


def test_columns() -> None:
    """Verdict, subject and sentence stand below each other; what is to be done stands below its sentence."""
    assert "ok       grace        15 s\n" == text_of("grace", ok("15 s"))
    assert "WARNING  other nodes  odd\n                      to do: that\n" == text_of(
        "other nodes", warning("odd", "that")
    )


def test_nothing_steers_the_terminal() -> None:
    """Names from tables and tools are made plain, and stay on their line."""
    assert "ok       room         a\\x1b[31m b\n" == text_of("room", ok("a\x1b[31m\nb"))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], "node-3: nothing would hinder a job"),
        ([("a", ok("x"))], "node-3: nothing would hinder a job"),
        ([("a", warning("x"))], "node-3: 1 warning (a)"),
        (
            [
                ("b", warning("x")),
                ("a", warning("x")),
                ("a", warning("y")),
                ("c", ok("z")._replace(verdict=Verdict.ERROR)),
            ],
            "node-3: 1 error (c); 3 warnings (b, a)",
        ),
    ],
)
def test_summary(told: list[tuple[str, Line]], expected: str) -> None:
    """The last line has the host's name: on 64 nodes' logs it is what one searches for."""
    assert expected == summary(told, "node-3")


def test_worst_verdict_of_a_document() -> None:
    """A program need not look through the list."""
    assert ["ok", "ok", "warning"] == [
        json.loads(document_of(told, "x"))["verdict"]
        for told in ([], [("a", ok("x"))], [("a", ok("x")), ("b", warning("x"))])
    ]
