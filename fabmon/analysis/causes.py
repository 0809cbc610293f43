"""Every cause and every detector.

A new detector is a module in fabmon/analysis/detectors. Here it is listed in `SECTIONS`, made in
`detectors`, and, when it has thresholds of its own, its table is added to `Thresholds`.
"""

from __future__ import annotations

from functools import partial

import msgspec

from fabmon.analysis.detectors import (
    congested_path,
    degraded_link,
    driver_failed,
    ecmp_collision,
    error_burst,
    flapping_link,
    gpu_nic_numa,
    host_pcie_limit,
    incast,
    job_stalled,
    link_down,
    miscabled,
    missing_nvlinks,
    node_lost,
    nvlink_fabric,
    oversubscription,
    packet_loss,
    pause_deadlock,
    pause_storm,
    polarization,
    saturated_counter,
    slow_receiver,
    straggler,
    uneven_rails,
)
from fabmon.analysis.evidence.detector_input import Detector
from fabmon.analysis.evidence.flow_control import TIME_WITHOUT_CREDITS
from fabmon.analysis.evidence.link_health import LinkDamage, LinkHealthThresholds
from fabmon.analysis.evidence.senders_place import LastSeen
from fabmon.analysis.finding import (
    LOST_BANDWIDTH,
    Cause,
    Condition,
    Finding,
    Loss,
    OtherTitle,
    Trait,
    shown_moment,
    unseen_s,
)
from fabmon.analysis.model.bottlenecks import BottleneckModel
from fabmon.analysis.model.causes import ROUTING
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.analysis.tracker import FindingThresholds
from fabmon.fabric.routing_mode import ADAPTIVE, STATIC
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_wording import DAY_NS, ONE_SAMPLE, duration, event_time
from fabmon.fabric.wording import rounded_percent

SECTIONS: dict[str, tuple[Cause, ...]] = {
    "Links and nodes": (
        node_lost.CAUSE,
        driver_failed.CAUSE,
        link_down.CAUSE,
        missing_nvlinks.CAUSE,
        nvlink_fabric.CAUSE,
        flapping_link.CAUSE,
        degraded_link.CAUSE,
        error_burst.CAUSE,
        saturated_counter.CAUSE,
        gpu_nic_numa.CAUSE,
        miscabled.CAUSE,
    ),
    "Traffic between switches": (
        ecmp_collision.CAUSE,
        polarization.CAUSE,
        oversubscription.CAUSE,
        congested_path.CAUSE,
        packet_loss.CAUSE,
    ),
    "The last hop, and hosts": (
        incast.CAUSE,
        slow_receiver.CAUSE,
        pause_storm.CAUSE,
        host_pcie_limit.CAUSE,
        pause_deadlock.CAUSE,
        uneven_rails.CAUSE,
        straggler.CAUSE,
        job_stalled.CAUSE,
    ),
}
"""Every cause that a finding can have, by its section of docs/findings.md."""

CAUSES = {cause.name: cause for causes in SECTIONS.values() for cause in causes}
"""Every cause, by name."""


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All tables of config/thresholds.toml; the comments there explain every key."""

    findings: FindingThresholds
    model: ModelThresholds
    packet_loss: packet_loss.PacketLossThresholds
    link_health: LinkHealthThresholds
    uneven_rails: uneven_rails.UnevenRailsThresholds
    node_lost: node_lost.NodeLostThresholds


def detectors(t: Thresholds, model: BottleneckModel) -> tuple[Detector, ...]:
    """A new instance of every detector, in the order in which they are called.

    Of the three that report unhealthy links, the first one reports a cable. The `model` finds the
    links and receivers that NICs share, for the four that report them.
    """
    damage = LinkDamage(t.link_health, degraded_link.CAUSE)
    return (
        partial(node_lost.lost_nodes, t=t.node_lost),
        driver_failed.FailedDrivers(),
        link_down.links_down,
        missing_nvlinks.missing_nvlinks,
        nvlink_fabric.NvlinkFabric(),
        flapping_link.FlappingLinks(t.link_health),
        degraded_link.DegradedLinks(t.link_health, damage),
        partial(error_burst.error_bursts, damage=damage),
        partial(
            ecmp_collision.ecmp_collisions, model=model, polarized_use=polarization.polarized_use
        ),
        partial(polarization.polarization, model=model),
        partial(oversubscription.oversubscription, model=model),
        partial(incast.incasts, model=model),
        congested_path.CongestedPaths(model),
        partial(packet_loss.packet_losses, t=t.packet_loss, seen=LastSeen()),
        partial(slow_receiver.host_pauses, storm=pause_storm.CAUSE, t=t.model),
        partial(host_pcie_limit.host_pcie_limits, t=t.model),
        partial(pause_deadlock.pause_deadlocks, seen=LastSeen(), t=t.model),
        uneven_rails.UnevenRails(t.uneven_rails, t.model),
        partial(straggler.stragglers, t=t.model),
        job_stalled.StalledJobs(),
        saturated_counter.saturated_counters,
        gpu_nic_numa.distant_gpus,
        miscabled.miscabled_links,
    )


def title(cause: str) -> str:
    """The title of a cause, `Host PCIe limit`.

    A name that is not declared (from a recording by a newer version) is returned in words.
    """
    declared = CAUSES.get(cause)
    if declared is not None:
        return declared.title
    return cause.replace("_", " ").capitalize()


def finding_title(finding: Condition) -> str:
    """The title of a finding's cause: `ECMP collision`; `Overloaded link` where a group's traffic
    is not hashed, `Credit starvation` where ports wait for credits."""
    routing = next((each.value for each in finding.evidence if each.name == ROUTING), "")
    has_credits = any(each.name == TIME_WITHOUT_CREDITS for each in finding.evidence)
    return title_at(finding.cause, str(routing), has_credits)


def title_at(cause: str, mode: str, has_credits: bool) -> str:
    """The title of a cause on a switch with a routing mode, and at a port with credits, as of
    InfiniBand; an unknown mode counts as hashed."""
    other = other_title(cause)
    if other and (has_credits if other.of_credits else mode in (STATIC, ADAPTIVE)):
        return other.title
    return title(cause)


def other_title(cause: str) -> OtherTitle | None:
    """The title that a cause has elsewhere, if it has one."""
    return CAUSES[cause].other_title if cause in CAUSES else None


def measured_loss(finding: Condition) -> float:
    """The share of bandwidth lost, 0 to 1; 0 of a subject that is gone, where nothing is measured
    and the finding's text says that all of it is missing."""
    declared = CAUSES.get(finding.cause)
    is_gone = declared is not None and Trait.GONE in declared.traits
    return 0.0 if is_gone and finding.lost >= 1 else finding.lost


def _loss(finding: Condition) -> Loss:
    declared = CAUSES.get(finding.cause)
    return declared.loss if declared is not None else LOST_BANDWIDTH


def lost_bandwidth(finding: Condition) -> float:
    """The measured loss, 0 to 1, where it is one of bandwidth that traffic has lost; else 0."""
    return measured_loss(finding) if _loss(finding) is LOST_BANDWIDTH else 0.0


def brief_loss(finding: Finding) -> str:
    """`52 % lost`, `up to 52 % lost`, of a degraded link `75 % slower`, at the moment that is
    shown; empty where nothing is measured."""
    return _measured(shown_moment(finding), _loss(finding).brief)


def loss_and_confidence(finding: Finding) -> str:
    """`52 % of the bandwidth lost, confidence 90 %`, and `at its worst` before it where that is not
    the last moment; the loss only where it is measured."""
    shown = shown_moment(finding)
    loss = _measured(shown, _loss(shown).full)
    confidence = f"confidence {rounded_percent(shown.confidence)}"
    text = f"{loss}, {confidence}" if loss else confidence
    return text if shown is finding else f"at its worst {text}"


def sentence(finding: Finding, snapshot: Snapshot | None = None, *, is_dated: bool = False) -> str:
    """What every output says of a finding: its text.

    Of one that has faded or ended, the text of its worst moment with its time, and what it loses at
    its end, now or, without a snapshot, when it was last seen, where that is known to differ. An
    open one that does not hold at a snapshot says when it last did: a condition that pauses with
    the job's traffic returns with it. One that ended says from when to when, or that it was one
    sample. `is_dated`: a time of day alone would be ambiguous.
    """
    shown, until_ns = shown_moment(finding), finding.until_ns
    ended = until_ns is not None
    is_dated |= (until_ns or finding.seen_ns or 0) - finding.since_ns >= DAY_NS
    passed_s = None if ended or snapshot is None else unseen_s(finding, snapshot)
    times = []
    if until_ns is not None:
        is_one = until_ns == finding.since_ns
        end = f", {ONE_SAMPLE}" if is_one else f" to {event_time(until_ns, is_dated)}"
        times.append(event_time(finding.since_ns, True) + end)
    if shown is not finding and shown.seen_ns is not None:
        times.append(f"at {event_time(shown.seen_ns, is_dated)}")
    elif passed_s is not None:
        times.append(f"last seen {duration(passed_s)} ago")
    text = ": ".join(filter(None, (", ".join(times), shown.text)))
    if shown is finding:
        return text
    lost = _measured(finding, _loss(finding).brief) or "loss not known"
    if lost == brief_loss(finding) or finding.lost >= shown.lost:
        return text if passed_s is None else f"{text}; last seen {duration(passed_s)} ago"
    if ended:
        lost += " at its end"
    elif passed_s is not None:
        lost += f" when last seen {duration(passed_s)} ago"
    elif snapshot is None and finding.seen_ns is not None:
        lost += f" at {event_time(finding.seen_ns, is_dated)}"
    else:
        lost = f"now {lost}"
    return f"{text}; {lost}"


def _measured(finding: Condition, of: str) -> str:
    """The measured loss in words, `of` what; empty without one."""
    lost = measured_loss(finding)
    at_most = "up to " if finding.lost_is_upper_bound else ""
    return f"{at_most}{rounded_percent(lost)} {of}" if lost > 0 else ""


def causes_with(trait: Trait) -> frozenset[str]:
    """Names of the causes that have a trait."""
    return frozenset(name for name, cause in CAUSES.items() if trait in cause.traits)
