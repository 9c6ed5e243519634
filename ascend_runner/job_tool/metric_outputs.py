"""Where the metrics of a job go: as text, to Prometheus by HTTP, or into a file."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs
from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest

from ascend_runner.job_tool import metrics, snapshot, usage
from ascend_runner.job_tool.jobs import FoundJob


@attrs.frozen
class JobCollector:
    """Collects the metrics of a job whenever they are wanted."""

    job: FoundJob

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this moment."""
        seen = snapshot.take(self.job)
        return metrics.of_job(seen, usage.of_ranks(seen), time.time())


def text(job: FoundJob) -> str:
    """Return the metrics of a job."""
    return exposition(registry_of(job))


def exposition(registry: CollectorRegistry) -> str:
    """Return the metrics of a registry as Prometheus' text."""
    return generate_latest(registry).decode()


def registry_of(job: FoundJob) -> CollectorRegistry:
    """Return a registry with the metrics of one job."""
    registry = CollectorRegistry()
    registry.register(JobCollector(job))
    return registry
