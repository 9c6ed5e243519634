"""The versions of software are read from a machine's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascend_runner.node import versions
from ascend_runner.node.host import Host
from tests.helpers.trees import host

CONDA = "opt/conda/lib/python3.10/site-packages"
TORCH = {f"{CONDA}/torch-2.1.0+cpu.dist-info/METADATA": "", f"{CONDA}/pip-24.0.dist-info/METADATA": ""}
NPU = {f"{CONDA}/torch_npu-2.1.0.post8.dist-info/METADATA": ""}
IN_CONDA = {"Python": "3.10", "torch": "2.1.0+cpu", "torch_npu": "2.1.0.post8", "mindspore": ""}


def with_links(machine: Host, **links: str) -> Host:
    """Add symlinks to a machine by the place of each, with `__` for a slash."""
    for name, target in links.items():
        path = Path(machine.path(f"/{name.replace('__', '/')}"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    return machine


def test_packages_of_an_interpreter(tmp_path: Path) -> None:
    """The frameworks of an interpreter are found by the names of their metadata; what is missing has no version."""
    machine = with_links(host(tmp_path, {**TORCH, **NPU}), opt__conda__bin__python="python3.10")

    assert IN_CONDA == versions.of_python(machine, "/opt/conda/bin/python", {})


def test_interpreter_without_a_number_in_its_name(tmp_path: Path) -> None:
    """The only library of an interpreter tells its version."""
    machine = host(tmp_path, {**TORCH, **NPU, "opt/conda/bin/python": ""})

    assert IN_CONDA == versions.of_python(machine, "/opt/conda/bin/python", {})


@pytest.mark.parametrize(("sees_system", "torch"), [("false", ""), ("true", "2.1.0+cpu")])
def test_virtual_environment(tmp_path: Path, sees_system: str, torch: str) -> None:
    """A virtual environment has its own packages, and those of its base only where its settings say so."""
    files = {
        "job/venv/pyvenv.cfg": f"home = /opt/conda/bin\ninclude-system-site-packages = {sees_system}\n",
        "job/venv/lib/python3.10/site-packages/mindspore-2.3.0-py3-none-any.egg-info": "",
        "opt/conda/bin/python3.10": "",
    }
    machine = with_links(host(tmp_path, {**TORCH, **files}), job__venv__bin__python="../../../opt/conda/bin/python3.10")

    assert {"Python": "3.10", "torch": torch, "torch_npu": "", "mindspore": "2.3.0"} == versions.of_python(
        machine, "/job/venv/bin/python", {}
    )


@pytest.mark.parametrize(
    ("environ", "torch"),
    [
        ({}, "2.1.0+cpu"),
        ({"PYTHONPATH": "relative:/mine"}, "9.9"),
        ({"HOME": "/home/me"}, "8.8"),
        ({"HOME": "/home/me", "PYTHONNOUSERSITE": "1"}, "2.1.0+cpu"),
        ({"HOME": "/home/me", "PYTHONPATH": "/mine"}, "9.9"),
    ],
)
def test_the_first_package_counts(tmp_path: Path, environ: dict[str, str], torch: str) -> None:
    """Of several versions, the one that would be imported is told."""
    files = {
        "mine/torch-9.9.dist-info/METADATA": "",
        "home/me/.local/lib/python3.10/site-packages/torch-8.8.dist-info/METADATA": "",
    }
    machine = host(tmp_path, {**TORCH, **files})

    assert torch == versions.of_python(machine, "/opt/conda/bin/python3.10", environ)["torch"]


@pytest.mark.parametrize(
    ("environ", "cwd", "version"),
    [
        ({}, "/", "3.10"),
        ({}, "/job/code/demo", "3.11"),
        ({"PYENV_VERSION": "3.12.1"}, "/job/code", "3.12"),
        ({"PYENV_VERSION": "system"}, "/job/code", None),
    ],
)
def test_shim_of_pyenv(tmp_path: Path, environ: dict[str, str], cwd: str, version: str | None) -> None:
    """It starts the interpreter that a variable, the nearest directory or the user has chosen."""
    files = {
        f"pyenv/versions/3.{one}.1/lib/python3.{one}/site-packages/pip-24.0.dist-info/X": "" for one in (10, 11, 12)
    }
    chosen = {"pyenv/version": "3.10.1\n", "job/code/.python-version": "3.11.1:3.12.1\n", "pyenv/shims/python": ""}
    machine = host(tmp_path, {**files, **chosen})
    found = versions.of_rank(machine, "/pyenv/shims/python", environ, cwd)

    assert version == found.get("Python")


@pytest.mark.parametrize("executable", ["/usr/bin/bash", "/opt/conda/bin/python3.12", "/missing/python3"])
def test_nothing_is_said_of_an_unknown_interpreter(tmp_path: Path, executable: str) -> None:
    """Where no packages are found, a framework is not said to be missing."""
    assert {} == versions.of_python(host(tmp_path, TORCH), executable, {})


def test_components(tmp_path: Path) -> None:
    """Driver, firmware and CANN are found where they were installed to, and the variables precede the defaults."""
    files = {
        "etc/ascend_install.info": "Driver_Install_Path_Param=/opt/npu\n",
        "opt/npu/driver/version.info": "Version=24.1.rc2\n",
        "usr/local/Ascend/firmware/version.info": "Version=7.3.0.1.231\npackage_version=24.1.rc1\n",
        f"mine/{os.uname().machine}-linux/ascend_toolkit_install.info": "version=8.0.RC2\n",
        "usr/local/Ascend/ascend-toolkit/latest/ascend_toolkit_install.info": "version=8.0.RC3\n",
    }
    machine = host(tmp_path, files)

    assert ["24.1.rc2", "24.1.rc1"] == [versions.component(machine, name)[1] for name in ("driver", "firmware")]
    assert ("/mine", "8.0.RC2") == versions.cann(machine, {"ASCEND_HOME_PATH": "/mine"})
    assert "8.0.RC3" == versions.cann(machine, {})[1]
