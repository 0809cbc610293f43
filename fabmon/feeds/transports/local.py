"""This machine: the same archive, loader and pipe as everywhere else, without a network."""

from __future__ import annotations

import sys

from fabmon.fabric.model import Host
from fabmon.feeds import bootstrap
from fabmon.feeds.errors import Ended, NodeError
from fabmon.feeds.transports import process
from fabmon.feeds.transports.base import Session
from fabmon.feeds.transports.lines import Tail


class LocalTransport:
    """Starts the probe with the console's own Python, or the host's `python` when it is set."""

    def __init__(self, settings: bootstrap.Settings) -> None:
        self._settings = settings

    async def open(self, host: Host) -> Session:
        """Start the probe. Raises Unreachable when the interpreter cannot be run."""
        python = host.python or sys.executable
        arguments = [python, "-E", "-c", bootstrap.LOADER]
        return await process.start(arguments, bootstrap.payload(self._settings.of(host)), _explain)

    async def close(self) -> None:
        """Nothing is shared."""


def _explain(status: int, errors: Tail) -> NodeError:
    return Ended(f"the probe ended with {process.why(status, errors)}")
