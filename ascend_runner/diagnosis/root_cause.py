"""Decides which rank caused the failure of a job and how certain that is, or which peer all failed ranks suspect.

Even if the kernel's order is known, a rank that reports a peer gives way: a dying process closes its connections first
and takes a while to exit.

The first rank to end is not always the first to fail: a rank that fails closes its connections while it still cleans
up, and a peer that notices ends earlier. So the rank with the strongest evidence is named, also where the runner
stopped it, and the first to end where nothing is stronger.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from signal import SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGTERM
from typing import Final

import attrs

from ascend_runner import programs
from ascend_runner.diagnosis import endings
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.endings import Circumstances, signal_behind
from ascend_runner.diagnosis.finding import Certainty, Finding, Peer, RootCause
from ascend_runner.rank_table.model import Device, RankTable
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import folded, rank_list

FAULTS: Final = frozenset({SIGSEGV, SIGBUS, SIGILL, SIGFPE})
FROM_OUTSIDE: Final = frozenset({SIGTERM, SIGINT, SIGKILL, SIGHUP})
INTERRUPTIONS: Final = frozenset({"keyboard-interrupt", "signal-exception"})  # what Python raises after a signal


class Suspicion(enum.IntEnum):
    """The likelihood that a rank is the first cause, most likely first."""

    FAILED_BY_ITSELF = 0
    ENDED_FROM_OUTSIDE = 1
    ENDED_SILENTLY = 2
    ITSELF_OR_A_PEER = 3
    REPORTS_A_PEER = 4
    STOPPED = 5  # by the runner, without any sign of a failure


@attrs.frozen(kw_only=True)
class Death:
    """A rank that did not exit with status 0, and the evidence about it.

    With `is_stopped`, the runner asked it to stop; the evidence is then from before that moment.
    """

    rank_id: int
    ending: Ending
    evidence: Finding = attrs.field(factory=Finding)
    is_stopped: bool = False

    @property
    def summary(self) -> str:
        """Why it ended, in one line."""
        return self.evidence.summary or str(self.ending)


@attrs.frozen
class Place:
    """The server and device of a rank, from the rank table."""

    server_id: str
    device_id: int


def places(table: RankTable) -> dict[int, Place]:
    """Return the places of all ranks of a table."""
    return {
        device.rank_id: Place(server.server_id, device.device_id)
        for server in table.servers
        for device in server.devices
    }


@attrs.frozen(kw_only=True)
class NodePlace:
    """A node of the job: its number by its first rank, its ranks, and all names that messages may give it."""

    number: int
    pod_name: str
    server_id: str
    rank_ids: tuple[int, ...]
    names: frozenset[str]

    def __str__(self) -> str:
        pod = f"pod {self.pod_name}, " if self.pod_name else ""
        return f"node {self.number} ({pod}{self.server_id}), {rank_list(self.rank_ids)}"


def nodes(table: RankTable) -> tuple[NodePlace, ...]:
    """Return the nodes of a table, which are its pods if it has any."""
    members: dict[tuple[str, str], list[Device]] = {}
    for server in table.servers:
        for device in server.devices:
            members.setdefault((device.pod_name, server.server_id), []).append(device)
    addresses = {server.server_id: server.addresses for server in table.servers}
    ordered = sorted(members.items(), key=lambda item: item[1][0].rank_id)
    return tuple(
        NodePlace(
            number=number,
            pod_name=pod_name,
            server_id=server_id,
            rank_ids=tuple(device.rank_id for device in devices),
            names=frozenset(
                _plain(name)
                for listed in (pod_name, server_id, *addresses[server_id], *(device.device_ip for device in devices))
                for name in listed.split(",")
                if name
            ),
        )
        for number, ((pod_name, server_id), devices) in enumerate(ordered)
    )


def _plain(name: str) -> str:
    """Normalize an address from a message: unwrap an IPv4-mapped IPv6 address, and drop a zone index."""
    return name.lower().removeprefix("::ffff:").partition("%")[0]


def suspicion(death: Death) -> Suspicion:
    """Judge one rank by itself.

    A rank that ran out of memory failed by itself. A rank that was ended or interrupted from outside precedes those
    that report a peer: they report it because it is gone, or were ended by the same sender. A stopped rank that died of
    a fault may have had it before: a process ends only when the kernel has written its core dump.
    """
    signum, evidence = signal_behind(death.ending), death.evidence
    if death.is_stopped and not evidence.summary:
        return Suspicion.ITSELF_OR_A_PEER if death.ending.signum in FAULTS else Suspicion.STOPPED
    is_interrupted = evidence.code in INTERRUPTIONS
    if death.is_stopped and not is_interrupted:
        return _SUSPICIONS[evidence.kind]
    if is_interrupted or (signum in FROM_OUTSIDE and not evidence.is_out_of_memory):
        return Suspicion.ENDED_FROM_OUTSIDE
    if not (evidence.summary or signum):
        return Suspicion.ENDED_SILENTLY
    return _SUSPICIONS[evidence.kind]


_SUSPICIONS: Final[Mapping[Kind, Suspicion]] = {
    Kind.ROOT: Suspicion.FAILED_BY_ITSELF,
    Kind.EITHER: Suspicion.ITSELF_OR_A_PEER,
    Kind.SECONDARY: Suspicion.REPORTS_A_PEER,
}


def by_suspicion(deaths: Iterable[Death], *, is_ordered: bool = False) -> tuple[Death, ...]:
    """Sort the ranks of one wake-up, most likely first cause first; the sort is stable.

    With `is_ordered` they are in the order in which the kernel saw them end, and that order decides between all ranks
    that do not report a peer.
    """
    least = Suspicion.ENDED_FROM_OUTSIDE if is_ordered else Suspicion.FAILED_BY_ITSELF
    return tuple(sorted(deaths, key=lambda death: max(least, suspicion(death))))


def suspected_peer(deaths: Sequence[Death], places: Mapping[int, Place]) -> Peer | None:
    """Return the peer that the failed ranks report, or None unless all of them only report peers.

    Such reports form chains (4 waits for 3, which waits for 2, which has died), so a peer that reports no other
    precedes, then the one that most ranks report. `places` holds the known ones of the job's ranks.
    """
    deaths = [death for death in deaths if suspicion(death) is not Suspicion.STOPPED]
    if not deaths or any(suspicion(death) is not Suspicion.REPORTS_A_PEER for death in deaths):
        return None

    reporters: dict[Peer, list[int]] = {}
    for death in deaths:
        for peer in {attrs.evolve(located(peer, places), device_ip=""): None for peer in death.evidence.points_at}:
            if peer.rank_id != death.rank_id:
                reporters.setdefault(peer, []).append(death.rank_id)
    if not reporters:
        return None

    failed = {death.rank_id for death in deaths}
    likeliest = min(reporters, key=lambda peer: (peer.rank_id in failed, -len(reporters[peer])))
    return attrs.evolve(likeliest, reported_by=tuple(reporters[likeliest]))


def lost_nodes(
    deaths: Sequence[Death], nodes: Sequence[NodePlace], places: Mapping[int, Place]
) -> Sequence[NodePlace] | None:
    """Return the other nodes that the failed ranks of this node name most if all of them only lost a peer.

    The result is empty if they name none, and None if a rank of this node may be the cause: if it failed by itself or
    in an unknown way, if they name it, or if it was doing something else than the others when it was stopped.
    """
    own = {death.rank_id for death in deaths}
    failed = [death for death in deaths if suspicion(death) is not Suspicion.STOPPED]
    failed = [_as_lost(death, nodes, own) for death in failed]
    if not failed or any(suspicion(death) is not Suspicion.REPORTS_A_PEER for death in failed):
        return None
    named = [node for death in failed for node in _nodes_of(death.evidence, nodes, places)]
    others = Counter(node for node in named if own.isdisjoint(node.rank_ids))
    if others:
        most = max(others.values())
        return [node for node in nodes if others[node] == most]
    return None if named or _outliers(deaths) else ()


def _as_lost(death: Death, nodes: Sequence[NodePlace], own: set[int]) -> Death:
    """Return a rank as one that reports a peer if its last words, without a traceback, name only another node."""
    evidence = death.evidence
    named = [_node_named((name,), nodes) for name in evidence.peer_addresses]
    is_bare = not evidence.traceback and (evidence.is_connection or not evidence.code)
    if not (is_bare and named and all(node and own.isdisjoint(node.rank_ids) for node in named)):
        return death
    code, kind = evidence.code or "lost", Kind.SECONDARY.value
    evidence = attrs.evolve(evidence, code=code, code_kind=kind, is_weak=False, summary=evidence.summary or code)
    return attrs.evolve(death, evidence=evidence)


def _nodes_of(evidence: Finding, nodes: Sequence[NodePlace], places: Mapping[int, Place]) -> set[NodePlace]:
    """Return the nodes that an error names; an address is more reliable than a rank, which may be one of a subgroup."""
    found: list[NodePlace] = []
    for peer in (located(peer, places) for peer in evidence.points_at):
        named = _node_named((peer.server_id, peer.device_ip), nodes)
        found += [named] if named else [node for node in nodes if peer.rank_id in node.rank_ids]
    by_address = () if found else (_node_named((name,), nodes) for name in evidence.peer_addresses)
    return {*found, *filter(None, by_address)}


def _node_named(names: Iterable[str], nodes: Sequence[NodePlace]) -> NodePlace | None:
    """Return the only node that has one of these names; a host name may be followed by its domain."""
    plain = {_plain(name) for name in names if name}
    hosts = {name.partition(".")[0] for name in plain if not _ADDRESS.fullmatch(name)}
    found = [node for node in nodes if not node.names.isdisjoint(plain | hosts)]
    return found[0] if len(found) == 1 else None


_ADDRESS: Final = re.compile(r"[\d.]+|.*:.*")


def located(peer: Peer, places: Mapping[int, Place]) -> Peer:
    """Complete a peer from the rank table: server and device determine the rank, and a rank determines both."""
    if peer.server_id and peer.device_id is not None:
        place = Place(peer.server_id, peer.device_id)
        rank_id = next((rank_id for rank_id, known in places.items() if known == place), peer.rank_id)
        return attrs.evolve(peer, rank_id=rank_id)
    if peer.rank_id is not None and peer.rank_id in places:
        known = places[peer.rank_id]
        return attrs.evolve(peer, server_id=known.server_id, device_id=known.device_id)

    return peer


CANDIDATES: Final = 3  # ranks named where the cause is open


def find(deaths: Sequence[Death], first_exit: int, suspected: Peer | None) -> RootCause:
    """Find the root cause among `deaths`, which are in the order of their ends and contain `first_exit`."""
    first = next(death for death in deaths if death.rank_id == first_exit)
    said = Counter(map(_words, deaths))
    echoes = {death.rank_id for death in deaths if _words(death)[1] and said[_words(death)] > 1}
    echoes -= {death.rank_id for death in deaths if death.evidence.code}
    root = min(deaths, key=lambda death: (*_weight(death, echoes), death is not first, death.is_stopped))
    alike = [death for death in deaths if death is root or _is_alike(death, root)]
    others = [death for death in deaths if death not in alike]
    certainty = _certainty(root, first, others, is_echo=root.rank_id in echoes)
    candidates = [] if suspected is None or suspected.rank_id is None else [suspected.rank_id]
    rivals = [death for death in (root, *others) if suspicion(death) is suspicion(root)]
    if certainty is Certainty.OPEN:
        by_words: dict[tuple[Suspicion, str], int] = {}
        for death in sorted(rivals, key=lambda death: death.rank_id not in candidates):
            by_words.setdefault(_words(death), death.rank_id)
        candidates += [*_outliers(deaths), *(by_words[words] for words in sorted(by_words, key=said.__getitem__))]
    elif certainty is Certainty.LIKELY:
        candidates += [death.rank_id for death in rivals[1:]]

    return RootCause(
        rank_id=root.rank_id,
        summary=root.summary,
        certainty=certainty,
        first_summary=first.summary,
        may_be_a_peer=suspicion(root) >= Suspicion.ITSELF_OR_A_PEER,
        is_a_consequence=suspicion(root) is Suspicion.REPORTS_A_PEER,
        alike=tuple(sorted(death.rank_id for death in alike)),
        candidates=tuple(dict.fromkeys(candidates))[:CANDIDATES],
    )


def _words(death: Death) -> tuple[Suspicion, str]:
    """Return what a rank says, apart from numbers: the error in its log, or else the last line, without a number."""
    last = "".join(death.evidence.last_lines[-1:])
    text = death.evidence.summary or ("" if re.search(r"\d", last) else last)  # the number may be a step
    return suspicion(death), folded(text)


def is_open(failed: Death, living: Iterable[Death]) -> bool:
    """Whether a rank reports what may be a lost peer, and no living rank has reported a failure of its own.

    `living` is read only as far as necessary: to search the output of all ranks can take longer than to stop them.
    """
    if suspicion(failed) not in {Suspicion.ITSELF_OR_A_PEER, Suspicion.REPORTS_A_PEER}:
        return False
    return all(suspicion(death) is not Suspicion.FAILED_BY_ITSELF for death in living)


def _weight(death: Death, echoes: Collection[int]) -> tuple[int, bool]:
    """Order ranks by the strength of their evidence, the strongest first.

    A rank that was stopped may have printed an error that it survived, so that it yields to one that somebody killed.
    If several ranks say the same in unknown words, they may have noticed the failure of one that says something else.
    """
    found, is_echo = suspicion(death), death.rank_id in echoes
    is_own = found is Suspicion.FAILED_BY_ITSELF
    is_weaker = 4 + death.is_stopped if is_echo else 3 * death.is_stopped
    return (is_weaker if is_own else 2 * found), is_echo


def _certainty(root: Death, first: Death, others: Sequence[Death], *, is_echo: bool) -> Certainty:
    """Return how certain a cause is; with `is_echo` several ranks say the same, in words that are not known."""
    found = suspicion(root)
    rivals = [death for death in others if suspicion(death) is found]
    if found is Suspicion.REPORTS_A_PEER or (found is Suspicion.ITSELF_OR_A_PEER and rivals):
        return Certainty.OPEN
    if root.evidence.is_connection and any(death.is_stopped for death in others):
        return Certainty.OPEN  # the peer may have been stopped while it still cleaned up after its failure
    if found is not Suspicion.FAILED_BY_ITSELF or rivals or (is_echo and others):
        return Certainty.LIKELY
    if root is first or (root.evidence.kind is Kind.ROOT and not (root.is_stopped and root.ending.signum)):
        return Certainty.CERTAIN
    return Certainty.LIKELY


def _outliers(deaths: Sequence[Death]) -> list[int]:
    """Return the few stopped ranks with a last line that differs, apart from numbers, from all others.

    The only rank that writes is usually the one that logs the steps, unless its line has no number.
    """
    by_line: dict[str, list[int]] = {}
    for death in deaths:
        if suspicion(death) is Suspicion.STOPPED:
            by_line.setdefault(folded("".join(death.evidence.last_lines[-1:])), []).append(death.rank_id)
    if len(by_line) != 2:  # noqa: PLR2004  a group, and what differs from it
        return []
    (line, few), (usual, most) = sorted(by_line.items(), key=lambda group: len(group[1]))
    is_outlier = len(few) < min(len(most), CANDIDATES) and bool(line) and bool(usual or "0" not in line)
    return few if is_outlier else []


def _is_alike(death: Death, root: Death) -> bool:
    """Whether two ranks failed for the same reason: errors of their own that differ at most in numbers."""
    is_own = suspicion(death) is suspicion(root) is Suspicion.FAILED_BY_ITSELF
    return is_own and folded(death.summary) == folded(root.summary)


@attrs.frozen(kw_only=True)
class Diagnosis:
    """Why ranks failed: a finding for each rank id, the rank that caused it, and the peer that all report, if any.

    `root` is None where no rank has ended by itself first.
    """

    findings: Mapping[int, Finding]
    suspected_peer: Peer | None
    root: RootCause | None


def diagnose(
    deaths: Sequence[Death],
    circumstances: Circumstances,
    places: Mapping[int, Place],
    first_exit: int | None = None,
    nodes: Sequence[NodePlace] | None = None,
) -> Diagnosis:
    """Explain why ranks failed.

    `deaths` are in the order of their ends, `places` holds the known server and device of each rank of the whole job,
    and `first_exit` is the rank that ended first by itself, if any did. `nodes` are the known nodes of a job on
    several nodes, None if this node runs the whole job.
    """
    suspected = suspected_peer(deaths, places)
    root = None if first_exit is None else find(deaths, first_exit, suspected)
    elsewhere = None if nodes is None or root is None else lost_nodes(deaths, nodes, places)
    if root and elsewhere is not None:
        look_at = " or ".join(map(str, elsewhere[:CANDIDATES])) or "the other nodes"
        ranks = tuple(rank_id for node in elsewhere for rank_id in node.rank_ids)
        root = attrs.evolve(root, look_at=look_at, candidates=ranks)
        kind = Kind.SECONDARY.value  # in other jobs, the rank to blame may be the one that lost a connection
        deaths = [attrs.evolve(one, evidence=attrs.evolve(one.evidence, code_kind=kind)) for one in deaths]
    return Diagnosis(
        findings={
            death.rank_id: _finding(death, circumstances, places)
            for death in deaths
            if suspicion(death) is not Suspicion.STOPPED
        },
        suspected_peer=suspected,
        root=root,
    )


def _finding(death: Death, circumstances: Circumstances, places: Mapping[int, Place]) -> Finding:
    evidence = death.evidence
    code_meaning = _code_meaning(evidence, circumstances)
    is_explained = code_meaning and signal_behind(death.ending) not in FROM_OUTSIDE  # as the crash is a consequence
    return attrs.evolve(
        evidence,
        meaning="" if is_explained else _meaning(death, circumstances),
        code_meaning=code_meaning,
        points_at=tuple(located(peer, places) for peer in evidence.points_at),
    )


def _code_meaning(evidence: Finding, circumstances: Circumstances) -> str:
    package = _PACKAGE.search(evidence.code_line) if evidence.code == "no-module-named" else None
    missing = f": {package[1]}{programs.suggestion(package[1].partition('.')[0])}" if package else ""
    meaning = f"{evidence.code_meaning}{missing}"
    return "; ".join(filter(None, (meaning, endings.beside(evidence.code, circumstances))))


_PACKAGE: Final = re.compile(r"No module named '?([\w.]+)", re.IGNORECASE)


def _meaning(death: Death, circumstances: Circumstances) -> str:
    """Explain how a rank ended.

    That of one that was stopped, or that has an exit status, is the crash that it reports, which may be its child's.
    """
    evidence, ending = death.evidence, death.ending
    if not endings.signal_behind(ending) or (death.is_stopped and ending.signum not in endings.CRASHES):
        ending = Ending(signum=crash_in(evidence))
    is_consequence = evidence.kind is Kind.SECONDARY
    return endings.meaning(
        ending,
        circumstances,
        evidence.exception,
        has_stack=evidence.has_native_stack,
        is_consequence=is_consequence,
    )


def crash_in(evidence: Finding) -> int:
    """Return the signal of the crash that is reported in the evidence, 0 if there is none."""
    return next((signum for form, signum in _CRASHES if form.match(evidence.exception)), 0)


_CRASHES: Final = tuple(
    (re.compile(pattern), signum)
    for pattern, signum in (
        (r"(?:Fatal Python error|Signal): Segmentation fault|SIGSEGV|Caught signal 11\b|Segfault", SIGSEGV),
        (r"(?:Fatal Python error|Signal): Bus error|SIGBUS|Caught signal 7\b", SIGBUS),
        (r"(?:Fatal Python error|Signal): Aborted|SIGABRT|(?:std|c10)::\w+", SIGABRT),
        (r"\w+\(\): |(?:\S+:\d+\] )?Check failed|double free|corrupted (?:size|double)", SIGABRT),
        (r"terminate called|pure virtual", SIGABRT),
        (r"(?:Fatal Python error|Signal): Illegal instruction|SIGILL", SIGILL),
        (r"(?:Fatal Python error|Signal): Floating point exception|SIGFPE", SIGFPE),
        (r"Fatal Python error: ", SIGABRT),
    )
)
