"""A time limit that a job gets when a test is ready for it: one from the start may pass before, on a slow machine."""

from __future__ import annotations

from ascend_runner.services import control
from ascend_runner.tools.job import jobs
from tests.helpers.program import Run
from tests.helpers.surroundings import CLEAN


def set_soon(run: Run) -> int:
    """Set the time limit of a job to the first of 1, 2, 4 ... seconds that has not passed yet, and return it."""
    folder, seconds = jobs.find(str(run.popen.pid), CLEAN).run_folder, 1
    while "answer" not in control.ask(folder, {"request": "limit", "seconds": seconds}):
        seconds *= 2
    return seconds
