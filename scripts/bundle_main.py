"""Start ascend-runner from its bundle: unpack the wheels for this Python once, into a private directory, and run them.

`--as ascend-job`, or a copy or link with such a name, runs another program of the package.
This file is the bundle's __main__. It must parse on every Python, 2.7 included: on one that is too old it searches for
another, and says which it needs before it gives up. The training command keeps the Python that it names.
"""

import glob
import hashlib
import importlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile

# The versions that the program supports: scripts/pythons and the tests read them here.
OLDEST = (3, 9)
NEWEST = (3, 14)
RUNNER_FAILED = 125
PROGRAMS = {
    "ascend-job": "ascend_runner.tools.job.__main__",
    "ascend-rank-table": "ascend_runner.tools.rank_table.__main__",
    "ascend-runner": "ascend_runner.__main__",
}
CONDA_FOLDERS = (
    "/home/ma-user/anaconda3",
    "/home/ma-user/miniconda3",
    "/opt/conda",
    "/opt/miniconda3",
    "/root/miniconda3",
)


def main():
    """Run the bundle on a Python that is new enough."""
    bundle, has_own_python = ASCEND_RUNNER_BUNDLE
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        if has_own_python:
            os.execv("/bin/sh", ["sh", bundle] + sys.argv[1:])
        python = find_python(os.environ, CONDA_FOLDERS)
        if python is None:
            sys.stderr.write(
                "[ascend-runner] ERROR Python {}.{} to {}.{} is required, and this is {}.{}: install one, or put it on"
                " PATH (the training command may keep its own Python)\n".format(
                    *(OLDEST + NEWEST + tuple(sys.version_info[:2]))
                )
            )
            sys.exit(RUNNER_FAILED)
        os.execv(python, [python, bundle] + sys.argv[1:])

    try:
        program = take_program(sys.argv)
        folder = unpacked(bundle, cache_folders(os.environ))
    except EnvironmentError as error:
        sys.stderr.write("[ascend-runner] ERROR cannot start {}: {}\n".format(bundle, error))
        sys.exit(RUNNER_FAILED)
    sys.path[0] = folder
    sys.exit(importlib.import_module(PROGRAMS[program]).main())


def take_program(argv):
    """Return the program that is to run, and remove the words that name it: `--as`, else the name of the file decides."""
    option, equals, name = "".join(argv[1:2]).partition("=")
    if option == "--as":
        name = name if equals else "".join(argv[2:3])
        del argv[1 : 2 if equals else 3]
        if name not in PROGRAMS:
            raise EnvironmentError("no program {!r}, expected one of {}".format(name, ", ".join(sorted(PROGRAMS))))
        return name
    named = [name for name in PROGRAMS if os.path.basename(argv[0]).startswith(name)]
    return named[0] if named else "ascend-runner"


def bundle_at(path):
    """Return the full path of the bundle, and whether it begins with bundle_head.sh, which starts its own Python."""
    with open(path, "rb") as file:
        return os.path.abspath(path), file.read(9) == b"#!/bin/sh"


def find_python(environ, conda_folders):
    """Return the newest suitable Python on PATH or in a conda environment, or None."""
    names = ["python{}.{}".format(OLDEST[0], minor) for minor in range(NEWEST[1], OLDEST[1] - 1, -1)] + ["python3"]
    found = [
        os.path.join(folder, name) for name in names for folder in environ.get("PATH", "").split(os.pathsep) if folder
    ]
    roots = [environ.get("ANACONDA_DIR"), environ.get("CONDA_PREFIX")] + list(conda_folders)
    for root in filter(None, roots):
        found += [os.path.join(root, "bin", "python3")]
        found += sorted(glob.glob(os.path.join(root, "envs", "*", "bin", "python3")))
    return next((path for path in found if os.access(path, os.X_OK) and is_suitable(path)), None)


def is_suitable(python):
    """Return whether this interpreter starts and is of a version that the bundle has wheels for."""
    code = "import sys; sys.exit(not {!r} <= sys.version_info[:2] <= {!r})".format(OLDEST, NEWEST)
    try:
        with open(os.devnull, "r+") as null:
            return subprocess.call([python, "-c", code], stdin=null, stdout=null, stderr=null) == 0
    except EnvironmentError:
        return False


def cache_folders(environ):
    """Return where the wheels may be unpacked, the best first: HOME may be missing, shared or read-only."""
    home = environ.get("HOME", "")
    caches = [environ.get("XDG_CACHE_HOME"), os.path.join(home, ".cache") if os.path.isdir(home) else None]
    candidates = caches + [tempfile.gettempdir()]
    return [os.path.join(folder, "ascend-runner-{}".format(os.getuid())) for folder in candidates if folder]


def unpacked(bundle, folders):
    """Return the directory that holds the wheels of this bundle for this Python; unpack them where they are not there.

    The directory is named by the bundle's hash, so that another version never shares it, and it belongs to this user alone.
    """
    with zipfile.ZipFile(bundle) as archive:  # its CRCs: to read all of it would take long with a Python in it
        content = repr([(wheel.filename, wheel.CRC, wheel.file_size) for wheel in archive.infolist()])
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    name = "{}-cp{}{}".format(digest, *sys.version_info[:2])
    failure = None
    for folder in folders:
        try:
            make_private(folder)
            target = os.path.join(folder, name)
            if not os.path.isdir(target):
                unpack(bundle, target)
            return target
        except EnvironmentError as error:
            failure = error

    try:
        folder = tempfile.mkdtemp(prefix="ascend-runner-")
        try:
            make_private(folder)
            unpack(bundle, os.path.join(folder, name))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except EnvironmentError:
        raise failure or sys.exc_info()[1]  # noqa: B904  Python 2.7 has no `raise ... from`
    return os.path.join(folder, name)


def make_private(folder):
    """Create the directory; refuse one that other users can write to, or that is mounted with noexec."""
    try:
        os.makedirs(folder, 0o700)
    except EnvironmentError:
        if not os.path.isdir(folder):  # otherwise it was there, or another runner was first
            raise
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise EnvironmentError("{} is not a private directory of this user".format(folder))
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise EnvironmentError("{} is on a disk that is mounted with noexec: set XDG_CACHE_HOME".format(folder))


def unpack(bundle, target):
    """Unpack the wheels that suit this Python into `target`, all or nothing: another runner may do so at once."""
    neighbour = tempfile.mkdtemp(prefix=os.path.basename(target) + ".", dir=os.path.dirname(target))
    try:
        with zipfile.ZipFile(bundle) as archive:
            for wheel in archive.namelist():
                if wheel.endswith(".whl") and suits(os.path.basename(wheel)):
                    require_architecture(wheel)
                    with archive.open(wheel) as packed, zipfile.ZipFile(packed) as content:
                        content.extractall(neighbour)
        os.rename(neighbour, target)
    except BaseException:
        shutil.rmtree(neighbour, ignore_errors=True)
        if not os.path.isdir(target):
            raise


def suits(wheel, minor=sys.version_info[1]):
    """Return whether a wheel is for a Python 3: its own tag, the stable ABI of an older one, or pure (PEP 425)."""
    python, abi = wheel[: -len(".whl")].split("-")[-3:-1]
    is_stable = abi == "abi3" and int(python[len("cp3") :]) <= minor
    return python == "cp3{}".format(minor) or is_stable or abi == "none"


def require_architecture(wheel):
    """Refuse a wheel with machine code for another architecture."""
    if not wheel.endswith(("-any.whl", "_{}.whl".format(os.uname()[4]))):
        raise EnvironmentError("it is not for this machine ({})".format(os.uname()[4]))


if __name__ == "__main__":
    ASCEND_RUNNER_BUNDLE = bundle_at(sys.argv[0])  # ascend_runner.programs reads it, too
    main()
