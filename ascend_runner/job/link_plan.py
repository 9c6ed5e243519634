"""Whether and how the runner of this node is linked to those of the other nodes: the last part of the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import SettingsError, reason
from ascend_runner.job import command as commands
from ascend_runner.link import meeting
from ascend_runner.plan.ranks import PlanContext
from ascend_runner.plan.spec import JobSpec, LinkPlan
from ascend_runner.platforms import detect
from ascend_runner.platforms.node import Node
from ascend_runner.settings.options import LINK_REQUIRED
from ascend_runner.settings.parsing import OFF
from ascend_runner.text import counted

if TYPE_CHECKING:
    from ascend_runner.rank_table import RankTable

HASH_LENGTH: Final = 12  # characters of the hash of a rank table


def linked(
    spec: JobSpec, context: PlanContext, node: Node, table: RankTable | None, say: Callable[[str], None]
) -> JobSpec:
    """Return a plan with its link to the other nodes, if it can have one.

    Raises:
        SettingsError: The secret cannot be used, or --link require cannot be kept.
    """
    settings = context.settings
    is_required, why = settings.link == LINK_REQUIRED, why_not(spec, context, node)
    if why and is_required:
        raise SettingsError(f"--link require is not possible: {why}")
    if why:
        say(f"this node is not linked to the others: {why}")
    return spec if why else attrs.evolve(spec, link=_plan(context, node, table))


def _plan(context: PlanContext, node: Node, table: RankTable | None) -> LinkPlan:
    settings = context.settings
    identity = meeting.identity_of(detect.job_id(context.environ), context.job_id, node.master_port)
    try:
        secret = meeting.secret_of(context.environ, lambda path: Path(path).read_bytes())
    except OSError as error:
        raise SettingsError(f"cannot read the file of {meeting.SECRET_FILE}: {reason(error)}") from error
    ports = (settings.link_port,) if settings.link_port else ()
    return LinkPlan(
        node=node.node_rank,
        nodes=node.nnodes,
        key=meeting.derive_key(identity, secret),
        hubs=meeting.candidates(table, context.environ, node.master_addr),
        ports=ports or meeting.derive_ports(identity, context.environ, {node.master_port}),
        timeout=settings.link_timeout,
        node_timeout=settings.node_timeout,
        is_required=settings.link == LINK_REQUIRED,
        table=_named(table) if table else "",
    )


def _named(table: RankTable) -> str:
    """Return a hash of a rank table, and what people are told of it, as `link.messages.Local` has them."""
    hashed = hashlib.sha256(table.data).hexdigest()[:HASH_LENGTH]
    counts = f"{counted(len(table.servers), 'server')}, {counted(len(table.devices), 'device')}"
    return f"{hashed} {table.source} ({counts})"


def why_not(spec: JobSpec, context: PlanContext, node: Node | None) -> str:
    """Return why a node is not linked to others, "" if it is."""
    engine = commands.engine_of_all_nodes(context, node)
    is_named = bool(node and meeting.candidates(None, context.environ, node.master_addr))
    reasons = {
        "--link off": context.settings.link == OFF,
        "another launcher has started this process": node is None or spec.is_passed_through,
        "the job has only one node": node is not None and node.nnodes == 1,
        "the framework recovers from failures by itself": bool(spec.stopping.recovery),
        f"{engine} starts the processes of all nodes": bool(engine),
        "the address of node 0 is unknown": not is_named and spec.files.table is None,
    }
    return next((why for why, is_so in reasons.items() if is_so), "")
