"""Redis through `redis-cli`, which may be let in where we are not.

On older SONiC it is a wrapper around `docker exec`, which the group docker may use.
"""

from __future__ import annotations

import json
import shutil
from typing import Any, List, Sequence

from collectors.resp import REFUSALS, Refused
from collectors.source import Denied


class RedisCli:
    """One process for all commands. `denied` says why we are not let in ourselves.

    Its output has a line a value; a hash of unknown size is told from the next reply by an ECHO.
    """

    name = "redis-cli"
    _END = "fabmon-end-of-reply"

    def __init__(self, denied: str, timeout_s: float) -> None:
        found = shutil.which(self.name)
        if found is None:
            raise Denied(denied)
        self._path = found
        self._denied = denied
        self._timeout_s = timeout_s

    def ask(self, commands: Sequence[Sequence[str]]) -> List[Any]:
        """The replies as `Redis.ask` has them. Raises Denied when it is not let in either."""
        try:
            return self._run(commands)
        except OSError as error:
            raise Denied(f"{self._denied} (and redis-cli: {error})") from error

    def close(self) -> None:
        """Nothing is kept open."""

    def _run(self, commands: Sequence[Sequence[str]]) -> List[Any]:
        import subprocess

        script = "".join(
            f"{' '.join(_quoted(command))}\nECHO {self._END}\n" for command in commands
        )
        try:
            done = subprocess.run(
                [self._path, "--raw"],
                input=script.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.SubprocessError as error:
            raise OSError(f"no answer: {error}") from error
        replies = done.stdout.decode("utf-8", "replace").split(f"{self._END}\n")[:-1]
        if done.returncode or len(replies) != len(commands):
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
            raise OSError(said.split("\n")[0][:200] or "it did not answer")
        return [_cli_reply(command, reply) for command, reply in zip(commands, replies)]


def _cli_reply(command: Sequence[str], text: str) -> Any:
    """An absent value is an empty line, and a hash that is not there one empty line alone."""
    lines = text.split("\n")[:-1]
    if lines and lines[0].split(" ")[0] in REFUSALS:
        return Refused(lines[0])
    if command[0] == "HGETALL" and lines == [""]:
        return []
    return [line.encode() or None for line in lines]


def _quoted(words: Sequence[str]) -> List[str]:
    return [json.dumps(word) for word in words]
