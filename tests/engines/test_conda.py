"""The choice of a conda environment, and its precedence in search paths."""

from __future__ import annotations

import pytest

from ascend_runner.engines import command as conda
from ascend_runner.errors import SettingsError

IMAGE = {"ANACONDA_DIR": "/home/ma-user/anaconda3", "DEFAULT_CONDA_ENV_NAME": "python-3.7.10", "PATH": "/usr/bin:/bin"}
PREFIX = "/home/ma-user/anaconda3/envs/python-3.7.10"


def _find(
    command: str, environ: dict[str, str], name: str | None = None, folders: tuple[str, ...] = ()
) -> conda.Conda | None:
    return conda.find(command, environ, name, is_folder=folders.__contains__)


def test_image_names_its_environment() -> None:
    """The environment's programs and libraries come first, and what was there stays."""
    found = _find("python", {**IMAGE, "LD_LIBRARY_PATH": "/usr/local/Ascend/driver/lib64"})

    assert found == conda.Conda(
        python=f"{PREFIX}/bin/python",
        variables={
            "PATH": f"{PREFIX}/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{PREFIX}/lib:/usr/local/Ascend/driver/lib64",
        },
    )


def test_twice_is_once() -> None:
    """Inside an environment that is first already nothing changes."""
    first = _find("python", IMAGE)
    assert first is not None
    environ = {**IMAGE, **first.variables}
    again = _find("python", environ)

    assert again == first


def test_no_conda() -> None:
    """Without a name conda means nothing."""
    assert _find("python", {**IMAGE, "DEFAULT_CONDA_ENV_NAME": ""}) is None


def test_python_named_by_its_path() -> None:
    """It is the one that runs, with its own libraries, unless an environment was asked for."""
    assert _find("/usr/bin/python3", IMAGE) is None
    assert _find("/usr/bin/python3", IMAGE, "other") is not None
    assert _find("./run.sh", IMAGE) is not None


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("other", "/home/ma-user/anaconda3/envs/other"),
        ("base", "/home/ma-user/anaconda3"),
        ("/opt/env/", "/opt/env"),
        (None, PREFIX),
    ],
)
def test_environment_by_name(name: str | None, prefix: str) -> None:
    """--conda-env beats the image's; base is conda itself, and a path is a directory."""
    found = _find("python", IMAGE, name)

    assert found is not None
    assert f"{prefix}/bin/python" == found.python


@pytest.mark.parametrize(
    ("name", "environ"),
    [
        ("job", {}),
        (None, {"DEFAULT_CONDA_ENV_NAME": "job"}),
        ("job", {"CONDA_PREFIX": "/opt/conda/envs/other"}),
    ],
)
def test_usual_places(name: str | None, environ: dict[str, str]) -> None:
    """Without ANACONDA_DIR the environment is searched for where images have conda."""
    found = _find("python", environ, name, folders=("/opt/conda", "/opt/conda/envs/job"))

    assert found is not None
    assert "/opt/conda/envs/job/bin/python" == found.python


def test_active_environment() -> None:
    """An environment of this name that is active is meant, wherever it is."""
    found = _find("python", {"CONDA_PREFIX": "/data/envs/job", "DEFAULT_CONDA_ENV_NAME": "job"})

    assert found is not None
    assert "/data/envs/job/bin/python" == found.python


@pytest.mark.parametrize(
    ("name", "environ", "source"),
    [("other", {}, "--conda-env"), (None, {"DEFAULT_CONDA_ENV_NAME": "other"}, "DEFAULT_CONDA_ENV_NAME")],
)
def test_name_without_conda(name: str | None, environ: dict[str, str], source: str) -> None:
    """A name that no usual place has is an error: another Python would run the command instead."""
    with pytest.raises(SettingsError) as caught:
        _find("python", environ, name)

    assert str(caught.value) == (
        f"conda environment not found: 'other' ({source}): ANACONDA_DIR is not set, and none of the usual directories"
        f" has it ({', '.join(conda.USUAL_PLACES)}); set ANACONDA_DIR to conda's directory, or --conda-env to the"
        " directory of the environment"
    )


def test_empty_library_path() -> None:
    """No empty piece is left: the loader would take it for the working directory."""
    found = _find("python", IMAGE)

    assert found is not None
    assert f"{PREFIX}/lib" == found.variables["LD_LIBRARY_PATH"]
