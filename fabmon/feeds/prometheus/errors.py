"""Why an engine cannot be read.

EngineError         the message says what, and where there is something to do, what to do
|-- NoAnswer        no route, refused, a timeout, or a gateway that says so
|-- Denied          it wants a token, a password or a tenant, or does not take the one given
|-- QueryRefused    it understood the question and did not take it; its own words
`-- NotAnEngine     whatever answers there is no query API of Prometheus
"""

from __future__ import annotations

from fabmon.fabric.messages import clean


class EngineError(Exception):
    """The engine's trouble. What it quotes is made printable and bounded here.

    `cause` is a short word that groups equal failures.
    """

    cause = "engine"

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))


class NoAnswer(EngineError):
    """No route, refused, a timeout, or a gateway that says so."""

    cause = "no answer"


class Denied(EngineError):
    """It wants a token, a password or a tenant, or does not take the one given."""

    cause = "denied"


class QueryRefused(EngineError):
    """It understood the question and did not take it; its own words."""

    cause = "query refused"


class NotAnEngine(EngineError):
    """Whatever answers there is no query API of Prometheus."""

    cause = "no engine"
