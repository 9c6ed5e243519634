"""What ranks write that is no plain line: progress bars, floods of carriage returns, lines without an end."""

from __future__ import annotations

import signal
import sys
from typing import Final

import pytest

from tests.helpers.program import Program
from tests.helpers.waiting import LIMIT

STATES: Final = 20_000
LAST: Final = b"100%|##########| done"
STREAMS: Final = {
    "a bar": rb"b''.join(b'\r%d%%' % n for n in range(20000)) + b'\r100%|##########| done\n'",
    "returns": rb"b'\r' * 5000 + b'100%|##########| done'",
    "a megabyte": rb"b'x' * (1 << 20) + b'\r100%|##########| done\n'",
    "cut sequences": rb"b'\x1b[31' * 20000 + b'\n\x1b]0;' + b'100%|##########| done\n\x1b['",
    "both ends": rb"b'a\r\nb\n\r\n\rc\r' * 5000 + b'100%|##########| done\r\n'",
}


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("option", ["fold", "pass"])
def test_any_stream(program: Program, option: str, stream: str) -> None:
    """Log files have each byte; on the console, each line has its prefix and the last state is shown."""
    expression = STREAMS[stream].decode()
    run = program.start(
        *("--nproc-per-node", "2", "--progress-bars", option, sys.executable, "-c"),
        f"import os; os.write(1, {expression}) if os.environ['RANK'] == '0' else print('calm')",
    )
    status = run.finish()
    shown = [line for line in run.lines if not line.startswith("[ascend-runner]")]
    first = [line for line in shown if line.startswith("[rank 0] ")]

    assert 0 == status
    assert eval(expression) == program.log(0)  # noqa: S307  one of those above
    assert "[rank 1] calm\n" in shown
    assert len(shown) - 1 == len(first)
    assert any(LAST.decode() in line for line in first)


def test_hint_on_several_bars(program: Program) -> None:
    """How to see only one of them is said once."""
    run = program.start("--nproc-per-node", "4", "sh", "-c", "printf '\\r1%%\\r2%%'; exec sleep 1000")
    run.wait_for("--console 0")
    run.wait_for("] 2%", times=3)  # the line of the last one is not finished
    run.send(signal.SIGTERM)
    run.finish()

    assert 1 == run.screen.count("progress bars of several ranks are shown every 10 s; use --console 0 ")


def test_folded_bar_is_shown_in_few_states(program: Program) -> None:
    """A bar that is drawn over and over is shown at most once a second."""
    script = f"import os; os.write(1, {STREAMS['a bar'].decode()})"
    run = program.start("--nproc-per-node", "1", sys.executable, "-c", script)
    run.finish()
    states = "".join(line for line in run.lines if not line.startswith("[ascend-runner]")).count("%")

    assert STATES + 1 == program.log(0).count(b"\r")
    assert 0 < states <= LIMIT
