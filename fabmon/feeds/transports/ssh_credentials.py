"""What SSH logins are made with: ssh_config, key files, the keys of agents; whether it changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from glob import glob

import asyncssh

from fabmon.feeds.transports.ssh_identities import stamp

_USER_CONFIG = "~/.ssh/config"
_GLOBAL_CONFIG = "/etc/ssh/ssh_config"
_DEFAULT_KEYS = "~/.ssh/id_*"
_AGENT_S = 2.0
_CHECK_S = 2.0
"""Seconds between looks at the keys, after a refused login."""


def config_files(config: str | None) -> list[str]:
    """The ssh_config files to read: the one named, else the user's, then the system's.

    As in ssh, the first value of an option applies.
    """
    if config is not None:
        return [config]
    # Not opened: this is no thread that may wait for a pipe, or for a file system.
    paths = map(os.path.expanduser, (_USER_CONFIG, _GLOBAL_CONFIG))
    return [path for path in paths if os.access(path, os.R_OK)]


State = Mapping[str, Hashable]
"""Files and agents -> what would be different after a change."""


class Credentials:
    """Watches what logins are made with, for all targets together, every 2 s.

    Key files and agents that `ssh_config` names are known once `note` was called with the options
    of a login; `agents` are sockets that are known before.
    """

    def __init__(
        self, config: Sequence[str], reader: ThreadPoolExecutor, agents: Iterable[str] = ()
    ) -> None:
        self._reader = reader
        self._files = {str(name) for name in config}
        self._agents = set(agents)
        self._last: asyncio.Task[State] | None = None
        self._last_s = 0.0

    def note(self, options: asyncssh.SSHClientConnectionOptions, agent: str | None) -> None:
        """Watch the key files of a login and its agent, too."""
        named = options.config.get("IdentityFile", ())
        files = set(named) if isinstance(named, list) else set()
        agents = {agent} if agent else set()
        if not (files <= self._files and agents <= self._agents):
            self._files |= files
            self._agents |= agents
            self._last = None

    async def state(self) -> State:
        """The present state, at most 2 s old."""
        now_s = asyncio.get_running_loop().time()
        if self._last is None or now_s - self._last_s >= _CHECK_S:
            self._last_s = now_s
            self._last = asyncio.create_task(self._read())
        return await asyncio.shield(self._last)

    async def has_changed(self, before: State) -> bool:
        """Whether anything of an earlier state is different now."""
        now = await self.state()
        return any(now.get(name) != value for name, value in before.items())

    async def until_changed(self, before: State) -> None:
        """Return when something of an earlier state is different."""
        while True:
            if await self.has_changed(before):
                return
            await asyncio.sleep(_CHECK_S)

    async def _read(self) -> State:
        loop = asyncio.get_running_loop()
        agents = sorted(self._agents)
        files = await loop.run_in_executor(self._reader, _stamps, sorted(self._files))
        keys = await asyncio.gather(*map(_keys_of, agents))
        return {**files, **dict(zip(agents, keys, strict=True))}


def _stamps(files: Sequence[str]) -> State:
    """When each of these files, and of the usual key files, was changed, and its size; None of a
    file that does not exist. Blocks."""
    return {
        **{name: stamp(os.path.expanduser(name)) for name in files},  # noqa: PTH111
        _DEFAULT_KEYS: tuple(
            (path, stamp(path))
            for path in sorted(glob(os.path.expanduser(_DEFAULT_KEYS)))  # noqa: PTH111, PTH207
        ),
    }


async def _keys_of(agent: str) -> Hashable:
    """The public keys that an agent has; none if it does not answer."""
    keys: list[bytes] = []
    with contextlib.suppress(OSError, ValueError, asyncssh.Error):
        async with asyncio.timeout(_AGENT_S), asyncssh.SSHAgentClient(agent) as client:
            keys = sorted(key.public_data for key in await client.get_keys())
    return tuple(keys)
