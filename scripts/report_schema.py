"""Write the JSON Schema of the report, which follows from the records that it is made of. Called by `scripts/generate`.

It describes what a report of this version contains. A later one of the same schema version may have more members.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import sys
import tokenize
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ascend_runner.diagnosis import finding
from ascend_runner.record import job_record, nodes, rank_record
from ascend_runner.supervision import causes, job_machine

TARGET: Final = Path(job_record.__file__).with_name("report.schema.json")
TITLE: Final = "The report of a job, as ascend-runner writes it. Sizes are in bytes, durations in seconds."
TIME: Final = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}[+-][0-9]{2}:[0-9]{2})?$"
DEPTH: Final = 2  # of the definitions' properties, which are not broken into lines
Schema = dict[str, Any]  # JSON


def _ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _pair(first: Schema, second: Schema) -> Schema:
    return {"type": "array", "items": [first, second], "minItems": 2, "maxItems": 2}


# Members that a record writes instead of a field, or in addition to its fields.
WRITTEN: Final[Mapping[type, Mapping[str, tuple[Schema, str]]]] = {
    job_record.JobRecord: {"ended_at": (_ref("time"), "empty until it has ended")},
    job_record.AttemptRecord: {"ended_at": (_ref("time"), "")},
    rank_record.RankRecord: {
        "signals": (
            {"type": "array", "items": _pair({"type": "integer"}, _ref("time"))},
            "those sent to it, each with the first time",
        ),
        "exit_code": ({"type": ["integer", "null"]}, "null if a signal ended it, or if it has not ended"),
        "signal": ({"type": ["integer", "null"]}, "the signal that ended it"),
        "core_dumped": ({"type": "boolean"}, ""),
        "started_at": (_ref("time"), "empty if it was not started"),
        "ended_at": (_ref("time"), "empty until it has ended"),
        "first_output_at": (_ref("time"), "empty if it has written nothing"),
        "last_output_at": (_ref("time"), "as above"),
    },
}
NOT_WRITTEN: Final[Mapping[type, Collection[str]]] = {
    job_record.Condition: ("facts",),
    rank_record.RankRecord: rank_record.WRITTEN_OTHERWISE,
}
RECORDS: Final = (
    job_record.JobRecord,
    job_record.CauseRecord,
    rank_record.RankRecord,
    finding.Finding,
    finding.Peer,
    job_record.AttemptRecord,
    job_record.Condition,
    job_record.CheckpointRecord,
    job_record.StepRecord,
    job_record.Staged,
    finding.StackGroup,
    finding.CollectiveGroup,
    causes.NodeFinding,
    nodes.JobVerdict,
    nodes.NodeRecord,
)
CHOICES: Final = (causes.FindingKind, causes.Restart, job_machine.Verdict, rank_record.RankState)
STATES: Final = [state.value for state in job_machine.TRANSITIONS]
TIMES: Final = {"at", "since", "held_until", "started_at"}
KINDS: Final[Mapping[str, Schema]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "Count": {"type": "integer", "minimum": 0},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "Mapping[str, str]": {"type": "object", "additionalProperties": {"type": "string"}},
    "Mapping[int, int]": {"type": "object", "additionalProperties": {"type": "integer"}},
    **{one.__name__: _ref(one.__name__) for one in (*RECORDS, *CHOICES)},
    "AnyState": _ref("state"),
}


def schema() -> Schema:
    """Return the schema."""
    choices = {choice.__name__: [one.value for one in choice] for choice in CHOICES}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": TITLE,
        "allOf": [_ref(job_record.JobRecord.__name__)],
        "definitions": {
            **{record.__name__: _object(record) for record in RECORDS},
            **{name: {"enum": values} for name, values in {"state": STATES, **choices}.items()},
            "time": {"type": "string", "pattern": TIME, "description": "ISO 8601 with an offset"},
        },
    }


def _object(record: type) -> Schema:
    members = dict(_members(record))
    description = inspect.getdoc(record)
    return {"description": description, "type": "object", "properties": members, "required": [*members]}


def _members(record: type) -> Iterator[tuple[str, Schema]]:
    """Yield the name and the schema of each member that a record has in the report."""
    written, comments = WRITTEN.get(record, {}), _comments(record)
    for field in attrs.fields(record):
        if field.name not in written and field.name not in NOT_WRITTEN.get(record, ()):
            kind = _kind(field.name, record.__annotations__[field.name])
            yield field.name, _described(kind, comments.get(field.name, ""))
    for name, (kind, note) in written.items():
        yield name, _described(kind, note)


def _described(kind: Schema, note: str) -> Schema:
    return {**kind, "description": note} if note else kind


def _kind(name: str, annotation: str) -> Schema:
    plain = annotation.replace(" | None", "")
    items = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", plain)
    if name == "schema_version":
        return {"const": job_record.SCHEMA_VERSION}
    if name in TIMES:
        return _ref("time")
    kind = {"type": "array", "items": KINDS[items[1]]} if items else KINDS[plain]
    if plain == annotation:
        return kind
    return {**kind, "type": [kind["type"], "null"]} if "type" in kind else {"anyOf": [kind, {"type": "null"}]}


def _comments(record: type) -> dict[str, str]:
    """Return the comments on the fields of a record: beside each, or in the lines above it."""
    source = inspect.getsource(record)
    lines = source.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first = node.lineno
            while lines[first - 2].lstrip().startswith("#"):
                first -= 1
            span = range(first, (node.end_lineno or first) + 1)
            words = " ".join(comments[line] for line in span if line in comments)
            found[node.target.id] = words.replace("None", "null")
    return found


def _lines(value: Schema, depth: int = 0) -> Iterator[str]:
    """Yield the text of a schema, with a line for each member of a record."""
    yield "{"
    for index, (name, member) in enumerate(value.items()):
        yield f"{',' * bool(index)}\n{' ' * (depth + 1)}{json.dumps(name)}: "
        if isinstance(member, dict) and depth <= DEPTH:
            yield from _lines(member, depth + 1)
        else:
            yield json.dumps(member)
    yield f"\n{' ' * depth}}}"


def main() -> int:
    """Write the schema, or with --check only compare it; return the exit status."""
    text = "".join(_lines(schema())) + "\n"
    if TARGET.exists() and TARGET.read_text("utf-8") == text:
        return 0
    if "--check" in sys.argv[1:]:
        sys.stderr.write(f"{TARGET} is out of date: run scripts/generate\n")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
