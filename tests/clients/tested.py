"""The versions that the tests of this directory have really run with, recorded for .github/COMPATIBILITY.md."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

import ascend_runner
from tests.helpers.pythons import SUPPORTED, python_of

VENV: Final = Path(__file__).parents[2] / "scripts" / "venv"
# The clients that each file of tests starts. Most are Python distributions; see `COMMANDS` for the others.
CLIENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "test_bundle.py": ("Python",),
    "test_checkpoints.py": ("torch", "accelerate", "lightning", "mindspore", "transformers"),
    "test_completions.py": ("bash", "zsh", "fish"),
    "test_docs.py": ("Chromium",),
    "test_flight_recorder.py": ("torch",),
    "test_html_report.py": ("Chromium",),
    "test_manifests.py": ("kubernetes-validate", "kubeflow-trainer-api"),
    "test_mindspore.py": ("mindspore",),
    "test_notebook.py": ("ipykernel",),
    "test_open_mpi.py": ("Open MPI",),
    "test_prometheus.py": ("Prometheus",),
    "test_ray.py": ("ray",),
    "test_recipes.py": (
        *("torch", "accelerate", "lightning", "transformers", "ray"),
        *("ms-swift", "llamafactory", "mindspore"),
    ),
    "test_root_cause.py": ("torch",),
    "test_slurm.py": ("Slurm",),
    "test_tensorflow.py": ("tensorflow",),
    "test_top.py": ("tmux", "textual"),
    "test_torch.py": ("torch",),
}
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Chromium": ("chromium", "--version"),
    "Open MPI": ("mpirun", "--version"),
    "Prometheus": ("prometheus", "--version"),
    "Slurm": ("slurmd", "-V"),
    "bash": ("bash", "--version"),
    "fish": ("fish", "--version"),
    "tmux": ("tmux", "-V"),
    "zsh": ("zsh", "--version"),
}
DISTRIBUTIONS: Final = {"tensorflow": "tensorflow-cpu"}  # on x86_64
NEED_NUMPY_1: Final = {"llamafactory", "mindspore"}  # which an environment of their own has


class Recorder:
    """A plugin that writes a record of the clients whose tests have all passed, and keeps those that did not run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: set[str] = set()  # names of files
        self._failed: set[str] = set()
        self._skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the file of a test."""
        name = os.path.basename(report.nodeid.partition("::")[0])
        (self._failed if report.failed else self._skipped if report.skipped else self._passed).add(name)

    def pytest_sessionfinish(self) -> None:
        """Write the record."""
        old = json.loads(self._path.read_text("utf-8"))["clients"] if self._path.exists() else {}
        passed, failed, skipped = map(_clients, (self._passed, self._failed, self._skipped))
        kept = {client: entry for client, entry in old.items() if client not in failed}
        clients = {**kept, **{client: self._entry(client) for client in passed - failed - skipped}}
        record = {**_machine(), "clients": {client: clients[client] for client in sorted(clients, key=str.lower)}}
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def _entry(self, client: str) -> dict[str, object]:
        files = sorted(name for name in self._passed if client in CLIENTS[name])
        return {"versions": [*_versions(client)], "tests": files, "ascend-runner": ascend_runner.__version__}


def _clients(files: Iterable[str]) -> set[str]:
    return {client for name in files for client in CLIENTS[name]}


def _machine() -> dict[str, str]:
    system = dict(re.findall(r'(?m)^(\w+)="?(.*?)"?$', Path("/etc/os-release").read_text("utf-8")))
    return {
        "Python": platform.python_version(),
        "Linux": ".".join(re.findall(r"\d+", platform.release())[:2]),
        "system": f"{system['NAME'].split()[0]} {system['VERSION_ID']}",
        "machine": platform.machine(),
    }


def _versions(client: str) -> Iterator[str]:
    if client == "Python":
        code = "import platform; print(platform.python_version())"
        for python in filter(None, map(python_of, SUPPORTED)):
            yield _output(python, "-c", code).strip()
    elif client in COMMANDS:
        yield re.findall(r"\d+(?:\.\d+)+\w*", _output(*COMMANDS[client]))[0]
    else:
        code = "import sys; from importlib import metadata; print(metadata.version(sys.argv[1]))"
        python = numpy_1() if client in NEED_NUMPY_1 else sys.executable
        yield _output(python, "-c", code, DISTRIBUTIONS.get(client, client)).partition("+")[0].strip()


def numpy_1() -> str:
    """Return the Python of the environment with NumPy 1, which may have to be created."""
    created = subprocess.run([VENV, "--clients-numpy1"], stdout=subprocess.PIPE, text=True, check=True)
    return f"{created.stdout.strip()}/bin/python"


def _output(*command: str) -> str:
    env = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}:/usr/sbin:/sbin"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
