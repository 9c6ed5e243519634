"""Recognizes errors that only pass on another one: of launchers, pools and engines about their workers.

Such an error yields to the one that it refers to, if that is in the same log. The words are those of torch's elastic
agent, multiprocessing, and loaders of backends and extensions, MindSpore's msrun, vLLM and sglang, ray, DeepSpeed, HF
datasets, Open MPI, shells and Python's own pools.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_WORDS: Final = re.compile(
    r"ChildFailedError|Process(?:Raised|Exited)Exception|RemoteTraceback|BrokenProcessPool|CalledProcessError"
    r"|(?:RayTask|RayActor|ActorDied|ActorUnavailable|WorkerCrashed|Remote|EngineDead|AsyncEngineDead|MQEngineDead)Error"
    r"|(?:see|check|refer to)\b[^.]{0,80}\b(?:above|root cause|stack ?trace|worker_\d+\.log)"
    r"|(?:root cause|messages?|trace) above"
    r"|^SystemExit(?:: -?\d+)?$|Failed to load the backend extension: "
    r"|Engine core initialization failed|WorkerProc initialization failed|Background loop has errored already"
    r"|^RuntimeError: Executor failed"
    r"|Error building extension '\w+'$|An error occurred while generating the dataset$"
    r"|Worker failed with error|Distributed job exited with|scheduler is dead|Engine loop (?:is dead|has died)"
    r"|^RuntimeError: cancelled$"
    r"|error is reported as above|inspect the previous error messages|Received sigquit from a child|Worker exit type: "
    r"|actor is dead because its worker process|died with <Signals\."
    r"|terminated with (?:the following error|exit code|signal)|exited with (?:a )?non-?zero"
    r"|Blocking queue is killed because the data reader raises|returned non-zero exit status"
    r"|^ChildProcessError: worker died"
    r"|^\S+: line \d+: +\d+ (?:Segmentation fault|Bus error|Aborted|Illegal instruction)\b"
    r"|^(?:Segmentation fault|Bus error|Aborted|Illegal instruction)(?: \(core dumped\))?$"
    r"|exits with return code|Process name: \[\[|Killing subprocess|noticed that process rank|MPI_ABORT was invoked"
    r"|exited? (?:unexpectedly|with (?:exit ?)?code:? -?\d+)",
    re.IGNORECASE,
)


def only_passes_on(message: Sequence[str]) -> bool:
    """Whether an error, by the first lines of its message, refers to another one."""
    return any(_WORDS.search(line) for line in message[:3])


def log_directory(message: str) -> str:
    """Return the directory with the logs of the workers that a launcher's error points to, "" if it does not."""
    match = _DIRECTORY.search(message)
    return match[1] if match else ""


_DIRECTORY: Final = re.compile(r"[Cc]heck (?:the )?logs? in (?:the )?(?:directory|path|folder):? (/\S+?)[.,]?$")
