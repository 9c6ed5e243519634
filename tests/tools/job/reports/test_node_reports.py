"""The reports of several nodes side by side: which files count, and which node is likely the cause."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from ascend_runner.errors import UnreadableError
from ascend_runner.services import run_folder
from ascend_runner.tools.job import jobs, node_reports
from ascend_runner.tools.job.node_reports import NodeReports
from tests.helpers import node_folders
from tests.helpers.program import Program
from tests.helpers.waiting import wait_until
from tests.tools.job.conftest import Start, Tool

EARLIER = {"started_at": "2026-11-22T07:00:00+08:00", "ended_at": "2026-11-22T07:30:00+08:00"}


def screen(tool: Tool, *words: str) -> list[str]:
    """Return the lines that the command prints."""
    status, shown = tool("report", *words)
    assert 0 == status, shown
    return shown.splitlines()


def test_screen(tool: Tool, tmp_path: Path) -> None:
    """It names the likely cause and why, its log and its report, and has a row for the nodes that report the same."""
    node_folders.write(tmp_path, 4, culprit=21)

    assert [
        "job: failed; final reports from 4 of 4 nodes",
        "  cause   rank 21 on node 2 (worker-2): ValueError: loss is nan at step 17",
        "          likely the cause: no other node has one of its own",
        f"  log     {tmp_path}/job-proc-rank-21-device-5.txt",
        f"  report  {tmp_path}/job-report-node-2.json",
        "",
        "node     host      ranks        state   error      reported",
        "2        worker-2  16-23        failed  own        ValueError: loss is nan at step 17",
        "0, 1, 3            0-15, 24-31  failed  lost peer  EI0006: [PID: 7] Getting socket times out.",
    ] == screen(tool, str(tmp_path))
    assert not [*tmp_path.glob("*.html")]


def nodes(folder: Path, *parts: Mapping[str, object] | None) -> NodeReports:
    """Return what is read from the reports of some nodes, as changes to one that has lost a peer; None leaves none."""
    for number, changes in enumerate(parts):
        if changes is not None:
            report = node_folders.report(number, len(parts), 1_000_000, **changes)
            node_folders.put(folder, f"job-report-node-{number}.json", report)
    return node_reports.read(str(folder))


def failed(kind: str = "rank_failed", state: str = "failed", **changes: object) -> dict[str, object]:
    """Return changes to a report, so that the node has failed by itself, or as its cause says."""
    record = node_folders.rank(0, finding=node_folders.OWN) | changes
    return {"state": state, "cause": {"kind": kind, "sentence": "it failed", "rank_id": 0}, "ranks": [record]}


LOST: Mapping[str, object] = {}
OWN = failed()
OTHER = failed(finding={"exception": "OSError: no space left on device"})
KILLED = failed(exit_code=None, signal=9)
SILENT = failed(finding=None)
EITHER = failed(finding={"code": "EI0013", "code_kind": "this rank or a peer may be at fault"})
LATER = failed(finding={"code": "EZ9999", "code_kind": "a kind of a later version"})
HUNG = failed("hang")
STOPPED = failed("interrupted", "stopped")
EXPIRED = failed("expired", "expired")
UNHEALTHY = failed("unhealthy")
RUNNER = failed("runner_failed")
FINE: Mapping[str, object] = {"state": "succeeded", "cause": None}
STOPPED_BY_A_PEER = {"cause": {"kind": "node_failed", "sentence": "node 1 failed (rank 8: exit status 1)"}}


def on(node: int, report: Mapping[str, object] = LOST, kind: str = "own", **changes: object) -> dict[str, object]:
    """Return a report with the verdict that a rank of a node is the cause."""
    rank_id = 8 * node
    verdict = {"node": node, "rank_id": rank_id, "sentence": f"rank {rank_id} failed: it", "kind": kind, "status": 1}
    return {**report, "verdict": {**verdict, "certainty": "certain", **changes}}


@pytest.mark.parametrize(
    ("parts", "candidates", "is_open"),
    [
        ((LOST, OWN, LOST), [1], False),
        ((LOST, OWN, None), [1], False),  # a missing report is only unknown
        ((KILLED, OWN, HUNG), [1], False),
        ((LOST, RUNNER, LOST), [1], False),
        ((LOST, UNHEALTHY, STOPPED), [1], False),
        ((OWN, OWN, LOST), [0], False),  # the error is the cause, wherever it came first
        ((OWN, OTHER, LOST), [0, 1], True),
        ((LOST, None, LOST), [1], False),
        ((LOST, None, None), [1, 2], True),
        ((LOST, KILLED, FINE), [1], False),
        ((LOST, SILENT, LOST), [1], False),
        ((LOST, EITHER, LOST), [1], False),
        ((LOST, LATER, LOST), [1], False),
        ((HUNG, HUNG, HUNG), [0, 1, 2], True),
        ((STOPPED_BY_A_PEER, None), [1], False),
        ((on(1), on(1, OWN), on(1, OTHER)), [1], False),  # the verdict of the link stands for those that were linked
        ((on(1), None, on(1)), [1], False),
        ((on(1, LOST, "unknown"), on(1, SILENT, "unknown"), OTHER), [2], False),  # that one was not heard
        ((on(1, LOST, "peer"), on(1, LOST, "peer"), on(1, LOST, "peer")), [1], True),
        ((on(1), on(2), on(1, OTHER)), [1, 2], True),
        ((on(0, tied=[2]), on(0, OWN, tied=[2]), on(0, OTHER, tied=[2])), [0, 2], True),
        ((on(0, is_alone=True), on(1, OWN, is_alone=True), on(2, is_alone=True)), [1], False),
        ((on(0, restarts=True), on(0, OWN, restarts=True)), [1], False),  # on an attempt before
        ((on(9), on(9, OWN)), [1], False),
        ((LOST, STOPPED, LOST), [0, 2], True),
        ((LOST, STOPPED), [0], True),
        ((STOPPED, STOPPED, None), [], False),
        ((EXPIRED, EXPIRED), [], False),
        ((FINE, FINE), [], False),
    ],
)
def test_candidates(
    parts: tuple[Mapping[str, object] | None, ...], candidates: list[int], *, is_open: bool, tmp_path: Path
) -> None:
    """An error of its own precedes an unknown one, which precedes a lost peer; a node that was stopped is no candidate.

    Linked nodes have one candidate, which their verdict names.
    """
    found = nodes(tmp_path, *parts)

    assert (candidates, is_open) == ([node.number for node in found.candidates], found.is_open)


def test_verdict_of_linked_nodes(tool: Tool, tmp_path: Path) -> None:
    """The cause is the sentence of the verdict; nodes without it are named, and verdicts that differ are told."""
    log = "/other/job-proc-rank-8-device-0.txt"
    nodes(tmp_path, on(1, log=log, missing=[3]), None, on(1, log=log, missing=[3]), on(3, is_alone=True))

    assert [
        "job: failed; final reports from 3 of 4 nodes",
        "  cause   rank 8 on node 1 failed: it",
        "          certainly the cause: the verdict of nodes 0, 2, made without node 3",
        "  differs the verdict of node 3, alone: rank 24 on node 3 failed: it",
        f"  log     {log} on that node",
        "",
        "node  host      ranks       state      error      reported",
        "1               8-15        no report  own        rank 8 failed: it",
        "3     worker-3  24-31       failed     lost peer  EI0006: [PID: 7] Getting socket times out.",
        "0, 2            0-7, 16-23  failed     -          EI0006: [PID: 7] Getting socket times out.",
    ] == screen(tool, str(tmp_path))


def test_many_verdicts(tool: Tool, tmp_path: Path) -> None:
    """Of many nodes that decided alone, three are shown, and the others counted."""
    nodes(tmp_path, on(0), *(on(node, is_alone=True) for node in range(1, 9)))
    lines = screen(tool, str(tmp_path))

    assert 3 == sum(line.startswith("  differs ") for line in lines)
    assert "          and 5 other verdicts" in lines


@pytest.mark.parametrize("seconds", [-600, -1, 1, 600])
def test_clocks_decide_nothing(seconds: int, tmp_path: Path) -> None:
    """A node whose clock is wrong is neither more nor less suspected."""
    moments = [
        (datetime.fromisoformat(moment) + timedelta(seconds=seconds)).isoformat()
        for moment in (node_folders.BEGAN, node_folders.ENDED)
    ]
    times = dict(zip(("started_at", "ended_at"), moments))

    assert [0, 1] == [node.number for node in nodes(tmp_path, OWN, {**OTHER, **times}, LOST).candidates]
    assert [0, 1] == [node.number for node in nodes(tmp_path, {**OWN, **times}, OTHER, LOST).candidates]


def test_suspected_nodes_come_first(tool: Tool, tmp_path: Path) -> None:
    """Of nodes that are a tie, those that most others suspect are named, three at most."""
    peer = {"rank_id": 41, "server_id": "10.0.0.5", "device_id": 1, "device_ip": "", "reported_by": [0]}
    cause = {"kind": "rank_failed", "sentence": "failed", "rank_id": 0, "is_a_consequence": True}
    found = nodes(tmp_path, *[{"cause": {**cause, "rank_id": 8 * node, "suspected_peer": peer}} for node in range(8)])

    assert ([5, 0, 1], 7) == ([node.number for node in found.candidates[:3]], found.candidates[0].named_by)
    lines = screen(tool, str(tmp_path))
    assert "          or one of 5 other nodes" in lines
    assert "          cause unclear: no node has an error of its own; suspected by 7 other" in lines


def test_missing_report(tool: Tool, tmp_path: Path) -> None:
    """A node without a report is counted, and the likely cause if the others have only lost a peer."""
    node_folders.write(tmp_path, 4, culprit=21, missing=frozenset({2}))
    lines = screen(tool, str(tmp_path))

    assert "job: failed; final reports from 3 of 4 nodes" == lines[0]
    assert "  cause   node 2: no report" == lines[1]
    assert "2        16-23        no report  unknown" in lines


def test_page_of_the_cause(tool: Tool, tmp_path: Path) -> None:
    """With an output file, the page of the node with the cause is written, and none if that is not clear."""
    node_folders.write(tmp_path, 4, culprit=21)
    page = tmp_path / "a.html"
    lines = screen(tool, str(tmp_path), "-o", str(page))

    assert lines[-1].startswith(f"wrote {page} (")
    assert "Rank 21 failed" in page.read_text() or "worker-2" in page.read_text()
    page.unlink()
    (tmp_path / "job-report-node-2.json").unlink()
    status, text = tool("report", str(tmp_path), "-o", str(page))
    assert (2, False) == (status, page.exists())
    assert text.endswith("it is not clear which: specify the JSON report of one\n")


def test_unfinished_report(tool: Tool, tmp_path: Path) -> None:
    """A node whose runner was killed has a report without an end, which counts as none."""
    node_folders.write(tmp_path, 4, culprit=21)
    node_folders.put(tmp_path, "job-report-node-2.json", node_folders.report(2, 4, 21, state="running"))
    lines = screen(tool, str(tmp_path))

    assert "job: failed; final reports from 3 of 4 nodes" == lines[0]
    assert "  cause   node 2 (worker-2): incomplete report (last state: running)" == lines[1]


def test_incomplete_report_of_this_machine(program: Program, tool: Tool) -> None:
    """The lock of its runner shows whether a node is still running, or the runner was killed, as were its ranks."""
    node_folders.write(program.log_dir, 2, culprit=9)
    place = ("--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--nproc-per-node", "1")
    own = ("--log-dir", str(program.log_dir), "--html", "never")
    run = program.start(*place, *own, "sh", "-c", "echo ready; exec sleep 1000", env={"MA_VJ_NAME": "job"})
    run.wait_for("ready")
    wait_until(lambda: json.loads((program.log_dir / "job-report-node-0.json").read_bytes())["state"] == "running")
    recent = {"started_at": datetime.now(timezone.utc).isoformat(), "ended_at": None}
    node_folders.put(program.log_dir, "job-report-node-1.json", node_folders.report(1, 2, 9, **recent))
    alive = screen(tool, str(program.log_dir))
    job = jobs.find(f"{program.log_dir}/job-run-node-0.json", os.environ)
    os.kill(job.runner_pid, signal.SIGKILL)
    run.finish()
    killed = screen(tool, str(program.log_dir))

    assert any("still running" in line for line in alive), alive
    assert any("the runner was killed (last state: running)" in line for line in killed), killed


def test_name_of_a_job(start: Start, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a job means that job, although a directory with reports of several nodes is called the same."""
    start("true", ranks=1, name="train").finish()
    (tmp_path / "train").mkdir()
    node_folders.write(tmp_path / "train", 2, culprit=9)
    monkeypatch.chdir(tmp_path)

    assert ["wrote"] == [line.split()[0] for line in screen(tool, "train")]
    assert "job: failed; final reports from 2 of 2 nodes" == screen(tool, "./train")[0]


def test_json(tool: Tool, tmp_path: Path) -> None:
    """The candidates, and what is known of each node, are also printed as JSON."""
    node_folders.write(tmp_path, 4, culprit=21, missing=frozenset({0}))
    found = json.loads(tool("report", str(tmp_path), "--json")[1])

    assert ("job", "failed", "likely", [2]) == tuple(
        found[name] for name in ("job_id", "state", "certainty", "candidates")
    )
    assert ["no report", "failed", "failed", "failed"] == [node["state"] for node in found["nodes"]]
    assert [("unknown", None), ("lost peer", 8), ("own", 21), ("lost peer", 24)] == [
        (node["standing"], node["rank_id"]) for node in found["nodes"]
    ]


def test_files(tool: Tool, tmp_path: Path) -> None:
    """Each file that cannot be used is one sentence: damaged, foreign, of another job, older, or no file."""
    node_folders.write(tmp_path, 3, culprit=21)
    node_folders.put(tmp_path, "job-report-old.json", node_folders.report(1, 3, 21, **EARLIER))
    node_folders.put(tmp_path, "other-report-node-0.json", node_folders.report(0, 3, 21, **EARLIER, job_id="other"))
    (tmp_path / "job-report-node-7.json").write_text('{"job_id":')
    (tmp_path / "job-report-node-8.json").write_bytes(b"\xff\0" * 100)
    os.mkfifo(tmp_path / "job-report-node-9.json")
    (tmp_path / "job-report-node-10.json").symlink_to("job-report-node-0.json")
    (tmp_path / "job-report-node-11.json").mkdir()
    (tmp_path / "job-report-node-13.json").write_text("[" * 100_000)
    (tmp_path / "job-report-node-14.json").write_text('{"job_id": ["x"], "ranks": [1, null, {"rank_id": "x"}]}')
    found = node_reports.read(str(tmp_path))

    assert [0, 1, 2] == [node.number for node in found.nodes]
    assert 9 == len(found.left_out)
    assert all("\n" not in sentence for sentence in found.left_out)
    assert "job: failed; final reports from 3 of 3 nodes" == screen(tool, str(tmp_path))[0]


def test_earlier_run(tmp_path: Path) -> None:
    """A report of an earlier run does not stand for the node, which has left none of the newest run."""
    node_folders.write(tmp_path, 4, culprit=21)
    node_folders.put(tmp_path, "job-report-node-2.json", node_folders.report(2, 4, 21, **EARLIER))
    found = node_reports.read(str(tmp_path))

    assert ["failed", "failed", "no report", "failed"] == [node.state for node in found.nodes]
    assert (f"ignored '{tmp_path}/job-report-node-2.json': it is from an earlier run",) == found.left_out
    assert (*range(16, 24),) == found.nodes[2].rank_ids


def spread(folder: Path, count: int) -> list[str]:
    """Write the reports of nodes, the logs beside them, into a directory each; the last one is given as a file."""
    node_folders.write(folder, count, culprit=9)
    for number in range(count):
        path = folder / f"node{number}"
        path.mkdir()
        names = (f"*-node-{number}.json", *(f"*-rank-{rank_id}-*" for rank_id in range(8 * number, 8 * number + 8)))
        for found in [found for name in names for found in folder.glob(name)]:
            found.rename(path / found.name)
    (path / f"job-report-node-{count - 1}.json").rename(path / "report.json")
    return [*(str(folder / f"node{number}") for number in range(count - 1)), str(path / "report.json")]


def test_several_directories(tool: Tool, tmp_path: Path) -> None:
    """Directories and reports are those of the nodes of one job, with the logs beside them."""
    paths = spread(tmp_path, 3)
    lines = screen(tool, *paths)

    assert "job: failed; final reports from 3 of 3 nodes" == lines[0]
    assert lines[1].startswith("  cause   rank 9 on node 1 (worker-1)")
    assert f"  log     {tmp_path}/node1/job-proc-rank-9-device-1.txt" in lines


def test_same_node_in_several_directories(tmp_path: Path) -> None:
    """Of two reports of the same node the newer one counts, with a note; a path that is named twice is read once."""
    paths = spread(tmp_path, 3)
    (tmp_path / "old").mkdir()
    recent = {"started_at": "2026-11-22T09:47:35+08:00"}
    node_folders.put(tmp_path / "old", "job-report-node-1.json", node_folders.report(1, 3, 9, **recent))
    found = node_reports.read(*paths, str(tmp_path / "old"), paths[0])

    assert (1, 3) == (len(found.left_out), len(found.nodes))
    assert found.left_out[0].startswith(f"ignored '{tmp_path}/old/job-report-node-1.json': ")
    assert f"{tmp_path}/node1/job-report-node-1.json" == found.nodes[1].path


def put_run_file(folder: Path, number: int, run_folder: Path) -> None:
    """Write the run file of a node whose runner has ended."""
    run_folder.mkdir()
    job = {"host": "", "pid_namespace": "", "pid": 1, "started": 1, "runner_pid": 1, "began": 1.0, "command": []}
    members = {**job, "job_id": "job", "part": f"-node-{number}", "log_dir": "/", "run_folder": str(run_folder)}
    node_folders.put(folder, f"job-run-node-{number}.json", members)


def test_spare_report(tool: Tool, tmp_path: Path) -> None:
    """A final report that could not be written beside the logs counts, and its failure is the cause."""
    node_folders.write(tmp_path, 2, culprit=3)
    fine = [node_folders.rank(one, state="succeeded", exit_code=0) for one in range(8, 16)]
    members = node_folders.report(1, 2, 3, state="succeeded", status=0, cause=None, ranks=fine)
    node_folders.put(tmp_path, "job-report-node-1.json", members)
    running = node_folders.report(0, 2, 3, state="running", ended_at=None, cause=None)
    node_folders.put(tmp_path, "job-report-node-0.json", running)
    put_run_file(tmp_path, 0, tmp_path / "run")
    node_folders.put(tmp_path / "run", run_folder.REPORT_FILE, node_folders.report(0, 2, 3))
    lines = screen(tool, str(tmp_path))

    assert "job: failed; final reports from 2 of 2 nodes" == lines[0]
    assert lines[1].startswith("  cause   rank 3 on node 0 (worker-0): ValueError: loss is nan")

    (tmp_path / "run" / run_folder.REPORT_FILE).write_text("{")

    assert node_reports.read(str(tmp_path)).nodes[0].state.endswith("is not the JSON report of a job")


def test_files_beside_an_older_report(tmp_path: Path) -> None:
    """Only the run file beside the newest report of a node counts, in any order of the paths."""
    changes: dict[str, object] = {"state": "running", "ended_at": None, "cause": None}
    for name, times in (("new", {}), ("old", EARLIER)):
        (tmp_path / name).mkdir()
        report = node_folders.report(0, 2, 9, **{**changes, **times})
        node_folders.put(tmp_path / name, "job-report-node-0.json", report)
        put_run_file(tmp_path / name, 0, tmp_path / name / "run")
    node_folders.put(tmp_path / "old", "job-report-node-1.json", node_folders.report(1, 2, 9))
    node_folders.put(tmp_path / "old" / "run", run_folder.REPORT_FILE, node_folders.report(0, 2, 9, **EARLIER))
    for names in (("new", "old"), ("old", "new")):
        found = node_reports.read(*(str(tmp_path / name) for name in names))

        assert str(tmp_path / "new") == os.path.dirname(found.nodes[0].path)
        assert "the runner was killed (last state: running)" == found.nodes[0].state


def test_no_readable_report(tool: Tool, tmp_path: Path) -> None:
    """The sentence names no job, and says why the files of that directory cannot be used."""
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
        (path / "job-report-node-0.json").write_text("[]")
    why = f"'{paths[0]}/job-report-node-0.json' is not the JSON report of a job"
    answer = tool("report", *map(str, paths))

    assert (2, f"ascend-job: no node report found in '{paths[0]}': {why}\n") == answer


def test_wrong_arguments(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a report of the same job, or one that cannot be read, is one sentence, and nothing is written."""
    paths = spread(tmp_path, 2)
    for name in ("other", "empty", "here"):
        (tmp_path / name).mkdir()
    node_folders.put(tmp_path / "other", "b-report-node-0.json", node_folders.report(0, 2, 9, **EARLIER, job_id="b"))
    (tmp_path / "damaged.json").write_text("{")
    monkeypatch.chdir(tmp_path / "here")
    wrong = [*(str(tmp_path / name) for name in ("other", "empty", "damaged.json", "missing")), ""]
    answers = [tool("report", paths[0], word) for word in wrong]

    assert [2, 2, 2, 4, 2] == [status for status, _text in answers]
    assert [1, 1, 1, 1, 1] == [text.count("\n") for _status, text in answers], answers
    assert not list((tmp_path / "here").iterdir())


def test_ends_before_starts(tmp_path: Path) -> None:
    """Reports that end long before they start are not all taken for earlier runs, which would leave none."""
    for number in range(2):
        report = node_folders.report(number, 2, 21, ended_at=EARLIER["ended_at"])
        node_folders.put(tmp_path, f"job-report-node-{number}.json", report)

    assert ["failed", "failed"] == [node.state for node in node_reports.read(str(tmp_path)).nodes]


@pytest.mark.deep
def test_hostile_members(tool: Tool, tmp_path: Path) -> None:
    """Members of any type and size are unknown; no byte of theirs controls the terminal."""
    wild: list[object] = [None, -1, 10**30, 1e308, "\x1b[31m\0\ud800", [], {}, [[]], True, "9" * 5000]
    names = ("node_rank", "node_count", "started_at", "ended_at", "cause", "ranks", "server_id", "state")
    for index, value in enumerate(wild):
        for name in names:
            node_folders.write(tmp_path, 2, culprit=1)
            changes: dict[str, object] = {name: value} if name != "ranks" or isinstance(value, list) else {}
            node_folders.put(tmp_path, "job-report-node-1.json", node_folders.report(1, 2, 1, **changes))
            status, shown = tool("report", str(tmp_path))

            assert 0 == status, (index, name, shown)
            assert shown.replace("\n", "").isprintable()


def test_no_reports(tmp_path: Path) -> None:
    """Without a report that can be used there is no verdict."""
    (tmp_path / "job-report-node-0.json").write_text("[]")
    with pytest.raises(UnreadableError):
        node_reports.read(str(tmp_path))
    with pytest.raises(UnreadableError):
        node_reports.read(str(tmp_path / "missing"))


def test_json_of_one_node(tool: Tool, tmp_path: Path) -> None:
    """A table needs the reports of several nodes."""
    path = tmp_path / "job-report.json"
    path.write_text(json.dumps(node_folders.report(0, 1, 1)))

    assert 2 == tool("report", str(path), "--json")[0]


def test_jobs_of_one_node(tool: Tool, tmp_path: Path) -> None:
    """Jobs of one node each, whose names look like parts of one, are not nodes of one."""
    for name in ("a-report-1", "a-report-2"):
        node_folders.put(tmp_path, f"{name}-report.json", node_folders.report(0, 1, 1, job_id=name, node_rank=None))

    assert (4, 1) == (tool("report", str(tmp_path))[0], tool("report", str(tmp_path))[1].count("\n"))


def test_running_job(tool: Tool, tmp_path: Path) -> None:
    """While no node has ended there is no table: the part of this node has a page of its own."""
    for number in range(2):
        running = node_folders.report(number, 2, 1, state="running", cause=None)
        node_folders.put(tmp_path, f"job-report-node-{number}.json", running)

    assert 4 == tool("report", str(tmp_path))[0]
    assert not (tmp_path / "job-report.html").exists()


def test_real_nodes(program: Program, tool: Tool) -> None:
    """Runners of three unlinked nodes share a directory, a fourth never starts: the one that failed is the cause."""
    fails = "if [ $NODE_RANK = 1 ]; then echo 'ValueError: loss is nan' >&2; exit 3; fi; "
    loses = "while ! [ -s job-report-node-1.json ] || ! grep -q failed job-report-node-1.json; do sleep 0.05; done; "
    script = f"cd {program.log_dir}; {fails}{loses}echo 'EI0006: [PID: 7] no connection, remote rank: [1]'; exit 4"
    runs = []
    for node in range(3):
        place = ("--nnodes", "4", "--node-rank", str(node), "--master-addr", "127.0.0.1", "--nproc-per-node", "1")
        own = ("--log-dir", str(program.log_dir), "--html", "never", "--link", "off")
        runs.append(program.start(*place, *own, "sh", "-c", script, env={"MA_VJ_NAME": "job"}))
    assert [4, 3, 4] == [run.finish() for run in runs]
    wait_until(lambda: node_reports.has_several(str(program.log_dir)))
    lines = screen(tool, str(program.log_dir))

    assert "job: failed; final reports from 3 of 4 nodes" == lines[0]
    assert lines[1].startswith("  cause   rank 1 on node 1 (")
    assert "no final report from node 3" in " ".join(map(str.strip, lines[2:4]))
