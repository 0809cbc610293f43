"""Which series are meant: PromQL's matchers, from a person and from what is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fabmon.fabric.messages import clean
from fabmon.feeds.prometheus.access import BadAccess

_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def matchers(text: str) -> str:
    """What a person wrote, `{job="x",cluster=~"a.*"}` or the same without braces, without braces.

    Raises BadAccess for anything else; nothing that is not a matcher gets into a query.
    """
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    parts, at = [], 0
    while at < len(inner):
        match = _MATCHER.match(inner, at)
        if match is None or match[1] == "__name__":
            raise BadAccess(
                f"--match {clean(text)!r}: write matchers of labels, without a metric's name, as "
                'in {job="fabmon",cluster="a"}'
            )
        parts.append("".join(match.groups()))
        at = match.end()
        if at < len(inner):
            if inner[at] != ",":
                raise BadAccess(f"--match {clean(text)!r}: a comma is missing behind {match[0]!r}")
            at += 1
    return ",".join(parts)


def label(text: str) -> str:
    """A label's name. Raises BadAccess."""
    if _LABEL.fullmatch(text) is None:
        raise BadAccess(f"{clean(text)!r} is not the name of a label")
    return text


class Scope:
    """What is watched: any of the `selections` (matchers, without braces), and of `only` those.

    `only` are nodes by name, with or without a domain and a port behind them in the label `node`;
    all for none.
    """

    def __init__(self, selections: Sequence[str], node: str, only: Iterable[str] = ()) -> None:
        self.node = node
        names = "|".join(re.escape(name) for name in only)
        restriction = [f"{node}=~{quoted(f'({names})([.:].*)?')}"] if names else []
        self._selections = [_joined(each, *restriction) for each in selections or [""]]

    def pick(self, name: str, *more: str) -> list[str]:
        """Selectors of the metric called `name`; `more` are matchers beside."""
        return [f"{name}{{{_joined(each, *more)}}}" for each in self._selections]

    def either(self, name: str, *more: str, wrap: str = "{}") -> str:
        """An expression for the metric, `{}` in `wrap` being each of its selectors."""
        return " or ".join(wrap.replace("{}", each) for each in self.pick(name, *more))


def _joined(*matchers_: str) -> str:
    return ",".join(each for each in matchers_ if each)


def quoted(text: str) -> str:
    """A string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
