"""Shows scenes as the options ask: on the screen, as a picture, as a report or as JSON lines."""

from __future__ import annotations

import asyncio
import importlib
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fabmon import private_files
from fabmon.analysis.scene import Scene
from fabmon.fabric.jobs.job import JobFilter
from fabmon.fabric.time_wording import interval
from fabmon.fabric.wording import file_error
from fabmon.private_files import open_own, replace_file
from fabmon.session import printing
from fabmon.session.errors import Exit, OutputError, UsageError, cannot_write
from fabmon.session.event_loop import EndSignals
from fabmon.session.recorder_setup import DEMO_MARK
from fabmon.session.stderr_lines import say
from fabmon.tui.run_facts import RunFacts

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from fabmon.query.sources import WatchSource
    from fabmon.tui.app import FabmonApp
    from fabmon.tui.choices import Choices

_PICTURE_SIZE = (120, 32)
_PICTURE_COLOR = "truecolor"
"""A file shows every colour, whatever the terminal supports in which it is made."""
_PICTURE_AFTER_S = 10.0
_KEEPING_S = 1.0
"""How long the end of a screen waits for a home directory that may hang."""
_SCREEN_MODULES = ("fabmon.scenes.recording_access", "fabmon.tui.app")


FINDINGS = "findings"
"""The style of `fabmon watch`: a line for every change of a finding."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `fabmon` and `fabmon demo`; None for those that were not given.

    `jobs` select nodes by what runs on them; `model` is a file about the model that is trained.
    `style` is the --format: table, json or jsonl; FINDINGS for `fabmon watch`, which serves metrics
    at the host and port `metrics`, writes a page into the directory `page`, and answers questions
    at `socket` (None: in the user's runtime directory). With `perf` the end says what a tick cost.
    """

    hosts: Path | None = None
    nodesets: tuple[str, ...] = ()
    jobs: JobFilter = JobFilter()
    sflow: str | None = None
    nccl_inspector: str | None = None
    prometheus: str | None = None
    matches: tuple[str, ...] = ()
    token_file: Path | None = None
    style: str | None = None
    once: bool = False
    duration_s: float | None = None
    interval_s: float | None = None
    config: Path | None = None
    topologies: tuple[Path, ...] = ()
    ssh_config: Path | None = None
    color: str | None = None
    theme: str | None = None
    picture: Path | None = None
    record: Path | None = None
    redact: bool = False
    metrics: tuple[str, int] | None = None
    page: Path | None = None
    socket: Path | None = None
    model: Path | None = None
    perf: bool = False

    def nodes_options(self) -> str:
        """`--hosts hosts.txt`: the options that name the nodes, as a shell reads them; with names
        replaced, or without such options, a placeholder."""
        words = [] if self.hosts is None else ["--hosts", str(self.hosts)]
        words += [word for each in self.nodesets for word in ("--host", each)]
        return shlex.join(words) if words and not self.redact else "--hosts FILE"


async def load_screen() -> None:
    """Import the screen in a thread: the nodes that were begun to connect to go on meanwhile."""
    await asyncio.to_thread(lambda: [importlib.import_module(each) for each in _SCREEN_MODULES])


def is_screen(options: RunOptions) -> bool:
    """Whether the options ask for the screen, and there is a terminal to draw it on."""
    is_wanted = options.style is None and not options.once and options.picture is None
    return is_wanted and not why_no_screen()


def is_report(options: RunOptions) -> bool:
    """Whether the options ask for one report, or there is no terminal for a screen."""
    is_single = options.style not in ("jsonl", FINDINGS) and options.picture is None
    return is_single and (options.once or not can_draw())


async def show(
    scenes: AsyncIterator[Scene],
    options: RunOptions,
    facts: RunFacts,
    signals: EndSignals | None,
) -> Exit:
    """Show scenes until they end, the duration is over or the user exits.

    `signals` are those that end the run, None where nothing but the screen is closed then.
    """
    if options.style == "jsonl":
        printing.log_to_stderr()
        return await printing.print_lines(scenes, options.duration_s)
    if options.style == FINDINGS:
        printing.log_to_stderr()
        assert signals is not None, "a service has them from its start"
        return await _serve_findings(scenes, options, facts, signals)
    if is_report(options):
        printing.log_to_stderr(nodes=False)
        return await printing.print_once(scenes, options.style or "table", options.duration_s)
    if options.picture is not None:
        app = _app(scenes, replace(facts, color=options.color or _PICTURE_COLOR))
        return await _take_picture(app, options.picture, options.duration_s)
    return await show_screen(scenes, facts, options.duration_s, signals)


async def _serve_findings(
    scenes: AsyncIterator[Scene], options: RunOptions, facts: RunFacts, signals: EndSignals
) -> Exit:
    """Print findings; serve metrics and answer questions, as the options say."""
    from fabmon.query.sources import WatchSource

    source = WatchSource(facts.title)
    takers: list[Callable[[Scene], None]] = [source.take]
    async with AsyncExitStack() as stack:
        if options.metrics is not None:
            takers.append(await _metrics(stack, *options.metrics))
        if options.page is not None:
            from fabmon.session.live_page import LivePage

            written = LivePage(options.page, facts.title)
            stack.push_async_callback(written.close)
            takers.append(written.take)
        await _answer_questions(stack, source, options.socket)

        def take(scene: Scene) -> None:
            for taker in takers:
                taker(scene)

        # Not before: what is wrong with the options is said instead.
        say(facts.watched)
        return await printing.print_findings(scenes, options.duration_s, take, signals)


async def _metrics(stack: AsyncExitStack, host: str, port: int) -> Callable[[Scene], None]:
    from fabmon.alerts.metrics_server import metrics_server

    try:
        return await stack.enter_async_context(metrics_server(host, port))
    except OSError as error:
        # asyncio's own text of an address in use has the address twice.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise UsageError(f"--metrics {host}:{port}: {why}") from None


async def _answer_questions(
    stack: AsyncExitStack, source: WatchSource, wanted: Path | None
) -> None:
    """Answer `fabmon query` while the stack is open. Without a directory for the socket a line says
    so; a path that the user gave must be usable."""
    from fabmon.query.answering import answer
    from fabmon.query.watch_socket import answering_socket, default_path

    path = wanted
    try:
        path = wanted or default_path()
        await stack.enter_async_context(answering_socket(path, lambda q: answer(source, q)))
    except OSError as error:
        why = f"{path or error.filename or ''}: {error.strerror or error}".lstrip(": ")
        if wanted is not None:
            raise cannot_write(wanted, error) from None
        say(f"no questions are answered: {why}")


async def show_screen(
    scenes: AsyncIterator[Scene] | None,
    facts: RunFacts,
    duration_s: float | None = None,
    signals: EndSignals | None = None,
) -> Exit:
    """Run the screen until the user exits, a signal arrives or the duration is over."""
    if signals is None:
        with EndSignals() as signals:
            return await show_screen(scenes, facts, duration_s, signals)
    reached = printing.NodesReached()
    app = _app(None if scenes is None else reached.of(scenes), facts)
    if signals.status is not None:
        return signals.status
    signals.on_end(lambda status: app.exit(return_code=status))
    if duration_s is not None:
        asyncio.get_running_loop().call_later(duration_s, app.exit)
    with printing.screen_log_to(app.warn):
        await app.run_async()
    problem = ""
    if facts.preferences is not None:
        problem = await _kept(facts.preferences.keep, app.screen_state.choices)
    if problem:
        say(problem)
    status = signals.status or app.return_code
    if status or scenes is None:
        return Exit(status or Exit.OK)
    return reached.status(signals)


async def _kept(keep: Callable[[Choices], str], choices: Choices) -> str:
    """Keep what the user chose; why that failed, or nothing."""
    try:
        async with asyncio.timeout(_KEEPING_S):
            return await asyncio.to_thread(keep, choices)
    except TimeoutError:
        within = interval(_KEEPING_S)
        return f"the choices of this run are not kept: no answer from its directory in {within}"


def _app(scenes: AsyncIterator[Scene] | None, facts: RunFacts) -> FabmonApp:
    from fabmon.tui.app import FabmonApp

    return FabmonApp(scenes, facts)


async def _take_picture(app: FabmonApp, path: Path, after_s: float | None) -> Exit:
    """Run the screen without a terminal for a while, then write what it shows as SVG."""
    failure: OSError | None = None

    async def take(pilot: Pilot[None]) -> None:
        nonlocal failure
        await asyncio.sleep(_PICTURE_AFTER_S if after_s is None else after_s)
        await pilot.pause()
        try:
            await asyncio.to_thread(_write_picture, path, app.picture())
        except OSError as error:
            failure = error
        app.exit()

    await app.run_async(headless=True, size=_PICTURE_SIZE, auto_pilot=take)
    if failure is not None:
        raise OutputError(f"{path}: {file_error(failure)}")
    say(f"wrote {path}")
    return Exit.OK


def _write_picture(path: Path, svg: str) -> None:
    """Write a picture, in the place of one that may be there; a new file may only be read by its
    owner, since it names hosts and users."""
    if _is_new(path) or path.is_file():
        replace_file(path, svg.encode(), keeps_mode=True)
    else:
        with os.fdopen(open_own(path, os.O_WRONLY), "wb") as file:
            file.write(svg.encode())


def warn_of_simulation() -> None:
    """Print to standard error that a report is of the demo."""
    say(f"{DEMO_MARK}: nothing in this report is real")


def check_writable(path: Path) -> None:
    """Raise UsageError or OutputError if a file cannot be written."""
    try:
        if not _is_new(path):
            os.close(open_own(path, os.O_WRONLY))
        if _is_new(path) or path.is_file():
            private_files.check_writable(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from None


def _is_new(path: Path) -> bool:
    return not os.path.lexists(path)


def can_draw() -> bool:
    """Whether the screen can be drawn; if not, prints why to standard error."""
    why = why_no_screen()
    if why:
        say(f"{why}: one report instead of the screen")
    return not why


def why_no_screen() -> str:
    """Why the screen cannot be drawn; empty if it can be.

    Textual reads keys from standard input and draws on standard error.
    """
    streams = {
        "standard input": sys.stdin,
        "standard output": sys.stdout,
        "standard error": sys.stderr,
    }
    others = [name for name, each in streams.items() if not each.isatty()]
    if others:
        all_of_them = len(others) == len(streams)
        return "no terminal" if all_of_them else f"no terminal on {' and '.join(others)}"
    return "TERM=dumb" if os.environ.get("TERM") == "dumb" else ""
