"""Results of studies of synthetic traffic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabmon.analysis.fluctuation.comparison import StudiedRun, compare
from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.analysis.fluctuation.samples import SampleSums
from fabmon.analysis.fluctuation.study import Study, recent_traffic
from fabmon.analysis.fluctuation.trends import hours, slot_statistics, weekdays
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.model import Fabric
from fabmon.fabric.redaction import Redactor
from fabmon.history.chunk_rates import RateChunk
from tests.builders import START_NS, LeafSpine
from tests.tui.worlds import HEALTHY
from tests.unit.jobs.worlds import pairs_of, pairs_of_many

TICKS = 300


def _fabric(hosts: int = 4) -> Fabric:
    lab = LeafSpine(uplinks=2, hosts=hosts, rate_bps=100e9)
    return build(lab.hosts, lab.hellos(), PortRows(), 1)


def _table(fabric: Fabric, bps: dict[str, np.ndarray]) -> np.ndarray:
    """[ticks, ports] bits/s; NaN for the other ports."""
    table = np.full((TICKS, len(fabric.ports)), np.nan, np.float32)
    for port in fabric.ports:
        if port.id in bps:
            table[:, port.row] = bps[port.id]
    return table


def _play(
    sent: dict[str, np.ndarray],
    received: dict[str, np.ndarray] | None = None,
    factor: float = 1.0,
    rate_chunks: int = 1,
    **options: object,
) -> Fluctuation:
    """The results of bits/s by port and tick, repeated; the other ports are unknown."""
    fabric = _fabric()
    study = Study(**options)  # type: ignore[arg-type]
    ways = []
    for bps in (sent, received or {}):
        table = np.full((TICKS, len(fabric.ports)), np.nan, np.float32)
        for port in fabric.ports:
            if port.id in bps:
                table[:, port.row] = bps[port.id] * factor
        ways.append(table)
    rate = np.full(len(fabric.ports), 100e9 * factor, np.float32)
    for number in range(rate_chunks):
        start_ns = START_NS // (300 * 10**9) * 300 * 10**9 + number * 300 * 10**9
        study.accept(RateChunk(start_ns, 1.0, fabric, ways[0], ways[1], rate))
    progress: list[float] = []
    found = study.result(on_progress=progress.append)
    assert progress == sorted(progress)
    assert len(progress) == len(found.subjects)
    assert not progress or progress[-1] == 1.0
    return found


def _training(level: float = 80e9, seed: int = 0) -> np.ndarray:
    """Six seconds of communication in ten, its edges half full."""
    rng = np.random.default_rng(seed)
    turn = np.array([0.5, 1, 1, 1, 1, 0.5, 0, 0, 0, 0])
    return np.tile(turn, TICKS // 10) * level * (1 + 0.01 * rng.standard_normal(TICKS))


HOSTS = [f"gpu{number:03}/eth0" for number in range(1, 5)]


def test_only_samples_entirely_in_communication_count() -> None:
    found = _play({name: _training(seed=n) for n, name in enumerate(HOSTS)})
    spread = found.of("rail")[0].spread
    assert spread is not None
    assert spread.whole
    assert spread.median_bps == pytest.approx(80e9, rel=0.01)
    assert spread.cov == pytest.approx(0.01, abs=0.002)
    assert spread.share == pytest.approx(0.6, abs=0.01)
    assert spread.samples == pytest.approx(4 * 120, abs=12)
    assert found.notes == ("no counter of bytes for 4 of 8 directions of links",)


def test_phases_too_short_for_a_whole_sample_give_a_lower_bound() -> None:
    turn = np.tile([0.7, 0.6, 0, 0, 0], TICKS // 5) * 80e9
    found = _play(dict.fromkeys(HOSTS, turn))
    spread = found.of("rail")[0].spread
    assert spread is not None
    assert not spread.whole
    assert "lower bound (≥)" in " ".join(found.notes)


def test_hosts_that_move_together_are_a_job_with_its_iterations() -> None:
    sent = {name: _training(seed=n) for n, name in enumerate(HOSTS[:2])}
    sent |= {name: np.roll(_training(seed=n), 5) for n, name in enumerate(HOSTS[2:])}
    found = _play(sent)
    assert [job.hosts for job in found.of("job")] == [("gpu001", "gpu002"), ("gpu003", "gpu004")]
    its = found.of("job")[0].iterations
    assert its is not None
    assert its.median_s == pytest.approx(10, abs=0.05)


def test_two_jobs_that_begin_with_the_same_host_stay_two() -> None:
    fabric = _fabric(7)
    rate = np.full(len(fabric.ports), 100e9, np.float32)
    study = Study()
    runs = [((1, 2, 3, 4), 80e9)] * 3 + [((1, 5, 6, 7), 40e9)] * 3
    for number, (hosts, level) in enumerate(runs):
        sent = {f"gpu{host:03}/eth0": _training(level, seed=number) for host in hosts}
        table = _table(fabric, sent)
        start_ns = (START_NS // (300 * 10**9) + number) * 300 * 10**9
        study.accept(RateChunk(start_ns, 1.0, fabric, table, np.full_like(table, np.nan), rate))
    run = StudiedRun.of("a", study)
    assert [job.name for job in run.result.of("job")] == ["gpu001 +3 (1)", "gpu001 +3 (2)"]
    for job in run.result.of("job"):
        assert job.spread is not None
        mean_bps = np.nanmean(run.series["job", job.name].values)
        assert mean_bps == pytest.approx(job.spread.mean_bps, rel=0.05)
        assert len(run.lengths_s[job.name]) > 50
    headlines = compare([run], [run]).headlines
    (same,) = (e for e in headlines if e.name == "gpu001 +3 (2)" and e.what == "bandwidth")
    assert same.before == pytest.approx(40e9, rel=0.05)


def _runs(*parts: tuple[tuple[int, JobReport], ...]) -> Fluctuation:
    """All hosts at 80 Gb/s while the jobs change: reports with their seconds, a chunk each."""
    fabric = _fabric()
    rate = np.full(len(fabric.ports), 100e9, np.float32)
    names = [node.name for node in fabric.nodes]
    study = Study()
    for number, reports in enumerate(parts):
        table = _table(fabric, {name: _training(seed=n) for n, name in enumerate(HOSTS)})
        start_ns = (START_NS // (300 * 10**9) + number) * 300 * 10**9
        jobs = tuple((start_ns + s * 10**9, JobTable(report, names)) for s, report in reports)
        unknown = np.full_like(table, np.nan)
        study.accept(RateChunk(start_ns, 1.0, fabric, table, unknown, rate, jobs))
    return study.result()


def test_of_a_node_that_invents_jobs_again_and_again_so_many_are_studied() -> None:
    fabric = _fabric()
    rate = np.full(len(fabric.ports), 100e9, np.float32)
    names, study = [node.name for node in fabric.nodes], Study()
    for number in range(3):
        table = _table(fabric, {name: _training(seed=n) for n, name in enumerate(HOSTS)})
        start_ns = (START_NS // (300 * 10**9) + number) * 300 * 10**9
        invented = JobTable(None, names, {"gpu001": pairs_of_many(512, f"J{number}x")})
        own = JobTable(None, names, {"gpu002": pairs_of("8801")})
        jobs = ((start_ns, invented), (start_ns + 150 * 10**9, own))
        unknown = np.full_like(table, np.nan)
        study.accept(RateChunk(start_ns, 1.0, fabric, table, unknown, rate, jobs))
    registry = study._data.registry
    assert sum("gpu001" in job.hosts and job.job is not None for job in registry.jobs) == 1024
    assert any(job.job is not None and job.job.id == "8801" for job in registry.jobs)
    assert "all jobs of gpu001: its processes report more than can be studied" in list(
        study._notes(study._whole_links())
    )


def test_a_study_of_the_last_minutes_ends_when_nobody_waits_for_it() -> None:
    shares: list[float] = []

    def leave(share: float) -> None:
        shares.append(share)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        recent_traffic(HEALTHY.scene(70).snapshot).studied(leave)
    assert len(shares) == 1


def _job(number: int, user: str, *hosts: int, start_ns: int = 0) -> Job:
    nodes = tuple(f"gpu{host:03}" for host in hosts)
    id_ = str(number)
    return Job(id=id_, name="train", user=user, partition="a", nodes=nodes, start_ns=start_ns)


def _report(*jobs: Job) -> JobReport:
    return JobReport(source="squeue", read_ns=1, jobs=jobs)


def test_a_requeued_job_is_one_job_and_others_are_grouped_by_their_traffic() -> None:
    found = _runs(
        ((0, _report(_job(8801, "anna", 1, 2))),),
        ((0, _report(_job(8801, "anna", 3, 4))),),
    )
    requeued, first, second = found.of("job")
    assert requeued.name == "job 8801 train (anna)"
    assert requeued.hosts == ("gpu001", "gpu002", "gpu003", "gpu004")
    assert requeued.job is not None
    assert [first.hosts, second.hosts] == [("gpu003", "gpu004"), ("gpu001", "gpu002")]
    assert requeued.spread is not None
    assert requeued.spread.samples == pytest.approx(2 * 2 * 120, abs=12), "two hosts in each part"


def test_users_and_partitions_are_the_sum_of_their_jobs() -> None:
    of_anna = _job(8801, "anna", 1), _job(8802, "anna", 2)
    found = _runs(((0, _report(*of_anna, _job(8803, "ben", 3))),))
    assert [each.name for each in found.of("job")] == [
        f"job {each} train ({user})"
        for each, user in ((8801, "anna"), (8802, "anna"), (8803, "ben"))
    ]
    anna, ben = found.of("user")
    assert (anna.name, anna.hosts, ben.hosts) == ("anna", ("gpu001", "gpu002"), ("gpu003",))
    (partition,) = found.of("partition")
    counts = [each.spread.samples for each in (anna, ben, partition) if each.spread]
    assert counts == [pytest.approx(n, abs=6) for n in (240, 120, 360)]


def test_two_jobs_of_a_user_on_one_node_count_its_samples_once() -> None:
    found = _runs(((0, _report(_job(8801, "anna", 1), _job(8802, "anna", 1))),))
    (anna,) = found.of("user")
    assert anna.spread is not None
    assert anna.spread.samples == pytest.approx(120, abs=6)


def test_a_job_has_the_samples_of_the_time_in_which_it_ran() -> None:
    start_ns = START_NS // (300 * 10**9) * 300 * 10**9
    early, late = _job(8801, "anna", 1), _job(8802, "ben", 1, start_ns=start_ns + 200 * 10**9)
    found = _runs(((0, _report(early)), (150, _report(late))))
    spreads = {each.name: each.spread for each in found.of("user")}
    assert spreads["anna"] is not None
    assert spreads["ben"] is not None
    assert spreads["anna"].samples == pytest.approx(60, abs=6), "150 s"
    assert spreads["ben"].samples == pytest.approx(40, abs=6), "100 s: it began after it was queued"


def test_jobs_users_and_partitions_are_redacted() -> None:
    found = _runs(((0, _report(_job(8801, "anna", 1, 2))),)).redacted(Redactor())
    text = msgspec.json.encode(found).decode()
    assert "8801" not in text
    assert "anna" not in text
    assert "train" not in text
    assert {each.kind for each in found.subjects} >= {"job", "user", "partition"}


def test_below_a_megabit_a_quantile_is_the_mean_of_the_samples_there() -> None:
    sums = SampleSums()
    sums.add(np.zeros(4, np.intp), np.array([0, 3e5, 5e9, 6e9], np.float32))
    pooled = sums.pooled(np.array([0]))
    assert pooled.quantile(0.25) == pytest.approx(1.5e5)
    assert pooled.quantile(0.75) == pytest.approx(5e9, rel=0.0025)
    silent = SampleSums()
    silent.add(np.zeros(2, np.intp), np.zeros(2, np.float32))
    assert silent.pooled(np.array([0])).quantile(0.5) == 0.0


def test_sums_of_new_subjects_one_by_one_copy_those_before_them_rarely() -> None:
    sums, tables = SampleSums(), list[object]()
    for number in range(200):
        sums.add(np.array([number]), np.array([5e9], np.float32))
        if not tables or tables[-1] is not sums.hist:
            tables.append(sums.hist)
    assert len(tables) <= 9, "twice the room each time"
    assert sums.counts(201).tolist() == [1.0] * 200 + [0.0]


def test_a_study_reads_of_each_job_its_own_samples_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    counts = SampleSums.counts

    def counted(sums: SampleSums, subjects: int) -> np.ndarray:
        nonlocal read
        read += subjects
        return counts(sums, subjects)

    monkeypatch.setattr(SampleSums, "counts", counted)
    found = _runs(((0, _report(*(_job(number, "anna", 1) for number in range(60)))),))
    assert len(found.of("job")) >= 60
    assert read < 60 * 10, "the jobs before a job are not read again"


def test_the_length_of_a_cell_does_not_depend_on_a_gap_after_the_first() -> None:
    fabric = _fabric()
    rate = np.full(len(fabric.ports), 100e9, np.float32)
    study, later = Study(), START_NS // (300 * 10**9) * 300 * 10**9
    for number in (0, 10, 11):
        table = _table(fabric, dict.fromkeys(HOSTS, _training(seed=number)))
        start_ns = later + number * 300 * 10**9
        if number == 0:
            table[10:] = np.nan
        study.accept(RateChunk(start_ns, 1.0, fabric, table, np.full_like(table, np.nan), rate))
    strip = study.result().of("rail")[0].strip
    assert strip.count(None) > len(strip) // 2


def test_a_link_that_is_silent_has_no_spread_and_is_not_zero() -> None:
    found = _play({**dict.fromkeys(HOSTS[:3], _training()), HOSTS[3]: np.zeros(TICKS)})
    silent = next(each for each in found.of("link") if each.name == HOSTS[3])
    assert silent.spread is None
    assert silent.steps == ()


def test_one_sample_has_no_variation_and_not_one_of_zero() -> None:
    once = np.zeros(TICKS)
    once[100] = 50e9
    spread = _play({"gpu001/eth0": once}).subjects[0].spread
    assert spread is not None
    assert (spread.samples, spread.cov) == (1, None)
    (slot,) = slot_statistics(np.zeros(1, np.int64), np.ones(1))
    assert slot.cov is None


def test_a_step_is_reported_with_its_time() -> None:
    slow = _training()
    slow[150:] *= 0.6
    found = _play(dict.fromkeys(HOSTS, slow))
    (step,) = found.of("rail")[0].steps
    assert step.change == pytest.approx(-0.4, abs=0.02)
    assert (step.at_ns - found.from_ns) / 1e9 == pytest.approx(150, abs=10)


def test_hours_are_those_of_the_zone() -> None:
    sent = dict.fromkeys(HOSTS, _training())
    utc, away = _play(sent), _play(sent, zone=timezone(timedelta(hours=2)))
    (hour,), (later,) = utc.of("rail")[0].hours, away.of("rail")[0].hours
    assert (hour.slot + 2) % 24 == later.slot
    assert utc.of("rail")[0].weekdays[0].slot == 4, "2025-11-21 was a Friday"


def test_an_hour_that_is_set_back_occurs_twice_and_one_set_forward_is_missing() -> None:
    """Berlin: on 2026-10-25 3:00 became 2:00 at 1:00 UTC, on 2026-03-29 2:00 became 3:00."""
    berlin = ZoneInfo("Europe/Berlin")
    autumn = _every_quarter(datetime(2026, 10, 24, 22, tzinfo=UTC), hours=4)
    assert hours(autumn, berlin).tolist() == [h for h in (0, 1, 2, 2) for _ in range(4)]
    spring = _every_quarter(datetime(2026, 3, 28, 23, tzinfo=UTC), hours=4)
    assert hours(spring, berlin).tolist() == [h for h in (0, 1, 3, 4) for _ in range(4)]
    assert set(weekdays(spring, berlin).tolist()) == {6}
    assert set(weekdays(spring[:4], UTC).tolist()) == {5}


def test_clocks_may_differ_by_quarters_of_an_hour() -> None:
    """Kathmandu is 5:45 ahead: its hours change at a quarter past those of UTC."""
    at_ns = _every_quarter(datetime(2026, 11, 21, 12, tzinfo=UTC), hours=1)
    assert hours(at_ns, ZoneInfo("Asia/Kathmandu")).tolist() == [17, 18, 18, 18]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(631_152_000, 2_114_380_800), min_size=1, max_size=20),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo"]),
)
def test_hours_are_those_of_the_calendar(times_s: list[int], name: str) -> None:
    zone = ZoneInfo(name)
    at_ns = np.array(times_s, np.int64) * 10**9
    slots = zip(hours(at_ns, zone).tolist(), weekdays(at_ns, zone).tolist(), strict=True)
    shown = [datetime.fromtimestamp(each, zone) for each in times_s]
    assert list(slots) == [(each.hour, each.weekday()) for each in shown]


def _every_quarter(begin: datetime, hours: int) -> np.ndarray:
    """Times in ns, four an hour."""
    return (int(begin.timestamp()) + 900 * np.arange(4 * hours)) * 10**9


@settings(deadline=None, max_examples=10)
@given(st.floats(1e-3, 30))
def test_the_spread_does_not_depend_on_the_unit(factor: float) -> None:
    sent = {name: _training(seed=n) for n, name in enumerate(HOSTS)}
    plain, scaled = _play(sent), _play(sent, factor=factor)
    one, other = plain.of("rail")[0].spread, scaled.of("rail")[0].spread
    assert one is not None
    assert other is not None
    assert other.median_bps == pytest.approx(one.median_bps * factor, rel=0.006)
    assert other.cov == pytest.approx(one.cov, rel=1e-3)
    assert other.samples == one.samples


@settings(deadline=None, max_examples=10)
@given(st.permutations(range(4)))
def test_which_host_is_which_makes_no_difference_to_a_rail(order: list[int]) -> None:
    curves = [_training(60e9 + 10e9 * n, seed=n) for n in range(4)]
    plain = _play(dict(zip(HOSTS, curves, strict=True)))
    mixed = _play({HOSTS[place]: curves[n] for n, place in enumerate(order)})
    one, other = plain.of("rail")[0], mixed.of("rail")[0]
    assert one.spread is not None
    assert other.spread is not None
    assert other.spread.cov == pytest.approx(one.spread.cov)
    assert msgspec.structs.replace(other.spread, cov=0.0, mean_bps=0.0) == (
        msgspec.structs.replace(one.spread, cov=0.0, mean_bps=0.0)
    )


def _leaf(up: float, down: dict[str, float]) -> Fluctuation:
    """What leaf1 sends up on each of two uplinks, and what comes in from below."""
    level = np.ones(TICKS)
    sent = {f"leaf1/up{n}": up * level for n in (1, 2)}
    received = {f"leaf1/down{n + 1}": bps * level for n, bps in enumerate(down.values())}
    return _play(sent, received, mine=frozenset(n for n in down if not n.startswith("other")))


def test_the_bounds_of_foreign_traffic() -> None:
    """60 of 80 Gb/s up cannot be ours; what our 20 did not stay below may make it 70."""
    found = _leaf(40e9, {"gpu001": 10e9, "gpu002": 10e9, "other3": 35e9, "other4": 35e9})
    (share,) = found.foreign
    assert share.low == pytest.approx(60 / 80)
    assert share.high == pytest.approx(70 / 80)


def test_all_is_ours_where_all_below_is_ours() -> None:
    (share,) = _leaf(20e9, {name.partition("/")[0]: 10e9 for name in HOSTS}).foreign
    assert (share.low, share.high) == (0.0, 0.0)


def test_with_a_port_below_without_counters_the_share_is_unknown() -> None:
    (share,) = _leaf(20e9, {"gpu001": 10e9, "gpu002": 10e9, "gpu003": 10e9}).foreign
    assert share.low is None
    assert share.unseen == "its ports down4 are not counted"


def test_a_comparison_says_that_a_level_changed_within_a_run() -> None:
    fabric = _fabric()
    rate = np.full(len(fabric.ports), 100e9, np.float32)
    runs = []
    for after in (1.0, 0.6):
        slow = _training()
        slow[150:] *= after
        table = _table(fabric, dict.fromkeys(HOSTS, slow))
        study = Study()
        study.accept(RateChunk(START_NS, 1.0, fabric, table, np.full_like(table, np.nan), rate))
        runs.append(StudiedRun.of("a", study))
    assert "changes within the run" not in " ".join(compare(runs[:1], runs[:1]).notes)
    notes = compare(runs[:1], runs[1:]).notes
    assert any(
        note.startswith("B: the level of gpu001 +3 changes within the run") for note in notes
    )


def test_the_time_of_a_study_begins_with_the_interval_of_its_first_sample() -> None:
    """So it is as long as what was watched: from one tick to another, where nothing is missing."""
    found = _play({name: _training(seed=n) for n, name in enumerate(HOSTS)})
    assert (found.until_ns - found.from_ns) / 1e9 == found.watched_s == TICKS
