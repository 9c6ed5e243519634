"""The plan of a job as `--dry-run` prints it, with secrets masked. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ascend_runner.job.preparation import Preparation
from ascend_runner.plan.spec import Attempt, RankSpec
from ascend_runner.secrets import Masker


def plan_text(prepared: Preparation, environ: Mapping[str, str]) -> str:
    """Return the plan of a job as JSON; `environ` is the environment that the runner was started with."""
    job, masker = prepared.job(), Masker()
    processes = Attempt(job).processes
    plan = {
        "job_id": job.job_id,
        "rank_size": job.rank_size or None,
        "server_id": masker.text(job.server_id),
        "pod_name": masker.text(job.pod_name),
        "rank_table": job.files.table.path if job.files.table else None,
        "ranks": [
            {"rank_id": rank.rank_id, "local_rank": rank.local_rank, **_process_plan(rank, environ, masker)}
            for rank in processes[len(job.beside) :]
        ],
        "beside": [
            {"name": process.name, **_process_plan(process, environ, masker)}
            for process in processes[: len(job.beside)]
        ],
        "stages": [{"source": stage.source, "place": stage.place} for stage in prepared.context.stages],
        "hooks": [{"event": event, "command": masker.text(command)} for event, command in job.hooks],
        "host_files": [
            {"path": path, "lines": os.fsdecode(content).splitlines()} for path, content in job.files.host_files.items()
        ],
    }
    plan["secrets_masked"] = masker.count
    text = json.dumps(plan, indent=2, ensure_ascii=False) + "\n"
    # JSON does not escape DEL and the control characters above it, some of which control a terminal. orjson would also
    # refuse arguments that are not UTF-8.
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def _process_plan(process: RankSpec, environ: Mapping[str, str], masker: Masker) -> dict[str, object]:
    return {
        "executable": process.executable,
        "argv": masker.arguments(process.argv),
        "variables": masker.variables(process.changes(environ)),
        "unset": [name for name in environ if name not in process.env],
        "cwd": process.cwd,
        **({"stdin": "inherited"} if process.has_stdin else {}),
        **({} if process.cores is None else {"cores": sorted(process.cores)}),
        "log": process.log_path,
    }
