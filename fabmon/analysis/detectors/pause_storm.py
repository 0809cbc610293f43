"""A host all but stops the switch port that sends to it, by pause or by giving no credits.

`slow_receiver.host_pauses` finds it.
"""

from __future__ import annotations

from fabmon.analysis.finding import CRITICAL, SLOW_HOST_PORT, Cause, OtherTitle

CAUSE = Cause(
    name="pause_storm",
    title="Pause storm",
    meaning="a host pauses its switch nearly all the time (InfiniBand: gives it no credits)",
    severity=CRITICAL,
    rule=(
        "As a slow receiver, but for more than model.storm of the time in model.ticks seconds"
        " running, or its NIC's storm guard counts an error."
    ),
    inputs="Pause counters at either end; on InfiniBand ib_tx_wait of the switch port",
    not_observable="What waits for it, where its switch is not watched",
    confidence=0.95,
    picture="pause_tree",
    advice=(
        "Take the host out (drain it, then reset the NIC), and check that the switch's PFC watchdog"
        " is on: it drops what a storm would spread."
    ),
    tables=("model",),
    traits=SLOW_HOST_PORT,
    family="host port",
    other_title=OtherTitle("Credit starvation"),
)
