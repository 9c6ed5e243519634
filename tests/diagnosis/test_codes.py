"""The code that a log reports, in the forms that CANN, HCCL and torch_npu write."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.catalogue import first_code, first_phrase, ours
from ascend_runner.diagnosis.codes import Kind


def name_of(*lines: str) -> str:
    """Name the first code, "" if there is none."""
    found = first_code(lines)
    return found.code.name if found else ""


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("EI0006", "EI0006: [PID: 1292363] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: Remote Rank"),
        ("EI0015", "[PID: 7] 2025-11-03-20:18:46.447.213 Communication_Error_Ranktable_Detect(EI0015): Failed"),
        ("EI0002", "(Worker_TP11 pid=15618) ERROR 10-11 11:32:59 [model_runner_v1.py:3556] EI0002: [PID: 15618] The"),
        ("EI0002", "The details refer to 'Ascend Error Message'.Ascend Error Message:EI0002: The wait execution of"),
        ("EZ9999", "EZ9999[PID: 8146] 2026-03-16-20:13:22.806.034 (EZ9999):  The error from device"),
        (
            "507015",
            "RuntimeError: npuSynchronizeDevice NPU function error: AclrtSynchronizeDevice, error code is 507015",
        ),
        ("507018", "[ERROR] RUNTIME(4711,python):ACL stream synchronize failed, error code:507018"),
        ("107002", "RuntimeError: HCCL error: 107002"),
        ("507035", "synchronize stream failed, runtime result = 507035[FUNC:ReportCallError]"),
        ("507033", "[ERROR] aclrtSetDevice(deviceId) failed: 507033 (main.cpp:98)"),
        ("107001", "acl.rt.set_device failed ret_int=107001"),
        ("100000", "RuntimeError: ACL error: 100000"),
        ("507008", "Call aclInit(nullptr) failed : 507008 at file runtime.cc line 403"),
        ("EE1001", "2026-07-21-09:16:41.017.602 Invalid_Argument(EE1001): The argument is invalid."),
        ("561103", "NPU function error: call aclnnInplaceZero failed, error code is 561103"),
        ("507049", "call rtStreamSynchronize failed, ret = 507049, dev=0"),
        ("107001", "aclrtSetDevice failed, retCode=107001"),
        ("507035", "RuntimeError: ACL stream synchronize failed, error code:507035"),
        ("507015", "[Bisheng] Kernel launch failure! return: 507015"),
        ("161002", "error no is 161002 & error msg is ERR01100 OPS call acl api failed"),
        ("EB0000", "TVMError: [EB0000] Check failed: need_nbits <= max_num_bits"),
        ("E80012", "RuntimeError: ({'errCode': 'E80012', 'op_name': 'reduce'}, 'In op, the number of dimensions')"),
        ("EZ2001", "[PID: 7] 2026-01-02-03:04:05.006.007 Execution_Error(EZ2001): aicore error"),
        ("HCCL 7", "HCCL function error: HcclCommInitRootInfo(numRanks, &root, rank, &(comm)), error code is 7"),
        ("HCCL 9", "OPS function error: HcclAllreduce, error code is 9"),
        ("HCCL 11", "[op_base.cc:974][Init][CommRootInfo]errNo[0x000000000500000b]HcclCommInitRootInfo failed."),
        ("HCCL 9", "[AllReduce][Result]errNo[0x0000000005010009] hcclComm AllReduce error"),
        ("HCCL 24", "OPS function error: HcclAllreduce, error code is 24"),
        ("EI0014", "[ERROR] HCCL(7,python) [agent.cc:9] [7][InitGroupStage][RanktableCheck]two devices have one id"),
        ("EI0005", "[checker.cc:9] [7][InitChannelStage][ParameterConflict]CMD information op check fail."),
        ("EI0006", "[manager.cc:9] [7][CreateLink][InitChannelStage][Timeout]no link."),
        ("driver 87", "[ERROR] ATRACE(7,python):2026 [api.c:9](tid:7) get platform info failed, drvErr=87."),
        ("driver 6", "[drv api] halMemAlloc failed: device_id=0, size=5046586573(bytes), drvRetCode=6!"),
    ],
)
def test_forms(code: str, line: str) -> None:
    """A code is found in every form in which it is reported."""
    assert code == name_of(line)


@pytest.mark.parametrize(
    "line",
    [
        'For detailed guidance, search for the keyword "EI0002" on https://www.hiascend.com/document/.',
        "loss 507015 at step 107001",
        "checkpoint-507015.pt: saved",
        "HEI0006: no such thing",
        "EI00061: no such thing",
        "EI0999: not in the table",
        "retries 507015",
        "error code is 5070151",
        "failed: 107002 samples",
        "result: 507015 rows written",
        "final result: 100000",
        "reward failed: 500001, kept 3",
        "kernel_EI0006_x: y",
        "RuntimeError: | GPU collective Error: no communicator | Error Number 3",
        "",
    ],
)
def test_not_a_report(line: str) -> None:
    """Text that looks like a code, or only mentions one, does not count."""
    assert "" == name_of(line)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Kind.ROOT, "[PID: 7] 2026-01-02-03:04:05.006.007 Invalid_Argument(EH0815): Value 3 for count is invalid."),
        (Kind.EITHER, "[PID: 7] 2026-01-02-03:04:05.006.007 Inner_Error(E19001): cannot open the graph."),
    ],
)
def test_code_outside_the_table(kind: Kind, line: str) -> None:
    """A code that the table lacks is judged by its range: the caller's fault, or an internal error."""
    found = first_code([line])

    assert found
    assert kind is found.code.kind


def test_first_of_several() -> None:
    """The first code of a log counts: the following are mostly its consequences."""
    assert "EI0011" == name_of("step 1", "EI0011: [PID: 7] no memory", "EI0006: [PID: 7] Getting socket times out")


def test_wrapper_gives_way() -> None:
    """A code that only announces an inner error gives way to a specific one, and counts if it is alone."""
    wrapper = "NPU warning, error code is 507048[Error]:"

    assert "EI0002" == name_of(wrapper, "EI0002: [PID: 7277] The wait execution of the Notify register times out.")
    assert "507048" == name_of(wrapper, "EZ9999: Inner Error!")
    assert "107020" == name_of("EH9999: Inner Error!", "failed, runtime result = 107020.")
    assert "EJ0001" == name_of("HCCL function error: hcclCommInit, error code is 7", "EJ0001: [PID: 7] Failed to")
    assert "E40020" == name_of("AclSetCompileopt, error code is 500001", "E40020: [PID: 7] Failed to import module")
    assert "E30006" == name_of("c10_npu::SetDevice(id), error code is 507033", "E30006: [PID: 7] verification failed")
    assert "EI0002" == name_of("AclrtSynchronizeStream, error code is 507011", "EI0002: [PID: 7] Notify wait times out")
    assert "EI0013" == name_of("AclrtSynchronizeDevice, error code is 507057", "EI0013: [PID: 7] An error CQE occurred")
    assert "507011" == name_of("runtime result = 507011", "EZ9999: Inner Error!")
    assert "E10404" == name_of("Call aclrtSynchronizeStream failed : 507015", "E10404: Output indexed [0] requires 7")
    assert "507015" == name_of("error code is 507015", "EZ9999: Inner Error!")
    assert "EL0005" == name_of("Invalid_Argument(EL0003): The argument is invalid.", "EL0005: [PID: 7] device busy")


def test_line_of_the_code() -> None:
    """The line that contains the code is returned with it."""
    found = first_code(["a", "EJ0001: [PID: 9] Failed to initialize the HCCP process.", "b"])

    assert found
    assert "EJ0001: [PID: 9] Failed to initialize the HCCP process." == found.line
    assert Kind.ROOT is found.code.kind


def test_no_memory_for_hccl() -> None:
    """HCCL's last results are a collective that cannot be repeated, and lack of memory of this rank."""
    assert (Kind.EITHER, Kind.ROOT) == (ours().codes["HCCL 23"].kind, ours().codes["HCCL 24"].kind)


@pytest.mark.parametrize("name", ["EI0002", "EI0006", "EI0015"])
def test_codes_that_point_at_peers(name: str) -> None:
    """Exactly the three codes that HCCL's documents attribute to another rank are secondary."""
    assert Kind.SECONDARY is ours().codes[name].kind
    assert 3 == sum(code.kind is Kind.SECONDARY for code in ours().codes.values())


def test_memory_of_the_server() -> None:
    """The code of a failed allocation means the server's memory where pinned memory was to be allocated."""
    found = first_code(["NPU function error: aclrtMallocHost(ptr, size), error code is 207001"])

    assert found
    assert "host memory" in found.code.meaning


@pytest.mark.parametrize(
    "line",
    [
        "step 1, out of 100",
        "memory 3 GB",
        "loss scale 1.0, ub overflow 0",
        "RuntimeError: File a/b.pt cannot be opened. Retrying",
        "error: unrecognized arguments: --lr-rank=0",
        "ImportError: cannot import name 'foo' from 'utils' (/job/utils.py)",
        "ImportError: cannot import name 'foo' from partially initialized module 'bar' (/opt/site-packages/bar.py)",
        "OSError: Incorrect path_or_model_id: 'qwen/Qwen2.5-7B'. Please provide either the path to a local folder",
        "OSError: [Errno 107] Transport endpoint is not connected",
        "fault op_name=Default/MatMul-op3",
        "cannot find option named 'verbose'",
        "rank 3 was cancelled at step 7",
        "No GPU found, using the CPU",
        "train.bin: file too short",
        "two tests failed without raising an exception",
    ],
)
def test_no_phrase(line: str) -> None:
    """A line that has only words of a telling phrase is not taken for it."""
    assert first_phrase([line]) is None
