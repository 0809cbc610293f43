"""Real agents in processes of their own, and asking them as anybody would."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

FABMON = str(Path(sys.executable).with_name("fabmon"))
_PATIENCE_S = 240


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Agent:
    """`fabmon agent` that is asked at `url`."""

    def __init__(self, process: subprocess.Popen[str], url: str, token_file: Path) -> None:
        self.process = process
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.token_file = token_file
        self.token = token_file.read_text().strip()

    def ask(
        self,
        path: str,
        token: str | None = None,
        method: str = "GET",
        tls: ssl.SSLContext | None = None,
        **headers: str,
    ) -> Reply:
        """The reply to a request, with the right token unless another is given ("": none)."""
        given = self.token if token is None else token
        if given:
            headers.setdefault("Authorization", f"Bearer {given}")
        request = urllib.request.Request(self.url + path, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S, context=tls) as reply:
                return Reply(reply.status, dict(reply.headers), reply.read().decode())
        except HTTPError as error:
            with error:
                return Reply(error.code, dict(error.headers), error.read().decode())

    def open_stream(self, query: str = "") -> Any:
        """The stream, to be read line by line."""
        request = urllib.request.Request(
            f"{self.url}/stream{query}", headers={"Authorization": f"Bearer {self.token}"}
        )
        return urllib.request.urlopen(request, timeout=_PATIENCE_S)

    def health(self) -> dict[str, Any]:
        health: dict[str, Any] = json.loads(self.ask("/healthz", token="").text)
        return health

    def probe(self) -> int:
        """The process that reads the machine, for who wants to harm it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    def stop(self) -> tuple[int, str]:
        """Ask it to end; its exit status, and all that it said after its first line."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=_PATIENCE_S)
        return self.process.returncode, said


@contextmanager
def agent(directory: Path, *options: str, **environment: str) -> Iterator[Agent]:
    """An agent on a free port of the loopback, with its token in `directory`, that has frames."""
    token_file = directory / "agent.token"
    place = () if "--listen" in options else ("--listen", "127.0.0.1:0")
    process = subprocess.Popen(
        [FABMON, "agent", "--token-file", str(token_file), *place, *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.match(r"fabmon: agent at (https?://\S+), token in (.+)\n", first)
        assert found is not None, first + process.stderr.read()
        yield Agent(process, found[1], Path(found[2]))
    finally:
        process.kill()
        process.communicate()


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + _PATIENCE_S
    while not what():
        assert time.monotonic() < until, "not in time"
        time.sleep(0.05)
