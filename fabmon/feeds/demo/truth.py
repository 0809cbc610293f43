"""What is wrong in a simulated fabric: the answers that findings are scored against."""

from __future__ import annotations

import msgspec


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    `cause` is called as findings call it. `subject` is the port (`leaf1/swp33`), node or job that
    it is about; `links` are the guilty ports (a direction is that of the port that sends, except
    for errors, which belong to the port that receives), `nodes` the hosts that have a part in it.
    Times are seconds from the start: `since_s` when it begins, `until_s` when it ends (None: to the
    end), `seen_s` when it first made a difference to any counter (None: not yet; a collision needs
    traffic to be one).
    """

    cause: str
    subject: str
    links: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    since_s: float
    until_s: float | None
    seen_s: float | None = None

    def holds(self, now_s: float) -> bool:
        """Whether it is wrong at this time."""
        return self.since_s <= now_s and (self.until_s is None or now_s < self.until_s)
