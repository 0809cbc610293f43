"""What a witness says of a job: one record for its logs, its Flight Recorder and NCCL's RAS."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Sequence

import msgspec

from fabmon.analysis.job_log.places import Place
from fabmon.fabric.wording import name_list, plural

LOG, DUMP, RAS = "log", "dump", "ras"
OK, WRONG, NOT_UNDERSTOOD = "ok", "wrong", "not_understood"


class Weight(enum.StrEnum):
    """What an observation makes of the result; `consequence`: something else was wrong before."""

    WRONG = "wrong"
    CONSEQUENCE = "consequence"
    UNCLEAR = "unclear"
    USUAL = "usual"


class Kind(enum.StrEnum):
    """Kinds of observations that are no failure in a log (these are in `job_log/events.py`)."""

    TIMEOUT = "timeout"
    SIGNALLED = "signalled"
    SLOW = "slow"
    UNRESOLVED = "unresolved"
    CONTRADICTION = "contradiction"
    RETRIED = "retried"
    BEHIND = "behind"
    SILENT = "silent"
    DIFFERS = "differs"
    LATE = "late"
    NOT_STARTED = "not_started"
    RUNS = "runs"
    NO_DUMP = "no_dump"
    TRANSFER = "transfer"
    COMPARED = "compared"
    UNREAD = "unread"
    DEAD = "dead"
    UNRESPONSIVE = "unresponsive"
    GONE = "no communicator"
    ERROR = "error"
    STATE = "state"
    EQUAL = "equal"
    MOVES = "moves"
    CUT = "cut"


_MOST_RANKS = 12
_MOST_NAMED = 4


class Location(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who, and where; what is not known is left out. `ranks` are those that are meant, or, of the
    far end of a connection, those that it may be. `gpus` are indices on the host, `hcas` as the log
    has them, `ports` those of the rank, or nearest to its GPU, with the switch ports at their other
    ends. `address` and `gid` are those that name a far end."""

    ranks: tuple[int, ...] = ()
    host: str = ""
    pid: int | None = None
    gpus: tuple[int, ...] = ()
    hcas: tuple[str, ...] = ()
    address: str = ""
    gid: str = ""
    ports: tuple[Place, ...] = ()

    @property
    def where(self) -> str:
        """The port, or the host with what is known on it, or an address; empty where unknown."""
        if len(self.ports) == 1:
            return self.ports[0].name
        part = self.hcas[0] if len(self.hcas) == 1 else ""
        if self.pid is not None and not part and len(self.gpus) == 1:
            part = f"GPU {self.gpus[0]}"
        where = " ".join(filter(None, (self.host, part))) or self.address
        return f"{where} GID {self.gid}".strip() if self.gid and not part else where

    @property
    def name(self) -> str:
        """In few words: `rank 4 node17 mlx5_3`, or an address."""
        rank = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else ""
        return f"{rank} {self.where}".strip() or "an unnamed host"


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a `witness` (`log`, `dump` of the Flight Recorder, `ras`) says; fields that it does not
    know are left out.

    `kind` of a log is that of a failure (`completion`: a work request of the verbs API, `request`:
    one of libfabric, `device`: an event of an HCA, `call`: of the NIC's library, `connection`: TCP,
    `gpu`, `process`: one that ended, `program`: an exception of the job's code, `stall`: PyTorch
    waited in vain, `exception`: an error without a reason), `timeout` (of a collective),
    `signalled` (by another rank's timeout), `slow`, `unresolved`, `contradiction` or `retried`. Of
    dumps: `differs` (another collective than `others`), `late`, `not_started`, `runs` (all run it),
    `transfer`, `compared`, `unread`. Of RAS: `process`, `dead`, `unresponsive`, `no communicator`,
    `error`, `state` (other than RUNNING), `equal`, `moves` or `cut`. Of several: `behind` (a rank
    has launched `launched` of `expected` operations), `silent` and `no_dump`.

    `weight` is `wrong`, `consequence` (something else was wrong before), `unclear` or `usual`.
    `what` is it in few words, empty where it is no row of a table; `text` a sentence, `check` what
    to do. `at` is who it is about, `others` the far end of a connection, or who waited. `times` it
    was seen; `count` are its ranks, also those that are not named. `group` is a process group or
    communicator, `seq` the number of `operation` in it. `code` is a status of the verbs API, of the
    libfabric provider, or an exit status (below 0: the signal). `time` is UTC where the log's clock
    is known, and of a timeout when it began; `log_time` as written. `program` is a line of the
    job's code. Where `ranks_are_global` is false they are those in the process group.
    """

    witness: str
    kind: str
    weight: Weight
    text: str
    what: str = ""
    check: str = ""
    at: tuple[Location, ...] = ()
    others: tuple[Location, ...] = ()
    times: int = 1
    count: int | None = None
    group: str = ""
    operation: str = ""
    seq: int | None = None
    launched: int | None = None
    expected: int | None = None
    ranks_are_global: bool = True
    code: int | None = None
    side: str = ""
    vendor_error: int | None = None
    late_s: float | None = None
    limit_s: float | None = None
    ran_s: float | None = None
    log_time: str = ""
    time: datetime.datetime | None = None
    program: str = ""
    source: str = ""
    line: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether it is a line of a log that says what failed."""
        return bool(self.source)

    @property
    def said(self) -> str:
        """What it says and what to do."""
        return f"{self.text} {self.check}".strip()


def result_of(observations: Iterable[Observation]) -> str:
    """`wrong`, `not_understood` or `ok`."""
    weights = {each.weight for each in observations}
    if weights & {Weight.WRONG, Weight.CONSEQUENCE}:
        return WRONG
    return NOT_UNDERSTOOD if Weight.UNCLEAR in weights else OK


def rank_list(ranks: Sequence[int]) -> str:
    """Ranks, or other numbers, as `Ranks 0-7, 12`; runs together, few of many."""
    word = "Rank" if len(ranks) == 1 else "Ranks"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{word} {name_list(texts, _MOST_RANKS)}"


def who(at: Sequence[Location], count: int | None = None) -> str:
    """Ranks with their places where few are known, as the start of a sentence."""
    if not at:
        return f"{plural(count or 0, 'rank')} that RAS does not name"
    if len(at) <= _MOST_NAMED and all(each.host and each.ranks for each in at):
        text = ", ".join(_placed(each) for each in at)
        return text[:1].upper() + text[1:]
    hosts = sorted({each.host for each in at} - {""})
    where = f" on {name_list(hosts, _MOST_NAMED)}" if hosts else ""
    ranks = sorted({rank for each in at for rank in each.ranks})
    return f"{rank_list(ranks) if ranks else 'A rank'}{where}"


def _placed(each: Location) -> str:
    links = [port.link for port in each.ports if port.link]
    at = f" at {links[0]}" if len(links) == 1 else ""
    return f"rank {each.ranks[0]} ({each.where}{at})"
