"""Where a platform puts datasets, models and results: the variable for each, then the usual directories.

Sources: the Octopus guide to algorithm files, ModelArts' layout, the task-training platform's layout.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ascend_runner.errors import SettingsError

DATASET_MAP: Final = "DATASET_MAP"

# For each directory its variable, and the defaults without one, in this order:
#                          ModelArts                                       CCE                         task-training
PLACES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "dataset": ("DATASET", ("/home/ma-user/datasets", "/tmp/data/dataset", "/workspace/dataset")),  # noqa: S108
    "cached_dataset": ("CACHED_DATASET", ("/home/ma-user/cached-datasets", "/tmp/data/cached-dataset")),  # noqa: S108
    "model": ("MODEL", ("/home/ma-user/modelarts/user-job-dir/model", "/tmp/data/model", "/workspace/model")),  # noqa: S108
    "result": ("RESULT", ("/home/ma-user/modelarts/result", "/tmp/result", "/workspace/outputs")),  # noqa: S108
    "code": ("MA_JOB_DIR", ("/home/ma-user/modelarts/user-job-dir", "/workspace/algorithm")),
}
# How the task-training platform sorts datasets and models; a star stands for a name, or a name and a version.
GROUPS: Final = {"private": "*", "pretrained": "*", "favorite": "*/*"}
ANNOTATIONS: Final = "/workspace/anno_dataset"
VOLUMES: Final = "/workspace/volume"

Subfolders = Callable[[str], Sequence[str]]  # the names of the directories in a directory; none if it does not exist


def find(environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> dict[str, str]:
    """Find the directories in PLACES ("": there is none).

    A variable counts even if its directory does not exist (yet); a default must exist.
    """
    return {
        folder: environ.get(variable) or next(filter(is_folder, defaults), "")
        for folder, (variable, defaults) in PLACES.items()
    }


def mapped_datasets(environ: Mapping[str, str]) -> dict[str, str]:
    """Read DATASET_MAP, whose names may be of any script; empty if it is not set.

    Raises:
        SettingsError: It does not map names to paths.
    """
    text = environ.get(DATASET_MAP)
    if not text:
        return {}

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(path, str) and path for path in found.values()):
        raise SettingsError(f'invalid value {text!r} for {DATASET_MAP}: expected JSON such as {{"name": "path"}}')

    return found


def named(dataset: str, model: str, subfolders: Subfolders) -> dict[str, dict[str, str]]:
    """List the directories that the platform keeps by name: datasets, models, annotations of datasets, volumes.

    Datasets are the directories in `dataset`, and models those in `model` if it has groups, else `model` is one model.
    The task-training platform has groups in both: "private/cifar", "favorite/cifar/v2".
    """
    annotations = _matching(ANNOTATIONS, "*/annotation", subfolders)
    return {
        "datasets": _grouped(dataset, subfolders) or _matching(dataset, "*", subfolders),
        "models": _grouped(model, subfolders),
        "annotations": {name.rpartition("/")[0]: path for name, path in annotations.items()},
        "volumes": _matching(VOLUMES, "*", subfolders),
    }


def _grouped(folder: str, subfolders: Subfolders) -> dict[str, str]:
    groups = subfolders(folder)
    if not groups or not {*groups} <= {*GROUPS}:
        return {}
    return {
        name: path
        for group in groups
        for name, path in _matching(folder, f"{group}/{GROUPS[group]}", subfolders).items()
    }


def _matching(folder: str, pattern: str, subfolders: Subfolders) -> dict[str, str]:
    """Return the directories that match a pattern below a directory, by their paths from there."""
    found = {"": folder.rstrip("/")} if folder else {}
    for part in pattern.split("/"):
        found = {
            f"{above}/{name}".lstrip("/"): f"{path}/{name}"
            for above, path in found.items()
            for name in subfolders(path)
            if part in {"*", name}
        }
    return found
