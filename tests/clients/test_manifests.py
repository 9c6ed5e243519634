"""The manifests agree with the published schemas of Kubernetes, JobSet and Kubeflow Trainer.

No package has the schemas of Volcano and of MindCluster's acjob: of theirs, only the pods are validated here, as those
of a Kubernetes Job. The rest of them is checked by tests/test_manifests.py alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
from kubeflow_trainer_api import models

from tests.test_manifests import YAML_FILES, documents, pods

VERSION = "1.31"  # podFailurePolicy is stable since then
Document = dict[str, Any]  # Any: what a YAML file holds
# Kubernetes' own kinds are validated by their schemas.
MODELS: dict[str, Any] = {  # Any: pydantic models that have no common base but pydantic's
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainJob": models.TrainerV1alpha1TrainJob,
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
}


def unknown(given: object, known: object, place: str = "") -> Iterator[str]:
    """Yield the members of a document that its model does not have; those without a value do not count."""
    if isinstance(given, dict) and isinstance(known, dict):
        for name, value in given.items():
            yield from unknown(value, known[name], f"{place}.{name}") if name in known else [f"{place}.{name}"]
    elif isinstance(given, list) and isinstance(known, list):
        for number, (one, other) in enumerate(zip(given, known)):
            yield from unknown(one, other, f"{place}[{number}]")


def validate(document: Document) -> None:
    """Validate a document by the schema of its kind, without unknown members."""
    model = MODELS.get(document["kind"])
    if model:
        assert [] == [*unknown(document, model.from_dict(document).to_dict())]
    else:
        kubernetes_validate.validate(document, VERSION, strict=True)


def as_job(pod: Document) -> Document:
    """Return a Kubernetes Job with this pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"template": {"spec": pod}},
    }


@pytest.mark.parametrize("name", ["trainjob.yaml", "jobset.yaml", "job.yaml"])
def test_manifest_is_valid(name: str) -> None:
    """Each document of a manifest has the members that its kind has, with values of their types."""
    for document in documents(name).values():
        validate(document)


@pytest.mark.parametrize("name", YAML_FILES)
def test_pods_are_valid(name: str) -> None:
    """The pods of each manifest are pods of Kubernetes."""
    for spec, _container, _command in pods(name):
        validate(as_job(spec))


@pytest.mark.parametrize("name", ["trainjob.yaml", "jobset.yaml", "job.yaml"])
def test_errors_are_found(name: str) -> None:
    """A misspelled member is found, wherever it is."""
    for document in documents(name).values():
        document["spec"]["backofLimit"] = 0
        with pytest.raises((AssertionError, kubernetes_validate.ValidationError)):
            validate(document)
