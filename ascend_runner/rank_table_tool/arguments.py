"""The types of the arguments of `ascend-rank-table`: text to value, or one sentence on what is wrong."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError

from ascend_runner.rank_table_tool.files import STANDARD
from ascend_runner.rank_table_tool.generate import parse_devices


def file_name(text: str) -> str:
    """Return the name of a file, which must not be empty."""
    if text:
        return text

    raise ArgumentTypeError("file name is empty")


def place(text: str) -> str:
    """Return the name of a file or folder, which may be missing, but not standard input."""
    if text != STANDARD:
        return file_name(text)

    raise ArgumentTypeError("cannot wait for standard input; specify a file or directory")


def server_id(text: str) -> str:
    """Return a server_id."""
    if text and text == text.strip():
        return text

    raise ArgumentTypeError(f"server_id {text!r} has leading or trailing spaces" if text else "server_id is empty")


def server_ids(text: str) -> tuple[str, ...]:
    """Return different server_ids, separated by commas."""
    found = tuple(map(server_id, text.split(",")))
    twice = next((one for one in found if found.count(one) > 1), None)
    if twice is None:
        return found

    raise ArgumentTypeError(f"duplicate server_id {twice!r}")


def devices(text: str) -> tuple[int, ...]:
    """Return device ids like "0-7" or "0,2,4-6"."""
    try:
        return parse_devices(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """Return a number of seconds from 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number >= 0:
        return number

    raise ArgumentTypeError(f"{text!r} is not a number of seconds")
