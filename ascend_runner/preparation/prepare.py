"""The story: look at the command, find this node, await the rank table, plan.

Every question is asked whose answer does not depend on a missing one. Cheap questions come first: nobody waits half an
hour for a rank table to learn that the command does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import attrs

from ascend_runner.engines.registry import DIRECT
from ascend_runner.errors import AscendRunnerError, RankTableError, SettingsError, reason
from ascend_runner.frameworks import conflicts, hccl
from ascend_runner.frameworks.conflicts import Remedy
from ascend_runner.frameworks.registry import without_auto
from ascend_runner.host import cores, executables, network, npu
from ascend_runner.host.host import Host
from ascend_runner.output.messages import Messages
from ascend_runner.plan import folders, single_process, this_node
from ascend_runner.plan.builder import PlanBuilder, launch_context
from ascend_runner.plan.context import Command, PlanContext
from ascend_runner.plan.job import JobSpec, TableFile, with_cores
from ascend_runner.plan.ranks import plan_ranks
from ascend_runner.plan.this_node import NodeShare
from ascend_runner.platforms import detect
from ascend_runner.platforms.already_started import SingleProcess
from ascend_runner.platforms.node import Node
from ascend_runner.preparation import command as commands
from ascend_runner.preparation import single
from ascend_runner.preparation import table as tables
from ascend_runner.preparation.record import Preparation
from ascend_runner.problems import Collector, Problem, Severity, Subject
from ascend_runner.rank_table import RankTable, codec
from ascend_runner.rank_table.source import Snapshot
from ascend_runner.settings import command_line, suggestions
from ascend_runner.settings.model import Settings
from ascend_runner.text import rank_list


@attrs.define(eq=False, repr=False)
class Preparer:
    """Asks the questions and collects the problems. `pause(seconds)` blocks, and raises if a stop signal arrives.

    Without `may_wait`, a rank table or a host name that is not known yet is a warning.
    """

    settings: Settings
    context: PlanContext
    messages: Messages
    pause: Callable[[float], None]
    may_wait: bool = True
    _found: Collector = attrs.field(factory=Collector, init=False)
    _node: Node | None = attrs.field(default=None, init=False)
    _share: NodeShare | None = attrs.field(default=None, init=False)
    _table: RankTable | None = attrs.field(default=None, init=False)
    _why: str = attrs.field(default="", init=False)

    def prepare(self, argv: tuple[str, ...]) -> Preparation:
        """Plan a command.

        Raises:
            StopRequestedError: a stop signal arrived during a wait.
        """
        ask = self._found.ask
        ask(Subject.COMMAND, command_line.check, argv)
        ask(Subject.SETTINGS, self._enter_conda, argv[0])
        misplaced = suggestions.misplaced_options(argv)
        if misplaced:
            self.messages.info(misplaced)
        self.context = attrs.evolve(self.context, resolve=self._resolve)
        plan = self._plan(argv)
        if plan:
            self._check_plan(plan)

        return Preparation(
            plan=plan,
            problems=tuple(self._found.problems),
            error=self._found.error,
            node=self._node,
            share=self._share,
            table=self._table,
            why=self._why,
            log_dir=folders.find_log_dir(self.settings, self.context),
            workdir=self._workdir,
        )

    def _plan(self, argv: tuple[str, ...]) -> JobSpec | None:
        is_direct = self.settings.launcher == DIRECT
        alone = self._found.ask(Subject.VARIABLES, self._find_single, argv)
        if not is_direct and not alone:
            self._found.ask(Subject.SETTINGS, single_process.refuse_options_of_ranks, self.settings)
        if not is_direct or alone:
            self.settings = single_process.in_place(self.settings)
        if self._found.has_errors(Subject.VARIABLES):  # if ranks may already run, this node's place means nothing
            if is_direct:
                self._find_command(argv)
            return None
        return self._plan_single(argv, alone) if alone else self._plan_node(argv)

    # --- The three kinds of plans -------------------------------------------------------------------------------------

    def _plan_single(self, argv: tuple[str, ...], alone: SingleProcess) -> JobSpec | None:
        """Plan one process, because one per device would be wrong."""
        self._why = alone.why
        with suppress(AscendRunnerError):  # the node's place is of interest to --check only
            self._node = detect.find_node(self.context.environ, self.settings.overrides)
        if alone.name and self._node and self._node.nnodes > 1:  # its log may be in a folder that all nodes share
            alone = attrs.evolve(alone, name=f"{alone.name}-node-{self._node.node_rank}")
        command = self._find_command(argv)
        self.messages.info(f"{alone.why} ({alone.hint})" if alone.hint else alone.why)
        builder = self._builder()
        return single_process.plan_single(command, alone, builder) if builder else None

    def _plan_node(self, argv: tuple[str, ...]) -> JobSpec | None:
        is_direct = self.settings.launcher == DIRECT
        command = self._find_command(argv) if is_direct else None
        self._node = self._found.ask(Subject.VARIABLES, detect.find_node, self.context.environ, self.settings.overrides)
        builder = self._builder()
        snapshot = self._find_share()
        return self._plan_ranks(command, builder, snapshot) if command else self._plan_handover(argv, builder)

    def _plan_ranks(self, command: Command, builder: PlanBuilder | None, snapshot: Snapshot | None) -> JobSpec | None:
        """Plan one process per device of this node."""
        file = None
        if snapshot and snapshot.table.devices:
            data = codec.to_hccl_bytes(snapshot.table, snapshot.data)
            file = folders.place_table(data, self.settings, self.context)
            if not self.settings.no_table_checks:
                self._check_table(snapshot.table, file)
        self._check_variables(file)
        if not self._share or not builder:
            return None

        job = self._found.ask(Subject.VARIABLES, plan_ranks, command, self._share, builder, file)
        return self._with_cores(job) if job and self.settings.bind else job

    def _plan_handover(self, argv: tuple[str, ...], builder: PlanBuilder | None) -> JobSpec | None:
        """Plan one process of another engine, which starts this node's ranks itself."""
        self._check_variables(None)
        if not self._share or not builder:
            return None
        engine = self._found.ask(Subject.SETTINGS, single_process.hand_over, argv, self._share, builder)
        if not engine:
            return None

        name = engine.argv[0]
        executable = name
        if not executables.is_relative(name):
            executable = self._found.ask(Subject.SETTINGS, commands.find_program, name, self.context) or name
        self.messages.info(f"--launcher {self.settings.launcher}: {engine.note}")
        return self._found.ask(
            Subject.VARIABLES, single_process.plan_handover, executable, engine, self._share, builder
        )

    # --- Questions ----------------------------------------------------------------------------------------------------

    def _enter_conda(self, name: str) -> None:
        variables = commands.conda_variables(name, self.settings, self.context.environ)
        self.context = attrs.evolve(self.context, environ={**self.context.environ, **variables})

    def _find_single(self, argv: tuple[str, ...]) -> SingleProcess | None:
        """Find out whether the command is to run once."""
        return single.find(argv, self.settings, self.context)

    def _find_command(self, argv: tuple[str, ...]) -> Command:
        """Find the program of a command; if it is missing, the plan goes on with its name."""
        name = program = argv[0]
        # A line for a shell has no program, and without its conda environment PATH is unknown. `commands.check_program`
        # looks for relative paths.
        if not self._found.error and not executables.is_relative(name):
            program = self._found.ask(Subject.COMMAND, commands.find_program, name, self.context) or name
        if not folders.has_own_workdirs(self.settings, self.context):
            self._found.ask(Subject.SETTINGS, commands.check_workdir, self._workdir)
        return Command(program, argv)

    def _builder(self) -> PlanBuilder | None:
        job_id = self._found.ask(Subject.SETTINGS, folders.find_job_id, self.context)
        return PlanBuilder(job_id=job_id, settings=self.settings, context=self.context) if job_id else None

    def _find_share(self) -> Snapshot | None:
        """Find this node's ranks by the rank table, which is returned, or else by their number."""
        settings, node = self.settings, self._node
        if node:
            self._why = node.why
            self.messages.debug(node.why)
        if not tables.is_needed(settings, self.context, node):
            self._count_ranks(node.devices_per_node if node else None)
            return None

        snapshot = self._found.ask(Subject.RANK_TABLE, self._read_table)
        if snapshot:
            self._table = snapshot.table
            self._found.add(Subject.RANK_TABLE, snapshot.table.notes)
        if snapshot and not snapshot.table.devices:  # a job on CPUs, whose ranks get no table
            self._count_ranks(None)
        elif snapshot and node:
            self._share = self._found.ask(Subject.NODE, self._find_share_of_table, snapshot.table, node)
        return snapshot

    def _count_ranks(self, devices: int | None) -> None:
        nproc = self.settings.nproc_per_node or devices or 1
        if self._node:
            self._share = self._found.ask(
                Subject.VARIABLES, this_node.without_table, nproc, self._node, self.context.host_name
            )

    def _find_share_of_table(self, table: RankTable, node: Node) -> NodeShare:
        return this_node.agreed(this_node.find_share(table, self.context, self.settings.overrides), table, node)

    def _read_table(self) -> Snapshot | None:
        path = tables.find(self.settings, self.context)
        if self._is_worth_waiting:
            return tables.wait(path, self.settings, pause=self.pause, say=self.messages.info)

        found = tables.read(path, self.settings)
        if isinstance(found, Snapshot):
            return found
        if not self.may_wait:
            self._found.add(Subject.RANK_TABLE, [found])
        return None

    def _check_table(self, table: RankTable, file: TableFile) -> None:
        problems = tables.check(table, file, self.settings, self.context.environ)
        error = next((str(one) for one in problems if one.severity is Severity.ERROR), "")
        self._found.add(Subject.RANK_TABLE, problems, RankTableError(error) if error else None)

    def _check_variables(self, file: TableFile | None) -> None:
        """Look for variables that must not be set together, as far as that is possible if the ranks are unknown."""
        if not self._node:
            return
        nproc = self.settings.nproc_per_node or 0
        share = self._share or NodeShare(rank_ids=tuple(range(nproc)), rank_size=nproc, node=self._node)
        context = without_auto(launch_context(share, self.settings, self.context, file))[0]
        for remedy, sentence in conflicts.find(context):
            if remedy is Remedy.REFUSE:
                self._found.add_error(Subject.VARIABLES, SettingsError(sentence))
            elif remedy is Remedy.WARN:
                self._warn(Subject.VARIABLES, sentence)

    def _check_plan(self, plan: JobSpec) -> None:
        if plan.processes[0].cwd != self.context.cwd:
            self._found.ask(Subject.SETTINGS, commands.check_script, plan, self.context.cwd)
        if not self._found.error:
            self._found.ask(Subject.COMMAND, commands.check_program, plan)
        for warning in plan.warnings:
            self._warn(Subject.VARIABLES, warning)
        shown = [rank for rank in sorted(self.settings.console or ()) if rank >= plan.rank_size > 0]
        if shown and plan.ranks:
            self._warn(Subject.SETTINGS, f"--console names {rank_list(shown)} of a job with {plan.rank_size} ranks")

    def _with_cores(self, job: JobSpec) -> JobSpec:
        """Give each rank cores next to its NPU, as --bind asks for."""
        host, nproc = Host(), len(job.ranks)
        devices = npu.of_ranks(host, nproc, hccl.visible_devices(self.context.environ))
        placement = cores.place(host, self.settings.bind or cores.CORES, nproc, devices)
        if not placement.is_near:
            self.messages.info("--bind divides the cores evenly: the NUMA node of each NPU is unknown")
        return with_cores(job, placement.cores)

    def _resolve(self, name: str) -> str:
        """Find the address of another node; wait for it if the job can be started."""
        try:
            return network.find_address(name)
        except OSError as error:
            failure = reason(error)
        if self._is_worth_waiting and not self.settings.dry_run:
            return network.await_address(name, pause=self.pause, announce=self.messages.info)

        if self.settings.dry_run:
            unknown = f"cannot resolve host {name!r} yet ({failure}); the plan shows its name"
            self._warn(Subject.SETTINGS, unknown)
        return name

    def _warn(self, subject: Subject, sentence: str) -> None:
        if sentence:
            self._found.add(subject, [Problem(severity=Severity.WARNING, sentence=sentence)])

    @property
    def _workdir(self) -> str:
        """The working directory of all processes, or that of device 0 if each has its own."""
        return folders.find_workdir(self.settings, self.context, "device0")

    @property
    def _is_worth_waiting(self) -> bool:
        return self.may_wait and self._found.error is None
