"""Slurm's compressed node lists, expanded as by `scontrol show hostnames`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import MOST
from ascend_runner.platforms.schedulers import hosts_of


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("npu1", "npu1"),
        ("a,b", "a b"),
        ("node[01-03,07],gpu1", "node01 node02 node03 node07 gpu1"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[2]-ib", "n2-ib"),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ("r[1,3]n[0-1]x,b", "r1n0x r1n1x r3n0x r3n1x b"),
        ("my-node-[3-4].cluster", "my-node-3.cluster my-node-4.cluster"),
    ],
)
def test_list(text: str, hosts: str) -> None:
    """Ranges, widths, suffixes and several pairs of brackets are expanded."""
    assert tuple(hosts.split()) == hosts_of(text, "LIST")


@pytest.mark.parametrize(
    "text", ["", ",", "a,", "n[", "n]", "n[1", "n[1]]", "n[[1]]", "n[]", "n[a]", "n[1-]", "n[-1]", "n[3-1]", "n[1,]",
             "n[1-2-3]", "n[0-65536]", "n[1-9999999999999]", "r[0-999]n[0-999]", "a ,b", "n[\u0661]"],
)  # fmt: skip
def test_no_list(text: str) -> None:
    """A malformed or huge list is an error and does not exhaust the memory."""
    with pytest.raises(SettingsError) as caught:
        hosts_of(text, "SLURM_STEP_NODELIST")

    assert f"invalid value {text!r} for SLURM_STEP_NODELIST: expected a node list such as 'node[01-03,07],gpu1'" == str(
        caught.value
    )


@st.composite
def _compressed(draw: st.DrawFn) -> tuple[str, tuple[str, ...]]:
    """Write some nodes of one cluster down in brackets."""
    prefix = draw(st.sampled_from(["n", "gpu-", "r1n", "a.b-"]))
    width = draw(st.integers(1, 4))
    ranges = draw(st.lists(st.tuples(st.integers(0, 10**width - 1), st.integers(0, 20)), min_size=1, max_size=5))
    pieces, hosts = [], []
    for first, more in ranges:
        numbers = [str(number).zfill(width) for number in range(first, first + more + 1)]
        pieces.append(f"{numbers[0]}-{numbers[-1]}" if more else numbers[0])
        hosts += [prefix + number for number in numbers]
    return f"{prefix}[{','.join(pieces)}]", tuple(hosts)


@given(st.lists(_compressed(), min_size=1, max_size=4))
def test_what_was_compressed_is_spelled_out(parts: list[tuple[str, tuple[str, ...]]]) -> None:
    """Expanding reverses compressing, in order."""
    assert tuple(host for _, hosts in parts for host in hosts) == hosts_of(",".join(text for text, _ in parts), "LIST")


@given(st.text("[]-,01an ", max_size=20))
def test_any_text_is_a_list_or_one_sentence(text: str) -> None:
    """Any text gives hosts or a SettingsError."""
    try:
        hosts = hosts_of(text, "LIST")
    except SettingsError:
        return

    assert 0 < len(hosts) <= MOST
    assert all(host and not {*"[],"} & {*host} for host in hosts)
