"""The average CPU usage of ranks as `ascend-job top` compares it."""

from __future__ import annotations

from ascend_runner.tools.job.top import LEAST, WINDOW, CpuWindow


def test_averages_of_the_last_minute() -> None:
    """There are none at first; later, what was before the last minute does not count."""
    window = CpuWindow()

    assert {} == window.look({0: 500.0, 1: 0.0}, 0.0)
    assert {} == window.look({0: 510.0, 1: 0.0}, LEAST - 1)
    assert {0: 50.0, 1: 10.0} == window.look({0: 500.0 + WINDOW / 2, 1: WINDOW / 10}, WINDOW)
    assert {0: 0.0, 1: 0.0} == window.look({0: 500.0 + WINDOW / 2, 1: WINDOW / 10}, 2 * WINDOW)


def test_ranks_without_an_average() -> None:
    """A rank that was not seen before, or was restarted, has none."""
    window = CpuWindow()
    window.look({0: 1.0, 1: 1.0}, 0.0)

    assert {0: 100.0} == window.look({0: 1.0 + LEAST, 1: 0.5, 2: 7.0}, LEAST)
