"""Records to what JSON can hold, and back. The records are named tuples, and their annotations are the schema.

A field may be a record, a tuple of one kind, a mapping of texts, a whole number, a number, a text, a truth, or Optional
of one of these.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Any, Final
from ascend_runner.errors import AscendRunnerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    RecordT = TypeVar("RecordT")

_CONSTANTS: Final = {None: "null", True: "true", False: "false"}
_WORDS: Final = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def encode(value: object) -> Any:  # Any: what json.dumps takes
    """Make a JSON-able value of a record: its fields by name."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is None:
            return [encode(item) for item in value]
        return {name: encode(item) for name, item in zip(names, value)}
    items = getattr(value, "items", None)  # a mapping's; importing their base class takes 1 ms
    return value if items is None else {name: encode(item) for name, item in items()}


def text(value: Any) -> str:  # Any: what json.dumps takes
    """Write it as JSON, numbers finite. What is plain is written here: json takes longer to import than this to run."""
    if isinstance(value, str) and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    if isinstance(value, dict):
        return f"{{{', '.join([f'{text(name)}: {text(item)}' for name, item in value.items()])}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    if value is None or value is True or value is False:
        return _CONSTANTS[value]
    if isinstance(value, (int, float)):
        return repr(value)
    import json

    return json.dumps(value)


def decode(record: type[RecordT], document: object, path: str = "", names: Mapping[str, type] | None = None) -> RecordT:
    """Make a record of a JSON value. Members that it does not know are ignored, missing ones get their default.

    `names` are those in the record's annotations that its module imports for type checkers only.
    Errors: AscendRunnerError, naming the place.
    """
    if not isinstance(document, dict):
        raise _error(path, "an object", document)
    import typing  # 6 ms that whoever only writes a report does not pay

    hints = typing.get_type_hints(record, localns=names and dict(names))
    defaults: dict[str, object] = getattr(record, "_field_defaults", {})
    missing = [name for name in hints if name not in document and name not in defaults]
    if missing:
        raise AscendRunnerError(f"{path or 'the document'} has no {', '.join(missing)}")

    return record(
        **{
            name: _decode(hint, document[name], f"{path}.{name}" if path else name, names)
            for name, hint in hints.items()
            if name in document
        }
    )


# Any: an annotation can be a class or a typing construct
def _decode(hint: Any, value: object, path: str, names: Mapping[str, type] | None) -> object:
    import typing  # as above

    kind, arguments = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Union:  # Optional
        return None if value is None else _decode(arguments[0], value, path, names)
    if kind is tuple:
        if not isinstance(value, list):
            raise _error(path, "an array", value)
        return tuple(_decode(arguments[0], item, f"{path}[{number}]", names) for number, item in enumerate(value))
    if kind is not None:  # a mapping of texts
        if not isinstance(value, dict):
            raise _error(path, "an object", value)
        return {name: _decode(arguments[1], item, f"{path}.{name}", names) for name, item in value.items()}
    if hasattr(hint, "_fields"):
        return decode(hint, value, path, names)

    return _decode_scalar(hint, value, path)


def _decode_scalar(hint: type, value: object, path: str) -> object:
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:  # isinstance would take true for a whole number
        raise _error(path, _WORDS[hint], value)
    return value


def _error(path: str, expected: str, found: object) -> AscendRunnerError:
    return AscendRunnerError(f"{path or 'the document'} is {found!r:.60}, expected {expected}")
