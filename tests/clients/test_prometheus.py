"""The metrics of jobs as Prometheus' own tool reads them."""

from __future__ import annotations

import re
import signal
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from ascend_runner.tools import job as job_tool
from tests.clients.conftest import LIMIT
from tests.conftest import program as program  # noqa: PLC0414  pytest finds fixtures by their names here
from tests.helpers.waiting import wait_until
from tests.tools.job.conftest import Start, Tool, fixture_run_dir, fixture_start, fixture_tool
from tests.tools.job.metrics.test_metrics import at, rank, seen, text_of

__all__ = ["fixture_run_dir", "fixture_start", "fixture_tool"]

PROMTOOL = "/usr/bin/promtool"
# A job and an NPU exporter at one moment: rank 3 on NPU 5 of pod-1.
RULES = """
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'npu_chip_info_utilization{{id="5",pod_name="pod-1",model_name="910B"}}'
        values: '70 70'
      - series: 'npu_chip_info_utilization{{id="6",pod_name="pod-1",model_name="910B"}}'
        values: '99 99'
      - series: 'ascend_runner_rank_running{{job="train",node="pod-1",npu="5",rank="3"}}'
        values: '1 1'
      - series: 'ascend_runner_rank_last_output_time_seconds{{job="train",node="pod-1",npu="5",rank="3"}}'
        values: '-700 -700'
    promql_expr_test:
      - expr: '{utilization}'
        eval_time: 1m
        exp_samples:
          - labels: '{{job="train",rank="3",node="pod-1",npu="5",id="5",pod_name="pod-1",model_name="910B"}}'
            value: 70
      - expr: '{silent}'
        eval_time: 1m
        exp_samples:
          - labels: '{{job="train",rank="3",node="pod-1",npu="5"}}'
            value: 760
"""


def promtool(*words: str, text: str = "") -> tuple[int, str]:
    """Run promtool; return its exit status and all that it has printed."""
    ended = subprocess.run([PROMTOOL, *words], input=text, capture_output=True, text=True, check=False, timeout=LIMIT)
    return ended.returncode, ended.stdout + ended.stderr


def test_check_metrics_of_real_jobs(start: Start, tool: Tool) -> None:
    """Nothing is wrong with the metrics of a job, while it runs and when it has ended."""
    line = "{'loss': 2.5, 'epoch': 1}"
    run = start(f'echo "{line}"; exec sleep 60')
    wait_until(lambda: tool("metrics")[1].count("ascend_runner_rank_loss{") == 2)
    assert (0, "") == promtool("check", "metrics", text=tool("metrics")[1])
    run.send(signal.SIGTERM)
    run.finish()
    assert (0, "") == promtool("check", "metrics", text=tool("metrics")[1])


@pytest.mark.parametrize("name", ['a"b\\c\nd', "\x1b[31m\u202e\ud800\0}", "卡"])
def test_check_metrics_of_all_kinds(name: str) -> None:
    """Nothing is wrong with any kind of metric, whatever the names are."""
    line = "Epoch:[ 1/ 2], step:[ 7/ 9], loss: 2.5, per_step_time: 615ms, train_throughput_per_npu: 9.5T"
    first = rank(0, name=name, log_size=1, last_line=line, signals=[(15, at(5))], exit_code=1, ended_at=at(9))
    text = text_of(seen(first, rank(1, device_id=5), pod_name=name, cause={"rank_id": 0}))

    assert "rank_throughput" in text
    assert (0, "") == promtool("check", "metrics", text=text)


def test_expressions_of_the_readme(tmp_path: Path) -> None:
    """The expressions in the README join what they should."""
    readme = (resources.files(job_tool) / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```promql\n(.*?)```", readme, re.DOTALL)
    assert block
    utilization, silent = (" ".join(part.split()) for part in block[1].split("\n\n"))
    rules = tmp_path / "rules.yml"
    rules.write_text(RULES.format(utilization=utilization, silent=silent))

    assert 0 == promtool("test", "rules", str(rules))[0]
