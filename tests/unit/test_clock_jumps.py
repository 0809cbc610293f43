"""A console whose clock is set while it watches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from fabmon.analysis.finding import Change
from fabmon.fabric.flows.sampled import FlowKey, FlowSamples, SampledFlow
from fabmon.history.history import History
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.recorder import Recorder
from fabmon.recording.writing.segments import Rotation, Segments
from fabmon.scenes.pipeline import Pipeline
from fabmon.session.config import load
from fabmon.session.session import Session
from fabmon.tui.app import Toasts
from tests.builders import SECOND_NS, LeafSpine
from tests.tui.recordings import Watching
from tests.unit.recording.builders import quiet_ticks, session


def test_silence_is_seen_after_the_clock_was_set_back() -> None:
    history = History(LeafSpine().hosts)
    ticks = quiet_ticks(30)
    for tick in ticks[:10]:
        history.accept(tick)
    back_ns = 400 * 86_400 * SECOND_NS
    for tick in ticks[10:]:
        silent = tuple(each for each in tick.frames if each[0] != "gpu001")
        snapshot = history.accept(
            msgspec.structs.replace(tick, time_ns=tick.time_ns - back_ns, frames=silent)
        )
    stale = snapshot.stale
    assert {p.node for p in snapshot.fabric.ports if stale[p.row]} == {"gpu001"}
    assert 18 <= np.max(snapshot.age_s[np.isfinite(snapshot.age_s)]) <= 20


def test_a_jump_is_an_event_on_the_timeline(tmp_path: Path) -> None:
    fabric = LeafSpine()
    recorder = Recorder(Segments(tmp_path / "a.fabrec", Rotation()), session(fabric))
    pipeline = Pipeline(History(fabric.hosts), Session(load(Path("/dev/null"))).analyst(), recorder)
    ticks = quiet_ticks(10)
    back_ns = 7200 * SECOND_NS
    for tick in ticks:
        is_after = tick.seq >= 5
        pipeline.accept(
            msgspec.structs.replace(
                tick,
                time_ns=tick.time_ns - back_ns * is_after,
                clock_jumped_ns=-back_ns * (tick.seq == 5),
            )
        )
    assert recorder.close().ticks == 10
    with Timeline([tmp_path / "a.fabrec"]) as timeline:
        (note,) = timeline.notes()
        assert (note.kind, note.time_ns) == ("bookmark", ticks[5].time_ns - back_ns)
        assert note.text == "the clock of this machine moved back by 2 h"
        assert [t.time_ns for t in timeline.ticks()] == sorted(t.time_ns for t in timeline.ticks())


def test_a_finding_is_announced_after_the_clock_was_set_back() -> None:
    toasts, watching = Toasts(), Watching()
    scene = next(each for each in iter(watching.next, None) if each.findings)
    changed = replace(scene, changes=((Change.OPEN, scene.findings[0]),))
    assert toasts.accept(changed)
    assert not toasts.accept(changed), "one line for all of the last seconds"
    back = replace(scene.snapshot, time_ns=scene.snapshot.time_ns - 7200 * SECOND_NS)
    assert toasts.accept(replace(changed, snapshot=back))


def test_events_are_as_old_after_the_clock_was_set_back_as_before() -> None:
    watching, back_ns = Watching(), 7200 * SECOND_NS
    scenes = [watching.next() for _ in range(30)]
    before = scenes[-1].events
    assert any(each.kind == "finding" for each in before)
    tick = watching.feed.step()
    tick = msgspec.structs.replace(tick, time_ns=tick.time_ns - back_ns, clock_jumped_ns=-back_ns)
    after = watching.judge(tick).events[: len(before)]
    assert [each.time_ns for each in after] == [each.time_ns - back_ns for each in before]


def test_what_switches_sampled_is_kept_when_the_clock_is_set_back() -> None:
    history, back_ns = History(LeafSpine().hosts), 7200 * SECOND_NS
    ticks = quiet_ticks(3)
    flow = FlowKey("10.0.0.1", "10.0.0.2", 17, 4791, 4791)
    batch = FlowSamples("10.9.9.9", 10.0, 2048, (SampledFlow(17, "tx", flow, 40, 10**9),), ())
    history.accept(msgspec.structs.replace(ticks[0], sampled=(batch,)))
    snapshot = history.accept(
        msgspec.structs.replace(
            ticks[1], time_ns=ticks[1].time_ns - back_ns, clock_jumped_ns=-back_ns
        )
    )
    assert snapshot.sampled
