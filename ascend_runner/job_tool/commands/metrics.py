"""`ascend-job metrics`."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from ascend_runner.errors import SettingsError
from ascend_runner.job_tool.commands.extras import MissingExtraError
from ascend_runner.job_tool.job import jobs
from ascend_runner.tool import DONE, write_text

DEFAULT_INTERVAL: Final = 15.0  # seconds between two writes, as between scrapes by Prometheus


def metrics(options: Namespace) -> int:
    """Print the metrics of a job, serve them by HTTP, or write them to a file at intervals."""
    if options.every is not None and options.textfile is None:
        raise SettingsError("--every requires --textfile")
    try:
        from ascend_runner.job_tool.metrics import metric_outputs  # noqa: PLC0415  prometheus_client, an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("metrics", error) from None
    job = jobs.find(options.job, options.environ)
    if options.listen:
        metric_outputs.serve(job, options.listen, options.tell)
    elif options.textfile is not None:
        every = DEFAULT_INTERVAL if options.every is None else options.every
        metric_outputs.write_files(job, options.textfile, every)
    else:
        write_text(metric_outputs.text(job))
    return DONE
