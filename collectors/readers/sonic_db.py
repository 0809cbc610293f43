"""SONiC's databases: where they are, how to query several in few round trips, and their values.

`/var/run/redis/sonic-db/database_config.json` names the instances of Redis and the number of each
database. They are queried over the unix socket (the group `redis` may), over TCP on the loopback,
or through the command `redis-cli` where neither allows this account. A tree at another root carries
the databases in `<root>/sonic.json`, as `{"COUNTERS_DB": {"KEY": {"field": "value"}}}`.

Only SELECT, HGETALL and HMGET are ever sent.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from collectors.coverage import CoverageCount
from collectors.hostfs import HostFS, readable_by
from collectors.readers.redis import REFUSALS, Address, Redis, RedisCli, RedisError
from collectors.source import Denied, Failed, Faults, NoData

COUNTERS = "COUNTERS_DB"
APPL = "APPL_DB"
CONFIG = "CONFIG_DB"
STATE = "STATE_DB"

_NUMBERS = {APPL: 0, COUNTERS: 2, CONFIG: 4, STATE: 6}
_SOCKET = "var/run/redis/redis.sock"
_LOOPBACK = ("127.0.0.1", 6379)
_DATABASE_CONFIG = "var/run/redis/sonic-db/database_config.json"
_CAPTURE = "sonic.json"
_SIGNS = ("etc/sonic", "var/run/redis/sonic-db", _SOCKET)
_TIMEOUT_S = 0.4
_DIGITS = re.compile(r"[0-9]{1,20}\Z")

HashRow = Dict[str, str]


class HashQuery(NamedTuple):
    """Some fields of one hash, or all of them when `fields` is empty."""

    database: str
    key: str
    fields: Tuple[str, ...] = ()


class Databases(ABC):
    """Answers queries. Every call may raise SourceError."""

    @abstractmethod
    def ask(self, queries: Sequence[HashQuery]) -> List[List[Optional[str]]]:
        """For each query the values of its fields, None for one that does not exist.

        For a query without fields: names and values in turn.
        """

    def rows(self, queries: Sequence[HashQuery]) -> List[HashRow]:
        """Whole hashes; an empty one for a key that does not exist."""
        return [
            {name or "": value or "" for name, value in zip(found[::2], found[1::2])}
            for found in self.ask(queries)
        ]

    def close(self) -> None:
        """Close what is open; nothing, unless a subclass keeps something open."""
        return


def open_databases(fs: HostFS) -> Databases:
    """The databases of this switch. Raises NoData on other systems, else SourceError."""
    if fs.exists(_CAPTURE):
        return _CapturedDatabases(fs)
    if not any(fs.exists(sign) for sign in _SIGNS):
        raise NoData("not a SONiC switch")
    return _RedisDatabases(fs)


class _Instance(NamedTuple):
    """An instance of Redis: its name, its unix socket below the root, its TCP address."""

    name: str
    path: str
    address: Address


class _RedisDatabases(Databases):
    """Queries Redis, over one connection per instance."""

    def __init__(self, fs: HostFS) -> None:
        self._fs = fs
        self._instances = _instances(fs)
        self._connections: Dict[str, Union[Redis, RedisCli]] = {}

    def ask(self, queries: Sequence[HashQuery]) -> List[List[Optional[str]]]:
        answers: List[List[Optional[str]]] = [[] for _ in queries]
        by_instance: Dict[_Instance, List[int]] = {}
        for place, query in enumerate(queries):
            by_instance.setdefault(self._instances[query.database][0], []).append(place)
        for instance, places in by_instance.items():
            found = self._ask_one(instance, [queries[place] for place in places])
            for place, answer in zip(places, found):
                answers[place] = answer
        return answers

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections = {}

    def _ask_one(
        self, instance: _Instance, queries: Sequence[HashQuery]
    ) -> List[List[Optional[str]]]:
        """The answers of one instance to queries ordered by database, in one round trip."""
        commands: List[Tuple[str, ...]] = []
        wanted: List[int] = []
        selected = None
        for query in queries:
            if query.database != selected:
                selected = query.database
                commands.append(("SELECT", str(self._instances[selected][1])))
            wanted.append(len(commands))
            verb = "HMGET" if query.fields else "HGETALL"
            commands.append((verb, query.key, *query.fields))
        connection = self._connections.get(instance.name)
        if connection is None:
            connection = self._connections[instance.name] = _connect(self._fs, instance)
        try:
            replies = connection.ask(commands)
        except OSError as error:
            self.close()
            raise Failed(f"{connection.name}: {error.strerror or error}") from error
        for reply in replies:
            if isinstance(reply, RedisError):
                self.close()
                if str(reply).split(" ")[0] in REFUSALS:
                    raise Denied(f"{connection.name} asks for a password: {reply}")
                raise Failed(f"{connection.name}: {reply}")
        answers = [replies[at] or [] for at in wanted]
        for query, answer in zip(queries, answers):
            if not isinstance(answer, list) or len(query.fields) not in (0, len(answer)):
                self.close()
                raise Failed(f"{connection.name}: not the answer to {query.key}")
        return [[_text(value) for value in answer] for answer in answers]


class _CapturedDatabases(Databases):
    """Answers from the file of a tree at another root."""

    def __init__(self, fs: HostFS) -> None:
        self._fs = fs

    def ask(self, queries: Sequence[HashQuery]) -> List[List[Optional[str]]]:
        try:
            with open(self._fs.path(_CAPTURE), "rb") as file:
                captured: Dict[str, Dict[str, HashRow]] = json.load(file)
        except (OSError, ValueError) as error:
            raise Failed(f"{_CAPTURE}: {error}") from error
        answers: List[List[Optional[str]]] = []
        for query in queries:
            row = captured.get(query.database, {}).get(query.key, {})
            if query.fields:
                answers.append([row.get(field) for field in query.fields])
            else:
                answers.append([part for item in row.items() for part in item])
        return answers


def _connect(fs: HostFS, instance: _Instance) -> Union[Redis, RedisCli]:
    """The first connection that is allowed. Raises Denied when only permission is missing."""
    path = fs.path(instance.path)
    denied = ""
    try:
        return Redis(path, _TIMEOUT_S)
    except PermissionError:
        denied = readable_by(path) or f"{path} may not be opened"
    except OSError as error:
        problem = f"{path}: {error.strerror}"
    try:
        if fs.is_live or instance.address != _LOOPBACK:
            return Redis(instance.address, _TIMEOUT_S)
    except OSError as error:
        problem = f"{instance.address}: {error.strerror or error}"
    if denied:
        return RedisCli(denied, 5 * _TIMEOUT_S)
    raise Failed(f"Redis does not answer: {problem}")


def _instances(fs: HostFS) -> Dict[str, Tuple[_Instance, int]]:
    """Database -> its instance and its number there; the defaults where the file is unusable."""
    default = _Instance("redis", _SOCKET, _LOOPBACK)
    found = {name: (default, number) for name, number in _NUMBERS.items()}
    try:
        config = json.loads(fs.text(_DATABASE_CONFIG) or "{}")
        instances = {
            name: _Instance(
                name,
                str(item.get("unix_socket_path", f"/{_SOCKET}")).lstrip("/"),
                (str(item.get("hostname", _LOOPBACK[0])), int(item.get("port", _LOOPBACK[1]))),
            )
            for name, item in config.get("INSTANCES", {}).items()
        }
        for name, item in config.get("DATABASES", {}).items():
            if name in found and item.get("instance") in instances:
                found[name] = (instances[item["instance"]], int(item["id"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return found


def _text(value: Any) -> Optional[str]:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None


Spellings = Tuple[Tuple[str, ...], ...]
"""SONiC's names of a metric, the best first; each is a sum of fields."""

Sum = Tuple[str, ...]
"""Fields of a hash that make one value together."""


class CounterHash(NamedTuple):
    """A hash that is read, and the metrics that it has: each a sum of fields."""

    key: str
    fields: Tuple[str, ...]
    metrics: Dict[str, Sum]


def counters_key(oid: str) -> str:
    """The key of an object's counters."""
    return f"COUNTERS:{oid}"


def hash_of(key: str, row: HashRow, table: Dict[str, Spellings]) -> CounterHash:
    """The metrics of a table that a hash has, each in its best spelling."""
    metrics: Dict[str, Sum] = {}
    for metric, spellings in table.items():
        for fields in spellings:
            if all(parse_count(row.get(field)) is not None for field in fields):
                metrics[metric] = fields
                break
    fields = tuple(dict.fromkeys(field for each in metrics.values() for field in each))
    return CounterHash(key, fields, metrics)


def count_fields(
    count: CoverageCount, what: str, row: HashRow, *tables: Dict[str, Spellings]
) -> None:
    """Count the fields of a hash that are numbers, and those of them that tables have; `_last` are
    copies that SONiC's own scripts keep."""
    names = [
        field
        for field, value in row.items()
        if parse_count(value) is not None and not field.endswith("_last")
    ]
    known = [
        field
        for table in tables
        for spellings in table.values()
        for fields in spellings
        for field in fields
    ]
    count.add(what, names, known)


def sum_of_fields(found: Dict[str, Optional[str]], fields: Sum) -> Optional[int]:
    """The sum of some fields; None unless all of them are numbers."""
    counts = [parse_count(found[field]) for field in fields]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def append_value(
    values: List[Optional[int]], faults: Faults, value: Optional[int], *texts: Optional[str]
) -> None:
    """Append a value, and when it is None its reason.

    `texts` are the fields behind it: a text that is no number (`N/A`) means unsupported, a missing
    one absent.
    """
    if value is None:
        faults[len(values)] = "absent" if None in texts or not texts else "unsupported"
    values.append(value)


def parse_count(text: Optional[str]) -> Optional[int]:
    """A non-negative whole number; None for `N/A` and for no text."""
    return int(text) if text is not None and _DIGITS.match(text) else None
