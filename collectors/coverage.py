"""How many of the counters that a driver lists are read, and the names of the others.

Most counters of a NIC are per queue and not wanted. A driver that is not known, or has new names,
looks the same as one without counters unless what was seen and not read is counted and named.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

MOST_NAMES = 500
"""Folded names of one driver in a hello; the count is of all."""

_NUMBER = re.compile(r"\d{1,18}")
_FOLDED_FROM = 3


class Coverage(NamedTuple):
    """What one source makes of the counters of one driver, over all its ports.

    `seen` counts the names that the driver lists, `read` those that have a metric of the catalog
    or say what such a metric says. `unmapped` are the others, folded: `rx[0-63]_bytes`. `guessed`
    is set where the driver has no table, and the usual names are read by pattern.
    """

    driver: str
    ports: int
    seen: int
    read: int
    unmapped: Tuple[str, ...]
    guessed: bool = False

    def describe(self, source: str) -> Dict[str, Any]:
        """The coverage as it is written in the hello."""
        return {
            "source": source,
            "driver": self.driver,
            "ports": self.ports,
            "seen": self.seen,
            "read": self.read,
            "guessed": self.guessed,
            "unmapped": list(self.unmapped),
        }

    def __str__(self) -> str:
        """`driver mana: 61 counters, names not known`."""
        return f"driver {self.driver}: {summary(self.seen, self.read, self.guessed)}"


def summary(seen: int, read: int, guessed: bool = False) -> str:
    """How many of the counters of a driver are read, in words."""
    counters, names = ("counter", "name") if seen == 1 else ("counters", "names")
    if not read:
        return f"{seen} {counters}, {names} not known"
    return f"{read} of {seen} {counters} read" + (", by pattern" if guessed else "")


class CoverageCount:
    """Counts the names of drivers' counters while a source discovers its ports. What lists them
    need not be a driver: a database of SONiC, NVIDIA's library, a tool of infiniband-diags."""

    def __init__(self) -> None:
        self._ports: Dict[str, int] = {}
        self._seen: Dict[str, Set[str]] = {}
        self._read: Dict[str, Set[str]] = {}
        self._guessed: Set[str] = set()

    def add(
        self,
        driver: Optional[str],
        names: Iterable[str],
        read: Iterable[str],
        guessed: bool = False,
    ) -> None:
        """Add the counters that a port of a driver lists, and those among them that are read."""
        key = driver or "unknown"
        self._ports[key] = self._ports.get(key, 0) + 1
        self._seen.setdefault(key, set()).update(names)
        self._read.setdefault(key, set()).update(read)
        if guessed:
            self._guessed.add(key)

    def result(self) -> List[Coverage]:
        """The coverage of each driver that listed a counter, by name."""
        found = []
        for driver in sorted(self._seen):
            seen = self._seen[driver]
            read = self._read[driver] & seen
            if seen:
                names = fold_names(seen - read)
                guessed = bool(read) and driver in self._guessed
                found.append(
                    Coverage(driver, self._ports[driver], len(seen), len(read), names, guessed)
                )
        return found


def fold_names(names: Iterable[str], most: int = MOST_NAMES) -> Tuple[str, ...]:
    """Names sorted; three or more that differ in numbers only are one, as `rx[0-63]_bytes`.

    The range is from the smallest to the largest number; not all of them need to be there. Beyond
    `most` names the last one says how many more there are.
    """
    families: Dict[str, List[str]] = {}
    for name in sorted(set(names)):
        families.setdefault(_NUMBER.sub("#", name), []).append(name)
    folded: List[str] = []
    for members in families.values():
        folded += [_range(members)] if len(members) >= _FOLDED_FROM else members
    folded.sort()
    if len(folded) > most:
        folded[most:] = [f"and {len(folded) - most} more"]
    return tuple(folded)


def _range(members: List[str]) -> str:
    """One name for several that differ in numbers only."""
    columns = list(zip(*(_NUMBER.findall(name) for name in members)))
    texts = []
    for column in columns:
        numbers = sorted({int(text) for text in column})
        texts.append(column[0] if len(numbers) == 1 else f"[{numbers[0]}-{numbers[-1]}]")
    parts = _NUMBER.split(members[0])
    joined = [part + text for part, text in zip(parts, [*texts, ""])]
    return "".join(joined)
