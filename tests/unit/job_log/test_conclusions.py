"""What follows from observations of a job and from what the network did: of logs and of RAS."""

from __future__ import annotations

from fabmon.analysis.job.conclusions import conclusions
from fabmon.analysis.job.observation import Location, Observation, Weight, result_of
from fabmon.analysis.job.status_observations import RankPlaces, status_observations
from fabmon.analysis.job.wire import Extent, PortLoad, Wire, wire_state
from fabmon.analysis.job_log.places import Place
from fabmon.analysis.nccl_ras.job_status import (
    Communicator,
    JobStatus,
    Member,
    MissingMember,
    MissingProcess,
    Movement,
)
from tests.unit.job_log.observed import NOWHERE

NONE = Extent(None, None)
PORT = Place("gpu001", "gpu001/mlx5_3", "gpu001 r3", "leaf1", "swp4")


def wire(paused: float) -> Wire:
    """The one port of a job, which was paused for a share of the time."""
    carried = Extent(0.3, 0.5)
    load = PortLoad(
        port=PORT.port,
        name=PORT.name,
        down_s=0.0,
        tx_util=carried,
        rx_util=carried,
        paused=Extent(paused, paused),
        pausing=NONE,
        errors=NONE,
        drops=NONE,
    )
    return Wire(clock="", state=wire_state([load])[0], port_count=1, ports=[load])


def failure(kind: str, ranks: tuple[int, ...] = (3,)) -> Observation:
    return Observation(
        witness="log",
        kind=kind,
        weight=Weight.WRONG,
        text=f"rank {ranks[0]} failed.",
        check="Look at it.",
        at=(Location(ranks=ranks, host="gpu001", ports=(PORT,)),),
        source="job.log",
    )


def test_a_port_of_a_failed_request_that_was_paused_is_said() -> None:
    found = list(conclusions([failure("completion")], wire(0.4)))
    assert found == [
        "rank 3 failed. Look at it.",
        "At that time gpu001 r3 was paused 40 % of the time: look at that link too.",
    ]
    assert list(conclusions([failure("completion")], wire(0.01))) == found[:1]
    assert list(conclusions([failure("process")], wire(0.4))) == found[:1]


def dead(*names: str) -> JobStatus:
    """A process that is dead, with another rank in each of some communicators."""
    return JobStatus(
        missing=(MissingProcess("gpu001", 40, (3,), is_dead=True),),
        communicators=tuple(
            Communicator(
                name=name,
                hash=name,
                missing=(MissingMember(Member(rank, "gpu001", 40, 3), "dead"),),
            )
            for rank, name in enumerate(names)
        ),
    )


def test_a_process_that_is_dead_in_several_communicators_is_said_once() -> None:
    seen = status_observations(dead("#0-0", "#1-0"), Movement.UNKNOWN, RankPlaces(NOWHERE))
    assert [(each.kind, each.group) for each in seen] == [("dead", "#0-0"), ("dead", "#1-0")]
    (sentence,) = conclusions(seen, None)
    assert sentence.startswith("Rank 1 (gpu001 GPU 3) is dead")
    assert result_of(seen) == "wrong"


def test_a_rank_without_a_number_is_said_by_its_host() -> None:
    """What another program claims: -1 is no rank."""
    status = JobStatus(
        communicators=(
            Communicator(
                name="#0-0", hash="", missing=(MissingMember(Member(-1, "gpu001", 40, 3), "dead"),)
            ),
        )
    )
    seen = status_observations(status, Movement.UNKNOWN, RankPlaces(NOWHERE))
    (sentence,) = conclusions(seen, None)
    assert sentence.startswith("A rank on gpu001 is dead")
