"""Where a platform puts datasets, models and results: the variable for each, then the folders that platforms use.

Sources: the Octopus guide to algorithm files, ModelArts' layout, the task-training platform's layout.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError

DATASET_MAP: Final = "DATASET_MAP"


@attrs.frozen(kw_only=True)
class Folders:
    """A platform's folders, as paths; empty if the platform has none.

    `datasets` has the paths of DATASET_MAP by their names, which may be of any script; `dataset` is the folder of all
    datasets. The platform collects the content of `result` when the job ends.
    """

    dataset: str
    datasets: Mapping[str, str]
    cached_dataset: str
    model: str
    result: str
    code: str


# For each folder its variable, and the defaults without one, in this order:
#                          ModelArts                                       CCE                         task-training
PLACES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "dataset": ("DATASET", ("/home/ma-user/datasets", "/tmp/data/dataset", "/workspace/dataset")),  # noqa: S108
    "cached_dataset": ("CACHED_DATASET", ("/home/ma-user/cached-datasets", "/tmp/data/cached-dataset")),  # noqa: S108
    "model": ("MODEL", ("/home/ma-user/modelarts/user-job-dir/model", "/tmp/data/model", "/workspace/model")),  # noqa: S108
    "result": ("RESULT", ("/home/ma-user/modelarts/result", "/tmp/result", "/workspace/outputs")),  # noqa: S108
    "code": ("MA_JOB_DIR", ("/home/ma-user/modelarts/user-job-dir", "/workspace/algorithm")),
}


def find(environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> Folders:
    """Find the platform's folders. A variable counts even if its folder does not exist (yet); a default must exist.

    Raises:
        SettingsError: DATASET_MAP does not map names to paths.
    """
    found = {
        folder: environ.get(variable) or next(filter(is_folder, defaults), "")
        for folder, (variable, defaults) in PLACES.items()
    }
    return Folders(datasets=datasets(environ), **found)


def datasets(environ: Mapping[str, str]) -> dict[str, str]:
    """Read DATASET_MAP; empty if it is not set.

    Raises:
        SettingsError: it does not map names to paths.
    """
    text = environ.get(DATASET_MAP)
    if not text:
        return {}

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(path, str) and path for path in found.values()):
        raise SettingsError(f'{DATASET_MAP} is {text!r}, expected JSON such as {{"name": "path"}}')

    return found
