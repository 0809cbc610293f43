"""What is on several lines: the last error of an exception, tracebacks, and torchrun's summary.

Lines of several ranks are mixed in a log: those with the same label belong together.
"""

from __future__ import annotations

import re

import msgspec

from fabmon.analysis.job_log.crashes import exit_text
from fabmon.analysis.job_log.events import EXCEPTION, PROCESS, Failure
from fabmon.analysis.job_log.launchers import SOME_PROCESS
from fabmon.analysis.job_log.log_lines import LogLine, parse_line
from fabmon.analysis.job_log.log_times import find_time

_LAST_ERROR = "Last error:"
_TERMINATED = "terminate called"
_CONTINUED = re.compile(
    rf"\s*(?:{_TERMINATED}|what\(\):|nccl\w+(?:Error|Usage|Progress|Argument): )"
)
"""Lines of an exception after its first: the name of its error, and the exception once more where
it ends the process."""
_MOST_AFTER_ERROR = 30
"""Lines of any rank after an exception, among which its last error is."""
_TRACEBACK = "Traceback (most recent call last)"
_MOST_OF_TRACEBACK = 500
"""Lines of any rank in which a traceback is: those of a recursion are a few hundred."""
_MOST_OF_SUMMARY = 20_000
"""Lines of torchrun's summary: seven for each process that failed."""
_SUMMARY = re.compile(r"\s*(host|rank|exitcode)\s*: ?\s*(\S+)")
_IN_SUMMARY = re.compile(
    r"\s*(?:host|rank|exitcode|time|error_file|traceback)\s*:|.* FAILED$|Root Cause|Failures:"
)
_SUMMARY_KEYS = frozenset(("host", "rank", "exitcode"))
_NEXT_PROCESS = re.compile(r"\s*\[\d+\]:\s*$|\s*[-=]{10,}\s*$")


class _Open(msgspec.Struct):
    """An exception or a summary whose lines may follow. `is_next`: the next line is its last
    error; `has_error`: that was read, before where this is the exception again."""

    line: LogLine
    left: int
    work: str = ""
    is_next: bool = False
    has_error: bool = False
    summary: dict[str, str] | None = None


class SeveralLines:
    """Puts together lines that belong together."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], _Open] = {}
        self._tracebacks: dict[tuple[str, str], int] = {}
        """Tracebacks of Python whose exception follows, and how many lines are waited for."""

    @property
    def is_open(self) -> bool:
        """Whether lines that follow may belong to one that was read."""
        return bool(self._open or self._tracebacks)

    def complete(self, line: LogLine, source: str) -> LogLine:
        """A line with a mark, with what it has from lines before it."""
        line = self._completed(line, source)
        raised = self._raised(line, (source, line.label))
        if _TRACEBACK in line.body:
            self._tracebacks[source, line.label] = _MOST_OF_TRACEBACK
        return raised or line

    def _raised(self, line: LogLine, key: tuple[str, str]) -> LogLine | None:
        """A line as that of the exception which a traceback ends with; None if it is none. That a
        job which prints one has failed is not known: it may have gone on."""
        for other, left in list(self._tracebacks.items()):
            if other[0] == key[0]:
                self._tracebacks[other] = left - 1
                if not left:
                    del self._tracebacks[other]
        is_inside = not line.body.strip() or line.body[0].isspace()
        if key not in self._tracebacks or is_inside:
            return None
        del self._tracebacks[key]
        is_known = bool(line.events) or _TRACEBACK in line.body
        return None if is_known else msgspec.structs.replace(line, is_unread=True)

    def _completed(self, line: LogLine, source: str) -> LogLine:
        key = source, line.label
        opened = self._step(key)
        if opened is not None and opened.summary is None:
            # A line with the prefix of another process is no part of the exception.
            opened = opened if line.process in (None, opened.line.process) else None
        if opened is not None and opened.summary is None and line.rank < 0:
            line = msgspec.structs.replace(line, rank=opened.line.rank)
        if opened is not None and opened.summary is not None:
            of_summary = _of_summary(line, opened)
            if of_summary is not None:
                return of_summary
            if _IN_SUMMARY.match(line.body):
                line = msgspec.structs.replace(line, is_unread=False)
        _, is_last, rest = line.body.partition(_LAST_ERROR)
        if is_last:
            if rest.strip():
                return _detail(parse_line(rest, is_detail=True), opened)
            before = line if opened is None else opened.line
            work = "" if opened is None else opened.work
            known = opened is not None and opened.has_error
            self._put(key, _Open(before, _MOST_AFTER_ERROR, work, True, known))
            return msgspec.structs.replace(line, is_unread=False)
        if opened is not None and opened.is_next:
            return _detail(line, opened)
        is_continued = (
            opened is not None
            and line.rank == opened.line.rank
            and _CONTINUED.match(line.body) is not None
        )
        for event in line.events:
            if not isinstance(event, Failure):
                continue
            if event.kind == EXCEPTION:
                is_first = opened is None or bool(event.work)
                first = line if is_first or opened is None else opened.line
                work = event.work if opened is None or is_first else opened.work
                known = is_continued and opened is not None and opened.has_error
                self._put(key, _Open(first, _MOST_AFTER_ERROR, work, has_error=known))
            elif event.kind == PROCESS and event.text == SOME_PROCESS:
                self._put(key, _Open(line, _MOST_OF_SUMMARY, summary={}))
        if is_continued and opened is not None:
            return _without_known(line, opened)
        return line

    def belonging(self, text: str, source: str) -> LogLine | None:
        """A line without a mark, if it belongs to one that was read."""
        line = parse_line(text)
        raised = self._raised(line, (source, line.label))
        opened = self._step((source, line.label))
        if opened is None:
            return raised
        if opened.summary is not None:
            return _of_summary(line, opened) or raised
        if opened.is_next and line.body.strip():
            return _detail(line, opened)
        return raised

    def _put(self, key: tuple[str, str], opened: _Open) -> None:
        self._open.pop(key, None)
        self._open[key] = opened

    def _step(self, key: tuple[str, str]) -> _Open | None:
        """What is open for a label; what has waited too long is closed. Without a label it is the
        last exception: PyTorch writes its label on the first line of a message only."""
        for other, opened in list(self._open.items()):
            if other[0] == key[0]:
                opened.left -= 1
                if opened.left < 0:
                    del self._open[other]
        if key in self._open or key[1]:
            return self._open.get(key)
        recent = (each for other, each in reversed(self._open.items()) if other[0] == key[0])
        return next((each for each in recent if each.summary is None), None)


def _without_known(line: LogLine, opened: _Open) -> LogLine:
    """A line of an exception without what its first line said: it is one."""
    if _TERMINATED in line.body:
        return msgspec.structs.replace(line, events=())
    first = {each.text for each in opened.line.events if isinstance(each, Failure)}
    others = tuple(
        each
        for each in line.events
        if not (isinstance(each, Failure) and each.kind == EXCEPTION) or each.text not in first
    )
    return msgspec.structs.replace(line, events=others)


def _detail(line: LogLine, opened: _Open | None) -> LogLine:
    """A line that is the last error of an exception: by its rank and process. It is none where the
    exception is written again."""
    if opened is None:
        return line
    opened.is_next, was_known = False, opened.has_error
    opened.has_error = True
    if was_known:
        return msgspec.structs.replace(line, events=(), is_unread=False)
    events = tuple(
        msgspec.structs.replace(event, work=opened.work) if isinstance(event, Failure) else event
        for event in line.events
    )
    return msgspec.structs.replace(
        line,
        events=events,
        process=line.process or opened.line.process,
        host=line.host or opened.line.host,
        rank=line.rank if line.rank >= 0 else opened.line.rank,
        dated=line.dated if find_time(line.dated) else opened.line.dated,
        is_unread=not events,
    )


def _of_summary(line: LogLine, opened: _Open) -> LogLine | None:
    """The process of torchrun's summary of which a line is the last."""
    assert opened.summary is not None
    found = _SUMMARY.match(line.body)
    if found is None:
        if not _NEXT_PROCESS.match(line.body):
            return None
        opened.summary.clear()
        return None
    opened.summary[found[1]] = found[2]
    known = opened.summary
    if not known.keys() >= _SUMMARY_KEYS:
        return None
    code, rank = known["exitcode"], known["rank"]
    if not (code.lstrip("-").isdecimal() and rank.isdecimal() and len(code + rank) < 19):
        return None
    failure = Failure(
        kind=PROCESS, text=exit_text(int(code)), code=int(code), rank=int(rank), peer=known["host"]
    )
    known.clear()
    return msgspec.structs.replace(line, events=(failure,), is_unread=False)
