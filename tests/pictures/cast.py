"""Frames as an asciinema cast, version 2: a line of JSON for each change of the screen."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.pictures.frame import Frame

_CLEAR = "\x1b[?25l\x1b[2J"


def cast(frames: Sequence[Frame], seconds: Sequence[float], title: str, time_s: int) -> str:
    """Frames one after the other, each for so many `seconds`, recorded at `time_s` (Unix time)."""
    header = {
        "version": 2,
        "width": frames[0].width,
        "height": len(frames[0].rows),
        "timestamp": time_s,
        "title": title,
    }
    lines = [json.dumps(header)]
    shown: list[str | None] = [None] * len(frames[0].ansi)
    at = 0.0
    for frame, lasts in zip(frames, seconds, strict=True):
        changed = [
            f"\x1b[{y + 1};1H\x1b[0m{row}"
            for y, (row, before) in enumerate(zip(frame.ansi, shown, strict=True))
            if row != before
        ]
        text = ("" if at else _CLEAR) + "".join(changed)
        if text:
            lines.append(json.dumps([round(at, 3), "o", text], ensure_ascii=False))
        shown = list(frame.ansi)
        at += lasts
    # The last picture stays for its time.
    lines.append(json.dumps([round(at, 3), "o", ""]))
    return "\n".join(lines) + "\n"
