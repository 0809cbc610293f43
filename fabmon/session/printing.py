"""fabmon without a screen: reports and lines on standard output, progress on standard error."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from traceback import extract_tb
from typing import IO, Any, TypeVar

import numpy as np

from fabmon.alerts.settings import ALERTS_LOG
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Node
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import date_time, duration
from fabmon.fabric.wire.messages import printable
from fabmon.fabric.wording import byte_count, file_error
from fabmon.feeds.log_digest import NODES_LOG, SSH_LOG
from fabmon.private_files import new_file
from fabmon.report.output import as_json, folded
from fabmon.report.scene_report import JsonLines, finding_lines, report_json, table
from fabmon.session.errors import Exit, OutputError, cannot_write
from fabmon.session.event_loop import EndSignals
from fabmon.session.line_printer import LinePrinter
from fabmon.session.stderr_lines import LineFormatter, say

_Record = TypeVar("_Record")

_ONCE_S = 15.0
"""How long `--once` waits for the last node without --duration."""

_PROGRESS_AFTER_S = 1.0
"""Work that takes less shows no progress bar."""


async def print_lines(scenes: AsyncIterator[Scene], duration_s: float | None) -> Exit:
    """Print JSON lines until the duration is over, the reader closes the pipe, or a signal arrives:
    a recording is closed then, too."""
    printing = asyncio.ensure_future(_print_lines(scenes, duration_s))

    def stop(status: Exit) -> None:
        printing.cancel()

    with EndSignals() as signals:
        signals.on_end(stop)
        try:
            return await printing
        except asyncio.CancelledError:
            if signals.status is None:
                raise
            return signals.status


async def _print_lines(scenes: AsyncIterator[Scene], duration_s: float | None) -> Exit:
    lines = JsonLines()
    until_s = None if duration_s is None else time.monotonic() + duration_s
    ever_up, failed = False, tuple[str, ...]()
    async for scene in scenes:
        ever_up, failed = ever_up or scene.snapshot.nodes_up > 0, scene.failed_detectors
        if not write(b"".join(lines.lines(scene))):
            return Exit.OK
        if until_s is not None and time.monotonic() >= until_s:
            break
    return analysis_status(failed) if ever_up else Exit.NO_NODE


async def print_findings(
    scenes: AsyncIterator[Scene],
    duration_s: float | None,
    publish: Callable[[Scene], None],
    signals: EndSignals,
) -> Exit:
    """Print a line per change of a finding, until a signal, or the duration is over.

    Neither a full disk nor a reader that does not read stops it, since alerts are sent meanwhile.
    `publish` is called with every scene. `signals` are entered already.
    """
    reached, printer = NodesReached(), LinePrinter()

    async def read() -> None:
        async for scene in scenes:
            reached.accept(scene)
            publish(scene)
            printer.print("".join(finding_lines(scene)).encode())

    reading = asyncio.create_task(read())

    def stop(status: Exit) -> None:
        reading.cancel()

    signals.on_end(stop)
    printing = asyncio.create_task(printer.run())
    both = (reading, printing)
    await asyncio.wait(both, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED)
    reading.cancel()
    if not printing.done():
        await printer.drain()
    printing.cancel()
    # Alerts that are due are sent before this ends.
    with suppress(asyncio.CancelledError):
        await reading
    return reached.status(signals)


class NodesReached:
    """Whether any node was reached in the scenes of a run."""

    def __init__(self) -> None:
        self._is_any_up = False
        self._have_all_failed = False

    def accept(self, scene: Scene) -> None:
        """Take the scene of the next tick."""
        states = [status.state for status in scene.snapshot.statuses.values()]
        self._is_any_up = self._is_any_up or NodeState.UP in states
        self._have_all_failed = bool(states) and all(each is NodeState.FAILED for each in states)

    async def of(self, scenes: AsyncIterator[Scene]) -> AsyncIterator[Scene]:
        """The scenes, each of them taken."""
        async for scene in scenes:
            self.accept(scene)
            yield scene

    def status(self, signals: EndSignals) -> Exit:
        """The exit status of a run that a signal is the usual end of: it may come before the first
        node has answered."""
        is_early = signals.status is not None and not self._have_all_failed
        return Exit.OK if self._is_any_up or is_early else Exit.NO_NODE


async def print_once(scenes: AsyncIterator[Scene], style: str, duration_s: float | None) -> Exit:
    """Print one report: after the duration, else as soon as every node has rates or has failed.

    Most findings need more ticks than rates do: with a duration, all of it is waited for.
    """
    last: Scene | None = None
    try:
        async with asyncio.timeout(duration_s or _ONCE_S):
            async for scene in scenes:
                last = scene
                nodes = scene.snapshot.fabric.nodes
                if duration_s is None and all(_has_settled(scene, node) for node in nodes):
                    break
    except TimeoutError:
        pass
    return _print_report(last, style)


async def print_last(scenes: AsyncIterator[Scene], style: str) -> Exit:
    """Print one report of the last scene of a feed that ends."""
    last: Scene | None = None
    async for scene in scenes:
        last = scene
    status = _print_report(last, style)
    return status if last is None else analysis_status(last.failed_detectors)


def _print_report(scene: Scene | None, style: str) -> Exit:
    """Print a scene; the exit status says how many of its nodes are up."""
    if scene is None:
        return Exit.NO_NODE
    if style == "json":
        write(report_json(scene))
    else:
        write_text(table(scene) + "\n")
    answered = status_of(scene.snapshot.nodes_up, len(scene.snapshot.fabric.nodes))
    return analysis_status(scene.failed_detectors) or answered


def analysis_status(failed_detectors: Sequence[str]) -> Exit:
    """The exit status of a command that analysed all that it printed: findings may be missing where
    a detector failed, which was logged."""
    return Exit.FAILED if failed_detectors else Exit.OK


def status_of(nodes_up: int, nodes_total: int) -> Exit:
    """The exit status of a command that asked some nodes."""
    if not nodes_up:
        return Exit.NO_NODE
    return Exit.OK if nodes_up == nodes_total else Exit.SOME_NODES


def _has_settled(scene: Scene, node: Node) -> bool:
    """Whether a node has failed, has a rate of a port, or has no ports to wait for."""
    snapshot = scene.snapshot
    status = snapshot.statuses.get(node.name)
    if status is None or status.state is not NodeState.UP:
        return status is not None and status.state in (NodeState.FAILED, NodeState.LOST)
    if not node.ports:
        return bool(node.about)
    rates = snapshot.heat[:, [port.row for port in node.ports]]
    return bool((~np.isnan(rates)).any())


def log_to_stderr(*, nodes: bool = True) -> None:
    """Print warnings to standard error; those of nodes that are lost where no report names them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger(NODES_LOG).setLevel(logging.NOTSET if nodes else logging.CRITICAL)
    logging.getLogger("fabmon.recording").setLevel(logging.INFO)  # Files that were removed.
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)


class _LinesTo(logging.Handler):
    """Calls a function with each line, in the event loop in which this was made."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a line on; any thread may log."""
        self._loop.call_soon_threadsafe(self._say, record.getMessage())


@contextmanager
def screen_log_to(say: Callable[[str], None]) -> Iterator[None]:
    """Within it lines on receivers of alerts and on the user's SSH settings are passed to `say`, in
    the event loop of the caller: what is printed while the screen is shown is lost."""
    logs, handler = [logging.getLogger(name) for name in (ALERTS_LOG, SSH_LOG)], _LinesTo(say)
    for log in logs:
        log.addHandler(handler)
    try:
        yield
    finally:
        for log in logs:
            log.removeHandler(handler)


@contextmanager
def redacted_log(redactor: Redactor | None) -> Iterator[None]:
    """Within it names are replaced in every line that is logged, in any thread.

    Of an exception only the type and the place in the code are logged: its message may quote data.
    None changes nothing.
    """
    make_record = logging.getLogRecordFactory()

    def make_redacted(*args: Any, **keywords: Any) -> logging.LogRecord:
        record = make_record(*args, **keywords)
        assert redactor is not None
        text = redactor.text(record.getMessage())
        kind, _, trace = record.exc_info or (None, None, None)
        if kind is not None:
            last = extract_tb(trace)[-1:]
            place = "".join(f" at {Path(each.filename).name}:{each.lineno}" for each in last)
            text = f"{text}: {kind.__name__}{place}"
        record.msg, record.args, record.exc_info = text, (), None
        return record

    if redactor is not None:
        logging.setLogRecordFactory(make_redacted)
    try:
        yield
    finally:
        logging.setLogRecordFactory(make_record)


def print_report(style: str, record: _Record, table: Callable[[_Record], str]) -> None:
    """Print a record: as indented JSON for programs (`json`), else as its table for people."""
    if style == "json":
        write(as_json(record))
    else:
        write_text(table(record))


def write(data: bytes) -> bool:
    """Write to standard output. Returns whether the reader still reads; raises OutputError."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        return _abandon_output(error)
    return True


def write_text(text: str) -> bool:
    """Like `write`, of a report for people: on a terminal its lines are broken between words."""
    if sys.stdout.isatty():
        text = folded(text, shutil.get_terminal_size().columns)
    return write(text.encode())


@contextmanager
def output(path: Path | None) -> Iterator[IO[bytes]]:
    """A new file, or standard output without a path. A file that is not finished is removed.

    Raises UsageError if the file cannot be created, OutputError if it cannot be written. If the
    reader of standard output closes the pipe, what is written after that is discarded.
    """
    if path is None:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            _abandon_output(error)
        return
    with ExitStack() as file:
        try:
            stream = file.enter_context(new_file(path))
        except OSError as error:
            raise cannot_write(path, error) from None
        written = file.pop_all()
    try:
        with written:
            yield stream
    except OSError as error:
        raise OutputError(f"{path}: {file_error(error)}") from None


def print_written(path: Path, from_ns: int, until_ns: int) -> None:
    """Print to standard error which file was made, its size, and the time that it holds."""
    times = f"{date_time(from_ns)} to {date_time(until_ns)}"
    length = duration((until_ns - from_ns) / 1e9)
    size = byte_count(path.stat().st_size)
    say(f"wrote {path}: {size}, {times} ({length})")


def _abandon_output(error: OSError) -> bool:
    """False for a closed pipe; raises OutputError for any other error, as of a full disk."""
    # Python flushes the buffer again when it exits, which would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        raise OutputError(f"standard output: {file_error(error)}") from None
    return False


Progress = Callable[[float], None]
"""Called with the amount of work that is done so far."""


@contextmanager
def progress(what: str, total: float, unit: str = "bytes") -> Iterator[Progress]:
    """Show a progress bar on standard error once the work takes longer than a second.

    `unit` is `bytes`, `s` for seconds of a recording, or `share` if the total is 1. Nothing is
    shown if standard error is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich import progress as rich
    from rich.console import Console

    columns = {
        "bytes": (rich.DownloadColumn(), rich.TransferSpeedColumn()),
        "s": (rich.TextColumn("{task.fields[pace]}"),),
        "share": (rich.TaskProgressColumn(),),
    }
    bar = rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        *columns[unit],
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(printable(what), total=total, pace="")
    began_s = time.monotonic()
    shown = False

    def report(done: float) -> None:
        nonlocal shown
        elapsed_s = time.monotonic() - began_s
        if not shown and elapsed_s > _PROGRESS_AFTER_S:
            bar.start()
            shown = True
        parts = " of ".join(str(timedelta(seconds=round(each))) for each in (done, total))
        bar.update(
            task, completed=done, pace=f"{parts} {done / max(elapsed_s, 1e-9):.0f} x real time"
        )

    try:
        yield report
    finally:
        if shown:
            bar.stop()
