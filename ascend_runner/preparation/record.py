"""The result of preparing a job: the plan or all problems, and the facts that were found on the way."""

from __future__ import annotations

import attrs

from ascend_runner.errors import AscendRunnerError
from ascend_runner.plan.context import PlanContext
from ascend_runner.plan.job import JobSpec
from ascend_runner.plan.this_node import NodeShare
from ascend_runner.platforms.node import Node
from ascend_runner.problems import Problem, Subject
from ascend_runner.rank_table import RankTable


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Preparation:
    """The plan, all problems, and the facts that were found on the way (None: not found).

    `plan` may exist in spite of errors that do not concern it, such as a missing command. `error` is the first error as
    an exception; its class and exit status are those of the run. `why` says how the node's place was recognized.
    """

    context: PlanContext
    plan: JobSpec | None
    node: Node | None
    table: RankTable | None
    why: str
    share: NodeShare | None = None
    problems: tuple[Problem, ...] = ()
    error: AscendRunnerError | None = None

    def job(self) -> JobSpec:
        """Return the plan of a job that can be started.

        Raises:
            AscendRunnerError: It cannot be started; this is the first error.
        """
        if self.error or not self.plan:
            raise self.error or AscendRunnerError("there is no plan")
        return self.plan

    def about(self, subject: Subject) -> tuple[Problem, ...]:
        """Return the problems of one subject."""
        return tuple(problem for problem in self.problems if problem.subject is subject)
