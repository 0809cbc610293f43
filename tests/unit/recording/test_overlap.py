"""A recording beside one that has all of it: `x` saves a cut where the original may be."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from fabmon.cli.main import cli
from fabmon.fabric.tick import Tick
from fabmon.recording.format.records import Note
from fabmon.recording.reading.raw_chunks import raw_chunks
from fabmon.recording.reading.recorded_findings import RecordedFindings
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from tests.builders import SECOND_NS, LeafSpine
from tests.unit.recording.builders import by_node, last_values, quiet_ticks, session, write


def late_ticks() -> list[Tick]:
    """Ticks that come up to 0.1 s late, as live ones."""
    return [
        msgspec.structs.replace(each, time_ns=each.time_ns + each.seq * 7_919_000 % 100_000_000)
        for each in quiet_ticks(60)
    ]


def moved(ticks: list[Tick], by_ns: int) -> list[Tick]:
    """The ticks of another recorder, which come later."""
    return [msgspec.structs.replace(each, time_ns=each.time_ns + by_ns) for each in ticks]


@pytest.fixture(params=[False, True], ids=["regular", "late"])
def original(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "all.fabrec"
    write(path, late_ticks() if request.param else quiet_ticks(60))
    return path


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    assert done.exception is None, done.output
    return done.stdout


@pytest.mark.parametrize("kind", ["cut", "copy"])
def test_a_part_beside_its_original_changes_no_value(original: Path, kind: str) -> None:
    """Each tick was read twice: no rate was known, and other findings were open."""
    part = original.with_name("part.fabrec")
    if kind == "cut":
        run("cut", original, "--from", "+20s", "--to", "+40s", "-o", part)
    else:
        shutil.copy(original, part)
    alone = run("replay", "--once", "--at", "+30s", original)
    assert "b/s" in alone
    assert run("replay", "--once", "--at", "+30s", original, part) == alone
    assert run("replay", "--once", "--at", "+30s", original.parent) == alone
    with Timeline([original.parent]) as timeline:
        assert len(list(timeline.ticks())) == 60
    assert run("info", original, part).count("ticks") == 2, "both are shown"
    assert run("verify", original, part).count("intact") == 2


def test_a_part_that_the_damaged_original_lacks_is_read(original: Path) -> None:
    part = original.with_name("part.fabrec")
    run("cut", original, "--from", "+20s", "--to", "+40s", "-o", part)
    content = bytearray(original.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    original.write_bytes(content)
    with Timeline([original, part]) as timeline:
        assert len(timeline.files) == 2


def test_two_cuts_that_overlap_are_read_as_one(original: Path) -> None:
    """Their ticks were read twice between +20s and +40s."""
    first, second = original.with_name("first.fabrec"), original.with_name("second.fabrec")
    run("cut", original, "--from", "+0s", "--to", "+40s", "-o", first)
    run("cut", original, "--from", "+20s", "-o", second)
    beside = [run("replay", "--once", "--at", f"+{at}s", original) for at in (30, 41, 55)]
    with Timeline([original]) as timeline:
        ticks, chunks = list(timeline.ticks()), read_times(timeline)
        primed = [last_values(each) for each in timeline.prime(ticks[45].time_ns)]
    original.unlink()
    assert [
        run("replay", "--once", "--at", f"+{at}s", first.parent) for at in (30, 41, 55)
    ] == beside
    with Timeline([first.parent]) as timeline:
        again = list(timeline.ticks())
        assert [each.time_ns for each in again] == [each.time_ns for each in ticks]
        assert [each.seq for each in again] == list(range(again[0].seq, again[0].seq + 60))
        assert [each.frames for each in by_node(again)] == [each.frames for each in by_node(ticks)]
        assert not any(each.hellos or each.statuses for each in again[1:])
        assert read_times(timeline) == chunks
        for at in (30, 41, 45):
            assert len(timeline.prime(ticks[at].time_ns)) == 1
        (known,) = timeline.prime(ticks[45].time_ns)
        assert [last_values(known)] == primed


def read_times(timeline: Timeline) -> dict[str, list[int]]:
    """By node, when its counters were read, as the raw chunks have it."""
    times_ns: dict[str, list[int]] = {}
    for chunk in raw_chunks(timeline):
        for each in chunk.frames:
            times_ns.setdefault(each.node, []).extend(each.time_ns.tolist())
    return times_ns


@pytest.mark.parametrize("until_s", [600, 610])
def test_minutes_of_overlapping_cuts_are_those_of_the_whole(tmp_path: Path, until_s: int) -> None:
    """All of the second came after all of the first, and the minute in which it follows twice: a
    tier took some values twice."""
    original = tmp_path / "all.fabrec"
    write(original, quiet_ticks(1200))
    cuts = [tmp_path / name for name in ("a.fabrec", "b.fabrec", "c.fabrec")]
    for path, begin_s, end_s in zip(cuts, (0, 100, 900), (until_s, 1000, 1200), strict=True):
        run("cut", original, "--from", f"+{begin_s}s", "--to", f"+{end_s}s", "-o", path)
    # A cut computes the minutes.
    run("cut", original, "--from", "+0s", "-o", tmp_path / "whole.fabrec")
    with Timeline([tmp_path / "whole.fabrec"]) as whole, Timeline(cuts) as timeline:
        assert len(timeline.files) == 3
        assert len(minutes_of(whole)) == 20
        assert minutes_of(timeline) == minutes_of(whole)
        assert minutes_of(timeline, 130 * SECOND_NS) == minutes_of(whole, 130 * SECOND_NS)


def minutes_of(timeline: Timeline, after_ns: int = 0) -> list[tuple[int, bytes, bytes]]:
    """When minutes begin, and their highest and mean values."""
    from_ns = timeline.start_ns + after_ns if after_ns else 0
    return [
        (each.start_ns, each.highest.tobytes(), each.mean.tobytes())
        for each in timeline.minutes(from_ns)
    ]


def test_chunks_of_overlapping_cuts_beside_another_recorder_are_in_order(tmp_path: Path) -> None:
    """Those of a recorder that starts within the overlap came after all of the first cut."""
    original, directory = tmp_path / "all.fabrec", tmp_path / "parts"
    directory.mkdir()
    ticks = quiet_ticks(700)
    write(original, ticks)
    run("cut", original, "--to", "+600s", "-o", directory / "first.fabrec")
    run("cut", original, "--from", "+100s", "-o", directory / "second.fabrec")
    write(directory / "third.fabrec", moved(ticks[200:300], 1))
    with Timeline([directory]) as timeline:
        starts_s = [(each.start_ns - ticks[0].time_ns) // 10**9 for each in raw_chunks(timeline)]
    assert starts_s == [0, 200, 256, 512, 600, 610]


def test_a_finding_that_is_open_over_an_overlap_is_one(original: Path, tmp_path: Path) -> None:
    """The second cut opens it again at its own beginning."""
    noted = tmp_path / "noted" / "all.fabrec"
    noted.parent.mkdir()
    writer = Writer.create(noted, session(LeafSpine()))
    ticks = quiet_ticks(60)
    finding = {"cause": "incast", "subject": "leaf1", "since_ns": ticks[10].time_ns}
    changes = {10: "open", 50: "close"}
    for place, tick in enumerate(ticks):
        notes = (
            [
                Note(
                    time_ns=tick.time_ns,
                    seq=tick.seq,
                    kind="finding",
                    text="incast",
                    change=changes[place],
                    finding=finding,
                )
            ]
            if place in changes
            else []
        )
        writer.write(tick, None, notes)
    writer.close()
    first, second = noted.with_name("first.fabrec"), noted.with_name("second.fabrec")
    run("cut", noted, "--from", "+0s", "--to", "+40s", "-o", first)
    run("cut", noted, "--from", "+20s", "-o", second)
    noted.unlink()
    with Timeline([noted.parent]) as timeline:
        assert [(each.time_ns, each.change) for each in timeline.notes()] == [
            (ticks[place].time_ns, change) for place, change in changes.items()
        ]
        findings = RecordedFindings(timeline.notes())
        for place in (19, 20, 25, 41, 49):
            assert findings.open_at(timeline.run_starts_ns, ticks[place].time_ns), place


def test_recordings_of_two_recorders_are_both_read(original: Path) -> None:
    second = original.with_name("second.fabrec")
    write(second, moved(quiet_ticks(60), 30_000_000_001))
    with Timeline([original.parent]) as timeline:
        assert len(list(timeline.ticks())) == 120
