"""A rank with torch_npu, of which only its monitor is there: it makes a pipe, and dumps when that is written to.

The arguments are the dumps of the ranks, each the path of a file to copy: "-" to read the pipe and dump nothing, "deaf"
for a rank without a pipe, "busy" for one that does not read its pipe, "chatty" for one that also logs something else.
"before,in" are the first dump and all others.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

rank = os.environ["RANK"]
dumps = sys.argv[1 + int(rank)].split(",")
print("ready", flush=True)
if dumps == ["deaf"]:
    os.read(os.pipe()[0], 1)
pipe = f"{os.environ['TORCH_HCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
os.mkfifo(pipe)
fd = os.open(pipe, os.O_RDWR)  # not to see an end of file whenever a writer has closed it
if dumps == ["busy"]:
    os.read(os.pipe()[0], 1)
while os.read(fd, 128):
    dump = dumps.pop(0) if len(dumps) > 1 else dumps[0]
    if dump == "chatty":
        print("unknown", flush=True)
    log = f"[rank{rank}]:[E606 09:09:08.17 ProcessGroupHCCL.cpp:1700] ProcessGroupHCCL preparing to dump debug info."
    print(log, file=sys.stderr, flush=True)
    if dump != "-":
        Path(f"{os.environ['TORCH_HCCL_DEBUG_INFO_TEMP_FILE']}{rank}").write_bytes(Path(dump).read_bytes())
