"""A collision on the kernel's own fabric arrives at a real Alertmanager, once, and ends there."""

from __future__ import annotations

import time

import pytest

from tests.lab import Lab
from tests.lab.alerting import Alerting
from tests.requirements import need_command

_PATIENCE_S = 240.0
"""For a notification, which comes 5 s after the beginning of a collision, and 25 s after its end,
where nothing else runs."""

_SHARE = 0.7
"""Of line rate, that each of the two flows on a link sends. A sender that had no CPU for a while
sends faster after it: one that reaches its line rate shows no loss before the link is full for ten
seconds."""

pytestmark = pytest.mark.timeout(1200)


def check_once(notified: list[tuple[str, str, str]]) -> None:
    """Each change of the collision was notified once; with another severity it is another alert. It
    ends for a moment where a busy machine holds up its senders."""
    assert {finding for _, finding, _ in notified} == {"ecmp_collision:leaf1/up3"}
    for severity in {severity for *_, severity in notified}:
        changes = [status for status, _, own in notified if own == severity]
        expected = [("firing", "resolved")[number % 2] for number in range(len(changes))]
        assert changes == expected, notified


def test_a_collision_is_notified_once_through_restarts_of_both_sides(lab: Lab) -> None:
    need_command("prometheus-alertmanager", "prometheus-alertmanager")
    with Alerting(lab) as alerting:
        alerting.until(lambda event: "all_up" in event, _PATIENCE_S)
        lab.spread(0.2, "leaf2")
        time.sleep(5)
        begun_s = time.monotonic()
        flows = lab.collide("leaf1", "up3", _SHARE)
        fired = alerting.until(lambda event: event.get("status") == "firing", _PATIENCE_S)
        for command in ("kill-watch", "kill-watch", "restart-alertmanager"):
            alerting.carry_out(command)
            time.sleep(10)
            check_once(alerting.notifications())

        ended_s = time.monotonic()
        for flow in flows:
            flow.stop()
        resolved = alerting.until(
            lambda event: event.get("status") == "resolved" and event["at_s"] > ended_s, _PATIENCE_S
        )
        time.sleep(5)
        check_once(alerting.notifications())
        assert alerting.notifications()[-1][0] == "resolved"
    took_s, ends_s = fired["at_s"] - begun_s, resolved["at_s"] - ended_s
    print(f"notified after {took_s:.1f} s, of its end after {ends_s:.1f} s")
