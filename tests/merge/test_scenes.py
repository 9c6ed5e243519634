"""The verdict on simulated jobs of several nodes, whose clocks differ and some of whose reports are missing.

The whole grid is that of scripts/merge-scenes.
"""

from __future__ import annotations

from typing import Final

import pytest

from ascend_runner.diagnosis.finding import Certainty
from tests.helpers import node_scenes
from tests.helpers.node_scenes import MISLEADING, NAMED, SCENES, World

COUNTS: Final = (2, 8)
LARGE: Final = (32, 128)


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str) -> None:
    """A wrong node is never certain, and the true one is named as often as the reports permit."""
    worlds = list(node_scenes.grid(COUNTS, names=[name]))
    results = [node_scenes.result(world) for world in worlds]

    assert [] == [world for world, found in zip(worlds, results) if found.is_wrong]
    assert NAMED[name] <= sum(found.is_named for found in results) / len(results)
    complete = [found.is_named for world, found in zip(worlds, results) if not world.missing]
    assert all(complete) or name in MISLEADING


@pytest.mark.parametrize("count", LARGE)
def test_large_jobs(count: int) -> None:
    """The same holds for many nodes."""
    worlds = [
        World(name=name, clock=node_scenes.CLOCKS[index % 5], count=count, missing=index % 4, seed=7)
        for index, name in enumerate(SCENES)
    ]

    assert [] == [world for world in worlds if node_scenes.result(world).is_wrong]


def test_certainty() -> None:
    """If all nodes have reported, an error that one of them has by itself is certain, and a guess never is."""
    found: dict[str, set[Certainty]] = {}
    for name in SCENES:
        for clock in node_scenes.CLOCKS:
            for seed in range(3):
                world = World(name=name, clock=clock, count=8, missing=0, seed=seed)
                found.setdefault(name, set()).add(world.judge()[1].certainty)
    certain = {name for name, certainties in found.items() if certainties == {Certainty.CERTAIN}}

    assert {
        "own_error_named",
        "own_error_unnamed",
        "own_error_and_stop",
        "victims_end_first",
        "own_error_in_a_ring",
        "not_started",
        "out_of_memory",
        "crash",
        "same_error_everywhere",
        "stopped_by_the_platform",
    } == certain
