"""Takes a picture of the HTML report for the first page, with Chromium.

It shows the failure of `scripts/demo` as the runner has reported it once, so that it changes only with the page.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import attrs

from ascend_runner import report_file
from ascend_runner.record.job_record import JobRecord
from ascend_runner.views import page, page_content

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
REPORT: Final = FIXTURES / "demo" / "failure" / "modelarts-job-demo-report.json"
PICTURE: Final = FIXTURES / "html-report.png"
SIZE: Final = "1200,1250"  # pixels: the verdict, the evidence and the timeline
LIMIT: Final = 60.0  # seconds for the browser


def main() -> None:
    """Make the page and its picture."""
    os.environ["TZ"] = "UTC"  # a page has local times
    time.tzset()
    report = report_file.read(str(REPORT))
    found = attrs.evolve(
        page_content.gather(report, str(REPORT)), made_at=JobRecord.decode(report).ended_at or 0.0, links_logs=True
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "page.html")
        source.write_bytes(page.render(found))
        options = [f"--user-data-dir={folder}/browser", f"--window-size={SIZE}", f"--screenshot={PICTURE}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium refuses to start as root with one
        command = ["chromium", "--headless", "--hide-scrollbars", *options, source.as_uri()]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True, timeout=LIMIT)


if __name__ == "__main__":
    main()
