"""Findings that were reported during a recording, read later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.history.history import History
from fabmon.recording.format.records import Note, SessionRecord
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.recorded_findings import RecordedFindings
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.cut import copy_range
from fabmon.recording.writing.writer import Writer, resume
from fabmon.scenes.pipeline import Pipeline
from fabmon.scenes.recorded_past import RecordedPast
from tests.builders import SECOND_NS, START_NS, frame, hello, port, tick, up
from tests.tui.recordings import past_of, session


def note(second: int, seq: int, change: str, subject: str) -> Note:
    finding = {"cause": "incast", "subject": subject}
    time_ns = START_NS + second * SECOND_NS
    return Note(
        kind="finding", time_ns=time_ns, seq=seq, text=subject, change=change, finding=finding
    )


def record(path: Path, began: int, seqs: range, *notes: Note, run: int = 0) -> Path:
    """Record ticks of `gpu1` from a second on, with notes of findings."""
    session = SessionRecord(
        started_ns=START_NS + began * SECOND_NS,
        run_ns=START_NS + run * SECOND_NS if run else 0,
        interval_s=1.0,
        hosts=(Host(name="gpu1"),),
    )
    writer = resume(path, session) if path.exists() else Writer.create(path, session)
    for seq in seqs:
        is_first = seq == seqs[0]
        hellos = {"gpu1": hello(port("eth0"))} if is_first else {}
        each = tick(
            seq, {"gpu1": frame(seq, 1, seq, seq, 0)}, hellos, up("gpu1") if is_first else ()
        )
        shifted = START_NS + (began + seq - seqs[0]) * SECOND_NS
        each = type(each)(
            each.seq, shifted, hellos=each.hellos, frames=each.frames, statuses=each.statuses
        )
        writer.write(each, None, [n for n in notes if n.time_ns == shifted])
    writer.close()
    return path


def open_at(timeline: Timeline, second: int) -> list[str]:
    at_ns = START_NS + second * SECOND_NS
    return [
        each.text
        for each in RecordedFindings(timeline.notes()).open_at(timeline.run_starts_ns, at_ns)
    ]


def test_findings_that_a_killed_run_left_open_are_closed_in_the_next_run(tmp_path: Path) -> None:
    path = record(tmp_path / "a.fabrec", 0, range(20), note(5, 5, "open", "gpu1/eth0"))
    record(path, 1000, range(90), note(1080, 80, "open", "gpu2/eth0"))
    with Timeline([path]) as timeline:
        assert open_at(timeline, 19) == ["gpu1/eth0"]
        assert open_at(timeline, 1010) == []
        assert open_at(timeline, 1085) == ["gpu2/eth0"]


def test_the_files_of_a_rotation_are_one_run(tmp_path: Path) -> None:
    one = record(tmp_path / "a.fabrec", 1, range(20), note(5, 5, "open", "gpu1/eth0"), run=1)
    two = record(tmp_path / "b.fabrec", 21, range(20, 40), run=1)
    with Timeline([one, two]) as timeline:
        assert open_at(timeline, 30) == ["gpu1/eth0"]


def test_a_cut_closes_what_a_run_left_open(tmp_path: Path) -> None:
    path = record(tmp_path / "a.fabrec", 0, range(20), note(5, 5, "open", "gpu1/eth0"))
    record(path, 1000, range(20), note(1010, 10, "open", "gpu1/eth0"))
    output, history = tmp_path / "b.fabrec", History([Host(name="gpu1")])
    with Timeline([path]) as timeline:
        began_ns = START_NS + 10 * SECOND_NS
        for _ in copy_range(timeline, output, began_ns, timeline.until_ns, history.accept):
            pass
    with Recording(output) as cut:
        changes = [((each.time_ns - START_NS) // SECOND_NS, each.change) for each in cut.notes()]
    assert changes == [(10, "open"), (1000, "close"), (1010, "open")]


def test_a_finding_whose_cause_changed_stays_one_and_closes_once() -> None:
    def changed(second: int, change: str, **causes: str) -> Note:
        made = note(second, second, change, "leaf1/swp3")
        return msgspec.structs.replace(made, finding={**made.finding, **causes})

    recorded = RecordedFindings(
        [
            changed(5, "open", cause="error_burst"),
            changed(9, "update", cause="degraded_link", opened_as="error_burst"),
            changed(20, "close", cause="degraded_link", opened_as="error_burst"),
        ]
    )
    at = {second: recorded.open_at([START_NS], START_NS + second * SECOND_NS) for second in (6, 12)}
    assert [each.finding["cause"] for each in at[6]] == ["error_burst"]
    assert [each.finding["cause"] for each in at[12]] == ["degraded_link"]
    assert recorded.open_at([START_NS], START_NS + 21 * SECOND_NS) == []


def test_open_findings_at_any_time_equal_a_scan_of_all_notes() -> None:
    changes = ("open", "update", "close")
    notes = [
        note(place // 3, place, changes[place * place % 3 if place % 5 else 0], f"p{place % 7}")
        for place in range(300)
    ]
    notes[100:100] = [Note(kind="bookmark", time_ns=notes[100].time_ns, seq=0, text="here")]
    recorded, runs_ns = RecordedFindings(notes), [START_NS, START_NS + 50 * SECOND_NS]
    for second in range(-1, 102):
        at_ns = START_NS + second * SECOND_NS
        seen: dict[str, Note] = {}
        for each in notes:
            if each.kind == "finding" and each.time_ns <= at_ns:
                seen.pop(each.text, None)
                if each.change != "close":
                    seen[each.text] = each
        began_ns = max([run for run in runs_ns if run <= at_ns], default=0)
        assert recorded.open_at(runs_ns, at_ns) == [
            each for each in seen.values() if each.time_ns >= began_ns
        ]


async def test_a_step_reuses_the_events_of_earlier_findings(tmp_path: Path) -> None:
    changes = ("open", "update", "close")
    found = [note(at // 10, at, changes[at % 3], f"gpu1/eth{at // 3}") for at in range(200)]
    past = past_of(record(tmp_path / "a.fabrec", 0, range(40), *found))
    assert len((await past.look()).notes) == len(found)
    scene = await past.seek(START_NS + 15 * SECOND_NS)
    following = await past.step(START_NS + 15 * SECOND_NS, 1)
    assert scene is not None
    assert following is not None
    assert len(scene.events) == sum(each.change != "update" for each in found[:160])
    assert all(one is other for one, other in zip(scene.events, following.events, strict=False))
    await past.close()


class Reads(Timeline):
    """A timeline that records how many notes are read from it."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths)
        self.read: list[int] = []

    def notes(self, from_ns: int = 0, until_ns: int = 1 << 62) -> list[Note]:
        found = super().notes(from_ns, until_ns)
        self.read.append(len(found))
        return found


async def test_notes_that_were_read_are_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    notes = [note(second, second, "update", "gpu1/eth0") for second in range(300)]
    record = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=(Host(name="gpu1"),))
    writer = Writer.create(path, record)
    writer.write(tick(0, {}, {}), None, notes[:1])
    timeline = Reads([path])
    with timeline:
        past = RecordedPast(timeline, session())
        for each in notes[1:]:
            writer.write(tick(each.seq, {}, {}), None, [each])
        assert (await past.look()).notes == tuple(notes)
        later = note(300, 300, "close", "gpu1/eth0")
        writer.write(tick(300, {}, {}), None, [later])
        assert (await past.look()).notes == (*notes, later)
        assert timeline.read == [300, 2]
        bookmark = Note(kind="bookmark", time_ns=notes[7].time_ns + 1, seq=7, text="here it was")
        writer.note(bookmark)
        writer.write(tick(301, {}, {}))
        assert (await past.look()).notes == (*notes[:8], bookmark, *notes[8:], later)
        await past.close()
    writer.close()


async def test_a_step_skips_time_that_was_not_recorded(tmp_path: Path) -> None:
    path = record(tmp_path / "a.fabrec", 0, range(20))
    record(path, 1000, range(20))
    past = past_of(path)
    await past.seek(START_NS)
    scene = await past.step(START_NS + 19 * SECOND_NS, 1)
    assert scene is not None
    assert scene.snapshot.time_ns == START_NS + 1000 * SECOND_NS
    await past.close()


async def test_a_moment_is_analysed_from_the_same_tick_on_however_slow_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step times depend on how much was read before: on a busy machine, and after a jump back, it
    was less."""
    past = past_of(record(tmp_path / "a.fabrec", 0, range(200)))
    read: list[list[int]] = []
    accept, elapsed_s = Pipeline.accept, 0.0

    def slow(self: Pipeline, each: Tick) -> Scene:
        nonlocal elapsed_s
        elapsed_s += 0.1
        read[-1].append(each.time_ns)
        return accept(self, each)

    monkeypatch.setattr(Pipeline, "accept", slow)
    monkeypatch.setattr("time.perf_counter", lambda: elapsed_s)
    for second in (190, 150, 190):
        read.append([])
        await past.settle(START_NS + second * SECOND_NS)
    await past.close()
    assert read[0] == read[2]
