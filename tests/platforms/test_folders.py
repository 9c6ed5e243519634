"""Datasets, models and results: the variables first, then the folders that platforms are known to use."""

from __future__ import annotations

import json

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.platforms import folders

CCE = {"/tmp/data/dataset", "/tmp/data/cached-dataset", "/tmp/data/model", "/tmp/result"}
MODELARTS = {
    "/home/ma-user/datasets",
    "/home/ma-user/cached-datasets",
    "/home/ma-user/modelarts/user-job-dir",
    "/home/ma-user/modelarts/user-job-dir/model",
    "/home/ma-user/modelarts/result",
}
TASK_TRAINING = {"/workspace/dataset", "/workspace/model", "/workspace/outputs", "/workspace/algorithm"}


def test_variables_come_first() -> None:
    """What a variable names counts, whether or not it exists."""
    variables = {"DATASET": "/d", "CACHED_DATASET": "/c", "MODEL": "/m", "RESULT": "/r", "MA_JOB_DIR": "/j"}

    assert folders.Folders("/d", {}, "/c", "/m", "/r", "/j") == folders.find(variables, MODELARTS.__contains__)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (
            MODELARTS,
            folders.Folders(
                "/home/ma-user/datasets",
                {},
                "/home/ma-user/cached-datasets",
                "/home/ma-user/modelarts/user-job-dir/model",
                "/home/ma-user/modelarts/result",
                "/home/ma-user/modelarts/user-job-dir",
            ),
        ),
        (
            CCE,
            folders.Folders("/tmp/data/dataset", {}, "/tmp/data/cached-dataset", "/tmp/data/model", "/tmp/result", ""),
        ),
        (
            TASK_TRAINING,
            folders.Folders(
                "/workspace/dataset", {}, "", "/workspace/model", "/workspace/outputs", "/workspace/algorithm"
            ),
        ),
        (set(), folders.Folders("", {}, "", "", "", "")),
    ],
)
def test_defaults_that_exist(there: set[str], found: folders.Folders) -> None:
    """Each pool's folders are found by being there."""
    assert found == folders.find({}, there.__contains__)


def test_datasets_by_name() -> None:
    """Names may be of any script."""
    listed = {"道路 1": "/home/ma-user/datasets/dataset-0", "b": "/home/ma-user/cached-datasets/5f9c/dataset"}

    assert listed == folders.datasets({"DATASET_MAP": json.dumps(listed)})
    assert listed == folders.datasets({"DATASET_MAP": json.dumps(listed, ensure_ascii=False)})
    assert {} == folders.datasets({})


@pytest.mark.parametrize("text", ["{key1: value1}", "[]", "null", "1", '{"a": 1}', '{"a": ""}', '{"a": null}', "{"])
def test_bad_map(text: str) -> None:
    """A map that cannot be read is one clear error."""
    with pytest.raises(SettingsError) as caught:
        folders.datasets({"DATASET_MAP": text})

    assert f'DATASET_MAP is {text!r}, expected {{"name": "path", ...}} as JSON' == str(caught.value)
