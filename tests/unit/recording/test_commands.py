"""The commands record, replay, info, verify and cut."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, Tick
from fabmon.history.history import History
from fabmon.recording.format.frames import FrameKind
from fabmon.recording.format.records import Note
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.summary import LostPart, summarise
from fabmon.recording.reading.time_parsing import parse_seconds, parse_time, parse_time_near
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.cut import copy_range
from fabmon.recording.writing.writer import Writer
from fabmon.session import replay_run
from fabmon.session.errors import Exit
from fabmon.session.recorder_setup import parse_size
from fabmon.session.replay_run import time_range, whole_range
from fabmon.session.session import Session
from fabmon.tui.run_facts import RunFacts
from tests.builders import SECOND_NS, START_NS, LeafSpine
from tests.requirements import heeding_signals
from tests.tui.recordings import Watching
from tests.unit.recording.builders import long_ticks, quiet_ticks, session, ticks_in, write
from tests.unit.test_cli import fabmon, fabmon_here


def test_a_recorded_session_replays_to_the_same_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    live = fabmon(
        "--record", str(path), "--format", "jsonl", "--duration", "4", "--interval", "0.5"
    )
    assert live.returncode == 0, live.stderr
    assert live.stderr.startswith("fabmon: recorded ")
    again = fabmon_here("replay", str(path), "--speed", "max", "--format", "jsonl")
    assert again.stdout == live.stdout
    assert "1/1 nodes up" in fabmon_here("replay", str(path), "--format", "table").stdout


def test_a_table_or_json_of_a_recording_is_of_the_time_of_at(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    write(path, quiet_ticks(30))
    for style in (("--format", "table"), ("--once", "--format", "json")):
        whole, early, late = (
            fabmon_here("replay", str(path), *style, *options).stdout
            for options in ((), ("--at", "+5s"), ("--at", "-1s"))
        )
        clock = re.compile(r"\d\d:\d\d:\d\d")
        times = [clock.findall(text)[0] for text in (whole, early, late)]
        assert times == ["04:40:29", "04:40:05", "04:40:28"]


def test_record_completes_its_file_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    command = [str(Path(sys.executable).with_name("fabmon")), "record", "--interval", "0.2"]
    with subprocess.Popen(
        [*command, "-o", str(path)], stderr=subprocess.PIPE, text=True
    ) as process:
        while not path.exists() or path.stat().st_size < 10_000:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    with Recording(path) as recording:
        assert recording.is_closed
        assert recording.hosts
    assert str(path) in errors


@pytest.mark.parametrize(
    ("command", "ends"), [("sh -c 'sleep 60' {probe}", Exit.OK), ("false {probe}", Exit.NO_NODE)]
)
def test_ctrl_c_before_the_first_node_answers_completes_the_file(
    tmp_path: Path, command: str, ends: Exit
) -> None:
    """It is the usual end, unless no node can be reached."""
    path, hosts = tmp_path / "a.fabrec", tmp_path / "hosts.txt"
    hosts.write_text(f'slow via=exec command="{command}"\n')
    line = [sys.executable, "-m", "fabmon", "record", "--interval", "0.2"]
    process = subprocess.Popen(
        heeding_signals([*line, "--hosts", str(hosts), "-o", str(path)]),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if ends is Exit.OK:
        while process.poll() is None and not children.read_text().strip():
            time.sleep(0.01)
    else:
        assert "slow" in process.stderr.readline()
        while not any(
            status.state is NodeState.FAILED for tick in ticks_in(path) for status in tick.statuses
        ):
            time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == ends, errors
    assert str(path) in errors
    with Recording(path) as recording:
        assert recording.is_closed


def test_printed_lines_complete_the_recording_beside_them_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    command = [str(Path(sys.executable).with_name("fabmon")), "--interval", "0.2"]
    command += ["--format", "jsonl", "--record", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not path.exists() or path.stat().st_size < 10_000:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 128 + signal.SIGTERM, errors
    with Recording(path) as recording:
        assert recording.is_closed


def test_info_says_of_a_recording_without_a_readable_tick_that_there_is_none(
    tmp_path: Path,
) -> None:
    """`no ticks, 0 ticks, one every 1 s` was said of ticks that are there and damaged."""
    path = tmp_path / "run.fabrec"
    write(path, quiet_ticks(5))
    with Recording(path) as recording:
        found = summarise(recording)
    none = msgspec.structs.replace(found, start=None, end=None, ticks=0)
    damaged = msgspec.structs.replace(none, lost=(LostPart(16, 500, "a checksum is wrong"),))
    for summary, what in ((none, "no tick is recorded"), (damaged, "no tick can be read")):
        (line,) = [each for each in summary.text().splitlines() if each.startswith("  time")]
        assert line == f"  time   {what}: no time is known"


def test_ticks_of_a_clock_that_began_at_0_are_ticks(tmp_path: Path) -> None:
    """Of a machine whose clock was never set `no tick is recorded` was said; verify found 5."""
    path = tmp_path / "zero.fabrec"
    ticks = [
        msgspec.structs.replace(each, time_ns=each.time_ns - START_NS) for each in quiet_ticks(5)
    ]
    write(path, ticks)
    assert ticks_in(path)[0].time_ns == 0
    for command in ("cut FILE -o OUT", "report FILE -o OUT", "replay FILE --once"):
        words = {"FILE": str(path), "OUT": str(tmp_path / command[:3])}
        done = fabmon_here(*(words.get(each, each) for each in command.split()))
        assert (done.returncode, "no tick" in done.stderr) == (Exit.OK, False), done.stderr


def test_info_summarises_a_recording(tmp_path: Path) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(300))
    done = fabmon_here("info", str(tmp_path / "a.fabrec"))
    assert "2025-11-21 04:40:00Z to 2025-11-21 04:44:59Z (0:04:59), 300 ticks" in done.stdout
    assert "nodes  7" in done.stdout
    found = json.loads(fabmon_here("info", "--format", "json", str(tmp_path)).stdout)
    assert (found[0]["ticks"], found[0]["closed"], found[0]["lost_bytes"]) == (300, True, 0)


def test_nodes_that_were_found_during_the_recording_are_its_nodes(tmp_path: Path) -> None:
    path = tmp_path / "found.fabrec"
    nobody = msgspec.structs.replace(session(LeafSpine()), hosts=())
    writer = Writer.create(path, nobody)
    for tick in quiet_ticks(40):
        hosts = tuple(LeafSpine().hosts) if tick.seq == 0 else ()
        writer.write(msgspec.structs.replace(tick, hosts=hosts))
    writer.close()
    with Recording(path) as recording:
        assert recording.hosts == LeafSpine().hosts
    for arguments in (
        ("fluctuate", str(path)),
        ("compare", str(path), str(path)),
        ("export", "--format", "openmetrics", "--links", "node:gpu001", str(path)),
    ):
        done = fabmon_here(*arguments)
        assert done.returncode == 0, done.stderr
    assert f"nodes  {len(LeafSpine().hosts)}" in fabmon_here("info", str(path)).stdout


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = fabmon_here("info", str(tmp_path / "pipe"))
    assert done.returncode == 2
    assert f"{tmp_path}/pipe: not a regular file: save the recording to a file" in done.stderr


def test_a_file_that_vanishes_while_a_directory_is_opened_is_skipped(tmp_path: Path) -> None:
    """A dangling symbolic link is the same: it is listed and does not exist."""
    write(tmp_path / "b.fabrec", quiet_ticks(5))
    (tmp_path / "a.fabrec").symlink_to("gone")
    done = fabmon_here("info", str(tmp_path))
    assert "5 ticks" in done.stdout
    replay = fabmon_here("replay", str(tmp_path), "--speed", "max", "--format", "jsonl")
    assert replay.returncode == 0
    assert "a.fabrec: No such file or directory" in replay.stderr


def test_an_empty_file_is_named_in_the_same_words_alone_and_in_a_directory(tmp_path: Path) -> None:
    write(tmp_path / "b.fabrec", quiet_ticks(5))
    (tmp_path / "a.fabrec").touch()
    alone = fabmon_here("verify", str(tmp_path / "a.fabrec"))
    assert alone.returncode == 2
    assert alone.stderr == (
        f"fabmon: {tmp_path}/a.fabrec: not a fabmon recording: the file is empty\n"
    )
    for command in (("verify",), ("replay", "--once")):
        assert fabmon_here(*command, str(tmp_path)).stderr == alone.stderr


def test_verify_names_what_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    write(path, quiet_ticks(300))
    with Recording(path) as recording:
        block = next(e for e in recording.entries() if e.header.kind == FrameKind.BLOCK)
    path.write_bytes(path.read_bytes()[: block.end - 10])
    assert "are lost: the frame (block) is cut off" in fabmon_here("verify", str(path)).stderr


def test_verify_reports_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    write(path, quiet_ticks(300))
    assert fabmon_here("verify", str(path)).stdout == f"{path}: intact\n"
    with Recording(path) as recording:
        block = next(e for e in recording.entries() if e.header.kind == FrameKind.BLOCK)
    data = bytearray(path.read_bytes())
    data[block.offset + 100] ^= 1
    path.write_bytes(data)
    done = fabmon_here("verify", str(path))
    assert done.returncode == 5
    assert f"{block.end - block.offset} of {len(data)} bytes are lost, in 1 place\n" in done.stdout
    assert "damaged frame (block)" in done.stderr
    replay = fabmon_here("replay", str(path), "--speed", "max", "--format", "jsonl")
    assert replay.returncode == 0
    assert "are lost" in replay.stderr


def test_damage_is_said_by_every_command_whatever_it_reads(tmp_path: Path) -> None:
    """Of counters, in a block that `info` and a question about findings do not read."""
    path = tmp_path / "a.fabrec"
    Watching().record(path, 60)
    (whole,) = json.loads(fabmon("info", str(path), "--format", "json").stdout)
    assert (whole["lost"], whole["lost_bytes"], whole["checked"]) == ([], 0, True)
    assert ", complete" in fabmon("info", str(path)).stdout
    assert json.loads(fabmon("query", "findings", str(path)).stdout)["notes"] == []

    with Recording(path) as recording:
        block = next(e for e in recording.entries() if e.header.kind == FrameKind.BLOCK)
    data = bytearray(path.read_bytes())
    data[block.offset + 100] ^= 1
    path.write_bytes(data)
    lost = f"fabmon: {path}: bytes {block.offset} to {block.end} are lost: "
    for command, status in (
        (("info",), 0),
        (("info", "--format", "json"), 0),
        (("query", "findings"), 0),
        (("query", "status"), 2),
        (("replay", "--speed", "max", "--format", "jsonl"), 0),
        (("export", "--format", "csv"), 0),
        (("report", "-o", "-"), 0),
    ):
        done = fabmon(*command, str(path))
        assert lost in done.stderr, command
        assert done.returncode == status, command
    text = fabmon("info", str(path)).stdout
    assert ", damaged" in text
    assert "complete" not in text
    assert f"{block.end - block.offset} bytes are lost: byte {block.offset}: damaged" in text
    (found,) = json.loads(fabmon("info", str(path), "--format", "json").stdout)
    (part,) = found["lost"]
    assert (part["offset"], part["end"], found["checked"]) == (block.offset, block.end, True)
    older, note = json.loads(fabmon("query", "findings", str(path)).stdout)["notes"]
    assert older.startswith("the numbers of open findings are those that were recorded last")
    assert "of the recording are lost: run fabmon verify" in note


def test_a_file_too_large_to_be_checked_is_not_called_sound(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    write(path, quiet_ticks(10))
    with Recording(path) as recording:
        found = summarise(recording)
        assert not found.checked
        assert "not checked for damage" in found.text()
        assert list(recording.compare_checksums())[-1] == recording.size
        assert "not checked" not in summarise(recording).text()


def test_cut_copies_a_range(tmp_path: Path) -> None:
    ticks = long_ticks()
    write(tmp_path / "a.fabrec", ticks)
    cut = tmp_path / "b.fabrec"
    arguments = ("cut", str(tmp_path / "a.fabrec"), "--from", "+100s", "--to", "04:42")
    done = fabmon_here(*arguments, "-o", str(cut))
    assert done.returncode == 0, done.stderr
    # As info says it: the rates of its first tick need the two reads before.
    times = "2025-11-21 04:41:38Z to 2025-11-21 04:42:00Z"
    assert re.fullmatch(
        rf"fabmon: wrote {cut}: [\d.]+ kB, {re.escape(times)} \(22 s\)\nfabmon: it begins two .*\n",
        done.stderr,
    )
    assert times in fabmon_here("info", str(cut)).stdout
    assert [tick.frames for tick in ticks_in(cut)[2:]] == [tick.frames for tick in ticks[100:121]]
    assert len(ticks_in(cut)[0].hellos) == 7
    again = fabmon_here(*arguments, "-o", str(cut))
    assert again.returncode == 2
    assert "this file exists already" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("replay", "FILE", "--at", "noon"), "--at noon: write a time such as 14:03"),
        (("replay", "FILE", "--at", "+1s", "--from", "+2s"), "give only one of them"),
        (("replay", "FILE", "--at", "+1s", "--to", "+2s", "--format", "json"), "only one of them"),
        (("replay", "FILE", "--from", "+2h"), "--from +2h is not in the recording: 20"),
        (
            ("replay", "FILE", "--from", "+60s"),
            "--from +60s is not in the recording: 2025-11-21 04:",
        ),
        (("replay", "FILE", "--at", "event 9"), "--at event 9: the recording has 0 events"),
        (("replay", "FILE", "--at", "2020-01-01"), "--at 2020-01-01 is not in the recording: 2025"),
        (("replay", "FILE", "--at", "03:00"), "--at 03:00 is not in the recording: 2025-11-21 04:"),
        (("cut", "FILE", "-o", "x", "--to", "2020-01-01"), "--to 2020-01-01 is not in the rec"),
        (
            ("replay", "FILE", "--from", "+10s", "--to", "+5s"),
            "--to (2025-11-21 04:40:05Z) is before --from (2025-11-21 04:40:10Z)",
        ),
        (
            ("replay", "FILE", "--speed", "fast"),
            "--speed fast: write a number such as 0.5",
        ),
        (("replay", __file__), "not a fabmon recording"),
        (("replay", "FILE", "--once", "--format", "jsonl"), "--once prints a table or json"),
        (("verify",), "name a recording"),
        (("cut", "FILE", "-o", "-"), "this is not written to standard output: name a file"),
        (("record", "-o", "-"), "this is not written to standard output: name a file"),
        (("--record", "-", "--once"), "this is not written to standard output: name a file"),
        (("record", "-o", "x", "--keep", "7d"), "without --rotate there is only one"),
        (("record", "-o", "x", "--rotate", "often"), "a time such as 1h or 7d, or a size"),
        (("record", "-o", "x", "--rotate", "0.1s"), "write at least 1s"),
        (("record", "-o", "x", "--rotate", "9" * 400 + "GB"), "a time such as 1h or 7d"),
        (("record", "-o", __file__), "not a fabmon recording: choose another file"),
        (("--record", "/proc/none/a.fabrec", "--once"), "/proc/none"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    path = tmp_path / "a.fabrec"
    write(path, quiet_ticks(30))
    done = fabmon_here(*(str(path) if each == "FILE" else each for each in arguments))
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


def test_a_rotation_is_named_where_its_name_without_a_time_is_replayed(tmp_path: Path) -> None:
    for minute in (10, 20):
        write(tmp_path / f"pod7-20251121T04{minute}00Z.fabrec", quiet_ticks(3))
    for name in ("pod7", "pod7.fabrec"):
        done = fabmon_here("info", str(tmp_path / name))
        assert done.returncode == 2
        assert (
            f"{name}: no such file; record --rotate wrote pod7-20251121T041000Z.fabrec to "
            "pod7-20251121T042000Z.fabrec: name these files, or their directory" in done.stderr
        )
    assert "rotate" not in fabmon_here("info", str(tmp_path / "pod8.fabrec")).stderr


def test_amounts() -> None:
    assert [parse_seconds(each) for each in ("90", "1.5h", "7d", "2x")] == [90, 5400, 604_800, None]
    assert [parse_size(each) for each in ("64MB", "1GiB", "12", "h")] == [
        64_000_000,
        1 << 30,
        None,
        None,
    ]


def test_times_of_a_recording() -> None:
    until_ns = START_NS + 7200 * SECOND_NS  # 04:40:00 to 06:40:00

    def at(text: str) -> float | None:
        found = parse_time(text, START_NS, until_ns, [START_NS + 5 * SECOND_NS])
        return None if found is None else (found.begin_ns - START_NS) / 1e9

    assert at("04:41") == 60
    assert at("05:00:30") == 1230
    assert at("03:00") == -100 * 60
    assert at("-10m") == 7200 - 600
    assert at("+1h") == 3600
    assert at("event 1") == 5
    assert at("event 2") is None
    assert at("2025-11-21 04:41:00") == 60
    assert at("2025-11-21T05:41:00+01:00") == 60
    assert at("tomorrow") is None


@pytest.mark.parametrize(
    "text",
    ["-" + "9" * 400, "+99999999999999999999d", "event " + "9" * 5000, "0001-01-01", "9999-12-31"],
)
def test_times_outside_64_bits_are_invalid(text: str) -> None:
    until_ns = START_NS + SECOND_NS
    assert parse_time(text, START_NS, until_ns) is None
    assert parse_time_near(text, START_NS, START_NS, until_ns) is None


def test_a_time_of_day_outside_of_a_recording_is_that_of_the_nearest_day() -> None:
    midnight_ns = START_NS // (86_400 * SECOND_NS) * 86_400 * SECOND_NS

    def at(text: str, start_h: float, until_h: float, *, is_latest: bool = False) -> float | None:
        start_ns, until_ns = (midnight_ns + int(h * 3600) * SECOND_NS for h in (start_h, until_h))
        found = parse_time(text, start_ns, until_ns, is_latest=is_latest)
        return None if found is None else (found.begin_ns - midnight_ns) / 3600e9

    # Over midnight: 23:30 to 00:30.
    assert at("23:45", 23.5, 24.5) == 23.75
    assert at("00:15", 23.5, 24.5) == 24.25
    assert at("23:15", 23.5, 24.5) == 23.25
    assert at("00:45", 23.5, 24.5) == 24.75
    # Begun shortly after midnight, ended shortly before it.
    assert at("23:45", 0.5, 1) == -0.25
    assert at("00:15", 23, 23.5) == 24.25
    # Two days: the first such time, or the latest.
    assert at("06:00", 1, 49) == 6
    assert at("06:00", 1, 49, is_latest=True) == 30
    # Nearer to the end, or to the start.
    assert at("00:15", 1, 24) == at("00:15", 1, 24, is_latest=True) == 24.25
    assert at("00:45", 1, 24) == at("00:45", 1, 24, is_latest=True) == 0.75


@pytest.mark.parametrize(
    "outside", [("--to", "04:35"), ("--from", "04:35"), ("--from", "04:45"), ("--to", "2030-01-01")]
)
def test_a_time_outside_of_the_recording_is_refused_and_nothing_is_written(
    tmp_path: Path, outside: tuple[str, str]
) -> None:
    path, part = tmp_path / "a.fabrec", tmp_path / "part"
    write(path, quiet_ticks(40))  # From 04:40:00.
    for command in (
        ("cut", str(path), "-o", str(part)),
        ("report", str(path), "-o", str(part)),
        ("export", str(path), "--format", "csv", "-o", str(part)),
        ("replay", str(path), "--format", "table"),
    ):
        done = fabmon_here(*command, *outside)
        assert done.returncode == 2, done.stderr
        range_ = "2025-11-21 04:40:00Z to 2025-11-21 04:40:39Z"
        assert f"{' '.join(outside)} is not in the recording: {range_}" in done.stderr
        assert not done.stdout
        assert not part.exists()


def test_from_and_to_are_limited_to_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(40))
    with Timeline([tmp_path / "a.fabrec"]) as timeline:
        whole = (timeline.start_ns, timeline.until_ns)
        assert whole_range(timeline, "-10h", "+10h") == whole
        assert whole_range(timeline, "2020-01-01", "+10s")[0] == timeline.start_ns
        assert capsys.readouterr().err.endswith(
            "fabmon: --from 2020-01-01 is before the recording:"
            " 2025-11-21 04:40:00Z to 2025-11-21 04:40:39Z\n"
        )
        assert whole_range(timeline, "04:40", "04:41") == whole
        assert not capsys.readouterr().err
        assert time_range(timeline, "-10h", None)[:2] == (timeline.start_ns, None)


def test_a_cut_that_fails_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    write(path, quiet_ticks(20))
    output = tmp_path / "part.fabrec"

    def no_room(tick: Tick) -> Snapshot:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Timeline([path]) as timeline, pytest.raises(OSError, match="No space"):
        list(copy_range(timeline, output, timeline.start_ns, timeline.until_ns, no_room))
    assert not output.exists()


def test_a_cut_replaces_no_file_that_is_made_meanwhile(tmp_path: Path) -> None:
    path, output = tmp_path / "a.fabrec", tmp_path / "part.fabrec"
    write(path, quiet_ticks(20))
    with Timeline([path]) as timeline:
        history = History(timeline.hosts)
        copying = copy_range(timeline, output, timeline.start_ns, timeline.until_ns, history.accept)
        next(copying)
        output.write_bytes(b"of somebody else")
        with pytest.raises(FileExistsError):
            list(copying)
    assert output.read_bytes() == b"of somebody else"
    assert set(tmp_path.iterdir()) == {path, output}


def test_a_cut_needs_no_name_but_its_own(tmp_path: Path) -> None:
    path, output, others = (tmp_path / name for name in ("a.fabrec", "b.fabrec", "b.fabrec.part"))
    write(path, quiet_ticks(20))
    others.write_bytes(b"of somebody else")
    fabmon("cut", str(path), "-o", str(output))
    assert others.read_bytes() == b"of somebody else"
    assert set(tmp_path.iterdir()) == {path, output, others}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["export --format jsonl", "cut"])
def test_a_file_that_is_not_finished_is_removed_by_a_signal_that_ends_fabmon(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    path, output = tmp_path / "a.fabrec", tmp_path / "b"
    write(path, quiet_ticks(3000))
    line = [sys.executable, "-m", "fabmon", *command.split(), str(path), "-o", str(output)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        while len(list(tmp_path.iterdir())) == 1:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (128 + number, "")
    assert list(tmp_path.iterdir()) == [path]


def test_a_replay_draws_the_screen_on_a_terminal_only(tmp_path: Path) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(40))
    done = fabmon_here("replay", str(tmp_path / "a.fabrec"))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "no terminal: one report instead of the screen" in done.stderr
    assert "nodes up" in done.stdout


def test_the_screen_says_what_of_its_range_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(40))
    notices: list[str] = []

    async def show(_: None, facts: RunFacts) -> Exit:
        assert facts.preferences is not None
        notices.append(facts.preferences.notice)
        return Exit.OK

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(replay_run, "can_draw", lambda: True)
    monkeypatch.setattr(replay_run, "show_screen", show)
    for begin in ("-2h", "-10s"):
        options = replay_run.ReplayOptions((tmp_path / "a.fabrec",), from_=begin)
        assert replay_run.replay(Session.load(None), options) == Exit.OK
    first, second = notices
    assert first.startswith("--from -2h is before the recording: 2025-11-21 04:40:00Z to ")
    assert not second


@pytest.mark.parametrize("name", ["b\udcff", "b\x1b]0;x\x07\u202ey"], ids=["no UTF-8", "escapes"])
def test_a_file_may_have_any_name_and_it_sends_the_terminal_nothing(
    tmp_path: Path, name: str
) -> None:
    path, log = tmp_path / f"{name}.fabrec", tmp_path / f"{name}.log"
    write(path, quiet_ticks(30))
    log.write_text("[rank3]: RuntimeError: no\n")
    for command in (
        ("info", str(path)),
        ("info", str(path), "--format", "json"),
        ("verify", str(path)),
        ("report", str(path), "-o", "-"),
        ("query", "status", str(path)),
        ("explain", str(log), "--format", "json"),
        ("info", str(tmp_path / f"{name}.gone")),
    ):
        done = fabmon_here(*command)
        assert "b?" in done.stdout + done.stderr, command
        assert not set("\x1b\x07\u202e\udcff") & set(done.stdout + done.stderr), command
        assert "unexpected" not in done.stderr
    # Damage is said with the name of its file.
    path.write_bytes(path.read_bytes()[:-200])
    assert "b?" in fabmon_here("verify", str(path)).stderr


def test_info_lists_the_events_that_can_be_given_as_times(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    ticks = quiet_ticks(40)
    writer = Writer.create(path, session(LeafSpine()))
    for tick in ticks:
        writer.write(tick)
        if tick.seq in (7, 20):
            seen = f"look at {tick.seq}"
            writer.note(Note(kind="bookmark", time_ns=tick.time_ns, seq=tick.seq, text=seen))
    writer.close()
    output = fabmon_here("info", str(path)).stdout
    assert "event 1 11-21 04:40:07Z  look at 7" in output
    assert "event 2 11-21 04:40:20Z  look at 20" in output
    (found,) = json.loads(fabmon_here("info", "--format", "json", str(path)).stdout)
    assert [(each["number"], each["text"]) for each in found["events"]] == [
        (1, "look at 7"),
        (2, "look at 20"),
    ]
