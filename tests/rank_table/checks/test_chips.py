"""Chips: their names, limits and versions."""

from __future__ import annotations

import pytest

from ascend_runner.platforms import chips
from ascend_runner.problems import Severity
from ascend_runner.rank_table import checks, codec
from ascend_runner.rank_table.fields import BAD_VALUE
from tests.rank_table.rank_table_edits import ERROR, WARNING, problems, sentences, servers_with
from tests.rank_table.rank_table_files import valid


@pytest.mark.parametrize("ids", [(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 4, 5), (0, 2, 4, 6), (1, 3, 5, 7), (2, 3, 6, 7)])
def test_rings_of_the_910(ids: tuple[int, ...]) -> None:
    """Four devices of a 910 must be a ring or two pairs that face each other."""
    assert [] == sentences(servers_with(ids), "910")


def test_devices_that_are_not_a_ring_of_the_910() -> None:
    """Other sets of four are refused on a 910, and on no other chip."""
    sentence = "server '10.0.0.0' has devices 0, 1, 2, 4, which do not form a ring on the 910"

    assert [(ERROR, sentence)] == sentences(servers_with((4, 2, 1, 0)), "910")
    assert [] == sentences(servers_with((0, 1, 2, 4)), "910B")


def test_odd_number_of_devices_on_the_910() -> None:
    """CANN's documentation allows 1, 2, 4 or 8 devices."""
    sentence = "server '10.0.0.0' has 3 devices, expected 1, 2, 4 or 8 on the 910"

    assert [(WARNING, sentence)] == sentences(servers_with((0, 1, 2)), "910")


def test_uneven_servers() -> None:
    """Only the 910 requires the same number of devices on every server."""
    sentence = (
        "server '10.0.0.1' has 1 device, but the first server has 2; the 910 requires the same number on every server"
    )

    assert [(ERROR, sentence)] == sentences(servers_with((0, 1), (0,)), "910")
    assert [] == sentences(servers_with((0, 1), (0,)), "310P")
    assert [] == sentences(servers_with((0, 1), (0,)), "910B")


@pytest.mark.parametrize(
    ("version", "chip", "found"),
    [
        ("1.0", "950", (ERROR, "version is '1.0', but the 950 requires '2.0'")),
        ("", "950", (ERROR, "version is '1.0' after conversion, but the 950 requires '2.0'")),
        ("1.2", "910B", (WARNING, "version is '1.2' (super-pods of the A3), but the 910B requires '1.0'")),
        ("1.0", "A3", (WARNING, "version is '1.0', but the A3 uses super-pods only with version '1.2'")),
    ],
)
def test_version_of_another_chip(version: str, chip: str, found: tuple[Severity, str]) -> None:
    """A version for another chip is reported."""
    assert [found] == sentences(servers_with((0,), (1,), version=version), chip)


def test_rank_list_on_another_chip() -> None:
    """Only the 950 reads version 2.0."""
    sentence = "version is '2.0' (950 only), but the 910B requires '1.0' or '1.2'"

    assert [(ERROR, "version", sentence, BAD_VALUE)] == problems(valid("rank_list_2_servers"), "910B")


@pytest.mark.parametrize(
    ("name", "chip"),
    [("server_list_2_super_pods", "A3"), ("rank_list_2_servers", "950"), ("lab_2_servers", "910")],
)
def test_chip_that_a_table_implies(name: str, chip: str) -> None:
    """The chip follows from the version or the chip_info of a table."""
    assert chip == checks.implied_chip(codec.loads(valid(name)))


@pytest.mark.parametrize("name", ["server_list_8_devices", "group_list_8_devices"])
def test_table_that_implies_no_chip(name: str) -> None:
    """Version 1.0 is valid for several chips."""
    assert checks.implied_chip(codec.loads(valid(name))) is None


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("Ascend910A", "910"),
        ("Ascend910ProB", "910"),
        ("Ascend910B3", "910B"),
        ("ascend910_9391", "A3"),
        ("Ascend310P3", "310P"),
        ("Ascend950PR_9599", "950"),
        ("Ascend910B", None),
        ("Ascend310", None),
        ("", None),
    ],
)
def test_chip_of_the_environment(name: str, chip: str | None) -> None:
    """CANN's SOC_VERSION names the chip."""
    assert chip == chips.chip_of({"SOC_VERSION": name})
    assert chips.chip_of({}) is None
