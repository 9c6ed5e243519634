"""Hostile text in the output, the arguments and the variables of a real job: no view passes a control character on."""

from __future__ import annotations

import json
import os

import pytest

from tests.helpers.program import Program
from tests.helpers.waiting import wait_until
from tests.tools.job.conftest import Tool
from tests.views.test_page import HOSTILE

SCRIPT = "cat {0}/text-$RANK; until [ -e {0}/go ]; do sleep 0.1; done; cat {0}/text-$RANK; exit 1"
LIVE = (("status",), ("status", "--json"), ("list",), ("logs", "-n", "all"), ("stacks",), ("events",), ("metrics",))
AFTERWARDS = tuple(words for words in LIVE if words != ("stacks",))
LONG = "x" * (1 << 20)


@pytest.mark.deep
@pytest.mark.parametrize("texts", [HOSTILE, ("plain", LONG, f"\x1b]0;{LONG}", "\u202e" * 1000, "\0" * 1000)])
def test_views(texts: tuple[str, ...], program: Program, tool: Tool, run_dir: os.PathLike[str]) -> None:
    """Each view has printable characters only, and as many lines as with harmless text."""
    data = [text.encode(errors="surrogatepass") for text in texts]
    for rank_id, text in enumerate(data):
        (program.folder / f"text-{rank_id}").write_bytes(text + b"\nValueError: " + text + b"\n")
    words = [os.fsdecode(text) for text in data if b"\0" not in text and len(text) < len(LONG)]
    options = ("--nproc-per-node", str(len(texts)), "--console", "none", "--verbose")
    env = {"ASCEND_RUNNER_RUN_DIR": str(run_dir), "SOME_TEXT": "".join(words)}
    run = program.start(*options, "sh", "-c", SCRIPT.format(program.folder), "x", *words, env=env)
    written = sum(path.stat().st_size for path in program.folder.glob("text-*"))
    wait_until(lambda: written == sum(path.stat().st_size for path in program.log_dir.glob("*.txt")))
    wait_until(lambda: json.loads(tool("status", "--json")[1])["ranks"])  # the report is written later than the logs
    views = {" ".join(view): tool(*view)[1] for view in LIVE}
    (program.folder / "go").touch()
    status = run.finish()
    views |= {"screen": run.screen, **{f"{' '.join(view)} afterwards": tool(*view)[1] for view in AFTERWARDS}}

    assert 1 == status
    assert {} == {name: odd(text) for name, text in views.items() if odd(text)}
    assert len(texts) + 9 == views["status"].count("\n")  # seven of the job, an empty one and the heads of the columns
    assert len(texts) * 2 == views["logs -n all"].count("\n")
    assert len(texts) == len(json.loads(views["status --json"])["ranks"])


def odd(text: str) -> set[str]:
    """Return the characters of a text that a terminal would not show as themselves."""
    return {char for char in text if not (char.isprintable() or char == "\n")}
