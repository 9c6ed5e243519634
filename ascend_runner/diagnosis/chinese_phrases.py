"""The Chinese wording of errors that the rules of `phrases` know in English, by the names of the rules.

The words are those of glibc, bash and coreutils in a Chinese locale, and common ones of training programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CHINESE: Final[Mapping[str, str]] = {
    # strerror(3) and bash in the locale zh_CN: ENOSPC, ENOMEM, EMFILE, EACCES, EADDRINUSE, ECONNRESET, ECONNREFUSED,
    # ETIMEDOUT, EHOSTUNREACH, EPIPE
    "No space left on device": "设备上没有空间|磁盘(?:空间)?(?:不足|已满)",
    "out of host memory": "无法分配内存|(?:主机|系统)内存不足",
    "Too many open files": "打开的文件过多",
    "PermissionError": "权限不够|权限不足|没有权限",
    "Address already in use": "地址已在使用|端口.{0,12}(?:占用|冲突)",
    "Connection reset by peer": "连接被对(?:方|端)重置",
    "Connection refused": "拒绝连接|连接被拒绝",
    "Connection timed out": "连接超时",
    "No route to host": "没有到主机的路由",
    "Broken pipe": "断开的管道",
    "command not found": "未找到命令$",
    # training programs
    "NPU out of memory": "显存(?:不足|不够|溢出)",
    "no such path": "没有那个文件或目录|(?:文件|目录|路径|权重).{0,80}(?:不存在|没有找到)"
    "|(?:找不到|未找到).{0,8}(?:文件|目录|路径|权重)",
    "not divisible": "整除",
    "versions": "版本.{0,40}(?:不匹配|不兼容|不一致|过低|过高)",
    "check of settings": "(?:参数|配置).{0,20}(?:错误|无效|非法|不合法|不匹配|不正确)",
    "sizes of tensors": "(?:维度|形状|尺寸).{0,40}不(?:匹配|一致|相等|同)",
    "no data": "数据集?为空",
    "samples of a dataset": "数据.{0,40}(?:缺少|格式)",
    "not supported here": "不支持",
    "download": "下载失败",
}
