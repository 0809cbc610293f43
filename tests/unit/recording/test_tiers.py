"""Tiers computed from minutes equal those computed from ticks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.history.history import History
from fabmon.recording.format.frames import HEADER_BYTES, FrameKind
from fabmon.recording.format.minutes import BIN_NS, MINUTE_NS
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.rate_tiers import Tier, TierQuery, choose_bins
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.writer import Writer, resume
from fabmon.scenes.background_readers import TierReader
from fabmon.session.config import load
from fabmon.session.session import Session
from tests.builders import SECOND_NS, START_NS, LeafSpine

PORTS = ("leaf1/up1", "leaf1/down2", "gpu001/eth0", "nobody/eth0")
COLUMNS = ("tx_bps", "rx_bps", "drops")


def _record(
    path: Path, seconds: int, *, later_s: int = 0, is_reversed: bool = False
) -> list[Snapshot]:
    """Record varying traffic, after what is in the file already.

    With `is_reversed` the nodes send their hellos in reverse order.
    """
    fabric = LeafSpine()
    fabric.clock_off_ns = later_s * SECOND_NS
    history = History(fabric.hosts)
    session = SessionRecord(
        started_ns=START_NS + fabric.clock_off_ns, interval_s=1.0, hosts=tuple(fabric.hosts)
    )
    writer = resume(path, session) if path.exists() else Writer.create(path, session)
    moments = []
    for second in range(seconds):
        for place, name in enumerate(("leaf1/up1", "leaf1/down2", "gpu001/eth0")):
            fabric.sent[name] = 1e6 * ((second * (7 + place)) % 90)
            fabric.received[name] = 4e7 / (1 + second % (20 + place))
        each = fabric.step()
        if is_reversed:
            each = msgspec.structs.replace(each, hellos=each.hellos[::-1])
        moments.append(history.accept(each))
        writer.write(each, moments[-1])
    writer.close()
    return moments


def _read(
    wanted: TierQuery, *paths: Path, tiers: TierReader | None = None, until_ns: int | None = None
) -> Tier:
    reader = tiers or TierReader(lambda: paths, Session(load(None)), until_ns)
    try:
        return asyncio.run(reader.of(wanted, lambda _: None))
    finally:
        if tiers is None:
            reader.close()


def _wanted(from_ns: int, until_ns: int, bin_ns: int, *, share: bool = False) -> TierQuery:
    first = from_ns // bin_ns
    return TierQuery(PORTS, COLUMNS, share, bin_ns, first, -(-until_ns // bin_ns) - first)


def _by_ticks(moments: list[Snapshot], wanted: TierQuery) -> tuple[Floats, Floats]:
    """Highest and mean of each bin, computed from ticks."""
    shape = (len(COLUMNS), len(PORTS), wanted.bins)
    most, mean = np.full(shape, np.nan), np.full(shape, np.nan)
    for p, name in enumerate(PORTS):
        row = next((x.row for x in moments[-1].fabric.ports if x.id == name), None)
        for c, column in enumerate(COLUMNS):
            found: dict[int, list[float]] = {}
            for snapshot in moments:
                if row is None or row >= len(snapshot.line_rate_bps):
                    continue
                value = float(snapshot.heat[HEAT.index(column), row])
                value /= float(snapshot.line_rate_bps[row]) if wanted.of_line_rate else 1
                if np.isfinite(value):
                    found.setdefault(snapshot.time_ns // wanted.bin_ns, []).append(value)
            for number, values in found.items():
                most[c, p, number - wanted.first] = max(values)
                mean[c, p, number - wanted.first] = sum(values) / len(values)
    return most, mean


@pytest.mark.parametrize("bin_s", [10, 30, 60, 120])
@pytest.mark.parametrize("share", [False, True])
def test_tiers_equal_those_computed_from_ticks(tmp_path: Path, bin_s: int, share: bool) -> None:
    moments = _record(tmp_path / "a.fabrec", 260)
    wanted = _wanted(
        START_NS - 300 * SECOND_NS, moments[-1].time_ns + 1, bin_s * SECOND_NS, share=share
    )
    tier = _read(wanted, tmp_path / "a.fabrec")
    most, mean = _by_ticks(moments, wanted)
    assert np.isfinite(most[:, :3, -2]).all()
    assert np.array_equal(np.isnan(tier.highest), np.isnan(most))
    assert np.array_equal(np.isnan(tier.mean), np.isnan(mean))
    scale = np.nanmax(np.nan_to_num(most), axis=2, keepdims=True)
    assert np.nanmax(np.abs(tier.highest - most) / np.maximum(scale, 1e-9)) < 0.007
    # All minutes have the same weight, also the first and the last, which are incomplete.
    whole = slice(300 // bin_s + 2, wanted.bins - 2)
    off = np.abs(tier.mean - mean)[..., whole] / np.maximum(scale, 1e-9)
    assert not off.size or np.nanmax(off) < 0.007


def test_ports_are_matched_by_name_when_rows_differ(tmp_path: Path) -> None:
    """Two runs of the same nodes in another order, with a gap of an hour."""
    first = _record(tmp_path / "a.fabrec", 130)
    second = _record(tmp_path / "b.fabrec", 130, later_s=3600, is_reversed=True)
    rows = [{x.id: x.row for x in each[-1].fabric.ports} for each in (first, second)]
    assert rows[0]["leaf1/up1"] != rows[1]["leaf1/up1"]
    wanted = _wanted(START_NS, second[-1].time_ns + 1, MINUTE_NS)
    tier = _read(wanted, tmp_path)
    parts = [_by_ticks(each, wanted)[0] for each in (first, second)]
    assert np.array_equal(np.isnan(tier.highest), np.isnan(np.fmax(*parts)))
    assert np.allclose(tier.highest, np.fmax(*parts), rtol=0.005, equal_nan=True)
    assert np.isnan(tier.highest[:, :, 5:55]).all()
    assert np.isnan(tier.highest[:, PORTS.index("nobody/eth0")]).all()


@pytest.mark.parametrize("bin_ns", [BIN_NS, MINUTE_NS])
def test_a_damaged_minute_is_a_gap(tmp_path: Path, bin_ns: int) -> None:
    path = tmp_path / "a.fabrec"
    moments = _record(path, 260)
    wanted = _wanted(START_NS, moments[-1].time_ns + 1, bin_ns)
    whole = _read(wanted, path)
    with Recording(path) as recording:
        minutes = [each for each in recording.entries() if each.header.kind == FrameKind.MINUTE]
    hurt = minutes[2]
    _flip(path, hurt.offset + HEADER_BYTES + 30)
    tier = _read(wanted, path)
    lost = slice(
        hurt.header.time_ns // bin_ns - wanted.first, hurt.header.until_ns // bin_ns - wanted.first
    )
    assert np.isnan(tier.highest[..., lost]).all()
    assert np.isfinite(whole.highest[:, :3, lost]).all()
    whole.highest[..., lost] = np.nan
    assert np.array_equal(tier.highest, whole.highest, equal_nan=True)


def test_minutes_without_their_topology_record_are_unknown(tmp_path: Path) -> None:
    """The rows of another run are other ports."""
    both = tmp_path / "both.fabrec"
    _record(both, 130)
    second = _record(both, 130, later_s=3600, is_reversed=True)
    wanted = _wanted(START_NS, second[-1].time_ns + 1, MINUTE_NS)
    assert np.isfinite(_read(wanted, both).highest[0, 0, -2])
    with Recording(both) as recording:
        records = [each for each in recording.entries() if each.header.kind == FrameKind.TOPOLOGY]
        sessions = [each for each in recording.entries() if each.header.kind == FrameKind.SESSION]
    for record in records:
        if record.offset > sessions[1].offset:
            _flip(both, record.offset + HEADER_BYTES + 5)
    tier = _read(wanted, both)
    assert np.isfinite(tier.highest[0, 0, 1])
    assert np.isnan(tier.highest[..., 5:]).all()


def test_a_growing_recording_is_read_incrementally(tmp_path: Path) -> None:
    _record(tmp_path / "a.fabrec", 400)
    tiers = TierReader(lambda: [tmp_path], Session(load(None)))
    for seconds in (150, 250, 420):
        wanted = _wanted(START_NS + (seconds - 150) * SECOND_NS, START_NS + 460 * SECOND_NS, BIN_NS)
        if seconds == 420:
            _record(tmp_path / "b.fabrec", 60, later_s=390)
        grown = _read(wanted, tiers=tiers)
    tiers.close()
    anew = _read(wanted, tmp_path)
    assert grown.known_ns == anew.known_ns
    assert np.array_equal(grown.highest, anew.highest, equal_nan=True)
    assert np.allclose(grown.mean, anew.mean, equal_nan=True)
    assert np.isfinite(grown.mean[0, 0, -4])


def test_nothing_behind_the_end_is_known(tmp_path: Path) -> None:
    moments = _record(tmp_path / "a.fabrec", 260)
    wanted = _wanted(START_NS, moments[-1].time_ns + 1, BIN_NS)
    end_ns = START_NS + 150 * SECOND_NS
    tier = _read(wanted, tmp_path / "a.fabrec", until_ns=end_ns)
    assert 0 < tier.known_ns <= end_ns
    last = tier.known_ns // BIN_NS - wanted.first
    assert np.isnan(tier.highest[..., last:]).all()
    assert np.isfinite(tier.highest[0, 0, last - 1])


def test_with_a_redactor_ports_are_requested_by_their_redacted_names(tmp_path: Path) -> None:
    moments = _record(tmp_path / "a.fabrec", 130)
    redactor = Redactor(LeafSpine().hosts)
    wanted = _wanted(START_NS, moments[-1].time_ns + 1, BIN_NS)
    hidden = wanted._replace(ports=tuple(redactor.port(port) for port in PORTS))
    assert "leaf1/up1" not in hidden.ports
    tiers = TierReader(lambda: [tmp_path], Session(load(None), redactor=redactor))
    found = _read(hidden, tiers=tiers)
    tiers.close()
    assert np.array_equal(found.highest, _read(wanted, tmp_path).highest, equal_nan=True)


def test_a_tier_moves_with_its_time(tmp_path: Path) -> None:
    moments = _record(tmp_path / "a.fabrec", 260)
    wanted = _wanted(START_NS, moments[-1].time_ns + 1, BIN_NS)
    tier = _read(wanted, tmp_path / "a.fabrec")
    for by in (-5, 3, 1000):
        moved = wanted._replace(first=wanted.first + by)
        again = tier.over(moved)
        assert again.highest.shape[-1] == wanted.bins
        kept = tier.highest[..., max(by, 0) : wanted.bins + min(by, 0)]
        there = again.highest[..., max(-by, 0) : max(wanted.bins - max(by, 0), 0)]
        assert np.array_equal(kept, there, equal_nan=True)


@pytest.mark.parametrize(
    ("span_s", "most", "width_s"),
    [(300, 60, 10), (1800, 100, 20), (3600, 80, 60), (86400, 100, 900), (30 * 86400, 94, 28800)],
)
def test_bins_have_round_lengths_that_minutes_fill(span_s: int, most: int, width_s: int) -> None:
    for off_s in (0, 7, 1234):
        from_ns = START_NS + off_s * SECOND_NS
        width_ns, first, bins = choose_bins(from_ns, from_ns + span_s * SECOND_NS, most)
        assert width_ns == width_s * SECOND_NS
        assert first * width_ns <= from_ns < (first + 1) * width_ns
        assert bins <= most
        assert 0 <= (first + bins) * width_ns - from_ns - span_s * SECOND_NS < width_ns


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))
