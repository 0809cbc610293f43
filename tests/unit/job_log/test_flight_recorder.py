"""Dumps of PyTorch's Flight Recorder: what they show, and files that only look like one."""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.analysis.flight_recorder.dumps import Dump, read_dump
from fabmon.analysis.flight_recorder.plain_pickle import PickleError, plain_data
from fabmon.analysis.job.dump_observations import dump_observations
from fabmon.analysis.job.observation import Observation, Weight
from fabmon.session.config import load
from fabmon.session.errors import UsageError
from fabmon.session.explain_run import ExplainOptions, explain
from fabmon.session.session import Session
from tests.unit.job_log.flight_recorder import SECOND_NS, Job
from tests.unit.job_log.observed import ranks_of

CASES = Path(__file__).parents[4] / "shared" / "cases" / "flight-recorder"
WAITING: Mapping[str, object] = {"state": "started", "time_discovered_completed_ns": None}
ENQUEUED: Mapping[str, object] = {
    "state": "scheduled",
    "time_discovered_started_ns": None,
    "time_discovered_completed_ns": None,
}


def wrong(dumps: Sequence[Dump]) -> list[Observation]:
    """What is wrong, or not known."""
    return [each for each in dump_observations(dumps) if each.weight != Weight.USUAL]


def only(dumps: Sequence[Dump]) -> Observation:
    """The one thing that is wrong."""
    (found,) = wrong(dumps)
    return found


def others_of(each: Observation) -> tuple[int, ...]:
    """The ranks that those of an observation are compared with."""
    return tuple(rank for end in each.others for rank in end.ranks)


def test_of_ranks_that_enqueued_and_completed_the_same_nothing_is_wrong() -> None:
    assert wrong(Job().dumps()) == []


def test_a_rank_that_has_not_enqueued_what_others_wait_for_is_behind() -> None:
    job = Job()
    for rank in (0, 1, 3):
        job.set_last(rank, **WAITING)
    del job.entries[2][-1]
    found = only(job.dumps())
    assert (found.kind, found.seq, ranks_of(found), others_of(found)) == (
        "behind",
        10,
        (2,),
        (0, 1, 3),
    )
    assert (found.launched, found.expected, found.program) == (9, 10, "train.py:79")


def test_a_rank_that_enqueued_nothing_in_a_group_is_behind() -> None:
    job = Job(collectives=1)
    for rank in (0, 1, 2):
        job.set_last(rank, **WAITING)
    job.entries[3].clear()
    found = only(job.dumps())
    assert (found.kind, ranks_of(found), found.launched) == ("behind", (3,), 0)


def test_a_dump_that_was_written_before_others_went_on_is_not_behind() -> None:
    """What they have completed, it took part in."""
    job = Job()
    del job.entries[2][5:]
    assert wrong(job.dumps()) == []


def test_what_the_recorder_overwrote_is_not_missing() -> None:
    job = Job()
    del job.entries[1][:6]
    assert wrong(job.dumps()) == []


def test_a_late_rank_is_known_by_its_own_clock() -> None:
    job = Job()
    for rank in range(4):
        job.set_last(rank, **WAITING)
    late_ns = job.entries[1][-1]["time_created_ns"] + 620 * SECOND_NS
    job.set_last(1, time_created_ns=late_ns)
    found = only(job.dumps())
    assert (found.kind, ranks_of(found), others_of(found)) == ("late", (1,), (0, 2, 3))
    assert found.late_s == pytest.approx(620)


def test_a_rank_that_came_within_the_timeout_is_not_why_nothing_completes() -> None:
    job = Job()
    for rank in range(4):
        job.set_last(rank, **WAITING)
    job.set_last(1, time_created_ns=job.entries[1][-1]["time_created_ns"] + 20 * SECOND_NS)
    assert only(job.dumps()).kind == "runs"


def test_of_few_collectives_the_clocks_are_not_known() -> None:
    job = Job(collectives=2)
    for rank in range(4):
        job.set_last(rank, **WAITING)
    assert only(job.dumps()).kind == "runs"


def test_groups_of_one_description_are_told_apart() -> None:
    """Two tensor-parallel groups, one of which has exchanged more; all completed."""
    job = Job(ranks=4, collectives=8)
    dumps = []
    for rank in range(4):
        name, members = ("1", "[0, 1]") if rank < 2 else ("2", "[2, 3]")
        content = job.content(rank)
        config = {"name": name, "desc": "tp", "ranks": members}
        entries = [{**each, "process_group": (name, "tp")} for each in content["entries"]]
        del entries[5 if rank < 2 else 8 :]
        entries[-1].update(WAITING)
        content = {**content, "pg_config": {name: config}, "entries": entries}
        dumps.append(read_dump(pickle.dumps(content), f"rank_{rank}"))
    assert [(each.kind, each.seq, ranks_of(each)) for each in wrong(dumps)] == [
        ("runs", 5, (0, 1)),
        ("runs", 8, (2, 3)),
    ]


def test_a_transfer_that_has_not_completed_is_said(tmp_path: Path) -> None:
    job = Job(ranks=2)
    for rank, own in job.entries.items():
        work = "nccl:send 0->1" if rank == 0 else "nccl:recv 1<-0"
        own.append({**own[-1], **WAITING, "is_p2p": True, "profiling_name": work})
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(job.content(rank)))
    logs = tuple(sorted(tmp_path.iterdir()))
    record = explain(session(), ExplainOptions(logs=logs))
    assert record.result == "not_understood"
    assert record.conclusions == [
        "Ranks 0-1 have enqueued a transfer last that is not known to have completed (send 0->1)."
        " Transfers are not compared: look at the other end."
    ]


def test_a_large_dump_in_json_is_known_by_its_entries(tmp_path: Path) -> None:
    job = Job(ranks=2, collectives=4000)
    for rank in job.entries:
        text = json.dumps(job.content(rank), sort_keys=True)
        assert text.index("pg_config") > 1 << 20
        (tmp_path / f"rank_{rank}.json").write_text(text)
    logs = tuple(sorted(tmp_path.iterdir()))
    record = explain(session(), ExplainOptions(logs=logs))
    assert [each.entries for each in record.dumps] == [4000, 4000]
    assert record.result == "ok"


def test_of_two_ranks_the_late_one_is_known() -> None:
    job = Job(ranks=2)
    for rank in range(2):
        job.set_last(rank, **WAITING)
    job.set_last(1, time_created_ns=job.entries[1][-1]["time_created_ns"] + 700 * SECOND_NS)
    assert ranks_of(only(job.dumps())) == (1,)


def test_a_delay_that_the_collective_survived_is_not_wrong() -> None:
    job = Job()
    job.set_last(1, time_created_ns=job.entries[1][-1]["time_created_ns"] + 20 * SECOND_NS)
    assert wrong(job.dumps()) == []


def test_a_rank_that_enqueued_another_collective_differs() -> None:
    job = Job()
    job.entries[3][4]["profiling_name"] = "nccl:broadcast"
    found = only(job.dumps())
    assert (found.kind, found.seq, ranks_of(found)) == ("differs", 5, (3,))


def test_a_rank_that_reduces_another_size_differs_and_one_that_sends_another_does_not() -> None:
    job = Job()
    job.entries[3][4]["input_sizes"] = [[999, 8]]
    assert only(job.dumps()).kind == "differs"
    for own in job.entries.values():
        own[4]["profiling_name"] = "nccl:all_to_all"
    assert wrong(job.dumps()) == []


def test_a_rank_that_has_enqueued_and_not_begun_what_others_run() -> None:
    job = Job()
    for rank in (0, 1, 3):
        job.set_last(rank, **WAITING)
    job.set_last(2, **ENQUEUED)
    assert (only(job.dumps()).kind, ranks_of(only(job.dumps()))) == ("not_started", (2,))


def test_a_collective_that_all_run_with_the_members_that_left_no_dump() -> None:
    job = Job()
    for rank in range(4):
        job.set_last(rank, **WAITING)
    runs, no_dump = dump_observations(job.dumps(but=[1]))
    assert (runs.kind, ranks_of(runs)) == ("runs", (0, 2, 3))
    assert (no_dump.kind, ranks_of(no_dump)) == ("no_dump", (1,))


def test_json_has_the_same_as_a_pickle() -> None:
    job = Job()
    as_json = read_dump(json.dumps(job.content(2)).encode(), "dump_2.json")
    assert as_json.entries == job.dumps()[2].entries
    assert as_json.rank == 2


@pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/cases beside the repository")
def test_the_dumps_of_a_real_job_whose_third_rank_slept() -> None:
    record = explain(session(), ExplainOptions(logs=tuple(sorted(CASES.glob("rank_*")))))
    assert record.result == "wrong"
    assert record.conclusions == [
        "Rank 2 came 20 s late to all_reduce 6 (fr.py:7): ranks 0-1, 3 waited. Look at what that"
        " process did meanwhile, not at the network."
    ]


def session() -> Session:
    """One with the defaults."""
    return Session(load(None))


def test_a_damaged_dump_costs_itself(tmp_path: Path) -> None:
    job = Job()
    for rank in range(3):
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(job.content(rank)))
    (tmp_path / "rank_3").write_bytes(pickle.dumps(job.content(3))[:900])
    logs = tuple(sorted(tmp_path.iterdir()))
    record = explain(session(), ExplainOptions(logs=logs))
    assert [each.rank for each in record.dumps] == [0, 1, 2, 3]
    assert record.result == "not_understood"
    first, second = record.conclusions
    assert first.endswith("than the others.")
    assert second == f"{tmp_path}/rank_3: a dump that cannot be read: a truncated pickle."


def test_where_no_dump_can_be_read_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "rank_3").write_bytes(pickle.dumps(Job().content(3))[:900])
    with pytest.raises(UsageError, match="rank_3: a truncated pickle"):
        explain(session(), ExplainOptions(logs=(tmp_path / "rank_3",)))


def test_a_member_without_a_dump_is_suspected_where_nothing_says_that_all_completed() -> None:
    job = Job()
    assert wrong(job.dumps(but=[2])) == []
    for rank in range(4):
        job.set_last(rank, **ENQUEUED)
    found = only(job.dumps(but=[2]))
    assert (found.kind, ranks_of(found), others_of(found)) == ("no_dump", (2,), (0, 1, 3))


def test_several_dumps_of_one_rank_are_said(tmp_path: Path) -> None:
    for name in ("a_1", "b_1", "a_0"):
        (tmp_path / name).write_bytes(pickle.dumps(Job(ranks=2).content(int(name[-1]))))
    logs = tuple(sorted(tmp_path.iterdir()))
    record = explain(session(), ExplainOptions(logs=logs))
    assert record.conclusions[-1] == (
        "Rank 1: several dumps, which may be of two runs: not compared."
    )


def test_with_redact_the_program_is_not_named(tmp_path: Path) -> None:
    job = Job()
    for rank in range(4):
        job.set_last(rank, **WAITING)
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(job.content(rank)))
    logs = tuple(sorted(tmp_path.iterdir()))
    plain = explain(session(), ExplainOptions(logs=logs))
    redacted = explain(session(), ExplainOptions(logs=logs, redact=True))
    assert plain.observations[0].program == "train.py:80"
    assert redacted.observations[0].program == ""
    assert redacted.dumps[0].source == "log 1"


class Call:
    """What a hostile pickle would call."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("false",)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_calls_something_is_refused(protocol: int) -> None:
    content = {"entries": [Call()], "pg_config": {}}
    assert "more than plain data" in read_dump(pickle.dumps(content, protocol), "rank_0").error


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02X\xff\xff\xff\xff.",
        b"\x80\x02j\xff\xff\xff\x7f.",
        b"\x80\x02]r\xff\xff\xff\x7f\x85\x85t.",
        b"\x80\x02}]K\x01s.",
        b"\x80\x02]]a" + b"\x85" * 100_000 + b".",
        b"\x80\x02" + b"]" * 9_000_000,
        # Lists of two of the list before: 34 of them are 17 billion values.
        b"\x80\x02]q\x00" + b"".join(b"](h%ch%ceq%c" % (n, n, n + 1) for n in range(34)) + b".",
    ],
)
def test_a_hostile_pickle_is_an_error_of_its_file(data: bytes) -> None:
    assert read_dump(data, "rank_0").error


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner)
        | st.tuples(inner, inner, inner, inner)
    ),
    max_leaves=30,
)


@given(_PLAIN, st.integers(2, 5))
def test_plain_data_are_what_pickle_reads(value: object, protocol: int) -> None:
    assert plain_data(pickle.dumps(value, protocol)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_plain_data_or_an_error(data: bytes) -> None:
    with suppress(PickleError):
        plain_data(b"\x80\x02" + data)


def test_json_of_more_values_than_any_dump_has_is_refused_before_it_is_decoded() -> None:
    """64 MiB of empty lists took 2 GB."""
    data = b'{"version":"2","entries":[],"x":[' + b",".join([b"[]"] * 2_200_000) + b"]}"
    tracemalloc.start()
    dump = read_dump(data, "rank_0")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert dump.error == "JSON of more than 4,194,304 values"
    assert most < 1 << 20
