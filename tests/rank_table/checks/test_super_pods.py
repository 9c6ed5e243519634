"""Super-pods: coverage, ids, the numbers of devices inside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ascend_runner.rank_table.fields import BAD_TABLE, BAD_VALUE, MISSING_FIELD
from tests.rank_table.rank_table_edits import ERROR, GONE, WARNING, Found, edited, problems
from tests.rank_table.rank_table_files import valid

NUMBER = "server_list[1].device[0].super_device_id"
POD = "super_pod_list[1].super_pod_id"
MEMBER = "super_pod_list[1].server_list[0].server_id"


def _found(**changes: Any) -> list[Found]:
    return problems(edited("server_list_2_super_pods", **changes))


@pytest.mark.parametrize("value", ["", GONE])
def test_pod_without_an_id(value: Any) -> None:
    """Every super-pod has an id."""
    assert [(ERROR, POD, "super_pod_id is empty or missing", BAD_VALUE)] == _found(**{POD: value})


def test_duplicate_pod_id() -> None:
    """A super_pod_id is unique."""
    changes = {POD: "0", **{f"server_list[{s}].device[{d}].super_device_id": f"{s}{d}" for s in (2, 3) for d in (0, 1)}}

    assert [(ERROR, POD, "duplicate super_pod_id '0'", BAD_VALUE)] == _found(**changes)


def test_length_of_pod_id() -> None:
    """A super_pod_id has at most 127 bytes."""
    assert [] == _found(**{POD: "x" * 127})
    assert [(ERROR, POD, f"super_pod_id '{'x' * 60}'... is longer than 127 bytes", BAD_TABLE)] == _found(
        **{POD: "x" * 128}
    )


def test_unknown_server() -> None:
    """Members of super-pods must be in server_list, and every server must be in a super-pod."""
    assert [
        (
            ERROR,
            "server_list[2].server_id",
            "server 'node-2' is in no super-pod of super_pod_list",
            BAD_TABLE,
        ),
        (ERROR, MEMBER, "server_id 'node-9' is not in server_list", BAD_VALUE),
    ] == _found(**{MEMBER: "node-9"})


def test_server_that_is_in_two_pods() -> None:
    """A server must not be in two super-pods."""
    document = json.loads(valid("server_list_2_super_pods"))
    document["super_pod_list"][1]["server_list"].append({"server_id": "node-0"})
    path = "super_pod_list[1].server_list[2].server_id"

    assert [(ERROR, path, "server_id 'node-0' is already in super-pod '0'", BAD_VALUE)] == problems(
        json.dumps(document).encode()
    )


def test_scattered_servers_of_a_pod() -> None:
    """CANN's documentation requires the servers of one super-pod to be listed next to each other."""
    document = json.loads(valid("server_list_2_super_pods"))
    servers = document["server_list"]
    servers[1], servers[2] = servers[2], servers[1]
    sentence = "server '{}' is not listed next to the other servers of super-pod '{}', which CANN does not support"

    assert [
        (WARNING, "server_list[2].server_id", sentence.format("node-1", "0"), ""),
        (WARNING, "server_list[3].server_id", sentence.format("node-3", "1"), ""),
    ] == problems(json.dumps(document).encode())


def test_missing_device_number() -> None:
    """Either all devices have a super_device_id or none; a missing one is an error if there are super-pods."""
    sentence = "super_device_id is missing, but other devices have one"

    assert [(ERROR, NUMBER, sentence, MISSING_FIELD)] == _found(**{NUMBER: GONE})
    assert [(WARNING, NUMBER, sentence, MISSING_FIELD)] == _found(**{NUMBER: GONE, "super_pod_list": GONE})


def test_no_device_has_a_number() -> None:
    """Without any super_device_id HCCL ignores the super-pods, which is a warning if there are any."""
    none = {f"server_list[{server}].device[{device}].super_device_id": GONE for server in range(4) for device in (0, 1)}
    sentence = "no device has a super_device_id, so HCCL treats the servers as plain ones despite super_pod_list"

    assert [(WARNING, "super_pod_list", sentence, MISSING_FIELD)] == _found(**none)
    assert [] == _found(**none, super_pod_list=GONE)


@pytest.mark.parametrize("value", ["x", "-1", "", "4294967295", "9" * 50])
def test_invalid_device_number(value: str) -> None:
    """A super_device_id is a 32-bit number; HCCL reserves the highest one."""
    assert [(ERROR, NUMBER, f"super_device_id is '{value}', expected 0 to 4294967294", BAD_VALUE)] == _found(
        **{NUMBER: value}
    )


def test_duplicate_device_number() -> None:
    """A super_device_id is unique in its super-pod."""
    sentence = "duplicate super_device_id 1 in super-pod '0' (first used in server_list[0].device[1])"

    assert [(ERROR, NUMBER, sentence, BAD_TABLE)] == _found(**{NUMBER: "1"})


def test_plain_table_with_pods() -> None:
    """HCCL does not read super-pods in version 1.0."""
    assert [] == _found(version="1.0", **{POD: ""})
