"""What is asked of the machine, or of the network, only where it matters: loaded then, never for a plain start."""

from __future__ import annotations

import os
import socket

from ascend_runner import errors
from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.launchers import conda

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascend_runner.job.settings import Settings
    from ascend_runner.reporter import Reporter

RESOLVE_LIMIT: Final = 60  # seconds for the name of another node to become known


def conda_variables(command: str, environ: Mapping[str, str], settings: Settings, reporter: Reporter) -> dict[str, str]:
    """Give what puts a conda environment's programs first, where one is meant for a command.

    Errors: SettingsError where one was asked for that is not there.
    """
    found = conda.find(command, environ, settings.conda_env)
    if found is None:
        return {}
    if os.path.exists(found.python):
        return dict(found.variables)
    if settings.conda_env:
        raise errors.SettingsError(f"--conda-env is {settings.conda_env!r}, but there is no {found.python!r}")

    reporter.warn(f"{conda.DEFAULT} names a conda environment, but there is no {found.python!r}: left aside")
    return {}


def address_of(name: str, settings: Settings, reporter: Reporter, pause: Callable[[float], None]) -> str:
    """Make an address of a host's name; wait for it, since a pod's name may come later than this node.

    `pause` waits for so many seconds, or raises. Errors: SettingsError when it has not come in time.
    """
    reason = ""
    for attempt in range(RESOLVE_LIMIT):
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            # MindSpore takes an IPv6 address only beside MS_WORKER_IP.
            return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        except UnicodeError:
            raise errors.SettingsError(f"{name!r} is no name of a host: --master-addr names another") from None
        if settings.dry_run:
            reporter.warn(f"{name!r} has no address yet ({reason}): the plan shows its name")
            return name
        if not attempt:
            reporter.info(f"waiting for the address of {name!r}, at most {RESOLVE_LIMIT} s: {reason}")
        pause(1.0)

    raise errors.SettingsError(
        f"the host {name!r} has no address ({reason}), waited {RESOLVE_LIMIT} s: --master-addr names another"
    )


def own_addresses() -> list[str]:
    """Give this machine's addresses, without those that every machine has."""
    import psutil  # 20 ms, only where a table with several servers is not answered by a variable

    families = {socket.AF_INET, socket.AF_INET6}
    found = [address for addresses in psutil.net_if_addrs().values() for address in addresses]
    plain = [address.address.partition("%")[0] for address in found if address.family in families]
    return [address for address in plain if not address.startswith("127.") and address != "::1"]
