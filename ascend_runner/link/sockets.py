"""The sockets of the link: ZeroMQ with CURVE, so that only those with the job's key are heard. Knows no rules.

Whatever a stranger sends is dropped inside libzmq, before this process sees it. Of a peer with the key, at most
`QUEUE` messages wait, each of at most `LARGEST_MESSAGE` bytes; what does not fit is dropped, since every message
carries the whole state of its sender.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, NamedTuple

import zmq
from zmq.utils import z85

from ascend_runner.link.messages import LARGEST_MESSAGE

QUEUE: Final = 16  # messages in each direction, per peer
OVERHEAD: Final = 64  # bytes that CURVE adds to a message: its command, nonce and authentication
MOST_AT_ONCE: Final = 64  # messages that are read before the other sockets have their turn
LINGER: Final = 500  # milliseconds for the last messages to leave
REDIAL: Final = 3.0  # seconds without the hub, before it is looked for at all its addresses again
RESOLVE: Final = 2.0  # seconds until a name is resolved again: it may be unknown before its pod runs, and then change
ADDRESSES_OF_NAME: Final = 4
MOST_ADDRESSES: Final = 16  # that are dialled side by side, each at eight ports: 512 of 1024 descriptors
MOST_STRANGERS: Final = 4  # addresses that are reported
MOST_REFUSED: Final = 1000  # connections of strangers that are looked at: a flood costs nothing from then on
MOST_KNOWN: Final = 4096  # addresses of nodes
FOREIGN: Final = 5.0  # seconds until one without the key is reported: another port may have our hub, or it comes again
ZAP: Final = "inproc://zeromq.zap.01"  # RFC 27 of ZeroMQ: here libzmq asks whom to let in

OPTIONS: Final = {
    zmq.LINGER: 0,
    zmq.SNDHWM: QUEUE,
    zmq.RCVHWM: QUEUE,
    zmq.MAXMSGSIZE: LARGEST_MESSAGE + OVERHEAD,
    zmq.IPV6: 1,
    zmq.HANDSHAKE_IVL: 3000,  # milliseconds for a stranger to prove that it knows the key
    zmq.CONNECT_TIMEOUT: 2000,  # a SYN that is lost, is sent again by TCP only after ever longer pauses
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 2000,
    zmq.TCP_MAXRT: 10_000,  # a cut cable: TCP would try to deliver for 15 minutes before there is a new connection
    zmq.TCP_KEEPALIVE: 1,  # ZeroMQ's own heartbeats stay off: the rules have theirs
    zmq.TCP_KEEPALIVE_IDLE: 30,
    zmq.TCP_KEEPALIVE_INTVL: 10,
    zmq.TCP_KEEPALIVE_CNT: 3,
}
CUT: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
REFUSED: Final = (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_AUTH)
HANDSHAKES_FAILED: Final = (CUT, *REFUSED)
EVENT: Final = struct.Struct("=HI")  # see zmq_socket_monitor(3)


class Keys(NamedTuple):
    """The key pairs of a job: one of the hub, one that all spokes share. In Z85 (RFC 32 of ZeroMQ)."""

    hub_public: bytes
    hub_secret: bytes
    spoke_public: bytes
    spoke_secret: bytes


def derive_keys(key: bytes) -> Keys:
    """Return the key pairs that belong to the key of a job, see `meeting.derive_key`."""
    hub, spoke = z85.encode(key[:32]), z85.encode(key[32:])
    return Keys(zmq.curve_public(hub), hub, zmq.curve_public(spoke), spoke)


class HubSocket:
    """Where the hub listens: the first free port."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: Keys) -> None:
        self.port = 0  # 0: nowhere yet
        self.strangers: dict[str, None] = {}  # addresses of peers that have connected without the key
        self.refused_at = 0.0  # when one has first connected; 0: none has
        self._known: set[str] = set()  # addresses of peers with the key
        self._connections: dict[int, str] = {}  # addresses by descriptors
        self._refused = 0  # connections
        self._last_event = 0
        self._spoke_key = z85.decode(keys.spoke_public)
        self._zap = context.socket(zmq.REP)
        self._zap.bind(ZAP)
        self._router = _socket(context, zmq.ROUTER)
        self._router.setsockopt(zmq.CURVE_SERVER, 1)
        self._router.setsockopt(zmq.CURVE_SECRETKEY, keys.hub_secret)
        self._router.setsockopt(zmq.ZAP_DOMAIN, b"link")
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(HANDSHAKES_FAILED)
        self._monitor: zmq.Socket[bytes] | None = self._router.get_monitor_socket(events)

    @property
    def sources(self) -> list[zmq.Socket[bytes]]:
        """The sockets to poll."""
        return [self._router, self._zap, *([self._monitor] if self._monitor else [])]

    def bind(self, interface: str, ports: tuple[int, ...]) -> bool:
        """Listen at the first port that is free; return whether there is one."""
        for port in ports:
            try:
                self._router.bind(f"tcp://{_bracketed(interface)}:{port}")
            except zmq.ZMQError:
                continue
            self.port = port
            return True
        return False

    def receive(self, ready: Collection[object], now: float) -> Iterator[tuple[bytes, bytes]]:
        """Return the messages of the sockets that are ready, each with its peer, and admit peers with the key."""
        if self._zap in ready:
            self._answer()
        for _ in range(MOST_AT_ONCE if self._monitor in ready else 0):
            event = _next_event(self._monitor) if self._monitor else None
            if event is None:
                break
            self._note(event[0], event[1], now)
        if self._router not in ready:
            return
        for _ in range(MOST_AT_ONCE):
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) == 2:  # noqa: PLR2004  peer and message
                yield frames[0], frames[1]

    def _note(self, event: int, value: int, now: float) -> None:
        """Note whether a connection ends that has not proved that it knows the key.

        One that is cut before that may be of a node, which dials all addresses and keeps the first that answers. The
        events of one connection follow one another, since there is only one I/O thread.
        """
        if event == zmq.EVENT_ACCEPTED:
            self._connections[value] = _peer_of(value)
        elif event == zmq.EVENT_DISCONNECTED:
            address, is_cut = self._connections.pop(value, ""), self._last_event == CUT
            is_unknown = bool(address) and not is_cut and address not in self._known
            if is_unknown or self._last_event in REFUSED:
                self._refuse(address, now)
        self._last_event = event

    def _refuse(self, address: str, now: float) -> None:
        self.refused_at, self._refused = self.refused_at or now, self._refused + 1
        self.strangers.update({address: None} if address else {})
        if len(self.strangers) >= MOST_STRANGERS or self._refused >= MOST_REFUSED:
            self._router.disable_monitor()
            self._monitor = None

    def _answer(self) -> None:
        """Let in peers with the spokes' key. They know the hub's public key already, which is never sent."""
        for _ in range(MOST_AT_ONCE):
            try:
                version, request, _domain, address, _id, _mechanism, *keys = self._zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            status = (b"200", b"OK") if keys == [self._spoke_key] else (b"400", b"another key")
            if status[0] == b"200" and len(self._known) < MOST_KNOWN:
                self._known.add(address.decode(errors="replace"))
            self._zap.send_multipart([version, request, *status, b"", b""])

    def send(self, peer: bytes, message: bytes) -> None:
        """Send a message, unless its peer has gone, or does not read."""
        try:
            self._router.send_multipart([peer, message], zmq.NOBLOCK)
        except zmq.ZMQError:
            return

    def close(self) -> None:
        """Let the last messages leave."""
        self._router.close(LINGER)


def resolve(name: str, flags: int = 0) -> tuple[str, ...]:
    """Return the first addresses of a name, none if it is unknown. May take as long as the name servers do."""
    try:
        found = socket.getaddrinfo(name.encode(errors="surrogateescape"), None, type=socket.SOCK_STREAM, flags=flags)
    except OSError:
        return ()
    addresses = dict.fromkeys(str(address[0]) for *_kind, address in found)
    return tuple(addresses)[:ADDRESSES_OF_NAME]


class Names:
    """The addresses of names, which are resolved in threads, since libzmq would wait for the name servers.

    A thread that hangs holds up nobody, and ends with its process.
    """

    def __init__(self, resolve: Callable[[str], tuple[str, ...]] = resolve) -> None:
        self._resolve = resolve
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._asked: set[str] = set()  # names without an answer yet
        self._answers: SimpleQueue[tuple[str, tuple[str, ...]]] = SimpleQueue()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable once there are answers to `take`."""
        return self._reader.fileno()

    def ask(self, name: str) -> None:
        """Resolve a name, unless that is under way. An address is its own."""
        if numbers := resolve(name, socket.AI_NUMERICHOST):
            self._addresses[name] = numbers
        elif name not in self._asked:
            with suppress(RuntimeError):  # no further thread is allowed
                threading.Thread(target=self._answer, args=(name,), daemon=True).start()
                self._asked.add(name)

    def take(self) -> None:
        """Take the answers. Addresses that were known stay known if a name server fails."""
        with suppress(BlockingIOError):
            self._reader.recv(4096)
        while not self._answers.empty():
            name, addresses = self._answers.get()
            self._asked.discard(name)
            self._addresses[name] = addresses or self.of(name)

    def of(self, name: str) -> tuple[str, ...]:
        """Return the addresses of a name, as far as they are known."""
        return self._addresses.get(name, ())

    def close(self) -> None:
        """Take no more answers. Does not wait for those that are outstanding."""
        self._reader.close()
        self._writer.close()

    def _answer(self, name: str) -> None:
        self._answers.put((name, self._resolve(name)))
        with suppress(OSError):  # it is readable already, or closed
            self._writer.send(b"\0")


class SpokeSocket:
    """The connection to the hub: all its addresses are dialled side by side, and the first that answers wins."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        keys: Keys,
        names: Names,
        hubs: tuple[str, ...],
        ports: tuple[int, ...],
    ) -> None:
        self._context, self._keys, self._names = context, keys, names
        self._hubs, self._ports = hubs, ports
        self._dialled: dict[zmq.Socket[bytes], zmq.Socket[bytes]] = {}  # sockets by their monitors
        self._places: dict[str, list[zmq.Socket[bytes]]] = {}  # monitors by the addresses that are dialled
        self._resolve_at = math.inf
        self._hub: zmq.Socket[bytes] | None = None  # the one that has answered
        self._last = b""  # message
        self.foreign: dict[str, None] = {}  # addresses where the listener does not know the key
        self.lost_at = 0.0  # when the hub has closed the connection; 0: it has not, or there is a new one

    @property
    def sources(self) -> list[zmq.Socket[bytes]]:
        """The sockets to poll."""
        return [*self._dialled, *self._dialled.values()]

    @property
    def has_hub(self) -> bool:
        """Whether the hub has answered since it was last looked for."""
        return self._hub is not None

    @property
    def due(self) -> float:
        """When `keep_time` is to be called."""
        return math.inf if self._hub else self._resolve_at

    def move(self, hubs: tuple[str, ...], now: float) -> None:
        """Look for the hub at other addresses from now on, unless it is there."""
        is_other, self._hubs = hubs != self._hubs, hubs
        if is_other and not self._hub:
            self.dial(now)

    def dial(self, now: float) -> None:
        """Look for the hub at all its addresses."""
        self.close(linger=0)
        self._ask(now)

    def keep_time(self, now: float) -> None:
        """Resolve the names of the hub again as long as it is not found."""
        if now >= self.due:
            self._ask(now)

    def _ask(self, now: float) -> None:
        self._resolve_at = now + RESOLVE
        for hub in self._hubs:
            self._names.ask(hub)
        self.follow_names()

    def follow_names(self) -> None:
        """Dial the addresses that the names of the hub have now, unless it is found."""
        if self._hub:
            return
        found = dict.fromkeys(address for hub in self._hubs for address in self._names.of(hub))
        wanted = list(found)[:MOST_ADDRESSES]
        for address in self._places.keys() - wanted:
            for monitor in self._places.pop(address):
                _close(self._dialled.pop(monitor), monitor, 0)
        for address in wanted:
            if address not in self._places:
                self._places[address] = [self._connect(f"tcp://{_bracketed(address)}:{port}") for port in self._ports]

    def _connect(self, place: str) -> zmq.Socket[bytes]:
        """Return the monitor of a new connection."""
        dealer = _socket(self._context, zmq.DEALER)
        dealer.setsockopt(zmq.IMMEDIATE, 1)  # nothing is queued for a hub that is not there
        dealer.setsockopt(zmq.CURVE_SERVERKEY, self._keys.hub_public)
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.spoke_public)
        dealer.setsockopt(zmq.CURVE_SECRETKEY, self._keys.spoke_secret)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | sum(HANDSHAKES_FAILED)
        monitor = dealer.get_monitor_socket(events)
        self._dialled[monitor] = dealer
        dealer.connect(place)
        return monitor

    def receive(self, ready: Collection[object], now: float) -> Iterator[bytes]:
        """Return the messages of the sockets that are ready."""
        for monitor, dealer in [pair for pair in self._dialled.items() if pair[0] in ready]:
            while monitor in self._dialled and (event := _next_event(monitor)):
                self._note(event[0], event[2], dealer, now)
        for _ in range(MOST_AT_ONCE if self._hub in ready else 0):
            try:
                frames = self._hub.recv_multipart(zmq.NOBLOCK) if self._hub else []
            except zmq.Again:
                return
            if len(frames) != 1:
                return
            yield frames[0]

    def _note(self, event: int, place: str, dealer: zmq.Socket[bytes], now: float) -> None:
        if event in HANDSHAKES_FAILED:
            self.foreign[place] = None
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED and self._hub in {None, dealer}:
            self._hub, self.lost_at = dealer, 0.0
            self._close_others(dealer)
            self.send(self._last)
        elif event == zmq.EVENT_DISCONNECTED and dealer is self._hub:
            self.lost_at = self.lost_at or now

    def _close_others(self, hub: zmq.Socket[bytes]) -> None:
        for monitor, dealer in list(self._dialled.items()):
            if dealer is not hub:
                del self._dialled[monitor]
                _close(dealer, monitor, 0)

    def send(self, message: bytes, *, may_wait: bool = True) -> None:
        """Send a message now. If it may wait, it is sent once the hub is there, unless a newer one has replaced it."""
        self._last = message if may_wait else b""
        try:
            if self._hub and message:
                self._hub.send(message, zmq.NOBLOCK)
        except zmq.Again:
            return

    def close(self, linger: int = LINGER) -> None:
        """Let the last messages leave."""
        for monitor, dealer in self._dialled.items():
            _close(dealer, monitor, linger if dealer is self._hub else 0)
        self._dialled.clear()
        self._places.clear()
        self._hub = None


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    for option, value in OPTIONS.items():
        socket.setsockopt(option, value)
    return socket


def _close(dealer: zmq.Socket[bytes], monitor: zmq.Socket[bytes], linger: int) -> None:
    dealer.disable_monitor()
    monitor.close(0)
    dealer.close(linger)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _next_event(monitor: zmq.Socket[bytes]) -> tuple[int, int, str] | None:
    """Return the next event of a socket, its value and the endpoint."""
    try:
        head, place = monitor.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
    return (*EVENT.unpack(head), place.decode(errors="replace"))


def _peer_of(descriptor: int) -> str:
    """Return the address of the other end of a connection, "" if that is closed by now."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        return str(connection.getpeername()[0])
    return ""
