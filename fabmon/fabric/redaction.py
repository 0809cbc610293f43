"""Replaces names in ticks by pseudonyms: gpu017 becomes host-17, the same everywhere.

Everything after the feed sees pseudonyms only, so recordings, rates, findings, reports and pictures
made from these ticks contain no original name. Numbers, states, names of counters and ports,
drivers, models and firmware are kept. Free text is left out where a term of fabmon says the same.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fabmon.fabric.jobs.collectives import OPERATIONS, CollectiveReport
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.names import natural
from fabmon.fabric.pseudonyms import ADDRESS, NO_NAMES, PORT, Pseudonyms, without_domain
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.topology.plan import End, PlannedCable, Topology
from fabmon.fabric.topology.routing import renamed
from fabmon.fabric.wire.messages import BlockInfo, Burst, Hello, Notice, ObjectInfo

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

_PEOPLE_KEYS = frozenset({"comm", "job", "pod"})
"""Facts about what a user runs; only a number is kept."""

_TABLES = "tables"
"""Packed forwarding tables: numbers of ports by LID."""

_PLAIN_KEYS = frozenset(
    [
        "admin_status",
        "bond",
        "board_id",
        "bytes_from",
        "pcie_from",
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

_VERSION = re.compile(r"\d+(?:\.\d+)*")


class Redactor:
    """Assigns every name a permanent pseudonym; thread-safe."""

    def __init__(self, hosts: Iterable[Host] = ()) -> None:
        """`hosts` are numbered first, in natural order."""
        self._names = Pseudonyms()
        for host in sorted(hosts, key=lambda each: natural(each.name)):
            self._host(host)

    def learn(self, tick: Tick) -> None:
        """Learn the names of all nodes of a tick, and what they name, in natural order: which node
        answered first is in no number."""
        for host in sorted(tick.hosts, key=lambda each: natural(each.name)):
            self._host(host)
        hellos = sorted(tick.hellos, key=lambda each: natural(each[0]))
        for node, hello in hellos:
            self._learn(node, hello)
        named = {
            name: (prefix, is_node)
            for _, hello in reversed(hellos)
            for name, prefix, is_node in _named(hello)
        }
        for name in sorted(named, key=natural):
            prefix, is_node = named[name]
            (self._names.node if is_node else self._names.name)(name, prefix)

    def tick(self, tick: Tick) -> Tick:
        """The tick with pseudonyms; frames are numbers and unchanged."""
        self.learn(tick)
        return Tick(
            tick.seq,
            tick.time_ns,
            hellos=tuple(
                (self._names.node(node), self.hello(hello)) for node, hello in tick.hellos
            ),
            frames=tuple((self._names.node(node), frame) for node, frame in tick.frames),
            statuses=tuple(self._status(status) for status in tick.statuses),
            notices=tuple(
                (self._names.node(node), self._notice(each)) for node, each in tick.notices
            ),
            hosts=tuple(self.host(host) for host in tick.hosts),
            answers=tuple(
                (self._names.node(node), self._burst(each))
                for node, each in tick.answers
                if isinstance(each, Burst)
            ),
            reads=tuple((self.node(node), reads) for node, reads in tick.reads),
            jobs=None if tick.jobs is None else self._jobs(tick.jobs),
            collectives=None if tick.collectives is None else self._collectives(tick.collectives),
            jobs_read_ns=tick.jobs_read_ns,
        )

    def host(self, host: Host) -> Host:
        """A host with pseudonyms, without the keys of how it is reached."""
        group = host.group and self._names.name(host.group, "group")
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
        return self._names.name(name, "device")

    def original(self, pseudonym: str) -> str:
        """The original name of a pseudonym, to look up a node; it must not be shown."""
        return self._names.original(pseudonym)

    def port(self, name: str) -> str:
        """A port id, `node/port`, with pseudonyms, also for unknown nodes and for a node alone."""
        node, slash, port = name.partition("/")
        return f"{self.node(node)}{slash}{self.text(port)}"

    def subject(self, text: str) -> str:
        """The subject of a finding: a node, a port, or words that contain them."""
        if " " not in text:
            return self.port(text)
        for word in text.split():
            node, slash, _ = word.partition("/")
            # What is no number may be a node that was not known.
            if slash and not node.isdecimal():
                self.node(node)
        return self.text(text)

    def topology(self, given: Topology) -> Topology:
        """A plan with pseudonyms, without file names."""
        for names, prefix in ((given.hosts, "host"), (given.switches, SWITCH)):
            for name in sorted(names, key=natural):
                self._names.name(name, prefix)

        def end(planned: End) -> End:
            also, ids = (tuple(map(self.text, each)) for each in (planned.also, planned.ids))
            return End(self.node(planned.node), self.text(planned.port), also, ids)

        return msgspec.structs.replace(
            given,
            cables=tuple(
                PlannedCable(
                    end(each.one), end(each.other), each.source, self._names.of("file", each.by)
                )
                for each in given.cables
            ),
            tiers={self.node(name): tier for name, tier in given.tiers.items()},
            planes={
                self.node(n): self._names.of("plane", each) for n, each in given.planes.items()
            },
            pods={self.node(n): self._names.of("pod", each) for n, each in given.pods.items()},
            groups={
                self.node(n): self._names.name(each, "group") for n, each in given.groups.items()
            },
            hosts=frozenset(map(self.node, given.hosts)),
            switches=frozenset(map(self.node, given.switches)),
            rails=tuple(map(self.text, given.rails)),
            routing=renamed(given.routing, self._names.by_name()),
        )

    def hello(self, hello: Hello) -> Hello:
        """A hello with pseudonyms."""
        version = _VERSION.match(hello.kernel)
        return msgspec.structs.replace(
            hello,
            layout=self._names.of("layout", hello.layout),
            blocks=tuple(self._block(block) for block in hello.blocks),
            # Names of metrics that fabmon does not know may be a site's own.
            coverage=(),
            limits=(),
            hostname=self.text(hello.hostname),
            boot_id=self._names.of("boot", hello.boot_id),
            kernel=version[0] if version else "",
            probe=self.text(hello.probe),
            reached_at="",
        )

    def text(self, text: str) -> str:
        """A text with all known names, addresses and paths replaced. Unknown names stay, so it is
        only for texts that fabmon wrote itself.
        """
        return self._names.text(text)

    def foreign(self, text: str) -> str:
        """A text that another program wrote, with the names that `text` replaces, and those that
        stand in the forms of `name_forms`."""
        return self._names.foreign(text)

    def _host(self, host: Host) -> str:
        prefix = "switch" if host.role == SWITCH else "host"
        name = self._names.node(host.name, prefix)
        if host.address and host.address != host.name:
            self._names.add_name(host.address, name)
        if host.user:
            self._names.name(host.user, "user")
        return name

    def _learn(self, node: str, hello: Hello) -> None:
        """Learn the names of a node."""
        own = self._names.node(node)
        for name in (hello.hostname.lower(), without_domain(hello.hostname)):
            if name not in NO_NAMES:
                self._names.add_name(name, own)

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

    def _jobs(self, report: JobReport) -> JobReport:
        # What squeue itself said, after the colon, may hold names.
        reason = self.text(report.reason.partition(":")[0])
        jobs = tuple(self.job(job) for job in report.jobs)
        notes = tuple(self.text(each) for each in report.notes)
        return msgspec.structs.replace(report, reason=reason, jobs=jobs, notes=notes)

    def _collectives(self, report: CollectiveReport) -> CollectiveReport:
        """The report with pseudonyms; the number of a job is that of its processes."""
        replace = msgspec.structs.replace
        found = tuple(
            replace(
                each,
                job=self._names.of("job", each.job).rpartition("-")[2],
                communicator=self._names.of("communicator", each.communicator),
                operation=_operation(each.operation),
                lowest_host=each.lowest_host and self.node(each.lowest_host),
                hosts=tuple(map(self.node, each.hosts)),
            )
            for each in report.collectives
        )
        # A reason begins with the directory.
        reason = report.reason.rpartition(": ")[2]
        return replace(report, reason=reason, collectives=found)

    def job(self, job: Job) -> Job:
        """A job without its name. Its number is the one that its processes get."""
        return Job(
            scheduler=job.scheduler,
            id=self._names.of("job", job.id or job.name).rpartition("-")[2],
            user=self.person("user", job.user),
            partition=self.person("partition", job.partition),
            nodes=tuple(self.node(node) for node in job.nodes),
            start_ns=job.start_ns,
            pods=tuple(self._names.of("pod", pod).rpartition("-")[2] for pod in job.pods),
        )

    def person(self, kind: str, name: str) -> str:
        """The pseudonym of a user or partition, as `kind` says; empty of an empty name."""
        return self._names.of(kind, name)

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
            return self._names.name(value, _NAME_KEYS[key])
        if key in _PEOPLE_KEYS:
            return self._names.of(key, value).rpartition("-")[2]
        address, _, length = value.partition("/")
        is_address = ADDRESS.fullmatch(address) and (not length or length.isdecimal())
        if is_address or key in _PLAIN_KEYS:
            return self.text(value)
        if key in _PORT_KEYS and PORT.fullmatch(value):
            return value
        return self._names.of(key if key in ("mac", "guid") else "text", value)

    def _status(self, status: NodeStatus) -> NodeStatus:
        cause = self.text(status.cause)
        return msgspec.structs.replace(
            status, node=self._names.node(status.node), reason=cause, cause=cause
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


def _named(hello: Hello) -> Iterator[tuple[str, str, bool]]:
    """The names of other machines in a hello, the prefix of their pseudonyms, and whether one with
    a domain is another machine than one without."""
    for item in (item for block in hello.blocks for item in block.objects):
        if item.node is not None:
            is_switch = str(item.info.get("node_role", SWITCH)) == SWITCH
            yield item.node, "switch" if is_switch else "host", "." in item.node
        yield from _named_in(item.info)


def _named_in(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    role = facts.get("peer_role") or facts.get("role")
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _named_in(value)
        elif key in _NAME_KEYS and isinstance(value, str):
            yield value, str(role) if role in ("host", SWITCH) else _NAME_KEYS[key], False


def _operation(name: str) -> str:
    """NCCL's own name of an operation, which says nothing of whose it is; else `operation`."""
    return name if name.lower() in OPERATIONS else "operation"


async def redacted(ticks: AsyncIterator[Tick], redactor: Redactor | None) -> AsyncIterator[Tick]:
    """The ticks with pseudonyms; unchanged if `redactor` is None."""
    async for tick in ticks:
        yield tick if redactor is None else redactor.tick(tick)
