"""Errors in Chinese mean what the same ones in English do."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.log_evidence import read
from ascend_runner.diagnosis.phrases import CHINESE, CLASSES, FRAMEWORKS, OWN, PEERS, SETUP
from ascend_runner.supervision.causes import Ending


def code_of(message: str) -> str:
    """Return the code of an exception."""
    frame = 'Traceback (most recent call last):\n  File "/job/train.py", line 61, in main\n    step(batch)\n'
    return read(f"{frame}{message}\n".encode(), Ending(exit_code=1)).code


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("No space left on device", "OSError: [Errno 28] 设备上没有空间: '/cache/a'"),
        ("No space left on device", "RuntimeError: 磁盘空间不足"),
        ("Address already in use", "RuntimeError: 端口 29500 已被占用"),
        ("PermissionError", "RuntimeError: 没有权限写入 /cache/out"),
        ("NPU out of memory", "RuntimeError: 显存不足"),
        ("out of host memory", "OSError: [Errno 12] 无法分配内存"),
        ("Connection refused", "RuntimeError: 连接被拒绝"),
        ("no such path", "FileNotFoundError: [Errno 2] 没有那个文件或目录: 'a.json'"),
        ("no such path", "ValueError: 权重文件 /model/a.bin 不存在"),
        ("no such path", "RuntimeError: 找不到配置文件 run.yaml"),
        ("not divisible", "ValueError: 层数必须能被 4 整除"),
        ("versions", "RuntimeError: 驱动与固件版本不匹配"),
        ("check of settings", "ValueError: 参数 tp 无效"),
        ("sizes of tensors", "RuntimeError: 张量形状不一致"),
        ("no data", "RuntimeError: 数据集为空"),
        ("samples of a dataset", "ValueError: 数据集第 7 行缺少字段"),
        ("not supported here", "RuntimeError: 当前设备不支持 float64"),
        ("download", "RuntimeError: 模型下载失败"),
        ("", "RuntimeError: 训练失败"),
    ],
)
def test_class(name: str, message: str) -> None:
    """The words of a message decide, as they do in English."""
    assert name == code_of(message)


def test_message_of_a_shell() -> None:
    """A shell in a Chinese locale reports a missing program in Chinese."""
    assert "command not found" == read("run.sh: 行 3: torchrun: 未找到命令\n".encode(), Ending(exit_code=127)).code


def test_every_name_is_that_of_a_rule() -> None:
    """The words in Chinese extend rules that exist."""
    rules = OWN + SETUP + PEERS + CLASSES + FRAMEWORKS

    assert [] == [name for name in CHINESE if f" {name} = " not in rules]
