"""Jobs of several nodes that fail in known ways, and the reports that their nodes leave, with clocks that are wrong.

A scene says what happens, in true seconds since a step that all nodes have logged. Only a `World` knows clocks, which
reports are missing, and what else can be read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Final

import attrs

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.finding import Certainty
from ascend_runner.diagnosis.root_cause import Place
from ascend_runner.members import Members
from ascend_runner.merge import verdict
from ascend_runner.merge.model import Job, Node, Verdict
from ascend_runner.tools.job.merged_reports import node_of

RANKS: Final = 2  # of a node
BEGAN: Final = 1_795_000_000.0  # the clock of the last common step
HOURS: Final = 36_000.0  # that the job had run by then
STEP: Final = 1.7  # seconds of a step
WRITE_DELAY: Final = 30.0  # seconds of output that a machine can lose
CLOCKS: Final = ("right", "0.5 s", "41 s", "10 min", "100 ppm")
COUNTS: Final = (2, 3, 8, 32, 128)
MOST_MISSING: Final = 3


@attrs.frozen(kw_only=True)
class Part:
    """What becomes of one node, at a moment: the cause in its report, and the ranks that others are named as.

    `state` "" means that the machine is gone.
    """

    at: float
    state: str = "failed"
    kind: str = "rank_failed"
    exception: str = ""
    code: str = ""
    code_kind: str = ""
    signal: int = 0
    certainty: Certainty = Certainty.CERTAIN
    is_oom: bool = False
    names: tuple[int, ...] = ()  # ranks
    stacks: tuple[str, ...] = ()  # the place of each rank
    is_old: bool = False  # its report is of an earlier run


@attrs.frozen
class Scene:
    """What becomes of the nodes; `culprits` are those that may be called the cause, `rank` of them if there is one."""

    parts: Mapping[int, Part]
    culprits: frozenset[int]


Make = Callable[[int, random.Random], Scene]
SCENES: Final[dict[str, Make]] = {}


def scene(make: Make) -> Make:
    """Register a scene."""
    SCENES[make.__name__] = make
    return make


# --- What nodes do ----------------------------------------------------------------------------------------------------


def own(at: float, exception: str = "ValueError: loss is nan at step 17", **changes: object) -> Part:
    """Fail by itself."""
    return attrs.evolve(Part(at=at, exception=exception), **changes)  # type: ignore[arg-type]  # names of fields


def lost(at: float, *names: int, code: str = "EI0006") -> Part:
    """Report a lost peer."""
    kind = Kind.SECONDARY.value
    return Part(at=at, code=code, code_kind=kind, certainty=Certainty.OPEN, names=names)


def either(at: float, *names: int) -> Part:
    """Report what may be the fault of either end."""
    return Part(at=at, code="EI0013", code_kind=Kind.EITHER.value, certainty=Certainty.LIKELY, names=names)


def killed(at: float) -> Part:
    """Lose a rank to a SIGKILL of unknown origin."""
    return Part(at=at, signal=9, certainty=Certainty.LIKELY)


def stopped(at: float) -> Part:
    """Be stopped by the platform."""
    return Part(at=at, state="stopped", kind="interrupted")


def hung(at: float, *stacks: str) -> Part:
    """Reach the limit of a hang."""
    return Part(at=at, kind="hang", stacks=stacks)


def gone(at: float) -> Part:
    """Lose power."""
    return Part(at=at, state="")


def rank_of(node: int, local: int = 0) -> int:
    """Return a rank of a node."""
    return node * RANKS + local


def pick(count: int, dice: random.Random) -> tuple[int, list[int]]:
    """Return a node and the others."""
    node = dice.randrange(count)
    return node, [other for other in range(count) if other != node]


def around(culprit: Part, node: int, others: Mapping[int, Part]) -> Scene:
    """Return a scene with one culprit."""
    return Scene({node: culprit, **others}, frozenset({node}))


def complaining(nodes: Sequence[int], at: float, dice: random.Random, *names: int) -> dict[int, Part]:
    """Return nodes that report a lost peer within 3 s."""
    return {node: lost(at + dice.uniform(0.05, 3.0), *names) for node in nodes}


# --- One culprit, and others that lose it -----------------------------------------------------------------------------

IN_ITS_CLEANUP: Final = own(15.0, "ValueError: I/O operation on closed file")
OF_A_VICTIM: Final = own(120.0, "RuntimeError: the training was aborted")  # what looks like an error of its own


def loss(culprit: Part, at: float, *, is_named: bool = True, second: Part | None = None) -> Make:
    """Return a scene in which one node is the culprit, and all others report a lost peer within 3 s from a moment on.

    Unless `is_named` is false, they name a rank of the culprit. `second` becomes of one of them instead.
    """

    def make(count: int, dice: random.Random) -> Scene:
        node, others = pick(count, dice)
        parts = complaining(others, at, dice, *([rank_of(node)] if is_named else ()))
        return around(culprit, node, {**parts, others[0]: second} if second else parts)

    return make


SCENES.update(
    own_error_named=loss(own(10.0), 10.0),
    own_error_unnamed=loss(own(10.0), 10.0, is_named=False),
    victims_end_first=loss(own(10.0), 6.9),  # the culprit closes its connections, and needs longer to end than others
    not_started=loss(own(1.0, "command not found: 'x'", kind="rank_not_started"), 120.0),
    runner_failed=loss(own(1.0, "the rank table is damaged", kind="runner_failed"), 120.0),
    unhealthy=loss(own(10.0, "device 3 has a fault", kind="unhealthy"), 10.0),  # an inspection ends its ranks
    out_of_memory=loss(own(10.0, "", signal=9, is_oom=True), 10.0),
    crash=loss(own(10.0, "", signal=11), 10.0),
    killed_rank=loss(killed(10.0), 10.0),
    killed_rank_unnamed=loss(killed(10.0), 10.0, is_named=False),
    silent_exit=loss(Part(at=10.0, certainty=Certainty.LIKELY), 10.0),
    own_link=loss(either(10.0), 10.0),  # its network port fails, which all notice
    second_error_named=loss(own(10.0), 10.0, second=IN_ITS_CLEANUP),
    second_error_unnamed=loss(own(10.0), 10.0, is_named=False, second=IN_ITS_CLEANUP),
    dead_machine_named=loss(gone(0.0), 120.0),  # after a timeout
    dead_machine_named_at_once=loss(gone(5.0), 5.0),  # it reboots, which resets its connections
    dead_machine_unnamed=loss(gone(0.0), 120.0, is_named=False),
    dead_machine_and_old_report=loss(own(-HOURS - 60.0, is_old=True), 120.0),  # it does not come back for a second run
    victim_seems_guilty=loss(gone(0.0), 120.0, second=OF_A_VICTIM),
    victim_seems_guilty_unnamed=loss(gone(0.0), 120.0, is_named=False, second=OF_A_VICTIM),
    never_arrived=loss(gone(-HOURS), 120.0),
)


# --- Errors of one node -----------------------------------------------------------------------------------------------


@scene
def own_error_and_stop(count: int, dice: random.Random) -> Scene:
    """A rank raises an exception, and the platform stops the others."""
    node, others = pick(count, dice)
    return around(own(10.0), node, {other: stopped(dice.uniform(11.0, 40.0)) for other in others})


@scene
def own_error_in_a_ring(count: int, dice: random.Random) -> Scene:
    """Each node waits for the one before it, up to one that failed."""
    node, others = pick(count, dice)
    waits = {other: lost(dice.uniform(10.1, 13.0), rank_of((other - 1) % count)) for other in others}
    return around(own(10.0), node, waits)


@scene
def link_fault(count: int, dice: random.Random) -> Scene:
    """A link breaks, both ends report it, and the others name one end."""
    node, others = pick(count, dice)
    end = others[0]
    rest = complaining(others[1:], 10.0, dice, rank_of(node))
    return around(either(10.0, rank_of(end)), node, {end: either(10.1, rank_of(node)), **rest})


# --- The same error, several errors -----------------------------------------------------------------------------------


@scene
def same_error_everywhere(count: int, dice: random.Random) -> Scene:
    """No node can import a module."""
    parts = {node: own(dice.uniform(5.0, 30.0), "ImportError: no module named 'x'") for node in range(count)}
    return Scene(parts, frozenset(parts))


@scene
def same_error_on_some(count: int, dice: random.Random) -> Scene:
    """Some nodes have an old driver, and the others lose them."""
    bad = set(dice.sample(range(count), max(1, count // 3)))
    names = tuple(map(rank_of, sorted(bad)))[:3]
    parts = {
        node: own(10.0 + dice.random(), "EL0007") if node in bad else lost(13.0 + dice.random(), *names)
        for node in range(count)
    }
    return Scene(parts, frozenset(bad))


@scene
def second_error_in_a_ring(count: int, dice: random.Random) -> Scene:
    """A rank fails, its neighbor fails in its cleanup, and all others wait for that one."""
    node, others = pick(count, dice)
    neighbor = (node + 1) % count
    rest = {other: lost(dice.uniform(16.0, 19.0), rank_of(neighbor)) for other in others}
    return around(own(10.0), node, {**rest, neighbor: own(15.0, "ValueError: I/O operation on closed file")})


@scene
def independent_errors(count: int, dice: random.Random) -> Scene:
    """Two nodes fail by themselves at about the same time, each for its own reason, and the others name both."""
    node, others = pick(count, dice)
    rest = complaining(others, 10.0, dice, rank_of(node), rank_of(others[0]))
    parts = {node: own(10.0), **rest, others[0]: own(10.0 + dice.random(), "OSError: no space left on device")}
    return Scene(parts, frozenset({node, others[0]}))


@scene
def bystander_accused(count: int, dice: random.Random) -> Scene:
    """A rank fails; the others name another node, which the platform has taken away."""
    node, others = pick(count, dice)
    rest = complaining(others, 11.0, dice, rank_of(others[0]))
    return around(own(10.0), node, {**rest, others[0]: gone(10.5)})


# --- Machines that are gone -------------------------------------------------------------------------------------------


@scene
def dead_machine_in_a_ring(count: int, dice: random.Random) -> Scene:
    """A machine loses power, and each node waits for the one before it."""
    node, others = pick(count, dice)
    waits = {other: lost(dice.uniform(120.0, 123.0), rank_of((other - 1) % count), code="EI0002") for other in others}
    return around(gone(0.0), node, waits)


@scene
def wrong_ranks_named(count: int, dice: random.Random) -> Scene:
    """A machine loses power, and the others name ranks of their own groups, which are not those of the job."""
    node, others = pick(count, dice)
    return around(gone(0.0), node, {other: lost(120.0 + dice.random(), dice.randrange(2)) for other in others})


# --- Hangs and stops --------------------------------------------------------------------------------------------------


@scene
def slow_reader(count: int, dice: random.Random) -> Scene:
    """A rank hangs in its data loader, and all others in a collective."""
    node, others = pick(count, dice)
    parts = {other: hung(600.0 + dice.random(), "all_reduce", "all_reduce") for other in others}
    return around(hung(600.0, "all_reduce", "read_sample"), node, parts)


@scene
def hang_without_stacks(count: int, dice: random.Random) -> Scene:
    """The job hangs, and nobody knows where."""
    return Scene({node: hung(600.0 + dice.random()) for node in range(count)}, frozenset())


@scene
def slow_node_named(count: int, dice: random.Random) -> Scene:
    """A rank hangs, the others name it at their timeout, and the platform stops it."""
    node, others = pick(count, dice)
    parts = {other: lost(600.0 + dice.random(), rank_of(node), code="EI0002") for other in others}
    return around(stopped(620.0), node, parts)


@scene
def slow_node_in_a_ring(count: int, dice: random.Random) -> Scene:
    """A rank hangs, each node names the one before it at its timeout, and the platform stops the rest."""
    node, others = pick(count, dice)
    parts = {other: lost(600.0 + dice.random(), rank_of((other - 1) % count), code="EI0002") for other in others}
    return around(stopped(620.0), node, parts)


@scene
def stopped_by_the_platform(count: int, dice: random.Random) -> Scene:
    """The platform stops all nodes."""
    return Scene({node: stopped(10.0 + dice.uniform(0.0, 20.0)) for node in range(count)}, frozenset())


@scene
def divided_network(count: int, dice: random.Random) -> Scene:
    """The network between two halves breaks, and each half names the other."""
    half = count // 2
    parts = {
        node: lost(60.0 + dice.random(), rank_of(dice.randrange(half, count) if node < half else dice.randrange(half)))
        for node in range(count)
    }
    return Scene(parts, frozenset())


@scene
def complaints_in_a_circle(count: int, dice: random.Random) -> Scene:
    """Each node names the one before it, and none has an error of its own."""
    return Scene({node: lost(10.0 + dice.random(), rank_of((node - 1) % count)) for node in range(count)}, frozenset())


# --- Worlds -----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class World:
    """A scene with the clocks of its nodes, and the reports that can be read."""

    name: str
    clock: str
    count: int
    missing: int
    seed: int

    def play(self) -> tuple[Scene, Job]:
        """Return what happened, and what is known of it."""
        dice = random.Random(f"{self}")  # noqa: S311  a game
        made = SCENES[self.name](self.count, dice)
        reporting = [node for node, part in sorted(made.parts.items()) if part.state]
        unread = set(dice.sample(reporting, min(self.missing, len(reporting) - 1)))
        has_steps, disk = dice.random() < 0.5, dice.uniform(-100.0, 100.0) if dice.random() < 0.5 else None
        nodes = [
            _node(
                number,
                part,
                Surroundings(*self._clock(dice), disk=disk, has_steps=has_steps, is_read=number not in unread),
                dice,
            )
            for number, part in sorted(made.parts.items())
        ]
        places = {rank_of(node, local): Place(f"10.0.0.{node}", local) for node in made.parts for local in range(RANKS)}
        return made, Job(nodes=tuple(nodes), places=places)

    def judge(self) -> tuple[Scene, Verdict]:
        """Return what happened, and what is thought of it."""
        made, job = self.play()
        return made, verdict.judge(job)

    def _clock(self, dice: random.Random) -> tuple[float, float, float | None]:
        """Return the offset and the drift of a clock, and the bound of its error, if something sets it."""
        if self.clock == "right" or dice.random() < 0.5:
            return 0.0, 0.0, dice.choice([0.001, 0.2, None])
        if self.clock == "100 ppm":
            return 0.0, dice.choice([-1e-4, 1e-4]), None
        offset = {"0.5 s": 0.5, "41 s": 41.0, "10 min": 600.0}[self.clock] * dice.choice([-1, 1])
        return offset, 0.0, dice.choice([0.6, None]) if self.clock == "0.5 s" else None


@attrs.frozen
class Surroundings:
    """The clock of a node: its offset, drift, and the bound of its error (None: nothing sets it).

    That of the disk with the logs is ahead of true time by `disk` seconds (None: it has none).
    """

    offset: float
    drift: float
    max_error: float | None
    disk: float | None = attrs.field(kw_only=True)
    has_steps: bool = attrs.field(kw_only=True)
    is_read: bool = attrs.field(kw_only=True)

    def shown(self, at: float) -> float:
        """Return what the clock shows at a moment."""
        return BEGAN + at + self.offset + self.drift * (HOURS + at)


def _node(number: int, part: Part, around: Surroundings, dice: random.Random) -> Node:
    """Return what is known of a node."""
    ranks = tuple(rank_of(number, local) for local in range(RANKS))
    written = part.at - dice.uniform(0.0, WRITE_DELAY) * (not part.state)
    log_end = None if around.disk is None else BEGAN + around.disk + written
    if not (part.state and around.is_read):
        problem = "no report" if dice.random() < 0.5 else "incomplete report"
        return Node(number=number, rank_ids=ranks, problem=problem, log_end=log_end)
    node = node_of(Members(_report(number, part, around, dice)), number)
    steps = {step: round(around.shown(STEP * (step - 10)), 3) for step in range(11)} if around.has_steps else {}
    return attrs.evolve(node, log_end=log_end, is_current=not part.is_old, steps=steps)


def _report(number: int, part: Part, around: Surroundings, dice: random.Random) -> dict[str, object]:
    shown, disk, round_trip = around.shown, around.disk, dice.uniform(0.0003, 0.3)
    offset = None if disk is None else BEGAN + part.at + disk - shown(part.at) + dice.uniform(-0.5, 0.5) * round_trip
    consequences = {Kind.SECONDARY.value: (True, True), Kind.EITHER.value: (True, False)}
    may_be_a_peer, is_a_consequence = consequences.get(part.code_kind, (False, False))
    return {
        "state": part.state,
        "started_at": _iso(shown(-HOURS)),
        "ended_at": _iso(shown(part.at)),
        "cause": {
            "kind": part.kind,
            "sentence": part.exception,
            "rank_id": rank_of(number) if part.kind == "rank_failed" else None,
            "certainty": part.certainty.value if part.kind == "rank_failed" else "",
            "may_be_a_peer": may_be_a_peer,
            "is_a_consequence": is_a_consequence,
        },
        "ranks": list(_ranks(number, part, shown)),
        "hang": [{"rank_ids": [rank_of(number, local)], "frames": [place]} for local, place in enumerate(part.stacks)],
        "clock": {
            "wall_start": shown(-HOURS),
            "monotonic_start": 0.0,
            "wall_end": shown(part.at),
            "monotonic_end": shown(part.at) - shown(-HOURS),
            "max_error": around.max_error,
            "is_synchronized": around.max_error is not None,
            "disk_offset": offset,
            "disk_round_trip": round_trip,
        },
    }


def _ranks(number: int, part: Part, shown: Callable[[float], float]) -> Iterator[dict[str, object]]:
    finding = {
        "exception": part.exception,
        "code": part.code,
        "code_kind": part.code_kind,
        "is_out_of_memory": part.is_oom,
        "points_at": [{"rank_id": rank_id} for rank_id in part.names],
    }
    for local in range(RANKS):
        has_failed = local == 0 and part.kind == "rank_failed"
        yield {
            "rank_id": rank_of(number, local),
            "exit_code": None if part.signal else int(has_failed),
            "signal": part.signal or None,
            "ended_at": _iso(shown(part.at)),
            "last_output_at": _iso(shown(part.at)),
            "finding": finding if has_failed else None,
        }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def grid(counts: Sequence[int] = COUNTS, seeds: int = 1, names: Iterable[str] = SCENES) -> Iterator[World]:
    """Yield the worlds of some scenes."""
    for name in names:
        for clock in CLOCKS:
            for count in counts:
                for missing in range(MOST_MISSING + 1):
                    for seed in range(seeds):
                        yield World(name=name, clock=clock, count=count, missing=missing, seed=seed)


@attrs.frozen
class Result:
    """Whether the cause was named, and whether a wrong one was called certain."""

    is_named: bool
    is_wrong: bool
    is_certain: bool


def result(world: World) -> Result:
    """Compare the verdict on a world with the truth."""
    made, found = world.judge()
    named = {suspect.node.number for suspect in found.suspects}
    is_certain = bool(named) and found.certainty is Certainty.CERTAIN
    return Result(
        is_named=bool(named & made.culprits) if made.culprits else not is_certain,
        is_wrong=is_certain and not named <= made.culprits,
        is_certain=is_certain,
    )


# The share of the worlds with 2 and 8 nodes in which the cause must be among those named. It is less than 1 where the
# reports that are missing are the evidence.
NAMED: Final = dict.fromkeys(SCENES, 1.0) | {
    "own_error_and_stop": 0.7,
    "own_error_in_a_ring": 0.95,
    "second_error_named": 0.9,
    "second_error_unnamed": 0.75,
    "second_error_in_a_ring": 0.7,
    "dead_machine_in_a_ring": 0.95,
    "bystander_accused": 0.85,
    "victim_seems_guilty": 0.75,
    "victim_seems_guilty_unnamed": 0.55,
    "wrong_ranks_named": 0.85,
    "slow_reader": 0.8,
    "slow_node_named": 0.75,
    "slow_node_in_a_ring": 0.55,
}
# Scenes in which even all reports may mislead: to a victim whose error looks like one of its own.
MISLEADING: Final = {"second_error_in_a_ring", "victim_seems_guilty", "victim_seems_guilty_unnamed"}
