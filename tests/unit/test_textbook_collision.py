"""The textbook collision, recorded three times from the kernel's own fabric (`shared/cases`).

From the ninth second on two of three UDP senders of a leaf, 61.8 Mb/s each, share one uplink of
80 Mb/s, the third has another one, and the last one is idle. How much of each flow arrives is the
chance of its queue.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fabmon.analysis.analyst import Analyst
from fabmon.recording.reading.timeline import Timeline
from fabmon.scenes.pipeline import Pipeline
from fabmon.session.config import load
from fabmon.session.session import Session
from tests.score.play import reported_by

CASES = Path(__file__).parents[3] / "shared/cases/kernel-collision"
RECORDINGS = sorted(CASES.glob("*.fabrec"))
STARTS_S = 8
"""Second after which the flows start."""
LOST = 1 - 80 / (2 * 61.8)


@pytest.mark.skipif(not RECORDINGS, reason="needs ../shared/cases beside the repository")
@pytest.mark.parametrize("path", RECORDINGS, ids=[each.stem for each in RECORDINGS])
def test_it_is_flagged_within_five_seconds_with_what_its_flows_lose(path: Path) -> None:
    with Timeline([path]) as timeline:
        session = Session(load(Path("/dev/null"))).for_recording(timeline, redact=False)
        analyst = Analyst(session.settings.thresholds)
        found = reported_by(Pipeline(session.recorded_history(timeline), analyst), timeline.ticks())
    assert [(each.cause, each.subject) for each in found] == [("ecmp_collision", "tor2/sp3")]
    (collision,) = found
    assert collision.opened_s <= STARTS_S + 5
    assert collision.lost == pytest.approx(LOST, abs=0.02)
    assert not collision.is_upper_bound
    assert collision.closed_s is None
