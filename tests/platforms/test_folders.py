"""The directories of datasets, models and results: variables first, then the platforms' defaults."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.platforms import places

CCE = {"/tmp/data/dataset", "/tmp/data/cached-dataset", "/tmp/data/model", "/tmp/result"}
MODELARTS = {
    "/home/ma-user/datasets",
    "/home/ma-user/cached-datasets",
    "/home/ma-user/modelarts/user-job-dir",
    "/home/ma-user/modelarts/user-job-dir/model",
    "/home/ma-user/modelarts/result",
}
TASK_TRAINING = {"/workspace/dataset", "/workspace/model", "/workspace/outputs", "/workspace/algorithm"}


def found(*paths: str) -> dict[str, str]:
    """Return directories in the order dataset, cached_dataset, model, result, code."""
    return dict(zip(("dataset", "cached_dataset", "model", "result", "code"), paths))


def test_variables_come_first() -> None:
    """A variable counts, whether or not its directory exists."""
    variables = {"DATASET": "/d", "CACHED_DATASET": "/c", "MODEL": "/m", "RESULT": "/r", "MA_JOB_DIR": "/j"}

    assert found("/d", "/c", "/m", "/r", "/j") == places.find(variables, MODELARTS.__contains__)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (
            MODELARTS,
            found(
                "/home/ma-user/datasets",
                "/home/ma-user/cached-datasets",
                "/home/ma-user/modelarts/user-job-dir/model",
                "/home/ma-user/modelarts/result",
                "/home/ma-user/modelarts/user-job-dir",
            ),
        ),
        (
            CCE,
            found("/tmp/data/dataset", "/tmp/data/cached-dataset", "/tmp/data/model", "/tmp/result", ""),
        ),
        (
            TASK_TRAINING,
            found("/workspace/dataset", "", "/workspace/model", "/workspace/outputs", "/workspace/algorithm"),
        ),
        (set(), found("", "", "", "", "")),
    ],
)
def test_defaults_that_exist(there: set[str], expected: dict[str, str]) -> None:
    """A default counts if it exists."""
    assert expected == places.find({}, there.__contains__)


def test_datasets_by_name() -> None:
    """Names may be in any script."""
    listed = {"道路 1": "/home/ma-user/datasets/dataset-0", "b": "/home/ma-user/cached-datasets/5f9c/dataset"}

    assert listed == places.mapped_datasets({"DATASET_MAP": json.dumps(listed)})
    assert listed == places.mapped_datasets({"DATASET_MAP": json.dumps(listed, ensure_ascii=False)})
    assert {} == places.mapped_datasets({})


@pytest.mark.parametrize("text", ["{key1: value1}", "[]", "null", "1", '{"a": 1}', '{"a": ""}', '{"a": null}', "{"])
def test_bad_map(text: str) -> None:
    """A malformed map is an error."""
    with pytest.raises(SettingsError) as caught:
        places.mapped_datasets({"DATASET_MAP": text})

    assert f'invalid value {text!r} for DATASET_MAP: expected JSON such as {{"name": "path"}}' == str(caught.value)


# The layout of the task-training platform, and that of ModelArts.
TREE = (
    "/workspace/dataset/private/cifar",
    "/workspace/dataset/favorite/coco/v2",
    "/workspace/model/pretrained/bert",
    "/workspace/model/favorite/glm/1",
    "/workspace/anno_dataset/coco/annotation",
    "/workspace/volume/scratch",
    "/home/ma-user/datasets/dataset-0/private",
)


def _subfolders(folder: str) -> list[str]:
    parts = [PurePosixPath(path).parts for path in TREE]
    own = PurePosixPath(folder).parts
    return sorted({path[len(own)] for path in parts if path[: len(own)] == own and len(path) > len(own)})


def test_documented_names() -> None:
    """Datasets and models are listed by the names that the task-training platform gives them."""
    assert {
        "datasets": {
            "private/cifar": "/workspace/dataset/private/cifar",
            "favorite/coco/v2": "/workspace/dataset/favorite/coco/v2",
        },
        "models": {
            "pretrained/bert": "/workspace/model/pretrained/bert",
            "favorite/glm/1": "/workspace/model/favorite/glm/1",
        },
        "annotations": {"coco": "/workspace/anno_dataset/coco/annotation"},
        "volumes": {"scratch": "/workspace/volume/scratch"},
    } == places.named("/workspace/dataset", "/workspace/model", _subfolders)


def test_folders_below_dataset() -> None:
    """Elsewhere each directory below DATASET is a dataset, and the directory of the model is one model."""
    listed = places.named("/home/ma-user/datasets/", "/home/ma-user/datasets", _subfolders)

    assert {"dataset-0": "/home/ma-user/datasets/dataset-0"} == listed["datasets"]
    assert {} == listed["models"]
    assert {} == places.named("", "", _subfolders)["datasets"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DATASET": "/data/"}, {"DATASET": "/fast"}),
        ({"DATASET": "/data/a/b"}, {"DATASET": "/fast/a/b"}),
        ({"DATASET": "/database", "CACHED_DATASET": "/data"}, {"CACHED_DATASET": "/fast"}),
        ({"DATASET": "/"}, {}),
        ({"DATASET": "data"}, {}),
        ({"DATASET_MAP": '{"a": "/data/a", "b": "/b"}'}, {"DATASET_MAP": '{"a": "/fast/a", "b": "/b"}'}),
        ({"DATASET_MAP": '{"b":"/b"}'}, {}),
        ({"DATASET_MAP": "{key1: value1}"}, {}),
        ({"DATASET": "/link/a"}, {"DATASET": "/fast/a"}),
        ({"DATASET": "/links/a"}, {}),
        ({"DATASET": "link/a"}, {}),
    ],
)
def test_variables_of_datasets_lead_to_copies(environ: dict[str, str], expected: dict[str, str]) -> None:
    """A path that was copied, or is below one, also by a link, has its place in the copy; everything else stays."""

    def real_path(path: str) -> str:
        return re.sub("^/link(?=/|$)", "/data", path)

    assert expected == places.staged(environ, [("/data", "/fast"), ("/other", "/slow")], real_path)
