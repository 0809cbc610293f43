"""Scenes on the screen, as a picture, as a report or as lines: whatever the options say."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fabmon.analysis.scene import Scene
from fabmon.session import printing
from fabmon.session.errors import Exit, OutputError, UsageError
from fabmon.session.run_options import RunOptions

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from fabmon.tui.app import AskBurst, FabmonApp
    from fabmon.tui.saving import SaveFunctions
    from fabmon.tui.screen_state import Caption
    from fabmon.tui.time.time_keys import Travel

_PICTURE_SIZE = (120, 32)
_PICTURE_COLOR = "truecolor"
"""A file shows every colour, whatever the terminal does that it is made in."""
_PICTURE_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class Look:
    """What the screen says of the feed behind it: `mark` where nothing is real.

    `ask_burst` is how ports are sampled fast, None where nobody can be asked; `nothing` says why
    there are no nodes. `saves` is how the screen keeps what it does not draw; `travel` is where one
    can go back to.
    """

    title: str
    color: str
    mark: str = ""
    captions: Sequence[Caption] = ()
    ask_burst: AskBurst | None = None
    nothing: Callable[[], str] = str
    saves: SaveFunctions | None = None
    travel: Travel | None = None


def is_screen(options: RunOptions) -> bool:
    """Whether a person is to see it drawn, and there is a terminal to draw it on."""
    is_wanted = options.style is None and not options.once and options.picture is None
    return is_wanted and not why_unpaintable()


async def show(scenes: AsyncIterator[Scene], options: RunOptions, look: Look) -> Exit:
    """Show scenes until they end or it is time to leave."""
    if options.style == "jsonl":
        printing.log_to_stderr()
        return await printing.stream(scenes, options.duration_s)
    if options.picture is None and (options.once or not can_paint()):
        printing.log_to_stderr()
        return await printing.once(scenes, options.style or "table", options.duration_s)
    from fabmon.tui.app import FabmonApp

    app = FabmonApp(
        scenes,
        title=look.title,
        color=look.color if options.picture is None else options.color or _PICTURE_COLOR,
        mark=look.mark,
        captions=look.captions,
        ask_burst=look.ask_burst,
        nothing=look.nothing,
        saves=look.saves,
        travel=look.travel,
    )
    if options.picture is not None:
        return await _take_picture(app, options.picture, options.duration_s)
    if options.duration_s is not None:
        asyncio.get_running_loop().call_later(options.duration_s, app.exit)
    await app.run_async()
    return Exit(app.return_code or Exit.OK)


async def _take_picture(app: FabmonApp, path: Path, after_s: float | None) -> Exit:
    """Run the screen without a terminal for a while, then keep what it shows as SVG."""

    failure: OSError | None = None

    async def take(pilot: Pilot[None]) -> None:
        nonlocal failure
        await asyncio.sleep(_PICTURE_AFTER_S if after_s is None else after_s)
        await pilot.pause()
        try:
            await asyncio.to_thread(path.write_text, app.picture(), "utf-8")
        except OSError as error:
            failure = error
        app.exit()

    await app.run_async(headless=True, size=_PICTURE_SIZE, auto_pilot=take)
    if failure is not None:
        raise OutputError(f"{path}: {failure.strerror}")
    return Exit.OK


def check_writable(path: Path) -> None:
    """Raise UsageError now rather than after the watching."""
    is_new = not path.exists()
    try:
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise UsageError(f"--picture {path}: {error.strerror}") from None


def can_paint() -> bool:
    """Whether the screen can be drawn; says on standard error when it cannot."""
    why = why_unpaintable()
    if why and sys.stderr is not None:
        print(f"fabmon: {why}: one report instead of the screen", file=sys.stderr)
    return not why


def why_unpaintable() -> str:
    """Why the screen cannot be drawn; empty when it can.

    Textual reads keys from standard input and draws on standard error.
    """
    streams = {
        "standard input": sys.stdin,
        "standard output": sys.stdout,
        "standard error": sys.stderr,
    }
    others = [name for name, each in streams.items() if not (each and each.isatty())]
    if others:
        all_of_them = len(others) == len(streams)
        return "no terminal" if all_of_them else f"no terminal on {' and '.join(others)}"
    return "TERM=dumb" if os.environ.get("TERM") == "dumb" else ""
