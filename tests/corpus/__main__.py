"""`python -m tests.corpus VENV [FAULT...]`: runs the jobs, writes what they print. Needs root."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.corpus.faults import FAULTS, Fault
from tests.corpus.job import BROKEN_AT, PORT, TIMEOUT_S, Job
from tests.lab import Lab, LabError

CORPUS = Path(__file__).parents[1] / "unit/job_log/corpus"
_PATIENCE_S = 180


def main(venv: Path, names: list[str]) -> None:
    """Run the jobs with these names, or all."""
    CORPUS.mkdir(exist_ok=True)
    with Lab(spines=1, leaves=2, hosts_per_leaf=2, rate_mbps=1000) as lab:
        for name in names or FAULTS:
            begin_s = time.monotonic()
            try:
                text = run(lab, venv, FAULTS[name])
            except LabError as problem:
                print(f"{name}: {problem}", flush=True)
                continue
            (CORPUS / f"{name}.log").write_bytes(text)
            took_s = time.monotonic() - begin_s
            print(f"{name}: {len(text) / 1000:.0f} kB in {took_s:.0f} s", flush=True)


def run(lab: Lab, venv: Path, fault: Fault) -> bytes:
    """What a job with the fault prints."""
    job = Job(lab, venv)
    environment = dict(fault.environment)
    if fault.inside is not None:
        values = map(str, fault.inside)
        environment |= zip(("JOB_FAULT", "JOB_RANK", "JOB_STEP"), values, strict=True)
    try:
        if fault.before is not None:
            fault.before(job)
        if fault.by_mpirun:
            job.start_by_mpirun(environment)
        for host in job.hosts:
            if host != fault.late and not fault.by_mpirun:
                job.start(host, _options(job, host, fault), environment)
        if fault.breaks is not None:
            job.until_step(BROKEN_AT)
            fault.breaks(job)
        failed = job.until_failed(_PATIENCE_S)
        if failed and fault.late:
            job.start(fault.late, _options(job, fault.late, fault), environment)
    finally:
        job.finish()
    if failed is not fault.fails:
        raise LabError("a node failed" if failed else "no node failed")
    return b"".join(job.lines)


def _options(job: Job, host: str, fault: Fault) -> list[str]:
    first = job.hosts[0]
    options = ["--nnodes", str(len(job.hosts)), "--nproc-per-node", str(fault.per_host)]
    if fault.elastic is None:
        options += ["--node-rank", str(job.hosts.index(host)), "--master-addr", first]
        options += ["--master-port", str(PORT), "--rdzv-conf", f"timeout={TIMEOUT_S}"]
    else:
        options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first}:{PORT}"]
        options += ["--rdzv-id", "4711", "--max-restarts", str(fault.elastic)]
        options += ["--rdzv-conf", f"join_timeout={2 * TIMEOUT_S}"]
    return [*options, *fault.options]


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
