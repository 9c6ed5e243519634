"""The lines of scripts/recipes, run as they are pasted."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import PATH, free_port, run

RECIPES = Path(__file__).parents[2] / "scripts" / "recipes"
ROWS = re.findall(r"^\| .* \| `(ascend-runner [^`]*)` \|$", (RECIPES / "README.md").read_text("utf-8"), re.MULTILINE)
SHOWS = {
    "torch_train.py": "iteration       10/      10 | elapsed time per iteration (ms):",
    "trainer.py": "'train_loss':",
    "accelerated.py": "step 3 of 2 processes, loss",
    "lightning_train.py": "trained 4 steps in 2 processes",
    "rl_on_ray.py": "the policy prefers arm 2",
}
# torch's own clean-up at Python's end aborts now and then.
ABORTED = "terminate called without an active exception"


def test_every_script_has_a_line() -> None:
    """No recipe is left out of the table, nor of the test."""
    scripts = sorted(path.name for path in RECIPES.glob("*.py"))

    assert scripts == sorted(SHOWS)
    assert scripts == sorted(word for row in ROWS for word in row.split() if word.endswith(".py"))


@pytest.mark.parametrize("line", ROWS)
def test_recipe_runs_as_pasted(line: str, tmp_path: Path) -> None:
    """It trains in two processes, or with Ray on two nodes of two."""
    script = next(word for word in line.split() if word.endswith(".py"))
    shutil.copy(RECIPES / script, tmp_path)
    runner, *words = shlex.split(line)
    place = ("--simulate", "2x2") if "ray" in words else ("--nproc-per-node", "2", "--master-port", free_port())
    env = {"PATH": f"{Path(sys.executable).parent}:{PATH}", "OMP_NUM_THREADS": "1"}
    ended = run(runner, *place, *words, env=env, cwd=tmp_path)
    if ABORTED in ended.screen:
        ended = run(runner, *place, *words, env=env, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert SHOWS[script] in ended.screen
