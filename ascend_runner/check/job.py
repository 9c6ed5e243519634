"""The job as it would be planned here: its rank table, this node's part of it, its variables, its command."""

from __future__ import annotations

import os

from ascend_runner import errors, reporter
from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.frameworks import conflicts
from ascend_runner.frameworks.conflicts import Remedy
from ascend_runner.frameworks.decide import NONE
from ascend_runner.frameworks.situation import Situation
from ascend_runner.job.settings import DIRECT
from ascend_runner.launchers.command import python_command
from ascend_runner.linux.cgroup import read
from ascend_runner.platforms import single

from .line import Line, error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .scene import Scene

MOST_ARGUMENTS: Final = 4  # of a command, that are shown


def rank_table(scene: Scene) -> Iterator[Line]:
    """Say whether the table is there, and all that HCCL would say of it."""
    if not scene.wants_table or (scene.job and not scene.table):
        yield ok(f"none is wanted for {scene.nproc} rank{'s' if scene.nproc > 1 else ''} on this node")
    elif isinstance(scene.table_error, errors.RankTableNotReadyError):
        yield warning(
            str(scene.table_error),
            f"a start would wait for it, at most {scene.settings.rank_table_timeout:g} s; if it stays so, look whether"
            " all pods of the job run",
        )
    elif scene.table_error is not None:
        for sentence in errors.sentences(scene.table_error):
            yield error(sentence)
    else:
        yield from _judged_table(scene)


def _judged_table(scene: Scene) -> Iterator[Line]:
    from ascend_runner.rank_table import checks  # attrs, loaded with the table
    from ascend_runner.rank_table.findings import ERROR

    table = scene.table
    if table is None:
        return
    chip = scene.settings.chip or checks.chip_of(scene.environ)
    path = scene.job.table.path if scene.job and scene.job.table else ""
    is_roce_wanted = checks.wants_roce(scene.environ)
    findings = (*table.notes, *checks.check(table, path, chip, is_roce_wanted=is_roce_wanted))
    servers = "1 server" if table.server_count == 1 else f"{table.server_count} servers"
    devices = "1 device" if table.rank_size == 1 else f"{table.rank_size} devices"
    if not findings:
        yield ok(f"{table.source}: {table.dialect}, {servers}, {devices}")
    for finding in findings:
        code = f" ({finding.code})" if finding.code else ""
        is_refused = finding.severity == ERROR and not scene.settings.no_table_checks
        yield (error if is_refused else warning)(f"{finding}{code}")


def this_node(scene: Scene) -> Iterator[Line]:
    """Say which part of the job is this node's; with a table that cannot be used yet, nobody knows."""
    if scene.job:
        yield ok(reporter.placed(scene.job))
    elif isinstance(scene.job_error, errors.NodeNotFoundError):
        yield error(
            str(scene.job_error),
            "start the job anew if the table is an earlier one's; else name this node as the table does",
        )
    elif scene.table and isinstance(scene.job_error, errors.RankTableError):  # the table and the node disagree
        yield error(str(scene.job_error))


def plan(scene: Scene) -> Iterator[Line]:
    """Say what else a start would refuse, or warn of."""
    known = {sentence for _remedy, sentence in _conflicts(scene)}
    known.update(scene.table.warnings if scene.table else ())
    known.add(scene.node.doubt if scene.node else str(scene.node_error))
    refused = (*((scene.job_error,) if scene.job_error else ()), *scene.trial_errors)
    sentences = (str(one) for one in refused if not isinstance(one, errors.RankTableError))
    yield from (error(sentence) for sentence in dict.fromkeys(sentences) if sentence not in known)
    yield from (warning(sentence) for sentence in scene.warnings if sentence not in known)


def variables(scene: Scene) -> Iterator[Line]:
    """Say which variables contradict each other, or the platform's own."""
    if scene.node is None:
        yield error(str(scene.node_error))
        return

    if scene.node.doubt and scene.node.doubt == str(scene.job_error):
        yield error(scene.node.doubt)
        return

    held = [found for found in _conflicts(scene) if found[0] is not Remedy.CLEAN]
    yield from ((error if remedy is Remedy.REFUSE else warning)(sentence) for remedy, sentence in held)
    if not held:
        yield ok(f"no conflict; {_seen(scene) or scene.node.why}")


def _seen(scene: Scene) -> str:
    """Say why the command is to be run once, if it is: what the node's variables count is another's business then."""
    if not scene.job or not scene.job.is_passed_through:
        return ""
    found = single.find(scene.environ, names_the_ranks=scene.settings.names_the_ranks)

    return found.why if found else ""


def _conflicts(scene: Scene) -> tuple[tuple[Remedy, str], ...]:
    if scene.node is None:
        return ()
    job, settings = scene.job, scene.settings
    rank_ids = tuple(rank.rank_id for rank in job.ranks) if job and job.ranks else tuple(range(scene.nproc))
    situation = Situation(
        node=scene.node,
        rank_ids=rank_ids,
        rank_size=job.rank_size if job and not job.is_passed_through else len(rank_ids),
        table_path=job.table.path if job and job.table else None,
        environ=scene.environ,
        isolate_devices=settings.isolate_devices,
    )
    return conflicts.told(settings.framework if settings.launcher == DIRECT else NONE, situation)


def command(scene: Scene) -> Iterator[Line]:
    """Say what the command is, and whether it, its interpreter and its script are there."""
    if not scene.command:
        return
    if scene.command_error:
        is_a_name = scene.command[0] and scene.command_error.exit_status != errors.RUNNER_FAILED
        yield error(
            str(scene.command_error), "name it by its full path, or put its folder into PATH" if is_a_name else ""
        )
        return
    job = scene.job or scene.trial
    if job is None:
        return

    rank = job.processes[0]
    program = os.path.join(rank.cwd, rank.executable)
    missing = _missing_interpreter(program)
    if missing:
        yield error(f"{program} is to be run by {missing}, which is not there", "correct its first line (#!)")
        return
    python = python_command(rank.argv)
    script = "" if python is None or python.is_module else os.path.join(rank.cwd, python.target)
    if script and not os.path.exists(script):
        yield error(
            f"there is no {script}", "name the script by its full path; a relative one counts from the rank's folder"
        )
        return

    real = os.path.realpath(program)
    shown = [*rank.argv[:MOST_ARGUMENTS], *(["..."] if len(rank.argv) > MOST_ARGUMENTS else [])]
    yield ok(f"{' '.join(shown)}: {program}{'' if real == program else f' ({real})'}")


def _missing_interpreter(program: str) -> str:
    """Give the interpreter that a script's first line names, if it is not there: execve(2) says ENOENT then."""
    first = read(program)[:256].partition(b"\n")[0]
    words = first[2:].split() if first.startswith(b"#!") else []
    interpreter = os.fsdecode(words[0]) if words else ""
    return interpreter if interpreter and not os.path.exists(interpreter) else ""
