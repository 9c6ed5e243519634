"""Decides whether an error was raised where ranks communicate, so that a peer may be at fault.

It judges by the names of libraries and calls in a traceback, and by the words of its message. An error in the arguments
of such a call is the caller's own: it has another class, or mentions no connection, wait or failed call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

INNERMOST: Final = 8  # lines of a traceback, two per frame; further out everything is the training's own code

# Exceptions that a backend raises because of events, not because of its arguments.
_RAISED_BY_BACKENDS: Final = re.compile(
    r"^(?:[\w.]*\.|(?:std|c10)::)?(?:RuntimeError|runtime_error|Dist\w*Error|Rendezvous\w*Error|ConnectionError"
    r"|Connection\w+Error|BrokenPipeError|TimeoutError|OSError|EOFError|IncompleteReadError|Exception"
    r"|InternalError|HorovodInternalError|ActorDiedError|RayActorError)\b"
)
_LIBRARY: Final = re.compile(
    r'File "[^"]*/(?:torch(?:_npu)?/distributed/|deepspeed/(?:comm|runtime/comm)/|horovod/|mindspore/(?:communication|'
    r"parallel/_(?:ps|utils)|distributed)/|mpi4py/|hccl/)"
)
_CALL: Final = re.compile(
    r"\b(?:all_?reduce|all_?gather\w*|reduce_?scatter\w*|all_?to_?all\w*|broadcast\w*|(?:monitored_)?barrier|reduce"
    r"|i?send|i?recv|scatter|gather|init_process_group|destroy_process_group|new_group|TCPStore|init_cluster"
    r"|(?:work|handle)\.wait|_verify_params_across_processes|(?:npu|cuda)\.synchronize|stream\w*(?:\(\))?\.synchronize)\("
)
_OF_A_PEER: Final = re.compile(
    r"time(?:d )?[ -]?out|peer|remote|connect|socket|recv|received|closed|reset|refused|unreachable|heartbeat|network"
    r"|abort|broken pipe|lost|store|rendezvous|error code is|error in:|unhandled|watchdog|EOF|died|dead",
    re.IGNORECASE,
)
_MESSAGE: Final = re.compile(
    r"(?i:gloo|c10d|nccl|hccl|hcom|tcpstore|processgroup|rendezvous|mpi_|libfabric|remote (?:peer|rank))"
)


def is_raised_in_one(exception: str, traceback: Sequence[str]) -> bool:
    """Whether `exception` ("Type: message"), the last lines of whose traceback are given, comes from a collective."""
    if not _RAISED_BY_BACKENDS.match(exception) or not _OF_A_PEER.search(exception):
        return False
    if _MESSAGE.search(exception):
        return True
    frames = [line for line in traceback if line.startswith("  ")][-INNERMOST:]
    return any(_LIBRARY.search(line) or _CALL.search(line) for line in frames)
