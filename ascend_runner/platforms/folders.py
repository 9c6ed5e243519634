"""Where a platform puts datasets, models and results: the variable for each, then the folders known to be used.

Sources: the Octopus guide to algorithm files, ModelArts' layout, the task-training platform's layout.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Callable, Final, NamedTuple
from ascend_runner.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

DATASET_MAP: Final = "DATASET_MAP"


class Folders(NamedTuple):
    """A platform's folders, as paths; empty where a platform has none.

    `datasets` are those that DATASET_MAP lists, by their names, which may be of any script; `dataset` is the folder of
    all of them. What is in `result` when the job ends is what the platform collects.
    """

    dataset: str
    datasets: Mapping[str, str]
    cached_dataset: str
    model: str
    result: str
    code: str


# For each folder its variable, and where it is without one, in the order asked:
#                          ModelArts                                       CCE                         task-training
PLACES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "dataset": ("DATASET", ("/home/ma-user/datasets", "/tmp/data/dataset", "/workspace/dataset")),  # noqa: S108
    "cached_dataset": ("CACHED_DATASET", ("/home/ma-user/cached-datasets", "/tmp/data/cached-dataset")),  # noqa: S108
    "model": ("MODEL", ("/home/ma-user/modelarts/user-job-dir/model", "/tmp/data/model", "/workspace/model")),  # noqa: S108
    "result": ("RESULT", ("/home/ma-user/modelarts/result", "/tmp/result", "/workspace/outputs")),  # noqa: S108
    "code": ("MA_JOB_DIR", ("/home/ma-user/modelarts/user-job-dir", "/workspace/algorithm")),
}


def find(environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> Folders:
    """Find the platform's folders. A variable counts even where its folder is not there (yet); a default must exist.

    Errors: SettingsError for a DATASET_MAP that is no map of names to paths.
    """
    found = {
        folder: environ.get(variable) or next(filter(is_folder, defaults), "")
        for folder, (variable, defaults) in PLACES.items()
    }
    return Folders(datasets=datasets(environ), **found)


def datasets(environ: Mapping[str, str]) -> dict[str, str]:
    """Read DATASET_MAP; empty where it is not set. Errors: SettingsError."""
    text = environ.get(DATASET_MAP)
    if not text:
        return {}
    import json  # only here: 4 ms

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(path, str) and path for path in found.values()):
        raise SettingsError(f'{DATASET_MAP} is {text!r}, expected {{"name": "path", ...}} as JSON')

    return found
