"""What reached the console since the last tick."""

from __future__ import annotations

import asyncio

from fabmon.fabric.messages import Answer, Frame, Hello, Notice
from fabmon.fabric.tick import NodeStatus, Tick

_PER_NODE = 30


class Inbox:
    """Collects between ticks, in the order of arrival.

    Bounded: when nobody takes ticks, `full` turns true and those who fill it wait for `room`, so
    that the nodes wait in their pipes instead of in our memory.
    """

    def __init__(self, nodes: int) -> None:
        self.frames: list[tuple[str, Frame]] = []
        self.arrived = asyncio.Event()
        self._hellos: dict[str, Hello] = {}
        self._statuses: list[NodeStatus] = []
        self._notices: list[tuple[str, Notice]] = []
        self._answers: list[tuple[str, Answer]] = []
        self._limit = _PER_NODE * max(nodes, 32)
        self._room = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether to wait for `room` before adding more."""
        return len(self.frames) + len(self._notices) + len(self._answers) >= self._limit

    @property
    def empty(self) -> bool:
        """Whether a tick would have nothing to tell."""
        return not (self.frames or self._hellos or self._statuses or self._notices or self._answers)

    def add_frame(self, node: str, frame: Frame) -> None:
        """Take a frame that follows the last hello of its node."""
        self.frames.append((node, frame))
        self.arrived.set()

    def add_hello(self, node: str, hello: Hello, *, continues: bool) -> None:
        """Take a hello. Frames of this tick that followed another layout are dropped.

        A tick's hellos apply before its frames, so those frames would be read by the wrong layout.
        `continues` says that the frames before hold the same and count on: then they may stay.
        Notices go in any case: after a hello a node tells anew what is wrong with it.
        """
        if not continues:
            self.frames = [item for item in self.frames if item[0] != node]
        self._notices = [item for item in self._notices if item[0] != node]
        self._hellos[node] = hello

    def add_status(self, status: NodeStatus) -> None:
        """Take a change of a node's state."""
        self._statuses.append(status)

    def add_notice(self, node: str, notice: Notice) -> None:
        """Take a notice."""
        self._notices.append((node, notice))

    def add_answer(self, node: str, part: Answer) -> None:
        """Take a part of what the node was asked for."""
        self._answers.append((node, part))

    def take(self, seq: int, time_ns: int) -> Tick:
        """All of it as a tick; the inbox is empty after."""
        tick = Tick(
            seq,
            time_ns,
            tuple(self._hellos.items()),
            tuple(self.frames),
            tuple(self._statuses),
            tuple(self._notices),
            answers=tuple(self._answers),
        )
        self.frames = []
        self._hellos = {}
        self._statuses = []
        self._notices = []
        self._answers = []
        self.arrived.clear()
        self._room.set()
        return tick

    async def room(self) -> None:
        """Wait until the next tick is taken."""
        self._room.clear()
        await self._room.wait()
