"""The link process: carries messages between the rules, the other nodes and the runner. A child of the runner.

It is a process of its own because libzmq has threads and may abort. When the runner dies, it says so to the other
nodes, waits for the guardian to say that nothing of the runner is left, passes that on, and exits.
"""

from __future__ import annotations

import json
import os
import re
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Generic, Optional, Protocol, TypeVar

import attrs
import zmq

from ascend_runner.link import channel, wire
from ascend_runner.link.meeting import SECRET
from ascend_runner.link.messages import LARGEST_MESSAGE, Asked, Local, Refused, Warned, already_running
from ascend_runner.link.protocol import (
    AFTER_GRACE,
    HUB,
    Action,
    AllDead,
    Event,
    LocalChanged,
    Received,
    Requested,
    RunnerGone,
    Send,
    Tell,
    Tick,
    Wake,
)
from ascend_runner.link.sockets import FOREIGN, LINGER, REDIAL, HubSocket, Names, SpokeSocket, derive_keys
from ascend_runner.members import Members
from ascend_runner.text import printable

RUNNER: Final = 0  # the descriptor of the socket to the runner
SELF: Final = b"self"  # the peer of the hub that is the spoke of this process; those of libzmq have 5 bytes
NEWS_KEPT: Final = 1000  # for a runner that does not read
BIND_INTERVAL: Final = 10.0  # seconds until the ports of a hub without one are tried again
LARGEST_ADDRESS_SPACE: Final = 2 << 30  # bytes. Beyond it libzmq aborts, and the runner starts another process
LOOKING: Final = 60.0  # seconds to look for other hubs
INTRODUCTION: Final = "introduction"  # the member of a message from hub to hub
TIE: Final = 1.0  # seconds; runners on two machines that started closer together are ordered by their incarnations
BACK: Final = 0.5  # seconds for a connection to be made again
CLOSE_LIMIT: Final = 6.0  # seconds for the last word to arrive; the rules give up after `protocol.PARTING`
DEAD_LIMIT: Final = 0.4  # seconds, likewise, while the guardian waits for this process
VERDICT_LIMIT: Final = AFTER_GRACE + 1.0  # seconds beyond the grace, likewise, on node 0, where the verdict is made
SILENT: Final = 10.0  # seconds without a question of the runner, which asks every 5, until it is said to be silent
NOT_RESPONDING: Final = "not responding"  # its state then, as people see it
ORPHAN_LIMIT: Final = 120.0  # seconds for the guardian to end the processes of a dead runner; it needs at most 65
MAPPED: Final = "::ffff:"  # before an IPv4 address, as a socket for IPv6 shows it
MAPPED_PLACE: Final = re.compile(r"\[::ffff:([0-9.]+)\]")  # such an address before its port
NAMELESS: Final = "nameless"  # a stranger that had disconnected before its address was read
LOCALHOST: Final = "127.0.0.1"
NEVER: Final = float("inf")


class Machine(Protocol):
    """The state of a hub or a spoke."""

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to say."""

    @property
    def contact(self) -> float | None:
        """When the last message was sent that the hub has certainly heard, None before that."""


State = TypeVar("State", bound=Machine)
Transition = Callable[[State, Event], tuple[State, tuple[Action, ...]]]
Make = Callable[[channel.Settings, float], tuple[State, Optional[State]]]  # the spoke, and on node 0 the hub


def main(farewell: int, make: Make[State], transition: Transition[State]) -> None:
    """Run until the runner exits, or has died and nothing of it is left. `farewell` is the pipe of the guardian."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_ADDRESS_SPACE, LARGEST_ADDRESS_SPACE))
    settings = channel.decode(os.read(RUNNER, LARGEST_MESSAGE + 1), channel.ORDERS)
    for descriptor in (RUNNER, farewell):
        os.set_blocking(descriptor, False)
    LinkProcess(settings, farewell, make, transition).run()
    os._exit(0)


class LinkProcess(Generic[State]):
    """The loop of the link process."""

    def __init__(
        self, settings: channel.Settings, farewell: int, make: Make[State], transition: Transition[State]
    ) -> None:
        self._settings, self._farewell, self._transition = settings, farewell, transition
        self._keys = keys = derive_keys(bytes.fromhex(settings.key))
        now = time.monotonic()
        spoke, hub = make(settings, now)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._machines = {SELF: hub, HUB: spoke} if hub else {HUB: spoke}  # by the peer whose messages they receive
        self._wakes = dict.fromkeys(self._machines, now)
        self._hub = HubSocket(self._context, keys) if hub else None
        self._names = Names()
        self._spoke = None if hub else SpokeSocket(self._context, keys, self._names, settings.hubs, settings.ports)
        self._rivals: list[SpokeSocket] = []  # connect to the hubs of other runners of this node
        self._look_until = NEVER
        self._introduction: Mapping[str, object] = {}  # the first message from this process's spoke to its hub
        self._news: deque[channel.Answer] = deque(maxlen=NEWS_KEPT)
        self._local: Local | None = None  # the newest that the runner has said
        self._silent_at = NEVER  # when the runner is said to be silent
        self._is_ending = False
        self._ends_at = NEVER  # when to end although there is something left to say
        self._may_end = False  # once everything is said
        self._is_orphan = False  # the runner has died
        self._is_refused = False  # node 0 is another runner
        self._bind_at = now if hub else NEVER
        self._told: set[str] = set()  # subjects that are reported once
        self._started = now

    def run(self) -> None:
        """Run to the end."""
        if self._spoke:
            self._spoke.dial(self._started)
        while not self._is_ending:
            ready = self._wait()
            now = time.monotonic()
            if RUNNER in ready:
                self._hear_runner(now)
            if self._farewell in ready:
                self._hear_guardian(now)
            if not ready <= {RUNNER, self._farewell}:
                self._receive(ready, now)
            self._keep_time(now)
            self._write()
            self._is_ending |= now >= self._ends_at or (self._may_end and self._has_said_all(now))
        self._close()

    @property
    def _dialling(self) -> list[SpokeSocket]:
        return [*([self._spoke] if self._spoke else []), *self._rivals]

    @property
    def _places(self) -> list[HubSocket | SpokeSocket]:
        return [*([self._hub] if self._hub else []), *self._dialling]

    def _has_said_all(self, now: float) -> bool:
        """Whether the last word has arrived, or nobody is left to hear it: node 0 may leave before the others."""
        is_cut_off = self._spoke is not None and 0 < self._spoke.lost_at <= now - BACK
        is_unheard = self._hub is not None and not self._hub.port
        is_alone = is_cut_off or is_unheard
        return self._is_refused or is_alone or all(machine.is_over for machine in self._machines.values())

    def _wait(self) -> set[object]:
        """Wait for a message or the next moment; return the descriptors and sockets that are ready."""
        poller = zmq.Poller()
        for source in (source for place in self._places for source in place.sources):
            poller.register(source, zmq.POLLIN)
        poller.register(self._names.fileno(), zmq.POLLIN)
        if not self._is_orphan:
            poller.register(RUNNER, zmq.POLLIN | (zmq.POLLOUT if self._news else 0))
        else:
            poller.register(self._farewell, zmq.POLLIN)
        limit = min(self._next_moment() - time.monotonic(), 3600.0)
        return {source for source, _events in poller.poll(max(0, int(limit * 1000) + 1))}

    def _next_moment(self) -> float:
        others = [self._bind_at, self._ends_at, self._silent_at, *(place.due for place in self._dialling)]
        if self._spoke and self._spoke.lost_at and (self._may_end or self._spoke.has_hub):
            others.append(self._spoke.lost_at + (BACK if self._may_end else REDIAL))
        if self._spoke and self._spoke.foreign and "foreign" not in self._told:
            others.append(self._started + FOREIGN)
        if self._hub and self._hub.refused_at and NAMELESS not in self._told:
            others.append(self._hub.refused_at + FOREIGN)
        return min(*self._wakes.values(), *others)

    # --- Events -------------------------------------------------------------------------------------------------------

    def _receive(self, ready: set[object], now: float) -> None:
        if self._names.fileno() in ready:
            self._names.take()
            for dialling in self._dialling:
                dialling.follow_names()
        for peer, message in [*self._hub.receive(ready, now)] if self._hub else ():
            self._hear(peer, _decoded(message), now)
        for address in self._hub.strangers if self._hub else ():
            self._told.add(NAMELESS)
            place = printable(address.replace(MAPPED, ""))
            self._tell_once(f"stranger {address}", f"a connection from {place} without this job's key was ignored")
        if self._spoke:
            for message in self._spoke.receive(ready, now):
                self._pass_on(HUB, HUB, _decoded(message), now)
        for message in [message for rival in self._rivals for message in rival.receive(ready, now)]:
            heard = wire.decode_hub(_decoded(message) or {})
            if heard and heard.view.refusal:
                self._give_up(heard.view.refusal)

    def _hear(self, peer: bytes, message: Mapping[str, object] | None, now: float) -> None:
        """Handle a message of a node, or an introduction. Of two runners of node 0, the younger one gives up."""
        found = Members(message or {})
        introduction, uptime = found.child(INTRODUCTION).members, found.seconds("uptime")
        if not introduction or uptime is None:
            self._pass_on(SELF, peer, message, now)
            return
        own, rival = self._settings.identity, wire.decode_spoke(introduction)
        if found.text("runner") == own.incarnation:  # this hub is where node 0 should be
            self._stop_looking(elsewhere=True)
        elif rival and rival.identity and self._is_older(found, uptime, now):
            self._give_up(already_running(rival.identity, own))
        else:
            self._pass_on(SELF, peer, introduction, now)

    def _is_older(self, other: Members, uptime: float, now: float) -> bool:
        """Whether another runner of node 0 was started before this one. On two machines, this is an estimate."""
        own, began = self._settings, other.seconds("began")
        if began is not None and own.boot and other.text("boot") == own.boot:
            return began < own.began
        difference = uptime - (now - own.began)
        return other.text("runner") < own.identity.incarnation if abs(difference) < TIE else difference > 0

    def _give_up(self, sentence: str) -> None:
        """Refuse the runner of this process. The other nodes are not told, and look for the other runner."""
        if not self._hub:
            return
        self._news.append(Refused(sentence=sentence))
        self._stop_looking()
        self._hub.close()
        self._hub, self._bind_at, self._is_refused = None, NEVER, True
        self._wakes = dict.fromkeys(self._wakes, NEVER)

    def _pass_on(self, machine: bytes, peer: bytes, message: Mapping[str, object] | None, now: float) -> None:
        if message is not None:
            self._feed(machine, Received(peer, message, now))
        else:
            self._tell_once("malformed", "a malformed message from another node was ignored")

    def _hear_runner(self, now: float) -> None:
        while not (self._is_orphan or self._is_ending):
            try:
                message = os.read(RUNNER, LARGEST_MESSAGE + 1)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it has died with messages unread
                message = b""
            order = channel.decode(message, channel.ORDERS) if message else None
            if self._silent_at == NEVER and self._local:
                self._feed_all(LocalChanged(self._local, now))
            self._silent_at = now + SILENT
            self._obey(order, now)

    def _obey(self, order: object, now: float) -> None:
        if isinstance(order, Local):
            self._local = order
            self._feed_all(LocalChanged(order, time.monotonic()))  # an answer to the one before is not for this one
        elif isinstance(order, channel.Ping):
            self._news.append(channel.Ping(contact=self._machines[HUB].contact))
        elif isinstance(order, channel.Settings):
            if self._spoke:
                self._spoke.move(order.hubs, now)
        elif isinstance(order, Asked):
            self._feed_all(Requested(order, now))
        elif isinstance(order, channel.Close):
            self._may_end, self._ends_at = True, now + CLOSE_LIMIT
        else:
            self._is_orphan, self._silent_at = True, NEVER
            self._ends_at = min(self._ends_at, now + ORPHAN_LIMIT)
            self._feed_all(RunnerGone(now))

    def _hear_guardian(self, now: float) -> None:
        if not self._is_orphan or self._is_ending:
            return
        try:
            message = os.read(self._farewell, 65536)
        except BlockingIOError:
            return
        if message:  # otherwise the guardian has died as well
            _dead, *survivors = message.decode(errors="replace").splitlines()
            self._feed_all(AllDead(tuple(survivors), now))
            grace = self._settings.identity.grace
            self._may_end, self._ends_at = True, now + (grace + VERDICT_LIMIT if self._hub else DEAD_LIMIT)
        else:
            self._is_ending = True

    def _keep_time(self, now: float) -> None:
        for machine, wake in self._wakes.items():
            if now >= wake:
                self._wakes[machine] = NEVER
                self._feed(machine, Tick(now))
        if self._local and now >= self._silent_at:
            self._silent_at = NEVER
            self._feed_all(LocalChanged(attrs.evolve(self._local, state=NOT_RESPONDING), now))
        if self._hub and now >= self._bind_at:
            self._bind(self._hub, now)
        if self._rivals and now >= self._look_until:
            self._stop_looking()
        if self._hub and 0 < self._hub.refused_at <= now - FOREIGN:
            self._tell_once(NAMELESS, "a short connection without this job's key was ignored")
        if self._spoke and self._spoke.has_hub and 0 < self._spoke.lost_at <= now - REDIAL:
            self._spoke.dial(now)
        for place in self._dialling:
            place.keep_time(now)
        if self._spoke and self._spoke.foreign and now >= self._started + FOREIGN:
            self._report_foreign(self._spoke)

    def _bind(self, hub: HubSocket, now: float) -> None:
        ports = self._settings.ports
        is_bound = hub.bind(self._settings.interface, ports)
        self._bind_at = NEVER if is_bound else now + BIND_INTERVAL
        if not self._rivals:
            self._look_for_rivals(hub, now)
        if is_bound:
            return
        taken = f"{ports[0]}-{ports[-1]} are" if len(ports) > 1 else f"{ports[0]} is"
        what_follows = "the nodes run without a link until one is free, or set another --link-port on all nodes"
        self._tell_once("ports", f"no free port for the link between the nodes: {taken} in use; {what_follows}")

    def _look_for_rivals(self, hub: HubSocket, now: float) -> None:
        """Look for other hubs of this job: where node 0 may be, and at the other ports of this machine."""
        ports, interface = self._settings.ports, self._settings.interface
        here = LOCALHOST if interface == channel.EVERYWHERE else interface
        places = [(place, ports) for place in self._settings.hubs if place != here]
        others = tuple(port for port in ports if port != hub.port)
        for place, its_ports in (*places, (here, others)):
            rival = SpokeSocket(self._context, self._keys, self._names, (place,), its_ports)
            rival.dial(now)
            self._rivals.append(rival)
        self._look_until = now + LOOKING

    def _stop_looking(self, *, elsewhere: bool = False) -> None:
        ended = self._rivals[:-1] if elsewhere else self._rivals  # the last one is on this machine
        for rival in ended:
            rival.close(linger=0)
        self._rivals = self._rivals[len(ended) :]

    def _report_foreign(self, spoke: SpokeSocket) -> None:
        if not spoke.has_hub:
            places = ", ".join(
                dict.fromkeys(MAPPED_PLACE.sub(r"\1", place.partition("//")[2]) for place in spoke.foreign)
            )
            another = f"another program, another job or a runner with another secret ({SECRET})"
            self._tell_once("foreign", f"{another} is at {places}")
        self._told.add("foreign")

    # --- Actions ------------------------------------------------------------------------------------------------------

    def _feed_all(self, event: Event) -> None:
        for machine in self._machines:
            self._feed(machine, event)

    def _feed(self, machine: bytes, event: Event) -> None:
        """Feed a machine, and perform its actions; messages between hub and spoke of this process are fed at once."""
        queue: deque[tuple[bytes, Event]] = deque([] if self._is_refused else [(machine, event)])
        while queue:
            machine, event = queue.popleft()
            self._machines[machine], actions = self._transition(self._machines[machine], event)
            for action in actions:
                if isinstance(action, Wake):
                    self._wakes[machine] = action.at
                elif isinstance(action, Tell):
                    self._news.append(action.news)
                elif action.peer == SELF or (action.peer == HUB and self._hub):
                    self._introduce(action)
                    other = HUB if action.peer == SELF else SELF
                    queue.append((other, Received(HUB if other == HUB else SELF, action.message, event.at)))
                else:
                    self._send(action)

    def _introduce(self, action: Send) -> None:
        """Introduce this runner to other hubs at each beat. They answer only after hearing from their own runners."""
        if action.peer == HUB:
            own = self._settings
            self._introduction = self._introduction or action.message
            message = {
                INTRODUCTION: self._introduction,
                "runner": own.identity.incarnation,
                "uptime": time.monotonic() - own.began,
                "began": own.began,
                "boot": own.boot,
            }
            for rival in self._rivals:
                rival.send(_encoded(message), may_wait=False)

    def _send(self, action: Send) -> None:
        message = _encoded(action.message)
        if len(message) > LARGEST_MESSAGE:
            self._tell_once("long", f"a message of {len(message)} bytes to another node was not sent")
        elif self._spoke:
            self._spoke.send(message)
        elif self._hub:
            self._hub.send(action.peer, message)

    def _tell_once(self, subject: str, sentence: str) -> None:
        if subject not in self._told:
            self._told.add(subject)
            self._news.append(Warned(sentence=sentence))

    def _write(self) -> None:
        """Write the news to the runner, as far as it reads them."""
        while self._news and not self._is_orphan:
            try:
                os.write(RUNNER, channel.encode(self._news[0]))
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                return  # the next read notices that it has died
            self._news.popleft()

    def _close(self) -> None:
        """Let the last messages leave, within LINGER."""
        self._write()
        for place in (*self._places, self._names):
            place.close()
        ending = threading.Thread(target=self._context.destroy, daemon=True)
        ending.start()
        ending.join(LINGER / 1000 + 0.1)


def _encoded(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _decoded(message: bytes) -> Mapping[str, object] | None:
    """Decode a message from another process; return None if it is malformed."""
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
