"""Replaces names in ticks by pseudonyms: gpu017 becomes host-17, the same everywhere.

Everything after the feed sees pseudonyms only, so recordings, rates, findings, reports and pictures
made from these ticks contain no original name. Numbers, states, names of counters and ports,
drivers, models and firmware are kept. Free text is left out where a term of fabmon says the same.
"""

from __future__ import annotations

import ipaddress
import re
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec

from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.names import natural
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.topology.plan import End, PlannedCable, Topology
from fabmon.fabric.topology.routing import renamed
from fabmon.fabric.wire.messages import BlockInfo, Burst, Hello, Notice, ObjectInfo

_NO_NAMES = frozenset({"", "localhost", "(none)", "unknown", "root"})
_NAME_KEYS = {
    "node": "device",
    "peer_node": "device",
    "hostname": "host",
    "node_group": "group",
    "switches": "switch",
}
"""Facts with the name of a machine or group, and the prefix of its pseudonym."""

_PORT_KEYS = frozenset({"port", "peer_port", "peer_port_name", "port_name", "alias"})
"""Facts with the name or description of a port."""

_PEOPLE_KEYS = frozenset({"comm", "job"})
"""Facts about what a user runs; only a number is kept."""

_TABLES = "tables"
"""Packed forwarding tables: numbers of ports by LID."""

_PLAIN_KEYS = frozenset(
    [
        "admin_status",
        "bond",
        "board_id",
        "bytes_from",
        "default_route",
        "dev",
        "driver",
        "engine",
        "exporter",
        "fec",
        "fw_ver",
        "hca_type",
        "iflink",
        "kind",
        "lanes",
        "link_layer",
        "master",
        "netdev",
        "node_role",
        "numa_node",
        "over",
        "pci",
        "pcie_width",
        "peer_role",
        "pfc",
        "product_name",
        "rdma",
        "role",
        "switch_os",
        "type",
    ]
)
"""Facts whose text is independent of the site; other texts are replaced."""

_PORT = re.compile(
    r"(?:eth|ens|enp|eno|ib|ibp|swp|ethernet|management|et-|xe-|ge-|te|hu|fo|mlx[45]_|bond|hsn|cxi|"
    r"roceo?|rdma|nvl?|gpu|port|bnxt_re|irdma|lo|p|sw)[\d/._:sfnp-]*",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
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
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:[^@/\s]*@)?(?P<host>\[[0-9a-f:.]+\]|[^/:?#\s]+)"
    r"(?P<port>:\d+)?(?:[/?#]\S*)?",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![\w.)\]])(?<!:/)~?(?:/[\w.@+~-]+)+/?")
_TOKEN = re.compile(r"[^\W_](?:[\w.@-]*[^\W_])?")
_PIECES = re.compile(r"([._@-])")
_VERSION = re.compile(r"\d+(?:\.\d+)*")


class Redactor:
    """Assigns every name a permanent pseudonym; thread-safe."""

    def __init__(self, hosts: Iterable[Host] = ()) -> None:
        """`hosts` are numbered first, in natural order."""
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._originals: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._lock = threading.Lock()
        for host in sorted(hosts, key=lambda each: natural(each.name)):
            self._host(host)

    def learn(self, tick: Tick) -> None:
        """Learn the names of all nodes of a tick."""
        for host in tick.hosts:
            self._host(host)
        for node, hello in tick.hellos:
            self._learn(node, hello)

    def tick(self, tick: Tick) -> Tick:
        """The tick with pseudonyms; frames are numbers and unchanged."""
        self.learn(tick)
        return Tick(
            tick.seq,
            tick.time_ns,
            hellos=tuple((self._node(node), self.hello(hello)) for node, hello in tick.hellos),
            frames=tuple((self._node(node), frame) for node, frame in tick.frames),
            statuses=tuple(self._status(status) for status in tick.statuses),
            notices=tuple((self._node(node), self._notice(each)) for node, each in tick.notices),
            hosts=tuple(self.host(host) for host in tick.hosts),
            answers=tuple(
                (self._node(node), self._burst(each))
                for node, each in tick.answers
                if isinstance(each, Burst)
            ),
            reads=tuple((self.node(node), reads) for node, reads in tick.reads),
        )

    def host(self, host: Host) -> Host:
        """A host with pseudonyms, without the keys of how it is reached."""
        group = host.group and self._name(host.group, "group")
        return Host(
            name=self._host(host),
            via=host.via,
            role=host.role,
            group=group,
            speeds=tuple((self.text(pattern), bps) for pattern, bps in host.speeds),
            sources=host.sources,
        )

    def node(self, name: str) -> str:
        """The pseudonym of a node, by its name with or without a domain."""
        return self._name(name, "device")

    def original(self, pseudonym: str) -> str:
        """The original name of a pseudonym, to look up a node; it must not be shown."""
        return self._originals.get(pseudonym, pseudonym)

    def port(self, name: str) -> str:
        """A port id, `node/port`, with pseudonyms, also for unknown nodes and for a node alone."""
        node, slash, port = name.partition("/")
        return f"{self.node(node)}{slash}{self.text(port)}"

    def subject(self, text: str) -> str:
        """The subject of a finding: a node, a port, or words that contain them."""
        if " " not in text:
            return self.port(text)
        return " ".join(
            self.port(word) if "/" in word else self.text(word) for word in text.split()
        )

    def topology(self, given: Topology) -> Topology:
        """A plan with pseudonyms, without file names."""
        for names, prefix in ((given.hosts, "host"), (given.switches, SWITCH)):
            for name in sorted(names, key=natural):
                self._name(name, prefix)

        def end(planned: End) -> End:
            also, ids = (tuple(map(self.text, each)) for each in (planned.also, planned.ids))
            return End(self.node(planned.node), self.text(planned.port), also, ids)

        return msgspec.structs.replace(
            given,
            cables=tuple(
                PlannedCable(
                    end(each.one), end(each.other), each.source, self._pseudonym("file", each.by)
                )
                for each in given.cables
            ),
            tiers={self.node(name): tier for name, tier in given.tiers.items()},
            planes={
                self.node(n): self._pseudonym("plane", each) for n, each in given.planes.items()
            },
            pods={self.node(n): self._pseudonym("pod", each) for n, each in given.pods.items()},
            groups={self.node(n): self._name(each, "group") for n, each in given.groups.items()},
            hosts=frozenset(map(self.node, given.hosts)),
            switches=frozenset(map(self.node, given.switches)),
            rails=tuple(map(self.text, given.rails)),
            routing=renamed(given.routing, {old: new for new, old in self._originals.items()}),
        )

    def hello(self, hello: Hello) -> Hello:
        """A hello with pseudonyms."""
        version = _VERSION.match(hello.kernel)
        return msgspec.structs.replace(
            hello,
            layout=self._pseudonym("layout", hello.layout),
            blocks=tuple(self._block(block) for block in hello.blocks),
            hostname=self.text(hello.hostname),
            boot_id=self._pseudonym("boot", hello.boot_id),
            kernel=version[0] if version else "",
            probe=self.text(hello.probe),
            reached_at="",
        )

    def text(self, text: str) -> str:
        """A text with all known names, addresses and paths replaced. Unknown names stay, so it is
        only for texts that fabmon wrote itself.
        """
        text = _URL.sub(self._url, text)
        text = _ADDRESS.sub(self._address, text)
        text = _PATH.sub(lambda match: self._pseudonym("path", match[0]), text)
        return _TOKEN.sub(self._token, text)

    def _host(self, host: Host) -> str:
        prefix = "switch" if host.role == SWITCH else "host"
        name = self._node(host.name, prefix)
        if host.address and host.address != host.name:
            self._known.setdefault(host.address.lower(), name)
        if host.user:
            self._name(host.user, "user")
        return name

    def _learn(self, node: str, hello: Hello) -> None:
        """Learn all names of a hello, before any of its texts is replaced."""
        own = self._node(node)
        for name in (hello.hostname.lower(), _key(hello.hostname)):
            if name not in _NO_NAMES:
                self._known.setdefault(name, own)
        for block in hello.blocks:
            for item in block.objects:
                if item.node is not None:
                    role = str(item.info.get("node_role", SWITCH))
                    named = self._node if "." in item.node else self._name
                    named(item.node, "switch" if role == SWITCH else "host")
                self._learn_facts(item.info)

    def _learn_facts(self, facts: Mapping[str, Any]) -> None:
        role = facts.get("peer_role") or facts.get("role")
        for key, value in facts.items():
            if isinstance(value, Mapping):
                self._learn_facts(value)
            elif key in _NAME_KEYS and isinstance(value, str):
                self._name(value, str(role) if role in ("host", SWITCH) else _NAME_KEYS[key])

    def _block(self, block: BlockInfo) -> BlockInfo:
        return msgspec.structs.replace(
            block, objects=tuple(self._object(item) for item in block.objects)
        )

    def _object(self, item: ObjectInfo) -> ObjectInfo:
        return msgspec.structs.replace(
            item,
            id=self.text(item.id),
            port=None if item.port is None else self.text(item.port),
            info={key: self._fact(key, value) for key, value in item.info.items()},
            node=None if item.node is None else self.node(item.node),
        )

    def _fact(self, key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): self._fact(str(name), item) for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._fact(key, item) for item in value]
        if not isinstance(value, str) or not value or key == _TABLES:
            return value
        if key in _NAME_KEYS:
            return self._name(value, _NAME_KEYS[key])
        if key in _PEOPLE_KEYS:
            return self._pseudonym(key, value).rpartition("-")[2]
        if _ADDRESS.fullmatch(value.partition("/")[0]) or key in _PLAIN_KEYS:
            return self.text(value)
        if key in _PORT_KEYS and _PORT.fullmatch(value):
            return value
        return self._pseudonym(key if key in ("mac", "guid") else "text", value)

    def _status(self, status: NodeStatus) -> NodeStatus:
        cause = self.text(status.cause)
        return msgspec.structs.replace(
            status, node=self._node(status.node), reason=cause, cause=cause
        )

    def _notice(self, notice: Notice) -> Notice:
        return msgspec.structs.replace(
            notice, object=self.text(notice.object), reason=self.text(notice.reason), text=""
        )

    def _burst(self, burst: Burst) -> Burst:
        return msgspec.structs.replace(
            burst,
            ports=tuple(
                msgspec.structs.replace(each, port=self.text(each.port)) for each in burst.ports
            ),
            missing={self.text(port): self.text(why) for port, why in burst.missing.items()},
            error=self.text(burst.error),
        )

    def _node(self, name: str, prefix: str = "device") -> str:
        """The pseudonym of a node; unique even if names share a prefix."""
        full, short = name.lower(), _key(name)
        if short in _NO_NAMES:
            return name
        with self._lock:
            found = self._known_pseudonym(name)
            if found is None or self._nodes.setdefault(found, full) != full:
                found = self._next(prefix)
                self._originals[found] = name
                self._nodes[found] = full
                if short not in self._known:
                    self._known[short] = found
                elif self._nodes.get(self._known[short]) != short:
                    # The short name alone is ambiguous: it gets a pseudonym of its own.
                    self._known[short] = self._next("name")
                    self._nodes[self._known[short]] = short
                    self._originals[self._known[short]] = short
            self._known[full] = found
            return found

    def _name(self, name: str, prefix: str) -> str:
        """The pseudonym of a name, the same with and without its domain."""
        key = _key(name)
        if key in _NO_NAMES:
            return name
        with self._lock:
            found = self._known_pseudonym(name)
            if found is None:
                found = self._known[key] = self._next(prefix)
                self._originals[found] = name
                self._known[name.lower()] = found
            return found

    def _known_pseudonym(self, name: str) -> str | None:
        """The pseudonym of a name, or of its longest known prefix that ends at a dot."""
        rest, key = name.lower(), _key(name)
        while rest not in self._known and rest != key:
            rest = rest.rpartition(".")[0]
        return self._known.get(rest)

    def _pseudonym(self, prefix: str, value: str) -> str:
        """One pseudonym for equal values of a kind; empty for an empty value."""
        if not value:
            return value
        key = f"{prefix} {value}"
        with self._lock:
            if key not in self._known:
                self._known[key] = self._next(prefix)
            return self._known[key]

    def _next(self, prefix: str) -> str:
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}-{self._counts[prefix]}"

    def _token(self, match: re.Match[str]) -> str:
        """The replacement of a word, which may contain names: `gpu001-ib0`, `ops@login1`."""
        word = match[0]
        if word.lower() in self._known:
            return self._known[word.lower()]
        pieces = _PIECES.split(word)
        for size in range(len(pieces), 0, -2):
            for start in range(0, len(pieces) - size + 1, 2):
                found = self._known.get("".join(pieces[start : start + size]).lower())
                if found is not None:
                    before = "".join(pieces[:start])
                    after = "".join(pieces[start + size :])
                    # A domain identifies the site as the name does.
                    after = "" if after.startswith(".") else after
                    return (
                        f"{_TOKEN.sub(self._token, before)}{found}{_TOKEN.sub(self._token, after)}"
                    )
        return word

    def _url(self, match: re.Match[str]) -> str:
        """A URL with a pseudonym, without user and path."""
        host = match["host"]
        named = host if _ADDRESS.fullmatch(host.strip("[]")) else self.node(host)
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
        number = int(self._pseudonym("address", str(address)).rpartition("-")[2])
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
            if zone and not _PORT.fullmatch(zone[1:]):
                zone = f"%{self._pseudonym('zone', zone[1:])}"
            return f"{self._known.get(bare.lower()) or self._ip(bare)}{zone}"
        if match["uuid"] is not None:
            return self._pseudonym("id", text.lower())
        digits = re.sub(r"^0x|[^0-9a-f]", "", text.lower())
        number = self._pseudonym("hex", digits).rpartition("-")[2]
        fresh = iter(f"{int(number):0{len(digits)}x}")
        body = text[2:] if text.lower().startswith("0x") else text
        written = "".join(
            next(fresh) if each.lower() in "0123456789abcdef" else each for each in body
        )
        return f"{text[: len(text) - len(body)]}{written}"


async def redacted(ticks: AsyncIterator[Tick], redactor: Redactor | None) -> AsyncIterator[Tick]:
    """The ticks with pseudonyms; unchanged if `redactor` is None."""
    async for tick in ticks:
        yield tick if redactor is None else redactor.tick(tick)


def _key(name: str) -> str:
    """The lower-case name of a machine without its domain; an IP address unchanged."""
    first = name.lower().partition(".")[0]
    return name.lower() if first.isdigit() or ":" in name else first
