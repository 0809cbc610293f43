"""What an audit finds: something that is set or built wrongly, whether or not it hurts just now."""

from __future__ import annotations

import msgspec

MEND = "mend"
KNOW = "know"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a careful engineer would want changed before a run, or would want to know.

    `check` names the check, equal for equal faults. `severity` is `mend` or `know`. `ports` are
    `node/port`, or a node for what it lacks; `text` is one sentence, numbers first; `advice` says
    what to do.
    """

    check: str
    severity: str
    ports: tuple[str, ...]
    text: str
    advice: str
