"""`ascend-job checkpoint`, `limit`, `stop` and `release`: they change a running job."""

from __future__ import annotations

import os
import signal
from argparse import Namespace

from ascend_runner.errors import reason
from ascend_runner.job_tool.commands import running
from ascend_runner.job_tool.commands.running import RefusedError
from ascend_runner.job_tool.job import snapshot
from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.lifecycle.machine import OF_AN_ATTEMPT
from ascend_runner.lifecycle.state import JobState
from ascend_runner.services import control
from ascend_runner.services.control import Message
from ascend_runner.text import printable
from ascend_runner.tool import DONE, write_text


def stop(options: Namespace) -> int:
    """Stop a job like Ctrl-C in its terminal, but with SIGTERM."""
    job = running.find(options)
    state = snapshot.STATES.get(snapshot.take(job).report.text("state"))
    _terminate(job)
    what_follows = "; the ranks have their grace period to exit" if state in OF_AN_ATTEMPT else "; no rank is running"
    write_text(f"{job.name}: sent SIGTERM to pid {job.pid}{what_follows if state else ''}\n")
    return DONE


def release(options: Namespace) -> int:
    """End the wait of a job that is held after a failure."""
    job = running.find(options)
    seen = snapshot.take(job)
    state = seen.report.text("state")
    if state != JobState.HOLDING.value and (state or not _is_held(job, seen.why)):
        its_state = f" (its state is {state})" if state else ""
        raise RefusedError(f"{job.name} is not held{its_state}; use ascend-job stop to stop it")
    _terminate(job)
    write_text(f"{job.name}: released (sent SIGTERM to pid {job.pid})\n")
    return DONE


def _is_held(job: FoundJob, why: str) -> bool:
    """Ask the runner whether it holds a job whose report cannot be read, for the reason `why`.

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
    job = running.find(options)
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
        raise RefusedError(f"the runner of {job.name} did not answer; its job seems to have just ended") from None
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
