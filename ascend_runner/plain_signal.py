"""`signal` without its enums: its calls, and signals as numbers, from the C module that it wraps (CPython since 3.5).

To make those enums takes 5 ms of a start-up of 35, with what they bring along. Where somebody reads a number, it gets
its name: `supervision.events.signal_name`.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING

if TYPE_CHECKING:
    from signal import *  # noqa: F403
else:
    from _signal import *  # noqa: F403
