"""What happens to a job at its very end."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from signal import SIGUSR1, raise_signal
from types import SimpleNamespace
from typing import Any

import pytest

from ascend_runner.errors import OutputError
from ascend_runner.job import launch
from ascend_runner.node.bounded import PATIENT
from ascend_runner.ranks.signals import Signals
from tests.report.test_job_writer import begun


@pytest.mark.parametrize("is_prepared", [True, False])
def test_signal_while_the_last_report_is_written(tmp_path: Path, *, is_prepared: bool) -> None:
    """One that is meant for the ranks is answered, although nothing waits for signals any longer."""

    def fail(*_args: object) -> Any:
        raise OutputError("no room")

    refused: list[int] = []
    console: Any = None
    writer = begun(tmp_path, []).writer
    with Signals() as signals:
        signals.refuse = refused.append
        setup: Any = SimpleNamespace(
            signals=signals,
            requests=SimpleNamespace(),
            messages=SimpleNamespace(warning=print),
            environ={},
            patience=PATIENT,
            resources=ExitStack(),
            writer=writer,
            begin=lambda _spec: writer,
            await_staging=fail,
            prepare=lambda *_args: SimpleNamespace(error=OutputError("no table"), outline=None),
            show=lambda _prepared: None,
            end_requests=lambda: raise_signal(SIGUSR1),
        )
        if is_prepared:
            with pytest.raises(OutputError):
                launch.run(setup, writer.spec, console)
        else:
            launch.prepare(setup, (), "", console)

    assert [SIGUSR1] == refused
