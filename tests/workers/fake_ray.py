"""A fake of `ray start --block`, as the module `ray.scripts.scripts` of a fake of Ray.

The real one passes the same contract tests in tests/clients/test_ray.py: it calls the hook with its parameters, has
children of the names gcs_server (on the head) and raylet, which block SIGINT, makes its logs writable by everyone,
writes its address file when the node has joined, and blocks. Its children end with it, but not with them their workers,
as in Ray 2.9.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import types

PROGRAMS = pathlib.Path(__file__).with_name("programs")  # of Ray: links to sleep
START = ("sh", "-c", 'trap "" TERM; "$1" 600 & exec "$0" 600')


def main() -> int:
    """Start a node, and block."""
    arguments = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
    module, _, name = os.environ["RAY_START_HOOK"].rpartition(".")
    parameters = types.SimpleNamespace(temp_dir=None, session_name=None, ray_client_server_port=10001)
    getattr(importlib.import_module(module), name)(parameters, "head" in arguments)
    if os.environ.get("FAKE_RAY_FAILS"):
        print("[ERROR] no room left", flush=True)
        return 1
    session = os.path.join(parameters.temp_dir, parameters.session_name)
    names = ["gcs_server", "raylet"] if "head" in arguments else ["raylet"]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pids = {
        name: subprocess.Popen([*START, *(str(PROGRAMS / word) for word in (name, "worker"))]).pid for name in names
    }
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with open(os.path.join(session, "logs", "fake.json"), "w") as file:
        json.dump({"pids": pids, "arguments": arguments, "address": os.environ.get("RAY_ADDRESS")}, file)
    os.makedirs(os.path.join(session, "logs", "nsight"), exist_ok=True)  # by an attempt of the same second
    for folder in ("logs", "logs/nsight"):
        os.chmod(os.path.join(session, folder), 0o777)  # noqa: S103
    server = socket.create_server(("127.0.0.1", 0))
    with open(os.path.join(parameters.temp_dir, "ray_current_cluster"), "w") as file:
        file.write(arguments.get("address", f"127.0.0.1:{server.getsockname()[1]}"))
    try:
        while True:
            time.sleep(600)
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
