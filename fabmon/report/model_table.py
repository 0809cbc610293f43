"""What the bottleneck model believes of the links at one tick, and why, as text for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, has_values
from fabmon.analysis.fabric_structure import NONE, FabricStructure
from fabmon.analysis.model.bottlenecks import Bottleneck, BottleneckModel, Place
from fabmon.analysis.model.candidates import Candidate
from fabmon.analysis.model.causes import how_many, loss
from fabmon.analysis.model.evidence import ANOTHER_LINK, ONE_NIC
from fabmon.analysis.model.full_links import why_no_bottleneck
from fabmon.analysis.model.shared_links import shared_links
from fabmon.analysis.model.signs import Signs, signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.time_wording import date_time
from fabmon.fabric.wording import (
    ABSENT,
    NO_BREAK_SPACE,
    attach_units,
    name_list,
    plural,
    rounded_percent,
    trimmed,
)

_MOST_LINKS = 20
_MOST_NICS = 4
_BUSY = 0.5
"""Utilisation, 0 to 1, above which a link that may hold NICs is listed without evidence."""

_COLUMNS = 80
_LABEL = 10
_LEGEND = f"Log-odds above 0 are for a queue; 0: says nothing, {ABSENT}: not observable."

_COUNTERS = (
    ("ECN marks of switches", ("ecn",), "switch"),
    ("drops of switches", ("tx_drops",), "switch"),
    ("CNPs that NICs handle", ("cnp",), "rail"),
    ("ECN marks at NICs", ("ecn", "cnp_sent"), "rail"),
    ("pause or missing credits", ("pause_rx", "stall"), "rail or switch"),
)
"""What the signs are from: its columns, and the ports that may have them."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of something: at how many of some `places` there are any, and whether one of
    them `moved` in the last ticks."""

    name: str
    of: str
    places: int
    counted: int
    moved: bool


@dataclass(frozen=True, slots=True)
class ModelTick:
    """What the model believes at a tick, and from what.

    `links` is the number of links between switches that it looks at, each direction as one;
    `candidates` are those that may hold NICs, with last hops.
    """

    time_ns: int
    structure: FabricStructure
    thresholds: ModelThresholds
    candidates: tuple[Candidate, ...]
    bottlenecks: tuple[Bottleneck, ...]
    signs: Signs
    links: int
    counters: tuple[Counters, ...]


def model_tick(inputs: DetectorInput, model: BottleneckModel) -> ModelTick:
    """What a model believes at the tick of these inputs."""
    structure = inputs.structure
    return ModelTick(
        time_ns=inputs.snapshot.time_ns,
        structure=structure,
        thresholds=model.t,
        candidates=model.candidates(inputs),
        bottlenecks=model.bottlenecks(inputs),
        signs=signs(inputs, model.t),
        links=sum(len(each.rows) for each in shared_links(structure)),
        counters=tuple(_counters(inputs)),
    )


def _counters(inputs: DetectorInput) -> Iterator[Counters]:
    structure = inputs.structure
    for name, columns, kind in _COUNTERS:
        ports = structure.is_rail & ("rail" in kind) | structure.is_switch & ("switch" in kind)
        windows = np.fmax.reduce([inputs.window(column)[ports] for column in columns])
        counted, moved = int(has_values(windows).sum()), bool((windows > 0).any())
        yield Counters(name, "port", int(ports.sum()), counted, moved)
    if not inputs.has_rdma_counters[structure.is_rail].any():
        yield _vanishing_bytes(inputs)


def _vanishing_bytes(inputs: DetectorInput) -> Counters:
    """The switches of which the bytes of all ports are known, as the model needs them."""
    structure = inputs.structure
    own = structure.is_switch & (structure.node != NONE)
    switches, place = np.unique(structure.node[own], return_inverse=True)
    missing = np.isnan(inputs.window("rx_bps")[own]) | np.isnan(inputs.window("tx_bps")[own])
    whole = np.array([np.bincount(place, weights=each) == 0 for each in missing.T])
    counted = int((whole.sum(axis=0) > 1).sum())  # Of one tick the model believes nothing.
    return Counters("bytes that vanish in switches", "switch", len(switches), counted, True)


def model_table(tick: ModelTick) -> str:
    """The text: links with evidence, most first, then what is not observable."""
    return "\n".join(_lines(tick)) + "\n"


def _lines(tick: ModelTick) -> Iterator[str]:
    between = sum(each.receiver == NONE for each in tick.candidates)
    last_hops = len(tick.candidates) - between
    yield from _wrapped(
        f"{date_time(tick.time_ns)}  bottleneck model: {plural(tick.links, 'link')} between"
        f" switches, {between} of them and {plural(last_hops, 'last hop')} may hold NICs;"
        f" {plural(len(tick.bottlenecks), 'bottleneck')}",
        22,
    )
    found = {(each.link.row, each.link.receiver): each for each in tick.bottlenecks}
    listed = [each for each in tick.candidates if each.evidence > 0 or each.busy > _BUSY]
    listed.sort(key=lambda each: (-each.evidence, -each.busy))
    for each in listed[:_MOST_LINKS]:
        yield ""
        yield from _block(tick, each, found.get((each.row, each.receiver)))
    yield ""
    if len(listed) > _MOST_LINKS:
        yield f"and {plural(len(listed) - _MOST_LINKS, 'link')} with no more evidence"
    if not listed:
        yield "No link may hold NICs: none is busier than they are and full, or shows a queue."
    for text in (*_not_observable(tick.counters), *([_LEGEND] if listed else [])):
        yield from _wrapped(text, 2)


def _block(tick: ModelTick, each: Candidate, found: Bottleneck | None) -> Iterator[str]:
    yield f"  {_link_name(tick.structure, each)}"
    for label, text in (
        ("evidence", _evidence(tick, each, found)),
        ("busy", _busy(each)),
        ("NICs", _nics(tick, each, found)),
        ("signs", _signs(tick.signs, each)),
        ("this tick", _this_tick(each)),
    ):
        yield from _wrapped(f"    {label.ljust(_LABEL)}{text}", _LABEL + 4)


def _link_name(structure: FabricStructure, each: Candidate) -> str:
    """`leaf2 up5 (leaf2/swp37) to spine5`."""
    if each.row == each.receiver:
        return f"the last hop to {structure.label(each.row)}, from a switch that is not watched"
    port, peer = structure.fabric.ports[each.row], int(structure.peer[each.row])
    name = port.display_name
    if name.split() != port.id.split("/"):
        name += f" ({port.id})"
    if each.receiver != NONE:
        return f"{name} to {structure.label(each.receiver)}, last hop"
    cabled = port.cable if peer == NONE else structure.fabric.ports[peer]
    return name if cabled is None else f"{name} to {cabled.node}"


def _evidence(tick: ModelTick, each: Candidate, found: Bottleneck | None) -> str:
    """`7.9 (flags at 7.0): bottleneck for 6 ticks, its flows lose 48 %`."""
    text = f"{each.evidence:.1f} (flags at {tick.thresholds.flags:.1f})"
    if found is None:
        return f"{text}{_why_no_bottleneck(tick, each)}"
    is_group = found.place is Place.GROUP
    of = f" of the whole group ({plural(found.links, 'link')})" if is_group else ""
    text += (
        f": bottleneck{of} for {plural(found.lasted_ticks, 'tick')}, its flows lose {loss(found)}"
    )
    return f"{text}; seen by {found.slowed_by}" if found.slowed_by else text


def _why_no_bottleneck(tick: ModelTick, each: Candidate) -> str:
    """Why a link with enough evidence is no bottleneck; empty where there is not enough."""
    if each.evidence < tick.thresholds.flags:
        return ""
    groups = [found.link.group for found in tick.bottlenecks if found.place is Place.GROUP]
    if any(each.group is group for group in groups):
        return ": part of the bottleneck of its group"
    return f": no bottleneck, {why_no_bottleneck(tick.structure, each, tick.thresholds)}"


def _busy(each: Candidate) -> str:
    """`64 % on average, 99 % at most, 99 % now; the 7 other links of its group 18 %`."""
    mean, most, now = map(rounded_percent, (each.busy, each.util.max(), each.util[-1]))
    text = f"{mean} on average of {len(each.util)} ticks, {most} at most, {now} now"
    others = int(np.isfinite(each.level).sum()) - 1
    if others < 1:
        return f"{text}; the only link of its group" if each.group else text
    which = "other link" if others == 1 else f"{others} other links"
    return f"{text}; the {which} of its group {rounded_percent(each.others_busy)}"


def _nics(tick: ModelTick, each: Candidate, found: Bottleneck | None) -> str:
    """`2 may share it (gpu005 r0, gpu007 r0); 33 % busy: the link is 1.9 times as busy`."""
    structure, t = tick.structure, tick.thresholds
    parts = []
    if each.alone != NONE:
        parts.append(f"{structure.label(each.alone)} alone accounts for it")
    if each.brought_by != NONE:
        parts.append(f"{structure.label(each.brought_by)} brings what it carries")
    if parts:
        if ONE_NIC in each.limits or ANOTHER_LINK in each.limits:
            return "; ".join(parts)
        parts.append("but it shows a queue")
    parts.append(_sharers(structure, each, found))
    if not each.is_known:
        parts.append("much of what NICs receive comes from elsewhere")
    if each.as_busy < t.nearly:
        share = rounded_percent(each.as_busy)
        parts.append(f"another link that NICs as busy share is busier: this one is {share} as busy")
    return "; ".join(parts)


def _sharers(structure: FabricStructure, each: Candidate, found: Bottleneck | None) -> str:
    if not len(each.sharers):
        return "none is known that may share it"
    are_all = found is not None and len(found.named) == len(each.sharers)
    share = "share" if are_all else "may share"
    text = f"{len(each.sharers)} {share} it ({structure.labels(each.sharers, _MOST_NICS)})"
    if len(each.instead):
        text += f", or {structure.labels(each.instead, _MOST_NICS)} in the place of one"
    if found is not None and not are_all:
        some = structure.labels(found.named, _MOST_NICS) or how_many(found).removesuffix(" ports")
        text += f"; {some} do"
    busy = rounded_percent(each.ends_busy)
    return f"{text}; {busy} busy: the link is {trimmed(each.ratio)} times as busy"


def _signs(seen: Signs, each: Candidate) -> str:
    """`own queue +2.8; senders +1.4; waiting 0`, `·` where no counter says anything."""
    is_inward = each.group is not None and each.group.is_inward
    own, waits = seen.own[each.row], seen.waits[each.row]
    of_ends = seen.receives if is_inward else seen.sends
    ends = np.fmax.reduce(of_ends[each.sharers], initial=np.nan)
    source = ""
    if each.vanishes:
        source = " (bytes vanish in its switch)"
    elif each.receiver != NONE and each.of_queue and not np.nan_to_num(own):
        source = " (by its receiver)"
    return (
        f"own queue {_signed(each.of_queue, own)}{source};"
        f" {'receivers' if is_inward else 'senders'} {_signed(each.of_ends, ends)};"
        f" waiting {_signed(each.of_waiting, waits)}"
    )


def _signed(value: float, counted: float) -> str:
    """A sign; `·` where it is 0 since what is `counted` is NaN."""
    if value == 0 and np.isnan(counted):
        return ABSENT
    return "0" if abs(value) < 0.05 else f"{value:+.1f}"


def _this_tick(each: Candidate) -> str:
    """`+1.63: base -1.50, full +0.50, ...`: rounded so that what is written adds up."""
    texts, total, written = [], 0.0, 0.0
    for name, log_odds in each.terms:
        total += log_odds
        if value := round(total - written, 2):
            written += value
            texts.append(f"{name}{NO_BREAK_SPACE}{value:+.2f}")
    return f"{each.llr:+.2f}: {', '.join(texts)}"


def _not_observable(counters: Sequence[Counters]) -> Iterator[str]:
    """Sentences on what is counted nowhere, or not everywhere, and on what is 0 everywhere."""
    unknown = [
        f"{each.name} (known of {each.counted} of {plural(each.places, each.of)})"
        if each.counted
        else each.name
        for each in counters
        if each.counted < max(each.places, 1)
    ]
    quiet = [each.name for each in counters if each.counted and not each.moved]
    if unknown:
        yield f"Not observable: {name_list(unknown, len(counters))}"
    if quiet:
        yield f"Counted, but nowhere seen in the last 10 ticks: {name_list(quiet, len(counters))}"


def _wrapped(text: str, hang: int) -> list[str]:
    """A text as lines of at most 80 columns, those after the first one with an indent."""
    text = attach_units(text)
    lines = wrap(text, _COLUMNS, subsequent_indent=" " * hang, break_on_hyphens=False)
    return [line.replace(NO_BREAK_SPACE, " ") for line in lines]
