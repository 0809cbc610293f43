"""What the user prefers, as far as the screen starts with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabmon.tui.keys import KEYS, Key
from fabmon.tui.screen_state import Choices


@dataclass(frozen=True, slots=True)
class Preferences:
    """How the screen starts: options, configuration and what was kept of the last run.

    `keys` are those of the user. `notice` is shown once at the start; empty for nothing.
    """

    choices: Choices = field(default_factory=Choices)
    keys: tuple[Key, ...] = KEYS
    notice: str = ""
