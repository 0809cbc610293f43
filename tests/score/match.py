"""Which findings were right, which truths were found, and how soon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fabmon.analysis.evidence.null_model import occupied_at_most
from fabmon.feeds.demo.fault_planner import Truth
from tests.score.congestion import WINDOW, Episode
from tests.score.play import Played, ReportedFinding

COLLISION = "ecmp_collision"
_LATE_S = 20
"""A finding may come so long after the end of what it is about: it judges a window."""
_LASTS_S = 8
"""What lasts shorter, as far as anything shows it, may be found or not."""
_BEFORE_S, _AFTER_S = 10, 3
_AGAIN_S = 15
_CHANCE = 0.0001
_TWICE_S = 10
"""A finding that closed so long ago may open again: another fault hid it meanwhile."""
_BY_NODE = ("polarization", "oversubscription", "straggler", "node_lost")
_NEEDS_QUEUE = ("polarization", "incast", "slow_receiver")
_ALSO_TRUE = {
    "flapping_link": ("link_down",),
    "node_lost": ("link_down",),
    "error_burst": ("saturated_counter",),
    "degraded_link": ("saturated_counter",),
}
"""What may be reported beside the cause, since it is true as well: a port that is down is down, and
errors fill InfiniBand's counters."""


@dataclass
class Expected:
    """One thing that must be found, or (`must` False) that may be."""

    cause: str
    place: str
    onset_s: float
    until_s: float
    must: bool
    truth: Truth | None = None
    episode: Episode | None = None
    found: list[ReportedFinding] = field(default_factory=list)
    found_s: int | None = None
    """The second in which it was reported; None where an open finding had reported it already."""


@dataclass
class Score:
    """Of one run: the expected, the findings that are wrong, the plain rule's flags."""

    expected: list[Expected]
    wrong: list[ReportedFinding]
    reported: list[ReportedFinding]
    plain_right: list[tuple[int, str]]
    plain_wrong: list[tuple[int, str]]
    plain_found: dict[int, float]
    """By place in `expected`: seconds from onset to the plain rule's first flag of it."""


def score(played: Played) -> Score:
    """Judge one run."""
    expected = [*_scripted(played), *_collisions(played)]
    wrong = []
    for reported in played.reported:
        if not _accept(reported, expected, played):
            wrong.append(reported)
    for each in expected:
        if each.episode is not None and not each.found:
            _find_inside(each, played)
    return Score(expected, wrong, played.reported, *_plain(played, expected))


def _scripted(played: Played) -> Iterator[Expected]:
    for truth in played.truths:
        if truth.cause in (COLLISION, "miscabled"):
            continue
        until = truth.until_s if truth.until_s is not None else float(played.seconds)
        until = min(until, float(played.seconds))
        seen = truth.seen_s
        if seen is None:
            yield Expected(truth.cause, truth.subject, truth.since_s, until, False, truth)
            continue
        onset = max(truth.since_s, seen)
        shows = until - onset
        if truth.cause in _NEEDS_QUEUE:
            queued = _queued(truth, played, until)
            shows = len(queued)
            onset = max(onset, min(queued, default=onset + 1) - 1)
        if truth.cause == "polarization" and not _beyond_chance(truth, played):
            shows = 0  # so few flows: the hash may well have done it
        if truth.cause == "oversubscription":
            full = [s for s in played.full_leaves.get(truth.subject, []) if s <= until + 1]
            shows = len(full)
            onset = max(onset, min(full, default=onset + 1) - 1)
        if truth.cause == "uneven_rails":
            sends = {s for node in truth.nodes for s in played.sends.get(node, ())}
            shows = sum(onset < s <= until + 1 for s in sends)
        if truth.cause == "straggler" and len(list(_runs(played.waits, 1))) < 2:
            shows = 0  # late once: that may happen to anybody
        must = shows >= _LASTS_S and _can_be_seen(truth, played)
        yield Expected(truth.cause, truth.subject, onset, until, must, truth)


def _can_be_seen(truth: Truth, played: Played) -> bool:
    """Whether an end of it is watched."""
    of_switches = not any(node.startswith("gpu") for node in (*truth.nodes, truth.subject))
    return played.scenario.topology.visible == "all" or not of_switches


def _beyond_chance(truth: Truth, played: Played) -> bool:
    crossing, links = played.crossing_flows[truth.subject]
    return occupied_at_most(len(truth.links), crossing, links) < _CHANCE


def _queued(truth: Truth, played: Played, until: float) -> list[int]:
    """The seconds in which a link of it, or what feeds it, had a queue."""
    ports = {each for link in truth.links for each in (link, played.peer.get(link, link))}
    found = {s for port in ports for s in played.queued.get(port, ())}
    return sorted(s for s in found if truth.since_s <= s <= until + 1)


def _collisions(played: Played) -> Iterator[Expected]:
    """One for each time that a link collides, without a break that is long."""
    blamed = [t for t in played.truths if t.cause not in (COLLISION, "incast", "straggler")]
    for port, episode in played.episodes.items():
        for run in _runs(episode.may, _AGAIN_S):
            inside = [s for s in episode.must if run[0] <= s <= run[-1]]
            must = len(inside) >= _LASTS_S and not any(
                _explains(truth, port, run, played) for truth in blamed
            )
            onset = float((min(inside) if inside else run[0]) - 1)
            part = Episode(port, run, inside)  # type: ignore[arg-type]
            yield Expected(COLLISION, port, onset, float(run[-1]), must, episode=part)


def _runs(seconds: list[int], apart_s: int) -> Iterator[list[int]]:
    """Seconds that follow each other, no more than so far apart."""
    run: list[int] = []
    for second in seconds:
        if run and second - run[-1] > apart_s:
            yield run
            run = []
        run.append(second)
    if run:
        yield run


def _explains(truth: Truth, port: str, run: list[int], played: Played) -> bool:
    """Whether a scripted fault is the root of what looks like a collision of this link."""
    until = truth.until_s if truth.until_s is not None else played.seconds
    if run[-1] < truth.since_s or run[0] > until + _LATE_S:
        return False
    if truth.cause == "uneven_rails":
        return False
    ends = {port, played.peer.get(port, port)}
    nodes = {end.partition("/")[0] for end in ends}
    links = {each for link in truth.links for each in (link, played.peer.get(link, link))}
    if truth.cause in ("polarization", "oversubscription"):
        return True
    return bool(ends & links) or bool(nodes & set(truth.nodes))


def _accept(reported: ReportedFinding, expected: list[Expected], played: Played) -> bool:
    """Whether the finding is right; the truth that it found is noted."""
    from_hosts = reported.cause == COLLISION and played.scenario.topology.visible == "hosts"
    right = [each for each in expected if _fits(reported, each, played, from_hosts)]
    if from_hosts:
        for each in right:
            _find(each, reported, reported.second)
        return bool(right)
    # The must first: what is gray is no excuse to miss it.
    right.sort(key=lambda each: (not each.must, bool(each.found)))
    for each in right:
        again = [s for s in each.found if s.until is None or s.until + _TWICE_S > reported.second]
        if again and each.truth is not None:
            continue
        _find(each, reported, reported.second)
        return True
    if reported.cause == "congested_path":  # true as far as it goes, where there is a queue at all
        near = range(reported.second - WINDOW, reported.second + 1)
        return any(second in near for times in played.queued.values() for second in times)
    return any(_also_true(reported, each, played) for each in expected)


def _find_inside(each: Expected, played: Played) -> None:
    """A finding may be open still from the last time that the link collided; a link that is as full
    as the one that feeds it is reported inside that one's finding."""
    if played.scenario.topology.visible == "hosts":
        _find_later(each, played)
        return
    ends = {each.place, played.peer.get(each.place, each.place)}
    for reported in played.reported:
        until = played.seconds if reported.until is None else reported.until
        overlaps = reported.second <= each.until_s and until >= each.onset_s
        if (
            reported.cause == COLLISION
            and overlaps
            and ends & {reported.subject, *reported.victims}
        ):
            each.found.append(reported)
            return


def _find_later(each: Expected, played: Played) -> None:
    """From hosts alone: a finding that is open comes to name the senders of another link too."""
    senders = played.crossing.get(each.place, set())
    for reported in played.reported:
        for second, lit in reported.later.items():
            while_true = each.onset_s <= second <= each.until_s
            if reported.cause == COLLISION and while_true and senders & set(lit):
                _find(each, reported, second)
                return


def _find(each: Expected, reported: ReportedFinding, second: int) -> None:
    if not each.found:
        each.found_s = second
    each.found.append(reported)


def _fits(reported: ReportedFinding, each: Expected, played: Played, from_hosts: bool) -> bool:
    if reported.cause != each.cause:
        return False
    if each.episode is not None:
        near = [
            s
            for s in each.episode.may
            if reported.second - _BEFORE_S <= s <= reported.second + _AFTER_S
        ]
        if not near:
            return False
        if from_hosts:
            return _names_its_senders(reported, each, played)
        return each.place in (reported.subject, played.peer.get(reported.subject))
    assert each.truth is not None
    if not each.truth.since_s <= reported.second <= each.until_s + _LATE_S:
        return False
    return _is_there(reported, each.truth, played)


def _names_its_senders(reported: ReportedFinding, each: Expected, played: Played) -> bool:
    """Whether it names some whose flows cross the link, and mostly such as cross some hot link."""
    guilty = set[str]()
    hot = set[str]()
    for port, episode in played.episodes.items():
        if any(reported.second - _BEFORE_S <= s <= reported.second + _AFTER_S for s in episode.may):
            guilty |= played.crossing.get(port, set())
            hot.add(port)
    named = set(reported.ports)
    return (
        _is_the_leaf(reported, hot, played)
        and bool(named & played.crossing.get(each.place, set()))
        and (len(named & guilty) >= 0.5 * len(named))
    )


def _is_the_leaf(reported: ReportedFinding, hot: set[str], played: Played) -> bool:
    """Whether a hot link leaves, or enters, the leaf that the finding names, if it names one."""
    out, into = leaves_named(reported)
    if not out and not into:
        return True
    return any(
        (out and port.startswith(f"{out}/")) or (into and played.peer[port].startswith(f"{into}/"))
        for port in hot
    )


def leaves_named(reported: ReportedFinding) -> tuple[str, str]:
    """The leaves that the reported link leaves and enters; empty where they are not named."""
    if " to " in reported.subject:
        out, into = reported.subject.split(" to ")
        return out, into
    if reported.subject.startswith("uplinks of "):
        return reported.subject.removeprefix("uplinks of "), ""
    if reported.subject.startswith("links into "):
        return "", reported.subject.removeprefix("links into ")
    return "", ""


def _is_there(reported: ReportedFinding, truth: Truth, played: Played) -> bool:
    if truth.cause in _BY_NODE:
        node = reported.subject.partition("/")[0]
        return node in (truth.subject, *truth.nodes)
    links = {each for link in truth.links for each in (link, played.peer.get(link, link))}
    return bool(links & {reported.subject, *reported.ports[:2]}) or (
        truth.cause in ("uneven_rails", "saturated_counter", "pause_deadlock")
        and bool(links & set(reported.ports))
    )


def _also_true(reported: ReportedFinding, each: Expected, played: Played) -> bool:
    if each.truth is None or reported.cause not in _ALSO_TRUE.get(each.cause, ()):
        return False
    if not each.truth.since_s <= reported.second <= each.until_s + 2:
        return False
    ends = {reported.subject, played.peer.get(reported.subject, ""), *reported.ports}
    nodes = {end.partition("/")[0] for end in ends}
    return bool(ends & set(each.truth.links)) or bool(nodes & set(each.truth.nodes))


def _plain(
    played: Played, expected: list[Expected]
) -> tuple[list[tuple[int, str]], list[tuple[int, str]], dict[int, float]]:
    """Right is a flag of a link that something is wrong with at that time, whatever it is."""
    right: list[tuple[int, str]] = []
    wrong: list[tuple[int, str]] = []
    found: dict[int, float] = {}
    for second, port in played.plain:
        ends = {port, played.peer.get(port, port)}
        hits = [n for n, each in enumerate(expected) if _touches(second, ends, each, played)]
        (right if hits else wrong).append((second, port))
        for hit in hits:
            found.setdefault(hit, second - expected[hit].onset_s)
    return right, wrong, found


def _touches(second: int, ends: set[str], each: Expected, played: Played) -> bool:
    if not each.onset_s <= second <= each.until_s + _LATE_S:
        return False
    if each.episode is not None:
        return each.place in ends
    assert each.truth is not None
    links = {e for link in each.truth.links for e in (link, played.peer.get(link, link))}
    nodes = {end.partition("/")[0] for end in ends}
    return bool(ends & links) or (each.cause in _BY_NODE and bool(nodes & set(each.truth.nodes)))
