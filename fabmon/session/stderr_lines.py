"""Lines on standard error, in which names of files and of machines send a terminal no commands."""

from __future__ import annotations

import logging
import sys

from fabmon.fabric.wire.messages import printable


def say(text: str) -> None:
    """Print a text to standard error, as `fabmon: ...`."""
    print(f"fabmon: {printable_lines(text)}", file=sys.stderr, flush=True)


class LineFormatter(logging.Formatter):
    """Formats what is logged as `say` prints it."""

    def format(self, record: logging.LogRecord) -> str:
        """A record with its traceback."""
        return f"fabmon: {printable_lines(super().format(record))}"


def printable_lines(text: str) -> str:
    """A text with `?` in place of every character that is not printable, except line breaks."""
    return "\n".join(map(printable, text.split("\n")))
