"""Forms in which other programs write names: what stands in them is a name, known or not."""

from __future__ import annotations

import re
from typing import NamedTuple

_DOMAINS = "com|org|net|edu|gov|mil|int|io|ai|cloud|local|lan|internal|intra|corp|localdomain"
"""A host may be called one word and one of these; `net_ib.cc` and `libnccl.so` are files."""
_FILES = "cc|py|so|rs|sh|pl|md|js|ts|go|hh|mm"
"""Ends of files that are countries too."""
_SETTINGS = "INFO|WARN|TRACE|VERSION|ALL|INIT|Simple|LL|LL128|Ring|Tree|True|False"
"""Values of variables that fabmon advises, and of NCCL's own, beside numbers."""


class NameForm(NamedTuple):
    """What is found by a form, for people, and its pattern, with a group for each name in it.

    A group is called as the kind of its name; `user` and `device` are found elsewhere too.
    """

    what: str
    pattern: re.Pattern[str]


NAME_FORMS = (
    NameForm(
        "keys of SSH",
        re.compile(
            r"(?:(?<!\S)(?P<device>[A-Za-z0-9][\w.-]{0,252})(?:,[^\s,]{1,255}){0,4} )?"
            r"(?P<key>\b(?:ssh|ecdsa|sk)-[\w@.-]{3,64} AAAA[\w+/=]*)"
        ),
    ),
    NameForm(
        "Amazon's names and keys",
        re.compile(r"(?P<id>\barn:\w[^\s,;'\"]*|\bA[KS]IA[A-Z0-9]+)"),
    ),
    NameForm(
        "values of variables",
        re.compile(
            r"\b(?:[A-Z0-9_]{0,48}(?:ADDR|HOST|HOSTNAME|NODENAME)=(?P<device>[A-Za-z][\w.-]*)"
            r"|(?:USER|LOGNAME)=(?P<user>[A-Za-z_][\w.-]*)"
            rf"|[A-Z][A-Z0-9_]{{2,63}}=(?!(?:[\d.:]+|{_SETTINGS})(?![^\s,;'\"]))"
            r"(?P<value>[^\s,;'\"]+))"
        ),
    ),
    NameForm(
        "nodes that an option names",
        re.compile(
            r"(?<!\S)--?(?:nodelist|nodes|hosts?|exclude|hostfile|w|H)[= ](?P<nodes>[^\s-]\S*)"
        ),
    ),
    NameForm("node sets", re.compile(r"(?P<nodes>\b[A-Za-z][\w-]{0,63}\[\d+[-,][\d,-]*\][\w.-]*)")),
    NameForm(
        "users before an @",
        re.compile(r"(?<![\w.+-])(?P<user>[A-Za-z_][\w.+-]{0,31})@(?P<device>[A-Za-z0-9][\w.-]*)"),
    ),
    NameForm(
        "hosts with a domain",
        re.compile(
            r"(?i)(?<![\w./-])(?P<device>[a-z0-9][a-z0-9-]{0,62}"
            rf"(?:(?:\.[a-z0-9-]{{1,63}}){{0,6}}\.(?:{_DOMAINS})"
            rf"|(?:\.[a-z0-9-]{{1,63}}){{1,6}}\.(?!(?:{_FILES})\b)[a-z]{{2}}))(?![\w-]|\.\w)"
        ),
    ),
)
