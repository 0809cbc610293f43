"""Recognises how processes and GPUs end, as the kernel, shells and runtimes of languages write it.

These lines have no name of NCCL, PyTorch or a launcher. The texts are those of strsignal of glibc,
bash, abort messages of glibc and libstdc++, faulthandler of Python, absl and glog, and the kernel's
log with NVIDIA's driver (`NVRM: Xid`).
"""

from __future__ import annotations

import re
import signal

from fabmon.analysis.job_log.events import GPU, PROCESS, PROGRAM, Failure

CRASH_MARKS = (
    *(b"Segmentation fault", b"Bus error", b"Illegal instruction", b"Floating point exception"),
    *(b"Aborted", b"Killed", b"core dumped", b"Fatal Python error", b"*** SIG", b"segfault at"),
    *(b"Caught signal", b"terminate called", b"terminating due to uncaught", b"what():"),
    *(b"double free", b"free(): ", b"malloc(): ", b"corrupted size", b"smashing detected"),
    *(b"Traceback (most recent call last)", b"lost communication with a remote daemon"),
    *(
        b"NVRM: Xid",
        b"CUDA error:",
        b"cudaError",
        b"HIP error:",
        b"hipError",
        b"ncorrectable ECC",
        b"ncorrectable ecc",
    ),
    *(b"eset by peer", b"onnection refused", b"oute to host", b"etwork is unreachable"),
    *(b"ink is down", b"ink is Down", b"ink down", b"ink DOWN", b"SXid (", b"AER: Uncorrect"),
    *(b"blocked for more than", b"NETDEV WATCHDOG"),
    *(b"roken pipe", b"No space left on device", b"nput/output error", b"tale file handle"),
)
"""Bytes of which one is on any line that is read here, or that speaks of a failure of the system
under any program: an error of a connection, or of a file."""

_BY_NAME = {
    "Segmentation fault": signal.SIGSEGV,
    "segfault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Aborted": signal.SIGABRT,
    "Killed": signal.SIGKILL,
}
"""Words of strsignal and of the kernel -> the signal."""
_SIGNAL_WORDS = re.compile(
    r"\b(?:(Segmentation fault|Bus error|Illegal instruction|Floating point exception)\b"
    r"|(segfault) at [0-9a-f]+ ip\b"
    r"|(?<!\S)(Aborted|Killed)(?: +\(core dumped\))?$"
    r"|(?<=\d )(Aborted|Killed)(?: +\(core dumped\)|  )"
    r"|(Aborted) +\(core dumped\)|(Aborted) at \d{9,10} \(unix time\))"
)
"""Aborted and Killed are words of other sentences too: these stand alone, or behind the number of a
process, as bash writes them."""
_SIGNAL_NAME = re.compile(r"\*\*\* (SIG[A-Z]{2,6})\b.{0,40} received\b")
_PYTHON = re.compile(r"Fatal Python error: (.{1,120})")
_THROWN = re.compile(
    r"terminate called (?:after throwing an instance of '([^']{1,200})'|without|recursively)"
    r"|terminating due to uncaught exception(?: of type ([\w:<>, ]{1,200}))?"
)
_GLIBC = re.compile(
    r"\b(double free or corruption|(?:free|malloc|realloc)\(\): [a-z][a-z _-]{3,60}"
    r"|corrupted (?:size vs\. prev_size|double-linked list))|(stack smashing detected)"
)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([^()]{1,60})\): (\d{1,4})(?:, (.{0,300}))?")
_XID_FIELDS = re.compile(r"(?:pid|name|Ch|intr)[= ]'?[^,.']{0,60}'?[,.]? ?")


def exit_text(code: int) -> str:
    """`killed by signal 9 (SIGKILL)` or `exit code 1`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"killed by signal {-code}"


def signal_of(text: str) -> int:
    """The number of the signal that ended a process, as strsignal, bash or the kernel name it on a
    line; 0 where none is named."""
    found = _SIGNAL_WORDS.search(text.rstrip())
    return 0 if found is None else _BY_NAME[next(filter(None, found.groups()))]


def crash_of(body: str) -> Failure | None:
    """How a process or a GPU ended, by a line without its labels; None where it says nothing of
    that."""
    xid = _XID.search(body)
    if xid is not None:
        why = _XID_FIELDS.sub("", xid[3] or "").strip(" .,")
        said = f": {why[:100]}" if why else ""
        return Failure(kind=GPU, text=f"Xid {xid[2]} of GPU {xid[1]}{said}")
    corrupted = _GLIBC.search(body)
    if corrupted is not None:
        return Failure(kind=PROGRAM, text=f"memory was overwritten: {corrupted[1] or corrupted[2]}")
    python = _PYTHON.search(body)
    named = _SIGNAL_NAME.search(body)
    number = signal_of(python[1] if python else body)
    if named is not None and named[1] in signal.Signals.__members__:
        number = signal.Signals[named[1]]
    if number:
        return Failure(kind=PROCESS, text=exit_text(-number), code=-number)
    if python is not None:
        return Failure(kind=PROGRAM, text=f"Fatal Python error: {python[1].strip()}")
    thrown = _THROWN.search(body)
    if thrown is not None:
        of = thrown[1] or thrown[2]
        text = f"ended by a C++ exception{f' ({of})' if of else ''} that nothing caught"
        return Failure(kind=PROCESS, text=text, code=-signal.SIGABRT)
    return None
