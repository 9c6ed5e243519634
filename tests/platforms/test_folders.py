"""The folders of datasets, models and results: variables first, then the platforms' defaults."""

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


def found(*paths: str) -> folders.Folders:
    """Return folders without a DATASET_MAP, in the order dataset, cached_dataset, model, result, code."""
    names = ("dataset", "cached_dataset", "model", "result", "code")
    return folders.Folders(datasets={}, **dict(zip(names, paths)))


def test_variables_come_first() -> None:
    """A variable counts, whether or not its folder exists."""
    variables = {"DATASET": "/d", "CACHED_DATASET": "/c", "MODEL": "/m", "RESULT": "/r", "MA_JOB_DIR": "/j"}

    assert found("/d", "/c", "/m", "/r", "/j") == folders.find(variables, MODELARTS.__contains__)


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
def test_defaults_that_exist(there: set[str], expected: folders.Folders) -> None:
    """A default counts if it exists."""
    assert expected == folders.find({}, there.__contains__)


def test_datasets_by_name() -> None:
    """Names may be of any script."""
    listed = {"道路 1": "/home/ma-user/datasets/dataset-0", "b": "/home/ma-user/cached-datasets/5f9c/dataset"}

    assert listed == folders.datasets({"DATASET_MAP": json.dumps(listed)})
    assert listed == folders.datasets({"DATASET_MAP": json.dumps(listed, ensure_ascii=False)})
    assert {} == folders.datasets({})


@pytest.mark.parametrize("text", ["{key1: value1}", "[]", "null", "1", '{"a": 1}', '{"a": ""}', '{"a": null}', "{"])
def test_bad_map(text: str) -> None:
    """A malformed map is an error."""
    with pytest.raises(SettingsError) as caught:
        folders.datasets({"DATASET_MAP": text})

    assert f'DATASET_MAP is {text!r}, expected JSON such as {{"name": "path"}}' == str(caught.value)
