"""Which lines are about communication, and which of them speak of a failure.

A line with a mark and a word of failure that no reader understands is counted and quoted: what is
not understood is never taken for "no failure".
"""

from __future__ import annotations

import re

from fabmon.analysis.job_log.crashes import CRASH_MARKS

MARKS = (
    *(b"NCCL", b"nccl", b"NET/", b"OFI", b"UCX", b"gloo", b"Gloo", b"c10", b"distributed"),
    *(b"[rank", b"Last error:", b"Barrier", b"srun:", b"slurmstepd"),
    *(b".cc:", b".cpp:", b".cu:", b"ibv_", b"mlx5", b"ocket", b"Cuda failure", b"HIP failure"),
    *(b"ut of memory", b"OutOfMemory", b"oom_kill", b"oom-kill", b"OOM Killed"),
    *(b"shared memory", b"/dev/shm", b"</torch_"),
    *(b"RuntimeError", b"imed out", b"exitcode", b"ut Of Memory", b"with PID "),
    *(b"MPI_ABORT was", b"called MPI_Abort", b"with non-zero", b"BAD TERMINATION"),
    *(b"exits with return code", b"exited with exit code"),
    *(b"(raylet", b"ray.exceptions", b" died ", b"memory pressure", b"OOMKilled"),
    *CRASH_MARKS,
)
"""NCCL (RCCL has it too), its network plugins, UCX, gloo, PyTorch's distributed package, launchers;
fields of their lines, by which a line is known whose name of these is missing; and what is written
as a process or a GPU ends."""
WRITERS = re.compile(
    rb"NCCL (?:INFO|WARN|ERROR|ABORT|VERSION|TRACE)|[NR]CCL version|NET/(?:IB|OFI|Socket|Plugin)"
    rb"|UCX +[A-Z]{4,5}\b|\[rank\d|torch\.distributed|torch/distributed|c10d|ProcessGroup"
    rb"|\b[Gg]loo\b|srun: |slurmstepd|mpirun|torchrun"
)
"""Of lines that such a program wrote, and not one that only names it or a NIC: a list of cables or
of nodes has marks too."""

_WORDS = re.compile(
    r"\b(?:fail(?:s|ed|ure|ures|ing)?|err(?:or|ors|no)?|abort(?:s|ed|ing)?|fatal|refused|lost|dead"
    r"|time[ds]?[ -]?out|timing out|timeouts|clos(?:ed|ure|ing)|reset by|unreachable|unresponsive"
    r"|no route|unable|cannot|can't|could not|couldn't|not found|crash(?:ed|es)?|kill(?:ed)?"
    r"|signal (?=\d|SIG)|SIG(?:KILL|TERM|SEGV|ABRT|BUS)|exceptions?|broken|exceeded|corrupt\w*"
    r"|wrong|invalid|mismatch\w*|inconsisten\w+|exited|terminat\w+|died|stuck|hangs?|hung|no longer"
    r"|panic|retr(?:y|ies)|unhandled|disconnect\w*|out of (?:memory|bounds)|unresolv\w*|denied|leak"
    r"|deadlock\w*|desync\w*|unexpected\w*|bad|not (?:respond|answer|reach)\w*"
    r"|MPI_ABORT|core dumped|cancell?ed|no space left|stale file|reset|link (?:is )?down"
    r"|compromised|blocked for more than|uncorrect(?:ed|able))\b|\bwhat\(\):|\boom-kill\b|NVRM: Xid"
    r"|\w(?:Error|Exception)\b|_err(?:or)?=|_ERR\b|\.(?:cc|h|cpp|cu):\d+ -> [1-68-9]",
    re.IGNORECASE,
)
_SETTINGS = re.compile(
    r"(?<![\w./-])(?=[\w.-]*/[\w./-])[\w./-]++"
    r"|\b(?:NCCL|RCCL|TORCH|GLOO|UCX|FI|OFI|HSA|CUDA|HIP)_[A-Z0-9_]+"
    r"|\berrors?[=: ]+\d+\.\d+|\b(?:failed|errors?)[=: ]+0\b"
    r"|\b(?=\w*timeout)\w++ (?:is |was )?set to \d"
    r"|\b(?=\w*timeout)\w++(?:\(ms\))?['\"]?\s?[=:]\s?(?:[\w(]*=?\d|None)",
    re.IGNORECASE,
)
"""Names of settings, timeouts that are only set, measured errors, and paths: words in them are no
failure."""
COUNTED_NONE = re.compile(
    r"\b(?:uncorrectable ECC|out of memory|OutOfMemoryError)\b[\w ]{0,24}[:= ] ?0(?![\w.])"
    r"|^\s*except\b",
    re.IGNORECASE,
)
"""A check that counted no failure, as `Uncorrectable ECC errors: 0`; and a line of source."""
_HARMLESS = re.compile(
    r"^NCCL INFO .*(?:Plugin|symbol|\.so\b|ignoring|localRank|set by environment|dlerror|cuMem)"
    r"|^NCCL (?:INFO|WARN) .*(?:iommu=pt|HSA_FORCE_FINE_GRAIN_PCIE|NVLS .*not|Not using)"
    r"|^(?:srun|salloc|sbatch): warning: can't honor --ntasks-per-node"
    r"|devices used by this process are currently unknown|destroy_process_group\(\)"
    r"|(?:hostname|name) of the client socket cannot be retrieved|errno: 97 "
    r"|(?:Deprecation|Future|User)Warning|is deprecated|watchdog thread (?:started|joined)"
    r"|^\[?I\d{3,4} [\d:.]+ |^\[I \w+\.cpp:|c10d - (?:debug|trace|info)|^Original exception:"
    r"|terminated normally|Stack trace of the failed collective|finished successfully"
    r"|^\W*(?:frame )?#\d+:? |Exception raised from \w+ at |\bFile \""
    r"|overhead|Out of bounds values|algbw|^NCCL INFO .*(?:Init|Destroy) COMPLETE",
)
"""Lines that healthy jobs write too, and lines that only belong to one that was read."""
_ERROR_LEVEL = re.compile(r"\[?[EF]\d{3,4} [\d:.]+ |\[[EF] \w+\.cpp:")
"""As PyTorch writes it."""
_CODE = re.compile(r"^\s{3,}|^\s*(?:[\^~]+\s*$|raise |return )")
"""Lines of source in a traceback of Python, behind the label of a launcher."""


def speaks_of_failure(body: str, is_warning: bool) -> bool:
    """Whether a line with a mark, without its labels, has a word of failure. Any warning of NCCL
    and any error of PyTorch has, unless healthy jobs write it too."""
    if _HARMLESS.search(body) or _CODE.match(body) or COUNTED_NONE.search(body):
        return False
    return (
        is_warning
        or _ERROR_LEVEL.match(body) is not None
        or _WORDS.search(_SETTINGS.sub(" ", body)) is not None
    )
