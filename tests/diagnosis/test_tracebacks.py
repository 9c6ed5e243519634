"""Tracebacks as real interpreters print them, and what real logs do to them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from ascend_runner.diagnosis import crashes
from ascend_runner.diagnosis.tracebacks import Traceback, find_all
from ascend_runner.text import lines_of

WORKERS: Final = os.path.join(os.path.dirname(__file__), "..", "workers")


def output_of(*arguments: str, **environ: str) -> bytes:
    """Run a Python program to its end; what it wrote to both outputs."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return ended.stdout


def find_last(lines: list[str]) -> Traceback | None:
    """Return the last error of a log, if it contains one."""
    found = sorted([*find_all(lines), *crashes.find_all(lines)], key=lambda error: error.start)
    return found[-1] if found else None


def failure(kind: str) -> bytes:
    """Run a rank that fails in this way; all that it wrote."""
    return output_of(os.path.join(WORKERS, "fails.py"), kind)


def find(data: bytes) -> Traceback:
    """Find the traceback that must be there."""
    found = find_last(lines_of(data))
    assert found is not None
    return found


def short(data: bytes) -> tuple[str, str]:
    """Return the exception, and the function it was raised in."""
    found = find(data)
    return found.exception, found.place.partition(" in ")[2]


def tagged(data: bytes, tag: bytes) -> bytes:
    """Put a tag before every line."""
    return b"".join(tag + line + b"\n" for line in data.splitlines())


STEP_17: Final = ("ValueError: loss is nan at step 17", "train_step")


def test_exception_of_a_script() -> None:
    """The last line and the innermost frame are the short form; the block is what the interpreter printed."""
    data = output_of("-c", "def f():\n  raise ValueError('x')\nf()")
    found = find(data)

    assert ("ValueError: x", "<string>:2 in f") == (found.exception, found.place)
    assert tuple(data.decode().splitlines()) == found.lines


def test_no_traceback() -> None:
    """A log without a traceback has none."""
    found = find_last(["step 1", "INFO: done", "  File missing", "ValueError: not a traceback"])

    assert found is None


def test_empty_log() -> None:
    """An empty log has none."""
    assert find_last([]) is None


def test_direct_cause() -> None:
    """Of `raise B from A` the short form is B, the origin A; both blocks are kept with what links them."""
    found = find(failure("chained"))

    assert ("RuntimeError: cannot configure", "KeyError: 'learning_rate'") == (found.exception, found.origin)
    assert found.origin_place.endswith(" in chained")
    assert 2 == found.lines.count("Traceback (most recent call last):")


def test_during_handling() -> None:
    """An exception raised while another is handled has that as its origin."""
    data = failure("while_handling")

    assert STEP_17 == short(data)
    assert "KeyError: 'learning_rate'" == find(data).origin


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with 3.11")
def test_exception_group() -> None:
    """A group is named together with the first exception in it, and placed where that was raised."""
    data = failure("in_group")

    expected = "ExceptionGroup: two steps (3 sub-exceptions), first: ValueError: loss is nan at step 1"
    assert (expected, "train_step") == short(data)
    assert (expected, "train_step") == short(tagged(data, b"[rank1]: "))


GROUP_AS_A_CONSEQUENCE: Final = b"""\
Traceback (most recent call last):
  File "/job/train.py", line 9, in main
    {}["q"]
    ~~^^^^^
KeyError: 'q'

The above exception was the direct cause of the following exception:

  + Exception Group Traceback (most recent call last):
  |   File "/job/train.py", line 12, in <module>
  |     main()
  |     ~~~~^^
  |   File "/job/train.py", line 11, in main
  |     raise ExceptionGroup("many", errors) from k
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Exception Group Traceback (most recent call last):
    |   File "/job/train.py", line 6, in inner
    |     raise ExceptionGroup("few", [TypeError("t")])
    | ExceptionGroup: few (1 sub-exception)
    +-+---------------- 1 ----------------
      | TypeError: t
      +------------------------------------
    +---------------- 2 ----------------
    | ValueError: v
    +------------------------------------
"""


def test_group_in_a_chain() -> None:
    """A group may be what another exception led to, and hold groups: as Python 3.13 prints it."""
    found = find(GROUP_AS_A_CONSEQUENCE)

    assert "ExceptionGroup: many (2 sub-exceptions), first: TypeError: t" == found.exception
    assert "train.py:6 in inner" == found.place
    assert ("KeyError: 'q'", "train.py:9 in main") == (found.origin, found.origin_place)


def test_syntax_error_of_the_script(tmp_path: os.PathLike[str]) -> None:
    """A script that cannot be compiled ends without the usual first line, and without a function's name."""
    path = os.path.join(tmp_path, "train.py")
    with open(path, "w", encoding="utf-8") as script:
        script.write("x = = 1\n")
    found = find(output_of(path))

    assert "train.py:1" == found.place
    assert found.exception.startswith("SyntaxError: ")


def test_syntax_error_in_a_module(tmp_path: os.PathLike[str]) -> None:
    """The place of a syntax error is the line that cannot be compiled, not the import of it."""
    with open(os.path.join(tmp_path, "layers.py"), "w", encoding="utf-8") as script:
        script.write("\nx = (\n")
    found = find(output_of("-c", "import layers", PYTHONPATH=str(tmp_path)))

    assert "layers.py:2" == found.place
    assert found.exception.startswith("SyntaxError: ")


def test_exception_in_a_thread() -> None:
    """A thread's last exception counts like any other."""
    assert ("ValueError: loss is nan at step 5", "train_step") == short(failure("in_thread"))


def test_own_exception_class() -> None:
    """A class need not be called Error; a message of several lines is kept."""
    found = find(failure("of_own_class"))

    assert found.exception.endswith("Diverged: at step 3")
    assert "of epoch 2" == found.lines[-1]


def test_deep_recursion() -> None:
    """Only the innermost frames are kept, with the number of omitted ones."""
    data = failure("deep")
    found = find(data)

    assert ("ValueError: loss is nan at step 0", "train_step") == short(data)
    assert "  ... 37 outer frames ..." == found.lines[1]
    assert len(found.lines) < 25


@pytest.mark.parametrize("kind", ["in_finalizer", "in_logging"])
def test_ignored_exceptions(kind: str) -> None:
    """Exceptions that Python ignores (in finalizers, in logging) are not the cause of a rank's end."""
    assert STEP_17 == short(failure(kind))


def test_only_an_ignored_exception() -> None:
    """A log that holds nothing but an ignored exception holds none."""
    data = output_of("-c", "class A:\n  def __del__(self): 1/0\nA()")

    assert b"ZeroDivisionError" in data
    assert find_last(lines_of(data)) is None


def test_progress_bar_before_the_header() -> None:
    """A progress bar that was never ended stands on the line where the traceback begins."""
    assert STEP_17 == short(failure("in_progress_bar"))


@pytest.mark.parametrize(
    "tag", [b"[rank1]: ", b"(EngineCore pid=380500) ", b"ERROR 07-01 00:38:05 [worker.py:239] ", b"  1 | "]
)
def test_tag_before_every_line(tag: bytes) -> None:
    """A tag before every line, as torch and loggers write it, is left out."""
    data = failure("while_handling")

    assert find(data) == find(tagged(data, tag))
    assert find(data) == find(tagged(data, tag).replace(tag + b"\n", b"\n")), "torch leaves blank lines as they are"
    assert find(data) == find(b"  3%|#   |" + tagged(data, tag)), "a progress bar precedes the first tag"


def test_tag_with_a_clock() -> None:
    """A tag that differs in digits from line to line is one tag."""
    lines = failure("while_handling").splitlines()
    data = b"".join(b"ERROR 07-01 00:38:%02d " % second + line + b"\n" for second, line in enumerate(lines))

    assert STEP_17 == short(data)


def test_lines_of_others_in_between() -> None:
    """Lines that other threads and workers write meanwhile are left out, even those that look like an exception."""
    header, *frames, exception = failure("in_thread").splitlines()[1:]
    noise = [b"INFO: step 18", b"Epoch: 3", b"loss 0.25", b"WARNING: slow"]
    mixed = [line for number, frame in enumerate(frames) for line in (frame, noise[number % len(noise)])]
    lines = [header, *mixed, *noise, exception]

    assert ("ValueError: loss is nan at step 5", "train_step") == short(b"\n".join(lines))


def test_log_that_begins_within_the_traceback() -> None:
    """Where the header was too far back, the frames that are left count."""
    data = failure("while_handling")
    cut = data[data.rindex(b"Traceback") + 40 :]

    assert STEP_17 == short(cut)


@pytest.mark.parametrize("tag", [b"", b"[rank3]: ", b"(Worker pid=77) "])
def test_log_that_begins_within_an_earlier_traceback(tag: bytes) -> None:
    """Without its header, the first traceback of a log is found as well, also if each line has a tag."""
    error = b'    step()\n  File "train.py", line 7, in step\n    x = y[3]\nIndexError: list index out of range\n'
    data = tagged(error, tag)

    assert "IndexError: list index out of range" == find(data).exception
    assert ["IndexError: list index out of range", STEP_17[0]] == [
        found.exception
        for found in find_all([line.decode() for line in (data + failure("while_handling")).splitlines()])
    ]


def test_header_without_an_exception() -> None:
    """A traceback whose printing was cut short (SIGKILL) is passed over for the whole one before."""
    data = failure("while_handling") + b'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'

    assert STEP_17 == short(data)


def test_cann_traceback_is_not_pythons() -> None:
    """CANN's own "TraceBack" holds no frames of Python; the exception that carries it is found, with its message."""
    data = failure("while_handling") + (
        b"EJ0001: 2024-05-21-11:57:54.167.645 Failed to initialize the HCCP process.\n"
        b"        TraceBack (most recent call last):\n"
        b"        tsd client wait response fail\n"
    )
    found = find(data)

    assert STEP_17[0] == found.exception
    assert "        tsd client wait response fail" == found.lines[-1]


def test_original_traceback_of_a_data_loader_worker() -> None:
    """Of an exception that a data loader hands on, the worker's own is found."""
    outer = b'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    next(batches)\n'
    caught = b"ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal "

    data = outer + caught + failure("in_progress_bar").partition(b"]")[2].partition(b"]")[2]

    assert STEP_17 == short(data) == short(tagged(data, b"[rank1]: "))


def test_frame_of_a_library_and_the_users_own() -> None:
    """Where a library raised, the user's line that led there is named, too."""
    data = (
        b"Traceback (most recent call last):\n"
        b'  File "/job/train.py", line 212, in train_step\n'
        b"    loss(x)\n"
        b'  File "/usr/lib/python3.9/site-packages/torch/functional.py", line 3029, in cross_entropy\n'
        b"    return f(x)\n"
        b"RuntimeError: shapes\n"
    )

    assert "functional.py:3029 in cross_entropy, called from train.py:212 in train_step" == find(data).place


def test_fatal_error_of_the_interpreter() -> None:
    """The output of PYTHONFAULTHANDLER=1 at a SIGSEGV counts; its frames begin with the innermost."""
    found = find(output_of(os.path.join(WORKERS, "fails.py"), "segfault", PYTHONFAULTHANDLER="1"))

    assert "Fatal Python error: Segmentation fault" == found.exception
    assert " in string_at, called from fails.py:" in found.place


def test_uncaught_cpp_exception() -> None:
    """The C++ runtime's last words count, with what() they say."""
    data = b"step 1\nterminate called after throwing an instance of 'c10::Error'\n  what():  CUDA is not there\n"

    assert "c10::Error: CUDA is not there" == find(data).exception


@pytest.mark.parametrize("junk", [b"\0" * 1000, bytes(range(256)) * 50, b"\x1b[31m", "训练\u3000".encode()])
def test_junk_around(junk: bytes) -> None:
    """NULs, colors, any bytes and other scripts around it change nothing."""
    assert STEP_17 == short(junk + b"\n" + failure("while_handling") + junk)


def test_colors_inside() -> None:
    """A colored traceback (Python 3.13 on a terminal, FORCE_COLOR) reads like a plain one."""
    data = (
        b"Traceback (most recent call last):\n"
        b'  File \x1b[35m"/job/train.py"\x1b[0m, line \x1b[35m3\x1b[0m, in \x1b[35mf\x1b[0m\n'
        b"    \x1b[31m1\x1b[0m\x1b[1;31m/\x1b[0m\x1b[31m0\x1b[0m\n"
        b"\x1b[1;35mZeroDivisionError\x1b[0m: \x1b[35mdivision by zero\x1b[0m\n"
    )

    assert ("ZeroDivisionError: division by zero", "train.py:3 in f") == (find(data).exception, find(data).place)


# --- Chains, layouts and messages -------------------------------------------------------------------------------------

LOOKUP: Final = b"""\
Traceback (most recent call last):
  File "/job/config.py", line 5, in load
    return json.loads(text)
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/job/train.py", line 3, in <module>
    load("x")
  File "/job/config.py", line 7, in load
    raise ValueError("no such configuration: x")
ValueError: no such configuration: x
"""
CLEAN_UP: Final = b"""\
Traceback (most recent call last):
  File "/job/save.py", line 5, in save
    out.write(data)
OSError: [Errno 28] No space left on device

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/job/train.py", line 3, in <module>
    save("x")
  File "/job/save.py", line 9, in __exit__
    self.out.write_end()
RuntimeError: unexpected position 64
"""
WORKER: Final = b"""\
Traceback (most recent call last):
  File "/opt/python/queue.py", line 3, in get
    return self.poll()
RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/train.py", line 3, in <module>
    for batch in loader:
RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly
Exception in thread monitor:
"""
TABLE: Final = b"""\
Traceback (most recent call last):
  File "/opt/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 4711)
  traceback : Signal 9 (SIGKILL) received by PID 4711
============================================================
"""
MINDSPORE: Final = b"""\
Traceback (most recent call last):
  File "/job/train.py", line 3, in <module>
    net(x)
RuntimeError: Launch kernel failed: Default/Add-op1

----------------------------------------------------
- Ascend Error Message:
----------------------------------------------------
EZ9999: Inner Error!
"""


def test_exception_that_replaces_another() -> None:
    """A handler that raises what it wants to say has said it: the lookup that it tried first explains nothing."""
    assert ("ValueError: no such configuration: x", "") == (find(LOOKUP).exception, find(LOOKUP).origin)


def test_clean_up_that_fails_as_well() -> None:
    """The exception that was under way when a context manager's exit failed is the cause."""
    found = find(CLEAN_UP)

    assert ("OSError: [Errno 28] No space left on device", "save.py:5 in save") == (found.exception, found.place)
    assert "RuntimeError: unexpected position 64" == found.lines[-1]


def test_import_that_the_loader_refused() -> None:
    """An error of the dynamic loader explains the import error after it."""
    loader = "ImportError: /lib/libgomp.so.1: cannot allocate memory in static TLS block"
    raised = b"""\
Traceback (most recent call last):
  File "/opt/core.py", line 7, in <module>
    raise ImportError("cannot import the core")
ImportError: cannot import the core
"""
    link = b"\nDuring handling of the above exception, another exception occurred:\n\n"
    first = raised.replace(b"ImportError: cannot import the core", loader.encode())

    assert loader == find(first + link + raised).exception
    assert "ImportError: cannot import the core" == find(raised.replace(b"core", b"part") + link + raised).exception


def test_exception_that_only_passes_on_its_cause() -> None:
    """An exception that says only that a worker has ended yields to the one that it was raised from."""
    assert "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed." == find(WORKER).exception


def test_how_a_parent_noticed_the_end_of_a_worker() -> None:
    """The empty queue that a data loader has waited for does not explain the end of its worker."""
    header = b"Traceback (most recent call last):\n"
    cause = b"\nThe above exception was the direct cause of the following exception:\n\n"
    ended = b"RuntimeError: DataLoader worker (pid(s) 71, 72) exited unexpectedly\n"
    found = find(
        header + b'  File "queue.py", line 179, in get\n    raise Empty\n_queue.Empty\n' + cause
        + header + b'  File "train.py", line 9, in main\n    next(batches)\n' + ended
    )  # fmt: skip

    assert (ended.decode().strip(), "") == (found.exception, found.origin)


def test_warning_after_a_traceback() -> None:
    """A warning, in the form of the module of that name, does not belong to the message."""
    warning = b"/lib/tracker.py:224: UserWarning: 3 leaked semaphores\n  warnings.warn(message)\n"

    assert STEP_17[0] == find(failure("while_handling") + warning).lines[-1]


def test_thread_that_fails_next() -> None:
    """The exception of a thread does not belong to the message of the one before."""
    assert "Exception in thread monitor:" not in find(WORKER).lines


def test_table_of_torchrun_is_kept_to_its_end() -> None:
    """The table that follows torchrun's exception belongs to its message."""
    assert "  traceback : Signal 9 (SIGKILL) received by PID 4711" in find(TABLE).message


def test_message_that_goes_on_after_a_blank_line() -> None:
    """MindSpore's ruled sections belong to the message."""
    assert "EZ9999: Inner Error!" in find(MINDSPORE).message


def test_lines_without_their_indentation() -> None:
    """A log collector may strip every line."""
    data = b"\n".join(line.strip() for line in failure("while_handling").splitlines())

    assert STEP_17 == short(data)


def test_traceback_inside_a_table() -> None:
    """A traceback may stand indented in something else."""
    data = b"  traceback : " + failure("in_thread").partition(b"\n")[2].replace(b"\n", b"\n  ")

    assert ("ValueError: loss is nan at step 5", "train_step") == short(data)


def test_remote_error_without_details() -> None:
    """Ray names the cause of a remote error in parentheses, and has no more to say of some."""
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
    error = "ray.exceptions.RayTaskError(SyntaxError): <no detail available>"

    assert error == find(f"{trace}{error}\n".encode()).exception
