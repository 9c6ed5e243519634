"""The commands: each takes the options that argparse has parsed, and returns the exit status."""

from __future__ import annotations

import json
import os
import signal
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from typing import Final, Optional

import attrs

from ascend_runner.errors import AscendRunnerError, SettingsError, reason
from ascend_runner.host import terminal
from ascend_runner.job_tool.job import jobs, snapshot
from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.job_tool.job.snapshot import Condition, Snapshot
from ascend_runner.job_tool.logs import log_viewer
from ascend_runner.job_tool.logs.log_lines import EVERYTHING, LineFilter
from ascend_runner.job_tool.processes import rank_stacks
from ascend_runner.job_tool.status import event_lines, screens
from ascend_runner.lifecycle.machine import OF_AN_ATTEMPT, JobState
from ascend_runner.members import Members
from ascend_runner.services import control
from ascend_runner.services.control import Message
from ascend_runner.text import duration, printable, rank_list
from ascend_runner.tool import write_text

DONE: Final = 0
DEFAULT_LINES: Final = 10  # of each rank's log, as tail(1)
DEFAULT_INTERVAL: Final = 15.0  # seconds between two writes of the metrics, as between scrapes by Prometheus
COMPLETIONS: Final = {"bash": "ascend-runner", "zsh": "_ascend-runner", "fish": "ascend-runner.fish"}  # by shell
STATUSES: Final = {
    Condition.RUNNING: 0,
    Condition.SUCCEEDED: 3,
    Condition.UNKNOWN: 4,
    Condition.ENDED_BADLY: 5,
    Condition.RUNNER_KILLED: 5,
}
WORST: Final = (
    Condition.ENDED_BADLY,
    Condition.RUNNER_KILLED,
    Condition.RUNNING,
    Condition.UNKNOWN,
    Condition.SUCCEEDED,
)


class RefusedError(AscendRunnerError):
    """A running job was not changed."""

    exit_status = 1


def status(options: Namespace) -> int:
    """Show one job, or a line for each of its nodes if the log directory of several is named."""
    nodes = jobs.find_parts(options.job, options.environ)
    if len(nodes) > 1:
        return _status_of_nodes([snapshot.take(node) for node in nodes], options)
    seen = snapshot.take(nodes[0])
    seen = attrs.evolve(seen, limit_at=_limit_at(seen))
    if options.json:
        write_text(json.dumps(screens.document(seen), indent=1) + "\n")
    else:
        write_text(screens.status(seen, time.time(), terminal.columns(terminal.STDOUT) or None))
    return STATUSES[seen.condition]


def _status_of_nodes(seen: Sequence[Snapshot], options: Namespace) -> int:
    """Show the nodes of a job. It has ended badly if one of them has, and is running if one of the others is."""
    if options.json:
        write_text(json.dumps([screens.document(one) for one in seen], indent=1) + "\n")
    else:
        write_text(screens.jobs(seen, time.time()))
    found = {one.condition for one in seen}
    return next(STATUSES[condition] for condition in WORST if condition in found)


def _limit_at(seen: Snapshot) -> Optional[float]:
    """Return the end of a job's time limit in seconds since the epoch, or None if there is none or it is unknown.

    Without a board, the runner is asked for it, which wakes it.
    """
    if seen.board:
        return seen.board.limit_at
    if not seen.is_alive:
        return None
    with suppress(OSError, ValueError):
        return Members(control.ask(seen.job.run_folder, {"request": "status"})).seconds("limit_at")
    return None


def list_jobs(options: Namespace) -> int:
    """List the jobs of this machine, those that are running first."""
    seen = [snapshot.take(job) for job in jobs.all_jobs(options.environ)]
    seen.sort(key=lambda one: one.condition is not Condition.RUNNING)
    if options.json:
        write_text(json.dumps([screens.document(one) for one in seen], indent=1) + "\n")
    else:
        write_text(screens.jobs(seen, time.time()) or "no jobs\n")
    return DONE


def events(options: Namespace) -> int:
    """Show the events of a job."""
    for line in event_lines.lines(jobs.find(options.job, options.environ), follows=options.follow):
        write_text(f"{line}\n")
    return DONE


def report(options: Namespace) -> int:
    """Write the report of a job as an HTML file; of several nodes, also name the one that caused a failure."""
    from ascend_runner.job_tool.reports import html_reports  # noqa: PLC0415  jinja2, which no other command needs

    write_text(f"{html_reports.make(options)}\n")
    return DONE


def metrics(options: Namespace) -> int:
    """Print the metrics of a job, serve them by HTTP, or write them to a file at intervals."""
    if options.every is not None and options.textfile is None:
        raise SettingsError("--every requires --textfile")
    try:
        from ascend_runner.job_tool.metrics import metric_outputs  # noqa: PLC0415  prometheus_client, an extra
    except ModuleNotFoundError as error:
        raise _without_extra("metrics", error) from None
    job = jobs.find(options.job, options.environ)
    if options.listen:
        metric_outputs.serve(job, options.listen, options.tell)
    elif options.textfile is not None:
        every = DEFAULT_INTERVAL if options.every is None else options.every
        metric_outputs.write_files(job, options.textfile, every)
    else:
        write_text(metric_outputs.text(job))
    return DONE


def _without_extra(command: str, error: ModuleNotFoundError) -> SettingsError:
    package = str(error.name).partition(".")[0]
    return SettingsError(f"{command} requires the package {package}: pip install 'ascend-runner[view]'")


def top(options: Namespace) -> int:
    """Show one job until the user quits; without a terminal, show it once."""
    if not terminal.can_move_cursor(options.environ):
        options.json = False
        return status(options)
    try:
        from ascend_runner.job_tool.live import show  # noqa: PLC0415  textual, an extra
    except ModuleNotFoundError as error:
        raise _without_extra("top", error) from None
    show.show(jobs.find(options.job, options.environ, may_be_any_part=True), options.environ)
    return DONE


def show_logs(options: Namespace) -> int:
    """Show the logs of a job."""
    lines = options.lines
    if lines is None:
        lines = EVERYTHING if options.since is not None or options.grep else DEFAULT_LINES
    query = log_viewer.Query(
        ranks=options.ranks,
        since=None if options.since is None else time.time() - options.since,
        line_filter=LineFilter(lines=lines, pattern=options.grep),
        follows=options.follow,
        has_colors=terminal.has_colors(terminal.STDOUT, options.environ),
    )
    job = jobs.find(options.job, options.environ, may_be_any_part=True)
    log_viewer.LogViewer(jobs.parts(job), query, options.tell).run()
    return DONE


def stacks(options: Namespace) -> int:
    """Show where the ranks of a job are in their programs."""
    job = _running(options)
    seen = snapshot.take(job)
    found = rank_stacks.leaders(seen)
    wanted = options.ranks or found.keys()
    known = seen.ranks.keys()
    missing = wanted - found.keys()
    if unknown := missing - known if known else ():
        raise SettingsError(f"{job.name} has no {rank_list(unknown)} on this node; it has {rank_list(known)}")
    if not found:
        raise RefusedError(f"no rank of {job.name} is running")
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RefusedError(f"{rank_list(missing)} of {job.name} {verb} not running")
    pids = {rank_id: found[rank_id] for rank_id in wanted}
    if options.seconds and terminal.columns(terminal.STDERR):
        options.tell(f"comparing the stacks for up to {duration(options.seconds)} ...")
    write_text(rank_stacks.text(pids, options.environ.get("PATH", os.defpath), options.seconds) + "\n")
    return DONE


def completion(options: Namespace) -> int:
    """Print the completions of all programs for a shell."""
    script = resources.files(__package__) / "completions" / options.shell / COMPLETIONS[options.shell]
    write_text(script.read_text(encoding="utf-8"))
    return DONE


def batch(options: Namespace) -> int:
    """Run the commands of a file one after the other."""
    from ascend_runner.job_tool.batch import batch as batches  # noqa: PLC0415  half of all imports, with the options of jobs

    table, exit_status = batches.run(options.file, options.environ, options.tell, keeps_going=options.keep_going)
    write_text(table)
    return exit_status


def stop(options: Namespace) -> int:
    """Stop a job like Ctrl-C in its terminal, but with SIGTERM."""
    job = _running(options)
    has_ranks = snapshot.STATES.get(snapshot.take(job).report.text("state")) in OF_AN_ATTEMPT
    _terminate(job)
    what_follows = "the ranks have their grace period to exit" if has_ranks else "no rank is running"
    write_text(f"{job.name}: sent SIGTERM to pid {job.pid}; {what_follows}\n")
    return DONE


def release(options: Namespace) -> int:
    """End the wait of a job that is held after a failure."""
    job = _running(options)
    state = snapshot.take(job).report.text("state")
    if state != JobState.HOLDING.value:
        raise RefusedError(
            f"{job.name} is not held (its state is {state or 'unknown'}); use ascend-job stop to stop it"
        )
    _terminate(job)
    write_text(f"{job.name}: released (sent SIGTERM to pid {job.pid})\n")
    return DONE


def checkpoint(options: Namespace) -> int:
    """Ask the ranks of a job for a checkpoint."""
    return _ask(options, {"request": "checkpoint"})


def limit(options: Namespace) -> int:
    """Change the time limit of a job."""
    return _ask(options, {"request": "limit", **options.limit})


def _ask(options: Namespace, message: Message) -> int:
    """Send a request to a running job, and show its answer.

    Raises:
        RefusedError: It was not carried out.
    """
    job = _running(options)
    try:
        answer = control.ask(job.run_folder, message)
    except PermissionError:
        raise RefusedError(f"{job.name} belongs to user {job.owner}; only that user and root may change it") from None
    except BlockingIOError:
        raise RefusedError(f"the runner of {job.name} did not respond within {control.PATIENCE:g} s") from None
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise RefusedError(f"cannot reach the runner of {job.name}: {why}") from None
    if "answer" not in answer:
        raise RefusedError(f"{job.name}: {answer.get('refused', 'the request was not carried out')}")
    write_text(f"{job.name}: {printable(str(answer['answer']))}\n")
    return DONE


def _running(options: Namespace) -> FoundJob:
    """Return the job that the options name.

    Raises:
        RefusedError: It has ended, or it runs elsewhere.
    """
    job = jobs.find(options.job, options.environ)
    is_alive = job.is_alive()
    if is_alive is False:
        raise RefusedError(f"{job.name} is not running")
    if is_alive is None or not job.is_of_this_machine:
        raise RefusedError(f"{job.name} runs on host {job.host} or in another container; run ascend-job there")
    return job


def _terminate(job: FoundJob) -> None:
    """Send SIGTERM to the first process of a job, which passes it on to the runner.

    Raises:
        RefusedError: This user may not, or the process has just ended.
    """
    has_ended = f"{job.name}: its first process, pid {job.pid}, has ended"
    if not job.has_guardian():  # the pid comes from a file: another process may have it now
        raise RefusedError(has_ended)
    try:
        os.kill(job.pid, signal.SIGTERM)
    except ProcessLookupError:
        raise RefusedError(has_ended) from None
    except PermissionError:
        raise RefusedError(f"{job.name} belongs to user {job.owner}; only that user and root may change it") from None
