"""What a user reads while a job runs and when it has ended. The screen of a failed rank is in test_report.py."""

from __future__ import annotations

import re
from signal import SIGTERM, SIGUSR1

import pytest

from ascend_runner import reporter
from ascend_runner.job.plan import JobSpec, RankSpec
from ascend_runner.reporter import Level, Reporter
from ascend_runner.supervision.events import Ending
from ascend_runner.supervision.outcome import Cause, Interrupted, Outcome, RankNotStarted, RankOutcome

OK = Ending()


def job(*rank_ids: int, pod_name: str = "") -> JobSpec:
    """Give a plan of these ranks, of 16 in all."""
    ranks = tuple(
        RankSpec(rank_id, local_rank, "/bin/true", ("true",), {}, "/", f"/log/{rank_id}.txt", b"")
        for local_rank, rank_id in enumerate(rank_ids)
    )
    return JobSpec(
        job_id="job",
        ranks=ranks,
        rank_size=16,
        server_id="10.0.0.1",
        pod_name=pod_name,
        grace=15.0,
        hang_timeout=None,
        rotation=(0, 0),
        log_dir="/log",
        has_own_process_logs=False,
        folders=(),
        table=None,
    )


def ended(cause: Cause | None, *ranks: RankOutcome, seconds: float = 3.21) -> str:
    """Give the last words on a job of which this became."""
    return reporter.ended(Outcome(cause, ranks, seconds), job(*(rank.rank_id for rank in ranks)))


# --- Lines ------------------------------------------------------------------------------------------------------------


def test_own_line_has_name_time_and_level() -> None:
    """[ascend-runner] <time> <level> <sentence>, ended."""
    assert re.fullmatch(rb"\[ascend-runner\] \d\d:\d\d:\d\d WARNING odd\n", reporter.own_line("WARNING", "odd"))


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("pod '\x1b[2J'", rb"pod '\x1b[2J'"),
        ("a\r\x00b", rb"a\r\x00b"),
        ("\udcff", rb"\udcff"),
        ("训练\t1", "训练\t1".encode()),
    ],
)
def test_nothing_in_a_sentence_steers_the_terminal(sentence: str, shown: bytes) -> None:
    """Names come from tables and variables: what a terminal would take for a command is spelled out."""
    assert reporter.own_line("INFO", sentence).endswith(b" INFO " + shown + b"\n")


@pytest.mark.parametrize(
    ("lowest", "said"),
    [
        ("DEBUG", ["debug", "info", "warning", "error"]),
        ("INFO", ["info", "warning", "error"]),
        ("WARNING", ["warning", "error"]),
    ],
)
def test_levels(lowest: Level, said: list[str]) -> None:
    """What is below the lowest level is not said."""
    lines: list[bytes] = []
    out = Reporter(lines.append, lowest)
    out.debug("debug")
    out.info("info")
    out.warn("warning")
    out.error("error")

    assert said == [line.decode().split(" ")[-1].strip() for line in lines]


def test_warnings_are_kept_for_the_report() -> None:
    """Whatever was shown of them."""
    out = Reporter(lambda _: None, "ERROR")
    out.warn("odd")
    out.error("bad")

    assert ["odd"] == out.warnings


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0.0 s"),
        (9.94, "9.9 s"),
        (10.4, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (125.0, "2 min 5 s"),
        (3599.7, "1 h 0 min"),
        (8040.0, "2 h 14 min"),
        (273600.0, "3 d 4 h"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    """In the two largest units, and never "60 s"."""
    assert words == reporter.duration(seconds)


# --- A job's beginning and end ----------------------------------------------------------------------------------------


def test_beginning_says_what_runs_where() -> None:
    """Ranks, of how many, on which server and pod, and where the logs are."""
    assert "starting ranks 8, 9 of 16 on 10.0.0.1 (pod job-1), logs in /log" == reporter.starting(
        job(8, 9, pod_name="job-1")
    )
    assert "starting rank 0 of 16 on 10.0.0.1, logs in /log" == reporter.starting(job(0))
    assert "starting rank 0 on 10.0.0.1, logs in /log" == reporter.starting(job(0)._replace(rank_size=0))


def test_process_that_is_no_rank_is_called_by_its_name() -> None:
    """Whether it starts, ends or fails: a number below 0 is never shown."""
    scheduler = job(-1).ranks[0]._replace(name="scheduler")
    both = job(0, 1)._replace(beside=(scheduler,))
    ranks = (RankOutcome(-1, Ending(signum=SIGTERM), is_told_to_stop=True), RankOutcome(0, OK), RankOutcome(1, OK))
    not_started = RankNotStarted(-1, "no memory", 125, name="scheduler")

    assert "starting ranks 0, 1 of 16 and scheduler on 10.0.0.1, logs in /log" == reporter.starting(both)
    assert "all 2 ranks ended with exit status 0 after 3.2 s" == reporter.ended(Outcome(None, ranks, 3.21), both)
    assert "scheduler could not be started: no memory\n  others 0, 1: exit status 0" == reporter.ended(
        Outcome(not_started, ranks), both
    )
    assert "  ranks  scheduler: told to stop, killed by SIGTERM" in reporter.ended(
        Outcome(Interrupted(SIGTERM), ranks, 3.21), both
    )


def test_success_is_one_line() -> None:
    """How many ranks, and how long."""
    assert "rank 3 ended with exit status 0 after 3.2 s" == ended(None, RankOutcome(3, OK))
    assert "all 2 ranks ended with exit status 0 after 3.2 s" == ended(None, RankOutcome(3, OK), RankOutcome(4, OK))


def test_interruption_names_its_signal_and_what_became_of_each() -> None:
    """Ranks that ended alike are named together."""
    words = ended(
        Interrupted(SIGTERM),
        RankOutcome(0, OK),
        RankOutcome(1, Ending(signum=SIGTERM), is_told_to_stop=True),
        RankOutcome(2, Ending(signum=SIGTERM), is_told_to_stop=True),
        RankOutcome(3, Ending(signum=SIGUSR1, core_dumped=True), is_told_to_stop=True),
        RankOutcome(4, None, is_told_to_stop=True),
        RankOutcome(5, None, is_started=False),
    )

    assert words.splitlines() == [
        "stopped by SIGTERM, 3.2 s after the start",
        "  logs   /log",
        "  ranks  0: exit status 0",
        "         1, 2: told to stop, killed by SIGTERM",
        "         3: told to stop, killed by SIGUSR1 (core dumped)",
        "         4: killed, but does not die",
        "         5: not started",
    ]


def test_rank_that_could_not_be_started_is_the_cause_and_none_of_the_others() -> None:
    """The reason, then the others."""
    words = ended(
        RankNotStarted(1, "'/bin/x': no such file or directory", 127),
        RankOutcome(0, Ending(signum=SIGTERM), is_told_to_stop=True),
        RankOutcome(1, None, is_started=False),
        RankOutcome(2, None, is_started=False),
    )

    assert words.splitlines() == [
        "rank 1 could not be started: '/bin/x': no such file or directory",
        "  others 0: told to stop, killed by SIGTERM",
        "         2: not started",
    ]
