"""`fabmon explain` on what real jobs of PyTorch printed when they were broken (`tests.corpus`).

On host gpu00N is rank N-1, or ranks 2N-2 and 2N-1 of a job of eight.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabmon.cli.main import cli
from tests.corpus.faults import FAULTS

CORPUS = Path(__file__).parent / "corpus"
MOST_BYTES = 60_000
ADDRESSES = ("10.1.1.3", "10.1.1.5", "10.1.2.3", "10.1.2.5")

_LABEL = re.compile(rb"^gpu00(\d): ", re.MULTILINE)


def _ray(found: re.Match[bytes]) -> bytes:
    address = ADDRESSES[int(found[1]) - 1].encode()
    return b"\x1b[36m(TrainWorker pid=41%s, ip=%s)\x1b[0m " % (found[1], address)


LABELS: dict[str, Callable[[re.Match[bytes]], bytes]] = {
    "pdsh": lambda found: found[0],
    "none": lambda found: b"",
    "srun": lambda found: b"%d: " % (int(found[1]) - 1),
    "mpirun": lambda found: b"[1,%d]<stderr>:" % (int(found[1]) - 1),
    "container": lambda found: b"2026-11-28T12:30:38.123456789Z stderr F ",
    "ray": _ray,
}
"""What launchers and runtimes write before each line."""


WAIT = "[Tt]imed out|waited|wait ended"


@dataclass(frozen=True)
class Right:
    """Patterns: what the first conclusion says, and does not; what any conclusion says."""

    first: str
    not_first: str = "[Nn]o failure"
    also: str = ""


def rank(number: int, per_host: int = 1) -> str:
    """A pattern for a rank, by its number, its host or the address of that."""
    host = number // per_host
    return rf"(?:[Rr]anks? (?:\d+[,-] ?)*{number}\b|gpu00{host + 1}|{re.escape(ADDRESSES[host])}\b)"


def ended(number: int, how: str, per_host: int = 1) -> Right:
    """This rank ended so, and the others for that reason."""
    return Right(rf"[Rr]ank {number}\b.*{how}", "[Tt]imed out|[Cc]onnection closed")


def waited(missing: int, per_host: int = 1) -> Right:
    """Ranks waited in vain, and this one alone wrote no error: their closed connections follow."""
    return Right(
        WAIT,
        "[Cc]onnection closed",
        rf"{rank(missing, per_host)}.{{0,80}}\b(?:wrote nothing|silent|no line|still r[au]n)",
    )


NO_ONE_MISSING = Right(WAIT, "[Cc]onnection closed", r"port|path|link")
"""Ranks waited in vain, all of them wrote so: it is between them."""

LOST_PEER = "[Cc]onnection closed|[Rr]eset|ended|[Tt]imed out"

RIGHT: dict[str, Right] = {
    "healthy-2": Right("No failure", "speaks? of a failure"),
    "healthy-4": Right("No failure", "speaks? of a failure"),
    "killed-1": ended(2, "SIGKILL"),
    "killed-2": ended(5, "SIGKILL"),
    "killed-3": ended(3, "SIGKILL"),
    "restarted-1": Right("SIGKILL|signal 9|exit(?:ed|code| code).*-9", also=rank(2)),
    "segfault-1": ended(3, "SIGSEGV"),
    "unreadable-1": ended(1, "Input/output error"),
    "stopped-1": waited(1),
    "stopped-2": Right(rank(3, 2), "[Cc]onnection closed", "onitored ?[Bb]arrier"),
    # Rank 0, which all wait for, has not said yet that it is rank 2 that it waits for.
    "stopped-3": waited(2),
    "asleep-1": waited(2),
    "asleep-2": Right(rank(6, 2), "[Cc]onnection closed", "onitored ?[Bb]arrier"),
    "late-1": Right(rank(3), re.escape(ADDRESSES[0])),
    "late-2": Right("3(?:/| of )4", r"[Rr]anks? [13]\b"),
    "late-3": Right("[Rr]endezvous", "[Cc]onnection"),
    "late-4": Right("timed out.*connect", also="gpu001"),
    "node-gone-1": waited(2),
    "node-gone-2": Right(rf"(?:{LOST_PEER}).*{rank(2)}"),
    "node-gone-3": Right(rf"(?:{LOST_PEER}).*{rank(0)}"),
    "link-cut-1": NO_ONE_MISSING,
    "link-cut-2": NO_ONE_MISSING,
    "link-cut-3": Right("[Nn]etwork is unreachable", also=rank(0)),
    "no-name-1": Right("[Nn]ame or service not known", "timed out", "gpu001"),
    "no-name-2": Right("127.0.0.1|loopback|host ?name"),
    "no-name-3": Right("loopback|host ?name"),
    "port-in-use-1": Right("29500.*(?:in use|EADDRINUSE)|(?:in use|EADDRINUSE).*29500"),
    "mpirun-killed-1": Right(rf"{rank(2)}.*(?:[Ss]ignal 9|SIGKILL)"),
    # Rank 1 was continued when mpirun ended the job, and found its connections closed.
    "mpirun-stopped-1": Right(WAIT, "[Cc]onnection closed"),
    "mpirun-node-gone-1": Right(rf"(?:{LOST_PEER}|lost).*{rank(2)}"),
    "mismatch-1": Right(r"[Mm]ismatch", "[Cc]onnection closed", rank(2)),
}

SILENT = ("healthy-1", "healthy-3", "mpirun-healthy-1")
"""Jobs that print no line of PyTorch or a launcher."""


def explained(*arguments: object, text: bytes | None = None) -> dict[str, Any]:
    """The record of logs: of files, or of standard input."""
    argv = ["explain", *map(str, arguments), "--format", "json"]
    done = CliRunner().invoke(cli, argv, input=text)
    assert done.output.startswith("{"), f"{done.output} {done.exception}"
    found: dict[str, Any] = json.loads(done.output)
    return found


def check(name: str, found: dict[str, Any]) -> None:
    right = RIGHT[name]
    first, *_ = sentences = found["conclusions"]
    assert re.search(right.first, first), first
    assert not re.search(right.not_first, first), first
    assert re.search(right.also, " ".join(sentences)), sentences
    is_healthy = name.startswith("healthy")
    assert found["result"] == ("ok" if is_healthy else "wrong")
    assert ("No failure" in " ".join(sentences)) is is_healthy


def case(name: str, *more: str) -> Any:
    """A case of a test."""
    return pytest.param(name, *more, id="-".join((name, *more)))


def has_labels(name: str) -> bool:
    """Whether lines begin with the host: those of mpirun have its own labels."""
    return not name.startswith("mpirun")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        case(name, label)
        for name in RIGHT
        for label in LABELS
        if has_labels(name) or label == "none"
    ],
)
def test_a_broken_job_is_explained(name: str, label: str) -> None:
    text = _LABEL.sub(LABELS[label], (CORPUS / f"{name}.log").read_bytes())
    check(name, explained("-", text=text))


@pytest.mark.parametrize("name", [case(name) for name in RIGHT if has_labels(name)])
def test_a_log_for_each_host_is_explained(name: str, tmp_path: Path) -> None:
    """In any order: what happened first does not come first."""
    lines = (CORPUS / f"{name}.log").read_bytes().split(b"\n")[:-1]
    hosts = sorted({line[: line.index(b":")] for line in lines}, reverse=True)
    paths = [tmp_path / f"{host.decode()}.log" for host in hosts]
    for host, path in zip(hosts, paths, strict=True):
        own = [line[len(host) + 2 :] for line in lines if line.startswith(host)]
        path.write_bytes(b"\n".join(own) + b"\n")
    check(name, explained(*paths))


@pytest.mark.parametrize("name", SILENT)
def test_a_healthy_job_that_printed_nothing_of_pytorch_has_no_failure(name: str) -> None:
    text = (CORPUS / f"{name}.log").read_bytes()
    done = CliRunner().invoke(cli, ["explain", "-"], input=text)
    assert "No failure" in done.output or "no line of NCCL" in str(done.exception)


@pytest.mark.parametrize("name", ["asleep-2", "late-4", "link-cut-3", "mismatch-1"])
def test_a_long_text_does_not_make_the_table_wide(name: str) -> None:
    """Its column was up to 160 characters wide, and every row two lines or more."""
    done = CliRunner().invoke(cli, ["explain", str(CORPUS / f"{name}.log")])
    table = done.output[done.output.index("\nSEEN ") + 1 :].partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 100


def test_every_fault_has_a_fixture_and_a_right_answer() -> None:
    fixtures = {path.stem: path.stat().st_size for path in CORPUS.glob("*.log")}
    assert fixtures.keys() == FAULTS.keys() == {*RIGHT, *SILENT}
    assert max(fixtures.values()) < MOST_BYTES
