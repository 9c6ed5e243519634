"""Host lists: how files are parsed, and what they say about this node."""

from __future__ import annotations

import attrs
import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import Node
from ascend_runner.platforms.places import Hosts, decode, with_hosts

HOSTS: Hosts = (("a", 4), ("b.job", 4))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a slots=4\nb slots=2\n", (("a", 4), ("b", 2))),
        ("a:4\nb:2", (("a", 4), ("b", 2))),
        ("# made by the platform\n\n a slots = 4 max_slots=8 # first\nb.job  max_slots=3\n", (("a", 4), ("b.job", 0))),
        ("a:4 binding=user:0\n", (("a", 4),)),
        ("a\na\n", (("a", 0),)),
        ("a slots=2\na slots=2\n", (("a", 4),)),
        ("", ()),
    ],
)
def test_formats(text: str, hosts: Hosts) -> None:
    """Host files of Open MPI, DeepSpeed and MPICH give names and slots."""
    assert hosts == decode(text, "/etc/mpi/hostfile")


def test_malformed_line() -> None:
    """A malformed line is quoted in the error."""
    with pytest.raises(SettingsError) as caught:
        decode("a:4\nb:x\n", "/etc/mpi/hostfile")

    assert "invalid line 2 in '/etc/mpi/hostfile': expected 'host slots=N' or 'host:N', found 'b:x'" == str(
        caught.value
    )


@pytest.mark.parametrize("own", [("b.job",), ("pod", "b"), ("b.elsewhere",)])
def test_list_gives_the_place(own: tuple[str, ...]) -> None:
    """Without variables the list gives the number of nodes, node 0 and the devices, and a name this node's rank."""
    node = with_hosts(Node(), HOSTS, "/list", lambda: own)

    assert (1, 2, "a", ("a", "b.job"), 4) == (
        node.node_rank,
        node.nnodes,
        node.master_addr,
        node.hosts,
        node.devices_per_node,
    )
    assert "" == node.ambiguity


def test_variables_stay() -> None:
    """Variables take precedence over a host file; --hosts overrides the platform's names."""
    given = Node(
        node_rank=1,
        nnodes=2,
        hosts=("x", "y"),
        master_addr="m",
        devices_per_node=8,
        sources={"nnodes": "N", "node_rank": "R", "hosts": "H", "master_addr": "M", "devices_per_node": "D"},
    )
    node = with_hosts(given, HOSTS, "/list", lambda: ("a",))

    assert attrs.evolve(given, slots=(4, 4)) == node
    assert ("a", "b.job") == with_hosts(given, HOSTS, "--hosts", lambda: ("a",)).hosts


def test_number_of_ranks_of_the_user() -> None:
    """The user's number of ranks per node counts more than the slots of a list."""
    given = Node(devices_per_node=2, sources={"devices_per_node": "--nproc-per-node"})
    node = with_hosts(given, HOSTS, "/list", lambda: ("a",))

    assert ((), 2) == (node.slots, node.devices_per_node)


def test_unknown_node() -> None:
    """A node that the list does not name is ambiguous."""
    assert with_hosts(Node(), HOSTS, "/list", lambda: ("10.0.0.1",)).ambiguity


def test_other_number_of_nodes() -> None:
    """A list that contradicts the number of nodes is refused."""
    with pytest.raises(SettingsError) as caught:
        with_hosts(Node(nnodes=3, sources={"nnodes": "WORLD_SIZE"}), HOSTS, "/list", tuple)

    assert "/list lists 2 hosts, but the number of nodes is 3 (WORLD_SIZE)" == str(caught.value)
