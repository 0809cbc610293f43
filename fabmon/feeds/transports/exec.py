"""Any command that carries standard input and output: ssh, kubectl exec, srun, podman exec."""

from __future__ import annotations

import functools

from fabmon.fabric import command
from fabmon.fabric.model import Host
from fabmon.feeds import bootstrap
from fabmon.feeds.errors import Ended, HostKeyError, LoginRefused, NodeError, Unreachable
from fabmon.feeds.transports import process
from fabmon.feeds.transports.base import Session
from fabmon.feeds.transports.lines import Tail

_SAYINGS: tuple[tuple[str, type[NodeError], str], ...] = (
    ("IDENTIFICATION HAS CHANGED", HostKeyError, "host key changed"),
    ("Host key verification failed", HostKeyError, "host key"),
    ("Permission denied", LoginRefused, "permission denied"),
    ("Connection refused", Unreachable, "refused"),
    ("timed out", Unreachable, "timeout"),
    ("No route to host", Unreachable, "no route"),
    ("Could not resolve hostname", Unreachable, "unknown name"),
    ("Connection closed by", Unreachable, "closed"),
)
"""What OpenSSH says on standard error, and what it means."""


class ExecTransport:
    """Starts the command of each host. `ssh_config` is handed to the `openssh` preset with -F."""

    def __init__(self, settings: bootstrap.Settings, ssh_config: str | None = None) -> None:
        self._settings = settings
        self._ssh_config = ssh_config

    async def open(self, host: Host) -> Session:
        """Start the probe. Raises Unreachable when the command is wrong or cannot be run."""
        template = host.command or ""
        try:
            arguments = command.fill(
                command.split(template),
                node=host.address or host.name,
                python=host.python or "python3",
                probe=bootstrap.shell_line(host.python),
                loader=bootstrap.LOADER,
                user=host.user,
                port=host.port,
            )
        except ValueError as error:
            raise Unreachable(str(error), "command") from None
        if template == "openssh" and self._ssh_config is not None:
            arguments[1:1] = ["-F", self._ssh_config]
        explain = functools.partial(_explain, arguments[0])
        return await process.start(arguments, bootstrap.payload(self._settings.of(host)), explain)

    async def close(self) -> None:
        """Nothing is shared."""


def _explain(program: str, status: int, errors: Tail) -> NodeError:
    missing = bootstrap.no_python(errors.text)
    if missing is not None:
        return missing
    message = f"{program.rpartition('/')[2]} ended with {process.why(status, errors)}"
    for words, kind, cause in _SAYINGS:
        if words in errors.text:
            return kind(message, cause)
    return Ended(message)
