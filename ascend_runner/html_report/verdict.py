"""The head of a page: the outcome of the job, and the facts about it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

import attrs

from ascend_runner.html_report.ranks import MARKS, silences
from ascend_runner.html_report.sources import Sources
from ascend_runner.members import Members
from ascend_runner.observations.cause_text import CERTAINTY
from ascend_runner.supervision import outliers
from ascend_runner.text import all_ranks, clock, counted, duration, format_numbers

GOOD: Final = "succeeded"
RUNNING: Final = "running"
DOING: Final = {"preparing": "being prepared", "checkpointing": "saving a checkpoint", "holding": "held"}
SURENESS: Final = {**CERTAINTY, "likely": MARKS["likely"]}  # how certain the cause on the next line is
FINAL: Final = {GOOD: "good", "failed": "bad", "stopped": "bad", "expired": "bad", "holding": "bad"}


@attrs.frozen(kw_only=True)
class Verdict:
    """The outcome of the job. `mood` is "good", "bad" or "open".

    `conditions` are a slow training, a hang or an unhealthy node. These, `facts` and `commands` are pairs of a label
    and a text.
    """

    mood: str
    state: str
    remarks: tuple[str, ...]
    sentence: str
    conditions: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


def verdict_of(sources: Sources) -> Verdict:
    """Return the head of a page."""
    report = sources.report
    culprit = report.child_with("ranks", "rank_id", report.child("cause").whole("rank_id"))
    state, count = report.text("state"), len(report.children("ranks"))
    commands = (
        ("Command", shlex.join(sources.command)),
        ("Logs", report.text("log_dir")),
        ("Rerun this rank", culprit.text("rerun")),
    )
    return Verdict(
        mood="bad" if sources.was_killed else FINAL.get(state, "open"),
        state="runner killed" if sources.was_killed else state or "unknown",
        remarks=tuple(filter(None, _remarks(sources, count))),
        sentence=_sentence(sources, count),
        conditions=_with_text(_conditions(report)),
        facts=_with_text(_facts(report)),
        commands=_with_text(iter(commands)),
    )


def attempt_seconds(sources: Sources) -> float:
    """Return how long the newest attempt has taken so far, or until the last activity if the runner was killed."""
    report = sources.report
    if sources.was_killed:
        return report.number("seconds") or 0.0
    began = report.moment("started_at") or sources.made_at
    return report.number("seconds") or max(0.0, (report.moment("ended_at") or sources.made_at) - began)


def _job_began(report: Members) -> float | None:
    first = next(iter(report.children("attempts")), report)
    return first.moment("started_at")


def _job_seconds(sources: Sources) -> float:
    """Return how long the job has taken so far, with its earlier attempts and the delays between them."""
    job_began, attempt_began = _job_began(sources.report), sources.report.moment("started_at")
    earlier = attempt_began - job_began if job_began and attempt_began else 0.0
    return max(0.0, earlier) + attempt_seconds(sources)


def _with_text(pairs: Iterator[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in pairs if text)


def _remarks(sources: Sources, count: int) -> Iterator[str]:
    report, seconds, state = sources.report, _job_seconds(sources), sources.report.text("state")
    status, attempt = report.whole("status"), report.whole("attempt")
    after = f"{'after' if sources.was_killed or state in FINAL else 'for'} {duration(seconds)}" if seconds else ""
    yield f"last activity {after}" if after and sources.was_killed else after
    yield f"exit status {status}" if status else ""
    yield SURENESS.get(report.child("cause").text("certainty"), "") if count > 1 else ""
    yield f"attempt {attempt + 1}" if attempt else ""


def _sentence(sources: Sources, count: int) -> str:
    state = sources.report.text("state")
    if sources.was_killed:
        return f"The runner was killed{f' while the job was {DOING.get(state, state)}' if state else ''}"
    sentence = sources.report.child("cause").text("sentence") or _progress(sources, state, count)
    if sentence:
        return sentence[0].upper() + sentence[1:]
    if state == GOOD:
        return f"All {count} ranks succeeded" if count > 1 else "The rank succeeded"
    return "The job has not ended"


def _progress(sources: Sources, state: str, count: int) -> str:
    """Describe a running job: which rank is quiet, or else how many are running."""
    if state != RUNNING:
        return ""
    running = sum(rank.text("state") == RUNNING for rank in sources.report.children("ranks"))
    some = all_ranks(count) if running == count > 1 else f"{running} of {counted(count, 'rank')}"
    verb = "is" if running == 1 else "are"
    quiet = outliers.quiet_sentence(*silences(sources.report, sources.made_at))
    return quiet or (f"{some} {verb} running" if running else "")


def _conditions(report: Members) -> Iterator[tuple[str, str]]:
    for one in report.children("conditions"):
        since, sentence = clock(one.moment("since")), one.text("sentence")
        if not report.child("cause").text("sentence").startswith(sentence or "\n"):
            yield one.text("condition").capitalize(), ", ".join(filter(None, (sentence, since and f"since {since}")))


def _facts(report: Members) -> Iterator[tuple[str, str]]:
    pod, size = report.text("pod_name"), report.whole("rank_size")
    here = [rank.whole("rank_id") or 0 for rank in report.children("ranks") if not rank.text("name")]
    yield "Started", clock(_job_began(report))
    yield "Ended", clock(report.moment("ended_at"))
    yield "Node", report.text("server_id") + (f", pod {pod}" if pod else "")
    yield "Ranks", f"{format_numbers(sorted(here))} of {size}" if size and here else format_numbers(sorted(here))
    yield "Last step", _step(report.child("last_step"))
    last = report.child("last_checkpoint")
    step = f"step {last.whole('step')}" if last.whole("step") is not None else ""
    yield "Last checkpoint", ", ".join(filter(None, (step, last.text("path"))))
    yield "Held until", clock(report.moment("held_until"))


def _step(last: Members) -> str:
    """Describe the last step: "1200 of 5000, 0.615 s per step"."""
    step, steps, seconds = last.whole("step"), last.whole("steps"), last.number("seconds")
    if step is None:
        return ""
    return f"{step}{f' of {steps}' if steps else ''}{f', {seconds:.3g} s per step' if seconds else ''}"
