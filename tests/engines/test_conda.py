"""Which conda environment is meant, and what makes it come first."""

from __future__ import annotations

import pytest

from ascend_runner.engines import conda
from ascend_runner.errors import SettingsError

IMAGE = {"ANACONDA_DIR": "/home/ma-user/anaconda3", "DEFAULT_CONDA_ENV_NAME": "python-3.7.10", "PATH": "/usr/bin:/bin"}
PREFIX = "/home/ma-user/anaconda3/envs/python-3.7.10"


def test_image_names_its_environment() -> None:
    """The environment's programs and libraries come first, and what was there stays."""
    found = conda.find("python", {**IMAGE, "LD_LIBRARY_PATH": "/usr/local/Ascend/driver/lib64"})

    assert found == conda.Conda(
        prefix=PREFIX,
        python=f"{PREFIX}/bin/python",
        variables={
            "PATH": f"{PREFIX}/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{PREFIX}/lib:/usr/local/Ascend/driver/lib64",
        },
    )


def test_twice_is_once() -> None:
    """Inside an environment that is first already nothing changes."""
    first = conda.find("python", IMAGE)
    assert first is not None
    environ = {**IMAGE, **first.variables}
    again = conda.find("python", environ)

    assert again == first


@pytest.mark.parametrize("name", [*IMAGE][:2])
def test_no_conda(name: str) -> None:
    """Half of the pair means nothing."""
    assert conda.find("python", {**IMAGE, name: ""}) is None


def test_python_named_by_its_path() -> None:
    """It is the one that runs, with its own libraries, unless an environment was asked for."""
    assert conda.find("/usr/bin/python3", IMAGE) is None
    assert conda.find("/usr/bin/python3", IMAGE, "other") is not None
    assert conda.find("./run.sh", IMAGE) is not None


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
    """--conda-env beats the image's; base is conda itself, and a path is a folder."""
    found = conda.find("python", IMAGE, name)

    assert found is not None
    assert prefix == found.prefix


def test_name_without_conda() -> None:
    """A name needs to know where conda is."""
    with pytest.raises(SettingsError) as caught:
        conda.find("python", {}, "other")

    expected = (
        "--conda-env other requires ANACONDA_DIR (conda's directory): set it, or pass the environment's directory"
    )
    assert expected == str(caught.value)


def test_empty_library_path() -> None:
    """No empty piece is left: the loader would take it for the working directory."""
    found = conda.find("python", IMAGE)

    assert found is not None
    assert f"{PREFIX}/lib" == found.variables["LD_LIBRARY_PATH"]
