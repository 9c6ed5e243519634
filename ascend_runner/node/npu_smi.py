"""npu-smi, the tool of the NPUs' driver: where it is, what its table shows, and the figures that it prints over time.

`NpuSampler` reads the figures of `npu-smi info watch`, which come every two seconds, without waiting for them. npu-smi
buffers its output unless that is a terminal, so it gets a pseudo-terminal. This is its controlling terminal as well, so
that the kernel ends npu-smi when the process that reads it is gone.

Sources: the reference of npu-smi, and MindCluster's documentation of its output.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner import programs
from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import bounded
from ascend_runner.node.host import Host

BINARIES: Final = ("/usr/local/sbin", "/usr/local/bin")  # the driver's, and where containers mount them
# The tools of the driver, and where they are if PATH does not lead there.
TOOLS: Final = {"npu-smi": BINARIES, "hccn_tool": ("/usr/local/Ascend/driver/tools", *reversed(BINARIES))}
HEALTHY: Final = "OK"

# Of `npu-smi info`: "| 0     910B3    | OK     | 93.6    38 ..." and below it "| 0     4   | 0000:C1:00.0 | ...": card,
# health, power and temperature, then chip and, if the cards have several, the physical id of the device.
_DEVICE: Final = re.compile(
    r"^\|\s*(?P<card>\d+)\s+(?P<name>\S+)\s*\|\s*(?P<health>[A-Za-z]+)\s*\|(?: *\S+ +(?P<temperature>\d+) )?.*"
    r"(?:\n\|\s*(?P<chip>\d+)(?:\s+(?P<id>\d+))?\s*\|)?",
    re.MULTILINE,
)
_PROCESS: Final = re.compile(r"^\|\s*(\d+)\s+\d+\s*\|\s*(\d+)\s*\|\s*(\S+)", re.MULTILINE)  # "| 0   0  | 4711 | python"


@attrs.frozen(kw_only=True)
class Device:
    """An NPU in npu-smi's table. `device_id` is its id in /dev, `temperature` in degrees Celsius (None: unknown)."""

    card: int
    chip: int
    device_id: int
    name: str
    health: str
    temperature: int | None


def find(host: Host, environ: Mapping[str, str], tool: str = "npu-smi") -> str:
    """Return the path of a tool of the driver, or "" if it is not installed."""
    search_path = environ.get("PATH", os.defpath).split(os.pathsep)
    return programs.find_tool(tool, (*search_path, *map(host.path, TOOLS[tool])))


def devices(table: str) -> list[Device]:
    """Parse the table of `npu-smi info`. The list is empty if the table has an unknown form."""
    return [
        Device(
            card=int(row["card"]),
            chip=int(row["chip"] or 0),
            device_id=int(row["id"] or row["card"]),
            name=row["name"],
            health=row["health"],
            temperature=int(row["temperature"]) if row["temperature"] else None,
        )
        for row in _DEVICE.finditer(table)
    ]


def read_devices(tool: str, environ: Mapping[str, str], seconds: float, is_cut: Callable[[], bool]) -> list[Device]:
    """Run `npu-smi info`, and return its devices. The list is empty if it does not work, or does not respond."""
    try:
        run = bounded.run([tool, "info"], seconds, environ, is_cut)
    except OSError:
        return []
    return devices(run.stdout) if run else []


def processes(table: str) -> list[tuple[str, str, str]]:
    """Parse the table of `npu-smi info`: the card, the pid and the name of each process."""
    return _PROCESS.findall(table)


TABLE_LIMIT: Final = 10.0  # seconds for `npu-smi info`
INTERVAL: Final = "2"  # seconds
PATIENCE: Final = 10.0  # seconds without a line until npu-smi is killed
CLOSE_LIMIT: Final = 0.5  # seconds
BLOCK: Final = 1 << 16  # bytes
LONGEST_LINE: Final = 1 << 12  # bytes
# The session leader that opens a terminal gets it as its controlling terminal (credentials(7)).
TAKE_TERMINAL: Final = ("/bin/sh", "-c", 'terminal=$0; exec "$@" <"$terminal" >"$terminal" 2>&1')

# The names of the columns. A name may contain a space, and may follow another one without a space.
_NAME: Final = re.compile(r"[A-Z][A-Za-z]*(?: [A-Z][A-Za-z]*)*\([A-Za-z%]+\)")
_NPU, _CHIP, _TEMPERATURE, _MEMORY = "NpuID(Idx)", "ChipId(Idx)", "Temp(C)", "Memory(%)"
_CORES: Final = ("AI Core(%)", "NPU Util(%)")  # the first one that a chip has
MOST: Final = 1000  # an NPU reports no larger number


@attrs.frozen(kw_only=True)
class Figures:
    """The figures of an NPU: degrees Celsius, and percent of its AI cores and its memory. None if there is no figure.

    `at` is the time of reading, on the monotonic clock.
    """

    at: float
    temperature: int | None = None
    ai_core: int | None = None
    memory: int | None = None


class WatchParser:
    """Reads the lines of `npu-smi info watch`. Pure. The columns are found by their names in the last header."""

    def __init__(self, devices: Sequence[Device]) -> None:
        """`devices` come from `npu-smi info`, which knows the ids in /dev."""
        self._ids = {(one.card, one.chip): one.device_id for one in devices}
        self._names: list[str] = []

    def parse(self, line: str, at: float) -> tuple[int, Figures] | None:
        """Return the id of a device and its figures, or None if the line has no figures."""
        names = _NAME.findall(line)
        if _NPU in names:
            self._names = names
            return None
        cells = line.split()
        if not cells or len(cells) != len(self._names):
            return None
        row = dict(zip(self._names, map(_number, cells)))
        card, chip = row.get(_NPU), row.get(_CHIP, 0)
        if card is None or chip is None:
            return None
        cores = (row[name] for name in _CORES if row.get(name) is not None)
        figures = Figures(temperature=row.get(_TEMPERATURE), ai_core=next(cores, None), memory=row.get(_MEMORY), at=at)
        return self._ids.get((card, chip), card), figures


def _number(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:  # NA or -
        return None
    return round(number) if 0 <= number < MOST else None


class NpuWatch:
    """Runs `npu-smi info watch` until it is closed, or has printed nothing for `PATIENCE` seconds."""

    def __init__(self, tool: str, devices: Sequence[Device], now: float) -> None:
        """Start the tool.

        Raises:
            OSError: It cannot be started.
        """
        self._parser = WatchParser(devices)
        self._rest = b""
        self._at = now  # the time of the last line
        self._fd, slave = pty.openpty()
        try:
            _set_raw(slave)
            os.set_blocking(self._fd, False)
            argv = (*TAKE_TERMINAL, os.ttyname(slave), tool, "info", "watch", "-d", INTERVAL)
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(self._fd)
            raise
        finally:
            os.close(slave)

    def read(self, now: float) -> Mapping[int, Figures]:
        """Return the figures that were printed since the last call, by the id of the device."""
        found = {}
        for line in self._lines():
            self._at = now
            parsed = self._parser.parse(line, now)
            if parsed:
                found[parsed[0]] = parsed[1]
        if now - self._at > PATIENCE:
            self.close()
        return found

    def close(self) -> None:
        """Kill the tool, and do not wait if it hangs in the driver. Closing it again has no effect."""
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._fd)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(CLOSE_LIMIT)

    def _lines(self) -> Iterator[str]:
        data = self._rest
        while self._process:
            try:
                read = os.read(self._fd, BLOCK)
            except OSError:  # there is nothing to read, or the tool has ended
                break
            data += read
            if not read or len(data) > BLOCK:
                break
        *lines, rest = data.split(b"\n")
        self._rest = rest[:LONGEST_LINE]
        return (line.decode(errors="replace") for line in lines)


class NpuSampler:
    """Reads the figures of this machine's NPUs if npu-smi responds. It starts in the background: that takes seconds."""

    def __init__(self, host: Host, environ: Mapping[str, str]) -> None:
        self._host, self._environ = host, environ
        self._figures: dict[int, Figures] = {}
        self._watch: NpuWatch | None = None
        self._is_closed = False

    def start(self, now: float) -> None:
        """Start npu-smi if this machine has it."""
        tool = find(self._host, self._environ)
        if not tool:
            return

        def start() -> None:
            known = read_devices(tool, self._environ, TABLE_LIMIT, lambda: self._is_closed)
            try:
                watch = NpuWatch(tool, known, now + TABLE_LIMIT)
            except OSError:
                return
            self._watch = watch
            if self._is_closed:
                watch.close()

        try:
            bounded.start_thread(start)
        except AscendRunnerError:  # the limit of processes is reached: there are no figures
            return

    def look(self, now: float) -> Mapping[int, Figures]:
        """Return the newest figures by the id of the NPU, however old they are."""
        if self._watch:
            self._figures.update(self._watch.read(now))
        return self._figures

    def close(self) -> None:
        """Kill npu-smi. Closing it again has no effect."""
        self._is_closed = True
        if self._watch:
            self._watch.close()


def _set_raw(fd: int) -> None:
    """Set a terminal to pass on bytes unchanged: no carriage returns, no echo."""
    mode = termios.tcgetattr(fd)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(fd, termios.TCSANOW, mode)
