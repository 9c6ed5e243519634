"""How findings are shown: as lines in columns, as one summary, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Union

import attrs

from ascend_runner.problems import Problem, Severity
from ascend_runner.text import counted, printable

Found = tuple[str, Union[str, Problem]]  # a subject and a finding

OK: Final = "ok"
VERDICT_WIDTH: Final = len(Severity.WARNING.value)
SUBJECT_WIDTH: Final = len("other nodes")


def verdict_of(finding: str | Problem) -> str:
    """Return "ok", "warning" or "error"."""
    return OK if isinstance(finding, str) else finding.severity.value


def format_finding(subject: str, finding: str | Problem) -> str:
    """Format a finding in columns, with the remedy on a line below."""
    verdict = verdict_of(finding)
    shown = verdict if verdict == OK else verdict.upper()
    head = f"{shown:{VERDICT_WIDTH}}  {subject:{SUBJECT_WIDTH}}  {_one_line(_sentence(finding))}\n"
    remedy = _remedy(finding)
    return head + (f"{'':{VERDICT_WIDTH + SUBJECT_WIDTH + 4}}fix: {_one_line(remedy)}\n" if remedy else "")


def format_summary(found: Sequence[Found], host_name: str) -> str:
    """Format the last line: the number of errors and warnings, with their subjects."""
    parts = [part for severity in (Severity.ERROR, Severity.WARNING) if (part := _count(found, severity))]
    return f"{_one_line(host_name)}: {'; '.join(parts) or 'no problems found'}"


def format_json(found: Sequence[Found], host_name: str) -> str:
    """Format all findings as JSON: the host, the worst verdict, and a list of findings."""
    verdicts = [verdict_of(finding) for _subject, finding in found]
    worst = next((one.value for one in (Severity.ERROR, Severity.WARNING) if one.value in verdicts), OK)
    checks: list[Mapping[str, str]] = [
        {
            "subject": subject,
            "verdict": verdict_of(finding),
            "found": _sentence(finding),
            "to_do": _remedy(finding),
        }
        for subject, finding in found
    ]
    return json.dumps({"host": host_name, "verdict": worst, "checks": checks}, indent=1) + "\n"


def _sentence(finding: str | Problem) -> str:
    return finding if isinstance(finding, str) else str(attrs.evolve(finding, remedy=""))


def _remedy(finding: str | Problem) -> str:
    return "" if isinstance(finding, str) else finding.remedy


def _count(found: Sequence[Found], severity: Severity) -> str:
    subjects = [subject for subject, finding in found if verdict_of(finding) == severity.value]
    if not subjects:
        return ""
    return f"{counted(len(subjects), severity.value)} ({', '.join(dict.fromkeys(subjects))})"


def _one_line(text: str) -> str:
    return printable(" ".join(text.split("\n")))
