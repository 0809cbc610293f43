"""SONiC's databases: where they are, and how to ask several of them in few round trips.

`/var/run/redis/sonic-db/database_config.json` names the instances of Redis and the number of each
database. They are asked over the unix socket (the group `redis` may), over TCP on the loopback, or
through the command `redis-cli` where neither lets us in. A tree at another root carries the
databases in `<root>/sonic.json`, as `{"COUNTERS_DB": {"KEY": {"field": "value"}}}`.

Only SELECT, HGETALL and HMGET are ever sent.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from collectors.hostfs import HostFS, readable_by
from collectors.readers.redis import REFUSALS, Address, Redis, RedisCli, RedisError
from collectors.source import Denied, Failed, Faults, NoData, SourceError

COUNTERS = "COUNTERS_DB"
APPL = "APPL_DB"
CONFIG = "CONFIG_DB"
STATE = "STATE_DB"

_NUMBERS = {APPL: 0, COUNTERS: 2, CONFIG: 4, STATE: 6}
_SOCKET = "var/run/redis/redis.sock"
_LOOPBACK = ("127.0.0.1", 6379)
_PLACES = "var/run/redis/sonic-db/database_config.json"
_DUMP = "sonic.json"
_SIGNS = ("etc/sonic", "var/run/redis/sonic-db")
_TIMEOUT_S = 0.4

HashRow = Dict[str, str]


class HashQuery(NamedTuple):
    """Some fields of one hash, or all of them when `fields` is empty."""

    database: str
    key: str
    fields: Tuple[str, ...] = ()


class Databases(ABC):
    """Where the queries are answered. Every call may raise SourceError."""

    @abstractmethod
    def ask(self, queries: Sequence[HashQuery]) -> List[List[Optional[str]]]:
        """For each query the values of its fields, None for one that is not there; for a query
        without fields, names and values in turn."""

    def rows(self, queries: Sequence[HashQuery]) -> List[HashRow]:
        """Whole hashes; an empty one for a key that is not there."""
        return [
            {name or "": value or "" for name, value in zip(found[::2], found[1::2])}
            for found in self.ask(queries)
        ]

    def close(self) -> None:
        """Hang up; nothing, where nothing is kept open."""
        return


def open_databases(fs: HostFS) -> Databases:
    """The databases of this switch. Raises NoData on what is no SONiC, SourceError else."""
    if fs.exists(_DUMP):
        return _Dump(fs)
    if not any(fs.exists(sign) for sign in _SIGNS) and not fs.exists(_SOCKET):
        raise NoData("not a SONiC switch")
    return _Instances(fs)


_Asked = Union[Redis, RedisCli]


class _Place(NamedTuple):
    """An instance of Redis: what it is called, its unix socket below the root, its TCP address."""

    name: str
    path: str
    address: Address


class _Instances(Databases):
    """Redis itself, one connection an instance."""

    def __init__(self, fs: HostFS) -> None:
        self._fs = fs
        self._where: Dict[str, Tuple[_Place, int]] = _places(fs)
        self._open: Dict[str, _Asked] = {}

    def ask(self, queries: Sequence[HashQuery]) -> List[List[Optional[str]]]:
        answers: List[List[Optional[str]]] = [[] for _ in queries]
        by_instance: Dict[str, List[int]] = {}
        for place, query in enumerate(queries):
            by_instance.setdefault(self._where[query.database][0].name, []).append(place)
        for places in by_instance.values():
            found = self._ask_one([queries[place] for place in places])
            for place, answer in zip(places, found):
                answers[place] = answer
        return answers

    def close(self) -> None:
        for asked in self._open.values():
            asked.close()
        self._open = {}

    def _ask_one(self, queries: Sequence[HashQuery]) -> List[List[Optional[str]]]:
        """The queries of one instance, ordered by database, in one round trip."""
        place = self._where[queries[0].database][0]
        commands: List[Tuple[str, ...]] = []
        wanted: List[int] = []
        selected = None
        for query in queries:
            if query.database != selected:
                selected = query.database
                commands.append(("SELECT", str(self._where[selected][1])))
            wanted.append(len(commands))
            commands.append(_command(query))
        asked = self._open.get(place.name)
        if asked is None:
            asked = self._open[place.name] = _connect(self._fs, place)
        try:
            replies = asked.ask(commands)
        except OSError as error:
            self.close()
            raise Failed(f"{asked.name}: {error.strerror or error}") from error
        for reply in replies:
            if isinstance(reply, RedisError):
                self.close()
                raise _refusal(asked.name, str(reply))
        return [[_text(value) for value in replies[at] or ()] for at in wanted]


class _Dump(Databases):
    """What a tree has in a file."""

    def __init__(self, fs: HostFS) -> None:
        self._fs = fs

    def ask(self, queries: Sequence[HashQuery]) -> List[List[Optional[str]]]:
        try:
            with open(self._fs.path(_DUMP), "rb") as file:
                dump: Dict[str, Dict[str, HashRow]] = json.load(file)
        except (OSError, ValueError) as error:
            raise Failed(f"{_DUMP}: {error}") from error
        answers: List[List[Optional[str]]] = []
        for query in queries:
            row = dump.get(query.database, {}).get(query.key, {})
            if query.fields:
                answers.append([row.get(field) for field in query.fields])
            else:
                answers.append([part for item in row.items() for part in item])
        return answers


def _connect(fs: HostFS, place: _Place) -> _Asked:
    """The first way that lets us in. Raises Denied when permission is all that is missing."""
    path = fs.path(place.path)
    denied = ""
    try:
        return Redis(path, _TIMEOUT_S)
    except PermissionError:
        denied = readable_by(path) or f"{path} may not be opened"
    except OSError as error:
        trouble = f"{path}: {error.strerror}"
    try:
        if fs.is_live or place.address != _LOOPBACK:
            return Redis(place.address, _TIMEOUT_S)
    except OSError as error:
        trouble = f"{place.address}: {error.strerror or error}"
    if denied:
        return RedisCli(denied, 5 * _TIMEOUT_S)
    raise Failed(f"Redis does not answer: {trouble}")


def _places(fs: HostFS) -> Dict[str, Tuple[_Place, int]]:
    """Database -> its instance and its number there."""
    usual = _Place("redis", _SOCKET, _LOOPBACK)
    found = {name: (usual, number) for name, number in _NUMBERS.items()}
    try:
        told = json.loads(fs.text(_PLACES) or "{}")
        instances = {
            name: _Place(
                name,
                str(item.get("unix_socket_path", f"/{_SOCKET}")).lstrip("/"),
                (str(item.get("hostname", _LOOPBACK[0])), int(item.get("port", _LOOPBACK[1]))),
            )
            for name, item in told.get("INSTANCES", {}).items()
        }
        for name, item in told.get("DATABASES", {}).items():
            if name in found and item.get("instance") in instances:
                found[name] = (instances[item["instance"]], int(item["id"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # a file that says nothing sensible leaves what is usual
    return found


def _command(query: HashQuery) -> Tuple[str, ...]:
    if query.fields:
        return ("HMGET", query.key, *query.fields)
    return ("HGETALL", query.key)


def _text(value: Any) -> Optional[str]:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None


def _refusal(name: str, said: str) -> SourceError:
    if said.split(" ")[0] in REFUSALS:
        return Denied(f"{name} asks for a password: {said}")
    return Failed(f"{name}: {said}")


# Values out of SONiC's hashes: which metrics a hash has, and what its texts mean.


Spellings = Tuple[Tuple[str, ...], ...]
"""Of a metric, the best first; each is a sum of fields."""

Sum = Tuple[str, ...]
"""Fields of a hash that make one value together."""


class CounterHash(NamedTuple):
    """A hash that is read, and the metrics that it has: each a sum of fields."""

    key: str
    fields: Tuple[str, ...]
    metrics: Dict[str, Sum]


def counters_key(oid: str) -> str:
    """Where an object's counters are."""
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


def sum_of_fields(found: Dict[str, Optional[str]], fields: Sum) -> Optional[int]:
    """The sum of some fields; None unless all of them are numbers."""
    together = 0
    for field in fields:
        value = parse_count(found[field])
        if value is None:
            return None
        together += value
    return together


def append_value(
    values: List[Optional[int]], faults: Faults, value: Optional[int], *said: Optional[str]
) -> None:
    """Append a value; `said` are the texts behind it: one that is there and no number (`N/A`) is
    not supported, one that is gone is absent."""
    if value is None:
        faults[len(values)] = "absent" if None in said or not said else "unsupported"
    values.append(value)


def parse_count(text: Optional[str]) -> Optional[int]:
    """A whole number that is not negative; None for `N/A` and what is not there."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
