"""The metrics of a job, as Prometheus reads them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final

import attrs
import pytest
from prometheus_client import core, generate_latest, parser

from ascend_runner.record.rank_record import RankRecord, RankState
from ascend_runner.services.live import View
from ascend_runner.supervision.state import Phase
from ascend_runner.tools.job import jobs, metrics
from ascend_runner.tools.job.jobs import Snapshot
from ascend_runner.tools.job.processes import Usage
from ascend_runner.training.steps import Step
from tests.helpers.planted import SECRETS, WORD
from tests.helpers.program import Program
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT, wait_until
from tests.tools.job.conftest import JOB, Start, Tool, record_of

BEGAN: Final = 1_795_000_000.0
NOW: Final = BEGAN + 100
STEP: Final = (
    " iteration 7/ 9 | elapsed time per iteration (ms): 615.0 | lm loss: 2.5 | throughput per GPU (TFLOP/s/GPU): 9.5"
)
Samples = Mapping[tuple[str, str], float]  # by name without prefix, and "", rank, "rank signal", phase or state


def at(seconds: float) -> str:
    """Return a time as the report has it."""
    return datetime.fromtimestamp(BEGAN + seconds).astimezone().isoformat(timespec="milliseconds")


def rank(rank_id: int, **members: object) -> dict[str, object]:
    """Return a running rank as the report has it."""
    return {"rank_id": rank_id, "pid": 5000 + rank_id, "state": "running", "started_at": at(1), **members}


def seen(
    *ranks: dict[str, object],
    is_alive: bool | None = True,
    logs: Mapping[int, tuple[int, float]] = {},
    gone: Collection[int] = (),
    **members: object,
) -> Snapshot:
    """Return a job with these ranks."""
    report = {"state": "running", "server_id": "10.0.0.1", "pod_name": "pod-1", "ranks": [*ranks], **members}
    return Snapshot(job=attrs.evolve(JOB, began=BEGAN), is_alive=is_alive, record=record_of(report, logs, gone))


def text_of(shown: Snapshot, usages: Mapping[int, Usage] = {}) -> str:
    """Return the metrics as Prometheus' text."""

    class Collector:
        def collect(self) -> Iterator[core.Metric]:
            return metrics.of_job(shown, usages, NOW)

    registry = core.CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry).decode()


def samples(text: str) -> Samples:
    """Read the text with the parser of prometheus_client."""
    found: dict[tuple[str, str], float] = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = sample.labels
            key = " ".join(labels[name] for name in ("rank", "signal", "phase", "state") if name in labels)
            name = sample.name[len(metrics.PREFIX) :]
            assert metrics.PREFIX + name == sample.name
            assert (name, key) not in found
            found[name, key] = sample.value
    return found


def test_running_job() -> None:
    """All that is known of a rank comes back from the text, with at most 20 series."""
    signals = [(signum, at(5)) for signum in range(1, 12)]
    times = {"first_output_at": at(2), "last_output_at": at(90)}
    first = rank(0, device_id=4, log_size=10, log_lost=3, last_line=STEP, signals=signals, **times)
    usage = Usage(cpu_seconds=1.5, resident=4096, processes=3, uninterruptible=1)
    text = text_of(seen(first, rank(1), runner_version="1.0", rank_size=16, node_count=2), {0: usage})
    found = samples(text)

    expected = {
        "running": 1,
        "start_time_seconds": BEGAN + 1,
        "first_output_time_seconds": BEGAN + 2,
        "last_output_time_seconds": BEGAN + 90,
        "output_bytes_total": 10,
        "output_lost_bytes_total": 3,
        "cpu_seconds_total": 1.5,
        "resident_memory_bytes": 4096,
        "processes": 3,
        "uninterruptible_processes": 1,
        "step": 7,
        "step_seconds": 0.615,
        "loss": 2.5,
        "throughput": 9.5,
    }
    assert expected == {name: found[f"rank_{name}", "0"] for name in expected}
    assert ["0 SIGHUP", "0 SIGINT"] == [key for name, key in found if name == "rank_signals_sent_total"][:2]
    assert 20 == text.count('rank="0"')
    assert 'ascend_runner_rank_step{job="job",node="pod-1",npu="4",rank="0"} 7.0\n' in text
    assert {"rank_running", "rank_start_time_seconds"} == {name for name, key in found if key == "1"}
    assert (1, BEGAN, 2) == (found["up", ""], found["job_start_time_seconds", ""], found["ranks", "running"])
    assert (
        'ascend_runner_job_info{command="true",job="job",node="pod-1",nodes="2",ranks="16",version="1.0"} 1.0\n' in text
    )


def test_live_figures() -> None:
    """The phase and the age come from the runner, and are absent if it does not answer."""
    view = View(
        phase=Phase.TERMINATING,
        began=BEGAN,
        seconds=100,
        ranks=(RankRecord(rank_id=0, state=RankState.RUNNING, log_size=1, last_output_after=70.0),),
    )
    found = samples(text_of(jobs.with_view(seen(rank(0)), view)))

    assert 30 == found["board_age_seconds", ""]
    assert ["terminating"] == [key for (name, key), value in found.items() if name == "job_phase" and value]
    assert len(Phase) == [name for name, _key in found].count("job_phase")
    assert not {"board_age_seconds", "job_phase"} & {name for name, _key in samples(text_of(seen(rank(0))))}


def test_quiet_rank() -> None:
    """A rank that has written nothing for much longer than the others has a state of its own, and is running."""
    times = {number: (1, NOW - (70 if number == 2 else 1)) for number in range(4)}
    found = samples(text_of(seen(*map(rank, range(3)), rank(3, state="failed"), logs=times)))

    assert (1, 2, 1) == tuple(found["ranks", state] for state in ("quiet", "running", "failed"))
    assert 1 == found["rank_running", "2"]


def test_rank_that_is_left_alone() -> None:
    """So has one that has written nothing for minutes since the others have succeeded."""
    ended_at = datetime.fromtimestamp(NOW - 240).astimezone().isoformat()
    ranks = [rank(0), *(rank(number, state="succeeded", ended_at=ended_at) for number in range(1, 4))]
    found = samples(text_of(seen(*ranks, logs={0: (1, NOW - 250)})))

    assert (1, 3) == tuple(found["ranks", state] for state in ("quiet", "succeeded"))


def test_step_in_the_log() -> None:
    """A step stays while other lines follow it; without a log, the step in the last line counts."""
    shown = seen(rank(0, last_line="saved"), rank(1, last_line="X_STEP=5"), rank(2, last_line="saved"))
    found = samples(text_of(attrs.evolve(shown, steps={0: Step(step=9, loss=2.5)})))

    assert (9, 2.5, 5) == (found["rank_step", "0"], found["rank_loss", "0"], found["rank_step", "1"])
    assert ("rank_step", "2") not in found


def test_ended_job() -> None:
    """It has an end, an exit status and the rank that failed; its runner is neither up nor killed."""
    ranks = (
        rank(0, state="failed", exit_code=7, seconds=59.0, user_seconds=1.5, system_seconds=0.5),
        rank(1, state="stopped", exit_code=None, signal=15, seconds=60.0),
    )
    found = samples(
        text_of(
            seen(
                *ranks,
                is_alive=False,
                state="failed",
                status=7,
                started_at=at(0),
                ended_at=at(62),
                seconds=62.0,
                cause={"rank_id": 0},
            )
        )
    )

    assert (BEGAN + 62, 7, 0) == tuple(
        found[f"job_{name}", ""] for name in ("end_time_seconds", "exit_status", "failed_rank")
    )
    assert (0, 7, BEGAN + 60, 2) == tuple(
        found[f"rank_{name}", "0"] for name in ("running", "exit_code", "end_time_seconds", "cpu_seconds_total")
    )
    assert (0, 15) == (found["rank_running", "1"], found["rank_exit_signal", "1"])
    assert (1, 1, 0) == tuple(found["ranks", state] for state in ("failed", "stopped", "running"))
    assert 1 == found["job_phase", "done"]
    assert not {("up", ""), ("rank_exit_signal", "0"), ("rank_exit_code", "1")} & found.keys()


def test_killed_runner() -> None:
    """It is not up, and has neither an end nor an exit status; a rank that has ended since is not running."""
    found = samples(text_of(seen(rank(0), rank(1), is_alive=False, gone={1})))

    assert 0 == found["up", ""]
    assert (1, 0) == (found["rank_running", "0"], found["rank_running", "1"])
    assert (1, 1) == (found["ranks", "running"], found["ranks", "ended"])
    assert not {("job_end_time_seconds", ""), ("job_exit_status", "")} & found.keys()


def test_unknown_job() -> None:
    """Without a report, and on another machine, nothing is invented."""
    found = samples(text_of(Snapshot(job=JOB, is_alive=None, why="gone")))

    assert {"job_info", "job_start_time_seconds"} == {name for name, _key in found}


def test_hostile_names() -> None:
    """Names cannot end a label or a line, nor reach a terminal as control characters; a rank counts once."""
    name = 'a"b\\c\nd\x1b[31m\u202e\ud800\0}'
    shown = seen(rank(0, name=name), rank(0, name=name), rank(-1, name="x" * 100_000), pod_name=name, state=name)
    text = text_of(attrs.evolve(shown, job=attrs.evolve(shown.job, job_id=name, command=(name,))))
    (info,) = (
        family.samples[0] for family in parser.text_string_to_metric_families(text) if "info" in family.samples[0].name
    )

    assert 'a"b\\c\\nd\\x1b[31m\\u202e\\ud800\\x00}' == info.labels["node"]
    assert text.replace("\n", "").isprintable()
    assert max(map(len, text.splitlines())) < 1000
    assert {1} == {*Counter(line.rpartition(" ")[0] for line in text.splitlines() if line[0] != "#").values()}


@pytest.mark.parametrize("secret", SECRETS)
def test_planted(secret: str) -> None:
    """No secret of the variables, the arguments, the rank table or the logs is in the metrics."""
    variables = {"SOME_TEXT": secret}
    shown = seen(
        rank(0, last_line=f"loss {secret}", variables=variables, name=secret, log_path=f"/{secret}"),
        pod_name=secret,
        server_id=secret,
        warnings=[secret],
        cause={"sentence": secret, "rank_id": 0},
    )
    commands = [(secret, secret), ("train", *secret.split(" ")), ("sh", "-c", f"train {secret}")]
    texts = [
        text_of(attrs.evolve(shown, job=attrs.evolve(JOB, command=command, job_id=secret))) for command in commands
    ]

    assert not any(WORD in text for text in texts)


def test_no_word_of_the_job() -> None:
    """No output and no argument is in the metrics, whether it looks like a secret or not."""
    shown = seen(rank(0, last_line=f"{WORD} {STEP}", log_path=f"/{WORD}"), log_dir=WORD, cause={"sentence": WORD})

    assert WORD not in text_of(attrs.evolve(shown, job=attrs.evolve(JOB, command=("/bin/train", WORD), log_dir=WORD)))


def has_written(tool: Tool) -> bool:
    """Whether both ranks have written a line of 6 bytes, and the runner has noted that they run."""
    status, text = tool("metrics")
    found = samples(text) if status == 0 else {}
    keys = (("rank_output_bytes_total", "0"), ("rank_output_bytes_total", "1"), ("job_phase", "running"))
    return [6, 6, 1] == [found.get(key) for key in keys]


def test_real_job(start: Start, tool: Tool) -> None:
    """The metrics of a job that runs, of one whose runner was killed, and of one that has ended."""
    run = start("echo ready; exec sleep 1000")
    wait_until(lambda: has_written(tool))
    status, text = tool("metrics", "job")
    found = samples(text)

    assert 0 == status
    assert (1, 1, 2) == (found["up", ""], found["rank_running", "1"], found["ranks", "running"])
    assert 1 == found["rank_processes", "0"]
    assert 0 < found["rank_resident_memory_bytes", "0"]
    run.send(signal.SIGTERM)
    run.finish()
    found = samples(tool("metrics", "job")[1])
    assert 143 == found["job_exit_status", ""]
    assert ("up", "") not in found
    assert "no job 'other'" in tool("metrics", "other")[1]


@pytest.mark.deep
def test_real_job_without_its_runner(start: Start, tool: Tool, program: Program) -> None:
    """A runner that was killed is not up, and none of its ranks is running."""
    run = start("echo ready; exec sleep 1000")
    wait_until(lambda: has_written(tool))
    wait_until(lambda: ["running"] * 2 == [rank["state"] for rank in program.report()["ranks"]])
    os.kill(run.runner_pid, signal.SIGKILL)
    run.finish()
    found = samples(tool("metrics")[1])

    assert (0, 0, 2) == (found["up", ""], found["rank_running", "0"], found["ranks", "ended"])


def test_without_the_extra() -> None:
    """Without prometheus_client, the command says how to install it."""
    script = (
        "import sys; sys.modules['prometheus_client'] = None\nfrom ascend_runner.tools.job import main; main.main()"
    )
    command = [sys.executable, "-c", script, "metrics"]
    ended = subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False, timeout=LIMIT)

    assert ended.stderr.startswith("ascend-job: metrics requires the package prometheus_client: ")


def test_directory_of_several_nodes(start: Start, tool: Tool, program: Program) -> None:
    """Its metrics are those of all nodes, each family once."""
    for node in range(2):
        place = ("--nnodes", "2", "--node-rank", str(node), "--master-addr", "127.0.0.1", "--link", "off")
        start(f"exit {node * 4}", *place, ranks=1).finish()
    status, text = tool("metrics", str(program.log_dir))
    (family,) = (one for one in parser.text_string_to_metric_families(text) if one.name.endswith("job_exit_status"))

    assert 0 == status
    assert [0.0, 4.0] == [sample.value for sample in family.samples]
