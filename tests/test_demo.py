"""The training that scripts/demo plays: ranks that talk to each other, to the end or until one of them fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import bound_to_free_port

if TYPE_CHECKING:
    from tests.conftest import Program, Run

ROOT = Path(__file__).parents[1]
RANKS = 4


def train(program: Program, **env: str) -> Run:
    """Start the demo's training on a port that is free."""
    with bound_to_free_port() as free:
        port = str(free.getsockname()[1])
    script = str(ROOT / "fixtures" / "demo" / "train.py")
    return program.start("--nproc-per-node", str(RANKS), sys.executable, script, env={"MASTER_PORT": port, **env})


def test_ranks_learn_from_each_other(program: Program) -> None:
    """Alone, a rank can learn one weight; together they have learnt all."""
    assert train(program).finish() == 0
    assert all(b"all about weight %d" % rank in program.log(rank) for rank in range(RANKS))
    assert b"learnt all %d weights" % RANKS in program.log(0)


def test_bad_data_of_one_rank_end_all(program: Program) -> None:
    """The others wait for it without end; it is named, with its own exit status."""
    run = train(program, DEMO_FAIL_RANK="2")

    assert run.finish() == 1
    assert " ERROR rank 2 failed first: exit status 1" in run.screen
