"""What the app is without its keys and its scenes: the view on top, drawn, and messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from time import monotonic
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
from fabmon.tui.typed_input import typed_text
from fabmon.tui.widgets.prompts import TypingScreen

_LONGEST_KEY_S = 2.0
"""After this time the next key no longer waits: the widget that had the last one may be gone."""


_MOST_WAITING = 64
"""Keys that wait: nobody types more ahead. What follows them would not be heard for seconds."""

_MOST_IN_FLOOD = 8
"""Keys that wait once others were left out, until none waits: each takes 10 ms or more."""

_MOST_REPEATED, _MOST_LEAVING = 16, 4
"""Of a key that is held, presses that wait: it is released before thousands were handled. Of those
that leave a page, which take 20 ms each, there are as many as pages that anybody opens. More of a
character, which may be for an input that is about to open, are text, which no view takes."""

_LEFT_OUT_S = 4.0
"""How long it is shown that keys are left out: one message for each 64 takes the time of keys."""

_WORD_KEYS = frozenset(f"alt+{letter}" for letter in "cdltuy")
"""Keys that edit a word in a shell's line. In a prompt they are no Escape, which would clear it."""

_INTERRUPT = "ctrl+c"
"""It overtakes all keys that wait."""


def _most_held(key: str) -> int:
    return _MOST_LEAVING if is_leaving(key) else _MOST_REPEATED


def _is_press(event: events.Key | events.Paste, key: str) -> bool:
    return isinstance(event, events.Key) and event.key == key


def _is_leaving(event: events.Key | events.Paste) -> bool:
    return isinstance(event, events.Key) and is_leaving(event.key)


def _is_text(event: events.Key | events.Paste) -> bool:
    return isinstance(event, events.Paste) or event.is_printable


class KeyHandled(Message):
    """A key, or a text that was pasted, was handled.

    It follows the key through the widgets that may keep it. For a key that they hand on to the app
    the app posts it itself: what the key does there may close these widgets.
    """

    def __init__(self, key: events.Key | events.Paste) -> None:
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
        self._waiting_keys: deque[events.Key | events.Paste] = deque()
        self._most_waiting = _MOST_WAITING
        self._key: events.Key | events.Paste | None = None
        self._key_limit: Timer | None = None
        self._message = ""
        self._silent_until_s = 0.0

    async def on_event(self, event: Event) -> None:
        """Handle an event; a key, or a text that was pasted, waits for the key before it."""
        if isinstance(event, events.Paste) and not event.is_forwarded:
            await self._wait([event])
        elif not isinstance(event, events.Key):
            await super().on_event(event)
        elif event.is_forwarded:
            await super().on_event(event)
            self.post_message(KeyHandled(event))
        elif event.key == _INTERRUPT:
            self._waiting_keys = deque([event])
            await self._handle_next_key()
        else:
            await self._wait(self._typed(event))

    async def _wait(self, newest: Sequence[events.Key | events.Paste]) -> None:
        self._waiting_keys += newest
        self._cut_held()
        if self._key is None or _is_text(self._key):
            self._join_text()
        if len(self._waiting_keys) > self._most_waiting:
            self._waiting_keys = deque(newest)
            self._most_waiting = _MOST_IN_FLOOD
            if not any(_is_leaving(each) for each in newest):
                self.drawings.heard()
            if monotonic() >= self._silent_until_s:
                self._silent_until_s = monotonic() + _LEFT_OUT_S
                self.say("keys are left out: more came than can be handled", _LEFT_OUT_S)
        elif self._key is None:
            await self._handle_next_key()

    def _cut_held(self) -> None:
        """Leave out the last press of a key that is held; one of a character becomes text."""
        last = self._waiting_keys[-1]
        if not isinstance(last, events.Key):
            return
        before = self._waiting_keys[-2] if len(self._waiting_keys) > 1 else None
        if isinstance(before, events.Paste) and set(before.text) == {last.character}:
            self._waiting_keys.pop()
            self._waiting_keys[-1] = events.Paste(before.text + (last.character or ""))
            return
        most = _MOST_REPEATED if last.is_printable else _most_held(last.key)
        held = [*islice(reversed(self._waiting_keys), most + 1)]
        if len(held) > most and all(_is_press(each, last.key) for each in held):
            self._waiting_keys.pop()
            if last.is_printable:
                self._waiting_keys.append(events.Paste(last.character or ""))

    def _join_text(self) -> None:
        """What waits first is one text where it is typed into an input."""
        if self._is_typing:
            parts = [*takewhile(_is_text, self._waiting_keys)]
            if len(parts) > 1:
                # An input takes the first line of a text.
                lines = (each.splitlines()[0] for each in map(typed_text, parts) if each)
                text = events.Paste("".join(lines))
                self._waiting_keys = deque([text, *islice(self._waiting_keys, len(parts), None)])

    @property
    def _is_typing(self) -> bool:
        return isinstance(self.focused, Input) or isinstance(self.screen, TypingScreen)

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
        self._join_text()
        self._drop_held()
        if self._waiting_keys:
            await self._handle_key(self._waiting_keys.popleft())
        else:
            self._most_waiting = _MOST_WAITING
            self.screen.call_after_refresh(self.key_priority.shown)

    def _drop_held(self) -> None:
        """Where nothing is typed, leave out text that was pasted, and presses of the next key that
        are more than count."""
        if self._is_typing:
            return
        waiting = self._waiting_keys
        while waiting and isinstance(waiting[0], events.Paste):
            waiting.popleft()
        if waiting and isinstance(first := waiting[0], events.Key):
            presses = takewhile(lambda each: _is_press(each, first.key), waiting)
            for _ in range(sum(1 for _ in presses) - _most_held(first.key)):
                waiting.popleft()

    async def _handle_key(self, key: events.Key | events.Paste) -> None:
        target = self.focused or self.screen
        if _is_leaving(key) and not any(map(_is_leaving, self._waiting_keys)):
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
        """Show a message in the last line; as many keys as fit are beside it."""
        self._message = message
        shown = fit(message, max(1, self.size.width - 4)).rstrip()
        # Tests show none: how long one stays depends on the machine.
        self.screen_state.message = "" if self._disable_notifications else shown
        super().notify(shown, **options)
        self.set_timer(options.get("timeout") or self.NOTIFICATION_TIMEOUT, self._drop_expired)
        self.call_later(self.repaint)

    def on_notify(self) -> None:
        """Make room for the message that is about to be shown: there is one line.

        Textual 8.2 removes messages that are cleared, and keeps the containers that they were in.
        """
        self._remove_message()

    def unsay(self, text: str) -> None:
        """Remove this line where it is the last one that was shown."""
        if self._message == text:
            self._remove_message()
            self.screen_state.message = ""
            self.repaint()

    def _drop_expired(self) -> None:
        if self.screen_state.message and not len(self._notifications):
            self.screen_state.message = ""
            self.repaint()

    def _remove_message(self) -> None:
        self.clear_notifications()
        self.screen.query("ToastHolder").remove()

    def skip_while_typing(self) -> None:
        """Leave the key to an input or a menu that is open."""
        if isinstance(self.focused, Input) or not isinstance(self.screen, ViewScreen):
            raise SkipAction
