"""The layout of the board of a job, for the runner that writes it and the programs that read it. Pure."""

from __future__ import annotations

import struct
from typing import Final

from ascend_runner import activity
from ascend_runner.supervision.state import Phase

NAME: Final = "board"  # the name of the file in the directory of the job
MAGIC: Final = b"ASCBOARD"
LAYOUT: Final = 1  # the version of everything below
PHASES: Final = tuple(Phase)
NO_LIMIT: Final = 0.0
LARGEST_STEP: Final = (1 << 63) - 1
SIGNALS: Final = 8  # different ones that were sent to a rank

# All times are in seconds of the monotonic clock, except the first one, which is by the wall clock. In a structure
# with a time, the time is stored last: a reader that finds it finds the rest.
HEAD: Final = struct.Struct("=8sIIIII4xdd")  # MAGIC, LAYOUT, RECORD, ranks, attempt, pid of the runner; start, twice
PHASE: Final = struct.Struct("=I4xd")  # index in PHASES, since when
LIMIT: Final = struct.Struct("=d")  # the end of the time limit
PHASE_AT: Final = HEAD.size
LIMIT_AT: Final = PHASE_AT + PHASE.size
STEP: Final = struct.Struct("=QQdd")  # last step, number of steps, seconds of a step, time; 0: unknown
STEP_AT: Final = LIMIT_AT + LIMIT.size
RANKS_AT: Final = STEP_AT + STEP.size

WHO: Final = struct.Struct("=ii32s")  # rank, local rank, name of an auxiliary process
STARTED: Final = struct.Struct("=I4xd")  # pid
ENDED: Final = struct.Struct("=iII4xd")  # exit code, signal, whether core was dumped
STOPPED: Final = struct.Struct("=Q")  # whether it was asked to stop
SENT: Final = struct.Struct("=I4xd")  # a signal
STARTED_AT: Final = WHO.size
ENDED_AT: Final = STARTED_AT + STARTED.size
STOPPED_AT: Final = ENDED_AT + ENDED.size
SENT_AT: Final = STOPPED_AT + STOPPED.size
ACTIVITY_AT: Final = SENT_AT + SIGNALS * SENT.size
RECORD: Final = ACTIVITY_AT + activity.SIZE  # bytes of a rank
