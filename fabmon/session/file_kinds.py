"""Recognises files that are given in place of a log, by their contents."""

from __future__ import annotations

import re
import tomllib

import msgspec

from fabmon.analysis.job_log.failure_words import WRITERS
from fabmon.fabric.hosts import hosts_file
from fabmon.fabric.topology import plan_files
from fabmon.recording.format.frames import MAGIC

_BY_BEGIN = (
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: zstd -dc FILE | fabmon explain -"),
    (b"\xfd7zXZ\0", "compressed with xz: xz -dc FILE | fabmon explain -"),
    (b"BZh", "compressed with bzip2: bzip2 -dc FILE | fabmon explain -"),
    (b"PK\3\4", "a zip archive: unzip -p FILE | fabmon explain -"),
    (MAGIC, "a recording: give the log of the job, and this with --recording"),
    *(
        (b"\x80" + bytes([protocol]), "a pickle that is no dump of PyTorch's Flight Recorder")
        for protocol in range(2, 6)
    ),
)
_SAMPLE_BYTES = 1 << 16
_CONTROLS = "\t\n\v\f\r\a\b\x1b"
"""Of texts and terminals: a progress bar may be half of backspaces."""
_MOST_GARBLED = 0.3
"""Share of characters that are controls or no UTF-8, up to which a file is a text: of compressed
and other binary files about half are; of logs, one in another encoding included, a few."""

_HEAD_BYTES = 4096
"""In which keys are that are of one kind."""

_RAS = "an answer of NCCL's RAS: fabmon ras FILE"
_JSON_KINDS = (
    (re.compile(rb'"communicators_count"|"communicators"\s*:\s*\['), _RAS),
    (
        re.compile(rb'"inspector_output_format_version"'),
        "what NCCL Inspector writes: fabmon record --nccl-inspector DIR reads it",
    ),
    (
        re.compile(
            rb'^\{\s{0,9}"type"\s?:\s?"(?:report|tick|node|finding|iteration|explain|ras|doctor'
            rb'|flows|trace|forwarded_trace|need|alert)"'
        ),
        "an output of fabmon: give the log of the job",
    ),
)
_MESSAGE_KEY = re.compile(
    rb'"(?:log|logs|message|msg|text|textPayload|line|body|content|event|MESSAGE|@message)"\s*:',
    re.IGNORECASE,
)
"""Keys under which collectors of logs have the lines."""
_TEXT_KINDS = (
    (re.compile(r"<(?:!doctype|html)\b", re.I), "a page of HTML"),
    (re.compile(r"(?:Job summary|Communicators\.\.\. \([\d.]{1,9}s\))\r?\n={3}"), _RAS),
    (re.compile(r"NCCL version [^\n]{1,200}\n(?:[^\n]{0,200}\n){0,4}?Job summary\r?\n={3}"), _RAS),
    (
        re.compile(
            r"(?:# (?:HELP|TYPE) \w|\w{1,99}\{[^}\n]{0,400}\} [-+\d.eE]{1,30}$)", re.MULTILINE
        ),
        "a page of metrics, as exporters have it",
    ),
)
"""By what a text begins with."""
_FENCED = re.compile(r"^ {0,3}```[^\n]*\n.*?^ {0,3}```", re.MULTILINE | re.DOTALL)
"""Examples in a page of Markdown, which may be lines of a log."""
_LOG_LINE = re.compile(
    r":\d{1,9}:\d{1,9} \[\d{1,4}\] |\[rank\d|\.(?:cc|cpp|cu|h|py):\d|\[PG |exited (?:on|with) "
    r"|^[ \t]*(?:[\w.-]{1,99}: )?(?:\[?[IWEFD]\d{3,4}[ :]|\[(?:rank|Rank |[IWEF] )"
    r"|[\[(]?\d{4}[-/]\d\d[-/]\d\d[T _]\d|[\[(]?\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:"
    r"|\[\S{1,99}\] |\d{1,5}: |Traceback |File \"|(?:srun|slurmstepd|mpirun|mpiexec|prterun"
    r"|torchrun|kernel|Killed|Aborted|terminate called|what\(\):|NCCL version"
    r"|#\s{1,9}(?:nThread|Rank |Using devices|nccl-tests|Out of|Avg|size ))"
    r"|(?:[\w.]{1,99}(?:Error|Exception|Interrupt|Warning)|ERROR|WARNING|INFO|FATAL|DEBUG)\b[: ]"
    r"|[-=*#]{60})",
    re.MULTILINE,
)
"""As lines of logs begin, and none of a text for people: with a process, a level, a time, a
label; or the frame of a message of mpirun or torchrun."""
_LITTLE_WORDS = (
    " the of a an is are was were and or to in that which it its with for on by as be has have not"
    " this from at where what but no one they their if than only so "
)
_LEAST_LITTLE_WORDS = 0.22
"""Share of these among the words of a text for people: of English it is 0.25 to 0.43, of logs with
long messages up to 0.2."""
_LEAST_PROSE_WORDS = 30
_SENTENCE_END = re.compile(r"[a-z)`'\"*][.:?]\s+(?=[A-Z`\"*(-])")
_LEAST_SENTENCES = 2
_HEADING = re.compile(r"^#{1,6} \w", re.MULTILINE)
_MARKDOWN = re.compile(r"^ {0,3}```|^\|[ :]{0,9}-{3}|\]\(", re.MULTILINE)
_IBLINKINFO = re.compile(r"==\([^()\n]{0,80}\)==>")
_HOSTS_SIGN = re.compile(r"\[\d[\d,-]*\]|\b(?:slots|role|via|group|user|address)=")
"""A list of bare words may be a log: `Killed` is a node's name too."""


def other_kind(block: bytes) -> str:
    """What a file is that begins so and is no log, with what to do; empty for a log, and for a text
    of which that is not known.

    A text may have NULs: where a log was truncated while it was written, its beginning is a hole.
    """
    for begin, kind in _BY_BEGIN:
        if block.startswith(begin):
            return kind
    sample = block[:_SAMPLE_BYTES]
    text = sample.replace(b"\0", b"").decode("utf-8", "replace")
    garbled = sum(each == "\ufffd" or (each < " " and each not in _CONTROLS) for each in text)
    if garbled > _MOST_GARBLED * len(text):
        return "a binary file"
    return _json_kind(sample.lstrip()) or _text_kind(
        text.removeprefix("\ufeff").lstrip(), len(block) > len(sample)
    )


def is_prose(block: bytes) -> bool:
    """Whether a whole text is one for people, such as a README beside the logs of a job: Markdown,
    or sentences, and no line that begins as those of logs do."""
    if len(block) > _SAMPLE_BYTES:
        return False
    text = block.decode("utf-8", "replace")
    is_markdown = len(_HEADING.findall(text)) > 1 and _MARKDOWN.search(text) is not None
    text = _FENCED.sub("", text)
    if is_markdown:
        return not _LOG_LINE.search(text)
    words = [word.strip(".,;:()[]\"'`*").lower() for word in text.split()]
    little = sum(f" {word} " in _LITTLE_WORDS for word in words)
    if len(words) < _LEAST_PROSE_WORDS or little < _LEAST_LITTLE_WORDS * len(words):
        return False
    return len(_SENTENCE_END.findall(text)) >= _LEAST_SENTENCES and not _LOG_LINE.search(text)


def _json_kind(sample: bytes) -> str:
    """Of JSON; empty for JSON with the lines of a log in it."""
    if not _is_json(sample):
        return ""
    for sign, kind in _JSON_KINDS:
        if sign.search(sample[:_HEAD_BYTES]):
            return kind
    return "" if _MESSAGE_KEY.search(sample) else "JSON without lines of a log in it"


def _is_json(sample: bytes) -> bool:
    """Whether a text that may be truncated is one value of JSON, or has one on every line."""
    if not sample.startswith((b"{", b"[")):
        return False
    if _decodes(sample):
        return True
    lines = [line for line in sample.split(b"\n") if line.strip()]
    return all(line.lstrip().startswith(b"{") and _decodes(line) for line in lines)


def _decodes(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except RecursionError:
        return False
    return True


def _text_kind(text: str, is_truncated: bool) -> str:
    for sign, kind in _TEXT_KINDS:
        if sign.match(text):
            return kind
    if WRITERS.search(text.encode()):
        # A job prints such files too before it starts.
        return ""
    topology = plan_files.kind_of(text)
    if topology:
        return f"a topology, {topology}: give the log of the job, and this with --topology"
    if _IBLINKINFO.search(text):
        return "the output of iblinkinfo: cables are read from ibnetdiscover's, with --topology"
    if is_truncated:
        return ""
    if _is_toml(text):
        return "TOML: settings are given with --config, cables with --topology"
    if _is_hosts(text):
        return "a list of nodes: give the log of the job, and this with --hosts"
    return ""


def _is_toml(text: str) -> bool:
    try:
        return any(isinstance(value, dict) for value in tomllib.loads(text).values())
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return False


def _is_hosts(text: str) -> bool:
    if not _HOSTS_SIGN.search(text):
        return False
    try:
        return bool(hosts_file.parse(text, ""))
    except hosts_file.HostsFileError:
        return False
