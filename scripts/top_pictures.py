"""Writes the golden frames of `ascend-job top`, and its picture in the README, below fixtures/."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ascend_runner.tools.job.top_app import Texts, Top  # noqa: E402  found by the line above
from ascend_runner.tools.job.top_frame import Screen, frame  # noqa: E402  as above
from tests.helpers.live_views import EIGHT, JOBS, SIZES  # noqa: E402

TOP: Final = ROOT / "fixtures" / "ascend-job-top.svg"
TOP_SIZE: Final = (140, 23)


def main() -> None:
    """Write all pictures."""
    folder = ROOT / "fixtures" / "top"
    for count, job in JOBS.items():
        for columns, rows in SIZES.items():
            lines = frame(job, Screen(columns=columns, rows=rows)).lines
            text = "".join("".join(part for part, _style in line).rstrip() + "\n" for line in lines)
            (folder / f"{count}-ranks-{columns}.txt").write_text(text, encoding="utf-8")
    TOP.write_text(asyncio.run(_top()), encoding="utf-8")


async def _top() -> str:
    """Return the screen of a job of 8 ranks as SVG."""
    app = Top(lambda _shown: EIGHT, Texts(log=lambda _rank_id: (), stacks=tuple, events=tuple))
    async with app.run_test(size=TOP_SIZE) as pilot:
        while not app.is_drawn:
            await pilot.pause(0.01)
        await pilot.pause()
        svg = app.export_screenshot(title="ascend-job top")
    # Fonts are those of the reader: a picture must not load any.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
