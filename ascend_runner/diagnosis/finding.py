"""The results of a diagnosis, in plain strings and numbers: for the screen, the report and the library."""

from __future__ import annotations

import enum

import attrs

from ascend_runner.diagnosis.codes import Kind


@attrs.frozen(kw_only=True)
class Peer:
    """The peer that a message names; whatever the message leaves out is None or "".

    `device_id` is HCCL's, counted per server. `rank_id` is the rank in the communicator: it equals RANK_ID in the world
    group, but may differ in a subgroup, so a message's server and device are more reliable than its rank.
    `reported_by` are the failed ranks if all of them only report this peer.
    """

    rank_id: int | None = None
    server_id: str = ""
    device_id: int | None = None
    device_ip: str = ""
    reported_by: tuple[int, ...] = ()


class Certainty(enum.Enum):
    """The certainty that a rank caused the failure."""

    CERTAIN = "certain"
    LIKELY = "likely"
    OPEN = "open"


@attrs.frozen(kw_only=True)
class RootCause:
    """The rank that caused a failure, with the reason in one line.

    With `may_be_a_peer`, its evidence does not exclude that another rank has failed before, here or elsewhere, and with
    `is_a_consequence`, it says so.
    `alike` are the ranks that failed for the same reason, this one included. `candidates` are the ranks that may have
    caused a failure whose cause is open, the likeliest first, or the others that report an error where it is likely.
    `look_at` names the other nodes one of which is the cause if all failed ranks of this node only lost a peer; then
    their ranks are the candidates.
    """

    rank_id: int
    summary: str
    certainty: Certainty = attrs.field(converter=Certainty)
    first_summary: str = ""
    may_be_a_peer: bool = False
    is_a_consequence: bool = False
    alike: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    look_at: str = ""

    def summary_of(self, rank_id: int | None) -> str:
        """Return the reason of this rank if it is the cause, else that of the first rank to end."""
        return self.summary if rank_id == self.rank_id else self.first_summary

    @property
    def is_open(self) -> bool:
        """Whether it is not known which rank is the cause."""
        return self.certainty is Certainty.OPEN


@attrs.frozen(kw_only=True)
class Finding:
    """Everything that is known about why a rank ended. Each string is bounded, safe for a terminal, and "" if empty.

    `exception` and `place` are the short form of the last Python exception ("ValueError: loss is nan at step 17",
    "train.py:212 in train_step"), `origin` and `origin_place` that of the exception at the start of the chain, if that
    says more. Without a traceback `exception` is what else the log says, such as a crash of native code.
    `traceback` holds its lines; `last_lines` is always filled, and `excerpt` is what fits on a screen of either.
    `code` is the first CANN or HCCL code (or telling phrase), `code_kind` whether it is usually the root cause or
    points at a peer, `points_at` those peers; with `is_connection`, it reports a lost connection, see `codes.Code`.
    `next` is what to do about it.
    `peer_addresses` are the addresses and host names of peers in the error, which may belong to this node; without a
    traceback or a code, those in the last words.
    `plog_error` is the first ERROR line of the newest plog, `plog_path`.
    With `is_in_collective`, the exception was raised where ranks talk to each other; with `only_passes_on`, it speaks
    of another one that the log does not contain; with `is_weak`, it is a record that the rank may have survived.
    With `is_out_of_memory`, the OOM killer was active when the rank was killed. `meaning` explains the exit status.
    `summary` is the cause in one line: the innermost statement, which is not always `exception`; "" if there is none.
    """

    meaning: str = ""
    exception: str = ""
    place: str = ""
    origin: str = ""
    origin_place: str = ""
    traceback: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()
    excerpt: tuple[str, ...] = ()
    code: str = ""
    code_meaning: str = ""
    next: str = ""
    code_kind: str = ""
    code_line: str = ""
    points_at: tuple[Peer, ...] = ()
    peer_addresses: tuple[str, ...] = ()
    plog_path: str = ""
    plog_error: str = ""
    is_connection: bool = False
    is_in_collective: bool = False
    only_passes_on: bool = False
    is_weak: bool = False
    is_out_of_memory: bool = False
    summary: str = attrs.field(
        default=attrs.Factory(lambda self: self.exception or self.code_line or self.code, takes_self=True)
    )

    @property
    def has_native_stack(self) -> bool:
        """Whether the log has the stack of a crash of native code."""
        return bool(self.place) and self.exception.startswith(("Fatal Python error: ", "SIG", "Signal: "))

    @property
    def only_reports_a_peer(self) -> bool:
        """Whether it is a consequence of the failure of another rank."""
        return self.kind is Kind.SECONDARY

    @property
    def kind(self) -> Kind:
        """The usual place of the cause, by the code, else by where the exception was raised.

        A rank without a code that was not talking to others, and that refers to no other error, has failed by itself.
        """
        if not self.code or self.is_weak:
            return Kind.EITHER if self.is_in_collective or self.only_passes_on or self.is_weak else Kind.ROOT
        return Kind.SECONDARY if self.is_connection and self.is_in_collective else Kind(self.code_kind)


@attrs.frozen(kw_only=True)
class StackGroup:
    """Ranks with the same innermost frames; `frames` is the stack of the first of them.

    `has_changed` tells whether they were different at half of the limit (None: unknown).
    """

    rank_ids: tuple[int, ...]
    state: str
    frames: tuple[str, ...]
    has_changed: bool | None = None


@attrs.frozen(kw_only=True)
class CollectiveGroup:
    """Ranks at the same place in the collectives of one process group, or in its transfers between two ranks.

    Of ranks whose flight recorder has dumped nothing that can be read, neither the group nor the number is known.
    """

    group: str = ""  # its name and description: "0 (default_pg)"
    rank_ids: tuple[int, ...] = ()
    number: int | None = None  # of the collective in its process group, from 1; 0: they have called none
    name: str = ""  # "all_reduce"; "": unknown
    elements: int | None = None  # of the tensors, for a collective in which they must be the same; None: unknown
    is_waiting: bool = False  # whether it is not complete; otherwise it is the last one that they have called
    is_transfer: bool = False  # whether it sends or receives something between two ranks
    is_early: bool = (
        False  # whether this is from dumps made shortly before the limit, because there are none from the limit
    )
