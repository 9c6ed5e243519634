"""Fails in the way that its first argument names."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading

SETTINGS: dict[str, float] = {}
KEPT: list[object] = []


def train_step(step: int) -> None:
    raise ValueError(f"loss is nan at step {step}")


def chained() -> None:
    try:
        SETTINGS["learning_rate"]
    except KeyError as error:
        raise RuntimeError("cannot configure") from error


def while_handling() -> None:
    try:
        SETTINGS["learning_rate"]
    except KeyError:
        train_step(17)


def in_group() -> None:
    errors = []
    for step in (1, 2):
        try:
            train_step(step)
        except ValueError as error:
            errors.append(error)
    if sys.version_info >= (3, 11):
        inner = ExceptionGroup("inner", [KeyError("x")])  # noqa: F821  ruff knows no version checks
        raise ExceptionGroup("two steps", [*errors, inner])  # noqa: F821


def in_thread() -> None:
    thread = threading.Thread(target=train_step, args=(5,))
    thread.start()
    thread.join()
    sys.exit(1)


def of_own_class() -> None:
    class Diverged(Exception):  # noqa: N818  the point of it
        pass

    raise Diverged("at step 3\nof epoch 2")


def deep(left: int = 40) -> None:
    if left % 2:
        deep(left - 1)
    elif left:
        deep(left=left - 1)
    else:
        train_step(0)


def in_finalizer() -> None:
    class Loader:
        def __del__(self) -> None:
            raise OSError("already closed")

    KEPT.append(Loader())  # dies with the interpreter, after the traceback
    train_step(17)


def in_logging() -> None:
    logging.getLogger().warning("%d", "no number")
    train_step(17)


def survived_long_ago() -> None:
    try:
        train_step(1)
    except ValueError:
        logging.getLogger().exception("skipped")
    for step in range(100):
        print(f"step {step}")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def in_progress_bar() -> None:
    for percent in (0, 50):
        sys.stderr.write(f"\r{percent:3d}%|#####     | {percent}/100 [00:00<00:00]")
    train_step(17)


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
