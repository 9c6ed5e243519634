"""A bad network for scripts/chaos-nodes: `proxy.py SEED ADDRESS HUB PORT...` listens at ADDRESS, and connects to HUB.

What it carries is late. It lets no connection live for long: it resets it, sends garbage to both sides, or keeps it
open without carrying anything.
"""

import asyncio
import os
import random
import signal
import socket
import struct
import sys
from contextlib import suppress
from functools import partial

SEED, ADDRESS, HUB, *PORTS = sys.argv[1:]
LONGEST_DELAY = 0.3  # seconds
LIFE = (0.2, 3.0)  # seconds of a connection, at least and at most
SILENCE = 4.0  # seconds at most, for which nothing is carried
AT_ONCE = struct.pack("ii", 1, 0)  # for SO_LINGER: what is closed is reset
CHANCE = random.Random(SEED)  # noqa: S311  not for secrets


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what arrives, late."""
    while data := await reader.read(65536):
        await asyncio.sleep(delay)
        writer.write(data)
        await writer.drain()


async def serve(port: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry a connection, and end it."""
    with suppress(OSError):
        hub_reader, hub_writer = await asyncio.open_connection(HUB, int(port))
        delay = CHANCE.uniform(0, LONGEST_DELAY)
        ways = [carry(reader, hub_writer, delay), carry(hub_reader, writer, delay)]
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, timeout=CHANCE.uniform(*LIFE), return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        end = CHANCE.choice(("reset", "garbage", "silence"))
        if end == "silence":
            await asyncio.sleep(CHANCE.uniform(0, SILENCE))
        for side in (writer, hub_writer):
            if end == "garbage":
                side.write(os.urandom(CHANCE.randint(1, 10_000)))
                side.close()
            else:
                side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                side.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        return
    writer.close()


async def main() -> None:
    """Serve until SIGTERM."""
    for port in PORTS:
        await asyncio.start_server(partial(serve, port), ADDRESS, int(port))
    await asyncio.Event().wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(main())
