"""A feed that is watched: shown or printed as the options say, recorded, and its findings sent."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import interval
from fabmon.fabric.wording import plural
from fabmon.recording.writing.recorder import Recorder
from fabmon.scenes.pipeline import AnalysisTime, Pipeline
from fabmon.session.errors import Exit, UsageError
from fabmon.session.event_loop import EndSignals
from fabmon.session.presentation import FINDINGS, RunOptions, is_screen, show
from fabmon.session.recorder_setup import DEMO_MARK, describe_status, recorder_for, ring_recorder
from fabmon.session.session import Session, scenes_of
from fabmon.session.stderr_lines import say
from fabmon.tui.run_facts import RunFacts

if TYPE_CHECKING:
    from fabmon.alerts.delivery import Alerts

REDACTED_TITLE = "without names"
_SWITCH_S = 0.001
"""How long another thread may run Python while the screen waits: by default it is 5 ms, at every
wait for input, and a block of a recording takes 0.1 s to compress."""


@dataclass(frozen=True, slots=True)
class WatchedFeed:
    """A feed that is watched: `ticks` and `hosts` have the names that are shown.

    `past` are ticks from before the first; they are analysed, but not shown. `speed` is in seconds
    of the ticks a second. `cluster` names the nodes in alerts, `known_from` distinguishes them from
    others of that name. `ras_hosts` are those whose jobs may be asked about by NCCL's RAS.
    """

    session: Session
    options: RunOptions
    facts: RunFacts
    ticks: AsyncIterator[Tick]
    hosts: Sequence[Host]
    interval_s: float
    past: AsyncIterator[Tick] | None = None
    speed: float = 1.0
    cluster: str = ""
    known_from: str = ""
    ras_hosts: Sequence[Host] = ()

    async def show(self) -> Exit:
        """Show the scenes of the feed, and record it as the options say."""
        sys.setswitchinterval(_SWITCH_S)
        is_drawn, is_service = is_screen(self.options), self.options.style == FINDINGS
        # The signals are handled until the recorder is closed: none of them cuts off its end.
        signals = EndSignals() if is_drawn or is_service else None
        with signals or nullcontext(), self._recorder() as recorder:
            facts = self.facts
            if is_service:
                facts = replace(facts, watched=self._what_is_watched())
            if is_drawn:
                from fabmon.scenes.recording_access import LiveRecording

                recording = LiveRecording(self.session, recorder, self.options.redact)
                facts = replace(facts, recording=recording)
                if self.ras_hosts:
                    from fabmon.session.screen_ras import screen_ras

                    asking = screen_ras(self.session, self.ras_hosts, recording.paths)
                    facts = replace(facts, ask_ras=asking)
            if is_drawn or self.options.picture is not None:
                from fabmon.session.preferences import start_screen

                # A picture shows what options and fabmon.toml say, whoever makes it.
                start = start_screen(
                    self.session.settings,
                    self.options.theme,
                    is_live=facts.mark != DEMO_MARK,
                    is_kept=is_drawn,
                )
                facts = replace(facts, preferences=start)
            made = recorder if isinstance(recorder, Recorder) else None
            limit = AnalysisTime(self.interval_s / self.speed)
            alerts, kept = self._alerts(), None
            if alerts is not None:
                facts = replace(facts, alerts_fail=alerts.fail)
            if alerts is not None or is_service:
                kept = self.session.kept_findings(self.known_from)
            pipeline = self.session.pipeline(self.hosts, self.interval_s, made, limit, kept)
            made_scenes = scenes_of(pipeline, self.ticks, self.past, alerts, kept)
            async with aclosing(made_scenes) as scenes:
                ended = await show(scenes, self.options, facts, signals)
            if self.options.perf:
                say(_costs(pipeline, made))
        is_lost = self.options.record is not None and made is not None and made.status.has_failed
        return Exit.FAILED if is_lost else ended

    def _what_is_watched(self) -> str:
        """One line: which nodes, how often, and where findings are sent."""
        from fabmon.alerts.settings import receivers_text

        metrics = self.options.metrics
        parts = [
            f"watching {plural(len(self.hosts), 'node')} ({self.facts.title})"
            f" every {interval(self.interval_s)}",
            receivers_text(self.session.settings.alerts),
            *([] if metrics is None else [f"metrics at {metrics[0]}:{metrics[1]}"]),
        ]
        return "; ".join(parts)

    def _alerts(self) -> Alerts | None:
        """Alerts of real nodes, where somebody watches: not of single reports and pictures."""
        is_watched = is_screen(self.options) or self.options.style == FINDINGS
        if self.facts.mark == DEMO_MARK or not is_watched:
            return None
        return self.session.alerts(self.cluster, self.known_from)

    @contextmanager
    def _recorder(self) -> Iterator[Recorder | str]:
        """A recorder to --record, else, if the screen is shown, to the ring; or why there is none.

        Raises UsageError.
        """
        options, path = self.options, self.options.record
        recorder: Recorder | str = "nothing is recorded without a screen"
        console = "" if options.redact else None
        title = self.facts.title
        if self.facts.mark:
            title = f"{self.facts.mark}: {title}"
        if options.redact and path is not None and path.exists():
            raise UsageError(f"--redact: {path} exists and may contain names: name a new file")
        if path is not None:
            recorder = recorder_for(path, self.hosts, self.interval_s, title, console=console)
        elif is_screen(options):
            config = self.session.settings.recording
            recorder = ring_recorder(config, self.hosts, self.interval_s, title, console)
        try:
            yield recorder
        finally:
            if isinstance(recorder, Recorder):
                status = recorder.close()
                if path is not None:
                    say(describe_status(status))


def _costs(pipeline: Pipeline, recorder: Recorder | None) -> str:
    """What the ticks of a run cost, in one line."""
    text = pipeline.costs.text() or "no tick came"
    status = None if recorder is None else recorder.status
    if status is None or not status.ticks:
        return text
    return f"{text}; recording {status.cpu_s / status.ticks * 1e3:.1f} ms on average, in a thread"


def shown_hosts(hosts: Sequence[Host], redactor: Redactor | None) -> list[Host]:
    """Hosts by the names that are shown."""
    return list(hosts) if redactor is None else [redactor.host(host) for host in hosts]


def kept_by(known_from: str, hosts: Sequence[Host], redactor: Redactor | None) -> str:
    """What findings and alerts of these nodes are kept by between two runs.

    With pseudonyms, which node has which is part of it: `host-2` of other hosts is another node.
    """
    if redactor is None:
        return known_from
    numbered = "\0".join(f"{redactor.host(each).name}={each.name}" for each in hosts)
    return f"redacted {hashlib.sha256(numbered.encode()).hexdigest()[:16]} {known_from}"
