"""Recognises processes that ended, as launchers and schedulers report them: torchrun, mpirun, srun,
DeepSpeed, Ray, Kubernetes."""

from __future__ import annotations

import re
from signal import SIGKILL, SIGTERM

import msgspec

from fabmon.analysis.job_log.crashes import exit_text, signal_of
from fabmon.analysis.job_log.events import CANCELLED, NODE_FAILURE, PROCESS, Failure

HOST_OUT_OF_MEMORY = "killed: Out Of Memory"
"""What Slurm, Ray, Kubernetes and the kernel say of a process; no exit status is given."""
SOME_PROCESS = "a process of torchrun failed"
SOME_EXIT = -(1 << 30)
"""What torchrun and mpirun say before they name the process; no exit status is given."""
_EXIT = re.compile(r"\bexit ?code:? ?(-?\d{1,9})", re.I)
_PID = re.compile(r"\bpid:? ?(\d{1,10})", re.I)
_LOCAL_RANK = re.compile(r"local_rank: ?(\d{1,9})")
_RECEIVED = re.compile(r"Signal (\d{1,3}) \(SIG\w+\) received|got signal: (\d{1,3})\b")
_OOM_KILLED = re.compile(
    r"oom[-_ ]kill event|oom-kill:constraint|OOM Killed|out-of-memory handler"
    r"|out of memory: kill(?:ed)? process|killed due to memory pressure|\bOOMKilled\b",
    re.I,
)
_MPI_EXIT = re.compile(r"process rank (\d{1,9}) with PID \d+ on node (\S+) exited on signal (\d+)")
_MPI_NON_ZERO = re.compile(r"detected that one or more processes exited with non-zero\b")
_DEEPSPEED_EXIT = re.compile(
    r"(?:--local_rank[= ](\d{1,9})\b.{0,2000})?\bexits with return code = (-?\d{1,9})"
)
_MPI_ABORT = re.compile(
    r"MPI_ABORT was invoked on rank (\d{1,9}) in communicator MPI_COMM_WORLD"
    r"|\(rank (\d{1,9}) in comm 0\): application called MPI_Abort"
)
_SLURM_END = re.compile(
    r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S{1,40} ON (\S{1,80}) CANCELLED AT \S{1,40}"
    r"(?: DUE [Tt][Oo] ([A-Za-z ]{1,60}))?|srun: Job step aborted"
    r"|srun: (?:Force Terminated|(?:\w+/\w+: \w+: )?Terminating) (?:StepId|job|step)"
    r"|srun: error: Node failure on (\S{1,100})"
)
_SRUN_EXIT = re.compile(r"srun: error: (\S+): (tasks? [\d,-]{1,100}): (.{1,100})")


AFTER_CANCEL = ", as the step was ended"


def after_cancel(event: Failure) -> Failure:
    """A failure that Slurm reports after it ended the step: it kills what SIGTERM did not end."""
    if not event.text.startswith("task") or -event.code != SIGKILL:
        return event
    return msgspec.structs.replace(event, text=f"{event.text}{AFTER_CANCEL}")


def mpi_abort_of(body: str) -> Failure | None:
    """The process that ended the job itself, as Open MPI and MPICH report it; None for another
    line."""
    found = _MPI_ABORT.search(body)
    if found is None:
        return None
    return Failure(kind=PROCESS, text="called MPI_Abort", rank=int(found[1] or found[2]))


def ended_process_of(body: str) -> Failure | None:
    """The process that ended, as a line of a launcher or scheduler without its labels reports it;
    None where it does not."""
    ended = _MPI_EXIT.search(body)
    if ended is not None:
        return Failure(
            kind=PROCESS,
            text=exit_text(-int(ended[3])),
            code=-int(ended[3]),
            rank=int(ended[1]),
            peer=ended[2],
        )
    ended = _SLURM_END.search(body)
    if ended is not None:
        reason = (ended[2] or "by srun or scancel").lower().strip()
        if ended[3]:
            return Failure(kind=PROCESS, text=NODE_FAILURE, peer=ended[3])
        return Failure(kind=PROCESS, text=f"{CANCELLED}{reason}", peer=ended[1] or "")
    ended = _SRUN_EXIT.search(body)
    if ended is not None:
        code = -(signal_of(ended[3]) or 1)
        text = f"{ended[2]}: {ended[3].strip()}"
        return Failure(kind=PROCESS, text=text, peer=ended[1], code=code)
    ended = _DEEPSPEED_EXIT.search(body)
    if ended is not None:
        return _exited(int(ended[2]), ended[1])
    if _OOM_KILLED.search(body) is not None:
        return Failure(kind=PROCESS, text=HOST_OUT_OF_MEMORY)
    killed = _RECEIVED.search(body)
    if killed is not None:
        code = -int(killed[1] or killed[2])
        return Failure(kind=PROCESS, text=exit_text(code), code=code)
    status, pid, local = _EXIT.search(body), _PID.search(body), _LOCAL_RANK.search(body)
    if status is not None and (pid or local):
        return _exited(int(status[1]), local[1] if local else None)
    if "closing signal" in body:
        return Failure(kind=PROCESS, text="ended by torchrun", code=-SIGTERM)
    if _MPI_NON_ZERO.search(body) is not None:
        return Failure(kind=PROCESS, text="a process of mpirun failed", code=SOME_EXIT)
    if "ChildFailedError" in body:
        return Failure(kind=PROCESS, text=SOME_PROCESS, code=SOME_EXIT)
    return None


def _exited(code: int, local_rank: str | None) -> Failure:
    where = f", local rank {local_rank}" if local_rank else ""
    return Failure(kind=PROCESS, text=f"{exit_text(code)}{where}", code=code)
