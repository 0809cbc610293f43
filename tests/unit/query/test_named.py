"""Which job a text in a question names: the same for the jobs that run and for findings."""

from __future__ import annotations

import msgspec
import pytest

from fabmon.fabric.jobs.job import Job
from fabmon.query.named import affects_job, is_job, nodes_of
from fabmon.query.sources import KnownFinding
from tests.tui.recordings import Watching

JOBS = (
    Job(id="8801", name="llama-70b", user="anna"),
    Job(id="8812", shown_id="8801_3", name="sweep", user="ben"),
    Job(id="8820", shown_id="8819+1", name="two parts (a)", user="ben"),
    Job(id="8830", name="my (job)"),
    Job(id="research/llama-70b", name="llama-70b"),
    Job(name="a launcher's", user="cy"),
)
TEXTS = (
    *("8801", "8801_3", "8819", "8819+1", "8830", "llama-70b", "research/llama-70b", "anna", "ben"),
    *("sweep", "two parts (a)", "my (job)", "a launcher's", "cy", "nobody", "880", "two", "parts"),
    *(job.label for job in JOBS),
)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.label)
def test_a_text_names_the_jobs_of_findings_that_it_names_among_those_that_run(job: Job) -> None:
    watching = Watching()
    found = next(scene.findings[0] for scene in iter(watching.next, None) if scene.findings)
    known = KnownFinding(msgspec.structs.replace(found, jobs=(job.label,)), ())
    named = {text for text in TEXTS if is_job(job, text)}
    assert named, "its number, name, user, and label"
    assert {text for text in TEXTS if affects_job(known, text)} == named


def test_a_faded_finding_affects_the_jobs_and_nodes_that_every_output_shows_of_it() -> None:
    watching = Watching()
    found = next(scene.findings[0] for scene in iter(watching.next, None) if scene.findings)
    worst = msgspec.structs.replace(
        found, lost=0.8, victims=("gpu002/mlx5_0",), jobs=("job 8801 llama (anna)",), worst=None
    )
    faded = msgspec.structs.replace(
        found, lost=0.1, victims=("gpu003/mlx5_0",), jobs=("job 9 other (ben)",), worst=worst
    )
    known = KnownFinding(faded, ())
    assert affects_job(known, "8801")
    assert not affects_job(known, "9")
    assert "gpu002" in nodes_of(known)
    assert "gpu003" not in nodes_of(known)
