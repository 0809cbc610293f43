"""Logs of jobs that are damaged, mixed or made to be slow: each is read in bounded time."""

from __future__ import annotations

import json
import pickle
import random
import re
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.flight_recorder.dumps import read_dump
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.report.job_report import explain_record
from fabmon.report.job_table import job_table
from fabmon.session.log_files import whole_lines
from tests.fuzzing import PATIENCE_S, changed, try_cases
from tests.unit.job_log.flight_recorder import Job
from tests.unit.job_log.generated_logs import PREFIXES, failed_jobs, healthy_job
from tests.unit.job_log.observed import record_of

CORPUS = Path(__file__).parent / "corpus"
MOST_BYTES = 300_000
PUMPS = (":", " ", "a", "1", ".", "[", "(", "-", "a:", "1.", "- ", "1,", "[1] ", "E: ", "0x", "\\n")
WORDS = (
    *("99999999999999999999", "-1", "0", "4294967296", "1e308", "inf", "nan", "Rank 2147483647"),
    *("\x1b[31m", "\x00", "\r", "\u2028", "gpu001:77:78 [0] NCCL WARN", "ranks 1000000000"),
)


def lines_of(chance: random.Random) -> list[bytes]:
    """The lines of a log: of a job that fails, a healthy one, or one of the corpus."""
    what = chance.randrange(3)
    if what == 0:
        jobs = failed_jobs(chance)
        prefix = PREFIXES[chance.choice(list(PREFIXES))]
        return [prefix(line).encode() for job in jobs for line in job.lines]
    if what == 1:
        return [line.encode() for line in healthy_job(chance)]
    return chance.choice(sorted(CORPUS.iterdir())).read_bytes().splitlines()


def damaged(lines: list[bytes], chance: random.Random) -> bytes:
    """The lines, with some of them changed, pumped up, repeated with other numbers, or merged."""
    found = list(lines)
    for _ in range(chance.choice((1, 3, 10, 30))):
        at = chance.randrange(len(found))
        line = found[at]
        place = chance.randrange(len(line) + 1)
        what = chance.randrange(6)
        if what == 0:
            found[at] = changed(line, chance)
        elif what == 1:
            pump = chance.choice(PUMPS).encode()
            times = chance.choice((10, 400, 4000))
            found[at] = line[:place] + pump * times + line[place:]
        elif what == 2:
            other = chance.choice(found)
            found[at] = line[:place] + other[chance.randrange(len(other) + 1) :]
        elif what == 3:
            words = line.split(b" ")
            words[chance.randrange(len(words))] = chance.choice(WORDS).encode()
            found[at] = b" ".join(words)
        elif what == 4:
            found[at:at] = [numbered(line, chance) for _ in range(chance.choice((3, 300)))]
        else:
            chance.shuffle(found)
    return b"\n".join(found)[:MOST_BYTES]


def numbered(line: bytes, chance: random.Random) -> bytes:
    """The line with other numbers."""
    return re.sub(rb"\d+", lambda _: b"%d" % chance.randrange(10_000), line)


@pytest.mark.timeout(PATIENCE_S)
def test_a_damaged_log_is_read_in_bounded_time() -> None:
    def attempt(chance: random.Random) -> None:
        data = damaged(lines_of(chance), chance)
        log = JobLog()
        for block in whole_lines(iter((data[: len(data) // 2], data[len(data) // 2 :]))):
            log.accept(block, "job.log")
        record = record_of(log)
        msgspec.json.encode(record)
        assert all(line.isprintable() for line in job_table(record).splitlines())

    try_cases(attempt, share=1 / 4)


@pytest.mark.timeout(PATIENCE_S)
def test_damaged_dumps_are_compared_or_refused() -> None:
    def attempt(chance: random.Random) -> None:
        job = Job(ranks=chance.choice((1, 2, 5)), collectives=chance.choice((1, 3, 40)))
        write = chance.choice((json.dumps, pickle.dumps))
        dumps = []
        for rank in job.entries:
            data = write(job.content(rank))
            data = changed(data if isinstance(data, bytes) else data.encode(), chance)
            dumps.append(read_dump(data, f"rank_{rank}"))
        job_table(explain_record(JobLog(), [], [], dumps=dumps))

    try_cases(attempt, 1 / 32)
