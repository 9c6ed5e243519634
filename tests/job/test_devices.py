"""Findings about NPUs, from trees of device nodes, processes and installed software, and from a fake npu-smi."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs
import pytest

from ascend_runner.job.check import subjects
from ascend_runner.problems import Problem
from tests.helpers.npu_tools import CARD, NPU_SMI, fake_npu_smi, fake_tool, table
from tests.helpers.trees import tree
from tests.helpers.waiting import LIMIT
from tests.job.contexts import context, in_context, job_of, look_at, prepared, remedies

TABLE = "group_list_8_devices.json"
COMPANIONS = ("davinci_manager", "devmm_svm", "hisi_hdc")


def npus(folder: Path, *numbers: int, but: str = "") -> str:
    """Make the device nodes of some NPUs; return the root of the machine."""
    names = [*(f"davinci{number}" for number in numbers), *COMPANIONS]
    return tree(folder, {f"dev/{name}": "" for name in names if name != but})


# --- The device nodes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [tuple(range(8)), tuple(range(8, 16))])
def test_as_many_as_there_are_ranks(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Without a rank table it is enough that each rank has an NPU, whatever its number."""
    root = npus(tmp_path, *numbers)

    assert [("ok", f"8 NPUs (/dev/davinci{numbers[0]}-{numbers[-1]}) for 8 ranks")] == look_at(
        "devices", context(root, nproc=8)
    )


def test_virtual_npus(tmp_path: Path) -> None:
    """Parts of an NPU count like NPUs."""
    root = tree(tmp_path, {f"dev/{name}": "" for name in ("vdavinci100", "vdavinci101", *COMPANIONS)})

    assert [("ok", "2 NPUs (/dev/vdavinci100, 101) for 2 ranks")] == look_at("devices", context(root, nproc=2))


@pytest.mark.parametrize(
    ("files", "environ", "verdict"),
    [
        ({"usr/local/Ascend/cann/version.info": ""}, {}, "error"),
        ({}, {"ASCEND_HOME_PATH": "/opt/cann"}, "error"),
        ({}, {}, "warning"),
    ],
)
def test_none_with_a_table(tmp_path: Path, files: dict[str, str], environ: dict[str, str], verdict: str) -> None:
    """A rank table that assigns NPUs to a container without any is an error, unless it has no software for NPUs."""
    given = context(tree(tmp_path, files), environ, nproc=8, table=TABLE)

    assert [(verdict, "found no NPU (/dev/davinci*), but the rank table assigns 8 to this node")] == look_at(
        "devices", given
    )


def test_none_without_a_table(tmp_path: Path) -> None:
    """Without a rank table, missing NPUs are a warning: the job may run on CPUs."""
    assert [("warning", "found no NPU (/dev/davinci*)")] == look_at("devices", context(str(tmp_path), nproc=2))


def test_none_and_nothing_known(tmp_path: Path) -> None:
    """Without knowing what the job needs, missing NPUs are not reported."""
    assert [] == look_at("devices", context(str(tmp_path)))


def test_too_few(tmp_path: Path) -> None:
    """Fewer NPUs than ranks are an error."""
    assert [("error", "found only 7 NPUs (/dev/davinci0-6) for 8 ranks")] == look_at(
        "devices", context(npus(tmp_path, *range(7)), nproc=8, table=TABLE)
    )


def test_others_than_the_tables(tmp_path: Path) -> None:
    """On a machine with all its NPUs, a table with the last of them needs ASCEND_RT_VISIBLE_DEVICES."""
    given = context(npus(tmp_path, *range(8)), nproc=8, table=TABLE)
    given = prepared(given, plan=job_of(range(4, 8)))

    assert [
        (
            "warning",
            "the rank table assigns NPUs 4, 5, 6, 7 to this node, but ranks would use the first 4 of /dev/davinci0-7",
        )
    ] == look_at("devices", given)
    assert ["set ASCEND_RT_VISIBLE_DEVICES=4,5,6,7"] == remedies("devices", given)

    chosen = in_context(given, environ={"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,7"})
    assert [("ok", "8 NPUs (/dev/davinci0-7) for 4 ranks")] == look_at("devices", chosen)


@pytest.mark.parametrize("missing", COMPANIONS)
def test_companions(tmp_path: Path, missing: str) -> None:
    """Each of the three device nodes beside the NPUs' own must exist."""
    root = npus(tmp_path, 0, but=missing)

    assert [("error", f"missing device nodes: /dev/{missing}")] == look_at("devices", context(root, nproc=1))


UNPRIVILEGED = """
import os, sys
from tests.job.contexts import context, look_at
if os.geteuid() == 0:
    os.setuid(65534)
for _verdict, sentence in look_at("devices", context(sys.argv[1], nproc=2)):
    print(sentence)
"""


def test_device_node_of_a_stranger() -> None:
    """A device node that this user cannot open is an error; root drops its privileges to see one."""
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's, which are its user's alone
        root = npus(Path(folder), 0, 1)
        os.chmod(folder, 0o711)  # noqa: S103  another user is to look in
        for name in os.listdir(f"{root}/dev"):
            os.chmod(f"{root}/dev/{name}", 0)
        printed = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, root], capture_output=True, text=True, check=False, timeout=LIMIT
        )

    user = os.geteuid() or 65534
    assert (f"user {user} has no permission to open {root}/dev/davinci0 and 4 more", "") == (
        printed.stdout.strip(),
        printed.stderr,
    )


# --- Processes that hold them -----------------------------------------------------------------------------------------


def test_leftover_process(tmp_path: Path) -> None:
    """A real process that has device nodes open is named, with a remedy."""
    root = npus(tmp_path, 0, 1, 2)
    holder = [sys.executable, "-c", "import sys; f = [open(p) for p in sys.argv[1:]]; print(flush=True); input()"]
    nodes = [f"{root}/dev/davinci0", f"{root}/dev/davinci2", f"{root}/dev/davinci_manager"]
    with subprocess.Popen([*holder, *nodes], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout
        held.stdout.readline()
        os.symlink("/proc", f"{root}/proc")
        given = context(root)
        (problem,) = subjects(given)["leftovers"]()
        held.communicate(b"\n")

    assert isinstance(problem, Problem)
    assert f"process {held.pid} (" in problem.sentence
    assert problem.sentence.endswith(" is using NPUs 0, 2")
    assert f"kill -9 {held.pid}" in problem.remedy


def test_manager_alone_is_no_card(tmp_path: Path) -> None:
    """A process that only watches NPUs (davinci_manager) does not hold one."""
    root = npus(tmp_path, 0)
    fds = tmp_path / "proc" / "4711" / "fd"
    fds.mkdir(parents=True)
    os.symlink(f"{root}/dev/davinci_manager", fds / "3")
    os.symlink("/gone (deleted)", fds / "4")

    assert [("ok", "no process in this container is using an NPU")] == look_at("leftovers", context(root))


def test_no_devices_no_leftovers(tmp_path: Path) -> None:
    """Without NPUs there is nothing to hold."""
    assert [] == look_at("leftovers", context(str(tmp_path)))


# --- Driver and CANN --------------------------------------------------------------------------------------------------

DRIVER = {"usr/local/Ascend/driver/version.info": "Version=25.0.rc1\nascendhal_version=7.35.23\n"}
CANN = "usr/local/Ascend/ascend-toolkit/latest"
CANN_INFO = {f"{CANN}/{os.uname().machine}-linux/ascend_toolkit_install.info": "package_name=x\nversion=8.0.RC3\n"}


def test_versions(tmp_path: Path) -> None:
    """The versions of driver and CANN are reported."""
    root = tree(tmp_path, {**DRIVER, **CANN_INFO, "dev/davinci0": ""})

    assert [("ok", f"driver 25.0.rc1, CANN 8.0.RC3 (/{CANN})")] == look_at(
        "software", context(root, {"ASCEND_HOME_PATH": f"/{CANN}"})
    )


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("/opt/cann", "ascend_toolkit_install.info"),
        ("/usr/local/Ascend/nnae/latest", "ascend_nnae_install.info"),
    ],
)
def test_other_places(tmp_path: Path, place: str, name: str) -> None:
    """CANN is found where its variables say, and as the runtime package alone; the driver where it was installed to."""
    root = tree(
        tmp_path,
        {
            f"{place[1:]}/{name}": "version=7.0\n",
            "etc/ascend_install.info": "UserName=x\nDriver_Install_Path_Param=/opt/npu\n",
            "opt/npu/driver/version.info": "Version=7.35.23\npackage_version=24.1\n",
        },
    )

    assert [("ok", f"driver 24.1, CANN 7.0 ({place})")] == look_at(
        "software", context(root, {"ASCEND_TOOLKIT_HOME": place})
    )


def test_set_env_was_not_sourced(tmp_path: Path) -> None:
    """CANN that is installed, but not set up, is a warning."""
    given = context(tree(tmp_path, CANN_INFO))

    assert [
        ("warning", f"/{CANN} exists, but ASCEND_HOME_PATH is not set: libraries will not be found"),
        ("ok", f"CANN 8.0.RC3 (/{CANN})"),
    ] == look_at("software", given)
    assert ["source /usr/local/Ascend/ascend-toolkit/set_env.sh before ascend-runner"] == remedies("software", given)


def test_npus_without_software(tmp_path: Path) -> None:
    """NPUs without driver and CANN are warnings; a machine without NPUs needs neither."""
    assert ["warning", "warning"] == [verdict for verdict, _ in look_at("software", context(npus(tmp_path, 0)))]
    assert [] == look_at("software", context(str(tmp_path / "other")))


# --- npu-smi ----------------------------------------------------------------------------------------------------------

PROCESSES = """\
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
{process}
+===========================+===============+====================================================+
"""
NOBODY = "| No running processes found in NPU 0                                                            |"
SOMEBODY = "| 7       0                 | 4711          | python3.9                | 2048                    |"


def with_npu_smi(folder: Path, script: str) -> dict[str, str]:
    """Put a fake npu-smi on the PATH."""
    return {"PATH": f"{fake_npu_smi(folder, script)}:{os.environ['PATH']}"}


def printing(health: str, process: str) -> str:
    """Return a script that lists two NPUs, of which the second has this health, and a process."""
    screen = f"{table('OK')}{CARD.format(number=7, name='910', health=health)}{PROCESSES.format(process=process)}"
    return f"[ \"$*\" = info ] || exit 9\ncat <<'END'\n{screen}END"


@pytest.mark.parametrize(
    ("health", "process", "expected"),
    [
        ("OK", NOBODY, [("ok", "2 NPUs OK")]),
        ("Alarm", NOBODY, [("error", "device 7 reported Alarm")]),
        ("Warning", NOBODY, [("warning", "device 7 reported Warning")]),
        ("UNKNOWN", NOBODY, [("warning", "device 7 reported UNKNOWN")]),
        ("OK", SOMEBODY, [("warning", "process 4711 (python3.9) is running on NPU 7"), ("ok", "2 NPUs OK")]),
    ],
)
def test_health(tmp_path: Path, health: str, process: str, expected: list[tuple[str, str]]) -> None:
    """Each NPU that is not OK is reported, and each process that runs on one."""
    environ = with_npu_smi(tmp_path, printing(health, process))

    assert expected == look_at("health", context(str(tmp_path), environ))


def test_npu_smi_where_the_driver_puts_it(tmp_path: Path) -> None:
    """npu-smi is also found where PATH does not lead."""
    environ = with_npu_smi(tmp_path, printing("OK", NOBODY))
    os.renames(tmp_path / "bin", tmp_path / "usr/local/sbin")

    assert [("ok", "2 NPUs OK")] == look_at("health", context(str(tmp_path), {**environ, "PATH": os.defpath}))


def test_npu_smi_fails(tmp_path: Path) -> None:
    """Its last line of output is reported."""
    environ = with_npu_smi(tmp_path, "echo; echo 'dcmi module initialize failed. ret is -8005'; echo; exit 5")

    assert [("error", "npu-smi info failed: exit status 5 (dcmi module initialize failed. ret is -8005)")] == look_at(
        "health", context(str(tmp_path), environ)
    )


def test_npu_smi_hangs(tmp_path: Path) -> None:
    """An npu-smi that does not answer is an error of the driver."""
    environ = with_npu_smi(tmp_path, "exec sleep 1000")

    assert [("error", "npu-smi did not respond within 0.1 s")] == look_at(
        "health", attrs.evolve(context(str(tmp_path), environ), patience=0.1)
    )


def test_npu_smi_that_cannot_be_run(tmp_path: Path) -> None:
    """A tool for another architecture is not an error of this node."""
    environ = with_npu_smi(tmp_path, "")
    (tmp_path / "bin" / "npu-smi").write_bytes(b"\x7fELF")

    assert [("warning", f"cannot run {tmp_path}/bin/npu-smi: exec format error")] == look_at(
        "health", context(str(tmp_path), environ)
    )


def test_no_npu_smi(tmp_path: Path) -> None:
    """Without the tool nothing is reported."""
    assert [] == look_at("health", context(str(tmp_path)))


# --- What the inspection watches as well ------------------------------------------------------------------------------


def test_fault_codes_and_only_the_npus_of_the_job(tmp_path: Path) -> None:
    """An NPU that the job does not use may be faulty; of its own, the fault codes are named."""
    npus(tmp_path, *range(6))
    given = context(str(tmp_path), with_npu_smi(tmp_path, NPU_SMI), nproc=5)

    assert [("ok", "1 NPU OK")] == look_at("health", given)
    assert ("error", "device 5 reported 80E24E00 (Alarm; the NPU must be reset)") in look_at(
        "health", context(str(tmp_path), given.environ, nproc=6)
    )


@pytest.mark.parametrize(
    ("state", "nodes", "expected"), [("UP", "2", []), ("DOWN", "2", ["warning"]), ("DOWN", "1", [])]
)
def test_links(tmp_path: Path, state: str, nodes: str, expected: list[str]) -> None:
    """A link that is down is a warning in a job on several nodes; nothing is said of links that work."""
    npus(tmp_path, 0)
    tool = fake_tool(tmp_path, "hccn_tool", f"echo 'net health status: Fault'; echo 'link status: {state}'")
    environ = {
        "PATH": f"{tool}:{os.environ['PATH']}",
        "PET_NNODES": nodes,
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "a",
    }

    assert expected == [
        verdict for verdict, text in look_at("links", context(str(tmp_path), environ, nproc=1)) if "the link" in text
    ]
