"""What widgets tell the app."""

from __future__ import annotations

from textual.message import Message

from fabmon.fabric.model import Port
from fabmon.tui.target import Target


class Opened(Message):
    """A person wants to see this."""

    def __init__(self, target: Target) -> None:
        """A node, a port, a finding or a fold."""
        super().__init__()
        self.target = target


class Pointed(Message):
    """A person has put the cursor of a list on this."""

    def __init__(self, target: Target) -> None:
        """A node, a port, a finding or a fold."""
        super().__init__()
        self.target = target


class BurstWanted(Message):
    """A person wants to see a port faster than the scenes come."""

    def __init__(self, port: Port) -> None:
        """Of this port."""
        super().__init__()
        self.port = port


class Sought(Message):
    """A person wants to see what was at a time."""

    def __init__(self, time_ns: int) -> None:
        """As near as a click can tell."""
        super().__init__()
        self.time_ns = time_ns
