"""What widgets tell the app."""

from __future__ import annotations

from textual.message import Message

from fabmon.tui.target import Target


class Opened(Message):
    """A person wants to see this."""

    def __init__(self, target: Target) -> None:
        """A node, a port, a finding or a fold."""
        super().__init__()
        self.target = target
