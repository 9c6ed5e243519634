"""Every sentence that a user reads while a job runs and when it has ended. Pure: records in, text out.

The last screen answers, in this order: what, who, when, why, where, and what became of the others.
"""

from __future__ import annotations

import os.path
import time

from ascend_runner.annotations import TYPE_CHECKING, Callable, Final, Literal
from ascend_runner.supervision.outcome import RankFailed, RankNotStarted
from ascend_runner.text import printable, rank_list, rank_numbers

if TYPE_CHECKING:
    from ascend_runner.job.plan import JobSpec
    from ascend_runner.supervision.outcome import Outcome, RankOutcome

NAME: Final = "[ascend-runner]"


# How much a line matters.
Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LEVELS: Final[tuple[Level, ...]] = ("DEBUG", "INFO", "WARNING", "ERROR")  # rising


class Reporter:
    """Writes the runner's own lines: `[ascend-runner] 03:12:45 ERROR <sentence>`."""

    def __init__(self, write: Callable[[bytes], None], lowest: Level = "INFO") -> None:
        """`write` takes whole lines; those below the `lowest` level are left out."""
        self._write = write
        self.lowest = lowest
        self.warnings: list[str] = []  # all that were said, for the report

    def say(self, level: Level, sentence: str) -> None:
        """Write one sentence, or several lines of which the first is one."""
        if LEVELS.index(level) >= LEVELS.index(self.lowest):
            self._write(own_line(level, sentence))

    def debug(self, sentence: str) -> None:
        """Say what only --verbose shows."""
        self.say("DEBUG", printable(sentence))

    def info(self, sentence: str) -> None:
        """Say what is going on."""
        self.say("INFO", printable(sentence))

    def warn(self, sentence: str) -> None:
        """Say what is odd but works."""
        self.warnings.append(sentence)
        self.say("WARNING", printable(sentence))

    def error(self, sentence: str) -> None:
        """Say what has failed; of all that is said, this may be several lines."""
        self.say("ERROR", sentence)


def own_line(level: Level, sentence: str) -> bytes:
    """Give the line as it is written; what a terminal would take for a command is escaped.

    Further lines are indented: a newline in some name cannot begin what looks like a line of the runner's own.
    """
    clean = "\n  ".join(map(printable, sentence.split("\n  ")))
    return f"{NAME} {time.strftime('%H:%M:%S')} {level} {clean}\n".encode(errors="backslashreplace")


def starting(job: JobSpec) -> str:
    """Say what is about to run where."""
    return f"starting {placed(job)}, logs in {job.log_dir}"


def placed(job: JobSpec) -> str:
    """Say which part of a job is this node's: "ranks 0-7 of 8 on 10.0.0.1"."""
    started = [process.name for process in job.beside]
    if job.ranks:
        ranks = rank_list([rank.rank_id for rank in job.ranks])
        started.insert(0, f"{ranks} of {job.rank_size}" if job.rank_size else ranks)
    return f"{' and '.join(started)} on {_node(job)}"


def ended(outcome: Outcome, job: JobSpec) -> str:
    """Give the last words on a job: one line after a success, else the cause and what became of the others."""
    cause, seconds = outcome.cause, outcome.seconds
    if cause is None:
        who = f"all {len(job.ranks)} ranks" if len(job.ranks) > 1 else (job.ranks or job.beside)[0].title
        return f"{who} ended with exit status 0 after {duration(seconds)}"
    if isinstance(cause, RankFailed):
        return "\n".join(_rank_failed(cause, outcome, job))
    if isinstance(cause, RankNotStarted):
        return "\n".join([str(cause), *_others(outcome, job, cause.rank_id)])

    head = f"{cause}, {duration(seconds)} after the start"
    return "\n".join([head, f"  logs   {job.log_dir}", *_others(outcome, job, None)])


def duration(seconds: float) -> str:
    """Say how long in the two largest units: "3.2 s", "2 min 5 s", "2 h 14 min", "3 d 4 h"."""
    if seconds < 10:  # noqa: PLR2004  below that, tenths tell something
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def _rank_failed(cause: RankFailed, outcome: Outcome, job: JobSpec) -> list[str]:
    from ascend_runner import report  # only at a failure
    from ascend_runner.diagnosis import finding

    document = report.decode(outcome.report)
    failed = next(rank for rank in document.ranks if rank.rank_id == cause.rank_id)
    accused = document.cause and document.cause.accused
    return [
        f"{cause}, {duration(failed.seconds)} after the start",
        f"  {'' if failed.name else f'device {failed.local_rank} '}on server {_node(job)}, pid {failed.pid}",
        *(f"  {line}" for line in (finding.lines(failed.finding) if failed.finding else ())),
        *([f"  look   {finding.accused_words(accused)}"] if accused else []),
        f"  log    {failed.log_path}",
        *([] if failed.finding and failed.finding.plog_path else [f"  plog   {failed.process_log_path}"]),
        *(
            [f"  lost   {failed.log_lost} bytes of the log, from byte {failed.log_lost_from} on"]
            if failed.log_lost
            else []
        ),
        f"  report {os.path.join(job.log_dir, report.file_name(job))}",
        f"  again  {failed.rerun}",
        *_others(outcome, job, cause.rank_id),
    ]


def _node(job: JobSpec) -> str:
    pod = f" (pod {job.pod_name})" if job.pod_name else ""
    return printable(f"{job.server_id}{pod}")


def _others(outcome: Outcome, job: JobSpec, culprit: int | None) -> list[str]:
    """Say what became of the other ranks, one line per kind of end."""
    others = [rank for rank in outcome.ranks if rank.rank_id != culprit]
    fates: dict[str, list[int]] = {}
    for rank in others:
        fates.setdefault(_fate(rank), []).append(rank.rank_id)

    label = "ranks " if culprit is None else "others"
    lines = [f"{_named(rank_ids, job)}: {fate}" for fate, rank_ids in fates.items()]
    return [f"  {label if number == 0 else '      '} {line}" for number, line in enumerate(lines)]


def _named(rank_ids: list[int], job: JobSpec) -> str:
    """Write ranks briefly, and who is none by name."""
    names = [process.name for process in job.beside if process.rank_id in rank_ids]
    numbers = [rank_id for rank_id in rank_ids if rank_id >= 0]
    return ", ".join([*([rank_numbers(numbers)] if numbers else []), *names])


def _fate(rank: RankOutcome) -> str:
    if not rank.is_started:
        return "not started"
    if rank.ending is None:
        return "killed, but does not die"
    return f"{'told to stop, ' if rank.is_told_to_stop else ''}{rank.ending}"
