"""The versions of the software on this machine, read from its files: nothing is run, and no package is imported.

Sources: CANN's installation guide (where the versions of driver, firmware and CANN are), Python's `site` and `getpath`
(where an interpreter finds its packages), PyPA's specification of installed projects (`NAME-VERSION.dist-info`), and
pyenv's README (which interpreter a shim starts).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from ascend_runner.node.host import Host
from ascend_runner.programs import find_tool

ASCEND: Final = "/usr/local/Ascend"
CANN_VARIABLES: Final = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")  # set by its set_env.sh
CANN: Final = (f"{ASCEND}/cann", f"{ASCEND}/ascend-toolkit/latest", f"{ASCEND}/nnae/latest")
FRAMEWORKS: Final = ("torch", "torch_npu", "mindspore")
_INSTALLED: Final = re.compile(r"(?P<name>\w+)-(?P<version>[^-]+)(?:-.*)?\.(?:dist|egg)-info")
SITES: Final = (  # folders of packages below an interpreter's prefix; the last three are Debian's and Fedora's
    "lib/python{}/site-packages",
    "lib64/python{}/site-packages",
    "local/lib/python{}/dist-packages",
    "lib/python3/dist-packages",
)
_PYTHON: Final = re.compile(r"python(?P<version>\d+\.\d+)")
_INTERPRETER: Final = re.compile(r"python[\d.]*")
PYTHONS: Final = ("python", "python3")  # the names that shell scripts use


def of_rank(host: Host, executable: str, environ: Mapping[str, str], cwd: str) -> dict[str, str]:
    """Return the known versions of CANN, driver and firmware, and the versions from `of_python` for a rank's Python.

    If the rank runs another program, its Python is the first one in its PATH. `executable` may be relative to `cwd`.
    """
    software = {
        "CANN": cann(host, environ)[1],
        **{name: component(host, name)[1] for name in ("driver", "firmware")},
    }
    python = os.path.join(cwd, executable)
    if not _INTERPRETER.fullmatch(os.path.basename(executable)):
        folders = environ.get("PATH", os.defpath).split(os.pathsep)
        python = next(filter(None, (find_tool(name, folders) for name in PYTHONS)), "")
    known = {name: version for name, version in software.items() if version}
    return {**known, **of_python(host, _behind_shim(host, python, environ, cwd), environ)}


def _behind_shim(host: Host, python: str, environ: Mapping[str, str], cwd: str) -> str:
    """Return the interpreter that a shim of pyenv starts in a directory, any other path as it is."""
    folder, name = os.path.split(python)
    root = os.path.dirname(folder)
    if os.path.basename(folder) != "shims":
        return python
    folders = [cwd]
    while folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    files = (*(f"{one}/.python-version" for one in folders), f"{root}/version")
    chosen = (environ.get("PYENV_VERSION", ""), *(line for path in files for line in host.read_lines(path)[:1]))
    version = next(filter(None, chosen), "").partition(":")[0].strip()
    return f"{root}/versions/{version}/bin/{name}"


def component(host: Host, name: str) -> tuple[str, str]:
    """Return the file with the version of the "driver" or "firmware", and the version, "" if it is unknown."""
    folder = setting(host, "/etc/ascend_install.info", f"{name.title()}_Install_Path_Param") or ASCEND
    path = f"{folder}/{name}/version.info"
    return path, setting(host, path, "package_version", "Version")


def cann_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where the variables say that CANN is."""
    return tuple(environ[name] for name in CANN_VARIABLES if environ.get(name))


def cann(host: Host, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the folder of the CANN that programs use, or else of any, and its version; "" and "" without one."""
    arch = os.uname().machine
    names = (f"{arch}-linux/ascend_toolkit_install.info", "ascend_toolkit_install.info", "ascend_nnae_install.info")
    for folder in (*cann_folders(environ), *CANN):
        version = next(filter(None, (setting(host, f"{folder}/{name}", "version") for name in names)), "")
        if version:
            return folder, version
    return "", ""


def setting(host: Host, path: str, *keys: str) -> str:
    """Return a value from lines of KEY=VALUE, by the first of the keys that exists."""
    lines = host.read_lines(path)
    values = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    return next(filter(None, map(values.get, keys)), "") or ""


def of_python(host: Host, executable: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the version of an interpreter, such as {"Python": "3.11"}, and of the frameworks that it can import.

    A framework that is not installed has the version "". If nothing is installed where packages are expected, the
    interpreter is of another kind, and nothing is known of it.
    """
    version, folders = _packages(host, executable, environ)
    matches = [match for folder in folders for name in host.listdir(folder) if (match := _INSTALLED.fullmatch(name))]
    # Of several versions, the one in the first folder is imported.
    found = {match["name"].lower(): match["version"] for match in reversed(matches)}
    return {"Python": version, **{name: found.get(name, "") for name in FRAMEWORKS}} if found and version else {}


def _packages(host: Host, executable: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the version of an interpreter and the folders of its packages, in the order in which it searches them."""
    own, base = _prefix(executable), _prefix(_resolved(host, executable))
    config = f"{own}/pyvenv.cfg"
    is_venv = host.exists(config)
    sees_system = not is_venv or setting(host, config, "include-system-site-packages") == "true"
    version = _version(host, _resolved(host, executable), base)
    folders = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    if sees_system and environ.get("HOME") and not environ.get("PYTHONNOUSERSITE"):
        folders.append(f"{environ['HOME']}/.local/lib/python{version}/site-packages")
    for prefix in (*((own,) if is_venv else ()), *((base,) if sees_system else ())):
        folders += [f"{prefix}/{folder.format(version)}" for folder in SITES]
    return version, tuple(folders)


def _prefix(executable: str) -> str:
    return os.path.dirname(os.path.dirname(executable))


def _resolved(host: Host, path: str) -> str:
    """Return a path without symlinks."""
    return os.path.join("/", os.path.relpath(os.path.realpath(host.path(path)), os.path.realpath(host.path("/"))))


def _version(host: Host, executable: str, prefix: str) -> str:
    """Return the version of an interpreter by its name, or by its library if there is only one; else ""."""
    own = _PYTHON.fullmatch(os.path.basename(executable))
    matches = [own] if own else [_PYTHON.fullmatch(name) for name in host.listdir(f"{prefix}/lib")]
    found = {match["version"] for match in matches if match}
    return found.pop() if len(found) == 1 else ""
