"""The commands of `ascend-job`: each takes the parsed options, and returns the exit status.

Whatever only one command needs is imported when it runs, so that `ascend-job status` answers at once.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Final

from ascend_runner import programs
from ascend_runner.errors import AscendRunnerError, SettingsError, reason
from ascend_runner.node import executables, terminal
from ascend_runner.services import control
from ascend_runner.services.control import Message
from ascend_runner.supervision.job_machine import OF_AN_ATTEMPT, JobState
from ascend_runner.text import duration, printable, rank_list
from ascend_runner.tool import DONE, write_text
from ascend_runner.tools.job import jobs
from ascend_runner.tools.job.jobs import Condition, FoundJob, Snapshot


class MissingExtraError(SettingsError):
    """A command requires a package that is not installed."""

    def __init__(self, command: str, error: ModuleNotFoundError) -> None:
        package = str(error.name).partition(".")[0]
        super().__init__(f"{command} requires the package {package}: {programs.installing(package, 'view')}")


class RefusedError(AscendRunnerError):
    """A running job was not changed."""

    exit_status = 1


class JustEndedError(RefusedError):
    """A job has ended while it was asked for something."""


def find(options: Namespace, *, may_be_any_part: bool = False) -> FoundJob:
    """Return the job that the options name, or the first of its nodes if it `may_be_any_part`.

    Raises:
        RefusedError: It has ended, or it runs elsewhere.
    """
    job = jobs.find(options.job, options.environ, may_be_any_part=may_be_any_part)
    is_alive = job.is_alive()
    if is_alive is False:
        raise RefusedError(f"{job.name} is not running")
    if is_alive is None or not job.is_of_this_machine:
        raise RefusedError(f"{job.name} runs on host {job.host} or in another container; run ascend-job there")
    return job


FILES: Final = {"bash": "ascend-runner", "zsh": "_ascend-runner", "fish": "ascend-runner.fish"}  # by shell


def completion(options: Namespace) -> int:
    """Print the completions of all programs for a shell."""
    import importlib.resources  # noqa: PLC0415  15 ms, with pathlib, tempfile and urllib

    script = importlib.resources.files(__package__) / "completions" / options.shell / FILES[options.shell]
    write_text(script.read_text(encoding="utf-8"))
    return DONE


def stop(options: Namespace) -> int:
    """Stop a job like Ctrl-C in its terminal, but with SIGTERM; of several nodes that are linked, on all of them."""
    job = find(options, may_be_any_part=True)
    state = jobs.take(job, asks=False).record.state
    answer, note = _stop_all_nodes(job) if job.part else ("", "")
    if answer:
        write_text(f"{job.name}: {answer}\n")
        return DONE
    _terminate(job)
    what_follows = "; the ranks have their grace period to exit" if state in OF_AN_ATTEMPT else "; no rank is running"
    write_text(f"{job.name}: sent SIGTERM to pid {job.pid}{what_follows if state else ''}{note}\n")
    return DONE


def _stop_all_nodes(job: FoundJob) -> tuple[str, str]:
    """Stop all nodes of a job; return the answer, "" if this node is to be stopped alone, with a note on that."""
    try:
        answer = str(_request(job, {"request": "stop"})["answer"])
    except JustEndedError:  # its ranks may stop faster than the other nodes answer
        return "the job has ended", ""
    except RefusedError as error:
        return "", f"; {error}"
    return printable(answer), "" if answer else f"; {control.ONLY_HERE}"


def release(options: Namespace) -> int:
    """End the wait of a job that is held after a failure."""
    job = find(options)
    seen = jobs.take(job, asks=False)
    if seen.record.state is not JobState.HOLDING and (seen.state or not _is_held(job, seen.why)):
        its_state = f" (its state is {seen.state})" if seen.state else ""
        to_stop = f"{programs.command('ascend-job stop')} {shlex.quote(job.name)}"
        raise RefusedError(f"{job.name} is not held{its_state}; to stop it, run {to_stop}")
    _terminate(job)
    write_text(f"{job.name}: released (sent SIGTERM to pid {job.pid})\n")
    return DONE


def _is_held(job: FoundJob, why: str) -> bool:
    """Ask the runner whether it holds a job with a report that cannot be read, for the reason `why`.

    Raises:
        RefusedError: It does not answer.
    """
    try:
        return _request(job, {"request": "status"}).get("is_held") is True
    except RefusedError as error:
        raise RefusedError(f"{why}, and {error}; if the job is held, release it with kill {job.pid}") from None


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
    job = find(options, may_be_any_part=True)
    write_text(f"{job.name}: {printable(str(_request(job, message)['answer']))}\n")
    return DONE


def _request(job: FoundJob, message: Message) -> Message:
    """Send a request to a running job, and return its answer.

    Raises:
        RefusedError: It was not carried out.
    """
    try:
        answer = control.ask(job.run_folder, message)
    except PermissionError:
        raise RefusedError(_not_permitted(job)) from None
    except BlockingIOError:
        raise RefusedError(f"the runner of {job.name} did not respond within {control.PATIENCE:g} s") from None
    except ConnectionError:
        raise JustEndedError(f"the runner of {job.name} did not answer; its job seems to have just ended") from None
    except (OSError, ValueError) as error:
        raise RefusedError(f"cannot reach the runner of {job.name}: {reason(error)}") from None
    if "answer" not in answer:
        raise RefusedError(f"{job.name}: {answer.get('refused', 'the request was not carried out')}")
    return answer


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
        raise RefusedError(_not_permitted(job)) from None


def _not_permitted(job: FoundJob) -> str:
    return f"{job.name} belongs to user {job.owner}; only that user and root may change it"


def events(options: Namespace) -> int:
    """Show the events of a job."""
    from ascend_runner.tools.job import screens  # noqa: PLC0415  only this command needs it

    for line in screens.event_lines(jobs.find(options.job, options.environ), follows=options.follow):
        write_text(f"{line}\n")
    return DONE


EVERYTHING: Final = -1  # stands for all lines
DEFAULT_LINES: Final = 10  # lines of each rank's log, as for tail(1)


def show_logs(options: Namespace) -> int:
    """Show the logs of a job."""
    from ascend_runner.tools.job import logs  # noqa: PLC0415  only this command needs it

    lines = options.lines
    if lines is None:
        lines = EVERYTHING if options.since is not None or options.grep else DEFAULT_LINES
    query = logs.Query(
        ranks=options.ranks,
        since=None if options.since is None else time.time() - options.since,
        line_filter=logs.LineFilter(lines=lines, pattern=options.grep),
        follows=options.follow,
        has_colors=terminal.has_colors(terminal.STDOUT, options.environ),
    )
    job = jobs.find(options.job, options.environ, may_be_any_part=True)
    logs.LogViewer(jobs.parts(job), query, options.tell).run()
    return DONE


DEFAULT_INTERVAL: Final = 15.0  # seconds between two writes, as between scrapes by Prometheus


def metrics(options: Namespace) -> int:
    """Print the metrics of a job, serve them by HTTP, or write them to a file at intervals."""
    if options.every is not None and options.textfile is None:
        raise SettingsError("--every requires --textfile")
    try:
        from ascend_runner.tools.job import metrics as metric_outputs  # noqa: PLC0415  prometheus_client, an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("metrics", error) from None
    nodes = jobs.find_parts(options.job, options.environ)
    if options.listen:
        metric_outputs.serve(nodes, options.listen, options.tell)
    elif options.textfile is not None:
        every = DEFAULT_INTERVAL if options.every is None else options.every
        metric_outputs.write_files(nodes, options.textfile, every)
    else:
        write_text(metric_outputs.text(nodes))
    return DONE


def report(options: Namespace) -> int:
    """Write the report of a job as an HTML file; of several nodes, also name the one that caused a failure."""
    from ascend_runner.tools.job import reports  # noqa: PLC0415  only this command needs it

    write_text(f"{reports.make(options)}\n")
    return DONE


def explain(options: Namespace) -> int:
    """Explain an error code, or the logs of a failed job."""
    from ascend_runner.tools.job import explain as explanations  # noqa: PLC0415  only this command needs it

    return explanations.run(options)


def stacks(options: Namespace) -> int:
    """Show where the ranks of a job are in their programs."""
    from ascend_runner.tools.job import processes  # noqa: PLC0415  only this command needs it

    job = find(options)
    seen = jobs.take(job)
    found = processes.leaders(seen)
    wanted = options.ranks or found.keys()
    known = {rank.rank_id for rank in seen.record.ranks}
    missing = wanted - found.keys()
    if unknown := missing - known if known else ():
        raise SettingsError(f"{job.name} has no {rank_list(unknown)} on this node; it has {rank_list(known)}")
    if not found:
        raise RefusedError(f"no rank of {job.name} is running")
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RefusedError(f"{rank_list(missing)} of {job.name} {verb} not running")
    seconds = processes.COMPARED if options.seconds is None else options.seconds
    pids = {rank_id: found[rank_id] for rank_id in wanted}
    py_spy = executables.find_py_spy(options.environ.get("PATH", os.defpath))
    if py_spy and seconds and terminal.columns(terminal.STDERR):
        options.tell(f"comparing the stacks for up to {duration(seconds)} ...")
    write_text(processes.text(pids, py_spy, seconds) + "\n")
    return DONE


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


def status(options: Namespace) -> int:
    """Show one job, or a line for each of its nodes if the log directory of several is named."""
    from ascend_runner.tools.job import screens  # noqa: PLC0415  only this command needs it

    nodes = jobs.find_parts(options.job, options.environ)
    if len(nodes) > 1:
        return _status_of_nodes([jobs.take(node) for node in nodes], options)
    seen = jobs.take(nodes[0])
    if options.json:
        write_text(json.dumps(screens.document(seen), indent=1) + "\n")
    else:
        write_text(screens.status(seen, time.time(), _width()))
    return STATUSES[seen.condition]


def _status_of_nodes(seen: Sequence[Snapshot], options: Namespace) -> int:
    """Show the nodes of a job. It has ended badly if one of them has, and is running if one of the others is."""
    from ascend_runner.tools.job import screens  # noqa: PLC0415  only this command needs it

    write_text(_json_of(seen) if options.json else screens.list_text(seen, time.time(), _width()))
    found = {one.condition for one in seen}
    return next(STATUSES[condition] for condition in WORST if condition in found)


def _width() -> int | None:
    """Return the width of the terminal, or None if the output is a file, which has everything."""
    return terminal.columns(terminal.STDOUT) or None


def list_jobs(options: Namespace) -> int:
    """List the jobs, first those of this directory, each with the newest last; on a terminal, as many as fit."""
    from ascend_runner.tools.job import screens  # noqa: PLC0415  only this command needs it

    found = [job for job in jobs.all_jobs(options.environ) if (options.name or "") in job.name]
    rows = terminal.rows(terminal.STDOUT)
    fitting = None if options.all or options.json or not rows else max(1, rows - screens.LINES_BESIDE)
    here, elsewhere = jobs.listed(found, options.most or fitting)
    if options.json:
        write_text(_json_of([jobs.take(job) for job in (*here, *elsewhere)]))
        return DONE
    seen, others = ([jobs.take_briefly(job) for job in some] for some in (here, elsewhere))
    hidden = len(found) - len(seen) - len(others)
    write_text(screens.list_text(seen, time.time(), _width(), others, hidden) or _no_jobs(options.name))
    return DONE


def _no_jobs(name: str | None) -> str:
    return f"no job with {name!r} in its name\n" if name else "no jobs\n"


def _json_of(seen: Sequence[Snapshot]) -> str:
    from ascend_runner.tools.job import screens  # noqa: PLC0415  only the commands above need it

    return json.dumps([screens.document(one) for one in seen], indent=1) + "\n"


def top(options: Namespace) -> int:
    """Show one job until the user quits; without a terminal, show it once."""
    if not terminal.can_move_cursor(options.environ):
        options.json = False
        return status(options)
    try:
        from ascend_runner.tools.job import top_app  # noqa: PLC0415  textual, an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("top", error) from None
    top_app.show(jobs.find(options.job, options.environ, may_be_any_part=True), options.environ)
    return DONE


def batch(options: Namespace) -> int:
    """Run the commands of a file one after the other."""
    from ascend_runner.tools.job import batch as batches  # noqa: PLC0415  only this command needs it

    table, exit_status = batches.run(options.file, options.environ, options.tell, keeps_going=options.keep_going)
    write_text(table)
    return exit_status
