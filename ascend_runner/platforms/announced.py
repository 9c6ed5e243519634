"""Where a platform puts the rank table of a job: by its variables, else where platforms are known to put it."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Final

from ascend_runner.errors import RankTableError

VARIABLES: Final = ("RANK_TABLE_FILE_V_1_0", "RANK_TABLE_FILE")
# ModelArts and CCE, then MindCluster.
USUAL_PLACES: Final = ("/user/config/jobstart_hccl.json", "/user/serverid/devindex/config/hccl.json")


def announced_table(environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> str:
    """Return the path at which the platform announces a rank table, which need not exist yet; "" if there is none."""
    named = next(filter(None, map(environ.get, VARIABLES)), "")
    return named or next((place for place in USUAL_PLACES if is_folder(os.path.dirname(place))), "")


def find_table(named: str | None, environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> str:
    """Return the path of the rank table: the one that the user has `named`, else the one that the platform announces.

    Raises:
        RankTableError: there is neither.
    """
    place = named or announced_table(environ, is_folder)
    if not place:
        raise RankTableError(
            f"no rank table found: --rank-table, {VARIABLES[0]} and {VARIABLES[1]} are not set, and the directories of"
            f" {' and '.join(USUAL_PLACES)} do not exist; use --nproc-per-node N to run N ranks without a rank table"
        )
    return place
