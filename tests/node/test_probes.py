"""Each probe on trees of files and with fake tools: nothing on a healthy node, a defect on one that is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ascend_runner.node.findings import Defect, Findings, Node, Place, UnusableError
from ascend_runner.node.host import Host
from ascend_runner.node.npu_probes import DeviceNodes, Links, NpuHealth
from ascend_runner.node.probes import InfiniBand, Network, space, used_memory
from tests.helpers.npu_tools import NPU_SMI, details, fake_tool, script, table
from tests.helpers.surroundings import permitted
from tests.helpers.trees import tree
from tests.helpers.waiting import LIMIT

HCCN = """
case "$3" in
    -net_health) cat "$0.health.$2" 2>/dev/null || echo "net health status: Success";;
    -link) cat "$0.link.$2" 2>/dev/null || echo "link status: UP";;
esac
"""


def node(folder: Path, *device_ids: int, seconds: float = 60.0) -> Node:
    """Return a node whose files and tools are below a directory."""
    environ = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return Node(host=Host(str(folder)), environ=environ, device_ids=device_ids, seconds=seconds)


def sentences(found: Findings) -> list[str]:
    """Return the sentences of the defects that a probe finds."""
    return [one.sentence for one in found if isinstance(one, Defect)]


def test_health_of_the_devices_of_the_job(tmp_path: Path) -> None:
    """Only the NPUs of the job count."""
    fake_tool(tmp_path, "npu-smi", NPU_SMI)

    assert [] == sentences(NpuHealth(node(tmp_path, 4)).look())
    assert [
        "device 5 reported 80CB8002 (Alarm; the failed operation must be repeated)",
        "device 5 reported 80E24E00 (Alarm; the NPU must be reset)",
    ] == sentences(NpuHealth(node(tmp_path, 4, 5)).look())


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        (
            "echo 'no permission' >&2; exit 1",
            "npu-smi info failed: exit status 1 (no permission)",
        ),
        (
            "echo nobody knows this",
            "npu-smi info printed no table in a known format (nobody knows this)",
        ),
        (
            script(table("Splendid"), details("Splendid")),
            "npu-smi info printed an unknown health status 'Splendid'",
        ),
    ],
)
def test_npu_smi_that_prints_what_nobody_knows(tmp_path: Path, printed: str, sentence: str) -> None:
    """It says nothing about the NPUs."""
    fake_tool(tmp_path, "npu-smi", printed)

    with pytest.raises(UnusableError) as error:
        sentences(NpuHealth(node(tmp_path)).look())
    assert sentence == str(error.value)


def test_npu_smi_that_fails_later(tmp_path: Path) -> None:
    """An npu-smi that has listed NPUs before and does not any more is an error of the driver."""
    fake_tool(tmp_path, "npu-smi", script(table("OK"), ""))
    probe = NpuHealth(node(tmp_path))

    assert [] == sentences(probe.look())
    fake_tool(tmp_path, "npu-smi", "echo 'dcmi module initialize failed. ret is -8005'; exit 5")
    assert ["npu-smi info failed: exit status 5 (dcmi module initialize failed. ret is -8005)"] == sentences(
        probe.look()
    )
    fake_tool(tmp_path, "npu-smi", "")
    assert ["npu-smi info printed no table in a known format"] == sentences(probe.look())


@pytest.mark.parametrize(("name", "kind"), [("npu-smi", NpuHealth), ("hccn_tool", Links)])
def test_tool_that_hangs(tmp_path: Path, name: str, kind: Callable[[Node], NpuHealth | Links]) -> None:
    """It is killed when the time of the probe is over."""
    fake_tool(tmp_path, name, "exec sleep 1000")

    with pytest.raises(TimeoutError):
        sentences(kind(node(tmp_path, 0, seconds=0.1)).look())


def test_no_tools(tmp_path: Path) -> None:
    """A machine without the tools is normal, and nothing is said."""
    bare = Node(host=Host(str(tmp_path)), environ={"PATH": str(tmp_path)}, device_ids=(0,))

    for probe in (NpuHealth, Links, InfiniBand):
        with pytest.raises(UnusableError, match=r"^$"):
            sentences(probe(bare).look())


def test_device_that_is_gone(tmp_path: Path) -> None:
    """A device node of the job that has disappeared is an error; others do not count."""
    tree(tmp_path, {"dev/davinci0": "", "dev/davinci5": "", "dev/davinci6": ""})
    probe = DeviceNodes(node(tmp_path, 0, 5))

    assert [] == sentences(probe.look())
    (tmp_path / "dev/davinci5").unlink()
    (tmp_path / "dev/davinci6").unlink()
    assert ["/dev/davinci5 was missing"] == sentences(probe.look())


def test_link_that_goes_down(tmp_path: Path) -> None:
    """A link is an error once it has worked; that of a job on one node may be down from the beginning."""
    tool = Path(fake_tool(tmp_path, "hccn_tool", HCCN)) / "hccn_tool"
    Path(f"{tool}.health.1").write_text("net health status: Fault\n")
    Path(f"{tool}.link.1").write_text("link status: DOWN\n")
    probe = Links(node(tmp_path, 0, 1))

    assert [] == sentences(probe.look())
    Path(f"{tool}.health.0").write_text("net health status: Fault\n")
    assert ["device 0 could not reach its gateway (net health: Fault)"] == sentences(probe.look())
    Path(f"{tool}.link.0").write_text("link status: DOWN\n")
    assert ["the link of device 0 was down"] == sentences(probe.look())


def test_interface_that_goes_down(tmp_path: Path) -> None:
    """An interface that is up at first and then down is an error, the others of containers may come and go."""
    states = {"eth0": "up", "eth1": "down", "veth1": "up", "lo": "unknown"}
    tree(tmp_path, {f"sys/class/net/{name}/operstate": f"{state}\n" for name, state in states.items()})
    probe = Network(node(tmp_path))

    assert [] == sentences(probe.look())
    tree(tmp_path, {"sys/class/net/eth0/operstate": "down\n"})
    (tmp_path / "sys/class/net/veth1/operstate").unlink()
    assert ["network interface eth0 was down"] == sentences(probe.look())


def test_infiniband_port(tmp_path: Path) -> None:
    """A port that is not active any more is an error, one that lost its link for a moment is reported once."""
    port = "sys/class/infiniband/mlx5_0/ports/1"
    tree(tmp_path, {f"{port}/state": "4: ACTIVE\n", f"{port}/counters/link_downed": "3\n"})
    probe = InfiniBand(node(tmp_path))

    assert [] == sentences(probe.look())
    tree(tmp_path, {f"{port}/counters/link_downed": "5\n"})
    assert ["InfiniBand port mlx5_0/1 lost its link 2 times"] == sentences(probe.look())
    tree(tmp_path, {f"{port}/state": "1: DOWN\n"})
    assert ["InfiniBand port mlx5_0/1 was down"] == sentences(probe.look())


def test_room(tmp_path: Path) -> None:
    """The free space of an existing directory is measured; one that is yet to be made is no defect."""
    (tmp_path / "log").mkdir()

    assert [] == sentences(space(node(tmp_path), Place(name="log directory", path="/missing")))
    assert all(
        "log directory" in one for one in sentences(space(node(tmp_path), Place(name="log directory", path="/log")))
    )


def test_inodes(tmp_path: Path) -> None:
    """A file system in which hardly any file can be created is an error, however much space is free."""
    program = (
        "import sys; from ascend_runner.node.host import Host; from ascend_runner.node.findings import *;"
        " from ascend_runner.node.probes import space;"
        " place = Place(name='log directory', path=sys.argv[1]);"
        " print([(one.subject, one.is_error) for one in space(Node(host=Host(), environ={}, is_running=True), place)])"
    )
    script = 'mount -t tmpfs -o size=1g,nr_inodes=5 none "$1" && touch "$1/a" "$1/b" "$1/c" "$1/d" && "$2" -c "$3" "$1"'
    mounted = permitted("unshare", "--map-root-user", "--mount")
    words = (*mounted, "sh", "-c", script, "sh", str(tmp_path), sys.executable, program)
    run = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=True)

    assert f"[('inodes in {tmp_path}', True)]\n" == run.stdout


@pytest.mark.parametrize(("dropped", "expected"), [(10, 1), (400, 0)])
def test_memory_of_the_control_group(tmp_path: Path, dropped: int, expected: int) -> None:
    """File pages that the kernel can drop do not count."""
    group = "sys/fs/cgroup"
    tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            f"{group}/memory.events": "oom_kill 0\n",
            f"{group}/memory.current": "990\n",
            f"{group}/memory.max": "1000\n",
            f"{group}/memory.stat": f"anon 1\ninactive_file {dropped}\n",
        },
    )

    assert expected == len(sentences(used_memory(node(tmp_path))))


def test_pressure(tmp_path: Path) -> None:
    """Without pressure files of the control group, those of the machine count."""
    tree(tmp_path, {"proc/pressure/io": "full avg10=1.00 avg60=75.00 avg300=1.00 total=1\n"})

    sentence = "all processes were stalled waiting for io for 75 % of the last minute"
    assert [sentence] == sentences(used_memory(node(tmp_path)))
