"""Judge simulated jobs of 2 to 128 nodes, whose clocks differ and some of whose reports are missing.

Prints for each scene how often the cause was named, and how often it was called certain. The exit status is 1 if a
wrong cause was called certain.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tests.helpers import node_scenes  # noqa: E402  found by the line above


def main() -> int:
    """Judge the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="jobs of each kind (default: 1)")
    parser.add_argument("scenes", metavar="SCENE", nargs="*", help="scenes (default: all)")
    options = parser.parse_args()
    began, wrong, total = time.process_time(), [], 0
    for name in options.scenes or node_scenes.SCENES:
        worlds = list(node_scenes.grid(seeds=options.seeds, names=[name]))
        results = [node_scenes.result(world) for world in worlds]
        wrong += [world for world, found in zip(worlds, results) if found.is_wrong]
        total += len(worlds)
        named, certain = sum(found.is_named for found in results), sum(found.is_certain for found in results)
        print(f"{name:30} named {named / len(worlds):6.1%}  certain {certain / len(worlds):6.1%}", flush=True)
    for world in wrong:
        print(f"WRONG: {world}")
    print(f"{total} jobs, {len(wrong)} wrong causes called certain, {time.process_time() - began:.0f} s of CPU")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
