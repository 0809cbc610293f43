"""Pseudonyms of names, and texts with the names, addresses and paths in them replaced."""

from __future__ import annotations

import ipaddress
import re
import threading

from fabmon.fabric.name_forms import NAME_FORMS

NO_NAMES = frozenset({"", "localhost", "(none)", "unknown", "root"})
"""Texts in the place of a name that identify nothing."""

PORT = re.compile(
    r"(?:eth|ens|enp|eno|ib|ibp|swp|ethernet|management|et-|xe-|ge-|te|hu|fo|mlx[45]_|bond|hsn|cxi|"
    r"roceo?|rdma|nvl?|gpu|port|bnxt_re|irdma|lo|p|sw)[\d/._:sfnp-]*",
    re.IGNORECASE,
)
ADDRESS = re.compile(
    r"(?<![0-9a-z])(?:"
    r"(?P<mac>[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,19}|[0-9a-f]{12})"
    r"|(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<guid>(?:0x)?[0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3})"
    r"|(?P<dotted>[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4})"
    r"|(?P<ip>(?:[0-9a-f]*:[0-9a-f:]*:)?(?:\d{1,3}\.){3}\d{1,3}|[0-9a-f]*:[0-9a-f:]*:[0-9a-f]*)"
    r"(?P<zone>%[\w.-]+)?"
    r")(?![0-9a-z])",
    re.IGNORECASE,
)
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,31}://)(?:[^@/\s]*@)?(?P<host>\[[0-9a-f:.]+\]|[^/:?#\s]+)"
    r"(?P<port>:\d+)?(?:[/?#]\S*)?",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![\w.)\]])(?<!:/)~?(?:/[\w.@+~-]+)+/?")
_OF_EVERY_MACHINE = frozenset({"/dev/shm", "/etc/hosts"})
"""Paths in fabmon's advice, which identify nothing."""
_PART = re.compile(r"[^\W_]+|[\W_]")
_MOST_PARTS = 64
"""Of a name that is looked for in texts: a name of hundreds of parts would take the time of all."""
_DOMAIN = re.compile(r"(?:\.[^\W_][\w-]*)+")
_ELSEWHERE = frozenset({"user", "device"})
"""Kinds of names in forms that also stand alone."""


class Pseudonyms:
    """Assigns every name a permanent pseudonym; thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._most_parts = 0
        self._originals: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._lock = threading.Lock()

    def original(self, pseudonym: str) -> str:
        """The original name of a pseudonym, to look up a node; it must not be shown."""
        return self._originals.get(pseudonym, pseudonym)

    def by_name(self) -> dict[str, str]:
        """Original name -> pseudonym, of machines and groups."""
        return {name: pseudonym for pseudonym, name in self._originals.items()}

    def add_name(self, name: str, pseudonym: str) -> None:
        """Use the pseudonym for another name of the same machine, if that is not known."""
        with self._lock:
            if name.lower() not in self._known:
                self._learn(name.lower(), pseudonym)

    def text(self, text: str) -> str:
        """A text with all known names, addresses and paths replaced. Unknown names stay, so it is
        only for texts that fabmon wrote itself.
        """
        text = _URL.sub(self._url, text)
        text = _PATH.sub(self._path, text)
        return self._without_names(text)

    def foreign(self, text: str) -> str:
        """A text of another program: names that stand in the forms of `name_forms` are replaced
        too, and known from then on. Others stay.
        """
        for form in NAME_FORMS:
            text = form.pattern.sub(self._in_form, text)
        return self.text(text)

    def node(self, name: str, prefix: str = "device") -> str:
        """The pseudonym of a node; unique even if names share a prefix."""
        full, short = name.lower(), without_domain(name)
        if short in NO_NAMES:
            return name
        with self._lock:
            found = self._known_pseudonym(name)
            if found is None or self._nodes.setdefault(found, full) != full:
                found = self._next(prefix)
                self._originals[found] = name
                self._nodes[found] = full
                if short not in self._known:
                    self._learn(short, found)
                elif self._nodes.get(self._known[short]) != short:
                    # The short name alone is ambiguous: it gets a pseudonym of its own.
                    self._learn(short, self._next("name"))
                    self._nodes[self._known[short]] = short
                    self._originals[self._known[short]] = short
            self._learn(full, found)
            return found

    def name(self, name: str, prefix: str) -> str:
        """The pseudonym of a name, the same with and without its domain."""
        key = without_domain(name)
        if key in NO_NAMES:
            return name
        with self._lock:
            found = self._known_pseudonym(name)
            if found is None:
                found = self._next(prefix)
                self._originals[found] = name
                self._learn(key, found)
                self._learn(name.lower(), found)
            return found

    def _learn(self, name: str, pseudonym: str) -> None:
        """Find a lower-case name in texts from now on."""
        self._known[name] = pseudonym
        self._most_parts = min(_MOST_PARTS, max(self._most_parts, len(_PART.findall(name))))

    def _known_pseudonym(self, name: str) -> str | None:
        """The pseudonym of a name, or of its longest known prefix that ends at a dot."""
        rest, key = name.lower(), without_domain(name)
        while rest not in self._known and rest != key:
            rest = rest.rpartition(".")[0]
        return self._known.get(rest)

    def of(self, prefix: str, value: str) -> str:
        """One pseudonym for equal values of a kind; empty for an empty value."""
        if not value:
            return value
        key = f"{prefix} {value}"
        with self._lock:
            if key not in self._values:
                self._values[key] = self._next(prefix)
            return self._values[key]

    def _next(self, prefix: str) -> str:
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}-{self._counts[prefix]}"

    def _without_names(self, text: str) -> str:
        """A text with names and addresses replaced, also in words: `gpu001-ib0`, `ops@login1`."""
        written, at = "", 0
        for start, end, pseudonym in sorted(self._names_in(text)):
            if start >= at:
                written += ADDRESS.sub(self._address, text[at:start]) + pseudonym
                # A domain identifies the site as the name does.
                domain = _DOMAIN.match(text, end)
                at = end if domain is None else domain.end()
        return written + ADDRESS.sub(self._address, text[at:])

    def _names_in(self, text: str) -> list[tuple[int, int, str]]:
        """Start, end and pseudonym of the names in a text, the longest that can be; part of an
        address is none."""
        ends = [0, *(part.end() for part in _PART.finditer(text))]
        addresses = [address.span() for address in ADDRESS.finditer(text)]
        is_taken = bytearray(len(ends) - 1)
        found: list[tuple[int, int, str]] = []
        for size in range(min(self._most_parts, len(is_taken)), 0, -1):
            for first in range(len(is_taken) - size + 1):
                start, end = ends[first], ends[first + size]
                pseudonym = self._known.get(text[start:end].lower())
                if (
                    pseudonym is None
                    or any(is_taken[first : first + size])
                    or any(a <= start and end <= b and end - start < b - a for a, b in addresses)
                    or not any(map(str.isalnum, text[start:end]))
                ):
                    continue
                is_taken[first : first + size] = bytes([1]) * size
                found.append((start, end, pseudonym))
        return found

    def _in_form(self, match: re.Match[str]) -> str:
        """What a form matched, with the names in its groups replaced."""
        written = match[0]
        for kind, name in match.groupdict().items():
            if name and not ADDRESS.fullmatch(name):
                is_known = kind in _ELSEWHERE
                new = self.name(name, kind) if is_known else self.of(kind, name)
                written = written.replace(name, new, 1)
        return written

    def _path(self, match: re.Match[str]) -> str:
        return match[0] if match[0] in _OF_EVERY_MACHINE else self.of("path", match[0])

    def _url(self, match: re.Match[str]) -> str:
        """A URL with a pseudonym, without user and path."""
        host = match["host"]
        named = host if ADDRESS.fullmatch(host.strip("[]")) else self.name(host, "device")
        return f"{match['scheme']}{named}{match['port'] or ''}"

    def _ip(self, text: str) -> str:
        """An address of the ranges reserved for tests and documentation."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified:
            return text
        if address.version == 6 and address.ipv4_mapped is not None:
            return f"::ffff:{self._ip(str(address.ipv4_mapped))}"
        number = int(self.of("address", str(address)).rpartition("-")[2])
        if address.version == 4:
            return str(ipaddress.IPv4Address("198.18.0.0") + number)
        return str(
            ipaddress.IPv6Address("fe80::" if address.is_link_local else "2001:db8::") + number
        )

    def _address(self, match: re.Match[str]) -> str:
        """A pseudonymous address of the same kind and notation."""
        text = match[0]
        if match["ip"] is not None:
            bare, zone = match["ip"], match["zone"] or ""
            if zone and not PORT.fullmatch(zone[1:]):
                zone = f"%{self.of('zone', zone[1:])}"
            return f"{self._known.get(bare.lower()) or self._ip(bare)}{zone}"
        if match["uuid"] is not None:
            return self.of("id", text.lower())
        digits = re.sub(r"^0x|[^0-9a-f]", "", text.lower())
        number = self.of("hex", digits).rpartition("-")[2]
        fresh = iter(f"{int(number):0{len(digits)}x}")
        body = text[2:] if text.lower().startswith("0x") else text
        written = "".join(
            next(fresh) if each.lower() in "0123456789abcdef" else each for each in body
        )
        return f"{text[: len(text) - len(body)]}{written}"


def without_domain(name: str) -> str:
    """The lower-case name of a machine without its domain; an IP address unchanged."""
    first = name.lower().partition(".")[0]
    return name.lower() if first.isdecimal() or ":" in name else first
