"""The lines of scripts/recipes, run as they are pasted."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import PATH, free_port, run

RECIPES = Path(__file__).parents[2] / "scripts" / "recipes"
README = (RECIPES / "README.md").read_text("utf-8")
ROWS = re.findall(r"^\| .* \| `(ascend-runner [^`]*)` \|$", README, re.MULTILINE)
SHOWS = {
    "torch_train.py": "iteration       10/      10 | elapsed time per iteration (ms):",
    "trainer.py": "'train_loss':",
    "accelerated.py": "step 3 of 2 processes, loss",
    "lightning_train.py": "trained 4 steps in 2 processes",
    "llama_factory.yaml": "world size: 2",
    "ms_swift.yaml": "world_size: 4, local_world_size: 2",
    "mindspore_train.py": "step 5 of 2 processes, loss",
    "rl_on_ray.py": "the policy prefers arm 2",
}
TINY_MODEL = "tiny_model.py"
ON_TWO_NODES = {"ms_swift.yaml", "rl_on_ray.py"}
NEED_NUMPY_1 = {"llama_factory.yaml", "mindspore_train.py"}
# torch's own clean-up at Python's end aborts now and then.
ABORTED = "terminate called without an active exception"


def test_every_recipe_has_a_line() -> None:
    """No recipe is left out of the table, nor of the test."""
    recipes = {path.name for path in RECIPES.iterdir() if path.suffix in {".py", ".yaml"}} - {TINY_MODEL}

    assert recipes == set(SHOWS)
    assert sorted(recipes) == sorted(map(_recipe, ROWS))


@pytest.mark.parametrize("line", ROWS)
def test_recipe_runs_as_pasted(line: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """It trains in two processes, or on two nodes of two, without a network."""
    recipe = _recipe(line)
    python = request.getfixturevalue("numpy_1") if recipe in NEED_NUMPY_1 else sys.executable
    env = {"PATH": f"{os.path.dirname(python)}:{PATH}", "OMP_NUM_THREADS": "1"}
    shutil.copy(RECIPES / recipe, tmp_path)
    if recipe.endswith(".yaml"):
        made = run(python, str(RECIPES / TINY_MODEL), env=env, cwd=tmp_path)

        assert 0 == made.status, made.screen
    runner, *words = shlex.split(line)
    place = ("--simulate", "2x2") if recipe in ON_TWO_NODES else ("--nproc-per-node", "2", "--master-port", free_port())
    ended = run(runner, *place, *words, env=env, cwd=tmp_path)
    if ABORTED in ended.screen:
        ended = run(runner, *place, *words, env=env, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert SHOWS[recipe] in ended.screen


def _recipe(line: str) -> str:
    """Return the file that a line trains with."""
    return next(word for word in line.split() if word.endswith((".py", ".yaml")))
