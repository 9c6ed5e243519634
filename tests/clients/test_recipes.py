"""The lines of scripts/recipes, run as they are pasted."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import venv
from pathlib import Path

import pytest

from tests.clients.conftest import PATH, RUNNER, free_port, run

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
MISSING = "a package is missing in this Python: "
LACKS = {
    "torch_train.py": f"{MISSING}torch",
    "trainer.py": f"{MISSING}torch",
    "accelerated.py": f"{MISSING}torch",
    "lightning_train.py": f"{MISSING}lightning",
    "llama_factory.yaml": "command not found: 'llamafactory-cli' (pip install llamafactory)",
    "ms_swift.yaml": "command not found: 'swift' (pip install ms-swift)",
    "mindspore_train.py": f"{MISSING}mindspore",
    "rl_on_ray.py": "cannot import Ray (No module named 'ray'): install ray",
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


@pytest.mark.parametrize("line", ROWS)
def test_missing_framework(line: str, tmp_path: Path) -> None:
    """In a Python without packages, the screen names the one to install."""
    venv.create(tmp_path / "venv")
    recipe = _recipe(line)
    shutil.copy(RECIPES / recipe, tmp_path)
    env = {"PATH": f"{tmp_path}/venv/bin:/usr/bin:/bin"}
    ended = run(*RUNNER, "--nproc-per-node", "1", *shlex.split(line)[1:], env=env, cwd=tmp_path)

    assert 0 != ended.status
    assert LACKS[recipe] in ended.screen


def _recipe(line: str) -> str:
    """Return the file that a line trains with."""
    return next(word for word in line.split() if word.endswith((".py", ".yaml")))
