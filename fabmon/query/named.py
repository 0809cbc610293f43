"""Names in questions: what they mean, and what exists where nothing has such a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fabmon.analysis.causes import CAUSES
from fabmon.analysis.finding import shown_moment
from fabmon.fabric.jobs.job import Job, names_in_label
from fabmon.fabric.model import Port
from fabmon.fabric.names import natural, nearest
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wording import name_list
from fabmon.query.questions import FindingsQuestion, QueryError
from fabmon.query.sources import KnownFinding, Source

_MOST_NAMED = 10
_MOST_NEAR = 3


def is_job(job: Job, text: str) -> bool:
    """Whether a text names a job: its number, name, user or label."""
    return job.is_called(text) or text in (job.name, job.user, job.label)


def affects_job(known: KnownFinding, text: str) -> bool:
    """Whether a finding affects the job that a text names, as is_job() does."""
    return any(text in names_in_label(label) for label in shown_moment(known.finding).jobs)


def nodes_of(known: KnownFinding) -> set[str]:
    """The nodes that a finding is about."""
    ids = (known.finding.subject, *known.ports, *shown_moment(known.finding).victims)
    return {each.partition("/")[0].partition(" ")[0] for each in ids}


async def check_names(source: Source, question: FindingsQuestion) -> None:
    """Raise QueryError where nothing that is recorded, or watched, has a name in the question: no
    finding would then be taken for none that affects it."""
    if question.cause and question.cause not in CAUSES:
        raise unknown("cause", question.cause, sorted(CAUSES))
    if question.job:
        jobs = await source.jobs()
        if not any(is_job(each, question.job) for each in jobs):
            names = (name for each in jobs for name in (each.number, each.name, each.user))
            raise unknown("job", question.job, names, [each.label for each in jobs])
    if question.node:
        _, until_ns = await source.range_ns()
        snapshot = (await source.scene(until_ns, is_analysed=False)).snapshot
        nodes = {*snapshot.statuses, *(each.name for each in snapshot.fabric.nodes)}
        if question.node not in nodes:
            raise unknown("node", question.node, sorted(nodes, key=natural))


def unknown(
    what: str, text: str, names: Iterable[str], every: Sequence[str] | None = None
) -> QueryError:
    """That nothing has a name, with the most similar names; where none is, with `every` one that
    there is (None: `names`)."""
    known = list(dict.fromkeys(filter(None, names)))
    near = nearest(text, known, _MOST_NEAR)
    every = known if every is None else every
    hint = f": did you mean {' or '.join(near)}?" if near else ": there is none"
    if every and not near:
        hint = f": there are {name_list(every, _MOST_NAMED)}"
    return QueryError(f"no {what} {text[:80]!r}{hint}")


def port_named(snapshot: Snapshot, text: str) -> Port:
    """The port with an id or a name. Raises QueryError with similar names."""
    ports = snapshot.fabric.ports
    wanted = " ".join(text.split())
    for port in ports:
        if wanted in (port.id, port.display_name):
            return port
    near = nearest(wanted, (name for port in ports for name in (port.display_name, port.id)), 1)
    hint = f": did you mean {near[0]}?" if near else ": `links` lists ports"
    raise QueryError(f"no port {wanted[:80]!r}{hint}")
