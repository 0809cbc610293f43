"""The nodes of a lab: where their files are, running things on them, what they have counted."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab import login, netns
from tests.lab.layout import CONSOLE, Layout
from tests.lab.netns import LabError
from tests.lab.registry import Record


class Nodes:
    """The nodes of `layout` and the console; there are any only while the lab is built."""

    def __init__(self, layout: Layout) -> None:
        """Know the nodes; `_record` is set while they exist."""
        self.layout = layout
        self._record: Record | None = None

    @property
    def prefix(self) -> str:
        """What the names of this lab's namespaces start with."""
        if self._record is None:
            raise LabError("the lab is not built")
        return self._record.prefix

    @property
    def directory(self) -> Path:
        """The lab's own directory: keys, configurations, logs."""
        if self._record is None:
            raise LabError("the lab is not built")
        return Path(self._record.directory)

    @property
    def hosts_file(self) -> Path:
        """Every node, in fabmon's hosts file format."""
        return self.directory / "hosts.txt"

    @property
    def ssh_config(self) -> Path:
        """A client configuration with which ``ssh -F FILE gpu001`` works in the console."""
        return self.directory / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The host key of every node, by name and address."""
        return self.directory / "known_hosts"

    @property
    def key(self) -> Path:
        """The private key that every node accepts for `user`."""
        return self.directory / "key"

    @property
    def user(self) -> str:
        """The unprivileged user to log in as."""
        return login.USER

    def ns(self, node: str) -> str:
        """The name of the namespace of `node`, as ``ip netns`` knows it."""
        if node != CONSOLE and node not in self.layout.nodes:
            raise LabError(f"this lab has no node {node}")
        return self.prefix + node

    def exec(
        self, node: str, argv: Sequence[str], timeout_s: float = 240.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` as root on `node` and return what came of it."""
        command = netns.argv_in(self.ns(node), argv)
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)

    def popen(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start `argv` as root on `node`; `options` are those of `subprocess.Popen`."""
        return subprocess.Popen(netns.argv_in(self.ns(node), argv), **options)

    def console_argv(self, argv: Sequence[str]) -> list[str]:
        """`argv` prefixed so that it runs in the console's namespace."""
        return netns.argv_in(self.ns(CONSOLE), argv)

    def counters(self, node: str, port: str) -> dict[str, int]:
        """The kernel's own counters of a port: the truth. See `netns.read_counters`."""
        return netns.read_counters(self.ns(node))[port]

    def measure(self, node: str, seconds: float) -> dict[str, tuple[float, float]]:
        """(sent, received) by each port of `node` over `seconds`, in Mb/s, by the counters."""
        start_s = time.monotonic()
        before = netns.read_counters(self.ns(node))
        time.sleep(seconds)
        after = netns.read_counters(self.ns(node))
        scale = 8 / 1e6 / (time.monotonic() - start_s)

        def rate(port: str, name: str) -> float:
            return (after[port][name] - before[port][name]) * scale

        return {port: (rate(port, "tx_bytes"), rate(port, "rx_bytes")) for port in after}
