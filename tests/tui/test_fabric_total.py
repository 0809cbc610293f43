from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabmon.fabric.model import RAIL, STORAGE
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_window import TimeWindow, span
from fabmon.tui.text.fabric_total import CURVE_COLUMNS, FabricTotal, fabric_total, sending_rows
from tests.tui.scenes import World


def _total(snapshot: Snapshot) -> FabricTotal | None:
    tick = span(TimeWindow.TICK, snapshot)
    return fabric_total(snapshot, sending_rows(snapshot.fabric), tick)


def test_the_total_is_what_the_hosts_send_and_the_curve_ends_with_it() -> None:
    snapshot = World().scene(70).snapshot
    nics = [port.row for port in snapshot.fabric.ports if port.role in (RAIL, STORAGE)]
    total = _total(snapshot)
    assert total is not None
    assert total.bps == pytest.approx(np.nansum(snapshot.column("tx_bps")[nics]), rel=1e-5)
    assert total.line_rate_bps == pytest.approx(np.nansum(snapshot.line_rate_bps[nics]), rel=1e-5)
    assert len(total.curve) == CURVE_COLUMNS
    assert total.curve[-1] >= total.bps * 0.999


def test_a_column_of_the_curve_does_not_change_once_it_is_complete() -> None:
    world = World()
    before, after = (_total(world.scene(seq).snapshot) for seq in (71, 73))
    assert before is not None
    assert after is not None
    assert before.curve[:-1].tolist() == after.curve[:-1].tolist()


def test_without_a_known_rate_there_is_no_total() -> None:
    snapshot = World().scene(70).snapshot
    assert _total(replace(snapshot, heat=np.full_like(snapshot.heat, np.nan))) is None
