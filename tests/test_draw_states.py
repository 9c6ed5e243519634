"""README's state diagram is drawn from the table of supervision."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DRAW_STATES = Path(__file__).parent.parent / "scripts" / "draw_states"


def test_state_diagram_is_that_of_the_table() -> None:
    """What README shows is what the machine does; `scripts/draw_states` draws it anew."""
    run = subprocess.run([sys.executable, DRAW_STATES, "--check"], stderr=subprocess.PIPE, text=True, check=False)

    assert (0, "") == (run.returncode, run.stderr)
