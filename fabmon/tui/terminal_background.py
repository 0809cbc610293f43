"""The background of the terminal: the query (OSC 11), its answer, and the theme that it means."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rich.color import Color

from fabmon.tui.palette import Theme, lightness

QUERY = "\x1b]11;?\x1b\\"
"""xterm's control sequences, OSC 11: report the background colour."""
ANSWER = re.compile(rb"\x1b\]11;([^\x07\x1b]{0,64})(?:\x07|\x1b\\)")
ANSWER_BEGUN = re.compile(rb"\x1b(\](1(1(;[^\x07\x1b]{0,64}\x1b?)?)?)?)?\Z")
"""The end of the input, where it may be the beginning of an answer."""

_RGB = re.compile(r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})(?:/[0-9a-f]{1,4})?")
_HEX = re.compile(r"#(?:[0-9a-f]{3}){1,4}")
_LIGHT_FROM = 50.0
"""CIE L* from which on a background is light."""
_LIGHT_COLOURS = {"7", *map(str, range(9, 16))}
"""Of the 16 colours, those that vim takes for light backgrounds in COLORFGBG."""


def theme_of(answer: str) -> Theme | None:
    """The theme for a background as X11 writes colours: `rgb:ffff/ffff/ffff` or `#ffffff`.

    None if it is not a colour.
    """
    text = answer.strip().lower()
    if found := _RGB.fullmatch(text):
        parts = list(found.groups())
    elif _HEX.fullmatch(text):
        size = (len(text) - 1) // 3
        parts = [text[at : at + size] for at in range(1, len(text), size)]
    else:
        return None
    # X11 scales each part by its own number of digits: f, ff and ffff are all white.
    colour = Color.from_rgb(*(int(part, 16) / (16 ** len(part) - 1) * 255 for part in parts))
    return Theme.LIGHT if lightness(colour) >= _LIGHT_FROM else Theme.DARK


def theme_without_answer(environ: Mapping[str, str]) -> Theme:
    """The theme by COLORFGBG (`15;0`), which some terminals set; dark if it is not set."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return Theme.LIGHT if background in _LIGHT_COLOURS else Theme.DARK
