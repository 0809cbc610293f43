"""What the app is without its keys and its scenes: the view on top, drawn, and messages."""

from __future__ import annotations

from collections import deque
from typing import Any

from textual import events
from textual.actions import SkipAction
from textual.events import Event
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input

from fabmon.scenes.recording_access import RecordingAccess
from fabmon.tui.containment import ContainingApp
from fabmon.tui.drawings import is_leaving
from fabmon.tui.line import fit
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.time.player import Player

_LONGEST_KEY_S = 2.0
"""After this time the next key no longer waits: the widget that had the last one may be gone."""


_MOST_WAITING = 64
"""Keys that wait: nobody types more ahead. What follows them would not be heard for seconds."""

_WORD_KEYS = frozenset(f"alt+{letter}" for letter in "cdltuy")
"""Keys that edit a word in a shell's line. In a prompt they are no Escape, which would clear it."""

_INTERRUPT = "ctrl+c"
"""It overtakes all keys that wait."""


class KeyHandled(Message):
    """A key was handled.

    It follows the key through the widgets that may keep it. For a key that they hand on to the app
    the app posts it itself: what the key does there may close these widgets.
    """

    def __init__(self, key: events.Key) -> None:
        super().__init__()
        self.key = key


class ScreenApp(ContainingApp):
    """An app that draws a screen state; its subclasses set the attributes.

    Keys are handled one after the other. Textual hands all keys that arrive together, as on a slow
    connection, to the widget in focus at that time: of ``t -10m``, all that follows the ``t`` would
    miss the input that the ``t`` opens.
    """

    screen_state: ScreenState
    recording: RecordingAccess
    player: Player

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._waiting_keys: deque[events.Key] = deque()
        self._key: events.Key | None = None
        self._key_limit: Timer | None = None
        self._message = ""

    async def on_event(self, event: Event) -> None:
        """Handle an event; a key waits for the one before it."""
        if not isinstance(event, events.Key):
            await super().on_event(event)
        elif event.is_forwarded:
            await super().on_event(event)
            self.post_message(KeyHandled(event))
        else:
            self._waiting_keys += self._typed(event)
            if event.key == _INTERRUPT:
                self._waiting_keys = deque([event])
                await self._handle_next_key()
            elif len(self._waiting_keys) > _MOST_WAITING:
                self._waiting_keys.clear()
                self.drawings.heard()
                self.say("keys are left out: more came than can be handled")
            elif self._key is None:
                await self._handle_next_key()

    def _typed(self, key: events.Key) -> list[events.Key]:
        """The key, or Escape and another that came in one packet, unless they have a meaning
        together: a key with alt."""
        name = key.key.removeprefix("alt+")
        if key.character is None or name == key.key or self._is_mapped(key.key):
            return [key]
        if key.key in _WORD_KEYS and isinstance(self.focused, Input):
            return [events.Key(key.key, None)]
        name = key.character if key.character.isalnum() else name
        return [events.Key("escape", "\x1b"), events.Key(name, key.character)]

    def _is_mapped(self, name: str) -> bool:
        return any(name in key.keys.split(",") for key in self.screen_state.keys)

    async def on_key_handled(self, event: KeyHandled) -> None:
        """Handle the next key, once for each key."""
        if event.key is self._key:
            await self._handle_next_key()

    async def _handle_next_key(self) -> None:
        if self._key_limit is not None:
            self._key_limit.stop()
        self._key = self._key_limit = None
        if self._waiting_keys:
            await self._handle_key(self._waiting_keys.popleft())

    async def _handle_key(self, key: events.Key) -> None:
        target = self.focused or self.screen
        if is_leaving(key.key) and not any(is_leaving(each.key) for each in self._waiting_keys):
            self.drawings.heard()
        self._key = key
        self._key_limit = self.set_timer(_LONGEST_KEY_S, self._handle_next_key)
        await super().on_event(key)
        if not key.is_forwarded or not target.post_message(KeyHandled(key)):
            self.post_message(KeyHandled(key))

    def repaint(self) -> None:
        """Draw the topmost view; a menu or a palette may be above it."""
        self.player.load_timeline(self.size.width)
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ViewScreen):
                screen.paint()
                return

    def say(self, text: str, seconds: float = 4) -> None:
        """Answer a key in one line for some seconds."""
        self.notify(text, timeout=seconds, markup=False)

    def warn(self, text: str) -> None:
        """Show what went wrong for some seconds."""
        self.notify(text, timeout=10, markup=False, severity="warning")

    def notify(self, message: str, **options: Any) -> None:
        """Show a message in one line."""
        self._message = message
        super().notify(fit(message, max(1, self.size.width - 4)).rstrip(), **options)

    def on_notify(self) -> None:
        """Make room for the message that is about to be shown: there is one line.

        Textual 8.2 removes messages that are cleared, and keeps the containers that they were in.
        """
        self._remove_message()

    def unsay(self, text: str) -> None:
        """Remove this line where it is the last one that was shown."""
        if self._message == text:
            self._remove_message()

    def _remove_message(self) -> None:
        self.clear_notifications()
        self.screen.query("ToastHolder").remove()

    def skip_while_typing(self) -> None:
        """Leave the key to an input or a menu that is open."""
        if isinstance(self.focused, Input) or not isinstance(self.screen, ViewScreen):
            raise SkipAction
