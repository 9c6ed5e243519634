"""Finds the plan of a job, or everything that is wrong with it: command, node, rank table, machine and variables.

A check is skipped only if it depends on one that failed. Cheap checks come first: a missing command is reported before
the runner waits half an hour for a rank table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.engines import node_0
from ascend_runner.engines.registry import DIRECT
from ascend_runner.errors import AscendRunnerError, RankTableError, SettingsError, reason
from ascend_runner.frameworks import conflicts, env_patch
from ascend_runner.frameworks.conflicts import Remedy
from ascend_runner.frameworks.registry import without_auto
from ascend_runner.guardian import process_tree
from ascend_runner.job import command as commands
from ascend_runner.node import cores, executables, network, npus
from ascend_runner.node.host import Host
from ascend_runner.plan import ranks
from ascend_runner.plan.ranks import (
    UNCHANGED,
    Command,
    Kind,
    NodeShare,
    PlanContext,
    Seats,
    launch_context,
    plan_job,
    plan_ranks,
)
from ascend_runner.plan.spec import JobSpec, TableFile
from ascend_runner.platforms import detect
from ascend_runner.platforms.detect import SingleProcess
from ascend_runner.platforms.node import FREE_PORT, HIGHEST_PORT, Node, hccl_ports
from ascend_runner.problems import Collector, Problem, Severity, Subject, error, warning
from ascend_runner.ranks.messages import Messages
from ascend_runner.record.facts import Fact
from ascend_runner.settings import command_line
from ascend_runner.settings.options import LINK_REQUIRED
from ascend_runner.settings.parsing import OFF
from ascend_runner.supervision.causes import InspectAction, NodeFinding, WatchAction
from ascend_runner.views import screen

if TYPE_CHECKING:
    from ascend_runner.rank_table import RankTable
    from ascend_runner.services.inspector import Inspector


def recovery_notes(plan: JobSpec, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence if the framework recovers from the failure of a rank by itself."""
    if len(plan.ranks) > 1 and plan.stopping.recovery:
        variable, seconds = env_patch.recovery(environ)
        yield (
            f"{variable} is set, so the framework recovers by itself: when a rank fails, the others are not stopped for"
            f" up to {seconds:g} s"
        )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Preparation:
    """The plan, all problems, and the facts that were found on the way (None: not found).

    `plan` may exist in spite of errors that do not concern it, such as a missing command. `error` is the first error as
    an exception; its class and exit status are the same as in the run. `why` says how the node's place was recognized.
    """

    context: PlanContext
    plan: JobSpec | None
    node: Node | None
    table: RankTable | None
    why: str
    share: NodeShare | None = None
    plan_with_table: Callable[[TableFile], JobSpec] | None = None  # None: the ranks read none
    problems: tuple[Problem, ...] = ()
    error: AscendRunnerError | None = None
    outline: JobSpec | None = None  # what is known of a job with an error, and its link to the other nodes

    def job(self, table: TableFile | None = None) -> JobSpec:
        """Return the plan of a job that can be started; `table` is its rank table at another path.

        Raises:
            AscendRunnerError: It cannot be started; this is the first error.
        """
        if self.error or not self.plan:
            raise self.error or AscendRunnerError("there is no plan")
        return self.plan_with_table(table) if table and self.plan_with_table else self.plan

    def about(self, subject: Subject) -> tuple[Problem, ...]:
        """Return the problems of one subject."""
        return tuple(problem for problem in self.problems if problem.subject is subject)


NAMESPACE_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"  # exists in any pod


def seats(nproc: int, context: PlanContext, say: Callable[[str], None]) -> Seats:
    """Find the NPUs of the ranks, as far as they are known, and the cores that --bind requests for them."""
    host = Host()
    devices = npus.of_ranks(host, nproc, env_patch.visible_devices(context.environ))
    if not context.settings.bind or env_patch.binds_itself(context.environ):
        return Seats(device_ids=devices)
    placement = cores.place(host, context.settings.bind, nproc, devices)
    if not placement.is_near:
        say("--bind divides the cores evenly: the NUMA node of each NPU is unknown")
    return Seats(device_ids=devices, cores=tuple(placement.cores))


def device_ids(spec: JobSpec, environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the NPUs of this node that a job uses, as far as they exist."""
    host, visible = Host(), env_patch.visible_devices(environ)
    return npus.of_ranks(host, len(spec.ranks), visible) if spec.ranks else npus.devices(host)


def choose_port(share: NodeShare, context: PlanContext, say: Callable[[str], None]) -> NodeShare:
    """Reserve the port of node 0; if neither the user nor the platform has named it, a single node chooses one."""
    node = share.node
    first, is_given = node.master_port, node.nnodes > 1 or "master_port" in node.sources
    if is_given and node.node_rank > 0:
        return share
    port = context.reserve_port([first] if is_given else ports_from(first, context.environ))
    if is_given or port is None or port == first:
        return share

    say(f"port {first} is in use; using port {port} instead")
    sources = {**node.sources, "master_port": FREE_PORT}
    return attrs.evolve(share, node=attrs.evolve(node, master_port=port, sources=sources))


def ports_from(first: int, environ: Mapping[str, str]) -> Iterator[int]:
    """Yield a port and all above it but HCCL's.

    Those that the kernel may give to a connection before rank 0 binds them come last; the first is 29500 in any case,
    which users and firewalls expect.
    """
    yield first
    hccl, temporary = hccl_ports(environ), network.temporary_ports(Host())
    for is_temporary in (False, True):
        above = range(first + 1, HIGHEST_PORT + 1)
        yield from (port for port in above if port not in hccl and (port in temporary) is is_temporary)


def await_release(
    spec: JobSpec, environ: Mapping[str, str], pause: Callable[[float], None], messages: Messages
) -> None:
    """Wait until no process has the NPUs of a job open."""
    holders = npus.await_release(Host(), device_ids(spec, environ), pause)
    if holders:
        messages.warning(screen.held_devices(holders))


def note_what_is_missing(spec: JobSpec, messages: Messages) -> None:
    """Report facilities that this system or installation lacks for the job."""
    search_path = spec.processes[0].env.get("PATH", os.defpath)
    ends_hangs = spec.watching.hang_timeout is not None and spec.watching.hang_action is not WatchAction.WARN
    if ends_hangs and not executables.find_py_spy(search_path):
        messages.info(f"{executables.no_py_spy()}: stacks of a hang will show kernel frames instead of Python frames")
    if not process_tree.is_proc_ours():
        messages.warning(
            "/proc is missing or belongs to another PID namespace: stop signals go to whole process groups instead of"
            " to the processes that handle them, and SIGUSR1 and SIGUSR2 are not forwarded (mount /proc, or use"
            " unshare --mount-proc)"
        )


def way_in(spec: JobSpec, environ: Mapping[str, str]) -> str:
    """Return the command that opens a shell where this runner runs, "" if it is unknown."""
    namespace = Host().read_text(NAMESPACE_FILE).strip()
    return detect.way_in(environ, spec.pod_name, os.uname().nodename, namespace)


class NoInspector:
    """The inspector of a job that is not inspected. It does nothing."""

    pids: frozenset[int] = frozenset()

    def observe(self, fact: Fact, at: float) -> None:
        """Ignore a fact."""

    def close(self) -> None:
        """Do nothing."""


def is_inspected(inspect: str | InspectAction | None) -> bool:
    """Return whether this node is inspected while the job runs: as --inspect says, or by default if it has NPUs."""
    return bool(npus.devices(Host())) if inspect is None else InspectAction(inspect) is not InspectAction.OFF


def inspector(
    spec: JobSpec, environ: Mapping[str, str], pass_on: Callable[[NodeFinding], None]
) -> Inspector | NoInspector:
    """Return the inspector of a job."""
    if not is_inspected(spec.watching.inspect):
        return NoInspector()
    from ascend_runner.services.inspector import Inspector  # noqa: PLC0415  15 ms for jobs that are not inspected

    return Inspector(spec, device_ids(spec, environ), environ, pass_on)


@attrs.define(eq=False, repr=False)
class Preparer:
    """Performs the checks and collects the problems. `pause(seconds)` blocks, and raises if a stop signal arrives.

    `begin` is called during a wait with the known facts about the job, and `stage` before a wait for the rank table, to
    copy datasets meanwhile. For a check, a rank table or a host name that is not known yet is a warning. `former` is a
    rank table that holds as long as there is no other one.
    """

    context: PlanContext
    messages: Messages
    pause: Callable[[float], None]
    begin: Callable[[JobSpec], object] | None = None
    stage: Callable[[PlanContext], object] | None = None
    former: RankTable | None = None
    _found: Collector = attrs.field(factory=Collector, init=False)
    _node: Node | None = attrs.field(default=None, init=False)
    _share: NodeShare | None = attrs.field(default=None, init=False)
    _table: RankTable | None = attrs.field(default=None, init=False)
    _plan_with_table: Callable[[TableFile], JobSpec] | None = attrs.field(default=None, init=False)
    _why: str = attrs.field(default="", init=False)
    _chosen_by: str = attrs.field(default="", init=False)  # what has chosen the launcher, "": the option has

    def prepare(self) -> Preparation:
        """Plan the command.

        Raises:
            StopRequestedError: A stop signal arrived during a wait.
        """
        ask, argv = self._found.ask, self.context.command
        ask(Subject.COMMAND, command_line.check, argv)
        if self.context.settings.stage:
            from ascend_runner.job import staging  # noqa: PLC0415  only --stage needs it

            self.context = ask(Subject.SETTINGS, staging.placed, self.context, self.pause) or self.context
        self._complete_environment()
        if misplaced := command_line.misplaced_options(self.context.command):
            self.messages.note(misplaced)
        for sentence in commands.without_effect(self.context):
            self._warn(Subject.SETTINGS, sentence)
        plan = self._plan()
        if plan and self._node:
            plan = self._found.ask(Subject.SETTINGS, self._linked, plan)
        if plan:
            self._check_plan(plan)

        return Preparation(
            context=self.context,
            plan=plan,
            problems=tuple(self._found.problems),
            error=self._found.error,
            outline=self._outline(plan) if self._found.error else None,
            node=self._node,
            share=self._share,
            plan_with_table=self._replan if self._plan_with_table else None,
            table=self._table,
            why=self._why,
        )

    def _read_catalogue(self, path: str) -> None:
        from ascend_runner.diagnosis import catalogue  # noqa: PLC0415  only --catalogue needs it before a failure

        data, faults = catalogue.read(path)
        if faults:
            self._found.add(Subject.SETTINGS, map(error, faults), SettingsError(faults[0]))
        self.context = attrs.evolve(self.context, catalogue=data)

    def _complete_environment(self) -> None:
        """Add the site's catalogue, the conda environment, a TF_CONFIG, and the directory of a relative script."""
        if self.context.settings.catalogue and not self.context.catalogue:
            self._found.ask(Subject.SETTINGS, self._read_catalogue, self.context.settings.catalogue)
        entered = self._found.ask(Subject.SETTINGS, commands.enter_conda, self.context) or self.context
        environ = {**entered.environ, **commands.cluster(entered)}
        self.context = attrs.evolve(entered, resolve=self._resolve, environ=environ)
        if script := commands.script_here(self.context):
            self.context = ranks.in_place(self.context)
            self.messages.note(f"the ranks run in {self.context.cwd}, because {script!r} is there (--workdir inherit)")

    def _plan(self) -> JobSpec | None:
        alone = self._found.ask(Subject.VARIABLES, commands.find_single, self.context)
        if self._is_direct and not alone:
            launcher, self._chosen_by = commands.own_launcher(self.context)
            settings = attrs.evolve(self.context.settings, launcher=launcher)
            self.context = attrs.evolve(self.context, settings=settings)
        if not self._is_direct and not alone:
            self._found.ask(Subject.SETTINGS, ranks.refuse_options_of_ranks, self.context.settings)
        if not self._is_direct or alone:
            self.context = ranks.in_place(self.context)
        if self._found.has_errors(Subject.VARIABLES):  # if ranks may already run, this node's place means nothing
            if self._is_direct:
                self._find_command()
            return None
        return self._plan_single(alone) if alone else self._plan_node()

    # --- The three kinds of plans -------------------------------------------------------------------------------------

    def _plan_single(self, alone: SingleProcess) -> JobSpec | None:
        """Plan one process, because one per device would be wrong."""
        self._why = alone.why
        self.begin = None  # its files have the name of a rank, which may be one of several in this log directory
        with suppress(AscendRunnerError):  # the node's place names the files; no rank depends on it
            self._node = ranks.find_node(self.context, alone.name)
        node = None if alone.is_part or not self._node or self._node.ambiguity else self._node
        if node and node_0.must_wait(alone.name, self.context.command, node) and self._has_name():
            self._found.ask(Subject.SETTINGS, commands.refuse_own_logs, self.context)
            self.messages.note(f"{node_0.WAITING} (use --nnodes 1 to run the command on this node, too)")
            return ranks.plan_waiting(alone, self.context, node)
        command = self._find_command()
        self.messages.note(f"{alone.why} ({alone.hint})" if alone.hint else alone.why)
        if not self._has_name():
            return None
        ask = self._found.ask
        engine = ask(Subject.SETTINGS, ranks.with_hosts, alone.name, self.context, node) if node else None
        if engine and engine.note:
            self.messages.note(engine.note)
        self._warn(Subject.SETTINGS, engine.warning if engine else "")
        return ranks.plan_single(command, alone, self.context, node, engine or UNCHANGED)

    def _plan_node(self) -> JobSpec | None:
        command = self._find_command() if self._is_direct else None
        launcher = self.context.settings.launcher
        self._node = self._found.ask(Subject.VARIABLES, ranks.find_node, self.context, launcher)
        is_unlinked = self.context.settings.link == OFF
        self._refuse_restarts(is_part=is_unlinked and self._node is not None and self._node.nnodes > 1)  # before a wait
        has_name = self._has_name()
        table = self._find_share()
        file = None
        if command and has_name and table and table.devices:
            file = self._place_table(table)
        self._check_variables(file)
        if not self._share or not has_name:
            return None
        if not self._found.error:
            self._share = choose_port(self._share, self.context, self.messages.debug)
            self._node = self._share.node
            self._why = self._node.why
        return self._plan_ranks(command, self._share, file) if command else self._plan_handover(self._share)

    def _linked(self, plan: JobSpec, say: Callable[[str], None] | None = None) -> JobSpec:
        """Add the link to the other nodes, if there are any."""
        node, link = self._node or Node(), self.context.settings.link
        if link == OFF or (node.nnodes == 1 and link != LINK_REQUIRED):
            return plan
        from ascend_runner.job import link_plan  # noqa: PLC0415  most jobs have one node

        return link_plan.linked(plan, self.context, node, self._table, say or self.messages.note)

    def _outline(self, plan: JobSpec | None) -> JobSpec | None:
        """Return what is known of a job that cannot be started, and of its other nodes."""
        if self.context.settings.check or self.context.settings.dry_run:
            return None
        with suppress(AscendRunnerError):  # the job's name or its secret may be what cannot be used
            if not plan and self._node and self._node.is_numbered:
                return self._linked(self._known_part(self._node), say=lambda _sentence: None)
        return plan

    def _replan(self, file: TableFile) -> JobSpec:
        """Plan the ranks with their rank table at another path."""
        if not self._plan_with_table:
            raise ValueError("there is no rank table")
        return self._linked(self._plan_with_table(file))

    def _plan_ranks(self, command: Command, share: NodeShare, file: TableFile | None) -> JobSpec | None:
        """Plan one process per device of this node."""
        places = seats(len(share.rank_ids), self.context, self.messages.note)
        plan = partial(plan_ranks, command, share, self.context, seats=places)
        self._plan_with_table = plan if file else None
        return self._found.ask(Subject.VARIABLES, plan, file)

    def _plan_handover(self, share: NodeShare) -> JobSpec | None:
        """Plan one process of another engine, which starts this node's ranks itself."""
        engine = self._found.ask(Subject.SETTINGS, ranks.hand_over, share, self.context)
        if not engine:
            return None

        if engine.is_waiting:
            self._found.ask(Subject.SETTINGS, commands.refuse_own_logs, self.context)
        name = executable = engine.argv[0]
        if not executables.is_relative(name):
            executable = self._found.ask(Subject.SETTINGS, commands.find_engine, name, self.context) or name
        self.messages.note(f"{self._chosen_by or f'--launcher {self.context.settings.launcher}'}: {engine.note}")
        return self._found.ask(Subject.VARIABLES, ranks.plan_handover, executable, engine, share, self.context)

    # --- Checks -------------------------------------------------------------------------------------------------------

    def _find_command(self) -> Command:
        """Find the program of a command; if it is missing, planning continues with its name."""
        name = program = self.context.command[0]
        # A shell command line has no program, and PATH is unknown if the conda environment is missing. Relative paths
        # are checked by `commands.check_program`.
        if not self._found.error and not executables.is_relative(name):
            program = self._found.ask(Subject.COMMAND, commands.find_program, name, self.context) or name
        if not self.context.has_own_workdirs:
            self._found.ask(Subject.SETTINGS, commands.check_workdir, self.context.workdir(""))
        return Command(program, self.context.command)

    def _has_name(self) -> bool:
        """Whether the job has a usable name, without which nothing can be planned."""
        return bool(self._found.ask(Subject.SETTINGS, lambda: self.context.job_id))

    def _find_share(self) -> RankTable | None:
        """Find this node's ranks by the rank table, which is returned, or else by their number."""
        node = self._node
        if node:
            self._why = node.why
            self.messages.debug(node.why)
        if not ranks.needs_table(self.context, node):
            self._count_ranks(node.devices_per_node if node else None)
            return None

        table = self._table = self._found.ask(Subject.RANK_TABLE, self._read_table)
        if table:
            self._show_table(table)
        if table and not table.devices:  # a job on CPUs: its ranks get no table
            self._count_ranks(None)
        elif table and node:
            self._share = self._found.ask(Subject.NODE, self._find_share_of_table, table, node)
        return table

    def _show_table(self, table: RankTable) -> None:
        from ascend_runner.job import table as tables  # noqa: PLC0415  many jobs have no rank table

        self._found.add(Subject.RANK_TABLE, table.notes)
        for text in tables.texts(table) if self.context.settings.verbose else ():
            self.messages.details(text)

    def _count_ranks(self, devices: int | None) -> None:
        nproc = self.context.settings.nproc_per_node or devices or 1
        if self._node:
            self._share = self._found.ask(
                Subject.VARIABLES, ranks.without_table, nproc, self._node, self.context.host_name
            )

    def _find_share_of_table(self, table: RankTable, node: Node) -> NodeShare:
        if self.context.settings.names_this_node:
            node = attrs.evolve(node, address="")
        share = ranks.agreed(ranks.find_share(table, self.context), table, node)
        if share.node.missing:
            self.messages.info(ranks.missing_nodes(share))
        return share

    def _read_table(self) -> RankTable | None:
        from ascend_runner.job import table as tables  # noqa: PLC0415  many jobs have no rank table

        if self.former:
            return tables.newest(self.context) or self.former
        if self._is_worth_waiting:
            if self._node and self._node.is_numbered:
                self._begin()
            if self.stage:
                self.stage(self.context)
            return tables.wait(self.context, pause=self.pause, say=self._announce)

        found = tables.read(self.context)
        if not isinstance(found, Problem):
            return found
        if self.context.settings.check:
            self._found.add(Subject.RANK_TABLE, [found])
        return None

    def _announce(self, waiting: str) -> None:
        """Report a wait. The job begins now, even if little is known about it."""
        self._begin()
        self.messages.info(waiting)

    def _begin(self) -> None:
        if self.begin and self._node:
            self.begin(self._known_part(self._node))

    def _known_part(self, node: Node) -> JobSpec:
        """Return what is known of a job before its ranks are."""
        share = self._share or ranks.waiting(node, self.context)
        return plan_job(share, self.context, kind=Kind(is_placed=bool(self._share) or node.is_numbered))

    def _place_table(self, table: RankTable) -> TableFile:
        """Return the file of the rank table, after checking it."""
        from ascend_runner.job import table as tables  # noqa: PLC0415  as above

        file = tables.placed(table, self.context)
        if not self.context.settings.no_table_checks:
            problems = tables.check(table, file, self.context)
            error = next((str(one) for one in problems if one.severity is Severity.ERROR), "")
            self._found.add(Subject.RANK_TABLE, problems, RankTableError(error) if error else None)
        return file

    def _check_variables(self, file: TableFile | None) -> None:
        """Find variables that must not be set together, as far as that is possible if the ranks are unknown."""
        if not self._node:
            return
        nproc = self.context.settings.nproc_per_node or 0
        share = self._share or NodeShare(rank_ids=tuple(range(nproc)), rank_size=nproc, node=self._node)
        context = without_auto(launch_context(share, self.context, file))[0]
        for remedy, sentence in conflicts.find(context):
            if remedy is Remedy.REFUSE:
                self._found.add_error(Subject.VARIABLES, SettingsError(sentence))
            elif remedy is Remedy.WARN:
                self._warn(Subject.VARIABLES, sentence)

    def _check_plan(self, plan: JobSpec) -> None:
        settings = self.context.settings
        is_here = not plan.ranks or settings.stdin in {rank.rank_id for rank in plan.ranks}
        if settings.stdin is not None and is_here and self.context.is_in_background():
            self.messages.warning("--stdin is ignored because the job runs in the background")
        for sentence in recovery_notes(plan, self.context.environ):
            self.messages.note(sentence)
        if plan.processes[0].cwd != self.context.cwd:
            self._found.ask(Subject.SETTINGS, commands.check_script, plan, self.context.cwd)
        if not self._found.error:
            self._found.ask(Subject.COMMAND, commands.check_program, plan)
        self._refuse_restarts(is_part=not (plan.has_all_ranks or plan.link))
        if settings.linger and plan.has_all_ranks:  # no other node waits for it
            self._warn(Subject.SETTINGS, "--linger has no effect on a single-node job")
        if not self._table:
            self._found.ask(Subject.SETTINGS, ranks.refuse_min_nodes, settings)
        self._found.ask(Subject.SETTINGS, commands.check_checkpoint_dir, plan.files.checkpoint_dir, self.messages.note)
        if plan.ranks and plan.rank_size and not settings.min_nodes:  # with --min-nodes, a restart may have fewer ranks
            for sentence in settings.selects_beyond(plan.rank_size):
                self._found.add_error(Subject.SETTINGS, SettingsError(sentence))

    def _refuse_restarts(self, *, is_part: bool) -> None:
        is_part = is_part and not commands.engine_of_all_nodes(self.context, self._node)  # node 0 restarts it
        self._found.ask(Subject.SETTINGS, partial(commands.refuse_restarts, is_part=is_part), self.context.settings)

    def _resolve(self, name: str) -> str:
        """Find the address of another node; wait for it if the job can be started."""
        try:
            return network.find_address(name)
        except OSError as error:
            failure = reason(error)
        settings = self.context.settings
        if settings.check or settings.dry_run:
            unknown = f"cannot resolve host {name!r} yet ({failure}); the plan shows its name"
            self._warn(Subject.SETTINGS, unknown)
        elif self._is_worth_waiting:
            return network.await_address(name, pause=self.pause, announce=self._announce)
        return name

    def _warn(self, subject: Subject, sentence: str) -> None:
        if sentence:
            self._found.add(subject, [warning(sentence)])

    @property
    def _is_direct(self) -> bool:
        """Whether this runner starts the ranks."""
        return self.context.settings.launcher == DIRECT

    @property
    def _is_worth_waiting(self) -> bool:
        return not self.context.settings.check and self._found.error is None
